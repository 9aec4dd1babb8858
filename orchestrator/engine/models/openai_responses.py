"""OpenAI Responses without state at the vendor: encodes requests and decodes replies, also of compatible servers.

https://platform.openai.com/docs/api-reference/responses, and responses-streaming
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import (
    ConnectionFailedError,
    ProviderError,
)
from orchestrator.core.messages import FinishReason, Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.base import CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.openai import (
    CALLING,
    allows_strict,
    data_url,
    is_openai,
    openai_format,
    openai_usage,
    sent_id,
    sent_name,
    text_or_parts,
)
from orchestrator.engine.models.refusals import RefusedFields, refusal_text
from orchestrator.engine.models.wire import (
    EncodedMessages,
    ReplyDecoder,
    WireRequest,
    accept_header,
    as_object,
    as_text,
    dicts,
    endpoint,
    generated_id,
    host_of,
    merge_options,
    read_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Message, Part, ToolDefinition, Usage
    from orchestrator.engine.models.base import Piece, Request


# Keys of `Reasoning.opaque`, whose values `encode` sends back with the next request.
ITEM = "openai_responses_item"  # the reasoning item as received, or none
FOLLOWING = "openai_responses_following"  # ids and phases of the items up to the next reasoning item

MESSAGE = "message"
REASONING = "reasoning"
CALL = "function_call"
_KINDS = {MESSAGE, REASONING, CALL}

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
        pieces = "".join(self.pieces)
        if not self.done:
            return pieces
        if self.kind == MESSAGE:
            content = self.raw.get("content")
            return (content if isinstance(content, str) else "".join(_texts(content))) or pieces
        # Some servers send the same text as content and as summary.
        shown = _texts(self.raw.get("content")) or _texts(self.raw.get("summary"))
        return _PARAGRAPH.join(shown) or pieces

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

    def rest(self) -> list[Piece]:
        """Return the text of the finished item after its pieces: some servers send text only at the end."""
        text, given = self.text, "".join(self.pieces)
        if self.kind == CALL or text == given or not text.startswith(given):
            return []
        rest = self.add(text[len(given) :])
        return [TextPiece(rest) if self.kind == MESSAGE else ReasoningPiece(rest)]

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
            if kind not in _KINDS:
                continue
            streamed = next((item for item in self.listed if item.kind == kind), None)
            if streamed is not None:
                self.listed.remove(streamed)
            ordered.append(streamed or Item(kind))
            ordered[-1].finish(raw)
        self.listed = ordered + self.listed

    def parts(self, reply_id: str | None) -> list[Part]:
        """Return the reply's parts, in order."""
        parts: list[Part] = []
        for number, item in enumerate(self.listed):
            if item.kind == REASONING:
                parts += _reasoning(item, self.listed[number + 1 :])
            elif item.kind == CALL:
                parts += _received_call(item, number, reply_id)
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
    carried = item.done and bool(has_content) and any(map(_has_content, later))
    opaque: dict[str, Any] = {ITEM: item.raw} if carried else {}
    own = takewhile(lambda one: one.kind != REASONING, later)
    following = [_place(one) for one in own if _has_content(one)]
    if following and (carried or any("phase" in place for place in following)):
        opaque[FOLLOWING] = following
    if item.text or opaque:
        yield Reasoning(item.text, opaque)


def _has_content(item: Item) -> bool:
    return item.kind == CALL or (item.kind == MESSAGE and bool(item.text))


def _place(item: Item) -> dict[str, Any]:
    """Return what the vendor wants back of a message or a call in addition to its content."""
    names = ("id", "call_id") if item.kind == CALL else ("id", "phase")
    return {"type": item.kind, **{name: item.raw[name] for name in names if as_text(item.raw.get(name))}}


def _received_call(item: Item, number: int, reply_id: str | None) -> Iterator[ToolCall]:
    name, arguments = as_text(item.raw.get("name")), item.raw.get("arguments") or "".join(item.pieces)
    if name or arguments:
        call_id = as_text(item.raw.get("call_id")) or as_text(item.raw.get("id"))
        call_id = call_id or generated_id(number, reply_id, name, arguments)
        yield ToolCall(call_id, name, read_arguments(arguments))


def _texts(parts: object) -> list[str]:
    texts = (as_text(part.get("text")) or as_text(part.get("refusal")) for part in dicts(parts))
    return [text for text in texts if text]


def _ids(raw: Mapping[str, Any]) -> set[str]:
    # Some servers use the `call_id` as the item's id in events.
    return {as_text(raw.get("id")), as_text(raw.get("call_id"))} - {""}


_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_ENDS = {f"response.{word}" for word in ("completed", "incomplete", "failed", "cancelled", "done")}
_TEXT = {"response.output_text", "response.refusal"}
_THOUGHTS = {"response.reasoning_summary_text", "response.reasoning_text", "response.reasoning"}
_ARGUMENTS = "response.function_call_arguments"
_STATUSES = frozenset({"completed", "failed", "in_progress", "cancelled", "queued", "incomplete"})
"""https://platform.openai.com/docs/api-reference/responses/object"""


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
        self._usage = openai_usage(as_object(response.get("usage"))) or self._usage
        self._is_bare = "incomplete_details" not in response
        self._items.take_output(response.get("output"))
        self.done = True
        return [piece for item in self._items.listed for piece in item.rest()]

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
        return item.rest()

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


_MAX_ID_CHARACTERS = 64


def _input_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "detail": "auto", "image_url": data_url(part)}


SUFFIX = "/responses"

ENCRYPTED_REASONING = "reasoning.encrypted_content"

# Models without reasoning refuse a request for encrypted reasoning.
_NOT_REASONING = re.compile(r"(.*/)?(ft:)?(openai\.)?(gpt-[34]|chatgpt|gpt-[\d.]+-chat)", re.IGNORECASE)


class Extra(StrEnum):
    """An optional part of a request, dropped if a server refuses it."""

    PAST_REASONING = "past reasoning"
    ENCRYPTED_REASONING = "encrypted reasoning"
    SUMMARY = "summary"
    STORE = "store"
    RESULT_IMAGES = "images in results"
    STRICT_TOOLS = "strict tools"
    SCHEMA = "schema"


_EFFORT = "reasoning.effort"

_REFUSES = r"^(?=.*(not (support|permit|allow)|unsupported|unrecogni[sz]ed|unknown|unexpected|extra ))"

_REFUSES_REASONING = (
    r"(without|missing) its required .{0,40}item|invalid_encrypted_content"
    r"|encrypted content.{0,300}could not be|items are not persisted|item\['content'\]"
    r"|input\[\d+\]\.(encrypted_content|summary)"
)

# Texts of refusals, in the order of the search. The name of a field alone is not enough:
# a failing server asks its users to "include the request ID".
_REFUSALS = (
    (Extra.PAST_REASONING, _REFUSES_REASONING),
    (Extra.ENCRYPTED_REASONING, rf"encrypted.content|\(in include|{_REFUSES}.*\binclude\b"),
    (Extra.PAST_REASONING, r"encrypted.content"),
    (Extra.SUMMARY, rf"reasoning summar|reasoning\.summary|{_REFUSES}.*\bsummary\b"),
    (Extra.STORE, rf"{_REFUSES}.*\bstore\b"),
    (Extra.RESULT_IMAGES, r"output of tool call should be|input\[\d+\]\.output"),
    (Extra.STRICT_TOOLS, rf"invalid schema for function|{_REFUSES}.*\bstrict\b"),
    (Extra.SCHEMA, r"text\.format|response.?format|json.?schema|grammar|structured.?output|guided"),
)
_ALL = frozenset(Extra)


@dataclass(frozen=True, slots=True)
class ResponsesWire:
    """One model behind one Responses address.

    Attributes:
        demanding: whether the server accepts only schemas that require every property, and refuses long ids
            and unusual names of calls.
        extras: the optional parts that the server has not refused.
        refused: other fields that the server has refused.
        encoded: cache of the messages' JSON.
        numbers: of the assistant's texts that have no id of their own.

    A request's provider options for `openai` are added to the body. If a field is an object on both sides
    (`reasoning`, `text`), the two are merged; lists (`tools`, `include`) are appended.
    """

    url: str
    model: str
    demanding: bool = False
    extras: frozenset[Extra] = _ALL
    refused: RefusedFields = field(default_factory=RefusedFields)
    encoded: EncodedMessages = field(default_factory=EncodedMessages, compare=False, repr=False)
    numbers: Iterator[int] = field(default_factory=partial(count, 1), compare=False, repr=False)

    @classmethod
    def at(cls, api_url: str, model: str) -> ResponsesWire:
        """Create the wire for an address that a user configured (see `endpoint`)."""
        url = endpoint(api_url, SUFFIX)
        # On other servers the strict mode of tools has another meaning, or none.
        missing = set() if is_openai(url) else {Extra.STRICT_TOOLS}
        if _NOT_REASONING.match(model):
            missing.add(Extra.ENCRYPTED_REASONING)
        return cls(url, model, demanding=is_openai(url), extras=_ALL - missing)

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"authorization": f"Bearer {api_key}"}

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Encode a request as Responses JSON. The `input` comes last."""
        head: dict[str, Any] = {"model": self.model}
        if stream:
            head["stream"] = True
        if Extra.STORE in self.extras:
            head["store"] = False
        if Extra.ENCRYPTED_REASONING in self.extras:
            head["include"] = [ENCRYPTED_REASONING]
        if request.system:
            head["instructions"] = request.system
        optional = self.refused.openai_fields(request, limit="max_output_tokens", effort=_EFFORT)
        calling = {name: optional.pop(name) for name in CALLING if name in optional}
        if _EFFORT in optional:
            effort = optional.pop(_EFFORT)
            summary = {"summary": "auto"} if Extra.SUMMARY in self.extras and effort != "none" else {}
            head["reasoning"] = {"effort": effort, **summary}
        head.update(optional)
        if request.output_schema is not None and Extra.SCHEMA in self.extras:
            wanted = openai_format(request.output_schema, demanding=self.demanding)
            head["text"] = {"format": {"type": wanted["type"], **wanted["json_schema"]}}
        if request.tools:
            head["tools"] = [self._tool(tool) for tool in request.tools]
            head.update(calling)
        merge_options(head, request.provider_options.get("openai", {}))
        entries = [self.encoded.get(message, self._items) for message in request.messages]
        return WireRequest(self.url, accept_header(stream=stream), head, "input", entries, self.encoded)

    def _tool(self, tool: ToolDefinition) -> dict[str, Any]:
        # Always sent: if it is missing, the vendor makes the schema strict itself.
        strict = Extra.STRICT_TOOLS in self.extras and allows_strict(tool.parameters)
        return {
            "type": "function",
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
            "strict": strict,
        }

    def _items(self, message: Message) -> list[dict[str, Any]]:
        """Return a message as items: each text, call, result and piece of reasoning is a separate one."""
        if message.role is Role.ASSISTANT:
            return list(self._assistant(message))
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        items = [self._result(part) for part in results]
        in_results = Extra.RESULT_IMAGES in self.extras
        pictures = [] if in_results else [image for part in results for image in part.images]
        others = [*pictures, *(part for part in message.parts if isinstance(part, Text | Image))]
        if others or not items:
            items.append({"role": "user", "content": text_or_parts(others, _input_part)})
        return items

    def _result(self, result: ToolResult) -> dict[str, Any]:
        # The protocol has no flag for failed calls: the result's text says that it is an error.
        text = [Text(result.content)] if result.content else []
        images = result.images if Extra.RESULT_IMAGES in self.extras else ()
        output = text_or_parts([*text, *images], _input_part)
        call_id = sent_id(result.call_id, _MAX_ID_CHARACTERS, strict=self.demanding)
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def _assistant(self, message: Message) -> Iterator[dict[str, Any]]:
        places: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, Reasoning):
                places = dicts(part.opaque.get(FOLLOWING))
                item = part.opaque.get(ITEM)
                if item is not None and Extra.PAST_REASONING in self.extras:
                    yield dict(item)
                else:  # an id would refer to the missing reasoning
                    places = [{key: place[key] for key in place if key != "id"} for place in places]
            elif isinstance(part, Text) and part.text:
                place = next((place for place in places if place.get("type") == MESSAGE), {})
                places = [other for other in places if other is not place]
                yield self._said(part.text, place)
            elif isinstance(part, ToolCall):
                yield self._call(part, places)

    def _said(self, text: str, place: Mapping[str, Any]) -> dict[str, Any]:
        # Never a plain string, which llama.cpp treats as a user's message.
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item: dict[str, Any] = {
            "type": MESSAGE,
            "role": "assistant",
            "status": "completed",
            "content": content,
        }
        if Extra.STORE in self.extras:
            # The vendor's type requires an id, and some gateways, too. Nothing is looked up by it: nothing is stored.
            item["id"] = f"msg_{next(self.numbers):032}"
        return {**item, **{name: place[name] for name in ("id", "phase") if name in place}}

    def _call(self, call: ToolCall, places: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        item = {
            "type": CALL,
            "call_id": sent_id(call.id, _MAX_ID_CHARACTERS, strict=self.demanding),
            "name": sent_name(call.name, strict=self.demanding),
            "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
        }
        item_id = next((place.get("id") for place in places if place.get("call_id") == call.id), None)
        return {**item, "id": item_id} if item_id else item

    def decoder(self, request: Request) -> ResponsesDecoder:
        """Return a decoder for one reply."""
        return ResponsesDecoder(request, model=self.model, where=host_of(self.url))

    def relax(self, request: Request, error: ModelError) -> ResponsesWire | None:
        """Return the wire without the extra that the server refused, if this request has it."""
        said = refusal_text(error)
        for extra, words in _REFUSALS:
            if extra in self.extras and self._sends(extra, request) and re.search(words, said, re.IGNORECASE):
                # The cached JSON of messages may contain the extra.
                return replace(self, extras=self.extras - {extra}, encoded=EncodedMessages())
        sent = self.refused.openai_fields(request, limit="max_output_tokens", effort=_EFFORT)
        users = request.provider_options.get("openai", {})
        users = {**users, _EFFORT: None} if "reasoning" in users else users
        refused = self.refused.after(error, sent, users, sent.get("max_output_tokens"))
        return None if refused is None else replace(self, refused=refused)

    def _sends(self, extra: Extra, request: Request) -> bool:
        parts = (part for message in request.messages for part in message.parts)
        match extra:
            case Extra.PAST_REASONING:
                return any(isinstance(part, Reasoning) and ITEM in part.opaque for part in parts)
            case Extra.RESULT_IMAGES:
                return any(isinstance(part, ToolResult) and part.images for part in parts)
            case Extra.SUMMARY:
                return request.reasoning_effort is not None and _EFFORT not in self.refused.fields
            case Extra.STRICT_TOOLS:
                return any(allows_strict(tool.parameters) for tool in request.tools)
            case Extra.SCHEMA:
                return request.output_schema is not None
            case Extra.STORE | Extra.ENCRYPTED_REASONING:
                return True
