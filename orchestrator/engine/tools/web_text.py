"""Pages as numbered lines: readable text, wrapped, shown piece by piece and searched."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import unicodedata
from bisect import bisect_right
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.commands import start_program
from orchestrator.engine.web.base import PageKind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.engine.web.base import WebAccess, WebPage

WRAP_CHARACTERS = 200
"""A longer line is shown as several."""

KEPT_TEXTS = 20
EXTRACT_SECONDS = 30.0
FIND_SECONDS = 5.0

_CHILD = Path(__file__).with_name("web_child.py")
_UNSEEN = frozenset({"Cc", "Cf", "Co", "Cs", "Cn", "Zl", "Zp"})
_UNSEEN_LETTERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_VARIATIONS = (range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0))


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A line of a page before it was wrapped.

    Attributes:
        first: the number of its first wrapped line, from 1.
        starts: where in its text each wrapped line begins.
    """

    text: str
    first: int
    starts: tuple[int, ...]

    def lines(self) -> Iterator[str]:
        """Its wrapped lines."""
        for start, end in zip(self.starts, (*self.starts[1:], len(self.text)), strict=True):
            yield self.text[start:end].rstrip()

    def line_of(self, position: int) -> int:
        """The number of the line in which a character is."""
        return self.first + bisect_right(self.starts, position) - 1


@dataclass(frozen=True, slots=True)
class PageText:
    """A page to be read. `url` is where it came from, `title` one line, possibly empty."""

    url: str
    title: str
    paragraphs: tuple[Paragraph, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """Line ranges (first, last) with a match, in order; `more` says that there were too many to collect."""

    ranges: tuple[tuple[int, int], ...]
    more: bool


class PageReader:
    """Readable pages of a `WebAccess`. Text that was taken out of a page once is kept."""

    def __init__(self, access: WebAccess) -> None:
        self._access = access
        self._texts: dict[str, tuple[WebPage, PageText]] = {}

    async def read(self, url: str) -> PageText:
        """The text of the page at an address.

        Raises:
            ToolError: see `WebAccess.fetch`; or the page is too large or too tangled to be read.
        """
        page = await self._access.fetch(url)
        kept = self._texts.pop(url, None)
        text = kept[1] if kept and kept[0] is page else await _page_text(page)
        self._texts[url] = (page, text)
        while len(self._texts) > KEPT_TEXTS:
            del self._texts[next(iter(self._texts))]
        return text


async def find_in(text: PageText, pattern: str, *, seconds: float = FIND_SECONDS) -> Matches:
    """Where a regular expression matches; upper and lower case count as the same.

    Raises:
        ToolError: the expression is invalid, or takes too long.
    """
    answer = await _apart(
        {"do": "find", "pattern": pattern, "paragraphs": [part.text for part in text.paragraphs]},
        seconds,
    )
    if answer is None:
        raise ToolError(
            f"the search did not end within {seconds:g} seconds and the memory allowed: use a simpler pattern"
        )
    if "invalid" in answer:
        raise ToolError(f"the pattern is not a valid regular expression: {answer['invalid']}")
    ranges = {
        (text.paragraphs[number].line_of(start), text.paragraphs[number].line_of(end - 1)): None
        for number, start, end in answer["found"]
    }
    return Matches(tuple(ranges), answer["more"])


def seen(text: str) -> str:
    """The text without characters that nobody sees, in which instructions can hide."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(c for c in text if c == "\t" or _is_seen(c))


def wrapped(paragraphs: Sequence[str]) -> tuple[Paragraph, ...]:
    """Cut each paragraph into lines of at most `WRAP_CHARACTERS`, behind a space where there is one."""
    result = []
    number = 1
    for text in paragraphs:
        starts = [0]
        while len(text) - starts[-1] > WRAP_CHARACTERS:
            limit = starts[-1] + WRAP_CHARACTERS
            space = text.rfind(" ", starts[-1] + 1, limit + 1)
            starts.append(space + 1 if space > 0 else limit)
        result.append(Paragraph(text, number, tuple(starts)))
        number += len(starts)
    return tuple(result)


async def _page_text(page: WebPage) -> PageText:
    title, text = "", page.text
    if page.kind is PageKind.HTML:
        answer = await _apart({"do": "extract", "page": page.text, "url": page.url}, EXTRACT_SECONDS)
        if answer is None:
            raise ToolError(f"the page at {page.url} is too large or too tangled to be read")
        title, text = answer["title"], answer["text"]
    return await asyncio.to_thread(_numbered, page.url, title, text)


def _numbered(url: str, title: str, text: str) -> PageText:
    lines = [seen(line).rstrip() for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    paragraphs = wrapped(lines)
    shown = tuple(line for part in paragraphs for line in part.lines())
    return PageText(url, seen(" ".join(title.split()))[:WRAP_CHARACTERS], paragraphs, shown)


def _is_seen(character: str) -> bool:
    if unicodedata.category(character) in _UNSEEN or character in _UNSEEN_LETTERS:
        return False
    return not any(ord(character) in variations for variations in _VARIATIONS)


async def _apart(asked: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    """Have the child process do it; None where it failed or was stopped after `seconds`.

    The process has none of our environment's variables: some of them are keys.
    """
    process = await start_program(
        sys.executable,
        "-P",
        str(_CHILD),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(json.dumps(asked).encode())
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return json.loads(output) if process.returncode == 0 else None
