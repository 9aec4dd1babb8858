"""How much the next request may cost at most: an upper estimate of its input, and the longest reply to it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.messages import Image, Reasoning, Text, ToolCall, ToolResult, Usage
from orchestrator.engine.models.usage import BYTES_PER_TOKEN, TOKENS_PER_IMAGE, size_of_json, size_of_text

if TYPE_CHECKING:
    from orchestrator.core.messages import Message, Part
    from orchestrator.engine.models.base import Request
    from orchestrator.engine.profiles.base import Price

MIN_REPLY_TOKENS = 1_024
"""A request whose reply could not even be this long is not worth sending."""

DEFAULT_REPLY_TOKENS = 32_000
"""The longest reply where neither `max_output_tokens` nor the model's own limit is configured: an assumption."""

_BYTES_PER_PART = 32
_BYTES_PER_IMAGE = 2 * TOKENS_PER_IMAGE * BYTES_PER_TOKEN


_MOST_BYTES_PER_TOKEN = 32
"""No text has more. A provider that counts fewer tokens than that has not counted all that it was sent."""

_MOST_COUNTS = 8


@dataclass(frozen=True, slots=True)
class _Count:
    """What a provider counted, when the conversation had so many bytes, and how many tokens a byte were at most."""

    tokens: int
    at_bytes: int
    tokens_a_byte: float


class InputMeter:
    """Estimates from above how many tokens the next request reads.

    Once a reply is in, the provider's own count of the last request and of its reply stands for all that was
    sent until then; only what was added since is estimated, by `BYTES_PER_TOKEN`, or by what that request
    had a token if it was less.

    A count holds for the model that was asked. The name of the one that answered is no such name: it may be an
    alias, and a router gives it to one model today and to another tomorrow, which count the same words in
    other ways. Of all that have answered for the model that is asked, the one with the highest estimate
    counts; for one that never answered, all is estimated.

    Attributes:
        longest_reply: in tokens. There are servers that know of no limit, and models that are not known.
    """

    def __init__(self) -> None:
        self.longest_reply = 0
        self._bytes = 0
        self._counts: dict[tuple[str, str], _Count] = {}

    def add(self, message: Message) -> None:
        """A message joins the conversation."""
        self._bytes += message_bytes(message)

    def measured(self, usage: Usage, asked: str, answered: str, fixed_bytes: int) -> None:
        """A reply is in, and was added. A count that cannot be true leaves the estimate as it is.

        Args:
            usage: what was counted.
            asked: the model, as the program calls it.
            answered: what the provider called it.
            fixed_bytes: what every request has beside the conversation.
        """
        self.longest_reply = max(self.longest_reply, usage.output_tokens)
        size = self._bytes + fixed_bytes
        if usage.input_tokens <= 0 or usage.total_tokens * _MOST_BYTES_PER_TOKEN < size:
            return
        rate = max(1 / BYTES_PER_TOKEN, usage.input_tokens / max(1, size))
        self._counts.pop((asked, answered), None)
        self._counts[asked, answered] = _Count(usage.total_tokens, self._bytes, rate)
        if len(self._counts) > _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]

    def has_count_of(self, asked: str) -> bool:
        """Whether the provider of this model is one that counts."""
        return any(name == asked for name, _answered in self._counts)

    def tokens(self, asked: str, fixed_bytes: int, more_bytes: int = 0) -> int:
        """At most so many, with so many bytes more than the conversation has."""
        known = [count for (name, _answered), count in self._counts.items() if name == asked]
        if not known:
            rates = (count.tokens_a_byte for count in self._counts.values())
            return math.ceil(
                (self._bytes + fixed_bytes + more_bytes) * max(rates, default=1 / BYTES_PER_TOKEN)
            )
        return max(
            count.tokens + math.ceil((self._bytes - count.at_bytes + more_bytes) * count.tokens_a_byte)
            for count in known
        )


@dataclass(frozen=True, slots=True)
class Need:
    """What a request may need: its input, and the longest reply that may come."""

    input_tokens: int
    reply_tokens: int
    price: Price

    @property
    def least_reply(self) -> int:
        """The shortest limit of a reply with which the request is still worth sending."""
        return min(self.reply_tokens, MIN_REPLY_TOKENS)

    def usd(self, reply_tokens: int) -> float | None:
        """The price of the input, nothing of it cached, and of so long a reply; None if it is unknown.

        To write the input into the vendor's cache may cost more than to read it, so the dearer one counts.
        """
        size = self.input_tokens
        plain = self.price(Usage(size, reply_tokens))
        written = self.price(Usage(size, reply_tokens, cache_write_tokens=size))
        if plain is None or written is None:
            return plain
        return max(plain, written)

    def then(self) -> Need:
        """The shortest request that could come after this one."""
        return Need(self.input_tokens + self.least_reply, self.least_reply, self.price)


def fixed_bytes(request: Request) -> int:
    """The size of what every request of a session has beside the conversation: system prompt, tools, schema."""
    tools = sum(
        size_of_text(tool.name)
        + size_of_text(tool.description)
        + size_of_json(tool.parameters)
        + _BYTES_PER_PART
        for tool in request.tools
    )
    schema = size_of_json(request.output_schema.schema) if request.output_schema else 0
    return size_of_text(request.system) + tools + schema + _BYTES_PER_PART


def message_bytes(message: Message) -> int:
    """The size of a message, pictures by what they cost in tokens."""
    return sum(map(_part_size, message.parts)) + _BYTES_PER_PART


def _part_size(part: Part) -> int:
    return _content_size(part) + _BYTES_PER_PART


def _content_size(part: Part) -> int:
    match part:
        case Text(text):
            return size_of_text(text)
        case Reasoning(text, opaque):
            return size_of_text(text) + size_of_json(opaque)
        case ToolCall(id=name, name=tool, arguments=arguments):
            return size_of_text(name) + size_of_text(tool) + size_of_json(arguments)
        case ToolResult(call_id=name, content=content, images=images):
            return size_of_text(name) + size_of_text(content) + len(images) * _BYTES_PER_IMAGE
        case Image():
            return _BYTES_PER_IMAGE
