"""Splits a text, block by block, as GitHub's Markdown does.

What is taken for code has to be code on every reading; everything else is looked at.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST_MARKDOWN_CHARS = 70_000
"""GitHub takes 65,536. In a longer text nothing counts as code."""

_DRAWN = frozenset({"geojson", "math", "mermaid", "stl", "topojson"})
"""Code that GitHub shows as a picture, without its comments and properties. Source:
https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/creating-diagrams"""

_FOOTNOTE = re.compile(r"^[ \t>*+\-\d.)]*+\[\^[^\]\r\n]++\]:", re.MULTILINE)
_INDENTED = re.compile(r" {0,3}\t| {4}")
_LAZY_TAG = re.compile(r"\n[ \t>]*+<")
_LINE_END = re.compile(r"\r\n|\r|\n")
_SOURCE_TAG = re.compile(r"(?i)<(/?)source\b")
_MANY_QUOTES = 8


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the text. `mode` is `code`, `drawn`, `html`, `words`, `definition`, or `footnote`."""

    start: int
    end: int
    mode: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A tag, a cut that is certain, or the use of a label that a reader sees.

    Attributes:
        opens: the name of the element that begins here.
        closes: the name of the element that ends here.
        attributes: where a tag's attributes begin and end.
        kind: of a cut.
        label: which is used.
        in_table: of a tag.
    """

    start: int
    end: int
    opens: str = ""
    closes: str = ""
    attributes: tuple[int, int] = (0, 0)
    kind: str = ""
    replacement: str = ""
    label: str = ""
    in_table: bool = False


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"inline_definitions": True})
    parser.core.ruler.enableOnly(["normalize", "block"])
    # GitHub takes any address in a definition, and drops it later.
    parser.validateLink = _any_address  # type: ignore[method-assign]
    return parser


def _any_address(url: str) -> bool:  # noqa: ARG001  the parser's signature
    return True


class Page:
    """A text, its blocks, and what its link labels stand for.

    `view` is the text without the marks of block quotes; places are the same in both.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        # One kind of line end, in the same places.
        self.view = text.replace("\r\n", " \n").replace("\r", "\n")
        self.addresses: dict[str, str] = {}
        self.is_markdown = len(text) <= LONGEST_MARKDOWN_CHARS
        if not self.is_markdown:
            self.blocks = [Block(0, len(text), "words")]
            return
        self._lines = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
        # GitHub's parser knows one more tag that begins a block of HTML.
        tokens = _parser().parse(_SOURCE_TAG.sub(r"<\1center", self.view))
        self.view = self._without_quote_marks(tokens)
        self.blocks = list(self._with_footnotes(list(self._with_gaps(tokens))))

    def _without_quote_marks(self, tokens: Sequence[Token]) -> str:
        depths = [0] * len(self._lines)
        for token in tokens:
            if token.type == "blockquote_open" and token.map:
                for line in range(*token.map):
                    depths[line] += 1
        if not any(depths):
            return self.view
        lines = []
        for number, depth in enumerate(depths[:-1]):
            text = self.view[self._lines[number] : self._lines[number + 1]]
            # The parser stops at some depth, so that beyond a few levels all marks count.
            most = depth if depth < _MANY_QUOTES else ""
            head = re.match(rf"(?:[ \t]*+>){{0,{most}}}+", text) if depth else None
            lines.append(" " * head.end() + text[head.end() :] if head else text)
        return "".join(lines)

    def _with_gaps(self, tokens: Sequence[Token]) -> Iterator[Block]:
        """Blocks that cover the text. What the parser says nothing about is read as HTML."""
        modes = {"inline": "words", "fence": "code", "code_block": "code", "definition": "definition"}
        position = 0
        is_doubtful = False
        for token in tokens:
            if token.map is None or token.type not in {*modes, "html_block"}:
                continue
            start, end = self._lines[token.map[0]], self._lines[token.map[1]]
            if start > position:
                yield Block(position, start, "html")
            mode = "html" if is_doubtful else modes.get(token.type, "html")
            # GitHub begins a block of HTML in a line that a list or a quote continues lazily; other parsers
            # do not. From there on nothing is sure to be code.
            if token.type == "inline" and token.level > 1 and _LAZY_TAG.search(self.view, start, end):
                mode, is_doubtful = "html", True
            if token.type == "definition":
                self.addresses.setdefault(token.meta["id"], token.meta["url"])
            if (
                mode == "code"
                and token.type == "fence"
                and _DRAWN.intersection(token.info.lower().split(maxsplit=1)[:1])
            ):
                mode = "drawn"
            yield Block(start, end, mode, token.meta.get("id", "") if mode == "definition" else "")
            position = end
        if position < len(self.text):
            yield Block(position, len(self.text), "html")

    def _with_footnotes(self, blocks: Sequence[Block]) -> Iterator[Block]:
        """Footnotes are a part of GitHub's Markdown only. They go on over lines that are blank or indented."""
        view, in_footnote = self.view, False
        for block in blocks:
            first = block.start
            before = view[view.rfind("\n", 0, max(first - 1, 0)) + 1 : first]
            goes_on = before.strip() or not view[first : block.end].strip() or _INDENTED.match(view, first)
            if not (in_footnote and goes_on):
                words = block.mode in {"words", "definition"}
                match = _FOOTNOTE.search(view, first, block.end) if words else None
                first = match.start() if match else block.end
            if first > block.start:
                yield Block(block.start, first, block.mode, block.label)
            in_footnote = first < block.end
            if in_footnote:
                yield Block(first, block.end, "footnote")
