"""In what two trees differ, entry by entry, and what the entries hold. Read from our own objects only."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.changes import SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.bot.git.hostgit import HostGit

DIFFERENCES = ("--no-renames", "--ignore-submodules=none")
"""Options of git's diffs. Without the second a `.gitmodules` with `ignore = all` hides what submodules become."""

_MOST_CONTENT_BYTES = 1_000_000
# Of all versions together; the smallest are read first.
_MOST_TOTAL_BYTES = 100_000_000
_GONE_MODE = "000000"
_READING = "cannot read what changed"


@dataclass(frozen=True, slots=True)
class Entry:
    """What a tree has at a path: git's mode and the object's id."""

    mode: str
    object_id: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A path at which two trees differ. An entry that is not there is None."""

    path: str
    old: Entry | None
    new: Entry | None


def differences(git: HostGit, old: str, new: str) -> list[Difference]:
    """Where two commits or trees differ, sorted by path. Renames are not looked for.

    Raises:
        WorkspaceError: git failed.
    """
    options = ("-r", "-z", "--raw", "--no-abbrev", *DIFFERENCES)
    output = git.run("diff-tree", *options, old, new, doing=_READING)
    # `:<old mode> <mode> <old object> <object> <status>NUL<path>NUL`
    pieces = output.split(b"\0")[:-1]
    found = []
    for header, path in zip(pieces[::2], pieces[1::2], strict=True):
        old_mode, mode, old_id, object_id, _ = header.decode("ascii").removeprefix(":").split()
        found.append(Difference(os.fsdecode(path), _entry(old_mode, old_id), _entry(mode, object_id)))
    return sorted(found, key=lambda difference: difference.path)


def _entry(mode: str, object_id: str) -> Entry | None:
    return None if mode == _GONE_MODE else Entry(mode, object_id)


class Contents:
    """What entries hold, read with two git processes however many they are.

    Args:
        git: git on our objects.
        listed: the differences whose entries may be asked for.
        links: ids of links whose targets may be asked for as well.

    Raises:
        WorkspaceError: an object is missing, or git failed.
    """

    def __init__(self, git: HostGit, listed: Iterable[Difference], links: Iterable[str] = ()) -> None:
        entries = {entry for difference in listed for entry in (difference.old, difference.new) if entry}
        blobs = sorted({entry.object_id for entry in entries if entry.mode != SUBMODULE_MODE} | set(links))
        self._sizes = _sizes(git, blobs) if blobs else {}
        wanted = _affordable(self._sizes)
        self._contents = _contents(git, wanted) if wanted else {}

    def change(self, difference: Difference) -> FileChange:
        """The difference with what both versions hold; None for what is over 1 MB, or over 100 MB together."""
        return FileChange(difference.path, self._version(difference.old), self._version(difference.new))

    def target(self, link: str) -> bytes:
        """What a link says; empty where it is too long for any system."""
        return self._contents.get(link) or b""

    def _version(self, entry: Entry | None) -> FileVersion | None:
        if entry is None:
            return None
        if entry.mode == SUBMODULE_MODE:
            return FileVersion(entry.mode, entry.object_id.encode("ascii"), len(entry.object_id))
        return FileVersion(entry.mode, self._contents.get(entry.object_id), self._sizes[entry.object_id])


def _affordable(sizes: dict[str, int]) -> list[str]:
    chosen: list[str] = []
    total = 0
    for size, blob in sorted((size, blob) for blob, size in sizes.items()):
        total += size
        if size > _MOST_CONTENT_BYTES or total > _MOST_TOTAL_BYTES:
            break
        chosen.append(blob)
    return chosen


def _sizes(git: HostGit, blobs: list[str]) -> dict[str, int]:
    """Read lines of `<object> blob <size>`."""
    output = git.run("cat-file", "--batch-check", doing=_READING, stdin=_lines(blobs))
    sizes = {}
    for line in output.decode("ascii").splitlines():
        blob, _, about = line.partition(" ")
        kind, _, size = about.partition(" ")
        if kind != "blob":
            message = f"{_READING}: a file's content is missing"
            raise WorkspaceError(message)
        sizes[blob] = int(size)
    return sizes


def _contents(git: HostGit, blobs: list[str]) -> dict[str, bytes]:
    """Read `<object> blob <size>NL<content>NL`, one after another."""
    output = git.run("cat-file", "--batch", doing=_READING, stdin=_lines(blobs))
    contents = {}
    position = 0
    while position < len(output):
        end = output.index(b"\n", position)
        blob, _, size = output[position:end].decode("ascii").split()
        start, position = end + 1, end + 2 + int(size)
        contents[blob] = output[start : position - 1]
    return contents


def _lines(blobs: list[str]) -> bytes:
    return "".join(f"{blob}\n" for blob in blobs).encode("ascii")
