"""Finds lines in a text by where each of them is, so that many searches do not each read the whole text."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class LineIndex:
    """Lines, and the places of each.

    Args:
        lines: in order; not changed afterwards.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._places: defaultdict[str, list[int]] = defaultdict(list)
        for place, line in enumerate(lines):
            self._places[line].append(place)

    def nearest(self, wanted: Sequence[str], start: int, aim: int) -> int | None:
        """The first of `places`, None where there is none."""
        return next(self.places(wanted, start, aim), None)

    def places(self, wanted: Sequence[str], start: int, aim: int) -> Iterator[int]:
        """Where lines begin that stand one below the other.

        The rarest of them says which places are looked at.

        Args:
            wanted: the lines, at least one.
            start: the first place that counts.
            aim: the nearest to this place comes first; of two as near, the upper one.
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
    """The places from `start` on, by their distance from `aim`, of two as far the lower number first."""
    after = bisect_left(places, max(start, aim))
    before, first = after - 1, bisect_left(places, start)
    while before >= first or after < len(places):
        if after == len(places) or (before >= first and aim - places[before] <= places[after] - aim):
            yield places[before]
            before -= 1
        else:
            yield places[after]
            after += 1
