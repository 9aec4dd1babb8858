"""The vendors' own parsers as oracles: what they make of the bytes of a reply, in one form for all."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httpx2

from orchestrator.core.messages import Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.base import invalid_arguments
from tests.doubles.vendor_replies import Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.engine.models.base import Response

CUT = "cut"
"""Stands for the arguments of a call that has no end: each vendor makes something else of them."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a parser saw in a reply. A call is its id, its name, and its arguments."""

    thoughts: str
    text: str
    calls: tuple[tuple[str, str, Any], ...]
    usage: Usage
    model: str
    id: str


def seen_by_us(response: Response) -> Seen:
    """The same of what our decoder made."""
    parts = response.message.parts
    calls = [part for part in parts if isinstance(part, ToolCall)]
    return Seen(
        thoughts="".join(part.text for part in parts if isinstance(part, Reasoning)),
        text="".join(part.text for part in parts if isinstance(part, Text)),
        calls=tuple((call.id, call.name, _ours(call)) for call in calls),
        usage=response.usage,
        model=response.model,
        id=response.id or "",
    )


def _ours(call: ToolCall) -> Any:
    return CUT if invalid_arguments(call) is not None else dict(call.arguments)


def seen_by_vendor(protocol: Protocol, raw: bytes, *, stream: bool) -> Seen:
    """Let the vendor's package read the body of a reply."""
    kind = "text/event-stream" if stream else "application/json"

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": kind}, content=raw)

    with httpx2.Client(transport=httpx2.MockTransport(answer)) as http:
        match protocol:
            case Protocol.CHAT:
                return _chat(http, stream=stream)
            case Protocol.RESPONSES:
                return _responses(http, stream=stream)
            case Protocol.MESSAGES:
                return _messages(http, stream=stream)
            case Protocol.GEMINI:
                return _gemini(http, stream=stream)


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return CUT


def _openai(http: httpx2.Client) -> Any:
    import openai

    return openai.OpenAI(api_key="made-up", base_url="http://vendor/v1", max_retries=0, http_client=http)


def _chat(http: httpx2.Client, *, stream: bool) -> Seen:
    import openai

    api = _openai(http).chat.completions
    if stream:
        with api.stream(model="m", messages=[]) as events:
            # At a cut or filtered reply it raises, and has it all the same.
            with suppress(openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError):
                events.until_done()
            whole = events.current_completion_snapshot
    else:
        whole = api.create(model="m", messages=[])
    message, usage = whole.choices[0].message, whole.usage
    return Seen(
        thoughts=(message.model_extra or {}).get("reasoning_content") or "",
        text=(message.content or "") + (message.refusal or ""),
        calls=tuple(
            (call.id, call.function.name, _parsed(call.function.arguments))
            for call in message.tool_calls or ()
        ),
        usage=Usage(
            usage.prompt_tokens,
            usage.completion_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.prompt_tokens_details.cache_write_tokens,
            usage.completion_tokens_details.reasoning_tokens,
        ),
        model=whole.model,
        id=whole.id,
    )


def _responses(http: httpx2.Client, *, stream: bool) -> Seen:
    api = _openai(http).responses
    if stream:
        ended = [
            event for event in api.create(model="m", input="", stream=True) if hasattr(event, "response")
        ]
        whole = ended[-1].response
    else:
        whole = api.create(model="m", input="")
    items = whole.output
    parts = [part for item in items if item.type == "message" for part in item.content]
    usage = whole.usage
    return Seen(
        thoughts="".join(part.text for item in items if item.type == "reasoning" for part in item.summary),
        text="".join(part.refusal if part.type == "refusal" else part.text for part in parts),
        calls=tuple(
            (item.call_id, item.name, _parsed(item.arguments))
            for item in items
            if item.type == "function_call"
        ),
        usage=Usage(
            usage.input_tokens,
            usage.output_tokens,
            usage.input_tokens_details.cached_tokens,
            usage.input_tokens_details.cache_write_tokens,
            usage.output_tokens_details.reasoning_tokens,
        ),
        model=whole.model,
        id=whole.id,
    )


def _messages(http: httpx2.Client, *, stream: bool) -> Seen:
    import anthropic

    vendor = anthropic.Anthropic(api_key="made-up", base_url="http://vendor", max_retries=0, http_client=http)
    whole: Any
    if stream:
        with vendor.messages.stream(model="m", max_tokens=1, messages=[]) as events:
            whole = events.get_final_message()
    else:
        whole = vendor.messages.create(model="m", max_tokens=1, messages=[])
    blocks, usage = whole.content, whole.usage
    read, written = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    cut = whole.stop_reason == "max_tokens"  # it completes what was cut off; we do not run half a call
    return Seen(
        thoughts="".join(block.thinking for block in blocks if block.type == "thinking"),
        text="".join(block.text for block in blocks if block.type == "text"),
        calls=tuple(
            (block.id, block.name, CUT if cut and block is blocks[-1] else block.input)
            for block in blocks
            if block.type == "tool_use"
        ),
        usage=Usage(
            usage.input_tokens + read + written,
            usage.output_tokens,
            read,
            written,
            usage.output_tokens_details.thinking_tokens,
        ),
        model=whole.model,
        id=whole.id,
    )


def _gemini(http: httpx2.Client, *, stream: bool) -> Seen:
    from google import genai
    from google.genai import types

    options = types.HttpOptions(httpx_client=http, api_version="v1beta")
    api = genai.Client(api_key="made-up", http_options=options).models
    chunks: list[Any]
    if stream:
        chunks = list(api.generate_content_stream(model="m", contents="x"))
    else:
        chunks = [api.generate_content(model="m", contents="x")]
    parts = list(_gemini_parts(chunks))
    calls = [part.function_call for part in parts if part.function_call]
    usage, last = chunks[-1].usage_metadata, chunks[-1]
    thought = usage.thoughts_token_count or 0
    return Seen(
        thoughts="".join(part.text or "" for part in parts if part.thought),
        text="".join(part.text or "" for part in parts if not part.thought),
        calls=tuple((call.id, call.name, call.args or {}) for call in calls),
        usage=Usage(
            usage.prompt_token_count,
            (usage.candidates_token_count or 0) + thought,
            usage.cached_content_token_count or 0,
            0,
            thought,
        ),
        model=last.model_version,
        id=last.response_id,
    )


def _gemini_parts(chunks: Iterable[Any]) -> Iterable[Any]:
    for chunk in chunks:
        for candidate in chunk.candidates or ():
            if candidate.content:
                yield from candidate.content.parts or ()
