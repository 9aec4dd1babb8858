"""Old runs are removed by age and by size, and never what is unfinished or counts for a day's limits."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.journal.folders import JOURNAL_FILE, PATCH_NAME, Home, run_names
from orchestrator.bot.journal.index import spent_on
from orchestrator.bot.journal.reader import lock_run, open_runs
from orchestrator.bot.journal.retention import RunsToKeep, find_old_runs, remove_old_runs
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, TaskTaken
from orchestrator.core.events import ReplyReceived
from orchestrator.core.messages import FinishReason, Message, Usage
from tests.doubles.journals import Journals

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
KEEP = RunsToKeep(90, 1_000)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def begun(task: str = "issue-1", repository: str = "octo/calc") -> list[Event]:
    return [
        CycleStarted("run", repository, "m", "native"),
        TaskTaken(task, "Fix it", "", "issue", 1),
        ReplyReceived(Message.assistant("x"), FinishReason.STOP, Usage(10, 2), 0.25, "m"),
    ]


def ended(outcome: str = "proposed", **fields: str) -> CycleEnded:
    return CycleEnded({"outcome": outcome, **fields})


def add(home: Home, days: float, *events: Event, size: int = 0, lock: bool = True) -> str:
    """A run that began so many days ago. Its process is dead."""
    made = Journals(home)
    made._count = len(run_names(home))
    folder = made.add(NOW - timedelta(days=days), list(events))
    (folder / "ballast").write_bytes(bytes(size))
    if lock:
        with lock_run(folder):
            pass
    return folder.name


def prune(home: Home, keep: RunsToKeep = KEEP, now: datetime = NOW) -> list[str]:
    return remove_old_runs(home, find_old_runs(home, keep, now))


def test_by_age(home: Home) -> None:
    old = add(home, 90.1, *begun(), ended())
    young = add(home, 89.9, *begun(), ended())
    assert prune(home) == [old]
    assert run_names(home) == [young]
    assert prune(home, RunsToKeep(0, 1_000)) == []


def test_by_size_the_oldest_first(home: Home) -> None:
    names = [add(home, days, *begun(), ended(), size=400_000) for days in (5, 4, 3, 2, 0.1)]
    found = find_old_runs(home, RunsToKeep(90, 1), NOW)
    assert found.removable == (*names[:3],)
    assert found.freed > 1_200_000
    assert remove_old_runs(home, found) == names[:3]
    assert run_names(home) == names[:2:-1]
    assert prune(home, RunsToKeep(90, 0)) == []


def test_what_counts_for_a_day_stays(home: Home) -> None:
    add(home, 0.4, *begun(), ended(), size=2_000_000)
    add(home, 1.4, *begun(), ended(), size=2_000_000)
    before = spent_on(home, NOW)
    assert before.usd == 0.25
    assert prune(home, RunsToKeep(0.001, 1)) == []
    assert spent_on(home, NOW) == before


def test_what_has_no_end_stays(home: Home) -> None:
    names = [add(home, 200, *begun()), add(home, 199, *begun(), lock=False)]
    damaged = add(home, 198, *begun())
    path = home.runs / damaged / JOURNAL_FILE
    path.write_bytes(bytes(3_000_000) + b"\n" + bytes(200) + b"\n")
    newer = add(home, 197, *begun())
    path = home.runs / newer / JOURNAL_FILE
    path.write_bytes(path.read_bytes().replace(b'"format":1', b'"format":9'))
    assert prune(home, RunsToKeep(1, 1)) == []
    assert find_old_runs(home, KEEP, NOW).unfinished == (*names, damaged, newer)
    assert {run.id for run in open_runs(home)} == {names[0], damaged}


def test_a_run_that_somebody_holds_stays(home: Home) -> None:
    name = add(home, 200, *begun(), ended())
    found = find_old_runs(home, KEEP, NOW)
    with lock_run(home.runs / name):
        assert remove_old_runs(home, found) == []
        assert prune(home) == []
    assert prune(home) == [name]


def test_a_patch_that_is_nowhere_else_stays_until_a_later_run_of_its_task(home: Home) -> None:
    name = add(home, 200, *begun(), ended("failed", patch="p"))
    (home.runs / name / PATCH_NAME).write_bytes(b"diff")
    add(home, 150, *begun("issue-2"), ended())
    add(home, 149, *begun(repository="octo/other"), ended())
    assert find_old_runs(home, KEEP, NOW).unfinished == (name,)
    assert name not in prune(home)
    add(home, 5, *begun(), ended())
    assert prune(home) == [name]


def test_a_patch_whose_work_the_remote_has_does_not_stay(home: Home) -> None:
    name = add(home, 200, *begun(), ended("limit", patch="p", saved="refs/pullwright/wip/issue-1"))
    (home.runs / name / PATCH_NAME).write_bytes(b"diff")
    assert prune(home) == [name]


def test_the_words_of_a_typed_task_stay_with_its_saved_work(home: Home) -> None:
    events: list[Event] = [
        CycleStarted("run", "octo/calc", "m", "native"),
        TaskTaken("text-1", "Fix it", "", "text", None),
    ]
    name = add(home, 200, *events, ended("limit", saved="refs/pullwright/wip/text-1"))
    assert prune(home) == []
    add(home, 5, *events, ended())
    assert prune(home) == [name]


def test_what_a_removal_that_was_killed_left_is_removed(home: Home) -> None:
    name = add(home, 200, *begun(), ended())
    (home.runs / name / JOURNAL_FILE).unlink()
    assert prune(home) == [name]


_RUN = st.tuples(
    st.floats(0, 300), st.sampled_from(["open", "ended", "patch", "empty"]), st.integers(0, 600_000)
)


@given(runs=st.lists(_RUN, max_size=12), days=st.floats(0, 300), megabytes=st.integers(0, 3))
def test_nothing_else_is_removed_and_the_limits_hold_for_the_rest(
    tmp_path_factory: pytest.TempPathFactory, runs: list[tuple[float, str, int]], days: float, megabytes: int
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    kinds = {}
    for number, (age, kind, size) in enumerate(runs):
        events = begun(f"issue-{number}")
        end = [ended("failed", patch="p")] if kind == "patch" else [ended()] if kind == "ended" else []
        name = add(home, age, *events, *end, size=size)
        kinds[name] = kind
        if kind == "patch":
            (home.runs / name / PATCH_NAME).write_bytes(b"diff")
        if kind == "empty":
            (home.runs / name / JOURNAL_FILE).unlink()
    found = find_old_runs(home, RunsToKeep(days, megabytes), NOW)
    gone = remove_old_runs(home, found)
    assert gone == list(found.removable)
    recent = f"{NOW - timedelta(days=1):%Y%m%d}"
    for name in gone:
        assert kinds[name] in {"ended", "empty"}
        assert name < recent
    left = find_old_runs(home, RunsToKeep(days, megabytes), NOW)
    assert left.removable == ()
    must_stay = [name for name in run_names(home) if kinds[name] in {"ended", "empty"} and name < recent]
    if days:
        assert all(name >= f"{NOW - timedelta(days=days):%Y%m%d-%H%M%S}" for name in must_stay)
    shutil.rmtree(home.root, ignore_errors=True)
