"""What holds in every world, whatever goes wrong. Each sentence has a name, which a failure begins with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import CLAIMS, LeaseTimes
from orchestrator.bot.cycle.choice import WORKING_LABEL
from orchestrator.bot.cycle.earlier import MOST_ATTEMPTS, SESSION_PAGE
from orchestrator.bot.cycle.task_state import WAITS
from orchestrator.bot.cycle.tasks import key_of
from orchestrator.bot.forge.base import PullRequestState
from tests.simulation.plan import CLAIM_MINUTES, LABEL, MOST_STARTS, Act, Kind

if TYPE_CHECKING:
    from tests.doubles.memory_git import Move
    from tests.simulation.world import Paid, World

ONE_PULL = "one pull request a task"
KEPT = "what was on a ref stays on one"
PAID_ONCE = "finished work is not paid twice"
SERVED = "no task starves"
RELEASED = "every claim ends"
GIVEN_UP = "what only a person can help waits for one, who sees it"
CAPPED = "caps hold"
SHOWN = "labels and comments agree with the state"
BOUNDED = "a cycle makes a bounded number of requests"
AT_REST = "the world comes to rest"
NO_DEFECT = "no cycle ends by a defect"
WANTED = "nothing is proposed that nobody wants"
ON_BASE = "what is not on the base any more does not come back"
NAMES = (
    WANTED,
    ON_BASE,
    ONE_PULL,
    KEPT,
    PAID_ONCE,
    SERVED,
    RELEASED,
    GIVEN_UP,
    CAPPED,
    SHOWN,
    BOUNDED,
    AT_REST,
    NO_DEFECT,
)

_SKEW_SECONDS = 600.0
_MOST_REQUESTS = 150  # to the forge and to git; drawn worlds need half of them at most
_WIP = "refs/pullwright/wip/"
_ASKING_AGAIN = frozenset({Act.RETRY, Act.FORGET, Act.RELEASE, Act.COMMENT, Act.ANSWER})
"""After these a task that was given up may be tried again."""
_PROMPT, _LATE = timedelta(seconds=10), timedelta(hours=2)
"""How long what somebody does may stay unseen: a look that is over, or requests that take half an hour each."""


@dataclass(slots=True)
class Watch:
    """Looks at each move of a ref as it happens.

    Attributes:
        steps: by task, the steps that some ref of it had at some time.
        replies: by task, the most replies that its saved work contains.
    """

    world: World
    found: list[str] = field(default_factory=list)
    steps: dict[int, set[int]] = field(default_factory=dict)
    replies: dict[int, int] = field(default_factory=dict)

    def moved(self, move: Move) -> None:
        """Check what a move did to the task of its ref."""
        number = _task_of(move.ref)
        if number is None:
            return
        gone = self.world.taken_off
        by_us = move.by != "ada" and move.new is not None
        if gone and by_us and gone in self.world.server.history(move.new or ""):
            self.world.came_back.append((move.ref, self.world.now()))
        now = self.world.steps_on_refs(number)
        now |= self.world.steps_of(number, self.world.server.refs["refs/heads/main"])
        ever = self.steps.setdefault(number, set())
        if lost := ever - now:
            self._note(
                f"{KEPT}: steps {sorted(lost)} of task {number} are gone after {move.by} moved {move.ref}"
            )
        ever |= now
        if move.ref.startswith(_WIP):
            self._count_replies(number, move)

    def forget(self, key: str) -> None:
        """Expect nothing that was saved of a task: a person deletes it, but not its branch."""
        number = int(key.rpartition("-")[2])
        self.steps.pop(number, None)
        self.replies.pop(number, None)

    def _count_replies(self, number: int, move: Move) -> None:
        if move.new is None:
            self.replies.pop(number, None)
            return
        page = self.world.server.files(move.new).get(SESSION_PAGE, b"")
        replies = sum(json.loads(line)["type"] == "ReplyReceived" for line in page.splitlines())
        before = self.replies.get(number, 0)
        if replies < before:
            self._note(f"{KEPT}: of {before} saved replies on task {number} {move.by} kept {replies}")
        self.replies[number] = max(replies, before)

    def _note(self, text: str) -> None:
        self.found.append(text)
        self.world.note(f"!! {text}")


def _task_of(ref: str) -> int | None:
    """Return the number of the task whose saved work or branch a ref is."""
    if ref.startswith(_WIP):
        return int(ref.rpartition("-")[2])
    key = key_of(ref.removeprefix("refs/heads/"))
    return int(key.partition("-")[2]) if key else None


def check(world: World) -> list[str]:
    """Return what does not hold in a world that has come to its end, each with the name of its sentence."""
    found: list[str] = []
    for number in range(1, len(world.plan.tasks) + 1):
        found += _check_task(world, number)
    found += _check_given_up(world) + _check_claims(world) + _check_caps(world) + _check_paid(world)
    found += _check_overtaken(world)
    if world.starts >= MOST_STARTS or world.is_endless:
        found.append(f"{AT_REST}: {world.starts} starts, and there is still something to do")
    most = max(world.requests.values(), default=0)
    if most > _MOST_REQUESTS:
        found.append(f"{BOUNDED}: one made {most}")
    for ended in world.ended:
        if (ended.result.error or "").startswith("internal error"):
            found.append(f"{NO_DEFECT}: {ended.result.error}")
    return found


def _check_overtaken(world: World) -> list[str]:
    """Return what was published although others had acted long enough before."""
    grace = _LATE if any(incident.kind is Kind.SLOW for incident in world.struck) else _PROMPT
    found = []
    for number, at in world.unwanted.items():
        opened = [
            when
            for pull, when in world.forge.opened.items()
            if key_of(world.forge.branch_of(pull)) == f"issue-{number}" and when > at + grace
        ]
        found += [
            f"{WANTED}: task {number} was not at {at:%H:%M:%S}, and proposed at {one:%H:%M:%S}"
            for one in opened
        ]
    if (since := world.rewritten_at) is not None:
        late = {ref for ref, when in world.came_back if when > since + grace}
        found += [f"{ON_BASE}: it is in the history of {ref}" for ref in sorted(late)]
    return found


def _check_task(world: World, number: int) -> list[str]:
    found = []
    key = f"issue-{number}"
    pulls = [pull for pull in world.forge.pulls() if key_of(pull.branch) == key]
    if len(pulls) > 1:
        found.append(f"{ONE_PULL}: task {number} has {len(pulls)}")
    issue = world.forge.issues().get(number)
    if issue is None:
        return found
    task = world.plan.tasks[number - 1]
    wanted = set(range(1, task.steps + 1))
    is_asked = issue.is_open and LABEL in issue.labels and task.can_be_done and not _waits(world, key)
    is_asked = is_asked and number not in world.unwanted and number not in world.fixed
    if is_asked and not pulls:
        found.append(f"{SERVED}: task {number} has no pull request")
    for pull in pulls:
        done = world.steps_of(number, pull.commit)
        wanted |= world.reviewed.get(number, set())
        must = wanted - world.dropped.get(number, set())
        is_left = _may_have_commits_of_people(world, key) and any(
            one.result.task is not None
            and one.result.task.key == key
            and "has commits of people" in (one.result.reason or "")
            for one in world.ended
        )
        if pull.state is PullRequestState.OPEN and is_asked and not is_left and not must <= done <= wanted:
            found.append(f"{SERVED}: the pull request of task {number} has the steps {sorted(done)}")
    if WORKING_LABEL in issue.labels and "remove_label" not in dict(task.denied):
        found.append(f"{SHOWN}: issue {number} keeps the label {WORKING_LABEL}")
    asked = [one for one in world.forge.comments(number) if "question" in one.body.lower()]
    if len(asked) > 1:
        found.append(f"{SHOWN}: the question of task {number} was asked {len(asked)} times")
    return found


def _waits(world: World, key: str) -> bool:
    """Return whether a task waits for a person: the program says so."""
    said = _said_last(world)
    if f"{key} waits for a person: branch" in said and not _may_have_commits_of_people(world, key):
        return False
    return f"{key} waits for a person" in said or _is_at_limit(key, said)


def _said_last(world: World) -> str:
    """Return what the last starts and the claims say of tasks that wait. A look names a few tasks only."""
    last = [one.result for one in world.ended[-len(world.plan.slots) :]]
    waits = [(key, why) for result in last for key, why in result.waits.items()]
    waits += [(one.task, one.why) for one in world.claims() if one.outcome == WAITS]
    listed = [f"{key} waits for a person: {why}" for key, why in waits]
    return "; ".join([*(result.reason or "" for result in last), *listed])


def _is_at_limit(key: str, said: str) -> bool:
    """Return whether the program says that limits ended the last cycles of a task, or its cap is used up."""
    words = (
        f"{key} was not completed in",
        f"{key} waits for a person: it was not completed in",
        f"{key}: 4 of 4 rounds a task are used",
    )
    return any(one in said for one in words)


def _may_have_commits_of_people(world: World, key: str) -> bool:
    """Return whether a person committed to a task's branch, or deleted what says where the branch began."""
    acts = {deed.act for deed in world.plan.deeds if f"issue-{deed.task}" == key}
    return not acts.isdisjoint({Act.PUSH, Act.FORGET})


def _check_claims(world: World) -> list[str]:
    times = LeaseTimes(CLAIM_MINUTES * 60.0, CLAIM_MINUTES * 15.0, _SKEW_SECONDS)
    return [
        f"{RELEASED}: {claim.task} is held by {claim.owner} until {claim.expires_at}"
        for claim in world.claims()
        if not claim.is_free(world.now(), times)
    ]


def _check_given_up(world: World) -> list[str]:
    """Return which tasks that nobody can do do not wait for a person, where people see it."""
    found = []
    for number, task in enumerate(world.plan.tasks, 1):
        issue, key = world.forge.issues().get(number), f"issue-{number}"
        if issue is None or not (issue.is_open and LABEL in issue.labels) or not task.needs_person:
            continue
        if number in world.unwanted or number in world.fixed:
            continue
        claim = next((one for one in world.claims() if one.task == key), None)
        said = _said_last(world)
        if _is_at_limit(key, said) or (task.asks and f"{key} waits for an answer" in said):
            pass
        elif claim is None or claim.outcome != WAITS or not claim.why:
            found.append(f"{GIVEN_UP}: {key} does not wait for a person: {claim and claim.outcome}")
        elif task.can_be_told and not any(
            "leaves this to a person" in one.body
            for place in (
                number,
                *(pull.number for pull in world.forge.pulls() if key_of(pull.branch) == key),
            )
            for one in world.forge.comments(place)
        ):
            found.append(f"{GIVEN_UP}: issue {number} does not say that it waits")
        tries = sum(run.task == number for run in world.paid)
        again = sum(deed.task == number and deed.act in _ASKING_AGAIN for deed in world.plan.deeds)
        most = MOST_ATTEMPTS * (1 + again) + len(world.struck)
        if tries > most * (task.steps + 1):
            found.append(f"{GIVEN_UP}: {tries} requests were paid for {key}")
    return found


def _check_caps(world: World) -> list[str]:
    found = []
    flags = dict(world.plan.flags)
    if most := flags.get("max_rounds"):
        runs = [paid.run for paid in world.paid]
        found += [
            f"{CAPPED}: run {run} made {runs.count(run)} requests of {most}"
            for run in sorted(set(runs))
            if runs.count(run) > most
        ]
    if most := flags.get("max_rounds_per_task"):
        # What a machine spent is known to nobody if it was lost with its disk, or could not write it down; and the
        # cost of a run does not count for the task whose claim a person gave to another, or forgot.
        gone = any(incident.kind in {Kind.LOST, Kind.FULL} for incident in world.struck)
        gone |= any(deed.act in {Act.RELEASE, Act.FORGET} for deed in world.plan.deeds)
        for number in range(1, len(world.plan.tasks) + 1):
            count = sum(paid.task == number for paid in world.paid)
            if count > most and not gone:
                found.append(f"{CAPPED}: task {number} took {count} requests of {most}")
    return found


def _check_paid(world: World) -> list[str]:
    if any(deed.act is Act.CLASH for deed in world.plan.deeds):
        return []  # a conflict is resolved by another reply
    found = [
        f"{PAID_ONCE}: run {paid.run} paid for step {paid.step} of task {paid.task}, which was on a ref"
        for paid in world.paid
        if paid.was_there
    ]
    if any(incident.kind is Kind.FULL for incident in world.struck):
        return found  # what could not be written down is not known afterwards
    done: dict[tuple[int, int, str], Paid] = {}
    for paid in world.paid:
        place = (paid.task, paid.step, paid.machine)
        before = done.get(place)
        if before is not None and paid.step > 0 and not _others(world, before, paid):
            found.append(
                f"{PAID_ONCE}: run {paid.run} paid for step {paid.step} of task {paid.task}, "
                f"which run {before.run} had done on the same machine"
            )
        if paid.is_done:
            done[place] = paid
    return found


def _others(world: World, first: Paid, second: Paid) -> bool:
    """Return whether somebody else had the task between two requests."""
    ref = f"{CLAIMS}issue-{first.task}"
    moves = world.server.moves[first.moves : second.moves]
    return any(move.ref == ref and move.by != first.machine for move in moves)
