"""The probes of `doctor` for MCP servers: whether each answers, and whether its tools are approved."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from orchestrator.app.doctor.findings import Group, Probe, failed, ok, warned
from orchestrator.core import event_loop
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.mcp.base import McpError
from orchestrator.plugins.mcp.opening import open_servers

if TYPE_CHECKING:
    from orchestrator.app.doctor.findings import ProbeFinding
    from orchestrator.app.wiring import BuildContext
    from orchestrator.plugins.mcp.base import McpServer
    from orchestrator.plugins.mcp.servers import McpMaker

_SANDBOX_SECONDS = 60.0


def mcp_probes(context: BuildContext) -> list[Group]:
    """Return a probe for each configured server."""
    fix = "correct the configuration of MCP servers"
    try:
        maker = open_servers(context)
    except ConfigurationError as error:
        found = str(error)
        return [Group("MCP servers", (Probe("configuration", lambda: failed(found, fix), fix),))]
    if maker is None:
        return []
    probes = [
        Probe(one.name, partial(_server, maker, one), "see above", one.start_seconds + _SANDBOX_SECONDS)
        for one in maker.config.servers
    ]
    if maker.notices:
        notice = maker.notices[0]
        probes.insert(0, Probe("configuration", lambda: warned(notice, fix), fix))
    return [Group("MCP servers", tuple(probes))]


def _server(maker: McpMaker, server: McpServer) -> ProbeFinding:
    """Start a server, with an empty folder instead of a clone."""
    typed = f"pullwright mcp test {quote(server.name)}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            looked = event_loop.run(maker.look(server, Path(folder).resolve(), lambda _event: None))
        except McpError as error:
            return failed(str(error), f"try it with: {typed}")
    if looked.drift.waits:
        return warned(
            f"{looked.about}: tools wait for approval ({looked.drift.in_words()})", "look at them", typed
        )
    return ok(f"{looked.about}: {len(looked.found)} tools, as approved")
