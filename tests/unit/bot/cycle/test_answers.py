"""Whose words count as the answer to a question, and what they say."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from orchestrator.bot.cycle.claimer import find_answer, spelled_out
from orchestrator.bot.cycle.tasks import Remark
from orchestrator.bot.forge.base import Comment
from tests.tables import table

START = datetime(2026, 11, 21, tzinfo=UTC)
QUESTION = "Floats too?\n\n1. Yes, with rounding\n2. No"
ASKED = "https://example.com/1#c10"


def comment(number: int, author: str, body: str) -> Comment:
    at = START + timedelta(minutes=number)
    return Comment(number, author, body, at, f"https://example.com/1#c{number}")


def answer(*comments: Comment, url: str = ASKED) -> Remark | None:
    return find_answer(
        comments, QUESTION, url, lambda login: login in {"maint", "bot"}, lambda text, _who: text
    )


OURS = comment(10, "bot", "**Question**\n\n<!-- pullwright:question:issue-1 -->")


def test_nobody_answered() -> None:
    assert answer(OURS) is None


def test_what_was_said_before_is_no_answer() -> None:
    assert answer(comment(9, "maint", "2"), OURS) is None


def test_a_stranger_is_not_heard() -> None:
    assert answer(OURS, comment(11, "stranger", "1"), comment(12, "maint", "2")) == Remark(
        "maint", "2. No", trusted=True
    )


def test_the_first_answer_counts() -> None:
    found = answer(OURS, comment(11, "maint", "1"), comment(12, "maint", "2"))
    assert found == Remark("maint", "1. Yes, with rounding", trusted=True)


def test_our_own_words_are_no_answer() -> None:
    ours = comment(11, "bot", "Working on it.\n\n<!-- pullwright:comment -->")
    assert answer(OURS, ours) is None


def test_a_copy_of_the_question_elsewhere_is_not_the_question() -> None:
    copy = comment(5, "stranger", OURS.body)
    assert answer(copy, comment(6, "maint", "1"), url="https://example.com/1#gone") is None


@table(
    ("words", "said"),
    [
        ("2", "2. No"),
        (" 1. ", "1. Yes, with rounding"),
        ("#2", "2. No"),
        ("Option 2", "2. No"),
        ("2) but only for add()", "2. No\n\nbut only for add()"),
        ("3", "3"),
        ("Neither: use Decimal", "Neither: use Decimal"),
        ("2026 is fine", "2026 is fine"),
    ],
)
def test_a_number_stands_for_its_choice(words: str, said: str) -> None:
    assert spelled_out(words, QUESTION) == said
