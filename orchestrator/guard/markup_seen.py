"""What GitHub shows of HTML: which tags, attributes and styles leave their words on the page."""

from __future__ import annotations

import html
import re

# GitHub shows these tags, or lays out what is in them. Others vanish: their names are hidden text.
VISIBLE_TAGS = frozenset(
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
VOID_TAGS = frozenset(
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

ATTRIBUTE = (  # https://html.spec.whatwg.org/multipage/parsing.html#before-attribute-name-state
    r"[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+|(?=>))|(?!\s*+=))"
)
ONE_ATTRIBUTE = re.compile(rf"\s*+(?=[^\s/>])(?P<whole>{ATTRIBUTE})")


def name_and_value(attribute: str) -> tuple[str, str]:
    """A tag's attribute as a browser reads it."""
    name, _, value = attribute.partition("=") if attribute[0] != "=" else (attribute, "", "")
    value = value.strip()
    if value[:1] in {'"', "'"}:
        value = value[1:-1]
    return name.strip().lower(), html.unescape(value)


def is_seen(name: str, value: str) -> bool:
    """Whether a reader sees what the attribute does, and can hide nothing in its value."""
    if name in {"href", "src"}:
        return not re.search(r"[\s<>]", value.strip()) and not re.match(r"(?i)\s*(?:data|\w*script):", value)
    if name in _NUMBERS:
        return re.fullmatch(r"[1-9]\d{0,3}(?:px|%)?", value) is not None
    return re.fullmatch(_WORDS_OF.get(name, "(?!)"), value.lower()) is not None


def hides_content(name: str, attributes: str) -> bool:
    """Whether the words inside of an element are not on the page."""
    if name in _UNSEEN_TAGS:
        return True
    for attribute in ONE_ATTRIBUTE.finditer(attributes):
        key, value = name_and_value(attribute["whole"])
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
