"""Puts the chunks of a patch into a text: finds their places, in steps of growing tolerance, and replaces lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.tools.line_index import LineIndex
from orchestrator.tools.matching import nearest_lines, plain
from orchestrator.tools.textfile import numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.tools.changes import Chunk

_LINE_END = re.compile(r"\r?\n")
_ANY_LINE_END = re.compile(r"\r\n|\n|\r")
_LONE_CR = re.compile(r"\r(?!\n)")
_CONTEXT_LINES = 2
_MOST_BLANK_ENDS = 8

_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("blanks at line ends", str.rstrip),
    ("blanks before and behind lines", str.strip),
    ("quotes, dashes or spaces", lambda line: plain(line).strip()),
)
"""What is overlooked, in words, and the function that makes two lines equal that differ in nothing else."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A text with chunks put in, and what had to be overlooked to find their places, in words."""

    text: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a chunk's old lines are: `[start, end)`. `size` is how many of its lines count, `step` the tolerance."""

    start: int
    end: int
    size: int
    step: int = 0


def apply_chunks(name: str, text: str, chunks: Sequence[Chunk]) -> Edited:
    """Put chunks into a text, each below the one before it.

    Lines that stay keep their text and line end, whatever the patch says; new lines get the
    line end of the first line. The final line end stays as it is, unless a chunk says otherwise.

    Args:
        name: the file, for messages.
        text: of the file, with its line ends.
        chunks: in the order of the file.

    Raises:
        ToolError: a chunk's old lines are not there; the message names the hunk and shows the nearest lines.
    """
    try:
        return _apply(name, _split(text, _LINE_END), chunks)
    except ToolError:
        if not _LONE_CR.search(text):
            raise
        try:
            return _apply(name, _split(text, _ANY_LINE_END), chunks)
        except ToolError:
            pass  # lines are counted by LF everywhere else, so the first message is the useful one
        raise


def _split(text: str, line_end: re.Pattern[str]) -> list[tuple[str, str]]:
    lines = []
    start = 0
    for found in line_end.finditer(text):
        lines.append((text[start : found.start()], found.group()))
        start = found.end()
    if start < len(text):
        lines.append((text[start:], ""))
    return lines


def _apply(name: str, lines: list[tuple[str, str]], chunks: Sequence[Chunk]) -> Edited:
    finder = _Finder([line for line, _ in lines])
    places, remarks = [], []
    for number, chunk in enumerate(chunks, 1):
        place = finder.place(chunk)
        if isinstance(place, str):
            which = f"hunk {number} of {len(chunks)} of {name} (line {chunk.patch_line} of the patch)"
            raise ToolError(f"{which} does not match: {place}")
        places.append((place, chunk))
        if remark := _remark(number, chunk, place):
            remarks.append(remark)
    return Edited(_joined(lines, places), tuple(remarks))


def _remark(number: int, chunk: Chunk, place: _Place) -> str:
    """What the model should know about a place that is not exactly as the patch says."""
    where = f"hunk {number} matched at line {place.start + 1}"
    if place.step:
        return f"{where} only without regard to {_STEPS[place.step][0]}"
    if chunk.expected is not None and chunk.expected != place.start:
        return f"{where}, not {chunk.expected + 1}"
    return ""


def _joined(lines: list[tuple[str, str]], places: list[tuple[_Place, Chunk]]) -> str:
    line_end = next((end for _, end in lines if end), "\n")
    ends_with_one = not lines or bool(lines[-1][1])
    result: list[tuple[str, str]] = []
    position = 0
    for place, chunk in sorted(places, key=lambda item: item[0].start):
        result += lines[position : place.start]
        position = place.start
        for line in chunk.lines[: place.size]:
            if line.mark == "+":
                result.append((line.text, line_end))
                continue
            if line.mark == " ":
                result.append(lines[position])
            position += 1
        if place.end == len(lines) and chunk.final_newline is not None:
            ends_with_one = chunk.final_newline
    result += lines[position:]
    body = "".join(line + (end or line_end) for line, end in result[:-1])
    if not result:
        return body
    last, end = result[-1]
    return body + last + ((end or line_end) if ends_with_one else "")


class _Finder:
    """Finds one chunk after the other.

    Args:
        lines: of the file, without their ends.
    """

    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._views: dict[int, LineIndex] = {}  # by step of tolerance
        self._cursor = 0  # the first line below the chunks found so far
        self._drift = 0  # how far the last chunk was from where the patch expected it

    def place(self, chunk: Chunk) -> _Place | str:
        """The chunk's place, or why there is none."""
        above = self._below_anchors(chunk.anchors)
        if isinstance(above, str):
            return above
        if not chunk.old:
            return self._insertion(chunk, above)
        expected = None if chunk.expected is None else chunk.expected + self._drift
        found = self._find(chunk, above, expected)
        if found is None:
            return self._missing(chunk, above)
        self._cursor = found.end
        if chunk.expected is not None:
            self._drift = found.start - chunk.expected
        return found

    def _below_anchors(self, anchors: tuple[str, ...]) -> int | str:
        """The line below the last anchor. An outer anchor may be above the cursor: an earlier chunk was in it too."""
        start = self._cursor
        for depth, anchor in enumerate(anchors, 1):
            found = self._search((anchor,), start)
            if found is None and depth < len(anchors):
                found = self._search((anchor,), 0)
            if found is None:
                return self._no_anchor(anchor, start)
            start = max(found[0] + 1, self._cursor)
        return start

    def _insertion(self, chunk: Chunk, above: int) -> _Place | str:
        """The place of new lines alone: below the anchor, where the patch says, or at the end of the file."""
        size = len(chunk.lines)
        if chunk.at_end or (chunk.expected is None and not chunk.anchors):
            return _Place(len(self._lines), len(self._lines), size)
        if chunk.expected is None:
            self._cursor = above
            return _Place(above, above, size)
        start = chunk.expected + self._drift
        if not self._cursor <= start <= len(self._lines):
            return f"line {chunk.expected} is not below the hunk above it, or not in the file of {len(self._lines)} lines"
        self._cursor = start
        return _Place(start, start, size)

    def _find(self, chunk: Chunk, above: int, expected: int | None) -> _Place | None:
        starts = [above]
        if chunk.anchors and above > self._cursor:
            starts.append(above - 1)  # the anchor is itself the first old line
        for start in starts:
            for size, old in _endings(chunk):
                if chunk.at_end:
                    start = max(start, len(self._lines) - len(old))  # noqa: PLW2901  it fits nowhere else
                found = self._search(old, start, expected)
                if found is not None:
                    return _Place(found[0], found[0] + len(old), size, found[1])
        return None

    def _search(self, old: Sequence[str], start: int, expected: int | None = None) -> tuple[int, int] | None:
        """Where the lines are, from `start` on, and the step of tolerance: the first place, or the one nearest to `expected`."""
        aim = start if expected is None else expected
        for step, (_, simple) in enumerate(_STEPS):
            view = self._views.get(step)
            if view is None:
                view = self._views[step] = LineIndex([simple(line) for line in self._lines])
            place = view.nearest([simple(line) for line in old], start, aim)
            if place is not None:
                return place, step
        return None

    def _no_anchor(self, anchor: str, start: int) -> str:
        begin = f"the line after @@, {anchor!r}, is not in the file"
        if anchor.lstrip().startswith("-") and anchor.rstrip().endswith("@@"):
            return f"{begin}. Write @@ alone or with a line of the file, without line numbers."
        if start and (found := self._search((anchor,), 0)) is not None:
            return (
                f"{begin} from line {start + 1} on, only at line {found[0] + 1}: put the hunks in the order of the file, "
                "and name a line below the hunk above, or none"
            )
        return f"{begin}{self._nearest((anchor,))}"

    def _missing(self, chunk: Chunk, above: int) -> str:
        found = self._search(chunk.old, 0)
        if found is not None and chunk.at_end:
            return f"it is marked as the end of the file, but its lines are at line {found[0] + 1} of {len(self._lines)}"
        if found is not None:
            return (
                f"its lines are at line {found[0] + 1}, not from line {above + 1} on, below the line after @@ and the hunk "
                "above it: put the hunks in the order of the file"
            )
        return f"its lines are not in the file{self._nearest(chunk.old)}"

    def _nearest(self, old: Sequence[str]) -> str:
        near = nearest_lines(self._lines, old)
        if near is None:
            return ", nor anything like them. Read the file and copy the lines as they are."
        region = numbered(self._lines, near[0] - _CONTEXT_LINES, near[1] + _CONTEXT_LINES)
        return f". The nearest is this; copy the text without the numbers:\n{region}"


def _endings(chunk: Chunk) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The chunk's old lines, then without blank ones at its end, a few at most: models leave such between hunks.

    Each with the number of lines of the chunk that count.
    """
    size, old = len(chunk.lines), chunk.old
    yield size, old
    for _ in range(_MOST_BLANK_ENDS):
        if len(old) <= 1 or chunk.lines[size - 1].mark != " " or old[-1].strip():
            return
        size, old = size - 1, old[:-1]
        yield size, old
