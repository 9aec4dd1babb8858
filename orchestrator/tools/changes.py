"""What a patch asks for, whatever its format: files to add, remove, change and move."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_HEREDOC = re.compile(r"(?:apply_patch\s+)?<<-?\s*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")
_FENCE = re.compile(r"(?P<ticks>`{3,}|~{3,})[\w.+-]*")


class Action(StrEnum):
    """What is done with a file."""

    ADD = "add"
    REMOVE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a chunk, without its end. `mark` is a space (it stays), `-` (it goes) or `+` (it comes)."""

    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines that stay, go and come in one place of a file.

    Attributes:
        lines: at least one.
        patch_line: the line of the patch where it begins, from 1.
        anchors: lines of the file above it, the outermost first.
        at_end: its last old line is the last of the file.
        expected: how many lines of the old file are above it, if the patch says so.
        final_newline: whether the file ends with a line end afterwards, if the patch says so.
    """

    lines: tuple[Line, ...]
    patch_line: int
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    expected: int | None = None
    final_newline: bool | None = None

    @property
    def old(self) -> tuple[str, ...]:
        """The lines that must be in the file."""
        return tuple(line.text for line in self.lines if line.mark != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """The lines that are there afterwards."""
        return tuple(line.text for line in self.lines if line.mark != "-")


@dataclass(frozen=True, slots=True)
class FileChange:
    """What happens to one file.

    Attributes:
        action: which of the three.
        path: the file, as the patch spells it.
        chunks: for `UPDATE`, in the order of the file; for `REMOVE`, all of its text or nothing.
        content: for `ADD`, and where `may_create`, the text of the new file, with LF.
        move_to: for `UPDATE`, the file's new path.
        may_create: for `UPDATE`: the chunks name no old line, so that a missing file is created.
        remark: what the model should be told when it is done.
    """

    action: Action
    path: str
    chunks: tuple[Chunk, ...] = ()
    content: str = ""
    move_to: str | None = None
    may_create: bool = False
    remark: str = ""


def unwrapped(patch: str) -> list[tuple[int, str]]:
    """The lines of a patch with their numbers from 1, without the code fence or heredoc around them.

    A CR at the end of a line is dropped: the line ends are those of the file.
    """
    raw = patch.removeprefix("\ufeff").split("\n")
    lines = [(number, line.removesuffix("\r")) for number, line in enumerate(raw, 1)]
    first, last = _without_blank_ends(lines, 0, len(lines))
    while last - first > 1 and _wraps(lines[first][1].strip(), lines[last - 1][1].strip()):
        first, last = _without_blank_ends(lines, first + 1, last - 1)
    return lines[first:last]


def _without_blank_ends(lines: list[tuple[int, str]], first: int, last: int) -> tuple[int, int]:
    """The range without blank lines before and empty ones behind; there, a single space may be context."""
    while first < last and not lines[first][1].strip():
        first += 1
    while first < last and not lines[last - 1][1]:
        last -= 1
    return first, last


def _wraps(first: str, last: str) -> bool:
    if fence := _FENCE.fullmatch(first):
        return last == fence["ticks"]
    if heredoc := _HEREDOC.fullmatch(first):
        return last == heredoc["word"]
    return False
