"""The parts of a patch, and how its chunks are applied to a text.

The place of each chunk is found with growing tolerance.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby, islice
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.matching import (
    MOST_PLACES,
    LineIndex,
    Shift,
    ShiftedLines,
    bare,
    describe_nearest,
    plain_punctuation,
)
from orchestrator.engine.tools.textfile import LINE_END, aligned_ends, numbered, split_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Action(StrEnum):
    """What a patch does with a file."""

    ADD = "add"
    REMOVE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, slots=True)
class PatchLine:
    """A line of a chunk, without its end. `mark` is a space (kept), `-` (removed) or `+` (added)."""

    mark: str
    text: str


@dataclass(frozen=True, slots=True)
class Chunk:
    """Lines that are kept, removed and added in one place of a file.

    Attributes:
        lines: the lines, at least one.
        patch_line: number of the line of the patch where the chunk begins, from 1.
        anchors: lines of the file above the chunk, the outermost first.
        at_end: whether its last old line is the last line of the file.
        expected: number of lines of the old file above the chunk, if the patch says so.
        final_newline: whether the file ends with a line end afterwards, if the patch says so.
        missing: number of kept lines that its header counts and that are missing. They are blank lines that
            lost their mark, or the patch was cut off.
    """

    lines: tuple[PatchLine, ...]
    patch_line: int
    anchors: tuple[str, ...] = ()
    at_end: bool = False
    expected: int | None = None
    final_newline: bool | None = None
    missing: int = 0

    @property
    def old(self) -> tuple[str, ...]:
        """The lines that must be in the file."""
        return tuple(line.text for line in self.lines if line.mark != "+")

    @property
    def new(self) -> tuple[str, ...]:
        """The lines that are in their place afterwards."""
        return tuple(line.text for line in self.lines if line.mark != "-")


@dataclass(frozen=True, slots=True)
class FilePatch:
    """The change of one file.

    Attributes:
        action: what is done with the file.
        path: the file, as the patch spells it.
        chunks: for `UPDATE`, in the order of the file; for `REMOVE`, all of its text or none.
        content: for `ADD` and with `may_create`, the text of the new file, with LF.
        move_to: for `UPDATE`, the file's new path.
        may_create: for `UPDATE`: whether a missing file is created, because the chunks have no old line.
        remark: what the model is told afterwards.
    """

    action: Action
    path: str
    chunks: tuple[Chunk, ...] = ()
    content: str = ""
    move_to: str | None = None
    may_create: bool = False
    remark: str = ""


def missing_lines(old: int, new: int) -> str:
    """Return what is wrong with a hunk whose header counts more lines than follow it."""
    return (
        f"its header counts {max(old, 0)} more old and {max(new, 0)} more new lines than follow it. If the patch was cut "
        "off, send all of it; if nothing is missing, write the header without counts, as in @@ -14 +14 @@"
    )


_ANY_LINE_END = re.compile(r"\r\n|\n|\r")
_LONE_CR = re.compile(r"\r(?!\n)")
_MOST_BLANK_ENDS = 8


_STEPS: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("", str),
    ("blanks at line ends", str.rstrip),
    ("quotes, dashes or spaces", lambda line: plain_punctuation(line).rstrip()),
)
"""The differences that are ignored, in words, and the function that removes them from a line."""

_ANCHOR_STEPS = (str, str.rstrip, str.strip, bare)
"""A line after `@@` only names a place, so its indentation need not match."""


@dataclass(frozen=True, slots=True)
class Edited:
    """A text after chunks were applied, and remarks on the differences ignored to find their places."""

    text: str
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """The place of a chunk's old lines: `[start, end)`.

    `size` is the number of the chunk's lines that count, `step` the tolerance. `shift` is the difference
    between the indentation of the file and of the chunk, if there is one.
    """

    start: int
    end: int
    size: int
    step: int = 0
    shift: Shift | None = None


def _never_missed(_old: str) -> bool:
    return False


def apply_chunks(
    name: str, text: str, chunks: Sequence[Chunk], missed: Callable[[str], bool] = _never_missed
) -> Edited:
    """Apply chunks to a text, each below the one before it.

    Kept lines keep their text and line end, whatever the patch says. New lines get the line ends of the lines
    that they replace, or of the line above them. The final line end stays as it is, unless a chunk says otherwise. If the indentation of all old
    lines of a chunk differs by the same blanks, and there is one such place, its new lines are shifted alike.

    Args:
        missed: records old lines that were not found; returns whether similar ones were missed before.
    """
    ways = [LINE_END]
    if _LONE_CR.search(text):  # where a file has LF, only LF counts lines
        ways.insert(1 if "\n" in text else 0, _ANY_LINE_END)
    failure: ToolError | None = None
    for line_end in ways:
        try:
            return _apply(
                name, split_lines(text, line_end), chunks, missed if failure is None else _never_missed
            )
        except ToolError as error:
            failure = failure or error
    raise failure or AssertionError("a text can be split into lines")


def _apply(
    name: str, lines: list[tuple[str, str]], chunks: Sequence[Chunk], missed: Callable[[str], bool]
) -> Edited:
    finder = _Finder([line for line, _ in lines], missed, closed=not lines or bool(lines[-1][1]))
    alike = Counter(_bare_old(chunk) for chunk in chunks)
    places, remarks = [], []
    for number, chunk in enumerate(chunks, 1):
        place = finder.place(chunk, alike[_bare_old(chunk)])
        if isinstance(place, str):
            which = f"hunk {number} of {len(chunks)} of {name} (line {chunk.patch_line} of the patch)"
            raise ToolError(f"{which} does not match: {place}")
        places.append((place, chunk))
        if remark := _remark(number, chunk, place):
            remarks.append(remark)
    return Edited(_joined(lines, places), tuple(remarks))


def _remark(number: int, chunk: Chunk, place: _Place) -> str:
    """Return what the model should know about a place that differs from the patch."""
    where = f"hunk {number} matched at line {place.start + 1}"
    if place.shift is not None:
        return f"{where}, where the lines have {place.shift} before them; its new lines were indented alike"
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
        for is_kept, run in groupby(chunk.lines[: place.size], key=lambda line: line.mark == " "):
            changed = list(run)
            old = lines[position : position + sum(line.mark != "+" for line in changed)]
            if is_kept:
                result += old
            else:
                new = [_shifted(line.text, place.shift) for line in changed if line.mark == "+"]
                above = next((end for _, end in reversed(result) if end), line_end)
                result += zip(new, aligned_ends(old, new, above), strict=True)
            position += len(old)
        if place.end == len(lines) and chunk.final_newline is not None:
            ends_with_one = chunk.final_newline
    result += lines[position:]
    body = "".join(line + (end or line_end) for line, end in result[:-1])
    if not result:
        return body
    last, end = result[-1]
    return body + last + ((end or line_end) if ends_with_one else "")


def _shifted(text: str, shift: Shift | None) -> str:
    line = text if shift is None else shift.line(text)
    return text if line is None else line


class _Finder:
    """Finds one chunk after the other.

    Args:
        lines: lines of the file, without their ends.
        missed: see `apply_chunks`.
        closed: whether the last line has a line end.
    """

    def __init__(self, lines: list[str], missed: Callable[[str], bool], *, closed: bool) -> None:
        self._lines = lines
        self._missed = missed
        self._closed = closed
        self._views: dict[Callable[[str], str], LineIndex] = {}  # by the function that makes lines equal
        self._shifted: ShiftedLines | None = None
        self._sure: set[tuple[str, ...]] = set()  # old lines whose places and chunks were counted
        self._cursor = 0  # the first line below the chunks found so far
        self._drift = 0  # distance of the last chunk from its expected place
        self._stated_cursor = 0  # the same as `_cursor`, by the patch's own line numbers

    def place(self, chunk: Chunk, alike: int) -> _Place | str:
        """Return the chunk's place, or why there is none; `alike` chunks of the patch have the same old lines."""
        above = self._below_anchors(chunk.anchors)
        if isinstance(above, str):
            return above
        if not chunk.old:
            return self._insertion(chunk, above)
        expected = None if chunk.expected is None else chunk.expected + self._drift
        found = self._find(chunk, above, expected) or self._find_shifted(chunk, above, expected)
        if found is None or (
            isinstance(found, _Place) and found.shift is not None and self._find_anywhere(chunk)
        ):
            return self._missing(chunk, above)
        if isinstance(found, str):
            return found
        if problem := self._doubtful(chunk, found, alike):
            return problem
        if chunk.expected is not None:
            self._stated_cursor = chunk.expected + len(chunk.old)
            self._drift = found.start - chunk.expected
        self._cursor = found.end
        return found

    def _doubtful(self, chunk: Chunk, found: _Place, alike: int) -> str:
        """Return why a chunk may be meant elsewhere; empty if its place is sure.

        If it names no place, there must be as many places as chunks that are alike. The line after @@ names a place
        only if it is in the file once, and a line number only if one place is clearly nearer to it than the others.
        """
        if chunk.expected is not None:
            return self._wrong_line(chunk, chunk.expected, found)
        if chunk.at_end or found.shift is not None:
            return ""
        if chunk.anchors:
            return self._several_anchors(chunk, found, alike)
        if (old := _bare_old(chunk)) in self._sure:
            return ""
        self._sure.add(old)
        simple = _STEPS[found.step][1]
        wanted = [simple(line) for line in self._lines_of(found)]
        most = max(MOST_PLACES, alike + 1)
        places = [*islice(self._view(simple).places(wanted, self._cursor, self._cursor), most)]
        if len(places) <= 1 or len(places) == alike:
            return ""
        more = ", ..." if len(places) >= MOST_PLACES else ""
        numbers = ", ".join(str(place + 1) for place in places[: MOST_PLACES - 1])
        return (
            f"its lines are in the file more than once, at line {numbers}{more}. Add lines around them until they are there "
            "once, or name the place after @@"
        )

    def _wrong_line(self, chunk: Chunk, expected: int, found: _Place) -> str:
        """Return why the line in a chunk's header does not say which of several places is meant."""
        if expected < self._stated_cursor and self._is_elsewhere(chunk, found):
            return (
                f"its header says line {expected + 1}, which is not below the hunk above it, and its lines are in the "
                "file more than once: put the hunks in the order of the file, with their line numbers"
            )
        aim = expected + self._drift
        if found.start == aim or chunk.missing or found.shift is not None:
            return ""
        nearest = self._all_places(self._lines_of(found), _STEPS[found.step][1], aim)
        if len(nearest) == 1 or abs(nearest[1] - aim) >= _CLEARLY_FARTHER * abs(nearest[0] - aim):
            return ""
        return (
            f"its header says line {expected + 1}, where its lines are not. {_places_in_words(nearest)} "
            "Write the line at which it begins, or add lines around them until they are there once"
        )

    def _several_anchors(self, chunk: Chunk, found: _Place, alike: int) -> str:
        """Return why a line after @@ that is in the file more than once does not say which place is meant.

        The chunk fits below another one of these lines too.
        """
        key = (*chunk.anchors, *_bare_old(chunk))
        if len(chunk.anchors) > 1 or key in self._sure:
            return ""
        self._sure.add(key)
        named = next(
            filter(None, (self._all_places((chunk.anchors[0],), view) for view in _ANCHOR_STEPS)), []
        )
        own = bisect_right(named, found.start)  # below this one of them
        places = self._all_places(self._lines_of(found), _STEPS[found.step][1])
        others = [place for place in places if bisect_right(named, place) not in {0, own}]
        if not others or len(others) + 1 == alike:
            return ""
        return (
            f"the line after @@, {chunk.anchors[0]!r}, is in the file more than once, and so are its lines. "
            f"{_places_in_words([found.start, *others])} Write the class or function around it in a line with @@ above, "
            "or add lines around them until they are there once"
        )

    def _lines_of(self, found: _Place) -> list[str]:
        """Return the lines of a place without blank ones at its end, which models leave between hunks."""
        lines = self._lines[found.start : found.end]
        return lines[: max((number for number, line in enumerate(lines, 1) if line.strip()), default=1)]

    def _all_places(self, lines: Sequence[str], simple: Callable[[str], str], aim: int = 0) -> list[int]:
        """Return the first places of these lines below the hunks so far, the nearest to a line first."""
        wanted = [simple(line) for line in lines]
        return [*islice(self._view(simple).places(wanted, self._cursor, aim), MOST_PLACES)]

    def _is_elsewhere(self, chunk: Chunk, found: _Place) -> bool:
        """Return whether the old lines are in another place as well."""
        simple = _STEPS[found.step][1] if found.shift is None else bare
        places = self._view(simple).places([simple(line) for line in chunk.old], 0, found.start)
        return any(place != found.start for place in places)

    def _below_anchors(self, anchors: tuple[str, ...]) -> int | str:
        """Return the line below the last anchor, or why there is none.

        An outer anchor may be above the cursor if an earlier chunk was in it too.
        """
        start = self._cursor
        for depth, anchor in enumerate(anchors, 1):
            found = self._anchor(anchor, start)
            if found is None and depth < len(anchors):
                found = self._anchor(anchor, 0)
            if found is None:
                return self._no_anchor(anchor, start)
            start = max(found + 1, self._cursor)
        return start

    def _insertion(self, chunk: Chunk, above: int) -> _Place | str:
        """Return where new lines alone go: below the anchor, where the patch says, or at the end; or why nowhere."""
        size = len(chunk.lines)
        if chunk.at_end or (chunk.expected is None and not chunk.anchors):
            return _Place(len(self._lines), len(self._lines), size)
        if chunk.expected is None:
            self._cursor = above
            return _Place(above, above, size)
        start = chunk.expected + self._drift
        self._stated_cursor = chunk.expected
        if not self._cursor <= start <= len(self._lines):
            return f"line {chunk.expected} is not below the hunk above it, or not in the file of {len(self._lines)} lines"
        self._cursor = start
        return _Place(start, start, size)

    def _find(self, chunk: Chunk, above: int, expected: int | None) -> _Place | None:
        """Return the chunk's place, ignoring as few differences as possible. Indentation must agree."""
        for step, (_, simple) in enumerate(_STEPS):
            view = self._view(simple)
            for start in self._starts(chunk, above):
                for size, old, at_end in self._wanted(chunk):
                    first = max(start, len(self._lines) - len(old)) if at_end else start
                    wanted = [simple(line) for line in old]
                    place = view.nearest(wanted, first, first if expected is None else expected)
                    if place is not None and not (chunk.missing and place != expected):
                        return _Place(place, place + len(old), size, step)
        return None

    def _find_shifted(self, chunk: Chunk, above: int, expected: int | None) -> _Place | str | None:
        """Return the only place, or the expected one, where all lines differ by the same indentation."""
        if self._shifted is None:
            self._shifted = ShiftedLines(self._lines)
        start = min(self._starts(chunk, above))
        for size, old, at_end in self._wanted(chunk):
            first = max(start, len(self._lines) - len(old)) if at_end else start
            places = dict(self._shifted.places(old, first)) if not chunk.missing else {}
            if not places:
                continue
            if len(places) > 1 and expected not in places:
                numbers = ", ".join(str(place + 1) for place in places)
                return f"its lines are there with other indentation, but more than once (lines {numbers}): indent them as the file does"
            place = next(iter(places)) if expected is None or expected not in places else expected
            found = _Place(place, place + len(old), size, shift=places[place])
            return self._unshiftable(chunk, found) or found
        return None

    def _unshiftable(self, chunk: Chunk, place: _Place) -> str:
        """Return why the chunk's new lines cannot be shifted like its old ones; empty if they can."""
        new = (line.text for line in chunk.lines[: place.size] if line.mark == "+")
        short = next(
            (text for text in new if place.shift is not None and place.shift.line(text) is None), None
        )
        if short is None:
            return ""
        region = numbered(self._lines, place.start, place.end)
        return (
            f"the file's lines have {place.shift} before them, which cannot be removed from its new line {short!r}. "
            f"Indent the hunk as the file is; copy the text without the numbers:\n{region}"
        )

    def _starts(self, chunk: Chunk, above: int) -> tuple[int, ...]:
        """Return where to start: below the anchor, or at the anchor if it is itself the first old line."""
        return (above, above - 1) if chunk.anchors and above > self._cursor else (above,)

    def _wanted(self, chunk: Chunk) -> Iterator[tuple[int, tuple[str, ...], bool]]:
        """Yield the possible old lines, how many of the chunk's lines they cover, and if the file ends there.

        Lines that the header counts and that are missing are blank in the file, or the last one is the empty
        line that some count after the final line end. Such a chunk is accepted only at the line in its
        header, because otherwise a line above the others may be missing.
        """
        if not chunk.missing:
            yield from ((size, old, chunk.at_end) for size, old in _endings(chunk))
            return
        size, old = len(chunk.lines), chunk.old
        yield size, (*old, *[""] * chunk.missing), chunk.at_end
        if self._closed and chunk.lines[-1].mark != "-":
            yield size, (*old, *[""] * (chunk.missing - 1)), True

    def _anchor(self, anchor: str, start: int) -> int | None:
        """Return the first line from `start` on that an anchor names."""
        places = (self._view(simple).nearest([simple(anchor)], start, start) for simple in _ANCHOR_STEPS)
        return next((place for place in places if place is not None), None)

    def _view(self, simple: Callable[[str], str]) -> LineIndex:
        view = self._views.get(simple)
        if view is None:
            view = self._views[simple] = LineIndex([simple(line) for line in self._lines])
        return view

    def _no_anchor(self, anchor: str, start: int) -> str:
        begin = f"the line after @@, {anchor!r}, is not in the file"
        if anchor.lstrip().startswith("-") and anchor.rstrip().endswith("@@"):
            return f"{begin}. Write @@ alone or with a line of the file, without line numbers."
        if start and (found := self._anchor(anchor, 0)) is not None:
            return (
                f"{begin} from line {start + 1} on, only at line {found + 1}: put the hunks in the order of the file, "
                "and name a line below the hunk above, or none"
            )
        return f"{begin}{self._nearest((anchor,), 'the line')}"

    def _find_anywhere(self, chunk: Chunk) -> _Place | None:
        """Return where the old lines are in the file with their indentation, also above the cursor."""
        return self._find(replace(chunk, anchors=(), at_end=False, missing=0), 0, None)

    def _missing(self, chunk: Chunk, above: int) -> str:
        found = self._find_anywhere(chunk)
        if found is None:
            return f"its lines are not in the file{self._nearest(chunk.old, 'the hunk')}"
        line = found.start + 1
        if chunk.missing:
            return (
                f"{missing_lines(chunk.missing, chunk.missing)}. Only blank lines may be missing that the file has below "
                f"line {found.end}, and only in a hunk that is at the line of its header"
            )
        if chunk.at_end:
            return (
                f"it is marked as the end of the file, but its lines are at line {line} of {len(self._lines)}"
            )
        return (
            f"its lines are at line {line}, not from line {above + 1} on, below the line after @@ and the hunk "
            "above it: put the hunks in the order of the file"
        )

    def _nearest(self, old: Sequence[str], what: str) -> str:
        return describe_nearest(self._lines, old, what, again=self._missed("\n".join(old)))


_CLEARLY_FARTHER = 3
"""A place is meant if every other one is this many times as far from the line in the header."""


def _places_in_words(places: Sequence[int]) -> str:
    more = ", ..." if len(places) >= MOST_PLACES else ""
    numbers = ", ".join(str(place + 1) for place in sorted(places)[: MOST_PLACES - 1])
    return f"They are at line {numbers}{more}."


def _bare_old(chunk: Chunk) -> tuple[str, ...]:
    """Return the chunk's old lines without blank ones at the end, which models leave between hunks."""
    old = chunk.old
    return old[: max((place for place, line in enumerate(old, 1) if line.strip()), default=0)]


def _endings(chunk: Chunk) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield the chunk's old lines, then without blank ones at its end, each with the number of its lines.

    At most a few blank lines are dropped: models leave such lines between hunks.
    """
    size, old = len(chunk.lines), chunk.old
    yield size, old
    for _ in range(_MOST_BLANK_ENDS):
        if len(old) <= 1 or chunk.lines[size - 1].mark != " " or old[-1].strip():
            return
        size, old = size - 1, old[:-1]
        yield size, old
