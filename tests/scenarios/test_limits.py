from __future__ import annotations

import json
import signal
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doubles import forked
from tests.doubles.github.faults import Fault
from tests.doubles.model_server import gated
from tests.scenarios.stage import FILES, FIX, FIX_IT, FIXED, PROPOSE, Stage, branches, do, git

if TYPE_CHECKING:
    from tests.doubles.github.server import GitHub

TASK = ("--task", "Fix add() in calc.py")
LOOK = do(("read_file", {"path": "calc.py"}))


def test_a_cap_below_one_request_asks_nothing(stage: Stage, repository: Path) -> None:
    done = stage.run("--repo", str(repository), *TASK, "--max-tokens", "1")
    assert done.code == 5
    assert done.result["outcome"] == "limit"
    assert stage.model.requests == []


def test_a_limit_ends_the_cycle_with_the_work_kept(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX), FIX_IT)
    done = stage.run("--repo", str(repository), *TASK, "--max-rounds", "1")
    assert done.code == 5
    assert done.result["outcome"] == "limit"
    assert done.result["patch"].startswith(str(stage.home))
    git(repository, "apply", done.result["patch"])
    assert (repository / "calc.py").read_text() == FIXED
    assert branches(repository) == []


def test_what_was_proposed_before_a_limit_counts(stage: Stage, repository: Path) -> None:
    stage.script(do(FIX, PROPOSE), LOOK)
    done = stage.run("--repo", str(repository), *TASK, "--max-rounds", "2")
    assert done.result["outcome"] == "proposed"
    assert done.code == 0


def test_minutes_end_even_a_model_that_hangs(stage: Stage, repository: Path) -> None:
    gate = threading.Event()
    stage.script(gated(FIX_IT.text, gate))
    done = stage.run("--repo", str(repository), *TASK, "--max-minutes", "0.01")
    gate.set()
    assert done.code == 5
    assert "minutes" in done.result["reason"]


def test_a_cap_in_usd_needs_a_known_price(stage: Stage, repository: Path) -> None:
    done = stage.run("--repo", str(repository), *TASK, "--max-usd", "1")
    assert done.code == 2
    assert "price" in done.result["error"]
    assert stage.model.requests == []


def test_the_journal_replays_the_run_without_a_model(stage: Stage, repository: Path) -> None:
    stage.script(LOOK, FIX_IT)
    first = stage.run("--repo", str(repository), *TASK).result
    git(repository, "branch", "-D", first["branch"])
    stage.command("close", "1", "--repo", str(repository))
    replay = stage.command(
        "run",
        "--model",
        f"replay:{first['run']}",
        "--dry-run",
        "--json",
        "--repo",
        str(repository),
        "--task",
        "Again",
    )
    second = replay.result
    assert len(stage.model.requests) == 2
    assert second["outcome"] == "planned"
    assert second["usd"] == 0

    def calls(run: str) -> list[tuple[str, str]]:
        return [(e["name"], json.dumps(e["arguments"])) for e in stage.events(run) if "arguments" in e]

    assert calls(first["run"]) == calls(second["run"])


def test_a_replay_takes_repository_and_task_from_the_run(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    first = stage.run("--repo", str(repository), *TASK, "--dry-run").result
    second = stage.command("run", "--model", f"replay:{first['run']}", "--json").result
    assert second["outcome"] == "proposed"
    assert second["task"]["key"] == first["task"]["key"]


def test_show_tells_the_story_of_a_run(stage: Stage, repository: Path) -> None:
    stage.script(FIX_IT)
    run = stage.run("--repo", str(repository), *TASK).result["run"]
    shown = stage.command("show", run).out
    for words in ("Fix add() in calc.py", "edit_file", "create_pull_request", "Make add() add", "proposed"):
        assert words in shown


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a process that is started from now on has its temporary files."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


class Running:
    """The program in a process of its own, stopped in the middle of a reply by a gate."""

    def __init__(self, stage: Stage, repository: Path, *flags: str) -> None:
        words = ["run", "--repo", str(repository), *TASK, "--json", "--plain"]
        model = ["--model", "openai-chat:scripted-1", "--api-url", stage.model.url]
        self._opened = ExitStack()
        running = self._opened.enter_context(forked.piped(*words, *model, *flags))
        self.process, self._out, self._err = running

    def wait_for(self, words: str) -> None:
        for line in self._err:
            if words in line:
                return
        raise AssertionError(words)

    def end(self) -> tuple[int, dict[str, object]]:
        with self._opened:
            out = self._out.read()
            return self.process.wait(60), json.loads(out)


def test_the_first_interrupt_ends_after_the_round_and_keeps_the_work(
    stage: Stage, repository: Path, scratch: Path
) -> None:
    gate = threading.Event()
    stage.script(gated(do(FIX).text, gate), FIX_IT)
    running = Running(stage, repository)
    running.wait_for("round 1")
    (tree,) = scratch.glob("pullwright-*/tree")
    assert sorted(path.name for path in tree.iterdir()) == ["README.md", "calc.py"]
    running.process.send_signal(signal.SIGINT)
    running.wait_for("Ctrl+C again")
    gate.set()
    code, result = running.end()
    assert code == 130
    assert result["outcome"] == "interrupted"
    git(repository, "apply", str(result["patch"]))
    assert (repository / "calc.py").read_text() == FIXED
    assert list(scratch.iterdir()) == []


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize("last", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_end_at_once_keeps_the_work_and_no_clone(
    stage: Stage, repository: Path, scratch: Path, last: signal.Signals
) -> None:
    gate = threading.Event()
    stage.script(do(FIX), gated(FIX_IT.text, gate))
    running = Running(stage, repository)
    running.wait_for("round 2")
    if last is signal.SIGINT:
        running.process.send_signal(signal.SIGINT)
        running.wait_for("Ctrl+C again")
    running.process.send_signal(last)
    code, result = running.end()
    gate.set()
    assert code == 130
    assert result["outcome"] == "interrupted"
    assert result["patch"]
    assert list(scratch.iterdir()) == []


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
def test_an_end_at_once_does_not_wait_for_a_claim_that_hangs(
    stage: Stage, github: GitHub, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    github.add_repository("octo/calc", FILES)
    github.faults.append(Fault("GET", r".*info/refs.*", delay=600.0))
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    running = Running(stage, Path("octo/calc"), "--github-url", github.web_url)
    running.wait_for("phase: choose")
    running.process.send_signal(signal.SIGTERM)
    code, result = running.end()
    assert code == 130
    assert result["outcome"] == "interrupted"
    assert list(scratch.iterdir()) == []


@pytest.mark.slow(reason="waits for the seconds that a remote has to take the work")
def test_an_end_at_once_keeps_the_work_here_if_the_remote_is_slow(
    stage: Stage, github: GitHub, monkeypatch: pytest.MonkeyPatch, scratch: Path
) -> None:
    github.add_repository("octo/calc", FILES)
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    gate = threading.Event()
    stage.script(do(FIX), gated(FIX_IT.text, gate))
    running = Running(stage, Path("octo/calc"), "--github-url", github.web_url)
    running.wait_for("round 2")
    github.faults.append(Fault("POST", r".*git-receive-pack.*", delay=600.0))
    running.process.send_signal(signal.SIGTERM)
    code, result = running.end()
    gate.set()
    assert code == 130
    assert result["outcome"] == "interrupted"
    assert result["patch"]
    assert [path.suffix for path in (stage.home / "unfinished").rglob("*") if path.is_file()] == [".zip"]
    assert list(scratch.iterdir()) == []
