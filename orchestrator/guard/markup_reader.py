"""Reads the blocks of a text once, and notes what matters in them: tags, comments, links, references."""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from typing import TYPE_CHECKING

from orchestrator.guard.hidden_characters import may_hide
from orchestrator.guard.markup_links import Brackets, LinkReader
from orchestrator.guard.markup_page import Mark
from orchestrator.guard.markup_seen import ATTRIBUTE

if TYPE_CHECKING:
    from orchestrator.guard.markup_page import Block, Page

# Repeats are possessive, or end where no second try can run on: time is linear.
_NAME = r"[A-Za-z][A-Za-z0-9-]*+"
_STRICT_TAG = re.compile(  # https://spec.commonmark.org/0.31.2/#raw-html
    rf"<(?:(?P<name>{_NAME})(?P<attributes>(?:\s++[A-Za-z_:][A-Za-z0-9_.:-]*+"
    r"(?:\s*+=\s*+(?:[^\s\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?+)*+)\s*+/?"
    rf"|/(?P<close>{_NAME})\s*+)>",
    re.ASCII,
)
_LOOSE_TAG = re.compile(
    rf"<(?:(?P<name>[A-Za-z][^\s/>]*+)|/(?P<close>[A-Za-z][^\s/>]*+))(?P<attributes>(?:[\s/]++|{ATTRIBUTE})*+)>",
    re.ASCII,
)
_AUTOLINK = re.compile(
    r"<(?:[A-Za-z][A-Za-z0-9+.-]{1,31}+:[^\s<>]*+|[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]++@[\w.-]++)>"
)
_TICKS = re.compile("`++")
_REFERENCE = re.compile(r"&(?:#0*+\d{1,8}|#[xX]0*+[0-9a-fA-F]{1,8}|[A-Za-z][A-Za-z0-9]{1,31}+);?")
_FENCE = re.compile(r"(?:`{3,}+|~{3,}+)(?P<info>[ \t]*+(?P<language>[^\s`]*+)(?P<rest>[^\r\n]*))")
_LANGUAGE = re.compile(r"[\w+#.-]{0,20}")
_TABLE_RULE = re.compile(
    r"^[ \t>]*+\|?[ \t]*+:?-++:?[ \t]*+(?:\|[ \t]*+:?-++:?[ \t]*+)*+\|?[ \t]*+$", re.MULTILINE
)
_BAR = re.compile(r"\\.|\|")
_HTML_START = re.compile(r"[<&\[\]]")
_WORDS_START = re.compile(r"[`\\<&\[\]]")
_DECLARATION = re.compile("<![A-Za-z]")
_TAG_START = re.compile("</?[A-Za-z]")
_CELL_END = re.compile(r"[|\r\n]")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


class Reader(LinkReader):
    """Reads a page from the start to the end, once, and notes its marks."""

    def __init__(self, page: Page) -> None:
        super().__init__(page)
        self._found: dict[str, int] = {}
        self._in_table = False

    def marks(self) -> list[Mark]:
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
                self._read_footnote(block.end)
            elif block.mode == "definition":
                self._marks.append(Mark(block.start, block.end, kind="definition", label=block.label))
            else:
                self._read_code(block)
            self._position = max(self._position, block.end)
        return self._marks

    def _find(self, needle: str, start: int) -> int:
        """Like `str.find`, for starts that only grow: no part of the text is looked through twice."""
        found = self._found.get(needle, -2)
        if found != -1 and found < start:
            found = self._found[needle] = self._view.find(needle, start)
        return found

    def _read_code(self, block: Block) -> None:
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

    def _read_footnote(self, end: int) -> None:
        """Nothing of it is shown in its place. Where it ends is doubtful, so what begins in it may go on behind it."""
        first, known = self._position, len(self._marks)
        while (start := self._view.find("<", self._position, end)) >= 0:
            self._position = start
            self._read_angle_of_html(end)
        # What ends in it may be at the foot of the page, where it ends nothing.
        self._marks[known:] = [mark for mark in self._marks[known:] if not mark.closes]
        if self._view[first:end].strip():
            self._cut(first, end, "footnote")

    def _read_html(self, end: int) -> None:
        """A block of HTML: browsers decide what is in it. What does not end in it swallows the rest."""
        view = self._view
        brackets = Brackets([])
        while match := _HTML_START.search(view, self._position, end):
            start = self._position = match.start()
            if view[start] == "&":
                self._read_reference(needs_semicolon=False)
            elif view[start] in "[]":
                self._read_bracket(brackets)
            else:
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
        brackets = Brackets([])
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
                self._marks.append(Mark(row.start() + bars[columns - 1] + 1, row.end(), kind="table cell"))

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
