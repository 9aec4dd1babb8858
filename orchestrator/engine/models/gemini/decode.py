"""Gemini's generateContent: decodes whole replies and streams."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import (
    ContentFilterError,
    InvalidRequestError,
)
from orchestrator.core.messages import FinishReason, Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.base import CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.usage import count_of
from orchestrator.engine.models.wire import (
    ReplyDecoder,
    as_text,
    dicts,
    finish_with_calls,
    generated_id,
    read_arguments,
    read_event,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.core.messages import Part
    from orchestrator.engine.models.base import Piece, Request


OPAQUE = "gemini"
"""The key of `Reasoning.opaque` for this protocol's object, which has one of the next two keys."""
SIGNATURE = "signature"  # the thought signature of the text or call that follows
PART = "part"  # a part that is sent back unchanged: a signed thought, a search by the server

# https://ai.google.dev/api/generate-content#FinishReason
_FINISH = {
    "STOP": FinishReason.STOP,
    "MAX_TOKENS": FinishReason.LENGTH,
    "CONTINUATION": FinishReason.LENGTH,
    "SAFETY": FinishReason.CONTENT_FILTER,
    "RECITATION": FinishReason.CONTENT_FILTER,
    "LANGUAGE": FinishReason.CONTENT_FILTER,
    "BLOCKLIST": FinishReason.CONTENT_FILTER,
    "PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "SPII": FinishReason.CONTENT_FILTER,
    "IMAGE_SAFETY": FinishReason.CONTENT_FILTER,
    "IMAGE_PROHIBITED_CONTENT": FinishReason.CONTENT_FILTER,
    "IMAGE_RECITATION": FinishReason.CONTENT_FILTER,
    "MODEL_ARMOR": FinishReason.CONTENT_FILTER,
    "ESCALATION": FinishReason.CONTENT_FILTER,
    "PUP_LIMITED_DISABLED": FinishReason.CONTENT_FILTER,
}
_MISSING_SIGNATURE = "MISSING_THOUGHT_SIGNATURE"

# Parts that the server creates when it uses its own tools; it needs them back.
_SERVER_PARTS = ("toolCall", "toolResponse", "executableCode", "codeExecutionResult")


@dataclass(slots=True)
class _Run:
    """Consecutive pieces of one part, or one whole part.

    Attributes:
        call: the function call, if it is one.
        raw: the received part, if it is sent back unchanged.
    """

    is_thought: bool = False
    signature: str = ""
    texts: list[str] = field(default_factory=list)
    call: Mapping[str, Any] | None = None
    raw: Mapping[str, Any] | None = None

    @property
    def grows(self) -> bool:
        """Whether more text may be added: a signed part is never merged with another."""
        return not self.signature and self.call is None and self.raw is None


class GeminiDecoder(ReplyDecoder):
    """Decodes one reply.

    The protocol has no end mark, and more may follow a finish reason: a reply ends only with its stream.
    Content after a finish reason needs another finish reason; otherwise the stream was cut off.
    """

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        super().__init__(request, model=model, where=where)
        self._finish = ""
        self._usage: Mapping[str, Any] = {}
        self._has_candidate = False
        self._runs: list[_Run] = []

    def feed(self, event: str, data: str) -> list[Piece]:
        """Decode one server-sent event."""
        if not data.strip():
            return []
        chunk, known = read_event(data, self._where), len(self._runs)
        values = dicts(chunk if isinstance(chunk, list) else [chunk])
        pieces = [piece for value in values for piece in self._take_event(event, value)]
        has_call = any(run.call is not None for run in self._runs[known:])  # calls are not split
        return [*pieces, *([CallPiece(data)] if has_call else [])]

    def read(self, body: bytes) -> Response:
        """Decode a whole reply, or the JSON list of a stream without `alt=sse`."""
        if body.lstrip()[:1] != b"[":
            return super().read(body)
        self.feed("", body.decode("utf-8", "replace"))
        self._check()
        self.done = True
        return self.finish()[1]

    def _take_document(self, value: Mapping[str, Any]) -> None:
        self._take_event("", value)
        self._check()

    def _check(self) -> None:
        if not self._has_candidate:
            raise self._no_reply("without a reply in it (no candidates)")

    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        del event  # the vendor's events have no names
        if chunk.get("error"):
            if self._finish:
                return []  # the reply is complete
            raise error_in_reply(chunk, self._where)
        self._id = as_text(chunk.get("responseId")) or self._id
        self._model = as_text(chunk.get("modelVersion")) or self._model
        usage = chunk.get("usageMetadata")
        if isinstance(usage, dict) and usage:
            self._usage = usage  # each chunk has the totals so far
        candidates = [one for one in dicts(chunk.get("candidates")) if one.get("index") in (None, 0)]
        if not candidates:
            self._refuse_blocked(chunk.get("promptFeedback"))
        return [piece for candidate in candidates for piece in self._take_candidate(candidate)]

    def _refuse_blocked(self, feedback: object) -> None:
        reason = as_text(feedback.get("blockReason")) if isinstance(feedback, dict) else ""
        if reason and isinstance(feedback, dict):
            said = as_text(feedback.get("blockReasonMessage"))
            raise ContentFilterError(
                f"{self._where} refused the prompt: {': '.join(filter(None, (reason, said)))}"
            )

    def _take_candidate(self, candidate: Mapping[str, Any]) -> list[Piece]:
        self._has_candidate = True
        finish = as_text(candidate.get("finishReason"))
        if finish == _MISSING_SIGNATURE:
            raise InvalidRequestError(f"{self._where} refused the conversation: {finish}")
        content, known = candidate.get("content"), len(self._runs)
        parts = dicts(content.get("parts")) if isinstance(content, dict) else []
        pieces = [piece for part in parts for piece in self._take_part(part)]
        goes_on = bool(pieces) or len(self._runs) > known
        self._finish = finish or ("" if goes_on else self._finish)
        return pieces

    def _take_part(self, part: dict[str, Any]) -> list[Piece]:
        signature, text = as_text(part.get("thoughtSignature")), as_text(part.get("text"))
        is_thought = part.get("thought") is True
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._runs.append(_Run(signature=signature, call=call))
        elif any(name in part for name in _SERVER_PARTS) or (signature and (is_thought or not text)):
            self._runs.append(_Run(is_thought=is_thought, texts=[text], raw=part))
        elif text:
            last = self._runs[-1] if self._runs else None
            if signature or last is None or not last.grows or last.is_thought != is_thought:
                last = _Run(is_thought=is_thought, signature=signature)
                self._runs.append(last)
            last.texts.append(text)
        if not text:
            return []
        return [ReasoningPiece(text) if is_thought else TextPiece(text)]

    def finish(self) -> tuple[list[Piece], Response]:
        """Return the whole reply; nothing was held back."""
        if not self._has_candidate or not (self._finish or self.done):
            raise self._cut_off()
        parts = tuple(self._parts())
        # A call of an unknown tool has a separate finish reason.
        finish = finish_with_calls(_FINISH.get(self._finish or "STOP", FinishReason.OTHER), parts)
        return [], self._response(parts, finish, _read_usage(self._usage))

    def _parts(self) -> Iterator[Part]:
        """Yield the parts, each thought before its subject, each signature directly before what it signs."""
        thought = ""
        ids: set[str] = set()
        for run in self._runs:
            text = "".join(run.texts)
            if run.raw is not None:
                yield Reasoning(thought + (text if run.is_thought else ""), {OPAQUE: {PART: run.raw}})
                thought = ""
                continue
            if run.is_thought:
                thought += text
                continue
            if thought or run.signature:
                yield Reasoning(thought, {OPAQUE: {SIGNATURE: run.signature}} if run.signature else {})
                thought = ""
            yield Text(text) if run.call is None else self._call(run.call, ids)
        if thought:
            yield Reasoning(thought)

    def _call(self, call: Mapping[str, Any], ids: set[str]) -> ToolCall:
        """Return a call; `ids` are those of the calls before it. The vendor sends ids only sometimes."""
        name, arguments = as_text(call.get("name")), read_arguments(call.get("args"))
        given = as_text(call.get("id"))
        if not given or given in ids:
            given = generated_id(len(ids), self._id, name, arguments)
        ids.add(given)
        return ToolCall(given, name, arguments)


def _read_usage(usage: Mapping[str, Any]) -> Usage | None:
    """Return the vendor's counts; None if nothing was counted.

    https://ai.google.dev/api/generate-content#UsageMetadata: the candidates' tokens exclude thoughts, and the
    prompt's exclude the input of the server's own tools.
    """
    prompt = count_of(usage, "promptTokenCount") + count_of(usage, "toolUsePromptTokenCount")
    thoughts = count_of(usage, "thoughtsTokenCount")
    output = count_of(usage, "candidatesTokenCount") + thoughts
    output = output or max(count_of(usage, "totalTokenCount") - prompt, 0) * bool(prompt)
    if not prompt and not output:
        return None
    return Usage(
        input_tokens=prompt,
        output_tokens=output,
        cached_input_tokens=min(count_of(usage, "cachedContentTokenCount"), prompt),
        reasoning_tokens=thoughts,
    )
