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


def openai_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    """The vendor's counts; None where nothing was counted.

    Most servers count the cache among the prompt's tokens and reasoning among the completion's; some leave
    one of them out, and name it only beside a total that has it. What is left out is what explains the total
    exactly (see `_left_out`). What nobody explains of the total is input, which is the cheaper one, unless the
    server says nothing of reasoning: then the model thought and hid it, as Gemini does at its compatible address.
    """
    if not usage:
        return None
    prompt = count_of(usage, "prompt_tokens") or count_of(usage, "input_tokens")
    completion = count_of(usage, "completion_tokens") or count_of(usage, "output_tokens")
    if not prompt and not completion:
        return None
    read = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    made = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    cached = count_of(read, "cached_tokens") or max(count_of(usage, name) for name in _CACHED)
    written = count_of(read, "cache_write_tokens") or count_of(usage, "cache_creation_input_tokens")
    reasoning = count_of(made, "reasoning_tokens") or count_of(usage, "reasoning_tokens")
    rest = max(count_of(usage, "total_tokens") - prompt - completion, 0)
    more_read, more_made = _left_out((prompt, cached, written), (completion, reasoning), rest)
    unexplained = max(rest - more_read - more_made, 0)
    says_reasoning = isinstance(made, Mapping) and made.get("reasoning_tokens") is not None
    if not prompt or (completion and says_reasoning):
        more_read += unexplained
    else:
        more_made += unexplained
    whole = prompt + more_read
    cached = min(cached, whole)
    return Usage(
        input_tokens=whole,
        output_tokens=completion + more_made,
        cached_input_tokens=cached,
        cache_write_tokens=min(written, whole - cached),
        reasoning_tokens=reasoning,
    )


_CACHED = ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")


def _left_out(read: tuple[int, int, int], made: tuple[int, int], rest: int) -> tuple[int, int]:
    """How many tokens of the cache the prompt's count leaves out, and of reasoning the completion's.

    Each is left out whole or not at all. The first that explains the rest of the total exactly counts, else the
    least with which no part is larger than its whole; what was written into the cache goes with what was read
    from it, where there is so much. Without a rest the prompt's count stands as it is.
    """
    prompt, cached, written = read
    completion, reasoning = made
    possible = [
        (more_read, more_made)
        for more_read in ((0, cached, cached + written, written) if rest else (0,))
        for more_made in (0, reasoning)
        if (not rest or max(cached, written) <= prompt + more_read) and reasoning <= completion + more_made
    ]
    if exact := [one for one in possible if sum(one) == rest]:
        return exact[0]
    more_read, more_made = min(possible)
    both = cached + written
    return (both if more_read and both <= rest else more_read), more_made
