"""Text of others stays inside its block, and a name stays one line."""

from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from orchestrator.core.prompts import cut, fence_after, fenced, one_line
from tests.tables import table


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


def code_lines(text: str) -> list[int]:
    """Return the numbers of the lines of code blocks, with their fences."""
    found, fence = [], ""
    for number, line in enumerate(text.split("\n")):
        before, fence = fence, fence_after(line, fence)
        if before or fence:
            found.append(number)
    return found


@table(
    ("text", "expected"),
    [
        ("a\n```\nb\n```\nc", [1, 2, 3]),
        ("~~~ py `x`\na\n~~~\nb", [0, 1, 2]),
        ("``` py\na", [0, 1]),
        ("``` `x`\na", []),
        ("```x``` is code\na", []),
        ("``\na\n``", []),
        ("```\n~~~\n```\na", [0, 1, 2]),
        ("````\n```\n`````\na", [0, 1, 2]),
        ("```\na\n``` b\n```\nc", [0, 1, 2, 3]),
        ("```\na\n``` \t\nb", [0, 1, 2]),
        ("   ```\na\n  ```\nb", [0, 1, 2]),
        ("```\na\n    ```\n```\nb", [0, 1, 2, 3]),
        ("\n    ```\na", []),
        ("\t```\na", []),
        ("```\r\na\r\n```\r\nb", [0, 1, 2]),
    ],
)
def test_where_a_block_of_code_begins_and_ends(text: str, expected: list[int]) -> None:
    assert code_lines(text) == expected


@given(st.lists(st.text(st.sampled_from("``~~ \ta"), max_size=8), max_size=8))
def test_a_parser_of_commonmark_finds_the_same_blocks(lines: list[str]) -> None:
    text = "\n".join([*lines, "the last"])
    blocks = [token.map for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]
    assert code_lines(text) == [number for block in blocks if block for number in range(*block)]


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


def test_a_text_is_cut_to_the_limit_and_an_ellipsis_is_a_part_of_it() -> None:
    assert [cut("ab cd", limit) for limit in range(6)] == ["…", "…", "a…", "ab…", "ab…", "ab cd"]
