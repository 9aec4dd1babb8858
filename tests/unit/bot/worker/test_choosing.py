"""How the backlog chooses: upkeep first, limits, claims that others hold, and looks that cost nothing."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.coordination.claim_record import ClaimRecord
from orchestrator.bot.cycle.choice import WORKING_LABEL
from orchestrator.bot.cycle.tasks import RETRY_LABEL, TaskKind, from_text
from orchestrator.bot.forge.base import Permission, Proposal
from orchestrator.bot.forge.local import LocalForge
from orchestrator.bot.journal.folders import RefusedIssues
from orchestrator.bot.worker.backlog import LONGEST, TaskSelection
from orchestrator.bot.worker.candidates import CLAIMS_LOOK_AGAIN, MOST_REFUSED
from orchestrator.bot.worker.task_rules import ReviewLimits
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ForgeUnavailableError, WorkspaceError
from orchestrator.core.events import Defence
from tests.doubles.github.checks import check
from tests.doubles.github.faults import server_error
from tests.doubles.github.server import START
from tests.doubles.memory_forge import MemoryForge
from tests.unit.bot.worker.choosing import Backlog

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.core.events import Guarded
    from tests.doubles.github.state import Issue, Pull
    from tests.unit.bot.conftest import World

ME = "pullwright-bot"
PATIENT = ReviewLimits(max_open_prs=9, max_prs_per_day=9, max_unreviewed=9)


def tombstone(pull: int, *, is_new: bool = True) -> ClaimRecord:
    """The claim of the holder before."""
    at = START + timedelta(days=1) - (timedelta() if is_new else timedelta(hours=2))
    return ClaimRecord("issue-1", "released", "host", "run-1", 1, at, at, at, "proposed", pull)


@dataclass
class Lease:
    """A claim that was taken."""

    previous: ClaimRecord | None = None
    is_given_back: bool = False
    remote_is_gone: bool = False

    def undo_claim(self) -> None:
        self.is_given_back = True
        if self.remote_is_gone:
            raise WorkspaceError("the remote is gone")


@dataclass
class Claims:
    """The claims of one repository, without git.

    Attributes:
        held: by key, why a task cannot be had.
        before: by key, the tombstone that the next holder finds.
        on_claim: what happens in the world as soon as a task is claimed.
    """

    held: dict[str, str] = field(default_factory=dict)
    before: dict[str, ClaimRecord] = field(default_factory=dict)
    on_claim: Callable[[], object] = lambda: None
    remote_is_gone: bool = False
    taken: dict[str, Lease] = field(default_factory=dict)

    def __call__(self, task: Task) -> Any:
        if task.key in self.held:
            return self.held[task.key]
        self.on_claim()
        lease = Lease(self.before.get(task.key), remote_is_gone=self.remote_is_gone)
        self.taken[task.key] = lease
        return lease


def issue(world: World, **fields: Any) -> Issue:
    made = world.issue("ada")
    made.labels.append("pullwright")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def ours(world: World, number: int, state: str = "open") -> Pull:
    pull = world.github.add_pull(world.repo, f"pullwright/issue-{number}-broken", author=ME)
    if state != "open":
        world.github.close(world.repo, pull.number)
        pull.merged_at = world.github.tick() if state == "merged" else None
    return pull


def backlog(world: World, claims: Claims | None = None, **fields: Any) -> Backlog:
    clock = ManualClock(START + timedelta(days=1))
    made: dict[str, Any] = {"limits": PATIENT, "clock": clock, "claim": claims, **fields}
    return Backlog(
        made.pop("forge", world.memory), made.pop("selection", TaskSelection()), "pullwright", **made
    )


async def chosen(world: World, claims: Claims | None = None, **fields: Any) -> str | None:
    task = (await backlog(world, claims, **fields).choose()).task
    return task.key if task else None


# Order and limits.


async def test_our_pull_request_comes_before_a_new_issue_and_whatever_the_limits(world: World) -> None:
    issue(world)
    issue(world)
    pull = ours(world, 2)
    world.comment_on(pull, "ada", "Rename it.")
    choosing = backlog(world, limits=ReviewLimits(1, 1, 1))
    first = await choosing.choose()
    assert first.task is not None
    assert (first.task.key, first.task.kind) == ("issue-2", TaskKind.REVIEW)
    second = await choosing.choose()
    assert second.task is None
    assert "--max-open-prs is 1" in second.reason


async def test_the_same_round_is_not_begun_twice_by_one_process(world: World) -> None:
    pull = ours(world, 1)
    world.comment_on(pull, "ada", "Rename it.")
    choosing = backlog(world)
    assert (await choosing.choose()).task is not None
    assert (await choosing.choose()).task is None
    world.comment_on(pull, "ada", "And this.")
    assert (await choosing.choose()).task is not None


async def test_what_was_put_back_is_chosen_again(world: World) -> None:
    issue(world)
    pull = ours(world, 7)
    world.comment_on(pull, "ada", "Rename it.")
    choosing = backlog(world)
    keys = []
    for _ in range(2):
        task = (await choosing.choose()).task
        keys.append(task.key if task else None)
        choosing.put_back()
    assert keys == ["issue-7", "issue-7"]
    for _ in range(2):
        task = (await choosing.choose()).task
        keys.append(task.key if task else None)
    choosing.put_back()
    assert (await choosing.choose()).task is not None
    assert (await choosing.choose()).task is None
    assert keys[2:] == ["issue-7", "issue-1"]


async def test_a_named_issue_is_about_its_own_pull_request_only(world: World) -> None:
    issue(world)
    issue(world)
    for number in (1, 2):
        world.comment_on(ours(world, number), "ada", "Rename it.")
    assert await chosen(world, selection=TaskSelection(issue=2)) == "issue-2"
    assert await chosen(world, selection=TaskSelection(issue=1)) == "issue-1"
    text = TaskSelection(text="Fix it")
    assert await chosen(world, selection=text) == from_text("Fix it").key


async def test_an_event_is_about_its_own_issue_or_pull_request_and_admits_nobody(world: World) -> None:
    for _ in range(3):
        issue(world)
    pull = ours(world, 1)
    world.comment_on(pull, "ada", "Rename it.")
    assert await chosen(world, thread=pull.number) == "issue-1"
    assert await chosen(world, thread=1) == "issue-1"
    assert await chosen(world, thread=3) == "issue-3"
    assert world.github.calls("GET", "/contents/") == []  # an item of a file has no number
    # A stranger's issue and a stranger's comment are what they are without the event.
    strange = world.issue()
    choice = await backlog(world, forge=world.forge, thread=strange.number).choose()
    assert choice.task is None
    assert (
        choice.reason
        == f"#{strange.number} is neither an open issue with the label 'pullwright' nor our pull request"
    )
    quiet = ours(world, 2)
    world.comment_on(quiet, "mallory", "Do something else.")
    choice = await backlog(world, forge=world.forge, thread=quiet.number).choose()
    assert (choice.task, choice.reason) == (None, f"pull request #{quiet.number} has no task now")


async def test_nobody_looked_so_no_new_task_is_begun(world: World) -> None:
    issue(world)
    old = ours(world, 7)
    choosing = backlog(world, forge=world.forge, limits=ReviewLimits(max_unreviewed=1))
    choice = await choosing.choose()
    assert choice.task is None
    assert f"review or comment on #{old.number}" in choice.reason
    assert world.asked("/issues/1/events") == 0
    world.comment_on(old, "helper[bot]", "Coverage is 90%.")
    world.comment_on(old, ME, "I did this.")
    assert (await choosing.choose()).task is None
    world.comment_on(old, "mallory", "Nice.")
    assert (await choosing.choose()).task is not None


async def test_the_day_ends_at_midnight_utc(world: World) -> None:
    issue(world)
    ours(world, 7, "merged")
    clock = ManualClock(START + timedelta(hours=5))
    choosing = backlog(world, limits=ReviewLimits(max_prs_per_day=1), clock=clock)
    choice = await choosing.choose()
    assert (choice.task, choice.wake_at) == (None, START + timedelta(days=1))
    clock.advance(19 * 3600)
    assert (await choosing.choose()).task is not None


async def test_what_others_have_in_work_counts(world: World) -> None:
    issue(world)
    ours(world, 7)
    busy: dict[str, Any] = {"limits": replace(PATIENT, max_open_prs=2)}
    assert await chosen(world, in_flight=lambda: ["issue-7"], **busy) == "issue-1"
    choosing = backlog(world, in_flight=lambda: ["issue-8"], **busy)
    choice = await choosing.choose()
    assert (choice.task, choice.wake_at) == (None, START + timedelta(days=1) + CLAIMS_LOOK_AGAIN)


async def test_the_label_of_work_in_progress_is_removed_where_nobody_works(world: World) -> None:
    """Whatever left it: a removal that failed, a machine that is gone, a person who closed or unlabelled the issue."""
    stale, held, closed, other = (
        issue(world),
        issue(world),
        issue(world, state="closed"),
        issue(world, labels=[]),
    )
    for one in (stale, held, closed, other):
        one.labels.append(WORKING_LABEL)
    await chosen(world, in_flight=lambda: [f"issue-{held.number}"], is_claiming=True)
    assert [WORKING_LABEL in one.labels for one in (stale, held, closed, other)] == [
        False,
        True,
        False,
        False,
    ]
    stale.labels.append(WORKING_LABEL)
    await chosen(world)  # a dry run writes nothing
    assert WORKING_LABEL in stale.labels


# Hands off.


async def test_an_issue_that_somebody_else_is_at_is_passed_over(world: World) -> None:
    issue(world, assignees=["grace"])
    linked = issue(world)
    issue(world, assignees=[ME])
    other = world.github.add_pull(world.repo, "patch-1", fork="eve/demo", author="eve")
    other.closes = (linked.number,)
    choosing = backlog(world)
    assert (await choosing.choose()).task is not None
    choice = await choosing.choose()
    assert "issue #1 is assigned to grace" in choice.reason
    assert "issue #2 has an open pull request of eve" in choice.reason
    world.github.close(world.repo, other.number)
    assert await chosen(world) == "issue-2"


# Another try.


async def test_a_label_asks_for_another_try_and_comes_off_after_the_claim(world: World) -> None:
    made = issue(world)
    pull = ours(world, 1, "closed")
    assert await chosen(world) is None
    world.label_pull(pull, "ada", RETRY_LABEL)
    world.label(made, "ada", RETRY_LABEL)
    choosing = backlog(world, Claims())
    choice = await choosing.choose()
    assert choice.task is not None
    assert choice.task.is_retry
    assert RETRY_LABEL in made.labels
    for action in choice.after_claim:
        action()
    assert (made.labels, pull.labels) == (["pullwright"], [])
    assert (await choosing.choose()).task is None


async def test_a_label_that_does_not_come_off_asks_once(world: World) -> None:
    issue(world)
    world.label_pull(ours(world, 1, "closed"), "ada", RETRY_LABEL)
    choosing = backlog(world)
    assert (await choosing.choose()).task is not None
    assert (await choosing.choose()).task is None
    world.label_pull(ours(world, 1, "closed"), "ada", RETRY_LABEL)
    assert (await choosing.choose()).task is not None


REASON = "tess put the label 'pullwright:retry' on #{} and may not write to the repository"


async def test_the_label_of_who_may_only_label_asks_for_nothing(world: World) -> None:
    made = issue(world)
    pull = ours(world, 1, "closed")
    world.label(made, "tess", RETRY_LABEL)
    world.label_pull(pull, "tess", RETRY_LABEL)
    told: list[Guarded] = []
    choosing = backlog(world, Claims(), emit=told.append)
    choice = await choosing.choose()
    assert choice.task is None
    for number in (made.number, pull.number):
        assert REASON.format(number) in choice.reason
    assert "was declined" in choice.reason
    assert [event.defence for event in told] == [Defence.ADMISSION] * 2
    assert await chosen(world, allow_actors=["Tess"]) == "issue-1"
    world.label_pull(pull, "ada", RETRY_LABEL)
    choice = await choosing.choose()
    assert choice.task is not None
    [action] = choice.after_claim
    action()
    assert RETRY_LABEL in made.labels


async def test_such_a_label_brings_back_no_task_that_came_to_nothing(world: World) -> None:
    made = issue(world)
    choosing = backlog(world)
    assert (await choosing.choose()).task is not None
    world.label(made, "tess", RETRY_LABEL)
    assert (await choosing.choose()).task is None
    assert await chosen(world) == "issue-1"
    task = (await backlog(world).choose()).task
    assert task is not None
    assert not task.is_retry


async def test_who_labelled_is_asked_once_and_only_where_a_label_is(world: World) -> None:
    made = issue(world)
    pull = ours(world, 1, "closed")
    events = f"/issues/{pull.number}/events"
    assert await chosen(world, Claims(), forge=world.forge) is None
    assert world.asked(f"/issues/{made.number}/events") == world.asked(events) == 0
    world.label_pull(pull, "ada", RETRY_LABEL)
    assert await chosen(world, Claims(), forge=world.forge) == "issue-1"
    assert world.asked(events) == 1


async def test_strangers_cost_a_look_few_requests_each_only_once_and_nobody_waits_behind_them(
    world: World, tmp_path: Path
) -> None:
    """The one that counts is newer than all of them, and by a stranger, too: a writer put the label on."""
    for _ in range(3 * MOST_REFUSED):
        world.label(world.issue(), "mallory")
    wanted = world.issue()
    world.label(wanted, "ada")
    clock, asked, found = ManualClock(START + timedelta(days=1)), [], None
    for _ in range(5):
        before = world.forge.traffic().requests
        refused = RefusedIssues(tmp_path / "refused.json")
        made = backlog(world, Claims(), forge=world.forge, refused=refused, clock=clock)
        choice = await made.choose()
        asked.append(world.forge.traffic().requests - before)
        if choice.task is not None:
            found = choice.task.number
            break
        assert "are looked at by the next cycles" in choice.reason
        clock.advance(600)
    assert found == wanted.number
    assert max(asked) < 2 * MOST_REFUSED
    # That of somebody who has a part in the repository is looked at first.
    member = issue(world)
    refused = RefusedIssues(tmp_path / "another.json")
    selection = {"forge": world.forge, "refused": refused, "clock": clock}
    assert await chosen(world, Claims(), **selection) == f"issue-{member.number}"


@dataclass(frozen=True)
class OneBranch:
    """What git says of a repository with one branch that is not merged."""

    name: str

    def heads(self) -> tuple[str | None, dict[str, str]]:
        return "main", {"main": "a" * 40, self.name: "c" * 40}

    def merged(self, commits: object, into: str) -> set[str]:
        del commits, into
        return set()

    def read_file(self, path: str, commit: str) -> None:
        del path, commit


async def test_in_a_folder_nobody_has_a_name_and_the_label_counts(tmp_path: Path) -> None:
    task = from_text("Fix it")
    forge = LocalForge(tmp_path / "forge", tmp_path, OneBranch(task.branch), clock=ManualClock(START))
    pull, _ = forge.ensure_pull_request(Proposal(task.branch, "main", "Fix it", "", draft=True))
    forge.close_pull_request(pull.number)
    assert (await Backlog(forge, TaskSelection(text="Fix it"), "pullwright").choose()).task is None
    forge.ensure_label(pull.number, RETRY_LABEL)
    choice = await Backlog(forge, TaskSelection(text="Fix it"), "pullwright").choose()
    assert choice.task is not None
    assert choice.task.is_retry


async def test_without_a_token_a_label_counts_only_where_nobody_has_a_name() -> None:
    forge = MemoryForge("o/n", "/nowhere", lambda _branch: None, people={"ada": Permission.WRITE})
    number = forge.add_issue("Broken", "", author="ada", labels=("pullwright",))
    for labeller, counts in (("tess", False), ("ada", True)):
        forge.put_label(number, RETRY_LABEL, by=labeller)
        task = (await Backlog(forge, TaskSelection(), "pullwright").choose()).task
        assert task is not None
        assert task.is_retry is counts


async def test_a_task_that_came_to_nothing_is_tried_again_in_the_same_process(world: World) -> None:
    made = issue(world)
    choosing = backlog(world)
    assert (await choosing.choose()).task is not None
    assert (await choosing.choose()).task is None
    world.label(made, "ada", RETRY_LABEL)
    choice = await choosing.choose()
    assert choice.task is not None
    assert choice.task.is_retry


# Claims.


async def test_what_another_worker_holds_is_passed_over(world: World) -> None:
    issue(world)
    issue(world)
    claims = Claims(held={"issue-1": "issue-1 is being worked on by bob"})
    choosing = backlog(world, claims)
    choice = await choosing.choose()
    assert choice.task is not None
    assert choice.task.key == "issue-2"
    held: object = choice.lease
    assert held is claims.taken["issue-2"]
    nothing = await choosing.choose()
    assert "issue-1 is being worked on by bob" in nothing.reason
    assert nothing.wake_at == START + timedelta(days=1) + CLAIMS_LOOK_AGAIN


async def test_what_was_done_between_the_look_and_the_claim_is_not_done_again(world: World) -> None:
    issue(world)
    claims = Claims(on_claim=lambda: ours(world, 1))
    choice = await backlog(world, claims).choose()
    assert choice.task is None
    assert "issue #1 has an open pull request" in choice.reason
    assert claims.taken["issue-1"].is_given_back


async def test_a_pull_request_that_is_not_listed_yet_is_known_by_its_claim(world: World) -> None:
    issue(world)
    issue(world)
    claims = Claims(before={"issue-1": tombstone(99)})
    choosing = backlog(world, claims)
    assert (await choosing.choose()).task is not None
    assert set(claims.taken) == {"issue-1", "issue-2"}
    assert claims.taken["issue-1"].is_given_back
    assert "was proposed as #99" in (await choosing.choose()).reason


async def test_a_pull_request_that_is_never_listed_blocks_its_task_for_an_hour_only(world: World) -> None:
    issue(world)
    claims = Claims(before={"issue-1": tombstone(99, is_new=False)})
    assert await chosen(world, claims) == "issue-1"


async def test_a_listed_pull_request_of_a_claim_before_may_be_tried_again(world: World) -> None:
    issue(world)
    pull = ours(world, 1, "closed")
    world.label_pull(pull, "ada", RETRY_LABEL)
    claims = Claims(before={"issue-1": tombstone(pull.number)})
    assert await chosen(world, claims) == "issue-1"
    assert not claims.taken["issue-1"].is_given_back


async def test_the_limits_hold_when_several_claim_at_once(world: World) -> None:
    issue(world)
    claims = Claims(on_claim=lambda: ours(world, 7))
    choice = await backlog(world, claims, limits=replace(PATIENT, max_open_prs=1)).choose()
    assert choice.task is None
    assert "--max-open-prs is 1" in choice.reason
    assert claims.taken["issue-1"].is_given_back


UPKEEP_ENDS: dict[str, Callable[[World, Pull], object]] = {
    "closed": lambda world, pull: world.github.close(world.repo, pull.number),
    "answered": lambda world, pull: world.comment_on(
        pull, ME, '[pullwright:state]: # \'{"rounds": 9, "acted": []}\''
    ),
}


@pytest.mark.parametrize("case", UPKEEP_ENDS)
async def test_a_round_that_another_worker_did_is_not_done_again(world: World, case: str) -> None:
    pull = ours(world, 1)
    world.comment_on(pull, "ada", "Rename it.")
    claims = Claims(on_claim=lambda: UPKEEP_ENDS[case](world, pull))
    choice = await backlog(world, claims).choose()
    assert choice.task is None
    assert claims.taken["issue-1"].is_given_back


async def test_a_round_is_about_what_is_there_after_the_claim(world: World) -> None:
    pull = ours(world, 1)
    world.comment_on(pull, "ada", "Rename it.")

    def happens() -> None:
        pull.head_sha = "1" * 40
        world.comment_on(pull, "ada", "And this.")

    choice = await backlog(world, Claims(on_claim=happens)).choose()
    assert choice.task is not None
    assert choice.task.pull is not None
    assert choice.task.pull.commit == "1" * 40
    assert [remark.text for remark in choice.task.remarks] == ["Rename it.", "And this."]


async def test_a_claim_is_let_go_where_the_forge_fails(world: World) -> None:
    issue(world)
    claims = Claims(on_claim=lambda: world.github.faults.append(server_error("GET", ".*/pulls", times=9)))
    with pytest.raises(ForgeUnavailableError):
        await backlog(world, claims, forge=world.forge).choose()
    assert claims.taken["issue-1"].is_given_back


async def test_a_claim_that_cannot_be_let_go_expires(world: World) -> None:
    issue(world)
    claims = Claims(before={"issue-1": tombstone(99)}, remote_is_gone=True)
    assert (await backlog(world, claims).choose()).task is None


# Looks that cost nothing.


def counted(world: World, since: int) -> int:
    return sum(seen.status != 304 for seen in world.github.requests[since:])


async def test_while_nothing_changes_the_answer_is_the_same_and_free(world: World) -> None:
    for _ in range(3):
        issue(world, assignees=["grace"])
    choosing = backlog(world, forge=world.forge)
    first = await choosing.choose()
    since, queries = len(world.github.requests), len(world.github.queries)
    assert await choosing.choose() is first
    assert len(world.github.requests) - since <= 2
    assert counted(world, since) == 0
    assert len(world.github.queries) == queries
    world.issue("mallory")
    assert await choosing.choose() is not first


async def test_what_is_remembered_outlives_one_backlog(world: World) -> None:
    issue(world, assignees=["grace"])
    choosing = backlog(world)
    first = await choosing.choose()
    assert await backlog(world, last_search=choosing.last_search).choose() is first


async def test_time_alone_may_free_a_task(world: World) -> None:
    clock = ManualClock(START + timedelta(minutes=5))
    pull = ours(world, 1)
    check(world.github, world.repo, "0" * 40, "tests", "success")
    world.comment_on(pull, "ada", "Rename it.")
    choosing = backlog(world, clock=clock)
    waits = await choosing.choose()
    assert waits.task is None
    assert isinstance(waits.wake_at, datetime)
    assert await choosing.choose() is waits
    clock.advance((waits.wake_at - clock.now()).total_seconds())
    assert (await choosing.choose()).task is not None


async def test_a_check_that_ends_is_noticed_though_the_fingerprint_is_the_same(world: World) -> None:
    clock = ManualClock(START + timedelta(days=1))
    ours(world, 1)
    check(world.github, world.repo, "0" * 40, "tests", None)
    choosing = backlog(world, clock=clock)
    waits = await choosing.choose()
    check(world.github, world.repo, "0" * 40, "tests", "failure")
    assert await choosing.choose() is waits
    clock.advance(5 * 60)
    choice = await choosing.choose()
    assert choice.task is not None
    assert choice.task.kind is TaskKind.CHECKS


async def test_what_the_fingerprint_does_not_show_is_noticed_within_an_hour(world: World) -> None:
    clock = ManualClock(START + timedelta(days=1))
    world.label(world.issue("newcomer"), "tess")
    choosing = backlog(world, clock=clock)
    assert "by newcomer" in (await choosing.choose()).reason
    choosing.allow_actors = ["newcomer"]
    clock.advance(LONGEST.total_seconds() - 1)
    assert (await choosing.choose()).task is None
    clock.advance(1)
    assert (await choosing.choose()).task is not None
