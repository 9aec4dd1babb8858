"""Replies in the words of Anthropic Messages and of Gemini's generateContent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import FinishReason, Text, ToolCall, Usage
from orchestrator.engine.models.base import invalid_arguments
from tests.doubles.responses_stream import pieces
from tests.doubles.vendor_nouns import (
    ID,
    MODEL,
    NOISE,
    Thought,
    VendorPart,
    VendorReply,
    arguments_text,
    event_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Messages: https://docs.anthropic.com/en/docs/build-with-claude/streaming

_MESSAGES_FINISH = {
    FinishReason.STOP: "end_turn",
    FinishReason.TOOL_CALLS: "tool_use",
    FinishReason.LENGTH: "max_tokens",
    FinishReason.REFUSAL: "refusal",
    FinishReason.PAUSE: "pause_turn",
}


def _messages_usage(usage: Usage) -> dict[str, Any]:
    return {
        "input_tokens": usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens,
        "cache_read_input_tokens": usage.cached_input_tokens,
        "cache_creation_input_tokens": usage.cache_write_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
    }


def _messages_block(part: VendorPart) -> dict[str, Any]:
    if isinstance(part, Thought):
        return {"type": "thinking", "thinking": part.text, "signature": part.signature}
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    # A document has arguments as an object: of a cut call it has none.
    given = {} if invalid_arguments(part) is not None else dict(part.arguments)
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": given}


def whole_messages(reply: VendorReply) -> dict[str, Any]:
    """A whole reply of Anthropic Messages."""
    noise = NOISE if reply.noise else {}
    return {
        "id": ID,
        "type": "message",
        "role": "assistant",
        "model": MODEL,
        "content": [{**_messages_block(part), **noise} for part in reply.parts],
        "stop_reason": _MESSAGES_FINISH[reply.reason],
        "stop_sequence": None,
        "usage": _messages_usage(reply.usage),
    }


def stream_messages(reply: VendorReply) -> Iterator[bytes]:
    """The events of a stream of Anthropic Messages."""
    for value in _messages_events(reply):
        if reply.noise and value["type"] != "message_start":
            yield event_bytes({"type": "newest_event", "text": "not for the reader"}, "newest_event")
        yield event_bytes({**value, **(NOISE if reply.noise else {})}, value["type"])


def _messages_events(reply: VendorReply) -> Iterator[dict[str, Any]]:
    usage = _messages_usage(reply.usage)
    begun = {**whole_messages(reply), "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": {**begun, "usage": {**usage, "output_tokens": 1}}}
    for index, part in enumerate(reply.parts):
        emptied = {name: type(value)() for name, value in _messages_block(part).items()}
        kept = {
            name: value for name, value in _messages_block(part).items() if name in {"type", "id", "name"}
        }
        yield {"type": "content_block_start", "index": index, "content_block": {**emptied, **kept}}
        for delta in _messages_deltas(part):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": _MESSAGES_FINISH[reply.reason], "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": usage}
    yield {"type": "message_stop"}


def _messages_deltas(part: VendorPart) -> Iterator[dict[str, Any]]:
    if isinstance(part, ToolCall):
        for piece in pieces(arguments_text(part)) if part.arguments else [""]:
            yield {"type": "input_json_delta", "partial_json": piece}
        return
    kind = "thinking" if isinstance(part, Thought) else "text"
    for piece in pieces(part.text):
        yield {"type": f"{kind}_delta", kind: piece}
    if isinstance(part, Thought) and part.signature:
        yield {"type": "signature_delta", "signature": part.signature}


# Gemini: https://ai.google.dev/api/generate-content

_GEMINI_FINISH = {
    FinishReason.STOP: "STOP",
    FinishReason.TOOL_CALLS: "STOP",
    FinishReason.LENGTH: "MAX_TOKENS",
    FinishReason.CONTENT_FILTER: "SAFETY",
}


def _gemini_parts(parts: Iterable[VendorPart]) -> Iterator[dict[str, Any]]:
    """A thought's signature is on the part that follows it."""
    signature = ""
    for part in parts:
        if isinstance(part, Thought):
            signature = part.signature
            yield {"text": part.text, "thought": True}
            continue
        signed = {"thoughtSignature": signature} if signature else {}
        signature = ""
        if isinstance(part, Text):
            yield {"text": part.text, **signed}
        elif invalid_arguments(part) is None:  # calls are whole in this protocol: a cut one is not sent
            call = {"id": part.id, "name": part.name, "args": dict(part.arguments)}
            yield {"functionCall": call, **signed}


def _gemini_chunk(reply: VendorReply, parts: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    usage = reply.usage
    counts = {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cached_input_tokens,
        "candidatesTokenCount": usage.output_tokens - usage.reasoning_tokens,
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.total_tokens,
    }
    noise = NOISE if reply.noise else {}
    candidate = {"content": {"parts": parts, "role": "model", **noise}, "index": 0, **more, **noise}
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": MODEL,
        "responseId": ID,
        **noise,
    }


def whole_gemini(reply: VendorReply) -> dict[str, Any]:
    """A whole reply of generateContent."""
    return _gemini_chunk(reply, list(_gemini_parts(reply.parts)), finishReason=_GEMINI_FINISH[reply.reason])


def stream_gemini(reply: VendorReply) -> Iterator[bytes]:
    """The events of a stream of generateContent."""
    for part in _gemini_parts(reply.parts):
        if reply.noise:
            yield event_bytes({**_gemini_chunk(reply, []), "candidates": None})
        # A signed text is one part; others come in pieces.
        whole = "text" not in part or "thoughtSignature" in part
        for piece in [part] if whole else [{**part, "text": text} for text in pieces(part["text"])]:
            yield event_bytes(_gemini_chunk(reply, [piece]))
    yield event_bytes(_gemini_chunk(reply, [{"text": ""}], finishReason=_GEMINI_FINISH[reply.reason]))
