"""Proves that matching a pattern takes linear time, or finds a text for which it may not.

A pattern that backtracks has more than one way to read the same characters: two ways around one repeat
(exponential), or characters that one repeat can leave to a later one (a power of the length). A search that
begins anew at each character is a repeat of its own. What an atomic part has read is not read in another way,
and neither is what comes before a way that cannot fail.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tests.patterns.automaton import BORDER, Node, Route, TooComplexError, automaton

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Iterator, Sequence

MOST_STEPS = 1_000
"""How many steps for each character are still linear: what bounded repeats may cost together."""
_SHORT_TEXT = 1_000
"""What takes so many times `MOST_STEPS`, whatever the text, is no more than that for each character of a short one."""
MOST_SETS = 300
"""How many sets of places are followed to show that a way never fails."""
MOST_STATES = 400_000

SEARCH, MATCH, FULLMATCH = "search", "match", "fullmatch"

State: TypeAlias = "tuple[tuple[int, ...], int, bool]"
"""The places that several ways are at, the class of the last character, and whether the first two have parted."""
Following: TypeAlias = "Callable[[State], Iterable[tuple[tuple[int, ...], int, bool]]]"
"""Yields the next places of a state, the characters that lead there as a mask, and whether the ways have parted."""
Came: TypeAlias = "dict[State, tuple[State, int] | None]"
Edges: TypeAlias = "dict[int, set[int]]"
Parts: TypeAlias = set[int]


@dataclass(frozen=True, slots=True)
class Growth:
    """Why a pattern may take more than linear time.

    Attributes:
        kind: `exponential`, `polynomial` (within one attempt) or `restart` (a search that begins anew).
        begin: a text that leads to the repeat.
        piece: what is read in more than one way.
        steps: what it costs for each character, if there is a bound.
    """

    kind: str
    begin: str
    piece: str
    steps: int | None = None


class Prover:
    """Analyses one pattern for one use: `SEARCH`, `MATCH` or `FULLMATCH`.

    Place 0 is the beginning; the others are the places of the pattern that read a character.
    """

    def __init__(self, pattern: re.Pattern[str] | re.Pattern[bytes], use: str) -> None:
        self._machine = automaton(pattern)
        self._use = use
        self._places: list[Node] = [Node("begin", 0)]
        self._numbers: dict[int, int] = {}
        self._routes: list[tuple[Route, ...]] = [self._machine.routes(self._machine.entry)]
        waiting = list(self._routes[0])
        while waiting:
            target = waiting.pop().target
            if target.kind == "read" and id(target) not in self._numbers:
                self._numbers[id(target)] = len(self._places)
                self._places.append(target)
                self._routes.append(self._machine.routes(target.next[0]))
                waiting.extend(self._routes[-1])
        self._characters = range(len(self._machine.alphabet))
        self._kinds = self._kinds_of_characters()
        self._ways_from: dict[tuple[int, int], tuple[tuple[int, int, int], ...]] = {}
        self._failing: dict[tuple[int, int], bool] = {}
        self._final: dict[tuple[int, int, int, int], bool] = {}

    def findings(self) -> list[Growth]:
        """Return each way in which the pattern may take more than linear time.

        Raises:
            TooComplexError: there are too many ways to follow.
        """
        return [
            found
            for region, entry in self._machine.regions.items()
            for found in self._findings_in(region, entry)
        ]

    # The repeats of one region, and what they leave to each other.

    def _findings_in(self, region: int, entry: Node) -> list[Growth]:
        edges = self._graph(region, entry)
        reached = _reachable(edges)
        repeats = [part for part in _components(reached) if next(iter(part)) in reached[next(iter(part))]]
        found = []
        costs: dict[int, dict[int, str]] = {}
        begins: dict[int, str] = {}
        for number, part in enumerate(repeats):
            if piece := self._read_in_two_ways(part, region):
                found.append(Growth("exponential", self._lead(part), piece))
            middle = {x for x in edges if not reached[x].isdisjoint(part)} | part
            for other, outer in enumerate(repeats):
                if other == number or outer.isdisjoint(middle):
                    continue
                if piece := self._left_to(outer, part, middle, region):
                    costs.setdefault(other, {})[number] = piece
            if region == 0 and self._use == SEARCH and (piece := self._begun_anew(part, middle)):
                begins[number] = piece
        return found + self._too_many_steps(repeats, costs, begins)

    def _too_many_steps(
        self, repeats: Sequence[Parts], costs: dict[int, dict[int, str]], begins: dict[int, str]
    ) -> list[Growth]:
        """Return the rows of repeats that take over from each other and whose steps multiply to too many."""

        def bound(number: int) -> float:
            bounds = [self._places[x].most for x in repeats[number]]
            return max(math.inf if x is None else x for x in bounds)

        def rows(number: int, before: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
            row = (*before, number)
            yield row
            for later in costs.get(number, {}):
                if later not in row:
                    yield from rows(later, row)

        def steps(row: Sequence[int], unbounded: int) -> float:
            """Return the steps for each character, of repeats of which one may take the whole text."""
            bounds = [bound(number) for number in row]
            unbounded += bounds.count(math.inf)
            product = math.prod(x for x in bounds if x != math.inf)
            return math.inf if unbounded > 1 else product if unbounded else product / _SHORT_TEXT

        found = []
        for number, starts in (*((x, True) for x in begins), *((x, False) for x in costs)):
            worst = max(steps(row, int(starts)) for row in rows(number, ()))
            piece = begins[number] if starts else next(iter(costs[number].values()))
            if starts:
                worst /= len(piece)
            if worst > MOST_STEPS:
                count = None if worst == math.inf else int(worst)
                kind = "restart" if starts else "polynomial"
                found.append(Growth(kind, self._lead(repeats[number]), piece, count))
        return found

    def _graph(self, region: int, entry: Node) -> Edges:
        """Return which places of a region follow each other, without leaving it."""
        edges: Edges = {}
        waiting = list(self._targets(self._machine.routes(entry), region))
        while waiting:
            number = waiting.pop()
            if number not in edges:
                edges[number] = set(self._targets(self._routes[number], region))
                waiting.extend(edges[number])
        return edges

    def _targets(self, routes: Iterable[Route], region: int) -> Iterator[int]:
        for route in routes:
            number = self._numbers.get(id(route.target))
            if number is not None and not (region and route.leaves(region)):
                yield number

    def _read_in_two_ways(self, part: Parts, region: int) -> str:
        """Return what a repeat reads in two ways that end where they began; empty if there is nothing."""

        def following(state: State) -> Iterator[tuple[tuple[int, ...], int, bool]]:
            (one, other), before, parted = state
            for left, right, mask, now in self._pairs(one, other, before, region, parted=parted):
                if left in part and right in part:
                    yield (left, right), mask, now

        def start_of(end: tuple[int, ...]) -> tuple[int, ...] | None:
            return end if end[0] == end[1] in failing else None

        failing = self._failing_of(part, region)
        return self._circle([(x, x) for x in part] if failing else [], following, start_of)

    def _left_to(self, outer: Parts, inner: Parts, middle: Parts, region: int) -> str:
        """Return what two repeats can both read, so that the first can leave it to the second."""

        def following(state: State) -> Iterator[tuple[tuple[int, ...], int, bool]]:
            (one, other, last), before, parted = state
            for left, right, mask, now in self._pairs(one, other, before, region, parted=parted):
                if left in outer and right in middle:
                    for route, third, last_mask in self._ways(last, before):
                        if third in inner and not self._is_final(last, route, region, before):
                            yield (left, right, third), mask & last_mask, now

        def start_of(end: tuple[int, ...]) -> tuple[int, ...] | None:
            return (end[0], end[0], end[2]) if end[1] == end[2] in failing else None

        failing = self._failing_of(inner, region)
        starts = [(first, first, last) for first in outer for last in inner if failing]
        return self._circle(starts, following, start_of)

    def _begun_anew(self, part: Parts, middle: Parts) -> str:
        """Return what a repeat reads on and on, while attempts that begin in it reach the same repeat."""

        def following(state: State) -> Iterator[tuple[tuple[int, ...], int, bool]]:
            (attempt, last), before, _ = state
            for route, inside, mask in self._ways(last, before):
                if inside in part and not self._is_final(last, route, 0, before):
                    if attempt == 0:
                        yield (0, inside), mask, True
                    for _, place, other_mask in self._ways(attempt, before):
                        if place in middle:
                            yield (place, inside), mask & other_mask, True

        def start_of(end: tuple[int, ...]) -> tuple[int, ...] | None:
            return (0, end[1]) if end[0] == end[1] in failing else None

        failing = self._failing_of(part, 0)
        return self._circle([(0, last) for last in part] if failing else [], following, start_of)

    def _failing_of(self, part: Parts, region: int) -> Parts:
        """Return the places of a repeat from which a text may fail, or is read for a look-around only."""
        looks = self._machine.looks - {region}
        return {x for x in part if self._places[x].region in looks or self._may_fail(x, region)}

    def _circle(
        self,
        starts: Sequence[tuple[int, ...]],
        following: Following,
        start_of: Callable[[tuple[int, ...]], tuple[int, ...] | None],
    ) -> str:
        """Return the characters that lead from a start to its end; empty if no start has one.

        Args:
            starts: places of several ways.
            following: see there.
            start_of: returns the start that belongs to an end; None if the places are no end.
        """
        states = [
            (places, kind, False)
            for places in starts
            for kind, _ in self._one_of_each(self._places[places[-1]].mask)
        ]
        for places, kind, parted in self._explored(states, following):
            start = start_of(places) if parted else None
            if start is not None:
                own = self._explored([(start, kind, False)], following)
                if (places, kind, True) in own:
                    return self._text(own, (places, kind, True))
        return ""

    def _explored(self, starts: Sequence[State], following: Following) -> Came:
        came: Came = dict.fromkeys(starts)
        waiting = deque(starts)
        while waiting:
            state = waiting.popleft()
            for places, mask, parted in following(state):
                for kind, character in self._one_of_each(mask):
                    reached = (places, kind, parted)
                    if reached not in came:
                        came[reached] = (state, character)
                        waiting.append(reached)
            if len(came) > MOST_STATES:
                raise TooComplexError("too many states")
        return came

    def _text(self, came: Came, state: State) -> str:
        """Return the characters that first led to a state, at least one."""
        characters: list[str] = []
        while (before := came[state]) is not None:
            state, number = before
            characters.append(self._machine.alphabet[number])
        return "".join(reversed(characters))

    def _lead(self, part: Parts) -> str:
        """Return a text that leads from the beginning into a repeat, as far as one is easily found."""

        def following(state: State) -> Iterator[tuple[tuple[int, ...], int, bool]]:
            (number,), before, _ = state
            for _, place, mask in self._ways(number, before):
                yield (place,), mask, False

        came = self._explored([((0,), BORDER, False)], following)
        end = next((state for state in came if state[0][0] in part), None)
        return self._text(came, end) if end is not None else ""

    # One step of one way, and of two.

    def _kinds_of_characters(self) -> list[int]:
        """Return a class for each character: those of one class are the same to every check behind them."""
        checks = {id(check): check for routes in self._routes for route in routes for check in route.checks}
        kinds: dict[tuple[bool, ...], int] = {}
        result = []
        for before in self._characters:
            seen = (
                _holds(check, before, x) for check in checks.values() for x in (*self._characters, BORDER)
            )
            result.append(kinds.setdefault(tuple(seen), before))
        return result

    def _one_of_each(self, mask: int) -> Iterator[tuple[int, int]]:
        """Yield the classes of the characters of a mask, each with one of them."""
        seen = set()
        for number in range(mask.bit_length()):
            if mask >> number & 1 and (kind := self._kinds[number]) not in seen:
                seen.add(kind)
                yield kind, number

    def _ways(self, number: int, before: int) -> tuple[tuple[int, int, int], ...]:
        """Return the routes from a place behind a character: their number, the next place, and what it reads."""
        key = (number, before)
        if key not in self._ways_from:
            found = []
            for index, route in enumerate(self._routes[number]):
                place = self._numbers.get(id(route.target))
                if place is None:
                    continue
                mask = route.target.mask
                if checks := route.checks:
                    fits = (x for x in self._characters if all(_holds(check, before, x) for check in checks))
                    mask &= sum(1 << x for x in fits)
                if mask:
                    found.append((index, place, mask))
            self._ways_from[key] = tuple(found)
        return self._ways_from[key]

    def _pairs(
        self, one: int, other: int, before: int, region: int, *, parted: bool
    ) -> Iterator[tuple[int, int, int, bool]]:
        """Yield the places that two ways reach by the same characters, and whether they have parted.

        They may part only where the region itself has a choice: what an atomic part inside chose is final.
        """
        for first, left, left_mask in self._ways(one, before):
            if self._is_final(one, first, region, before):
                continue
            for second, right, right_mask in self._ways(other, before):
                mask = left_mask & right_mask
                if not mask or self._is_final(other, second, region, before):
                    continue
                if parted:
                    yield left, right, mask, True
                elif first == second:
                    yield left, right, mask, False
                elif self._parting(one, first, second) == region:
                    yield left, right, mask, True

    def _parting(self, number: int, first: int, second: int) -> int:
        """Return the region of the choice at which two routes from a place part."""
        region = -1
        one, other = self._routes[number][first].passed, self._routes[number][second].passed
        for left, right in zip(one, other, strict=False):
            if left is not right:
                break
            region = left.region
        return region

    # Ways that cannot fail.

    def _is_final(self, number: int, route: int, region: int, before: int) -> bool:
        """Return whether nothing that the region chose before is chosen again once this route is taken.

        That is so if it leaves the region, or is preferred to a way that would leave it with success.
        """
        key = (number, route, region, before)
        if key not in self._final:
            taken = self._routes[number][route]
            behind = [x for x in self._characters if taken.target.mask >> x & 1] or [BORDER]
            self._final[key] = bool(region and taken.leaves(region)) or any(
                all(self._succeeds(other, region, before, x, frozenset()) for x in behind)
                for node, chosen in zip(taken.passed, taken.passed[1:], strict=False)
                if node.kind == "split"
                for other in node.next[node.next.index(chosen) + 1 :]
            )
        return self._final[key]

    def _succeeds(self, node: Node, region: int, before: int, behind: int, seen: frozenset[int]) -> bool:
        """Return whether a way from a place between two characters ends the region at once."""
        if node.kind == "leave" and node.left == region:
            return True
        if node.kind == "accept":
            return region == 0 and self._use != FULLMATCH
        if node.kind == "check" and not _holds_surely(node, before, behind):
            return False
        if node.kind not in {"split", "leave", "check"} or id(node) in seen:
            return False
        seen |= {id(node)}
        return any(self._succeeds(other, region, before, behind, seen) for other in node.next)

    def _may_fail(self, number: int, region: int) -> bool:
        """Return whether there is a text with which every way from a place fails before the region's end."""
        key = (number, region)
        if key not in self._failing:
            kinds = [kind for kind, _ in self._one_of_each(self._places[number].mask)]
            self._failing[key] = any(self._fails(number, region, kind) for kind in kinds)
        return self._failing[key]

    def _fails(self, number: int, region: int, before: int) -> bool:
        """Return whether some text behind a character ends the region nowhere, by the sets of places it leads to."""
        first = (frozenset({number}), before)
        waiting, seen = [first], {first}
        while waiting:
            places, before = waiting.pop()
            for behind in (BORDER, *self._characters):
                if self._ends(places, region, before, behind):
                    continue
                following = frozenset(
                    self._numbers[id(route.target)]
                    for place in places
                    for route in self._routes[place]
                    if behind != BORDER
                    and route.target.mask >> behind & 1
                    and _is_sure(route.passed, before, behind)
                )
                if not following or len(seen) > MOST_SETS:
                    return True
                reached = (following, self._kinds[behind])
                if reached not in seen:
                    seen.add(reached)
                    waiting.append(reached)
        return False

    def _ends(self, places: frozenset[int], region: int, before: int, behind: int) -> bool:
        """Return whether one of the places may be the region's last, between two characters."""
        for route in (route for place in places for route in self._routes[place]):
            if region:
                at = next((x for x, node in enumerate(route.passed) if node.left == region), None)
                is_end, passed = at is not None, route.passed[:at]
            else:
                is_end, passed = route.target.kind == "accept", route.passed
                is_end = is_end and (self._use != FULLMATCH or behind == BORDER)
            if is_end and _is_sure(passed, before, behind):
                return True
        return False


def _holds(check: Node, before: int, behind: int) -> bool:
    return check.allows is not None and check.allows(before, behind)


def _holds_surely(check: Node, before: int, behind: int) -> bool:
    return check.surely is not None and check.surely(before, behind)


def _is_sure(passed: Iterable[Node], before: int, behind: int) -> bool:
    """Return whether a route can be taken between two characters, whatever else the text is."""
    return all(
        node.kind != "look" and (node.kind != "check" or _holds_surely(node, before, behind))
        for node in passed
    )


def _reachable(edges: Edges) -> Edges:
    """Return every place that is reached from each one, in one step or more."""
    result: Edges = {}
    for start, first in edges.items():
        seen: Parts = set()
        waiting = list(first)
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen.add(number)
                waiting.extend(edges[number])
        result[start] = seen
    return result


def _components(reached: Edges) -> list[Parts]:
    """Return the sets of places that all reach each other."""
    left, found = set(reached), []
    while left:
        number = left.pop()
        part = {number} | {x for x in reached[number] if number in reached[x]}
        left -= part
        found.append(part)
    return found
