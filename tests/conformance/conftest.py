"""What the tables of environments need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.environments import PLACES, Place

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orchestrator.engine.environments.base import ExecutionEnvironment


@pytest.fixture(params=PLACES, ids=lambda place: place.__name__)
async def environment(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ExecutionEnvironment]:
    place: Place = request.param
    made = place(tmp_path, request)
    await made.initialize()
    yield made
    await made.cleanup()
