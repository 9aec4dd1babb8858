from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.doubles.power import Disk, needs_tracing, traced
from tests.scenarios.test_power import FREE, environ

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [needs_tracing, pytest.mark.slow(reason="the calls of a whole program are traced")]

_DATABASES = """
import sys
from pathlib import Path
from orchestrator.core.clock import SystemClock
from orchestrator.plugins.fleet.store import FleetStore
from orchestrator.engine.policy.secrets import Redactor

store = FleetStore(f"sqlite:///{sys.argv[1]}/fleet.db", SystemClock(), redactor=Redactor())
store.open()
store.close()
"""


def test_the_queue_of_a_fleet_syncs_each_transaction(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    calls = traced([sys.executable, "-c", _DATABASES, str(tmp_path / "home")], tmp_path, environ(tmp_path))
    disk = Disk(str(tmp_path.resolve()))
    for call in calls:
        disk.take(call)
    assert disk.lost(rf"{FREE}|-shm$|^/home$") == []
