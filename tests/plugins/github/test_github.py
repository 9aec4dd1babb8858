"""GitHub's refusals, its lists of many pages, renamed repositories, questions, and what a token is for."""

from __future__ import annotations

import io
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.forge.base import Proposal
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
)
from orchestrator.plugins.github.pull_requests import LONGEST_COMMENT
from orchestrator.plugins.github.transport import GitHubToken
from tests.doubles.github.faults import Fault
from tests.plugins.github.conftest import PROPOSAL

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench

REPOSITORY = "/repos/octo/demo"


# Refusals.


@pytest.mark.parametrize(
    ("fault", "error", "words"),
    [
        (
            Fault("GET", REPOSITORY, status=403, body={"message": "No"}),
            ForgePermissionError,
            "may not do that",
        ),
        (
            Fault("GET", REPOSITORY, status=302, headers={"Location": "http://elsewhere.example/"}),
            ForgeNotFoundError,
            "moved to http://elsewhere",
        ),
        (
            Fault("GET", REPOSITORY, status=301, headers={"Location": "http://elsewhere.example/"}),
            ForgeNotFoundError,
            "another server",
        ),
        (
            Fault("GET", REPOSITORY, status=200, body="<html>Welcome</html>"),
            ForgeError,
            "check --github-url",
        ),
        (Fault("GET", REPOSITORY, status=200, body='{"cut'), ForgeError, "check --github-url"),
        (Fault("GET", REPOSITORY, status=200, body=[]), ForgeError, "check --github-url"),
        (Fault("GET", REPOSITORY, status=200, body={"size": 1}), ForgeError, "check --github-url"),
    ],
)
def test_an_answer_that_is_none_says_what_to_do(
    bench: Bench, fault: Fault, error: type[ForgeError], words: str
) -> None:
    bench.github.faults.append(replace(fault))

    with pytest.raises(error, match=words) as caught:
        bench.forge().repository()

    assert type(caught.value) is error
    assert "\n" not in str(caught.value)


def test_a_wrong_token_is_told_from_none(bench: Bench) -> None:
    with pytest.raises(ForgeAuthenticationError, match=r"does not accept the token \(401: Bad credentials\)"):
        bench.forge("ghp_wrong").repository()


def test_without_a_token_public_repositories_can_be_read(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One", labels=["pullwright"])
    forge = bench.forge(None)

    assert forge.repository().default_branch == "main"
    assert [issue.title for issue in forge.open_issues("pullwright")] == ["One"]
    assert forge.read_file("README.md") == "# Demo\n"
    assert forge.our_pull_requests("") == []
    assert forge.credential() is None


def test_without_a_token_nothing_is_written_and_the_variable_is_named(bench: Bench) -> None:
    forge = bench.forge(GitHubToken(" "))
    with pytest.raises(ForgeAuthenticationError, match="without a token: set GITHUB_TOKEN"):
        forge.ensure_pull_request(PROPOSAL)
    with pytest.raises(ForgeAuthenticationError, match="without a token: set GITHUB_TOKEN"):
        forge.ensure_question(1, "1", "?")
    assert bench.github.requests == []


def test_a_private_repository_looks_missing(bench: Bench) -> None:
    bench.github.add_repository("octo/secret", private=True)
    with pytest.raises(ForgeNotFoundError, match="or it is private: set GITHUB_TOKEN"):
        bench.forge(None, name="octo/secret").repository()
    other = bench.github.token(repositories=["octo/demo"])
    with pytest.raises(ForgeNotFoundError, match="or the token cannot see it"):
        bench.forge(other, name="octo/secret").repository()


def test_a_token_without_the_permission_is_told_which(bench: Bench) -> None:
    token = bench.github.token(permissions={"contents": "write"})
    with pytest.raises(ForgePermissionError, match="lacks the permission pull_requests=write"):
        bench.forge(token).ensure_pull_request(PROPOSAL)


def test_an_archived_repository_refuses_in_its_own_words(bench: Bench) -> None:
    bench.repo.archived = True
    with pytest.raises(ForgePermissionError, match="archived so is read-only"):
        bench.forge().ensure_pull_request(PROPOSAL)


@pytest.mark.parametrize(
    "name", ["demo", "octo/demo/x", "octo/..", "octo/.", "../demo", "oc to/demo", "", "octo/a?b"]
)
def test_a_name_that_is_none_is_refused_at_once(bench: Bench, name: str) -> None:
    with pytest.raises(ConfigurationError, match="give owner/name"):
        bench.forge(name=name or "/")


def test_a_token_with_a_line_end_inside_is_refused_without_being_shown(bench: Bench) -> None:
    with pytest.raises(ConfigurationError, match="GITHUB_TOKEN") as caught:
        bench.forge("ghp_abc\nX-Evil: 1")
    assert "ghp_abc" not in str(caught.value)


# The repository and its files.


def test_a_renamed_repository_is_followed_to_its_new_name(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "Other", labels=["bug"])
    bench.github.add_issue(bench.repo, "One", labels=["pullwright"])
    bench.github.rename(bench.repo, "octo/renamed")
    forge = bench.forge(name="octo/demo")

    assert [issue.title for issue in forge.open_issues("pullwright")] == ["One"]
    assert forge.ensure_pull_request(PROPOSAL)[1]
    assert forge.repository().name == "octo/renamed"
    assert forge.repository().clone_url.endswith("/octo/renamed.git")


def test_a_rename_in_the_middle_of_a_run_is_an_error_that_says_so(bench: Bench) -> None:
    forge = bench.forge()
    forge.repository()
    bench.github.rename(bench.repo, "octo/renamed")
    with pytest.raises(ForgeNotFoundError, match=r"moved to .*: use its new name"):
        forge.ensure_pull_request(PROPOSAL)


def test_an_empty_repository_has_no_default_branch(bench: Bench) -> None:
    bench.github.add_repository("octo/empty", None)
    forge = bench.forge(name="octo/empty")
    assert forge.repository().default_branch is None
    assert forge.read_file("README.md") is None


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("plain\n", "plain\n"),
        (b"\xef\xbb\xbfwith a mark", "with a mark"),
        (b"caf\xe9", "caf\ufffd"),
        (b"", ""),
    ],
)
def test_files_become_text(bench: Bench, content: str | bytes, text: str) -> None:
    bench.github.commit(bench.repo, {"a b/ünï.md": content})
    assert bench.forge().read_file("a b/ünï.md") == text


def test_a_file_over_one_megabyte_is_an_error_not_an_empty_file(bench: Bench) -> None:
    bench.github.commit(bench.repo, {"BACKLOG.md": b"x" * 1_100_000})
    with pytest.raises(ForgeError, match=r"BACKLOG\.md: it is over one megabyte"):
        bench.forge().read_file("BACKLOG.md")


@pytest.mark.parametrize("path", ["../../user", "a/../../b", "/etc/passwd"])
def test_a_path_cannot_reach_another_route(bench: Bench, path: str) -> None:
    with pytest.raises(ForgeError, match="inside the repository"):
        bench.forge().read_file(path)
    assert bench.github.requests == []


# Lists of many pages.


def test_all_pages_of_issues_are_read_oldest_first(bench: Bench) -> None:
    for number in range(250):
        bench.github.add_issue(bench.repo, f"Issue {number}", labels=["pullwright"])
    bench.github.add_pull(bench.repo, "x").labels.append("pullwright")

    found = bench.forge().open_issues("pullwright")

    assert [issue.title for issue in found] == [f"Issue {number}" for number in range(250)]
    assert len(bench.github.calls("GET", "/issues")) == 3


def test_pull_requests_are_read_for_ten_pages_and_no_more(bench: Bench) -> None:
    for number in range(1005):
        bench.github.add_pull(bench.repo, f"pullwright/{number}" if number % 5 == 0 else f"ada/{number}")

    found = bench.forge().our_pull_requests("pullwright/")

    assert [pull.branch for pull in found] == [f"pullwright/{number}" for number in range(1000, 4, -5)]
    assert len(bench.github.calls("GET", "/pulls")) == 10


def test_pull_requests_from_forks_are_not_ours(bench: Bench) -> None:
    bench.github.add_pull(bench.repo, PROPOSAL.branch, fork="mallory/demo")
    bench.github.add_pull(bench.repo, PROPOSAL.branch, fork="octo/copy")
    forge = bench.forge()

    assert forge.our_pull_requests("pullwright/") == []
    assert forge.ensure_pull_request(PROPOSAL)[1]


# Issues.


def test_issues_that_are_switched_off_are_no_issues(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One", labels=["pullwright"])
    bench.repo.has_issues = False
    forge = bench.forge()

    assert forge.open_issues("pullwright") == []
    with pytest.raises(ForgeNotFoundError, match="Issues are disabled"):
        forge.issue(1)


def test_an_issue_that_was_transferred_is_not_taken_for_ours(bench: Bench) -> None:
    other = bench.github.add_repository("octo/other")
    moved = bench.github.add_issue(other, "Moved")
    target = f"{bench.github.url}/repos/octo/other/issues/{moved.number}"
    bench.github.faults.append(
        Fault("GET", f"{REPOSITORY}/issues/5", status=301, headers={"Location": target})
    )

    with pytest.raises(ForgeNotFoundError, match=r"transferred to octo/other$"):
        bench.forge().issue(5)


def test_an_issue_without_a_body_or_a_living_author_is_read(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "Bare", None)
    answer = bench.github.render.issue(bench.repo, issue) | {"user": None}
    bench.github.faults.append(Fault("GET", f"{REPOSITORY}/issues/{issue.number}", status=200, body=answer))

    found = bench.forge().issue(issue.number)

    assert (found.body, found.author) == ("", "")


# Pull requests.


def test_a_draft_becomes_a_normal_one_where_there_are_no_drafts(bench: Bench) -> None:
    bench.repo.allows_drafts = False
    pull, created = bench.forge().ensure_pull_request(PROPOSAL)
    assert (pull.draft, created) == (False, True)


def test_people_decide_whether_an_existing_one_is_a_draft(bench: Bench) -> None:
    forge = bench.forge()
    number = forge.ensure_pull_request(PROPOSAL)[0].number
    bench.repo.pulls[number].draft = False
    assert forge.ensure_pull_request(PROPOSAL)[0].draft is False


def test_nothing_is_written_when_nothing_changed_but_line_ends(bench: Bench) -> None:
    proposal = Proposal(PROPOSAL.branch, "main", "Fix it", "One\n\nTwo\n", draft=True)
    forge = bench.forge()
    number = forge.ensure_pull_request(proposal)[0].number
    bench.repo.pulls[number].body = "One\r\n\r\nTwo"

    forge.ensure_pull_request(proposal)

    assert bench.github.calls("PATCH") == []


@pytest.mark.parametrize(
    ("proposal", "words"),
    [
        (Proposal("pullwright/none", "main", "t", "", draft=False), "head: invalid"),
        (Proposal(PROPOSAL.branch, "none", "t", "", draft=False), "base: invalid"),
        (Proposal(PROPOSAL.branch, "main", "t" * 257, "", draft=False), "title is too long"),
        (Proposal(PROPOSAL.branch, "main", "t", "b" * 65537, draft=True), "body is too long"),
    ],
)
def test_what_github_rejects_is_said_in_its_words(bench: Bench, proposal: Proposal, words: str) -> None:
    with pytest.raises(ForgeError, match=words):
        bench.forge().ensure_pull_request(proposal)


# Questions.


def test_a_marker_that_somebody_else_planted_is_not_ours(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    planted = bench.github.add_comment(
        bench.repo, issue.number, "<!-- pullwright:question:1 -->", author="mallory"
    )

    url = bench.forge().ensure_question(issue.number, "1", "Which?")

    assert planted.body == "<!-- pullwright:question:1 -->"
    assert [comment.author for comment in issue.comments] == ["mallory", "pullwright-bot"]
    assert url is not None
    assert url.endswith(f"#issuecomment-{issue.comments[1].id}")


def test_a_key_cannot_end_the_marker(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    bench.forge().ensure_question(issue.number, "a --> b", "Which?")
    assert issue.comments[0].body == "Which?\n\n<!-- pullwright:question:a%20--%3E%20b -->"


def test_a_question_is_found_on_the_third_page_and_a_long_one_is_cut(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    for number in range(220):
        bench.github.add_comment(bench.repo, issue.number, f"Comment {number}")
    forge = bench.forge()

    forge.ensure_question(issue.number, "1", "x" * 70_000)
    forge.ensure_question(issue.number, "1", "Short?")

    assert len(issue.comments) == 221
    assert issue.comments[-1].body.startswith("Short?")
    assert max(len(seen.body["body"]) for seen in bench.github.calls("POST", "/comments")) == LONGEST_COMMENT


def test_a_question_without_an_issue_has_no_place(bench: Bench) -> None:
    assert bench.forge().ensure_question(None, "x", "?") is None
    assert bench.github.requests == []


# Secrets.


def test_the_token_is_in_no_text(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    token = bench.github.token()
    heard = io.StringIO()
    handler = logging.StreamHandler(heard)
    logging.getLogger().addHandler(handler)
    echo = {"message": f"refused: token {token}"}
    bench.github.faults.append(Fault("GET", f"{REPOSITORY}/contents/x", status=400, body=echo))
    try:
        with caplog.at_level(logging.DEBUG):
            forge = bench.forge(token)
            forge.repository()
            with pytest.raises(ForgeError) as caught:
                forge.read_file("x")
    finally:
        logging.getLogger().removeHandler(handler)

    credential = forge.credential()
    assert credential is not None
    assert (credential.username, credential.password) == ("x-access-token", token)
    assert credential.host == bench.github.web_url.removeprefix("http://")
    texts = [
        repr(forge),
        repr(credential),
        repr(GitHubToken(token)),
        str(caught.value),
        heard.getvalue(),
        caplog.text,
    ]
    assert [text for text in texts if token in text] == []
    assert all(seen.headers["authorization"] == f"token {token}" for seen in bench.github.requests)
