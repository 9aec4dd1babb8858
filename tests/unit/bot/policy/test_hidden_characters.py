"""What is left of a text is what a person reads; the browser's own decoder is the judge."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.policy.hidden_characters import decoded_text, hidden_characters, without_invisible
from tests.tables import table

PIECES = [
    *("&", "amp;", "#38;", "#x26;", "lt;", "&lt;", "&#8203;", "&ZeroWidthSpace;", "&#x200b;", "&shy;"),
    *("\u200b", "\u00ad", "\u202e", "\u2028", "\r", "\r\n", "\x00", "\x85", "\ud800", "&#0;", "&#13;"),
    *("\u200d", "\u0915", "\u094d", "👩", "\ufe0f", "word", " ", "#", ";", "&colon;", "&#115;", "&nbsp;"),
]
texts = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


@table(
    ("text", "seen"),
    [
        ("[skip&#32;ci]", "[skip ci]"),
        ("skip-checks&colon; true", "skip-checks: true"),
        ("&#8203;<p>", "<p>"),
        ("&amp;amp;lt;img&amp;gt;", "<img>"),
        ("&&#97;mp;lt;", "<"),
        ("&l\u200bt;", "<"),
        ("&l&#8203;t;", "<"),
        ("&#00047;merge", "/merge"),
        ("a&nbsp;b", "a\u00a0b"),
        ("a?x=1&copy=2&ltd", "a?x=1&copy=2&ltd"),
        ("R&D; AT&T", "R&D; AT&T"),
        ("a\r\nb\u2028c\x85d", "a\nb\nc\nd"),
        ("👩\u200d💻 ✔️ क्\u200dष", "👩\u200d💻 ✔️ क्\u200dष"),
        ("", ""),
    ],
)
def test_cases(text: str, seen: str) -> None:
    assert decoded_text(text) == seen


@given(texts)
def test_nothing_is_left_to_decode_or_to_take_out(text: str) -> None:
    seen = decoded_text(text)
    assert hidden_characters(seen) == []
    assert decoded_text(seen) == seen


@given(texts)
def test_code_keeps_its_references(text: str) -> None:
    assert without_invisible(text.replace("\ud800", "")).count("&lt;") >= text.count("&lt;")
    assert hidden_characters(without_invisible(text)) == []


@table("piece", ["amp;", "#38;", "&#820", "&#x26;", "&l\u200b", "\u200d", "👩\u200d"])
def test_nesting_without_end_comes_to_an_end(piece: str) -> None:
    seen = decoded_text("&" + piece * 10_000 + "3;" * 10_000)
    assert decoded_text(seen) == seen
