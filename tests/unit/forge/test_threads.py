"""Comments and labels on GitHub: the newest pages, one comment for a key, one label."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ForgeAuthenticationError, ForgeNotFoundError, ForgePermissionError
from orchestrator.forge.comment_sections import sections_of
from orchestrator.forge.github import GitHubApp
from tests.doubles.github.faults import lost_reply

if TYPE_CHECKING:
    from tests.unit.forge.conftest import Bench


def talk(bench: Bench, count: int) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    for number in range(count):
        bench.github.add_comment(bench.repo, issue.number, f"Comment {number}", author="bob")


@pytest.mark.parametrize(("count", "first", "pages"), [(0, 0, 1), (100, 0, 1), (250, 50, 3), (501, 301, 4)])
def test_the_newest_comments_come_oldest_first(bench: Bench, count: int, first: int, pages: int) -> None:
    talk(bench, count)
    found = bench.forge().comments(1)
    assert [comment.body for comment in found] == [f"Comment {number}" for number in range(first, count)]
    assert len(bench.github.calls("GET", "/comments")) == pages


def test_a_comment_tells_who_when_and_where(bench: Bench) -> None:
    talk(bench, 1)
    bench.github.add_comment(bench.repo, 1, "", author="ghost")
    bench.github.add_comment(bench.repo, 1, "Hello", author="helper[bot]")
    first, second, third = bench.forge().comments(1)
    assert (first.author, second.author, third.author) == ("bob", "", "helper[bot]")
    assert first.created_at == bench.repo.issues[1].comments[0].created_at
    assert first.url.endswith(f"/octo/demo/issues/1#issuecomment-{first.id}")


def test_a_thread_that_is_not_there_has_no_comments(bench: Bench) -> None:
    with pytest.raises(ForgeNotFoundError):
        bench.forge().comments(7)


def test_a_comment_goes_on_a_pull_request_and_beside_a_question(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    forge = bench.forge()
    forge.ensure_question(pull.number, "k", "Which?")
    url = forge.ensure_comment(pull.number, "k", "Held back.")
    assert forge.ensure_comment(pull.number, "k", "Held back, again.") == url
    assert [comment.body for comment in pull.comments] == [
        "Which?\n\n<!-- pullwright:question:k -->",
        "<!-- pullwright:section:k -->\nHeld back, again.\n\n<!-- pullwright:comment -->",
    ]
    assert url.endswith(f"#issuecomment-{pull.comments[1].id}")


def test_a_comment_with_a_planted_marker_is_not_ours(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    bench.github.add_comment(bench.repo, 1, "<!-- pullwright:comment:k -->", author="mallory")
    bench.forge().ensure_comment(1, "k", "Ours.")
    assert [comment.author for comment in bench.repo.issues[1].comments] == ["mallory", "pullwright-bot"]


def test_an_app_finds_its_own_comment(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    bench.github.add_issue(bench.repo, "One")
    bench.github.add_comment(bench.repo, 1, "<!-- pullwright:comment:k -->", author="mallory")
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    assert forge.ensure_comment(1, "k", "Ours.") == forge.ensure_comment(1, "k", "Ours, still.")
    assert [sections_of(comment.body) for comment in bench.repo.issues[1].comments[1:]] == [
        {"k": "Ours, still."}
    ]


def test_a_label_goes_on_once(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    pull.labels.append("bug")
    forge = bench.forge()
    for name in ("weaker-tests", "Weaker-Tests", "bug"):
        forge.ensure_label(pull.number, name)
    assert pull.labels == ["bug", "weaker-tests"]
    assert len(bench.github.calls("POST", "/labels")) == 1


def test_a_label_whose_reply_was_lost_is_put_on_again(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    bench.github.faults.append(lost_reply("POST", ".*/labels"))
    bench.forge().ensure_label(pull.number, "weaker-tests")
    assert pull.labels == ["weaker-tests"]


def test_nothing_is_said_or_labelled_without_leave(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    reader = bench.forge(bench.github.token(permissions={"issues": "read", "contents": "read"}))
    with pytest.raises(ForgePermissionError, match="issues=write"):
        reader.ensure_label(1, "x")
    with pytest.raises(ForgePermissionError, match="issues=write"):
        reader.ensure_comment(1, "k", "x")
    before = len(bench.github.requests)
    nobody = bench.forge(None)
    with pytest.raises(ForgeAuthenticationError, match="set GITHUB_TOKEN"):
        nobody.ensure_label(1, "x")
    with pytest.raises(ForgeAuthenticationError, match="set GITHUB_TOKEN"):
        nobody.ensure_comment(1, "k", "x")
    assert len(bench.github.requests) == before
