"""Everything that happens in a run, as a closed union of frozen dataclasses.

The live view, the journal and host programs receive the same events. A consumer matches on the class and ends
with `assert_never`. `ToolCallEnded.output` is always the full output; the model may have received less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.cycle_events import CycleEvent

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
    WORKER = "worker"
    """A program that works in place of the model's loop says a limited amount, and what it says is taken for no fact."""


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
