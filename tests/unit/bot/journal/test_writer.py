"""The journal on disk: private, whole lines only, and never in the way of saving the work."""

from __future__ import annotations

import json
import random
import stat
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator import __version__
from orchestrator.bot.journal.folders import Home, create_run_folder, is_full, new_run_id
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError, JournalError
from orchestrator.core.events import SessionEnded, TextDelta, ToolOutputDelta, TurnStarted, Warned


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_each_event_is_one_line_with_number_and_time(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 21, 3, 31, 12, 5, tzinfo=UTC))
    with JournalWriter(tmp_path, str, clock) as writer:
        writer(TurnStarted(1))
        clock.advance(1.5)
        writer(SessionEnded("line one\nline two\u2028three"))
    assert lines(writer.path) == [
        {
            "seq": 0,
            "at": "2026-11-21T03:31:12.000005+00:00",
            "type": "Journal",
            "format": 1,
            "version": __version__,
        },
        {
            "seq": 1,
            "at": "2026-11-21T03:31:12.000005+00:00",
            "type": "TurnStarted",
            "round": 1,
            "tokens": None,
            "usd": None,
        },
        {
            "seq": 2,
            "at": "2026-11-21T03:31:13.500005+00:00",
            "type": "SessionEnded",
            "reason": "line one\nline two\u2028three",
            "state": "closed",
        },
    ]


def test_a_record_is_on_the_disk_when_the_call_returns(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, str, ManualClock())
    writer(TurnStarted(1))
    assert len(lines(writer.path)) == 2
    writer.close()


def test_folder_and_file_are_private(tmp_path: Path) -> None:
    folder = create_run_folder(Home(tmp_path / "a" / "home"), "20260101-000000-000000")
    writer = JournalWriter(folder, str, ManualClock())
    writer.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600


def test_secrets_are_taken_out(tmp_path: Path) -> None:
    with JournalWriter(
        tmp_path, lambda text: text.replace("open-sesame", "[redacted]"), ManualClock()
    ) as writer:
        writer(Warned("the word is open-sesame"))
    assert lines(writer.path)[1]["message"] == "the word is [redacted]"


def test_pieces_are_not_written(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, str, ManualClock()) as writer:
        writer(TextDelta("open-"))
        writer(ToolOutputDelta("1", "sesame"))
    assert len(lines(writer.path)) == 1


def test_text_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, str, ManualClock()) as writer:
        writer(Warned("file \udcff, größer"))
    assert lines(writer.path)[1]["message"] == "file \udcff, größer"


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    JournalWriter(tmp_path, str, ManualClock()).close()
    with pytest.raises(JournalError, match=r"cannot write the journal .*: File exists"):
        JournalWriter(tmp_path, str, ManualClock())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        JournalWriter(tmp_path / "none", str, ManualClock())


def test_events_after_the_end_are_dropped(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, str, ManualClock())
    writer.close()
    writer(TurnStarted(1))
    writer.close()
    assert len(lines(writer.path)) == 1


def write_fifty(writer: JournalWriter) -> None:
    for _ in range(50):
        writer(Warned("x" * 5000))


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, str, ManualClock()) as writer:
        threads = [threading.Thread(target=write_fifty, args=(writer,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [line["seq"] for line in lines(writer.path)] == list(range(201))


FULL = """
import resource, sys
from pathlib import Path
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import DiskFullError
from orchestrator.core.events import Warned
from orchestrator.bot.journal.records import JournalWriter

writer = JournalWriter(Path(sys.argv[1]), str, ManualClock())
writer(Warned("fits"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
raised = []
for _ in range(3):
    try:
        writer(Warned("x" * 2000))
    except DiskFullError as error:
        raised.append(str(error))
writer.close()
print(len(raised), raised[0])
"""


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    path = tmp_path / "journal.jsonl"
    assert (
        done.stdout.strip()
        == f"1 no space is left for the journal {path}; the run is not recorded any further"
    )
    assert json.loads(path.read_bytes().splitlines()[1])["message"] == "fits"


def test_ids_sort_by_time() -> None:
    source = random.Random(1)  # noqa: S311  a name, not a secret
    first = new_run_id(datetime(2026, 11, 21, 3, 31, 12, tzinfo=UTC), source)
    second = new_run_id(datetime(2026, 11, 21, 3, 31, 13, tzinfo=UTC), source)
    assert first < second
    assert first.startswith("20261121-033112-")
    assert len(first) == len("20261121-033112-ab12cd")


def test_home_is_named_by_the_environment_or_the_platform(tmp_path: Path) -> None:
    home = Home.of({"PULLWRIGHT_HOME": str(tmp_path)})
    assert (home.runs, home.forge, home.cache) == (tmp_path / "runs", tmp_path / "forge", tmp_path / "cache")
    assert Home.of({"PULLWRIGHT_HOME": "here"}).root == Path.cwd() / "here"
    assert Home.of({"PULLWRIGHT_HOME": "~/x"}).root == Path.home() / "x"
    assert Home.of({"PULLWRIGHT_HOME": ""}).root == Home.of({}).root
    assert "pullwright" in str(Home.of({}).root)


def test_a_home_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="Not a directory; PULLWRIGHT_HOME names another place"):
        create_run_folder(Home(tmp_path / "file" / "home"), "x")


def test_a_run_folder_is_made_once(tmp_path: Path) -> None:
    create_run_folder(Home(tmp_path), "x")
    with pytest.raises(ConfigurationError, match="File exists"):
        create_run_folder(Home(tmp_path), "x")


def test_the_real_error_of_a_full_device_is_known() -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this platform has no device that is always full")
    with pytest.raises(OSError, match="No space left") as caught:
        device.write_text("x")
    assert is_full(caught.value)
