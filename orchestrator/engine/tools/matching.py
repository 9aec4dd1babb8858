"""Finds old text in a file: exactly, or despite common mistakes of models. Otherwise finds the nearest lines."""

from __future__ import annotations

import difflib
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from orchestrator.core.prompts import fenced
from orchestrator.engine.tools.textfile import numbered

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class LineIndex:
    """An index from lines, which are not changed afterwards, to their places."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(lines):
            self._places[line].append(place)

    def nearest(self, wanted: Sequence[str], start: int, aim: int) -> int | None:
        """Return the first of `places`, or None if there is none."""
        return next(self.places(wanted, start, aim), None)

    def places(self, wanted: Sequence[str], start: int, aim: int) -> Iterator[int]:
        """Yield the places where these lines begin, one directly below the other.

        Only the places of the rarest line are examined.

        Args:
            wanted: the lines, at least one.
            start: the first place that counts.
            aim: places nearer to this one come first. Of two equally near, the upper one does.
        """
        offset = min(range(len(wanted)), key=lambda position: len(self._of(wanted[position])))
        known = self._of(wanted[offset])
        there = list(wanted)
        for place in _nearest_first(known, start + offset, aim + offset):
            if self._lines[place - offset : place - offset + len(there)] == there:
                yield place - offset

    def _of(self, line: str) -> Sequence[int]:
        return self._places.get(line, ())


def _nearest_first(places: Sequence[int], start: int, aim: int) -> Iterator[int]:
    """Yield the places from `start` on, the nearest to `aim` first. Of two equally near, the lower comes first."""
    after = bisect_left(places, max(start, aim))
    before, first = after - 1, bisect_left(places, start)
    while before >= first or after < len(places):
        if after == len(places) or (before >= first and aim - places[before] <= places[after] - aim):
            yield places[before]
            before -= 1
        else:
            yield places[after]
            after += 1


_EQUIVALENTS = str.maketrans(
    {
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033", '"'),
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys(
            "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
    }
)
"""Characters that look alike. Each is replaced by one character, so positions stay the same."""

_LINE_END_BLANKS = re.compile(r"(?<![ \t\r])[ \t\r]+(?=\n|\Z)")

MAX_PLACES = 10_000
_MOST_VOTED = 5
_MOST_LINES_COMPARED = 5_000
_MOST_LINES_SCORED = 200
_MAX_COMPARED_CHARS = 200
_CONTEXT_LINES = 2
_MOST_RAW_LINES = 100
_MAX_RAW_CHARS = 6_000
_MOST_DIFFERENCES = 3


@dataclass(frozen=True, slots=True)
class TextPlaces:
    """The places of the old text.

    Attributes:
        spans: `[start, end)` in characters, in order, not overlapping; at most `MAX_PLACES` + 1.
        overlaps: whether the first span overlaps another place.
        tolerance: the differences that were ignored, in words; empty for an exact match.
    """

    spans: tuple[tuple[int, int], ...]
    overlaps: bool = False
    tolerance: str = ""


def plain_punctuation(text: str) -> str:
    """Return the text with plain quotes, dashes and spaces. Its length stays the same."""
    return text.translate(_EQUIVALENTS)


def find_text(text: str, old: str) -> TextPlaces:
    """Find every place of `old`, which must not be empty; similar places only if there is no exact one."""
    places = _places(text, old)
    if places:
        return TextPlaces(
            tuple((start, start + len(old)) for start in places), _overlaps(text, old, places[0])
        )
    loose, loose_old = _Loose(text), _Loose(old).text
    if not loose_old.strip():
        return TextPlaces(())
    places = [
        place for place in _places(loose.text, loose_old) if _keeps_lines(loose.text, loose_old, place, old)
    ]
    if not places:
        return TextPlaces(())
    spans = tuple((loose.place(start), loose.end(start + len(loose_old))) for start in places)
    return TextPlaces(
        spans, _overlaps(loose.text, loose_old, places[0]), _ignored_differences(text[slice(*spans[0])], old)
    )


def _keeps_lines(text: str, loose: str, place: int, old: str) -> bool:
    """Return whether blanks dropped at the old text's ends stand at line ends: elsewhere they separate two words."""
    end = place + len(loose)
    closes = old[-1] not in " \t\r" or end == len(text) or text[end] == "\n"
    opens = old[0] not in " \t\r" or not loose.startswith("\n") or place == 0 or text[place - 1] == "\n"
    return closes and opens


def _places(text: str, wanted: str) -> list[int]:
    places: list[int] = []
    start = text.find(wanted)
    while start >= 0 and len(places) <= MAX_PLACES:
        places.append(start)
        start = text.find(wanted, start + len(wanted))
    return places


def _overlaps(text: str, wanted: str, place: int) -> bool:
    return text.find(wanted, place + 1, place + 2 * len(wanted) - 1) >= 0


class _Loose:
    """A text without blanks at line ends and with plain punctuation, with a map to the original positions."""

    def __init__(self, text: str) -> None:
        plain = text.translate(_EQUIVALENTS)
        self._kept_from: list[int] = [0]
        self._shift: list[int] = [0]
        dropped = 0
        for blank in _LINE_END_BLANKS.finditer(plain):
            self._kept_from.append(blank.start() - dropped)
            dropped += blank.end() - blank.start()
            self._shift.append(dropped)
        self.text = _LINE_END_BLANKS.sub("", plain)

    def place(self, position: int) -> int:
        """Return the original position of the character at this position."""
        return position + self._shift[bisect_right(self._kept_from, position) - 1]

    def end(self, position: int) -> int:
        """Return the original position after the character before this position."""
        return self.place(position - 1) + 1


def _ignored_differences(there: str, old: str) -> str:
    """Return the kinds of differences between two texts that `_Loose` treats as equal."""
    differences = []
    plain, plain_old = there.translate(_EQUIVALENTS), old.translate(_EQUIVALENTS)
    if _LINE_END_BLANKS.sub("", there) != _LINE_END_BLANKS.sub("", old):
        differences.append("quotes, dashes or spaces")
    if plain != plain_old:
        differences.append("blanks at line ends")
    return " and ".join(differences)


def describe_nearest(lines: Sequence[str], old: Sequence[str], what: str, *, again: bool) -> str:
    """Return the end of an error message: the lines of the file most like `old`, for a model to copy.

    Args:
        what: the name of the text that was searched.
        again: whether a similar text was searched before. Then the answer shows the lines unnumbered, and the
            differences.
    """
    near = nearest_lines(lines, old)
    if near is None:
        return ", nor anything like it. Read the file and copy the lines as they are."
    if not again:
        region = numbered(lines, near[0] - _CONTEXT_LINES, near[1] + _CONTEXT_LINES)
        return f". The nearest is this; copy the text without the numbers:\n{region}"
    there = lines[near[0] : near[1]]
    return (
        f". You have sent similar text before; do not send it again. Copy these lines of the file (line {near[0] + 1} on) "
        f"exactly as they are between the fences, or use a few of them:\n{code_block(there)}\n"
        f"What differs:\n{_differences(there, old, what, near[0] + 1)}"
    )


def code_block(lines: Sequence[str]) -> str:
    """Return lines without numbers in a code fence; of very many or very long ones only the first."""
    shown: list[str] = []
    for line in lines[:_MOST_RAW_LINES]:
        shown.append(line[:_MAX_RAW_CHARS])
        if sum(map(len, shown)) >= _MAX_RAW_CHARS:
            break
    return fenced("".join(f"{line}\n" for line in shown))


def _differences(there: Sequence[str], old: Sequence[str], what: str, first: int) -> str:
    """Return the first lines in which two texts differ, one above the other, with visible blanks."""
    matcher = difflib.SequenceMatcher(
        None, old[:_MOST_LINES_SCORED], there[:_MOST_LINES_SCORED], autojunk=False
    )
    found: list[str] = []
    for tag, mine, mine_end, its, its_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        for step in range(max(mine_end - mine, its_end - its)):
            pair = []
            if mine + step < mine_end:
                pair.append(f"in {what}, line {mine + step + 1}: {old[mine + step][:_MAX_COMPARED_CHARS]!r}")
            if its + step < its_end:
                pair.append(
                    f"in the file, line {first + its + step}: {there[its + step][:_MAX_COMPARED_CHARS]!r}"
                )
            found.append("\n".join(pair) if len(pair) > 1 else f"only {pair[0]}")
    if len(found) > _MOST_DIFFERENCES:
        found[_MOST_DIFFERENCES:] = [f"and {len(found) - _MOST_DIFFERENCES} more lines"]
    return "\n".join(found)


def nearest_lines(lines: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    """Return the lines most like `old`, as `[start, end)` from 0, or None if nothing is similar.

    The cost is bounded. Lines that are equal except for blanks vote for a place, and the best places
    are compared in full. Only if there are none, one line is looked for by similarity.
    """
    votes = _votes(lines, old)
    if not votes:
        return _nearest_line(lines, old)
    wanted = [line.strip()[:_MAX_COMPARED_CHARS] for line in old[:_MOST_LINES_SCORED]]

    def likeness(start: int) -> float:
        there = [line.strip()[:_MAX_COMPARED_CHARS] for line in lines[start : start + len(wanted)]]
        return difflib.SequenceMatcher(None, "\n".join(there), "\n".join(wanted)).quick_ratio()

    best = max((start for start, _ in votes.most_common(_MOST_VOTED)), key=likeness)
    return best, min(len(lines), best + len(old))


def _votes(lines: Sequence[str], old: Sequence[str]) -> Counter[int]:
    known: defaultdict[str, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        known[line.strip()].append(number)
    votes: Counter[int] = Counter()
    for position, line in enumerate(old[:_MOST_LINES_SCORED]):
        bare = line.strip()
        if len(bare) > 1:  # a lone bracket is too common
            votes.update(max(0, number - position) for number in known.get(bare, [])[:_MOST_LINES_SCORED])
    return votes


def _nearest_line(lines: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    wanted = max((line.strip() for line in old), key=len, default="")[:_MAX_COMPARED_CHARS]
    candidates = [line.strip()[:_MAX_COMPARED_CHARS] for line in lines[:_MOST_LINES_COMPARED]]
    close = difflib.get_close_matches(wanted, candidates, n=1, cutoff=0.6) if wanted else []
    if not close:
        return None
    number = candidates.index(close[0])
    position = next(at for at, line in enumerate(old) if line.strip()[:_MAX_COMPARED_CHARS] == wanted)
    start = max(0, number - min(position, _MOST_LINES_SCORED))
    return start, min(len(lines), max(number + 1, start + min(len(old), _MOST_LINES_SCORED)))


MOST_PLACES = 11
"""The limit of `ShiftedLines.places`. Two are already too many, and the others are for the error message."""

_MOST_CANDIDATES = 1_000
"""The limit of places with the same text in any indentation.

If there are more, none is examined, because none could be the only one.
"""


@dataclass(frozen=True, slots=True)
class Shift:
    """The difference between the indentation of a file's lines and of lines that a model wrote.

    Attributes:
        added: the blanks that the file has in addition before each line.
        removed: the blanks that the file lacks. At least one of the two is empty.
    """

    added: str = ""
    removed: str = ""

    def line(self, text: str) -> str | None:
        """Return the model's line with the file's indentation, or None if it lacks the blanks to remove."""
        if not text.strip():
            return text
        if not text.startswith(self.removed):
            return None
        return self.added + text.removeprefix(self.removed)

    def __str__(self) -> str:
        """Describe how the file's lines are indented."""
        blanks = self.added or self.removed
        kind = {" ": "space", "\t": "tab"}.get(blanks[:1]) if len(set(blanks)) == 1 else "blank"
        return f"{len(blanks)} {kind}{'s' * (len(blanks) != 1)} {'more' if self.added else 'less'}"


class ShiftedLines:
    """Finds lines of a file (without line ends) with any indentation, and the difference of the indentations."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._index = LineIndex([bare(line) for line in lines])

    def places(self, old: Sequence[str], start: int = 0) -> list[tuple[int, Shift]]:
        """Find lines that differ from `old` only by one shift and in punctuation; at most `MOST_PLACES`.

        Blank lines fit every shift, so nothing is found if `old` has no other lines.

        Args:
            old: at least one line.
            start: the first place that counts.
        """
        wanted = [bare(line) for line in old]
        if not any(wanted):
            return []
        candidates = list(islice(self._index.places(wanted, start, start), _MOST_CANDIDATES + 1))
        if len(candidates) > _MOST_CANDIDATES:
            return []
        found = (
            (place, shift)
            for place in candidates
            if (shift := _shift(self._lines[place : place + len(wanted)], old)) is not None
        )
        return list(islice(found, MOST_PLACES))


def bare(line: str) -> str:
    """Return a line with plain punctuation, without blanks at both ends."""
    return plain_punctuation(line).strip()


def _shift(there: Sequence[str], old: Sequence[str]) -> Shift | None:
    """Return the one shift between lines that are otherwise equal, or None if they need several."""
    shift: Shift | None = None
    for line, wanted in zip(there, old, strict=True):
        if not wanted.strip():
            continue
        has, said = _indentation(line), _indentation(wanted)
        if has is None or said is None:
            return None
        if has.endswith(said):
            found = Shift(added=has.removesuffix(said))
        elif said.endswith(has):
            found = Shift(removed=said.removesuffix(has))
        else:
            return None
        if shift not in {None, found}:
            return None
        shift = found
    return shift


def _indentation(line: str) -> str | None:
    """Return the spaces and tabs before a line's text, or None if other blanks follow them."""
    text = line.lstrip(" \t")
    return None if text[:1].isspace() else line[: len(line) - len(text)]
