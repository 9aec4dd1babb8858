"""The MCP servers of a run, made from the configuration: their sandboxes, folders and approvals, and their tools.

The tools of a session's servers are started with it, compared with what was approved, and called.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import importlib.util
import re
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring.guards import open_sandbox, sandbox_options
from orchestrator.bot.suggestions import install_command
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
from orchestrator.plugins.mcp.base import McpError, ServerProgram, shown_names
from orchestrator.plugins.mcp.config import load_mcp
from orchestrator.plugins.mcp.connection import McpConnection
from orchestrator.plugins.mcp.definitions import ServerApprovals, compare, for_model
from orchestrator.plugins.mcp.elicitation import PERSON_SECONDS
from orchestrator.plugins.mcp.transports import ProgramStart, remote_transport, stdio_transport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from mcp.client import Transport

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.engine.environments.base import Connect, Sandbox
    from orchestrator.engine.environments.running_program import ProgramReport
    from orchestrator.engine.tools.base import ForeignTools, Tool, ToolContext, ToolOutcome
    from orchestrator.plugins.mcp.base import McpServer, ServerAddress
    from orchestrator.plugins.mcp.config import McpConfig
    from orchestrator.plugins.mcp.connection import MakeTransport
    from orchestrator.plugins.mcp.definitions import DefinitionChanges, McpDefinition
    from orchestrator.plugins.mcp.elicitation import AskPerson, PersonAtTerminal


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


_KEY_CHARS = 8


@dataclass(frozen=True, slots=True)
class TriedServer:
    """The result of testing a server. `about` is its description of itself, in one line."""

    about: str
    found: tuple[McpDefinition, ...]
    drift: DefinitionChanges


@dataclass(frozen=True, slots=True)
class McpMaker:
    """Creates the tools of MCP servers for one session, and transports to single servers.

    Attributes:
        connect: replaces the function that connects to allowed hosts; the default connects to public
            addresses only.
        person: shows pages and questions to a person; None if nobody is there.
    """

    config: McpConfig
    context: BuildContext
    connect: Connect | None = None
    person: PersonAtTerminal | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        """Notices on the configuration for the person, one line each."""
        return self.config.notices

    @property
    def runs_unconfined(self) -> bool:
        """Whether a server is a program that runs as this user without a sandbox."""
        places = (one.place for one in self.config.servers)
        return any(isinstance(one, ServerProgram) and not self._is_confined(one) for one in places)

    @property
    def _folder(self) -> Path:
        return self.context.home.root / "mcp"

    @property
    def approvals(self) -> ServerApprovals:
        """The approvals on this machine."""
        return ServerApprovals(self._folder / "approved.json")

    def __call__(self, tree: Path, clean: Callable[[str, str], str], emit: Emit) -> ForeignTools:
        """Create the tools for a session on a working tree. No server is started yet."""
        setups = [McpSetup(one, self.transport(one, tree, emit)) for one in self.config.servers]
        ask = self.person.ask if self.person else None
        return McpTools(setups, self.approvals.of, emit, clean, ask)

    async def look(self, server: McpServer, tree: Path | None, emit: Emit) -> TriedServer:
        """Start a server once, to list its tools.

        Raises:
            McpError: the server does not answer.
            ConfigurationError: the file of approvals is damaged.
        """

        def tell(method: str) -> None:
            emit(
                Guarded(
                    Defence.MCP, f"the MCP server {server.name} asked for {method}, which it does not get"
                )
            )

        connection = McpConnection(server, self.transport(server, tree, emit), tell, lambda: None)
        try:
            await connection.open()
            found = connection.found
            for tool, why in sorted(connection.left_out.items()):
                emit(
                    Warned(
                        f"the tool {one_line(tool, limit=80)} of the MCP server {server.name} is not used: {why}"
                    )
                )
        finally:
            await connection.close()
        return TriedServer(
            connection.about, found, compare(found, self.approvals.of(server.name), server.pin)
        )

    def transport(
        self, server: McpServer, tree: Path | None, emit: Emit
    ) -> Callable[[ProgramReport], Transport]:
        """Return the function that creates the transport to a server.

        Args:
            tree: the repository that the server may read, if it has this permission.
        """
        place = server.place
        if not isinstance(place, ServerProgram):
            return partial(_remote, server, place, self.person)
        return partial(stdio_transport, self.start(server.name, place, tree, emit))

    def start(self, name: str, place: ServerProgram, tree: Path | None, emit: Emit) -> ProgramStart:
        """Return the object that starts the program of a server."""
        settings = self.context.settings
        return ProgramStart(
            place,
            self._folder / "servers" / folder_name(name),
            str(tree) if tree else "",
            self.context.environ,
            partial(_find_sandbox, place, settings, tree, self.connect) if self._is_confined(place) else None,
            lambda refused: _tell_refused(emit, name, refused),
            lambda: _tell_copy(emit, name),
        )

    def _is_confined(self, place: ServerProgram) -> bool:
        return place.is_confined and self.context.settings.sandbox != "off"


def open_mcp(context: BuildContext, person: PersonAtTerminal | None = None) -> McpMaker | None:
    """Read the configured MCP servers; return None if there are none.

    Args:
        person: see `McpMaker`.
    """
    config = load_mcp(context.settings, context.environ)
    if not config.servers and not config.notices:
        return None
    if config.servers:
        check_mcp_installed()
    context.redactor.learn(config.secrets)
    return McpMaker(config, context, person=person)


def check_mcp_installed() -> None:
    """Check that the extra for MCP servers is installed."""
    if importlib.util.find_spec("mcp") is None:
        raise ConfigurationError(f"MCP servers need an extra of this program: {install_command('mcp')}")


def folder_name(server: str) -> str:
    """Return the unique name of a server's own folder."""
    plain = re.sub(r"[^a-z0-9-]", "_", server.lower())
    return plain if plain == server else f"{plain}-{hashlib.sha256(server.encode()).hexdigest()[:_KEY_CHARS]}"


def _remote(
    server: McpServer, place: ServerAddress, person: PersonAtTerminal | None, voice: ProgramReport
) -> Transport:
    silence = server.call_seconds + (PERSON_SECONDS if person and person.ask else 0.0)
    show = partial(person.show_page, server.name) if person else None
    return remote_transport(place, voice, silence, show)


def _find_sandbox(
    program: ServerProgram, settings: Settings, tree: Path | None, connect: Connect | None
) -> Sandbox:
    """Find a sandbox with the permissions of this server only."""
    shown = (str(tree),) if program.repository and tree else ()
    options = dataclasses.replace(
        sandbox_options(settings), hosts=program.hosts, readable=(*program.readable, *shown), connect=connect
    )
    return open_sandbox(settings, options)


def _tell_copy(emit: Emit, server: str) -> None:
    text = "works in a copy of its folder, because another session uses the folder; what it changes there is not kept"
    emit(Guarded(Defence.MCP, f"the MCP server {server} {text}"))


def _tell_refused(emit: Emit, server: str, refused: str) -> None:
    place, _, why = refused.partition(" ")  # see `ExecResult.refused_hosts`
    reason = f": {why}" if why else "; write it into its hosts to allow it"
    emit(Guarded(Defence.NETWORK, f"the MCP server {server} tried to reach {place}{reason}"))
