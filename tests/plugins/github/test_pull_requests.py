"""What is said about pull requests on GitHub: reviews, threads, comments, checks, and who else is at it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.forge.base import ACTIONS_APP, CheckState, FeedbackKind, PullRequestState
from orchestrator.core.errors import ForgeNotFoundError, ForgePermissionError
from orchestrator.plugins.github.parsing import to_pull_request
from orchestrator.plugins.github.pull_requests import _to_paths
from tests.doubles.github.checks import check
from tests.doubles.github.faults import Fault
from tests.doubles.github.reviews import answer_in, review, say
from tests.plugins.github.conftest import PROPOSAL

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench

COMMIT = "a" * 40


# Who else.


def test_open_pull_requests_that_close_an_issue_are_told_from_anywhere(bench: Bench) -> None:
    github, repo = bench.github, bench.repo
    issue = github.add_issue(repo, "One")
    pulls = [
        github.add_pull(repo, "fix", author="ada"),
        github.add_pull(repo, "patch-1", fork="eve/demo", author="eve"),
        github.add_pull(repo, "robot", author="helper[bot]"),
        github.add_pull(repo, "gone", author="ada"),
        github.add_pull(repo, "done", author="ada"),
        github.add_pull(repo, "other", author="ada"),
    ]
    for pull in pulls[:5]:
        pull.closes = (issue.number,)
    pulls[0].labels = ["wip"]
    github.close(repo, pulls[3].number)
    pulls[4].state, pulls[4].merged_at = "closed", github.tick()

    forge = bench.forge()
    found = forge.linked_pull_requests(1)

    assert [(pull.number, pull.author, pull.state) for pull in found] == [
        (2, "ada", PullRequestState.OPEN),
        (3, "eve", PullRequestState.OPEN),
        (4, "helper[bot]", PullRequestState.OPEN),
    ]
    assert (found[0].labels, found[0].created_at, found[0].branch) == (("wip",), pulls[0].created_at, "fix")
    assert len(github.queries) == 1


def test_what_is_no_issue_has_nothing_linked(bench: Bench) -> None:
    bench.github.add_pull(bench.repo, "x")
    for number in (1, 7):
        with pytest.raises(ForgeNotFoundError):
            bench.forge().linked_pull_requests(number)


def test_an_answer_with_holes_is_read(bench: Bench) -> None:
    body = {"data": {"repository": {"issue": {"closedByPullRequestsReferences": {"nodes": [None]}}}}}
    empty = {"data": {"repository": {"issue": {"closedByPullRequestsReferences": None}}}}
    for answer in (body, empty):
        bench.github.faults.append(Fault("POST", "/api/graphql", status=200, body=answer))
    forge = bench.forge()
    assert [forge.linked_pull_requests(1), forge.linked_pull_requests(1)] == [[], []]


def test_an_issue_tells_its_assignees_and_when_it_moved(bench: Bench) -> None:
    issue = bench.github.add_issue(bench.repo, "One")
    issue.assignees = ["ada", "helper[bot]", "imported"]
    bench.github.render.kinds["imported"] = "Mannequin"
    found = bench.forge().issue(1)
    assert found.assignees == ("ada", "helper[bot]", "imported")
    assert found.updated_at == issue.updated_at


def test_a_pull_request_tells_who_opened_it_when_and_its_labels(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, PROPOSAL.branch, author="helper[bot]")
    pull.labels = ["pullwright:rebase"]
    [found] = bench.forge().our_pull_requests("pullwright/")
    assert (found.author, found.labels) == ("helper[bot]", ("pullwright:rebase",))
    assert (found.created_at, found.updated_at) == (pull.created_at, pull.updated_at)


# Words.


def test_everything_that_is_said_comes_oldest_first_in_one_request(bench: Bench) -> None:
    github, repo = bench.github, bench.repo
    pull = github.add_pull(repo, "x")
    comment = github.add_comment(repo, pull.number, "Thanks!", author="bob")
    thread = say(github, pull, "ada", "Why?", "src/a.py", 7)
    review(github, pull, "ada", "Not yet.", "CHANGES_REQUESTED")
    answer_in(github, thread, "helper[bot]", "Because.")
    gone = say(github, pull, "ghost", "Old.", "src/b.py", None)
    gone.is_resolved = True

    found = bench.forge().feedback(pull.number)

    assert [(one.kind, one.author, one.body) for one in found] == [
        (FeedbackKind.COMMENT, "bob", "Thanks!"),
        (FeedbackKind.LINE, "ada", "Why?"),
        (FeedbackKind.REVIEW, "ada", "Not yet."),
        (FeedbackKind.LINE, "helper[bot]", "Because."),
        (FeedbackKind.LINE, "", "Old."),
    ]
    assert [(one.path, one.line, one.is_resolved) for one in found if one.kind is FeedbackKind.LINE] == [
        ("src/a.py", 7, False),
        ("src/a.py", 7, False),
        ("src/b.py", None, True),
    ]
    assert [one.state for one in found] == ["", "", "changes_requested", "", ""]
    assert (found[0].id, found[0].created_at) == (comment.id, comment.created_at)
    assert found[0].url.endswith(f"/octo/demo/pull/1#issuecomment-{comment.id}")
    assert len(github.queries) == 1


def test_only_an_edit_makes_words_younger(bench: Bench) -> None:
    github, repo = bench.github, bench.repo
    pull = github.add_pull(repo, "x")
    plain = review(github, pull, "ada", "One")
    edited = review(github, pull, "ada", "Two")
    edited.edited_at = edited.created_at + timedelta(hours=1)
    changed = github.add_comment(repo, pull.number, "Three")
    changed.updated_at = changed.created_at + timedelta(hours=2)
    first, second, third = bench.forge().feedback(1)
    assert first.updated_at == plain.created_at
    assert second.updated_at == edited.edited_at
    assert third.updated_at == changed.updated_at


def test_what_is_not_sent_off_is_not_there_and_later_has_the_time_of_its_sending(bench: Bench) -> None:
    github, pull = bench.github, bench.github.add_pull(bench.repo, "x")
    draft = review(github, pull, "pullwright-bot", "Hm", "PENDING")
    line = say(github, pull, "pullwright-bot", "Hm too").comments[0]
    line.sent_at = None
    forge = bench.forge()
    assert forge.feedback(1) == []
    draft.state, draft.sent_at = "COMMENTED", draft.created_at + timedelta(hours=1)
    line.sent_at = line.created_at + timedelta(hours=1)
    assert [one.created_at for one in forge.feedback(1)] == [draft.sent_at, line.sent_at]


def test_ids_beyond_32_bits_are_told(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    review(bench.github, pull, "ada", "x").id = 2**40
    assert bench.forge().feedback(1)[0].id == 2**40


def test_the_newest_words_are_told(bench: Bench) -> None:
    pull = bench.github.add_pull(bench.repo, "x")
    for number in range(130):
        bench.github.add_comment(bench.repo, pull.number, f"{number}")
    assert [one.body for one in bench.forge().feedback(1)] == [f"{number}" for number in range(30, 130)]


def test_what_is_no_pull_request_has_no_words(bench: Bench) -> None:
    bench.github.add_issue(bench.repo, "One")
    for number in (1, 7):
        with pytest.raises(ForgeNotFoundError):
            bench.forge().feedback(number)


# Checks.


STATES = [
    ("success", False, CheckState.PASSED),
    ("failure", False, CheckState.FAILED),
    ("timed_out", False, CheckState.FAILED),
    ("action_required", False, CheckState.FAILED),
    ("cancelled", False, CheckState.OTHER),
    ("skipped", False, CheckState.OTHER),
    ("neutral", False, CheckState.OTHER),
    (None, False, CheckState.RUNNING),
    ("success", True, CheckState.PASSED),
    ("failure", True, CheckState.FAILED),
    ("error", True, CheckState.FAILED),
    (None, True, CheckState.RUNNING),
]


def test_a_check_is_what_its_result_is(bench: Bench) -> None:
    for number, (result, is_status, _) in enumerate(STATES):
        check(bench.github, bench.repo, COMMIT, f"{number:02}", result, is_status=is_status)
    found = sorted(bench.forge().checks(COMMIT), key=lambda one: one.name)
    assert [one.state for one in found] == [state for _, _, state in STATES]


def test_the_newest_run_of_a_name_counts_but_not_for_another_app(bench: Bench) -> None:
    for result in ("failure", "success"):
        check(bench.github, bench.repo, COMMIT, "tests", result, f"It was a {result}.")
    check(bench.github, bench.repo, COMMIT, "tests", "failure", app=7)
    check(bench.github, bench.repo, COMMIT, "tests", "failure", "Coverage.", is_status=True)
    found = bench.forge().checks(COMMIT)
    assert [(one.name, one.state, one.summary) for one in found] == [
        ("tests", CheckState.PASSED, "tests\n\nIt was a success."),
        ("tests", CheckState.FAILED, ""),
        ("tests", CheckState.FAILED, "Coverage."),
    ]


def test_every_page_of_runs_is_read(bench: Bench) -> None:
    for number in range(130):
        check(bench.github, bench.repo, COMMIT, f"{number}", "success")
    check(bench.github, bench.repo, COMMIT, "last", "failure")
    found = bench.forge().checks(COMMIT)
    assert len(found) == 131
    assert sum(one.state is CheckState.FAILED for one in found) == 1


def test_unchanged_checks_cost_nothing(bench: Bench) -> None:
    check(bench.github, bench.repo, COMMIT, "tests", None)
    forge = bench.forge()
    first = forge.checks(COMMIT)
    before = len(bench.github.requests)
    assert forge.checks(COMMIT) == first
    assert [seen.status for seen in bench.github.requests[before:]] == [304, 304]
    check(bench.github, bench.repo, COMMIT, "tests", "success")
    assert [one.state for one in forge.checks(COMMIT)] == [CheckState.PASSED]


def test_who_may_not_read_checks_is_told(bench: Bench) -> None:
    body = {"message": "Resource not accessible by personal access token"}
    bench.github.faults.append(Fault("GET", ".*/check-runs", status=403, body=body))
    with pytest.raises(ForgePermissionError, match="read the checks of aaaaaaaaaaaa"):
        bench.forge().checks(COMMIT)


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        (("src/a.py", "docs/b.md"), True),
        ((".github/CODEOWNERS", "src/.github/workflows/ci.yml"), True),
        ((".github/workflows/ci.yml",), False),
        ((".github/workflows/ci.yml", "src/a.py"), False),
        (("src/a.py", "src/b.py", ".github/workflows/ci.yml"), False),
        (("src/a.py", ".github/actions/test/action.yml", "z"), False),
        (tuple(f"src/{number}.py" for number in range(299)), True),
        (
            tuple(f"src/{number}.py" for number in range(300)),
            False,
        ),  # as many as are listed: there may be more
        ((*(f"src/{number}.py" for number in range(300)), "z/../.github/workflows/x"), False),
    ],
)
def test_a_job_counts_only_if_no_changed_file_is_a_workflow(
    bench: Bench, changed: tuple[str, ...], *, counts: bool
) -> None:
    check(bench.github, bench.repo, COMMIT, "tests", "failure")
    bench.repo.changes[COMMIT] = changed
    forge = bench.forge()
    checks = forge.checks(COMMIT)
    assert [one.app for one in checks] == [ACTIONS_APP]
    assert forge.configured_checks(checks, COMMIT, "main") == (checks if counts else [])


@pytest.mark.parametrize("status", [403, 404])
def test_a_job_does_not_count_if_nobody_can_say_what_changed(bench: Bench, status: int) -> None:
    check(bench.github, bench.repo, COMMIT, "tests", "failure")
    bench.repo.changes[COMMIT] = ("src/a.py",)
    body = {"message": "Resource not accessible by personal access token"}
    bench.github.faults.append(Fault("GET", ".*/compare/.*", status=status, body=body))
    forge = bench.forge()
    assert forge.configured_checks(forge.checks(COMMIT), COMMIT, "main") == []


def test_a_workflow_that_is_moved_away_is_changed() -> None:
    moved = {"filename": "old.yml", "previous_filename": ".github/workflows/ci.yml", "status": "renamed"}
    assert _to_paths({"files": [{"filename": "a.py"}, moved]}) == [
        "a.py",
        "old.yml",
        ".github/workflows/ci.yml",
    ]
    assert _to_paths({}) == _to_paths({"files": None}) == []


@pytest.mark.parametrize(("path", "is_status"), [("check-runs", True), ("status", False)])
def test_what_failed_is_seen_although_the_rest_may_not_be_read(
    bench: Bench, path: str, *, is_status: bool
) -> None:
    """Without the other half nothing is known to be well: then a check that passed is no answer."""
    body = {"message": "Resource not accessible by personal access token"}
    bench.github.faults.append(Fault("GET", f".*/{path}", times=9, status=403, body=body))
    check(bench.github, bench.repo, COMMIT, "lint", "success", is_status=is_status)
    with pytest.raises(ForgePermissionError):
        bench.forge().checks(COMMIT)
    check(bench.github, bench.repo, COMMIT, "tests", "failure", is_status=is_status)
    assert "tests" in [one.name for one in bench.forge().checks(COMMIT) if one.state is CheckState.FAILED]


@pytest.mark.parametrize(("state", "conflict"), [("dirty", True), ("clean", False), ("unknown", False)])
def test_a_conflict_is_told(bench: Bench, state: str, *, conflict: bool) -> None:
    bench.github.add_pull(bench.repo, "x").mergeable_state = state
    forge = bench.forge()
    assert forge.has_conflict(1) is conflict
    assert forge.has_conflict(1) is conflict
    assert [seen.status for seen in bench.github.calls("GET", "/pulls/1")] == [200, 304]


def test_a_pull_request_whose_fork_and_author_are_gone_is_read() -> None:
    """GitHub then gives null for both, and keeps the head at `refs/pull/N/head`."""
    data = {
        "number": 7,
        "title": "Fix it",
        "body": None,
        "html_url": "https://github.com/octo/demo/pull/7",
        "state": "open",
        "merged_at": None,
        "user": None,
        "head": {"ref": "fix", "sha": "a" * 40, "repo": None, "user": None},
        "base": {"ref": "main", "sha": "b" * 40},
    }
    found = to_pull_request(data)
    assert (found.author, found.body, found.commit) == ("", "", "a" * 40)
    assert (found.reference, found.base_commit) == ("refs/pull/7/head", "b" * 40)
