"""What several commands share: lines with a style, tables, pages in files, and the handling of signals.

A file that cannot be written raises a `ConfigurationError`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import textwrap
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from orchestrator.app.terminal import known_secrets
from orchestrator.app.words import clean, hanging
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.event_loop import on_ending_signals
from orchestrator.core.files import write_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from rich.console import Console

_PRIVATE = 0o600
_PROSE = re.compile(r"[,:;.] ")
"""What a command at the end of a message does not contain."""
_LABEL = re.compile(r"  [a-z]{2,7} {1,6}(?=\S)")
_SMALL = re.compile(r"</?sub>")
_FOR_PROGRAMS, _END_OF_FOLD = "<details><summary>The same for programs</summary>", "\n</details>\n"
"""What is around the block in `prompts/verification/report.md`."""
_LEAST_COLUMNS, _MOST_COLUMNS = 40, 120


def open_console(*, stderr: bool = False) -> Console:
    """Return a console that prints text as it is: without markup, emoji or highlighting."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def print_line(console: Console, line: str, style: str = "", styled: slice = slice(None)) -> None:
    """Print a line whole, however long it is. Without a terminal it has no style.

    Args:
        styled: the part of the line that has the style.
    """
    from rich.text import Text

    text = Text(line)
    text.stylize(style, *styled.indices(len(line))[:2])
    console.print(text, no_wrap=True, overflow="ignore", crop=False)


def text_columns() -> int:
    """Return the width for text that is wrapped: the terminal's, but from 40 to 120 columns."""
    return min(max(shutil.get_terminal_size().columns, _LEAST_COLUMNS), _MOST_COLUMNS)


def _terminal_columns(stream: TextIO) -> int:
    """Return the width of the terminal that a stream is, at least 40 columns; 0 if it is none."""
    return max(shutil.get_terminal_size().columns, _LEAST_COLUMNS) if stream.isatty() else 0


def print_problem(message: str) -> None:
    """Print on standard error, as one line of a log, what happened and what to do.

    On a terminal it breaks between words. A command at its end that would break stands on a line of its own, to be copied.
    """
    line = f"{PROGRAM}: {clean(message)}"
    columns = _terminal_columns(sys.stderr)
    lines = [line]
    if columns:
        said, between, typed = line.rpartition(f" {PROGRAM} ")
        lines = hanging(line, columns)
        if between and not _PROSE.search(typed) and not lines[-1].endswith(f"{between}{typed}"):
            lines = [*hanging(said, columns), f"  {between.lstrip()}{typed}"]
    sys.stderr.write("".join(f"{one}\n" for one in lines))
    sys.stderr.flush()


class Unbroken(str):
    """A text that `print_lines` prints as it is, such as a diff."""

    __slots__ = ()


def print_lines(lines: Iterable[str]) -> None:
    """Print lines on standard output.

    On a terminal they break between words, and tables of Markdown inside their cells; commands stay whole, to be copied.
    """
    columns = _terminal_columns(sys.stdout)
    if not columns:
        for line in lines:
            print(clean(line), flush=True)
        return
    for is_table, group in groupby(_each_line(lines), _is_row):
        if is_table:
            print("\n".join(_table(list(group), columns)), flush=True)
            continue
        for line in group:
            print(line if isinstance(line, Unbroken) else _broken(line, columns), flush=True)


def _each_line(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        kind = Unbroken if isinstance(text, Unbroken) else str
        yield from map(kind, clean(text).split("\n"))


def _is_row(line: str) -> bool:
    return line.startswith("|") and not isinstance(line, Unbroken)


def _broken(line: str, columns: int) -> str:
    """Break a line of a result, a label of eight columns or Markdown. Commands are left as they are."""
    label = _LABEL.match(line)
    said = line[label.end() :] if label else line.lstrip()
    if said.startswith(f"{PROGRAM} "):
        return line
    return "\n".join(hanging(line, columns, label.end() if label else None))


_CELL_END = re.compile(r"(?<!\\)\|")
_RULE_CELL = re.compile(r":?-+:?")
_LEAST_CELL_CHARS = 8


def _table(rows: Sequence[str], columns: int) -> list[str]:
    """Return the rows of a table of Markdown as wide as the terminal allows, with several lines where cells are long."""
    cells = [
        [cell.strip() for cell in _CELL_END.split(row.strip().removeprefix("|").removesuffix("|"))]
        for row in rows
    ]
    count = max(map(len, cells))
    cells = [row + [""] * (count - len(row)) for row in cells]
    rules = [row for row in cells if all(map(_RULE_CELL.fullmatch, row))]
    is_right = [bool(rules) and rules[0][place].endswith("-:") for place in range(count)]
    widths = _widths([row for row in cells if row not in rules], columns - 3 * count - 1)
    shown = []
    for row in cells:
        if row in rules:
            shown.append(f"|{'|'.join('-' * (width + 2) for width in widths)}|")
            continue
        parts = [
            textwrap.wrap(cell, width, break_on_hyphens=False)
            for cell, width in zip(row, widths, strict=True)
        ]
        layout = [
            f" {{:{'>' if right else '<'}{width}}} |" for right, width in zip(is_right, widths, strict=True)
        ]
        lines = zip_longest(*parts, fillvalue="")
        shown += (
            f"|{''.join(form.format(part) for form, part in zip(layout, line, strict=True))}"
            for line in lines
        )
    return shown


def _widths(cells: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column: that of its longest cell if there is room, and at least of its longest word."""
    wanted = [max(1, *map(len, column)) for column in zip(*cells, strict=True)]
    words = [
        max(1, *(len(word) for cell in column for word in cell.split()))
        for column in zip(*cells, strict=True)
    ]
    least = words if sum(words) <= room else [min(word, _LEAST_CELL_CHARS) for word in words]
    for _ in range(room - sum(least)):
        lacking = [place for place, width in enumerate(least) if width < wanted[place]]
        if not lacking:
            break
        least[min(lacking, key=least.__getitem__)] += 1
    return least


def as_read(markdown: str) -> str:
    """Return Markdown as a person reads it on a forge: without its comments, and without what is folded for programs."""
    first, *others = markdown.split("<!--")
    text = first + "".join(part.partition("-->")[2] for part in others)
    before, fold, after = _SMALL.sub("", text).partition(_FOR_PROGRAMS)
    return f"{before}{after.partition(_END_OF_FOLD)[2].lstrip()}" if fold else before


def table_lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a line for each row, in which every column is as wide as its longest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table. On a terminal that is too narrow, each row is a line with its first and last cell, and the others below it."""
    lines = list(table_lines([heads, *rows]))
    columns = _terminal_columns(sys.stdout)
    if columns and max(map(len, lines)) > columns:
        lines = []
        for row in rows:
            between = (
                f"{head.lower()} {cell}" for head, cell in zip(heads[1:-1], row[1:-1], strict=True) if cell
            )
            lines += [f"{row[0]}  {row[-1]}", f"    {', '.join(between)}"]
    print_lines(lines)


def write_page(place: str, page: str) -> None:
    """Write an HTML page to the file that `--html` names."""
    try:
        write_named(Path(place).expanduser(), page)
    except OSError as error:
        raise ConfigurationError(f"--html {place} cannot be written: {error.strerror or error}") from error


def write_json(flag: str, place: str, value: Mapping[str, Any]) -> None:
    """Write an object, redacted, to the file that a flag names."""
    text = json.dumps(known_secrets(os.environ).redact_value(value), indent=1)
    try:
        write_named(Path(place).expanduser(), f"{text}\n")
    except OSError as error:
        raise ConfigurationError(f"{flag} {place} cannot be written: {error.strerror or error}") from None


def add_to_file(place: str, text: str) -> None:
    """Add a text, redacted, to the end of a file that a person named."""
    try:
        write_named(Path(place).expanduser(), known_secrets(os.environ).redact(text), append=True)
    except OSError as error:
        raise ConfigurationError(f"{place} cannot be written: {error.strerror or error}") from None


def write_new_file(place: str, text: str) -> Path:
    """Write a text, redacted, into a new file that only its owner can read, and return its path."""
    path = Path(place).expanduser()
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(known_secrets(os.environ).redact(text))
    except FileExistsError:
        raise ConfigurationError(f"{path} exists already: name another file") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from None
    return path


def end_on_signals(
    is_ending: Callable[[], bool], end: Callable[[], None], end_at_once: Callable[[], None]
) -> None:
    """Handle signals while the running event loop lives.

    The first Ctrl+C calls `end`, which lets the current round finish. The second one, SIGTERM or SIGHUP calls
    `end_at_once`; work is still saved.
    """
    on_ending_signals(end_at_once, interrupt=lambda: end_at_once() if is_ending() else end())
