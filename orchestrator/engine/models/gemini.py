"""Gemini's generateContent and streamGenerateContent: encodes requests and decodes replies.

https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from orchestrator.core.errors import ConfigurationError, ContentFilterError, InvalidRequestError
from orchestrator.core.messages import FinishReason, Image, Reasoning, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.engine.models.base import (
    CallPiece,
    ReasoningPiece,
    Response,
    TextPiece,
    ToolChoice,
    count_of,
)
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.refusals import RefusedFields
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
    merge_options,
    read_arguments,
    read_event,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Message, Part
    from orchestrator.engine.models.base import Piece, Request


OPAQUE = "gemini"
"""The key of `Reasoning.opaque` for this protocol's object, which has one of the next two keys."""
SIGNATURE = "signature"  # the thought signature of the text or call that follows
PART = "part"  # a part that is sent back unchanged: a signed thought, a search by the server

# https://ai.google.dev/api/generate-content#FinishReason
_FILTERED = frozenset(
    "SAFETY RECITATION LANGUAGE BLOCKLIST PROHIBITED_CONTENT SPII IMAGE_SAFETY IMAGE_PROHIBITED_CONTENT "  # noqa: SIM905  words read best without quotes
    "IMAGE_RECITATION MODEL_ARMOR ESCALATION PUP_LIMITED_DISABLED".split()
)
_MISSING_SIGNATURE = "MISSING_THOUGHT_SIGNATURE"

# Parts that the server creates when it uses its own tools; it needs them back.
_SERVER_PARTS = ("toolCall", "toolResponse", "executableCode", "codeExecutionResult")


@dataclass(slots=True)
class _ReceivedPart:
    """A part of the reply that is being received: a text in pieces, or a whole part.

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
        self._received: list[_ReceivedPart] = []

    def feed(self, event: str, data: str) -> list[Piece]:
        """Decode one server-sent event."""
        if not data.strip():
            return []
        chunk, known = read_event(data, self._where), len(self._received)
        values = dicts(chunk if isinstance(chunk, list) else [chunk])
        pieces = [piece for value in values for piece in self._take_event(event, value)]
        has_call = any(one.call is not None for one in self._received[known:])  # calls are not split
        return [*pieces, *([CallPiece(data)] if has_call else [])]

    def read(self, body: bytes) -> Response:
        """Decode a whole reply, or the JSON list of a stream without `alt=sse`."""
        if body.lstrip()[:1] != b"[":
            return super().read(body)
        self.feed("", body.decode("utf-8", "replace"))
        return self._finish_document()

    def _take_document(self, value: Mapping[str, Any]) -> None:
        self._take_event("", value)

    def _finish_document(self) -> Response:
        if not self._has_candidate:
            raise self._no_reply("without a reply in it (no candidates)")
        return super()._finish_document()

    def _take_event(self, event: str, chunk: Mapping[str, Any]) -> list[Piece]:
        del event  # the vendor's events have no names
        if chunk.get("error"):
            if self._finish:
                return []  # the reply is complete
            raise error_in_reply(chunk, self._where)
        self._take_names(chunk.get("responseId"), chunk.get("modelVersion"))
        self._usage = as_object(chunk.get("usageMetadata")) or self._usage  # each chunk has the totals so far
        candidates = [one for one in dicts(chunk.get("candidates")) if one.get("index") in (None, 0)]
        feedback = as_object(chunk.get("promptFeedback"))
        if not candidates and (reason := as_text(feedback.get("blockReason"))):
            said = ": ".join(filter(None, (reason, as_text(feedback.get("blockReasonMessage")))))
            raise ContentFilterError(f"{self._where} refused the prompt: {said}")
        return [piece for candidate in candidates for piece in self._take_candidate(candidate)]

    def _take_candidate(self, candidate: Mapping[str, Any]) -> list[Piece]:
        self._has_candidate = True
        finish = as_text(candidate.get("finishReason"))
        if finish == _MISSING_SIGNATURE:
            raise InvalidRequestError(f"{self._where} refused the conversation: {finish}")
        known = len(self._received)
        parts = dicts(as_object(candidate.get("content")).get("parts"))
        pieces = [piece for part in parts for piece in self._take_part(part)]
        goes_on = bool(pieces) or len(self._received) > known
        self._finish = finish or ("" if goes_on else self._finish)
        return pieces

    def _take_part(self, part: dict[str, Any]) -> list[Piece]:
        signature, text = as_text(part.get("thoughtSignature")), as_text(part.get("text"))
        is_thought = part.get("thought") is True
        call = part.get("functionCall")
        if isinstance(call, dict):
            self._received.append(_ReceivedPart(signature=signature, call=call))
        elif any(name in part for name in _SERVER_PARTS) or (signature and (is_thought or not text)):
            self._received.append(_ReceivedPart(is_thought=is_thought, texts=[text], raw=part))
        elif text:
            last = self._received[-1] if self._received else None
            if signature or last is None or not last.grows or last.is_thought != is_thought:
                last = _ReceivedPart(is_thought=is_thought, signature=signature)
                self._received.append(last)
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
        is_filtered = self._finish in _FILTERED
        reason = FinishReason.CONTENT_FILTER if is_filtered else finish_called(self._finish or "STOP")
        finish = finish_with_calls(reason, parts)
        return [], self._response(parts, finish, _read_usage(self._usage))

    def _parts(self) -> Iterator[Part]:
        """Yield the parts, each thought before its subject, each signature directly before what it signs."""
        thought = ""
        ids: set[str] = set()
        for one in self._received:
            text = "".join(one.texts)
            if one.raw is not None:
                yield Reasoning(thought + (text if one.is_thought else ""), {OPAQUE: {PART: one.raw}})
                thought = ""
                continue
            if one.is_thought:
                thought += text
                continue
            if thought or one.signature:
                yield Reasoning(thought, {OPAQUE: {SIGNATURE: one.signature}} if one.signature else {})
                thought = ""
            yield Text(text) if one.call is None else self._call(one.call, ids)
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


_NUMBERED = re.compile(r"gemini-(\d{1,3})(?:\.(\d{1,3}))?(?![\d.])")

_LEVELS = {"none": "MINIMAL", "max": "XHIGH"}  # thinking cannot be switched off in Gemini 3

# The vendor's own mapping of effort words: https://ai.google.dev/gemini-api/docs/openai
_BUDGET_TOKENS = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
_MOST_TOKENS = 24_576
_MOST_TOKENS_PRO = 32_768
_LEAST_TOKENS_PRO = 128  # thinking cannot be switched off in 2.5 Pro
_DYNAMIC = -1


class Levels(Enum):
    """The thinking levels that a model supports."""

    ALL = "all"
    TWO = "low and high"  # every model with levels has these
    NONE = "none"


def generation_of(model: str) -> tuple[int, int]:
    """Return the version in a model's name; (3, 0), today's rules, if there is none.

    `gemini-flash-latest` is such a name.
    """
    found = _NUMBERED.search(model.lower())
    return (int(found[1]), int(found[2] or 0)) if found else (3, 0)


def thinking_config(effort: str | None, model: str, levels: Levels) -> dict[str, Any]:
    """Return the vendor's `thinkingConfig` for an effort word; empty if nothing is to be sent.

    An unknown word is sent unchanged, or makes an older model decide by itself.
    """
    if effort is None or levels is Levels.NONE or generation_of(model) < (2, 5):
        return {}
    word = effort.lower()
    if generation_of(model) < (3, 0):
        budget = _budget(word, is_pro="pro" in model.lower())
        return {"thinkingBudget": budget, "includeThoughts": word != "none"}
    level = _LEVELS.get(word, word.upper())
    if levels is Levels.TWO:
        level = "LOW" if level in {"MINIMAL", "LOW"} else "HIGH"
    return {"thinkingLevel": level, "includeThoughts": word != "none"}


def _budget(word: str, *, is_pro: bool) -> int:
    if word in {"xhigh", "max"}:
        return _MOST_TOKENS_PRO if is_pro else _MOST_TOKENS
    budget = _BUDGET_TOKENS.get(word, _DYNAMIC)
    return _LEAST_TOKENS_PRO if is_pro and budget == 0 else budget


DEFAULT_PATH = "/v1beta"

DUMMY_SIGNATURE = "skip_thought_signature_validator"
"""Replaces the signature of a call that another model made. Gemini 3 refuses a call without one.

https://ai.google.dev/gemini-api/docs/thought-signatures (questions and answers)
"""

_NOT_DOTTED = re.compile(r"[^a-zA-Z0-9_.:-]")
_MAX_NAME_CHARACTERS = 128
"""Length of a function's name: https://ai.google.dev/api/caching#FunctionDeclaration"""

_METHOD = re.compile(r"/(models|tunedModels)/[^/]+:(generateContent|streamGenerateContent)$")
_CALLING = "functionCallingConfig"
_MODES = {ToolChoice.AUTO: "AUTO", ToolChoice.NONE: "NONE", ToolChoice.REQUIRED: "ANY"}

# Images that Gemini 3 accepts inside a function's response. Other images, and all for older models, follow it.
# https://ai.google.dev/gemini-api/docs/function-calling (multimodal function responses)
_RESPONSE_PICTURES = {"image/png", "image/jpeg", "image/webp"}

_SCHEMA_WORDS = re.compile(
    r"response.?(json.?)?schema|response.?mime.?type|json.?(mode|schema)|structured output|too many states"
    r"|^request contains an invalid argument",  # also sent for a schema, without naming it
    re.IGNORECASE,
)
_THINKING_WORDS = re.compile(r"think|include.?thoughts", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GeminiWire:
    """One model behind one Gemini address.

    Attributes:
        address: the model's address, without the method.
        query: the query of the user's address.
        levels: the thinking levels that the model has not refused.
        output_schemas: whether the server accepts a schema for the reply.
        refused: other settings that the server has refused.
        encoded: cache of the messages' JSON.

    Of a request's provider options for `gemini`, `safety_settings` (the vendor's list) and `grounding` (true:
    the model may search the web) are interpreted here. The others are added to the body; objects are merged
    and lists are appended.

    The protocol has no field for `parallel_tool_calls`: it is not sent.
    """

    address: str
    model: str
    query: str = ""
    levels: Levels = Levels.ALL
    output_schemas: bool = True
    refused: RefusedFields = field(default_factory=RefusedFields)
    encoded: EncodedMessages = field(default_factory=EncodedMessages, compare=False, repr=False)

    @classmethod
    def at(cls, api_url: str, model: str) -> GeminiWire:
        """Create the wire for a configured address: the part before `/models`, or a whole method's address.

        An address without a path gets `/v1beta`.
        """
        scheme, host, path, query, _ = urlsplit(endpoint(api_url, ""))
        if any(name == "key" for name, _ in parse_qsl(query, keep_blank_values=True)):
            raise ConfigurationError(
                "the API address must not contain a key; put the key into the environment"
            )
        query = "&".join(part for part in query.split("&") if not part.startswith("alt="))
        path = _METHOD.sub("", path) or DEFAULT_PATH
        name = quote(model if model.startswith(("models/", "tunedModels/")) else f"models/{model}")
        return cls(urlunsplit((scheme, host, f"{path}/{name}", "", "")), model, query)

    @property
    def url(self) -> str:
        """The address of requests for a whole reply."""
        return self._method("generateContent", self.query)

    def _method(self, name: str, *queries: str) -> str:
        query = "&".join(query for query in queries if query)
        return f"{self.address}:{name}{f'?{query}' if query else ''}"

    @property
    def _is_new(self) -> bool:
        """Whether the rules of Gemini 3 apply."""
        return generation_of(self.model) >= (3, 0)

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"x-goog-api-key": api_key}

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Encode a request as Gemini's JSON."""
        head: dict[str, Any] = {}
        if request.system:
            head["systemInstruction"] = {"parts": [{"text": request.system}]}
        head.update(self._tool_fields(request))
        if config := self._generation_config(request):
            head["generationConfig"] = config
        options = dict(request.provider_options.get("gemini", {}))
        options.pop("grounding", None)
        if "safety_settings" in options:
            options["safetySettings"] = options.pop("safety_settings")
        merge_options(head, options)
        entries = [self.encoded.get(message, self._entries) for message in request.messages]
        url = self._method("streamGenerateContent", "alt=sse", self.query) if stream else self.url
        return WireRequest(url, accept_header(stream=stream), head, "contents", entries, self.encoded)

    def _generation_config(self, request: Request) -> dict[str, Any]:
        config: dict[str, Any] = self.refused.kept(self._numbers(request))
        # Models before Gemini 3 refuse a schema for the reply beside functions.
        if request.output_schema and self.output_schemas and (self._is_new or not request.tools):
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = request.output_schema.schema
        if thinking := thinking_config(request.reasoning_effort, self.model, self.levels):
            config["thinkingConfig"] = thinking
        return config

    def _numbers(self, request: Request) -> dict[str, Any]:
        """Return the optional settings that a model may refuse."""
        return {
            "maxOutputTokens": self.refused.limit(request.max_output_tokens),
            "temperature": request.temperature,
            "topP": request.top_p,
        }

    def _tool_fields(self, request: Request) -> dict[str, Any]:
        tools: list[dict[str, Any]] = []
        config: dict[str, Any] = {}
        if request.tools:
            functions = [
                {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.parameters}
                for tool in request.tools
            ]
            tools.append({"functionDeclarations": functions})
            if request.tool_choice is not None and _CALLING not in self.refused.fields:
                config["functionCallingConfig"] = {"mode": _MODES[request.tool_choice]}
        if request.provider_options.get("gemini", {}).get("grounding"):
            tools.append({"googleSearch": {}})
            if request.tools and self._is_new:
                config["includeServerSideToolInvocations"] = True  # required if there are both kinds of tools
        return {**({"tools": tools} if tools else {}), **({"toolConfig": config} if config else {})}

    def _entries(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield a message as entries of the vendor's list; nothing if it has no content."""
        if message.role is Role.ASSISTANT:
            groups = [("model", list(_model_parts(message, needs_signature=self._is_new)))]
        else:
            # Results are separate, because the vendor treats a text beside them as a new turn.
            results = [part for part in message.parts if isinstance(part, ToolResult)]
            groups = [
                ("user", [entry for part in results for entry in self._result(part)]),
                ("user", list(_user_parts(message))),
            ]
        yield from ({"role": role, "parts": parts} for role, parts in groups if parts)

    def _result(self, result: ToolResult) -> Iterator[dict[str, Any]]:
        key = "error" if result.is_error else "output"
        response: dict[str, Any] = {
            "id": result.call_id,
            "name": function_name(result.name),
            "response": {key: result.content},
        }
        inside = [image for image in result.images if self._is_new and image.media_type in _RESPONSE_PICTURES]
        if inside:
            response["parts"] = [_picture(image) for image in inside]
        yield {"functionResponse": response}
        yield from (_picture(image) for image in result.images if image not in inside)

    def decoder(self, request: Request) -> GeminiDecoder:
        """Return a decoder for one reply."""
        return GeminiDecoder(request, model=self.model, where=host_of(self.address))

    def relax(self, request: Request, error: ModelError) -> GeminiWire | None:
        """Return the wire without what the server refused.

        That is a thinking level, all of thinking, the reply's schema, or a setting.
        """
        if not isinstance(error, InvalidRequestError):
            return None
        said = str(error).partition(": ")[2]
        config = self._generation_config(request)
        if "thinkingConfig" in config and _THINKING_WORDS.search(said):
            has_two = self.levels is Levels.ALL and self._is_new
            return replace(self, levels=Levels.TWO if has_two else Levels.NONE)
        if "responseJsonSchema" in config and _SCHEMA_WORDS.search(said):
            return replace(self, output_schemas=False)
        sent = self.refused.kept(self._numbers(request))
        calling = _CALLING in self._tool_fields(request).get("toolConfig", {})
        users = request.provider_options.get("gemini", {})
        named = {**sent, **({_CALLING: True} if calling and "toolConfig" not in users else {})}
        theirs = as_object(users.get("generationConfig"))
        refused = self.refused.after(error, named, theirs, sent.get("maxOutputTokens"))
        return None if refused is None else replace(self, refused=refused)


def function_name(text: str) -> str:
    """Return the name with only the characters that the vendor accepts; it begins with a letter or `_`."""
    name = _NOT_DOTTED.sub("_", text)
    return (name if name[:1].isalpha() or name.startswith("_") else f"_{name}")[:_MAX_NAME_CHARACTERS]


def _picture(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode("ascii")
    return {"inlineData": {"mimeType": image.media_type, "data": data}}


def _user_parts(message: Message) -> Iterator[dict[str, Any]]:
    for part in message.parts:
        if isinstance(part, Image):
            yield _picture(part)
        elif isinstance(part, Text) and part.text:
            yield {"text": part.text}


def _model_parts(message: Message, *, needs_signature: bool) -> Iterator[dict[str, Any]]:
    """Yield the parts of a model's message. As in the vendor's agent only signatures of thoughts go back."""
    signature = ""
    for part in message.parts:
        if isinstance(part, Reasoning):
            kept = part.opaque.get(OPAQUE, {})
            signature = kept.get(SIGNATURE, "")
            if PART in kept:
                yield kept[PART]
            continue
        if isinstance(part, Text) and part.text:
            entry: dict[str, Any] = {"text": part.text}
        elif isinstance(part, ToolCall):
            entry = {
                "functionCall": {
                    "id": part.id,
                    "name": function_name(part.name),
                    "args": dict(part.arguments),
                }
            }
            signature = signature or (DUMMY_SIGNATURE if needs_signature else "")
            needs_signature = False
        else:
            continue
        yield {**entry, "thoughtSignature": signature} if signature else entry
        signature = ""
