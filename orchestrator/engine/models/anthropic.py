"""Anthropic Messages: encodes requests, and decodes replies and streams, of the vendor and of compatible servers.

https://platform.claude.com/docs/en/api/messages and, for the subset of JSON Schema for replies,
https://platform.claude.com/docs/en/build-with-claude/structured-outputs
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.core.errors import (
    ConnectionFailedError,
    InvalidRequestError,
    OverloadedError,
    ProviderError,
)
from orchestrator.core.messages import FinishReason, Image, Reasoning, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.engine.models.base import (
    INVALID_ARGUMENTS,
    CallPiece,
    ReasoningPiece,
    Response,
    TextPiece,
    ToolChoice,
    count_of,
)
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.refusals import RefusedFields, any_of, highest_reply_limit, is_vague
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
    plain_name,
    read_arguments,
    schema_parts,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Message, Part, ToolDefinition
    from orchestrator.engine.models.base import Piece, Request


# Keys of `Reasoning.opaque`, whose values `encode` sends back with the next request.
SIGNATURE = "anthropic_signature"  # proves that the text is the model's; empty if there was none
BLOCK = "anthropic_block"  # a whole block that is not interpreted: redacted thinking, output of the server's
# tools, a compaction, the change to another model, and later additions of the vendor

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
        finish = finish_with_calls(finish_called(self._stop or "end_turn"), parts)
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
            cut = is_last and finish_called(self._stop) is FinishReason.LENGTH
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


_VERSION = re.compile(r"claude-(?:[a-z]{1,20}-){0,5}?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_FAMILY = re.compile(r"fable|mythos|opus|sonnet|haiku")
_NEWEST = (99, 0)  # a Claude without a version is newer than this file

_OFF = frozenset(("none", "off", "disabled"))
_LEVELS = ("low", "medium", "high", "xhigh", "max")
_OTHER_WORDS = {"minimal": "low"}

# The vendor publishes no budgets for its levels; these follow its examples. Its minimum is 1,024.
_LEAST_BUDGET_TOKENS = 1_024
_BUDGET_TOKENS = {"low": 2_048, "medium": 8_192, "high": 16_384, "xhigh": 24_576, "max": 24_576}

_UNKNOWN_OUTPUT_TOKENS = 8_192  # servers refuse a limit that does not fit into a small window
_USUAL_OUTPUT_TOKENS = 32_000
_DEEP_OUTPUT_TOKENS = 64_000  # the vendor's advice for the two highest levels of effort
_LEAST_TOP_P_WITH_THINKING = 0.95


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """The features of one model.

    Attributes:
        family: `opus` and so on; empty if the name has none.
        version: major and minor number; None if the model is not a Claude.
    """

    family: str
    version: tuple[int, int] | None

    @classmethod
    def of(cls, model: str) -> ModelTraits:
        """Parse a name, as the vendor or a reseller writes it (`anthropic/claude-opus-4.5`)."""
        name = model.lower()
        if "claude" not in name:
            return cls("", None)
        family, number = _FAMILY.search(name), _VERSION.search(name)
        version = (int(number[1]), int(number[2] or 0)) if number else _NEWEST
        return cls(family[0] if family else "", version)

    def since(self, major: int, minor: int = 0) -> bool:
        """Return whether it is a Claude of this version or a later one."""
        return self.version is not None and self.version >= (major, minor)

    @property
    def is_claude(self) -> bool:
        """Whether the vendor's own rules apply."""
        return self.version is not None

    def output_tokens(self, effort: str | None) -> int:
        """Return the output limit if none is configured; the protocol requires one."""
        if self.version is None:
            return _UNKNOWN_OUTPUT_TOKENS
        if self.version < (3, 7):
            return 8_192 if self.version == (3, 5) else 4_096
        deep = self.since(4, 6) and effort in {"xhigh", "max"}
        return _DEEP_OUTPUT_TOKENS if deep else _USUAL_OUTPUT_TOKENS

    def thinking(self, effort: str, max_tokens: int, *, may_budget: bool, forced: bool) -> dict[str, Any]:
        """Return the fields that request this much reasoning.

        Claude 4.6 and later get adaptive thinking and a level of effort; an unsupported level becomes the
        next lower one. Earlier ones, and models of other makers, get a budget below the output limit, at most
        half of it.

        Args:
            effort: one of the vendor's levels, `minimal`, or `none`; another word is sent as a level.
            max_tokens: the output limit of the request.
            may_budget: whether a budget is possible in this request.
            forced: whether the request demands a call, which excludes thinking.
        """
        level = _OTHER_WORDS.get(effort.lower(), effort.lower())
        if level in _OFF:
            return self._without()
        if self.since(4, 6):
            if level == "xhigh" and self.version in {(4, 6), _NEWEST}:
                level = "high"
            fields: dict[str, Any] = {"output_config": {"effort": level}}
            if not forced:
                # Later models omit the text unless it is requested; 4.6 does not have this option.
                shown = {"display": "summarized"} if self.since(4, 7) else {}
                fields["thinking"] = {"type": "adaptive", **shown}
            return fields
        fields = {}
        if self.version == (4, 5) and self.family == "opus":
            fields["output_config"] = {"effort": level if level in _LEVELS[:3] else "high"}
        budget = min(_BUDGET_TOKENS.get(level, _BUDGET_TOKENS["high"]), max_tokens // 2)
        able = self.version is None or self.since(3, 7)
        if able and may_budget and not forced and budget >= _LEAST_BUDGET_TOKENS:
            fields["thinking"] = {"type": "enabled", "budget_tokens": budget}
        return fields

    def _without(self) -> dict[str, Any]:
        if not self.is_claude:
            return {"thinking": {"type": "disabled"}}
        if not self.since(5):
            return {}  # these models reason only on request
        if self.family in {"sonnet", "haiku"} or (self.version == (5, 0) and self.family == "opus"):
            is_new_sonnet = self.family == "sonnet" and self.since(5, 1)
            return {"thinking": {"type": "between_tools" if is_new_sonnet else "disabled"}}
        return {"output_config": {"effort": "low"}}  # the others always reason

    def sampling(self, temperature: float | None, top_p: float | None, thinking: object) -> dict[str, float]:
        """Return those of the configured sampling fields that the model accepts.

        Claude 4.7 and later accept none. With thinking, earlier ones accept only a `top_p` of at least 0.95.
        From Claude 4 on only one of the two is accepted.
        """
        if self.since(4, 7):
            return {}
        given = {"temperature": temperature, "top_p": top_p}
        chosen = {name: value for name, value in given.items() if value is not None}
        if self.is_claude and isinstance(thinking, dict) and thinking.get("type") in {"enabled", "adaptive"}:
            chosen.pop("temperature", None)
            if (top_p or 0.0) < _LEAST_TOP_P_WITH_THINKING:
                chosen.pop("top_p", None)
        if self.since(4) and "temperature" in chosen:
            chosen.pop("top_p", None)
        return chosen


# The vendor searches 20 blocks before a mark for a cached prompt; this leaves a margin for its own blocks.
_LOOKED_BACK_BLOCKS = 16

_MAX_NAME_CHARACTERS = 128


def _second_mark(messages: Sequence[Message]) -> int | None:
    """Return the last message of the previous request, if more blocks follow it than the vendor looks back.

    A mark there finds what the previous request left in the cache. Only the end of the conversation is read.
    """
    added = 0
    for number in range(len(messages) - 1, 0, -1):
        added += len(messages[number].parts)
        if messages[number].role is Role.ASSISTANT:
            is_wide = added > _LOOKED_BACK_BLOCKS and messages[number - 1].role is not Role.ASSISTANT
            return number - 1 if is_wide else None
    return None


def _id(text: str) -> str:
    """Return an id with only the characters that the vendor accepts: other vendors' have dots and colons."""
    return plain_name(text, max(len(text), 1))


def _image(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}}


def _result(result: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
    text = result.content
    if not text.strip() and result.is_error:
        text = "failed"  # the vendor refuses an empty error
    if result.images and not result.is_error:
        texts = [{"type": "text", "text": text}] if text.strip() else []
        block["content"] = [*texts, *(_image(image) for image in result.images)]
    else:
        block["content"] = text
    return {**block, "is_error": True} if result.is_error else block


# Keywords that the vendor refuses. They may be dropped, because the reply is validated later anyway.
_DROPPED = frozenset(
    "$id $schema examples exclusiveMaximum exclusiveMinimum maxItems maxLength maxProperties maximum "  # noqa: SIM905  words read best without quotes
    "minLength minProperties minimum multipleOf pattern uniqueItems".split()
)
_NOT_ANTHROPIC = frozenset(
    "contains dependentRequired dependentSchemas else if not patternProperties prefixItems propertyNames then".split()  # noqa: SIM905  words read best without quotes
)
_TYPE_KEYWORDS = frozenset(["type", "anyOf", "allOf", "$ref", "enum", "const"])


def anthropic_format(schema: object) -> dict[str, Any] | None:
    """Return the request field that constrains a whole reply; None if the vendor does not support the schema.

    Every object must be closed. An object with properties is closed here; one that allows any key is refused.
    """
    narrowed = _anthropic_schema(schema)
    return {"type": "json_schema", "schema": narrowed} if _is_anthropic(narrowed) else None


def _anthropic_schema(schema: Any) -> Any:
    if not isinstance(schema, dict):
        return schema
    kept = {key: value for key, value in schema.items() if key not in _DROPPED}
    if "oneOf" in kept:
        kept["anyOf"] = kept.pop("oneOf")
    if kept.get("minItems", 0) not in {0, 1}:
        kept["minItems"] = 1
    for key in ("anyOf", "allOf"):
        if key in kept:
            kept[key] = [_anthropic_schema(part) for part in kept[key]]
    for key in ("properties", "$defs"):
        if key in kept:
            kept[key] = {name: _anthropic_schema(part) for name, part in kept[key].items()}
    if "items" in kept:
        kept["items"] = _anthropic_schema(kept["items"])
    if kept.get("properties"):
        kept.setdefault("additionalProperties", False)
    return kept


def _is_anthropic(schema: Any) -> bool:
    if not isinstance(schema, dict) or _NOT_ANTHROPIC & schema.keys() or not _TYPE_KEYWORDS & schema.keys():
        return False
    kinds = schema.get("type", ())
    is_object = "object" in ((kinds,) if isinstance(kinds, str) else kinds)
    if is_object and schema.get("additionalProperties") is not False:
        return False
    return all(_is_anthropic(part) for part in schema_parts(schema))


SUFFIX = "/messages"

API_VERSION = "2023-06-01"
"""The version that every compatible server knows, and the last that accepts `temperature` and `top_p`.

https://platform.claude.com/docs/en/api/versioning
"""

CACHE_MARK = {"type": "ephemeral"}
"""Caches the prompt up to here for five minutes.

https://platform.claude.com/docs/en/build-with-claude/prompt-caching
"""

_VERSIONED = re.compile(r"/v\d\w*/messages")
_CHOICES = {ToolChoice.AUTO: "auto", ToolChoice.NONE: "none", ToolChoice.REQUIRED: "any"}


class Feature(StrEnum):
    """An optional feature of a request, dropped if a server refuses it."""

    FORMAT = "format"
    CACHE = "cache"
    PAST_REASONING = "past reasoning"
    CARRIED_BLOCKS = "blocks that go back as they came"
    FORCED_TOOLS = "forced tools"
    PARALLEL = "one call at a time"
    SAMPLING = "sampling"
    THINKING = "thinking"


# In this order: the first feature that the request uses and the error names is dropped.
_REFUSALS = {
    Feature.CACHE: any_of(r"cache.?control"),
    Feature.PAST_REASONING: any_of(
        r"invalid.{0,20}signature|signature.{0,40}(invalid|required|verif)|different conversation"
        r"|thinking.{0,60}cannot be modified"
    ),
    Feature.CARRIED_BLOCKS: any_of(
        r"input tag|any of the expected tags|(unknown|unsupported|invalid|unexpected) (content )?(block|type)"
    ),
    Feature.PARALLEL: any_of(r"disable_parallel_tool_use|parallel.?tool"),
    Feature.FORCED_TOOLS: any_of(r"tool_?choice"),
    Feature.FORMAT: any_of(  # a tool's schema must not be dropped
        r"^(?!.*(input_schema|tools\.\d)).*(output_config.{0,3}format|output_format|json.?schema|\bschema"
        r"|grammar|structured)"
    ),
    Feature.SAMPLING: any_of(r"temperature|top_p"),
    Feature.THINKING: any_of(r"thinking|effort|budget_tokens|output_config(?!.{0,3}format)"),
}


@dataclass(frozen=True, slots=True)
class AnthropicWire:
    """One model behind one Messages address.

    Attributes:
        refused: the features that the server has refused.
        lowered: the reply limit and levels of effort to send after refusals.
        encoded: cache of the messages' JSON.

    Of a request's provider options for `anthropic`, `beta_headers` (a list of names) become the header
    `anthropic-beta`; `cache_control` replaces the mark that caches prompts, and null switches the cache off;
    `tools` (the vendor's own) are appended to the request's; the others are added to the body unchanged, and
    override the fields made here.
    """

    url: str
    model: str
    refused: frozenset[Feature] = frozenset()
    lowered: RefusedFields = field(default_factory=RefusedFields)
    encoded: EncodedMessages = field(default_factory=EncodedMessages, compare=False, repr=False)

    @classmethod
    def at(cls, api_url: str, model: str) -> AnthropicWire:
        """Create the wire for an address that a user configured (see `endpoint`).

        A path without a version gets `/v1`, too, as in the vendor's own clients.
        """
        url = endpoint(api_url, SUFFIX)
        is_whole = urlsplit(api_url.strip()).path.rstrip("/").endswith(SUFFIX)
        if not is_whole and not _VERSIONED.search(urlsplit(url).path):
            url = endpoint(api_url, f"/v1{SUFFIX}")
        return cls(url, model)

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"x-api-key": api_key}

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Encode a request as Messages JSON.

        The head's `cache_control` makes the vendor mark the last block of every request by itself. So no mark
        moves through the conversation, and the bytes of a longer conversation begin with those of a shorter
        one.
        """
        options = dict(request.provider_options.get("anthropic", {}))
        betas = options.pop("beta_headers", None) or ()
        mark = options.pop("cache_control", CACHE_MARK)
        if Feature.CACHE in self.refused:
            mark = None
        head = self._head(request, stream=stream)
        _merge(head, options)
        if tools := [*(_tool(tool) for tool in request.tools), *(head.get("tools") or ())]:
            head["tools"] = [*tools[:-1], {**tools[-1], "cache_control": mark} if mark else tools[-1]]
        if request.tools and (choice := self._tool_choice(request)):
            head["tool_choice"] = choice
        if request.system.strip():
            system = {"type": "text", "text": request.system, "cache_control": mark}
            head["system"] = [system] if mark else request.system
        if mark:
            head["cache_control"] = mark
        headers = {**accept_header(stream=stream), "anthropic-version": API_VERSION}
        if betas:
            headers["anthropic-beta"] = ",".join([betas] if isinstance(betas, str) else map(str, betas))
        return WireRequest(
            self.url, headers, head, "messages", self._entries(request.messages, mark), self.encoded
        )

    def _head(self, request: Request, *, stream: bool) -> dict[str, Any]:
        traits = ModelTraits.of(self.model)
        effort = self.lowered.effort(request.reasoning_effort)
        limit = request.max_output_tokens
        wanted = traits.output_tokens(effort) if limit is None else limit
        limit = self.lowered.limit(wanted) or wanted
        head: dict[str, Any] = {"model": self.model, "max_tokens": limit}
        if stream:
            head["stream"] = True
        if effort is not None and Feature.THINKING not in self.refused:
            forced = bool(request.tools) and self._tool_choice(request).get("type") == "any"
            may_budget = not self._continues_without_reasoning(request.messages)
            head.update(traits.thinking(effort, limit, may_budget=may_budget, forced=forced))
        if Feature.SAMPLING not in self.refused:
            head.update(traits.sampling(request.temperature, request.top_p, head.get("thinking")))
        may_shape = traits.since(4, 5) and Feature.FORMAT not in self.refused
        if request.output_schema and may_shape and (shape := anthropic_format(request.output_schema.schema)):
            head["output_config"] = {**head.get("output_config", {}), "format": shape}
        return head

    def _continues_without_reasoning(self, messages: Sequence[Message]) -> bool:
        """Return whether the last reply has calls but no reasoning: the vendor then refuses a thinking budget."""
        last = next((message for message in reversed(messages) if message.role is Role.ASSISTANT), None)
        if last is None or not any(isinstance(part, ToolCall) for part in last.parts):
            return False
        first = next((block for part in last.parts if (block := self._block(part))), {})
        return first.get("type") not in {"thinking", "redacted_thinking"}

    def _tool_choice(self, request: Request) -> dict[str, Any]:
        choice = request.tool_choice
        # Claude 5.1 and later refuse to be forced.
        refuses = ModelTraits.of(self.model).since(5, 1) or Feature.FORCED_TOOLS in self.refused
        if choice is ToolChoice.REQUIRED and refuses:
            choice = ToolChoice.AUTO
        one_call = request.parallel_tool_calls is False and choice is not ToolChoice.NONE
        one_call = one_call and Feature.PARALLEL not in self.refused
        if choice is None and not one_call:
            return {}
        chosen: dict[str, Any] = {"type": _CHOICES[choice or ToolChoice.AUTO]}
        return {**chosen, "disable_parallel_tool_use": True} if one_call else chosen

    def _entries(self, messages: Sequence[Message], mark: object) -> list[bytes]:
        entries = [self.encoded.get(message, self._entry) for message in messages]
        place = _second_mark(messages) if mark else None
        if place is not None:
            entries[place] = b",".join(json_bytes(made) for made in self._entry(messages[place], mark))
        return entries

    def _entry(self, message: Message, mark: object = None) -> Iterator[dict[str, Any]]:
        """Yield a message as an entry of the vendor's list; nothing if it has no content left."""
        parts = message.parts
        if message.role is not Role.ASSISTANT:  # the vendor requires results first
            results = [part for part in parts if isinstance(part, ToolResult)]
            # It refuses images in failed results, so they follow.
            pictures = [image for part in results if part.is_error for image in part.images]
            parts = (*results, *pictures, *(part for part in parts if not isinstance(part, ToolResult)))
        blocks = [block for part in parts if (block := self._block(part))]
        if not blocks:
            return
        if mark:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
        yield {"role": "assistant" if message.role is Role.ASSISTANT else "user", "content": blocks}

    def _block(self, part: Part) -> dict[str, Any]:
        """Return a part as a block; empty if it has none (the vendor refuses blank texts)."""
        match part:
            case Text():
                return {"type": "text", "text": part.text} if part.text.strip() else {}
            case Image():
                return _image(part)
            case ToolCall():
                arguments = dict(part.arguments)
                return {
                    "type": "tool_use",
                    "id": _id(part.id),
                    "name": plain_name(part.name, _MAX_NAME_CHARACTERS),
                    "input": arguments,
                }
            case ToolResult():
                return _result(part)
            case Reasoning():
                return self._reasoning(part)

    def _reasoning(self, part: Reasoning) -> dict[str, Any]:
        """Return reasoning unchanged; empty if it comes from another protocol, or was refused."""
        sends_reasoning = Feature.PAST_REASONING not in self.refused
        whole = part.opaque.get(BLOCK)
        if isinstance(whole, dict):
            is_reasoning = whole.get("type") == "redacted_thinking"
            is_sent = sends_reasoning if is_reasoning else Feature.CARRIED_BLOCKS not in self.refused
            return whole if is_sent else {}
        signature = part.opaque.get(SIGNATURE)
        # The vendor refuses reasoning without a signature (a reply that was cut off has such); other makers' models
        # produce it.
        is_accepted = signature or (signature is not None and not ModelTraits.of(self.model).is_claude)
        if not sends_reasoning or not is_accepted:
            return {}
        return {"type": "thinking", "thinking": part.text, "signature": signature}

    def decoder(self, request: Request) -> MessagesDecoder:
        """Return a decoder for one reply."""
        return MessagesDecoder(request, model=self.model, where=host_of(self.url))

    def relax(self, request: Request, error: ModelError) -> AnthropicWire | None:
        """Return the wire without what the server refused (see `Feature`), if the request used it."""
        if not isinstance(error, InvalidRequestError | OverloadedError | ProviderError):
            return None
        said = str(error).partition(": ")[2]
        highest = highest_reply_limit(said)
        if highest is not None and highest < self._head(request, stream=False)["max_tokens"]:
            return replace(self, lowered=replace(self.lowered, reply_tokens=highest))
        used = self._used(request)
        dropped = next((one for one, words in _REFUSALS.items() if one in used and words.search(said)), None)
        if dropped is None and Feature.FORMAT in used and is_vague(error):
            dropped = Feature.FORMAT
        if dropped is None:
            return None
        effort = self.lowered.effort(request.reasoning_effort)
        if dropped is Feature.THINKING and (lowered := self.lowered.after_effort(said, effort)):
            return replace(self, lowered=lowered)
        refused = self.refused | {dropped}
        return replace(self, refused=refused, encoded=EncodedMessages())

    def _used(self, request: Request) -> set[Feature]:
        head = self.encode(request, stream=False).head
        used = {
            Feature.CACHE: "cache_control" in head,
            Feature.PAST_REASONING: True,
            Feature.CARRIED_BLOCKS: any(
                isinstance(part, Reasoning) and BLOCK in part.opaque
                for message in request.messages
                for part in message.parts
            ),
            Feature.PARALLEL: "disable_parallel_tool_use" in head.get("tool_choice", {}),
            Feature.FORCED_TOOLS: head.get("tool_choice", {}).get("type") == "any",
            Feature.FORMAT: "format" in head.get("output_config", {}),
            Feature.SAMPLING: "temperature" in head or "top_p" in head,
            Feature.THINKING: request.reasoning_effort is not None,
        }
        return {feature for feature, is_used in used.items() if is_used} - self.refused


def _merge(head: dict[str, Any], options: Mapping[str, Any]) -> None:
    """Add a user's fields; merge those of `output_config`."""
    config, more = head.get("output_config", {}), options.get("output_config")
    head.update(options)
    if isinstance(more, dict):
        head["output_config"] = {**config, **more}


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    schema = {"type": "object", **tool.parameters}  # the vendor refuses a schema without a type
    return {"name": tool.name, "description": tool.description, "input_schema": schema}
