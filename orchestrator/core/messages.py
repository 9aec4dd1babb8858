"""Messages between the program and a model in a vendor-neutral form, and their cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]


class Role(StrEnum):
    """The author of a message. The system prompt is not a message: it is a field of the request."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image: its bytes and its media type (`image/png`)."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The model's reasoning before its answer.

    Attributes:
        text: the readable part, possibly empty.
        opaque: data that the vendor wants back unchanged in the next request (a signature, an encrypted
            item); may be empty. Its keys name the protocol that understands it; other protocols leave it out.
    """

    text: str
    opaque: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool.

    Attributes:
        id: identifies the call within the session; the result refers to it.
        name: the tool's name as the model wrote it, possibly not the name of a tool.
        arguments: the arguments, not yet validated against the tool's schema.
    """

    id: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call that the model receives, whether it ran or not. `images` follow the text."""

    call_id: str
    name: str
    content: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


Part: TypeAlias = Text | Image | Reasoning | ToolCall | ToolResult


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """One message of a conversation.

    It supports weak references, so that data derived from it can be freed with it.
    """

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The text parts of the message, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @classmethod
    def user(cls, text: str) -> Message:
        """Create a user message of plain text."""
        return cls(Role.USER, (Text(text),))

    @classmethod
    def assistant(cls, text: str) -> Message:
        """Create a model's message of plain text."""
        return cls(Role.ASSISTANT, (Text(text),))


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A tool as a model sees it.

    Attributes:
        parameters: a JSON Schema (2020-12) whose root is an object.
    """

    name: str
    description: str
    parameters: JsonObject


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one or more requests.

    Attributes:
        input_tokens: all tokens of the prompt, including cached ones.
        output_tokens: all tokens of the reply, including reasoning.
        cached_input_tokens: the part of the input that the provider read from its cache.
        cache_write_tokens: the part of the input that the provider wrote into its cache.
        reasoning_tokens: the part of the output that is reasoning.
        hour_write_tokens: the part of `cache_write_tokens` that stays in the cache for an hour.
        charged_usd: what the server says that it charges, in USD; None if it says nothing.
        answered_by: the model's name in the reply, by which the price is found; empty for several replies.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    hour_write_tokens: int = 0
    charged_usd: float | None = None
    answered_by: str = field(default="", compare=False)

    @property
    def total_tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.hour_write_tokens + other.hour_write_tokens,
            _sum(self.charged_usd, other.charged_usd),
        )


class FinishReason(StrEnum):
    """Why a reply of the model ended."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Spent:
    """The cost of a cycle, a task or a day so far.

    Attributes:
        usd: US dollars. None if the price is unknown, and in every sum that includes such a part.
        tokens: input and output together.
        minutes: wall time.
        rounds: number of model replies.
    """

    usd: float | None = 0.0
    tokens: int = 0
    minutes: float = 0.0
    rounds: int = 0

    def __add__(self, other: Spent) -> Spent:
        """Return the sum. Its dollars are unknown if either operand's are."""
        return Spent(
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            minutes=self.minutes + other.minutes,
            rounds=self.rounds + other.rounds,
        )

    def at_least(self, other: Spent) -> Spent:
        """Return the maximum of each field. Its dollars are unknown if either operand's are."""
        return Spent(
            usd=None if self.usd is None or other.usd is None else max(self.usd, other.usd),
            tokens=max(self.tokens, other.tokens),
            minutes=max(self.minutes, other.minutes),
            rounds=max(self.rounds, other.rounds),
        )
