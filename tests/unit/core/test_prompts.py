"""Text of others stays inside its block, and a name stays one line."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.prompts import fenced, one_line


@given(st.text(alphabet=st.sampled_from("`~a \n\r"), max_size=40))
def test_no_line_of_the_text_can_close_the_block(text: str) -> None:
    block = fenced(text)
    first, *inside, last = block.split("\n")
    assert first == last
    assert set(first) == {"`"}
    assert not any(first in line for line in inside)
    shown = text.replace("\r\n", "\n")
    assert "\n".join(inside) == shown.removesuffix("\n")


def test_a_block_begins_with_three_and_grows_where_it_must() -> None:
    assert fenced("a") == "```\na\n```"
    assert fenced("a\n") == "```\na\n```"
    assert fenced("") == "```\n```"
    assert fenced("````js\n````") == "`````\n````js\n````\n`````"


@given(st.text(max_size=30), st.integers(1, 30))
def test_a_line_is_one_visible_line_within_its_limit(text: str, limit: int) -> None:
    line = one_line(text, limit=limit)
    assert len(line) <= limit
    assert line.isprintable()
    assert "`" not in line
    line.encode()


def test_what_cannot_be_seen_is_escaped() -> None:
    assert one_line("a`b\n\u202ec\U000e0041", limit=99) == "a\\x60b\\x0a\\u202ec\\U000e0041"
    assert one_line(os.fsdecode(b"caf\xe9.txt"), limit=99) == "caf\\xe9.txt"
    assert one_line("été 日本 😀 `x`", limit=99, keep="`") == "été 日本 😀 `x`"
    assert one_line("abcdef", limit=4) == "abc…"
