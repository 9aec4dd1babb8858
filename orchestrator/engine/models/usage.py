"""How many tokens a request and its reply had: as a server counts them, or estimated where it does not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import Image, Reasoning, Text, ToolCall, ToolResult, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.messages import JsonObject, Message
    from orchestrator.engine.models.base import Request

CHARACTERS_PER_TOKEN = 4
"""A rough mean for English text and code."""

BYTES_PER_TOKEN = 2
"""UTF-8 bytes that are taken for a token as long as no provider has counted them. English text and code have
about four, so this is a safety factor of two; text of random characters can still count more."""

TOKENS_PER_IMAGE = 1_000
"""The order of magnitude of a picture in the vendors' price lists."""

MOST_TOKENS = 10**12
"""No request has so many. A larger count is taken for this one, so that it can be priced and added up."""

_BYTES_OF_PUNCTUATION = 4
_ESCAPED = '\n\r\t"\\'


def count_of(counts: object, name: str) -> int:
    """A number of tokens in a JSON object, from 0 to `MOST_TOKENS`; 0 where there is none."""
    number = counts.get(name) if isinstance(counts, Mapping) else None
    if not isinstance(number, int | float) or (isinstance(number, float) and not math.isfinite(number)):
        return 0
    return int(min(max(number, 0), MOST_TOKENS))


def counted_or_estimated(
    counted: Usage | None, request: Request, reply: Message, *, may_be_free: bool = False
) -> tuple[Usage, bool]:
    """What the server counted, with an estimate in the place of what it did not; and whether it counted all.

    Every request has tokens, and so has every reply with something in it: 0 is no count of them. With 0,
    limits on tokens and cost would never be reached.

    Args:
        counted: what the server said.
        request: what it was asked.
        reply: what it answered.
        may_be_free: where it counted the request, a reply of 0 tokens is one that it does not bill.
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
    ), False


def estimated_usage(request: Request, reply: Message) -> Usage:
    """Tokens by the length of the text, from above."""
    schema = request.output_schema.schema if request.output_schema else {}
    tools = sum(
        size_of_text(tool.name) + size_of_text(tool.description) + size_of_json(tool.parameters)
        for tool in request.tools
    )
    written = _tokens(size_of_text(request.system) + tools + size_of_json(schema))
    prompt = written + sum(_message_tokens(message.parts) for message in request.messages)
    return Usage(input_tokens=prompt, output_tokens=_message_tokens(reply.parts))


def size_of_text(text: str) -> int:
    """UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def size_of_json(value: JsonObject) -> int:
    """About the size of the JSON text, from above. Without recursion: a model may nest as deep as it likes."""
    size, rest = 0, [value] if value else []
    while rest:
        item: Any = rest.pop()
        size += _BYTES_OF_PUNCTUATION
        match item:
            case Mapping():
                size += sum(size_of_text(str(key)) + _BYTES_OF_PUNCTUATION for key in item)
                rest.extend(item.values())
            case list() | tuple():
                rest.extend(item)
            case str():
                size += size_of_text(item) + sum(map(item.count, _ESCAPED))
            case _:
                size += len(str(item))
    return size


def _message_tokens(parts: Iterable[object]) -> int:
    return sum(map(_part_tokens, parts))


def _part_tokens(part: object) -> int:
    match part:
        case Image():
            return TOKENS_PER_IMAGE
        case Text(text) | Reasoning(text):
            return _tokens(size_of_text(text))
        case ToolCall(name=name, arguments=arguments):
            return _tokens(size_of_text(name) + size_of_json(arguments))
        case ToolResult(content=content, images=images):
            return _tokens(size_of_text(content)) + len(images) * TOKENS_PER_IMAGE
        case _:
            return 0


def _tokens(size: int) -> int:
    return -(-size // BYTES_PER_TOKEN)
