"""Do our bodies pass the types of the vendors' own packages?"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from pydantic import TypeAdapter

from tests.doubles.vendor_replies import Protocol

# The version of the API that we speak takes them; the package's types have dropped them.
_UNLISTED = {
    Protocol.CHAT: frozenset[str](),
    Protocol.RESPONSES: frozenset[str](),
    Protocol.MESSAGES: frozenset(("temperature", "top_p")),
}


def check_body(protocol: Protocol, body: dict[str, Any]) -> None:
    """Raise unless the vendor's package takes every field, and there is none that it does not know.

    Raises:
        ValidationError: a field is not as the vendor's type wants it.
        AssertionError: the vendor knows no such field.
    """
    if protocol is Protocol.GEMINI:
        _check_gemini(body)
        return
    kind = _kind(protocol)
    assert body.pop("stream", True) is True  # left out where it is not wanted
    _consume(_adapter(kind).validate_python(body))
    known = {name for base in (kind, *kind.__orig_bases__) for name in getattr(base, "__annotations__", {})}
    assert body.keys() <= known | _UNLISTED[protocol]


def _kind(protocol: Protocol) -> Any:
    """The vendor's type of a request whose reply is not streamed; the other differs in `stream` only."""
    from anthropic.types import message_create_params as messages
    from openai.types.chat import completion_create_params as chat
    from openai.types.responses import response_create_params as responses

    kinds: dict[Protocol, Any] = {
        Protocol.CHAT: chat.CompletionCreateParamsNonStreaming,
        Protocol.RESPONSES: responses.ResponseCreateParamsNonStreaming,
        Protocol.MESSAGES: messages.MessageCreateParamsNonStreaming,
    }
    return kinds[protocol]


@functools.cache  # slow to build, and it must live as long as the lazy parts of what it validated
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _consume(value: Any) -> None:
    """Pydantic checks an `Iterable` only while it is iterated."""
    if isinstance(value, dict):
        value = value.values()
    elif isinstance(value, str):
        return
    if isinstance(value, Iterable):
        for item in value:
            _consume(item)


def _check_gemini(body: dict[str, Any]) -> None:
    from google.genai import types

    rest = dict(body)
    for content in [*rest.pop("contents"), rest.pop("systemInstruction", {})]:
        types.Content.model_validate(content)
    for tool in rest.pop("tools", []):
        types.Tool.model_validate(tool)
    types.ToolConfig.model_validate(rest.pop("toolConfig", {}))
    types.GenerationConfig.model_validate(rest.pop("generationConfig", {}))
    for setting in rest.pop("safetySettings", []):
        types.SafetySetting.model_validate(setting)
    assert rest == {}
