"""Turns a pattern of `re` into an automaton over the places in it that read one character each."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from re import _compiler as compiler  # type: ignore[attr-defined]
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

BORDER = -1
"""Stands for what is before the first character, and behind the last one."""
MOST_ROUTES = 5_000

_SAMPLES = "\0\t\n\v\r !09AFZafz_-\x7f\x85\xa0\xb2Éé\u0130\u0131\u017f\u212a\u0660中\u2028\ufeff\ud800😀"
"""Characters of each class that `re` knows: digits, word characters and blanks, in ASCII and beyond."""
_BYTES = 256
_LOOKS = (codes.ASSERT, codes.ASSERT_NOT)
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT)
_READS = (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN)

Around: TypeAlias = "Callable[[int, int], bool]"
"""Says whether a place may lie between two characters, by their numbers."""


class TooComplexError(Exception):
    """The pattern has a part that is not understood, or too many ways through it."""


@dataclass(slots=True, eq=False)
class Node:
    """A place in a pattern.

    Attributes:
        kind: `read` takes a character, `split` chooses, `check` looks at the characters before and behind,
            `look` runs another part without moving, `leave` ends such a part or an atomic one, `accept` ends all.
        region: the innermost atomic part or look-around that holds the place; 0 is the pattern.
        next: the places that follow, the preferred one first. Of `look`: what follows, then the other part.
        mask: the characters that `read` takes, a bit each.
        most: how many characters the repeats around a `read` may take; None without a bound, 1 without a repeat.
        allows: whether a `check` may hold.
        surely: whether it holds for sure.
        left: the region that `leave` ends.
        body: what a `split` repeats, if it is that of a repeat.
    """

    kind: str
    region: int
    next: list[Node] = field(default_factory=list)
    mask: int = 0
    most: int | None = 1
    allows: Around | None = None
    surely: Around | None = None
    left: int = -1
    body: Node | None = None


@dataclass(frozen=True, slots=True)
class _Inside:
    """Where a part of a pattern is: see `Node`, and the flags of `re` that hold there."""

    region: int
    flags: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Route:
    """A way from one `read` to the next, or to the end of a region or of the pattern."""

    target: Node
    passed: tuple[Node, ...]

    @property
    def checks(self) -> tuple[Node, ...]:
        return tuple(node for node in self.passed if node.kind == "check")

    def leaves(self, region: int) -> bool:
        return any(node.kind == "leave" and node.left == region for node in self.passed)


@functools.lru_cache(1)
def automaton(pattern: re.Pattern[str] | re.Pattern[bytes]) -> Automaton:
    """Return the automaton of a pattern: the same one for all uses of it that follow each other."""
    return Automaton(pattern)


class Automaton:
    """The automaton of a pattern.

    Attributes:
        alphabet: one character of each class that the pattern tells apart.
        entry: the first place.
        regions: the first place of each region, by its number.
        looks: the regions that are look-arounds.
    """

    def __init__(self, pattern: re.Pattern[str] | re.Pattern[bytes]) -> None:
        text = pattern.pattern
        self._is_bytes = isinstance(text, bytes)
        self._tree = parser.parse(text, pattern.flags & ~re.DEBUG & (~re.UNICODE if self._is_bytes else ~0))
        self._flags = self._tree.state.flags
        self._groups: dict[int, Any] = {}
        self._masks: dict[Callable[[str], bool], int] = {}
        self._routes: dict[int, tuple[Route, ...]] = {}
        self.alphabet = self._characters()
        self._newline = self._mask("\n".__eq__)
        self._word = self._mask(self._is_word())
        self.regions: dict[int, Node] = {}
        self.looks: set[int] = set()
        self.accept = Node("accept", 0)
        self.entry = self._row(self._tree, self.accept, _Inside(0, self._flags, 1))
        self.regions[0] = self.entry

    def routes(self, start: Node) -> tuple[Route, ...]:
        """Return the ways from a place to the next ones that read, in the order in which they are tried."""
        if id(start) not in self._routes:
            found: list[Route] = []
            self._walk(start, (), found)
            self._routes[id(start)] = tuple(found)
        return self._routes[id(start)]

    def _walk(self, node: Node, passed: tuple[Node, ...], found: list[Route]) -> None:
        if len(found) > MOST_ROUTES:
            raise TooComplexError("too many ways")
        if node.kind in ("read", "accept") or (node.kind == "leave" and not node.next):
            found.append(Route(node, (*passed, node)))
        elif not _repeats_nothing(node, passed):
            for following in node.next:
                self._walk(following, (*passed, node), found)

    # Characters.

    def _characters(self) -> str:
        tests: dict[Callable[[str], bool], None] = {}
        ends: set[str] = set(_SAMPLES)
        waiting: list[tuple[Any, int]] = [(self._tree, self._flags)]
        while waiting:
            items, flags = waiting.pop()
            for op, value in items:
                if op in _READS:
                    tests[self.test(op, value, flags)] = None
                    ends |= {
                        chr(point)
                        for end in _ends(op, value)
                        for point in (end - 1, end, end + 1)
                        if 0 <= point < 0x110000
                    }
                elif op is codes.SUBPATTERN:
                    group, add, remove, part = value
                    self._groups[group] = (part, (flags | add) & ~remove)
                    waiting.append((part, (flags | add) & ~remove))
                else:
                    waiting.extend((part, flags) for part in _parts(op, value))
        tests |= dict.fromkeys(("\n".__eq__, self._is_word()))
        candidates = sorted(ends | {x for c in ends for x in (c.lower(), c.upper()) if len(x) == 1})
        kept: dict[tuple[bool, ...], str] = {}
        for candidate in candidates:
            if not self._is_bytes or ord(candidate) < _BYTES:
                kept.setdefault(tuple(test(candidate) for test in tests), candidate)
        return "".join(kept.values())

    def _mask(self, test: Callable[[str], bool]) -> int:
        if test not in self._masks:
            self._masks[test] = sum(1 << number for number, c in enumerate(self.alphabet) if test(c))
        return self._masks[test]

    def test(self, op: Any, value: Any, flags: int) -> Callable[[str], bool]:
        """Return whether a place reads a character, as `re` itself says: the same function for equal places."""
        return _reader(op, tuple(value) if op is codes.IN else value, flags, is_bytes=self._is_bytes)

    def _is_word(self) -> Callable[[str], bool]:
        return self.test(codes.IN, [(codes.CATEGORY, codes.CATEGORY_WORD)], self._flags)

    # Places, from the last of a row to its first.

    def _row(self, items: Any, after: Node, inside: _Inside) -> Node:
        row = list(items)
        for place in range(len(row) - 1, -1, -1):
            op, value = row[place]
            if place and op is codes.ASSERT_NOT and (over := self._look_over(row[place - 1], value, inside)):
                # `x(?<!yx)` is `(?<!y)x`.
                first, first_value = row[place - 1]
                after = self._item(first, first_value, after, inside)
                after = Node("check", inside.region, [after], allows=over, surely=over)
                row[place - 1] = (None, None)
            elif op is not None:
                after = self._item(op, value, after, inside)
        return after

    def _look_over(self, before: tuple[Any, Any], value: Any, inside: _Inside) -> Around | None:
        """Return what a look-behind of two characters says about the first, if it stands behind the second."""
        direction, part = value
        seen = list(part)
        if direction > 0 or len(seen) != len("yx") or any(op not in _READS for op, _ in (before, *seen)):
            return None
        first, second, own = (self._mask(self.test(op, item, inside.flags)) for op, item in (*seen, before))
        if own & ~second:
            return None
        return lambda char, _behind: char == BORDER or not first >> char & 1

    def _item(self, op: Any, value: Any, after: Node, inside: _Inside) -> Node:
        made = self._simple(op, value, after, inside)
        if made is not None:
            return made
        if op in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
            return self._repeat(op, value, after, inside)
        if op in {codes.POSSESSIVE_REPEAT, codes.ATOMIC_GROUP}:
            return self._atomic(op, value, after, inside)
        if op in _LOOKS:
            return self._look(op, value, after, inside)
        raise TooComplexError(str(op))

    def _simple(self, op: Any, value: Any, after: Node, inside: _Inside) -> Node | None:
        """Return the places of what has no region and no repeat of its own."""
        made = None
        if op in _READS:
            mask = self._mask(self.test(op, value, inside.flags))
            made = Node("read", inside.region, [after], mask, inside.most)
        elif op is codes.BRANCH:
            made = Node("split", inside.region, [self._row(part, after, inside) for part in value[1]])
        elif op is codes.SUBPATTERN:
            _, add, remove, part = value
            made = self._row(part, after, replace(inside, flags=(inside.flags | add) & ~remove))
        elif op is codes.GROUPREF:
            part, flags = self._groups[value]
            made = self._row(part, after, replace(inside, flags=flags))
        elif op is codes.GROUPREF_EXISTS:
            parts = [self._row(part, after, inside) if part else after for part in value[1:]]
            made = Node("split", inside.region, parts)
        elif op is codes.AT:
            allows, surely = self._at(value, inside.flags)
            made = Node("check", inside.region, [after], allows=allows, surely=surely)
        return made

    def _atomic(self, op: Any, value: Any, after: Node, inside: _Inside) -> Node:
        region = self._region()
        end = Node("leave", region, [after], left=region)
        within = replace(inside, region=region)
        if op is codes.ATOMIC_GROUP:
            self.regions[region] = self._row(value, end, within)
        else:
            self.regions[region] = self._repeat(codes.MAX_REPEAT, value, end, within)
        return self.regions[region]

    def _region(self) -> int:
        number = len(self.regions) + 1
        self.regions[number] = self.accept  # replaced by the caller
        return number

    def _repeat(self, op: Any, value: Any, after: Node, inside: _Inside) -> Node:
        least, times, part = value
        is_lazy = op is codes.MIN_REPEAT
        if times == 1:
            body = self._row(part, after, inside)
            ways = [after, body] if is_lazy else [body, after]
            return body if least else Node("split", inside.region, ways)
        if times == least and times * _width(part) <= _FEW:
            for _ in range(times):
                after = self._row(part, after, inside)
            return after
        if least > 1 and times is codes.MAXREPEAT and (least - 1) * _width(part) <= _FEW:
            # Written out, so that two short repeats are not taken for one long.
            after = self._repeat(op, (1, times, part), after, inside)
            for _ in range(least - 1):
                after = self._row(part, after, inside)
            return after
        is_bounded = inside.most is not None and times is not codes.MAXREPEAT
        most = inside.most * int(times) * max(1, _width(part)) if is_bounded else None  # type: ignore[operator]
        loop = Node("split", inside.region)
        loop.body = self._row(part, loop, replace(inside, most=most))
        loop.next = [after, loop.body] if is_lazy else [loop.body, after]
        return loop.body if least else loop

    def _look(self, op: Any, value: Any, after: Node, inside: _Inside) -> Node:
        direction, part = value
        is_wanted = op is codes.ASSERT
        edges = [self._edge(row, direction, inside.flags) for row in _alternatives(part)]
        exact = [edge for edge, is_exact in edges if is_exact]

        def allows(before: int, behind: int) -> bool:
            if is_wanted:
                return any(edge(before, behind) for edge, _ in edges)
            return not any(edge(before, behind) for edge in exact)

        def surely(before: int, behind: int) -> bool:
            if is_wanted:
                return any(edge(before, behind) for edge in exact)
            return not any(edge(before, behind) for edge, _ in edges)

        if direction > 0 and len(exact) < len(edges):
            region = self._region()
            self.looks.add(region)
            end = Node("leave", region, left=region)
            self.regions[region] = self._row(part, end, replace(inside, region=region))
            after = Node("look", inside.region, [after, self.regions[region]])
        return Node("check", inside.region, [after], allows=allows, surely=surely)

    def _edge(self, row: Sequence[Any], direction: int, flags: int) -> tuple[Around, bool]:
        """Return what one alternative of a look-around says about the two characters, and whether that is all."""
        edge: Around = _always
        is_all = not row
        op: Any
        value: Any
        op, value = row[0 if direction > 0 else -1] if row else (None, None)
        if op is codes.SUBPATTERN:
            _, add, remove, part = value
            edge, is_all = self._edge(list(part), direction, (flags | add) & ~remove)
            is_all = is_all and len(row) == 1
        elif op in _REPEATS and value[0] > 0:
            edge, _ = self._edge(list(value[2]), direction, flags)
        elif op in _READS:
            mask, is_all = self._mask(self.test(op, value, flags)), len(row) == 1
            edge = (lambda _x, y: _has(mask, y)) if direction > 0 else (lambda x, _y: _has(mask, x))
        elif op is codes.AT and len(row) == 1:
            edge, surely = self._at(value, flags)
            is_all = edge is surely
        return edge, is_all

    def _at(self, code: Any, flags: int) -> tuple[Around, Around]:
        """Return whether a place may be of this kind, and whether it surely is, by the characters around it."""
        newline, word = self._newline, self._word
        in_lines = bool(flags & re.MULTILINE)

        def borders(before: int, behind: int) -> bool:
            return _has(word, before) != _has(word, behind)

        exact: dict[Any, Around] = {
            codes.AT_BEGINNING: lambda x, _y: x == BORDER or (in_lines and _has(newline, x)),
            codes.AT_BEGINNING_STRING: lambda x, _y: x == BORDER,
            codes.AT_END_STRING: lambda _x, y: y == BORDER,
            codes.AT_BOUNDARY: borders,
            codes.AT_NON_BOUNDARY: lambda x, y: not borders(x, y),
        }
        if code is codes.AT_END:
            line_end: Around = lambda _x, y: y == BORDER or _has(newline, y)  # noqa: E731  one of two
            return line_end, (line_end if in_lines else exact[codes.AT_END_STRING])
        if code not in exact:
            raise TooComplexError(str(code))
        return exact[code], exact[code]


@functools.cache
def _reader(op: Any, value: Any, flags: int, *, is_bytes: bool) -> Callable[[str], bool]:
    state = parser.State()
    state.flags = flags
    one = compiler.compile(parser.SubPattern(state, [(op, value)]))

    @functools.cache
    def reads(character: str) -> bool:
        if is_bytes:
            return ord(character) < _BYTES and one.match(character.encode("latin-1")) is not None
        return one.match(character) is not None

    return reads


def _always(_before: int, _behind: int) -> bool:
    return True


def _has(mask: int, character: int) -> bool:
    return character != BORDER and bool(mask >> character & 1)


_FEW = 8
"""A part that comes a fixed number of times is written out up to this many characters."""


def _repeats_nothing(node: Node, passed: tuple[Node, ...]) -> bool:
    """Return whether a repeat is reached again by a turn that reads no character. `re` ends there."""
    if node.body is None or node not in passed:
        return False
    last = len(passed) - 1 - passed[::-1].index(node)
    return last + 1 < len(passed) and passed[last + 1] is node.body


def _parts(op: Any, value: Any) -> list[Any]:
    if op is codes.BRANCH:
        return list(value[1])
    if op in _REPEATS:
        return [value[2]]
    if op in _LOOKS:
        return [value[1]]
    if op is codes.ATOMIC_GROUP:
        return [value]
    if op is codes.GROUPREF_EXISTS:
        return [part for part in value[1:] if part]
    return []


def _width(part: Any) -> int:
    return min(int(part.getwidth()[1]), 1_000_000)


def _alternatives(part: Any) -> list[list[Any]]:
    """Return the alternatives of a look-around, those of its groups included."""
    row = list(part)
    if len(row) == 1 and row[0][0] is codes.BRANCH:
        return [found for inner in row[0][1][1] for found in _alternatives(inner)]
    if len(row) == 1 and row[0][0] is codes.SUBPATTERN and not row[0][1][1] and not row[0][1][2]:
        return _alternatives(row[0][1][3])
    return [row]


def _ends(op: Any, value: Any) -> list[int]:
    if op in (codes.LITERAL, codes.NOT_LITERAL):
        return [value]
    if op is codes.IN:
        return [
            end
            for kind, part in value
            for end in ((part,) if kind is codes.LITERAL else part if kind is codes.RANGE else ())
        ]
    return []
