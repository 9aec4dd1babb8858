"""Other people's text cannot command the terminal."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.app.event_lines import Narrator
from orchestrator.app.words import as_json_text, clean, counted, first_lines, short_line
from orchestrator.core.events import SUMMARY_AGENT, SubagentEvent, TurnStarted
from tests.tables import table


@table(
    ("text", "expected"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;https://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b31mred", "red"),
        ("\x1bPq#0\x1b\\after", "after"),
        ("\x1b]unfinished\nnext", "]unfinished\nnext"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("a\tb\x00\x07\x08\x7fc\x85d", "a\tbc\nd"),
        ("tag\U000e0041\u00ad\u180e\u115f\u3164s", "tags"),
        ("::set-output name=a::b\n  ::error::x", ": :set-output name=a::b\n  : :error::x"),
        ("x ##[add-mask]y ##vso[task.a]b", "x ## [add-mask]y ## vso[task.a]b"),
        ("## Heading\nstd::vector #1", "## Heading\nstd::vector #1"),
        ("user\u202egnp.exe", "usergnp.exe"),
        ("\ufeff\u200bword", "word"),
        ("file\udcff", "file\ufffd"),
        ("größer 👩‍🚀 日本", "größer 👩‍🚀 日本"),
    ],
)
def test_control_is_taken_out(text: str, expected: str) -> None:
    assert clean(text) == expected


@given(st.text(st.characters(exclude_categories=()) | st.sampled_from("\x1b[]\x9b;m\x07\\"), max_size=200))
def test_nothing_that_a_terminal_obeys_is_left(text: str) -> None:
    cleaned = clean(text)
    assert not [char for char in cleaned if unicodedata.category(char) in ("Cc", "Cs") and char not in "\n\t"]
    assert clean(cleaned) == cleaned
    cleaned.encode()


@given(st.text(max_size=300), st.integers(min_value=1, max_value=50))
def test_one_line_is_one_line_and_short(text: str, most: int) -> None:
    line = short_line(text, most)
    assert len(line) <= most
    assert len(line.splitlines()) <= 1


@table(
    ("text", "most", "expected"),
    [
        ("a  b\nc", 10, "a b c"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        (" " * 1000 + "x", 6, "…"),
    ],
)
def test_one_line(text: str, most: int, expected: str) -> None:
    assert short_line(text, most) == expected


def test_one_is_not_many() -> None:
    assert [counted(number, "file") for number in (0, 1, 2, 1234)] == [
        "0 files",
        "1 file",
        "2 files",
        "1,234 files",
    ]


def test_long_output_is_cut_and_says_so() -> None:
    assert first_lines("a\nb", 2) == ["a", "b"]
    assert first_lines("a\n" * 1500, 2) == ["a", "a", "… 1,498 more lines"]
    assert first_lines("abcdef", 2, 3) == ["ab…"]


@table("piece", ["\x1b[", "\x1b]", "\x9b1", "\x1b[1;", "\x1bP"])
def test_hostile_text_takes_linear_time(piece: str) -> None:
    clean(piece * 500_000)


def test_json_holds_no_command_and_says_the_same() -> None:
    value = {"reason": "##[add-mask]x ###vso[a]\x9b31m\u202e\udcff", "##": [1, "ü"]}
    text = as_json_text(value)
    assert "##" not in text
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == value


def test_what_is_written_beside_the_work_says_by_whom() -> None:
    narrator = Narrator()
    for agent, shown in ((SUMMARY_AGENT, "[summary] round 1"), ("0123-4567", "[0123] round 1")):
        line = narrator.line(SubagentEvent(agent, TurnStarted(1, 100, 0.1)))
        assert line is not None
        assert line.text == shown
