"""Finds calls that a model wrote into its text, as small local models do whose server does not parse them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import ToolCall
from orchestrator.engine.contracts.strict_json import BrokenJsonError, decode, flaws
from orchestrator.engine.contracts.variants import plan_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.messages import ToolDefinition

WRITTEN = "written_"
"""How the ids of such calls begin. Their results go back as text, because no vendor knows these ids."""

_LONGEST_CHARS = 200_000
_TAG = re.compile(r"<(tool_calls?|tools?|function_call)>")
_FENCE = re.compile(r"^```[a-z]*[ \t]*\n", re.MULTILINE)
_FENCE_END = re.compile(r"^```[ \t]*$", re.MULTILINE)


def written_calls(text: str, tools: Iterable[ToolDefinition], round_number: int) -> tuple[ToolCall, ...]:
    """The calls, if the text has nothing else that could be one; else nothing.

    Taken are elements such as `<tool_call>`, one fenced block, or the whole text. Each must be valid JSON
    and name a tool on offer: what only looks like a call is what the model says.
    """
    if len(text) > _LONGEST_CHARS:
        return ()
    tagged = _tagged(text)
    fenced = [] if tagged else _fenced(text)
    if len(fenced) > 1:
        return ()
    offered = {tool.name for tool in tools}
    calls: list[ToolCall] = []
    for block in tagged or fenced or [text]:
        found = _calls_of(block.strip())
        if not found or any(call["tool_name"] not in offered for call in found):
            return ()
        for call in found:
            calls.append(
                ToolCall(f"{WRITTEN}r{round_number}c{len(calls) + 1}", call["tool_name"], call["arguments"])
            )
    return tuple(calls)


def _tagged(text: str) -> list[str]:
    """What elements hold. Each end is looked for once: one expression would take cubic time where there is none."""
    blocks: list[str] = []
    position, endless = 0, set[str]()
    for begin in _TAG.finditer(text):
        end = f"</{begin[1]}>"
        if begin.start() < position or end in endless:
            continue
        place = text.find(end, begin.end())
        if place < 0:
            endless.add(end)
            continue
        blocks.append(text[begin.end() : place])
        position = place + len(end)
    return blocks


def _fenced(text: str) -> list[str]:
    """What fenced blocks hold."""
    blocks: list[str] = []
    position = 0
    while begin := _FENCE.search(text, position):
        end = _FENCE_END.search(text, begin.end())
        if end is None:
            break
        blocks.append(text[begin.end() : end.start()])
        position = end.end()
    return blocks


def _calls_of(block: str) -> list[dict[str, Any]]:
    if not block.startswith(("{", "[")):
        return []
    try:
        value = plan_of(decode(block))
    except BrokenJsonError:
        return []
    if flaws(value):
        return []
    listed = value.get("tool_calls") if isinstance(value, dict) else None
    if not isinstance(listed, list):
        return []
    good = all(
        isinstance(call, dict)
        and isinstance(call.get("tool_name"), str)
        and isinstance(call.get("arguments"), dict)
        for call in listed
    )
    return listed if good else []
