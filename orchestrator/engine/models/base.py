"""Types of a model call: request, reply, stream events, and the `Model` protocol.

Also token counts, reported or estimated, and who pays for requests outside of a conversation.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from orchestrator.core.messages import (
    FinishReason,
    Image,
    JsonObject,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

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


NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Switched:
    """The model `left` failed after its own retries, and the model whose `Model.name` is `to` gets the request.

    Attributes:
        until: when the failed model may be used again. None means with the next request, and `NEVER` means
            not before the program restarts.
    """

    error: ModelError
    to: str
    left: str = field(default="", compare=False)
    until: datetime | None = field(default=None, compare=False)

    @property
    def is_for_good(self) -> bool:
        """Whether the failed model is not used again."""
        return self.until == NEVER


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
    """A model at one address.

    Both methods raise a `ModelError`, of one of its subclasses, after all retries.
    """

    @property
    def name(self) -> str:
        """The name as the user writes it: `provider:name`."""

    async def complete(self, request: Request) -> Response:
        """Send a request and wait for the whole reply."""

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        """Send a request and yield the reply in pieces. The last event is `Completed`."""

    async def aclose(self) -> None:
        """Close the connections."""


def next_name(model: Model) -> str:
    """Return the name of the model that gets the next request first; a `FallbackModel` may skip its first one."""
    name: str = getattr(model, "next_name", model.name)
    return name


CHARACTERS_PER_TOKEN = 4
"""Rough average for English text and code."""

BYTES_PER_TOKEN = 2
"""UTF-8 bytes that count as a token until a provider has counted them.

English text and code have about four, so this is a safety factor of two. Random characters can still need
more tokens.
"""

TOKENS_PER_IMAGE = 1_000
"""Order of magnitude of an image in the vendors' price lists."""

MOST_TOKENS = 10**12
"""Upper bound of a count, so that every count can be priced and summed. No request has this many tokens."""

_BYTES_OF_PUNCTUATION = 4
_ESCAPED = '\n\r\t"\\'


def count_of(counts: object, name: str) -> int:
    """Return a token count in a JSON object, from 0 to `MOST_TOKENS`; 0 if there is none."""
    number = counts.get(name) if isinstance(counts, Mapping) else None
    if not isinstance(number, int | float) or (isinstance(number, float) and not math.isfinite(number)):
        return 0
    return int(min(max(number, 0), MOST_TOKENS))


def counted_or_estimated(
    counted: Usage | None, request: Request, reply: Message, *, may_be_free: bool = False
) -> tuple[Usage, bool]:
    """Return the server's counts, with estimates for missing ones, and whether the server counted all.

    Every request has tokens, and so has every reply with content, so 0 is not a valid count for them. With 0,
    limits on tokens and cost would never be reached.

    Args:
        may_be_free: whether the server bills nothing for a reply of 0 tokens if it counted the request.
    """
    usage = counted or Usage()
    misses_input = usage.input_tokens <= 0
    misses_output = usage.output_tokens <= 0 and bool(reply.parts) and (misses_input or not may_be_free)
    if not misses_input and not misses_output:
        return usage, True
    guess = estimated_usage(request, reply)
    return Usage(
        guess.input_tokens if misses_input else usage.input_tokens,
        guess.output_tokens if misses_output else usage.output_tokens,
        0 if misses_input else usage.cached_input_tokens,
        0 if misses_input else usage.cache_write_tokens,
        usage.reasoning_tokens,
        0 if misses_input else usage.hour_write_tokens,
    ), False


def estimated_usage(request: Request, reply: Message) -> Usage:
    """Estimate an upper bound of the tokens by the length of the text."""
    prompt = sum(map(_message_tokens, request.messages)) + tokens_in(head_size(request))
    return Usage(input_tokens=prompt, output_tokens=_message_tokens(reply))


def head_size(request: Request) -> int:
    """Return the size of a request's text without the conversation, in bytes: system prompt, tools, schema."""
    tools = sum(
        size_of_text(tool.name) + size_of_text(tool.description) + size_of_json(tool.parameters)
        for tool in request.tools
    )
    schema = size_of_json(request.output_schema.schema) if request.output_schema else 0
    return size_of_text(request.system) + tools + schema


def size_of_text(text: str) -> int:
    """Return the size of a text in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_json(value: JsonObject) -> int:
    """Return an upper estimate of the size of a value's JSON text.

    It uses no recursion, because a model may nest values to any depth.
    """
    size, rest = 0, [value] if value else []
    while rest:
        item: Any = rest.pop()
        size += _BYTES_OF_PUNCTUATION
        match item:
            case str():
                size += size_of_text(item) + sum(map(item.count, _ESCAPED))
            case dict() | Mapping():
                size += sum(size_of_text(str(key)) + _BYTES_OF_PUNCTUATION for key in item)
                rest.extend(item.values())
            case list() | tuple():
                rest.extend(item)
            case _:
                size += len(str(item))
    return size


def _message_tokens(message: Message) -> int:
    return sum(map(_part_tokens, message.parts))


def _part_tokens(part: object) -> int:
    match part:
        case Image():
            return TOKENS_PER_IMAGE
        case Text(text) | Reasoning(text):
            return tokens_in(size_of_text(text))
        case ToolCall(name=name, arguments=arguments):
            return tokens_in(size_of_text(name) + size_of_json(arguments))
        case ToolResult(content=content, images=images):
            return tokens_in(size_of_text(content)) + len(images) * TOKENS_PER_IMAGE
        case _:
            return 0


def tokens_in(size: int) -> int:
    """Estimate an upper bound of the tokens of a text of this size, in UTF-8 bytes."""
    return -(-size // BYTES_PER_TOKEN)


class Payer(Protocol):
    """An object with a budget that pays for requests."""

    def pay(
        self, model: str, most_tokens: int, price: Callable[[Usage], float | None]
    ) -> AbstractContextManager[Callable[[Usage], None]]:
        """Reserve the most that a request may cost while it runs.

        Call the yielded function with the real usage.

        Raises:
            ModelError: the budget has no room for it.
        """


_PAYER: ContextVar[Payer | None] = ContextVar("payer", default=None)


@contextmanager
def paid_by(payer: Payer) -> Iterator[None]:
    """Charge all requests inside the block to this payer, also those of tasks that are created there."""
    token = _PAYER.set(payer)
    try:
        yield
    finally:
        _PAYER.reset(token)


def paying(
    model: str, most_tokens: int, price: Callable[[Usage], float | None]
) -> AbstractContextManager[Callable[[Usage], None]]:
    """Reserve a request's cost with the current payer (see `Payer`). Outside of sessions nothing counts."""
    payer = _PAYER.get()
    if payer is None:
        return nullcontext(lambda _usage: None)
    return payer.pay(model, most_tokens, price)
