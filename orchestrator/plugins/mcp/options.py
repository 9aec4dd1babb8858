"""The options of `mcp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.options import Reach, option, several

if TYPE_CHECKING:
    from orchestrator.app.forms import Line, Texts

TABLE = "mcp"
"""The table of servers in the person's own config.toml."""

_ONE_LINE = "one line of text, not empty, of at most 200 characters"


class McpOptions:
    """The options that name MCP servers."""

    mcp_config: Line | None = option(
        None,
        "File with MCP servers in the common JSON form, in addition to those of your own config.toml.",
        _ONE_LINE,
        Reach.NEVER,
        begins="MCP servers, whose tools the model may use",
    )
    mcp_unconfined: Texts = several(
        "Names of MCP servers that run as you, without a sandbox.", _ONE_LINE, Reach.TYPED
    )
