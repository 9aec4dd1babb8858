from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.folders import Home, run_names
from orchestrator.bot.journal.index import note_pause, summarise
from orchestrator.bot.journal.notes import PersonAnswer, keep_answer
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.core.clock import SystemClock
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.model_server import fail
from tests.scenarios.stage import (
    CALC,
    FINISH,
    FIX,
    FIX_IT,
    FIXED,
    PROPOSE,
    Stage,
    add_commit,
    branches,
    content,
    do,
    git,
    make_repository,
    program,
)

if TYPE_CHECKING:
    from pathlib import Path

TASK = ("--task", "Fix add() in calc.py")


def test_a_task_becomes_a_branch_and_a_pull_request(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 0, done.err
    result = done.result
    (branch,) = branches(repository)
    assert branch == result["branch"]
    assert branch.startswith("pullwright/text-")
    assert branch.endswith("-fix-add-in-calc-py")
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    assert git(repository, "rev-parse", branch) == result["commit"]
    assert git(repository, "log", "-1", "--format=%an", branch) == "Pullwright"
    assert result["outcome"] == "proposed"
    assert result["pull_request"]["title"] == "Make add() add"
    assert result["pull_request"]["draft"] is True
    assert result["task"]["source"] == "text"
    assert result["plan"] == "Fix add()."
    assert result["rounds"] == 1
    assert result["usd"] is None
    assert result["usage"]["total_tokens"] > 0


def test_the_work_tree_that_was_named_is_not_touched(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    assert (repository / "calc.py").read_text() == CALC
    assert git(repository, "status", "--porcelain") == ""
    assert git(repository, "branch", "--show-current") == "main"


def test_a_bare_repository_is_as_good(stage: Stage, repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--bare", str(repository), "bare.git")
    stage.script(FIX_IT)
    assert stage.run("--repo", str(tmp_path / "bare.git"), *TASK).code == 0
    assert len(branches(tmp_path / "bare.git")) == 1


def test_pulls_lists_what_was_opened(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    listed = stage.command("pulls", "--json")
    (pull,) = [json.loads(line) for line in listed.out.splitlines()]
    assert (pull["number"], pull["title"], pull["state"]) == (1, "Make add() add", "open")
    assert "Make add() add" in stage.command("pulls").out


def test_the_same_task_is_not_taken_twice(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    again = stage.run("--repo", str(repository), *TASK)
    assert again.code == 3
    assert again.result["outcome"] == "no_task"
    assert "open pull request, #1 (branch pullwright/" in again.result["reason"]
    assert len(stage.model.requests) == 1


def test_the_files_of_the_local_forge_are_named_to_nobody(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    again = stage.run("--repo", str(repository), *TASK)
    page = repository.parent / "run.html"
    shown = stage.command("show", "--verbose", done.result["run"]).out
    assert stage.command("show", "--html", str(page), done.result["run"]).code == 0
    digest = stage.command("digest").out
    assert "#1" in digest
    for text in (shown, page.read_text(encoding="utf-8"), again.result["reason"], digest):
        assert done.result["branch"] in text or text is digest
        assert "file://" not in text


def test_a_closed_pull_request_means_no(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK)
    assert stage.command("close", "1", "--repo", str(repository)).code == 0
    again = stage.run("--repo", str(repository), *TASK)
    assert again.code == 3
    assert "declined" in again.result["reason"]


def test_a_merged_task_is_done(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    done = stage.run("--repo", str(repository), *TASK)
    git(repository, "merge", "--quiet", "--no-ff", "-m", "Merge", done.result["branch"])
    again = stage.run("--repo", str(repository), *TASK)
    assert "was done by" in again.result["reason"]


@pytest.mark.parametrize("file", ["BACKLOG.md", "TODO.md", "ROADMAP.md"])
def test_a_backlog_file_gives_the_first_unticked_item(stage: Stage, repository: Path, file: str) -> None:
    add_commit(repository, {file: "- [x] Old\n- [ ] Fix add()\n- [ ] Other\n"}, "Plan")
    stage.script(FIX_IT)
    result = stage.run("--repo", str(repository)).result
    assert result["task"]["title"] == "Fix add()"
    assert result["task"]["source"] == file
    assert "Fix add()" in stage.told()


def test_without_a_backlog_there_is_nothing_to_do(stage: Stage, repository: Path) -> None:
    done = stage.run("--repo", str(repository))
    assert done.code == 3
    assert "BACKLOG.md" in done.result["reason"]
    assert stage.model.requests == []


def test_a_dry_run_pushes_nothing_and_shows_everything(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    done = stage.run("--repo", str(repository), *TASK, "--dry-run")
    assert done.code == 0
    assert done.result["outcome"] == "planned"
    assert "+    return a + b" in done.result["diff"]
    assert done.result["pull_request"]["number"] is None
    assert done.result["patch"] is None
    assert branches(repository) == []
    assert stage.command("pulls", "--json").out == ""


def test_a_dry_run_prints_the_diff_and_the_pull_request(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    done = stage.run("--repo", str(repository), *TASK, "--dry-run", json_output=False)
    assert "Would open a pull request: Make add() add" in done.out
    assert "+    return a + b" in done.out
    assert "It subtracted." in done.out
    assert "spent   1 round," in done.out
    assert "(counts for this machine's day, not for the repository's)" in done.out


def test_a_dry_run_counts_for_the_day_of_this_machine_and_not_for_the_repositorys(
    stage: Stage, repository: Path
) -> None:
    stage.script(FIX_IT, FIX_IT)
    dry = ("--repo", str(repository), *TASK, "--dry-run")
    assert stage.run(*dry, "--max-rounds-per-repo", "1").result["outcome"] == "planned"
    assert git(repository, "for-each-ref", "refs/pullwright/") == ""
    assert stage.run(*dry, "--max-rounds-per-repo", "1").result["outcome"] == "planned"
    stopped = stage.run(*dry, "--max-rounds-per-day", "2").result
    assert (stopped["outcome"], stopped["rounds"]) == ("no_task", 0)
    assert "2 of 2 rounds a day are used" in stopped["reason"]


def test_create_pull_request_twice_updates_the_one(stage: Stage, repository: Path) -> None:
    second = ("create_pull_request", {"title": "Make add() add, with a test", "body": "More."})
    new = ("write_file", {"path": "test_calc.py", "content": "from calc import add\n"})
    stage.script(do(FIX, PROPOSE), do(new, second, FINISH))
    result = stage.run("--repo", str(repository), *TASK).result
    (branch,) = branches(repository)
    assert git(repository, "rev-list", "--count", f"main..{branch}") == "2"
    assert result["pull_request"]["number"] == 1
    assert result["pull_request"]["title"] == "Make add() add, with a test"
    assert len(stage.command("pulls", "--json").out.splitlines()) == 1


def test_exactly_what_tools_touched_is_committed(stage: Stage, repository: Path) -> None:
    add_commit(repository, {".gitignore": "*.log\n"}, "Ignore logs")
    log = ("write_file", {"path": "run.log", "content": "noise\n"})
    stage.script(do(FIX, log, PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK)
    (branch,) = branches(repository)
    assert git(repository, "diff", "--name-only", f"main..{branch}") == "calc.py"
    assert done.result["outcome"] == "proposed"


def may_be_taken(stage: Stage, repository: Path) -> bool:
    """What `claims` says of the only task."""
    (line,) = stage.command("claims", "--repo", str(repository), "--json").out.splitlines()
    return bool(json.loads(line)["may_be_taken"])


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_run_with_an_answer_uses_the_options_that_were_typed_for_the_run_that_asked(
    stage: Stage, repository: Path, *, is_kept: bool
) -> None:
    stage.script(do(FIX, ("ask_question", {"question_text": "Only ints?"})))
    typed = ("--task", "Fix add()", "--repo", str(repository), "--max-rounds", "7", "--max-cycles", "3")
    asked = stage.run(*typed)
    assert asked.result["outcome"] == "question", asked.err
    key = asked.result["task"]["key"]
    stage.script(do(PROPOSE, FINISH))
    answered: tuple[str, ...] = ("--answer", "Yes")
    if is_kept:
        (name,) = run_names(Home(stage.home))
        run = summarise(stage.home / "runs" / name)
        assert not may_be_taken(stage, repository)
        keep_answer(Home(stage.home), PersonAnswer(datetime.now(UTC), run.repository, key, run.id, "Yes"))
        assert may_be_taken(stage, repository)
        answered = ()
    done = stage.command("run", "--repo", str(repository), "--task", key, *answered, "--json")
    assert done.result["outcome"] == "proposed", done.err
    assert "Yes" in stage.told(1)
    begin = next(one for one in stage.events() if one["type"] == "CycleStarted")
    typed_then = begin["typed"]
    assert typed_then["max_rounds"] == 7
    assert typed_then["api_url"] == stage.model.url
    assert "max_cycles" not in typed_then


def test_an_answer_reaches_a_model_that_does_not_go_on_with_the_conversation(
    stage: Stage, repository: Path
) -> None:
    stage.script(do(FIX, ("ask_question", {"question_text": "Only ints?"})))
    asked = stage.run("--repo", str(repository), *TASK)
    key = asked.result["task"]["key"]
    stage.script(do(PROPOSE, FINISH))
    done = stage.run(
        "--repo", str(repository), "--task", key, "--answer", "Yes, ints", "--profile", "assistant"
    )
    assert done.result["outcome"] == "proposed", done.err
    told = stage.told(1)
    assert "Only ints?" in told
    assert "Yes, ints" in told


def test_nothing_to_propose_is_an_answer_and_no_pull_request(stage: Stage, repository: Path) -> None:
    stage.script(do(PROPOSE, FINISH), do(("finish", {"reason": "Nothing needs to change."})))
    done = stage.run("--repo", str(repository), *TASK)
    assert "Nothing has changed" in stage.told(1)
    assert done.code == 3
    assert done.result["reason"] == "Nothing needs to change."


def test_finish_with_unproposed_changes_is_refused_once(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX, FINISH), do(PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), *TASK)
    assert "calc.py" in stage.told(1)
    assert done.result["outcome"] == "proposed"


def test_changes_that_the_model_gives_up_are_kept(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX, FINISH), do(FINISH))
    done = stage.run("--repo", str(repository), *TASK)
    assert done.code == 1
    assert done.result["outcome"] == "failed"
    git(repository, "apply", done.result["patch"])
    assert (repository / "calc.py").read_text() == FIXED


def test_a_question_halts_and_is_kept(stage: Stage, repository: Path) -> None:
    question = ("ask_question", {"question_text": "Should add() take floats?"})
    stage.script(do(FIX, question, FINISH))
    done = stage.run("--repo", str(repository), *TASK, json_output=False)
    assert done.code == 4
    assert "Should add() take floats?" in done.out
    assert "Should add() take floats?" in stage.command("pulls").out
    assert branches(repository) == []


def test_a_repository_template_is_filled(stage: Stage, repository: Path) -> None:
    template = "## Description\n<!-- what -->\n\n## Checklist\n- [ ] Docs\n"
    add_commit(repository, {".github/pull_request_template.md": template}, "Template")
    stage.script(FIX_IT)
    body = stage.run("--repo", str(repository), *TASK).result["pull_request"]["body"]
    assert body.split("\n***\n\n## In the model's own words\n\n")[1].startswith(
        "## Description\n\n> It subtracted."
    )
    assert "## Checklist" in body
    assert body.rstrip().endswith("-->")


@pytest.mark.parametrize("stream", ["--stream", "--no-stream"])
def test_streaming_or_not_is_the_same_work(stage: Stage, repository: Path, stream: str) -> None:
    stage.script(FIX_IT)
    assert stage.run("--repo", str(repository), *TASK, stream).result["outcome"] == "proposed"
    assert bool(stage.model.requests[0].body.get("stream")) is (stream == "--stream")


def test_another_base_branch_can_be_named(stage: Stage, repository: Path) -> None:
    git(repository, "branch", "next")
    stage.script(FIX_IT)
    stage.run("--repo", str(repository), *TASK, "--base", "next")
    (pull,) = [json.loads(line) for line in stage.command("pulls", "--json").out.splitlines()]
    assert pull["base"] == "next"


def test_no_clone_is_left_behind(stage: Stage, repository: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    stage.script(FIX_IT)
    model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
    done = program("run", "--repo", str(repository), *TASK, *model, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_two_repositories_that_are_typed_alike_share_nothing(
    stage: Stage, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_repository(tmp_path / "other")
    (repository / "sub").mkdir()
    stage.script(FIX_IT)
    monkeypatch.chdir(repository / "sub")
    done = stage.run("--repo", ".", *TASK, json_output=False)
    assert done.code == 0, done.err
    folder = max((stage.home / "runs").iterdir())
    note_pause(
        Home(stage.home),
        folder.name,
        Pause(SystemClock().now() + timedelta(hours=1), "spent"),
        Redactor(),
        SystemClock(),
    )

    def seen(command: str, *words: str) -> str:
        return stage.command(command, *words).out

    assert "spent" in seen("doctor", "--repo", ".")
    assert "#1" in seen("pulls", "--repo", "..")
    assert "1 pull request," in seen("digest", "--repo", str(repository))
    monkeypatch.chdir(other)
    assert "spent" not in seen("doctor", "--repo", ".")
    assert "#1" not in seen("pulls", "--repo", ".")
    assert "no runs" in seen("digest", "--repo", ".")
    assert "spent" in seen("doctor", "--repo", "../calc/")


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_on_one_screen_an_error_is_there_once(stage: Stage, repository: Path) -> None:
    stage.script(fail(401))
    model = ("--model", "openai-chat:scripted-1", "--api-url", stage.model.url)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "run", "--repo", str(repository), *TASK, *model],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout.count("scripted failure 401") == 1, done.stdout


def test_a_repository_is_shown_with_its_origin_and_without_a_credential(
    stage: Stage, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(repository, "remote", "add", "origin", "https://ada:pass-of-ada@github.com/octo/calc.git")
    monkeypatch.chdir(repository)
    stage.script(FIX_IT)
    done = stage.run("--repo", ".", *TASK, json_output=False)
    both = f"{repository} (origin https://github.com/octo/calc.git)"
    assert both in done.err
    shown = stage.command("show", "last").out
    assert both in shown
    told = stage.command("doctor", "--repo", ".").out
    assert "origin https://github.com/octo/calc.git" in " ".join(told.split())
    assert "pass-of-ada" not in done.err + done.out + shown + told
