"""The fingerprint: what it costs, what shows in it, and a repository that is renamed meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.forge.base import Traffic
from tests.doubles.github import bare, checks, people
from tests.doubles.github.faults import Fault
from tests.plugins.github.conftest import PROPOSAL

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.plugins.github.forge import GitHubForge
    from tests.plugins.github.conftest import Bench


@pytest.fixture
def busy(bench: Bench) -> Bench:
    """A hundred open issues, and a pull request."""
    for number in range(100):
        bench.github.add_issue(bench.repo, f"Issue {number}", labels=["pullwright"])
    bench.github.add_pull(bench.repo, PROPOSAL.branch)
    return bench


def opened(bench: Bench) -> GitHubForge:
    forge = bench.forge()
    forge.repository()
    return forge


def test_an_idle_poll_of_a_hundred_issues_costs_two_requests_and_then_none_that_counts(busy: Bench) -> None:
    forge = opened(busy)
    before = forge.traffic()
    first = forge.fingerprint()
    assert (forge.traffic() - before).requests == 2
    remaining, before = busy.github.remaining, forge.traffic()
    for polls in (1, 2, 3):
        assert forge.fingerprint() == first
        assert forge.traffic() - before == Traffic(requests=2 * polls, unchanged=2 * polls)
    assert busy.github.remaining == remaining


def test_the_work_after_a_change_is_not_a_request_for_each_issue(busy: Bench) -> None:
    forge = opened(busy)
    before = forge.traffic()
    assert len(forge.open_issues("pullwright")) == 100
    assert len(forge.our_pull_requests("pullwright/")) == 1
    assert (forge.traffic() - before).requests == 2


CHANGES: dict[str, Callable[[Bench], object]] = {
    "comment": lambda b: b.github.add_comment(b.repo, 1, "Hello"),
    "issue": lambda b: b.github.add_issue(b.repo, "New"),
    "label": lambda b: people.label(b.github, b.repo.threads[7], "bug", "ada"),
    "label off": lambda b: people.unlabel(b.github, b.repo.threads[7], "pullwright", "ada"),
    "edit": lambda b: people.edit(b.github, b.repo.threads[3], "words", "ada"),
    "closed issue": lambda b: b.github.close(b.repo, 50),
    "closed pull request": lambda b: b.github.close(b.repo, 101),
    "merged pull request": lambda b: b.github.merge(b.repo, 101),
    "push to main": lambda b: b.github.commit(b.repo, {"x": "x"}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_shows(busy: Bench, change: Callable[[Bench], object]) -> None:
    forge = opened(busy)
    first = forge.fingerprint()
    before = forge.traffic()
    change(busy)
    assert forge.fingerprint() != first
    assert (forge.traffic() - before).requests == 2


def test_a_change_of_a_closed_issue_shows(busy: Bench) -> None:
    busy.github.close(busy.repo, 50)
    forge = opened(busy)
    first = forge.fingerprint()
    busy.github.add_comment(busy.repo, 50, "It is broken again.")
    assert forge.fingerprint() != first


def test_two_labels_within_a_second_show(busy: Bench) -> None:
    forge, thread = opened(busy), busy.repo.threads[7]
    people.label(busy.github, thread, "bug", "ada")
    first = forge.fingerprint()
    people.label(busy.github, thread, "late", "ada", thread.updated_at)
    assert forge.fingerprint() != first


def test_runs_of_checks_and_other_branches_do_not_show(busy: Bench) -> None:
    forge = opened(busy)
    first = forge.fingerprint()
    commit = busy.github.commit(busy.repo, {"y": "y"}, branch="someone/else")
    checks.check(busy.github, busy.repo, commit, "ci", "success")
    checks.check(busy.github, busy.repo, busy.repo.branches()["main"], "ci", "failure")
    busy.github.add_issue(busy.github.add_repository("octo/other"), "Elsewhere")
    assert forge.fingerprint() == first


def test_without_issues_pull_requests_still_show(busy: Bench) -> None:
    busy.repo.has_issues = False
    forge = opened(busy)
    first, before = forge.fingerprint(), forge.traffic()
    assert forge.fingerprint() == first
    assert (forge.traffic() - before) == Traffic(2, 2, 0)
    busy.github.close(busy.repo, 101)
    assert forge.fingerprint() != first


def test_issues_that_are_switched_off_meanwhile_are_noticed(busy: Bench) -> None:
    forge = opened(busy)
    first = forge.fingerprint()
    busy.repo.has_issues = False
    second = forge.fingerprint()
    before = forge.traffic()
    assert first != second == forge.fingerprint()
    assert (forge.traffic() - before).requests == 2


def test_a_renamed_repository_is_followed(busy: Bench) -> None:
    forge = opened(busy)
    first = forge.fingerprint()
    busy.github.rename(busy.repo, "octo/renamed")
    assert forge.fingerprint() == first
    busy.github.add_comment(busy.repo, 1, "Hello")
    assert forge.fingerprint() != first
    assert forge.repository().name == "octo/renamed"


def test_a_former_name_is_good_enough_to_begin_with(busy: Bench) -> None:
    busy.github.rename(busy.repo, "octo/renamed")
    forge = busy.forge(name="octo/demo")
    assert forge.fingerprint() == forge.fingerprint()


def test_a_default_branch_that_is_gone_is_asked_for_again(busy: Bench) -> None:
    forge = opened(busy)
    first = forge.fingerprint()
    bare.git(busy.repo.path, "branch", "-m", "main", "trunk")
    busy.repo.default_branch = "trunk"
    second = forge.fingerprint()
    assert first != second == forge.fingerprint()


def test_an_answer_that_is_not_githubs_is_an_error(busy: Bench) -> None:
    forge = opened(busy)
    busy.github.faults.append(Fault("GET", ".*/issues", status=200, body=[{"number": 1}]))
    with pytest.raises(Exception, match="does not have GitHub's form"):
        forge.fingerprint()
