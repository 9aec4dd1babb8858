"""The tools of a session that other programs run: those that the plug-ins give, or the record of a replayed run."""

from __future__ import annotations

import json
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.app.plugins import Point, added
from orchestrator.core.errors import ToolError
from orchestrator.core.events import CallStatus, ForeignToolsOffered, ToolCallEnded, ToolCallStarted
from orchestrator.engine.tools.base import Failed, Ok, foreign_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.app.wiring import BuildContext
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.tools.base import Executor, ForeignTools, Tool, ToolContext, ToolOutcome


class ForeignSource(Protocol):
    """Creates the tools of other programs for each session of a run."""

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices for the person, one line each."""

    @property
    def runs_unconfined(self) -> bool:
        """Whether a program runs as this user without a sandbox."""

    def __call__(self, tree: Path, clean: Callable[[str, str], str], emit: Emit) -> ForeignTools:
        """Create the tools for a session on a working tree. No program is started yet.

        Args:
            clean: returns a text as the model may see it, given a description of the text and the text itself.
        """


@dataclass(frozen=True, slots=True)
class ForeignSources:
    """The sources that the plug-ins give, as one `ForeignSource`."""

    sources: tuple[ForeignSource, ...] = ()

    @property
    def notices(self) -> tuple[str, ...]:
        """The notices of all sources."""
        return tuple(notice for one in self.sources for notice in one.notices)

    @property
    def runs_unconfined(self) -> bool:
        """Whether a program of any source runs as this user without a sandbox."""
        return any(one.runs_unconfined for one in self.sources)

    def __call__(self, tree: Path, clean: Callable[[str, str], str], emit: Emit) -> ForeignTools:
        """Create the tools of all sources."""
        return _Together(tuple(one(tree, clean, emit) for one in self.sources))


@dataclass(frozen=True, slots=True)
class _Together:
    """The `ForeignTools` of several sources."""

    parts: tuple[ForeignTools, ...]

    async def open(self) -> tuple[Tool, ...]:
        return tuple([tool for one in self.parts for tool in await one.open()])

    async def close(self) -> None:
        for one in self.parts:
            await one.close()


def open_foreign_tools(context: BuildContext, person: Any = None) -> ForeignSources:
    """Return what gives the tools of other programs (`Point.FOREIGN_TOOLS`).

    Args:
        person: see `Point.FOREIGN_TOOLS`.
    """
    opened = (open_one(context, person) for open_one in added(Point.FOREIGN_TOOLS))
    return ForeignSources(tuple(one for one in opened if one is not None))


class RecordedTools:
    """The `ForeignTools` of a replayed run: no program is started, and each call gets its recorded answer."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._offered = [event for event in events if isinstance(event, ForeignToolsOffered)]
        asked: dict[str, ToolCallStarted] = {}  # some servers reuse the ids of calls in each reply
        self._answers: defaultdict[str, deque[tuple[str, ToolCallEnded]]] = defaultdict(deque)
        for event in events:
            if isinstance(event, ToolCallStarted):
                asked[event.call_id] = event
            elif isinstance(event, ToolCallEnded) and event.status in {CallStatus.OK, CallStatus.FAILED}:
                started = asked.get(event.call_id)
                self._answers[event.name].append((_key(started.arguments if started else {}), event))

    async def open(self) -> tuple[Tool, ...]:
        """Return the recorded tools; see `ForeignTools`."""
        return tuple(
            foreign_tool(tool, self._answer(tool.name), dangerous=tool.name in offered.dangerous)
            for offered in self._offered
            for tool in offered.tools
        )

    async def close(self) -> None:
        """Do nothing: no program runs."""

    def _answer(self, name: str) -> Executor:
        async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
            answers, key = self._answers[name], _key(arguments)
            found = next((one for one in answers if one[0] == key), None)
            if found is None:
                raise ToolError("The recorded run has no answer to this call.")
            answers.remove(found)
            ended = found[1]
            return Ok(ended.output) if ended.status is CallStatus.OK else Failed(ended.output)

        return execute


def _key(arguments: Mapping[str, Any]) -> str:
    return json.dumps(arguments, sort_keys=True, default=str)
