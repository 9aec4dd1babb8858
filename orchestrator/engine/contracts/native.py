"""The contracts that use a vendor's function calling: all calls of a reply, or one call a step."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orchestrator.core.messages import FinishReason, Message, Reasoning, Role, Text
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.base import Actions, Contract, Running, text_with_results
from orchestrator.engine.contracts.written_calls import WRITTEN, written_calls
from orchestrator.engine.models.base import ToolChoice
from orchestrator.engine.tools.registry import without_extras

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.core.messages import ToolCall, ToolDefinition, ToolResult
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
        thoughts = "".join(part.text for part in response.message.parts if isinstance(part, Reasoning))
        written = written_calls(response.text or f"<think>{thoughts}", tools, round_number)
        if written.is_doubtful:
            return Actions(response.text, (), note=render("contracts/call_in_text"))
        said = "" if written.calls else response.text
        calls, note = _without_extras(written.calls, tools)
        return Actions(said, calls, repaired=bool(calls), note=note, written=written.text)

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
