"""The MCP servers of a session as tools: started, compared with what was approved, and called."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import (
    Defence,
    ForeignToolsOffered,
    Guarded,
    Warned,
)
from orchestrator.core.prompts import one_line
from orchestrator.engine.tools.base import Failed, Ok, foreign_tool
from orchestrator.engine.tools.registry import check_tool
from orchestrator.plugins.mcp.base import McpError, shown_names
from orchestrator.plugins.mcp.connection import McpConnection
from orchestrator.plugins.mcp.definitions import compare, for_model

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.engine.tools.base import Tool, ToolContext, ToolOutcome
    from orchestrator.plugins.mcp.base import McpServer
    from orchestrator.plugins.mcp.connection import MakeTransport
    from orchestrator.plugins.mcp.definitions import DefinitionChanges, McpDefinition
    from orchestrator.plugins.mcp.elicitation import AskPerson

MAX_STARTING = 8
"""Servers that may start at the same time."""
_DETAILS = 60


@dataclass(frozen=True, slots=True)
class McpSetup:
    """A server and its transport."""

    server: McpServer
    make_transport: MakeTransport


@dataclass(slots=True)
class _Offer:
    """A running server and its usable tools, by raw name."""

    connection: McpConnection
    approved: Mapping[str, McpDefinition]

    @property
    def name(self) -> str:
        return self.connection.server.name

    def is_as_approved(self, tool: str) -> bool:
        """Return whether the server still defines the tool as it was approved."""
        return any(one == self.approved[tool] for one in self.connection.found if one.name == tool)


@dataclass(slots=True)
class McpTools:
    """The `ForeignTools` of MCP servers.

    What the model sees of them never changes within a session. A tool is no longer called once its server
    changes its definition.

    Attributes:
        approved: returns the approved definitions of a server, by raw name.
        clean: returns a text as the model may see it, given a description of the text and the text itself.
        ask: see `McpConnection`.
    """

    setups: Sequence[McpSetup]
    approved: Callable[[str], Mapping[str, McpDefinition]]
    emit: Emit
    clean: Callable[[str, str], str]
    ask: AskPerson | None = None
    _connections: list[McpConnection] = field(default_factory=list)

    async def open(self) -> tuple[Tool, ...]:
        """Start the servers and return their tools; see `ForeignTools`."""
        room = asyncio.Semaphore(MAX_STARTING)

        async def offer(setup: McpSetup) -> _Offer | None:
            async with room:
                return await self._offer(setup)

        offers = [one for one in await asyncio.gather(*map(offer, self.setups)) if one]
        names = shown_names((one.name, tool) for one in offers for tool in one.approved)
        return tuple(tool for one in offers for tool in self._tools(one, names))

    async def close(self) -> None:
        """Stop the servers; see `ForeignTools`."""
        connections, self._connections = self._connections, []
        await asyncio.gather(*(one.close() for one in connections))

    async def _offer(self, setup: McpSetup) -> _Offer | None:
        """Start a server and compare its tools with the approved ones; return None if it fails."""
        server = setup.server
        offers: list[_Offer] = []
        connection = McpConnection(
            server,
            setup.make_transport,
            on_asked=lambda method: self._emit_defence(
                f"the MCP server {server.name} asked for {method}, which it does not get"
            ),
            on_change=lambda: self._emit_change(offers[0]) if offers else None,
            ask=self.ask,
            clean=self.clean,
        )
        self._connections.append(connection)
        try:
            approved = self.approved(server.name)
            await connection.open()
        except (McpError, ConfigurationError) as error:
            self._warn(f"the MCP server {server.name} is not used: {error}")
            return None
        for tool, why in sorted(connection.left_out.items()):
            self._warn(
                f"the tool {one_line(tool, limit=80)} of the MCP server {server.name} is not used: {why}"
            )
        changes = compare(connection.found, approved, server.pin)
        if changes.waits:
            self._emit_defence(
                f"tools of the MCP server {server.name} wait for approval ({changes.in_words()}); "
                f"see them and approve them with: pullwright mcp test {server.name}",
                changes,
            )
        offers.append(_Offer(connection, {one.name: one for one in changes.approved}))
        return offers[0]

    def _tools(self, offer: _Offer, names: Mapping[tuple[str, str], str]) -> list[Tool]:
        made: list[Tool] = []
        for raw, definition in sorted(offer.approved.items()):
            name = names[offer.name, raw]
            shown = for_model(offer.name, definition, name, self.clean)
            tool = shown if isinstance(shown, str) else self._tool(offer, raw, shown)
            if isinstance(tool, str):
                what = f"the tool {one_line(raw, limit=80)} of the MCP server {offer.name}"
                self._warn(f"{what} is not used: {tool}")
            else:
                made.append(tool)
        dangerous = tuple(tool.name for tool in made if tool.dangerous)
        self.emit(ForeignToolsOffered(offer.name, tuple(tool.definition for tool in made), dangerous))
        return made

    def _tool(self, offer: _Offer, raw: str, shown: ToolDefinition) -> Tool | str:
        async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
            if not offer.is_as_approved(raw):
                return Failed(
                    f"{shown.name} is not called: its server has changed or removed it since a person approved it."
                )
            try:
                result = await offer.connection.call(raw, arguments)
            except McpError as error:
                return Failed(f"The MCP server {offer.name} failed: {error}")
            return Failed(result.text) if result.is_error else Ok(result.text)

        tool = foreign_tool(shown, execute, dangerous=not offer.connection.server.allows(raw))
        try:
            check_tool(tool)
        except ConfigurationError as error:
            return one_line(str(error), limit=300)
        return tool

    def _emit_change(self, offer: _Offer) -> None:
        """Emit that the server changed its definitions during the session."""
        if any(not offer.is_as_approved(raw) for raw in offer.approved):
            message = f"the MCP server {offer.name} has changed tools that were approved; they are not called any more"
            self._emit_defence(message, compare(offer.connection.found, offer.approved))

    def _emit_defence(self, message: str, changes: DefinitionChanges | None = None) -> None:
        details = tuple(changes.diff()[:_DETAILS]) if changes else ()
        self.emit(Guarded(Defence.MCP, message, details))

    def _warn(self, message: str) -> None:
        self.emit(Warned(self.clean("a message about an MCP server", message)))
