"""The elements of pages, and their rendering: Jinja with escaping, one style sheet, a strict content policy."""

from __future__ import annotations

import base64
import functools
import hashlib
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

from orchestrator.app.words import visible_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import datetime, tzinfo

    from jinja2 import Environment

    from orchestrator.app.html.diff import DiffBlock, DiffPair

Tone: TypeAlias = Literal["ok", "failed", "warning", "active", "quiet"]
"""The meaning of a colour. The text always says the same, so the colour is never the only sign."""

_FOLDER = Path(__file__).parent / "templates"
_FIRST_LINES = 300
_LAST_LINES = 100
_MOST_CHARS = 200_000


@dataclass(frozen=True, slots=True)
class Link:
    """A text with a link. Addresses other than `http` and `https` are shown as plain text."""

    kind: ClassVar[str] = "link"
    text: str
    url: str

    @property
    def is_safe(self) -> bool:
        """Whether a page may link to the address."""
        try:
            parts = urlsplit(self.url)
        except ValueError:
            return False
        return parts.scheme in {"http", "https"} and bool(parts.netloc) and self.url.isprintable()


@dataclass(frozen=True, slots=True)
class Badge:
    """A short word with a colour, such as an outcome."""

    kind: ClassVar[str] = "badge"
    text: str
    tone: Tone = "quiet"


@dataclass(frozen=True, slots=True)
class Moment:
    """A time, shown in the reader's zone."""

    kind: ClassVar[str] = "moment"
    at: datetime


@dataclass(frozen=True, slots=True)
class Code:
    """A short text in a monospaced font, such as a path or a commit."""

    kind: ClassVar[str] = "code"
    text: str


Cell: TypeAlias = str | Link | Badge | Moment | Code


@dataclass(frozen=True, slots=True)
class PlainText:
    """Text whose line breaks are kept."""

    kind: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One sentence that a reader must not miss."""

    kind: ClassVar[str] = "notice"
    tone: Tone
    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names with their values."""

    kind: ClassVar[str] = "facts"
    rows: Sequence[tuple[str, Cell]]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below a head.

    Attributes:
        numeric: indices, from 0, of the columns with numbers.
        caption: description of the table for screen readers.
    """

    kind: ClassVar[str] = "table"
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Collection[int] = ()
    caption: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """A long, folded text with a title, such as the output of a command. The middle of a very long one is left out."""

    kind: ClassVar[str] = "output"
    title: str
    text: str
    tone: Tone = "quiet"

    @property
    def pieces(self) -> tuple[str, int, str]:
        """The beginning, the number of lines left out, and the end."""
        return cut_middle(self.text)


@dataclass(frozen=True, slots=True)
class Step:
    """One event of a run, as a line in the list of events.

    Attributes:
        sign: one character before the line.
        body: text shown below the line.
        folded: long texts that belong to the event.
        is_heading: whether a new part begins here.
    """

    kind: ClassVar[str] = "step"
    text: str
    tone: Tone = "quiet"
    sign: str = ""
    at: datetime | None = None
    body: str = ""
    folded: Sequence[Output] = ()
    is_heading: bool = False

    @property
    def pieces(self) -> tuple[str, int, str]:
        """The body, cut as in `Output.pieces`."""
        return cut_middle(self.body)


Block: TypeAlias = "PlainText | Notice | Facts | Table | Output | DiffBlock | DiffPair | Step | Section"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with content. A section inside a section is folded.

    Attributes:
        note: a few words beside the heading, such as a count.
        id: fragment identifier of the section, one word.
    """

    kind: ClassVar[str] = "section"
    title: str
    blocks: Sequence[Block] = ()
    note: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A whole page.

    Attributes:
        redact: removes secrets from each text after it was cleaned, because control characters may separate
            the letters of a secret.
    """

    title: str
    sections: Sequence[Section] = ()
    subtitle: str = ""
    badge: Badge | None = None
    facts: Sequence[tuple[str, Cell]] = ()
    redact: Callable[[str], str] = str


def render_page(page: HtmlPage, zone: tzinfo | None = None) -> str:
    """Render a page as one HTML file.

    Args:
        zone: time zone of the shown times; None for this machine's.
    """
    values = {"page": page, "style": stylesheet(), "policy": content_policy()}
    return html_from_template("page.html", values, zone, page.redact)


def html_from_template(
    template: str,
    values: Mapping[str, Any],
    zone: tzinfo | None = None,
    redact: Callable[[str], str] = str,
    folder: Path | None = None,
) -> str:
    """Render a template.

    Args:
        zone: time zone of the shown times; None for this machine's.
        redact: removes secrets from each text.
        folder: folder of the template, if it is not in this package; templates of this package are found too.

    Raises:
        jinja2.UndefinedError: the template uses a value that was not given.
    """
    token = _redact.set(redact)
    try:
        return _environment(folder).get_template(template).render(values, zone=zone)
    finally:
        _redact.reset(token)


@functools.cache
def stylesheet() -> str:
    """Return the style sheet of all pages."""
    from markupsafe import Markup

    return Markup((_FOLDER / "page.css").read_text(encoding="utf-8"))  # noqa: S704  our own file


@functools.cache
def content_policy() -> str:
    """Return the content security policy of a self-contained page: it allows only our own style sheet."""
    digest = base64.b64encode(hashlib.sha256(stylesheet().encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def moment_text(at: datetime, zone: tzinfo | None = None) -> str:
    """Return a time to the minute, with the name of its zone: `2026-11-23 14:30 CET`."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


def cut_middle(text: str) -> tuple[str, int, str]:
    """Remove the middle of a very long text.

    Returns:
        The beginning, the number of lines left out, and the end.
    """
    lines = text.strip("\n").split("\n")
    if len(lines) > _FIRST_LINES + _LAST_LINES:
        first, last = lines[:_FIRST_LINES], lines[-_LAST_LINES:]
    else:
        first, last = lines, []
    return _cut_line(first), len(lines) - len(first) - len(last), _cut_line(last)


def _cut_line(lines: Sequence[str]) -> str:
    """Join lines and limit the result, because a text may be a single very long line."""
    text = "\n".join(lines)
    if len(text) <= _MOST_CHARS:
        return text
    return f"{text[:_MOST_CHARS]}… {len(text) - _MOST_CHARS:,} more characters"


_redact: ContextVar[Callable[[str], str]] = ContextVar("_redact", default=str)


def _shown(value: Any) -> Any:
    """Clean the value of a template expression. HTML was cleaned when it was created, and stays unchanged."""
    from markupsafe import Markup

    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return _redact.get()(visible_characters(value))


@functools.cache
def _environment(folder: Path | None) -> Environment:
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([*filter(None, (folder,)), _FOLDER]),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["moment"] = moment_text
    return made
