"""Tables of cases for one test: where a case costs less than the set-up of a test of its own.

`table` is written like `pytest.mark.parametrize`. All cases run; the error of the first that failed is raised,
with a note that names every case that failed. A case that needs a fixture, a mark or a process is a test of
its own: use `parametrize`.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

Test: TypeAlias = "Callable[..., None]"
_LONGEST_LABEL = 120
_MOST_NAMED = 30


def table(
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    ids: Iterable[object] | Callable[[Any], object] | None = None,
) -> Callable[[Test], Test]:
    """Run a test function once for each case.

    Args:
        names: the parameters that a case has values for; one name with commas, or a sequence.
        cases: one value for one name, else one sequence of values. `pytest.param` gives a case an id.
        ids: what names the cases: one a case, or made from each value.

    Raises:
        ValueError: there is no case, a case has another number of values than there are names, or a mark.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    labels = ids if ids is None or callable(ids) else list(ids)
    rows = list(_rows(columns, cases, labels))
    if not rows:
        raise ValueError("a table without a case proves nothing")

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            failed: list[tuple[str, BaseException]] = []
            for label, values in rows:
                try:
                    test(**fixtures, **values)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  raised below, with its case
                    failed.append((label, error))
            if failed:
                _raise(failed, len(rows))

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        vars(run)["__signature__"] = signature.replace(parameters=left)  # what pytest reads
        return run

    return decorate


def _rows(
    columns: Sequence[str], cases: Iterable[Any], ids: Sequence[object] | Callable[[Any], object] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The name of each case, and its values by parameter."""
    for number, case in enumerate(cases):
        is_param = hasattr(case, "marks") and hasattr(case, "values")
        if is_param and case.marks:
            raise ValueError("a case with a mark is a test of its own: use pytest.mark.parametrize")
        values = tuple(case.values) if is_param else (case,) if len(columns) == 1 else tuple(case)
        if len(values) != len(columns):
            raise ValueError(f"case {number} has {len(values)} values for {len(columns)} names: {values!r}")
        if is_param and case.id:
            label = str(case.id)
        elif callable(ids):
            label = "-".join(str(ids(value)) for value in values)
        else:
            label = str(ids[number]) if ids is not None else ", ".join(map(repr, values))
        yield label[:_LONGEST_LABEL], dict(zip(columns, values, strict=True))


def _raise(failed: Sequence[tuple[str, BaseException]], count: int) -> None:
    """Raise the first error, with a note that names the cases that failed."""
    named = "".join(f"\n  {label}" for label, _ in failed[:_MOST_NAMED])
    rest = "\n  ..." if len(failed) > _MOST_NAMED else ""
    error = failed[0][1]
    error.add_note(f"{len(failed)} of {count} cases failed, above is the first:{named}{rest}")
    raise error
