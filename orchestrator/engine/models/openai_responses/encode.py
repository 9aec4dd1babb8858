"""OpenAI Responses without state at the vendor: encodes requests.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import InvalidRequestError, ModelNotFoundError, OverloadedError, ProviderError
from orchestrator.core.messages import Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.openai_responses.decode import (
    CALL,
    FOLLOWING,
    ITEM,
    MESSAGE,
    ResponsesDecoder,
)
from orchestrator.engine.models.refusals import RefusedFields
from orchestrator.engine.models.schemas import allows_strict, openai_format
from orchestrator.engine.models.wire import (
    EncodedMessages,
    WireRequest,
    accept,
    dicts,
    endpoint,
    host_of,
    merge_options,
    plain_name,
    short_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import Message, ToolDefinition
    from orchestrator.engine.models.base import Request


# The vendor refuses longer ids and names, and other characters in names.
_MAX_ID_CHARACTERS = 64
_MAX_NAME_CHARACTERS = 64


def _items(
    message: Message, *, reasoning: bool = True, result_images: bool = True, strict: bool = False
) -> list[dict[str, Any]]:
    """Return a message as items: each text, call, result and piece of reasoning is a separate one."""
    if message.role is Role.ASSISTANT:
        return list(_assistant(message, reasoning=reasoning, strict=strict))
    results = [part for part in message.parts if isinstance(part, ToolResult)]
    items = [_result(part, images=result_images, strict=strict) for part in results]
    pictures = [] if result_images else [image for part in results for image in part.images]
    others = [*pictures, *(part for part in message.parts if isinstance(part, Text | Image))]
    if others or not items:
        items.append({"role": "user", "content": _content(others)})
    return items


def _result(result: ToolResult, *, images: bool, strict: bool) -> dict[str, Any]:
    # The protocol has no flag for failed calls: the result's text says that it is an error.
    output: str | list[dict[str, Any]] = result.content
    if images and result.images:
        text = [Text(result.content)] if result.content else []
        output = _content([*text, *result.images])
    call_id = _id(result.call_id, strict=strict)
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _content(parts: list[Text | Image]) -> str | list[dict[str, Any]]:
    """Return content parts: plain text as a string, because some servers accept nothing else."""
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [
        {"type": "input_text", "text": part.text} if isinstance(part, Text) else _image(part)
        for part in parts
    ]


def _image(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode("ascii")
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{image.media_type};base64,{data}"}


def _assistant(message: Message, *, reasoning: bool, strict: bool) -> Iterator[dict[str, Any]]:
    places: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Reasoning):
            places = dicts(part.opaque.get(FOLLOWING))
            item = part.opaque.get(ITEM)
            if item is not None and reasoning:
                yield dict(item)
            else:  # an id would refer to the missing reasoning
                places = [{key: place[key] for key in place if key != "id"} for place in places]
        elif isinstance(part, Text) and part.text:
            place = next((place for place in places if place.get("type") == MESSAGE), {})
            places = [other for other in places if other is not place]
            yield _said(part.text, place)
        elif isinstance(part, ToolCall):
            yield _call(part, places, strict=strict)


def _said(text: str, place: Mapping[str, Any]) -> dict[str, Any]:
    # Never a plain string, which llama.cpp treats as a user's message.
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item: dict[str, Any] = {"type": MESSAGE, "role": "assistant", "status": "completed", "content": content}
    return {**item, **{name: place[name] for name in ("id", "phase") if name in place}}


def _id(call_id: str, *, strict: bool) -> str:
    return short_id(call_id, _MAX_ID_CHARACTERS) if strict else call_id


def _call(call: ToolCall, places: Iterable[Mapping[str, Any]], *, strict: bool) -> dict[str, Any]:
    item = {
        "type": CALL,
        "call_id": _id(call.id, strict=strict),
        "name": plain_name(call.name, _MAX_NAME_CHARACTERS) if strict else call.name or "_",
        "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
    }
    ids = (place["id"] for place in places if place.get("call_id") == call.id and "id" in place)
    item_id = next(ids, None)
    return {**item, "id": item_id} if item_id else item


SUFFIX = "/responses"

ENCRYPTED_REASONING = "reasoning.encrypted_content"

_VENDOR_HOSTS = re.compile(r"api\.openai\.com|.+\.openai\.azure\.com")
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


# Sent only with tools, and after them.
_CALLING = ("tool_choice", "parallel_tool_calls")
_EFFORT = "reasoning.effort"

_REFUSES = r"(?=.*(not (support|permit|allow)|unsupported|unrecogni[sz]ed|unknown|unexpected|extra ))"

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

    A request's provider options for `openai` are added to the body. If a field is an object on both sides
    (`reasoning`, `text`), the two are merged; lists (`tools`, `include`) are appended.
    """

    url: str
    model: str
    demanding: bool = False
    extras: frozenset[Extra] = _ALL
    refused: RefusedFields = field(default_factory=RefusedFields)
    encoded: EncodedMessages = field(default_factory=EncodedMessages, compare=False, repr=False)

    @classmethod
    def at(cls, api_url: str, model: str) -> ResponsesWire:
        """Create the wire for an address that a user configured (see `endpoint`).

        Raises:
            ConfigurationError: it is not an http(s) address.
        """
        url = endpoint(api_url, SUFFIX)
        is_vendor = _VENDOR_HOSTS.fullmatch(host_of(url).partition(":")[0].lower()) is not None
        # On other servers the strict mode of tools has another meaning, or none.
        missing = set() if is_vendor else {Extra.STRICT_TOOLS}
        if _NOT_REASONING.match(model):
            missing.add(Extra.ENCRYPTED_REASONING)
        return cls(url, model, demanding=is_vendor, extras=_ALL - missing)

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
        optional = self.refused.kept(self._optional(request))
        calling = {name: optional.pop(name) for name in _CALLING if name in optional}
        if _EFFORT in optional:
            head["reasoning"] = self._reasoning(optional.pop(_EFFORT))
        head.update(optional)
        if request.output_schema is not None and Extra.SCHEMA in self.extras:
            wanted = openai_format(request.output_schema, demanding=self.demanding)
            head["text"] = {"format": {"type": wanted["type"], **wanted["json_schema"]}}
        if request.tools:
            head["tools"] = [self._tool(tool) for tool in request.tools]
            head.update(calling)
        merge_options(head, request.provider_options.get("openai", {}))
        make = partial(
            _items,
            reasoning=Extra.PAST_REASONING in self.extras,
            result_images=Extra.RESULT_IMAGES in self.extras,
            strict=self.demanding,
        )
        entries = [self.encoded.get(message, make) for message in request.messages]
        return WireRequest(self.url, accept(stream=stream), head, "input", entries, self.encoded)

    def _reasoning(self, effort: str) -> dict[str, Any]:
        summary = Extra.SUMMARY in self.extras and effort != "none"
        return {"effort": effort, **({"summary": "auto"} if summary else {})}

    def _optional(self, request: Request) -> dict[str, Any]:
        """Return the optional fields that a server may refuse."""
        choice = request.tool_choice.value if request.tool_choice is not None else None
        return {
            "max_output_tokens": self.refused.limit(request.max_output_tokens),
            "temperature": request.temperature,
            "top_p": request.top_p,
            _EFFORT: self.refused.effort(request.reasoning_effort),
            "tool_choice": choice if request.tools else None,
            "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
        }

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

    def decoder(self, request: Request) -> ResponsesDecoder:
        """Return a decoder for one reply."""
        return ResponsesDecoder(request, model=self.model, where=host_of(self.url))

    def relax(self, request: Request, error: ModelError) -> ResponsesWire | None:
        """Return the wire without the extra that the server refused, if this request has it."""
        # Not found: the vendor looked for past reasoning in its store.
        kinds = InvalidRequestError | OverloadedError | ProviderError | ModelNotFoundError
        if not isinstance(error, kinds):
            return None
        said = str(error).partition(": ")[2]
        for extra, words in _REFUSALS:
            if extra in self.extras and self._sends(extra, request) and re.search(words, said, re.IGNORECASE):
                # The cached JSON of messages may contain the extra.
                return replace(self, extras=self.extras - {extra}, encoded=EncodedMessages())
        sent = self.refused.kept(self._optional(request))
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
