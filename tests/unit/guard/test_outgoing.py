from __future__ import annotations

import difflib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.guard.outgoing import places_of_secrets
from orchestrator.guard.secrets import Redactor

SECRET = "made-up-" + "value-0123456789"
HOLDS = Redactor([SECRET]).holds_secret


def diff(before: str, after: str, path: str = "a.txt") -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(lines)


def test_an_added_secret_is_named_with_its_place() -> None:
    assert places_of_secrets(diff("one\n", f"one\nkey = {SECRET}\n"), HOLDS) == ["a.txt:2"]


def test_a_secret_that_was_there_before_does_not_count() -> None:
    assert places_of_secrets(diff(f"{SECRET}\none\n", f"{SECRET}\ntwo\n"), HOLDS) == []
    assert places_of_secrets(diff(f"{SECRET}\none\n", "one\n"), HOLDS) == []


def test_a_line_that_looks_like_a_file_header_hides_nothing() -> None:
    assert places_of_secrets(diff("one\n", f"one\n++ {SECRET}\n"), HOLDS) == ["a.txt:2"]


def test_a_key_of_several_lines_is_found() -> None:
    holds = Redactor(["line-one-of-it\nline-two-of-it"]).holds_secret
    after = "one\nline-one-of-it\nline-two-of-it\n"
    assert places_of_secrets(diff("one\n", after), holds) == ["a.txt:2"]


@pytest.mark.parametrize("text", ["", "no diff at all\n", "Binary files a/x and b/x differ\n"])
def test_what_adds_nothing_is_clean(text: str) -> None:
    assert places_of_secrets(text, HOLDS) == []


def test_a_diff_that_cannot_be_read_is_looked_at_whole() -> None:
    broken = f"--- a/x\n+++ b/x\n@@ -1,1 +1,9 @@\n+{SECRET}\n"
    assert places_of_secrets(broken, HOLDS) == ["the change"]


@given(st.lists(st.sampled_from(["one", "++", "--", "@@ -1 +1 @@", "diff --git a/x b/x", ""])), st.data())
def test_no_added_line_hides_a_secret(lines: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(lines)))
    after = [*lines[:at], f"x {SECRET}", *lines[at:]]
    before = "".join(f"{line}\n" for line in lines)
    assert places_of_secrets(diff(before, "".join(f"{line}\n" for line in after)), HOLDS)
