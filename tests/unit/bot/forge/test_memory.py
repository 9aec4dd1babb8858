from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.forge.base import Permission, Proposal
from orchestrator.bot.forge.memory import MemoryForge
from orchestrator.bot.forge.memory_place import START, Written
from orchestrator.core.errors import ForgeError, ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

MINUTE = timedelta(minutes=1)


def forge() -> MemoryForge:
    tips = {"pullwright/issue-1-mend": "c" * 40}
    return MemoryForge(
        "o/n", "/srv/n.git", tips.get, files={"README.md": "hi"}, people={"ada": Permission.ADMIN}
    )


def test_it_knows_its_repository_its_files_and_its_people() -> None:
    there = forge()
    assert (there.repository().name, there.repository().default_branch) == ("o/n", "main")
    assert there.credential() is None
    assert there.read_file("README.md") == "hi"
    assert there.read_file("nothing") is None
    assert there.permission("ada") is Permission.ADMIN
    assert there.permission("eve") is Permission.NONE
    assert there.asked == ["ada", "eve"]


def test_an_issue_has_a_history() -> None:
    there = forge()
    number = there.add_issue("Title", "Body", author="eve")
    assert there.open_issues("go") == []
    there.put_label(number, "go", by="ada")
    there.edit_issue(number, by="eve", title="Other", body="words")
    (issue,) = there.open_issues("go")
    assert (issue.number, issue.title, issue.body, issue.author) == (1, "Other", "words", "eve")
    history = there.history(number, "go")
    assert (history.labelled_by, history.labelled_at) == ("ada", START + MINUTE)
    assert [(edit.editor, edit.what) for edit in history.edits] == [("eve", "title"), ("eve", "body")]
    assert all(edit.at > START + MINUTE for edit in history.edits)
    assert there.history(number, "other").labelled_by is None
    assert (there.labelled_by(number, "go"), there.labelled_by(number, "other")) == ("ada", None)


def test_labels_at_the_opening_are_the_authors() -> None:
    there = forge()
    number = there.add_issue("Title", "Body", author="eve", labels=("go",))
    assert there.history(number, "go").labelled_by == "eve"


@pytest.mark.parametrize("ask", ["issue", "comments"])
def test_what_is_not_there_is_said_so(ask: str) -> None:
    with pytest.raises(ForgeNotFoundError, match="#9"):
        getattr(forge(), ask)(9)
    with pytest.raises(ForgeNotFoundError):
        forge().history(9, "go")
    with pytest.raises(ForgeNotFoundError):
        forge().ensure_label(9, "x")
    with pytest.raises(ForgeNotFoundError):
        forge().ensure_comment(9, "key", "x")


def test_a_pull_request_is_created_once_and_then_brought_up_to_date() -> None:
    there = forge()
    there.add_issue("Title", "Body", author="ada")
    proposal = Proposal("pullwright/issue-1-mend", "main", "T", "B", draft=True)
    pull, created = there.ensure_pull_request(proposal)
    assert (pull.number, pull.commit, pull.draft, created) == (2, "c" * 40, True, True)
    again, created = there.ensure_pull_request(
        Proposal("pullwright/issue-1-mend", "main", "T2", "B2", draft=False)
    )
    assert (again.number, again.title, again.draft, created) == (2, "T2", True, False)
    assert there.our_pull_requests("pullwright/issue-1-") == [again]
    assert there.our_pull_requests("pullwright/issue-2-") == []
    assert [one.text for one in there.written] == ["T", "B", "T2", "B2"]
    with pytest.raises(ForgeError, match="no branch"):
        there.ensure_pull_request(Proposal("pullwright/none", "main", "T", "B", draft=True))


def test_comments_questions_and_labels_are_put_once() -> None:
    there = forge()
    number = there.add_issue("Title", "Body", author="ada")
    there.add_comment(number, "Hello", author="eve")
    first = there.ensure_comment(number, "k", "one")
    assert there.ensure_comment(number, "k", "two") == first
    assert there.ensure_question(number, "k", "why?") != first
    assert there.ensure_question(None, "k", "why?") is None
    assert [(one.author, one.body) for one in there.comments(number)] == [
        ("eve", "Hello"),
        ("pullwright[bot]", "two"),
        ("pullwright[bot]", "why?"),
    ]
    there.ensure_label(number, "weak")
    there.ensure_label(number, "weak")
    assert there.labels(number) == ["weak"]
    assert there.written[-1] == Written(number, "label", "weak")


def test_the_pulse_changes_with_what_happens() -> None:
    heads = {"main": "a" * 40, "pullwright/issue-1-mend": "c" * 40}
    there = MemoryForge("o/n", "/srv/n.git", heads.get)
    proposal = Proposal("pullwright/issue-1-mend", "main", "T", "B", draft=True)
    acts: list[Callable[[], object]] = [
        lambda: there.add_issue("Title", "Body", author="ada"),
        lambda: there.put_label(1, "go", by="ada"),
        lambda: there.ensure_comment(1, "k", "Hello"),
        lambda: there.ensure_comment(1, "k", ""),
        lambda: there.ensure_label(1, "weak"),
        lambda: there.remove_label(1, "WEAK"),
        lambda: there.remove_label(1, "GO"),
        lambda: there.ensure_pull_request(proposal),
        lambda: heads.update(main="b" * 40),
    ]
    before = there.pulse()
    for act in acts:
        act()
        after = there.pulse()
        assert after != before
        assert there.pulse() == after
        before = after
    assert (there.labels(1), there.issue(1).labels, there.comments(1)) == ([], (), [])


def test_a_comment_that_was_taken_back_is_made_anew() -> None:
    there = forge()
    number = there.add_issue("Title", "Body", author="ada")
    first = there.ensure_comment(number, "k", "one")
    there.ensure_comment(number, "k", " ")
    assert there.ensure_comment(number, "k", "two") != first
    assert [one.body for one in there.comments(number)] == ["two"]
    with pytest.raises(ForgeNotFoundError):
        there.remove_label(9, "x")
