"""How much is read, how often, and how much of it is kept."""

from __future__ import annotations

import shutil
import tracemalloc
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.task_state import KnownTask, task_state
from orchestrator.bot.cycle.tasks import Task, from_text
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.journal.folders import JOURNAL_FILE, Home
from orchestrator.bot.journal.index import keep_look
from orchestrator.core.cycle_events import CycleEnded, Paused, TaskTaken
from orchestrator.core.events import Warned
from orchestrator.core.messages import Spent
from orchestrator.plugins.dashboard.overview import DayCap, Look, RunStore, cost_plots, make_overview
from tests.doubles.journals import Journals, night, proposed, started, worked_round
from tests.plugins.dashboard.benchmark import EVENTS_A_LOOK, flood, many_runs
from tests.plugins.dashboard.scene import NOW
from tests.unit.bot.worker.test_results import STATES

if TYPE_CHECKING:
    from pathlib import Path

TASK = TaskTaken("issue-12", "Mend the sum", "It subtracts.", "issue", 12)


def pull_of(task: Task, state: PullRequestState) -> PullRequest:
    """A pull request of a local forge."""
    branch = f"pullwright/{task.key}-x"
    return PullRequest(
        1, task.title, "", "file:///forge/pulls/1.json", False, state, branch, "main", "0" * 40
    )


def test_the_newest_run_is_there_at_once_and_the_others_follow(tmp_path: Path) -> None:
    home = Home(tmp_path)
    many_runs(home, 300)
    store = RunStore(home)
    store.refresh(0)
    assert ([run.id for run in store.runs], store.unread) == (
        [max(path.name for path in home.runs.iterdir())],
        299,
    )
    assert store.refresh()
    assert (len(store.runs), store.unread) == (300, 0)
    assert [run.id for run in store.runs] == sorted((path.name for path in home.runs.iterdir()), reverse=True)


def test_a_journal_that_ended_long_ago_is_not_opened_again(tmp_path: Path) -> None:
    home = Home(tmp_path)
    many_runs(home, 200)
    store = RunStore(home)
    store.refresh()
    version = store.version
    for folder in sorted(home.runs.iterdir())[:100]:
        (folder / JOURNAL_FILE).write_bytes(b"damaged")
    assert not store.refresh()
    assert store.version == version


def test_only_so_many_are_known(tmp_path: Path) -> None:
    home = Home(tmp_path)
    many_runs(home, 20)
    store = RunStore(home, most=5)
    store.refresh()
    assert len(store.runs) == 5


def test_a_run_that_is_removed_is_forgotten_and_one_that_ends_is_seen(tmp_path: Path) -> None:
    home = Home(tmp_path)
    made = Journals(home)
    old = made.add(NOW - timedelta(hours=1), [*started("r", TASK, "o/r"), CycleEnded({"outcome": "failed"})])
    writer = made.begin(NOW, [*started("r", TASK, "o/r"), *worked_round(1)])
    store = RunStore(home)
    store.refresh()
    (live,) = store.live.values()
    assert (live.progress.phase, live.progress.facts.round, live.progress.facts.calls) == ("act", 1, 2)
    shutil.rmtree(old)
    writer(CycleEnded({"outcome": "proposed"}))
    made.end()
    assert store.refresh()
    assert ([run.outcome for run in store.runs], store.live) == (["proposed"], {})


def test_what_a_page_is_drawn_from_does_not_change_when_another_page_reads_on(tmp_path: Path) -> None:
    made = Journals(Home(tmp_path))
    writer = made.begin(NOW, [*started("r", TASK, "o/r"), *worked_round(1)])
    store = RunStore(made.home)
    store.refresh()
    (live,) = store.live.values()
    lines = iter(live.lines)
    first = next(lines)
    writer(Warned("a new line"))
    store.refresh()
    assert "a new line" not in [line.text for line in (first, *lines)]
    assert live.lines[-1].text == "a new line"
    assert len(live.lines) == 6
    made.end()


@pytest.mark.slow(reason="growth: tens of thousands of events")
def test_a_flood_is_shown_in_small_pieces_and_kept_nowhere(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        looks = list(flood(Home(tmp_path), 8))
    finally:
        tracemalloc.stop()
    assert EVENTS_A_LOOK * 8 > 20_000
    assert all(steps <= 201 for _, steps, _ in looks)
    early, late = looks[2][2], looks[-1][2]
    written = sum(path.stat().st_size for path in tmp_path.rglob(JOURNAL_FILE)) * 5 // 8
    assert late - early < written / 20


def test_the_morning_in_numbers(tmp_path: Path) -> None:
    made = night(Home(tmp_path), NOW)
    store = RunStore(Home(tmp_path))
    store.refresh()
    view = make_overview(store, NOW, DayCap(3.0, 1.5), {})
    assert [need.what for need in view.needs][:2] == ["question", "failed"]
    assert view.needs[-1].what == "tests"
    assert view.heartbeat == ("active", "1 run at work")
    assert list(view.pauses) == ["octo/atlas"]
    assert view.plots[0].cap == (3.0, "cap $3.00")
    assert sum(bar.total for bar in view.plots[0].bars) == pytest.approx(
        sum(
            run.spent.usd or 0
            for run in store.runs
            if run.started and run.started.date() > (NOW - timedelta(days=14)).date()
        )
    )
    since = (NOW - timedelta(days=14)).date()
    outcomes = [run.outcome for run in store.runs if run.started and run.started.date() > since]
    proposed, asked = outcomes.count("proposed"), outcomes.count("question")
    other = outcomes.count("answered") + outcomes.count("finished")
    assert proposed > asked > 0
    assert view.plots[1].said.startswith(
        f"{proposed} proposed, {other} done without a pull request, {asked} asked, "
    )
    assert {plot.title: plot.cap for plot in view.cost_plots} == dict.fromkeys(
        ["octo/ledger", "octo/atlas"], (1.5, "cap $1.50")
    )
    for day, both in enumerate(view.plots[0].bars):
        assert sum(plot.bars[day].total for plot in view.cost_plots) == pytest.approx(both.total)
    spent = {name: cost.usd for name, cost, _ in view.costs}
    assert set(spent) == {"octo/ledger", "octo/atlas"}
    assert next((why, times) for why, times, _ in view.failures)[1] == 2
    made.end()
    store.refresh()
    assert make_overview(store, NOW, DayCap(), {}).heartbeat == ("quiet", "waiting")


def test_many_repositories_have_plots_of_one_scale_and_the_cheapest_one_together() -> None:
    day = NOW.date()
    costs = {(f"o/{number}", day): Spent(usd=float(number)) for number in range(1, 9)}
    costs |= {("o/9", day): Spent(usd=None), ("o/9", day - timedelta(days=1)): Spent(usd=20.0)}
    plots = cost_plots(costs, NOW, None)
    assert [plot.title for plot in plots] == [
        *("o/9", "o/8", "o/7", "o/6", "o/5"),
        "4 other repositories together",
    ]
    assert plots[0].said == "$20.00 in 14 days; the price of some replies is unknown on 1 day"
    assert [plot.bars[-1].total for plot in plots] == [0.0, 8.0, 7.0, 6.0, 5.0, 10.0]
    assert {plot.highest for plot in plots} == {20.0}
    assert cost_plots({}, NOW, 1.0) == []


def test_one_task_that_succeeded_later_needs_nobody(tmp_path: Path) -> None:
    made = Journals(Home(tmp_path))
    made.add(NOW, [*started("r", TASK, "o/r"), CycleEnded({"outcome": "failed", "error": "no"})])
    store = RunStore(Home(tmp_path))
    store.refresh()
    assert [need.what for need in make_overview(store, NOW, DayCap(), {}).needs] == ["failed"]
    made.add(NOW + timedelta(minutes=1), [*started("r", TASK, "o/r"), *proposed(1, "Sum", "o/r")])
    store.refresh()
    assert make_overview(store, NOW, DayCap(), {}).needs == []


def test_a_worker_is_paused_by_an_obstacle_and_waits_when_it_is_idle(tmp_path: Path) -> None:
    made, store = Journals(Home(tmp_path)), RunStore(Home(tmp_path))
    later = (NOW + timedelta(minutes=5)).isoformat()
    idle = CycleEnded({"outcome": "no_task", "reason": "issue #3 is claimed", "wake_at": later})
    made.add(NOW, [*started("r", None, "o/r"), idle])
    store.refresh()
    assert make_overview(store, NOW, DayCap(), {}).heartbeat == ("quiet", "waiting")
    failed = CycleEnded({"outcome": "failed", "error": "no"})
    made.add(NOW, [*started("r", TASK, "o/s"), failed, Paused(later, "the quota is spent")])
    store.refresh()
    view = make_overview(store, NOW, DayCap(), {})
    assert view.heartbeat == ("warning", "paused")
    assert set(view.pauses) == {"o/r", "o/s"}
    made.add(NOW + timedelta(minutes=1), [*started("r", None, "o/s"), idle])
    store.refresh()
    view = make_overview(store, NOW, DayCap(), {})
    assert view.heartbeat == ("quiet", "waiting")
    assert view.last_at is not None
    assert view.last_at >= NOW + timedelta(minutes=1)


def test_a_run_that_becomes_the_last_look_is_a_change(tmp_path: Path) -> None:
    made, store = Journals(Home(tmp_path)), RunStore(Home(tmp_path))
    idle = CycleEnded({"outcome": "no_task", "reason": "issue #3 is claimed"})
    run = made.add(NOW, [*started("r", None, "o/r"), idle]).name
    store.refresh()
    keep_look(Home(tmp_path), run)
    assert store.refresh()
    assert (store.runs, [look.id for look in store.looks]) == ([], [run])
    assert not store.refresh()


def test_a_task_with_its_pull_request_waits_no_longer(tmp_path: Path) -> None:
    made, store = Journals(Home(tmp_path)), RunStore(Home(tmp_path))
    tasks = [from_text("Mend it"), from_text('It\'s "done"'), from_text("Say 'a' was done by b")]
    pulls = [pull_of(task, state) for task, state in zip(tasks, PullRequestState, strict=True)]
    reasons = [task_state(KnownTask(task.key, NOW, task, pulls)).refusal for task in tasks]
    waits = "the task \"'x' has an open pull request, \" waits for an answer: pullwright run"
    said = "; ".join([*filter(None, reasons), waits])
    made.add(NOW, [*started("r", None, "o/r"), CycleEnded({"outcome": "no_task", "reason": said})])
    store.refresh()
    closed = next(one for one in reasons if one and "was declined" in one)
    ((name, why),) = make_overview(store, NOW, DayCap(), {}).queue
    assert (name, [reason for reason, _ in why]) == ("o/r", [closed, waits])


def test_why_tasks_wait_is_what_the_last_look_said(tmp_path: Path) -> None:
    made = Journals(Home(tmp_path))
    nothing = "item-0a1b2c3d waits for an answer: pullwright run; issue #3 has no label; it is late"
    made.add(
        NOW - timedelta(hours=2),
        [*started("r", None, "o/r"), CycleEnded({"outcome": "no_task", "reason": "old"})],
    )
    made.add(
        NOW - timedelta(hours=1),
        [*started("r", TASK, "o/r"), CycleEnded({"outcome": "no_task", "reason": "it is right"})],
    )
    made.add(
        NOW,
        [
            *started("r", None, "o/r"),
            CycleEnded({"outcome": "no_task", "reason": f"{nothing}; item-9c82aff5 had nothing to do"}),
        ],
    )
    store = RunStore(Home(tmp_path))
    store.refresh()
    view = make_overview(store, NOW, DayCap(), {})
    assert [(name, [reason for reason, _ in reasons]) for name, reasons in view.queue] == [
        (
            "o/r",
            [
                "item-0a1b2c3d waits for an answer: pullwright run",
                "issue #3 has no label; it is late",
                "item-9c82aff5 had nothing to do",
            ],
        )
    ]
    assert [(need.what, need.text) for need in view.needs] == [("nothing", "it is right")]
    assert [run.task is not None for run in view.recent] == [True]


def test_the_page_tells_what_a_merged_one_cost_and_a_month(tmp_path: Path) -> None:
    store = RunStore(Home(tmp_path))
    store.refresh()
    looks = {"o/r": Look("o/r", NOW, tuple(STATES))}
    tiles = {name: (figure, note) for name, figure, note in make_overview(store, NOW, DayCap(), looks).tiles}
    assert tiles["Cost of a merged one"] == ("$2.50", "2 merged, 1 declined, 1 abandoned")
    assert tiles["A month at this rate"][0] == "$0.00"
