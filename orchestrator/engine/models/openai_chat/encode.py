"""OpenAI Chat Completions: encodes requests, for the vendor and for compatible servers.

https://platform.openai.com/docs/api-reference/chat
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import InvalidRequestError, ModelNotFoundError, OverloadedError, ProviderError
from orchestrator.core.messages import Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.openai_chat.decode import (
    EXTRA_CONTENT,
    REASONING_DETAILS,
    REASONING_FIELD,
    ChatDecoder,
)
from orchestrator.engine.models.refusals import RefusedFields, highest_reply_limit
from orchestrator.engine.models.schemas import openai_format
from orchestrator.engine.models.wire import (
    EncodedMessages,
    WireRequest,
    endpoint,
    host_of,
    json_bytes,
    plain_name,
    short_id,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.core.errors import ModelError
    from orchestrator.core.messages import JsonObject, Message, Part, ToolDefinition
    from orchestrator.engine.models.base import Request


SUFFIX = "/chat/completions"

# The vendor's host and its reasoning models know only the newer name of the output limit;
# many compatible servers know only the older one.
_NEW_LIMIT = "max_completion_tokens"
_OLD_LIMIT = "max_tokens"
_VENDOR_HOSTS = re.compile(r"api\.openai\.com|.+\.openai\.azure\.com")
_NEW_LIMIT_MODELS = re.compile(r"(.*/)?(o\d|gpt-[5-9])")

# The vendor refuses longer ids and names, and other characters in names. Other servers may need whole ids.
_MAX_ID_CHARACTERS = 40
_MAX_NAME_CHARACTERS = 64

# Sent only with tools, and after them.
_CALLING = ("tool_choice", "parallel_tool_calls")

_SCHEMA_WORDS = re.compile(r"response.?format|json.?schema|grammar|structured.?output|guided", re.IGNORECASE)
_UNSUPPORTED = re.compile(
    r"not support|unsupported|unrecogni[sz]ed|not permitted|unknown|unexpected", re.IGNORECASE
)
_NAMES_A_FIELD = re.compile(r"['\"`]\w|\b(tools?|images?|vision|temperature|max_\w+|stream\w*|roles?)\b")


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
        """Create the wire for an address that a user configured (see `endpoint`).

        Raises:
            ConfigurationError: it is not an http(s) address.
        """
        url = endpoint(api_url, SUFFIX)
        host = host_of(url).partition(":")[0].lower()
        is_vendor = _VENDOR_HOSTS.fullmatch(host) is not None
        is_new = is_vendor or _NEW_LIMIT_MODELS.match(model)
        return cls(url, model, _NEW_LIMIT if is_new else _OLD_LIMIT, demanding=is_vendor)

    def credentials(self, api_key: str) -> Mapping[str, str]:
        """Return the header that carries the key."""
        return {"authorization": f"Bearer {api_key}"}

    def encode(self, request: Request, *, stream: bool) -> WireRequest:
        """Encode a request as Chat Completions JSON.

        The messages come last, so that the bytes of a longer conversation begin with those of a shorter one.
        """
        head: dict[str, Any] = {"model": self.model}
        if stream:
            head["stream"] = True
            if self.stream_usage:
                head["stream_options"] = {"include_usage": True}
        optional = self.refused.kept(self._optional(request))
        calling = {name: optional.pop(name) for name in _CALLING if name in optional}
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
        make = partial(_entries, strict=self.demanding)
        entries = [system, *(self.encoded.get(message, make) for message in request.messages)]
        accept = "text/event-stream" if stream else "application/json"
        return WireRequest(self.url, {"accept": accept}, head, "messages", entries, self.encoded)

    def _optional(self, request: Request) -> dict[str, Any]:
        """Return the optional fields that a server may refuse."""
        choice = request.tool_choice.value if request.tool_choice is not None else None
        return {
            self.limit_field: self.refused.limit(request.max_output_tokens),
            "temperature": request.temperature,
            "top_p": request.top_p,
            "reasoning_effort": self.refused.effort(request.reasoning_effort),
            "tool_choice": choice if request.tools else None,
            "parallel_tool_calls": request.parallel_tool_calls if request.tools else None,
        }

    def decoder(self, request: Request) -> ChatDecoder:
        """Return a decoder for one reply."""
        return ChatDecoder(request, model=self.model, where=host_of(self.url))

    def relax(self, request: Request, error: ModelError) -> ChatWire | None:
        """Return the wire without what the server refused.

        That is the schema, usage in streams, a name of the limit, or another field.
        """
        if not isinstance(error, InvalidRequestError | OverloadedError | ProviderError | ModelNotFoundError):
            return None
        said = str(error).partition(": ")[2]
        refuses = _UNSUPPORTED.search(said) is not None
        shapes = request.output_schema is not None and self.output_schemas
        if shapes and _SCHEMA_WORDS.search(said):
            return replace(self, output_schemas=False)
        if self.stream_usage and "stream_options" in said:
            return replace(self, stream_usage=False)
        renames = refuses and _NEW_LIMIT in said and highest_reply_limit(said) is None
        if request.max_output_tokens is not None and renames:
            other = _OLD_LIMIT if self.limit_field == _NEW_LIMIT else _NEW_LIMIT
            return replace(self, limit_field=other)
        sent = self.refused.kept(self._optional(request))
        users = request.provider_options.get("openai", {})
        refused = self.refused.after(error, sent, users, sent.get(self.limit_field))
        if refused is not None:
            return replace(self, refused=refused)
        is_vague = isinstance(error, InvalidRequestError) and refuses and not _NAMES_A_FIELD.search(said)
        return replace(self, output_schemas=False) if shapes and is_vague else None


def _tool(tool: ToolDefinition) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def _entries(message: Message, *, strict: bool) -> list[dict[str, Any]]:
    """Return a message as entries of the vendor's list: each tool result is a separate one."""
    if message.role is Role.ASSISTANT:
        return [_assistant(message, strict=strict)]
    # The protocol has no flag for failed calls: the result's text says that it is an error.
    results = [
        {"role": "tool", "tool_call_id": _id(part.call_id, strict=strict), "content": part.content}
        for part in message.parts
        if isinstance(part, ToolResult)
    ]
    # It has no images in results either: they follow as the user's.
    pictures = [image for part in message.parts if isinstance(part, ToolResult) for image in part.images]
    others = [*pictures, *(part for part in message.parts if isinstance(part, Text | Image))]
    if not others and results:
        return results
    return [*results, {"role": "user", "content": _user_content(others)}]


def _user_content(parts: Iterable[Text | Image]) -> str | list[dict[str, Any]]:
    """Return a user message's content: plain text as a string, as some servers accept nothing else."""
    listed = list(parts)
    if all(isinstance(part, Text) for part in listed):
        return "".join(part.text for part in listed if isinstance(part, Text))
    return [_user_part(part) for part in listed]


def _user_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": part.text}
    data = base64.b64encode(part.data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{part.media_type};base64,{data}"}}


def _assistant(message: Message, *, strict: bool) -> dict[str, Any]:
    calls = [part for part in message.parts if isinstance(part, ToolCall)]
    entry: dict[str, Any] = {"role": "assistant", "content": message.text or (None if calls else "")}
    if not calls:
        return entry
    extras = _carried_reasoning(message.parts, entry)
    entry["tool_calls"] = [
        {
            "id": _id(call.id, strict=strict),
            "type": "function",
            "function": {
                "name": plain_name(call.name, _MAX_NAME_CHARACTERS) if strict else call.name or "_",
                "arguments": json.dumps(dict(call.arguments), ensure_ascii=False),
            },
            **({"extra_content": extras[call.id]} if call.id in extras else {}),
        }
        for call in calls
    ]
    return entry


def _id(call_id: str, *, strict: bool) -> str:
    return short_id(call_id, _MAX_ID_CHARACTERS) if strict else call_id


def _carried_reasoning(parts: Iterable[Part], entry: dict[str, Any]) -> JsonObject:
    """Add reasoning under its original field names; return what belongs to the calls, by id.

    It is sent only beside tool calls: there some models need it, elsewhere some servers reject it.
    """
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
