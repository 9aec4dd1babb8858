"""Planted values, and every way out: each command with the values in each argument, every error, page and file.

The commands and arguments come from the parser, so that a new one is walked by itself. What looks for the values in the
output shares no code with what takes them out.
"""

from __future__ import annotations

import argparse
import base64
import dataclasses
import html
import json
import os
import re
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from orchestrator.app.cli.arguments import build_parser, subparsers
from orchestrator.app.cli.commands import commands
from orchestrator.app.options import setting_keys
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core import errors
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles import forked
from tests.unit.app.cli.examples import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WORDS, MARKS, SHORT = "zebraquartzmellowfinch", 'Tr0ub"4d\\or&3<xyz', "kq7Vx2mZ"
PLANTED = {"MY_SERVICE_TOKEN": WORDS, "DB_PASSWORD": MARKS, "OTHER_KEY": SHORT}
VALUES = (WORDS, MARKS, SHORT)
IN_ONE = f"{WORDS} {MARKS} {SHORT}"
ENDING = {
    "dashboard": ("--timezone", "no zone"),
    "redteam": ("--only", IN_ONE),
    "init": ("--repo", "nowhere"),
    "doctor": ("--timezone", "no zone"),
}
"""Commands that would wait for visitors or try much, and what makes them end with an error."""


def leaks(text: str) -> list[str]:
    """The planted values that can be read in a text: as they are, or in a usual form."""
    flat = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)
    readings = [flat, html.unescape(flat), unquote(flat), flat.replace('\\"', '"').replace("\\\\", "\\")]
    readings += [reading[::-1] for reading in readings]
    bare = [re.sub(r"[^a-z0-9]", "", reading.lower()) for reading in readings]
    found = []
    for value in VALUES:
        raw = value.encode()
        forms = (
            value,
            raw.hex(),
            base64.b64encode(raw).decode().rstrip("="),
            base64.b64encode(raw[1:]).decode()[:16],
        )
        plain = re.sub(r"[^a-z0-9]", "", value.lower())
        # Of a long value no piece either, also where lines, frames or styles are between.
        pieces = [plain[at : at + 12] for at in range(len(plain) - 11)] or [plain]
        if any(form in reading for form in forms for reading in readings) or any(
            piece in reading for piece in pieces for reading in bare
        ):
            found.append(value)
    return found


def test_what_looks_for_values_finds_them() -> None:
    for value in VALUES:
        for text in (
            value,
            json.dumps(value),
            html.escape(value),
            value[::-1],
            value.encode().hex(),
            value.upper(),
        ):
            assert leaks(f"a {text} b") == [value], text
    assert leaks("│ zebraquartz\n│ mellow\x1b[1mfinch") == [WORDS]
    assert leaks("a [redacted] b, zebra, finch") == []


def _leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    below = subparsers(parser)
    yield words, parser
    for name, one in below.items():
        yield from _leaves(one, (*words, name))


def _required(parser: argparse.ArgumentParser) -> list[str]:
    """Values for what has to be there, with the planted ones where any text may be."""
    words: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction) or action.nargs in {"?", 0}:
            continue
        if not action.option_strings:
            words.append(next(iter(action.choices)) if action.choices else IN_ONE)
        elif action.required:
            words += [action.option_strings[0], IN_ONE]
    return words


def invocations(*, flags: bool) -> Iterator[tuple[str, ...]]:
    """Every command and action with the values in each of its arguments.

    Args:
        flags: whether each flag gets the values, or what stands without one.
    """
    for name, command in subparsers(build_parser()).items():
        for words, parser in _leaves(command, (name,)):
            required, extra = _required(parser), ENDING.get(name, ())
            if not flags:
                yield *words, *required, *extra
                yield *words, *required, *extra, IN_ONE
                yield *words, *required, *extra, f"--{WORDS}={IN_ONE}"
            for action in parser._actions if flags else ():
                takes = action.option_strings and action.nargs != 0
                if takes and (action.dest not in setting_keys() or name == "run"):
                    flag = action.option_strings[-1]
                    yield *words, *required, *extra, flag, IN_ONE
                    yield *words, *required, *extra, f"{flag}={WORDS}"


_RUN_ALL = """
import io, json, sys
from pathlib import Path
from orchestrator.app.cli import main
wanted, place, typed = json.loads(Path(sys.argv[1]).read_text())
told = []
for words in wanted:
    sys.stdin = io.TextIOWrapper(io.BytesIO(typed.encode()), encoding="utf-8")
    out = sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    err = sys.stderr = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    main(words)
    for stream in (out, err):
        stream.flush()
    told.append(f"{out.buffer.getvalue().decode()}\\n{err.buffer.getvalue().decode()}")
Path(place).write_text(json.dumps(told))
"""


class Walk:
    """Runs the program with the values among its variables, and looks at all that it leaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "here"
        self.folder.mkdir()
        self.home = folder / "home"
        kept = ("PATH", "LANG", "HOME", "TMPDIR")
        self.environ = {name: os.environ[name] for name in kept if name in os.environ}
        self.environ |= {
            **PLANTED,
            "PULLWRIGHT_HOME": str(self.home),
            "PULLWRIGHT_CONFIG": str(folder / "config.toml"),
            "PULLWRIGHT_MODEL_PORTS": "none",
        }
        (folder / "config.toml").write_text("")

    def run(self, wanted: list[tuple[str, ...]], typed: str = "") -> list[str]:
        """Run the program with each list of words, one after another in one process; what each of them printed.

        Args:
            typed: what standard input has for each of them.
        """
        orders, told = self.folder.parent / "orders.json", self.folder.parent / "told.json"
        orders.write_text(json.dumps([wanted, str(told), typed]))
        with Path(os.devnull).open("r+b") as nothing:
            streams = (nothing.fileno(), nothing.fileno(), nothing.fileno())
            process = forked.Forked((str(orders),), streams, self.folder, self.environ, code=_RUN_ALL)
            assert process.wait() == 0
        found: list[str] = json.loads(told.read_text())
        return found

    def left(self) -> Iterator[tuple[str, str]]:
        for place in (self.home, self.folder):
            for file in place.rglob("*"):
                if file.is_file():
                    yield str(file), file.read_bytes().decode("utf-8", "replace")


@pytest.fixture
def walk(tmp_path: Path) -> Walk:
    return Walk(tmp_path)


def _walk(walk: Walk, wanted: list[tuple[str, ...]]) -> None:
    told = dict(zip(wanted, walk.run(wanted), strict=True))
    assert all(told.values())
    assert {words: leaks(text) for words, text in told.items() if leaks(text)} == {}
    assert [name for name, text in walk.left() if leaks(text)] == []


def test_no_command_shows_a_value_that_is_typed(walk: Walk) -> None:
    wanted = list(invocations(flags=False))
    assert {words[0] for words in wanted} == set(commands())
    _walk(walk, [(WORDS,), (IN_ONE,), (f"--{WORDS}",), ("-x", IN_ONE), ("help", WORDS), *wanted])


@pytest.mark.slow(reason="calls the program twice for each of its flags, 400 times")
def test_no_flag_shows_a_value_that_is_typed(walk: Walk) -> None:
    _walk(walk, list(invocations(flags=True)))


def with_values(text: str) -> str:
    return f"{text} {IN_ONE}".strip()


def filled(value: Any, change: Callable[[str], str] = with_values) -> Any:
    """An event in which each text holds the planted values, as if the journal had been written without redaction."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {
            field.name: filled(getattr(value, field.name), change) for field in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **parts)
    if isinstance(value, str) and not isinstance(value, StrEnum):
        return change(value)
    if isinstance(value, tuple | list):
        return type(value)(filled(one, change) for one in value)
    if isinstance(value, dict):
        return {f"{key}": filled(item, change) for key, item in value.items()}
    return value


ERRORS = [
    one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, errors.PullwrightError) and one is not errors.PullwrightError
]


def write_raw(home: Home) -> list[str]:
    """Write runs whose journals hold the values: one with every event, and one for each error that can end a run."""
    clock, names = ManualClock(datetime(2026, 11, 23, 14, 0, tzinfo=UTC)), []
    endings = [
        filled(EVENTS),
        *([CycleEnded({"outcome": "failed", "error": f"{one.__name__}: {IN_ONE}"})] for one in ERRORS),
    ]
    for number, events in enumerate(endings):
        names.append(f"20261123-{140000 + number}-ab12cd")
        with JournalWriter(create_run_folder(home, names[-1]), Redactor(), clock) as writer:
            for event in (CycleStarted(names[-1], IN_ONE, IN_ONE, "json-plan", IN_ONE), *events):
                writer(event)
    return names


READING = (
    ("show",),
    ("show", "--verbose"),
    ("show", "--json"),
    ("show", "--state"),
    ("show", "--state", "--json"),
    ("show", "--html", "-"),
    ("show", "--html", "page.html"),
    ("logs",),
)


def test_what_is_read_from_a_journal_is_redacted_again(walk: Walk) -> None:
    first, *others = write_raw(Home(walk.home))
    wanted = [(*words[:1], first, *words[1:]) for words in READING]
    wanted += [("show", one) for one in others[:3]]
    wanted += [("show", "--list"), ("show", "--list", "--json"), ("digest", "--since", "2026-01-01")]
    wanted += [
        ("digest", "--since", "2026-01-01", "--json"),
        ("digest", "--run", first),
        ("digest", "--run", first, "--json"),
    ]
    told = dict(zip(wanted, walk.run(wanted), strict=True))
    assert all(told.values())
    assert {words: leaks(text) for words, text in told.items() if leaks(text)} == {}
    assert leaks((walk.folder / "page.html").read_text()) == []
    assert "[redacted]" in told["show", first]
