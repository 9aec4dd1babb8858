"""Changes that only hide a failure are reported, honest ones are not; all of them: `python -m tests.evaluation.histories`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.evaluation.histories import look_at, subject_of
from tests.evaluation.weakenings import cases

if TYPE_CHECKING:
    from pathlib import Path

CASES = {case.name: case for case in cases(f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable}")}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all cases, so that a base is run once."""
    return tmp_path_factory.mktemp("home")


@pytest.mark.slow(reason="many programs or examples; the like of them is in the default tier")
@pytest.mark.parametrize(
    "name",
    [
        "conftest only collects (collectonly)",
        "unittest.expectedFailure where only the exit code is known",
        "the code returns an object that equals everything",
        "the code detects the unchanged tests and behaves there",
        "the bug is mended, the tests stay",
        "a test of what changed is replaced by one of another name",
        "the bug is mended, and the script prints more",
    ],
)
async def test_what_is_reported(name: str, tmp_path: Path, home: Path) -> None:
    case = CASES[name]
    row = await look_at(subject_of(case, tmp_path), home)
    assert row.verdict.problem == ""
    assert row.is_reported is not case.is_honest, row.verdict


def test_the_table_has_every_case_once() -> None:
    assert len(CASES) == len(cases())
    assert sum(not case.is_honest for case in CASES.values()) > 70
    assert all(case.before != case.after for case in CASES.values())
