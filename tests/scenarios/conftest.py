from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.github.fixtures import github
from tests.doubles.model_server import ModelServer
from tests.scenarios.stage import Stage, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["github"]


@pytest.fixture
def stage(capsys: pytest.CaptureFixture[str], own_state: Path) -> Iterator[Stage]:
    with ModelServer() as model:
        yield Stage(capsys, own_state, model)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "calc")
