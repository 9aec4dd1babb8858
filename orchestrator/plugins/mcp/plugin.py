"""What `mcp` adds."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from orchestrator.app.plugins import CommandEntry, Plugin, Point

if TYPE_CHECKING:
    import argparse


def _add_flags(parser: argparse.ArgumentParser) -> None:
    from orchestrator.app.cli.flags import actions_of, add_json, add_settings, add_switch, add_text

    add_action = actions_of(parser)
    listing = add_action("list", help="list the configured servers without starting them")
    trial = add_action("test", help="start one server, and show its tools")
    add_text(trial, "name", "NAME", "the server's name")
    add_switch(trial, "--approve", "approve its present tools for runs, without asking")
    add_text(trial, "--repo", "PATH", "the repository's folder, for a server that may read it")
    for action in (listing, trial):
        add_json(action, "print JSON")
        add_settings(action, {"mcp_config", "mcp_unconfined", "sandbox"})


PLUGIN = Plugin(
    name="mcp",
    text="give the model the tools of MCP servers",
    commands={
        "mcp": CommandEntry(
            "list the MCP servers, test one, approve its tools",
            "steer",
            _add_flags,
            ".command:mcp",
            lists_actions=True,
        )
    },
    options=".options:McpOptions",
    tables=("mcp",),
    adds=MappingProxyType(
        {
            Point.ATTACKS: ".attacks:FOLDER",
            Point.FOREIGN_TOOLS: ".opening:open_servers",
            Point.PROBES: ".probes:mcp_probes",
        }
    ),
    extra="mcp",
)
