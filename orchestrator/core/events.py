"""Everything that happens in a run, as a closed union of frozen dataclasses.

The live view, the journal and host programs receive the same events. A consumer matches on the class and ends
with `assert_never`. `ToolCallEnded.output` is always the full output; the model may have received less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from orchestrator.core.messages import FinishReason, JsonObject, Message, ToolDefinition, Usage
    from orchestrator.core.todos import TodoItem


class Defence(StrEnum):
    """The defences between untrusted text, the model, and the outside world."""

    ADMISSION = "admission"
    """Only people with permission on the forge can cause work."""
    HIDDEN_TEXT = "hidden-text"
    """Text that a person cannot see is hidden from the model, too."""
    MARKERS = "markers"
    """Untrusted text is enclosed in markers that it cannot close."""
    INSTRUCTIONS = "instructions"
    """A repository's instructions and settings are read from the default branch, and can only restrict."""
    LEVEL = "level"
    """Tools above the session's permission level do not run."""
    COMMANDS = "commands"
    """Commands are parsed. A command that no rule grants, or that can never be granted, does not run."""
    SANDBOX = "sandbox"
    """Commands see only the clone and installed programs, and can change only the clone."""
    NETWORK = "network"
    """Commands reach only the configured hosts; web tools reach only public addresses."""
    PATHS = "paths"
    """File tools stay inside the clone and outside each `.git`, and follow no symbolic link."""
    HOST_GIT = "host-git"
    """The host's git runs nothing that the clone or the model configured."""
    SECRETS = "secrets"
    """Known secrets, and text that looks like a credential, are removed from everything that leaves."""
    WORDING = "wording"
    """Titles, bodies and comments cannot notify people, trigger commands or load resources."""
    PROTECTED_PATHS = "protected-paths"
    """Changes to files that control machines and agents wait for a person."""
    CHANGE_SIZE = "change-size"
    """A change has a maximum number of files, lines and bytes."""
    TEST_INTEGRITY = "test-integrity"
    """The host runs the tests in their original form; removed or skipped tests are reported."""
    LIMITS = "limits"
    """Rounds, tokens, money and minutes are limited."""
    MEMORY = "memory"
    """A memory is used only in its repository, while what it cites exists and its author may write there."""
    WEBHOOK = "webhook"
    """A webhook's delivery counts once, with the signature of our secret, and for repositories of the fleet alone."""
    DASHBOARD = "dashboard"
    """The dashboard does what its own pages ask for, and shows other people's words as text."""
    MCP = "mcp"
    """MCP servers offer only approved tools, return a limited amount of text, and receive nothing but calls."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A defence stopped or changed something.

    Attributes:
        message: one line: what was stopped, and what would allow it if anything.
        details: affected places and texts, one line each; may be empty.
    """

    defence: Defence
    message: str
    details: tuple[str, ...] = ()


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
    """

    run: str
    repository: str
    model: str
    contract: str
    rules: str = ""
    profile: str = ""
    origin: str = ""
    door: str = ""


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
    """

    run: str
    why: str
    turns: int
    files: int
    conflicts: tuple[str, ...] = ()


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
    """A change was judged by its test runs, before it is proposed.

    Attributes:
        tree: git's tree id of the change.
        is_red: whether something broke, or what the task names still fails.
        reasons: why a person should look, one line each; possible even if `is_red` is false.
        tests: the runs, in the form of `CycleResult.tests`.
        refusal: the message that asks the model to repair the change; empty if the change is proposed.
    """

    tree: str
    is_red: bool
    reasons: tuple[str, ...]
    tests: JsonObject
    refusal: str = ""


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


class CallStatus(StrEnum):
    """How a tool call ended."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


class Decision(StrEnum):
    """A person's decision on a call that exceeds the session's permission level."""

    ONCE = "once"
    ALWAYS = "always"
    """Allow this call, and the same call later in the session."""
    NO = "no"


class SessionState(StrEnum):
    """The states of a session."""

    IDLE = "idle"
    PROCESSING = "processing"
    AWAITING_INPUT = "awaiting_input"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class SessionStarted:
    """A conversation with a model begins under this system prompt."""

    session: str
    system: str


@dataclass(frozen=True, slots=True)
class InputReceived:
    """The session received an input: by `submit`, or as a queued follow-up."""

    text: str


@dataclass(frozen=True, slots=True)
class SteeringInjected:
    """A message from outside was added to the conversation between two rounds."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """The program added a message for the model to the conversation.

    Attributes:
        recalled: length in characters of the part at the end of the text that comes from memory.
    """

    message: Message
    recalled: int = 0


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A request is sent to the model. Rounds count from 1.

    Attributes:
        tokens: the reservation for this request: the most tokens it may use. None in journals of older
            versions.
        usd: the same in US dollars; None if the price is unknown.
        model: the name of the model that is asked first. Empty in journals of older versions.
    """

    round: int
    tokens: int | None = None
    usd: float | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class TextStarted:
    """The model begins to reply. A second one before `ReplyReceived` invalidates the pieces since the first."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's readable reasoning, as it arrives. Not in the journal: see `TextDelta`."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the model's reply, as it arrives. Not in the journal: `ReplyReceived` has the whole reply."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyReceived:
    """The model's complete reply. `usd` is None if the price is unknown."""

    message: Message
    finish: FinishReason
    usage: Usage
    usd: float | None
    model: str


@dataclass(frozen=True, slots=True)
class ReplyRejected:
    """The reply does not have the contract's form. `attempt` counts rejected replies in a row, from 1."""

    problems: tuple[str, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """The model's plan, and the number of calls that follow.

    Attributes:
        repaired: whether the reply was invalid JSON and was repaired.
        cut_off: whether the reply was cut off; then its last call is not run.
    """

    plan: str
    calls: int
    repaired: bool = False
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A tool call was read from the reply, and is about to be validated and run."""

    call_id: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class CallDecided:
    """A person decided on a call that the gate would refuse, now or earlier with `always`.

    Attributes:
        scope: what the decision covers: the tool, and its command if it runs one.
        reason: the person's reason for a refusal; empty if none was given.
    """

    call_id: str
    decision: Decision
    scope: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutputDelta:
    """A piece of a running tool's output. Not in the journal."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnded:
    """A tool call ended, with its full output or the reason why it did not run.

    Each `ToolCallStarted` is followed by exactly one.
    """

    call_id: str
    name: str
    status: CallStatus
    output: str


@dataclass(frozen=True, slots=True)
class ForeignToolsOffered:
    """The tools of an MCP server are available in the session.

    Attributes:
        tools: the tools as the model sees them.
        dangerous: names of the tools that need the permission level `dangerous`.
    """

    server: str
    tools: tuple[ToolDefinition, ...]
    dangerous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TodosChanged:
    """The model's todo list changed, or was restored. The event has the complete list.

    Attributes:
        added: number of items ever added; see `TodoList`.
    """

    items: tuple[TodoItem, ...]
    added: int = 0


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A limit is reached. `limit` is `rounds`, `tool_rounds`, `replies`, `tokens`, `usd`, `minutes` or `denials`."""

    limit: str
    detail: str


@dataclass(frozen=True, slots=True)
class LoopDetected:
    """The model repeats the same tool calls. `message` is the warning that it received."""

    message: str


SUMMARY_AGENT = "summary"
"""The `SubagentEvent.agent` of the requests that summarize the session's own conversation."""
EMBEDDING_AGENT = "embeddings"
"""The `SubagentEvent.agent` that reports the cost of the memory's embedding requests."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The conversation was compacted: one message now replaces all but its newest turns.

    Attributes:
        tokens_before: estimated size of the next request before; `tokens_after` likewise after.
        turns: number of newest turns that were kept.
        reason: why it was compacted and, if the model's summary was unusable, why.
        summary: the replacing message: the task, what people said, what the program knows, and the model's
            summary.
        images: number of images in that message: the first ones that people sent in the replaced turns.
    """

    tokens_before: int
    tokens_after: int
    turns: int
    reason: str
    summary: str
    images: int = 0


@dataclass(frozen=True, slots=True)
class WaitStarted:
    """The program waits before it repeats a request.

    Attributes:
        tokens: the most tokens that the failed attempt may have used; None if it is free of charge.
        usd: the same in US dollars; None if the price is unknown as well.
    """

    seconds: float
    reason: str
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning for a person. The run continues."""

    message: str


@dataclass(frozen=True, slots=True)
class ErrorOccurred:
    """The session cannot process its input. `kind` is the name of the error's class."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class ProcessingEnded:
    """The input and its follow-ups are processed. `reason` is one line.

    Attributes:
        state: the session's state now.
    """

    state: SessionState
    reason: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The session ended. `reason` is one line."""

    reason: str
    state: SessionState = SessionState.CLOSED


@dataclass(frozen=True, slots=True)
class SubagentEvent:
    """An event of a session that this session started. `agent` is that session's id."""

    agent: str
    event: Event


Event: TypeAlias = (
    CycleEvent
    | SessionStarted
    | InputReceived
    | SteeringInjected
    | MessageAdded
    | TurnStarted
    | TextStarted
    | ReasoningDelta
    | TextDelta
    | ReplyReceived
    | ReplyRejected
    | PlanAccepted
    | ToolCallStarted
    | CallDecided
    | ToolOutputDelta
    | ToolCallEnded
    | ForeignToolsOffered
    | TodosChanged
    | LimitReached
    | LoopDetected
    | Compacted
    | WaitStarted
    | Warned
    | Guarded
    | ErrorOccurred
    | ProcessingEnded
    | SessionEnded
    | SubagentEvent
)

Emit: TypeAlias = Callable[[Event], None]
"""Receives an event. It returns at once, does not block and does not raise."""
