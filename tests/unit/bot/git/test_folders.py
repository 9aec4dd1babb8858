"""The folder of a clone: what is removed, swept after a death, and made harmless for a person who runs git in it."""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.folders import disarm, lock_abandoned_folder, new_owned_folder, remove_folder, sweep
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.repositories import is_git_name
from tests.doubles.forked import Forked
from tests.tables import table
from tests.unit.bot.git.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from collections.abc import Iterator

_REMOVE_AS_ANYONE = """
import os, sys
from pathlib import Path
from orchestrator.bot.git.folders import remove_folder
if os.geteuid() == 0:
    os.setuid(65534)
folder = Path(sys.argv[1], "mine")
(folder / "closed" / "inner").mkdir(parents=True)
(folder / "closed" / "inner" / "file").write_text("x")
(folder / "closed" / "inner" / "file").chmod(0o400)
(folder / "closed" / "inner").chmod(0o000)
(folder / "closed").chmod(0o500)
folder.chmod(0o500)
remove_folder(folder)
"""


def test_read_only_folders() -> None:
    # Root may remove anything, so another user has to try, where it may enter each folder above.
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        subprocess.run([sys.executable, "-c", _REMOVE_AS_ANYONE, name], check=True, cwd="/")
        assert list(Path(name).iterdir()) == []


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "kept").write_text("x")
    (tmp_path / "clone").mkdir()
    (tmp_path / "clone" / "link").symlink_to(tmp_path / "outside")
    remove_folder(tmp_path / "clone")
    assert (tmp_path / "outside" / "kept").exists()
    assert not (tmp_path / "clone").exists()


def test_very_deep_folders(tmp_path: Path) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=descriptor)
        inner = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.close(descriptor)
    remove_folder(folder)
    assert not folder.exists()


def test_a_missing_folder_is_no_error(tmp_path: Path) -> None:
    remove_folder(tmp_path / "never")


_HOLDER = """
import sys
from pathlib import Path
from tests.unit.bot.git.rig import clone, write

source, parent, manner = sys.argv[1:]
opened = clone(source, Path(parent), with_git=True)
write(opened.tree, {"work.txt": "half done"})
if manner == "keep":
    opened.keep()
print(opened.tree.parent, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def living(source: Path, parent: Path, manner: str = "work") -> Iterator[tuple[Path, Forked]]:
    """A process that works in a clone of its own."""
    waits, go_on = os.pipe()
    out, said = os.pipe()
    with open(out, "rb") as lines, open(go_on, "wb"):  # noqa: PTH123  not by a name
        process = Forked((str(source), str(parent), manner), (waits, said, 2), code=_HOLDER)
        for file in (waits, said):
            os.close(file)
        yield Path(os.fsdecode(lines.readline().strip())), process
        process.kill()


def dead(source: Path, parent: Path, manner: str = "work") -> Path:
    """The clone of a process that was killed."""
    with living(source, parent, manner) as (folder, process):
        process.kill()
    return folder


def later(seconds: float) -> ManualClock:
    return ManualClock(datetime.now(UTC) + timedelta(seconds=seconds))


def test_a_clone_is_swept_once_its_process_is_dead(source: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    with living(source, runs) as (folder, process):
        assert (folder / "tree" / "work.txt").exists()
        assert sweep(runs, clock=later(10**6)) == []
        process.kill()
        assert sweep(runs) == [folder]
    assert list(runs.iterdir()) == []


def test_a_clone_of_this_process_is_not_swept(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as opened:
        assert sweep(tmp_path / "runs", clock=later(10**6)) == []
        assert opened.changed_paths() == set()


def test_what_somebody_goes_on_with_stays(source: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    folder = dead(source, runs)
    (tmp_path / "link").symlink_to(runs)
    assert sweep(runs, keep=[folder]) == []
    assert sweep(runs, keep=[tmp_path / "link" / folder.name]) == []
    assert sweep(tmp_path / "link") == [folder]


def test_a_kept_clone_stays_for_ever(source: Path, tmp_path: Path) -> None:
    folder = dead(source, tmp_path / "runs", "keep")
    assert sweep(tmp_path / "runs", clock=later(10**9)) == []
    assert (folder / "tree" / "work.txt").read_text() == "half done"


def test_a_clone_that_cannot_be_marked_is_disarmed_all_the_same(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        (opened.tree.parent / "owner").unlink()
        with pytest.raises(WorkspaceError, match="cannot mark the kept clone"):
            opened.keep()
        assert not (opened.tree / ".git").exists()
    assert (opened.tree / "README.md").exists()


def test_hostile_content_is_removed_and_no_link_followed(source: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside, {"precious.txt": "mine"})
    outside.chmod(0o750)
    runs = tmp_path / "runs"
    folder = dead(source, runs)
    (folder / "tree" / "link").symlink_to(outside)
    (folder / "tree" / "deep").mkdir()
    (folder / "tree" / "deep" / "link").symlink_to(outside / "precious.txt")
    os.mkfifo(folder / "tree" / "deep" / "pipe")
    (folder / "tree" / "owner").symlink_to(outside / "precious.txt")
    (folder / "tree" / "deep").chmod(0)
    (folder / "tree").chmod(0o500)
    assert sweep(runs) == [folder]
    assert not folder.exists()
    assert (outside / "precious.txt").read_text() == "mine"
    assert stat.S_IMODE(outside.stat().st_mode) == 0o750


def test_what_is_not_ours_stays(source: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    ours = dead(source, runs)
    elsewhere = runs / "another-name"
    ours.rename(elsewhere)
    (runs / "pullwright-linked00").symlink_to(elsewhere)
    # Private, old, named as ours and full of work, but never marked.
    write(runs / "pullwright-notes000", {"thesis.txt": "years"})
    (runs / "pullwright-notes000").chmod(0o700)
    write(runs / "pw-mythings", {"thesis.txt": "years"})
    (runs / "pw-mythings").chmod(0o700)
    (runs / "pullwright-20261121.patch").write_text("work")
    (runs / "pullwright-abcdefgh").write_text("a file")
    # A mark that is a link, and one that is a folder.
    marked = runs / "pullwright-marked00"
    marked.mkdir(mode=0o700)
    (marked / "owner").symlink_to(elsewhere / "owner")
    (runs / "pullwright-marked01" / "owner").mkdir(parents=True, mode=0o700)
    before = sorted(path for path in runs.rglob("*"))
    assert sweep(runs, clock=later(10**9)) == []
    assert sorted(path for path in runs.rglob("*")) == before


def test_the_folder_of_another_user_stays(source: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    folder = dead(source, tmp_path / "runs")
    os.chown(folder, 65534, 65534)
    empty = tmp_path / "runs" / "pullwright-empty000"
    empty.mkdir(mode=0o700)
    os.chown(empty, 65534, 65534)
    assert sweep(tmp_path / "runs", clock=later(10**6)) == []
    assert lock_abandoned_folder(folder) is None


def test_a_folder_that_is_just_being_made_stays(tmp_path: Path) -> None:
    young = tmp_path / "pullwright-aaaaaaaa"
    young.mkdir(mode=0o700)
    assert sweep(tmp_path) == []
    assert sweep(tmp_path, clock=later(-(10**6))) == []
    assert sweep(tmp_path, clock=later(599)) == []
    assert sweep(tmp_path, clock=later(700)) == [young]


def test_small_leftovers_of_environments_go_when_they_are_old(tmp_path: Path) -> None:
    for name, files in (("pw-abcdefgh", ("s", "complaints")), ("pw-12345678", ("number",))):
        (tmp_path / name).mkdir(mode=0o700)
        for file in files:
            (tmp_path / name / file).touch()
    assert sweep(tmp_path, clock=later(24 * 3600)) == []
    assert len(sweep(tmp_path, clock=later(3 * 24 * 3600))) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_that_was_killed_half_way_is_finished_by_the_next(source: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    folder = dead(source, runs)
    owner = lock_abandoned_folder(folder)
    assert owner is not None
    # What is removed first is not the mark, so that at no moment an unmarked rest is left.
    (folder / "tree").rename(folder / "tree2")
    seen: list[set[str]] = []
    remaining = threading.Event()

    def look() -> None:
        while not remaining.is_set():
            with contextlib.suppress(FileNotFoundError):
                seen.append({path.name for path in folder.iterdir()})

    watching = threading.Thread(target=look)
    watching.start()
    owner.remove()
    remaining.set()
    watching.join()
    assert all("owner" in names for names in seen if names)
    assert not folder.exists()


def test_many_sweepers_and_makers_at_once(tmp_path: Path) -> None:
    """Nobody's living folder goes, and every dead one goes exactly once."""
    dead_ones = [new_owned_folder(tmp_path, "run", "address") for _ in range(20)]
    for owner in dead_ones:
        (owner.folder / "tree").mkdir()
        owner.release()

    def make(_: int) -> bool:
        owner = new_owned_folder(tmp_path, "run", "address")
        there = (owner.folder / "owner").exists()
        sweep(tmp_path)
        there = there and (owner.folder / "owner").exists()
        owner.remove()
        return there

    with ThreadPoolExecutor(8) as pool:
        made = [pool.submit(make, number) for number in range(60)]
        swept = [pool.submit(sweep, tmp_path) for _ in range(8)]
        assert all(result.result() for result in made)
        for result in swept:
            result.result()
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_maker_gives_way_to_a_sweeper_that_was_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweeper comes between the making of the file and its lock."""
    import fcntl

    real = fcntl.flock
    taken: list[int] = []

    def flock(handle: int, operation: int) -> None:
        if not taken:
            folder = next(tmp_path.iterdir())
            taken.append(os.open(folder / "owner", os.O_RDONLY))
            real(taken[0], fcntl.LOCK_EX)
        real(handle, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    owner = new_owned_folder(tmp_path, "run", "address")
    assert len(list(tmp_path.iterdir())) == 2
    assert lock_abandoned_folder(owner.folder) is None
    owner.release()
    os.close(taken[0])
    assert len(sweep(tmp_path)) == 2


def test_the_marks_tell_the_run_and_not_the_address(source: Path, tmp_path: Path) -> None:
    folder = dead(source, tmp_path / "runs")
    owner = lock_abandoned_folder(folder)
    assert owner is not None
    assert (owner.facts.branch, owner.facts.commit) == ("main", git(source, "rev-parse", "HEAD"))
    assert str(source) not in (folder / "owner").read_text()
    assert stat.S_IMODE((folder / "owner").stat().st_mode) == 0o600
    assert lock_abandoned_folder(folder) is None
    owner.release()


def test_where_nothing_is_to_sweep(tmp_path: Path) -> None:
    assert sweep(tmp_path / "nowhere") == []
    (tmp_path / "file").touch()
    assert sweep(tmp_path / "file") == []


def test_the_clone_of_a_run_that_is_not_known_to_be_over_stays_for_a_week(tmp_path: Path) -> None:
    owner = new_owned_folder(tmp_path, "20261121-000000-abcdef", "")
    owner.release()
    assert sweep(tmp_path, is_over=lambda _run: False, clock=later(6 * 24 * 3600)) == []
    assert sweep(tmp_path, is_over=lambda _run: False, clock=later(8 * 24 * 3600)) == [owner.folder]


def test_the_clone_of_a_run_that_is_over_and_a_folder_of_no_run_go_at_once(tmp_path: Path) -> None:
    for run in ("20261121-000000-abcdef", ""):
        owner = new_owned_folder(tmp_path, run, "")
        owner.release()
        assert sweep(tmp_path, is_over=bool) == [owner.folder]


EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
SPELLINGS = (
    *(".git", ".GIT", ".gIt", ".git.", ".git ", ".git. .", ".git::$INDEX_ALLOCATION", "git~1", "GIT~2"),
    *(".g\u200cit", "\ufeff.git", ".gi\u0307t", ".g\u0131t", "\uff0egit", ".\u202egit"),
)


@pytest.mark.parametrize("name", SPELLINGS)
def test_names_that_some_file_system_takes_for_git(name: str, tmp_path: Path) -> None:
    assert is_git_name(name)
    write(tmp_path, {f"tree/deep/{name}/config": "x", f"tree/{name}": "gitdir: x", "tree/kept.txt": "x"})
    disarm(tmp_path / "tree")
    found = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")}
    assert found == {"tree", "tree/kept.txt", "tree/deep"}


@table(
    "name", [".github", ".gitignore", "git", ".gitmodules", "x.git", "git~x", "..git", "agit~1", ".git-x", ""]
)
def test_other_names_stay(name: str) -> None:
    assert not is_git_name(name)


def hostile(tmp_path: Path, marker: Path) -> Path:
    """A repository in which every plain command runs a program."""
    script = tmp_path / "trap.sh"
    script.write_text(f"#!/bin/sh\ntouch {marker}\n")
    script.chmod(0o755)
    folder = make_source(tmp_path / "hostile", {"x.txt": "x"})
    git(folder, "config", "core.fsmonitor", str(script))
    git(folder, "config", "diff.external", str(script))
    return folder


def test_git_runs_nothing_in_a_kept_clone(source: Path, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    trap = hostile(tmp_path, marker)
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        tree = opened.tree
        (tree / ".git" / "config").write_bytes((trap / ".git" / "config").read_bytes())
        (tree / "linked").mkdir()
        (tree / "linked" / ".git").symlink_to(trap / ".git")
        write(tree, {"file/.git": f"gitdir: {trap / '.git'}\n"})
        (trap / ".git").rename(tmp_path / "kept-aside")
        for name in ("bare", "closed/bare"):
            (tree / name).parent.mkdir(exist_ok=True)
            subprocess.run(["cp", "-r", str(tmp_path / "kept-aside"), str(tree / name)], check=True)
            git(tree / name, "config", "core.worktree", str(tree))
        (tmp_path / "kept-aside").rename(trap / ".git")
        (tree / "common").mkdir()
        write(tree, {"common/HEAD": "ref: refs/heads/main\n", "common/commondir": "../bare\n"})
        write(tree, {"work.txt": "the only copy\n"})
        folders = [tree / name for name in (".", "linked", "file", "bare", "closed/bare", "common")]
        for folder in folders:
            marker.unlink(missing_ok=True)
            run_git(folder)
            assert marker.exists(), f"the trap in {folder.name} does not work"
        marker.unlink()
        (tree / "closed" / "bare").chmod(0o500)
        (tree / "closed").chmod(0o000)
        opened.keep()
    for folder in folders:
        run_git(folder)
    assert not marker.exists()
    assert (tree / "work.txt").read_text() == "the only copy\n"
    assert (trap / ".git" / "config").exists()
    assert sorted(path.name for path in (tree / "bare").iterdir() if "HEAD" in path.name) == ["HEAD.disarmed"]


def run_git(folder: Path) -> None:
    for command in (["status"], ["diff"], ["diff", EMPTY_TREE, "HEAD"]):
        subprocess.run(["git", *command], cwd=folder, check=False, capture_output=True)


def test_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path, {"outside/.git/config": "x", "outside/HEAD": "x", "outside/refs/x": "x", "tree/a": "x"})
    (tmp_path / "tree" / "link").symlink_to(tmp_path / "outside")
    disarm(tmp_path / "tree")
    (tmp_path / "second").symlink_to(tmp_path / "outside")
    disarm(tmp_path / "second")
    disarm(tmp_path / "missing")
    assert (tmp_path / "outside/.git/config").exists()
    assert (tmp_path / "outside/HEAD").exists()


def test_a_file_called_head_is_work_like_any_other(tmp_path: Path) -> None:
    write(tmp_path, {"tree/HEAD": "x", "tree/config": "x", "tree/bare/HEAD": "1", "tree/bare/refs/x": "x"})
    write(tmp_path, {"tree/bare/HEAD.disarmed": "in the way"})
    disarm(tmp_path / "tree")
    assert (tmp_path / "tree/HEAD").exists()
    assert (tmp_path / "tree/bare/HEAD.disarmed").read_text() == "in the way"
    assert (tmp_path / "tree/bare/HEAD.disarmed-").read_text() == "1"


def test_a_git_far_below(tmp_path: Path) -> None:
    folder = tmp_path / "tree"
    folder.mkdir()
    descriptor = os.open(folder, os.O_RDONLY)
    for name in ("d" * 200,) * 1100:
        os.mkdir(name, dir_fd=descriptor)
        inner = os.open(name, os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = inner
    os.mkdir(".git", dir_fd=descriptor)
    os.close(descriptor)
    disarm(folder)
    names = [name for _, folders, _ in os.walk(folder) for name in folders]
    assert set(names) == {"d" * 200}
    assert len(names) <= 101


_AS_ANYONE = """
import os, sys
from pathlib import Path
from orchestrator.bot.git.folders import disarm
if os.geteuid() == 0:
    os.setuid(65534)
tree = Path(sys.argv[1], "tree")
(tree / "closed" / ".git" / "inner").mkdir(parents=True)
(tree / "closed" / "work").write_text("x")
(tree / "closed" / ".git" / "inner").chmod(0o000)
(tree / "closed" / ".git").chmod(0o000)
(tree / "closed").chmod(0o000)
tree.chmod(0o500)
disarm(tree)
"""


def test_closed_folders_are_opened() -> None:
    # Root needs no rights, so another user has to try, where it may enter each folder above.
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        shared.chmod(0o777)
        subprocess.run([sys.executable, "-c", _AS_ANYONE, name], check=True, cwd="/")
        found = {path.relative_to(shared).as_posix() for path in shared.rglob("*")}
    assert found == {"tree", "tree/closed", "tree/closed/work"}
