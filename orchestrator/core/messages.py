"""What is said between the program and a model, in no vendor's words, and what was spent on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias

JsonObject: TypeAlias = Mapping[str, Any]


class Role(StrEnum):
    """Who says a message. The system prompt is not a message: it is a field of the request."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    text: str


@dataclass(frozen=True, slots=True)
class Image:
    """A picture: its bytes and its media type (`image/png`)."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What a model thought before it answered.

    Attributes:
        text: the readable part, possibly empty.
        opaque: what the vendor wants back unchanged in the next request (a signature, an
            encrypted item); empty where it wants nothing. Its keys name the protocol that
            understands them; another protocol leaves them out.
    """

    text: str
    opaque: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish to have a tool run.

    Attributes:
        id: names the call within the session; the result refers to it.
        name: the tool's name as the model wrote it, which may be no tool's name.
        arguments: what the model passed, not yet checked against the tool's schema.
    """

    id: str
    name: str
    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a model is told about one of its calls, run or not. `images` come after the text."""

    call_id: str
    name: str
    content: str
    is_error: bool = False
    images: tuple[Image, ...] = ()


Part: TypeAlias = Text | Image | Reasoning | ToolCall | ToolResult


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Message:
    """One entry of a conversation. It can be referred to weakly, so that what is made of it dies with it."""

    role: Role
    parts: tuple[Part, ...]

    @property
    def text(self) -> str:
        """The message's text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @classmethod
    def user(cls, text: str) -> Message:
        """A user's message of plain text."""
        return cls(Role.USER, (Text(text),))

    @classmethod
    def assistant(cls, text: str) -> Message:
        """A model's message of plain text."""
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


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests.

    Attributes:
        input_tokens: all tokens of the prompt, cached ones included.
        output_tokens: all tokens of the reply, reasoning included.
        cached_input_tokens: the part of the input that the provider read from its cache.
        cache_write_tokens: the part of the input that the provider wrote into its cache.
        reasoning_tokens: the part of the output that is reasoning.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_input_tokens + other.cached_input_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )


class FinishReason(StrEnum):
    """Why a model stopped."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    PAUSE = "pause"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Spent:
    """What a cycle, a task or a day has cost so far.

    Attributes:
        usd: US dollars. None where the price is not known, and in every sum with such a part.
        tokens: input and output together.
        minutes: of wall time.
        rounds: replies of the model.
    """

    usd: float | None = 0.0
    tokens: int = 0
    minutes: float = 0.0
    rounds: int = 0

    def __add__(self, other: Spent) -> Spent:
        """Both together; dollars are unknown as soon as those of one are."""
        return Spent(
            usd=None if self.usd is None or other.usd is None else self.usd + other.usd,
            tokens=self.tokens + other.tokens,
            minutes=self.minutes + other.minutes,
            rounds=self.rounds + other.rounds,
        )

    def at_least(self, other: Spent) -> Spent:
        """The larger of each; dollars are unknown as soon as those of one are."""
        return Spent(
            usd=None if self.usd is None or other.usd is None else max(self.usd, other.usd),
            tokens=max(self.tokens, other.tokens),
            minutes=max(self.minutes, other.minutes),
            rounds=max(self.rounds, other.rounds),
        )
