"""Tools that read and write whole files: numbered lines, PDF pages, images, guarded replacement."""

from __future__ import annotations

import asyncio
import hashlib
import io
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import FileMissingError, FileTooLargeError, FileUnreadableError, ToolError
from orchestrator.core.lfs_pointers import is_pointer
from orchestrator.core.messages import Image
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.file_syntax import newly_unreadable
from orchestrator.engine.tools.base import (
    DEFAULT_MAX_CHARS,
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
from orchestrator.engine.tools.search import inside
from orchestrator.engine.tools.textfile import (
    TextFile,
    UnknownEncodingError,
    check_text,
    declared_encoding,
    decode_text,
    did_you_mean,
    file_name,
    image_type,
    is_pdf,
    lines_of,
    new_bytes,
    pointer_remark,
    read_bytes,
    save,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


DEFAULT_LINES = 2_000
LONG_LINE_CHARS = 2_000

MAX_IMAGE_BYTES = 5_000_000
"""The size of an image that every provider accepts."""


@dataclass(frozen=True, slots=True)
class ReadBounds:
    """Limits on how much of a file is read and shown.

    Attributes:
        whole_max_bytes: size above which a file is only read in part, with a range.
        slice_max_bytes: size above which a file is not read at all.
        max_line_chars: length at which a line is cut; None applies only the limit of the whole output.
    """

    whole_max_bytes: int
    slice_max_bytes: int
    max_line_chars: int | None


SHORT_ANSWERS = ReadBounds(10_000_000, 50_000_000, LONG_LINE_CHARS)
"""The limits of the planner profile, whose answers stay short."""

WHOLE_ANSWERS = ReadBounds(25_000_000, 50_000_000, None)
"""The limits of the specification: a long output is truncated for the model only, and complete in the event."""


async def read_path(
    context: ToolContext,
    path: str,
    offset: int | None = None,
    limit: int | None = None,
    *,
    bounds: ReadBounds = SHORT_ANSWERS,
) -> Ok | Failed:
    """Show lines of a text file as `NNN | text`, by default at most 2,000; or pages of a PDF document.

    A handle such as `output:3` shows a long output that was kept. The file counts as shown if all of it is
    shown.
    """
    first, most = offset or 1, limit or DEFAULT_LINES
    if (kept := context.ledger.outputs.get(path)) is not None:
        return await _kept_output(path.strip(), kept, first, most)
    name = context.environment.relative(path)
    data = await _load(context, path, bounds, whole=offset is None and limit is None)
    if is_pdf(data):
        return await _pdf(path, name, data, first, limit)
    if media_type := image_type(data):
        return _image(path, name, data, media_type)
    file = partial(decode_text, path, data, await declared_encoding(context, name))
    page = await asyncio.to_thread(_page, file, first, most, bounds.max_line_chars)
    if not page.total:
        context.ledger.shown.add(name)
        return Ok(f"{name} is empty.")
    answer = _lines_shown(name, data, first, page)
    complete = len(page.shown) == page.total and not page.cut
    if complete and len(answer.output) <= DEFAULT_MAX_CHARS["read_file"]:
        context.ledger.shown.add(name)
    return answer


async def _kept_output(handle: str, text: str, first: int, most: int) -> Ok:
    data = text.replace("\0", "\\0").encode("utf-8", "replace")
    page = await asyncio.to_thread(_page, partial(decode_text, handle, data), first, most, LONG_LINE_CHARS)
    return _lines_shown(handle, data, first, page)


def _lines_shown(name: str, data: bytes, first: int, page: _Page) -> Ok:
    if first > page.total:
        # Not a failure: reading past the end does no harm, and a failure would stop the following calls.
        return Ok(f"{name} ends with line {page.total}, so there is nothing from line {first} on.")
    return Ok("\n".join([*page.shown, *_remarks(data, first, page)]))


async def _load(context: ToolContext, path: str, bounds: ReadBounds, *, whole: bool) -> bytes:
    try:
        data = await read_bytes(context, path, bounds.slice_max_bytes)
    except FileMissingError as error:
        near = await did_you_mean(context, context.environment.relative(path))
        raise FileMissingError(f"{error}.{near}") from None
    if whole and len(data) > bounds.whole_max_bytes:
        raise FileTooLargeError(
            f"{path} is {len(data):,} bytes, too large to be read whole (the limit is {bounds.whole_max_bytes:,}): "
            "use grep, or read a part of it with offset and limit"
        )
    return data


async def _pdf(path: str, name: str, data: bytes, first: int, most: int | None) -> Ok:
    from orchestrator.engine.tools.pdf import MAX_PAGES, PageRange, read_pdf, shown_pages

    found = await read_pdf(path, data, PageRange(first, most or MAX_PAGES, MAX_ANSWER_CHARS))
    pages = "1 page" if found.total == 1 else f"{found.total:,} pages"
    if first > found.total:
        return Ok(f"{name} is a PDF document of {pages}, so there is nothing from page {first} on.")
    return Ok(f"{name} is a PDF document of {pages}.\n\n{shown_pages(found)}")


def _image(path: str, name: str, data: bytes, media_type: str) -> Ok | Failed:
    if len(data) > MAX_IMAGE_BYTES:
        return Failed(
            f"{path} is an image ({media_type}) of {len(data):,} bytes, too large to be shown (the limit is "
            f"{MAX_IMAGE_BYTES:,}): make a smaller copy and read that."
        )
    return Ok(f"{name} is an image ({media_type}, {len(data):,} bytes).", images=(Image(data, media_type),))


@dataclass(frozen=True, slots=True)
class _Page:
    """The lines of one answer.

    Attributes:
        shown: the lines, numbered.
        total: number of lines in the file.
        cut: number of lines that are shown in part.
        longest: number and length of the longest line shown.
    """

    shown: list[str]
    total: int
    cut: int
    longest: tuple[int, int]


def _page(load: Callable[[], TextFile], first: int, most: int, max_line_chars: int | None) -> _Page:
    file = load()  # the whole file is checked, even if only a part is shown
    shown: list[str] = []
    total = cut = 0
    longest = (0, 0)
    for total, raw in enumerate(io.StringIO(file.text, newline="\n"), 1):
        if not first <= total < first + most:
            continue
        line = raw.removesuffix("\n").removesuffix("\r")
        if len(line) > longest[1]:
            longest = (total, len(line))
        if max_line_chars is not None and len(line) > max_line_chars:
            cut += 1
            line = (
                f"{line[:max_line_chars]} [... {len(line) - max_line_chars:,} more characters of this line]"
            )
        shown.append(f"{total} | {line}")
    return _Page(shown, total, cut, longest)


def _remarks(data: bytes, first: int, page: _Page) -> list[str]:
    remarks = [f"[this {pointer_remark(data)}]"] if is_pointer(data) else []
    shown = len(page.shown)
    if shown < page.total:
        last = first + shown - 1
        rest = f"; go on with offset {last + 1}" if last < page.total else ""
        remarks.append(f"[lines {first} to {last} of {page.total}{rest}]")
    number, chars = page.longest
    if not page.cut and chars > DEFAULT_MAX_CHARS["read_file"]:
        remarks.append(
            f"[line {number} alone has {chars:,} characters; a shell shows parts of it: sed -n {number}p | cut -c 1-2000]"
        )
    if b"\r\n" in data:
        remarks.append(
            "[line ends are CR LF]" if data.count(b"\r\n") == data.count(b"\n") else "[line ends are mixed]"
        )
    if first + shown > page.total and not data.endswith(b"\n"):
        remarks.append("[no line end after the last line]")
    return remarks


MAX_FILES = 100
MAX_IMAGES = 5
MAX_ANSWER_CHARS = DEFAULT_MAX_CHARS["read_file"] - 5_000
"""The limit of all files together; the rest of the answer is for the names of files left out."""

_ONE_OF_MANY = replace(WHOLE_ANSWERS, whole_max_bytes=MAX_IMAGE_BYTES, slice_max_bytes=MAX_IMAGE_BYTES)
_MOST_NAMED = 20
_PATTERN_CHARS = frozenset("*?[{")


async def read_many(context: ToolContext, paths: Sequence[str]) -> ToolOutcome:
    """Show several files, named by path or pattern, under headings; one that cannot be read stops no other."""
    wanted, problems = await _expand(context, paths)
    parts: list[str] = []
    images: list[Image] = []
    left_out = wanted[MAX_FILES:]
    room, shown = MAX_ANSWER_CHARS, 0
    for path in wanted[:MAX_FILES]:
        if room <= 0:
            left_out.append(path)
            continue
        seen = context.environment.relative(path) in context.ledger.shown
        text, pictures, is_read = await _read(context, path)
        fits = len(text) <= room and len(images) + len(pictures) <= MAX_IMAGES
        if not fits and not seen:
            context.ledger.shown.discard(context.environment.relative(path))
        if shown and not fits:
            left_out.append(path)
            continue
        parts.append(f"=== {path} ===\n{text}")
        images += pictures
        room -= len(parts[-1]) + 2
        shown += is_read
    parts += problems
    if left_out:
        names = ", ".join(left_out[:_MOST_NAMED])
        more = f" and {len(left_out) - _MOST_NAMED:,} more" if len(left_out) > _MOST_NAMED else ""
        parts.append(
            f"[not shown, because the answer would be too long: {names}{more}. Read them in another call.]"
        )
    answer = "\n\n".join(parts)
    return Ok(answer, tuple(images)) if shown else Failed(answer)


async def _expand(context: ToolContext, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that paths and patterns name, each once, and the problems with patterns."""
    files: dict[str, str] = {}
    problems = []
    for path in paths:
        try:
            found = {context.environment.relative(file): file for file in await _files(context, path)}
        except ToolError as error:
            problems.append(f"=== {path} ===\n{error}")
            continue
        if not found:
            problems.append(f"=== {path} ===\nNo file matches this pattern.")
        files = {**files, **{name: file for name, file in found.items() if name not in files}}
    return list(files.values()), problems


async def _files(context: ToolContext, path: str) -> list[str]:
    if _PATTERN_CHARS.isdisjoint(path) or await context.environment.file_exists(path):
        return [path]
    return sorted(await context.environment.glob(inside(context, path), "."))


async def _read(context: ToolContext, path: str) -> tuple[str, tuple[Image, ...], bool]:
    """Return a file's text and image, and True; or why it cannot be read, and False."""
    try:
        outcome = await read_path(context, path, bounds=_ONE_OF_MANY)
    except ToolError as error:
        return str(error), (), False
    if isinstance(outcome, Failed):
        return outcome.message, (), False
    return outcome.output, outcome.images, True


REPLACE_MAX_BYTES = 1_000_000
"""The size above which the planner's `write_file` does not replace an existing file."""

OVERWRITE_MAX_BYTES = 50_000_000
"""The size above which `overwrite_text` does not replace an existing file."""

MAX_SHOWN_CHARS = 40_000
"""The limit of a file that is shown because its replacement was refused; below the limit of `read_file`."""

_GUARDED_LINES = 20
_LINES_OF_A_FILE = 8
_KEPT_SHARE = 0.2
_LEAST_TAIL_LINES = 3
_MOST_TAIL_LINES = 300
"""The number of lines in a file, and in its new content, above which `lines_left_out` is not computed.

Comparing repeated lines takes time proportional to the third power. Small models do not write more.
"""
_MOST_COMPARED_CHARS = 100
"""The part of a line that is compared, for the same reason."""
_ALIKE = 0.6
_MARKS = (REPLACEMENT, "<U+", '<hidden: "')
"""Texts that the model is shown in place of secrets and of invisible characters."""


def read_file() -> Tool:
    """Create the tool `read_file(path, offset?, limit?)` with short answers: numbered lines, or an image."""
    return _reading("path", "read_file", SHORT_ANSWERS)


def read_text_or_image() -> Tool:
    """Create the tool `read_file(file_path, offset?, limit?)` with whole answers: numbered lines, or an image."""
    return _reading("file_path", "core/read_file", WHOLE_ANSWERS)


def _reading(path_name: str, prompt: str, bounds: ReadBounds) -> Tool:
    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        offset, limit = integer(arguments, "offset"), integer(arguments, "limit")
        return await read_path(context, arguments[path_name], offset, limit, bounds=bounds)

    properties = {path_name: TEXT, "offset": FROM_ONE, "limit": FROM_ONE}
    return Tool(define("read_file", properties, (path_name,), prompt=prompt), execute)


def write_file(prompt: str = "write_file", *, keeps_tail: bool = False) -> Tool:
    """Create the tool that creates or replaces a file; see `write_text` for `keeps_tail`."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await write_text(context, arguments["path"], arguments["content"], keeps_tail=keeps_tail)

    properties = {"path": TEXT, "content": TEXT}
    definition = define("write_file", properties, ("path", "content"), prompt=prompt)
    return Tool(definition, execute, order=Order.ALONE)


def read_many_files() -> Tool:
    """Create the tool `read_many_files(paths)`: several files in one answer, by path or file pattern."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await read_many(context, arguments["paths"])

    paths = {"type": "array", "items": TEXT, "minItems": 1, "maxItems": MAX_FILES}
    return Tool(
        define("read_many_files", {"paths": paths}, ("paths",), prompt="core/read_many_files"), execute
    )


def overwrite_file() -> Tool:
    """Create the tool `write_file(file_path, content)`, which creates a file or replaces all of it."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await overwrite_text(context, arguments["file_path"], arguments["content"])

    properties = {"file_path": TEXT, "content": TEXT}
    definition = define("write_file", properties, ("file_path", "content"), prompt="core/write_file")
    return Tool(definition, execute, order=Order.ALONE)


async def write_text(
    context: ToolContext, path: str, content: str, *, keeps_tail: bool = False
) -> ToolOutcome:
    """Create a file, or replace one that the model has seen.

    Args:
        keeps_tail: for small models, which copy code correctly, make other mistakes, and repeat themselves.
            If the content stops in the middle of the file, the lines after that place stay. Content that can
            no longer be parsed or is doubtful is not written, however often it is sent.
    """
    check_text("content", content)
    name = file_name(context, path)
    if not await context.environment.file_exists(name):
        return await _create(context, name, content)
    before, old = await _replaceable(context, name)
    now = old.with_text(old.text)
    if keeps_tail:  # compare with the original file, not with the previous attempt
        original = context.ledger.originals.setdefault(name, before)
        old = decode_text(name, original, await declared_encoding(context, name))
    kept, remark = (await asyncio.to_thread(lines_left_out, old.text, content) if keeps_tail else 0), ""
    if kept:
        content = "\n".join([*lines_of(content.rstrip()), *lines_of(old.text)[-kept:], ""])
        remark = f" Its last {kept} lines, which your content left out, were kept."
        remark += context.if_shown("edit_file", " To remove them, use edit_file.")
    data = old.with_text(content)
    if data == now and (not keeps_tail or name in context.ledger.touched):
        context.ledger.shown.add(name)
        return Ok(f"{name} is unchanged: it already has exactly this content.{remark}")
    if name not in context.ledger.shown:
        return _show_first(context, name, old.text)
    part = context.if_shown("edit_file", _PART)
    checks = _mask_problem, partial(_shrink_problem, part), _replacement_problem, _blanks_problem
    doubts = (check(name, old.text, content) for check in checks)
    if refusal := _refuse_once(context, name, content, *doubts, is_final=keeps_tail):
        return refusal
    if keeps_tail and (problem := await asyncio.to_thread(newly_unreadable, name, before, data)):
        return Failed(
            f"{name} was not replaced: {problem}. Send it again, correct and to the end of the code; the text "
            "after that code in the file is kept automatically."
        )
    return await _write(context, name, before, data, "Replaced", content, remark)


async def overwrite_text(context: ToolContext, path: str, content: str) -> ToolOutcome:
    """Create a file, or replace all of it, whether the model has seen it or not.

    A text file keeps its line ends, its byte order mark, its final line end and its mode.
    """
    check_text("content", content)
    name = file_name(context, path)
    try:
        before = await read_bytes(context, path, OVERWRITE_MAX_BYTES)
    except FileMissingError:
        return await _create(context, name, content)
    except FileUnreadableError as error:
        raise FileUnreadableError(f"{path} was not replaced: {error}") from None
    try:
        old = decode_text(path, before, await declared_encoding(context, name))
    except UnknownEncodingError as error:
        raise FileUnreadableError(f"{path} was not replaced: {error}") from None
    except FileUnreadableError:  # not text, so there is no text format to keep
        return await _write(context, name, before, content.encode(), "Replaced", content)
    if refusal := _refuse_once(context, name, content, _mask_problem(name, old.text, content)):
        return refusal
    closed = old.text.endswith("\r" if old.uses_cr else "\n")
    if not (closed and content) or content.endswith("\n"):
        return await _write(context, name, before, old.with_text(content), "Replaced", content)
    remark = " The line end after the last line was kept."
    return await _write(context, name, before, old.with_text(f"{content}\n"), "Replaced", content, remark)


async def _replaceable(context: ToolContext, name: str) -> tuple[bytes, TextFile]:
    try:
        data = await context.environment.read_file(name, max_bytes=REPLACE_MAX_BYTES)
        return data, decode_text(name, data, await declared_encoding(context, name))
    except FileUnreadableError as error:
        raise FileUnreadableError(f"{name} is not replaced: {error}") from None


async def _create(context: ToolContext, name: str, content: str) -> ToolOutcome:
    data = new_bytes(context, name, content, await declared_encoding(context, name))
    return await _write(context, name, None, data, "Created", content)


async def _write(  # noqa: PLR0913, PLR0917  an optional remark
    context: ToolContext, name: str, before: bytes | None, data: bytes, done: str, text: str, remark: str = ""
) -> ToolOutcome:
    """Write a file. `text` is what `data` stands for."""
    syntax = await save(context, name, before, data)
    context.ledger.shown.add(name)
    return Ok(f"{done} {name}: {len(data):,} bytes, {len(lines_of(text)):,} lines.{remark}{syntax}")


def _show_first(context: ToolContext, name: str, text: str) -> Failed:
    """Refuse to replace a file that the model has not seen, and show it."""
    begin = f"{name} exists and you have not seen its text, so it was not replaced."
    if len(text) > MAX_SHOWN_CHARS:
        return Failed(
            f"{begin} It is too long to be shown in one piece ({len(text):,} characters, {len(lines_of(text)):,} "
            f"lines).{context.if_shown('edit_file', ' Change the parts that need it with edit_file.')}"
        )
    context.ledger.shown.add(name)
    part = context.if_shown("edit_file", " To change a part of it, use edit_file.")
    return Failed(
        f"{begin}{part} To replace all of it, send the same call again, with every "
        f"line that should stay. This is its text now:\n\n{text}",
        cut_as="read_file",
    )


def _refuse_once(
    context: ToolContext, name: str, content: str, *doubts: str, is_final: bool = False
) -> Failed | None:
    """Refuse a doubtful write once: the same call succeeds the second time, unless the refusal is final."""
    write_key = (name, hashlib.sha256(content.encode()).hexdigest())
    doubt = next(filter(None, doubts), None)
    if doubt is None or write_key in context.ledger.refused_writes:
        context.ledger.refused_writes.discard(write_key)
        return None
    if is_final:
        return Failed(doubt)
    context.ledger.refused_writes.add(write_key)
    return Failed(f"{doubt} If that is really what you want, send exactly the same call again.")


def _mask_problem(name: str, old: str, content: str) -> str:
    """Return an error if the content has marks that the model saw in place of text; else an empty text."""
    mark = next((mark for mark in _MARKS if content.count(mark) > old.count(mark)), None)
    if mark is None:
        return ""
    return (
        f"{name} was not replaced: your content has {mark!r}, which stands for text that you were not shown. "
        "Change the other lines with an edit."
    )


def _blanks_problem(name: str, old: str, content: str) -> str:
    """Return an error if the content differs from the file only in empty lines and blanks at line ends."""
    before, after = ([line.rstrip() for line in text.splitlines() if line.strip()] for text in (old, content))
    if before != after:
        return ""
    return (
        f"{name} was not replaced: its code would be the same, with other blanks at most. Find the line that has to "
        "change, and change it."
    )


def lines_left_out(old: str, content: str) -> int:
    """Return how many lines of a file follow the place where the content stops; 0 if it reaches the end.

    The place is after the line that is most like the last line of the content, and before an empty line that
    precedes a line without indentation. So code in the middle of a function counts as removed on purpose. The
    same is true for lines that the content has elsewhere.
    """
    lines, wanted = lines_of(old), lines_of(content.rstrip())
    last = wanted[-1].strip() if wanted else ""
    if (
        not last
        or max(len(lines), len(wanted)) > _MOST_TAIL_LINES
        or last in {line.strip() for line in lines_of(old.rstrip())[-_LEAST_TAIL_LINES:]}
    ):
        return 0
    blocks = SequenceMatcher(None, lines, wanted, autojunk=False).get_matching_blocks()
    begin = max((block.a + block.size - 1 for block in blocks if block.size), default=0)
    cut = (line.strip()[:_MOST_COMPARED_CHARS] for line in lines[begin:])
    alike = [SequenceMatcher(None, last[:_MOST_COMPARED_CHARS], line).ratio() for line in cut]
    place = begin + max(range(len(alike)), key=alike.__getitem__, default=0)
    if max(alike, default=0.0) < _ALIKE:
        return 0
    starts = (
        number
        for number in range(place + 1, len(lines))
        if not lines[number].strip() and lines[number + 1 : number + 2] and lines[number + 1][:1].strip()
    )
    start = next(starts, len(lines))
    while start > place + 1 and not lines[start - 1].strip():
        start -= 1
    tail = lines[start:]
    there = {line.strip() for line in wanted}
    is_elsewhere = any(line[:1].strip() and len(line) > _LEAST_TAIL_LINES and line in there for line in tail)
    return len(tail) if len(tail) >= _LEAST_TAIL_LINES and not is_elsewhere else 0


_PART = " To change a part of the file, use edit_file, which leaves the rest alone."


def _shrink_problem(advice: str, name: str, old: str, content: str) -> str:
    """Return an error if the content would remove more than half of the lines of a longer file."""
    before, after = len(lines_of(old)), len(lines_of(content))
    if before <= _GUARDED_LINES or after * 2 >= before:
        return ""
    return f"{name} has {before} lines and your content only {after}, so it was not replaced.{advice}"


def _replacement_problem(name: str, old: str, content: str) -> str:
    """Return an error if the content has almost none of a file's lines."""
    before = {line.strip() for line in old.splitlines() if line.strip()}
    kept = sum(line in content for line in before)
    if len(before) < _LINES_OF_A_FILE or kept >= len(before) * _KEPT_SHARE:
        return ""
    return (
        f"{name} was not replaced: of its {len(before)} different lines your content has {kept}, so it is a different "
        "file. Send the text of this file, with the lines that stay as they are."
    )
