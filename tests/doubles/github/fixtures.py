"""The pytest fixture; a `conftest.py` imports it: `from tests.doubles.github.fixtures import github`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.github.server import GitHub

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["github"]


@pytest.fixture
def github(tmp_path: Path) -> Iterator[GitHub]:
    """A GitHub of the test's own. At the end nothing may have broken GitHub's description."""
    with GitHub(tmp_path / "github") as double:
        yield double
    assert double.violations == []
