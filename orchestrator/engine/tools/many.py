"""Several files in one answer, within the limit of what a model is shown of `read_file`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.tools.base import Failed, Ok, ToolContext, ToolOutcome
from orchestrator.engine.tools.reading import GENEROUS, MAX_IMAGE_BYTES, read_path
from orchestrator.engine.tools.search import inside
from orchestrator.engine.tools.truncation import DEFAULT_MAX_CHARS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.messages import Image

MAX_FILES = 100
MAX_IMAGES = 5
MAX_SHOWN_CHARS = DEFAULT_MAX_CHARS["read_file"] - 5_000
"""Of all files together; the rest is for the names of those left out."""

_READING = replace(GENEROUS, whole_max_bytes=MAX_IMAGE_BYTES, slice_max_bytes=MAX_IMAGE_BYTES)
_MOST_NAMED = 20
_PATTERN_CHARS = frozenset("*?[{")


async def read_many(context: ToolContext, paths: Sequence[str]) -> ToolOutcome:
    """Show files one after the other, each under its heading. One that cannot be read does not stop the others.

    Args:
        context: where to read.
        paths: paths, or file patterns seen from the working directory.

    Raises:
        ToolError: no path is given.
    """
    if not paths:
        raise ToolError("paths is empty: name a file or a file pattern")
    wanted, problems = await _expand(context, paths)
    parts: list[str] = []
    images: list[Image] = []
    left_out = wanted[MAX_FILES:]
    room, shown = MAX_SHOWN_CHARS, 0
    for path in wanted[:MAX_FILES]:
        if room <= 0:
            left_out.append(path)
            continue
        seen = context.environment.relative(path) in context.ledger.shown
        outcome = await _read(context, path)
        text, pictures = _content(outcome)
        fits = len(text) <= room and len(images) + len(pictures) <= MAX_IMAGES
        if not fits and not seen:
            context.ledger.shown.discard(context.environment.relative(path))
        if shown and not fits:
            left_out.append(path)
            continue
        parts.append(f"=== {path} ===\n{text}")
        images += pictures
        room -= len(parts[-1]) + 2
        shown += isinstance(outcome, Ok)
    parts += problems
    if left_out:
        parts.append(_named(left_out))
    answer = "\n\n".join(parts)
    return Ok(answer, tuple(images)) if shown else Failed(answer)


async def _expand(context: ToolContext, paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The files meant, each once, and what is wrong with patterns."""
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


async def _read(context: ToolContext, path: str) -> ToolOutcome:
    try:
        return await read_path(context, path, reading=_READING)
    except ToolError as error:
        return Failed(str(error))


def _content(outcome: ToolOutcome) -> tuple[str, tuple[Image, ...]]:
    match outcome:
        case Ok(text, images):
            return text, images
        case Failed(message):
            return message, ()
        case _:
            return "", ()


def _named(paths: Sequence[str]) -> str:
    names = ", ".join(paths[:_MOST_NAMED])
    more = f" and {len(paths) - _MOST_NAMED:,} more" if len(paths) > _MOST_NAMED else ""
    return f"[not shown, because the answer would be too long: {names}{more}. Read them in another call.]"
