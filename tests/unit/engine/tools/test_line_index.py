"""Where hunks are found: the same places as by reading the whole text each time, without doing so."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.tools.matching import LineIndex
from orchestrator.engine.tools.patches.hunks import Chunk, PatchLine, apply_chunks
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

LINES = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12)
PLACES = st.integers(0, 14)


def by_reading_all(lines: list[str], wanted: list[str], start: int, aim: int) -> int | None:
    """What `nearest` means, in as many steps as there are lines."""
    places = [at for at in range(start, len(lines)) if lines[at : at + len(wanted)] == wanted]
    return min(places, key=lambda place: abs(place - aim), default=None)


@given(LINES, LINES.filter(len), PLACES, PLACES)
def test_a_place_is_that_of_reading_all(lines: list[str], wanted: list[str], start: int, aim: int) -> None:
    assert LineIndex(lines).nearest(wanted, start, aim) == by_reading_all(lines, wanted, start, aim)


@given(LINES.filter(len), st.data())
def test_lines_of_the_text_are_found(lines: list[str], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(lines) - 1))
    wanted = lines[begin : data.draw(st.integers(begin + 1, len(lines)))]
    start, aim = data.draw(st.integers(0, begin)), data.draw(PLACES)
    assert LineIndex(lines).nearest(wanted, start, aim) == by_reading_all(lines, wanted, start, aim)


def test_of_two_as_near_it_is_the_upper_one() -> None:
    assert LineIndex(["x", "", "x"]).nearest(["x"], 0, 1) == 0
    assert LineIndex(["x", "", "x"]).nearest(["x"], 1, 1) == 2


class Counted(list[str]):
    """Lines that count how often they are looked at."""

    looks = 0

    def __getitem__(self, place: Any) -> Any:
        self.looks += 1
        return super().__getitem__(place)


def test_one_look_finds_a_line_that_is_everywhere() -> None:
    lines = Counted(["x"] * 1_000)
    index = LineIndex(lines)
    assert [index.nearest(["x", "x"], at, at) for at in range(900)] == list(range(900))
    assert lines.looks == 900


def test_the_rarest_line_says_where_to_look() -> None:
    lines = Counted([*["x"] * 1_000, "y"])
    assert LineIndex(lines).nearest(["x", "x", "y"], 0, 0) == 998
    assert LineIndex(lines).nearest(["x", "z"], 0, 0) is None
    assert lines.looks == 1


@contextmanager
def steps() -> Iterator[list[int]]:
    """Counts the lines of Python that are run."""
    count, before = [0], sys.gettrace()

    def trace(_frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
        count[0] += event == "line"
        return trace

    sys.settrace(trace)
    try:
        yield count
    finally:
        sys.settrace(before)


def cost(count: int, line: str, *, numbered: bool) -> int:
    """The steps for so many hunks on a text of twice as many lines, each of which is matched loosely.

    Equal hunks without a number have a place only if there are as many equal lines.
    """
    many = 2 * count if numbered or "{" in line else count
    text = "".join(line.format(at) + "\n" for at in range(many))
    chunks = [
        Chunk(
            (PatchLine("-", f"{line.format(2 * at)} "), PatchLine("+", "new")),
            at,
            expected=2 * at if numbered else None,
        )
        for at in range(count)
    ]
    with steps() as taken:
        apply_chunks("f", text, chunks)
    return taken[0]


@table("numbered", [False, True])
@table("line", ["same", "line {}"])
def test_twice_the_hunks_take_twice_the_steps(line: str, numbered: bool) -> None:  # noqa: FBT001  a table
    assert cost(400, line, numbered=numbered) < 2.2 * cost(200, line, numbered=numbered)
