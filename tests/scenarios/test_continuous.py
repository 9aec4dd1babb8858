from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, run_names
from orchestrator.core.cycle_events import CycleEnded, CycleStarted
from tests.doubles.journals import Journals, with_lines
from tests.doubles.model_server import plan, reply
from tests.scenarios.stage import FINISH, FIX, FIX_IT, PROPOSE, Stage, add_commit, branches, do

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from tests.doubles.model_server import RecordedRequest, Step

BACKLOG = "- [ ] First\n- [ ] Second\n- [ ] Third\n"


def propose(title: str) -> Step:
    write = ("write_file", {"path": f"{title}.txt", "content": f"{title}\n"})
    return do(write, ("create_pull_request", {"title": title, "body": ""}), FINISH)


def test_every_cycle_works_on_a_new_clone(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")

    def second(request: RecordedRequest) -> Step:
        assert "pushed between the cycles" in str(request.body["messages"])
        return propose("b")

    def first(request: RecordedRequest) -> Step:
        assert "pushed between the cycles" not in str(request.body["messages"])
        add_commit(repository, {"NEWS.md": "pushed between the cycles\n"}, "News")
        return propose("a")

    stage.script(first, second, propose("c"))
    done = stage.run("--repo", str(repository), "--continuous")
    assert [result["outcome"] for result in done.results] == ["proposed", "proposed", "proposed", "no_task"]
    assert [result["task"]["title"] for result in done.results[:3]] == ["First", "Second", "Third"]
    assert len(branches(repository)) == 3
    assert done.code == 0


def test_the_whole_run_is_summed_up(stage: Stage, repository: Path) -> None:
    """The last cycle found nothing to do, and one task failed: neither hides what the others came to."""
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(propose("a"), *[reply("no plan")] * 3, propose("c"))
    done = stage.run("--repo", str(repository), "--continuous", json_output=False)
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith(
        "In all: 4 cycles, 2 pull requests, 1 task failed; 5 rounds, "
    )


def test_a_question_waits_and_the_next_task_goes_on(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(propose("a"), do(("ask_question", {"question_text": "Which?"})), propose("c"))
    done = stage.run("--repo", str(repository), "--continuous")
    outcomes = [result["outcome"] for result in done.results]
    assert outcomes == ["proposed", "question", "proposed", "no_task"]
    assert done.code == 4


def test_the_end_of_continuous_mode_says_how_many_questions_wait(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    ask = do(("ask_question", {"question_text": "Which?"}))
    stage.script(ask, propose("b"), ask)
    done = stage.run("--repo", str(repository), "--continuous", json_output=False)
    assert done.out.splitlines()[-1].startswith(
        "In all: 4 cycles, 1 pull request, 2 questions waiting for an answer; "
    )


def test_a_finish_that_says_no_task_ends_continuous_mode(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(do(("finish", {"reason": "No eligible tasks were found."})), propose("b"))
    done = stage.run("--repo", str(repository), "--continuous")
    assert [result["outcome"] for result in done.results] == ["no_task"]


def test_a_finish_without_a_change_goes_on_with_the_next_task(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(do(("finish", {"reason": "It is correct already."})), propose("b"), propose("c"))
    done = stage.run("--repo", str(repository), "--continuous")
    assert [result["outcome"] for result in done.results] == ["no_task", "proposed", "proposed", "no_task"]
    assert "worked on in this run" in done.results[-1]["reason"]


def test_max_cycles_ends_continuous_mode(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(propose("a"), propose("b"), propose("c"))
    done = stage.run("--repo", str(repository), "--continuous", "--max-cycles", "2")
    assert len(done.results) == 2
    assert done.code == 0


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_a_task_that_the_model_cannot_do_does_not_stop_the_next(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(reply("a"), reply("b"), reply("c"), propose("second"), propose("third"))
    done = stage.run("--repo", str(repository), "--continuous")
    assert [result["outcome"] for result in done.results] == ["failed", "proposed", "proposed", "no_task"]


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_a_limit_ends_a_cycle_and_not_the_run(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(do(FIX), propose("b"), propose("c"))
    done = stage.run("--repo", str(repository), "--continuous", "--max-rounds", "1")
    assert [result["outcome"] for result in done.results] == ["limit", "proposed", "proposed", "no_task"]
    assert done.results[0]["patch"]


def test_without_continuous_one_cycle_is_all(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(propose("a"), propose("b"))
    assert len(stage.run("--repo", str(repository)).results) == 1


def test_each_cycle_has_a_journal_of_its_own(stage: Stage, repository: Path) -> None:
    add_commit(repository, {"BACKLOG.md": BACKLOG}, "Plan")
    stage.script(propose("a"), propose("b"), propose("c"))
    done = stage.run("--repo", str(repository), "--continuous")
    runs = [result["run"] for result in done.results]
    assert len(set(runs)) == 4
    assert all(stage.events(run) for run in runs)


def test_what_can_be_read_of_a_damaged_journal_is_shown(stage: Stage, repository: Path) -> None:
    stage.script(propose("a"))
    run = stage.run("--repo", str(repository), "--task", "Fix it").results[0]["run"]
    whole = stage.events()
    path = Home(stage.home).runs / run / JOURNAL_FILE
    at = next(number for number, event in enumerate(whole, start=1) if event["type"] == "TurnStarted")
    path.write_bytes(with_lines(path.read_bytes(), at, bytes(60) + b"\n"))
    shown = stage.command("show", run, "--json")
    assert [json.loads(line) for line in shown.out.splitlines()] == [*whole[: at - 1], *whole[at:]]
    told = f"the journal is damaged in 1 place; what can be read is shown:\n    line {at + 1}: not a JSON object\n"
    assert (shown.code, shown.err) == (0, told)
    for words in (
        ["show", run],
        ["logs", run],
        ["logs", run, "--follow"],
        ["show", "--list"],
        ["show", run, "--state"],
    ):
        done = stage.command(*words)
        assert done.code == 0
        assert told in done.out or words[-1] in {"--list", "--state"}
    assert "pull request" in stage.command("logs", run).out


def test_old_runs_are_removed_at_the_start_and_by_hand(stage: Stage, repository: Path) -> None:
    home = Home(stage.home)
    made = Journals(home)
    long_ago = datetime(2020, 1, 1, tzinfo=UTC)
    begin = CycleStarted("x", "octo/calc", "m", "native")
    for _ in range(3):
        made.add(long_ago, [begin, CycleEnded({"outcome": "proposed"})])
    dead = made.add(long_ago, [begin])
    done = stage.command("runs", "prune", "--dry-run", "--runs-days", "1")
    assert done.out.startswith(
        "3 runs of 4 would be removed, 0.0 MB of 0.0 MB\n1 old run kept, with unfinished work: "
    )
    assert len(run_names(home)) == 4
    assert stage.command("runs", "prune", "--runs-days", "0").out == "0 runs of 4 removed, 0.0 MB of 0.0 MB\n"
    stage.script(propose("a"))
    (result,) = stage.run("--repo", str(repository), "--task", "Fix it").results
    assert run_names(home) == [result["run"], dead.name]
    told = json.loads(stage.command("runs", "prune", "--json").out)
    assert (told["removed"], told["unfinished"]) == ([], [dead.name])
    assert "2, 0.0 MB; completed ones are removed beyond 90 days and 1,000 MB" in " ".join(
        stage.command("doctor").out.split()
    )


def test_looks_that_find_no_task_leave_no_run(stage: Stage, repository: Path) -> None:
    """Only the last one at each repository is kept, so that `show` and `digest` say why nothing was done."""
    other = repository.with_name("other")
    shutil.copytree(repository, other)
    home = Home(stage.home)
    stage.script(propose("a"))
    done = stage.run("--repo", str(other), "--task", "Fix it")
    worked = done.results[0]["run"]
    last = ""
    for place in (repository, other, repository, repository):
        done = stage.run("--repo", str(place))
        assert done.results[0]["outcome"] == "no_task"
        last = done.results[0]["run"]
    assert run_names(home) == [worked]
    assert len(list(home.looks.iterdir())) == 2
    assert stage.events()[-1]["result"]["run"] == last
    assert done.results[0]["reason"] in stage.command("digest").out


def test_a_plan_may_take_several_rounds(stage: Stage, repository: Path) -> None:
    look: tuple[str, Mapping[str, Any]] = ("read_file", {"path": "calc.py"})
    stage.script(do(look), do(FIX, text="Now fix it."), do(PROPOSE, FINISH))
    result = stage.run("--repo", str(repository), "--task", "Fix add()").result
    assert result["rounds"] == 3
    assert "return a - b" in stage.told(1)
    assert len(stage.asked(2)) == 6


def test_a_plan_without_an_end_is_asked_again(stage: Stage, repository: Path) -> None:
    stage.script(plan("thinking"), FIX_IT)
    assert stage.run("--repo", str(repository), "--task", "Fix add()").result["rounds"] == 2
