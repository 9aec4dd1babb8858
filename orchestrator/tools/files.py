"""`read_file` and `write_file`."""

from __future__ import annotations

import hashlib
import io
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.tools.base import Failed, Ok, Tool, ToolContext, ToolOutcome, define
from orchestrator.tools.namesakes import did_you_mean
from orchestrator.tools.textfile import TextFile, check_text, decode, file_name, lines_of
from orchestrator.tools.truncation import DEFAULT_MAX_CHARS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

WHOLE_MAX_BYTES = 10_000_000
"""Read without a range."""

SLICE_MAX_BYTES = 50_000_000
"""Read with a range."""

REPLACE_MAX_BYTES = 1_000_000
"""Over this `write_file` leaves an existing file alone."""

DEFAULT_LINES = 2_000
MAX_LINE_CHARS = 2_000
MAX_SHOWN_CHARS = 40_000
"""Of a file whose replacement was refused; below what a model is shown of `read_file`."""

_GUARDED_LINES = 20


def read_file() -> Tool:
    """The tool that shows a file, with line numbers."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await read_text(context, arguments["path"], arguments.get("offset"), arguments.get("limit"))

    line_number = {"type": "integer", "minimum": 1}
    properties: dict[str, JsonObject] = {
        "path": {"type": "string"},
        "offset": line_number,
        "limit": line_number,
    }
    return Tool(define("read_file", properties, ("path",)), execute)


def write_file() -> Tool:
    """The tool that creates or replaces a file."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await write_text(context, arguments["path"], arguments["content"])

    properties = {"path": {"type": "string"}, "content": {"type": "string"}}
    return Tool(define("write_file", properties, ("path", "content")), execute)


async def read_text(
    context: ToolContext, path: str, offset: int | None = None, limit: int | None = None
) -> ToolOutcome:
    """Show lines of a text file as `NNN | text`. It counts as shown if all of it is.

    Args:
        context: where to read.
        path: the file.
        offset: the first line, from 1.
        limit: the most lines; 2,000 if it is None.

    Raises:
        ToolError: there is no such file, it is binary or too large.
    """
    first, most = offset or 1, limit or DEFAULT_LINES
    if first < 1 or most < 1:
        raise ToolError("offset and limit count lines from 1")
    name = context.environment.relative(path)
    whole = offset is None and limit is None
    try:
        data = await context.environment.read_file(
            path, max_bytes=WHOLE_MAX_BYTES if whole else SLICE_MAX_BYTES
        )
    except FileMissingError as error:
        raise FileMissingError(f"{error}.{await did_you_mean(context, name)}") from None
    decode(name, data)  # all of it is checked, though a small part may be shown
    shown: list[str] = []
    total = cut = 0
    for total, raw in enumerate(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")), 1):
        if first <= total < first + most:
            line = raw.decode().removesuffix("\n").removesuffix("\r")
            cut += len(line) > MAX_LINE_CHARS
            shown.append(f"{total} | {_cut(line)}")
    if not total:
        context.ledger.shown.add(name)
        return Ok(f"{name} is empty.")
    if first > total:
        # No failure: looking past the end does no harm, and a failure stops the calls that follow.
        return Ok(f"{name} ends with line {total}, so there is nothing from line {first} on.")
    output = "\n".join([*shown, *_remarks(data, first, len(shown), total)])
    if len(shown) == total and not cut and len(output) <= DEFAULT_MAX_CHARS["read_file"]:
        context.ledger.shown.add(name)
    return Ok(output)


async def write_text(context: ToolContext, path: str, content: str) -> ToolOutcome:
    """Create a file, or replace one that the model has seen.

    Raises:
        ToolError: the path is refused, the file is no text or over 1 MB, or the disk says no.
    """
    check_text("content", content)
    name = file_name(context, path)
    if not await context.environment.file_exists(name):
        return await _write(context, name, content.encode(), "Created")
    old = await _replaceable(context, name)
    data = old.with_text(content)
    if data == old.with_text(old.text):
        context.ledger.shown.add(name)
        return Ok(f"{name} is unchanged: it already has exactly this content.")
    if name not in context.ledger.shown:
        return _show_first(context, name, old.text)
    if refusal := _shrinks(context, name, old.text, content):
        return refusal
    return await _write(context, name, data, "Replaced")


async def _replaceable(context: ToolContext, name: str) -> TextFile:
    try:
        return decode(name, await context.environment.read_file(name, max_bytes=REPLACE_MAX_BYTES))
    except FileUnreadableError as error:
        raise FileUnreadableError(f"{name} is not replaced by write_file: {error}") from None


async def _write(context: ToolContext, name: str, data: bytes, done: str) -> ToolOutcome:
    await context.environment.write_file(name, data)
    context.ledger.touched.add(name)
    context.ledger.shown.add(name)
    lines = len(lines_of(data.decode()))
    return Ok(f"{done} {name}: {len(data):,} bytes, {lines:,} lines.")


def _show_first(context: ToolContext, name: str, text: str) -> Failed:
    """Refuse to replace what the model has not seen, and show it."""
    begin = f"{name} exists and you have not seen its text, so it was not replaced."
    if len(text) > MAX_SHOWN_CHARS:
        return Failed(
            f"{begin} It is too long to be shown in one piece ({len(text):,} characters, {len(lines_of(text)):,} "
            "lines): change the parts that need it with edit_file."
        )
    context.ledger.shown.add(name)
    return Failed(
        f"{begin} To change a part of it, use edit_file. To replace all of it, send the same call again, with every "
        f"line that should stay. This is its text now:\n\n{text}",
        cut_as="read_file",
    )


def _shrinks(context: ToolContext, name: str, old: str, content: str) -> Failed | None:
    """Refuse once what takes more than half of a file's lines away."""
    before, after = len(lines_of(old)), len(lines_of(content))
    if before <= _GUARDED_LINES or after * 2 >= before:
        return None
    held = (name, hashlib.sha256(content.encode()).hexdigest())
    if held in context.ledger.held_writes:
        context.ledger.held_writes.discard(held)
        return None
    context.ledger.held_writes.add(held)
    return Failed(
        f"{name} has {before} lines and your content only {after}, so it was not replaced. To change a part of the "
        "file, use edit_file, which leaves the rest alone. If the other lines are really to go, send exactly the same "
        "call again."
    )


def _cut(line: str) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [... {len(line) - MAX_LINE_CHARS:,} more characters of this line]"


def _remarks(data: bytes, first: int, shown: int, total: int) -> list[str]:
    remarks = []
    if shown < total:
        last = first + shown - 1
        rest = f"; go on with offset {last + 1}" if last < total else ""
        remarks.append(f"[lines {first} to {last} of {total}{rest}]")
    if b"\r\n" in data:
        remarks.append(
            "[line ends are CR LF]" if data.count(b"\r\n") == data.count(b"\n") else "[line ends are mixed]"
        )
    if first + shown > total and not data.endswith(b"\n"):
        remarks.append("[no line end after the last line]")
    return remarks
