"""Everything that happens in a run, as a closed union of values.

The terminal's live view, the journal and any host program read the same events. A consumer
matches on the class and closes with `assert_never`. `ToolCallEnded.output` is always the full
output; the model may have been shown less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.core.messages import FinishReason, JsonObject, Message, ToolDefinition, Usage
    from orchestrator.core.todos import TodoItem


class Defence(StrEnum):
    """What stands between other people's words, a model, and the outside."""

    ADMISSION = "admission"
    """Who may cause work, asked from the forge's permission interface."""
    HIDDEN_TEXT = "hidden-text"
    """What a person would not see is not shown to the model either."""
    MARKERS = "markers"
    """Other people's words stand between markers that they cannot close."""
    INSTRUCTIONS = "instructions"
    """A repository's instructions and settings count from the default branch, and only tighten."""
    LEVEL = "level"
    """What the permission level does not grant does not run."""
    COMMANDS = "commands"
    """Commands are parsed; what no rule grants, or what is never granted, does not run."""
    SANDBOX = "sandbox"
    """Commands see the clone and the programs, nothing else, and change only the clone."""
    NETWORK = "network"
    """Commands reach named hosts only; web tools reach public addresses only."""
    PATHS = "paths"
    """Tools stay inside the clone, outside every `.git`, and follow no link."""
    HOST_GIT = "host-git"
    """Git of the host runs nothing that the clone or the model configured."""
    SECRETS = "secrets"
    """Known values and what looks like a credential do not leave."""
    WORDING = "wording"
    """Titles, bodies and comments notify, command and load nothing."""
    PROTECTED_PATHS = "protected-paths"
    """Changes to files that steer machines and agents wait for a person."""
    CHANGE_SIZE = "change-size"
    """A change has at most so many files, lines and bytes."""
    TEST_INTEGRITY = "test-integrity"
    """The host runs the tests as they were; tests that are gone or skipped are named."""
    LIMITS = "limits"
    """Rounds, tokens, money and minutes have an end."""
    MEMORY = "memory"
    """What is remembered counts in its repository alone, and only while what it cites is there and its author may write."""
    MCP = "mcp"
    """MCP servers offer what a person approved, say so much at a time, and are given nothing but calls."""


@dataclass(frozen=True, slots=True)
class Guarded:
    """A defence stopped or changed something.

    Attributes:
        message: one line: what was stopped, and what would allow it if anything.
        details: places and texts, one line each; may be empty.
    """

    defence: Defence
    message: str
    details: tuple[str, ...] = ()


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
        origin: of a repository on disk, where it was cloned from.
        door: `chat` or `ask` where a person talks with the model, `verify-pr` where a pull request is verified;
            empty for a cycle, which works on a task.
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
class ClaimChecked:
    """Something that a pull request says of itself was looked at, or something was found that it does not say.

    Attributes:
        level: how far it was followed, as `evidence.claims.EvidenceLevel` names it.
        subject: what it is about, in words of the program.
        standing: `holds`, `refuted`, `unknown` or `noted`.
        claimed: what the pull request says; empty where there is nothing to compare.
        found: what is so.
        note: what else to know.
    """

    level: str
    subject: str
    standing: str
    claimed: str
    found: str
    note: str


@dataclass(frozen=True, slots=True)
class Proposing:
    """The change is committed and about to be pushed and proposed with these words. It is proposed with `Proposed`.

    Attributes:
        title, body: as the pull request will have them, without what the host adds.
        branch: where the commit goes.
        diff: the change, against the base. Empty in journals of older versions.
    """

    title: str
    body: str
    branch: str
    commit: str
    diff: str = ""


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
    """What became of a tool call."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


class Decision(StrEnum):
    """What a person said of a call that needs more than the session may do."""

    ONCE = "once"
    ALWAYS = "always"
    """And each time that the session wants the same."""
    NO = "no"


class SessionState(StrEnum):
    """Where a session is in its life."""

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
    """Somebody asks the session for something: by `submit`, or as a follow-up whose turn has come."""

    text: str


@dataclass(frozen=True, slots=True)
class SteeringInjected:
    """A word from outside was put into the conversation between two rounds."""

    text: str


@dataclass(frozen=True, slots=True)
class MessageAdded:
    """The program says something to the model.

    Attributes:
        recalled: how many characters at the end of its text nobody said now: they were remembered.
    """

    message: Message
    recalled: int = 0


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A request goes out. Rounds count from 1.

    Attributes:
        tokens: the most that it may take, which is set aside for it. None in journals of older versions.
        usd: the same in US dollars; None where the price is unknown.
        model: the name of the model that is asked first. Empty in journals of older versions.
    """

    round: int
    tokens: int | None = None
    usd: float | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class TextStarted:
    """The model begins to write. A second one before `ReplyReceived`: forget the pieces since the first."""


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """A piece of the model's readable reasoning, as it arrives. Not in the journal: see `TextDelta`."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the model's reply, as it arrives. Not in the journal: `ReplyReceived` has the whole."""

    text: str


@dataclass(frozen=True, slots=True)
class ReplyReceived:
    """The model's whole reply. `usd` is None where the price is unknown."""

    message: Message
    finish: FinishReason
    usage: Usage
    usd: float | None
    model: str


@dataclass(frozen=True, slots=True)
class ReplyRejected:
    """The reply is not in the contract's form. `attempt` counts rejected replies in a row, from 1."""

    problems: tuple[str, ...]
    attempt: int


@dataclass(frozen=True, slots=True)
class PlanAccepted:
    """What the model intends, and how many calls follow.

    Attributes:
        repaired: the reply was not valid JSON and was mended.
        cut_off: the reply ended in the middle; its last call is not run.
    """

    plan: str
    calls: int
    repaired: bool = False
    cut_off: bool = False


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """A call was taken from the reply and is about to be checked and run."""

    call_id: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class CallDecided:
    """A person was asked whether a call may run that the gate would refuse, or had said `always` before.

    Attributes:
        scope: what exactly was decided on: the tool, and its command where it runs one.
        reason: why not, in the person's words; empty if none was given.
    """

    call_id: str
    decision: Decision
    scope: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ToolOutputDelta:
    """Output of a running tool, as it is printed. Not in the journal."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolCallEnded:
    """The call's end with its full output, or why it did not run. Every `ToolCallStarted` has exactly one."""

    call_id: str
    name: str
    status: CallStatus
    output: str


@dataclass(frozen=True, slots=True)
class ForeignToolsOffered:
    """Tools of an MCP server take part in the session.

    Attributes:
        tools: as the model is shown them.
        dangerous: the names of those that only the level `dangerous` shows.
    """

    server: str
    tools: tuple[ToolDefinition, ...]
    dangerous: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TodosChanged:
    """The model changed its list of what is to be done, or goes on with one: this is the whole list now.

    Attributes:
        added: how many items were ever added; see `TodoList`.
    """

    items: tuple[TodoItem, ...]
    added: int = 0


@dataclass(frozen=True, slots=True)
class LimitReached:
    """A budget is spent. `limit` is `rounds`, `tool_rounds`, `replies`, `tokens`, `usd`, `minutes` or `denials`."""

    limit: str
    detail: str


@dataclass(frozen=True, slots=True)
class LoopDetected:
    """The last tool calls repeat themselves; the model was told so in these words."""

    message: str


SUMMARY_AGENT = "summary"
"""The `SubagentEvent.agent` under which a session asks for the summary of its own conversation."""
EMBEDDING_AGENT = "embeddings"
"""The `SubagentEvent.agent` under which a session tells what the vectors cost that its memory asked for."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """The conversation was made shorter: from now on a message stands for all but its newest turns.

    Attributes:
        tokens_before: of a request, as estimated; so are `tokens_after`.
        turns: how many of the newest turns stay beside that message.
        reason: why it was done, and where no summary of the model could be used, why not.
        summary: the message: the task, what people said, what the program knows, and the model's summary.
        images: how many images come with it: the first that people sent in the turns that it stands for.
    """

    tokens_before: int
    tokens_after: int
    turns: int
    reason: str
    summary: str
    images: int = 0


@dataclass(frozen=True, slots=True)
class WaitStarted:
    """The program waits before it tries a request again.

    Attributes:
        tokens: the most that the attempt may have taken which failed; None where it costs nothing.
        usd: the same in US dollars; None where the price is unknown, too.
    """

    seconds: float
    reason: str
    tokens: int | None = None
    usd: float | None = None


@dataclass(frozen=True, slots=True)
class Warned:
    """Something that a person should know and that stops nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class ErrorOccurred:
    """The session cannot go on with its input. `kind` is the name of the error's class."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class ProcessingEnded:
    """The input is dealt with, and its follow-ups; the session is in this state now. `reason` is one line."""

    state: SessionState
    reason: str


@dataclass(frozen=True, slots=True)
class SessionEnded:
    """The conversation is over. `reason` is one line."""

    reason: str
    state: SessionState = SessionState.CLOSED


@dataclass(frozen=True, slots=True)
class SubagentEvent:
    """Something happened in a session that this one started. `agent` is that session's id."""

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
"""Takes an event at once, without blocking and without raising."""


class EventKind(StrEnum):
    """The names of section 2.9 of the coding agent loop specification, and `other`."""

    SESSION_START = "session_start"
    SESSION_END = "session_end"
    USER_INPUT = "user_input"
    PROCESSING_END = "processing_end"
    ASSISTANT_TEXT_START = "assistant_text_start"
    ASSISTANT_TEXT_DELTA = "assistant_text_delta"
    ASSISTANT_TEXT_END = "assistant_text_end"
    TOOL_CALL_START = "tool_call_start"
    TOOL_CALL_OUTPUT_DELTA = "tool_call_output_delta"
    TOOL_CALL_END = "tool_call_end"
    STEERING_INJECTED = "steering_injected"
    TURN_LIMIT = "turn_limit"
    LOOP_DETECTION = "loop_detection"
    WARNING = "warning"
    ERROR = "error"
    OTHER = "other"


_KINDS: dict[type[Event], EventKind] = {
    SessionStarted: EventKind.SESSION_START,
    SessionEnded: EventKind.SESSION_END,
    InputReceived: EventKind.USER_INPUT,
    ProcessingEnded: EventKind.PROCESSING_END,
    TextStarted: EventKind.ASSISTANT_TEXT_START,
    TextDelta: EventKind.ASSISTANT_TEXT_DELTA,
    ReplyReceived: EventKind.ASSISTANT_TEXT_END,
    ToolCallStarted: EventKind.TOOL_CALL_START,
    ToolOutputDelta: EventKind.TOOL_CALL_OUTPUT_DELTA,
    ToolCallEnded: EventKind.TOOL_CALL_END,
    SteeringInjected: EventKind.STEERING_INJECTED,
    LimitReached: EventKind.TURN_LIMIT,
    LoopDetected: EventKind.LOOP_DETECTION,
    Warned: EventKind.WARNING,
    ErrorOccurred: EventKind.ERROR,
}


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """Something that happened in a session.

    Attributes:
        session: the id of the session; a subagent's events carry its own.
        at: when, in UTC.
    """

    session: str
    at: datetime
    event: Event

    @property
    def kind(self) -> EventKind:
        """The specification's name for it; `other` for what only this program knows."""
        return _KINDS.get(type(self.event), EventKind.OTHER)
