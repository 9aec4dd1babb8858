from __future__ import annotations

import difflib
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.policy.outgoing import places_of_secrets
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

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


@table("text", ["", "no diff at all\n", "Binary files a/x and b/x differ\n"])
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


def git_diff(folder: Path, files: dict[str, bytes]) -> str:
    """What git says of files that are new."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = subprocess.run(["git", "diff", "--text", "--cached"], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f"a\n{SECRET}\n".encode("utf-16"), 2),
        (b"\x00\xff\n" + SECRET.encode(), 2),
        (f'x = "{SECRET[:6]}" +\n  "{SECRET[6:]}"\n'.encode(), 2),
        (b'x = ["ghp" + "_",\n "' + b"a1B2" * 9 + b'"]', 1),
        (f"a\r{SECRET}\u2028\x0c\n".encode(), 1),
        ("\n".join(SECRET).encode(), 1),
    ],
)
def test_what_git_calls_binary_and_what_is_in_parts(tmp_path: Path, content: bytes, line: int) -> None:
    assert places_of_secrets(git_diff(tmp_path, {"f": content}), HOLDS) == [f"f:{line}"]


@pytest.mark.parametrize("name", [f"{SECRET}.txt", f"\u00fc {SECRET}"])
@pytest.mark.parametrize("content", [b"", b"x\n", b"\0"])
def test_the_name_of_a_new_file_counts_and_is_not_repeated(tmp_path: Path, name: str, content: bytes) -> None:
    assert places_of_secrets(git_diff(tmp_path, {name: content}), HOLDS) == ["the name of a file"]


def test_a_new_name_counts_and_an_old_one_does_not() -> None:
    head = f"diff --git a/x b/{SECRET}\nsimilarity index 100%\nrename from x\nrename to {SECRET}\n"
    assert places_of_secrets(head, HOLDS) == ["the name of a file"]
    assert places_of_secrets(diff("a\n", "b\n", SECRET), HOLDS) == []


def test_five_megabytes_are_searched() -> None:
    text = diff("", "".join(f"line {number} of it is here\n" for number in range(180_000)))
    assert places_of_secrets(text, HOLDS) == []


def test_a_list_of_hashes_is_no_secret_and_a_key_in_a_list_is() -> None:
    hashes = ", ".join(
        f'"{"0123456789abcdef"[n:] + "9f3b7c"[: n % 6] + "c0ffee1234567890" * 2:.40}"' for n in range(6)
    )
    key = "gh" + "p_" + "a8Kq0Zr3Tn5Wx7Yb2Vc4Md6Fg9Hj1Lp0Qs2R"
    parts = ", ".join(f'"{key[at : at + 9]}"' for at in range(0, len(key), 9))

    def diff(line: str) -> str:
        return f"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -0,0 +1 @@\n+{line}\n"

    holds = Redactor().holds_secret
    assert places_of_secrets(diff(f"x = [{hashes}]"), holds) == []
    assert places_of_secrets(diff(f"x = [{parts}]"), holds) == ["x.py:1"]
