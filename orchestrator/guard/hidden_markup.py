"""Finds what GitHub's Markdown and HTML hide from a reader: comments, hidden elements, attributes, titles.

A first pass splits the text, block by block, into what matters; a second decides what goes.
What is taken for code has to be code on every reading; everything else is looked at.
"""

from __future__ import annotations

import functools
import html
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.guard.hidden_characters import Cut, may_hide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST_MARKDOWN_CHARS = 70_000
"""GitHub takes 65,536. In a longer text nothing counts as code."""

_TRACES = {"<": ("<",), "&": ("&",), "[": ("](", "][", "]:", "!["), "`": ("```",), "~": ("~~~",), "|": ("-",)}
"""What could hide something, by a character that is quickly looked for."""

# GitHub shows these tags, or lays out what is in them. Others vanish: their names are hidden text.
_VISIBLE_TAGS = frozenset(
    re.findall(
        r"\w+",
        "a abbr address article aside b big blockquote br caption center cite code col colgroup dd del details"
        " dfn div dl dt em figcaption figure font footer h1 h2 h3 h4 h5 h6 header hr i img ins kbd li main mark"
        " nav ol p picture pre q ruby rt s samp section small source span strike strong sub summary sup table"
        " tbody td tfoot th thead time tr tt u ul var wbr",
    )
)
_UNSEEN_TAGS = frozenset(
    re.findall(
        r"\w+",
        "applet audio canvas datalist dialog frameset head iframe math noembed noframes noscript object rp"
        " script select style svg template textarea title video",
    )
)
# https://html.spec.whatwg.org/multipage/syntax.html#void-elements
_VOID_TAGS = frozenset(
    re.findall(r"\w+", "area base br col embed hr img input link meta param source track wbr")
)
_HIDING_CLASSES = frozenset(
    ("d-none", "hidden", "hide", "invisible", "screen-reader-text", "sr-only", "visually-hidden")
)
_BLANK_COLOURS = re.compile(r"(?i)\s*(?:white|transparent|#f{3,8}|.*\(.*)\s*", re.DOTALL)
_LENGTH = r"(?:auto|[1-9]\d*(?:\.\d+)?(?:px|pt|em|rem|ex|ch|vw|vh|%)?)"
_HARMLESS_STYLES = {
    "display": r"block|inline|inline-block|flex|grid|table|table-cell|list-item",
    "visibility": r"visible",
    "opacity": r"1(?:\.0)?",
    "color": r"(?!white|transparent|f{3})[a-z]{3,20}|#(?!f{3,8}$)[0-9a-f]{3,8}",
    "font-size": r"(?:[6-9]|[1-9]\d)(?:\.\d+)?(?:px|pt)|(?:0?\.[5-9]|[1-9])\d*(?:\.\d+)?r?em|[5-9]\d%|1\d\d%"
    r"|small|medium|large|larger|smaller|x-large|xx-large",
    "width": _LENGTH,
    "height": _LENGTH,
    "max-width": _LENGTH,
    "min-width": _LENGTH,
    "background": r"none",
    "font-family": r"[\w ,'\"-]{1,100}",
}
_HARMLESS_STYLES |= dict.fromkeys(
    re.findall(
        r"[\w-]+",
        "text-align font-weight font-style text-decoration vertical-align white-space margin margin-left"
        " margin-right margin-top margin-bottom padding border border-radius float line-height list-style"
        " list-style-type",
    ),
    r"[a-z0-9#%. ]{1,60}",
)
_NUMBERS = frozenset(
    ("border", "cellpadding", "cellspacing", "colspan", "height", "rowspan", "size", "start", "width")
)
_WORDS_OF = {
    "align": "left|right|center|middle|top|bottom|justify",
    "valign": "top|middle|bottom|baseline",
    "open": "|open|true",
}
_DRAWN = frozenset({"geojson", "math", "mermaid", "stl", "topojson"})
"""Code that GitHub shows as a picture, without its comments and properties. Source:
https://docs.github.com/en/get-started/writing-on-github/working-with-advanced-formatting/creating-diagrams"""

# Repeats are possessive, or end where no second try can run on: time is linear.
_NAME = r"[A-Za-z][A-Za-z0-9-]*+"
_STRICT_TAG = re.compile(  # https://spec.commonmark.org/0.31.2/#raw-html
    rf"<(?:(?P<name>{_NAME})(?P<attributes>(?:\s++[A-Za-z_:][A-Za-z0-9_.:-]*+"
    r"(?:\s*+=\s*+(?:[^\s\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?+)*+)\s*+/?"
    rf"|/(?P<close>{_NAME})\s*+)>",
    re.ASCII,
)
_ATTRIBUTE = (  # https://html.spec.whatwg.org/multipage/parsing.html#before-attribute-name-state
    r"[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+|(?=>))|(?!\s*+=))"
)
_LOOSE_TAG = re.compile(
    rf"<(?:(?P<name>[A-Za-z][^\s/>]*+)|/(?P<close>[A-Za-z][^\s/>]*+))(?P<attributes>(?:[\s/]++|{_ATTRIBUTE})*+)>",
    re.ASCII,
)
_ONE_ATTRIBUTE = re.compile(rf"\s*+(?=[^\s/>])(?P<whole>{_ATTRIBUTE})")
_AUTOLINK = re.compile(
    r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}+:[^\s<>]*+|[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]++@[\w.-]++)>"
)
_TICKS = re.compile("`++")
_REFERENCE = re.compile(r"&(?:#0*+\d{1,8}|#[xX]0*+[0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,31}+);?")
_ESCAPED = r"\\[!-/:-@\[-`{-~]"
_POINTED = re.compile(r"<(?:[^<>\n\\]|\\.)*+>")
_SIGNS = re.compile(rf"{_ESCAPED}|[()\t\n ]")
_BLANKS = re.compile(r"[ \t\n]*+")
_TITLE_AND_END = re.compile(
    r"(?P<title>[ \t\n]++(?:\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)))?+[ \t\n]*+\)",
    re.DOTALL,
)
_BAD_TARGET = re.compile(r"(?i)<[^<>\n]*?[ \t][^<>\n]*+>|<?(?:data|javascript|vbscript):")
_DEEPEST_PARENTHESES = 32
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999}+)\]", re.DOTALL)
_DEFINITION = re.compile(r"\[(?:[^\[\]\\]|\\.)++\]:\s*+(?P<target><(?:[^<>\n\\]|\\.)*+>|\S++)", re.DOTALL)
_FOOTNOTE = re.compile(r"^[ \t>*+\-\d.)]*+\[\^[^\]\r\n]++\]:", re.MULTILINE)
_FENCE = re.compile(r"(?:`{3,}+|~{3,}+)(?P<info>[ \t]*+(?P<language>[^\s`]*+)(?P<rest>[^\r\n]*))")
_LANGUAGE = re.compile(r"[\w+#.-]{0,20}")
_TABLE_RULE = re.compile(
    r"^[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$", re.MULTILINE
)
_BAR = re.compile(r"\\.|\|")
_INDENTED = re.compile(r" {0,3}\t| {4}")
_LAZY_TAG = re.compile(r"\n[ \t>]*+<")
_LINE_END = re.compile(r"\r\n|\r|\n")
_HTML_START = re.compile(r"[<&\[\]]")
_WORDS_START = re.compile(r"[`\\<&\[\]]")
_SOURCE_TAG = re.compile(r"(?i)<(/?)source\b")
_DECLARATION = re.compile("<![A-Za-z]")
_TAG_START = re.compile("</?[A-Za-z]")
_CELL_END = re.compile(r"[|\r\n]")
_LONGEST_LABEL_CHARS = 999  # https://spec.commonmark.org/0.31.2/#link-label
_LONGEST_NUMBER = 3
_MANY_QUOTES = 8
_RAW_TAGS = frozenset({"script", "style"})
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of the text. `mode` is `code`, `drawn`, `html`, `words`, `definition`, or `footnote`."""

    start: int
    end: int
    mode: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class _Mark:
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


def may_hold_markup(text: str) -> bool:
    """Whether the text needs a closer look."""
    return any(first in text and any(trace in text for trace in traces) for first, traces in _TRACES.items())


def hidden_markup(text: str) -> list[Cut]:
    """What is to be taken out of a text, in order, for a person to see on GitHub what a model sees."""
    if not may_hold_markup(text):
        return []
    page = _Page(text)
    return list(_joined(text, _decided(page, _Reader(page).marks())))


def everything_marked_up(text: str) -> list[Cut]:
    """All from the first thing on that could be markup: for a text that never comes to rest."""
    first = min((place for place in map(text.find, "<[&`~|") if place >= 0), default=len(text))
    return [Cut(first, len(text), "nested markup", text[first:])] if first < len(text) else []


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


@dataclass(slots=True)
class _Brackets:
    """Opening brackets that wait, each with whether it is an image's; the first `inactive` begin no link."""

    waiting: list[tuple[int, bool]]
    inactive: int = 0


class _Page:
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
            self.blocks = [_Block(0, len(text), "words")]
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

    def _with_gaps(self, tokens: Sequence[Token]) -> Iterator[_Block]:
        """Blocks that cover the text. What the parser says nothing about is read as HTML."""
        modes = {"inline": "words", "fence": "code", "code_block": "code", "definition": "definition"}
        position = 0
        is_doubtful = False
        for token in tokens:
            if token.map is None or token.type not in {*modes, "html_block"}:
                continue
            start, end = self._lines[token.map[0]], self._lines[token.map[1]]
            if start > position:
                yield _Block(position, start, "html")
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
            yield _Block(start, end, mode, token.meta.get("id", "") if mode == "definition" else "")
            position = end
        if position < len(self.text):
            yield _Block(position, len(self.text), "html")

    def _with_footnotes(self, blocks: Sequence[_Block]) -> Iterator[_Block]:
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
                yield _Block(block.start, first, block.mode, block.label)
            in_footnote = first < block.end
            if in_footnote:
                yield _Block(first, block.end, "footnote")


class _Reader:
    """Reads a page from the start to the end, once, and notes its marks."""

    def __init__(self, page: _Page) -> None:
        self._page = page
        self._view = page.view
        self._marks: list[_Mark] = []
        self._position = 0
        self._found: dict[str, int] = {}
        self._in_table = False

    def marks(self) -> list[_Mark]:
        """What there is, in the order in which it was complete."""
        for block in self._page.blocks:
            self._position = max(self._position, block.start)
            if self._position >= block.end:
                continue
            self._in_table = False
            if block.mode == "words":
                self._read_words(block.end)
            elif block.mode == "html":
                self._read_html(block.end)
            elif block.mode == "footnote":
                if self._view[self._position : block.end].strip():
                    self._cut(self._position, block.end, "footnote")
            elif block.mode == "definition":
                self._marks.append(_Mark(block.start, block.end, kind="definition", label=block.label))
            else:
                self._read_code(block)
            self._position = max(self._position, block.end)
        return self._marks

    def _cut(self, start: int, end: int, kind: str, replacement: str = "") -> None:
        self._marks.append(_Mark(start, end, kind=kind, replacement=replacement))
        self._position = max(self._position, end)

    def _find(self, needle: str, start: int) -> int:
        """Like `str.find`, for starts that only grow: no part of the text is looked through twice."""
        found = self._found.get(needle, -2)
        if found != -1 and found < start:
            found = self._found[needle] = self._view.find(needle, start)
        return found

    def _read_code(self, block: _Block) -> None:
        """Of a fence's first line a reader sees nothing; its first word says the language."""
        if block.mode == "drawn":
            self._cut(self._position, block.end, "drawn block")
            return
        line = self._view[block.start : block.end].partition("\n")[0]
        if not (fence := _FENCE.search(line)) or self._position > block.start:
            return
        first = "rest" if _LANGUAGE.fullmatch(fence["language"]) else "info"
        if fence[first].strip():
            self._cut(block.start + fence.start(first), block.start + fence.end(first), "info string")

    def _read_html(self, end: int) -> None:
        """A block of HTML: browsers decide what is in it. What does not end in it swallows the rest."""
        view = self._view
        brackets = _Brackets([])
        while match := _HTML_START.search(view, self._position, end):
            start = self._position = match.start()
            if view[start] == "&":
                self._read_reference(needs_semicolon=False)
            elif view[start] in "[]":
                self._read_bracket(brackets)
            elif view.startswith(("<!", "<?"), start):
                self._read_declaration(end, raw=True)
            elif (tag := _LOOSE_TAG.match(view, start)) and tag.end() <= end:
                self._read_tag(tag)
            elif _TAG_START.match(view, start):
                self._cut(start, len(view), "unclosed tag")
            elif view.startswith("</", start):
                self._cut(start, self._after(">", start, end), "HTML comment")
            else:
                self._position += 1

    def _after(self, needle: str, start: int, end: int) -> int:
        """The place behind the needle, or the end of the text where this block does not have it."""
        found = self._find(needle, start)
        return found + len(needle) if 0 <= found < end else len(self._view)

    def _read_tag(self, tag: re.Match[str]) -> None:
        opens, closes = (tag["name"] or "").lower(), (tag["close"] or "").lower()
        self._marks.append(
            _Mark(tag.start(), tag.end(), opens, closes, tag.span("attributes"), in_table=self._in_table)
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
        if not character or may_hide(character):
            self._cut(*reference.span(), "character reference")

    def _read_declaration(self, end: int, *, raw: bool) -> None:
        """Comments, and what browsers take for comments."""
        view, start = self._view, self._position
        if view.startswith("<!--", start):
            close, odd_close = (self._find(needle, start + 4) for needle in ("-->", "--!>"))
            end_of_comment = close + 3 if close >= 0 else odd_close + 4 if odd_close >= 0 else len(view)
            # Where two ends are possible, parsers do not agree on what is between them.
            is_doubtful = end_of_comment > end or 0 <= odd_close < close
            self._cut(start, len(view) if is_doubtful else end_of_comment, "HTML comment")
            return
        needles = {"<!": (">",), "<?": ("?>", ">")}[view[start : start + 2]]
        if view.startswith("<![CDATA[", start):
            needles = ("]]>", ">")
        kind = "HTML comment" if needles == (">",) else "processing instruction"
        for needle in needles if raw else needles[:1]:
            if 0 <= self._find(needle, start) < end:
                close = self._after(needle, start, end)
                is_plain = needle == ">" or not re.search("[<>]", view[start + 2 : close - len(needle)])
                self._cut(start, close if is_plain else len(view), kind)
                return
        if raw:
            self._cut(start, len(view), kind)
        else:
            self._position += 1

    def _read_words(self, end: int) -> None:
        """A paragraph, a heading, the cells of a table."""
        view, start = self._view, self._position
        ticks: dict[int, list[int]] = {}
        if self._page.is_markdown:
            for run in _TICKS.finditer(view, start, end):
                ticks.setdefault(len(run[0]), []).append(run.start())
        rule = _TABLE_RULE.search(view, start, end)
        if rule:
            self._in_table = True
            self._cut_excess_cells(rule, end)
        brackets = _Brackets([])
        while match := _WORDS_START.search(view, self._position, end):
            place = self._position = match.start()
            match view[place]:
                case "`":
                    self._read_ticks(ticks)
                case "\\":
                    self._position += 2 if view[place + 1 : place + 2] in _PUNCTUATION else 1
                case "&":
                    self._read_reference(needs_semicolon=True)
                case "[" | "]":
                    self._read_bracket(brackets)
                case _:
                    self._read_angle(end)

    def _cut_excess_cells(self, rule: re.Match[str], end: int) -> None:
        """A row's cells beyond the columns of the table are not shown."""
        view, columns = self._view, len(re.findall("-+", rule[0]))
        for row in re.compile("[^\n]+").finditer(view, rule.end(), end):
            bars = [bar.start() for bar in _BAR.finditer(row[0]) if bar[0] == "|"]
            if bars and not row[0][: bars[0]].strip():
                del bars[0]
            if len(bars) >= columns and row[0][bars[columns - 1] + 1 :].strip():
                self._marks.append(_Mark(row.start() + bars[columns - 1] + 1, row.end(), kind="table cell"))

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
        if not (self._in_table and _CELL_END.search(self._view, start, close)):
            self._position = close + self._position - start

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

    def _read_bracket(self, brackets: _Brackets) -> None:
        """https://spec.commonmark.org/0.31.2/#an-algorithm-for-parsing-nested-emphasis-and-links."""
        view, place, waiting = self._view, self._position, brackets.waiting
        self._position += 1
        if view[place] == "[":
            waiting.append((place, place > 0 and view[place - 1] == "!" and not _is_escaped(view, place - 1)))
        elif waiting:
            opener, image = waiting.pop()
            is_active = image or len(waiting) >= brackets.inactive
            brackets.inactive = min(brackets.inactive, len(waiting))
            if is_active and self._read_link(opener, place, image=image) and not image:
                brackets.inactive = len(waiting)  # no link is inside another

    def _read_link(self, opener: int, close: int, *, image: bool) -> bool:
        """What follows a closing bracket: an address with a title, or a label. Says whether it is a link."""
        view, after = self._view, close + 1
        if view.startswith("(", after):
            if image and close > opener + 1:
                self._marks.append(_Mark(opener + 1, close, kind="alt text"))
            if self._read_address(opener, close, image=image):
                return True
        inner = view[opener + 1 : close] if close - opener <= _LONGEST_LABEL_CHARS else ""
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
            self._marks.append(_Mark(opener, after, label=_normalised(name)))
            self._position = end
        return True

    def _read_address(self, opener: int, close: int, *, image: bool) -> bool:
        """`(address "title")`, if it is that: see https://spec.commonmark.org/0.31.2/#inline-link."""
        view = self._view
        start, end = self._target(close + 2)
        tail = _TITLE_AND_END.match(view, end)
        if tail is None:
            return False
        if _BAD_TARGET.match(view, start, end):
            self._cut(start, end, "link target")
        if tail["title"]:
            self._cut(*tail.span("title"), "title text")
        if not image and close == opener + 1:
            self._cut(opener, tail.end(), "link without text")
        self._position = tail.end()
        return True

    def _target(self, place: int) -> tuple[int, int]:
        """Where an address begins and ends. Its parentheses are in pairs, as deep as GitHub's parser follows."""
        view = self._view
        start = end = _BLANKS.match(view, place).end()  # type: ignore[union-attr]
        if pointed := _POINTED.match(view, start):
            return start, pointed.end()
        depth = 0
        for sign in _SIGNS.finditer(view, start):
            end = sign.start()
            if sign[0] == "(":
                depth += 1
            elif sign[0] == ")":
                depth -= 1
            elif len(sign[0]) > 1:
                continue
            if depth < 0 or depth > _DEEPEST_PARENTHESES or sign[0] in " \t\n":
                break
        else:
            end = len(view)
        return start, end

    def _address(self, label: str) -> str | None:
        if not label or not self._page.addresses:
            return None
        return self._page.addresses.get(_normalised(label))


def _is_number(label: str) -> bool:
    """Whether the label is too short to say anything."""
    return label.isascii() and label.isdigit() and len(label) <= _LONGEST_NUMBER


def _normalised(label: str) -> str:
    from markdown_it.common.utils import normalizeReference

    return normalizeReference(label)


def _is_escaped(view: str, place: int) -> bool:
    """Whether an odd number of backslashes stands before this place. Few do."""
    before = view[max(0, place - 64) : place]
    return (len(before) - len(before.rstrip("\\"))) % 2 == 1


def _decided(page: _Page, marks: Sequence[_Mark]) -> Iterator[Cut]:
    text = page.text
    labels: set[str] = set()
    definitions: list[_Mark] = []
    waiting = iter(range(len(marks)))
    for index in waiting:
        mark = marks[index]
        if mark.kind == "definition":
            definitions.append(mark)
        elif mark.kind:
            yield Cut(mark.start, mark.end, mark.kind, text[mark.start : mark.end], mark.replacement)
        elif mark.label:
            labels.add(mark.label)
        elif mark.opens and _hides_content(mark.opens, page.view[slice(*mark.attributes)]):
            last = index if mark.opens in _VOID_TAGS else _closing(page, marks, index)
            end = marks[last].end if last < len(marks) else len(text)
            yield Cut(mark.start, end, "hidden element", text[mark.start : end])
            for _ in range(index, min(last, len(marks) - 1)):
                next(waiting)
        else:
            yield from _tag_cuts(page, mark)
    for mark in definitions:
        yield from _definition_cuts(page, mark, labels)


def _closing(page: _Page, marks: Sequence[_Mark], index: int) -> int:
    """Where the element that opens here ends. Tags that do not match close nothing."""
    inside = [marks[index].opens]
    for place in range(index + 1, len(marks)):
        mark = marks[place]
        if mark.opens and mark.opens not in _VOID_TAGS and inside[-1] not in _RAW_TAGS:
            inside.append(mark.opens)
        elif mark.closes == inside[-1]:
            # The cell of a table closes nothing that began in another line.
            if mark.in_table and page.view.find("\n", marks[index].end, mark.start) >= 0:
                continue
            inside.pop()
            if not inside:
                return place
    return len(marks)


def _tag_cuts(page: _Page, mark: _Mark) -> Iterator[Cut]:
    text, start, end = page.text, *mark.attributes
    if (mark.opens or mark.closes) not in _VISIBLE_TAGS:
        yield Cut(mark.start, mark.end, "unknown tag", text[mark.start : mark.end])
    elif mark.closes:
        if text[start:end].strip():
            yield Cut(start, end, "hidden attribute", text[start:end])
    else:
        seen: set[str] = set()
        for attribute in _ONE_ATTRIBUTE.finditer(page.view, start, end):
            name, value = _name_and_value(attribute["whole"])
            if not _is_seen(name, value) or name in seen:
                kind = {"alt": "alt text", "title": "title text"}.get(name, "hidden attribute")
                yield Cut(*attribute.span(), kind, text[slice(*attribute.span())].strip())
            seen.add(name)


def _name_and_value(attribute: str) -> tuple[str, str]:
    name, _, value = attribute.partition("=") if attribute[0] != "=" else (attribute, "", "")
    value = value.strip()
    if value[:1] in {'"', "'"}:
        value = value[1:-1]
    return name.strip().lower(), html.unescape(value)


def _is_seen(name: str, value: str) -> bool:
    if name in {"href", "src"}:
        return not re.search(r"[\s<>]", value.strip()) and not re.match(r"(?i)\s*(?:data|\w*script):", value)
    if name in _NUMBERS:
        return re.fullmatch(r"[1-9]\d{0,3}(?:px|%)?", value) is not None
    return re.fullmatch(_WORDS_OF.get(name, "(?!)"), value.lower()) is not None


def _hides_content(name: str, attributes: str) -> bool:
    if name in _UNSEEN_TAGS:
        return True
    for attribute in _ONE_ATTRIBUTE.finditer(attributes):
        key, value = _name_and_value(attribute["whole"])
        if (
            key in {"hidden", "popover"}
            or (key == "aria-hidden" and value.strip().lower() != "false")
            or (key == "class" and not _HIDING_CLASSES.isdisjoint(value.lower().split()))
            or (key == "style" and not _is_harmless_style(value))
            or (key in {"color", "text"} and _BLANK_COLOURS.fullmatch(value))
        ):
            return True
    return False


def _is_harmless_style(style: str) -> bool:
    """Whether all that is set is known to leave the words on the page."""
    for declaration in style.lower().replace("!important", "").split(";"):
        name, _, value = declaration.partition(":")
        if name.strip() and not re.fullmatch(_HARMLESS_STYLES.get(name.strip(), "(?!)"), value.strip()):
            return False
    return True


def _definition_cuts(page: _Page, mark: _Mark, labels: set[str]) -> Iterator[Cut]:
    """A definition is not shown. It stays, without its title, where the reader sees its label."""
    text, end = page.text, mark.end
    address = _DEFINITION.search(page.view, mark.start, end)
    if (
        mark.label not in labels or address is None or _BAD_TARGET.match(address["target"])
    ):  # the first one counts
        yield Cut(mark.start, end, "link definition", text[mark.start : end])
        return
    labels.remove(mark.label)
    title = text[address.end() : end]
    if title.strip():
        yield Cut(address.end(), address.end() + len(title.rstrip()), "title text", title.strip())


def _joined(text: str, cuts: Iterator[Cut]) -> Iterator[Cut]:
    """In order, and none inside another."""
    position = 0
    for cut in sorted(cuts, key=lambda cut: (cut.start, -cut.end)):
        if cut.end <= position:
            continue
        start = max(cut.start, position)
        seen = cut.text if start == cut.start else text[start : cut.end]
        yield Cut(start, cut.end, cut.kind, seen, cut.replacement)
        position = cut.end
