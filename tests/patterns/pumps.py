"""Makes texts that would show that a pattern backtracks, from the parts of the pattern itself.

For each repeat of a pattern there is a way that leads into it and what one turn of it reads. A text is the way,
many turns, and an end with which the pattern fails.

    python -m tests.patterns.pumps SHARE [PATTERN ...]

pumps every SHAREth pattern of the program, or the given ones, and prints each before it begins. A pattern that takes too
much time of the processor ends the process by SIGVTALRM. Given ones read shorter texts, so that one that takes quadratic
time is told long before that.
"""

from __future__ import annotations

import random
import re
import signal
import sys
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, TypeAlias

from tests.fuzz.growth import grows, repeated
from tests.patterns.automaton import Automaton
from tests.patterns.backtracking import SEARCH
from tests.patterns.collection import all_patterns, uses_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tests.patterns.collection import Pattern, ProgramPattern

ENDS = ("", "\0!", "\n\0")
SMALL_CHARS = 4_000
GIVEN_SMALL_CHARS = 1_000
LIMIT_SECONDS = 20.0
"""Time of the processor for all texts of one pattern."""
_LOOKS = (codes.ASSERT, codes.ASSERT_NOT)
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_TRIES = 3
_LONGEST_PIECE = 40
_MOST_TURNS = 3


def pumps_of(pattern: Pattern) -> list[tuple[str, str]]:
    """Return pairs of a begin and a piece to repeat, always the same for a pattern."""
    return sorted(set(_Maker(pattern).pumps()))


class _Maker:
    def __init__(self, pattern: Pattern) -> None:
        self._machine = Automaton(pattern)
        self._tree = parser.parse(
            pattern.pattern, pattern.flags & (~re.UNICODE if isinstance(pattern.pattern, bytes) else ~0)
        )
        self._flags = self._tree.state.flags
        self._random = random.Random(len(pattern.pattern))  # noqa: S311  texts for a test
        self._groups: dict[int, Any] = {}

    def pumps(self) -> Iterator[tuple[str, str]]:
        whole = self._text(self._tree)
        for begin, part in self._repeats(self._tree, ""):
            for _ in range(_TRIES):
                piece = self._text(part)[:_LONGEST_PIECE]
                if piece:
                    yield begin, piece
        if whole:
            # A search that begins anew at each place, and one behind a match.
            yield "", whole[:_LONGEST_PIECE]
            yield "", whole[: len(whole) // 2][:_LONGEST_PIECE] or whole[:1]
            yield whole[:_LONGEST_PIECE], whole[-1]

    def _repeats(self, items: Any, begin: str) -> Iterator[tuple[str, Any]]:
        """Yield each repeat below some items, with a text that leads to it; also the repeats together with what leads there."""
        for op, value in items:
            if op in _REPEATS:
                yield begin, value[2]
                yield "", [*self._literal(begin), *value[2]]
            for part in _parts(op, value):
                yield from self._repeats(part, begin)
            begin += self._text([(op, value)])

    def _literal(self, text: str) -> list[tuple[Any, Any]]:
        return [(codes.LITERAL, ord(letter)) for letter in text[:_LONGEST_PIECE]]

    def _text(self, items: Any) -> str:
        """Return a text that some items read, as far as look-arounds do not forbid it."""
        return "".join(self._of(op, value) for op, value in items)[: 4 * _LONGEST_PIECE]

    def _of(self, op: Any, value: Any) -> str:
        part: Any = []
        turns = 1
        if op in {codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN}:
            test = self._machine.test(op, value, self._flags)
            return self._random.choice([c for c in self._machine.alphabet if test(c)] or [""])
        if op is codes.BRANCH:
            part = self._random.choice(value[1])
        elif op is codes.SUBPATTERN:
            part = self._groups[value[0]] = value[3]
        elif op in _REPEATS:
            least, most, part = value
            turns = min(max(least, 1) + self._random.randrange(_MOST_TURNS), most, least + _MOST_TURNS)
        elif op is codes.GROUPREF:
            part = self._groups.get(value, [])
        elif op is codes.ATOMIC_GROUP:
            part = value
        return "".join(self._text(part) for _ in range(turns))


def _parts(op: Any, value: Any) -> list[Any]:
    if op is codes.BRANCH:
        return list(value[1])
    if op is codes.SUBPATTERN:
        return [value[3]]
    if op in _REPEATS:
        return [value[2]]
    if op in _LOOKS:
        return [value[1]]
    return [value] if op is codes.ATOMIC_GROUP else []


def pump(pattern: Pattern, uses: set[str], small_chars: int) -> int:
    """Match all texts of a pattern and return their number.

    Raises:
        AssertionError: the time grows faster than the text.
    """

    def read(text: str) -> None:
        what: Any = text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text
        matching: Any = pattern
        for use in uses:
            getattr(matching, use)(what)
        if SEARCH in uses:
            matching.sub(matching.pattern[:0], what)

    texts = [(begin, piece, end) for begin, piece in pumps_of(pattern) for end in ENDS]
    for parts in texts:
        read(repeated(parts, 60))
        grows(read, parts, small_chars=small_chars)
    return len(texts)


Chosen: TypeAlias = "list[tuple[str, Pattern, set[str], int]]"
"""Patterns with their names, their uses, and the length of the smaller text."""


def of_the_program(share: int) -> Chosen:
    """Return every so many-th of the program's patterns."""
    different: dict[tuple[str | bytes, int], ProgramPattern] = {}
    for one in all_patterns():
        different.setdefault((one.pattern.pattern, one.pattern.flags), one)
    return [
        (one.where, one.pattern, uses_of(one), one.small_chars or SMALL_CHARS) for one in different.values()
    ][::share]


def given(patterns: Iterable[str]) -> Chosen:
    """Return some patterns for a search."""
    return [(x, re.compile(x), {SEARCH}, GIVEN_SMALL_CHARS) for x in patterns]


def pump_all(chosen: Chosen, limit_seconds: float = LIMIT_SECONDS) -> None:
    """Pump, and print what is pumped, what is slow, and at the end how much was pumped."""
    count = 0
    for where, pattern, uses, small_chars in chosen:
        _say(where)
        signal.setitimer(signal.ITIMER_VIRTUAL, limit_seconds)
        try:
            count += pump(pattern, uses, small_chars)
        except AssertionError as error:
            _say(f"SLOW {where}: {error}")
    _say(f"{len(chosen)} patterns, {count} texts")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    pump_all(given(sys.argv[2:]) if sys.argv[2:] else of_the_program(int(sys.argv[1])))
