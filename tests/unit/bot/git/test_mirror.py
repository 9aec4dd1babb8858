"""A clone through the mirror is the same clone, costs less, and never depends on the mirror's health."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.folders import address_key
from orchestrator.bot.git.opening import Mirrors, open_clone
from orchestrator.bot.git.remote import parse_remote
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import EmptyRepositoryError, WorkspaceError
from orchestrator.core.redaction import Credential
from tests.doubles.byte_counter import ByteCounter
from tests.unit.bot.git.rig import US, git, make_source, write
from tests.unit.bot.git.smart_http import SmartHttp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone


@dataclass
class Rig:
    """A served repository, and clones of it with and without a mirror."""

    server: SmartHttp
    work: Path
    scratch: Path
    port: int
    notes: list[str] = field(default_factory=list)
    cancelled: bool = False
    branch: str | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/repo.git"

    @property
    def mirrors(self) -> Path:
        return self.scratch / "mirrors"

    @property
    def mirror(self) -> Path:
        return self.mirrors / f"{address_key(self.url)}.git"

    def credential(self) -> Credential:
        return Credential("127.0.0.1", self.server.user, self.server.password)

    def clone(self, *, mirror: bool = True, branch: str | None = None, with_git: bool = False) -> Clone:
        return open_clone(
            self.url,
            branch=branch or self.branch,
            credential=self.credential,
            parent=self.scratch / "runs",
            with_git=with_git,
            identity=US,
            clock=ManualClock(),
            mirror=self.mirrors if mirror else None,
            note=self.notes.append,
        )

    def change(self, text: str, name: str = "README.md") -> None:
        write(self.work, {name: text})
        git(self.work, "commit", "-qam", text[:20])

    def changes(self, count: int) -> None:
        """Several commits with one command, so that the tests are fast."""
        words = []
        for number in range(count):
            text = f"change {number}"
            start = "from refs/heads/main^0\n" if not number else ""
            words.append(
                f"commit refs/heads/main\ncommitter S <s@example.invalid> {10**9 + number} +0000\n"
                f"data {len(text)}\n{text}\n{start}M 644 inline README.md\ndata {len(text)}\n{text}\n"
            )
        git(self.work, "fast-import", "--quiet", stdin="".join(words).encode())
        git(self.work, "reset", "-q", "--hard")

    @property
    def tip(self) -> str:
        return git(self.work, "rev-parse", "HEAD")


@pytest.fixture
def rig(source: Path, tmp_path: Path) -> Iterator[Rig]:
    root = tmp_path / "served"
    root.mkdir()
    (root / "repo.git").symlink_to(source / ".git")
    with SmartHttp(root).running() as server:
        yield Rig(server, source, tmp_path, server.port)


def facts(opened: Clone) -> dict[str, object]:
    """What two equal clones have in common."""
    host = opened.tree.parent / "host.git"
    files = {
        str(path.relative_to(opened.tree)): (path.read_bytes(), path.lstat().st_mode)
        for path in opened.tree.rglob("*")
        if path.is_file() and ".git" not in path.parts
    }
    shallow = host / "shallow"
    return {
        "base": (opened.base_branch, opened.base_commit),
        "tracked": opened.tracked_files(),
        "history": opened.recent_commits(100),
        "files": files,
        "changed": opened.changed_paths(),
        "refs": git(host, "for-each-ref", "--format=%(refname) %(objectname)"),
        "shallow": sorted(shallow.read_text().split()) if shallow.exists() else [],
        "objects": sorted(
            git(host, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)").split()
        ),
        "config": (host / "config").read_text(),
        "head": (host / "HEAD").read_text(),
    }


def assert_same(rig: Rig, branch: str | None = None) -> Clone:
    """The clone through the mirror is the one without, and the mirror was used."""
    rig.notes.clear()
    with (
        rig.clone(branch=branch, with_git=True) as ours,
        rig.clone(mirror=False, branch=branch, with_git=True) as direct,
    ):
        assert facts(ours) == facts(direct)
        assert rig.notes == []
        assert rig.mirror.is_dir()
        # Nothing leads from the clone to the mirror, and no file is shared with it.
        assert not (ours.tree.parent / "host.git" / "objects" / "info" / "alternates").exists()
        packs = [path for path in rig.mirrors.rglob("*") if path.is_file()]
        inodes = {(path.stat().st_dev, path.stat().st_ino) for path in packs}
        mine = [path for path in ours.tree.parent.rglob("*") if path.is_file() and not path.is_symlink()]
        assert not inodes & {(path.stat().st_dev, path.stat().st_ino) for path in mine}
        return ours


def test_the_clone_is_the_same_again_and_again(rig: Rig) -> None:
    assert_same(rig)
    assert_same(rig)
    for count in (1, 8, 4):
        rig.changes(count)
        assert_same(rig)
    assert (rig.mirrors.stat().st_mode & 0o777, rig.mirror.stat().st_mode & 0o777) == (0o700, 0o700)


@pytest.mark.slow(reason="dozens of git programs; the like of them is in the default tier")
def test_other_branches_and_names_that_exclude_each_other(rig: Rig) -> None:
    rig.changes(8)
    git(rig.work, "branch", "a", "HEAD~3")
    # Of the tip's history this is the cut: fetched for `a`, it may not cut off what `main` shows.
    assert_same(rig)
    assert_same(rig, "a")
    assert_same(rig)
    git(rig.work, "branch", "-q", "-D", "a")
    git(rig.work, "branch", "a/b", "HEAD~1")
    assert_same(rig, "a/b")
    assert_same(rig, "main")


def test_a_branch_whose_name_looks_like_two_lines(rig: Rig) -> None:
    name = f"x\u2028{'1' * 40}"
    git(rig.work, "checkout", "-q", "-b", name)
    assert assert_same(rig).base_branch == name
    assert_same(rig, name)


def test_merges_bring_back_what_was_cut_off(rig: Rig) -> None:
    old = rig.tip
    rig.changes(15)
    assert_same(rig)
    tree = git(rig.work, "rev-parse", "HEAD^{tree}")
    parents = ("-p", "HEAD", "-p", "HEAD~11", "-p", old)
    git(
        rig.work, "update-ref", "refs/heads/main", git(rig.work, "commit-tree", tree, *parents, "-m", "merge")
    )
    assert_same(rig)


def test_a_base_that_was_rewritten(rig: Rig) -> None:
    rig.changes(2)
    old = rig.tip
    assert_same(rig)
    git(rig.work, "reset", "-q", "--hard", "HEAD~2")
    rig.change("other")
    opened = assert_same(rig)
    git(rig.work, "reset", "-q", "--hard", old)
    assert opened.base_commit != old
    assert assert_same(rig).base_commit == old


def test_the_default_branch_may_change(rig: Rig) -> None:
    assert_same(rig)
    git(rig.work, "checkout", "-q", "-b", "trunk")
    rig.change("trunk")
    assert assert_same(rig).base_branch == "trunk"
    assert_same(rig, "main")


def test_submodules_links_and_odd_names(rig: Rig, tmp_path: Path) -> None:
    inner = make_source(tmp_path / "inner", {"a": "a"})
    write(rig.work, {os.fsdecode(b"caf\xe9.txt"): "latin"})
    (rig.work / "dangling").symlink_to("nowhere")
    git(rig.work, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(rig.work, "add", ".")
    rig.change("with a submodule")
    assert_same(rig)
    assert_same(rig)


@pytest.mark.slow(reason="dozens of git programs; the like of them is in the default tier")
def test_sha256(rig: Rig, tmp_path: Path) -> None:
    assert_same(rig)
    source = tmp_path / "new"
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "new")
    write(source, {"a": "a"})
    git(source, "add", ".")
    git(source, "commit", "-qm", "first")
    # The same address: the repository was made anew there.
    (rig.server.root / "repo.git").unlink()
    (rig.server.root / "repo.git").symlink_to(source / ".git")
    rig.work = source
    assert len(assert_same(rig).base_commit) == 64
    rig.change("two", "a")
    assert_same(rig)


def refusals(rig: Rig, branch: str | None) -> tuple[str, str]:
    said = []
    for mirror in (True, False):
        with pytest.raises(WorkspaceError) as caught:
            rig.clone(mirror=mirror, branch=branch)
        said.append(f"{type(caught.value).__name__}: {caught.value}")
    return said[0], said[1]


@pytest.mark.parametrize("warm", [False, True])
def test_what_is_refused_is_refused_in_the_same_words(rig: Rig, *, warm: bool) -> None:
    if warm:
        assert_same(rig)
    git(rig.work, "tag", "-a", "v1", "-m", "one")
    for branch in ("v1", "nowhere", "-x", "*", "HEAD"):
        ours, direct = refusals(rig, branch)
        assert ours == direct
    (rig.work / ".git" / "HEAD").write_text("ref: refs/heads/unborn\n")
    ours, direct = refusals(rig, None)
    assert ours == direct
    assert "pass --base BRANCH" in ours
    rig.server.status = 404
    assert len(set(refusals(rig, None))) == 1
    assert list((rig.scratch / "runs").iterdir()) == []


def test_a_head_without_branch_is_left_to_the_clone(rig: Rig) -> None:
    git(rig.work, "checkout", "-q", "--detach")
    with rig.clone() as ours, rig.clone(mirror=False) as direct:
        assert facts(ours) == facts(direct)
    assert not rig.mirror.exists()


def test_an_empty_repository(rig: Rig, tmp_path: Path) -> None:
    (rig.server.root / "repo.git").unlink()
    git(tmp_path, "init", "-q", "--bare", "served/repo.git")
    for branch in (None, "main"):
        assert len(set(refusals(rig, branch))) == 1
    with pytest.raises(EmptyRepositoryError):
        rig.clone()


def test_a_token_that_may_no_longer_read_gets_nothing_from_the_mirror(rig: Rig) -> None:
    assert_same(rig)
    good = rig.server.password
    rig.server.password = "revoked"
    wrong = Credential("127.0.0.1", rig.server.user, good)
    with pytest.raises(WorkspaceError, match="check the token"):
        open_clone(
            rig.url,
            branch=None,
            credential=lambda: wrong,
            parent=rig.scratch / "runs",
            with_git=False,
            identity=US,
            mirror=rig.mirrors,
        )
    assert rig.mirror.is_dir()


def lose_object(mirror: Path) -> None:
    for path in (mirror / "objects" / "pack").iterdir():
        path.unlink()


def flip_bytes(mirror: Path) -> None:
    for path in (mirror / "objects" / "pack").glob("*.pack"):
        path.chmod(0o600)
        content = bytearray(path.read_bytes())
        for place in range(20, len(content) - 20, 7):
            content[place] ^= 0xFF
        path.write_bytes(content)


def cut_pack(mirror: Path) -> None:
    for path in (mirror / "objects" / "pack").glob("*.pack"):
        path.chmod(0o600)
        os.truncate(path, path.stat().st_size // 2)


def break_shallow(mirror: Path) -> None:
    (mirror / "shallow").write_text("nonsense\n")


def shorten_history(mirror: Path) -> None:
    tip = git(mirror, "rev-parse", "refs/pullwright/tip")
    with (mirror / "shallow").open("a") as file:
        file.write(f"{git(mirror, 'rev-parse', f'{tip}~2')}\n")


def lengthen_history(mirror: Path) -> None:
    (mirror / "shallow").unlink()


def leave_lock(mirror: Path) -> None:
    (mirror / "shallow.lock").touch()
    (mirror / "refs" / "pullwright" / "tip.lock").touch()


def lose_state(mirror: Path) -> None:
    (mirror / "pullwright-state").unlink()


def tear_state(mirror: Path) -> None:
    (mirror / "pullwright-state").write_text('{"commit": "abc')


def point_elsewhere(mirror: Path) -> None:
    state = mirror / "pullwright-state"
    commit = git(mirror, "rev-parse", "refs/pullwright/tip")
    state.write_text(state.read_text().replace(commit, "1" * 40))


def empty_it(mirror: Path) -> None:
    for name in ("HEAD", "config"):
        (mirror / name).write_text("")


def deny(mirror: Path) -> None:
    (mirror / "objects").chmod(0)


_DAMAGES = (
    *(lose_object, flip_bytes, cut_pack, break_shallow, shorten_history, lengthen_history),
    *(lose_state, tear_state, point_elsewhere, empty_it, deny),
)
# Found by the next fetch only, or in another place by it.
_BEFORE_A_FETCH = (lose_object, flip_bytes, shorten_history, lengthen_history, leave_lock, deny)


def damaged(rig: Rig, damage: Callable[[Path], None], *, moved: bool) -> None:
    """The clone after the damage is as good as any."""
    rig.changes(12)
    rig.clone().close()
    assert rig.mirror.is_dir()
    damage(rig.mirror)
    if moved:
        rig.change("and one more")
    with rig.clone() as opened:
        host = opened.tree.parent / "host.git"
        assert opened.base_commit == rig.tip
        assert len(opened.recent_commits(100)) == 10
        assert len((host / "shallow").read_text().split()) == 1
        assert opened.changed_paths() == set()
        git(host, "fsck", "--full", "--no-dangling")


@pytest.mark.parametrize("damage", _DAMAGES)
def test_a_damaged_mirror_harms_no_clone(rig: Rig, damage: Callable[[Path], None]) -> None:
    damaged(rig, damage, moved=False)


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize("damage", _BEFORE_A_FETCH)
def test_a_damaged_mirror_harms_no_clone_of_something_new(rig: Rig, damage: Callable[[Path], None]) -> None:
    damaged(rig, damage, moved=True)
    # And the next one has a good mirror again.
    rig.notes.clear()
    rig.change("last")
    rig.clone().close()
    assert rig.notes == []


def test_what_the_mirror_gives_is_checked(rig: Rig, tmp_path: Path) -> None:
    """A mirror that gives another commit, or too little, is found out after the clone."""
    wanted = rig.tip
    mirrors = Mirrors(rig.mirrors, clock=ManualClock(), note=rig.notes.append)
    remote = parse_remote(rig.url, rig.credential)
    folder = tmp_path / "clone"
    folder.mkdir()

    def other_commit(*_: object) -> tuple[str, str]:
        git(tmp_path, "clone", "-q", "--bare", str(rig.work), str(folder / "host.git"))
        return "main", "1" * 40

    def incomplete(*_: object) -> tuple[str, str]:
        git(tmp_path, "init", "-q", "--bare", str(folder / "host.git"))
        return "main", wanted

    for clone_from, said in ((other_commit, "instead of"), (incomplete, "not complete")):
        assert mirrors.clone(folder, remote, None, "cannot clone", clone_from) is None
        assert said in rig.notes[-1]
        assert list(folder.iterdir()) == [folder / "askpass"]
        assert not rig.mirror.exists()


def test_a_mirror_in_use_is_not_waited_for(rig: Rig) -> None:
    assert_same(rig)
    with rig.mirror.with_suffix(".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with rig.clone() as opened:
            assert opened.base_commit == git(rig.work, "rev-parse", "HEAD")
    assert rig.notes == ["cloned without the mirror: another process uses it"]
    assert_same(rig)


@pytest.mark.parametrize("place", ["root", "mirror"])
@pytest.mark.parametrize("what", ["link", "open to others"])
def test_a_folder_that_is_not_ours_alone_is_not_used(rig: Rig, tmp_path: Path, place: str, what: str) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "file").touch()
    path = rig.mirrors if place == "root" else rig.mirror
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if what == "link":
        path.symlink_to(theirs)
    else:
        path.mkdir()
        path.chmod(0o755)
    rig.clone().close()
    assert "not a private folder of this user" in rig.notes[0]
    assert [file.name for file in theirs.iterdir()] == ["file"]
    assert not any(path.iterdir()) or what == "link"


def test_no_place_for_a_mirror(rig: Rig) -> None:
    rig.mirrors.write_text("a file")
    rig.clone().close()
    assert rig.notes == ["cloned without the mirror: File exists"]


def test_a_full_disk_in_the_mirror(rig: Rig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A git in front of the real one says that the disk is full when it fetches."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(
        '#!/bin/sh\ncase " $* " in *" fetch "*) echo "fatal: write error: No space left on device" >&2; exit 128;; esac\n'
        f'exec {subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    rig.clone().close()
    assert "no space is left" in rig.notes[0]
    assert not rig.mirror.exists()


def test_an_interrupted_clone_is_not_followed_by_another(rig: Rig) -> None:
    mirrors = Mirrors(rig.mirrors, clock=ManualClock())
    remote = replace(parse_remote(rig.url, rig.credential), cancelled=lambda: rig.cancelled)
    folder = rig.scratch / "clone"
    folder.mkdir()

    def interrupted(*_: object) -> tuple[str, str]:
        rig.cancelled = True
        raise WorkspaceError("stopped here")

    with pytest.raises(WorkspaceError, match="stopped here"):
        mirrors.clone(folder, remote, None, "cannot clone", interrupted)


_KILLED = """
import sys
from pathlib import Path
from orchestrator.core.clock import ManualClock
from orchestrator.core.redaction import Credential
from orchestrator.bot.git.opening import Mirrors
from orchestrator.bot.git.remote import parse_remote

url, user, password, root, folder = sys.argv[1:]

class Stops(Mirrors):
    def _fetch(self, *arguments):
        super()._fetch(*arguments)
        print("fetched", flush=True)
        sys.stdin.read()

remote = parse_remote(url, lambda: Credential("127.0.0.1", user, password))
Stops(Path(root), clock=ManualClock()).clone(Path(folder), remote, None, "x", lambda *_: None)
"""


def test_killed_in_the_middle_of_a_fetch(rig: Rig, tmp_path: Path) -> None:
    assert_same(rig)
    rig.change("one more")
    (tmp_path / "clone").mkdir()
    words = [rig.url, rig.server.user, rig.server.password, str(rig.mirrors), str(tmp_path / "clone")]
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"fetched\n"
        rig.clone().close()
        assert rig.notes == ["cloned without the mirror: another process uses it"]
        os.kill(process.pid, signal.SIGKILL)
    # The lock is free again. What the dead process left is not believed: it says nothing of its order.
    assert not (rig.mirror / "pullwright-state").exists()
    (rig.mirror / "shallow.lock").touch()
    assert_same(rig)


@pytest.mark.slow(reason="dozens of git programs; the like of them is in the default tier")
def test_packs_do_not_pile_up(rig: Rig) -> None:
    def once(most_packs: int) -> None:
        folder = rig.scratch / "clone"
        folder.mkdir()
        mirrors = Mirrors(rig.mirrors, clock=ManualClock(), most_packs=most_packs)
        remote = parse_remote(rig.url, rig.credential)
        tip = rig.tip

        def clone_from(_: object, branch: str) -> tuple[str, str]:
            url = rig.mirror.as_uri()
            git(folder, "clone", "-q", "--bare", "--depth=10", "--branch", branch, url, "host.git")
            return branch, tip

        assert mirrors.clone(folder, remote, None, "cannot clone", clone_from) == ("main", tip)
        subprocess.run(["rm", "-rf", str(folder)], check=True)

    packs = []
    for number in range(4):
        rig.change(f"change {number}" * 50)
        once(2)
        packs.append(len(list((rig.mirror / "objects" / "pack").glob("*.pack"))))
    assert packs == [1, 2, 1, 2]
    assert_same(rig)
    # What nobody refers to is gone after that.
    gone = rig.tip
    fresh = git(rig.work, "commit-tree", "HEAD^{tree}", "-m", "fresh")
    git(rig.work, "update-ref", "refs/heads/main", fresh)
    assert gone in git(rig.mirror, "cat-file", "--batch-all-objects", "--batch-check")
    once(0)
    assert gone not in git(rig.mirror, "cat-file", "--batch-all-objects", "--batch-check")
    assert_same(rig)


@pytest.mark.slow(reason="dozens of git programs; the like of them is in the default tier")
def test_old_mirrors_go_first(rig: Rig) -> None:
    clock = ManualClock()

    def use(name: str, cap_bytes: int) -> None:
        bare = rig.server.root / f"{name}.git"
        if not bare.exists():
            bare.symlink_to(rig.work / ".git")
        clock.advance(60)
        remote = parse_remote(f"http://127.0.0.1:{rig.port}/{name}.git", rig.credential)
        folder = rig.scratch / f"clone-{name}-{clock.monotonic()}"
        folder.mkdir()
        mirrors = Mirrors(rig.mirrors, clock=clock, cap_bytes=cap_bytes)

        def clone_from(*_: object) -> tuple[str, str]:
            git(folder, "clone", "-q", "--bare", str(rig.work), "host.git")
            return "main", rig.tip

        assert mirrors.clone(folder, remote, None, "cannot clone", clone_from)

    def there() -> set[str]:
        names = {address_key(f"http://127.0.0.1:{rig.port}/{name}.git"): name for name in "abc"}
        return {names[path.stem] for path in rig.mirrors.glob("*.git")}

    plenty = 10**9
    for name in "abc":
        use(name, plenty)
    use("a", plenty)
    one = sum(path.stat().st_size for path in next(rig.mirrors.glob("*.git")).rglob("*") if path.is_file())
    use("a", int(2.5 * one))
    assert there() == {"a", "c"}
    # One that another process works with is left alone.
    key = address_key(f"http://127.0.0.1:{rig.port}/c.git")
    with (rig.mirrors / f"{key}.lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        use("a", int(1.5 * one))
        assert there() == {"c"}
    use("a", 0)
    assert there() == set()
    assert clock.now() - ManualClock().now() > timedelta(minutes=5)


def test_a_folder_of_this_machine_has_no_mirror(source: Path, tmp_path: Path) -> None:
    with open_clone(
        str(source),
        branch=None,
        credential=lambda: None,
        parent=tmp_path / "runs",
        with_git=False,
        identity=US,
        mirror=tmp_path / "mirrors",
    ):
        assert not (tmp_path / "mirrors").exists()


@pytest.mark.slow(reason="dozens of git programs; the like of them is in the default tier")
def test_the_second_clone_costs_a_fifth_at_most(rig: Rig) -> None:
    files: dict[str, str | bytes] = {
        f"package/module{number}.py": "\n".join(
            f"def f{number}_{line}(): return {line * number}" for line in range(40)
        )
        for number in range(300)
    }
    write(rig.work, files)
    git(rig.work, "add", ".")
    rig.change("three hundred files")
    git(rig.work, "gc", "-q")

    with ByteCounter(rig.server.port).running() as counter:
        rig.port = counter.port

        def cost(work: Callable[[], object]) -> int:
            before = counter.total
            work()
            return counter.total - before

        bare_clone = (
            "clone",
            "-q",
            "--depth",
            "1",
            f"http://{rig.server.user}:{rig.server.password}@127.0.0.1:{counter.port}/repo.git",
        )
        rig.clone().close()
        bare = cost(partial(git, rig.scratch, *bare_clone, "bare"))
        for number in range(2):
            rig.change(f"a small change {number}", f"package/module{number}.py")
            assert bare > 5 * cost(lambda: rig.clone().close())
        assert bare > 10 * cost(lambda: rig.clone().close())
    assert rig.notes == []


def test_one_request_more_than_a_clone(rig: Rig) -> None:
    def requests(*, mirror: bool) -> int:
        before = len(rig.server.credentials)
        rig.clone(mirror=mirror).close()
        # Each git command is first asked for its credential.
        return len([shown for shown in rig.server.credentials[before:] if shown is not None])

    direct = requests(mirror=False)
    requests(mirror=True)
    assert requests(mirror=True) < direct
    rig.change("one more")
    assert requests(mirror=True) <= direct + 1
