"""What a person decides about a task, by the commands that messages name; and that all commands agree about it."""

from __future__ import annotations

import json
import os
import re
import shlex
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.wiring.repository import open_tasks
from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records
from orchestrator.core.clock import SystemClock
from tests.scenarios.hosted import Hosted
from tests.scenarios.stage import FINISH, FIX, FIX_IT, PROPOSE, Done, Stage, add_commit, do, git

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub

slow = pytest.mark.slow(reason="several whole cycles; three of this file are in the default tier")

ITEM = "item-2ba994d5"
BACKLOG = {"BACKLOG.md": "- [ ] Fix add() in calc.py\n"}
WHICH = ("ask_question", {"question_text": "Which way?", "choices": ["Only ints", "Floats too"]})
ASK = do(FIX, WHICH)
NOTHING = do(("finish", {"reason": "It is right as it is."}))
STOP = do(FIX, FINISH, FINISH)


def typed(stage: Stage, text: str) -> Done:
    """The command that a message names, typed as it stands."""
    found = re.search(
        r"pullwright (?:retry|close|forget|claims release) \S+ --repo \S+(?: --github-url \S+)?", text
    )
    assert found, text
    return stage.command(*shlex.split(found[0])[1:])


@pytest.fixture
def local(stage: Stage, repository: Path) -> Stage:
    add_commit(repository, BACKLOG, "A backlog")
    stage.flags += ["--repo", str(repository)]
    return stage


def seen(stage: Stage, repository: Path, task: str = ITEM) -> dict[str, str]:
    """The state of the task as each command tells it; empty where it does not name the task."""
    where = ("--repo", str(repository))
    claims = [json.loads(line) for line in stage.command("claims", *where, "--json").out.splitlines()]
    pulls = [json.loads(line) for line in stage.command("pulls", *where, "--json").out.splitlines()]
    doctor = [json.loads(line) for line in stage.command("doctor", *where, "--json").out.splitlines()]
    (tasks,) = [one["found"] for one in doctor if one["probe"] == "tasks"]
    digest = stage.command("digest", *where).out
    undone = re.search(r"\*\*Not finished\*\*\n\n- ([a-z ]+?)(?: \(|,)", digest)
    return {
        "claims": next((one["task_state"] for one in claims if one["task"] == task), ""),
        "pulls": next((one["task_state"] for one in pulls if one.get("task") == task), ""),
        "doctor": next((part.split(":")[0] for part in tasks.split("; ") if task in part), ""),
        "digest": undone[1] if undone else "waits for an answer" if "wait for an answer" in digest else "",
    }


def agree(stage: Stage, repository: Path, state: str, *, digest: str | None = None) -> None:
    """All commands say that the task is in this state. A digest lists only what did not come to its end."""
    expected = state if digest is None else digest
    assert seen(stage, repository) == {"claims": state, "pulls": state, "doctor": state, "digest": expected}


@slow
def test_a_local_task_in_each_state_is_told_in_the_same_words(local: Stage, repository: Path) -> None:
    local.script(NOTHING)
    assert local.run().result["outcome"] == "no_task"
    agree(local, repository, "nothing to do", digest="")
    reason = local.run().result["reason"]
    assert "had nothing to do" in reason
    done = typed(local, reason)
    assert (done.code, done.out) == (0, f"{ITEM} may be taken again by the next cycle\n")
    agree(local, repository, "open", digest="")

    local.script(do(FIX, FINISH), do(FINISH))
    assert local.run().result["outcome"] == "failed"
    agree(local, repository, "failed")
    local.model.script.clear()
    local.command("forget", ITEM, "--repo", str(repository), "--yes")

    local.script(ASK)
    done = local.run()
    assert done.result["outcome"] == "question", done.out
    agree(local, repository, "waits for an answer")
    assert "--answer ANSWER" in local.run().result["reason"]
    assert local.command("retry", ITEM, "--repo", str(repository)).code == 0
    agree(local, repository, "open", digest="")
    local.script(do(WHICH))
    assert local.run().result["outcome"] == "question"

    local.script(do(PROPOSE, FINISH))
    assert local.run("--answer", "1").result["outcome"] == "proposed"
    agree(local, repository, "proposed", digest="")
    reason = local.run().result["reason"]
    assert "open pull request" in reason
    assert typed(local, reason).out.startswith(f"closed #1; {ITEM} is not taken again")
    agree(local, repository, "declined", digest="")
    reason = local.run().result["reason"]
    assert "was declined" in reason
    assert typed(local, reason).code == 0
    agree(local, repository, "open", digest="")
    local.script(do(PROPOSE, FINISH), FIX_IT)
    done = local.run()
    assert done.result["outcome"] == "proposed", done.err
    git(repository, "merge", "--quiet", "--ff-only", done.result["branch"])
    agree(local, repository, "merged", digest="")
    done = local.command("retry", ITEM, "--repo", str(repository))
    assert (done.code, "is merged: there is nothing to try again" in done.out) == (3, True)


def test_a_task_whose_change_breaks_tests_is_told_in_the_same_words(local: Stage, repository: Path) -> None:
    tested = "--test-command", "! grep -q 'a + b' calc.py", "--sandbox", "off"
    local.script(do(FIX, PROPOSE), do(FINISH), do(FINISH))
    done = local.run(*tested)
    assert (done.code, done.result["outcome"]) == (6, "tests_fail"), done.err
    agree(local, repository, "its tests fail")
    local.model.script.clear()
    reason = local.run(*tested).result["reason"]
    assert "was done, but its tests fail" in reason
    assert "goes on with the work that is kept" in typed(local, reason).out
    agree(local, repository, "open", digest="")


def test_a_task_that_another_worker_holds_is_left_to_it(
    local: Stage, repository: Path, tmp_path: Path
) -> None:
    with Records(tmp_path, str(repository), lambda: None) as records:
        other = Claims(records, "host-a", SystemClock(), LeaseTimes(), lambda: "a nonce of its own")
        assert isinstance(other.take(ITEM, "run-a"), Lease)
    reason = local.run().result["reason"]
    for command in ("retry", "forget"):
        done = local.command(command, ITEM, "--repo", str(repository))
        assert done.code == 3
        assert "is being worked on by host-a" in done.out
    told = seen(local, repository)
    assert {told[name] for name in ("claims", "pulls", "doctor")} == {"being worked on"}
    assert typed(local, reason).out.startswith(f"released {ITEM}")
    local.script(FIX_IT)
    assert local.run().result["outcome"] == "proposed"


@slow
def test_work_is_not_forgotten_without_a_yes(local: Stage, repository: Path) -> None:
    local.script(ASK)
    local.run()
    where = ("--repo", str(repository))
    done = local.command("forget", "add() in", *where)
    assert done.code == 2
    assert f"pullwright forget {ITEM} --repo {repository} --yes" in done.err
    assert "1 changed file" in done.err
    assert git(repository, "for-each-ref", "refs/pullwright/wip") != ""
    done = local.command(*shlex.split(done.err.partition("to do so: pullwright ")[2]))
    assert (done.code, done.out) == (0, f"forgot {ITEM}\n")
    assert git(repository, "for-each-ref", "refs/pullwright/wip", "refs/pullwright/claims") == ""
    agree_after = seen(local, repository)
    assert agree_after == {"claims": "", "pulls": "", "doctor": "", "digest": ""}
    done = local.command("forget", ITEM, *where, "--json")
    assert (done.code, json.loads(done.out)["changed"]) == (3, False)
    local.script(FIX_IT)
    assert local.run().result["outcome"] == "proposed"


@slow
def test_a_retry_begins_the_count_of_attempts_anew_and_keeps_the_work(local: Stage) -> None:
    for _ in range(3):
        local.script(do(FIX), do(("read_file", {"path": "calc.py"})))
        local.run("--max-rounds", "1")
    reason = local.run("--max-rounds", "1").result["reason"]
    assert "was not completed in 3 cycles" in reason
    done = typed(local, reason)
    assert (
        done.out == f"{ITEM} may be taken again by the next cycle, and goes on with the work that is kept\n"
    )
    local.script(do(("read_file", {"path": "calc.py"})))
    assert local.run("--max-rounds", "1").result["outcome"] == "limit"
    assert "was not completed" not in (local.run("--max-rounds", "1").result["reason"] or "")


@slow
def test_a_name_that_is_none_or_several_is_one_line_with_the_candidates(
    local: Stage, repository: Path
) -> None:
    add_commit(repository, {"TODO.md": "- [ ] Document add() in calc.py\n"}, "More")
    for named, said in {
        "nothing like it": "no task here is named 'nothing like it'; there are: item-2ba994d5 (Fix add() in calc.py)",
        "issue-77": "nothing is known of the task issue-77; there are: item-2ba994d5",
        "9": "#9 is no task here",
        "it": "no task here is named 'it'",
        "in calc": "'in calc' names 2 tasks: item-",
        "item-": "'item-' names 2 tasks: item-",
    }.items():
        done = local.command("retry", named, "--repo", str(repository))
        assert done.code == 2
        assert said in done.err
        assert done.err.count("\n") == 1
    assert local.command("forget", "in calc", "--repo", str(repository)).code == 2


@slow
def test_a_task_goes_by_every_name_that_a_person_sees(local: Stage, repository: Path) -> None:
    local.script(FIX_IT)
    local.run()
    with open_tasks(str(repository), {}, os.environ, repository, writes=False) as tasks:
        for named in (ITEM, "item-2ba", "Fix add() in calc.py", "fix  ADD()", "1", "#1"):
            assert tasks.decisions.find(named).key == ITEM


def test_only_our_own_pull_requests_are_closed(local: Stage, repository: Path) -> None:
    done = local.command("close", "4", "--repo", str(repository))
    assert (done.code, done.err) == (
        2,
        "pullwright: #4 is no pull request of Pullwright's here; none of ours is open\n",
    )
    local.script(FIX_IT)
    local.run()
    assert local.command("close", "1", "--repo", str(repository)).code == 0
    assert "closed already" in local.command("close", "1", "--repo", str(repository)).out


@slow
def test_a_question_says_by_which_command_it_is_answered(local: Stage, repository: Path) -> None:
    for named, key in (((), ITEM), (("--task", "Fix add(), please"), "text-")):
        local.script(ASK)
        asked = local.run(*named, json_output=False)
        assert asked.code == 4
        (line,) = [line for line in asked.out.splitlines() if line.startswith("  answer  ")]
        words = shlex.split(line.removeprefix("  answer  ").replace("ANSWER", "2"))
        assert words[:4] == ["pullwright", "run", "--repo", str(repository)]
        assert words[5].startswith(key)
        local.script(do(PROPOSE, FINISH))
        done = local.run(*words[4:])
        assert done.result["outcome"] == "proposed", done.out
        assert "2. Floats too" in local.told(-1)
    unknown = local.run("--task", "text-00000000", json_output=False)
    assert (unknown.code, "no run on this machine worked on text-00000000" in unknown.err) == (2, True)
    gone = local.run("--task", "item-00000000", json_output=False)
    assert (gone.code, "item-00000000 is no unticked item of BACKLOG.md" in gone.out) == (2, True)


@slow
def test_an_answer_that_could_be_for_two_questions_is_for_none(local: Stage, repository: Path) -> None:
    add_commit(repository, {"TODO.md": "- [ ] Document add() in calc.py\n"}, "More")
    local.script(do(WHICH), do(WHICH))
    for _ in range(2):
        assert local.run().code == 4
    reason = local.run("--answer", "1").result["reason"]
    assert reason.startswith(
        "2 tasks wait for an answer; name the task of this answer: pullwright run --repo"
    )
    assert len(local.model.requests) == 2


# On GitHub.


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    monkeypatch.setenv("PULLWRIGHT_GITHUB_URL", github.web_url)
    return Hosted.begin(github, stage)


@slow
def test_on_github_a_closed_pull_request_is_tried_again_by_the_command_that_is_named(hosted: Hosted) -> None:
    pull = hosted.propose()
    stage = hosted.stage
    done = typed(stage, hosted.left_alone())
    assert (done.code, pull.state) == (0, "closed")
    done = typed(stage, hosted.left_alone())
    assert done.code == 0, done.err
    second = hosted.propose()
    assert second.number != pull.number
    assert hosted.github.violations == []


@slow
def test_on_github_an_issue_goes_by_its_number(hosted: Hosted) -> None:
    hosted.stage.script(NOTHING)
    assert hosted.stage.run().result["outcome"] == "no_task"
    assert "had nothing to do" in hosted.left_alone()
    where = ("--repo", "octo/calc")
    done = hosted.stage.command("retry", "#1", *where)
    assert done.code == 0, done.err
    hosted.propose()
    done = hosted.stage.command("retry", "77", *where)
    assert (done.code, "#77 is no task here" in done.err) == (2, True)


@slow
def test_on_github_another_persons_pull_request_is_not_closed(hosted: Hosted, github: GitHub) -> None:
    pull = hosted.propose()
    pull.author = "mallory"
    done = hosted.stage.command("close", str(pull.number), "--repo", "octo/calc")
    assert done.code == 2
    assert "is no pull request of Pullwright's here" in done.err
    assert pull.state == "open"
    assert github.violations == []
