"""What waits for another issue is not started, is started when that one is closed, and everybody is told why."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.cycle.tasks import checklist, listed_in
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.worker.backlog import TaskSelection
from orchestrator.bot.worker.dependencies import MOST_ASKED
from orchestrator.bot.worker.task_rules import ReviewLimits
from orchestrator.core.clock import ManualClock
from tests.doubles.github.faults import server_error
from tests.doubles.github.server import START
from tests.tables import table
from tests.unit.bot.worker.choosing import Backlog
from tests.unit.bot.worker.test_choosing import Claims

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.github.state import Issue
    from tests.unit.bot.conftest import World

PATIENT = ReviewLimits(max_open_prs=9, max_prs_per_day=9, max_unreviewed=9)
HERE = "https://forge.example/o/n/issues"


def issue(world: World, **fields: Any) -> Issue:
    made = world.issue("ada")
    made.labels.append("pullwright")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def backlog(world: World, **fields: Any) -> Backlog:
    clock = ManualClock(START + timedelta(days=1))
    made: dict[str, Any] = {"limits": PATIENT, "clock": clock, "claim": Claims(), **fields}
    return Backlog(
        made.pop("forge", world.forge), made.pop("selection", TaskSelection()), "pullwright", **made
    )


async def chosen(world: World, **fields: Any) -> tuple[str, str]:
    choice = await backlog(world, **fields).choose()
    return (choice.task.key if choice.task else "", choice.reason)


RELATIONS: dict[str, Callable[[Issue, Issue], object]] = {
    "blocked by": lambda one, other: one.blocked_by.append(other.number),
    "a parent": lambda one, other: one.parts.append(other.number),
    "a task list": lambda one, other: setattr(one, "body", f"First:\n\n- [ ] #{other.number} the sum\n"),
}


async def test_what_waits_for_an_issue_is_started_when_that_is_closed(world: World) -> None:
    for relation, relate in RELATIONS.items():
        other, one = world.issue("ada"), issue(world)
        relate(one, other)
        assert await chosen(world) == ("", f"issue #{one.number} waits for #{other.number}"), relation
        other.state, other.closed_at = "closed", world.github.tick()
        assert (await chosen(world))[0] == f"issue-{one.number}", relation
        one.state = "closed"


async def test_others_are_started_meanwhile(world: World) -> None:
    one, other = issue(world), issue(world)
    one.blocked_by.append(other.number)
    assert (await chosen(world))[0] == f"issue-{other.number}"


async def test_a_person_who_names_an_issue_decides(world: World) -> None:
    one, other = issue(world), issue(world)
    one.blocked_by.append(other.number)
    assert (await chosen(world, selection=TaskSelection(issue=one.number)))[0] == f"issue-{one.number}"


async def test_a_circle_is_told_and_not_started(world: World) -> None:
    one, two, three = issue(world), issue(world), issue(world)
    one.blocked_by.append(two.number)
    two.parts.append(three.number)
    three.body = f"- [ ] #{two.number}"
    task, reason = await chosen(world)
    assert task == ""
    assert f"#{two.number}, which waits for #{three.number}, which waits for #{two.number}" in reason
    assert "take one of these links off" in reason


async def test_the_issue_says_what_it_waits_for_until_it_is_taken(world: World) -> None:
    other, one = world.issue("ada"), issue(world)
    one.blocked_by.append(other.number)
    await chosen(world, is_claiming=True)
    await chosen(world, is_claiming=True)
    [said] = [comment.body for comment in one.comments]
    assert f"waits for #{other.number}" in said
    other.state = "closed"
    choice = await backlog(world, is_claiming=True).choose()
    for action in choice.after_claim:
        action()
    assert one.comments == []


async def test_nothing_is_written_for_a_stranger_or_in_a_dry_run(world: World) -> None:
    other, one = world.issue("ada"), issue(world)
    one.blocked_by.append(other.number)
    stranger = world.issue("mallory")
    stranger.labels.append("pullwright")
    stranger.blocked_by.append(other.number)
    await chosen(world)
    assert one.comments == []
    await chosen(world, is_claiming=True)
    assert stranger.comments == []


async def test_a_comment_that_fails_ends_nothing(world: World) -> None:
    other, one = world.issue("ada"), issue(world)
    one.blocked_by.append(other.number)
    world.github.faults.append(server_error("POST", ".*/comments", times=9))
    told: list[Any] = []
    assert (await chosen(world, is_claiming=True, emit=told.append))[0] == ""
    assert any("does not show what it waits for" in str(event) for event in told)


async def test_a_large_backlog_costs_a_bounded_number_of_requests(world: World) -> None:
    gone = [world.issue("ada") for _ in range(8)]
    for one in gone:
        one.state = "closed"
    blocked = [issue(world) for _ in range(30)]
    for one in blocked:
        one.body = "".join(f"- [ ] #{other.number}\n" for other in gone) + f"- [ ] #{blocked[0].number}"
        one.blocked_by.append(blocked[-1].number)
    before = world.asked("/dependencies/blocked_by") + sum(
        world.asked(f"/issues/{one.number}$") for one in gone
    )
    await chosen(world)
    asked = world.asked("/dependencies/blocked_by") + sum(
        world.asked(f"/issues/{one.number}$") for one in gone
    )
    assert asked - before <= MOST_ASKED


@table(
    ("body", "found"),
    [
        ("- [ ] #12", ("#12",)),
        ("* [ ] #12 the sum\n1. [ ] #13", ("#12", "#13")),
        ("- [x] #12", ()),
        ("- [ ] see #12", ()),
        ("- [ ] #12abc", ()),
        (f"- [ ] {HERE}/12", ("#12",)),
        ("- [ ] https://forge.example/other/repo/issues/12", ()),
        ("```\n- [ ] #12\n```", ()),
        ("- [ ] #12\n  - [ ] #13", ("#12", "#13")),
        ("- [ ] #12\n- [ ] #12", ("#12",)),
        ("\n".join(f"- [ ] #{number}" for number in range(1, 40)), tuple(f"#{n}" for n in range(1, 21))),
    ],
)
def test_what_a_task_list_names(body: str, found: tuple[str, ...]) -> None:
    assert listed_in(body, HERE) == found


def test_an_item_keeps_its_key_when_it_is_told_to_wait() -> None:
    [plain] = checklist("TODO.md", "- [ ] Mend the sum")
    for text in ("- [ ] Mend the sum (after #3)", "- [ ] Mend the sum (After: #3, #4)"):
        [waiting] = checklist("TODO.md", text)
        assert (waiting.key, waiting.title, waiting.body) == (plain.key, plain.title, plain.body)
        assert waiting.after[0] == "#3"
    [words] = checklist("TODO.md", "- [ ] Call it (after the release)")
    assert words.after == ()


def test_nested_items_are_one_task() -> None:
    text = "- [ ] Mend the sum\n  - [ ] with floats\n  - [ ] with text\n- [x] Old\n  - [ ] new\n"
    assert [task.title for task in checklist("TODO.md", text)] == ["Mend the sum", "new"]


async def test_an_item_waits_for_an_issue_a_pull_request_or_an_item(world: World) -> None:
    other = world.issue("ada")
    [first] = checklist("TODO.md", "- [ ] First")
    clock = ManualClock(START + timedelta(days=1))

    class Listing(type(world.memory)):  # type: ignore[misc]
        text = ""

        def read_file(self, path: str, fingerprint: str = "") -> str | None:
            del fingerprint
            return Listing.text if path == "TODO.md" else None

        def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
            del branch_prefix
            return [replace(one, state=state) for one, state in pulls]

    pull = PullRequest(
        9, "P", "", "url", False, PullRequestState.OPEN, "pullwright/issue-99-x", "main", "0" * 40
    )
    pulls = [(pull, PullRequestState.OPEN)]
    forge = Listing(world.memory.github, world.memory.repo)
    for after, state, expected in (
        (f"#{other.number}", PullRequestState.OPEN, f"waits for #{other.number}"),
        ("#9", PullRequestState.OPEN, "waits for #9"),
        ("#9", PullRequestState.CLOSED, "waits for #9"),
        ("#9", PullRequestState.MERGED, ""),
        ("#77", PullRequestState.MERGED, ""),
    ):
        Listing.text, pulls[0] = f"- [ ] Second (after {after})", (pull, state)
        made = Backlog(forge, TaskSelection(), "pullwright", limits=PATIENT, clock=clock, claim=Claims())
        choice = await made.choose()
        assert (choice.task is None) == bool(expected), after
        assert expected in choice.reason
    Listing.text = f"- [ ] First\n- [ ] Second (after {first.key})"
    made = Backlog(forge, TaskSelection(), "pullwright", limits=PATIENT, clock=clock, claim=Claims())
    assert (await made.choose()).task == next(iter(checklist("TODO.md", Listing.text)))
    assert f"waits for {first.key}" in (await made.choose()).reason
