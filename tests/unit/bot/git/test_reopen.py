"""The clone of a process that was killed is opened again, whatever git was in the middle of."""

from __future__ import annotations

import os
import shutil
import signal
import zlib
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.folders import sweep
from orchestrator.bot.git.opening import reopen_clone
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import WorkspaceError
from tests.doubles.commits import commit_touched
from tests.doubles.forked import Forked
from tests.unit.bot.git.rig import US, clone, git, make_source, write
from tests.unit.bot.git.test_folders import dead, living

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.git.clone import Clone

_WORKER = """
import os, signal, sys
from pathlib import Path
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.rig import clone, write

source, parent = sys.argv[1:]
opened = clone(source, Path(parent), with_git=True)
write(opened.tree, {"README.md": "# Committed\\n", "src/new.py": "new = 1\\n"})
commit_touched(opened, {"README.md", "src/new.py"}, "one", include_commands=True)
write(opened.tree, {"src/calc.py": "def add(a, b):\\n    return a + b\\n"})
(opened.tree / "src" / "old.py").unlink()
print(opened.tree.parent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
CHANGED = {"README.md", "src/new.py", "src/calc.py", "src/old.py"}


def killed(source: Path, tmp_path: Path) -> Path:
    """A clone in which something was committed and more was changed, then came the end."""
    with Path(os.devnull).open("rb") as nothing, TemporaryFile() as said:
        streams = (nothing.fileno(), said.fileno(), 2)
        process = Forked((str(source), str(tmp_path / "runs")), streams, code=_WORKER)
        assert process.wait() == -signal.SIGKILL
        said.seek(0)
        return Path(os.fsdecode(said.read().strip()))


def reopen(folder: Path, source: Path) -> Clone:
    return reopen_clone(folder, str(source), lambda: None, US, ManualClock())


def assert_whole(opened: Clone, source: Path, tmp_path: Path) -> None:
    """All that was changed since the base is there, can be read, and can be committed and pushed."""
    assert (opened.base_branch, opened.base_commit) == ("main", git(source, "rev-parse", "main"))
    assert opened.changed_paths() == CHANGED
    patch = opened.pending_patch(set(), include_commands=True)
    shutil.rmtree(tmp_path / "checked", ignore_errors=True)
    git(tmp_path, "clone", "-q", str(source), "checked")
    git(tmp_path / "checked", "apply", stdin=patch)
    assert (tmp_path / "checked" / "src" / "new.py").read_text() == "new = 1\n"
    made = commit_touched(opened, set(), "again", include_commands=True)
    assert set(made.files) == CHANGED
    assert opened.push("pullwright/x", expected=None) == made.commit
    git(source, "fsck", "--strict")


def test_what_was_changed_is_all_there(source: Path, tmp_path: Path) -> None:
    folder = killed(source, tmp_path)
    with reopen(folder, source) as opened:
        assert sweep(tmp_path / "runs") == []
        assert_whole(opened, source, tmp_path)
        assert len(opened.tracked_files()) == 4
    assert not folder.exists()


def stale_locks(host: Path) -> None:
    for name in (
        "index.lock",
        "index.commit.lock",
        "HEAD.lock",
        "config.lock",
        "shallow.lock",
        "index.new.lock",
    ):
        (host / name).touch()
    (host / "refs" / "heads" / "main.lock").touch()
    (host / "objects" / "pack" / "tmp_pack_abc").write_bytes(b"PACK")


def torn_references(host: Path) -> None:
    (host / "refs" / "heads" / "main").write_text("")
    (host / "HEAD").write_text("ref: refs/he")


def lost_references(host: Path) -> None:
    shutil.rmtree(host / "refs" / "heads")
    (host / "HEAD").write_text("")


def torn_index(host: Path) -> None:
    content = (host / "index").read_bytes()
    (host / "index").write_bytes(content[: len(content) // 2])
    (host / "index.commit").write_bytes(content[:10])


def lost_index(host: Path) -> None:
    (host / "index").unlink()


def torn_configuration(host: Path) -> None:
    (host / "config").write_text("[core]\n\trepositoryform")


def torn_objects(host: Path) -> None:
    """Every loose object is empty, cut, or not what its name says. The same ones are made again later."""
    found = [path for folder in (host / "objects").glob("??") for path in folder.iterdir()]
    assert len(found) >= 4
    for number, path in enumerate(found):
        path.chmod(0o600)
        content = path.read_bytes()
        path.write_bytes((b"", content[: len(content) // 2], zlib.compress(b"blob 1\0x"), b"\0")[number % 4])


_HARMS = (
    *(stale_locks, torn_references, lost_references, torn_index, lost_index),
    *(torn_configuration, torn_objects),
)


@pytest.mark.parametrize("harm", _HARMS)
def test_what_git_was_killed_in_is_repaired(
    source: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    folder = killed(source, tmp_path)
    harm(folder / "host.git")
    with reopen(folder, source) as opened:
        assert git(folder / "host.git", "rev-parse", "HEAD", "main").split() == [opened.base_commit] * 2
        assert not list((folder / "host.git").rglob("*.lock")) + list((folder / "host.git").rglob("tmp_*"))
        assert_whole(opened, source, tmp_path)


def lost_pack(folder: Path) -> None:
    for path in (folder / "host.git" / "objects" / "pack").iterdir():
        path.unlink()


def no_tree(folder: Path) -> None:
    (folder / "tree").rename(folder / "elsewhere")


def tree_is_a_link(folder: Path) -> None:
    (folder / "tree").rename(folder / "elsewhere")
    (folder / "tree").symlink_to(folder / "elsewhere")


def no_host(folder: Path) -> None:
    shutil.rmtree(folder / "host.git")


def unfinished(folder: Path) -> None:
    text = (folder / "owner").read_bytes()
    (folder / "owner").write_bytes(text[: text.index(b"\n") + 20])


def unmarked(folder: Path) -> None:
    (folder / "owner").unlink()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lost_pack, "cannot be repaired, objects of the base are missing"),
        (no_tree, "cannot be repaired, its tree is missing"),
        (tree_is_a_link, "cannot be repaired, its tree is missing"),
        (no_host, "cannot be repaired, its host.git is missing"),
        (unfinished, "it is not complete"),
        (unmarked, "is not a clone of this user"),
    ],
)
def test_what_is_beyond_repair_is_said_and_stays(
    source: Path, tmp_path: Path, harm: Callable[[Path], None], said: str
) -> None:
    folder = dead(source, tmp_path / "runs")
    harm(folder)
    for _ in range(2):  # the first try has let go of the folder
        with pytest.raises(WorkspaceError, match=said) as caught:
            reopen(folder, source)
        assert "\n" not in str(caught.value)
    assert folder.exists()


def test_a_living_process_is_left_alone(source: Path, tmp_path: Path) -> None:
    with (
        living(source, tmp_path / "runs") as (folder, _),
        pytest.raises(WorkspaceError, match="another process uses it"),
    ):
        reopen(folder, source)


def test_two_do_not_open_the_same(source: Path, tmp_path: Path) -> None:
    folder = dead(source, tmp_path / "runs")
    with reopen(folder, source), pytest.raises(WorkspaceError, match="another process uses it"):
        reopen(folder, source)


def test_another_repository(source: Path, tmp_path: Path) -> None:
    other = make_source(tmp_path / "other", {"a": "a"})
    with pytest.raises(WorkspaceError, match="a clone of another repository"):
        reopen(dead(source, tmp_path / "runs"), other)


def test_no_folder_and_a_link(source: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="No such file"):
        reopen(tmp_path / "nowhere", source)
    (tmp_path / "link").symlink_to(dead(source, tmp_path / "runs"))
    with pytest.raises(WorkspaceError, match="again: "):
        reopen(tmp_path / "link", source)


def test_a_kept_clone_stays_kept(source: Path, tmp_path: Path) -> None:
    folder = dead(source, tmp_path / "runs", "keep")
    with reopen(folder, source) as opened:
        assert opened.changed_paths() == {"work.txt"}
    assert (folder / "tree" / "work.txt").exists()
    with reopen(folder, source):
        pass


def test_nothing_that_the_model_left_is_run(source: Path, tmp_path: Path) -> None:
    folder = dead(source, tmp_path / "runs")
    trap = tmp_path / "trap"
    own = folder / "tree" / ".git"
    write(
        own,
        {
            "hooks/pre-commit": f"#!/bin/sh\ntouch {trap}\n",
            "config": f'[core]\n\tfsmonitor = touch {trap}\n\thooksPath = hooks\n[filter "x"]\n\tclean = touch {trap}\n',
        },
    )
    (own / "hooks" / "pre-commit").chmod(0o755)
    write(folder / "tree", {".gitattributes": "* filter=x\n"})
    (folder / "tree" / "escape").symlink_to("/etc/passwd")
    with reopen(folder, source) as opened:
        assert opened.changed_paths() == {"work.txt", ".gitattributes", "escape"}
        patch = opened.pending_patch(set(), include_commands=True)
        assert b"root:" not in patch
    assert not trap.exists()


def test_sha256(tmp_path: Path) -> None:
    source = tmp_path / "source"
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "source")
    write(source, {"a": "a\n"})
    git(source, "add", ".")
    git(source, "commit", "-qm", "first")
    folder = dead(source, tmp_path / "runs")
    torn_configuration(folder / "host.git")
    with reopen(folder, source) as opened:
        assert opened.changed_paths() == {"work.txt"}
        assert commit_touched(opened, set(), "x", include_commands=True).files == ["work.txt"]


def test_a_clone_that_lives_is_the_same_as_one_opened_again(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "live") as live, reopen(dead(source, tmp_path / "runs"), source) as again:
        assert again.tracked_files() == live.tracked_files()
        assert again.recent_commits(5) == live.recent_commits(5)
        host, other = live.tree.parent / "host.git", again.tree.parent / "host.git"
        assert (host / "config").read_text() == (other / "config").read_text()
