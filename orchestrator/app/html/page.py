"""The elements of pages, among them diffs, and their rendering: Jinja with escaping, a strict content policy."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias
from urllib.parse import urlsplit

from orchestrator.app.words import visible_characters

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime, tzinfo

    from jinja2 import Environment


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
    """A whole page."""

    title: str
    sections: Sequence[Section] = ()
    subtitle: str = ""
    badge: Badge | None = None
    facts: Sequence[tuple[str, Cell]] = ()


def render_page(page: HtmlPage, redact: Callable[[str], str], zone: tzinfo | None = None) -> str:
    """Render a page as one HTML file.

    Args:
        redact: see `html_from_template`.
        zone: time zone of the shown times; None for this machine's.
    """
    values = {"page": page, "style": stylesheet(), "policy": content_policy()}
    return html_from_template("page.html", values, redact, zone)


def html_from_template(
    template: str,
    values: Mapping[str, Any],
    redact: Callable[[str], str],
    zone: tzinfo | None = None,
    folder: Path | None = None,
) -> str:
    """Render a template.

    Args:
        redact: removes secrets from each text after it was cleaned, because control characters may separate
            the letters of a secret.
        zone: time zone of the shown times; None for this machine's.
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


_redact: ContextVar[Callable[[str], str]] = ContextVar("_redact")


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


LineKind: TypeAlias = Literal["added", "removed", "same", "hunk", "note"]

_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_FILE = re.compile(r"diff --git (?>.*? (?=\"?b/))(?:\"b/(?P<quoted>.*)\"|b/(?P<plain>.*))")
_MOST_LINES = 2_000
_MOST_LINE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a diff, without its sign.

    Attributes:
        old: line number in the old file, if the line is in it.
        new: line number in the new file, if the line is in it.
    """

    kind: LineKind
    text: str
    old: int | None = None
    new: int | None = None

    @property
    def sign(self) -> str:
        """The sign before the line in a diff."""
        return {"added": "+", "removed": "-", "same": " "}.get(self.kind, "")


@dataclass(slots=True)
class FileDiff:
    """The part of a diff about one file."""

    path: str
    lines: list[DiffLine] = field(default_factory=list)
    left_out: int = 0

    @property
    def added(self) -> int:
        """The number of added lines among the shown ones."""
        return sum(line.kind == "added" for line in self.lines)

    @property
    def removed(self) -> int:
        """The number of removed lines among the shown ones."""
        return sum(line.kind == "removed" for line in self.lines)


@dataclass(frozen=True, slots=True)
class DiffBlock:
    """A unified diff, file by file, from the output of `git diff`. The page shows how many lines were left out."""

    kind: ClassVar[str] = "diff"
    text: str

    @property
    def files(self) -> list[FileDiff]:
        """The files, in the order of the diff."""
        return read_diff(self.text)


@dataclass(frozen=True, slots=True)
class DiffPair:
    """Two diffs of one repository side by side, such as a model's change and the real one."""

    kind: ClassVar[str] = "pair"
    left: str
    right: str
    left_name: str
    right_name: str

    @property
    def rows(self) -> list[tuple[str, FileDiff | None, FileDiff | None]]:
        """Each path with its part of either diff. Paths that both diffs change come first."""
        sides = [{one.path: one for one in read_diff(text)} for text in (self.left, self.right)]
        paths = dict.fromkeys([*sides[0], *sides[1]])
        ordered = sorted(paths, key=lambda path: not all(path in side for side in sides))
        return [(path, sides[0].get(path), sides[1].get(path)) for path in ordered]


def read_diff(text: str, most_lines: int = _MOST_LINES) -> list[FileDiff]:
    """Parse a unified diff. Other text becomes notes. Only lines beyond `most_lines` are dropped."""
    files: list[FileDiff] = []
    # A carriage return or another separator inside a line does not end it for git.
    lines = text.removesuffix("\n").split("\n") if text.strip() else []
    shown = 0
    for path, line in _lines(lines):
        if path is not None:
            files.append(FileDiff(path))
        if line is None:
            continue
        if not files:
            files.append(FileDiff(""))
        if shown < most_lines:
            files[-1].lines.append(line)
            shown += 1
        else:
            files[-1].left_out += 1
    return files


def _lines(lines: Sequence[str]) -> Iterator[tuple[str | None, DiffLine | None]]:
    """Yield each line, or the path of a file at its beginning. The counts in a hunk's header give its length."""
    old = new = old_left = new_left = 0
    is_named = False
    for raw in lines:
        sign, rest = raw[:1], _cut(raw[1:])
        if old_left > 0 or new_left > 0:
            if sign == "+":
                yield None, DiffLine("added", rest, None, new)
                new, new_left = new + 1, new_left - 1
                continue
            if sign == "-":
                yield None, DiffLine("removed", rest, old, None)
                old, old_left = old + 1, old_left - 1
                continue
            if sign in {" ", ""}:
                yield None, DiffLine("same", rest, old, new)
                old, new, old_left, new_left = old + 1, new + 1, old_left - 1, new_left - 1
                continue
        if match := _HUNK.match(raw):
            old, new = int(match[1]), int(match[3])
            old_left, new_left = int(match[2] or 1), int(match[4] or 1)
            is_named = False
            yield None, DiffLine("hunk", _cut(raw))
        elif match := _FILE.fullmatch(raw):
            old_left = new_left = 0
            is_named = True
            yield match["quoted"] or match["plain"], None
        elif raw.startswith("+++ ") and not is_named:  # not from git, which names the file before
            yield raw[4:].partition("\t")[0].removeprefix("b/"), None
        elif not raw.startswith(("--- ", "+++ ", "index ")):
            yield None, DiffLine("note", _cut(raw))


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_LINE_CHARS else f"{text[:_MOST_LINE_CHARS]}… {len(text):,} characters"
