"""What a patch asks for, whatever its format: files to add, remove, change and move."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_OPTION = r"-p[01]|-[Nuvs]|--(?:forward|verbose|quiet|silent|index|recount|unidiff-zero|whitespace=\w+)"
_PROGRAM = rf"(?:apply_?patch|patch|git\s+apply)(?:\s+(?:{_OPTION}))*(?:\s+-)?"
_MAX_HEREDOC_CHARS = 200
_HEREDOC = re.compile(
    rf"""(?:\$\s+)?(?:(?:/?\w+/)*(?:ba|z|da)?sh\s+(?:-\w+\s+)+(?P<shell>['"]))?
    (?:(?:{_PROGRAM}|cat)(?:\s+-(?=\s*<))?\s*|{_PROGRAM}\s+"?\$\(\s*cat\s*)?
    (?:>\s*[^\s<>|;&]+\s*)?
    <<(?P<tabs>-?)\s*(?P<quote>['"]?)\\?(?P<word>[\w.-]+)(?P=quote)
    \s*(?:>\s*[^\s<>|;&]+|\|\s*{_PROGRAM}|;)?\s*""",
    re.VERBOSE,
)
"""What a shell would be told, so that the lines up to a word are what `apply_patch` reads."""
_CLOSING = re.compile(r"\)?['\"]?\)?['\"]?")
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
        promised: how many more lines that stay its header counts than there are. They are blank ones whose
            mark got lost, or the patch was cut off.
    """

    lines: tuple[Line, ...]
    patch_line: int
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    expected: int | None = None
    final_newline: bool | None = None
    promised: int = 0

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


def promise_broken(old: int, new: int) -> str:
    """What is wrong with a hunk whose header counts more lines of the old or the new file than follow it."""
    return (
        f"its header counts {max(old, 0)} more old and {max(new, 0)} more new lines than follow it. If the patch was cut "
        "off, send all of it; if nothing is missing, write the header without counts, as in @@ -14 +14 @@"
    )


def unwrapped(patch: str) -> list[tuple[int, str]]:
    """The lines of a patch with their numbers from 1, without the code fence or heredoc around them.

    A CR at the end of a line is dropped: the line ends are those of the file.
    """
    raw = patch.removeprefix("\ufeff").split("\n")
    lines = [(number, line.removesuffix("\r")) for number, line in enumerate(raw, 1)]
    first, last = _without_blank_ends(lines, 0, len(lines))
    drops_tabs = False
    while last - first > 1 and (inner := _inside(lines, first, last)) is not None:
        first, last = _without_blank_ends(lines, *inner[:2])
        drops_tabs |= inner[2]
    if drops_tabs:
        return [(number, line.lstrip("\t")) for number, line in lines[first:last]]
    return lines[first:last]


def _without_blank_ends(lines: list[tuple[int, str]], first: int, last: int) -> tuple[int, int]:
    """The range without blank lines before and empty ones behind; there, a single space may be context."""
    while first < last and not lines[first][1].strip():
        first += 1
    while first < last and not lines[last - 1][1]:
        last -= 1
    return first, last


def _inside(lines: list[tuple[int, str]], first: int, last: int) -> tuple[int, int, bool] | None:
    """The range in the code fence or heredoc around a range, None if there is none.

    With it, whether the heredoc drops the tabs before its lines.
    """
    opening, closing = lines[first][1].strip(), lines[last - 1][1].strip()
    if fence := _FENCE.fullmatch(opening):
        return (first + 1, last - 1, False) if closing == fence["ticks"] else None
    heredoc = _HEREDOC.fullmatch(opening) if len(opening) <= _MAX_HEREDOC_CHARS else None
    if heredoc is None:
        return None
    end = last - 1
    while end > first + 1 and _CLOSING.fullmatch(lines[end][1].strip()):
        end -= 1  # what closes a command around the heredoc may be on a line of its own
    if not re.fullmatch(rf"{re.escape(heredoc['word'])}['\")]*", lines[end][1].strip()):
        return None
    return first + 1, end, bool(heredoc["tabs"])
