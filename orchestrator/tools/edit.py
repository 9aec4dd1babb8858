"""`edit_file`: put new text in the place of old text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileMissingError, FileUnreadableError
from orchestrator.tools.base import Failed, Ok, Order, Tool, ToolContext, ToolOutcome, define
from orchestrator.tools.matching import MAX_PLACES, Found, find, nearest_lines
from orchestrator.tools.namesakes import did_you_mean
from orchestrator.tools.textfile import (
    TextFile,
    as_written,
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


@dataclass(frozen=True, slots=True)
class EditTerms:
    """The words of one tool's schema in its answers.

    Attributes:
        old: the parameter with the old text.
        new: the parameter with the new text.
        several: what to do to replace more than one place.
        counted: the answer says how many replacements there were.
    """

    old: str = "old_text"
    new: str = "new_text"
    several: str = "set replace_all"
    counted: bool = False


_PLANNER = EditTerms()


def edit_file() -> Tool:
    """The tool that replaces a piece of a file."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, old, new = arguments["path"], arguments["old_text"], arguments["new_text"]
        return await edit_text(context, path, old, new, places=None if arguments.get("replace_all") else 1)

    text = {"type": "string"}
    properties = {"path": text, "old_text": text, "new_text": text, "replace_all": {"type": "boolean"}}
    definition = define("edit_file", properties, ("path", "old_text", "new_text"))
    return Tool(definition, execute, order=Order.ALONE)


async def edit_text(  # noqa: PLR0913  the last two by name
    context: ToolContext,
    path: str,
    old: str,
    new: str,
    *,
    places: int | None = 1,
    terms: EditTerms = _PLANNER,
) -> ToolOutcome:
    """Replace `old` by `new`; an empty `old` fills a missing or empty file.

    Args:
        context: where to edit.
        path: the file.
        old: looked for exactly, then allowing for line ends, blanks at line ends and punctuation.
        new: its line ends become those of the file.
        places: in how many places `old` must be; None takes any number.
        terms: the words of the tool's schema.

    Raises:
        ToolError: the path is refused, the file is no text or over 10 MB, or the disk says no.
    """
    check_text(terms.old, old)
    check_text(terms.new, new)
    if old == new:
        return Failed(f"{terms.old} and {terms.new} are the same, so nothing would change.")
    name = file_name(context, path)
    file = await _load(context, path)
    if file is None or not file.text:
        return (
            await _fill(context, path, file, new) if not old else await _nothing(context, path, file, terms)
        )
    if not old:
        return Failed(f"{terms.old} is empty, but {path} is not: give the text that is to be replaced.")
    found = await asyncio.to_thread(find, file.text, old)
    if not found.spans:
        return Failed(await asyncio.to_thread(_not_found, path, file.text, old, terms))
    if problem := _wrong_number(path, file.text, found, places, terms):
        return Failed(problem)
    return await _replace(context, name, file, found, new, terms)


async def _load(context: ToolContext, path: str) -> TextFile | None:
    try:
        with as_written(context, path):
            return decode(path, await context.environment.read_file(path, max_bytes=MAX_BYTES))
    except FileMissingError:
        return None
    except FileUnreadableError as error:
        raise FileUnreadableError(f"{path} cannot be edited: {error}") from None


async def _nothing(context: ToolContext, path: str, file: TextFile | None, terms: EditTerms) -> Failed:
    """There is no text in which to look for the old one."""
    state = "is empty."
    if file is None:
        state = f"does not exist.{await did_you_mean(context, context.environment.relative(path))}"
    return Failed(f"{path} {state} To give it its first text, call edit_file with an empty {terms.old}.")


async def _fill(context: ToolContext, path: str, file: TextFile | None, new: str) -> ToolOutcome:
    name = context.environment.relative(path)
    await context.environment.write_file(name, (file or TextFile("")).with_text(new))
    context.ledger.touched.add(name)
    context.ledger.shown.add(name)
    return Ok(f"Created {name}: {len(lines_of(new))} lines.")


async def _replace(  # noqa: PLR0913, PLR0917  what is replaced, where, by what
    context: ToolContext, name: str, file: TextFile, found: Found, new: str, terms: EditTerms
) -> ToolOutcome:
    pieces, end, first = [], 0, found.spans[0][0]
    for start, stop in found.spans:
        pieces += [file.text[end:start], _with_line_ends(new, file, file.text[start:stop])]
        end = stop
    text = "".join([*pieces, file.text[end:]])
    if text == file.text:
        return Failed(f"{name} would not change: {terms.new} is what is there already.")
    await context.environment.write_file(name, file.with_text(text))
    context.ledger.touched.add(name)
    count = len(found.spans)
    line = _line_at(file.text, first)
    places = f"line {line}" if count == 1 else f"{count} places, the first at line {line}"
    number = f" ({count} replacement{'s' if count > 1 else ''})" if terms.counted else ""
    tolerance = (
        f" {terms.old} was not there exactly: it differed in {found.tolerance}." if found.tolerance else ""
    )
    last = line + len(lines_of(pieces[1]))
    region = numbered(lines_of(text), line - 1 - _CONTEXT_LINES, last - 1 + _CONTEXT_LINES)
    return Ok(f"Edited {name} at {places}{number}.{tolerance} It now reads:\n{region}")


def _with_line_ends(new: str, file: TextFile, replaced: str) -> str:
    """The new text with the line ends of what it replaces, or else of the file."""
    plain = new.replace("\r\n", "\n")
    if "\r\n" in replaced or (file.uses_crlf and "\n" not in replaced):
        return to_crlf(plain)
    return plain if "\n" in file.text else new


def _not_found(path: str, text: str, old: str, terms: EditTerms) -> str:
    lines = lines_of(text)
    near = nearest_lines(lines, lines_of(old))
    if near is None:
        return (
            f"{terms.old} is not in {path}, nor anything like it. Read the file and copy the text as it is."
        )
    region = numbered(lines, near[0] - _CONTEXT_LINES, near[1] + _CONTEXT_LINES)
    return f"{terms.old} is not in {path}. The nearest is this; copy the text without the numbers:\n{region}"


def _wrong_number(path: str, text: str, found: Found, places: int | None, terms: EditTerms) -> str | None:
    """Why the places found are not those meant, if they are not."""
    count = len(found.spans)
    if count > MAX_PLACES:
        return f"{terms.old} is in {path} over {MAX_PLACES:,} times: give more of the text around it."
    if places is None or (count == places and not found.overlaps):
        return None
    numbers = [str(_line_at(text, start)) for start, _ in found.spans[:_MOST_PLACES]]
    more = ", ..." if count > _MOST_PLACES else ""
    where = f"at line {', '.join(numbers)}{more}"
    if places > 1 and not found.overlaps:
        return f"{terms.old} is in {path} {count} times, not {places}, {where}. Nothing was changed."
    times = "overlapping itself" if count == 1 else f"{count} times"
    return f"{terms.old} is in {path} {times}, {where}. Add lines around it until it is there once, or {terms.several}."


def _line_at(text: str, position: int) -> int:
    return text.count("\n", 0, position) + 1
