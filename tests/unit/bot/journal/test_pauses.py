from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, create_run_folder
from orchestrator.bot.journal.pauses import Pause, last_pause, newest_run, pause_of
from orchestrator.bot.journal.writer import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.events import (
    CallStatus,
    CycleEnded,
    CycleStarted,
    Event,
    Paused,
    Phase,
    PhaseEntered,
    ToolCallEnded,
)

if TYPE_CHECKING:
    from pathlib import Path

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PAUSE = Pause(NOW + timedelta(hours=2), "the quota is spent")


def run(home: Home, name: str, *events: Event, repository: str = "o/r", model: str = "m:1") -> Path:
    folder = create_run_folder(home, name)
    with JournalWriter(folder, str, ManualClock(NOW)) as writer:
        for event in (CycleStarted(name, repository, model, "native"), *events):
            writer(event)
    return folder


def test_a_restart_knows_the_pause(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, "20260101-100000-a", PhaseEntered(Phase.CHOOSE))
    run(home, "20260101-110000-b", CycleEnded({"outcome": "failed"}), PAUSE.event)
    assert last_pause(home, NOW) == PAUSE
    assert last_pause(home, PAUSE.until - timedelta(seconds=1)) == PAUSE
    assert last_pause(home, PAUSE.until) is None


def test_the_newest_run_of_a_repository_with_a_model(tmp_path: Path) -> None:
    home = Home(tmp_path)
    old = run(home, "20260101-100000-a", PAUSE.event)
    new = run(home, "20260101-110000-b", CycleEnded({}), repository="o/other")
    assert newest_run(home) == newest_run(home, repository="o/other", model="m:1") == new
    assert newest_run(home, repository="o/r") == old
    assert newest_run(home, repository="o/r", model="m:2") is None
    assert (pause_of(old, NOW), pause_of(old, PAUSE.until), pause_of(new, NOW)) == (PAUSE, None, None)


def test_no_run_is_no_pause(tmp_path: Path) -> None:
    assert last_pause(Home(tmp_path / "none"), NOW) is None


def test_a_newer_run_ends_a_pause(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, "20260101-100000-a", PAUSE.event)
    run(home, "20260101-110000-b", CycleEnded({}))
    assert last_pause(home, NOW) is None


def test_the_last_pause_of_a_run_counts(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, "20260101-100000-a", Paused("2026-01-02T00:00:00+00:00", "longer"), PAUSE.event)
    assert last_pause(home, NOW) == PAUSE


def test_only_runs_on_the_same_repository_with_the_same_model_count(tmp_path: Path) -> None:
    home = Home(tmp_path)
    run(home, "20260101-100000-a", PAUSE.event)
    run(home, "20260101-110000-b", repository="o/other")
    run(home, "20260101-120000-c", model="m:2")
    assert last_pause(home, NOW, repository="o/r", model="m:1") == PAUSE
    assert last_pause(home, NOW, repository="o/r", model="m:2") is None
    assert last_pause(home, NOW, repository="o/r") is None


def test_only_the_end_of_a_long_journal_is_read_and_only_of_the_newest(tmp_path: Path) -> None:
    home = Home(tmp_path)
    long = ToolCallEnded("1", "x", CallStatus.OK, "y" * 300_000)
    run(home, "20260101-100000-a", long, PAUSE.event)
    assert last_pause(home, NOW) == PAUSE
    for number in range(30):
        run(home, f"20260101-11{number:04}-b", repository="o/other")
    assert last_pause(home, NOW, repository="o/r") == PAUSE  # a fleet looks at many repositories
    assert last_pause(home, NOW, repository="o/r", most=30) is None


@pytest.mark.parametrize(
    "tail",
    [
        b'{"seq":9,"at":"2026',
        b"\xff\xfe",
        b"[]\n",
        b'{"type":"Paused"}\n',
        b'{"type":"Paused","until":"soon","reason":"x"}\n',
    ],
)
def test_a_damaged_journal_is_read_as_far_as_it_goes(tmp_path: Path, tail: bytes) -> None:
    home = Home(tmp_path)
    path = run(home, "20260101-100000-a", PAUSE.event) / JOURNAL_FILE
    path.write_bytes(path.read_bytes() + tail)
    assert last_pause(home, NOW) == PAUSE
    run(home, "20260101-110000-b")
    (home.runs / "20260101-110000-b" / JOURNAL_FILE).write_bytes(b"")
    assert last_pause(home, NOW) == PAUSE


def test_a_tools_output_is_no_pause(tmp_path: Path) -> None:
    home = Home(tmp_path)
    words = '\n{"type":"Paused","until":"2027-01-01T00:00:00+00:00","reason":"forged"}\n'
    run(home, "20260101-100000-a", ToolCallEnded("1", "x", CallStatus.OK, words))
    assert last_pause(home, NOW) is None
