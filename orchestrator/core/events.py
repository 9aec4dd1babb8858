"""Everything that happens in a run, as a closed union of values.

The terminal's live view, the journal and any host program read the same events. A consumer
matches on the class and closes with `assert_never`. `ToolCallEnded.output` is always the full
output; the model may have been shown less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.cycle_events import CycleEvent
from orchestrator.core.defences import Guarded

if TYPE_CHECKING:
    from orchestrator.core.messages import FinishReason, JsonObject, Message, Usage


class CallStatus(StrEnum):
    """What became of a tool call."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    SKIPPED = "skipped"
    INTERRUPTED = "interrupted"


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
    """The program says something to the model."""

    message: Message


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A request goes out. Rounds count from 1.

    Attributes:
        tokens: the most that it may take, which is set aside for it. None in journals of older versions.
        usd: the same in US dollars; None where the price is unknown.
    """

    round: int
    tokens: int | None = None
    usd: float | None = None


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


@dataclass(frozen=True, slots=True)
class Compacted:
    """The conversation was made shorter: from now on a message stands for all but its newest turns.

    Attributes:
        tokens_before: of a request, as estimated; so are `tokens_after`.
        turns: how many of the newest turns stay beside that message.
        reason: why it was done, and where no summary of the model could be used, why not.
        summary: the message: the task, what people said, what the program knows, and the model's summary.
    """

    tokens_before: int
    tokens_after: int
    turns: int
    reason: str
    summary: str


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
    | ToolOutputDelta
    | ToolCallEnded
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
