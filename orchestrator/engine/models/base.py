"""Types of a model call: request, reply, stream events, and the `Model` protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

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
"""The only key of `ToolCall.arguments` if the model's arguments are not a JSON object.

Its value is their text.
"""


def invalid_arguments(call: ToolCall) -> str | None:
    """Return the text that the model gave as arguments if it is not a JSON object; else None.

    Code that runs calls must check this first, and tell the model.
    """
    text = call.arguments.get(INVALID_ARGUMENTS)
    return text if isinstance(text, str) and len(call.arguments) == 1 else None


@dataclass(frozen=True, slots=True)
class OutputSchema:
    """A JSON Schema that the whole reply must satisfy, if the provider can enforce it."""

    name: str
    schema: JsonObject


class ToolChoice(StrEnum):
    """Whether the model must, may or must not call a tool."""

    AUTO = "auto"
    NONE = "none"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Request:
    """One request to a model. Fields that are None are not sent, so that the provider's default applies.

    Attributes:
        messages: the conversation; must not change while the request is running.
        reasoning_effort: `low`, `medium`, `high`, or another word that the provider knows.
        parallel_tool_calls: False asks for at most one call in the reply.
        provider_options: fields for one vendor only, by its name (`openai`, `anthropic`, `gemini`). Each
            protocol documents the keys that it interprets; the others are added to the body unchanged.
        on_retry: called by `complete` before the request is sent again, with the event that `stream` would
            yield. The attempt before may be billed. An exception that it raises ends the call.
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
        model: the model's name in the provider's reply.
        is_counted: False if the provider reported no token count or only a part of it. `usage` is then an
            upper estimate, except for the hidden part of a reply.
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
        """The calls in the reply, in their order."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCall))


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A received piece of the reply's text."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningPiece:
    """A received piece of the reply's readable reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class CallPiece:
    """A received piece of a call's arguments, which only shows the progress of the reply."""

    text: str


@dataclass(frozen=True, slots=True)
class Restarted:
    """The stream broke and the request is sent again: discard the pieces received so far."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The provider failed temporarily; the request is sent again after this many seconds."""

    seconds: float
    error: ModelError


@dataclass(frozen=True, slots=True)
class Relaxed:
    """The provider refused an optional part of the request; it is sent again, changed as `how` says.

    The refused part is not sent to this model any more.
    """

    error: ModelError
    how: str


@dataclass(frozen=True, slots=True)
class Switched:
    """The model failed after its own retries, and the model whose `Model.name` is `to` gets the request."""

    error: ModelError
    to: str


@dataclass(frozen=True, slots=True)
class Completed:
    """The last event of a stream: the whole reply."""

    response: Response


Piece: TypeAlias = TextPiece | ReasoningPiece | CallPiece
StreamEvent: TypeAlias = Piece | Waiting | Relaxed | Switched | Restarted | Completed

OnRetry: TypeAlias = Callable[[Waiting | Relaxed | Switched], None]
"""Called before a request is sent again, with the reason and the destination."""

OnWait: TypeAlias = Callable[[float, "ModelError"], None]
"""Called before each wait, with its seconds and the error that caused it."""


MODEL_METHODS = ("complete", "stream", "aclose")
"""The methods of a `Model`, which also has a `name`."""


class Model(Protocol):
    """A model at one address."""

    @property
    def name(self) -> str:
        """The name as the user writes it: `provider:name`."""

    async def complete(self, request: Request) -> Response:
        """Send a request and wait for the whole reply.

        Raises:
            ModelError: one of its subclasses, after all retries.
        """

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Send a request and yield the reply in pieces. The last event is `Completed`.

        Raises:
            ModelError: one of its subclasses, after all retries.
        """

    async def aclose(self) -> None:
        """Close the connections."""


def next_name(model: Model) -> str:
    """Return the name of the model that gets the next request first; a `FallbackModel` may skip its first one."""
    name: str = getattr(model, "next_name", model.name)
    return name
