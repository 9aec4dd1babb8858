"""What pages are made of, and how they are written: Jinja with escaping, one style sheet, a strict content policy."""

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
"""What a colour means. It never says alone what the words do not."""

_FOLDER = Path(__file__).parent / "templates"
_FIRST_LINES = 300
_LAST_LINES = 100
_MOST_CHARS = 200_000


@dataclass(frozen=True, slots=True)
class Link:
    """A text that leads somewhere. Only `http` and `https` are followed; all else is shown as plain text."""

    kind: ClassVar[str] = "link"
    text: str
    url: str

    @property
    def is_safe(self) -> bool:
        """Whether the address is one that a page may offer."""
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
    """A short text in the type of programs, such as a path or a commit."""

    kind: ClassVar[str] = "code"
    text: str


Cell: TypeAlias = str | Link | Badge | Moment | Code


@dataclass(frozen=True, slots=True)
class PlainText:
    """Text. Its line breaks stay."""

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
    """Rows below heads.

    Attributes:
        numeric: the columns, from 0, whose values are numbers.
        caption: what the table shows, for those who hear the page.
        empty: what is said where there is no row.
    """

    kind: ClassVar[str] = "table"
    heads: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    numeric: Collection[int] = ()
    caption: str = ""
    empty: str = "none"


@dataclass(frozen=True, slots=True)
class Output:
    """A long text behind its title, such as what a command printed. The middle of a very long one is left out.

    Attributes:
        is_open: it is not folded at first.
    """

    kind: ClassVar[str] = "output"
    title: str
    text: str
    tone: Tone = "quiet"
    is_open: bool = False

    @property
    def pieces(self) -> tuple[str, int, str]:
        """The beginning, how many lines are left out, and the end."""
        return cut_middle(self.text)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happened, as a line of a story.

    Attributes:
        sign: one character before it.
        body: a text that is shown below it.
        folded: long texts that belong to it.
        is_heading: a part of the story begins.
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
        """The body as `Output.pieces` has a text."""
        return cut_middle(self.body)


Block: TypeAlias = "PlainText | Notice | Facts | Table | Output | DiffBlock | DiffPair | Step | Section"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands below it. A section in a section is folded.

    Attributes:
        note: a few words beside the heading, such as a count.
        id: names the section in the address of a part of the page; a word.
    """

    kind: ClassVar[str] = "section"
    title: str
    blocks: Sequence[Block] = ()
    note: str = ""
    is_open: bool = False
    id: str = ""


@dataclass(frozen=True, slots=True)
class HtmlPage:
    """A whole page.

    Attributes:
        redact: takes secrets out of each text, once it is clean: what a terminal obeys may stand between the letters
            of one.
    """

    title: str
    sections: Sequence[Section] = ()
    subtitle: str = ""
    badge: Badge | None = None
    facts: Sequence[tuple[str, Cell]] = ()
    redact: Callable[[str], str] = str


def render_page(page: HtmlPage, zone: tzinfo | None = None) -> str:
    """Write a page as one file.

    Args:
        zone: in which times are shown; this machine's if None.
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
    """Fill in a template.

    Args:
        zone: in which times are shown; this machine's if None.
        redact: takes secrets out of each text.
        folder: has the template, if it is none of this package's; those are found all the same.

    Raises:
        jinja2.UndefinedError: a value that it names was not given.
    """
    token = _redact.set(redact)
    try:
        return _environment(folder).get_template(template).render(values, zone=zone)
    finally:
        _redact.reset(token)


@functools.cache
def stylesheet() -> str:
    """The style sheet of all pages."""
    from markupsafe import Markup

    return Markup((_FOLDER / "page.css").read_text(encoding="utf-8"))  # noqa: S704  our own file


@functools.cache
def content_policy() -> str:
    """What a browser may do for a self-contained page: apply our own style sheet, and nothing else."""
    digest = base64.b64encode(hashlib.sha256(stylesheet().encode()).digest()).decode("ascii")
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def moment_text(at: datetime, zone: tzinfo | None = None) -> str:
    """Return a time to the minute, with the name of its zone: `2026-11-23 14:30 CET`."""
    return at.astimezone(zone).strftime("%Y-%m-%d %H:%M %Z")


def cut_middle(text: str) -> tuple[str, int, str]:
    """Leave the middle of a very long text out.

    Returns:
        the beginning, the number of lines that are left out, and the end.
    """
    lines = text.strip("\n").split("\n")
    if len(lines) > _FIRST_LINES + _LAST_LINES:
        first, last = lines[:_FIRST_LINES], lines[-_LAST_LINES:]
    else:
        first, last = lines, []
    return _cut_line(first), len(lines) - len(first) - len(last), _cut_line(last)


def _cut_line(lines: Sequence[str]) -> str:
    """Join lines. A text may be one line without end."""
    text = "\n".join(lines)
    if len(text) <= _MOST_CHARS:
        return text
    return f"{text[:_MOST_CHARS]}… {len(text) - _MOST_CHARS:,} more characters"


_redact: ContextVar[Callable[[str], str]] = ContextVar("_redact", default=str)


def _shown(value: Any) -> Any:
    """Clean what an expression of a template gives. What is HTML already was cleaned when it was made."""
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
