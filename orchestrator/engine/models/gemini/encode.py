"""Gemini's generateContent and streamGenerateContent: encodes requests.

https://ai.google.dev/api/generate-content
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit, urlunsplit

from orchestrator.core.errors import ConfigurationError, InvalidRequestError
from orchestrator.core.messages import Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.base import ToolChoice
from orchestrator.engine.models.gemini.decode import OPAQUE, PART, SIGNATURE, GeminiDecoder
from orchestrator.engine.models.refusals import RefusedFields
from orchestrator.engine.models.wire import EncodedMessages, WireRequest, dotted_name, endpoint, host_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Message
    from orchestrator.engine.models.base import Request


_NUMBERED = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?![\d.])")

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

    def fewer(self, model: str) -> Levels:
        """Return the levels to try after a refusal."""
        return Levels.TWO if self is Levels.ALL and generation_of(model) >= (3, 0) else Levels.NONE


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

        Raises:
            ConfigurationError: it is not an http(s) address, or contains a key.
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
        for name, value in request.provider_options.get("gemini", {}).items():
            if name == "safety_settings":
                head["safetySettings"] = value
            elif name != "grounding":
                head[name] = _joined(head.get(name), value)
        entries = [self.encoded.get(message, self._entries) for message in request.messages]
        if stream:
            url, accept = self._method("streamGenerateContent", "alt=sse", self.query), "text/event-stream"
        else:
            url, accept = self.url, "application/json"
        return WireRequest(url, {"accept": accept}, head, "contents", entries, self.encoded)

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
        fields = {"tools": tools, "toolConfig": config}
        return {name: value for name, value in fields.items() if value}

    def _entries(self, message: Message) -> Iterator[dict[str, Any]]:
        """Yield a message as entries of the vendor's list; nothing if it has no content."""
        if message.role is Role.ASSISTANT:
            said = list(_model_parts(message, needs_signature=self._is_new))
            groups = [("model", said)]
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
            "name": _name(result.name),
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
            return replace(self, levels=self.levels.fewer(self.model))
        if "responseJsonSchema" in config and _SCHEMA_WORDS.search(said):
            return replace(self, output_schemas=False)
        sent = self.refused.kept(self._numbers(request))
        calling = _CALLING in self._tool_fields(request).get("toolConfig", {})
        users = request.provider_options.get("gemini", {})
        named = {**sent, **({_CALLING: True} if calling and "toolConfig" not in users else {})}
        mine = users.get("generationConfig")
        refused = self.refused.after(
            error, named, mine if isinstance(mine, dict) else {}, sent.get("maxOutputTokens")
        )
        return None if refused is None else replace(self, refused=refused)


def _joined(ours: object, theirs: object) -> object:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return {**ours, **theirs}
    return [*ours, *theirs] if isinstance(ours, list) and isinstance(theirs, list) else theirs


def _name(text: str) -> str:
    return dotted_name(text, _MAX_NAME_CHARACTERS)


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
    """Yield the parts of a model's message.

    Its thoughts are not sent back, as in the vendor's own agent; their signatures are.
    """
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
            entry = {"functionCall": {"id": part.id, "name": _name(part.name), "args": dict(part.arguments)}}
            signature = signature or (DUMMY_SIGNATURE if needs_signature else "")
            needs_signature = False
        else:
            continue
        yield {**entry, "thoughtSignature": signature} if signature else entry
        signature = ""
