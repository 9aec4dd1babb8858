"""OpenAI Chat Completions: encodes requests and decodes replies, for the vendor and for compatible servers.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import OverloadedError
from orchestrator.core.json_rpc import read_json
from orchestrator.core.messages import FinishReason, Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.base import INVALID_ARGUMENTS, CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.openai import (
    CALLING,
    data_url,
    is_openai,
    openai_format,
    openai_usage,
    sent_id,
    sent_name,
    text_or_parts,
)
from orchestrator.engine.models.refusals import (
    RefusedFields,
    highest_reply_limit,
    is_unsupported,
    is_vague,
    refusal_text,
)
from orchestrator.engine.models.wire import (
    EncodedMessages,
    ReplyDecoder,
    WireRequest,
    accept_header,
    as_object,
    as_text,
    dicts,
    endpoint,
    finish_called,
    finish_with_calls,
    generated_id,
    host_of,
    json_bytes,
    read_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import JsonObject, Message, Part, ToolDefinition
    from orchestrator.engine.models.base import Piece, Request


_OPEN, _CLOSE = "<think>", "</think>"
_MOST_BLANK_CHARACTERS = 10_000  # around the thoughts; held-back text is scanned again with each piece


class ThinkSplitter:
    """Separates a leading `<think>` block, which servers without a field for it leave in the text."""

    def __init__(self) -> None:
        self._state = "start"  # start -> thinking -> after -> text, or start -> text
        self._held = ""

    def feed(self, text: str) -> list[Piece]:
        """Return the certain pieces; hold back what may be the beginning of a tag."""
        if self._state == "text":
            return [TextPiece(text)]
        self._held += text
        pieces: list[Piece] = []
        if self._state == "start":
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._state, self._held = "thinking", begun[len(_OPEN) :]
            elif not _OPEN.startswith(begun) or len(self._held) > _MOST_BLANK_CHARACTERS:
                return self._release()
        if self._state == "thinking":
            pieces += self._think()
        if self._state == "after" and (self._held.strip() or len(self._held) > _MOST_BLANK_CHARACTERS):
            self._held = self._held.lstrip()
            pieces += self._release()
        return pieces

    def _think(self) -> list[Piece]:
        thought, closed, rest = self._held.partition(_CLOSE)
        if closed:
            self._state, self._held = "after", rest
        else:
            keep = next(n for n in range(len(_CLOSE), -1, -1) if thought.endswith(_CLOSE[:n]))
            thought, self._held = thought[: len(thought) - keep], thought[len(thought) - keep :]
        return [ReasoningPiece(thought)] if thought else []

    def _release(self) -> list[Piece]:
        text, self._held, self._state = self._held, "", "text"
        return [TextPiece(text)] if text else []

    def finish(self) -> list[Piece]:
        """Return what was held back."""
        if self._state == "thinking":
            return [ReasoningPiece(self._held)] if self._held else []
        return [] if self._state == "after" else self._release()


_CERTAIN_CHARACTERS, _CERTAIN_KINDS = 12, 5
_CERTAIN_REPETITIONS = 2


class _GrowingText:
    """A text in pieces, each of which may contain all before it, as some gateways send them.

    Pieces of other servers begin with all that came before by chance alone: what may be chance is held back until
    another piece decides.
    """

    def __init__(self) -> None:
        self._whole = ""
        self._given = 0
        self._held: list[str] = []
        self._grows: bool | None = None

    def feed(self, text: str) -> str:
        """Return what a piece adds, as far as it is certain."""
        if self._grows is False or not text:
            return text
        if not self._whole:
            self._whole, self._given = text, len(text)
            return text
        before = self._whole
        if self._grows:
            self._whole = text if text.startswith(before) else before + text
            return self._release()
        if len(text) <= len(before) or not text.startswith(before):
            self._grows, self._whole = False, ""
            return "".join([*self._held, text])
        self._held.append(text)
        self._whole = text
        if len(before) < _CERTAIN_CHARACTERS or len(set(before)) < _CERTAIN_KINDS:
            return ""
        self._grows = True
        return self._release()

    def finish(self) -> str:
        """Return what was held back."""
        if self._grows is not None:
            return ""
        is_growing = len(self._held) >= _CERTAIN_REPETITIONS and any(map(str.isalnum, self._whole))
        return self._release() if is_growing else "".join(self._held)

    def _release(self) -> str:
        start, self._given = self._given, len(self._whole)
        return self._whole[start:]


@dataclass(slots=True)
class _Call:
    """A tool call that is being received.

    Attributes:
        grown: the last piece of the arguments, if each contains all before it.
    """

    id: str = ""
    name: str = ""
    arguments: Any = ""
    extra: Any = None
    grown: str | None = ""

    def whole_arguments(self) -> Any:
        """Return the arguments: the joined pieces, or the last one if only that is JSON and contains all others."""
        if self.grown and isinstance(self.arguments, str) and not _is_read(self.arguments):
            return self.grown if _is_read(self.grown) else self.arguments
        return self.arguments


def _is_read(arguments: str) -> bool:
    return INVALID_ARGUMENTS not in read_arguments(arguments)


@dataclass(slots=True)
class _CallPieces:
    """The tool calls of a reply, received in pieces."""

    calls: list[_Call] = field(default_factory=list)
    by_index: dict[int, _Call] = field(default_factory=dict)

    def take(self, delta: Mapping[str, Any]) -> str:
        """Add the pieces of calls in a chunk of a stream; return the text of their arguments."""
        pieces = _call_entries(delta.get("tool_calls"))
        legacy = as_object(delta.get("function_call"))
        if legacy and (legacy.get("name") or self.calls) and not pieces:
            pieces = [{"function": legacy}]
        texts = []
        for piece in pieces:
            function = piece.get("function")
            if isinstance(function, dict):
                self._add(piece, function)
                texts.append(as_text(function.get("arguments")))
        return "".join(texts)

    def _add(self, piece: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        index, name = piece.get("index"), as_text(function.get("name"))
        call = self._current(index, as_text(piece.get("id")), name)
        call.id = call.id or as_text(piece.get("id"))
        if name != call.name:  # some servers repeat the name in every piece
            call.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str) and isinstance(call.arguments, str):
            # Some servers begin with an empty object, or send the whole arguments once more at the end.
            is_new = call.arguments.strip() == "{}" and arguments.lstrip().startswith("{")
            is_same = arguments == call.arguments and arguments.startswith("{") and arguments.endswith("}")
            call.arguments = arguments if is_new or is_same else call.arguments + arguments
            call.grown = arguments if call.grown is not None and arguments.startswith(call.grown) else None
        elif arguments is not None:
            call.arguments = arguments
        call.extra = piece.get("extra_content") or call.extra

    def _current(self, index: object, call_id: str, name: str) -> _Call:
        """Return the call that a piece belongs to: by index, else by id, else the last; or a new one.

        A piece with a name and another id, or with a name after complete arguments, begins a new call even under a
        known index: some servers send each call whole, all with index 0. Others send each piece with another id.
        """
        same_id = next((call for call in reversed(self.calls) if call_id and call.id == call_id), None)
        if isinstance(index, int):
            # Some servers count pieces by the index; then the id identifies the call.
            known = self.by_index.get(index) or (None if name else same_id)
        else:
            known = same_id or (self.calls[-1] if self.calls else None)
        if known is not None:
            other_id = bool(name and call_id and known.id and call_id != known.id)
            again = bool(name and not call_id and known.arguments)
            again = again and INVALID_ARGUMENTS not in read_arguments(known.whole_arguments())
            if not other_id and not again:
                return known
        call = _Call()
        self.calls.append(call)
        if isinstance(index, int):
            self.by_index[index] = call
        return call

    def finish(self, reply_id: str | None) -> tuple[list[ToolCall], dict[str, Any]]:
        """Return the calls, and what servers want back with each of them, by id."""
        calls: list[ToolCall] = []
        extras: dict[str, Any] = {}
        for number, call in enumerate(self.calls):
            if not call.name and not call.arguments:
                continue
            call.arguments = call.whole_arguments()
            arguments = read_arguments(call.arguments)
            # Each call needs a separate result.
            is_new = bool(call.id) and all(call.id != known.id for known in calls)
            call_id = call.id if is_new else generated_id(number, reply_id, call.name, call.arguments)
            calls.append(ToolCall(call_id, call.name.strip(), arguments))
            if call.extra:
                extras[call_id] = call.extra
        return calls, extras


# Keys of `Reasoning.opaque`, whose values `encode` sends back with the next request.
REASONING_FIELD = "field"  # the name of the text's field
REASONING_DETAILS = "reasoning_details"  # OpenRouter's list, signatures included
EXTRA_CONTENT = "extra_content"  # Gemini's thought signatures, by the id of the call

_BUSY_FINISHES = {"insufficient_system_resource", "error"}


class ChatDecoder(ReplyDecoder):
    """Decodes one reply."""

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        super().__init__(request, model=model, where=where)
        self._finish: str | None = None
        self._usage: Mapping[str, Any] | None = None
        self._has_choice = self._is_document = False
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._opaque: dict[str, Any] = {}
        self._details = _Details()
        self._calls = _CallPieces()
        self._splitter = ThinkSplitter()
        self._content, self._thought = _GrowingText(), _GrowingText()

    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        if event == "error" or _is_error(chunk):
            if self._finish:
                return []  # the reply is complete; some servers add a note about its length as an error
            raise error_in_reply(chunk, self._where)
        return self._take(_of_ollama(chunk))

    def _take_document(self, value: Mapping[str, Any]) -> None:
        if _is_error(value):
            raise error_in_reply(value, self._where)
        value = _of_ollama(value)
        reply = next((one for one in (value, *_wrapped(value)) if dicts(one.get("choices"))), None)
        if reply is None:
            if _says_why(value):
                raise error_in_reply(value, self._where)
            raise self._no_reply("without a reply in it (no choices)")
        if reply is not value:
            self._take_charge(reply)
        self._is_document = True
        self._take(reply)

    def _take(self, chunk: Mapping[str, Any]) -> list[Piece]:
        self._take_names(chunk.get("id"), chunk.get("model"))
        usage = chunk.get("usage") or as_object(chunk.get("x_groq")).get("usage")
        pieces: list[Piece] = []
        repeats = self._has_choice
        for choice in self._reply_choices(dicts(chunk.get("choices"))):
            usage = usage or choice.get("usage")
            pieces += self._take_choice(choice, repeats=repeats)
        self._usage = as_object(usage) or self._usage
        return pieces

    def _reply_choices(self, choices: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the choices that make up the reply.

        One choice is requested, so a single one counts whatever its index: some servers count chunks or calls
        there (z.ai in October 2025). Others split one reply into several choices without an index.
        """
        number = self._request.provider_options.get("openai", {}).get("n") or 1
        if len(choices) == 1 and number == 1:
            return choices
        first = [choice for choice in choices if choice.get("index") in (None, 0)]
        if first or number != 1:
            return first
        return [choice for choice in choices if choice.get("index") == choices[0].get("index")]

    def _take_choice(self, choice: Mapping[str, Any], *, repeats: bool) -> list[Piece]:
        finish = as_text(choice.get("finish_reason")) or as_text(
            as_object(choice.get("finish_details")).get("type")
        )
        if choice.get("error"):
            raise error_in_reply(choice, self._where)
        if finish.lower() in _BUSY_FINISHES:
            raise OverloadedError(f"{self._where} stopped in the middle of its reply: {finish}")
        delta = choice.get("delta")
        if not isinstance(delta, dict) or (self._is_document and choice.get("message")):
            # A whole message; in a stream some servers repeat it at the end.
            delta = {} if repeats else as_object(choice.get("message")) or {"content": choice.get("text")}
            calls = _call_entries(delta.get("tool_calls") or choice.get("tool_calls"))
            delta = {**delta, "tool_calls": [{**call, "index": n} for n, call in enumerate(calls)]}
        made = self._calls.take(delta)
        self._has_choice = True
        pieces = [*self._take_text(delta), *([CallPiece(made)] if made else [])]
        # Content after a finish reason needs another one, or the end mark.
        self._finish = finish or (None if pieces else self._finish)
        return pieces

    def _take_text(self, delta: Mapping[str, Any]) -> list[Piece]:
        pieces: list[Piece] = []
        for name in ("reasoning_content", "reasoning"):
            thought = delta.get(name)
            if isinstance(thought, str) and thought:
                self._opaque.setdefault(REASONING_FIELD, name)
                if new := self._thought.feed(thought):
                    pieces.append(ReasoningPiece(new))
                break  # some servers send the same text under both names
        self._details.take(delta.get("reasoning_details"))
        for piece in _content_pieces(delta.get("content")):
            if not isinstance(piece, TextPiece):
                pieces.append(piece)
            elif new := self._content.feed(piece.text):
                pieces += self._splitter.feed(new)
        refusal = delta.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal.append(refusal)
            pieces.append(TextPiece(refusal))
        self._keep(pieces)
        return pieces

    def _keep(self, pieces: Iterable[Piece]) -> None:
        for piece in pieces:
            (self._text if isinstance(piece, TextPiece) else self._reasoning).append(piece.text)

    def finish(self) -> tuple[list[Piece], Response]:
        """Return what was held back, and the whole reply."""
        if not self._has_choice or not (self._finish or self.done):
            raise self._cut_off()
        thought = self._thought.finish()
        held: list[Piece] = [ReasoningPiece(thought)] if thought else []
        if text := self._content.finish():
            held += self._splitter.feed(text)
        held += self._splitter.finish()
        self._keep(held)
        parts = tuple(self._parts())
        return held, self._response(parts, self._finish_reason(parts), openai_usage(self._usage))

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

    def _finish_reason(self, parts: tuple[Part, ...]) -> FinishReason:
        # A whole reply, or a stream with its end mark, is complete even without a reason.
        finish = finish_with_calls(finish_called(self._finish or "stop"), parts)
        refused = self._refusal and finish in {FinishReason.STOP, FinishReason.OTHER}
        return FinishReason.REFUSAL if refused else finish


def _of_ollama(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a piece or a reply in Ollama's own form, which gateways pass on, as one of this protocol.

    https://github.com/ollama/ollama/blob/main/docs/api.md
    """
    message = value.get("message", {"content": value.get("response")} if "response" in value else None)
    if not isinstance(message, dict) or not isinstance(value.get("done"), bool) or "choices" in value:
        return value
    calls = [
        {**call, "index": number} for number, call in enumerate(_call_entries(message.get("tool_calls")))
    ]
    delta = {**message, "reasoning_content": message.get("thinking"), "tool_calls": calls}
    finish = (as_text(value.get("done_reason")) or "stop") if value["done"] else None
    counts = {
        "prompt_tokens": value.get("prompt_eval_count"),
        "completion_tokens": value.get("eval_count"),
    }
    return {
        "id": value.get("id"),
        "model": value.get("model"),
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        "usage": counts
        if value["done"] and all(isinstance(count, int) for count in counts.values())
        else None,
    }


def _is_error(value: Mapping[str, Any]) -> bool:
    """Return whether a value is an error, in the forms of OpenAI, vLLM, MiniMax and z.ai."""
    if value.get("error") or value.get("object") == "error":
        return True
    failed = value.get("success") is False or as_object(value.get("base_resp")).get("status_code")
    return bool(failed) and not value.get("choices")


def _wrapped(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects in which some gateways put the reply."""
    return [as_object(value.get(key)) for key in ("result", "data", "response")]


def _says_why(value: Mapping[str, Any]) -> bool:
    """Return whether a document without a reply says in words what went wrong."""
    return bool(dicts(value.get("errors"))) or any(
        as_text(value.get(key)) for key in ("message", "detail", "msg", "error_description")
    )


def _call_entries(calls: object) -> list[dict[str, Any]]:
    """Return calls as entries of a list; some servers send one alone, their JSON as text, or no object `function`."""
    if isinstance(calls, str):
        try:
            calls = read_json(calls)
        except ValueError:
            return []
    entries = dicts([calls] if isinstance(calls, dict) else calls)
    return [
        one
        if isinstance(one.get("function"), dict) or not as_text(one.get("name"))
        else {**one, "function": one}
        for one in entries
    ]


def _content_pieces(content: object) -> Iterator[Piece]:
    """Yield the pieces of a text, or of a list of parts with thoughts among them (as Mistral sends them)."""
    # Some gateways parse the JSON that a model writes.
    if isinstance(content, (int, float)) and not isinstance(content, bool):
        content = json.dumps(content)
    if isinstance(content, str) and content:
        yield TextPiece(content)
    if isinstance(content, dict):
        is_part = bool({"text", "thinking", "type"} & content.keys())
        content = [content] if is_part or not content else [json.dumps(content, ensure_ascii=False)]
    if isinstance(content, list):
        content = [{"text": part} if isinstance(part, str) else part for part in content]
    for part in dicts(content):
        thoughts = part.get("thinking")
        if isinstance(thoughts, str):
            yield ReasoningPiece(thoughts)
        for thought in dicts(thoughts):
            yield ReasoningPiece(str(thought.get("text") or ""))
        if part.get("text"):
            yield TextPiece(str(part["text"]))


_GROWING = frozenset({"text", "summary", "data"})


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


SUFFIX = "/chat/completions"

# The vendor's host and its reasoning models know only the newer name of the output limit;
# many compatible servers know only the older one.
_NEW_LIMIT = "max_completion_tokens"
_OLD_LIMIT = "max_tokens"
_NEW_LIMIT_MODELS = re.compile(r"(.*/)?(o\d|gpt-[5-9])")

_MAX_ID_CHARACTERS = 40


_SCHEMA_WORDS = re.compile(r"response.?format|json.?schema|grammar|structured.?output|guided", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ChatWire:
    """One model behind one Chat Completions address.

    Attributes:
        limit_field: the field name of the output limit.
        output_schemas: whether the server accepts `response_format`.
        stream_usage: whether the server accepts `stream_options`.
        demanding: whether the server accepts only schemas that require every property, and refuses long ids
            and unusual names of calls.
        refused: other fields that the server has refused.
        encoded: cache of the messages' JSON.

    A request's provider options for `openai` are added to the body unchanged; `tools` are appended to the
    request's.
    """

    url: str
    model: str
    limit_field: str = _OLD_LIMIT
    output_schemas: bool = True
    stream_usage: bool = True
    demanding: bool = False
    refused: RefusedFields = field(default_factory=RefusedFields)
    encoded: EncodedMessages = field(default_factory=EncodedMessages, compare=False, repr=False)

    @classmethod
    def at(cls, api_url: str, model: str) -> ChatWire:
        """Create the wire for an address that a user configured (see `endpoint`)."""
        url = endpoint(api_url, SUFFIX)
        is_new = is_openai(url) or _NEW_LIMIT_MODELS.match(model)
        return cls(url, model, _NEW_LIMIT if is_new else _OLD_LIMIT, demanding=is_openai(url))

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"authorization": f"Bearer {api_key}"}

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Encode a request as Chat Completions JSON. The messages come last; see `WireRequest`."""
        head: dict[str, Any] = {"model": self.model}
        if stream:
            head["stream"] = True
            if self.stream_usage:
                head["stream_options"] = {"include_usage": True}
        optional = self.refused.openai_fields(request, limit=self.limit_field, effort="reasoning_effort")
        calling = {name: optional.pop(name) for name in CALLING if name in optional}
        head.update(optional)
        if request.output_schema is not None and self.output_schemas:
            head["response_format"] = openai_format(request.output_schema, demanding=self.demanding)
        head.update(request.provider_options.get("openai", {}))
        if request.tools:
            more = head.get("tools")
            head["tools"] = [_tool(tool) for tool in request.tools]
            head["tools"] += more if isinstance(more, list) else []
            head.update(calling)
        system = json_bytes({"role": "system", "content": request.system}) if request.system else b""
        entries = [system, *(self.encoded.get(message, self._entries) for message in request.messages)]
        return WireRequest(self.url, accept_header(stream=stream), head, "messages", entries, self.encoded)

    def _entries(self, message: Message) -> list[dict[str, Any]]:
        """Return a message as entries of the vendor's list: each tool result is a separate one."""
        if message.role is Role.ASSISTANT:
            return [self._assistant(message)]
        # The protocol has no flag for failed calls: the result's text says that it is an error.
        results = [
            {
                "role": "tool",
                "tool_call_id": sent_id(part.call_id, _MAX_ID_CHARACTERS, strict=self.demanding),
                "content": part.content,
            }
            for part in message.parts
            if isinstance(part, ToolResult)
        ]
        # It has no images in results either: they follow as the user's.
        pictures = [image for part in message.parts if isinstance(part, ToolResult) for image in part.images]
        others = [*pictures, *(part for part in message.parts if isinstance(part, Text | Image))]
        if not others and results:
            return results
        return [*results, {"role": "user", "content": text_or_parts(others, _user_part)}]

    def _assistant(self, message: Message) -> dict[str, Any]:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        entry: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
        if not calls:
            return entry
        extras = _carried_reasoning(message.parts, entry)
        entry["tool_calls"] = [
            {
                "id": sent_id(call.id, _MAX_ID_CHARACTERS, strict=self.demanding),
                "type": "function",
                "function": {
                    "name": sent_name(call.name, strict=self.demanding),
                    "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
                },
                **({"extra_content": extras[call.id]} if call.id in extras else {}),
            }
            for call in calls
        ]
        return entry

    def decoder(self, request: Request) -> ChatDecoder:
        """Return a decoder for one reply."""
        return ChatDecoder(request, model=self.model, where=host_of(self.url))

    def relax(self, request: Request, error: ModelError) -> ChatWire | None:
        """Return the wire without what the server refused.

        That is the schema, usage in streams, a name of the limit, or another field.
        """
        said = refusal_text(error)
        shapes = request.output_schema is not None and self.output_schemas
        if shapes and _SCHEMA_WORDS.search(said):
            return replace(self, output_schemas=False)
        if self.stream_usage and "stream_options" in said:
            return replace(self, stream_usage=False)
        renames = is_unsupported(said) and _NEW_LIMIT in said and highest_reply_limit(said) is None
        if request.max_output_tokens is not None and renames:
            other = _OLD_LIMIT if self.limit_field == _NEW_LIMIT else _NEW_LIMIT
            return replace(self, limit_field=other)
        sent = self.refused.openai_fields(request, limit=self.limit_field, effort="reasoning_effort")
        users = request.provider_options.get("openai", {})
        refused = self.refused.after(error, sent, users, sent.get(self.limit_field))
        if refused is not None:
            return replace(self, refused=refused)
        return replace(self, output_schemas=False) if shapes and is_vague(error) else None


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _user_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": data_url(part)}}


def _carried_reasoning(parts: Iterable[Part], entry: dict[str, Any]) -> JsonObject:
    """Add reasoning under its own field names, only beside calls, as some servers demand; return the calls' part."""
    extras: dict[str, Any] = {}
    for part in parts:
        if not isinstance(part, Reasoning):
            continue
        if REASONING_DETAILS in part.opaque:
            entry["reasoning_details"] = part.opaque[REASONING_DETAILS]
        elif REASONING_FIELD in part.opaque:
            entry[part.opaque[REASONING_FIELD]] = part.text
        extras.update(part.opaque.get(EXTRA_CONTENT, {}))
    return extras
