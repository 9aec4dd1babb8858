"""The file tools of the assistant specification (section 2.3.1), built on the other file tools."""

from __future__ import annotations

import asyncio
import json
import stat
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from fnmatch import fnmatch
from itertools import count, pairwise
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import (
    CommandRefusedError,
    FileMissingError,
    FileTooLargeError,
    FileUnreadableError,
    ToolError,
)
from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.models.base import CHARACTERS_PER_TOKEN
from orchestrator.engine.tools.base import (
    FLAG,
    FROM_ONE,
    TEXT,
    Failed,
    Mode,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
    truncate_chars,
)
from orchestrator.engine.tools.files import LONG_LINE_CHARS, ReadBounds, overwrite_text, read_path
from orchestrator.engine.tools.search import (
    DEFAULT_RESULTS,
    MAX_ENTRIES,
    MAX_RESULTS,
    empty_folder,
    entry_line,
    find_files,
    list_entries,
    search_files,
)
from orchestrator.engine.tools.textfile import (
    TextFile,
    check_text,
    declared_encoding,
    decode_text,
    did_you_mean,
    editable_text,
    file_name,
    image_type,
    is_pdf,
    lines_of,
    numbered,
    read_bytes,
    save,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.core.encodings import DeclaredEncoding
    from orchestrator.core.messages import JsonObject

MAX_BYTES = 10_000_000
"""The limit of a file that these tools read or write, from the specification."""
MAX_OPERATIONS = 200
BACKUP_SUFFIX = ".backup"

_BOUNDS = ReadBounds(MAX_BYTES, MAX_BYTES, LONG_LINE_CHARS)
_LINES_AROUND = 2
_MOST_TOKENS = {**FROM_ONE, "maximum": 1_000_000}


def file_suite() -> tuple[Tool, ...]:
    """Create the seven file tools."""
    listing = file_list(), file_search(), file_info()
    tools = (file_read(), file_write(), file_append(), *listing, file_delta())
    return tuple(map(_with_code, tools))


def _with_code(tool: Tool) -> Tool:
    """Return the tool with the error's code behind the sentence about it."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        try:
            return await tool.execute(arguments, context)
        except CommandRefusedError:
            raise
        except ToolError as error:
            return Failed(f"{error} [{error.code}]")

    return replace(tool, execute=execute)


def file_read() -> Tool:
    """Create the tool `file_read(file_path, start_line?, end_line?, max_tokens?)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        first, last = integer(arguments, "start_line"), integer(arguments, "end_line")
        if last is not None and last < (first or 1):
            return Failed("end_line is before start_line: lines count from 1, and both are shown")
        most = None if last is None else last - (first or 1) + 1
        outcome = await read_path(context, arguments["file_path"], first, most, bounds=_BOUNDS)
        return _limit_tokens(outcome, integer(arguments, "max_tokens"))

    properties = {"file_path": TEXT, "start_line": FROM_ONE, "end_line": FROM_ONE, "max_tokens": _MOST_TOKENS}
    return Tool(define("file_read", properties, ("file_path",), prompt="assistant/file_read"), execute)


def file_write() -> Tool:
    """Create the tool `file_write(file_path, content, create_backup?)`, which creates or replaces a file."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, content = arguments["file_path"], arguments["content"]
        _check_size(path, content)
        kept = await _back_up(context, path) if arguments.get("create_backup") else ""
        return _with_remark(await overwrite_text(context, path, content), kept)

    properties = {"file_path": TEXT, "content": TEXT, "create_backup": FLAG}
    definition = define("file_write", properties, ("file_path", "content"), prompt="assistant/file_write")
    return Tool(definition, execute, order=Order.ALONE)


def file_append() -> Tool:
    """Create the tool `file_append(file_path, content)`, which adds text at the end of an existing file."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, content = arguments["file_path"], arguments["content"]
        name, before, old = await _text_of(context, path)
        check_text("content", content)
        after = old.with_text(f"{old.text}{content}")
        _check_size(path, after)
        syntax = await save(context, name, before, after)
        joined = ""
        if old.text and not old.text.endswith(("\n", "\r")) and not content.startswith("\n"):
            joined = " Its last line had no line end, so your text goes on in that line."
        lines = len(lines_of(old.decode(after)))
        return Ok(f"Appended to {name}: {len(after):,} bytes, {lines:,} lines now.{joined}{syntax}")

    properties = {"file_path": TEXT, "content": TEXT}
    definition = define("file_append", properties, ("file_path", "content"), prompt="assistant/file_append")
    return Tool(definition, execute, order=Order.ALONE)


def file_list() -> Tool:
    """Create the tool `file_list(directory_path, pattern?, include_hidden?)`.

    It lists the entries of a folder; with a `/` or `**` in the pattern, files at any depth.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, pattern = arguments["directory_path"], arguments.get("pattern") or "*"
        if "/" in pattern or "**" in pattern:
            return await find_files(context, pattern, path)
        entries = await list_entries(context, path)
        hidden = arguments.get("include_hidden") or pattern.startswith(".")
        found = [
            one for one in entries if fnmatch(one.name, pattern) and (hidden or not one.name.startswith("."))
        ]
        lines = [entry_line(one) for one in found]
        if len(lines) > MAX_ENTRIES:
            lines[MAX_ENTRIES:] = [f"[{len(lines) - MAX_ENTRIES:,} more entries: use a pattern]"]
        if left_out := len(entries) - len(found):
            lines.append(f"[{left_out:,} entries are left out: they are hidden, or do not match]")
        return Ok("\n".join(lines) or empty_folder(context, path))

    properties = {"directory_path": TEXT, "pattern": TEXT, "include_hidden": FLAG}
    return Tool(define("file_list", properties, ("directory_path",), prompt="assistant/file_list"), execute)


def file_search() -> Tool:
    """Create the tool `file_search(search_path, pattern, case_sensitive?, max_tokens?, max_results?)`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        options = GrepOptions(
            case_insensitive=not arguments.get("case_sensitive", True),
            max_results=integer(arguments, "max_results") or DEFAULT_RESULTS,
        )
        outcome = await search_files(context, arguments["pattern"], arguments["search_path"], options)
        return _limit_tokens(outcome, integer(arguments, "max_tokens"))

    properties = {
        "search_path": TEXT,
        "pattern": TEXT,
        "case_sensitive": FLAG,
        "max_tokens": _MOST_TOKENS,
        "max_results": {**FROM_ONE, "maximum": MAX_RESULTS},
    }
    definition = define("file_search", properties, ("search_path", "pattern"), prompt="assistant/file_search")
    return Tool(definition, execute)


def file_info() -> Tool:
    """Create the tool `file_info(file_path)`: a file's kind, size, lines and line ends, or a folder's counts."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments["file_path"]
        name = context.environment.relative(path)
        if not await context.environment.file_exists(path):
            return await _folder_info(context, path, name)
        data = await read_bytes(context, path, MAX_BYTES)
        facts = {
            "path": name,
            "kind": "file",
            "bytes": len(data),
            **await asyncio.to_thread(_content_facts, name, data, await declared_encoding(context, name)),
            **await _times_and_mode(context, name),
        }
        return Ok(json.dumps(facts, ensure_ascii=False))

    return Tool(
        define("file_info", {"file_path": TEXT}, ("file_path",), prompt="assistant/file_info"), execute
    )


async def _folder_info(context: ToolContext, path: str, name: str) -> ToolOutcome:
    try:
        entries = await list_entries(context, path)
    except FileMissingError as error:
        raise FileMissingError(f"{error}.{await did_you_mean(context, name)}") from None
    folders = sum(one.is_dir for one in entries)
    facts = {
        "path": name,
        "kind": "folder",
        "folders": folders,
        "files": len(entries) - folders,
        **await _times_and_mode(context, name),
    }
    return Ok(json.dumps(facts, ensure_ascii=False))


async def _times_and_mode(context: ToolContext, name: str) -> dict[str, str]:
    """Return the time of the last change and the permissions, if the environment tells them."""
    above, _, last = name.rpartition("/")
    if name == ".":
        return {}
    entries = await context.environment.list_directory(above or ".", depth=1)
    found = next((one for one in entries if one.name == last), None)
    if found is None or found.modified_ns is None or found.mode is None:
        return {}
    changed = datetime.fromtimestamp(found.modified_ns // 10**9, UTC)
    return {
        "modified": changed.isoformat().replace("+00:00", "Z"),
        "permissions": stat.filemode(found.mode)[1:],
    }


def _content_facts(name: str, data: bytes, declared: DeclaredEncoding | None) -> dict[str, Any]:
    if is_pdf(data):
        return {"type": "application/pdf"}
    if media_type := image_type(data):
        return {"type": media_type}
    try:
        text = decode_text(name, data, declared)
    except FileUnreadableError:
        return {"type": "binary"}
    ends = "CR LF" if text.uses_crlf else "CR" if text.uses_cr else "mixed" if "\r" in text.text else "LF"
    return {
        "type": "text",
        "lines": len(lines_of(text.text)) if text.text else 0,
        "line_ends": ends,
        "final_line_end": text.text.endswith(("\n", "\r")),
        "byte_order_mark": text.marked,
    }


@dataclass(frozen=True, slots=True)
class _Operation:
    """A replacement of the lines `[first, last)`, counted from 0; an insertion if both numbers are the same."""

    first: int
    last: int
    lines: tuple[str, ...]


def file_delta() -> Tool:
    """Create the tool `file_delta(file_path, operations, create_backup?)`: edits of whole lines, all or none."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path = arguments["file_path"]
        name, before, old = await _text_of(context, path)
        ends_with_line_end = old.text.endswith(("\n", "\r")) or not old.text
        lines = lines_of(old.text.replace("\r", "\n") if old.uses_cr else old.text) if old.text else []
        operations = _read_operations(arguments["operations"], len(lines))
        for one in reversed(operations):
            lines[one.first : one.last] = one.lines
        text = "\n".join(lines) + ("\n" if lines and ends_with_line_end else "")
        after = old.with_text(text)
        _check_size(path, after)
        if after == before:
            return Ok(f"{name} is unchanged: the operations give exactly what is there.")
        kept = await _back_up(context, path) if arguments.get("create_backup") else ""
        syntax = await save(context, name, before, after)
        answer = f"Changed {name}: {len(lines):,} lines now.{syntax}\n{_changed_places(lines, operations)}"
        return _with_remark(Ok(answer.rstrip()), kept)

    operation: JsonObject = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": ["insert", "replace", "delete"]},
            "start_line": FROM_ONE,
            "end_line": FROM_ONE,
            "content": TEXT,
        },
        "required": ["type", "start_line"],
        "additionalProperties": False,
    }
    operations = {"type": "array", "items": operation, "minItems": 1, "maxItems": MAX_OPERATIONS}
    properties = {"file_path": TEXT, "operations": operations, "create_backup": FLAG}
    definition = define("file_delta", properties, ("file_path", "operations"), prompt="assistant/file_delta")
    return Tool(definition, execute, order=Order.ALONE)


def _read_operations(requested: Sequence[Mapping[str, Any]], count: int) -> list[_Operation]:
    """Return the operations in the order of their lines; raise `ToolError` if one is invalid or overlaps another."""
    operations = [_read_operation(number, one, count) for number, one in enumerate(requested, 1)]
    operations.sort(key=lambda one: (one.first, one.last))
    for one, other in pairwise(operations):
        if other.first < one.last:
            raise ToolError(
                f"two operations are about line {other.first + 1}: put them into one. Nothing was changed"
            )
    return operations


def _read_operation(number: int, one: Mapping[str, Any], count: int) -> _Operation:
    what, first = one["type"], int(one["start_line"]) - 1
    if what == "insert":
        last = first
        is_there = first <= count
    else:
        last = integer(one, "end_line") or first + 1
        is_there = first < last <= count
    if not is_there:
        raise ToolError(f"operation {number} names lines that are not there: the file has {count:,} lines")
    content = one.get("content")
    if (content is None) != (what == "delete"):
        needs = "takes no content" if what == "delete" else "needs content"
        raise ToolError(f"operation {number} is a {what}, which {needs}. Nothing was changed")
    check_text("content", content or "")
    return _Operation(first, last, () if content is None else tuple(content.removesuffix("\n").split("\n")))


def _changed_places(lines: Sequence[str], operations: Sequence[_Operation]) -> str:
    """Return the changed places as they are now, with a few lines around each."""
    shown, shift, shown_to = [], 0, 0
    for one in operations:
        begin = one.first + shift
        end = begin + len(one.lines)
        shift += len(one.lines) - (one.last - one.first)
        begin, end = max(begin - _LINES_AROUND, shown_to, 0), min(end + _LINES_AROUND, len(lines))
        if begin < end:
            shown.append(numbered(lines, begin, end))
            shown_to = end
    return "\n[...]\n".join(shown)


async def _text_of(context: ToolContext, path: str) -> tuple[str, bytes, TextFile]:
    """Return the normal name, the bytes and the text of a file that is about to be changed."""
    name = file_name(context, path)
    try:
        before = await read_bytes(context, path, MAX_BYTES)
    except FileMissingError as error:
        near = await did_you_mean(context, name)
        create = context.if_shown("file_write", " To create a file, use file_write.")
        raise FileMissingError(f"{error}.{near or create}") from None
    return name, before, editable_text(path, before, await declared_encoding(context, name))


async def _back_up(context: ToolContext, path: str) -> str:
    """Copy a file beside itself; return a sentence about the copy, empty if the file does not exist yet."""
    name = file_name(context, path)
    if not await context.environment.file_exists(name):
        return ""
    data = await context.environment.read_file(name, max_bytes=MAX_BYTES)
    copy = await _unused_name(context, f"{name}{BACKUP_SUFFIX}")
    await context.environment.write_file(copy, data, mode_of=name)
    return f" Its previous content is in {copy}."


async def _unused_name(context: ToolContext, name: str) -> str:
    """Return the name, with the first number behind it that nothing has yet."""
    above, _, last = name.rpartition("/")
    taken = {one.name for one in await context.environment.list_directory(above or ".", depth=1)}
    if last not in taken:
        return name
    return next(f"{name}.{number}" for number in count(2) if f"{last}.{number}" not in taken)


def _check_size(path: str, content: str | bytes) -> None:
    size = len(content if isinstance(content, bytes) else content.encode(errors="replace"))
    if size > MAX_BYTES:
        raise FileTooLargeError(
            f"{path} would have {size:,} bytes, and {MAX_BYTES:,} are allowed. Nothing was changed"
        )


def _limit_tokens(outcome: ToolOutcome, max_tokens: int | None) -> ToolOutcome:
    """Truncate an answer to a number of tokens, keeping both ends; the full text stays in `full`."""
    if max_tokens is None or not isinstance(outcome, Ok):
        return outcome
    cut = truncate_chars(outcome.output, max_tokens * CHARACTERS_PER_TOKEN, Mode.HEAD_TAIL)
    return outcome if cut == outcome.output else replace(outcome, output=cut, full=outcome.output)


def _with_remark(outcome: ToolOutcome, remark: str) -> ToolOutcome:
    return replace(outcome, output=outcome.output + remark) if isinstance(outcome, Ok) else outcome
