"""Anthropic Messages: decodes whole replies and streams, of the vendor and of compatible servers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConnectionFailedError
from orchestrator.core.messages import FinishReason, Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.base import (
    INVALID_ARGUMENTS,
    CallPiece,
    ReasoningPiece,
    Response,
    TextPiece,
    count_of,
)
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.wire import (
    ReplyDecoder,
    as_object,
    as_text,
    dicts,
    finish_with_calls,
    generated_id,
    read_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.core.messages import Part
    from orchestrator.engine.models.base import Piece, Request


# Keys of `Reasoning.opaque`, whose values `encode` sends back with the next request.
SIGNATURE = "anthropic_signature"  # proves that the text is the model's; empty if there was none
BLOCK = "anthropic_block"  # a whole block that is not interpreted: redacted thinking, output of the server's
# tools, a compaction, the change to another model, and later additions of the vendor

_FINISH = {
    "end_turn": FinishReason.STOP,
    "stop_sequence": FinishReason.STOP,
    "max_tokens": FinishReason.LENGTH,
    "model_context_window_exceeded": FinishReason.LENGTH,
    "tool_use": FinishReason.TOOL_CALLS,
    "pause_turn": FinishReason.PAUSE,
    "compaction": FinishReason.PAUSE,
    "refusal": FinishReason.REFUSAL,
}
_TEXTS = frozenset({"text", "thinking"})
_READ = _TEXTS | {"tool_use"}
_KIND_OF_DELTA = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "thinking"}


@dataclass(slots=True)
class _Block:
    """A block of the reply that is being received."""

    kind: str
    start: dict[str, Any]
    texts: list[str] = field(default_factory=list)
    json_pieces: list[str] = field(default_factory=list)
    signature: str = ""

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def whole(self) -> dict[str, Any]:
        """Return the block as it would be without streaming."""
        if not self.json_pieces:
            return self.start
        return {**self.start, "input": read_arguments("".join(self.json_pieces))}

    def arguments(self, *, cut: bool) -> dict[str, Any]:
        """Return the arguments; of a truncated reply's last call none, because even a whole one may be incomplete."""
        if self.json_pieces:
            return read_arguments("".join(self.json_pieces))
        given = self.start.get("input")
        if cut:
            return {INVALID_ARGUMENTS: json.dumps(given, ensure_ascii=False) if given else ""}
        return read_arguments(given)


class MessagesDecoder(ReplyDecoder):
    """Decodes one reply."""

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        super().__init__(request, model=model, where=where)
        self._stop = ""
        self._explanation = ""
        self._begun = False
        self._usage: dict[str, int] = {}
        self._iterations: list[dict[str, Any]] = []
        self._blocks: list[_Block] = []
        self._by_index: dict[object, _Block] = {}

    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        kind = as_text(chunk.get("type")) or event
        if kind == "error" or chunk.get("error"):
            if self._stop:
                return []  # the reply is complete
            raise error_in_reply(chunk, self._where)
        if kind == "message_start":
            return self._start(as_object(chunk.get("message")))
        if kind == "content_block_start":
            block = as_object(chunk.get("content_block"))
            return self._open(chunk.get("index"), block) if block else []
        if kind == "content_block_delta":
            return self._grow(chunk.get("index"), as_object(chunk.get("delta")))
        if kind == "message_delta":
            self._take_stop(as_object(chunk.get("delta")))
            self._count(chunk.get("usage"))
        elif kind == "message_stop":
            self.done = True
        return []

    def _take_document(self, value: Mapping[str, Any]) -> None:
        if value.get("type") == "error" or value.get("error"):
            raise error_in_reply(value, self._where)
        if not isinstance(value.get("content"), list | str):
            raise self._no_reply("with JSON that is not a reply")
        self._take_message(value)

    def _start(self, message: Mapping[str, Any]) -> list[Piece]:
        """Decode the beginning of the reply. A second one adds nothing, or belongs to another reply, which raises."""
        if not self._begun:
            return self._take_message(message)
        if (other := as_text(message.get("id"))) and self._id and other != self._id:
            raise ConnectionFailedError(f"{self._where} began another reply in the middle of one")
        self._take_names(message.get("id"), message.get("model"))
        self._count(message.get("usage"))
        return []

    def _take_message(self, message: Mapping[str, Any]) -> list[Piece]:
        """Decode a whole reply, or the beginning of one."""
        self._begun = True
        self._take_names(message.get("id"), message.get("model"))
        self._count(message.get("usage"))
        content = message.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else dicts(content)
        pieces = [piece for block in blocks for piece in self._open(None, block)]
        self._take_stop(message)
        return pieces

    def _take_stop(self, delta: Mapping[str, Any]) -> None:
        self._stop = as_text(delta.get("stop_reason")) or self._stop
        if details := as_object(delta.get("stop_details")):
            self._explanation = as_text(details.get("explanation"))

    def _count(self, usage: object) -> None:
        # A stream's counts are totals, so the last one is used. Some servers end with a prompt count of zero.
        for name, value in as_object(usage).items():
            if isinstance(value, int | float):
                known = 0 if name == "output_tokens" else self._usage.get(name, 0)
                self._usage[name] = count_of(usage, name) or known
            elif name in {"output_tokens_details", "cache_creation"}:
                self._count(value)
            elif name == "iterations":
                self._iterations = dicts(value)

    def _open(self, index: object, start: dict[str, Any]) -> list[Piece]:
        known = self._by_index.get(index) if isinstance(index, int) else None
        if known is not None and known.start == start and (start.get("id") or known.kind in _TEXTS):
            return []  # the block was announced twice
        self._begun = True
        self._stop = ""  # content after a stop reason needs another one, or the end mark
        block = _Block(as_text(start.get("type")), start)
        block.signature = as_text(start.get("signature"))
        self._blocks.append(block)
        if isinstance(index, int):
            self._by_index[index] = block
        return self._add_text(block, as_text(start.get(block.kind)))

    def _grow(self, index: object, delta: dict[str, Any]) -> list[Piece]:
        kind = as_text(delta.get("type"))
        wanted = _KIND_OF_DELTA.get(kind)
        block = self._by_index.get(index) if isinstance(index, int) else None
        if block is None and self._blocks and not isinstance(index, int):
            block = self._blocks[-1]
        if wanted and (block is None or block.kind != wanted):
            self._open(index, {"type": wanted})  # some servers do not announce blocks
            block = self._blocks[-1]
        if block is None:
            return []
        if kind == "signature_delta":
            block.signature = as_text(delta.get("signature")) or block.signature
        elif kind == "input_json_delta":
            if piece := as_text(delta.get("partial_json")):
                block.json_pieces.append(piece)
                return [CallPiece(piece)]
        elif not wanted and block.kind not in _READ:
            # Fields of unknown deltas: texts are appended, all else is replaced.
            for name, value in delta.items():
                known = as_text(block.start.get(name))
                if name != "type":
                    block.start = {**block.start, name: known + value if isinstance(value, str) else value}
        return self._add_text(block, as_text(delta.get(block.kind))) if wanted else []

    @staticmethod
    def _add_text(block: _Block, text: str) -> list[Piece]:
        if not text or block.kind not in _TEXTS:
            return []
        block.texts.append(text)
        return [TextPiece(text) if block.kind == "text" else ReasoningPiece(text)]

    def finish(self) -> tuple[list[Piece], Response]:
        """Return the explanation of a refusal without text, which was held back, and the whole reply."""
        if not self._begun or not (self._stop or self.done):
            raise self._cut_off()
        parts = tuple(self._parts())
        held: list[Piece] = []
        finish = finish_with_calls(_FINISH.get(self._stop or "end_turn", FinishReason.OTHER), parts)
        is_mute = finish is FinishReason.REFUSAL and not any(isinstance(part, Text) for part in parts)
        if is_mute and self._explanation:
            parts = (*parts, Text(self._explanation))
            held = [TextPiece(self._explanation)]
        may_be_free = finish is FinishReason.REFUSAL
        return held, self._response(parts, finish, self._read_usage(), may_be_free=may_be_free)

    def _parts(self) -> Iterator[Part]:
        said: list[str] = []  # citations split a text into many blocks
        for number, block in enumerate(self._blocks):
            if block.kind == "text":
                said.append(block.text)
                continue
            part = self._part(number, block)
            if part is None:
                continue
            if text := "".join(said):
                yield Text(text)
            said.clear()
            yield part
        if text := "".join(said):
            yield Text(text)

    def _part(self, number: int, block: _Block) -> Part | None:
        if block.kind == "thinking":
            is_empty = not block.text and not block.signature
            return None if is_empty else Reasoning(block.text, {SIGNATURE: block.signature})
        if block.kind == "tool_use":
            is_last = number == len(self._blocks) - 1
            cut = is_last and _FINISH.get(self._stop) is FinishReason.LENGTH
            name, arguments = as_text(block.start.get("name")), block.arguments(cut=cut)
            call_id = as_text(block.start.get("id"))
            is_used = any(one.start.get("id") == call_id for one in self._blocks[:number])
            if not call_id or is_used:  # each call needs a separate result
                call_id = generated_id(number, self._id, name, arguments)
            return ToolCall(call_id, name, arguments) if name or arguments else None
        return Reasoning("", {BLOCK: block.whole()}) if block.kind else None

    def _read_usage(self) -> Usage | None:
        """Return the token counts; None if nothing was counted."""
        usage = _usage(self._usage)
        for iteration in self._iterations:
            if iteration.get("type") == "compaction":  # billed, but not in the totals
                usage += _usage({**as_object(iteration.get("cache_creation")), **iteration})
        return usage if usage.total_tokens else None


def _usage(counts: Mapping[str, Any]) -> Usage:
    """Return the vendor's counts, whose `input_tokens` exclude cached ones."""
    read = count_of(counts, "cache_read_input_tokens")
    hour, minutes = (count_of(counts, f"ephemeral_{time}_input_tokens") for time in ("1h", "5m"))
    written = max(count_of(counts, "cache_creation_input_tokens"), hour + minutes)
    return Usage(
        input_tokens=count_of(counts, "input_tokens") + read + written,
        output_tokens=count_of(counts, "output_tokens"),
        cached_input_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=count_of(counts, "thinking_tokens"),
        hour_write_tokens=hour,
    )
