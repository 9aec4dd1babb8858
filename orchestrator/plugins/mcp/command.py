"""`pullwright mcp`: lists the configured MCP servers, tests one, and approves its tools."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, NOTHING, QUESTION, given_settings
from orchestrator.app.terminal import print_json
from orchestrator.app.wiring import BuildContext
from orchestrator.app.words import agreed, clean, counted, short_line
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import Guarded, Warned
from orchestrator.plugins.mcp.base import McpError, ServerProgram, shown_names
from orchestrator.plugins.mcp.definitions import for_model, pin_of
from orchestrator.plugins.mcp.elicitation import PersonAtTerminal
from orchestrator.plugins.mcp.opening import open_servers

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from orchestrator.core.events import Event
    from orchestrator.plugins.mcp.base import McpServer
    from orchestrator.plugins.mcp.definitions import DefinitionChanges, McpDefinition
    from orchestrator.plugins.mcp.servers import McpMaker


def mcp(options: argparse.Namespace) -> int:
    """Run the requested action."""
    context = BuildContext.of(given_settings(options), os.environ, Path.cwd())
    maker = open_servers(context)
    if maker is None or not (maker.config.servers or maker.notices):
        print(
            "no MCP server is configured: write [mcp.servers.NAME] into your own file, or pass --mcp-config FILE",
            file=sys.stderr,
        )
        return NOTHING
    for notice in maker.notices:
        print(f"! {short_line(notice, 400)}", file=sys.stderr)
    if options.action != "test":
        return _list(maker, as_json=options.json)
    server = maker.config.server(options.name)
    tree = Path(options.repo).resolve() if options.repo else None
    if sys.stdin.isatty() and sys.stderr.isatty():
        maker = replace(maker, person=PersonAtTerminal(_show_page))
    try:
        return event_loop.run(_Trial(maker, server, options, _Listener(context.redactor.redact), tree).run())
    except McpError as error:
        raise McpError(f"the MCP server {server.name}: {error}") from None


def _show_page(server: str, page: str) -> None:
    print(f"sign in to the MCP server {server} at: {clean(page)}", file=sys.stderr, flush=True)


def _list(maker: McpMaker, *, as_json: bool) -> int:
    rows = [_row(maker, one) for one in maker.config.servers]
    if as_json:
        print_json(rows, indent=2)
        return DONE
    widths = [max(len(str(row[key])) for row in rows) for key in ("name", "kind")] if rows else []
    for row in rows:
        approved = f"{counted(row['approved'], 'tool')} approved" if row["approved"] is not None else "pinned"
        head = f"{row['name']:{widths[0]}}  {row['kind']:{widths[1]}}  {approved}"
        print(clean(f"{head}, {row['confined']}; allow: {', '.join(row['allow']) or '-'}"))
        print(clean(f"    {row['place']}  ({row['file']})"))
    return DONE


def _row(maker: McpMaker, server: McpServer) -> dict[str, Any]:
    place = server.place
    if isinstance(place, ServerProgram):
        off = maker.context.settings.sandbox == "off" or not place.is_confined
        confined = "WITHOUT a sandbox" if off else f"in a sandbox, hosts: {', '.join(place.hosts) or 'none'}"
        where, kind = " ".join((place.command, *place.arguments)), "stdio"
    else:
        confined, where, kind = "elsewhere", place.url, "sse" if place.events else "http"
    return {
        "name": server.name,
        "kind": kind,
        "place": where,
        "confined": confined,
        "allow": list(server.allow),
        "approved": None if server.pin else len(maker.approvals.of(server.name)),
        "file": str(maker.config.sources[server.name]),
    }


@dataclass(slots=True)
class _Listener:
    """Prints notices about a server, and redacts its definitions as a session does."""

    redact: Callable[[str], str]

    def __call__(self, event: Event) -> None:
        if isinstance(event, Guarded | Warned):
            print(f"! {short_line(event.message, 400)}", file=sys.stderr)

    def clean(self, _where: str, text: str) -> str:
        return self.redact(text)


@dataclass(slots=True)
class _Trial:
    """Starts one server once, shows its tools and their approvals, and asks whether to approve them."""

    maker: McpMaker
    server: McpServer
    options: argparse.Namespace
    listener: _Listener
    tree: Path | None

    async def run(self) -> int:
        tree, server = self.tree, self.server
        if isinstance(server.place, ServerProgram) and server.place.repository and tree is None:
            raise ConfigurationError(
                f"the MCP server {server.name} reads a repository: name its folder with --repo PATH"
            )
        looked = await self.maker.look(server, tree, self.listener)
        found, changes = looked.found, looked.drift
        if self.options.json:
            print_json(self._as_json(looked.about, found, changes), indent=2)
        else:
            self._print(looked.about, found, changes)
        return self._approve(found, changes)

    def _approve(self, found: tuple[McpDefinition, ...], changes: DefinitionChanges) -> int:
        """Approve the tools if the person agrees. A pinned server is approved by a change of its pin instead."""
        server = self.server
        if server.pin:
            if changes.waits:
                self._say(f'! the tools do not match the pin; to approve them write: pin = "{pin_of(found)}"')
            return QUESTION if changes.waits else DONE
        if not (changes.waits or changes.gone):
            return DONE
        question = (
            f"{changes.in_words()}. From now on runs use the tools of {server.name} as they are shown here"
        )
        if not (self.options.approve or agreed(question)):
            self._say(f"! not approved; approve them with: pullwright mcp test {server.name} --approve")
            return QUESTION
        self.maker.approvals.approve(server.name, found)
        self._say(f"approved: {counted(len(found), 'tool')} of {server.name}")
        return DONE

    def _print(self, about: str, found: tuple[McpDefinition, ...], changes: DefinitionChanges) -> None:
        self._out(f"{self.server.name}: {about}; {counted(len(found), 'tool')}")
        for row in self._tools(found):
            problem = f"; not used: {row['problem']}" if row["problem"] else ""
            self._out(f"  {row['shown']}  {'dangerous' if row['dangerous'] else 'allowed'}{problem}")
        for line in changes.diff():
            self._out(f"  {line}")
        self._out(f'  pin = "{pin_of(found)}"')

    def _as_json(
        self, about: str, found: tuple[McpDefinition, ...], changes: DefinitionChanges
    ) -> dict[str, Any]:
        return {
            "server": self.server.name,
            "about": about,
            "tools": self._tools(found),
            "approved": [one.name for one in changes.approved],
            "new": [one.name for one in changes.new],
            "changed": [one.name for _, one in changes.changed],
            "gone": [one.name for one in changes.gone],
            "pin": pin_of(found),
        }

    def _tools(self, found: tuple[McpDefinition, ...]) -> list[dict[str, Any]]:
        server = self.server
        names = shown_names((server.name, one.name) for one in found)
        rows = []
        for one in found:
            shown = names[server.name, one.name]
            made = for_model(server.name, one, shown, self.listener.clean)
            row = {"name": one.name, "shown": shown, "dangerous": not server.allows(one.name)}
            rows.append({**row, "problem": made if isinstance(made, str) else ""})
        return rows

    def _out(self, line: str) -> None:
        print(clean(line))

    def _say(self, line: str) -> None:
        print(clean(line), file=sys.stderr)
