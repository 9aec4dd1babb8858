"""When no new task is begun, on GitHub, through the whole program."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.github import people, reviews
from tests.doubles.github.checks import check
from tests.scenarios.hosted import BRANCH, Hosted, minutes_ago
from tests.scenarios.stage import FINISH, FIX_IT, FIXED, PROPOSE, Stage, do

if TYPE_CHECKING:
    from tests.doubles.github.server import GitHub

slow = pytest.mark.slow(reason="several whole cycles over HTTP; three of this file are in the default tier")

UPDATE = do(("edit_file", {"path": "README.md", "old_text": "# Calc", "new_text": "# Sum"}), PROPOSE, FINISH)


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    return Hosted.begin(github, stage)


def test_one_task_is_one_branch_and_one_pull_request(hosted: Hosted, stage: Stage) -> None:
    pull = hosted.propose()
    assert pull.head == BRANCH
    hosted.repo.issues[1].title = "add() is wrong"
    assert "open pull request" in hosted.left_alone()
    assert "open pull request" in hosted.left_alone("--issue", "1")
    reviews.say(hosted.github, pull, "ada", "Rename the project, please.")
    stage.script(UPDATE)
    assert stage.run().result["outcome"] == "proposed"
    assert list(hosted.repo.pulls) == [pull.number]
    assert hosted.repo.branches().keys() == {"main", BRANCH}
    assert hosted.repo.show(BRANCH, "README.md") == b"# Sum\n"
    assert hosted.repo.show(BRANCH, "calc.py") == FIXED.encode()
    assert (pull.body or "").rstrip().endswith("<!-- pullwright:task:issue-1 -->")
    assert hosted.asked == 2


LIMITS = {
    "--max-open-prs": "--max-open-prs is 1: merge or close #2",
    "--max-prs-per-day": "--max-prs-per-day is 1: the next one may be at",
    "--max-unreviewed": "--max-unreviewed is 1: review or comment on #2",
}


@slow
def test_each_limit_stops_new_tasks_and_none_stops_upkeep(hosted: Hosted, stage: Stage) -> None:
    pull = hosted.propose()
    pull.created_at = minutes_ago(0)
    hosted.issue("second")
    for flag, reason in LIMITS.items():
        assert reason in hosted.left_alone(flag, "1")
    check(hosted.github, hosted.repo, hosted.tip, "tests", "failure", "1 failed")
    stage.script(UPDATE)
    done = stage.run(*(word for flag in LIMITS for word in (flag, "1")))
    assert done.result["pull_request"]["number"] == pull.number
    assert len(hosted.repo.pulls) == 1
    assert hosted.asked == 2


@slow
def test_a_closed_pull_request_is_a_no_until_the_issue_has_the_label(hosted: Hosted) -> None:
    first = hosted.propose()
    hosted.github.close(hosted.repo, first.number)
    assert "was declined" in hosted.left_alone()
    issue = hosted.repo.issues[1]
    people.label(hosted.github, issue, "pullwright:retry", "ada")
    second = hosted.propose()
    assert second.number != first.number
    assert second.head == first.head
    assert issue.labels == ["pullwright"]
    hosted.github.close(hosted.repo, second.number)
    assert "was declined" in hosted.left_alone()
    assert hosted.asked == 2


@slow
def test_what_the_model_found_nothing_to_do_on_is_not_tried_again_until_somebody_says_more(
    hosted: Hosted, github: GitHub, stage: Stage
) -> None:
    nothing = do(("finish", {"reason": "It adds already."}))
    stage.script(nothing)
    assert stage.run().result["outcome"] == "no_task"
    assert "issue-1 had nothing to do in run" in hosted.left_alone()
    github.add_comment(hosted.repo, 1, "I see it too!", "mallory")
    assert "issue-1 had nothing to do in run" in hosted.left_alone()
    github.add_comment(hosted.repo, 1, "It is in calc.py.", "ada")
    stage.script(nothing)
    stage.run()
    assert hosted.asked == 2
    assert "had nothing to do" in hosted.left_alone()
    people.label(github, hosted.repo.issues[1], "pullwright:retry", "ada")
    stage.script(nothing)
    stage.run()
    assert hosted.repo.issues[1].labels == ["pullwright"]
    assert "had nothing to do" in hosted.left_alone()
    hosted.propose("--issue", "1")
    assert hosted.asked == 4


@slow
def test_a_task_that_failed_is_not_paid_for_again_and_again(hosted: Hosted, stage: Stage) -> None:
    words = do(text="I would rather not.")
    stage.script(words, words)
    assert stage.run().result["outcome"] == "failed"
    asked = hosted.asked
    assert "issue-1 failed in run" in hosted.left_alone()
    people.edit(hosted.github, hosted.repo.issues[1], "Please fix `add` in calc.py.", "ada")
    stage.script(FIX_IT)
    assert stage.run().result["outcome"] == "proposed"
    assert hosted.asked == asked + 1
