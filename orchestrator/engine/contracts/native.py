"""The contracts that use a vendor's own function calling: all calls of a reply, or one call a step."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orchestrator.core.messages import FinishReason, Message, Role, Text
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.base import Actions, Running
from orchestrator.engine.contracts.fence import fenced
from orchestrator.engine.contracts.written_calls import WRITTEN, written_calls
from orchestrator.engine.models.base import ToolChoice

if TYPE_CHECKING:
    from orchestrator.core.messages import ToolDefinition, ToolResult
    from orchestrator.engine.contracts.base import Contract, Reading
    from orchestrator.engine.models.base import Request, Response


class Native:
    """Calls are the vendor's tool calls, and run at the same time. A reply without calls ends the work."""

    @property
    def name(self) -> str:
        """`native`."""
        return "native"

    @property
    def running(self) -> Running:
        """At the same time."""
        return Running.TOGETHER

    @property
    def text_ends(self) -> bool:
        """Yes: the model is done when it only talks."""
        return True

    @property
    def go_on(self) -> str:
        """For replies that are empty or were cut off."""
        return render("agent/empty_reply")

    @property
    def prunes(self) -> bool:
        """No: what to drop is for the host to decide."""
        return False

    @property
    def forgets(self) -> bool:
        """No: vendors want each call and its result."""
        return False

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """The request with the tools."""
        return dataclasses.replace(request, tools=tools, tool_choice=ToolChoice.AUTO if tools else None)

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Each tool's name and the first sentence about it; the vendor's own field has the rest."""
        lines = [(tool.name, tool.description.partition("\n")[0]) for tool in tools]
        return render("contracts/native", tools=lines) if lines else ""

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> Reading:
        """The calls of the reply, also those written as text. The last one of a cut reply is withheld."""
        calls = response.tool_calls
        if response.finish is FinishReason.LENGTH:
            return Actions(response.text, calls[:-1], calls[-1:], cut_off=True)
        if calls:
            return Actions(response.text, calls)
        written = written_calls(response.text, tools, round_number)
        return Actions("" if written else response.text, written, repaired=bool(written))

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """The results in order, and the note after them; as text if the calls were."""
        if not results:
            return Message.user(note)
        if results[0].call_id.startswith(WRITTEN):
            return Message.user(
                render("contracts/written_results", results=[_shown(one) for one in results], note=note)
            )
        return Message(Role.TOOL, (*results, Text(note)) if note else results)

    def complain(self, problems: tuple[str, ...]) -> Message:
        """Not needed: every reply can be read."""
        return Message.user("\n".join(problems))


class SingleStep(Native):
    """At most one call is executed a step (one-step agent specification).

    Args:
        ends_by: the tool (`submit`) by which alone the session ends; a reply without calls is asked to
            go on. None: such a reply ends it.
    """

    def __init__(self, ends_by: str | None = None) -> None:
        self._ends_by = ends_by

    @property
    def name(self) -> str:
        """`single_step`."""
        return "single_step"

    @property
    def running(self) -> Running:
        """The first one only."""
        return Running.FIRST_ONLY

    @property
    def text_ends(self) -> bool:
        """Only where no tool does."""
        return self._ends_by is None

    @property
    def go_on(self) -> str:
        """The fixed message of the specification."""
        if self._ends_by is None:
            return super().go_on
        return render("contracts/single_step_continue", tool=self._ends_by)

    @property
    def prunes(self) -> bool:
        """Yes, as the specification says."""
        return True

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """The request with the tools, asking for one call at most."""
        return dataclasses.replace(super().shape(request, tools), parallel_tool_calls=False)


def _shown(result: ToolResult) -> dict[str, object]:
    block = fenced(result.content) if result.content.strip() else ""
    return {"name": result.name, "is_error": result.is_error, "block": block}


if TYPE_CHECKING:
    _native_conforms: Contract = Native()
    _single_step_conforms: Contract = SingleStep()
