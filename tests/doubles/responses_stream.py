"""Replies of OpenAI's Responses protocol, whole and as the events of a stream, made from their output items.

The order and the fields of the events follow https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

MODEL = "scripted-1"
PIECE_CHARACTERS = 7
USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 5},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 7},
    "total_tokens": 120,
}


def message(text: str, *, number: int = 1, phase: str | None = None, refusal: bool = False) -> dict[str, Any]:
    """An output item that says something, or refuses to."""
    part: dict[str, Any] = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    if refusal:
        part = {"type": "refusal", "refusal": text}
    item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed"}
    return {**item, "content": [part], **({"phase": phase} if phase else {})}


def call(name: str, arguments: str, *, number: int = 1) -> dict[str, Any]:
    """An output item that is a function call, its arguments as text."""
    ids = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    return {**ids, "name": name, "arguments": arguments, "status": "completed"}


def reasoning(
    *summary: str, encrypted: str | None = "gAAAmade-up", content: Sequence[str] = (), number: int = 1
) -> dict[str, Any]:
    """An output item that is reasoning: paragraphs of a summary, and what the vendor encrypted."""
    item: dict[str, Any] = {"type": "reasoning", "id": f"rs_{number}"}
    item["summary"] = [{"type": "summary_text", "text": text} for text in summary]
    if content:
        item["content"] = [{"type": "reasoning_text", "text": text} for text in content]
    return {**item, **({"encrypted_content": encrypted} if encrypted is not None else {})}


def whole(output: Sequence[Mapping[str, Any]], status: str = "completed", **more: Any) -> dict[str, Any]:
    """A whole reply."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": MODEL,
        "output": list(output),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": USAGE,
        **more,
    }


def events(
    output: Sequence[Mapping[str, Any]], status: str = "completed", **more: Any
) -> list[dict[str, Any]]:
    """The events of a stream whose last one has the whole reply."""
    begun = whole([], "in_progress", usage=None)
    listed: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for index, item in enumerate(output):
        listed += _item_events(index, item)
    listed.append({"type": f"response.{status}", "response": whole(output, status, **more)})
    return [{**event, "sequence_number": number} for number, event in enumerate(listed)]


def _item_events(index: int, item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    bare: dict[str, Any] = {"content": []} if item["type"] == "message" else {}
    bare |= {"arguments": ""} if item["type"] == "function_call" else {}
    bare |= {"summary": []} if item["type"] == "reasoning" else {}
    bare |= {"status": "in_progress"} if "status" in item else {}
    yield {"type": "response.output_item.added", "output_index": index, "item": {**item, **bare}}
    where = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        for piece in pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **where, "delta": piece}
        said = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **where, **said}
    for field, number_name in (("summary", "summary_index"), ("content", "content_index")):
        for number, part in enumerate(item.get(field, ())):
            yield from _part_events({**where, number_name: number}, part)
    yield {"type": "response.output_item.done", "output_index": index, "item": dict(item)}


def _part_events(where: Mapping[str, Any], part: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    kind = part["type"]
    name, field = {
        "output_text": ("response.output_text", "text"),
        "refusal": ("response.refusal", "refusal"),
        "summary_text": ("response.reasoning_summary_text", "text"),
        "reasoning_text": ("response.reasoning_text", "text"),
    }[kind]
    around = "response.reasoning_summary_part" if kind == "summary_text" else "response.content_part"
    logprobs: dict[str, Any] = {"logprobs": []} if kind == "output_text" else {}
    yield {"type": f"{around}.added", **where, "part": {**part, field: ""}}
    for piece in pieces(part[field]):
        yield {"type": f"{name}.delta", **where, "delta": piece, **logprobs}
    yield {"type": f"{name}.done", **where, field: part[field], **logprobs}
    yield {"type": f"{around}.done", **where, "part": dict(part)}


def pieces(text: str) -> list[str]:
    """A text as it is streamed."""
    return [text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS)]
