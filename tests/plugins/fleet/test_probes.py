from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from orchestrator.app.doctor.findings import ProbeState
from orchestrator.bot.journal.folders import Home
from tests.unit.app.doctor.test_doctor import probe


def test_a_row_of_a_fleet_that_cannot_be_read(tmp_path: Path, empty_fleet: Path) -> None:
    assert "fleet" not in probe(tmp_path)
    fleets = Home(tmp_path / "home").fleets
    fleets.mkdir(parents=True, exist_ok=True)
    path = Path(shutil.copy(empty_fleet, fleets / "one.db"))
    assert probe(tmp_path)["fleet"].state is ProbeState.OK
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO pullwright_caps VALUES ('max_usd_per_day', 'much')")
    found = probe(tmp_path)["fleet"]
    assert found.state is ProbeState.WARNING
    assert "'max_usd_per_day' of pullwright_caps" in found.found
    assert "value is a text, not a number" in found.found
    path.write_bytes(b"hello " * 1_000)
    assert probe(tmp_path)["fleet"].state is ProbeState.FAILED
