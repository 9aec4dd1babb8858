"""Finds old text in a file: exactly, else allowing for what models get wrong; and the nearest lines if it is not there."""

from __future__ import annotations

import bisect
import difflib
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

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
"""Characters that look alike, one for one, so that places stay places."""

_LINE_END_BLANKS = re.compile(r"(?<![ \t\r])[ \t\r]+(?=\n|\Z)")

MAX_PLACES = 10_000
_MOST_VOTED = 5
_MOST_LINES_COMPARED = 5_000
_MOST_LINES_SCORED = 200
_MAX_COMPARED_CHARS = 200


@dataclass(frozen=True, slots=True)
class Found:
    """Where the old text is.

    Attributes:
        spans: `[start, end)` in characters, in order, not overlapping; at most `MAX_PLACES` and one.
        overlaps: the first of them overlaps another place.
        tolerance: what had to be overlooked, in words; empty for an exact match.
    """

    spans: tuple[tuple[int, int], ...]
    overlaps: bool = False
    tolerance: str = ""


def plain(text: str) -> str:
    """The text with plain quotes, dashes and spaces, as long as before."""
    return text.translate(_EQUIVALENTS)


def find(text: str, old: str) -> Found:
    """Find every place of `old`, which is not empty; exact places win over similar ones."""
    places = _places(text, old)
    if places:
        return Found(tuple((start, start + len(old)) for start in places), _overlaps(text, old, places[0]))
    loose, loose_old = _Loose(text), _Loose(old).text
    if not loose_old.strip():
        return Found(())
    places = _places(loose.text, loose_old)
    if not places:
        return Found(())
    spans = tuple((loose.place(start), loose.end(start + len(loose_old))) for start in places)
    return Found(spans, _overlaps(loose.text, loose_old, places[0]), _overlooked(text[slice(*spans[0])], old))


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
    """A text without blanks at line ends and with plain punctuation, and the way back to the original's places."""

    def __init__(self, text: str) -> None:
        plain = text.translate(_EQUIVALENTS)
        self._kept_from: list[int] = [0]
        self._shift: list[int] = [0]
        gone = 0
        for blank in _LINE_END_BLANKS.finditer(plain):
            self._kept_from.append(blank.start() - gone)
            gone += blank.end() - blank.start()
            self._shift.append(gone)
        self.text = _LINE_END_BLANKS.sub("", plain)

    def place(self, position: int) -> int:
        """Where the character at this position is in the original."""
        return position + self._shift[bisect.bisect_right(self._kept_from, position) - 1]

    def end(self, position: int) -> int:
        """Where the character before this position ends in the original."""
        return self.place(position - 1) + 1


def _overlooked(there: str, old: str) -> str:
    """The kinds of differences between two texts that are the same to `_Loose`."""
    differences = []
    if ("\r\n" in there) != ("\r\n" in old):
        differences.append("line ends")
    there, old = (text.replace("\r\n", "\n") for text in (there, old))
    plain, plain_old = there.translate(_EQUIVALENTS), old.translate(_EQUIVALENTS)
    if _LINE_END_BLANKS.sub("", there) != _LINE_END_BLANKS.sub("", old):
        differences.append("quotes, dashes or spaces")
    if plain != plain_old:
        differences.append("blanks at line ends")
    return " and ".join(differences)


def nearest_lines(lines: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    """The lines most like `old`, as `[start, end)` from 0; None where nothing is like it.

    The cost is bounded: lines that are equal but for blanks vote for a place, the best places
    are compared in full, and only if there are none, one line is looked for by likeness.
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
        if len(bare) > 1:  # a lone bracket is everywhere
            votes.update(max(0, number - position) for number in known.get(bare, [])[:_MOST_LINES_SCORED])
    return votes


def _nearest_line(lines: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    wanted = max((line.strip() for line in old), key=len, default="")[:_MAX_COMPARED_CHARS]
    candidates = [line.strip()[:_MAX_COMPARED_CHARS] for line in lines[:_MOST_LINES_COMPARED]]
    close = difflib.get_close_matches(wanted, candidates, n=1, cutoff=0.6) if wanted else []
    if not close:
        return None
    number = candidates.index(close[0])
    return number, number + 1
