"""Merged pull requests with what they closed, as GitHub told it at the time."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from tests.doubles.github import people

if TYPE_CHECKING:
    from tests.doubles.github.state import Issue, Pull
    from tests.plugins.github.conftest import Bench


def merged(bench: Bench, branch: str, *, closes: Issue) -> Pull:
    """A merged pull request of one commit."""
    bench.github.commit(bench.repo, {f"{branch}.py": "new = 1\n"}, branch=branch)
    pull = bench.github.add_pull(bench.repo, branch, title=f"Do {branch}")
    pull.closes = (closes.number,)
    bench.github.merge(bench.repo, pull.number)
    return pull


def test_merged_pull_requests_come_newest_first_with_the_texts_of_their_issues(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "It breaks", "Before.")
    people.collaborate(bench.repo, "ada", "write")
    bench.github.add_comment(bench.repo, issue.number, "I see it too", author="ada")
    bench.github.add_comment(bench.repo, issue.number, "Me too", author="stranger")
    first = merged(bench, "first", closes=issue)
    people.edit(bench.github, issue, "After.", "ada")
    second = merged(bench, "second", closes=issue)
    forge = bench.forge()

    newest, oldest = forge.merged_pull_requests()

    assert [newest.number, oldest.number] == [second.number, first.number]
    assert oldest.merge_commit == first.merge_commit_sha
    assert (oldest.commit_count, oldest.files, oldest.added, oldest.removed) == (1, 1, 1, 0)
    (told,) = oldest.issues
    assert (told.title, told.body) == ("It breaks", "After.")
    assert sorted(one.text for one in told.versions) == ["After.", "Before."]
    assert [(one.author, one.is_writers) for one in told.comments] == [("ada", True), ("stranger", False)]


def test_a_page_is_asked_for_when_it_is_needed(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "It breaks")
    for number in range(27):
        merged(bench, f"b{number}", closes=issue)
    forge = bench.forge()
    found = forge.merged_pull_requests()
    newest = next(found)
    asked = forge.traffic().requests
    assert newest.title == "Do b26"
    assert len(list(found)) == 26
    assert forge.traffic().requests == asked + 1


def test_the_title_is_the_one_of_that_moment(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "It breaks")
    moment = bench.github.tick()
    people.rename(bench.github, issue, "Use max() in total()", "ada")
    people.rename(bench.github, issue, "Fixed by #7", "ada")
    merged(bench, "b", closes=issue)
    forge = bench.forge()
    (pull,) = forge.merged_pull_requests()
    (told,) = pull.issues
    assert forge.title_at(told, moment) == "It breaks"
    assert forge.title_at(told, moment + timedelta(days=9)) == "Fixed by #7"


def test_the_rate_of_issues_needs_some(bench: Bench) -> None:
    forge = bench.forge()
    assert forge.issue_rate() is None
    for number in range(6):
        bench.github.add_issue(bench.repo, f"Issue {number}")
    assert (bench.forge().issue_rate() or 0) > 0
