"""The tool `edit_file`, which replaces old text in a file by new text."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileMissingError, FileUnreadableError
from orchestrator.engine.tools.base import (
    FLAG,
    FROM_ONE,
    TEXT,
    Failed,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
)
from orchestrator.engine.tools.matching import (
    MAX_PLACES,
    Shift,
    ShiftedLines,
    TextPlaces,
    code_block,
    describe_nearest,
    find_text,
)
from orchestrator.engine.tools.textfile import (
    TextFile,
    check_text,
    declared_encoding,
    did_you_mean,
    editable_text,
    file_name,
    lines_of,
    numbered,
    read_bytes,
    save,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

MAX_BYTES = 10_000_000
_MOST_PLACES = 10
_CONTEXT_LINES = 2
_MOST_SHOWN_PLACES = 3
_MOST_LINES_AROUND = 20
_FAILED_EDITS = 2
_SHORT_FILE_LINES = 200
_MOST_LINES_KEPT = 1_000


@dataclass(frozen=True, slots=True)
class EditTerms:
    """The names in one tool's schema, for its answers.

    Attributes:
        old: the parameter with the old text.
        new: the parameter with the new text.
        several: an instruction how to replace more than one place.
        counted: whether the answer contains the number of replacements.
    """

    old: str = "old_text"
    new: str = "new_text"
    several: str = "set replace_all"
    counted: bool = False


_PLANNER = EditTerms()
_BY_FLAG = EditTerms("old_string", "new_string", "set replace_all", counted=True)
_BY_NUMBER = EditTerms("old_string", "new_string", "set expected_replacements to their number", counted=True)


def edit_file(prompt: str = "edit_file") -> Tool:
    """Create the tool `edit_file(path, old_text, new_text, replace_all?)`; `prompt` is a file in `prompts/tools/`."""
    return _editing("path", prompt, _PLANNER, {"replace_all": FLAG})


def edit_string(*, counted: bool = False) -> Tool:
    """Create the tool `edit_file(file_path, old_string, new_string, replace_all?)`: one place, or all.

    Args:
        counted: take `expected_replacements` instead of `replace_all`, as Gemini's models know the tool. Then
            exactly this number of places is replaced.
    """
    if counted:
        option = {"expected_replacements": FROM_ONE}
        return _editing("file_path", "core/edit_file_counted", _BY_NUMBER, option)
    return _editing("file_path", "core/edit_file", _BY_FLAG, {"replace_all": FLAG})


def _editing(path_name: str, prompt: str, terms: EditTerms, option: Mapping[str, JsonObject]) -> Tool:
    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        path, old, new = (arguments[name] for name in required)
        places = None if arguments.get("replace_all") else integer(arguments, "expected_replacements") or 1
        return await edit_text(context, path, old, new, places=places, terms=terms)

    required = (path_name, terms.old, terms.new)
    properties = {**dict.fromkeys(required, TEXT), **option}
    return Tool(define("edit_file", properties, required, prompt=prompt), execute, order=Order.ALONE)


async def edit_text(  # noqa: PLR0913  the last two are keyword-only
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
        old: searched exactly; then ignoring line ends, blanks at line ends and punctuation; then as whole
            lines whose indentation differs by the same blanks, if there is exactly one such place.
        new: its line ends become those of the file.
        places: the number of places where `old` must be; None allows any number.
    """
    check_text(terms.old, old)
    check_text(terms.new, new)
    name = file_name(context, path)
    if old == new:
        context.ledger.misses_again(name, old)
        file = await _load(context, path) if len(context.ledger.missed[name]) > 1 else None
        same = f"{terms.old} and {terms.new} are the same, so nothing would change."
        return Failed(same + (_rewrite_hint(context, name, file.text) if file else ""))
    file = await _load(context, path)
    if file is None or not file.text:
        return (
            await _fill(context, path, file, new)
            if not old
            else await _no_old_text(context, path, file, terms)
        )
    if not old:
        return Failed(f"{terms.old} is empty, but {path} is not: give the text that is to be replaced.")
    return await _Edit(context, path, name, file, terms).replace(old, new, places)


async def _load(context: ToolContext, path: str) -> TextFile | None:
    try:
        data = await read_bytes(context, path, MAX_BYTES)
        return editable_text(path, data, await declared_encoding(context, context.environment.relative(path)))
    except FileMissingError:
        return None
    except FileUnreadableError as error:
        raise FileUnreadableError(f"{path} cannot be edited: {error}") from None


async def _no_old_text(context: ToolContext, path: str, file: TextFile | None, terms: EditTerms) -> Failed:
    """Return the failure for a file that is missing or empty, in which no old text can be found."""
    state = "is empty."
    if file is None:
        state = f"does not exist.{await did_you_mean(context, context.environment.relative(path))}"
    first = context.if_shown(
        "edit_file", f" To give it its first text, call edit_file with an empty {terms.old}."
    )
    return Failed(f"{path} {state}{first}")


async def _fill(context: ToolContext, path: str, file: TextFile | None, new: str) -> ToolOutcome:
    name = context.environment.relative(path)
    before = None if file is None else file.with_text("")
    syntax = await save(context, name, before, (file or TextFile("")).with_text(new))
    context.ledger.shown.add(name)
    return Ok(f"Created {name}: {len(lines_of(new))} lines.{syntax}")


def _rewrite_hint(context: ToolContext, name: str, text: str) -> str:
    """Return a hint to rewrite a short file as a whole after repeated failures; empty otherwise."""
    count = len(lines_of(text))
    if len(context.ledger.missed.get(name, ())) < _FAILED_EDITS or count > _SHORT_FILE_LINES:
        return ""
    hint = f"\nOr call write_file for {name} with its whole text, all {count} lines, the wrong one corrected."
    return context.if_shown("write_file", hint)


@dataclass(frozen=True, slots=True)
class _Edit:
    """A change to a file that is not empty."""

    context: ToolContext
    path: str
    name: str
    file: TextFile
    terms: EditTerms

    async def replace(self, old: str, new: str, places: int | None) -> ToolOutcome:
        text, old, new = self.file.plain, old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
        if self.file.uses_cr:
            old, new = old.replace("\r", "\n"), new.replace("\r", "\n")
        found = await asyncio.to_thread(find_text, text, old)
        if not found.spans:
            place, new = await asyncio.to_thread(self._find_shifted, text, old, new, places)
            if not isinstance(place, str):
                return await self._write(text, place, new)
            return Failed(place + _rewrite_hint(self.context, self.name, text))
        if problem := _wrong_number(self.path, text, found, places, self.terms):
            again = self.context.ledger.misses_again(self.name, old)
            other = _rewrite_hint(self.context, self.name, text)
            return Failed(problem + (_show_places(text, found) + other if again else ""))
        if found.tolerance and len(found.spans) == 1:
            new = _with_own_characters(text[slice(*found.spans[0])], old, new)
        return await self._write(text, *self._with_file_indentation(text, found, old, new))

    def _find_shifted(self, text: str, old: str, new: str, count: int | None) -> tuple[TextPlaces | str, str]:
        """Return the only place with another indentation, or an error message; and the new text, indented alike."""
        lines, wanted = lines_of(text), lines_of(old)
        terms = self.terms
        places = ShiftedLines(lines).places(wanted) if wanted and count in {1, None} else []
        if not places:
            again = self.context.ledger.misses_again(self.name, old)
            return (
                f"{terms.old} is not in {self.path}{describe_nearest(lines, wanted, terms.old, again=again)}",
                new,
            )
        if len(places) > 1:
            numbers = ", ".join(str(place + 1) for place, _ in places)
            problem = (
                f"{terms.old} is in {self.path} only with other indentation, and more than once, at line {numbers}. "
                "Copy the lines with their indentation, and add lines around them."
            )
            return problem, new
        ((place, shift),) = places
        shifted = _indented(new, shift)
        if shifted is None:
            problem = (
                f"{terms.old} is in {self.path} at line {place + 1}, but there the lines have {shift} before them, which "
                f"cannot be removed from {terms.new}. These are the lines as they are:\n"
                f"{code_block(lines[place : place + len(wanted)])}"
            )
            return problem, new
        closed = old.endswith("\n")
        start, stop = _span(text, place, len(wanted), closed=closed)
        if closed and text[start:stop].rstrip("\n") == text[start:]:  # the file's last line has no line end
            shifted = shifted.removesuffix("\n")
        return TextPlaces(((start, stop),), tolerance=self._shift_text(shift, "each line")), shifted

    def _shift_text(self, shift: Shift, where: str) -> str:
        if not (shift.added or shift.removed):
            return "blanks at line ends"
        return f"indentation: the file has {shift} before {where}, and {self.terms.new} was indented alike"

    def _with_file_indentation(
        self, text: str, found: TextPlaces, old: str, new: str
    ) -> tuple[TextPlaces, str]:
        """Return the place, and the new text with the file's deeper indentation in all its lines.

        This applies if `old` begins with blanks and is found within a line that has more of them. The
        additional blanks before the place already stand before the first new line, and the other new lines
        need them as well.
        """
        (start, stop), *others = found.spans
        before = text[text.rfind("\n", 0, start) + 1 : start]
        whole = stop == len(text) or text[stop - 1] == "\n" or text[stop] in "\r\n"
        if others or not whole or not before or before.strip(" \t") or old[0] not in " \t":
            return found, new
        if "\n" in old.removesuffix("\n") or "\n" not in new.removesuffix("\n"):
            return found, new
        shift = Shift(added=before)
        first, end, rest = new.partition("\n")
        differences = filter(None, (found.tolerance, self._shift_text(shift, "the line")))
        return replace(found, tolerance=" and ".join(differences)), first + end + (
            _indented(rest, shift) or rest
        )

    async def _write(self, text: str, found: TextPlaces, new: str) -> ToolOutcome:
        first, name, terms = found.spans[0][0], self.name, self.terms
        before, after = self.file.encode(self.file.text), self.file.with_pieces(found.spans, new)
        if after == before:
            return Failed(f"{name} would not change: it has the text of {terms.new} already.")
        syntax = await save(self.context, name, before, after)
        count = len(found.spans)
        line = _line_at(text, first)
        places = f"line {line}" if count == 1 else f"{count} places, the first at line {line}"
        number = f" ({count} replacement{'s' if count > 1 else ''})" if terms.counted else ""
        tolerance = (
            f" {terms.old} was not there exactly: it differed in {found.tolerance}."
            if found.tolerance
            else ""
        )
        last = line + len(lines_of(new))
        edited = replace(self.file, text=self.file.decode(after)).plain
        region = numbered(lines_of(edited), line - 1 - _CONTEXT_LINES, last - 1 + _CONTEXT_LINES)
        return Ok(f"Edited {name} at {places}{number}.{tolerance}{syntax} It now reads:\n{region}")


def _with_own_characters(there: str, old: str, new: str) -> str:
    """Return the new text with the file's own quotes, dashes and blanks where the model changes nothing.

    Args:
        there: what the file has in the place of the old text, which differs from it in such characters.
    """
    has, said, wanted = there.split("\n"), old.split("\n"), new.split("\n")
    if len(has) != len(said) or max(len(said), len(wanted)) > _MOST_LINES_KEPT:
        return new
    for tag, first, stop, at, end in SequenceMatcher(None, said, wanted, autojunk=False).get_opcodes():
        if stop - first == end - at:
            for step in range(stop - first):
                mine = has[first + step], said[first + step], wanted[at + step]
                wanted[at + step] = mine[0] if tag == "equal" else _with_own_ends(*mine)
    return "\n".join(wanted)


def _with_own_ends(has: str, said: str, wanted: str) -> str:
    """Return a line with the file's characters at its beginning and its end, as far as the model changes nothing there."""
    if len(has) != len(said):
        return wanted
    begin = _equal_characters(said, wanted)
    end = _equal_characters(said[begin:][::-1], wanted[begin:][::-1])
    return has[:begin] + wanted[begin : len(wanted) - end] + has[len(has) - end :]


def _equal_characters(one: str, other: str) -> int:
    """Return with how many equal characters two texts begin."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, pair in pairs if pair[0] != pair[1]), min(len(one), len(other)))


def _indented(text: str, shift: Shift) -> str | None:
    """Return a text with every line shifted, or None if one line cannot be shifted."""
    lines = [shift.line(line) for line in text.split("\n")]
    return None if None in lines else "\n".join(line or "" for line in lines)


def _span(text: str, place: int, count: int, *, closed: bool) -> tuple[int, int]:
    """Return the character span of `count` whole lines, including the last line's end if `closed`."""
    lines = text.split("\n")
    start = sum(len(line) + 1 for line in lines[:place])
    stop = start + sum(len(line) + 1 for line in lines[place : place + count])
    if closed or stop > len(text):
        return start, min(stop, len(text))
    return start, stop - 1


def _show_places(text: str, found: TextPlaces) -> str:
    """Show the first places, each with enough lines around it to be unique when copied."""
    lines = lines_of(text)
    shown = []
    for start, stop in found.spans[:_MOST_SHOWN_PLACES]:
        first, last = _line_at(text, start) - 1, _line_at(text, max(start, stop - 1))
        for _ in range(_MOST_LINES_AROUND):
            if text.count("\n".join(lines[first:last])) == 1:
                break
            first, last = max(0, first - 1), min(len(lines), last + 1)
        shown.append(f"From line {first + 1} on:\n{code_block(lines[first:last])}")
    return " You have sent similar text before. Copy the lines of the place that you mean:\n" + "\n".join(
        shown
    )


def _wrong_number(
    path: str, text: str, found: TextPlaces, places: int | None, terms: EditTerms
) -> str | None:
    """Return why the number of places found is wrong; None if it is right."""
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
