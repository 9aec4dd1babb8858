"""What was said to be paid, saved or proposed is on the disk: a power cut at that moment loses none of it."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.doubles.power import Call, Disk, needs_tracing, traced

pytestmark = [needs_tracing, pytest.mark.slow(reason="the calls of whole programs are traced")]

# Locks hold nothing, and the index is made anew from the folders.
FREE = r"^/tmp|^/calls|^/home/cache|/lock$|\.lock$|/\.?open-runs\.json"
PROMISES = re.compile(
    r"\"type\\?\":\\?\"(TurnStarted|ReplyReceived|Claimed|Proposing|Proposed|QuestionAsked|WorkSaved|CycleEnded)"
)
PACKAGE = Path(__file__).parents[2]


def environ(folder: Path) -> dict[str, str]:
    (folder / "tmp").mkdir()
    own = {"PULLWRIGHT_HOME": str(folder / "home"), "TMPDIR": str(folder / "tmp"), "PYTHONPATH": str(PACKAGE)}
    return {**os.environ, **own}


def promise_of(call: Call) -> str:
    """The type of a journal's record that promises something, if the call writes one."""
    is_journal = call.name == "write" and call.paths[0].endswith("/journal.jsonl")
    found = PROMISES.search(call.text) if is_journal else None
    return found[1] if found else ""


def test_each_promise_of_a_cycle_is_on_the_disk_when_it_is_made(tmp_path: Path) -> None:
    """A demonstration, whose repository, branch, claim and pull request are on this machine."""
    calls = traced(
        [sys.executable, "-m", "orchestrator", "run", "--demo", "--plain"], tmp_path, environ(tmp_path)
    )
    home = str(tmp_path.resolve() / "home")
    disk, made = Disk(str(tmp_path.resolve())), set[str]()
    promised: Call | None = None
    kept = set()
    for call in calls:
        if promised is not None and call.name in {"write", "writev"} and call.thread == promised.thread:
            # Whatever is said next, to a person, a server or the journal, comes after the promise is on the disk.
            kept.add(promise_of(promised))
            assert disk.lost(FREE) == [], promised
            # Git syncs files, and no folders. A file without a name is the input of a git program.
            unsynced = [
                path for path in disk.contents - made if path.startswith(f"{home}/cache") and "#" not in path
            ]
            assert unsynced == [], promised
            promised = None
        disk.take(call)
        if promise_of(call):
            made = made or set(
                disk.contents
            )  # the demonstration's repository, which is a cache, as it was made
            promised = call
    assert kept >= {"Claimed", "TurnStarted", "ReplyReceived", "Proposing", "Proposed", "CycleEnded"}


_WRITES = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.bot.cycle.finish import write_private
from orchestrator.bot.journal.notes import PersonDecision, note_decision
from orchestrator.bot.journal.folders import Home, KeptWork, create_run_folder
from orchestrator.bot.journal.records import JournalWriter, append_last
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, WorkSaved
from orchestrator.engine.policy.secrets import Redactor

now = datetime(2026, 11, 21, tzinfo=UTC)
home = Home(Path(sys.argv[1]))
KeptWork(home.unfinished / "repository").write("issue-7", {"state.json": b"{}"})
note_decision(home, PersonDecision(now, "octo/calc", "issue-7", "open"))
folder = create_run_folder(home, "20261121-000000-abcdef")
write_private(folder / "changes.patch", b"diff")
with JournalWriter(folder, Redactor(), ManualClock(now)) as journal:
    journal(WorkSaved("p", "r"))
append_last(folder, CycleEnded({}), 2, Redactor(), ManualClock(now))
"""


def test_what_is_kept_for_the_next_start_is_on_the_disk(tmp_path: Path) -> None:
    calls = traced([sys.executable, "-c", _WRITES, str(tmp_path / "home")], tmp_path, environ(tmp_path))
    disk = Disk(str(tmp_path.resolve()))
    for call in calls:
        disk.take(call)
    assert disk.lost(FREE) == []


_ROUNDS = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.events import CallStatus, ReplyReceived, ToolCallEnded, ToolCallStarted, TurnStarted
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.policy.secrets import Redactor

folder = create_run_folder(Home(Path(sys.argv[1])), "20261121-000000-abcdef")
with JournalWriter(folder, Redactor(), ManualClock(datetime(2026, 11, 21, tzinfo=UTC))) as journal:
    for number in range(int(sys.argv[2])):
        journal(TurnStarted(number))
        journal(ReplyReceived(Message.assistant("x"), FinishReason.STOP, Usage(1, 1), 0.1, "m"))
        for call in range(5):
            journal(ToolCallStarted(str(call), "read_file", {}))
            journal(ToolCallEnded(str(call), "read_file", CallStatus.OK, "text"))
"""


def test_a_round_costs_two_syncs_however_many_calls_it_has(tmp_path: Path) -> None:
    counts = []
    for rounds in (1, 11):
        folder = tmp_path / str(rounds)
        folder.mkdir()
        command = [sys.executable, "-c", _ROUNDS, str(folder / "home"), str(rounds)]
        counts.append(sum(call.name == "fsync" for call in traced(command, folder, environ(folder))))
    assert counts[1] - counts[0] == 2 * 10
