"""`edit_file`: put new text in the place of old text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileMissingError, FileUnreadableError
from orchestrator.tools.base import Failed, Ok, Tool, ToolContext, ToolOutcome, define
from orchestrator.tools.matching import MAX_PLACES, Found, find, nearest_lines
from orchestrator.tools.namesakes import did_you_mean
from orchestrator.tools.textfile import (
    TextFile,
    check_text,
    decode,
    file_name,
    lines_of,
    numbered,
    to_crlf,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_BYTES = 10_000_000
_MOST_PLACES = 10
_CONTEXT_LINES = 2


def edit_file() -> Tool:
    """The tool that replaces a piece of a file."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, old, new = arguments["path"], arguments["old_text"], arguments["new_text"]
        return await edit_text(context, path, old, new, replace_all=arguments.get("replace_all") or False)

    text = {"type": "string"}
    properties = {"path": text, "old_text": text, "new_text": text, "replace_all": {"type": "boolean"}}
    return Tool(define("edit_file", properties, ("path", "old_text", "new_text")), execute)


async def edit_text(
    context: ToolContext, path: str, old: str, new: str, *, replace_all: bool = False
) -> ToolOutcome:
    """Replace `old`, which must be in the file once, by `new`; an empty `old` fills a missing or empty file.

    Args:
        context: where to edit.
        path: the file.
        old: looked for exactly, then allowing for line ends, blanks at line ends and punctuation.
        new: its line ends become those of the file.
        replace_all: replace every place.

    Raises:
        ToolError: the path is refused, the file is no text or over 10 MB, or the disk says no.
    """
    check_text("old_text", old)
    check_text("new_text", new)
    if old == new:
        return Failed("old_text and new_text are the same, so nothing would change.")
    name = file_name(context, path)
    file = await _load(context, name)
    if file is None or not file.text:
        return await _fill(context, name, file, old, new)
    if not old:
        return Failed(f"old_text is empty, but {name} is not: give the text that is to be replaced.")
    found = find(file.text, old)
    if problem := _problem(name, file.text, old, found, replace_all=replace_all):
        return Failed(problem)
    return await _replace(context, name, file, found, new)


def _problem(name: str, text: str, old: str, found: Found, *, replace_all: bool) -> str | None:
    """Why the places found cannot be replaced, if they cannot."""
    if not found.spans:
        return _not_found(name, text, old)
    if len(found.spans) > MAX_PLACES:
        return f"old_text is in {name} over {MAX_PLACES:,} times: give more of the text around it."
    if not replace_all and (len(found.spans) > 1 or found.overlaps):
        return _not_unique(name, text, found)
    return None


async def _load(context: ToolContext, name: str) -> TextFile | None:
    try:
        return decode(name, await context.environment.read_file(name, max_bytes=MAX_BYTES))
    except FileMissingError:
        return None
    except FileUnreadableError as error:
        raise FileUnreadableError(f"{name} cannot be edited: {error}") from None


async def _fill(context: ToolContext, name: str, file: TextFile | None, old: str, new: str) -> ToolOutcome:
    if old:
        state = f"does not exist.{await did_you_mean(context, name)}" if file is None else "is empty."
        return Failed(f"{name} {state} To give it its first text, call edit_file with an empty old_text.")
    await context.environment.write_file(name, (file or TextFile("")).with_text(new))
    context.ledger.touched.add(name)
    context.ledger.shown.add(name)
    return Ok(f"Created {name}: {len(lines_of(new))} lines.")


async def _replace(context: ToolContext, name: str, file: TextFile, found: Found, new: str) -> ToolOutcome:
    pieces, end, first = [], 0, found.spans[0][0]
    for start, stop in found.spans:
        pieces += [file.text[end:start], _with_line_ends(new, file, file.text[start:stop])]
        end = stop
    text = "".join([*pieces, file.text[end:]])
    if text == file.text:
        return Failed(f"{name} would not change: new_text is what is there already.")
    await context.environment.write_file(name, file.with_text(text))
    context.ledger.touched.add(name)
    count = len(found.spans)
    line = _line_at(file.text, first)
    places = f"line {line}" if count == 1 else f"{count} places, the first at line {line}"
    tolerance = (
        f" old_text was not there exactly: it differed in {found.tolerance}." if found.tolerance else ""
    )
    last = line + len(lines_of(pieces[1]))
    region = numbered(lines_of(text), line - 1 - _CONTEXT_LINES, last - 1 + _CONTEXT_LINES)
    return Ok(f"Edited {name} at {places}.{tolerance} It now reads:\n{region}")


def _with_line_ends(new: str, file: TextFile, replaced: str) -> str:
    """The new text with the line ends of what it replaces, or else of the file."""
    plain = new.replace("\r\n", "\n")
    if "\r\n" in replaced or (file.uses_crlf and "\n" not in replaced):
        return to_crlf(plain)
    return plain if "\n" in file.text else new


def _not_found(name: str, text: str, old: str) -> str:
    lines = lines_of(text)
    near = nearest_lines(lines, lines_of(old))
    if near is None:
        return f"old_text is not in {name}, nor anything like it. Read the file and copy the text as it is."
    region = numbered(lines, near[0] - _CONTEXT_LINES, near[1] + _CONTEXT_LINES)
    return f"old_text is not in {name}. The nearest is this; copy the text without the numbers:\n{region}"


def _not_unique(name: str, text: str, found: Found) -> str:
    numbers = [str(_line_at(text, start)) for start, _ in found.spans[:_MOST_PLACES]]
    more = ", ..." if len(found.spans) > _MOST_PLACES else ""
    times = "overlapping itself" if len(found.spans) == 1 else f"{len(found.spans)} times"
    return (
        f"old_text is in {name} {times}, at line {', '.join(numbers)}{more}. Add lines around it until it is there "
        "once, or set replace_all."
    )


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
