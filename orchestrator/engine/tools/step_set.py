"""The tools of the one-step agent specification, under its names and parameters.

shell_command, read_file (that of `core_set`), list_dir, grep_files and submit: each maps its
arguments onto the one implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.tools.base import Ends, Order, Tool, ToolContext, ToolOutcome, define
from orchestrator.engine.tools.core_set import count, read_file
from orchestrator.engine.tools.search import DEFAULT_RESULTS, MAX_DEPTH, MAX_RESULTS, list_page, search_files
from orchestrator.engine.tools.shell import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

__all__ = ["grep_files", "list_dir", "read_file", "shell_command", "submit"]

_TEXT: JsonObject = {"type": "string"}
_FROM_ONE: JsonObject = {"type": "integer", "minimum": 1}

DEFAULT_ENTRIES = 100


def shell_command(default_timeout_ms: int | None = None) -> Tool:
    """`shell_command(command, workdir?, timeout_ms?, max_output_chars?)`. Dangerous.

    Args:
        default_timeout_ms: where the model gives none; None takes the session's default.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await run_command(
            context,
            arguments["command"],
            timeout_ms=count(arguments, "timeout_ms") or default_timeout_ms,
            working_dir=arguments.get("workdir") or None,
            max_output_chars=count(arguments, "max_output_chars"),
        )

    properties = {"command": _TEXT, "workdir": _TEXT, "timeout_ms": _FROM_ONE, "max_output_chars": _FROM_ONE}
    definition = define("shell_command", properties, ("command",), words="step/shell_command")
    return Tool(definition, execute, dangerous=True)


def list_dir() -> Tool:
    """`list_dir(dir_path, offset?, limit?, depth?)`: entries of a folder, in pages."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await list_page(
            context,
            arguments["dir_path"],
            offset=count(arguments, "offset") or 1,
            limit=count(arguments, "limit") or DEFAULT_ENTRIES,
            depth=count(arguments, "depth") or 1,
        )

    depth = {**_FROM_ONE, "maximum": MAX_DEPTH}
    properties = {"dir_path": _TEXT, "offset": _FROM_ONE, "limit": _FROM_ONE, "depth": depth}
    return Tool(define("list_dir", properties, ("dir_path",), words="step/list_dir"), execute)


def grep_files() -> Tool:
    """`grep_files(pattern, path?, include?, limit?)`: matching lines."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        limit = count(arguments, "limit") or DEFAULT_RESULTS
        options = GrepOptions(glob_filter=arguments.get("include") or None, max_results=limit)
        path = arguments.get("path") or "."
        return await search_files(context, arguments["pattern"], path, options, limit_name="limit")

    limit = {**_FROM_ONE, "maximum": MAX_RESULTS}
    properties = {"pattern": _TEXT, "path": _TEXT, "include": _TEXT, "limit": limit}
    return Tool(define("grep_files", properties, ("pattern",), words="step/grep_files"), execute)


def submit() -> Tool:
    """`submit(answer)`: ends the session with an answer."""

    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ends("finish", arguments["answer"])

    definition = define("submit", {"answer": _TEXT}, ("answer",), words="step/submit")
    return Tool(definition, execute, order=Order.LAST)
