"""Opens the configured MCP servers for a run or a conversation, and loads nothing if there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.plugins.mcp.options import TABLE

if TYPE_CHECKING:
    from orchestrator.app.wiring import BuildContext
    from orchestrator.plugins.mcp.elicitation import PersonAtTerminal
    from orchestrator.plugins.mcp.servers import McpMaker


def is_configured(context: BuildContext) -> bool:
    """Return whether the configuration names a server, or a file with servers."""
    settings = context.settings
    named = getattr(settings, "mcp_config", None) or getattr(settings, "mcp_unconfined", ())
    return bool(named) or TABLE in context.loaded.tables


def open_servers(context: BuildContext, person: PersonAtTerminal | None = None) -> McpMaker | None:
    """Read the MCP servers; return None if none are configured.

    Args:
        person: shows pages and questions of servers to a person; None if nobody is there.
    """
    if not is_configured(context):
        return None
    from orchestrator.plugins.mcp.servers import open_mcp

    return open_mcp(context, person)
