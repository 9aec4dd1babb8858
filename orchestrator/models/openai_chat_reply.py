"""Chat Completions, the receiving half: whole replies and streams, from the vendor and from compatibles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConnectionFailedError, OverloadedError, ProviderError
from orchestrator.core.messages import FinishReason, Message, Reasoning, Role, Text, ToolCall, Usage
from orchestrator.models.base import CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.models.failures import error_in_reply
from orchestrator.models.openai_chat_calls import CallPieces
from orchestrator.models.thinking import ThinkSplitter
from orchestrator.models.usage import count_of, counted_or_estimated
from orchestrator.models.wire import dicts, read_event, read_reply, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.core.messages import Part
    from orchestrator.models.base import Piece, Request

# Keys of `Reasoning.opaque`: what `openai_chat` gives back with the next request.
REASONING_FIELD = "field"  # the name of the field that the text came in
REASONING_DETAILS = "reasoning_details"  # OpenRouter's list, signatures included
EXTRA_CONTENT = "extra_content"  # Gemini's thought signatures, by the id of the call

_FINISH = {
    "stop": FinishReason.STOP,
    "eos": FinishReason.STOP,
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "tool_use": FinishReason.TOOL_CALLS,
    "function_call": FinishReason.TOOL_CALLS,
    "content_filter": FinishReason.CONTENT_FILTER,
    "refusal": FinishReason.REFUSAL,
    "pause_turn": FinishReason.PAUSE,
}
_BUSY_FINISHES = {"insufficient_system_resource", "error"}


class ChatDecoder:
    """Reads one streamed reply."""

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        self.done = False
        self._request = request
        self._where = where
        self._model = model
        self._id: str | None = None
        self._finish: str | None = None
        self._usage: Mapping[str, Any] | None = None
        self._has_choice = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._opaque: dict[str, Any] = {}
        self._calls = CallPieces()
        self._splitter = ThinkSplitter()

    def feed(self, event: str, data: str) -> list[Piece]:
        """Take one server-sent event.

        Raises:
            ModelError: the event is an error, or no JSON.
        """
        if self.done or not data.strip():
            return []
        if data.strip() == "[DONE]":
            self.done = True
            return []
        chunk = read_event(data, self._where)
        if not isinstance(chunk, dict):
            return []
        if event == "error" or _is_error(chunk):
            if self._finish:
                return []  # the reply is complete; some servers add a note about its length as an error
            raise error_in_reply(chunk, self._where)
        return self.take(chunk)

    def take(self, chunk: Mapping[str, Any]) -> list[Piece]:
        """Add a chunk of a stream, or a whole reply."""
        self._id = text_of(chunk.get("id")) or self._id
        self._model = text_of(chunk.get("model")) or self._model
        groq = chunk.get("x_groq")
        usage = chunk.get("usage") or (groq.get("usage") if isinstance(groq, dict) else None)
        pieces: list[Piece] = []
        for choice in dicts(chunk.get("choices")):
            if choice.get("index", 0) not in (None, 0):
                continue
            usage = usage or choice.get("usage")
            pieces += self._take_choice(choice)
        self._usage = usage if isinstance(usage, dict) else self._usage
        return pieces

    def _take_choice(self, choice: Mapping[str, Any]) -> list[Piece]:
        finish = text_of(choice.get("finish_reason"))
        if choice.get("error"):
            raise error_in_reply(choice, self._where)
        if finish in _BUSY_FINISHES:
            raise OverloadedError(f"{self._where} stopped in the middle of its reply: {finish}")
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            # A whole message; in a stream some servers repeat it at the end.
            message = choice.get("message")
            delta = message if isinstance(message, dict) and not self._has_choice else {}
            made = self._calls.take_whole(delta)
        else:
            made = self._calls.take(delta)
        self._has_choice = True
        self._finish = finish or self._finish
        return [*self._take_text(delta), *([CallPiece(made)] if made else [])]

    def _take_text(self, delta: Mapping[str, Any]) -> list[Piece]:
        pieces: list[Piece] = []
        for name in ("reasoning_content", "reasoning"):
            thought = delta.get(name)
            if isinstance(thought, str) and thought:
                self._opaque.setdefault(REASONING_FIELD, name)
                pieces.append(ReasoningPiece(thought))
                break  # some servers send the same words under both names
        _merge_details(self._opaque, delta.get("reasoning_details"))
        for piece in _content_pieces(delta.get("content")):
            pieces += self._splitter.feed(piece.text) if isinstance(piece, TextPiece) else [piece]
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal.append(refusal)
            pieces.append(TextPiece(refusal))
        self._keep(pieces)
        return pieces

    def _keep(self, pieces: list[Piece]) -> None:
        for piece in pieces:
            (self._text if isinstance(piece, TextPiece) else self._reasoning).append(piece.text)

    def finish(self) -> tuple[list[Piece], Response]:
        """What was held back, and the whole reply.

        Raises:
            ConnectionFailedError: there was neither a finish reason nor the end mark.
        """
        if not self._has_choice or not (self._finish or self.done):
            raise ConnectionFailedError(f"{self._where} ended its stream in the middle of the reply")
        held = self._splitter.finish()
        self._keep(held)
        message = Message(Role.ASSISTANT, tuple(self._parts()))
        usage, is_counted = counted_or_estimated(read_usage(self._usage), self._request, message)
        reason = self._finish_reason(message)
        return held, Response(message, reason, usage, self._model, self._id, is_counted)

    def _parts(self) -> Iterator[Part]:
        calls, extras = self._calls.finish(self._id)
        opaque = {**self._opaque, EXTRA_CONTENT: extras} if extras else self._opaque
        reasoning = "".join(self._reasoning)
        if reasoning or opaque:
            yield Reasoning(reasoning, opaque)
        if text := "".join(self._text):
            yield Text(text)
        yield from calls

    def _finish_reason(self, message: Message) -> FinishReason:
        # A whole reply, or a stream with its end mark, may lack the reason and is complete all the same.
        finish = _FINISH.get(self._finish or "stop", FinishReason.OTHER)
        complete = finish in {FinishReason.STOP, FinishReason.OTHER}
        if complete and any(isinstance(part, ToolCall) for part in message.parts):
            return FinishReason.TOOL_CALLS
        if complete and self._refusal:
            return FinishReason.REFUSAL
        return finish


def decode_reply(body: bytes, request: Request, *, model: str, where: str) -> Response:
    """Read a whole reply.

    Raises:
        ModelError: the body is an error, or no reply.
    """
    value = read_reply(body, where)
    if _is_error(value):
        raise error_in_reply(value, where)
    if not dicts(value.get("choices")):
        raise ProviderError(f"{where} answered without a reply in it (no choices); check the API address")
    decoder = ChatDecoder(request, model=model, where=where)
    decoder.take(value)
    decoder.done = True
    return decoder.finish()[1]


def read_usage(usage: Mapping[str, Any] | None) -> Usage | None:
    """The vendor's counts; None where nothing was counted.

    Some servers leave reasoning out of `completion_tokens` and in `total_tokens`: the total decides. Where it
    does not and there was more reasoning than completion, it was left out of both.
    """
    if not usage:
        return None
    prompt, completion = count_of(usage, "prompt_tokens"), count_of(usage, "completion_tokens")
    if not prompt and not completion:
        return None
    read, made = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = count_of(read, "cached_tokens") or max(
        count_of(usage, name) for name in ("cached_tokens", "num_cached_tokens", "prompt_cache_hit_tokens")
    )
    reasoning = count_of(made, "reasoning_tokens")
    output = max(completion, count_of(usage, "total_tokens") - prompt)
    cached = min(cached, prompt)
    return Usage(
        input_tokens=prompt,
        output_tokens=output if output >= reasoning else output + reasoning,
        cached_input_tokens=cached,
        cache_write_tokens=min(count_of(read, "cache_write_tokens"), prompt - cached),
        reasoning_tokens=reasoning,
    )


def _is_error(value: Mapping[str, Any]) -> bool:
    return bool(value.get("error")) or value.get("object") == "error"


def _content_pieces(content: object) -> Iterator[Piece]:
    """Text is a string, or a list of parts, some of which may be thoughts (as Mistral sends them)."""
    if isinstance(content, str) and content:
        yield TextPiece(content)
    for part in dicts(content):
        thoughts = part.get("thinking")
        if isinstance(thoughts, str):
            yield ReasoningPiece(thoughts)
        for thought in dicts(thoughts):
            yield ReasoningPiece(str(thought.get("text") or ""))
        if part.get("text"):
            yield TextPiece(str(part["text"]))


def _merge_details(opaque: dict[str, Any], details: object) -> None:
    """Join OpenRouter's reasoning details, whose texts arrive in pieces."""
    for detail in dicts(details):
        known = opaque.setdefault(REASONING_DETAILS, [])
        last = known[-1] if known else {}
        if not known or any(last.get(key) != detail.get(key) for key in ("type", "index")):
            known.append(dict(detail))
            continue
        for key, value in detail.items():
            grows = key in {"text", "summary", "data"} and isinstance(value, str)
            if value is not None:
                last[key] = text_of(last.get(key)) + value if grows else value
