"""Replies in the words of OpenAI's two protocols, Chat Completions and Responses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import FinishReason, Text, ToolCall, Usage
from tests.doubles import responses_stream
from tests.doubles.responses_stream import pieces
from tests.doubles.vendor_nouns import ID, MODEL, NOISE, Thought, VendorReply, arguments_text, event_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

# Chat Completions: https://platform.openai.com/docs/api-reference/chat-streaming

_CHAT_FINISH = {
    FinishReason.STOP: "stop",
    FinishReason.TOOL_CALLS: "tool_calls",
    FinishReason.LENGTH: "length",
    FinishReason.CONTENT_FILTER: "content_filter",
    FinishReason.REFUSAL: "stop",
}


def _chat_usage(usage: Usage) -> dict[str, Any]:
    read = {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": read,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def _chat_call(call: ToolCall, arguments: str) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def whole_chat(reply: VendorReply) -> dict[str, Any]:
    """A whole reply of Chat Completions."""
    refused = reply.reason is FinishReason.REFUSAL
    said = "".join(part.text for part in reply.parts if isinstance(part, Text)) or None
    message: dict[str, Any] = {"role": "assistant", "content": None if refused else said}
    message["refusal"] = said if refused else None
    if thoughts := "".join(part.text for part in reply.parts if isinstance(part, Thought)):
        message["reasoning_content"] = thoughts
    if calls := [part for part in reply.parts if isinstance(part, ToolCall)]:
        message["tool_calls"] = [_chat_call(call, arguments_text(call)) for call in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _CHAT_FINISH[reply.reason]}
    about = {"id": ID, "object": "chat.completion", "created": 0, "model": MODEL}
    return {**about, "choices": [choice], "usage": _chat_usage(reply.usage)}


def stream_chat(reply: VendorReply) -> Iterator[bytes]:
    """The events of a stream of Chat Completions."""
    about = {"id": ID, "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    noise = NOISE if reply.noise else {}
    spoken = dict.fromkeys(noise, "not for the reader")  # the vendor's parser joins what is in deltas

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {**delta, **spoken}, "logprobs": None, "finish_reason": finish}
        return event_bytes({**about, "choices": [choice], **noise})

    if reply.noise:
        yield b": keep-alive\n\n"
    yield chunk({"role": "assistant", "content": ""})
    for delta in _chat_deltas(reply):
        yield chunk(delta)
    yield chunk({}, _CHAT_FINISH[reply.reason])
    yield event_bytes({**about, "choices": [], "usage": _chat_usage(reply.usage), **noise})
    yield b"data: [DONE]\n\n"


def _chat_deltas(reply: VendorReply) -> Iterator[dict[str, Any]]:
    number = -1
    spoken = "refusal" if reply.reason is FinishReason.REFUSAL else "content"
    for part in reply.parts:
        if isinstance(part, ToolCall):
            number += 1
            yield {"tool_calls": [{"index": number, **_chat_call(part, "")}]}
            for piece in pieces(arguments_text(part)):
                yield {"tool_calls": [{"index": number, "function": {"arguments": piece}}]}
            continue
        for piece in pieces(part.text):
            yield {"reasoning_content" if isinstance(part, Thought) else spoken: piece}


# Responses: the events are made by `responses_stream`.

_RESPONSES_ENDS: dict[FinishReason, tuple[str, dict[str, str] | None]] = {
    FinishReason.STOP: ("completed", None),
    FinishReason.TOOL_CALLS: ("completed", None),
    FinishReason.REFUSAL: ("completed", None),
    FinishReason.LENGTH: ("incomplete", {"reason": "max_output_tokens"}),
    FinishReason.CONTENT_FILTER: ("incomplete", {"reason": "content_filter"}),
}


def _responses_items(reply: VendorReply) -> Iterator[dict[str, Any]]:
    for number, part in enumerate(reply.parts):
        if isinstance(part, Thought):
            item = responses_stream.reasoning(part.text, encrypted=part.signature or None, number=number)
        elif isinstance(part, ToolCall):
            item = responses_stream.call(part.name, arguments_text(part), number=number) | {
                "call_id": part.id
            }
        else:
            refused = reply.reason is FinishReason.REFUSAL
            item = responses_stream.message(part.text, number=number, refusal=refused)
        yield {**item, **(NOISE if reply.noise else {})}


def _responses_end(reply: VendorReply) -> dict[str, Any]:
    usage = _chat_usage(reply.usage)
    counts = {
        "input_tokens": usage["prompt_tokens"],
        "input_tokens_details": usage["prompt_tokens_details"],
        "output_tokens": usage["completion_tokens"],
        "output_tokens_details": usage["completion_tokens_details"],
        "total_tokens": usage["total_tokens"],
    }
    status, details = _RESPONSES_ENDS[reply.reason]
    return {"status": status, "incomplete_details": details, "usage": counts, "id": ID, "model": MODEL}


def whole_responses(reply: VendorReply) -> dict[str, Any]:
    """A whole reply of Responses."""
    return responses_stream.whole(list(_responses_items(reply)), **_responses_end(reply))


def stream_responses(reply: VendorReply) -> Iterator[bytes]:
    """The events of a stream of Responses."""
    noise = NOISE if reply.noise else {}
    for event in responses_stream.events(list(_responses_items(reply)), **_responses_end(reply)):
        if reply.noise and event["type"] != "response.created":  # the vendor's parser wants that one first
            yield event_bytes(
                {"type": "response.newest.delta", "delta": "not for the reader"}, "response.newest.delta"
            )
        yield event_bytes({**event, **noise}, event["type"])
