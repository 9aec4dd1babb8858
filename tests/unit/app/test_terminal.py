"""Tests of the terminal's border: what it takes out, and what it leaves whole."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from orchestrator.app.terminal import CLOSED, RedactedOutput, known_secrets, redact_terminal
from orchestrator.app.words import visible_characters
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import Redactor
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from typing import TextIO

ROOT = Path(__file__).parents[3]
SECRET = "zebraquartzmellowfinch"
SHORT = "kq7-Vx2m"
KNOWN = Redactor([SECRET, SHORT])


def written(*pieces: str, flush: bool = False) -> str:
    stream = io.StringIO()
    output = RedactedOutput(stream, lambda: KNOWN)
    for piece in pieces:
        output.write(piece)
        if flush:
            output.flush()
    output.flush()
    return stream.getvalue()


@table(
    ("pieces", "shown"),
    [
        (["a", " text\n"], "a text\n"),
        ([f"a {SECRET} b\n"], f"a {REPLACEMENT} b\n"),
        ([f"a {SHORT} b"], f"a {REPLACEMENT} b"),
        (list(f"a {SECRET} b"), f"a {REPLACEMENT} b"),
        ([f"a {SECRET[:11]}\x1b[31m{SECRET[11:]}\x1b[0m b"], f"a {REPLACEMENT}\x1b[31m\x1b[0m b"),
        ([f"│ {SECRET[:11]}\n", f"{SECRET[11:]} b"], f"│ {REPLACEMENT}\n{REPLACEMENT} b"),
        ([f"│ {SECRET[:11]}\n{SECRET[11:]} b"], f"│ {REPLACEMENT}\n b"),
        (["\x1b[2K\x1b[1A no secret\n"], "\x1b[2K\x1b[1A no secret\n"),
        ([""], ""),
    ],
)
def test_what_is_written(pieces: list[str], shown: str) -> None:
    assert written(*pieces) == shown


@given(st.data())
def test_a_value_in_any_pieces_and_with_any_styles_is_not_shown(data: st.DataObject) -> None:
    styles = st.sampled_from(["", "\x1b[1m", "\x1b[0m", "\x1b[38;5;12m", "\x1b]8;;x\x1b\\", "\n", "\r"])
    text = "".join(data.draw(styles) + letter for letter in SECRET)
    pieces = data.draw(st.lists(st.integers(1, 9)))
    parts, at = [], 0
    for size in pieces:
        parts.append(text[at : at + size])
        at += size
    flat = visible_characters(written("so ", *parts, text[at:], " it is").replace("\r", "").replace("\n", ""))
    assert not [at for at in range(len(SECRET) - 11) if SECRET[at : at + 12] in flat]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=30), max_size=8))
def test_other_text_is_written_as_it_is(pieces: list[str]) -> None:
    assert written(*pieces) == "".join(pieces)


def test_time_grows_with_the_text_only() -> None:
    line = f"some text of a program, and a number 12345 \x1b[1m{SECRET}\n"
    grows(lambda text: written(*text.splitlines(keepends=True)), ("", line, ""))
    grows(written, ("", line, ""))


def test_what_rich_wraps_and_frames_is_not_shown() -> None:
    stream = io.StringIO()
    output = RedactedOutput(stream, lambda: Redactor([SECRET]))
    console = Console(file=cast("TextIO", output), width=16, force_terminal=True)
    console.print(Panel(Text(f"it is {SECRET}, there", style="bold red")))
    plain = visible_characters(stream.getvalue()).replace("│", "").replace("\n", "").replace(" ", "")
    assert SECRET[:12] not in plain
    assert SECRET[-12:] not in plain
    assert "there" in plain


def test_bytes_are_redacted_too() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="utf-8")
    output = RedactedOutput(stream, lambda: Redactor([SECRET]))
    output.buffer.write(f"ä {SECRET}\n".encode())
    output.buffer.flush()
    assert raw.getvalue().decode() == f"ä {REPLACEMENT}\n"
    assert not hasattr(output, "detach")


def test_json_is_redacted_before_it_is_encoded_and_stays_json() -> None:
    value = 'quote"back\\slash-ümlaut-1234'
    stream = io.StringIO()
    output = RedactedOutput(stream, lambda: Redactor([value]))
    output.write_json({value: ["x", value, {"n": 1}], "parts": [value[:14], value[14:]]})
    assert json.loads(stream.getvalue()) == {
        REPLACEMENT: ["x", REPLACEMENT, {"n": 1}],
        "parts": [REPLACEMENT, REPLACEMENT],
    }


def test_a_secret_that_is_learnt_later_is_known_to_the_terminal() -> None:
    before = sys.stdout, sys.stderr
    out = sys.stdout = io.StringIO()
    try:
        end = redact_terminal()
        sys.stdout.write(f"{SECRET}\n")
        known_secrets({"MY_TOKEN": SECRET})
        sys.stdout.write(f"{SECRET}\n")
        end()
    finally:
        sys.stdout, sys.stderr = before
    assert out.getvalue() == f"{SECRET}\n{REPLACEMENT}\n"


_FAILING = """
import logging, sys, threading, warnings
sys.argv = ["pullwright"]
import orchestrator.app.cli as cli
def main():
    warnings.warn(f"warned {SECRET}")
    logging.error(SECRET)
    thread = threading.Thread(target=lambda: 1 / SECRET)
    print("held", SECRET, end="")
    raise RuntimeError(SECRET)
cli.main = main
from orchestrator.__main__ import start
import os
SECRET = os.environ["MY_SERVICE_TOKEN"]
start()
"""


def test_an_error_that_nobody_handles_and_warnings_are_redacted() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FAILING],
        env={"MY_SERVICE_TOKEN": SECRET, "PATH": "/usr/bin:/bin"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout == f"held {REPLACEMENT}"
    assert f"RuntimeError: {REPLACEMENT}" in done.stderr
    assert f"warned {REPLACEMENT}" in done.stderr


def test_a_terminal_that_is_closed_and_progress_without_a_reader_end_no_work() -> None:
    master, slave = os.openpty()
    reading, writing = os.pipe()
    with os.fdopen(slave, "w") as terminal, os.fdopen(writing, "w") as pipe:
        os.close(master)
        os.close(reading)
        for output in (RedactedOutput(terminal, Redactor), RedactedOutput(pipe, Redactor, gone=CLOSED)):
            for _ in range(3):
                output.write("working\n")
                output.flush()


def test_a_result_without_a_reader_is_an_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        output = RedactedOutput(pipe, Redactor)
        output.write("a result\n")
        with pytest.raises(BrokenPipeError):
            output.flush()
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, writing)  # what the stream has kept is written when it is closed
        os.close(nothing)
