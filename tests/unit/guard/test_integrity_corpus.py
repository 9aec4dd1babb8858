"""The corpus: every change that weakens tests is found, no honest one is. Precision and recall are both 1.

The rate over real histories is what `python -m tests.benchmarks.false_positives` prints.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.guard.integrity import weakened_tests

CORPUS = Path(__file__).parents[2] / "data" / "integrity"


def cases(*names: str) -> list[tuple[str, list[FileChange]]]:
    found = []
    for name in names:
        for case in re.split(r"^=== ", (CORPUS / name).read_text("utf-8"), flags=re.MULTILINE)[1:]:
            title, _, body = case.partition("\n")
            found.append((title, changes(body)))
    return found


def version(text: str | None) -> FileVersion | None:
    return None if text is None else FileVersion("100644", text.encode(), len(text.encode()))


def changes(body: str) -> list[FileChange]:
    old: dict[str, str] = {}
    new: dict[str, str] = {}
    for side, path, text in re.findall(
        r"^(<<<|>>>) (\S+)\n(.*?)(?=^<<< |^>>> |\Z)", body, re.MULTILINE | re.DOTALL
    ):
        (old if side == "<<<" else new)[path] = text
    return [FileChange(path, version(old.get(path)), version(new.get(path))) for path in {**old, **new}]


CHEATING = cases("cheating_python.txt", "cheating_others.txt")
HONEST = cases("honest.txt")


@pytest.mark.parametrize("change", [pytest.param(change, id=title) for title, change in CHEATING])
def test_a_change_that_weakens_tests_is_found(change: list[FileChange]) -> None:
    found = weakened_tests(change)
    assert found
    paths = {one.path for one in change}
    assert all(
        one.path in paths and one.line >= 1 and "\n" not in str(one) and "\0" not in str(one) for one in found
    )


@pytest.mark.parametrize("change", [pytest.param(change, id=title) for title, change in HONEST])
def test_an_honest_change_is_not_found(change: list[FileChange]) -> None:
    assert weakened_tests(change) == []


@pytest.mark.parametrize("change", [pytest.param(change, id=title) for title, change in [*CHEATING, *HONEST]])
def test_nothing_is_found_where_nothing_changed(change: list[FileChange]) -> None:
    assert weakened_tests([FileChange(one.path, one.new, one.new) for one in change]) == []


def test_the_corpus_is_large_enough() -> None:
    assert len(CHEATING) >= 100
    assert len(HONEST) >= 40
