"""The tools of the coding agent loop specification (sections 3.3 to 3.6), under its names and parameters.

read_file, read_many_files, write_file, edit_file, edit_file_counted (Gemini's edit_file), shell, grep,
glob and list_dir: each maps its arguments onto the one implementation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.tools.base import Order, Tool, ToolContext, ToolOutcome, define
from orchestrator.engine.tools.edit import EditTerms, edit_text
from orchestrator.engine.tools.files import GENEROUS, MAX_FILES, overwrite_text, read_many, read_path
from orchestrator.engine.tools.search import (
    DEFAULT_RESULTS,
    MAX_DEPTH,
    MAX_RESULTS,
    GrepMode,
    find_files,
    inside,
    list_folder,
    search_by_mode,
)
from orchestrator.engine.tools.shell import run_command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject, ToolDefinition

_TEXT: JsonObject = {"type": "string"}
_FLAG: JsonObject = {"type": "boolean"}
_FROM_ONE: JsonObject = {"type": "integer", "minimum": 1}

_BY_FLAG = EditTerms("old_string", "new_string", "set replace_all", counted=True)
_BY_NUMBER = EditTerms("old_string", "new_string", "set expected_replacements to their number", counted=True)


def read_file() -> Tool:
    """`read_file(file_path, offset?, limit?)`: numbered lines of a text file, or an image."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        offset, limit = count(arguments, "offset"), count(arguments, "limit")
        return await read_path(context, arguments["file_path"], offset, limit, reading=GENEROUS)

    properties = {"file_path": _TEXT, "offset": _FROM_ONE, "limit": _FROM_ONE}
    return Tool(define("read_file", properties, ("file_path",), words="core/read_file"), execute)


def read_many_files() -> Tool:
    """`read_many_files(paths)`: several files in one answer, by path or file pattern."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await read_many(context, arguments["paths"])

    paths = {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_FILES}
    return Tool(
        define("read_many_files", {"paths": paths}, ("paths",), words="core/read_many_files"), execute
    )


def write_file() -> Tool:
    """`write_file(file_path, content)`: creates a file or replaces all of it."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await overwrite_text(context, arguments["file_path"], arguments["content"])

    definition = define(
        "write_file",
        {"file_path": _TEXT, "content": _TEXT},
        ("file_path", "content"),
        words="core/write_file",
    )
    return Tool(definition, execute, order=Order.ALONE)


def edit_file() -> Tool:
    """`edit_file(file_path, old_string, new_string, replace_all?)`: one place, or all."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        places = None if arguments.get("replace_all") else 1
        return await _edit(context, arguments, places, _BY_FLAG)

    return Tool(_edit_definition("replace_all", _FLAG, "core/edit_file"), execute, order=Order.ALONE)


def edit_file_counted() -> Tool:
    """Gemini's `edit_file(file_path, old_string, new_string, expected_replacements?)`: so many places."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await _edit(context, arguments, count(arguments, "expected_replacements") or 1, _BY_NUMBER)

    definition = _edit_definition("expected_replacements", _FROM_ONE, "core/edit_file_counted")
    return Tool(definition, execute, order=Order.ALONE)


def shell(default_timeout_ms: int | None = None) -> Tool:
    """`shell(command, timeout_ms?, description?)`. Dangerous.

    Args:
        default_timeout_ms: where the model gives none; None takes the session's default.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        timeout_ms = count(arguments, "timeout_ms") or default_timeout_ms
        return await run_command(context, arguments["command"], timeout_ms=timeout_ms)

    properties = {"command": _TEXT, "timeout_ms": _FROM_ONE, "description": _TEXT}
    return Tool(define("shell", properties, ("command",), words="core/shell"), execute, dangerous=True)


def grep(*, output_modes: bool = False) -> Tool:
    """`grep(pattern, path?, glob_filter?, case_insensitive?, max_results?)`.

    Args:
        output_modes: a parameter `output_mode` more: `content`, `files_with_matches` or `count`.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        options = GrepOptions(
            glob_filter=arguments.get("glob_filter") or None,
            case_insensitive=arguments.get("case_insensitive") or False,
            max_results=count(arguments, "max_results") or DEFAULT_RESULTS,
        )
        mode = GrepMode(arguments.get("output_mode") or GrepMode.CONTENT)
        return await search_by_mode(
            context, arguments["pattern"], arguments.get("path") or ".", options, mode
        )

    properties: dict[str, JsonObject] = {
        "pattern": _TEXT,
        "path": _TEXT,
        "glob_filter": _TEXT,
        "case_insensitive": _FLAG,
        "max_results": {**_FROM_ONE, "maximum": MAX_RESULTS},
    }
    if output_modes:
        properties["output_mode"] = {"type": "string", "enum": [str(mode) for mode in GrepMode]}
    return Tool(define("grep", properties, ("pattern",), words="core/grep"), execute)


def glob() -> Tool:
    """`glob(pattern, path?)`: files by name, newest first."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments.get("path")
        pattern = arguments["pattern"] if path else inside(context, arguments["pattern"])
        return await find_files(context, pattern, path or ".")

    properties = {"pattern": _TEXT, "path": _TEXT}
    return Tool(define("glob", properties, ("pattern",), words="core/glob"), execute)


def list_dir() -> Tool:
    """`list_dir(path, depth?)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await list_folder(context, arguments["path"], depth=count(arguments, "depth") or 1)

    properties = {"path": _TEXT, "depth": {**_FROM_ONE, "maximum": MAX_DEPTH}}
    return Tool(define("list_dir", properties, ("path",), words="core/list_dir"), execute)


def count(arguments: Mapping[str, Any], name: str) -> int | None:
    """A whole number that was passed, which JSON may spell `5.0`; None if it was left out."""
    value = arguments.get(name)
    return None if value is None else int(value)


def _edit_definition(name: str, schema: JsonObject, words: str) -> ToolDefinition:
    properties = {"file_path": _TEXT, "old_string": _TEXT, "new_string": _TEXT, name: schema}
    return define("edit_file", properties, ("file_path", "old_string", "new_string"), words=words)


async def _edit(
    context: ToolContext, arguments: Mapping[str, Any], places: int | None, terms: EditTerms
) -> ToolOutcome:
    old, new = arguments["old_string"], arguments["new_string"]
    return await edit_text(context, arguments["file_path"], old, new, places=places, terms=terms)
