"""A machine on which a run was killed, and what repairs it."""

from __future__ import annotations

import itertools
import random
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.git.opening import reopen_clone
from orchestrator.bot.journal.folders import Home, KeptWork, create_run_folder, new_run_id
from orchestrator.bot.journal.reader import lock_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.bot.worker.recovery import Recovery
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import Claimed, Cloned, CycleStarted, TaskTaken
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.memory_forge import MemoryForge
from tests.unit.bot.git.rig import US, clone, make_source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from orchestrator.core.events import Event

START = datetime(2026, 11, 21, tzinfo=UTC)
KEY = "issue-12"
_COUNT = itertools.count(1)


@dataclass
class Machine:
    """A machine that a run was killed on."""

    home: Home
    source: Path
    temporary: Path
    records: Records
    claims: Claims
    told: list[Event]
    stopping: threading.Event

    def run_id(self, seed: int) -> str:
        return new_run_id(START, random.Random(seed))  # noqa: S311  names of made-up runs

    def killed(self, seed: int, events: Sequence[Event] = ()) -> tuple[str, Path]:
        """A run that changed a file, and whose process is dead."""
        run = self.run_id(seed)
        folder = create_run_folder(self.home, run)
        opened = clone(self.source, self.temporary)
        (opened.tree / "calc.py").write_text("fixed\n")
        owner = opened.folder / "owner"
        owner.write_text(owner.read_text().replace('"run": ""', f'"run": "{run}"'))
        opened.leave()
        opened.close()
        story = (
            CycleStarted(run, "octo/calc", "m", "native"),
            TaskTaken(KEY, "Fix it", "", "issue", None),
            Claimed(KEY, "host", 1, START.isoformat()),
            Cloned(opened.base_commit, "main", 1, str(opened.folder)),
            *events,
        )
        self.write(folder, story)
        return run, opened.folder

    def write(self, folder: Path, story: Sequence[Event]) -> None:
        with lock_run(folder), JournalWriter(folder, Redactor(), ManualClock(START)) as journal:
            for event in story:
                journal(event)

    def taken(self, run: str) -> Lease:
        taken = self.claims.take(KEY, run)
        assert isinstance(taken, Lease)
        return taken

    def recovery(self, seed: int = 99) -> Recovery:
        clock = ManualClock(START)
        return Recovery(
            self.home,
            "octo/calc",
            self.run_id(seed),
            MemoryForge("octo/calc", str(self.source), lambda _branch: None),
            self.temporary,
            self.records,
            self.claims,
            KeptWork(self.home.unfinished),
            lambda folder: reopen_clone(folder, str(self.source), lambda: None, US, clock),
            lambda: clone(self.source, self.temporary),
            clock,
            self.told.append,
            Redactor(),
        )

    def patch(self, run: str) -> str:
        return (self.home.runs / run / "changes.patch").read_text()


@contextmanager
def made_machine(tmp_path: Path) -> Iterator[Machine]:
    """With a repository whose `calc.py` is broken."""
    source = make_source(tmp_path / "source", {"calc.py": "broken\n"})
    clock = ManualClock(START)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    stopping = threading.Event()
    with Records(
        tmp_path / "scratch",
        str(source),
        lambda: None,
        clock=clock,
        sleep=lambda _: None,
        cancelled=stopping.is_set,
    ) as records:
        claims = Claims(records, "host", clock, LeaseTimes(), lambda: f"n{next(_COUNT)}")
        yield Machine(Home(tmp_path / "home"), source, temporary, records, claims, [], stopping)
