"""Types of a model call: request, reply, stream events, and the `Model` protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from orchestrator.core.messages import (
    FinishReason,
    JsonObject,
    Message,
    ToolCall,
    ToolDefinition,
    Usage,
)

if TYPE_CHECKING:
    from orchestrator.core.errors import ModelError


INVALID_ARGUMENTS = "_invalid_json"
"""The one key of `ToolCall.arguments` where the model's arguments were no JSON object; its value is their text."""


def invalid_arguments(call: ToolCall) -> str | None:
    """The text that the model gave as arguments, if it is not a JSON object; else None.

    Whoever runs calls asks this first, and tells the model.
    """
    text = call.arguments.get(INVALID_ARGUMENTS)
    return text if isinstance(text, str) and len(call.arguments) == 1 else None


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """A JSON Schema that the whole reply must satisfy, where the provider can constrain it."""

    name: str
    schema: JsonObject


class ToolChoice(StrEnum):
    """Whether the model must, may or must not call a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Request:
    """One question to a model. What is None is not sent: the provider's default applies.

    Attributes:
        messages: the conversation; must not change while the request is under way.
        reasoning_effort: `low`, `medium`, `high`, or another word that the provider knows.
        parallel_tool_calls: False asks for at most one call in the reply.
        provider_options: fields for one vendor only, by its name (`openai`, `anthropic`, `gemini`).
            Each protocol says which keys it gives a meaning; the others go into the body as they are.
        on_retry: told by `complete` before the request is sent again, which `stream` says by the same events:
            the attempt before may be billed. What it raises ends the call.
    """

    system: str
    messages: Sequence[Message]
    tools: tuple[ToolDefinition, ...] = ()
    output_schema: OutputSchema | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    reasoning_effort: str | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    provider_options: Mapping[str, JsonObject] = field(default_factory=dict)
    on_retry: OnRetry | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Response:
    """One whole reply.

    Attributes:
        model: the name that the provider gave back.
        is_counted: False where the provider did not say how many tokens there were, or only a part of it:
            `usage` is then an estimate from above, but for what nobody sees of a reply.
    """

    message: Message
    finish: FinishReason
    usage: Usage
    model: str
    id: str | None = None
    is_counted: bool = True

    @property
    def text(self) -> str:
        """The reply's text parts, joined."""
        return self.message.text

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls in the reply, in order."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A piece of the reply's text, as it arrives."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """A piece of the reply's readable reasoning, as it arrives."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A piece of a call's arguments, as it arrives. It only shows how much of the reply was made."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The stream broke and the request is sent again: forget the pieces received so far."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The provider failed in a way that passes; the request is sent again after so many seconds."""

    seconds: float
    error: ModelError


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The provider refused a part of the request that it can do without: it is sent again, changed as `how` says.

    What was refused is not sent to this model any more.
    """

    error: ModelError
    how: str


@dataclass(frozen=True, slots=True)
class Switched:
    """The model could not answer, after its own retries, and another one is asked: its `Model.name` is `to`."""

    error: ModelError
    to: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The stream's last event: the whole reply."""

    response: Response


Piece: TypeAlias = TextPiece | ReasoningPiece | CallPiece
StreamEvent: TypeAlias = Piece | Waiting | Relaxed | Switched | Restarted | Completed

OnRetry: TypeAlias = Callable[[Waiting | Relaxed | Switched], None]
"""Told before a request is sent again, why and where to."""

OnWait: TypeAlias = Callable[[float, "ModelError"], None]
"""Told before each wait: how many seconds, and the error that made it necessary."""


MODEL_METHODS = ("complete", "stream", "aclose")
"""What an object must have to be a `Model`, beside its name."""


class Model(Protocol):
    """One model at one address."""

    @property
    def name(self) -> str:
        """The name as the user writes it: `provider:name`."""

    async def complete(self, request: Request) -> Response:
        """Ask and wait for the whole reply.

        Raises:
            ModelError: one of its subclasses; retries are already spent.
        """

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Ask and take the reply in pieces. The last event is `Completed`.

        Raises:
            ModelError: one of its subclasses; retries are already spent.
        """

    async def aclose(self) -> None:
        """Close the connections."""


@runtime_checkable
class Several(Protocol):
    """A model that stands for several."""

    @property
    def next_name(self) -> str:
        """The `Model.name` of the one that the next request goes to first."""


def next_name(model: Model) -> str:
    """The name of the model that is asked first."""
    return model.next_name if isinstance(model, Several) else model.name
