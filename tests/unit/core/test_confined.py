"""`ConfinedFolder`: nothing that somebody else made there leads outside, makes the host wait, or uses up memory."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core import confined
from orchestrator.core.confined import MOST_LEVELS, ConfinedFolder, UnsuitableFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

_MOST = 1_000


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the user with a file in it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "profile").write_text("mine\n")
    return folder


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[ConfinedFolder]:
    (tmp_path / "tree").mkdir()
    with ConfinedFolder(tmp_path / "tree") as folder:
        yield folder


def test_two_that_list_one_folder_at_once_both_see_everything(tree: ConfinedFolder) -> None:
    names = [f"{number:02}" for number in range(50)]
    for name in names:
        (tree.path / name).touch()
    with tree.opened() as first, tree.opened() as second:
        begun = confined.entries_of(first)
        next(begun)
        assert [entry.name for entry in tree.entries()] == names
        assert sorted(confined.names_in(second)) == names
        assert len(list(begun)) == len(names) - 1


def _at_each_step(call: Callable[[], object], act: Callable[[], None]) -> Iterator[None]:
    """Call a function once for each step of the code of `confined`, and act at that step as another thread could.

    Threads change between two operations of Python. Yields before each call, and at last after a call without the act.
    """
    traced = place = 0

    def trace(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal traced
        if frame.f_code.co_filename != confined.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            traced += 1
            if traced == place:
                act()
        return trace

    before = sys.gettrace()
    while place <= traced:
        place, traced = place + 1, 0
        yield
        sys.settrace(trace)
        try:
            call()
        except OSError:  # it was closed in time
            pass
        finally:
            sys.settrace(before)
    yield


@pytest.mark.parametrize("uses", ["read", "list", "write", "remove", "close", "status"])
def test_a_folder_that_another_thread_closes_is_never_taken_for_the_next_one(
    tmp_path: Path, uses: str
) -> None:
    """The number of a closed descriptor is given to what is opened next, here at once to another folder."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        (folder / "inner").mkdir(parents=True)
        (folder / "inner" / "file").write_text(folder.name)
    theirs = os.open(other, os.O_RDONLY | os.O_DIRECTORY)
    handle, opened = theirs, ConfinedFolder(mine)
    acted, is_reused = 0, False
    found: list[object] = []

    def act() -> None:
        nonlocal acted, is_reused
        acted += 1
        opened.close()
        try:
            os.fstat(handle)  # the call itself is about to close it
        except OSError:
            os.dup2(theirs, handle)
            is_reused = True

    calls: dict[str, Callable[[], object]] = {
        "read": lambda: found.append(opened.read("inner/file", 99)),
        "list": lambda: found.append([entry.name for entry in opened.entries("inner")]),
        "write": lambda: opened.write("inner/file", b"mine, too"),
        "remove": lambda: opened.remove("inner/file"),
        "close": lambda: opened.close(),  # noqa: PLW0108  the present one
        "status": lambda: found.append(opened.status.st_ino),
    }
    inner = {"read": b"mine", "list": ["file"], "status": mine.stat().st_ino}
    for step, _ in enumerate(_at_each_step(calls[uses], act)):
        assert acted in {step, step - 1}
        if is_reused:  # what the other thread has opened is still open, and what it was
            assert os.path.samestat(os.fstat(handle), other.stat())
            os.close(handle)
        assert (other / "inner" / "file").read_text() == "other"
        assert all(one == inner[uses] for one in found)
        opened.close()
        (mine / "inner" / "file").write_text("mine")
        handle = os.open(mine, os.O_RDONLY | os.O_DIRECTORY)
        opened, is_reused = ConfinedFolder(mine, handle), False
    assert acted > 5
    opened.close()
    os.close(theirs)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(path.parent):  # a socket's path must be short
        one.bind(path.name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


_BAD: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "named pipe": (lambda at, _: os.mkfifo(at), "is a named pipe, not a regular file"),
    "socket": (lambda at, _: _socket(at), "is a socket, not a regular file"),
    "folder": (lambda at, _: at.mkdir(), "is a folder, not a regular file"),
    "link out": (lambda at, out: at.symlink_to(out / "profile"), "is a symbolic link, and links are not followed"),
    "link to a device": (lambda at, _: at.symlink_to("/dev/zero"), "is a symbolic link, and links are not followed"),
    "link to nothing": (lambda at, _: at.symlink_to("nothing"), "is a symbolic link, and links are not followed"),
    "sparse file": (lambda at, _: _sparse(at), "has more than 1,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("kind", _BAD)
def test_what_is_no_regular_file_is_refused_but_listed_and_removed(
    kind: str, tree: ConfinedFolder, outside: Path
) -> None:
    make, message = _BAD[kind]
    make(tree.path / "name", outside)

    with pytest.raises(UnsuitableFileError) as raised:
        tree.read("name", _MOST)
    assert (raised.value.strerror, raised.value.filename) == (message, "name")
    assert [one.name for one in tree.entries()] == ["name"] == [path for path, _ in tree.walk()]

    if kind != "sparse file":
        with pytest.raises(UnsuitableFileError):
            tree.write("name", b"new")
    tree.remove("name")
    assert tree.entries() == []
    assert (outside / "profile").read_text() == "mine\n"


def test_no_operation_passes_through_a_link(tree: ConfinedFolder, outside: Path) -> None:
    (tree.path / "way").symlink_to(outside)
    (tree.path / "file").write_text("x")
    tried: dict[str, Callable[[], object]] = {
        "read": lambda: tree.read("way/profile", _MOST),
        "beginning": lambda: tree.beginning("way/profile", _MOST),
        "stat": lambda: tree.stat("way/profile"),
        "entries": lambda: tree.entries("way"),
        "walk": lambda: list(tree.walk("way")),
        "write": lambda: tree.write("way/new", b""),
        "make_folder": lambda: tree.make_folder("way/new"),
        "rename": lambda: tree.rename("file", "way/new"),
        "rename out": lambda: tree.rename("way/profile", "mine"),
        "chmod": lambda: tree.chmod("way/profile", 0o777),
        "chmod of the link": lambda: tree.chmod("way", 0o777),
        "remove": lambda: tree.remove("way/profile"),
        "remove_content": lambda: tree.remove_content("way"),
        "folder": lambda: tree.folder("way"),
    }
    before = outside.stat().st_mode
    for name, attempt in tried.items():
        with pytest.raises(UnsuitableFileError, match="symbolic link"):
            attempt()
        assert [one.name for one in outside.iterdir()] == ["profile"], name
    assert not tree.exists("way/profile")
    assert outside.stat().st_mode == before


@pytest.mark.parametrize(
    "path", ["../outside/profile", "/etc/passwd", "a/../../outside", "nul\0", "lone\ud800"]
)
def test_a_path_that_leaves_the_folder_is_refused(path: str, tree: ConfinedFolder) -> None:
    with pytest.raises(UnsuitableFileError, match="no plain path"):
        tree.read(path, _MOST)


def test_a_folder_stays_the_same_one_when_its_path_becomes_a_link(
    tree: ConfinedFolder, outside: Path
) -> None:
    tree.path.rename(tree.path.with_name("moved"))
    tree.path.symlink_to(outside)

    tree.write("profile", b"theirs")
    tree.remove_content(keep="profile")

    assert tree.read("profile", _MOST) == b"theirs"
    assert (outside / "profile").read_text() == "mine\n"


def _nest(folder: Path, levels: int) -> None:
    here = os.open(folder, os.O_RDONLY)
    for _ in range(levels):  # one folder and one file each
        os.mkdir("x", dir_fd=here)
        inner = os.open("x", os.O_RDONLY, dir_fd=here)
        os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=inner))
        os.close(here)
        here = inner
    os.fchmod(here, 0)
    os.close(here)


def test_deep_folders_and_folders_without_permissions_are_removed(
    tree: ConfinedFolder, outside: Path
) -> None:
    _nest(tree.path, 2 * MOST_LEVELS + 50)
    for name in ("a", "b"):
        (tree.path / name / "inner").mkdir(parents=True)
        (tree.path / name / "inner" / "out").symlink_to(outside)
    (tree.path / "a" / "inner").chmod(0)
    (tree.path / "b").chmod(0o500)
    failed: list[str] = []

    seen = [
        path for path, _ in tree.walk("x", on_error=lambda _path, error: failed.append(str(error.strerror)))
    ]
    tree.remove_content()

    assert len(seen) == 2 * MOST_LEVELS
    assert failed == ["is nested over 100 folders deep"]
    assert tree.entries() == []
    assert (outside / "profile").exists()


def test_what_is_added_during_a_removal_does_not_make_it_endless(tree: ConfinedFolder) -> None:
    tree.make_folder("a/b/c")
    (tree.path / "a" / "b" / "file").touch()
    tree.remove("a")
    tree.remove("a")
    assert tree.entries() == []


def test_a_walk_shows_each_folder_before_its_content_and_enters_what_it_is_told(tree: ConfinedFolder) -> None:
    tree.make_folder("a/b")
    tree.make_folder("skipped/c")
    tree.write("a/b/file", b"")

    seen = [path for path, _ in tree.walk(enters=lambda path, _entry: path != "skipped")]

    assert seen == ["a", "a/b", "a/b/file", "skipped"]


def test_permissions_are_set_on_what_this_user_may_not_open(tree: ConfinedFolder) -> None:
    tree.write("file", b"", 0)
    tree.chmod("file", 0o640)
    assert tree.stat("file").mode & 0o777 == 0o640


def test_a_folder_further_down_outlives_the_one_above(tree: ConfinedFolder) -> None:
    tree.make_folder("a/b")
    with tree.folder("a/b") as inner:
        tree.close()
        tree.close()
        inner.write("file", b"x")
        assert (inner.path / "file").read_bytes() == b"x"
    with pytest.raises(UnsuitableFileError, match="closed"):
        tree.entries()


def test_what_is_moved_goes_from_one_open_folder_to_another(tree: ConfinedFolder, outside: Path) -> None:
    (tree.path / "link").symlink_to(outside)
    with ConfinedFolder.made(outside.parent / "new" / "own") as own:
        tree.rename("link", "kept", own)
        assert own.link_target("kept") == str(outside)
        assert own.stat("kept").is_link
        assert own.status.st_mode & 0o777 == 0o700
    assert tree.entries() == []


_NAMES = st.sampled_from(["a", "b", "c", "\udcff"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map("/".join)
_KINDS = st.sampled_from(["file", "folder", "pipe", "link out", "link up", "link to itself", "closed folder"])
_ACTS: dict[str, Callable[[ConfinedFolder, str, str], object]] = {
    "read": lambda tree, path, _: tree.read(path, _MOST),
    "beginning": lambda tree, path, _: tree.beginning(path, _MOST),
    "digest": lambda tree, path, _: tree.digest(path),
    "find": lambda tree, path, _: tree.find(path),
    "entries": lambda tree, path, _: tree.entries(path),
    "walk": lambda tree, path, _: list(tree.walk(path, on_error=lambda _path, _error: None)),
    "write": lambda tree, path, _: tree.write(path, b"new"),
    "make_folder": lambda tree, path, _: tree.make_folder(path),
    "make_link": lambda tree, path, _: tree.make_link(path, b"/"),
    "rename": lambda tree, path, other: tree.rename(path, other),
    "chmod": lambda tree, path, _: tree.chmod(path, 0o700),
    "touch": lambda tree, path, _: tree.touch(path),
    "remove": lambda tree, path, _: tree.remove(path),
    "remove_file": lambda tree, path, _: tree.remove_file(path),
    "remove_empty": lambda tree, path, _: tree.remove_empty(path),
    "remove_content": lambda tree, path, _: tree.remove_content(path),
}


def _plant(top: Path, path: str, kind: str, outside: Path) -> None:
    place = top / path
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        match kind:
            case "file":
                place.write_bytes(b"x")
            case "folder" | "closed folder":
                place.mkdir(mode=0o700 if kind == "folder" else 0)
            case "pipe":
                os.mkfifo(place)
            case "link out":
                place.symlink_to(outside)
            case "link up":
                place.symlink_to("..")
            case _:
                place.symlink_to(place.name)


@given(
    planted=st.lists(st.tuples(_PATHS, _KINDS), max_size=12),
    done=st.lists(st.tuples(st.sampled_from(sorted(_ACTS)), _PATHS, _PATHS), max_size=12),
)
def test_whatever_stands_there_nothing_outside_is_touched_and_all_of_it_can_be_removed(
    planted: list[tuple[str, str]], done: list[tuple[str, str, str]]
) -> None:
    """Each operation ends, with a result or an `OSError`."""
    with tempfile.TemporaryDirectory() as name:
        outside, top = Path(name) / "outside", Path(name) / "tree"
        (outside / "a" / "b").mkdir(parents=True)
        (outside / "c").write_bytes(b"mine")
        top.mkdir()
        for path, kind in planted:
            _plant(top, path, kind, outside)  # some of it lands outside, through a link
        before = {path: path.lstat() for path in (outside, *outside.rglob("*"))}
        with ConfinedFolder(top) as tree:
            for verb, path, other in done:
                with suppress(OSError):
                    _ACTS[verb](tree, path, other)
            tree.remove_content()
            assert tree.entries() == []
        after = {path: path.lstat() for path in (outside, *outside.rglob("*"))}
        assert {path: found[:-3] for path, found in after.items()} == {
            path: found[:-3] for path, found in before.items()
        }
        assert (outside / "c").read_bytes() == b"mine"


def test_a_folder_that_is_swapped_all_the_time_leads_nowhere(tree: ConfinedFolder, outside: Path) -> None:
    """Another thread replaces a folder by a link and back, while files are written and removed in it."""
    tree.make_folder("way")
    (tree.path / "link").symlink_to(outside)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for one, other in (("way", "kept"), ("link", "way"), ("way", "link"), ("kept", "way")):
                (tree.path / one).rename(tree.path / other)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for number in range(300):
            with suppress(OSError):
                tree.write(f"way/{number}", b"x")
            with suppress(OSError):
                tree.remove("way/profile")
            with suppress(OSError):
                tree.remove_content("way")
    finally:
        over.set()
        swapping.join()
    assert [one.name for one in outside.iterdir()] == ["profile"]


def test_what_is_held_at_once_is_bounded(tree: ConfinedFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in ("a/b/c", "d"):
        tree.make_folder(path)
        for number in range(3):
            tree.write(f"{path}/{number}", b"")
    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(confined, "MOST_LISTED", 2)
    with pytest.raises(UnsuitableFileError, match="has more than 2 entries"):
        tree.entries("d")
    with pytest.raises(UnsuitableFileError, match="has more than 2 entries"):
        list(tree.walk("d"))
    monkeypatch.setattr(confined, "MOST_LISTED", 10)
    monkeypatch.setattr(confined, "MOST_ENTRIES", 9)
    with pytest.raises(UnsuitableFileError, match="has more than 9 entries below it"):
        list(tree.walk())
    tree.remove_content()
    assert len(list(Path("/proc/self/fd").iterdir())) == before
