"""The tools of one session, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.core.messages import ToolDefinition
    from orchestrator.tools.base import Tool


class ToolRegistry:
    """Tools in the order in which they were registered; the latest of a name wins, in its place."""

    def __init__(self, tools: Iterable[Tool] = ()) -> None:
        self._tools: dict[str, Tool] = {}
        for tool in tools:
            self.register(tool)

    def register(self, tool: Tool) -> None:
        """Add a tool, or put it in the place of the one with its name."""
        self._tools[tool.name] = tool

    def unregister(self, name: str) -> None:
        """Remove a tool; a name that is not there is no error."""
        self._tools.pop(name, None)

    def get(self, name: str) -> Tool | None:
        """The tool of this name, if there is one."""
        return self._tools.get(name)

    def __iter__(self) -> Iterator[Tool]:
        return iter(tuple(self._tools.values()))

    def names(self) -> tuple[str, ...]:
        """All names, in order."""
        return tuple(self._tools)

    def definitions(self, *, dangerous: bool) -> tuple[ToolDefinition, ...]:
        """What the model is shown. Without `dangerous`, dangerous tools are left out."""
        return tuple(tool.definition for tool in self._tools.values() if dangerous or not tool.dangerous)
