"""Removes from other people's text what a person would not see, and reports what was removed.

Hidden characters and hidden markup are removed: all markup that is not certain to be visible on GitHub, where only
a short list of HTML tags and attributes is. Two things stay and are reported, although the page does not show them
in this form: the addresses of links, and tags without attributes, such as the one in `List<String>`.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.bot.policy.hidden_characters import (
    Cut,
    Removed,
    apply_cuts,
    escaped,
    every_invisible,
    hidden_characters,
    may_hide,
)
from orchestrator.bot.policy.markup_page import Page, is_drawn
from orchestrator.bot.policy.markup_reader import ATTRIBUTE, PLAIN_ALT, MarkupReader, address_kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.bot.policy.markup_page import Mark

    _Search = Callable[[str], tuple[list[Cut], list[Cut]]]
    """Returns the cuts, and the parts that stay although the page shows them in another form."""

_MOST_ROUNDS = 6
"""Most searches of one text. After a cut, the texts on its two sides may together be hidden markup again."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """A text as a person sees it.

    Attributes:
        text: the visible text; the same object if nothing was hidden.
        removed: parts that were removed or made visible, in the order of the original text.
        kept: parts that the model reads and a person does not see in this form: tags without effect,
            addresses of links.
    """

    text: str
    removed: tuple[Removed, ...] = ()
    kept: tuple[Removed, ...] = ()


def clean_words(text: str) -> Cleaned:
    """Remove hidden characters and hidden markup from a text that people wrote.

    The markup is parsed as GitHub does: Markdown with HTML and mathematics. What GitHub shows literally, such
    as code, stays. All other markup is either removed and listed in `removed`, or stays and is listed in
    `kept`. What is not certain to be visible is removed. Cleaning the result again changes nothing.
    """
    if not may_hide(text) and not _may_contain_markup(text):
        return Cleaned(text)
    # Characters are removed after markup, because GitHub parses markup with the hidden characters in it.
    # Only a byte order mark at the beginning is removed first.
    searches = (
        (_byte_order_mark, every_invisible),
        (_hidden_markup, _cut_all_markup),
        (_characters, every_invisible),
    )
    return _cleaned(text, searches)


def clean_name(text: str) -> Cleaned:
    """Remove hidden characters and line breaks from a title, a file name or a branch name."""
    if not may_hide(text) and "\n" not in text and "\r" not in text and "\t" not in text:
        return Cleaned(text)
    return _cleaned(text, ((_hidden_in_name, every_invisible),))


def show_hidden(text: str) -> Cleaned:
    """Replace the hidden characters of a file or of a command's output by visible text: `<U+200B>`.

    A run of tag characters or variation selectors is decoded: `<hidden: "...">`. Markup is visible and stays.
    """
    if not may_hide(text):
        return Cleaned(text)
    cuts = hidden_characters(text)
    if not cuts:
        return Cleaned(text)
    shown = []
    for cut in cuts:
        is_decoded = cut.text != escaped(text[cut.start : cut.end])
        shown.append(replace(cut, replacement=f'<hidden: "{cut.text}">' if is_decoded else cut.text))
    removed = tuple(Removed(cut.start, cut.kind, cut.text) for cut in cuts)
    return Cleaned(apply_cuts(text, shown), removed)


def _byte_order_mark(text: str) -> tuple[list[Cut], list[Cut]]:
    return [Cut(0, 1, "format characters", escaped("\ufeff"))] if text.startswith("\ufeff") else [], []


def _characters(text: str) -> tuple[list[Cut], list[Cut]]:
    return hidden_characters(text), []


def _hidden_in_name(text: str) -> tuple[list[Cut], list[Cut]]:
    cuts = [
        replace(cut, replacement=cut.replacement.replace("\n", " ")) for cut in hidden_characters(text)
    ] + [
        Cut(offset, offset + 1, "control character", escaped(char), " ")
        for offset, char in enumerate(text)
        if char in "\t\n\r"
    ]
    return sorted(cuts, key=lambda cut: cut.start), []


class _OffsetMap:
    """Maps offsets in a text after several rounds of cuts to offsets in the original text."""

    def __init__(self) -> None:
        self._rounds: list[tuple[list[int], list[int]]] = []

    def add(self, cuts: Sequence[Cut]) -> None:
        """Add one round of cuts."""
        new, old = [0], [0]
        for cut in cuts:
            offset = new[-1] + cut.start - old[-1]
            if cut.replacement:
                new.append(offset)
                old.append(cut.start)
            new.append(offset + len(cut.replacement))
            old.append(cut.end)
        self._rounds.append((new, old))

    def original(self, offset: int) -> int:
        """Return the offset in the original text of the character that is at this offset now."""
        for new, old in reversed(self._rounds):
            index = bisect_right(new, offset) - 1
            offset = old[index] + offset - new[index]
        return offset


def _cleaned(text: str, searches: Sequence[tuple[_Search, Callable[[str], list[Cut]]]]) -> Cleaned:
    """Repeat the searches, each followed by its cuts, until they find nothing more.

    After `_MOST_ROUNDS`, the fallback of each search cuts everything that the search could ever find.
    """
    offsets = _OffsetMap()
    removed: list[Removed] = []
    kept: dict[int, Removed] = {}
    result = text

    def reported(cuts: Sequence[Cut]) -> list[Removed]:
        return [Removed(offsets.original(cut.start), cut.kind, cut.text) for cut in cuts]

    def cut_once(cuts: Sequence[Cut], found: Sequence[Cut] = ()) -> bool:
        nonlocal result
        removed.extend(reported(cuts))
        # Findings of each round count: later cuts may change how the page shows a part.
        kept.update((part.offset, part) for part in reported(found))
        offsets.add(cuts)
        result = apply_cuts(result, cuts)
        return bool(cuts)

    for _ in range(_MOST_ROUNDS):
        if sum(cut_once(*find(result)) for find, _ in searches) == 0:
            break
    else:
        for _, find_all in searches:
            cut_once(find_all(result))
    remaining = [part for _, part in sorted(kept.items()) if part.text in result]
    removed.sort(key=lambda part: part.offset)
    return Cleaned(result if removed else text, tuple(removed), tuple(remaining))


_MARKUP_SIGNS = {
    "<": ("<",),
    "&": ("&",),
    "[": ("](", "][", "]:", "!["),
    "`": ("```",),
    "~": ("~~~",),
    "|": ("-",),
    "$": ("$",),
}
"""Beginnings of markup, each with one character that is fast to search for."""


def _may_contain_markup(text: str) -> bool:
    """Return whether the text may contain markup and has to be parsed."""
    return any(
        first in text and any(trace in text for trace in traces) for first, traces in _MARKUP_SIGNS.items()
    )


def _hidden_markup(text: str) -> tuple[list[Cut], list[Cut]]:
    """Return the cuts, and the other parts that are not shown in this form; these are complete only without cuts."""
    if not _may_contain_markup(text):
        return [], []
    page = Page(text)
    cuts, shown = _cuts_of_page(page, MarkupReader(page).marks())
    return list(_without_overlaps(text, cuts)), sorted(shown, key=lambda cut: cut.start)


def _cut_all_markup(text: str) -> list[Cut]:
    """Cut everything after the first sign of markup, for a text in which each cut creates new markup."""
    first = min((place for place in map(text.find, "<[&`~|$") if place >= 0), default=len(text))
    return [Cut(first, len(text), "nested markup", text[first:])] if first < len(text) else []


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

_ONE_ATTRIBUTE = re.compile(rf"\s*+(?=[^\s/>])(?P<whole>{ATTRIBUTE})")
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
    r"\[(?>(?:[^\[\]\\]++|\\.)+)\]:\s*+(?P<target><(?>(?:[^<>\n\\]++|\\.)*)>|\S++)", re.DOTALL
)


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
