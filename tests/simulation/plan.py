"""What decides a world: tasks, workers, what goes wrong and what people do. A plan is drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

LABEL = "pullwright"
CLAIM_MINUTES = 20.0
MOST_STARTS = 15
"""Starts of the program that did something, after which a world is ended that does not come to rest."""

MOST_SECONDS = 4 * 24 * 3600.0
"""The same for the time that goes by in it."""


RECOVERY = "recovery"
"""A task that kills whoever saves what its dead worker left."""

DEADLY = (
    "record TaskTaken",
    "record Claimed",
    "forge ensure_label",
    "record Cloned",
    "git fetch",
    "model",
    "record ToolCallEnded",
    "record Proposing",
    "git push branch",
    "forge ensure_pull_request",
    RECOVERY,
)
"""Places where a task may kill its workers."""

SECRET = "push declined due to repository rule violations\n- Push cannot contain secrets"
SIGNED = "push declined due to repository rule violations\n- Commits must have verified signatures."
DENIED = ("ensure_comment", "ensure_label", "remove_label", "ensure_question", "ensure_pull_request")
"""Writes that a forge may refuse about one task."""


@dataclass(frozen=True, slots=True)
class Task:
    """A task of a world.

    Attributes:
        steps: so many requests to the model, besides the one for the pull request.
        asks: whether the model asks a person first.
        kills: the place where the process that works on it dies, each time; empty if it does not.
        refused: why the server refuses each branch that has its files, with the server's lines; empty if it does not.
        refusals: how often it does; None for ever.
        mends: whether the model writes other files once it is told.
        gives_up: whether the model finishes without a change.
        locked: whether nobody may write on its issue.
        unprocessable: whether the forge refuses its pull request (422).
        denied: writes of the forge that fail on its issue or for its pull request, each with a status.
    """

    steps: int = 2
    asks: bool = False
    kills: str = ""
    refused: str = ""
    refusals: int | None = None
    mends: bool = False
    gives_up: bool = False
    locked: bool = False
    unprocessable: bool = False
    denied: tuple[tuple[str, int], ...] = ()

    @property
    def can_be_done(self) -> bool:
        """Whether a pull request can come of it without a person."""
        return not (self.needs_person or self.gives_up)

    @property
    def needs_person(self) -> bool:
        """Whether it cannot be done, however often it is tried, before a person acts."""
        is_refused = self.refused and not self.mends and self.refusals is None
        is_denied = any(write == "ensure_pull_request" for write, _ in self.denied)
        cannot_ask = self.asks and (
            self.locked or any(write == "ensure_question" for write, _ in self.denied)
        )
        return bool(self.kills) or bool(is_refused) or self.unprocessable or is_denied or cannot_ask

    @property
    def can_be_told(self) -> bool:
        """Whether its issue takes comments."""
        return not (self.locked or any(write == "ensure_comment" for write, _ in self.denied))


class Kind(StrEnum):
    """What goes wrong at a request or a record."""

    ERROR = "error"
    """The request fails, and the server did nothing."""
    UNANSWERED = "unanswered"
    """The server did what was asked, and no answer came."""
    SLOW = "slow"
    """It takes half an hour."""
    STALE = "stale"
    """A read shows what was there before."""
    KILLED_BEFORE = "killed before"
    """The process is killed before the request is sent."""
    KILLED = "killed"
    """The process is killed after the server did it, or after the record was written."""
    LOST = "lost"
    """The same, and the machine with its disk is gone."""
    FULL = "full"
    """The machine's disk is full for an hour."""
    JUMP = "jump"
    """The machine's clock jumps by five minutes."""
    STOP = "stop"
    """The process is asked to end, as by Ctrl+C."""


AT_RECORDS = (Kind.KILLED, Kind.LOST, Kind.FULL, Kind.JUMP, Kind.STOP)


@dataclass(frozen=True, slots=True)
class Incident:
    """Something that goes wrong at the n-th place whose name begins with `where`, counted from 1."""

    kind: Kind
    where: str
    nth: int


class Act(StrEnum):
    """What a person does, or what befalls a disk while nobody looks."""

    COMMENT = "comment"
    CLOSE = "close"
    UNLABEL = "unlabel"
    PUSH = "push"
    RELEASE = "release"
    """They release the claim by hand."""
    RETRY = "retry"
    """They ask for another try, if the task is blocked."""
    FORGET = "forget"
    """They delete what is kept of the task, if nobody works on it."""
    ANSWER = "answer"
    STOP = "stop"
    """They comment that the work stops."""
    ASSIGN = "assign"
    """They take the issue themselves."""
    DELETE = "delete"
    RIVAL = "rival"
    """They propose their own change for the issue."""
    MOVE = "move"
    """They push to the base."""
    FIX = "fix"
    """They push to the base what the task asks for."""
    CLASH = "clash"
    """They push something else in the files of the task to the base."""
    REWRITE = "rewrite"
    """They take a file off the base, and its history with it."""
    REVIEW = "review"
    """They ask for a change of the task's pull request, if it is open."""
    CHECKS = "checks"
    """From now on a check of the task's pull request fails, until it has a file."""
    OTHERS = "others"
    """Work on another repository leaves 250 runs on each machine."""
    DAMAGE = "damage"
    """A disk damages a line in the middle of each journal without an end."""


WITHDRAWING = frozenset({Act.STOP, Act.ASSIGN, Act.DELETE, Act.RIVAL, Act.CLOSE, Act.UNLABEL})
"""After these nobody wants the task any more."""
OVERTAKING = (Act.STOP, Act.ASSIGN, Act.DELETE, Act.RIVAL, Act.MOVE, Act.FIX, Act.CLASH, Act.REWRITE)
UPKEEP = (Act.REVIEW, Act.REVIEW, Act.CHECKS)
REVIEW_STEP = 100
"""A review's step of its task is this and the number of the review."""
CHECKS_STEP = 200
"""The step that makes a failing check pass."""
OF_PEOPLE = (Act.COMMENT, Act.CLOSE, Act.UNLABEL, Act.PUSH, Act.RELEASE, Act.RETRY, Act.FORGET, Act.ANSWER)


@dataclass(frozen=True, slots=True)
class Deed:
    """A person does something about a task, so many minutes after the world began."""

    act: Act
    task: int
    minutes: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides what happens in a world.

    Attributes:
        tasks: the tasks in the order of their issues.
        slots: for each worker the number of its machine.
        pace: decides how long requests take, and so who comes first.
        flags: options of all workers, besides those that every world has.
        cycles: the most cycles of each start of the program; None for as many as there are.
        strangers: so many older issues have the label from somebody who may not ask for work.
    """

    tasks: tuple[Task, ...] = (Task(2),)
    slots: tuple[int, ...] = (0,)
    incidents: tuple[Incident, ...] = ()
    deeds: tuple[Deed, ...] = ()
    pace: int = 0
    flags: tuple[tuple[str, Any], ...] = ()
    cycles: int | None = None
    strangers: int = 0


# Where things go wrong, with how often each place is chosen, and how late.
_PLACES = (
    ("", 8, 120),
    ("forge", 4, 40),
    ("forge ensure_pull_request", 2, 2),
    ("forge ensure_label", 1, 2),
    ("forge remove_label", 1, 2),
    ("git ", 4, 40),
    ("git ls-remote", 2, 20),
    ("git fetch", 1, 6),
    ("git push claims", 2, 6),
    ("git push branch", 3, 2),
    ("git push claims wip", 3, 2),
    ("model", 5, 9),
    ("record", 5, 90),
    ("record Cloned", 2, 3),
    ("record ToolCallEnded", 3, 6),
    ("record Proposing", 1, 2),
    ("record Proposed", 1, 2),
)


def draw(seed: int) -> Plan:
    """Draw a plan."""
    chance = random.Random(seed)  # noqa: S311  no secret
    machines = chance.choice((1, 1, 1, 2, 2, 3))
    slots = [*range(machines), *([0] if chance.random() < 0.2 else [])]
    tasks = tuple(_draw_task(chance) for _ in range(chance.choice((1, 1, 2, 2, 3))))
    incidents = tuple(_draw_incident(chance) for _ in range(chance.choice((0, 1, 2, 3, 4, 6, 8))))
    deeds = tuple(
        Deed(chance.choice(OF_PEOPLE), chance.randint(1, len(tasks)), round(chance.uniform(0.0, 60.0), 1))
        for _ in range(chance.choice((0, 0, 0, 1, 2)))
    )
    flags: tuple[tuple[str, Any], ...] = (("max_rounds", 2),) if chance.random() < 0.3 else ()
    if chance.random() < 0.1:
        flags += (("max_rounds_per_task", 4),)
    cycles = 1 if chance.random() < 0.2 else None
    if chance.random() < 0.3:  # early, while somebody works on it
        act = chance.choice(OVERTAKING)
        deeds += (Deed(act, chance.randint(1, len(tasks)), round(chance.uniform(0.0, 4.0), 1)),)
    pace = chance.randrange(1000)
    if chance.random() < 0.2:  # old runs are removed as soon as they may be
        flags += (("runs_days", 0.001),)
    odd = random.Random(f"odd {seed}")  # noqa: S311  no secret
    tasks = tuple(
        replace(task, gives_up=False, **_draw_oddity(odd)) if odd.random() < 0.1 else task for task in tasks
    )
    strangers = odd.choice((3, 12, 40)) if odd.random() < 0.05 else 0
    upkeep = random.Random(f"upkeep {seed}")  # noqa: S311  no secret; the other draws stay as they are
    deeds += tuple(
        Deed(act, upkeep.randint(1, len(tasks)), round(upkeep.uniform(2.0, 90.0), 1))
        for act in UPKEEP
        if upkeep.random() < 0.15
    )
    return Plan(tasks, tuple(slots), incidents, deeds, pace, flags, cycles, strangers)


def _draw_task(chance: random.Random) -> Task:
    return Task(chance.choice((1, 1, 2, 2, 3)), asks=chance.random() < 0.15, gives_up=chance.random() < 0.1)


def _draw_oddity(chance: random.Random) -> dict[str, Any]:
    """Draw what makes a task an odd one: it kills its workers, or a server refuses what belongs to it."""
    refused = chance.choice((SECRET, SIGNED))
    return chance.choice(
        (
            {"kills": chance.choice(DEADLY)},
            {"refused": refused},
            {"refused": SECRET, "refusals": 1},
            {"refused": SECRET, "mends": True},
            {"locked": True},
            {"unprocessable": True},
            {"denied": ((chance.choice(DENIED), chance.choice((403, 404, 410, 422, 423))),)},
        )
    )


ODDITIES = ("kills", "refused", "locked", "unprocessable", "denied")
"""The fields of a task that make it an odd one."""


def _draw_incident(chance: random.Random) -> Incident:
    (place, _, latest) = chance.choices(_PLACES, [often for _, often, _ in _PLACES])[0]
    kinds = AT_RECORDS if place.startswith("record") else tuple(Kind)
    return Incident(chance.choice(kinds), place, chance.randint(1, latest))


def size_of(plan: Plan) -> int:
    """Return how many steps decide a world: what the tasks need, what goes wrong, what people do."""
    return sum(task.steps for task in plan.tasks) + len(plan.incidents) + len(plan.deeds)
