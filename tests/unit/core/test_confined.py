"""`ConfinedFolder`: nothing that somebody else made there leads outside, makes the host wait, or uses up memory."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.confined import MOST_LEVELS, ConfinedFolder, UnsuitableFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

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


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


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
