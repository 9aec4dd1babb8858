"""What a model says, once, in the words of each wire protocol: as a whole JSON document or as a stream.

::

    reply = VendorReply((Thought("Hm.", "c2ln"), Text("I read."), ToolCall("c1", "read_file", {"path": "a"})))
    with SseServer([sse_answer(render(Protocol.MESSAGES, reply))]) as server:
        ...

`render` gives the bytes of an event stream, `render_whole` those of a reply that is not streamed. Neither
looks at the request. A session is played by a list of replies, one for each request.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.messages import FinishReason, Text, ToolCall, Usage
from orchestrator.models.base import invalid_arguments
from tests.doubles import responses_stream
from tests.doubles.responses_stream import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MODEL = "scripted-1"
ID = "reply_1"
USAGE = Usage(input_tokens=100, output_tokens=20)
NOISE = {"never_seen_before": {"type": "text", "text": "not for the reader", "list": [1, None]}}
"""An unknown field, as a newer server has it."""


class Protocol(StrEnum):
    """The wire protocols that a reply can be rendered for."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning that the reader may see.

    Attributes:
        signature: base64, what the vendor wants back. Chat Completions has no place for it.
    """

    text: str
    signature: str = ""


VendorPart: TypeAlias = Thought | Text | ToolCall


@dataclass(frozen=True, slots=True)
class VendorReply:
    """One reply.

    Attributes:
        parts: in the order in which they are said. A call with `{INVALID_ARGUMENTS: text}` is
            rendered with that text as its arguments, where the protocol has arguments as text.
        finish: None is what the parts suggest. A protocol without a word for a reason raises `KeyError`.
        noise: put unknown fields and unknown events in between.
    """

    parts: tuple[VendorPart, ...]
    finish: FinishReason | None = None
    usage: Usage = USAGE
    noise: bool = False

    @property
    def reason(self) -> FinishReason:
        """Why it ends."""
        calls = any(isinstance(part, ToolCall) for part in self.parts)
        return self.finish or (FinishReason.TOOL_CALLS if calls else FinishReason.STOP)


def render(protocol: Protocol, reply: VendorReply) -> bytes:
    """The reply as the body of an event stream."""
    stream = {
        Protocol.CHAT: _chat_stream,
        Protocol.RESPONSES: _responses_stream,
        Protocol.MESSAGES: _messages_stream,
        Protocol.GEMINI: _gemini_stream,
    }
    return b"".join(stream[protocol](reply))


def render_whole(protocol: Protocol, reply: VendorReply) -> bytes:
    """The reply as the body of an answer that is not streamed."""
    whole = {
        Protocol.CHAT: _chat_whole,
        Protocol.RESPONSES: _responses_whole,
        Protocol.MESSAGES: _messages_whole,
        Protocol.GEMINI: _gemini_whole,
    }
    noise = NOISE if reply.noise else {}
    return _json({**whole[protocol](reply), **noise}).encode()


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _event(value: object, name: str = "") -> bytes:
    return f"{f'event: {name}' + chr(10) if name else ''}data: {_json(value)}\n\n".encode()


def _arguments(call: ToolCall) -> str:
    text = invalid_arguments(call)
    return _json(dict(call.arguments)) if text is None else text


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


def _chat_whole(reply: VendorReply) -> dict[str, Any]:
    refused = reply.reason is FinishReason.REFUSAL
    said = "".join(part.text for part in reply.parts if isinstance(part, Text)) or None
    message: dict[str, Any] = {"role": "assistant", "content": None if refused else said}
    message["refusal"] = said if refused else None
    if thoughts := "".join(part.text for part in reply.parts if isinstance(part, Thought)):
        message["reasoning_content"] = thoughts
    if calls := [part for part in reply.parts if isinstance(part, ToolCall)]:
        message["tool_calls"] = [_chat_call(call, _arguments(call)) for call in calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _CHAT_FINISH[reply.reason]}
    about = {"id": ID, "object": "chat.completion", "created": 0, "model": MODEL}
    return {**about, "choices": [choice], "usage": _chat_usage(reply.usage)}


def _chat_stream(reply: VendorReply) -> Iterator[bytes]:
    about = {"id": ID, "object": "chat.completion.chunk", "created": 0, "model": MODEL}
    noise = NOISE if reply.noise else {}

    def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": {**delta, **noise}, "logprobs": None, "finish_reason": finish}
        return _event({**about, "choices": [choice], **noise})

    if reply.noise:
        yield b": keep-alive\n\n"
    yield chunk({"role": "assistant", "content": ""})
    for delta in _chat_deltas(reply):
        yield chunk(delta)
    yield chunk({}, _CHAT_FINISH[reply.reason])
    yield _event({**about, "choices": [], "usage": _chat_usage(reply.usage), **noise})
    yield b"data: [DONE]\n\n"


def _chat_deltas(reply: VendorReply) -> Iterator[dict[str, Any]]:
    number = -1
    spoken = "refusal" if reply.reason is FinishReason.REFUSAL else "content"
    for part in reply.parts:
        if isinstance(part, ToolCall):
            number += 1
            yield {"tool_calls": [{"index": number, **_chat_call(part, "")}]}
            for piece in pieces(_arguments(part)):
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
            item = responses_stream.call(part.name, _arguments(part), number=number) | {"call_id": part.id}
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


def _responses_whole(reply: VendorReply) -> dict[str, Any]:
    return responses_stream.whole(list(_responses_items(reply)), **_responses_end(reply))


def _responses_stream(reply: VendorReply) -> Iterator[bytes]:
    noise = NOISE if reply.noise else {}
    for event in responses_stream.events(list(_responses_items(reply)), **_responses_end(reply)):
        if reply.noise and event["type"] != "response.created":  # the vendor's parser wants that one first
            yield _event(
                {"type": "response.newest.delta", "delta": "not for the reader"}, "response.newest.delta"
            )
        yield _event({**event, **noise}, event["type"])


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


def _messages_whole(reply: VendorReply) -> dict[str, Any]:
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


def _messages_stream(reply: VendorReply) -> Iterator[bytes]:
    for value in _messages_events(reply):
        if reply.noise and value["type"] != "message_start":
            yield _event({"type": "newest_event", "text": "not for the reader"}, "newest_event")
        yield _event({**value, **(NOISE if reply.noise else {})}, value["type"])


def _messages_events(reply: VendorReply) -> Iterator[dict[str, Any]]:
    usage = _messages_usage(reply.usage)
    begun = {**_messages_whole(reply), "content": [], "stop_reason": None}
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
        for piece in pieces(_arguments(part)) if part.arguments else [""]:
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


def _gemini_whole(reply: VendorReply) -> dict[str, Any]:
    return _gemini_chunk(reply, list(_gemini_parts(reply.parts)), finishReason=_GEMINI_FINISH[reply.reason])


def _gemini_stream(reply: VendorReply) -> Iterator[bytes]:
    for part in _gemini_parts(reply.parts):
        if reply.noise:
            yield _event({**_gemini_chunk(reply, []), "candidates": None})
        # A signed text is one part; others come in pieces.
        whole = "text" not in part or "thoughtSignature" in part
        for piece in [part] if whole else [{**part, "text": text} for text in pieces(part["text"])]:
            yield _event(_gemini_chunk(reply, [piece]))
    yield _event(_gemini_chunk(reply, [{"text": ""}], finishReason=_GEMINI_FINISH[reply.reason]))
