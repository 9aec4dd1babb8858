"""The tools `list_dir`, `grep` and `glob`, which change nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileUnreadableError
from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.tools.base import (
    FLAG,
    FROM_ONE,
    TEXT,
    Ok,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
)
from orchestrator.engine.tools.textfile import as_written, read_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.environments.base import DirEntry

MAX_DEPTH = 10
MAX_RESULTS = 1_000
DEFAULT_RESULTS = 100
DEFAULT_ENTRIES = 100
MAX_ENTRIES = 1_000

MAX_COUNTED_LINES = 50_000
"""The number of matching lines that are examined to list or count the files that contain them."""

SEARCHED_MAX_BYTES = 50_000_000
"""The size above which an environment does not search a file."""

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_ROOT = "."
_DEPTH: JsonObject = {**FROM_ONE, "maximum": MAX_DEPTH}
_RESULTS: JsonObject = {**FROM_ONE, "maximum": MAX_RESULTS}


class GrepMode(StrEnum):
    """What `grep` shows of its matches."""

    CONTENT = "content"
    FILES = "files_with_matches"
    COUNT = "count"


def list_dir(prompt: str = "list_dir", *, needs_path: bool = False, name: str = "list_dir") -> Tool:
    """Create the tool `list_dir(path, depth?)`, offered as `name`, which shows one entry a line."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments.get("path") or _ROOT
        entries = await _entry_lines(context, path, arguments)
        if len(entries) > MAX_ENTRIES:
            more = len(entries) - MAX_ENTRIES
            entries[MAX_ENTRIES:] = [f"[{more:,} more entries: list a folder inside, or use less depth]"]
        return Ok("\n".join(entries) or empty_folder(context, path))

    definition = define(name, {"path": TEXT, "depth": _DEPTH}, ("path",) if needs_path else (), prompt=prompt)
    return Tool(definition, execute)


def list_dir_in_pages() -> Tool:
    """Create the tool `list_dir(dir_path, offset?, limit?, depth?)`, which shows a folder's entries in pages."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments["dir_path"]
        first = integer(arguments, "offset") or 1
        entries = await _entry_lines(context, path, arguments)
        if not entries:
            return Ok(empty_folder(context, path))
        page = entries[first - 1 : first - 1 + (integer(arguments, "limit") or DEFAULT_ENTRIES)]
        if not page:
            name = context.environment.relative(path)
            return Ok(f"{name} has {len(entries):,} entries, so there is nothing from entry {first:,} on.")
        last = first + len(page) - 1
        if len(page) < len(entries):
            rest = f"; go on with offset {last + 1}" if last < len(entries) else ""
            page.append(f"[entries {first} to {last} of {len(entries)}{rest}]")
        return Ok("\n".join(page))

    properties = {"dir_path": TEXT, "offset": FROM_ONE, "limit": FROM_ONE, "depth": _DEPTH}
    return Tool(define("list_dir", properties, ("dir_path",), prompt="step/list_dir"), execute)


def grep(prompt: str = "grep", *, output_modes: bool = False) -> Tool:
    """Create the tool `grep(pattern, path?, glob_filter?, case_insensitive?, max_results?)`.

    Args:
        output_modes: add a parameter `output_mode`: `content`, `files_with_matches` or `count`.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        options = GrepOptions(
            glob_filter=arguments.get("glob_filter") or None,
            case_insensitive=arguments.get("case_insensitive") or False,
            max_results=integer(arguments, "max_results") or DEFAULT_RESULTS,
        )
        mode = GrepMode(arguments.get("output_mode") or GrepMode.CONTENT)
        pattern, path = arguments["pattern"], arguments.get("path") or _ROOT
        if mode is GrepMode.CONTENT:
            return await search_files(context, pattern, path, options)
        return await _search_by_file(context, pattern, path, options, mode)

    properties: dict[str, JsonObject] = {
        "pattern": TEXT,
        "path": TEXT,
        "glob_filter": TEXT,
        "case_insensitive": FLAG,
        "max_results": _RESULTS,
    }
    if output_modes:
        properties["output_mode"] = {"type": "string", "enum": [str(mode) for mode in GrepMode]}
    return Tool(define("grep", properties, ("pattern",), prompt=prompt), execute)


def grep_files() -> Tool:
    """Create the tool `grep_files(pattern, path?, include?, limit?)`, which shows matching lines."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        limit = integer(arguments, "limit") or DEFAULT_RESULTS
        options = GrepOptions(glob_filter=arguments.get("include") or None, max_results=limit)
        path = arguments.get("path") or _ROOT
        return await search_files(context, arguments["pattern"], path, options, limit_name="limit")

    properties = {"pattern": TEXT, "path": TEXT, "include": TEXT, "limit": _RESULTS}
    return Tool(define("grep_files", properties, ("pattern",), prompt="step/grep_files"), execute)


def glob(prompt: str = "glob") -> Tool:
    """Create the tool `glob(pattern, path?)`, which finds files by name, newest first."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments.get("path")
        pattern = arguments["pattern"] if path else inside(context, arguments["pattern"])
        return await find_files(context, pattern, path or _ROOT)

    properties = {"pattern": TEXT, "path": TEXT}
    return Tool(define("glob", properties, ("pattern",), prompt=prompt), execute)


async def list_entries(context: ToolContext, path: str, depth: int = 1) -> list[DirEntry]:
    """Return a folder's entries; errors spell the path as the model wrote it."""
    with as_written(context, path):
        return await context.environment.list_directory(path, depth=depth)


async def _entry_lines(context: ToolContext, path: str, arguments: Mapping[str, Any]) -> list[str]:
    return [entry_line(one) for one in await list_entries(context, path, integer(arguments, "depth") or 1)]


def empty_folder(context: ToolContext, path: str) -> str:
    """Return the answer for a folder without entries."""
    return f"{context.environment.relative(path)} is an empty folder."


async def search_files(
    context: ToolContext, pattern: str, path: str, options: GrepOptions, *, limit_name: str = "max_results"
) -> ToolOutcome:
    """Show one match a line, as `path:line: text`.

    Args:
        limit_name: the name of the tool's parameter for `max_results`.
    """
    most = options.max_results
    # search for one more match, to know whether there are more
    matches = await context.environment.grep(pattern, path, replace(options, max_results=most + 1))
    if not matches:
        return await _no_match(context, path)
    lines = [f"{match.path}:{match.line}: {match.text}" for match in matches[:most]]
    if len(matches) > most:
        lines.append(f"[there are more than these {most} matches: narrow the search, or set {limit_name}]")
    return Ok("\n".join(lines))


async def _search_by_file(
    context: ToolContext, pattern: str, path: str, options: GrepOptions, mode: GrepMode
) -> ToolOutcome:
    """Show the files that contain matching lines, or the number of these lines in each file."""
    widened = replace(options, max_results=MAX_COUNTED_LINES)
    matches = await context.environment.grep(pattern, path, widened)
    if not matches:
        return await _no_match(context, path)
    counts = Counter(match.path for match in matches)
    shown = list(counts.items())[: options.max_results]
    lines = [f"{name}:{number}" if mode is GrepMode.COUNT else name for name, number in shown]
    if len(counts) > len(shown):
        lines.append(f"[{len(counts) - len(shown):,} more files: narrow the search, or set max_results]")
    if len(matches) == MAX_COUNTED_LINES:
        lines.append(f"[the search stopped at {MAX_COUNTED_LINES:,} matching lines: narrow it]")
    return Ok("\n".join(lines))


async def find_files(context: ToolContext, pattern: str, path: str) -> ToolOutcome:
    """Show one path a line, newest first. Without a match the call still succeeds."""
    with as_written(context, path):
        found = await context.environment.glob(pattern, path)
    if found:
        return Ok("\n".join(found))
    glued = any("**" in name and name != "**" for name in pattern.split("/"))
    hint = " `**` stands for folders only as a whole name, as in `src/**/*.py`." if glued else ""
    return Ok(f"No file matches.{hint}")


def inside(context: ToolContext, pattern: str) -> str:
    """Return a file pattern relative to the working directory; it may be given as an absolute one."""
    return pattern.removeprefix(f"{context.environment.working_directory().rstrip('/')}/")


async def _no_match(context: ToolContext, path: str) -> ToolOutcome:
    """Return the answer for a search without a match; raise `ToolError` for a file that is not searched."""
    if await context.environment.file_exists(path):
        data = await read_bytes(context, path, SEARCHED_MAX_BYTES)
        if b"\0" in data and not data.startswith(_UTF16_MARKS):
            raise FileUnreadableError(f"{path} is a binary file ({len(data):,} bytes), which is not searched")
    return Ok("No line matches.")


def entry_line(entry: DirEntry) -> str:
    """Return the name of a folder with a `/` at the end, or the name and the size of a file."""
    return f"{entry.name}/" if entry.is_dir else f"{entry.name} ({entry.size or 0:,} bytes)"
