"""Reads untrusted web pages and PDF documents, and tries foreign patterns, in a process with limits of time and memory.

This file is both sides. `in_child` starts it as the main script of the process, which imports nothing else of
this package. There it reads one line of JSON from standard input, and the bytes after it if the line says so,
and answers with one JSON object.
"""

from __future__ import annotations

import io
import json
import os
import re
import sys
import time
from collections import Counter
from contextlib import suppress
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject

CPU_SECONDS = 30
MEMORY_BYTES = 2 * 1024**3


async def in_child(
    request: JsonObject, seconds: float, *, data: bytes | None = None, program: Path = Path(__file__)
) -> dict[str, Any] | None:
    """Run a function in a limited process; return None if it failed or took over `seconds`.

    The process gets none of this program's environment variables, because some of them are keys.

    Args:
        request: the function's name in `WORK` as `do`, and its arguments.
        data: passed as an additional argument named `data`.
        program: the module with `WORK`.
    """
    import asyncio

    from orchestrator.engine.environments.commands import start_program

    process = await start_program(
        sys.executable,
        "-P",
        __file__,
        str(program),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    line = json.dumps({**request, "has_data": data is not None}).encode() + b"\n"
    async with process:
        try:
            async with asyncio.timeout(seconds):
                output, _ = await process.communicate(line + (data or b""))
        except TimeoutError:
            return None
    return json.loads(output) if process.returncode == 0 else None


def main() -> None:
    """Set the limits of this process, and run the function that standard input names."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    if asked.pop("has_data"):
        asked["data"] = sys.stdin.buffer.read()
    spec = spec_from_file_location("program", sys.argv[1])
    if spec is None or spec.loader is None:
        raise SystemExit(2)
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    json.dump(program.WORK[asked.pop("do")](**asked), sys.stdout)


MAX_MATCHES = 2_000
MAX_EXTRACTED_CHARACTERS = 5_000_000
MAIN_CHARACTERS = 200
"""A page whose main part has less text than this is shown with the surrounding parts."""

_MAX_DEPTH = 8
_MAX_URL_CHARACTERS = 2_048


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_VOID = _names("area base br col embed hr img input link meta param source track wbr")
_DROPPED = _names(
    "audio button canvas iframe noscript object script select style svg template textarea video"
)
"""Elements whose text does not belong to the page's text."""

_SURROUNDINGS = _names("aside dialog footer nav")
_SURROUNDING_ROLES = _names("banner complementary contentinfo dialog navigation search")
_INLINE = _DROPPED | _names(
    "a abbr acronym b bdi bdo big br cite code data del dfn em font i img input ins kbd label mark math q ruby s samp small "
    "span strike strong sub sup time tt u var wbr"
)
_CODE = frozenset({"code", "kbd", "samp", "tt"})
_HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
_CELLS = frozenset({"td", "th"})
_LAYOUT = frozenset({"blockquote", "ol", "pre", "table", "ul", *_HEADINGS})
"""Elements that cannot be shown in a line of a table. A table with one in a cell is used for layout."""

_ENDED_BY = {
    "li": {"p", "li"},
    "dt": {"p", "dt", "dd"},
    "dd": {"p", "dt", "dd"},
    "tr": {"p", "td", "th", "tr"},
    "td": {"p", "td", "th"},
    "th": {"p", "td", "th"},
}
"""By the name of an element that begins: the open elements that end there without an end tag."""

_ANCHOR_SIGNS = frozenset({"¶", "#", "§", "🔗"})
_INVISIBLE = re.compile(r"(?:display:none|visibility:hidden)(?:;|!|$)")


class MarkdownWriter(HTMLParser):
    """Converts HTML into blocks of Markdown with links.

    The parts of a page are distinguished by their HTML elements: the main part, the surroundings (navigation,
    footers), and the rest. Content that a browser does not show is left out.
    """

    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self._base = url
        self._blocks: list[tuple[int, str, str]] = []  # rank of the page's part, kind, text
        self._pieces: list[str] = []  # pieces of the block that is being read
        self._stack: list[tuple[str, str]] = []  # open elements and their marks
        self._open: Counter[str] = Counter()  # counts of open elements, by name and by mark
        self._lists: list[int] = []  # open lists: number of the last item, -1 in unordered ones
        self._bullet = ""
        self._link: tuple[int, str] | None = None  # index of its label in `_pieces`, and its address
        self._tables: list[bool] = []  # open tables: whether a row was written already
        self._row: list[str] | None = None  # cells of the row that is being read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        known = {name: value or "" for name, value in attrs}
        while self._stack and self._stack[-1][0] in self._ended_by(tag):
            self._pop()
        if tag in _LAYOUT:
            self._leave_row()
        if tag not in _INLINE:
            outer = self._stack[-1][0] if self._stack else ""
            self._end_block("" if outer == "pre" else outer)
        self._begin(tag, known)
        if tag not in _VOID:
            mark = self._mark(tag, known)
            self._stack.append((tag, mark))
            self._open.update((tag, mark))

    def handle_endtag(self, tag: str) -> None:
        """End an element, and the open elements in it."""
        while self._open[tag]:
            if self._pop() == tag:
                break

    def handle_data(self, data: str) -> None:
        """Add text."""
        if self._open["title"] and not self._open["svg"]:
            self.title.append(data)
        elif not self._open["hidden"]:
            self._pieces.append(data if self._open["pre"] else re.sub(r"\s+", " ", data))

    def markdown(self) -> str:
        """Return the main part of the page, or the whole page if that part is short."""
        self._end_block()
        sizes = Counter[int]()
        for rank, _, text in self._blocks:
            sizes[rank] += len(text)
        least = 2 if sizes[2] >= MAIN_CHARACTERS else 1 if sizes[1] + sizes[2] >= MAIN_CHARACTERS else 0
        written: list[str] = []
        before = ""
        for rank, kind, text in self._blocks:
            if rank >= least:
                written += ["\n" if kind and kind == before else "\n\n", text]
                before = kind
        return "".join(written[1:])

    def _ended_by(self, tag: str) -> set[str]:
        return _ENDED_BY.get(tag, set() if tag in _INLINE or tag in _VOID else {"p"})

    def _mark(self, tag: str, known: dict[str, str]) -> str:
        """Return the mark that an element puts on its whole content."""
        role = known.get("role", "").strip().lower()
        style = "".join(known.get("style", "").split()).lower()
        hidden = "hidden" in known or known.get("aria-hidden") == "true" or _INVISIBLE.search(style)
        if tag in _DROPPED or hidden:
            return "hidden"
        if tag in {"main", "article"} or role == "main":
            return "main part"
        is_around = tag in _SURROUNDINGS or (tag == "header" and not self._open["main part"])
        return "around" if is_around or role in _SURROUNDING_ROLES else ""

    def _begin(self, tag: str, known: dict[str, str]) -> None:
        if tag == "a":
            self._end_link()
            self._link = (len(self._pieces), self._address(known.get("href", "")))
        elif tag in _CODE and not self._open["pre"]:
            self._pieces.append("`")
        elif tag == "br" and not self._open["hidden"]:
            self._pieces.append("\n")
        elif tag in {"ul", "ol"}:
            self._lists.append(0 if tag == "ol" else -1)
        elif tag == "li":
            if self._lists and self._lists[-1] >= 0:
                self._lists[-1] += 1
            self._bullet = f"{self._lists[-1]}. " if self._lists and self._lists[-1] >= 0 else "- "
        elif tag == "table":
            self._tables.append(False)
        elif tag == "tr" and self._tables:
            self._row = []
        elif tag == "base" and known.get("href"):
            self._base = self._address(known["href"]) or self._base

    def _pop(self) -> str:
        """End the innermost element."""
        tag, mark = self._stack[-1]
        if tag == "a":
            self._end_link()
        elif tag in _CODE and not self._open["pre"]:
            if self._pieces and self._pieces[-1] == "`":
                self._pieces.pop()
            else:
                self._pieces.append("`")
        elif tag in _CELLS and self._row is not None:
            self._row.append(self._take_text().replace("\n", " "))
        elif tag not in _INLINE:
            self._end_block(tag)
        if tag == "tr":
            self._end_row()
        elif tag in {"ul", "ol"} and self._lists:
            self._lists.pop()
        elif tag == "table" and self._tables:
            self._tables.pop()
        self._stack.pop()
        self._open.subtract((tag, mark))
        return tag

    def _end_block(self, tag: str = "") -> None:
        """Write the text that was read of the element `tag`."""
        if self._open["hidden"]:
            return
        if self._open["pre"] > (tag == "pre"):  # a block in preformatted text is a line of it
            self._pieces += [] if not self._pieces or self._pieces[-1].endswith("\n") else ["\n"]
            return
        if self._row is not None:
            self._pieces.append(" ")  # a paragraph in a cell stays in it
            return
        raw = "".join(self._pieces).strip("\r\n").rstrip()
        text = self._take_text()
        if not text:
            return
        if tag == "pre":
            text = raw
            fence = "`" * max(3, *(len(ticks) + 1 for ticks in re.findall("`{3,}", text)), 3)
            text = f"{fence}\n{text}\n{fence}"
        self._write(_HEADINGS.get(tag, "") + text)

    def _write(self, text: str, kind: str = "") -> None:
        """Add a block, indented according to open lists and quotations."""
        indent = "  " * min(len(self._lists), _MAX_DEPTH)
        first = indent[2:] + self._bullet if self._bullet else indent
        kind = "item" if self._bullet else kind
        self._bullet = ""
        quote = "> " * min(self._open["blockquote"], _MAX_DEPTH)
        lines = [
            f"{quote}{indent if number else first}{line}" for number, line in enumerate(text.split("\n"))
        ]
        rank = 2 if self._open["main part"] else 1
        self._blocks.append((0 if self._open["around"] else rank, kind, "\n".join(lines)))

    def _take_text(self) -> str:
        """Return the pieces as text with normalised blanks, and clear them."""
        if self._link and len(self._pieces) > self._link[0]:
            self._end_link()
        text = "".join(self._pieces)
        self._pieces.clear()
        return "\n".join(" ".join(line.split()) for line in text.split("\n")).strip()

    def _end_link(self) -> None:
        if self._link is None:
            return
        (start, address), self._link = self._link, None
        label = "".join(self._pieces[start:])
        plain = " ".join(label.split())
        if plain in _ANCHOR_SIGNS:
            self._pieces[start:] = []
        elif plain and address and not self._open["pre"]:
            self._pieces[start:] = [label[: len(label) - len(label.lstrip())], f"[{plain}]({address})"]
            self._pieces += [" "] if label[-1:].isspace() else []

    def _address(self, href: str) -> str:
        """Return the absolute address of a link; empty if it does not lead to a page."""
        href = href.strip()
        with suppress(ValueError):
            address = urljoin(self._base, href) if href and not href.startswith("#") else ""
            if re.fullmatch(r"https?://\S+", address) and len(address) <= _MAX_URL_CHARACTERS:
                return address
        return ""

    def _end_row(self) -> None:
        cells, self._row = self._row, None
        if cells and any(cells):
            self._write(f"| {' | '.join(cells)} |", "row")
            if self._tables and not self._tables[-1]:
                self._write(f"|{' --- |' * len(cells)}", "row")
                self._tables[-1] = True

    def _leave_row(self) -> None:
        """Write the cells of a row as blocks."""
        cells, self._row = self._row or (), None
        for cell in filter(None, cells):
            self._write(cell)


def extract(page: str, url: str) -> dict[str, Any]:
    """Return the title and the readable text of an HTML page, as Markdown with its links."""
    parser = MarkdownWriter(url)
    page = page.replace("<![", "<!x[")  # a comment in HTML, but Python's parser may raise an error
    closed, end, rest = page.rpartition("-->")
    # An unclosed comment is replaced, because the parser searches for the end of each in quadratic time.
    parser.feed(closed + end + rest.replace("<!--", "<!x"))
    parser.close()
    text = parser.markdown()
    return {"title": " ".join("".join(parser.title).split()), "text": text[:MAX_EXTRACTED_CHARACTERS]}


def _compiled(pattern: str, *, ignore_case: bool) -> re.Pattern[str] | str:
    """Return a foreign pattern, or why it is invalid."""
    try:
        return re.compile(pattern, re.IGNORECASE if ignore_case else 0)
    except (re.error, OverflowError, RecursionError) as error:
        return str(error)


def find_lines(pattern: str, ignore_case: bool, data: bytes) -> dict[str, Any]:  # noqa: FBT001  from JSON
    """Return the indices of the lines in which the pattern matches."""
    expression = _compiled(pattern, ignore_case=ignore_case)
    if isinstance(expression, str):
        return {"invalid": expression}
    lines = data.decode("utf-8", "surrogatepass").split("\n")
    return {"found": [index for index, line in enumerate(lines) if expression.search(line)]}


def fits(pattern: str, text: str, whole: bool) -> dict[str, Any]:  # noqa: FBT001  from JSON
    """Return whether the pattern matches the whole text, or any part of it."""
    expression = _compiled(pattern, ignore_case=False)
    if isinstance(expression, str):
        return {"invalid": expression}
    return {"fits": (expression.fullmatch if whole else expression.search)(text) is not None}


def find_matches(pattern: str, paragraphs: list[str]) -> dict[str, Any]:
    """Return where the pattern matches, as `[paragraph, start, end]`, without empty matches."""
    expression = _compiled(pattern, ignore_case=True)
    if isinstance(expression, str):
        return {"invalid": expression}
    found: list[tuple[int, int, int]] = []
    for number, paragraph in enumerate(paragraphs):
        for match in expression.finditer(paragraph):
            if match.end() > match.start():
                found.append((number, match.start(), match.end()))
                if len(found) >= MAX_MATCHES:
                    return {"found": found, "more": True}
    return {"found": found, "more": False}


_DETAIL_CHARACTERS = 150
_PAGE_CHARACTERS = 70
"""The characters shown beside the text of a page: its heading, and a note if it has no text."""


def pdf_pages(
    data: bytes, first: int, most_pages: int, most_characters: int, seconds: float
) -> dict[str, Any]:
    """Return the text of a PDF document's pages: as many of the requested ones as fit under headings, at least one.

    Args:
        first: number of the first page, from 1.
        seconds: time after which no other page is begun.

    Returns:
        `total`, `texts` (None for a page that cannot be read) and `cut`, the number of characters left out of
        the only text; or `problem` and `detail`.
    """
    from pypdf import PdfReader

    end = time.monotonic() + seconds
    try:
        reader = PdfReader(io.BytesIO(data))
        if reader.is_encrypted and not reader.decrypt(""):
            return {"problem": "encrypted", "detail": ""}
        total = len(reader.pages)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  the library: "broken PDF files might cause other Exceptions"
        return {"problem": "damaged", "detail": _line(str(error) or type(error).__name__)}
    texts: list[str | None] = []
    left, cut = most_characters, 0
    for number in range(first, min(first + most_pages - 1, total) + 1):
        text = _page_text(reader, number)
        room = left - _PAGE_CHARACTERS
        if texts and (room < 0 or (len(text or "") > room and any(texts))):
            break
        if text and len(text) > room:
            room = max(room, 1)
            text, cut = text[:room], len(text) - room
        left = room - len(text or "")
        texts.append(text)
        if cut or time.monotonic() > end:
            break
    return {"total": total, "texts": texts, "cut": cut}


def _page_text(reader: Any, number: int) -> str | None:
    """Return the lines of a page without empty ones at its ends; None if it cannot be read."""
    try:
        found = reader.pages[number - 1].extract_text()
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001  see above
        return None
    text = found.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\0", "")
    lines = [line.rstrip() for line in text.replace("\r", "\n").replace("\f", "\n").split("\n")]
    return "\n".join(lines).strip("\n")


def _line(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:_DETAIL_CHARACTERS]


WORK = {"extract": extract, "find": find_matches, "fits": fits, "lines": find_lines, "pages": pdf_pages}
"""The functions that the parent process can request."""


if __name__ == "__main__":
    main()
