"""A folder to work in, and what a tool is given there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import SystemClock
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.tools.base import Ledger, ToolContext

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


@pytest.fixture
async def context(tmp_path: Path) -> AsyncIterator[ToolContext]:
    environment = LocalEnvironment(tmp_path, clock=SystemClock())
    shown = frozenset({"read_file", "edit_file", "write_file", "file_write"})
    yield ToolContext(environment, Ledger(), lambda _text: None, shown=shown)
    await environment.cleanup()
