"""What a server sent, as text: its kind, and its characters."""

from __future__ import annotations

import codecs
import re
from email.message import Message

from orchestrator.core.errors import ToolError
from orchestrator.engine.web.base import PageKind

_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|toml|javascript|x-javascript|ecmascript|ndjson|x-ndjson|jsonl"
    r"|x-sh|x-python|sql|graphql|x-httpd-php)|image/svg\+xml|message/.+"
)
_LOOKS_LIKE_HTML = re.compile(
    rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_START_BYTES = 1_024
"""Where HTML may name its character set: https://html.spec.whatwg.org/multipage/parsing.html"""

_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_:.\-]+)""", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSETS = re.compile(
    r"utf-?(8|16|32)([-_]?[lb]e)?|(us-)?ascii|latin-?1|iso-?8859-?\d{1,2}|(windows|cp)-?\d{3,4}|koi8-[rut]|mac(intosh|-\w+)"
    r"|shift[-_]jis|sjis|euc-(jp|kr)|iso-2022-(jp|kr)|gb(k|2312|18030)|big5(-hkscs)?|tis-620",
    re.IGNORECASE,
)
"""Character sets of pages. Python knows more encodings, some of which are programs rather than tables."""

_AS_WINDOWS = frozenset(
    {"ascii", "iso8859-1"}
)  # as every browser takes them: https://encoding.spec.whatwg.org


def page_text(content_type: str, data: bytes) -> tuple[PageKind, str]:
    """The kind and the characters of a page.

    Raises:
        ToolError: it is no text.
    """
    kind = kind_of(content_type, data[:_START_BYTES])
    text = data.decode(_charset(content_type, data, kind), "replace").removeprefix("\ufeff")
    if "\0" in text[:_START_BYTES]:
        raise ToolError(
            f"the page is binary data (sent as {_media_type(content_type) or 'no type'}), not text"
        )
    return kind, text


def kind_of(content_type: str, start: bytes) -> PageKind:
    """What a page is, by its declared type; by its first bytes where none was declared.

    Raises:
        ToolError: it is neither HTML nor text.
    """
    media_type = _media_type(content_type)
    if media_type in _HTML_TYPES or (not media_type and _LOOKS_LIKE_HTML.match(start)):
        return PageKind.HTML
    if not media_type or _TEXT_TYPES.fullmatch(media_type):
        return PageKind.TEXT
    raise ToolError(
        f"the page is {media_type}, and only HTML and text can be read: look for another form of it"
    )


def _media_type(content_type: str) -> str:
    return "".join(c for c in content_type.partition(";")[0].strip().lower() if c.isprintable())[:100]


def _charset(content_type: str, data: bytes, kind: PageKind) -> str:
    """The marks at the beginning count most, then the server's word, then the page's own, then UTF-8."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    header = Message()
    header["content-type"] = "".join(c for c in content_type if c.isprintable())
    declared = [str(header.get_param("charset") or "")]
    if (kind is PageKind.HTML or data.startswith(b"<?xml")) and (
        inside := _DECLARED.search(data[:_START_BYTES])
    ):
        declared.append(inside[1].decode("ascii"))
    for name in declared:
        if _CHARSETS.fullmatch(name.strip()):
            try:
                found = codecs.lookup(name.strip()).name
            except LookupError:
                continue
            return "cp1252" if found in _AS_WINDOWS else found
    try:
        data.decode()
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"
