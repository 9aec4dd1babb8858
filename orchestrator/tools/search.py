"""`list_dir`, `grep` and `glob`: look around without changing anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ToolError
from orchestrator.environments.base import GrepOptions
from orchestrator.tools.base import Ok, Tool, ToolContext, ToolOutcome, define

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

MAX_DEPTH = 10
MAX_RESULTS = 1_000
DEFAULT_RESULTS = 100
MAX_ENTRIES = 1_000

_ROOT = "."


def list_dir() -> Tool:
    """The tool that lists a folder."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await list_folder(context, arguments.get("path") or _ROOT, depth=arguments.get("depth") or 1)

    properties: dict[str, JsonObject] = {
        "path": {"type": "string"},
        "depth": {"type": "integer", "minimum": 1, "maximum": MAX_DEPTH},
    }
    return Tool(define("list_dir", properties), execute)


def grep() -> Tool:
    """The tool that searches in files."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        options = GrepOptions(
            glob_filter=arguments.get("glob_filter") or None,
            case_insensitive=arguments.get("case_insensitive") or False,
            max_results=arguments.get("max_results") or DEFAULT_RESULTS,
        )
        return await search_files(context, arguments["pattern"], arguments.get("path") or _ROOT, options)

    text = {"type": "string"}
    properties: dict[str, JsonObject] = {
        "pattern": text,
        "path": text,
        "glob_filter": text,
        "case_insensitive": {"type": "boolean"},
        "max_results": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS},
    }
    return Tool(define("grep", properties, ("pattern",)), execute)


def glob() -> Tool:
    """The tool that finds files by name."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await find_files(context, arguments["pattern"], arguments.get("path") or _ROOT)

    text = {"type": "string"}
    return Tool(define("glob", {"pattern": text, "path": text}, ("pattern",)), execute)


async def list_folder(context: ToolContext, path: str, *, depth: int) -> ToolOutcome:
    """One entry a line, folders with a `/` at the end, files with their size.

    Raises:
        ToolError: the path is refused, or no folder.
    """
    entries = await context.environment.list_directory(path, depth=depth)
    name = context.environment.relative(path)
    if not entries:
        return Ok(f"{name} is an empty folder.")
    lines = [
        f"{entry.name}/" if entry.is_dir else f"{entry.name} ({entry.size or 0:,} bytes)"
        for entry in entries[:MAX_ENTRIES]
    ]
    if len(entries) > MAX_ENTRIES:
        lines.append(
            f"[{len(entries) - MAX_ENTRIES:,} more entries: list a folder inside, or use less depth]"
        )
    return Ok("\n".join(lines))


async def search_files(context: ToolContext, pattern: str, path: str, options: GrepOptions) -> ToolOutcome:
    """One match a line, as `path:line: text`.

    Raises:
        ToolError: the pattern is invalid, or the path is refused or missing.
    """
    most = options.max_results
    if not 1 <= most <= MAX_RESULTS:
        raise ToolError(f"max_results must be from 1 to {MAX_RESULTS:,}")
    asked = GrepOptions(
        options.glob_filter, options.case_insensitive, most + 1
    )  # one more tells if there are more
    matches = await context.environment.grep(pattern, path, asked)
    if not matches:
        return Ok("No line matches.")
    lines = [f"{match.path}:{match.line}: {match.text}" for match in matches[:most]]
    if len(matches) > most:
        lines.append(f"[there are more than these {most} matches: narrow the search, or set max_results]")
    return Ok("\n".join(lines))


async def find_files(context: ToolContext, pattern: str, path: str) -> ToolOutcome:
    """One path a line, newest first.

    Raises:
        ToolError: the pattern is invalid, or the path is refused or missing.
    """
    found = await context.environment.glob(pattern, path)
    return Ok("\n".join(found) or "No file matches.")
