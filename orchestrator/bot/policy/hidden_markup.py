"""Decides which markup of a text is hidden from a person on GitHub.

A short list of HTML tags and attributes is visible. A text is split into blocks once, as GitHub's Markdown does. A block
counts as code only if every parser reads it as code; everything else is examined.
"""

from __future__ import annotations

import functools
import html
import re
from bisect import bisect_right
from dataclasses import dataclass
from types import FunctionType, SimpleNamespace
from typing import TYPE_CHECKING, Literal

from orchestrator.bot.policy.hidden_characters import Cut, may_hide

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


# https://html.spec.whatwg.org/multipage/parsing.html#before-attribute-name-state
ATTRIBUTE_NAME = r"[^\s/>][^\s/>=]*+"
ATTRIBUTE_VALUE = r"\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+|(?=>|\Z))"
_ATTRIBUTE = rf"{ATTRIBUTE_NAME}(?:{ATTRIBUTE_VALUE}|(?!\s*+=))"
# Repeats are possessive or unambiguous, so that time is linear.
_STRICT_TAG = re.compile(TAG, re.ASCII)
_LOOSE_TAG = re.compile(
    rf"<(?:(?P<name>[A-Za-z][^\s/>]*+)|/(?P<close>[A-Za-z][^\s/>]*+))(?P<attributes>(?>(?:[\s/]++|{_ATTRIBUTE})*))>",
    re.ASCII,
)
_AUTOLINK = re.compile(
    r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}+:[^\s<>]*+|[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]++@[\w.-]++)>"
)
# Only ASCII blanks end an address: https://github.github.com/gfm/#autolinks-extension-.
_BARE_ADDRESS = re.compile(r"(?:(?:https?|ftp)://|www\.)[^\s<]++", re.IGNORECASE | re.ASCII)
_TICKS = re.compile("`++")
_REFERENCE = re.compile(r"&(?:#0*+\d{1,8}|#[xX]0*+[0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,31}+);?")
_LINE = re.compile("[^\\n]++")
_FENCE = re.compile(r"(?:`{3,}+|~{3,}+)(?P<info>[ \t]*+(?P<language>[^\s`]*+)(?P<rest>[^\r\n]*))")
_MORE_LANGUAGES = "bat cmd csproj dotenv env gitignore gradle jsonc log mjs none output plain plaintext ps1"
_MORE_LANGUAGES += " razor sh-session stacktrace suggestion svelte traceback txt vue"
_TABLE_RULE = re.compile(
    r"^[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?>(?:\|[ \t]*+:?-++:?[ \t]*+)*)\|?[ \t]*+$", re.MULTILINE
)
_BAR = re.compile(r"\\.|\|")
_HTML_START = re.compile(r"[<&\[\]$]")
_WORDS_START = re.compile(r"[`\\<&\[\]$]")
_DECLARATION = re.compile("<![A-Za-z]")
_TAG_START = re.compile("</?[A-Za-z]")
_CELL_END = re.compile(r"[|\r\n]")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_ANGLE_ADDRESS = re.compile(r"<(?>(?:[^<>\n\\]++|\\.)*)>")
_ADDRESS_CHARACTERS = re.compile(rf"{ESCAPED}|[()\t\n ]")
_BLANKS = re.compile(r"[ \t\n]*+")
_TITLE_AND_END = re.compile(
    r"(?>(?P<title>[ \t\n]++(?:\"(?>(?:[^\"\\]++|\\.)*)\"|'(?>(?:[^'\\]++|\\.)*)'|\((?>(?:[^()\\]++|\\.)*)\)))?)"
    r"[ \t\n]*+\)",
    re.DOTALL,
)
_PLAIN_ADDRESS = re.compile(
    r"(?!\s*(?:data|javascript|vbscript):)[\w.~:/?#@!$&'()*+,;=%\[\]-]{1,500}", re.IGNORECASE
)
_UPLOAD = re.compile(  # what GitHub writes for a file that is dropped into a text
    r"https://(?:github\.com/user-attachments/assets/|user-images\.githubusercontent\.com/\d+/\d+-)"
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\.(?:png|jpe?g|gif|mp4|mov))?"
)
# Commands of TeX with a visible result. Others might be defined to have none.
_VISIBLE_COMMANDS = (
    "alpha approx bar beta cdot cdots cos delta Delta dots epsilon eta exp forall exists frac gamma Gamma ge geq hat in"
    " infty int lambda Lambda ldots le leq left lim log mapsto mathbb mathbf mathcal mathrm max min mu nabla ne neq nu"
    " omega Omega partial phi Phi pi Pi pm prod psi Psi quad rho right rightarrow sigma Sigma sim sin sqrt subset sum"
    " tan tau text theta Theta tilde times to vec xi zeta"
)
_PLAIN_MATHEMATICS = re.compile(
    rf"(?>(?:[^\\%]++|\\(?:{'|'.join(_VISIBLE_COMMANDS.split())})(?![A-Za-z@]))*)"
)
_LABEL = re.compile(r"\[((?>(?:[^\[\]\\]|\\.){0,999}))\]", re.DOTALL)
_LONGEST_LABEL_CHARS = 999  # https://spec.commonmark.org/0.31.2/#link-label
_LONGEST_NUMBER = 3
PLAIN_ALT = frozenset({"", "image"})
"""Alternative texts that GitHub itself writes for an image that a person drops into a text."""
_LONGEST_PLAIN_ALT = max(map(len, PLAIN_ALT))


@dataclass(slots=True)
class _Brackets:
    """The open brackets, each with whether it begins an image. The first `inactive` ones cannot begin a link."""

    waiting: list[tuple[int, bool]]
    inactive: int = 0


@functools.cache
def _languages() -> frozenset[str]:
    """Return the languages that a fence may name: a fixed vocabulary, so that it cannot contain an instruction."""
    from pygments.lexers import get_all_lexers

    known = (name for lexer in get_all_lexers(plugins=False) for name in lexer[1])
    return frozenset([*known, *_MORE_LANGUAGES.split()])


def address_kind(address: str) -> Literal["plain", "upload", "odd"]:
    """Return whether an address is GitHub's for an uploaded file, another one of the usual form, or anything else."""
    if _UPLOAD.fullmatch(address):
        return "upload"
    return "plain" if _PLAIN_ADDRESS.fullmatch(address) else "odd"


class MarkupReader:
    """Reads a page once from start to end and records its marks."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._view = page.view
        self._marks: list[Mark] = []
        self._position = 0
        self._found: dict[str, int] = {}
        self._in_table = False
        self._dollar_spans: list[tuple[int, int]] = []

    def marks(self) -> list[Mark]:
        """Return the marks, in the order in which each was completed."""
        for block in self._page.blocks:
            self._position = max(self._position, block.start)
            if self._position >= block.end:
                continue
            self._in_table = False
            self._read_block(block)
            self._position = max(self._position, block.end)
            self._cut_mathematics()
        return self._marks

    def _read_block(self, block: MarkupBlock) -> None:
        match block.mode:
            case "words":
                self._read_words(block.end)
            case "doubtful":
                self._in_table = self._cut_excess_cells(block.start, block.end)
                self._read_fences(block)
                self._read_html(block.end)
            case "html":
                self._read_html(block.end)
            case "footnote":
                self._read_footnote(block.end)
            case "definition":
                self._marks.append(Mark(block.start, block.end, kind="definition", label=block.label))
            case "odd":
                is_short = self._view.find("<", block.start, block.end) < 0
                self._cut(block.start, block.end if is_short else len(self._view), "link definition")
            case "drawn":
                self._cut(self._position, block.end, "drawn block")
            case _:
                if self._position == block.start:
                    self._read_fence(block.start)

    def _find_forward(self, needle: str, start: int) -> int:
        """Find text like `str.find`, for starts that only increase, so that no part is searched twice."""
        found = self._found.get(needle, -2)
        if found != -1 and found < start:
            found = self._found[needle] = self._view.find(needle, start)
        return found

    def _read_fences(self, block: MarkupBlock) -> None:
        """Read the fences that may begin in a block, each of which may continue to its end."""
        for line in _LINE.finditer(self._view, block.start, block.end):
            fence = _FENCE.search(line[0])
            if fence and is_drawn(fence["info"]):
                self._cut(line.start(), block.end, "drawn block")
                return
            self._read_fence(line.start())
        self._position = block.start

    def _read_fence(self, start: int) -> None:
        """Read the first line of a fence, which a reader does not see, and cut all of it except a known language."""
        line = _LINE.match(self._view, start)
        if line is None or not (fence := _FENCE.search(line[0])):
            return
        first = "rest" if fence["language"].lower() in _languages() else "info"
        if fence[first].strip():
            self._cut(start + fence.start(first), start + fence.end(first), "info string")

    def _read_footnote(self, end: int) -> None:
        """Read a footnote. It is not shown in its place, and its end is uncertain, so marks in it may continue behind it."""
        first, known = self._position, len(self._marks)
        while (start := self._view.find("<", self._position, end)) >= 0:
            self._position = start
            self._read_angle_of_html(end)
        # What ends in it may be at the foot of the page, where it ends nothing.
        self._marks[known:] = [mark for mark in self._marks[known:] if not mark.closes]
        if self._view[first:end].strip():
            self._cut(first, end, "footnote")

    def _read_html(self, end: int) -> None:
        """Read a block of HTML as browsers do: an element that is not closed in it contains the rest of the text."""
        view = self._view
        brackets = _Brackets([])
        while match := _HTML_START.search(view, self._position, end):
            start = self._position = match.start()
            match view[start]:
                case "&":
                    self._read_reference(needs_semicolon=False)
                case "[" | "]":
                    self._read_bracket(brackets)
                case "$":
                    self._read_dollar(start)
                case _:
                    self._read_angle_of_html(end)

    def _read_angle_of_html(self, end: int) -> None:
        view, start = self._view, self._position
        if view.startswith(("<!", "<?"), start):
            self._read_declaration(end, raw=True)
        elif (tag := _LOOSE_TAG.match(view, start)) and tag.end() <= end:
            self._read_tag(tag)
        elif _TAG_START.match(view, start):
            self._cut(start, len(view), "unclosed tag")
        elif view.startswith("</", start):
            self._cut(start, self._place_after(">", start, end), "HTML comment")
        else:
            self._position += 1

    def _place_after(self, needle: str, start: int, end: int) -> int:
        """Return the place after the needle, or the end of the text if this block does not contain it."""
        found = self._find_forward(needle, start)
        return found + len(needle) if 0 <= found < end else len(self._view)

    def _read_tag(self, tag: re.Match[str]) -> None:
        opens, closes = (tag["name"] or "").lower(), (tag["close"] or "").lower()
        self._marks.append(
            Mark(tag.start(), tag.end(), opens, closes, tag.span("attributes"), in_table=self._in_table)
        )
        self._position = tag.end()

    def _read_reference(self, *, needs_semicolon: bool) -> None:
        reference = _REFERENCE.match(self._view, self._position)
        if reference is None:
            self._position += 1
            return
        self._position = reference.end()
        if needs_semicolon and not reference[0].endswith(";"):
            return
        character = html.unescape(reference[0])
        if character == "$":
            self._dollar_spans.append(reference.span())
        elif not character or may_hide(character):
            self._cut(*reference.span(), "character reference")

    def _read_declaration(self, end: int, *, raw: bool) -> None:
        """Read a comment, or what browsers treat as a comment."""
        view, start = self._view, self._position
        if view.startswith("<!--", start):
            close, odd_close = (self._find_forward(needle, start + 4) for needle in ("-->", "--!>"))
            end_of_comment = close + 3 if close >= 0 else odd_close + 4 if odd_close >= 0 else len(view)
            # If two ends are possible, parsers disagree on the part between them.
            is_doubtful = end_of_comment > end or 0 <= odd_close < close
            # Some parsers let such a comment end at once.
            if view.startswith(("<!-->", "<!--->"), start) and "<" in view[start + 4 : end_of_comment]:
                is_doubtful = True
            self._cut(start, len(view) if is_doubtful else end_of_comment, "HTML comment")
            return
        needles = {"<!": (">",), "<?": ("?>", ">")}[view[start : start + 2]]
        if view.startswith("<![CDATA[", start):
            needles = ("]]>", ">")
        kind = "HTML comment" if needles == (">",) else "processing instruction"
        for needle in needles if raw else needles[:1]:
            if 0 <= self._find_forward(needle, start) < end:
                close = self._place_after(needle, start, end)
                is_plain = not re.search("[<>]", view[start + 2 : close - len(needle)])
                self._cut(start, close if is_plain else len(view), kind)
                return
        if raw:
            self._cut(start, len(view), kind)
        else:
            self._position += 1

    def _read_words(self, end: int) -> None:
        """Read a paragraph, a heading, or the cells of a table."""
        view, start = self._view, self._position
        ticks: dict[int, list[int]] = {}
        if self._page.is_markdown:
            for run in _TICKS.finditer(view, start, end):
                ticks.setdefault(len(run[0]), []).append(run.start())
        self._in_table = self._cut_excess_cells(start, end)
        addresses = [found.span() for found in _BARE_ADDRESS.finditer(view, start, end)]
        brackets = _Brackets([])
        while match := _WORDS_START.search(view, self._position, end):
            place = self._position = match.start()
            if view[place] in "`\\" and _is_within(addresses, place):
                # GitHub turns an address in the text into a link, in which backticks and backslashes have no meaning.
                self._read_html(end)
                return
            match view[place]:
                case "`":
                    self._read_ticks(ticks)
                case "\\" if not view.startswith("\\$", place):
                    self._position += 2 if view[place + 1 : place + 2] in _PUNCTUATION else 1
                case "\\" | "$":
                    self._read_dollar(place)
                case "&":
                    self._read_reference(needs_semicolon=True)
                case "[" | "]":
                    self._read_bracket(brackets)
                case _:
                    self._read_angle(end)

    def _cut_excess_cells(self, start: int, end: int) -> bool:
        """Cut the cells of a row beyond the columns of its table, which are not shown. Return whether it is a table."""
        rule = _TABLE_RULE.search(self._view, start, end)
        if rule is None:
            return False
        view, columns = self._view, len(re.findall("-+", rule[0]))
        for row in re.compile("[^\n]+").finditer(view, rule.end(), end):
            bars = [bar.start() for bar in _BAR.finditer(row[0]) if bar[0] == "|"]
            if bars and not row[0][: bars[0]].strip():
                del bars[0]
            if len(bars) >= columns and row[0][bars[columns - 1] + 1 :].strip():
                self._marks.append(Mark(row.start() + bars[columns - 1] + 1, row.end(), kind="table cell"))
        return True

    def _read_ticks(self, ticks: dict[int, list[int]]) -> None:
        start = self._position
        run = _TICKS.match(self._view, start)
        self._position = run.end() if run else start + 1
        same = ticks.get(self._position - start, [])
        following = bisect_right(same, start)
        if following >= len(same):
            return
        close = same[following]
        # A cell ends at a bar or a line's end, code or not.
        if self._in_table and _CELL_END.search(self._view, start, close):
            return
        inner, self._position = slice(self._position, close), close + self._position - start
        is_mathematics = start > 0 and self._view[start - 1] == "$" == self._view[self._position :][:1]
        if is_mathematics and not _PLAIN_MATHEMATICS.fullmatch(self._view[inner]):
            self._cut(start, self._position, "mathematics")

    def _read_dollar(self, start: int) -> None:
        """Read a dollar sign, escaped or not: GitHub looks for mathematics after Markdown has handled escapes."""
        self._position = self._view.index("$", start) + 1
        self._dollar_spans.append((start, self._position))

    def _cut_mathematics(self) -> None:
        """Cut the text between two dollar signs of a block, unless all of it is visible as text and as mathematics.

        GitHub's rules are not documented. These are assumed: a single dollar sign before a blank or after a letter
        begins no mathematics, and one after a blank or before a letter ends none; digits count as letters.
        https://github.com/github/markup/issues/1742
        """
        view, dollars, self._dollar_spans = self._view, self._dollar_spans, []
        ends = {
            at
            for at, (start, end) in enumerate(dollars)
            if (before := view[start - 1 : start]) == "$"
            or not (before.isspace() or view[end : end + 1].isalnum())
        }
        is_begun = is_hidden = False
        last = max(ends, default=0)
        for at in range(last):
            (start, inner), (inner_end, end) = dollars[at], dollars[at + 1]
            is_display = inner == inner_end
            if is_display:
                inner_end, end = dollars[last]
            may_begin = is_display or not (
                view[inner : inner + 1].isspace() or view[start - 1 : start].isalnum()
            )
            if not may_begin and at in ends:
                is_begun = is_hidden = False
            is_begun = is_begun or may_begin
            seen = html.unescape(view[inner:inner_end])
            is_hidden = is_begun and (is_hidden or not _PLAIN_MATHEMATICS.fullmatch(seen))
            if is_hidden:
                self._marks.append(Mark(start, end, kind="mathematics"))
            if is_display:
                return

    def _read_angle(self, end: int) -> None:
        view, start = self._view, self._position
        if link := _AUTOLINK.match(view, start):
            self._position = link.end()
        elif (tag := _STRICT_TAG.match(view, start)) and tag.end() <= end:
            self._read_tag(tag)
        elif view.startswith(("<!--", "<![CDATA[", "<?"), start) or _DECLARATION.match(view, start):
            self._read_declaration(end, raw=False)
        else:
            self._position += 1

    def _cut(self, start: int, end: int, kind: str, replacement: str = "") -> None:
        self._marks.append(Mark(start, end, kind=kind, replacement=replacement))
        self._position = max(self._position, end)

    def _read_bracket(self, brackets: _Brackets) -> None:
        """Read a bracket.

        https://spec.commonmark.org/0.31.2/#an-algorithm-for-parsing-nested-emphasis-and-links
        """
        view, place, waiting = self._view, self._position, brackets.waiting
        self._position += 1
        if view[place] == "[":
            waiting.append((place, place > 0 and view[place - 1] == "!" and not _is_escaped(view, place - 1)))
        elif waiting:
            opener, image = waiting.pop()
            is_active = image or len(waiting) >= brackets.inactive
            brackets.inactive = min(brackets.inactive, len(waiting))
            if is_active and self._read_link(opener, place, image=image) and not image:
                brackets.inactive = len(waiting)  # a link cannot contain another

    def _read_link(self, opener: int, close: int, *, image: bool) -> bool:
        """Read what follows a closing bracket: an address with a title, or a label. Return whether it is a link."""
        view, after = self._view, close + 1
        if view.startswith("(", after):
            # Images may be nested deeply, so only a short inner text is copied.
            is_short = close - opener - 1 <= _LONGEST_PLAIN_ALT
            if image and not (is_short and view[opener + 1 : close].lower() in PLAIN_ALT):
                self._marks.append(Mark(opener + 1, close, kind="alt text"))
            if self._read_address(opener, close, image=image):
                return True
        inner = view[opener + 1 : close] if close - opener <= _LONGEST_LABEL_CHARS else ""
        if inner.startswith("^") and inner[1:].casefold() in self._page.footnotes:
            if not _is_number(inner[1:]):
                self._cut(opener, after, "footnote label")
            return True
        label = _LABEL.match(view, after)
        name = label[1] if label and label[1].strip() else inner
        address = self._address(name)
        if address is None:
            return False
        end = label.end() if label else after
        if image:
            self._cut(opener + 1, end, "alt text", f"]({address})")
        elif label and name is not inner and not _is_number(name):
            self._cut(*label.span(), "link label", f"({address})")
        else:
            self._marks.append(Mark(opener, after, label=normalized_label(name)))
            self._position = end
        return True

    def _read_address(self, opener: int, close: int, *, image: bool) -> bool:
        """Read `(address "title")` and return whether it is one: https://spec.commonmark.org/0.31.2/#inline-link."""
        view = self._view
        start, end = self._address_span(close + 2)
        tail = _TITLE_AND_END.match(view, end)
        if tail is None:
            return False
        address = view[start:end]
        kind = address_kind(address.strip("<>"))
        if address and kind == "odd":
            self._cut(start, end, "link address")
        elif kind == "plain" and address != view[opener + 1 : close].strip():
            self._marks.append(Mark(start, end, kind="link address", is_shown=True))
        if tail["title"]:
            self._cut(*tail.span("title"), "title text")
        if not image and close == opener + 1:
            self._cut(opener, tail.end(), "link without text")
        self._position = tail.end()
        return True

    def _address_span(self, place: int) -> tuple[int, int]:
        """Return the start and end of an address. Parentheses are paired to the depth that GitHub's parser follows."""
        view = self._view
        start = end = _BLANKS.match(view, place).end()  # type: ignore[union-attr]
        if pointed := _ANGLE_ADDRESS.match(view, start):
            return start, pointed.end()
        depth = 0
        for sign in _ADDRESS_CHARACTERS.finditer(view, start):
            end = sign.start()
            if sign[0] == "(":
                depth += 1
            elif sign[0] == ")":
                depth -= 1
            elif len(sign[0]) > 1:
                continue
            if depth < 0 or depth > DEEPEST_PARENTHESES or sign[0] in " \t\n":
                break
        else:
            end = len(view)
        return start, end

    def _address(self, label: str) -> str | None:
        if not label or not self._page.addresses:
            return None
        return self._page.addresses.get(normalized_label(label))


def _is_within(spans: Sequence[tuple[int, int]], place: int) -> bool:
    """Return whether one of the sorted spans contains this place."""
    at = bisect_right(spans, (place, place)) - 1
    return at >= 0 and place < spans[at][1]


def _is_number(label: str) -> bool:
    """Return whether the label is too short to carry a message."""
    return label.isascii() and label.isdigit() and len(label) <= _LONGEST_NUMBER


def normalized_label(label: str) -> str:
    """Return a label in the form in which labels are compared."""
    from markdown_it.common.utils import normalizeReference

    return normalizeReference(label)


def _is_escaped(view: str, place: int) -> bool:
    """Return whether an odd number of backslashes stands before this place."""
    before = view[max(0, place - 64) : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


# GitHub shows the content of these.
_SHOWN_TAGS = frozenset(
    re.findall(
        r"\w+",
        "a abbr address article aside b big blockquote br caption center cite code col colgroup dd del details"
        " dfn div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark"
        " nav ol p picture pre q ruby rt s samp section small source span strike strong sub summary sup table"
        " tbody td tfoot th thead time tr tt u ul var wbr",
    )
)
# Browsers do not show the content of these, or show it in another form.
_UNSEEN_TAGS = frozenset(
    re.findall(
        r"\w+",
        "applet audio canvas datalist dialog embed frame frameset head iframe input link math meta noembed noframes"
        " noscript object optgroup option param plaintext rp script select style svg template textarea title track"
        " video xmp",
    )
)
# https://html.spec.whatwg.org/multipage/syntax.html#void-elements
_VOID_TAGS = frozenset(
    re.findall(r"\w+", "area base br col embed frame hr img input link meta param source track wbr")
)
_RAW_TAGS = frozenset({"script", "style", "xmp", "plaintext"})
_SMALLER_TAGS = frozenset({"small", "sub", "sup"})
_MOST_SMALLER = 2
"""Most nested elements that make letters a quarter smaller. With more the text cannot be read."""
_LONGEST_NAME = 30

_ONE_ATTRIBUTE = re.compile(rf"(?<!\s)\s*+(?=[^\s/>])(?P<whole>{ATTRIBUTE_NAME}(?:{ATTRIBUTE_VALUE})?)")
_PLAIN_ATTRIBUTE = re.compile(
    r"(?:width|height|border|cellpadding|cellspacing|colspan|rowspan|size|start)=[1-9]\d{0,3}(?:px|%)?"
    r"|v?align=(?:left|right|center|middle|top|bottom|justify|baseline)|open=(?:open|true)?"
)
_PLAIN_STYLE = re.compile(
    r"(?>(?:\s*(?:color:\s*(?:blue|brown|gr[ae]y|green|orange|purple|red)|font-weight:\s*(?:bold|normal|[4-9]00)"
    r"|font-style:\s*(?:italic|normal)|text-align:\s*(?:left|right|center|justify)"
    r"|(?:max-)?(?:width|height):\s*(?:auto|[1-9]\d{1,3}(?:px|%)?))\s*;?)*)\s*"
)
_PLAIN_COLOUR = re.compile(r"blue|brown|gr[ae]y|green|orange|purple|red")
_HIDING_CLASS = re.compile(
    r"(?:^|\s)(?:d-none|hid\w*|invisible|screen-reader\S*|sr-only|visually-hidden)(?:\s|$)"
)
_DEFINITION = re.compile(
    r"\[(?>(?:[^\[\]\\]|\\.){1,999})\]:\s*+(?P<target><(?>(?:[^<>\n\\]++|\\.)*)>|\S++)", re.DOTALL
)


def hidden_markup(text: str) -> tuple[list[Cut], list[Cut]]:
    """Return the cuts, in order, and the other parts that a person sees in another form; complete only without cuts."""
    page = Page(text)
    cuts, shown = _cuts_of_page(page, MarkupReader(page).marks())
    return list(_without_overlaps(text, cuts)), sorted(shown, key=lambda cut: cut.start)


def _cuts_of_page(page: Page, marks: Sequence[Mark]) -> tuple[list[Cut], list[Cut]]:
    cuts: list[Cut] = []
    shown: list[Cut] = []
    labels = {mark.label for mark in marks if mark.label and not mark.kind}
    for mark in marks:
        if mark.kind == "definition":
            _decide_definition(page, mark, labels, cuts, shown)
        elif mark.kind:
            if mark.is_shown:
                shown.append(Cut(mark.start, mark.end, mark.kind, page.text[mark.start : mark.end]))
            else:  # These may be nested deeply, so `_without_overlaps` copies the text of the outermost only.
                cuts.append(Cut(mark.start, mark.end, mark.kind, "", mark.replacement))
            if mark.replacement:
                address = mark.replacement.removeprefix("]")[1:-1]
                shown.append(Cut(mark.start, mark.end, "link address", address))
    _decide_tags(page, [mark for mark in marks if mark.opens or mark.closes], cuts, shown)
    return cuts, shown


def _decide_tags(page: Page, tags: Sequence[Mark], cuts: list[Cut], shown: list[Cut]) -> None:
    text, smaller, position = page.text, 0, 0
    for index, tag in enumerate(tags):
        if tag.start < position:
            continue
        name = tag.opens or tag.closes
        if name in _SMALLER_TAGS:
            smaller = max(0, smaller + (1 if tag.opens else -1))
        if tag.opens and (_hides_content(page, tag) or smaller > _MOST_SMALLER):
            last = index if tag.opens in _VOID_TAGS else _closing(page, tags, index)
            position = tags[last].end if last < len(tags) else len(text)
            cuts.append(Cut(tag.start, position, "hidden element", text[tag.start : position]))
            smaller = max(0, smaller - (tag.opens in _SMALLER_TAGS))
        elif name in _SHOWN_TAGS:
            _decide_attributes(page, tag, cuts, shown)
        else:
            is_bare = (
                len(name) <= _LONGEST_NAME and name.isalnum() and not text[slice(*tag.attributes)].strip()
            )
            (shown if is_bare else cuts).append(
                Cut(tag.start, tag.end, "HTML tag", text[tag.start : tag.end])
            )


def _closing(page: Page, marks: Sequence[Mark], index: int) -> int:
    """Return the index of the mark that closes the element of this mark. End tags that do not match close nothing."""
    open_elements = [marks[index].opens]
    for following in range(index + 1, len(marks)):
        mark = marks[following]
        if mark.opens and mark.opens not in _VOID_TAGS and open_elements[-1] not in _RAW_TAGS:
            open_elements.append(mark.opens)
        elif mark.closes == open_elements[-1]:
            # An end tag in a table's cell does not close an element that began in another line.
            if mark.in_table and page.view.find("\n", marks[index].end, mark.start) >= 0:
                continue
            open_elements.pop()
            if not open_elements:
                return following
    return len(marks)


def _attributes(page: Page, mark: Mark) -> Iterator[tuple[re.Match[str], str, str]]:
    """Yield a tag's attributes as a browser reads them: match, name and value."""
    for found in _ONE_ATTRIBUTE.finditer(page.view, *mark.attributes):
        attribute = found["whole"]
        name, _, value = attribute.partition("=") if attribute[0] != "=" else (attribute, "", "")
        value = value.strip()
        if value[:1] in {'"', "'"}:
            value = value[1:-1]
        yield found, name.strip().lower(), html.unescape(value)


def _hides_content(page: Page, mark: Mark) -> bool:
    """Return whether the content of an element may be invisible on GitHub or another page that shows it."""
    if mark.opens in _UNSEEN_TAGS:
        return True
    for _, name, value in _attributes(page, mark):
        lower = value.lower()
        if (
            name in {"hidden", "inert", "popover"}
            or (name == "aria-hidden" and lower.strip() != "false")
            or (name == "style" and not _PLAIN_STYLE.fullmatch(lower))
            or (name in {"color", "text"} and not _PLAIN_COLOUR.fullmatch(lower.strip()))
            or (name == "class" and _HIDING_CLASS.search(lower))
            or (name == "lang" and mark.opens == "pre" and is_drawn(value))
        ):
            return True
    return False


def _decide_attributes(page: Page, mark: Mark, cuts: list[Cut], shown: list[Cut]) -> None:
    """Cut the attributes of a visible tag that a reader does not see."""
    text, (start, end) = page.text, mark.attributes
    if mark.closes:
        if text[start:end].strip():
            cuts.append(Cut(start, end, "hidden attribute", text[start:end]))
        return
    seen: set[str] = set()
    for found, name, value in _attributes(page, mark):
        kind = {"alt": "alt text", "title": "title text"}.get(name, "hidden attribute")
        cut = Cut(*found.span(), kind, text[slice(*found.span())].strip())
        is_address = name in {"href", "src"} and value != ""
        if name in seen or (is_address and address_kind(value) == "odd"):
            cuts.append(cut)
        elif is_address:
            if address_kind(value) == "plain":
                shown.append(Cut(*found.span(), "link address", cut.text))
        elif not _PLAIN_ATTRIBUTE.fullmatch(f"{name}={value.lower()}") and not (
            name == "alt" and value.lower() in PLAIN_ALT
        ):
            cuts.append(cut)
        seen.add(name)


def _decide_definition(page: Page, mark: Mark, labels: set[str], cuts: list[Cut], shown: list[Cut]) -> None:
    """Cut a link definition, which is not shown, unless its label is visible; then only its title is cut."""
    text, end = page.text, mark.end
    found = _DEFINITION.search(page.view, mark.start, end)
    if mark.label not in labels or found is None or address_kind(found["target"].strip("<>")) == "odd":
        cuts.append(Cut(mark.start, end, "link definition", text[mark.start : end]))
        return
    labels.remove(mark.label)  # the first definition of a label counts
    shown.append(Cut(mark.start, found.end(), "link definition", text[mark.start : found.end()].strip()))
    title = text[found.end() : end]
    if title.strip():
        cuts.append(Cut(found.end(), found.end() + len(title.rstrip()), "title text", title.strip()))


def _without_overlaps(text: str, cuts: Sequence[Cut]) -> Iterator[Cut]:
    """Yield the cuts in order, without those inside another."""
    position = 0
    for cut in sorted(cuts, key=lambda cut: (cut.start, -cut.end)):
        if cut.end <= position:
            continue
        start = max(cut.start, position)
        removed = (start == cut.start and cut.text) or text[start : cut.end]
        yield Cut(start, cut.end, cut.kind, removed, cut.replacement)
        position = cut.end
