"""The events of a cycle of the bot: from its task to its pull request. `orchestrator.core.events` has the others."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject


class Phase(StrEnum):
    """The phases of a cycle. Choosing a task includes claiming it."""

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
        run: the run's id, which is also the name of its folder.
        repository: `owner/name`, a URL, or an absolute path, whatever spelling the user typed.
        origin: for a repository on disk, the remote that it was cloned from.
        door: `chat` or `ask` if a person talks with the model, `verify-pr` if a pull request is verified;
            empty for a cycle on a task.
        typed: the options that the person typed as flags, by key. A run that answers this one's question uses them.
    """

    run: str
    repository: str
    model: str
    contract: str
    rules: str = ""
    profile: str = ""
    origin: str = ""
    door: str = ""
    typed: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PhaseEntered:
    """The cycle enters its next phase."""

    phase: Phase


@dataclass(frozen=True, slots=True)
class TaskTaken:
    """The cycle has chosen a task. `source` is `issue`, `text` or the name of the backlog file."""

    key: str
    title: str
    body: str
    source: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class Claimed:
    """This run claimed the task. No other worker takes it until the claim expires or is released.

    Attributes:
        number: the fencing number; each new holder of the claim gets a higher one.
        expires_at: in ISO 8601; the claim is renewed long before.
        took_over_from: the run whose claim expired, or empty.
        spent_before: what earlier cycles on the task cost.
    """

    task: str
    owner: str
    number: int
    expires_at: str
    took_over_from: str = ""
    spent_before: Spent = Spent()  # noqa: RUF009  a frozen value


@dataclass(frozen=True, slots=True)
class Resumed:
    """The cycle continues an earlier run: with its files and, as far as it fits, its conversation.

    Attributes:
        turns: number of messages taken over from the conversation.
        files: changed files that were taken over.
        conflicts: those files that the base branch has changed as well; a model or a person has to resolve
            them.
        saved: the commit of the hidden ref whose state was taken up; empty if none was.
    """

    run: str
    why: str
    turns: int
    files: int
    conflicts: tuple[str, ...] = ()
    saved: str = ""


@dataclass(frozen=True, slots=True)
class Reserved:
    """The most that this cycle may spend, given what its task, day and repository have spent before.

    None means no cap.
    """

    usd: float | None
    tokens: int | None
    minutes: float | None
    rounds: int | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ForgeUsed:
    """The number of forge requests in this cycle. `unchanged` requests do not count against the rate limit."""

    requests: int
    unchanged: int
    writes: int


@dataclass(frozen=True, slots=True)
class Cloned:
    """The repository was cloned into a temporary folder, at this commit of its base branch."""

    commit: str
    branch: str
    files: int
    folder: str = ""


@dataclass(frozen=True, slots=True)
class TestRunStarted:
    """The host starts the repository's tests.

    Attributes:
        kind: which code is tested, as named by `verification.base.RunKind`.
    """

    __test__: ClassVar[bool] = False  # for pytest, which collects classes by their names

    kind: str
    command: str


@dataclass(frozen=True, slots=True)
class TestRunEnded:
    """A test run by the host has ended, or its result was already known.

    Attributes:
        failed: number of failed tests, including those that could not finish.
        exit: the command's exit code; negative if a signal ended it.
        problem: why the run proves nothing; empty if it is valid.
        cached: whether the result comes from an earlier run.
        counted: number of tests that ran, as the command printed it, if no report names them; None if unknown.
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
    counted: int | None = None


class Proof(StrEnum):
    """What the test runs of a change prove. Every view prints this value, or its sentence."""

    PASSED = "passed"
    """Tests ran with the change, and none fails."""
    AS_BEFORE = "as_before"
    """Tests passed with the change, and none fails that did not fail before; but the base fails, too."""
    ONLY_EXIT_CODE = "only_exit_code"
    """The command ended with success, but neither a report nor a count shows that a test ran."""
    WARNED = "warned"
    """No test fails because of the change, but some pass or are missing only because the change altered them."""
    UNKNOWN = "unknown"
    """Nothing is proven: no test ran, a run was invalid, or the base failed and no report names the tests."""
    FAILED = "failed"
    """A test fails because of the change, one that the task names still fails, or the change's run is invalid."""

    @property
    def sentence(self) -> str:
        """What is proven, for people."""
        return _SENTENCES[self]


_SENTENCES = {
    Proof.PASSED: "the tests pass",
    Proof.AS_BEFORE: "no test fails that did not fail before",
    Proof.ONLY_EXIT_CODE: "the test command succeeds, but nothing shows that a test ran",
    Proof.WARNED: "a person has to look at the tests",
    Proof.UNKNOWN: "the tests prove nothing",
    Proof.FAILED: "the tests do not pass",
}


@dataclass(frozen=True, slots=True)
class Verified:
    """A change was judged by its test runs, before it is proposed.

    Attributes:
        tree: git's tree id of the change.
        is_red: whether something broke, or what the task names still fails.
        reasons: why a person should look, one line each; possible even if `is_red` is false.
        tests: the runs, in the form of `CycleResult.tests`.
        refusal: the message that asks the model to repair the change; empty if the change is proposed.
        proof: what the runs prove. Journals of older versions have only `is_red`.
        base_fails: what failed already without the change, in one line; empty if nothing did.
    """

    tree: str
    is_red: bool
    reasons: tuple[str, ...]
    tests: JsonObject
    refusal: str = ""
    proof: Proof = Proof.UNKNOWN
    base_fails: str = ""

    def __post_init__(self) -> None:
        if self.is_red:
            object.__setattr__(self, "proof", Proof.FAILED)

    @property
    def words(self) -> str:
        """What the runs prove and why, in one line."""
        why = "; ".join((*self.reasons, *filter(None, [self.base_fails])))
        return f"{self.proof.sentence}{f': {why}' if why else ''}"


@dataclass(frozen=True, slots=True)
class ClaimChecked:
    """A statement of a pull request was checked, or something was found that it does not mention.

    Attributes:
        level: how thoroughly it was checked, as named by `evidence.claims.EvidenceLevel`.
        subject: what the statement is about.
        standing: `holds`, `refuted`, `unknown` or `noted`.
        claimed: what the pull request states; empty if there is nothing to compare.
        found: the actual value.
        note: further explanation.
    """

    level: str
    subject: str
    standing: str
    claimed: str
    found: str
    note: str


@dataclass(frozen=True, slots=True)
class Proposing:
    """The change is committed and is about to be pushed. `Proposed` follows when the pull request exists.

    Attributes:
        title, body: text of the pull request, without the parts that the host adds.
        branch: the branch that receives the commit.
        diff: the change against the base. Empty in journals of older versions.
    """

    title: str
    body: str
    branch: str
    commit: str
    diff: str = ""


@dataclass(frozen=True, slots=True)
class Proposed:
    """A pull request was created or updated, and the remote contains the commit."""

    number: int
    title: str
    url: str
    branch: str
    commit: str
    created: bool


@dataclass(frozen=True, slots=True)
class QuestionAsked:
    """The model asks a person a question."""

    question: str
    url: str | None


@dataclass(frozen=True, slots=True)
class WorkSaved:
    """Unfinished work was saved: as a patch file, on a hidden ref of the remote, or both.

    A field is empty if the work was not saved there.
    """

    path: str
    ref: str = ""


@dataclass(frozen=True, slots=True)
class Paused:
    """The worker pauses until this time, in ISO 8601, for this reason.

    Attributes:
        is_planned: whether the worker waits for the next time of its schedule.
    """

    until: str
    reason: str
    is_planned: bool = False


@dataclass(frozen=True, slots=True)
class CycleEnded:
    """The result of the cycle, as `--json` prints it."""

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
    | ClaimChecked
    | Proposing
    | Proposed
    | QuestionAsked
    | WorkSaved
    | ForgeUsed
    | Paused
    | CycleEnded
)
