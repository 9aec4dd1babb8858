"""The dashboard: first page over 10,000 runs, and a stream of 10,000 events a second. Aims: 0.3 s, flat memory.

Run: python -m tests.plugins.dashboard.benchmark [RUNS]
"""

from __future__ import annotations

import gc
import sys
import tempfile
import time
import tracemalloc
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import JOURNAL_FILE, Home
from orchestrator.bot.journal.reader import JournalTail
from orchestrator.core.cycle_events import TaskTaken
from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted
from orchestrator.plugins.dashboard.overview import DayCap, RunStore, make_overview
from orchestrator.plugins.dashboard.pages import Pages
from orchestrator.plugins.dashboard.server import FIRST_PAINT_SECONDS, StoryFollower
from tests.doubles.journals import Journals, proposed, run_name, runs_of_tests, started, worked_round

if TYPE_CHECKING:
    from collections.abc import Iterator

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
RUNS = 10_000
EVENTS_A_LOOK = 3_000
"""Of 10,000 a second, at three looks a second."""
LOOKS = 60


class Watch:
    """Time since it was made: by the clock, and of this process, which a busy machine does not make longer."""

    def __init__(self) -> None:
        self._begin = time.perf_counter(), time.process_time()

    @property
    def cpu(self) -> float:
        return time.process_time() - self._begin[1]

    def __str__(self) -> str:
        return f"{time.perf_counter() - self._begin[0]:7.3f} s, {self.cpu:7.3f} s of the processor"


def many_runs(home: Home, count: int) -> None:
    """Copies of one journal, an hour apart."""
    task = TaskTaken("issue-1", "Mend the sum", "It subtracts.", "issue", 1)
    rounds = [event for number in range(1, 4) for event in worked_round(number)]
    events = [*started("r", task, "o/r"), *rounds, *runs_of_tests(), *proposed(1, "Sum", "o/r")]
    first = Journals(home).add(NOW, events)
    content = (first / JOURNAL_FILE).read_bytes()
    for number in range(1, count):
        folder = home.runs / run_name(NOW - timedelta(hours=number), number)
        folder.mkdir()
        (folder / JOURNAL_FILE).write_bytes(content)


def first_page(home: Home) -> tuple[str, RunStore]:
    """How long until the first page is written, by a program that has read nothing yet."""
    begin = Watch()
    store = RunStore(home)
    store.refresh(FIRST_PAINT_SECONDS)
    Pages("form", "home", str).overview(make_overview(store, NOW, DayCap(3.0), {}))
    return str(begin), store


def flood(home: Home, looks: int) -> Iterator[tuple[float, int, int]]:
    """A run that writes `EVENTS_A_LOOK` records between looks: seconds of a look, steps sent, bytes that are held."""
    made = Journals(home)
    writer = made.begin(NOW + timedelta(hours=1), started("r", None, "o/r"))
    follower, store = StoryFollower(JournalTail(writer.path.parent), 0), RunStore(home, most=1)
    pages = Pages("form", "home", str)
    for look in range(looks):
        for number in range(EVENTS_A_LOOK // 2):
            call = f"{look}-{number}"
            writer(ToolCallStarted(call, "read_file", {"path": f"{call}.py"}))
            writer(ToolCallEnded(call, "read_file", CallStatus.OK, "x" * 200))
        begin = Watch()
        store.refresh()
        steps = follower.steps()
        pages.steps(steps)
        seconds = begin.cpu
        gc.collect()
        yield seconds, len(steps), tracemalloc.get_traced_memory()[0]
    made.end()


def main(count: int) -> None:
    """Print what it takes."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder))
        many_runs(home, count)
        seconds, store = first_page(home)
        print(f"first page over {count:,} runs   {seconds}, {len(store.runs):,} of them read")
        begin = Watch()
        store.refresh()
        print(f"all of them read                 {begin}")
        begin = Watch()
        store.refresh()
        print(f"a look where nothing changed     {begin}")
        begin = Watch()
        Pages("form", "home", str).overview(make_overview(store, NOW, DayCap(3.0), {}))
        print(f"the page over all of them        {begin}")
        gc.collect()
        print(f"{'look':>6}{'records':>10}{'cpu ms':>8}{'steps':>7}{'MB held':>9}")
        tracemalloc.start()
        for number, (took, steps, held) in enumerate(flood(home, LOOKS), start=1):
            if number % 10 == 0:
                print(f"{number:6}{number * EVENTS_A_LOOK:10,}{took * 1000:8.0f}{steps:7}{held / 1e6:9.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else RUNS)
