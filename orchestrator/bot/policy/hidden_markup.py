"""Decides which markup of a text is hidden from a person on GitHub.

A short list of HTML tags and attributes is visible. `markup_page` and `markup_reader` parse the markup.
"""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from orchestrator.bot.policy.hidden_characters import Cut
from orchestrator.bot.policy.markup_page import Page, is_drawn
from orchestrator.bot.policy.markup_reader import (
    ATTRIBUTE_NAME,
    ATTRIBUTE_VALUE,
    PLAIN_ALT,
    MarkupReader,
    address_kind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.bot.policy.markup_page import Mark

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
