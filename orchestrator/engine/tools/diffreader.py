"""Cuts a unified diff into files and hunks.

Line counts may be missing, or too small; a hunk with fewer lines than its header counts may have been cut off.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.changes import Chunk, Line, promise_broken
from orchestrator.engine.tools.diffpaths import header_path, paths_of_git_line, without_prefixes

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_SURE_HEADER = re.compile(r'--- (?:"?a/|/dev/null)')
_VERSION = re.compile(r"\d+\.\d+")
_SIGNATURE = {"-- ", "--"}
_MARKS = {" ", "+", "-"}
_MAX_QUOTED_CHARS = 120


@dataclass(slots=True)
class DiffFile:
    """A file of a diff, with its paths as spelled.

    Attributes:
        number: the line of the patch where it begins.
        old: empty where it is not known.
        new: likewise.
        awaits_names: it began with a `diff --git` line, and only that has named it so far.
        header: the lines before the first hunk that name no file.
        unplaced: the line of a hunk that counts old lines and has none.
    """

    number: int
    old: str = ""
    new: str = ""
    awaits_names: bool = False
    header: list[str] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    unplaced: int | None = None


class DiffReader:
    """Reads lines with their numbers, as `unwrapped` gives them."""

    def __init__(self, lines: list[tuple[int, str]]) -> None:
        self._numbers = [number for number, _ in lines]
        self._lines = [line for _, line in lines]
        self._next = 0
        self._behind_blank = 0  # the line behind the empty ones that were last looked at
        self._files: list[DiffFile] = []

    def files(self) -> list[DiffFile]:
        """All files, in order; text between them is left out.

        Raises:
            ToolError: lines of a hunk are where no hunk is.
        """
        while self._next < len(self._lines):
            self._read(self._lines[self._next])
        return self._files

    def _read(self, line: str) -> None:
        """Take in the next line, or the two that name a file, or a hunk."""
        file = self._files[-1] if self._files else None
        number = self._numbers[self._next]
        if line.startswith("diff --git "):
            paths = paths_of_git_line(line.removeprefix("diff --git "))
            self._files.append(DiffFile(number, *paths, awaits_names=True))
        elif self._is_pair(self._next):
            self._name(file, number)
        elif file is not None and line.startswith("@@"):
            file.awaits_names = False
            file.chunks.append(self._hunk(file))
            return
        elif line.startswith("@@"):
            raise self._problem("is a hunk of no file: write --- a/file and +++ b/file above it")
        elif file is not None and line[:1] in {"+", "-"} and line not in _SIGNATURE:
            raise self._problem("is outside any hunk: begin a hunk with @@")
        elif file is not None and not file.chunks:
            file.header.append(line)
        self._next += 1

    def _name(self, file: DiffFile | None, number: int) -> None:
        old, new = (header_path(line[4:]) for line in self._lines[self._next : self._next + 2])
        if file is None or not file.awaits_names or not _may_be_called(file, old, new):
            file = DiffFile(number)
            self._files.append(file)
        file.old, file.new, file.awaits_names = old, new, False
        self._next += 1

    def _hunk(self, file: DiffFile) -> Chunk:
        begins = self._numbers[self._next]
        numbers = _HUNK.match(self._lines[self._next])
        counts = [int(numbers[group] or 1) for group in (2, 4)] if numbers else [0, 0]
        self._next += 1
        lines, bare, open_lines = self._hunk_lines(*counts)
        if not lines:
            raise ToolError(f"line {begins} of the patch begins a hunk without lines")
        old_left, new_left = open_lines
        has_old = any(line.mark != "+" for line in lines)
        if counts[0] and not has_old:
            file.unplaced = file.unplaced or begins
        if old_left != new_left and max(old_left, new_left) > 0:
            raise ToolError(f"the hunk at line {begins} of the patch: {promise_broken(old_left, new_left)}")
        above = None
        if numbers:  # a hunk with old lines counts from the first of them, one without from the line above it
            above = max(0, int(numbers[1]) - 1) if has_old else int(numbers[1])
        return Chunk(
            tuple(lines),
            begins,
            expected=above,
            final_newline=None if not bare else "new" not in bare,
            promised=max(0, old_left),
        )

    def _hunk_lines(self, old_left: int, new_left: int) -> tuple[list[Line], set[str], tuple[int, int]]:
        """The lines of a hunk, the sides, `old` and `new`, that end without a line end, and how many lines are left.

        Empty lines at its end, which the header counts, are left: they may be lines that stay, or nothing.
        """
        lines: list[Line] = []
        bare: set[str] = set()
        empty = 0  # lines at the end of `lines` that have not even a mark
        while self._next < len(self._lines):
            line = self._lines[self._next]
            mark = line[:1] or " "
            if mark == "\\" and lines:
                bare |= {"old", "new"} - {{"+": "old", "-": "new"}.get(lines[-1].mark, "")}
            elif mark not in _MARKS or self._is_behind(line, old_left, new_left):
                break
            else:
                lines.append(Line(mark, line[1:]))
                empty = 0 if line else empty + 1
                old_left -= mark != "+"
                new_left -= mark != "-"
            self._next += 1
        if empty:
            del lines[-empty:]
        return lines, bare, (old_left + empty, new_left + empty)

    def _is_behind(self, line: str, old_left: int, new_left: int) -> bool:
        """Whether the next line, which could be one of the hunk, is behind it."""
        done = old_left <= 0 or new_left <= 0 if not line else old_left <= 0 and new_left <= 0
        if self._is_pair(self._next):
            following = self._following(2)
            if following is not None and following[:1] in _MARKS | {"", "\\"}:
                return False  # behind the names of a file there is a hunk
            if (old_left, new_left) == (1, 1):
                return _SURE_HEADER.match(line) is not None
            return True
        if line in _SIGNATURE and done:
            return _VERSION.match(self._following(1) or "") is not None
        return not line and done and not self._goes_on()

    def _goes_on(self) -> bool:
        """Whether the lines of a hunk follow the empty lines here."""
        at = max(self._next, self._behind_blank)
        while at < len(self._lines) and not self._lines[at]:
            at += 1
        self._behind_blank = at
        return at < len(self._lines) and self._lines[at][:1] in _MARKS and not self._is_pair(at)

    def _following(self, distance: int) -> str | None:
        at = self._next + distance
        return self._lines[at] if at < len(self._lines) else None

    def _is_pair(self, at: int) -> bool:
        """Whether two lines that could name a file begin here."""
        pair = self._lines[at : at + 2]
        return len(pair) == 2 and pair[0].startswith("--- ") and pair[1].startswith("+++ ")  # noqa: PLR2004  a pair

    def _problem(self, words: str) -> ToolError:
        quoted = self._lines[self._next][:_MAX_QUOTED_CHARS]
        return ToolError(f"line {self._numbers[self._next]} of the patch, {quoted!r}, {words}")


def _may_be_called(file: DiffFile, old: str, new: str) -> bool:
    """Whether these names can be those of a file whose `diff --git` line was read."""
    renames = (line.partition(" ")[2].partition(" ")[2] for line in file.header if line.startswith("rename "))
    known = {*without_prefixes(file.old, file.new), *map(header_path, renames)} - {None, ""}
    return not known or not known.isdisjoint(without_prefixes(old, new))
