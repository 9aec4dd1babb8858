"""Responses: messages as items of the vendor's `input` list."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.names import plain_name, short_id
from orchestrator.engine.models.openai_responses_items import CALL, FOLLOWING, ITEM, MESSAGE
from orchestrator.engine.models.wire import dicts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator.core.messages import Message


# The vendor refuses what is longer, and other characters in names.
_MAX_ID_CHARACTERS = 64
_MAX_NAME_CHARACTERS = 64


def items_of(
    message: Message, *, reasoning: bool = True, result_images: bool = True, strict: bool = False
) -> list[dict[str, Any]]:
    """A message as items: each text, call, result and piece of reasoning is one of its own.

    Args:
        message: anything that was said.
        reasoning: whether past reasoning goes back; without it nothing refers to it either.
        result_images: whether pictures stay in their tool result, or follow as the user's.
        strict: whether the server refuses long ids and unusual names of calls.
    """
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
    """Plain text stays a string, because some servers take nothing else."""
    if all(isinstance(part, Text) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [_content_part(part) for part in parts]


def _content_part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "input_text", "text": part.text}
    data = base64.b64encode(part.data).decode("ascii")
    return {"type": "input_image", "detail": "auto", "image_url": f"data:{part.media_type};base64,{data}"}


def _assistant(message: Message, *, reasoning: bool, strict: bool) -> Iterator[dict[str, Any]]:
    places: list[dict[str, Any]] = []
    for part in message.parts:
        if isinstance(part, Reasoning):
            places = dicts(part.opaque.get(FOLLOWING))
            item = part.opaque.get(ITEM)
            if item is not None and reasoning:
                yield dict(item)
            else:  # an id would refer to the reasoning that is not there
                places = [_without_id(place) for place in places]
        elif isinstance(part, Text) and part.text:
            place = next((place for place in places if place.get("type") == MESSAGE), {})
            places = [other for other in places if other is not place]
            yield _said(part.text, place)
        elif isinstance(part, ToolCall):
            yield _call(part, places, strict=strict)


def _without_id(place: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in place.items() if name != "id"}


def _said(text: str, place: Mapping[str, Any]) -> dict[str, Any]:
    # Never a plain string: llama.cpp takes that for a user's message.
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
