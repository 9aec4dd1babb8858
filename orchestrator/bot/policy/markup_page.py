"""Splits a text into blocks as GitHub's Markdown does.

A block counts as code only if every parser reads it as code; everything else is examined.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.helpers.parse_link_destination import _Result
    from markdown_it.rules_block import StateBlock
    from markdown_it.token import Token

LONGEST_MARKDOWN_CHARS = 70_000
"""GitHub accepts 65,536 characters. In a longer text nothing counts as code."""

_DRAWN = frozenset({"geojson", "math", "mermaid", "stl", "topojson"})
"""Languages of code that GitHub shows as a diagram, without its comments and properties. Source:
https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/creating-diagrams
"""

ESCAPED = r"\\[!-/:-@\[-`{-~]"
"""An escaped character. https://spec.commonmark.org/0.31.2/#backslash-escapes"""
DEEPEST_PARENTHESES = 32
"""Deepest nesting of parentheses that is followed in an address."""

_NAME = r"[A-Za-z][A-Za-z0-9-]*+"
# https://spec.commonmark.org/0.31.2/#raw-html. Repeats are possessive or unambiguous, so that time is linear.
TAG = (
    rf"<(?:(?P<name>{_NAME})(?P<attributes>(?>(?:\s++[A-Za-z_:][A-Za-z0-9_.:-]*+"
    r"(?>(?:\s*+=\s*+(?:[^\s\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?))*))\s*+/?"
    rf"|/(?P<close>{_NAME})\s*+)>"
)
_FOOTNOTE = re.compile(r"^[ \t>*+\-\d.)]*+\[\^(?P<label>[^\]\r\n]++)\]:", re.MULTILINE)
_INDENTED = re.compile(r" {0,3}\t| {4}")
_LONG_BLOCK = re.compile(r"(?i)```|~~~|<(?:[!?]|pre|script|style|textarea)")
_BLANK_LINE = re.compile(r"\n[ \t>]*+\n")
_UNDERLINE = re.compile(r"-+[ \t]*")
_LINE_END = re.compile(r"\r\n|\r|\n")
_ADDRESS_CHARACTER = re.compile(rf"{ESCAPED}|[()\s]", re.ASCII)
_MANY_QUOTES = 8
_MODES = {"fence": "code", "code_block": "code", "definition": "definition", "html_block": "html"}
_MODES |= {"inline": "words", "table_open": "words"}
"""The mode of a block, by the parser's type of token."""


@dataclass(frozen=True, slots=True)
class MarkupBlock:
    """A block of the text.

    Attributes:
        mode: `code`, `definition` of a link's label, `doubtful` if parsers disagree on it, `drawn` as a diagram,
            `footnote`, `html`, `words`, or `odd`: a definition, or what follows one without a blank line.
        label: the label of a definition.
    """

    start: int
    end: int
    mode: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class Mark:
    """A tag, a part to cut or to report, or the use of a label that a reader sees.

    Attributes:
        opens: name of the element that begins here.
        closes: name of the element that ends here.
        attributes: start and end of a tag's attributes.
        kind: kind of the cut, or of the shown part.
        is_shown: whether it stays in the text although GitHub does not show it in this form.
        label: the label in use.
        in_table: whether a tag is in a table.
    """

    start: int
    end: int
    opens: str = ""
    closes: str = ""
    attributes: tuple[int, int] = (0, 0)
    kind: str = ""
    replacement: str = ""
    is_shown: bool = False
    label: str = ""
    in_table: bool = False


@functools.cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt
    from markdown_it.helpers import parseLinkTitle

    parser = MarkdownIt("commonmark", {"inline_definitions": True}).enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    # GitHub accepts any address in a definition, and removes it later.
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # noqa: ARG005  the parser's signature
    helpers = SimpleNamespace(parseLinkDestination=_parse_destination, parseLinkTitle=parseLinkTitle)
    parser.helpers = helpers  # type: ignore[assignment]
    parser.block.ruler.at("html_block", _html_rule(), {"alt": ["paragraph", "reference", "blockquote"]})
    parser.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
    return parser


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001  the parser's signature
    """Apply the parser's rule for tables, except to a line that underlines a heading, as GitHub's parser does."""
    from markdown_it.rules_block.table import table

    below = start + 1
    if below < end:
        first = state.bMarks[below] + state.tShift[below]
        if _UNDERLINE.fullmatch(state.src, first, state.eMarks[below]):
            return False
    return table(state, start, end, silent)


def _parse_destination(string: str, start: int, maximum: int) -> _Result:
    """Find the end of a definition's address. Parentheses may stay open, as on GitHub but not in the parser's rule."""
    from markdown_it.common.utils import unescapeAll
    from markdown_it.helpers import parseLinkDestination

    if string.startswith("<", start):
        return parseLinkDestination(string, start, maximum)
    depth, end = 0, maximum
    for sign in _ADDRESS_CHARACTER.finditer(string, start, maximum):
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if depth < 0 or sign[0].isspace():
            end = sign.start()
            break
        if depth > DEEPEST_PARENTHESES:
            end = start
            break
    result = parseLinkDestination("", 0, 0)
    if end > start:
        result.ok, result.pos, result.str = True, end, unescapeAll(string[start:end])
    return result


def _html_rule() -> Callable[[StateBlock, int, int, bool], bool]:
    """Create the parser's rule for blocks of HTML, with the tags and blanks of GitHub's parser.

    https://github.com/github/cmark-gfm/blob/master/src/scanners.re
    """
    from markdown_it.rules_block.html_block import HTML_SEQUENCES, html_block

    sequences = []
    for begin, end, may_end_paragraph in HTML_SEQUENCES:
        pattern = begin.pattern.replace("|search|", "|source|").replace("\\s*$", "[ \\t\\f]*$")
        flags = begin.flags & ~re.UNICODE | re.ASCII
        sequences.append((re.compile(pattern, flags), end, may_end_paragraph))
    return FunctionType(html_block.__code__, {**html_block.__globals__, "HTML_SEQUENCES": sequences})


@functools.cache
def _tag_line_pattern() -> re.Pattern[str]:
    """Return the pattern of a line with only a tag that begins a block of HTML outside of paragraphs."""
    from markdown_it.common.html_blocks import block_names

    always = "|".join({*block_names, "source"} - {"search"})
    begins_block = rf"<(?:/?(?:{always})|pre|script|style|textarea)(?:[ \t\n>]|/>)"
    return re.compile(rf"(?im)\n[ \t>]*+(?!{begins_block}){TAG}[ \t\f]*+$", re.ASCII)


def is_drawn(info: str) -> bool:
    """Return whether the first word of a fence names a diagram, in any spelling that Markdown decodes."""
    from markdown_it.common.utils import unescapeAll

    first, *_ = [*unescapeAll(info).lower().split(), ""]
    return not _DRAWN.isdisjoint(re.split(r"[^a-z]+", first))


class Page:
    """A text with its blocks, the addresses of its link labels, and the labels that may belong to footnotes.

    Attributes:
        view: the text in which marks of block quotes are blanks and all line ends are line feeds. Each character
            has the same offset as in the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.view = text.replace("\r\n", " \n").replace("\r", "\n")
        self.addresses: dict[str, str] = {}
        self.footnotes = {found["label"].casefold() for found in _FOOTNOTE.finditer(self.view)}
        self.is_markdown = len(text) <= LONGEST_MARKDOWN_CHARS
        if not self.is_markdown:
            self.blocks = [MarkupBlock(0, len(text), "words")]
            return
        self._lines = [0, *(match.end() for match in _LINE_END.finditer(text)), len(text)]
        tokens = _parser().parse(self.view)
        self.view = self._without_quote_marks(tokens)
        self.blocks = list(self._with_footnotes(list(self._all_blocks(tokens))))

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
            # The parser counts levels up to a limit only, so beyond a few levels all marks are removed.
            most = depth if depth < _MANY_QUOTES else ""
            head = re.match(rf"(?:[ \t]*+>){{0,{most}}}+", text) if depth else None
            lines.append(" " * head.end() + text[head.end() :] if head else text)
        return "".join(lines)

    def _leaves(self, tokens: Sequence[Token]) -> Iterator[tuple[Token, int, int, int]]:
        """Yield the innermost blocks, each with its start, its end, and the end of its container."""
        position = container_end = 0
        for token in tokens:
            if token.map is None:
                continue
            start, end = self._lines[token.map[0]], self._lines[token.map[1]]
            if token.level == 0:
                container_end = end
            if token.type in _MODES and end > position:  # the cells of a table are a part of it
                yield token, start, end, container_end
                position = end

    def _all_blocks(self, tokens: Sequence[Token]) -> Iterator[MarkupBlock]:
        """Yield blocks that cover the whole text. Parts that the parser does not report are read as HTML."""
        position = doubt_end = 0
        mode_before = ""
        for token, start, end, container_end in self._leaves(tokens):
            if start > position:
                yield MarkupBlock(position, start, "html")
            mode = _MODES[token.type]
            continues = token.level > 1 or token.type == "table_open"
            if continues and start >= doubt_end and mode == "words":
                doubt_end = self._end_of_doubt(start, end, container_end)
            is_odd = mode_before in {"definition", "odd"} and start == position
            if is_odd and (mode_before == "odd" or token.type in {"code_block", "html_block"}):
                mode = "odd"  # GitHub reads a definition and the lines below it as one paragraph
            elif start < doubt_end and mode != "definition":
                mode = "doubtful"
            elif token.type == "fence" and is_drawn(token.info):
                mode = "drawn"
            if token.type == "definition":
                self.addresses.setdefault(token.meta["id"], token.meta["url"])
            yield MarkupBlock(
                start, end, mode, token.meta.get("id", "") if token.type == "definition" else ""
            )
            position, mode_before = end, mode
        if position < len(self.text):
            yield MarkupBlock(position, len(self.text), "html")

    def _end_of_doubt(self, start: int, end: int, container_end: int) -> int:
        """Return the offset up to which it is uncertain whether a block is code.

        On GitHub, a block of HTML may begin in a line that continues a table, a list or a quote; other parsers do
        not begin one there. Such a block may be long.
        """
        if not _tag_line_pattern().search(self.view, start, end):
            return 0
        blank = _BLANK_LINE.search(self.view, end - 1)
        least = max(container_end, blank.end() if blank else len(self.text))
        return len(self.text) if _LONG_BLOCK.search(self.view, start, least) else least

    def _with_footnotes(self, blocks: Sequence[MarkupBlock]) -> Iterator[MarkupBlock]:
        """Yield the blocks, with GitHub's footnotes, which continue over blank or indented lines."""
        view, in_footnote = self.view, False
        for block in blocks:
            first = block.start
            before = view[view.rfind("\n", 0, max(first - 1, 0)) + 1 : first]
            continues = before.strip() or not view[first : block.end].strip() or _INDENTED.match(view, first)
            if not (in_footnote and continues):
                words = block.mode in {"words", "doubtful", "definition", "html"}
                match = _FOOTNOTE.search(view, first, block.end) if words else None
                first = match.start() if match else block.end
            if first > block.start:
                yield MarkupBlock(block.start, first, block.mode, block.label)
            in_footnote = first < block.end
            if in_footnote:
                yield MarkupBlock(first, block.end, "footnote")
