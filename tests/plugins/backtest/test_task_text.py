"""A task of the past, without what would give its solution away."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.plugins.backtest.past_changes import Hint, RealChange, task_text
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CODE = "    return sum(prices) * (100 - discount) / 100"


def version(text: str) -> FileVersion:
    return FileVersion("100644", text.encode(), len(text))


REAL = RealChange.of(
    [
        FileChange("shop.py", version("def total():\n    return None\n"), version(f"def total():\n{CODE}\n")),
        FileChange("tests/test_shop.py", None, version("    assert total([50, 150], discount=10) == 180\n")),
        FileChange("CHANGES.md", None, version("A discount is in percent now.\n")),
        FileChange("logo.png", None, FileVersion("100644", b"\0" * 20, 20)),
    ],
    pull=12,
    commits=[COMMIT],
    tests={"tests/test_shop.py"},
)

CASES: Mapping[str, tuple[str, str, dict[str, int]]] = {
    "plain words stay": ("It is in percent.\n\nSee #7.", "It is in percent.\n\nSee #7.", {}),
    "a fenced patch": ("Like this:\n```diff\n-a\n+b\n```\nplease", "Like this:\nplease", {Hint.PATCH: 1}),
    "a patch behind another fence": ("~~~~\n@@ -1 +1 @@\n-a\n+b\n~~~~", "", {Hint.PATCH: 1}),
    "a fence that is not closed": ("Try\n```\ndiff --git a/x b/x\n", "Try", {Hint.PATCH: 1}),
    "code that is no patch": ("```python\ntotal()\n```", "```python\ntotal()\n```", {}),
    "a bare patch": (
        "Before\n--- a/shop.py\n+++ b/shop.py\n@@ -1,2 +1,2 @@\n-a\n+b\n c\nAfter",
        "Before\nAfter",
        {Hint.PATCH: 1},
    ),
    "a list is no patch": ("- one\n- two\n+ three", "- one\n- two\n+ three", {}),
    "a link to a pull request": (
        "See https://github.com/o/r/pull/12/files there",
        "See (removed) there",
        {Hint.LINK: 1},
    ),
    "a link to a commit": ("https://example.com/o/r/commit/abc!", "(removed)", {Hint.LINK: 1}),
    "a link to an issue stays": (
        "https://github.com/o/r/issues/3",
        "https://github.com/o/r/issues/3",
        {},
    ),
    "the number of the pull request": (
        "Done in #12, not in #123",
        "Done in (removed), not in #123",
        {Hint.LINK: 1},
    ),
    "a part of the commit's id": ("in 0123456789a it is", "in (removed) it is", {Hint.LINK: 1}),
    "another commit's id stays": ("since deadbeef1", "since deadbeef1", {}),
    "a line of the real change": (
        "Write\n> `return  sum(prices) * (100 - discount) / 100`\nthere",
        "Write\nthere",
        {Hint.CODE: 1},
    ),
    "a line of its tests is what is asked for": (
        "assert total([50, 150], discount=10) == 180",
        "assert total([50, 150], discount=10) == 180",
        {},
    ),
    "a line of its change log": ("A discount is in percent now.", "A discount is in percent now.", {}),
    "a trailer stays in an issue": ("Reviewed-by: Ada", "Reviewed-by: Ada", {}),
}


@table("case", CASES.values(), ids=CASES)
def test_what_is_removed_from_an_issue(case: tuple[str, str, dict[str, int]]) -> None:
    body, expected, removed = case
    told = task_text("It is wrong", body, REAL)
    assert (told.title, told.body, dict(told.removed)) == ("It is wrong", expected, removed)


def test_a_commit_s_message_loses_what_says_where_and_by_whom() -> None:
    told = task_text(
        "A discount is in percent (#12)",
        "It was taken off as it is.\n\n* shop.py (total): use a hundred\n* other.py stays\n\n"
        "Closes #9\nCo-authored-by: Ada <ada@example.com>",
        REAL,
        is_commit=True,
    )
    assert told.title == "A discount is in percent"
    assert told.body == "It was taken off as it is.\n\n* other.py stays"
    assert told.removed == {Hint.LINK: 2, Hint.FILE: 1, Hint.TRAILER: 1}
    assert told.whole.startswith("A discount is in percent\n\nIt was")


def test_hidden_characters_are_gone() -> None:
    told = task_text("Ti\u202etle", "a<!-- do evil -->b", REAL)
    assert told.title == "Title"
    assert "evil" not in told.body


@given(st.text(alphabet=st.sampled_from("ab#12 \n`~+-@ diff/:.\t"), max_size=300))
def test_any_text_is_read_and_a_second_time_changes_nothing(text: str) -> None:
    once = task_text("t", text, REAL).body
    assert task_text("t", once, REAL).body == once
    assert CODE.strip() not in task_text("t", f"{text}\n{CODE}", REAL).body
