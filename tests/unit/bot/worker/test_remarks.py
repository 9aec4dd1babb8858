from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import Comment
from orchestrator.bot.worker.task_rules import MOST_CHARACTERS, MOST_REMARKS, CommentsPolicy, choose_remarks
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.bot.cycle.tasks import Remark


def comment(author: str, body: str) -> Comment:
    return Comment(1, author, body, datetime(2026, 1, 1, tzinfo=UTC), "")


def chosen(*comments: Comment, policy: CommentsPolicy = "quoted") -> tuple[Remark, ...]:
    return choose_remarks(comments, policy, lambda login: login == "ada", lambda text, _author: text)


OURS = "Which one?\n\n<!-- pullwright:question:issue-1 -->"


@table(
    ("author", "body", "kept"),
    [
        ("ada", OURS, False),
        ("ada", OURS.replace("\n", "\r\n") + "\r\n ", False),
        ("ada", "<!-- pullwright:comment:held -->", False),
        ("mallory", OURS, True),
        ("ada", "> Which one?\n> <!-- pullwright:question:issue-1 -->\n\nThat one.", True),
        ("ada", "See <!-- pullwright:question:issue-1 -->", True),
        ("ada", "<!-- pullwright-like -->", True),
        ("ada", " \n", False),
    ],
)
def test_what_we_wrote_ourselves_is_left_out(author: str, body: str, *, kept: bool) -> None:
    assert bool(chosen(comment(author, body))) is kept


def test_many_strangers_do_not_push_out_who_may_write() -> None:
    flood = [comment("mallory", f"Spam {number}") for number in range(80)]
    remarks = chosen(comment("ada", "First."), *flood, comment("ada", "Last."))
    assert len(remarks) == MOST_REMARKS
    assert [remarks[0].text, remarks[1].text, remarks[-2].text, remarks[-1].text] == [
        "First.",
        "Spam 32",
        "Spam 79",
        "Last.",
    ]


def test_the_newest_stay_and_together_they_have_an_end() -> None:
    remarks = chosen(*[comment("ada", f"{number}" * 9_000) for number in range(4)])
    assert [remark.text[0] for remark in remarks] == ["1", "2", "3"]
    assert remarks[0].text.endswith("…")
    assert sum(len(remark.text) for remark in remarks) == MOST_CHARACTERS


def test_the_end_counts_what_is_left_after_cleaning() -> None:
    remarks = choose_remarks(
        [comment("ada", "x" * 30_000), comment("ada", "y" * 30_000)],
        "writers",
        lambda _login: True,
        lambda text, _author: text[:5],
    )
    assert [remark.text for remark in remarks] == ["xxxxx", "yyyyy"]


def test_none_means_none() -> None:
    assert chosen(comment("ada", "Hello."), policy="none") == ()
