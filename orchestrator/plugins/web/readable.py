"""Reads untrusted web pages, and searches in them, in a limited process.

`orchestrator.engine.environments.limited_child` starts it there. It imports nothing of this package.
"""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urljoin

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


def find_matches(pattern: str, paragraphs: list[str]) -> dict[str, Any]:
    """Return where the pattern matches, as `[paragraph, start, end]`, without empty matches."""
    try:
        expression = re.compile(pattern, re.IGNORECASE)
    except (re.error, OverflowError, RecursionError) as error:
        return {"invalid": str(error)}
    found: list[tuple[int, int, int]] = []
    for number, paragraph in enumerate(paragraphs):
        for match in expression.finditer(paragraph):
            if match.end() > match.start():
                found.append((number, match.start(), match.end()))
                if len(found) >= MAX_MATCHES:
                    return {"found": found, "more": True}
    return {"found": found, "more": False}


WORK = {"extract": extract, "find": find_matches}
"""The functions that the parent process can request."""
