"""The double without HTTP says what the forge reads over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ForgeNotFoundError
from tests.doubles.github.checks import check
from tests.doubles.github.reviews import answer_in, review, say
from tests.doubles.github.state import BranchRule

if TYPE_CHECKING:
    from tests.unit.bot.conftest import World

REQUIRED = {
    "required_status_checks": [
        {"context": "tests", "integration_id": 7},
        {"context": "lint", "integration_id": 8},
        {"context": "tests"},
    ],
    "strict_required_status_checks_policy": False,
}


def test_both_forges_read_the_same(world: World) -> None:
    first, second = world.issue("mallory"), world.issue("ada", body=None)
    world.label(first, "ada")
    world.label(first, "tess", "later")
    world.unlabel(first, "grace", "later")
    world.rename(first, "tess")
    world.edit(second, "mallory")
    world.comment(first, "grace", "I see it too.")
    first.assignees = ["ada"]
    pull = world.github.add_pull(world.repo, "pullwright/issue-1-x", author="pullwright-bot")
    theirs = world.github.add_pull(world.repo, "fix", author="grace")
    theirs.closes = (1,)
    world.github.add_pull(world.repo, "pullwright/issue-2-y", author="ada")
    world.github.close(world.repo, 5)
    world.label_pull(pull, "ada", "pullwright:rebase")
    review(world.github, pull, "grace", "Hm.", "CHANGES_REQUESTED")
    review(world.github, pull, "grace", "Not yet.", "PENDING")
    thread = say(world.github, pull, "ada", "Rename it.")
    answer_in(world.github, thread, "mallory", "No.")
    thread.is_resolved = True
    world.comment_on(pull, "ada", "And this.")
    pull.mergeable_state = "dirty"
    world.repo.rules[1] = BranchRule("required_status_checks", parameters=REQUIRED)
    for name, result, app in (("tests", "failure", 15368), ("tests", "failure", 7), ("tests", "success", 8)):
        check(world.github, world.repo, pull.head_sha, name, result, "words", app=app)
    check(world.github, world.repo, pull.head_sha, "tests", None)
    check(world.github, world.repo, pull.head_sha, "old", "error", is_status=True)
    over_http, memory = world.forge, world.memory
    assert memory.open_issues("pullwright") == over_http.open_issues("pullwright")
    for label in ("pullwright", "later"):
        assert memory.labelled_issues(label) == over_http.labelled_issues(label)
    assert memory.our_pull_requests("pullwright/") == over_http.our_pull_requests("pullwright/")
    for number in (1, 2):
        assert memory.issue(number) == over_http.issue(number)
        assert memory.history(number, "pullwright") == over_http.history(number, "pullwright")
        assert memory.labelled_by(number, "later") == over_http.labelled_by(number, "later")
        assert memory.comments(number) == over_http.comments(number)
        assert memory.linked_pull_requests(number) == over_http.linked_pull_requests(number)
    for login in (
        "ada",
        "grace",
        "root",
        "tess",
        "carla",
        "rita",
        "mallory",
        "octo",
        "ci[bot]",
        "helper[bot]",
        "",
    ):
        assert memory.permission(login) == over_http.permission(login)
    assert memory.feedback(pull.number) == over_http.feedback(pull.number)
    assert memory.has_conflict(pull.number) == over_http.has_conflict(pull.number)
    checks = memory.checks(pull.head_sha)
    assert checks == over_http.checks(pull.head_sha)
    for changed in (("a.py",), (".github/workflows/ci.yml",)):
        world.repo.changes[pull.head_sha] = changed
        configured = memory.configured_checks(checks, pull.head_sha, "main")
        assert configured == over_http.configured_checks(checks, pull.head_sha, "main")
    assert memory.read_file("README.md") == over_http.read_file("README.md")
    assert memory.read_file("none.md") is None
    assert (memory.own_login(), memory.token_kind()) == (over_http.own_login(), over_http.token_kind())
    memory.remove_label(pull.number, "pullwright:rebase")
    assert over_http.our_pull_requests("pullwright/issue-1")[0].labels == ()
    with pytest.raises(ForgeNotFoundError):
        memory.issue(99)
