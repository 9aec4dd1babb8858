"""What happens in a cycle around the session: the task, the clone, the pull request, the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject


class Phase(StrEnum):
    """Where a cycle is in its story. To choose a task is to claim it."""

    CHOOSE = "choose"
    CLONE = "clone"
    PLAN = "plan"
    ACT = "act"
    VERIFY = "verify"
    PROPOSE = "propose"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class CycleStarted:
    """A cycle begins.

    Attributes:
        run: names its folder.
        repository: `owner/name`, a URL, or a whole path, however it was typed.
        rules: what may run.
        origin: of a repository on disk, where it was cloned from.
    """

    run: str
    repository: str
    model: str
    contract: str
    rules: str = ""
    profile: str = ""
    origin: str = ""


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """The cycle goes on to its next part."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class TaskTaken:
    """The task of this cycle. `source` is `issue`, `text` or the file's name."""

    key: str
    title: str
    body: str
    source: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The task is this run's: no other worker does it until the claim expires or is let go.

    Attributes:
        number: the fencing number; each holder of this task has a higher one.
        expires_at: in ISO 8601; the claim is renewed long before.
        took_over_from: the run that let it expire, or empty.
        spent_before: what the task has cost in earlier cycles.
    """

    task: str
    owner: str
    number: int
    expires_at: str
    took_over_from: str = ""
    spent_before: Spent = Spent()  # noqa: RUF009  a frozen value


@dataclass(frozen=True, slots=True)
class Resumed:
    """The cycle goes on where an earlier run stopped: with its work, and as far as it fits its conversation.

    Attributes:
        run: the earlier run.
        why: why it stopped, in a few words.
        turns: messages of its conversation that are taken over.
        files: changed files that are taken over.
        conflicts: those of them that the base has changed too; a model or a person has to look.
    """

    run: str
    why: str
    turns: int
    files: int
    conflicts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserved:
    """What this cycle may spend at most, after what was spent before in its task, day and repository.

    None is no cap.
    """

    usd: float | None
    tokens: int | None
    minutes: float | None
    rounds: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ForgeUsed:
    """Requests to the forge in this cycle. `unchanged` ones cost nothing of its rate limit."""

    requests: int
    unchanged: int
    writes: int


@dataclass(frozen=True, slots=True)
class Cloned:
    """The repository is in a temporary folder, at this commit of its base branch."""

    commit: str
    branch: str
    files: int
    folder: str = ""


@dataclass(frozen=True, slots=True)
class TestRunStarted:
    """The host starts the repository's tests.

    Attributes:
        kind: which code is run, as `verification.base.RunKind` names it.
        command: what is run, in one line.
    """

    __test__: ClassVar[bool] = False  # for pytest, which collects classes by their names

    kind: str
    command: str


@dataclass(frozen=True, slots=True)
class TestRunEnded:
    """The tests that the host ran are over, or were run before and are known.

    Attributes:
        failed: those that could not be run to their end too.
        exit: the command's exit code; negative where a signal ended it.
        problem: why the run proves nothing; empty if it counts.
        cached: it was not run now.
    """

    __test__: ClassVar[bool] = False

    kind: str
    passed: int
    failed: int
    skipped: int
    exit: int
    seconds: float
    problem: str = ""
    cached: bool = False


@dataclass(frozen=True, slots=True)
class Verified:
    """A change was judged by the runs of its tests, before it is proposed.

    Attributes:
        tree: git's id of its files.
        is_red: something broke, or what the task names still fails.
        reasons: why a person should look, in a line each; there may be some where nothing is red.
        tests: the runs, as `CycleResult.tests` has them.
        refusal: what the model was told, which has to mend it; empty where the change is proposed.
    """

    tree: str
    is_red: bool
    reasons: tuple[str, ...]
    tests: JsonObject
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Proposing:
    """The change is committed and about to be pushed and proposed with these words. It is proposed with `Proposed`.

    Attributes:
        title, body: as the pull request will have them, without what the host adds.
        branch: where the commit goes.
    """

    title: str
    body: str
    branch: str
    commit: str


@dataclass(frozen=True, slots=True)
class Proposed:
    """A pull request was created or updated, and the remote holds the commit."""

    number: int
    title: str
    url: str
    branch: str
    commit: str
    created: bool


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The model needs a person."""

    question: str
    url: str | None


@dataclass(frozen=True, slots=True)
class WorkSaved:
    """Work that was not proposed is kept: as a patch in a file, on a hidden ref of the remote, or both.

    Either is empty where it is not there.
    """

    path: str
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Paused:
    """The worker does nothing until this time, in ISO 8601. It says why.

    Attributes:
        is_planned: it is the wait for the next time of a schedule.
    """

    until: str
    reason: str
    is_planned: bool = False


@dataclass(frozen=True, slots=True)
class CycleEnded:
    """The cycle's result, as `--json` prints it."""

    result: JsonObject


CycleEvent: TypeAlias = (
    CycleStarted
    | PhaseEntered
    | TaskTaken
    | Claimed
    | Resumed
    | Reserved
    | Cloned
    | TestRunStarted
    | TestRunEnded
    | Verified
    | Proposing
    | Proposed
    | QuestionAsked
    | WorkSaved
    | ForgeUsed
    | Paused
    | CycleEnded
)
