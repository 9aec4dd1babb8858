"""Shows files: numbered lines of text, images, and several files in one answer."""

from __future__ import annotations

import asyncio
import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.core.messages import Image
from orchestrator.engine.tools.base import Failed, Ok, ToolContext, ToolOutcome
from orchestrator.engine.tools.kinds import image_type
from orchestrator.engine.tools.namesakes import did_you_mean
from orchestrator.engine.tools.textfile import as_written, decode
from orchestrator.engine.tools.truncation import DEFAULT_MAX_CHARS

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_LINES = 2_000
LONG_LINE_CHARS = 2_000

MAX_IMAGE_BYTES = 5_000_000
"""What every provider takes for one image."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How much of a file is read and shown.

    Attributes:
        whole_max_bytes: a larger file needs a range.
        slice_max_bytes: a larger file is not read.
        max_line_chars: where a line is cut; None leaves that to the limit of the whole output.
        images: images are shown, not refused as binary.
    """

    whole_max_bytes: int
    slice_max_bytes: int
    max_line_chars: int | None
    images: bool


CAREFUL = Reading(10_000_000, 50_000_000, LONG_LINE_CHARS, images=False)
"""Of the planner, whose answers stay short."""

GENEROUS = Reading(25_000_000, 50_000_000, None, images=True)
"""Of the specification: a long output is cut when the model is shown it, and complete in the event."""


async def read_path(
    context: ToolContext,
    path: str,
    offset: int | None = None,
    limit: int | None = None,
    *,
    reading: Reading = CAREFUL,
) -> ToolOutcome:
    """Show lines of a text file as `NNN | text`. It counts as shown if all of it is.

    Args:
        context: where to read.
        path: the file.
        offset: the first line, from 1.
        limit: the most lines; 2,000 if it is None.
        reading: how much.

    Raises:
        ToolError: there is no such file, it is binary or too large.
    """
    first, most = offset or 1, limit or DEFAULT_LINES
    if first < 1 or most < 1:
        raise ToolError("offset and limit count lines from 1")
    name = context.environment.relative(path)
    data = await _load(context, path, reading, whole=offset is None and limit is None)
    if reading.images and (media_type := image_type(data)):
        return _image(path, name, data, media_type)
    page = await asyncio.to_thread(_page, path, data, first, most, reading.max_line_chars)
    if not page.total:
        context.ledger.shown.add(name)
        return Ok(f"{name} is empty.")
    if first > page.total:
        # No failure: looking past the end does no harm, and a failure stops the calls that follow.
        return Ok(f"{name} ends with line {page.total}, so there is nothing from line {first} on.")
    output = "\n".join([*page.shown, *_remarks(data, first, page)])
    complete = len(page.shown) == page.total and not page.cut
    if complete and len(output) <= DEFAULT_MAX_CHARS["read_file"]:
        context.ledger.shown.add(name)
    return Ok(output)


async def _load(context: ToolContext, path: str, reading: Reading, *, whole: bool) -> bytes:
    environment = context.environment
    try:
        with as_written(context, path):
            data = await environment.read_file(path, max_bytes=reading.slice_max_bytes)
    except FileMissingError as error:
        raise FileMissingError(f"{error}.{await did_you_mean(context, environment.relative(path))}") from None
    if whole and len(data) > reading.whole_max_bytes:
        raise FileUnreadableError(
            f"{path} is {len(data):,} bytes, too large to be read whole (the limit is {reading.whole_max_bytes:,}): "
            "use grep, or read a part of it with offset and limit"
        )
    return data


def _image(path: str, name: str, data: bytes, media_type: str) -> ToolOutcome:
    if len(data) > MAX_IMAGE_BYTES:
        return Failed(
            f"{path} is an image ({media_type}) of {len(data):,} bytes, too large to be shown (the limit is "
            f"{MAX_IMAGE_BYTES:,}): make a smaller copy and read that."
        )
    return Ok(f"{name} is an image ({media_type}, {len(data):,} bytes).", images=(Image(data, media_type),))


@dataclass(frozen=True, slots=True)
class _Page:
    """Lines as they are shown.

    Attributes:
        shown: numbered.
        total: how many lines the file has.
        cut: how many lines are shown in part.
        longest: the number and the characters of the longest line shown.
    """

    shown: list[str]
    total: int
    cut: int
    longest: tuple[int, int]


def _page(path: str, data: bytes, first: int, most: int, max_line_chars: int | None) -> _Page:
    decode(path, data)  # all of it is checked, though a small part may be shown
    shown: list[str] = []
    total = cut = 0
    longest = (0, 0)
    for total, raw in enumerate(_lines(data), 1):
        if not first <= total < first + most:
            continue
        line = raw.decode().removesuffix("\n").removesuffix("\r")
        if len(line) > longest[1]:
            longest = (total, len(line))
        if max_line_chars is not None and len(line) > max_line_chars:
            cut += 1
            line = (
                f"{line[:max_line_chars]} [... {len(line) - max_line_chars:,} more characters of this line]"
            )
        shown.append(f"{total} | {line}")
    return _Page(shown, total, cut, longest)


def _lines(data: bytes) -> Iterator[bytes]:
    return iter(io.BytesIO(data.removeprefix(b"\xef\xbb\xbf")))


def _remarks(data: bytes, first: int, page: _Page) -> list[str]:
    remarks = []
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
