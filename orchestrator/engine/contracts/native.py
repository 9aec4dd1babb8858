"""The contracts that use a vendor's function calling: all calls of a reply, or one call a step."""

from __future__ import annotations

import dataclasses
import re
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.base import Actions, Contract, Running, text_with_results
from orchestrator.engine.contracts.json_plan import plan_of
from orchestrator.engine.contracts.plan_json import BrokenJsonError, flaws, parse_json
from orchestrator.engine.contracts.whole_file import fenced_blocks
from orchestrator.engine.models.base import ToolChoice
from orchestrator.engine.tools.registry import without_extras

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.messages import ToolDefinition, ToolResult
    from orchestrator.engine.contracts.base import ReadReply
    from orchestrator.engine.models.base import Request, Response


class Native(Contract):
    """Calls are the vendor's tool calls, and run concurrently. A reply without calls ends the work."""

    name = "native"
    running = Running.TOGETHER
    text_ends = True

    def go_on(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the message after an empty or truncated reply."""
        del tools
        return render("agent/empty_reply")

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """Return the request with the tools."""
        return dataclasses.replace(request, tools=tools, tool_choice=ToolChoice.AUTO if tools else None)

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return each tool's name and the first line of its description.

        The vendor's own field has the whole description.
        """
        lines = [(tool.name, tool.description.partition("\n")[0]) for tool in tools]
        return render("contracts/native", tools=lines) if lines else ""

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Return the calls of the reply, also those written as text.

        The last call of a truncated reply is withheld.
        """
        calls = response.tool_calls
        if response.finish is FinishReason.LENGTH:
            return Actions(response.text, calls[:-1], calls[-1:], cut_off=True)
        if calls:
            calls, note = _without_extras(calls, tools)
            return Actions(response.text, calls, note=note)
        written = written_calls(response.text, tools, round_number)
        return Actions("" if written else response.text, written, repaired=bool(written))

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """Return the results in order and the note after them; as text if the calls were text."""
        if not results:
            return Message.user(note)
        if results[0].call_id.startswith(WRITTEN):
            return text_with_results("contracts/written_results", results, note)
        return Message(Role.TOOL, (*results, Text(note)) if note else results)

    def complain(self, problems: tuple[str, ...]) -> Message:
        """Return the problems as a message. It is never needed, because every reply can be read."""
        return Message.user("\n".join(problems))


def _without_extras(
    calls: tuple[ToolCall, ...], tools: Iterable[ToolDefinition]
) -> tuple[tuple[ToolCall, ...], str]:
    """Return the calls without properties that mean nothing, and a note that names them."""
    offered = {tool.name: tool for tool in tools}
    kept: list[ToolCall] = []
    notes: list[str] = []
    for call in calls:
        if tool := offered.get(call.name):
            arguments, note = without_extras(call.arguments, tool)
            call = dataclasses.replace(call, arguments=arguments)  # noqa: PLW2901
            notes += filter(None, [note])
        kept.append(call)
    return tuple(kept), "\n".join(notes)


class SingleStep(Native):
    """At most one call is executed a step (one-step agent specification).

    Args:
        ends_by: the only tool that ends the session (`submit`); after a reply without calls the model is
            asked to go on. None: such a reply ends the session.
    """

    name = "single_step"
    running = Running.FIRST_ONLY
    prunes = True  # required by the specification

    def __init__(self, ends_by: str | None = None) -> None:
        self._ends_by = ends_by
        self.text_ends = ends_by is None

    def go_on(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the fixed message of the specification."""
        if self._ends_by not in {tool.name for tool in tools}:
            return super().go_on(tools)
        return render("contracts/single_step_continue", tool=self._ends_by)

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """Return the request with the tools and a limit of one call."""
        return dataclasses.replace(super().shape(request, tools), parallel_tool_calls=False)


WRITTEN = "written_"
"""Prefix of the ids of calls that were written as text.

Their results are sent as text, because vendors do not know the ids.
"""

_LONGEST_CHARS = 200_000
_TAG = re.compile(r"<(tool_calls?|tools?|function_call)>")


def written_calls(text: str, tools: Iterable[ToolDefinition], round_number: int) -> tuple[ToolCall, ...]:
    """Return the calls in a text, if nothing else in it could be a call; else nothing.

    Considered are elements such as `<tool_call>`, one fenced block, or the whole text. Each must be valid
    JSON and name an offered tool; otherwise the text is the model's answer.
    """
    if len(text) > _LONGEST_CHARS:
        return ()
    tagged = _tagged(text)
    fenced = [] if tagged else [block.text for block in fenced_blocks(text)[1] if block.is_closed]
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
    """Return the content of the elements.

    Each end tag is searched once: a single regular expression would take cubic time if there is none.
    """
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


def _calls_of(block: str) -> list[dict[str, Any]]:
    if not block.startswith(("{", "[")):
        return []
    try:
        value = plan_of(parse_json(block))
    except BrokenJsonError:
        return []
    calls = value.get("tool_calls") if isinstance(value, dict) and not flaws(value) else None
    if not isinstance(calls, list):
        return []
    is_valid = all(
        isinstance(call, dict)
        and isinstance(call.get("tool_name"), str)
        and isinstance(call.get("arguments"), dict)
        for call in calls
    )
    return calls if is_valid else []
