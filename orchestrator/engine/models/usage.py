"""Token counts of requests and replies, reported or estimated, and who pays for requests outside of a conversation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.core.messages import Image, Reasoning, Text, ToolCall, ToolResult, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.core.messages import JsonObject, Message
    from orchestrator.engine.models.base import Request

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
        counted: the server's counts.
        request: the request.
        reply: the reply.
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
    ), False


def estimated_usage(request: Request, reply: Message) -> Usage:
    """Estimate an upper bound of the tokens by the length of the text."""
    schema = request.output_schema.schema if request.output_schema else {}
    tools = sum(
        size_of_text(tool.name) + size_of_text(tool.description) + size_of_json(tool.parameters)
        for tool in request.tools
    )
    written = _tokens(size_of_text(request.system) + tools + size_of_json(schema))
    prompt = written + sum(_message_tokens(message.parts) for message in request.messages)
    return Usage(input_tokens=prompt, output_tokens=_message_tokens(reply.parts))


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
    """Return the vendor's counts; None if nothing was counted.

    Most servers include cached tokens in the prompt's count and reasoning in the completion's. Some omit one
    of them and report it only as a part of the total. The omitted part is the one that explains the total
    exactly (see `_uncounted_tokens`). The rest of the total counts as input, which is cheaper. If the server
    does not report reasoning, the rest counts as output instead: then the model has hidden reasoning, as
    Gemini's at its compatible address.
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
    more_read, more_made = _uncounted_tokens((prompt, cached, written), (completion, reasoning), rest)
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


def _uncounted_tokens(read: tuple[int, int, int], made: tuple[int, int], rest: int) -> tuple[int, int]:
    """Return the cached tokens missing in the prompt's count, and reasoning missing in the completion's.

    Each is missing entirely or not at all. The first combination that explains the rest of the total exactly
    counts, or else the smallest one with which no part exceeds its whole. Tokens written to the cache are
    added to those read from it if the rest is large enough. Without a rest the prompt's count is used
    unchanged.
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
