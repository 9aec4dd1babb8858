"""OpenAI Responses: decodes whole replies and streams, of the vendor and of compatible servers.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConnectionFailedError, ProviderError
from orchestrator.core.messages import FinishReason, Reasoning, Text, ToolCall
from orchestrator.engine.models.base import CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.usage import openai_usage
from orchestrator.engine.models.wire import (
    ReplyDecoder,
    as_object,
    as_text,
    dicts,
    generated_id,
    read_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.messages import Part, Usage
    from orchestrator.engine.models.base import Piece, Request


# Keys of `Reasoning.opaque`, whose values `encode` sends back with the next request.
ITEM = "openai_responses_item"  # the reasoning item as received, or none
FOLLOWING = "openai_responses_following"  # ids and phases of the items up to the next reasoning item

MESSAGE = "message"
REASONING = "reasoning"
CALL = "function_call"

_PARAGRAPH = "\n\n"


@dataclass(slots=True)
class Item:
    """One output item that is being received.

    Attributes:
        raw: the item in its latest event.
        pieces: the streamed arguments, or the text that was given to the caller.
        source: of a reasoning item: the event and part of its latest piece.
    """

    kind: str
    index: object = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    done: bool = False
    pieces: list[str] = field(default_factory=list)
    source: tuple[str, object] | None = None
    refused: bool = False

    @property
    def text(self) -> str:
        """The readable text so far: of the finished item, else of its pieces."""
        return self._whole_text() or "".join(self.pieces)

    def _whole_text(self) -> str:
        if not self.done:
            return ""
        content = [_part_text(part) for part in dicts(self.raw.get("content"))]
        if self.kind == MESSAGE:
            plain = self.raw.get("content")
            return plain if isinstance(plain, str) else "".join(content)
        # Some servers send the same text as content and as summary.
        summary = [_part_text(part) for part in dicts(self.raw.get("summary"))]
        return _PARAGRAPH.join(filter(None, content)) or _PARAGRAPH.join(filter(None, summary))

    def add(self, text: str) -> str:
        """Add a piece of text; return the text for the caller."""
        self.pieces.append(text)
        return text

    def add_thought(self, text: str, event: str, part: object) -> str:
        """Add a piece of reasoning, whose parts are paragraphs. Of text and summary the first one is used."""
        if self.source is not None and self.source[0] != event:
            return ""
        begins = self.source is not None and self.source[1] != part
        self.source = (event, part)
        return self.add(_PARAGRAPH + text if begins else text)

    def rest(self) -> str:
        """Return the text of the finished item after its pieces: some servers send text only at the end."""
        text, given = self.text, "".join(self.pieces)
        return self.add(text[len(given) :]) if text != given and text.startswith(given) else ""

    def finish(self, raw: Mapping[str, Any]) -> None:
        """Store the item's final state. A second end changes nothing."""
        if not self.done:
            # A reasoning item is sent back unchanged. In other items a sparse end keeps the announced fields.
            self.raw = raw if self.kind == REASONING else {**self.raw, **raw}
            self.done = True
        if any(part.get("refusal") for part in dicts(self.raw.get("content"))):
            self.refused = True


@dataclass(slots=True)
class Items:
    """The known output items of a reply, in the order of the reply."""

    listed: list[Item] = field(default_factory=list)

    def begin(self, kind: str, index: object, raw: Mapping[str, Any]) -> None:
        """Add an announced item. An item that is announced twice is added once."""
        known = self._known(kind, index, _ids(raw))
        if known is None or known.done:
            self.listed.append(Item(kind, index, raw))

    def find(self, kind: str, event: Mapping[str, Any]) -> Item:
        """Return the item of an event, or a new one if none was announced.

        Some servers have no indexes, others use another id in each event, so the best match is used.
        """
        ids = _ids(as_object(event.get("item"))) or {as_text(event.get("item_id"))} - {""}
        index = event.get("output_index")
        known = self._known(kind, index, ids)
        if known is None and index is None:
            opened = (item for item in reversed(self.listed) if item.kind == kind and not item.done)
            known = next(opened, None)
        if known is None:
            known = Item(kind, index)
            self.listed.append(known)
        return known

    def _known(self, kind: str, index: object, ids: set[str]) -> Item | None:
        same = [item for item in reversed(self.listed) if item.kind == kind]
        by_id = next((item for item in same if ids & _ids(item.raw)), None)
        by_index = (item for item in same if index is not None and item.index == index)
        return by_id or next(by_index, None)

    def take_output(self, output: object) -> None:
        """Add the items of a whole reply. If the items were streamed, it repeats them."""
        ordered: list[Item] = []
        for raw in dicts(output):
            kind = as_text(raw.get("type"))
            if kind not in {MESSAGE, REASONING, CALL}:
                continue
            number = sum(item.kind == kind for item in ordered)
            streamed = [item for item in self.listed if item.kind == kind]
            item = streamed[number] if number < len(streamed) else Item(kind)
            item.finish(raw)
            ordered.append(item)
        self.listed = ordered + [item for item in self.listed if not any(item is one for one in ordered)]

    def parts(self, reply_id: str | None) -> list[Part]:
        """Return the reply's parts, in order."""
        parts: list[Part] = []
        for number, item in enumerate(self.listed):
            if item.kind == REASONING:
                parts += _reasoning(item, self.listed[number + 1 :])
            elif item.kind == CALL:
                parts += _call(item, number, reply_id)
            elif item.text:
                alone = not any(one.kind == REASONING for one in self.listed[:number])
                if alone and as_text(item.raw.get("phase")):
                    parts.append(Reasoning("", {FOLLOWING: [_place(item)]}))
                parts.append(Text(item.text))
        return parts


def _reasoning(item: Item, later: Sequence[Item]) -> Iterator[Reasoning]:
    # Without its content the vendor would look for the item in its store, where it is missing.
    # The vendor also refuses an item that nothing follows.
    has_content = item.raw.get("encrypted_content") or dicts(item.raw.get("content"))
    is_followed = any(_says(one) for one in later)
    carried = item.done and bool(has_content) and is_followed
    opaque: dict[str, Any] = {ITEM: item.raw} if carried else {}
    following = list(_following(later))
    if following and (carried or any("phase" in place for place in following)):
        opaque[FOLLOWING] = following
    if item.text or opaque:
        yield Reasoning(item.text, opaque)


def _says(item: Item) -> bool:
    return item.kind == CALL or (item.kind == MESSAGE and bool(item.text))


def _following(items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item.kind == REASONING:
            return
        if _says(item):
            yield _place(item)


def _place(item: Item) -> dict[str, Any]:
    """Return what the vendor wants back of a message or a call in addition to its content."""
    names = ("id", "call_id") if item.kind == CALL else ("id", "phase")
    return {"type": item.kind, **{name: item.raw[name] for name in names if as_text(item.raw.get(name))}}


def _call(item: Item, number: int, reply_id: str | None) -> Iterator[ToolCall]:
    name, arguments = as_text(item.raw.get("name")), item.raw.get("arguments")
    if not arguments:
        arguments = "".join(item.pieces)
    if name or arguments:
        call_id = as_text(item.raw.get("call_id")) or as_text(item.raw.get("id"))
        yield ToolCall(
            call_id or generated_id(number, reply_id, name, arguments), name, read_arguments(arguments)
        )


def _part_text(part: Mapping[str, Any]) -> str:
    return as_text(part.get("text")) or as_text(part.get("refusal"))


def _ids(raw: Mapping[str, Any]) -> set[str]:
    # Some servers use the `call_id` as the item's id in events.
    return {as_text(raw.get("id")), as_text(raw.get("call_id"))} - {""}


_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_ENDS = {
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
}
_TEXT = {"response.output_text", "response.refusal"}
_THOUGHTS = {"response.reasoning_summary_text", "response.reasoning_text", "response.reasoning"}
_ARGUMENTS = "response.function_call_arguments"
_KINDS = {MESSAGE, REASONING, CALL}

# The counts have other names than in Chat Completions, but the same meaning.
_COUNTS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
    "total_tokens": "total_tokens",
}


class ResponsesDecoder(ReplyDecoder):
    """Decodes one reply."""

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        super().__init__(request, model=model, where=where)
        self._status = ""
        self._reason = ""
        self._is_bare = False
        self._usage: Usage | None = None
        self._items = Items()

    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        kind = as_text(chunk.get("type")) or event
        if kind == "error" or (chunk.get("error") and not chunk.get("response")):
            raise error_in_reply(chunk, self._where)
        response = chunk.get("response")
        if kind in _ENDS and isinstance(response, dict):
            return self._take_whole(response, ending=kind.rpartition(".")[2])
        if isinstance(response, dict):
            self._take_names(response.get("id"), response.get("model"))
        return self._take(kind, chunk)

    def _take_document(self, value: Mapping[str, Any]) -> None:
        if isinstance(whole := value.get("response"), dict):  # the last event of a stream, as a document
            value = whole
        if value.get("object") == "error" or value.get("type") == "error":
            raise error_in_reply(value, self._where)
        is_reply = isinstance(value.get("output"), list) or as_text(value.get("status")) in _STATUSES
        if not is_reply and not value.get("error"):
            raise self._no_reply("without a reply in it (no output)")
        self._take_whole(value)

    def _take_whole(self, response: Mapping[str, Any], *, ending: str = "") -> list[Piece]:
        """Decode a whole reply, or the last event of a stream, which repeats it."""
        self._take_names(response.get("id"), response.get("model"))
        self._status = as_text(response.get("status")) or ending
        self._reason = as_text(as_object(response.get("incomplete_details")).get("reason"))
        if self._status == "failed" or response.get("error"):
            error = response.get("error") or "the reply failed, no reason given"
            raise error_in_reply({"error": error}, self._where)
        if self._status == "cancelled":
            raise ConnectionFailedError(f"{self._where} cancelled the reply before its end")
        if self._status in {"queued", "in_progress"} and ending in {"", "done"}:
            raise ProviderError(
                f"{self._where} answered before the reply was made; do not ask for a background reply"
            )
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._usage = openai_usage({name: usage.get(key) for key, name in _COUNTS.items()})
        self._is_bare = "incomplete_details" not in response
        self._items.take_output(response.get("output"))
        self.done = True
        return [piece for item in self._items.listed for piece in _rest(item)]

    def _take(self, kind: str, value: Mapping[str, Any]) -> list[Piece]:
        subject, _, verb = kind.rpartition(".")
        if subject == "response.output_item":
            return self._take_item(verb, value)
        delta = as_text(value.get("delta"))
        if subject in _TEXT and verb == "delta" and delta:
            item = self._items.find(MESSAGE, value)
            item.refused = item.refused or subject == "response.refusal"
            return [TextPiece(item.add(delta))]
        if subject in _THOUGHTS and verb == "delta" and delta:
            part = value.get("summary_index", value.get("content_index"))
            thought = self._items.find(REASONING, value).add_thought(delta, subject, part)
            return [ReasoningPiece(thought)] if thought else []
        if subject == _ARGUMENTS and verb == "delta" and delta:
            return [CallPiece(self._items.find(CALL, value).add(delta))]
        if subject == _ARGUMENTS and verb == "done" and as_text(value.get("arguments")):
            self._items.find(CALL, value).pieces[:] = [value["arguments"]]
        return []

    def _take_item(self, verb: str, value: Mapping[str, Any]) -> list[Piece]:
        raw = as_object(value.get("item"))
        kind = as_text(raw.get("type"))
        if kind not in _KINDS:
            return []
        if verb == "added":
            self._items.begin(kind, value.get("output_index"), raw)
        if verb != "done":
            return []
        item = self._items.find(kind, value)
        item.finish(raw)
        return _rest(item)

    def finish(self) -> tuple[list[Piece], Response]:
        """Return the whole reply; nothing was held back."""
        if not self.done or not (self._status or self._items.listed):
            raise self._cut_off()
        parts = self._items.parts(self._id)
        return [], self._response(parts, self._finish_reason(parts), self._usage)

    def _finish_reason(self, parts: Sequence[Part]) -> FinishReason:
        if self._status == "incomplete" or self._reason:
            return _INCOMPLETE.get(self._reason, FinishReason.OTHER)
        limit = self._request.max_output_tokens
        if self._is_bare and self._usage is not None and limit and self._usage.output_tokens >= limit:
            return FinishReason.LENGTH  # llama.cpp marks a reply that reached the limit as complete
        if any(isinstance(part, ToolCall) for part in parts):
            return FinishReason.TOOL_CALLS
        if any(item.refused for item in self._items.listed):
            return FinishReason.REFUSAL
        return FinishReason.STOP


_STATUSES = frozenset({"completed", "failed", "in_progress", "cancelled", "queued", "incomplete"})
"""https://platform.openai.com/docs/api-reference/responses/object"""


def _rest(item: Item) -> list[Piece]:
    if item.kind == CALL or not (rest := item.rest()):
        return []
    return [TextPiece(rest) if item.kind == MESSAGE else ReasoningPiece(rest)]
