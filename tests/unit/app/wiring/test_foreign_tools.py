"""The tools that other programs run: several sources together, and the record of a replayed run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.wiring.foreign_tools import ForeignSources, RecordedTools
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ToolError
from orchestrator.core.events import CallStatus, ForeignToolsOffered, ToolCallEnded, ToolCallStarted
from orchestrator.core.messages import ToolDefinition
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.tools.base import Failed, Ledger, Ok, ToolContext, foreign_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.tools.base import Tool, ToolOutcome


class Source:
    """A program with one tool that notes when it starts and ends."""

    def __init__(self, name: str, noted: list[str], *, runs_unconfined: bool = False) -> None:
        self.name, self.noted, self.runs_unconfined = name, noted, runs_unconfined
        self.notices = (f"{name} is new",)

    def __call__(self, tree: Path, clean: Callable[[str, str], str], emit: Emit) -> Source:
        del tree, clean, emit
        return self

    async def open(self) -> tuple[Tool, ...]:
        async def execute(_arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
            return Ok(self.name)

        self.noted.append(f"start {self.name}")
        definition = ToolDefinition(self.name, "Reads.", {"type": "object"})
        return (foreign_tool(definition, execute, dangerous=False),)

    async def close(self) -> None:
        self.noted.append(f"end {self.name}")


async def test_the_sources_of_several_plugins_are_one(tmp_path: Path) -> None:
    noted: list[str] = []
    sources = ForeignSources((Source("a", noted), Source("b", noted)))
    assert sources.notices == ("a is new", "b is new")
    assert not sources.runs_unconfined
    assert ForeignSources((Source("a", []), Source("b", [], runs_unconfined=True))).runs_unconfined
    tools = sources(tmp_path, lambda _where, text: text, lambda _event: None)
    assert noted == []
    assert [one.name for one in await tools.open()] == ["a", "b"]
    await tools.close()
    assert noted == ["start a", "start b", "end a", "end b"]
    assert await ForeignSources()(tmp_path, lambda _where, text: text, lambda _event: None).open() == ()


async def test_a_replay_gives_the_recorded_answers(tmp_path: Path) -> None:
    context = ToolContext(LocalEnvironment(tmp_path), Ledger(), lambda _text: None, clock=SystemClock())

    def call(
        number: int, name: str, arguments: dict[str, Any], status: CallStatus, output: str
    ) -> list[Event]:
        started = ToolCallStarted(f"c{number}", name, arguments)
        return [started, ToolCallEnded(started.call_id, name, status, output)]

    echo, create = (
        ToolDefinition(name, "Works.", {"type": "object"}) for name in ("mcp_s_echo", "mcp_s_create")
    )
    events = [
        ForeignToolsOffered("s", (echo, create), ("mcp_s_create",)),
        *call(1, "mcp_s_echo", {"text": "x"}, CallStatus.REFUSED, "no"),
        *call(2, "mcp_s_echo", {"text": "x"}, CallStatus.OK, "first"),
        *call(3, "mcp_s_echo", {"text": "x"}, CallStatus.OK, "second"),
        *call(4, "mcp_s_echo", {"text": "y"}, CallStatus.FAILED, "bad"),
        *call(4, "read_file", {"path": "a"}, CallStatus.OK, "the same id in a later reply"),
    ]
    recorded = {one.name: one for one in await RecordedTools(events).open()}
    assert {name: (one.definition, one.dangerous) for name, one in recorded.items()} == {
        "mcp_s_echo": (echo, False),
        "mcp_s_create": (create, True),
    }
    again = recorded["mcp_s_echo"].execute
    assert await again({"text": "y"}, context) == Failed("bad")
    assert await again({"text": "x"}, context) == Ok("first")
    assert await again({"text": "x"}, context) == Ok("second")
    with pytest.raises(ToolError, match="no answer to this call"):
        await again({"text": "x"}, context)
