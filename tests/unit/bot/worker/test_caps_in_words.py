"""A writer may set a cap in words on an issue; it only lowers what is configured, and the issue says what was spent."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from orchestrator.bot.coordination.budget import Caps, CycleBudget, Refused, ScopeCaps
from orchestrator.bot.coordination.claim_record import ClaimRecord
from orchestrator.bot.cycle.choice import Choice
from orchestrator.bot.cycle.claim import show_cap
from orchestrator.bot.cycle.task_state import KnownTask, TaskStatus, task_state
from orchestrator.bot.cycle.tasks import Task, TaskKind
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import ManualClock
from orchestrator.core.messages import Spent
from orchestrator.engine.session.budget import Limits
from tests.doubles.github.server import START
from tests.doubles.memory_forge import MemoryForge
from tests.unit.bot.worker.test_choosing import backlog, issue, ours

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.bot.conftest import World


async def chosen(world: World) -> Task:
    task = (await backlog(world).choose()).task
    assert task is not None
    return task


async def test_the_words_of_a_writer_count_and_the_newest_ones(world: World) -> None:
    made = issue(world, body="It subtracts.\n\nUp to $5.")
    assert (await chosen(world)).usd_cap == 5.0
    world.comment_on(made, "mallory", "Up to $500.")
    assert (await chosen(world)).usd_cap == 5.0
    world.comment_on(made, "ada", "Up to $2.")
    world.comment_on(made, "mallory", "Up to $900.")
    assert (await chosen(world)).usd_cap == 2.0


async def test_the_body_of_a_stranger_sets_none_although_a_writer_labelled_it(world: World) -> None:
    made = world.issue("mallory")
    made.body = "It subtracts.\n\nUp to $500."
    world.label(made, "ada")
    assert (await chosen(world)).usd_cap is None


async def test_a_round_about_a_pull_request_has_the_cap_of_its_issue(world: World) -> None:
    made = issue(world, body="Up to $5.")
    world.comment_on(ours(world, made.number), "ada", "Rename it.")
    task = await chosen(world)
    assert (task.kind, task.usd_cap) == (TaskKind.REVIEW, 5.0)


async def test_only_a_lower_cap_counts(tmp_path: Path) -> None:
    none = Caps()
    folder = tmp_path / "run"
    folder.mkdir()
    (tmp_path / "home").mkdir()

    async def granted(
        configured: float | None, cap: float | None, spent: float = 0.0, need: float | None = 0.01
    ) -> Any:
        caps = ScopeCaps(none, Caps(usd=configured), none, none)
        budget = CycleBudget(Home(tmp_path / "home"), ManualClock(), caps)
        return await budget.open(folder, Spent(spent, 1, 1.0, 1), lambda _event: None, Caps(usd=need), cap)

    assert (await granted(10.0, 5.0)).usd == 5.0
    assert (await granted(None, 5.0)).usd == 5.0
    assert (await granted(2.0, 5.0)).usd == 2.0
    assert (await granted(10.0, None)).usd == 10.0
    assert (await granted(10.0, 5.0, spent=4.0)).usd == 1.0
    assert isinstance(await granted(10.0, 5.0, spent=5.0), Refused)
    refused = await granted(10.0, 5.0, need=None)
    assert isinstance(refused, Refused), "a cap that cannot be kept is not begun with"
    assert "the price of this model is not known" in refused.reason


def test_a_task_that_has_cost_what_a_person_allows_waits() -> None:
    task = Task("issue-3", "Sum", "", "issue", 3, usd_cap=5.0)
    at = START - timedelta(days=1)
    claim = ClaimRecord(
        "issue-3", "released", "host", "run", 1, at, at, at, "limit", spent=Spent(4.0, 1, 1, 1)
    )
    assert not task_state(KnownTask("issue-3", START, task, claim=claim)).refusal
    for spent in (Spent(5.0, 1, 1, 1), Spent(None, 1, 1, 1)):
        claim = ClaimRecord("issue-3", "released", "host", "run", 1, at, at, at, "limit", spent=spent)
        state = task_state(KnownTask("issue-3", START, task, claim=claim))
        assert state.status is TaskStatus.CAPPED
        assert "of the $5.00 that a person allows on issue #3" in state.refusal
        assert "of the $5.00 that a person allows" in state.describe()


async def test_the_issue_says_what_may_be_spent_and_what_was() -> None:
    forge = MemoryForge("o/n", "/nowhere", lambda _branch: None)
    number = forge.add_issue("Sum", "", author="ada")
    parts: Any = SimpleNamespace(forge=forge, run="r", emit=lambda _event: None)
    task = Task(f"issue-{number}", "Sum", "", "issue", number, usd_cap=5.0)
    choice = Choice(task, limits=Limits(usd=2.0))
    await show_cap(parts, choice, Spent())
    [said] = [one.body for one in forge.comments(number)]
    assert "**Up to $5.00**" in said
    assert "at most $2.00 in this run" in said
    await show_cap(parts, choice, Spent(1.25), is_over=True)
    [said] = [one.body for one in forge.comments(number)]
    assert "It has cost $1.25." in said
    await show_cap(parts, Choice(Task("issue-9", "Sum", "", "issue", 9)), Spent())
