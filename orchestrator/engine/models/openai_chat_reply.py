"""Chat Completions, the receiving half: whole replies and streams, from the vendor and from compatibles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConnectionFailedError, OverloadedError, ProviderError
from orchestrator.core.messages import FinishReason, Message, Reasoning, Role, Text, ToolCall, Usage
from orchestrator.engine.models.base import CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.openai_chat_calls import CallPieces
from orchestrator.engine.models.thinking import ThinkSplitter
from orchestrator.engine.models.usage import count_of, counted_or_estimated
from orchestrator.engine.models.wire import dicts, read_event, read_reply, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.core.messages import Part
    from orchestrator.engine.models.base import Piece, Request

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
        self._details = _Details()
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
        repeats = self._has_choice
        for choice in self._meant(dicts(chunk.get("choices"))):
            usage = usage or choice.get("usage")
            pieces += self._take_choice(choice, repeats=repeats)
        self._usage = usage if isinstance(usage, dict) else self._usage
        return pieces

    def _meant(self, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The choices that are the reply: one is asked for, so a lone one is meant whatever its index.

        Some servers count chunks or calls there (z.ai in October 2025), others split one reply into several
        choices without an index.
        """
        number = self._request.provider_options.get("openai", {}).get("n") or 1
        if len(choices) == 1 and number == 1:
            return choices
        first = [choice for choice in choices if choice.get("index") in (None, 0)]
        if first or number != 1:
            return first
        return [choice for choice in choices if choice.get("index") == choices[0].get("index")]

    def _take_choice(self, choice: Mapping[str, Any], *, repeats: bool) -> list[Piece]:
        finish = text_of(choice.get("finish_reason"))
        if choice.get("error"):
            raise error_in_reply(choice, self._where)
        if finish in _BUSY_FINISHES:
            raise OverloadedError(f"{self._where} stopped in the middle of its reply: {finish}")
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            # A whole message; in a stream some servers repeat it at the end.
            message = choice.get("message")
            delta = message if isinstance(message, dict) and not repeats else {}
            made = self._calls.take_whole(delta)
        else:
            made = self._calls.take(delta)
        self._has_choice = True
        pieces = [*self._take_text(delta), *([CallPiece(made)] if made else [])]
        # What goes on after a finish reason needs another one, or the end mark.
        self._finish = finish or (None if pieces else self._finish)
        return pieces

    def _take_text(self, delta: Mapping[str, Any]) -> list[Piece]:
        pieces: list[Piece] = []
        for name in ("reasoning_content", "reasoning"):
            thought = delta.get(name)
            if isinstance(thought, str) and thought:
                self._opaque.setdefault(REASONING_FIELD, name)
                pieces.append(ReasoningPiece(thought))
                break  # some servers send the same words under both names
        self._details.take(delta.get("reasoning_details"))
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
        opaque = {**self._opaque, **({EXTRA_CONTENT: extras} if extras else {})}
        if details := self._details.joined():
            opaque[REASONING_DETAILS] = details
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


def _is_error(value: Mapping[str, Any]) -> bool:
    """Whether it is an error, in the forms of OpenAI, vLLM, MiniMax and z.ai."""
    status = value.get("base_resp")
    if isinstance(status, dict) and status.get("status_code") and not value.get("choices"):
        return True
    failed = value.get("success") is False and not value.get("choices")
    return bool(value.get("error")) or value.get("object") == "error" or failed


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


@dataclass(slots=True)
class _Details:
    """OpenRouter's reasoning details, whose texts arrive in pieces."""

    listed: list[tuple[dict[str, Any], dict[str, list[str]]]] = field(default_factory=list)

    def take(self, details: object) -> None:
        for detail in dicts(details):
            last, texts = self.listed[-1] if self.listed else ({}, {})
            if not last or any(last.get(key) != detail.get(key) for key in ("type", "index")):
                last, texts = {}, {}
                self.listed.append((last, texts))
            for key, value in detail.items():
                if key in _GROWING and isinstance(value, str):
                    texts.setdefault(key, []).append(value)
                    last[key] = ""
                elif value is not None or key not in last:
                    last[key] = value

    def joined(self) -> list[dict[str, Any]]:
        return [{**last, **{key: "".join(texts[key]) for key in texts}} for last, texts in self.listed]


_GROWING = frozenset({"text", "summary", "data"})
