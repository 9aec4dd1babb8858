"""The tables of `tests/tables.py`: a case that fails is told, whichever it is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from tests.tables import table


def test_every_case_runs_and_those_that_failed_are_named() -> None:
    ran: list[int] = []

    @table("number", [0, 1, 2, 3])
    def even(number: int) -> None:
        ran.append(number)
        assert number % 2 == 0

    with pytest.raises(AssertionError, match="1 % 2") as caught:
        even()
    assert ran == [0, 1, 2, 3]
    assert caught.value.__notes__ == ["2 of 4 cases failed, above is the first:\n  1\n  3"]


def test_a_failure_that_pytest_raises_itself_counts() -> None:
    @table("number", [1, 2], ids=["one", "two"])
    def fails(number: int) -> None:
        with pytest.raises(ZeroDivisionError):
            assert 1 // (number - 1) == 1

    with pytest.raises(pytest.fail.Exception) as caught:
        fails()
    assert caught.value.__notes__ == ["1 of 2 cases failed, above is the first:\n  two"]


def test_what_is_no_column_stays_a_fixture_and_tables_can_be_stacked() -> None:
    seen: list[Any] = []

    @table("a", [1, 2])
    @table(("b", "c"), [(3, 4), pytest.param(5, 6, id="last")], ids=str)
    def product(a: int, b: int, *, c: int, tmp_path: str) -> None:
        seen.append((a, b, c, tmp_path))

    assert list(inspect.signature(product).parameters) == ["tmp_path"]
    product(tmp_path="here")
    assert seen == [(1, 3, 4, "here"), (1, 5, 6, "here"), (2, 3, 4, "here"), (2, 5, 6, "here")]


@pytest.mark.parametrize(
    ("names", "cases"), [("a", []), ("a, b", [(1,)]), ("a", [pytest.param(1, marks=pytest.mark.skip)])]
)
def test_a_table_that_would_prove_less_is_an_error(names: str, cases: list[Any]) -> None:
    with pytest.raises(ValueError, match="case"):
        table(names, cases)
