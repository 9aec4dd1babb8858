"""Makes Markdown harmless: no mention, no command, no foreign link or image, no HTML but a little.

GitHub's parser and this one must never differ about what is code, for in code nothing is changed.
So code is only what cannot be anything else: fences, which are moved to the margin, and spans within
one line; all other backticks are written as `&#96;`.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, replace
from html import unescape
from typing import TYPE_CHECKING

from orchestrator.guard.wording_links import as_code, host_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orchestrator.guard.wording_links import Hosts

_FENCE = re.compile(r"( {0,12})(?:(`{3,})([^`\n]*)|(~{3,})(.*))$")
# GitHub draws these, and their language has links of its own.
_DRAWN = re.compile(r"mermaid|geojson|topojson|stl|math|suggestion", re.IGNORECASE)
_NO_LANGUAGE = re.compile(r"[^A-Za-z0-9_+. -]")
_TAG = re.compile(
    r"</?(?:details|summary|sub|sup|kbd|br|b|i|em|strong|code|del|ins|p|ul|ol|li|table|thead|tbody|tr|th|td)[ \t]?/?>",
    re.IGNORECASE,
)
_HTML_START = re.compile(rf"(?:[\s>*+-]|[0-9]{{1,9}}[.)]\s)*+(?:{_TAG.pattern})", re.IGNORECASE)
_TICKS = re.compile(r"\\[!-/:-@\[-`{-~]|`+")
_ENTITY = re.compile(r"&(?=#[0-9]{1,8};|#[xX][0-9a-fA-F]{1,7};|[A-Za-z][A-Za-z0-9]{1,40};)")
_ENTITIES = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9a-fA-F]{1,7}|[A-Za-z][A-Za-z0-9]{1,40});")
_LINK = re.compile(
    r"(!?)\[([^\[\]\n]{0,2000})\]\([ \t]{0,8}(?:<([^<>\n]{0,2000})>|([^\s()<>]{0,2000}))"
    r"(?:[ \t]{1,8}(?:\"[^\"\n]{0,500}\"|'[^'\n]{0,500}'|\([^()\n]{0,500}\)))?[ \t]{0,8}\)"
)
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]{0,30}://|www\.)[^\s<>`\"]*", re.IGNORECASE)
_URL_TAIL = re.compile(r"[?!.,:*_~'\")\]|;]+$")
_JOINT = re.compile(r"(:(?=//)|www(?=\.))", re.IGNORECASE)
_MENTION = re.compile(r"(?<![A-Za-z0-9])@(?=[A-Za-z0-9])")
_COMMAND = re.compile(
    r"^([\s>*+-]{0,20}|[\s>*+-]{0,10}[0-9]{1,9}[.)]\s{1,4})/(?=[A-Za-z][A-Za-z0-9_-]{0,40}(?:\s|$))"
)
_CODE_COMMAND = re.compile(r"^(\s{0,20})/(?=[A-Za-z][A-Za-z0-9_-]{0,40}(?:\s|$))")
_UNSEEN = "&#8203;"
_BACKTICK = "&#96;"


def harmless_markdown(text: str, hosts: Hosts, change: Callable[[str], str]) -> str:
    """The text in which links lead only to `hosts`, and `change` was applied to each line that is no code."""
    lines: list[str] = []
    tags: list[str] = []
    is_fenced = False
    for is_code, part in _parts(text):
        new = part
        if not is_code:
            words = _without_comments("\n".join(part))
            new = [_line(line, _Words(hosts, change, tags)) for line in words.split("\n")]
        for line in new:
            # An empty line ends a block of HTML, in which no code would be.
            if lines and line.strip() and not is_fenced and _HTML_START.match(lines[-1]):
                lines.append("")
            lines.append(line)
            is_fenced = is_code and line is not new[-1]
        is_fenced = False
    if left_open := _left_open(tags):
        lines += "", "".join(f"</{name}>" for name in left_open)
    return "\n".join(lines)


def _left_open(tags: Iterable[str]) -> list[str]:
    """Which tags are to be closed so that what follows is neither folded away nor crossed out, the last first."""
    names: list[str] = []
    opened: Counter[str] = Counter()
    for tag in tags:
        name = tag.strip("</> \t").lower()
        if not tag.startswith("</"):
            names.append(name)
            opened[name] += 1
        elif opened[name]:
            opened[name] -= 1
    opened["br"] = 0
    left = []
    for name in names:
        if opened[name]:
            opened[name] -= 1
            left.append(name)
    return left[::-1]


def _parts(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Fenced blocks, moved to the margin, closed and without a language that is drawn, and what is between."""
    part: list[str] = []
    fence = indent = ""
    for line in text.split("\n"):
        if fence:
            rest = line[min(len(indent), len(line) - len(line.lstrip(" "))) :]
            if re.fullmatch(rf" {{0,3}}{fence}{fence[0]}*[ \t]*", rest):
                yield True, [*part, fence]
                part, fence = [], ""
            else:
                part.append(_CODE_COMMAND.sub("\\1\u200b/", rest))
        elif match := _FENCE.match(line):
            if part:
                yield False, part
            indent, fence = match[1], match[2] or match[4]
            part = [fence + _DRAWN.sub("text", _NO_LANGUAGE.sub("", match[3] or match[5] or ""))]
        else:
            part.append(line)
    if fence:
        yield True, [*part, fence]
    elif part:
        yield False, part


def _without_comments(text: str) -> str:
    kept: list[str] = []
    at = 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start + 4)) >= 0:
        kept.append(text[at:start])
        at = end + 3
    return "".join([*kept, text[at:]])


def _line(line: str, words: _Words) -> str:
    pieces = list(_pieces(line))
    # A table is cut into cells and a definition is read before anybody looks for code.
    is_unsure = any(is_code and ("|" in piece or "]:" in piece) for is_code, piece in pieces)
    is_html = _HTML_START.match(line) is not None
    if is_unsure or is_html:
        pieces = [(False, line)]
    words = replace(words, quote=_apart if is_html else as_code)
    done = "".join(piece if is_code else words.harmless(piece) for is_code, piece in pieces)
    return _COMMAND.sub(rf"\1{_UNSEEN}/", done)


def _pieces(line: str) -> Iterator[tuple[bool, str]]:
    """Code spans and what is between them. A run of backticks without a partner is text."""
    runs: dict[int, list[int]] = {}
    for match in re.finditer("`+", line):
        runs.setdefault(len(match[0]), []).append(match.start())
    at = 0
    for match in _TICKS.finditer(line):
        if match[0][0] == "\\" or match.start() < at:
            continue
        length = len(match[0])
        starts = runs.get(length, [])
        number = bisect_left(starts, match.end())
        if number < len(starts):
            yield False, line[at : match.start()]
            at = starts[number] + length
            yield True, line[match.start() : at]
    yield False, line[at:]


def _apart(address: str) -> str:
    """An address that does not become a link, where there is no code."""
    return _JOINT.sub(rf"\1{_UNSEEN}", _safe(address))


@dataclass(frozen=True, slots=True)
class _Words:
    """Makes text harmless that is no code.

    Attributes:
        hosts: where links may lead.
        change: what else is done to the words.
        tags: takes the tags that stay, in order.
        quote: shows an address that may be no link.
    """

    hosts: Hosts
    change: Callable[[str], str]
    tags: list[str]
    quote: Callable[[str], str] = as_code

    def harmless(self, text: str) -> str:
        """The text with a little HTML at most."""
        done: list[str] = []
        at = 0
        for match in _TAG.finditer(text):
            done += self._plain(text[at : match.start()]), match[0]
            self.tags.append(match[0])
            at = match.end()
        return "".join([*done, self._plain(text[at:])])

    def _plain(self, text: str) -> str:
        """Text without tags: read as a browser does, then written so that it says the same."""
        text = self.change(_unescaped(text))
        done: list[str] = []
        at = 0
        for match in _LINK.finditer(text):
            target = match[4] if match[3] is None else match[3]
            done.append(self._bare(text[at : match.start()]))
            label = self._bare(match[2])
            if self.hosts.allow_target(target):
                done.append(f"{match[1]}[{label}]({_safe(target)})")
            elif match[1]:
                done.append(f"{label} (an image at {self.quote(host_of(target))})".lstrip())
            else:
                done.append(f"{label} ({self.quote(target)})")
            at = match.end()
        return "".join([*done, self._bare(text[at:])])

    def _bare(self, text: str) -> str:
        """Text between links: addresses that would become links do so only where they may."""
        done: list[str] = []
        at = 0
        for match in _URL.finditer(text):
            address = _URL_TAIL.sub("", match[0])
            done.append(_safe(text[at : match.start()]))
            done.append(_safe(address) if self.hosts.allow(address) else self.quote(address))
            at = match.start() + len(address)
        return "".join([*done, _safe(text[at:])])


def _unescaped(text: str) -> str:
    """The text with HTML's character references read; what nobody sees is left out."""

    def read(match: re.Match[str]) -> str:
        return "".join(
            char if char.isprintable() else " " if char.isspace() else "" for char in unescape(match[0])
        )

    return _ENTITIES.sub(read, text) if "&" in text else text


def _safe(text: str) -> str:
    """Text in which nothing is a tag, a reference, a definition, a mention or half a code span."""
    text = _ENTITY.sub("&amp;", text).replace("<", "&lt;").replace("`", _BACKTICK)
    text = text.replace("](", "]&#40;").replace("]:", "]&#58;").replace("~~~", "&#126;~~")
    return _MENTION.sub(f"@{_UNSEEN}", text)
