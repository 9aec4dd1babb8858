"""The host runs the tests before it proposes anything: what goes back, what is said on top, what is kept."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.wiring.program import Program, RunRequest, build_program
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.cycle.tasks import REBASE_LABEL
from orchestrator.bot.cycle.verify import report_runs
from orchestrator.bot.verification.page import find_block
from orchestrator.engine.environments.wrappers import LoggingEnvironment
from tests.doubles.github import people, reviews
from tests.doubles.github.faults import Fault
from tests.doubles.model_server import calls, reply
from tests.doubles.stopping import no_wait
from tests.doubles.verifier import COMMAND, FakeRuns
from tests.scenarios.hosted import NAME, Hosted
from tests.scenarios.stage import (
    FINISH,
    FIX,
    FIX_IT,
    PROPOSE,
    add_commit,
    branches,
    content,
    do,
    git,
    make_repository,
    tools_on_offer,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.git.clone import Clone
    from tests.doubles.github.server import GitHub
    from tests.scenarios.stage import Stage

CALC = "def add(a, b):\n    return a - b\n\ndef double(a):\n    return add(a, a) + 2 * a\n"
TESTS = """\
def test_double():
    assert double(3) == 6
"""
BOTH = f"""\
{TESTS}
def test_add():
    assert add(2, 2) == 4
"""
GOOD = "def add(a, b):\n    return a + b\n\ndef double(a):\n    return add(a, a)\n"
BREAKING = FIX
"""`double` relied on the defect, and there is a test of it."""
WARNED = "passed before and fails now: `test_calc.py::test_double`"
REFUSED = "These tests passed before your change and fail now:\n- test_calc.py::test_double"


def write(path: str, text: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": text}


def commit_of_report(body: str) -> str:
    """The commit that the only report in a pull request's text is about."""
    statement = find_block(body).statement
    assert statement is not None
    return str(statement["subject"][0]["digest"]["gitCommit"])


TASK = "Fix add() in calc.py"
READ = ("read_file", {"path": "calc.py"})
MEND = write("calc.py", GOOD)


WHOLE_FILE = {"contract": "whole-file", "text": "Fix calc.py. Its tests are in test_calc.py."}


def file(text: str) -> Any:
    return reply(f"```python\n{text}```")


async def test_a_small_model_that_is_wrong_twice_writes_lines_it_does_not_see_and_the_tests_choose(
    bench: Bench,
) -> None:
    add_commit(bench.repository, {"test_calc.py": BOTH}, "Test add()")
    wrong = CALC.replace("a - b", "a * b")
    several = CALC.replace("a - b", "a + b").replace("add(a, a) + 2 * a", "add(a, a)")
    result = await bench.run(file(CALC), file(wrong), file(several), **WHOLE_FILE)
    assert result.outcome == "proposed"
    assert result.rounds == 3
    (branch,) = branches(bench.repository)
    assert content(bench.repository, branch, "calc.py") + "\n" == GOOD
    temperatures = [request.body.get("temperature") for request in bench.stage.model.requests]
    assert temperatures == [0.0, None, 0.0]
    asked = bench.stage.asked(2)
    assert len(asked) == 2
    assert "    return ???" not in asked[1]["content"]
    assert "    ???\n" in asked[1]["content"]
    assert "return a - b" not in asked[1]["content"]
    assert "test_add" in asked[1]["content"]
    assert "written anew" in bench.body(result)


async def test_a_guess_that_repairs_some_of_the_named_tests_is_not_proposed(bench: Bench) -> None:
    """A reply of the model's own is, at the end: `test_a_change_that_repairs_a_part…`."""
    add_commit(
        bench.repository, {"calc.py": CALC.replace("2 * a", "a"), "test_calc.py": BOTH}, "Break double()"
    )
    old = CALC.replace("2 * a", "a")
    part = old.replace("a - b", "a + b")
    steps = file(old), file(old), file(part), file(old)
    result = await bench.run(*steps, **WHOLE_FILE, max_rounds=4)
    assert result.outcome == "tests_fail"
    assert branches(bench.repository) == []


@dataclass
class _Tested(Program):
    """The program, with a verifier of ours."""

    change: Callable[[CycleParts], CycleParts] = field(kw_only=True)

    def parts(self, run: str, folder: Path, settings: Settings, only: str = "") -> CycleParts:
        return self.change(super().parts(run, folder, settings, only))


@dataclass
class Bench:
    """Runs cycles on a repository whose tests are run by `FakeRuns`."""

    stage: Stage
    repository: Path
    folder: Path
    flags: dict[str, Any] = field(default_factory=dict)
    repo: str = ""
    is_required: bool = False
    set_up: Callable[[FakeRuns], None] = lambda _runs: None
    change: Callable[[CycleParts], CycleParts] = lambda parts: parts
    verifiers: list[FakeRuns] = field(default_factory=list)

    def program(self, text: str | None, **flags: Any) -> Program:
        settings = {
            "model": "openai-chat:scripted-1",
            "api_url": self.stage.model.url,
            "draft": False,
            **self.flags,
            **flags,
        }
        request = RunRequest(
            self.repo or str(self.repository), text=text, dry_run=flags.pop("dry_run", False)
        )
        settings.pop("dry_run", None)
        stop = Stop(no_wait)
        built = build_program(request, settings, os.environ, self.folder, lambda _: None, stop=stop)
        return _Tested(built.shared, built.bus, change=self._with)

    def _with(self, parts: CycleParts) -> CycleParts:
        def verifier(clone: Clone) -> FakeRuns:
            self.verifiers.append(made := FakeRuns(clone, report_runs(parts.emit, COMMAND)))
            self.set_up(made)
            return made

        options = replace(parts.options, require_tests=self.is_required)
        return self.change(replace(parts, verifier=verifier, options=options))

    async def run(self, *steps: Any, text: str | None = TASK, **flags: Any) -> CycleResult:
        self.stage.script(*steps)
        program = self.program(text, **flags)
        try:
            return await program.cycle()
        finally:
            await program.close()

    def body(self, result: CycleResult) -> str:
        assert result.pull_request is not None
        return result.pull_request.body


@pytest.fixture
def bench(stage: Stage, tmp_path: Path) -> Bench:
    repository = make_repository(tmp_path / "calc", {"calc.py": CALC, "test_calc.py": TESTS})
    return Bench(stage, repository, tmp_path)


def events(stage: Stage, *kinds: str) -> list[dict[str, Any]]:
    return [event for event in stage.events() if event["type"] in kinds]


async def test_what_breaks_a_test_goes_back_and_is_proposed_when_it_is_mended(bench: Bench) -> None:
    mended = do(READ, MEND, PROPOSE, FINISH)
    result = await bench.run(do(BREAKING, PROPOSE, FINISH), mended)
    assert REFUSED in bench.stage.told(1)
    assert result.outcome == "proposed", result.error
    (branch,) = branches(bench.repository)
    assert content(bench.repository, branch, "calc.py") == GOOD.strip()
    assert git(bench.repository, "rev-list", "--count", f"main..{branch}") == "1", "nothing red was committed"
    counts = {"passed": 1, "failed": 0, "skipped": 0, "exit": 0}
    runs = {"before": counts, "kept": counts, "after": counts, "new": counts}
    assert result.to_json()["tests"] == {"proof": "passed", **runs}
    body = bench.body(result)
    assert commit_of_report(body) == str(result.commit)
    assert "WARNING" not in body
    assert "\n\n***\n\n## In the model's own words\n\n> It subtracted." in body
    assert [event["is_red"] for event in events(bench.stage, "Verified")] == [True, False]
    phases = [event["phase"] for event in events(bench.stage, "PhaseEntered")]
    assert len(events(bench.stage, "SessionEnded")) == 1
    assert " ".join(phases) == "choose clone plan verify plan act verify act verify propose finish"
    assert all(verifier.is_closed for verifier in bench.verifiers)


async def test_the_environment_is_prepared_before_its_first_use_and_closed_after_the_last(
    bench: Bench,
) -> None:
    """A folder on this machine needs no preparation, a container does."""
    log: list[str] = []

    def logged(parts: CycleParts) -> CycleParts:
        return replace(
            parts,
            environment=lambda tree, inside: LoggingEnvironment(parts.environment(tree, inside), log.append),
        )

    bench.change = logged
    assert (await bench.run(do(READ, MEND, PROPOSE, FINISH))).outcome == "proposed"
    done = [line.partition(" ")[0].rstrip(":") for line in log]
    assert (done[0], done[-1]) == ("initialize", "cleanup")
    assert (done.count("initialize"), done.count("cleanup")) == (1, 1)
    assert "write_file" in done


def never_ends(runs: FakeRuns) -> None:
    runs.base_hangs = True


@pytest.mark.parametrize("is_required", [False, True])
async def test_the_run_of_the_base_ends_with_the_minutes_of_the_cycle(
    bench: Bench, *, is_required: bool
) -> None:
    bench.set_up, bench.is_required = never_ends, is_required
    result = await bench.run(do(BREAKING, PROPOSE, FINISH), max_minutes=0.01)
    said = [event["message"] for event in events(bench.stage, "Warned")]
    assert any("raise max_minutes" in message for message in said), said
    assert result.outcome == ("failed" if is_required else "limit"), result.error
    assert bench.stage.model.requests == []
    assert all(verifier.is_closed for verifier in bench.verifiers)


async def test_the_same_files_are_run_once(bench: Bench) -> None:
    again = do(PROPOSE)
    result = await bench.run(do(BREAKING, PROPOSE), again, do(READ, MEND, PROPOSE), do(PROPOSE, FINISH))
    assert bench.stage.told(2).count(REFUSED) == 1
    assert result.outcome == "proposed"
    (verifier,) = bench.verifiers
    assert [kind for kind, _ in verifier.made] == ["before", "after", "after"]
    assert verifier.verified == 2


async def test_what_stays_red_is_said_on_top_in_the_last_round_if_a_person_wants_it(bench: Bench) -> None:
    result = await bench.run(do(BREAKING, PROPOSE), do(PROPOSE, FINISH), max_rounds=2, propose_failing=True)
    assert result.outcome == "proposed", result.error
    pull = result.pull_request
    assert pull is not None
    assert pull.draft
    assert pull.body.startswith("> [!WARNING]\n")
    assert WARNED in pull.body.partition("\n\n")[0]
    (record,) = bench.stage.home.rglob("pulls/*.json")
    assert "tests-fail" in record.read_text()


async def test_the_only_round_is_the_last_one(bench: Bench) -> None:
    result = await bench.run(do(BREAKING, PROPOSE, FINISH), max_rounds=1, propose_failing=True)
    assert result.outcome == "proposed"
    assert bench.body(result).startswith("> [!WARNING]\n")


GIVE_UP = do(("finish", {"reason": "I cannot mend it."}))


async def test_a_model_that_gives_up_leaves_a_draft_that_says_what_fails(bench: Bench) -> None:
    result = await bench.run(do(BREAKING, PROPOSE), GIVE_UP, GIVE_UP, propose_failing=True)
    assert result.outcome == "proposed", result.error
    assert result.pull_request is not None
    assert result.pull_request.draft
    assert WARNED in result.pull_request.body


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize("last", ["It is fixed.", "Shall I do anything else?"])
@pytest.mark.parametrize("first", [(BREAKING,), (BREAKING, PROPOSE)])
async def test_what_fails_and_is_only_talked_about_is_a_draft_that_says_so(
    bench: Bench, first: tuple[Any, ...], last: str
) -> None:
    steps = calls(*first), reply("It is fixed."), reply(last)
    kept = await bench.run(*steps, contract="native")
    assert kept.outcome == "tests_fail", kept.error
    assert kept.pull_request is None
    bench.stage.command("forget", kept.task.key if kept.task else "", "--repo", str(bench.repository))
    result = await bench.run(*steps, contract="native", propose_failing=True)
    assert result.outcome == "proposed", result.error
    assert result.pull_request is not None
    assert result.pull_request.draft
    assert WARNED in result.pull_request.body
    assert not [event for event in events(bench.stage, "Warned") if "no pull request" in event["message"]]


@pytest.mark.parametrize(
    ("steps", "rounds"),
    [
        ((do(BREAKING, PROPOSE, FINISH),), 1),
        ((do(BREAKING, PROPOSE), do(PROPOSE, FINISH)), 2),
        ((do(BREAKING, PROPOSE), GIVE_UP, GIVE_UP), 9),
    ],
)
async def test_what_breaks_a_test_is_kept_and_not_proposed(
    bench: Bench, steps: tuple[Any, ...], rounds: int
) -> None:
    result = await bench.run(*steps, max_rounds=rounds)
    assert (result.outcome, result.pull_request) == ("tests_fail", None), result.error
    assert result.to_json()["tests"]["proof"] == "failed"
    assert "test_double" in str(result.reason)
    assert result.saved
    assert not branches(bench.repository)
    assert result.task is not None
    listed = bench.stage.command("pulls", "--repo", str(bench.repository)).out
    assert "its tests fail, the work is kept" in listed
    asked = len(bench.stage.model.requests)
    waits = await bench.run(text=None)
    assert (waits.outcome, len(bench.stage.model.requests)) == ("no_task", asked)


async def test_what_is_kept_is_a_draft_without_a_model_where_a_person_wants_it(bench: Bench) -> None:
    kept = await bench.run(do(BREAKING, PROPOSE), GIVE_UP, GIVE_UP)
    asked = len(bench.stage.model.requests)
    assert kept.task is not None
    result = await bench.run(text=kept.task.key, propose_failing=True)
    assert result.outcome == "proposed", result.error
    assert len(bench.stage.model.requests) == asked
    assert result.pull_request is not None
    assert result.pull_request.draft
    assert (result.pull_request.title, WARNED in result.pull_request.body) == ("Make add() add", True)


async def test_what_is_kept_goes_on_where_a_person_wants_another_try(bench: Bench) -> None:
    kept = await bench.run(do(BREAKING, PROPOSE), GIVE_UP, GIVE_UP)
    assert kept.task is not None
    result = await bench.run(do(READ, MEND, PROPOSE, FINISH), text=kept.task.key)
    assert result.outcome == "proposed", result.error
    assert result.to_json()["tests"]["proof"] == "passed"


async def test_a_replay_of_what_was_kept_proposes_nothing(bench: Bench) -> None:
    first = await bench.run(do(BREAKING, PROPOSE), GIVE_UP, GIVE_UP, dry_run=True)
    assert first.outcome == "tests_fail"
    again = await bench.run(model=f"replay:{first.run}", dry_run=True)
    assert again.outcome == "tests_fail", again.error


async def test_what_was_changed_after_the_refusal_is_not_proposed_unasked(bench: Bench) -> None:
    give_up = do(("finish", {"reason": "I cannot mend it."}))
    other = do(write("calc.py", "def add(a, b):\n    return 4\n"))
    result = await bench.run(do(BREAKING, PROPOSE), do(READ), other, give_up, give_up)
    assert result.outcome == "tests_fail"
    assert not branches(bench.repository)
    assert "test_double" in str(result.reason)
    assert result.patch


@pytest.mark.parametrize("rounds", [2, 9])
async def test_where_tests_are_required_nothing_red_is_proposed_and_the_work_is_kept(
    bench: Bench, rounds: int
) -> None:
    bench.is_required = True
    give_up = do(("finish", {"reason": "I cannot mend it."}))
    result = await bench.run(do(BREAKING, PROPOSE), give_up, give_up, max_rounds=rounds)
    assert result.pull_request is None
    assert not branches(bench.repository)
    assert result.outcome == "tests_fail"
    assert "test_double" in str(result.reason)
    assert (
        "after 0 passed, 1 failed, 0 skipped, exit code 1"
        in bench.stage.command("digest", "--run", "last").out
    )
    assert result.saved
    assert result.patch


async def test_required_tests_that_cannot_be_run_cost_no_model(bench: Bench) -> None:
    bench.is_required = True
    bench.set_up = lambda runs: setattr(runs, "problem", "the set-up ended with exit code 1")
    result = await bench.run()
    assert result.outcome == "failed"
    assert "cannot be run" in str(result.error)
    assert "the set-up ended with exit code 1" in str(result.error)
    assert not bench.stage.model.requests


async def test_tests_that_cannot_be_prepared_cost_no_model(bench: Bench) -> None:
    bench.set_up = lambda runs: setattr(runs, "problem", "the set-up ended with exit code 1")
    result = await bench.run()
    assert (result.outcome, bench.stage.model.requests) == ("failed", [])
    assert "no model was asked: the set-up ended with exit code 1" in str(result.error)
    assert "--untested" in str(result.error)


async def test_a_person_may_go_on_without_tests_and_it_is_said(bench: Bench) -> None:
    bench.set_up = lambda runs: setattr(runs, "problem", "the set-up ended with exit code 1")
    result = await bench.run(do(("run_tests", {}), FIX), FIX_IT, untested=True)
    assert "could not run the project's tests" in bench.stage.told(0)
    assert "the set-up ended with exit code 1" in bench.stage.told(1)
    assert result.outcome == "proposed"
    assert "the set-up ended with exit code 1" in bench.body(result).partition("\n***\n")[0]
    assert result.to_json()["tests"]["proof"] == "unknown"


class TestTheTaskNamesTests:
    async def test_they_are_shown_and_have_to_pass(self, bench: Bench) -> None:
        add_commit(bench.repository, {"test_calc.py": BOTH}, "Show the defect")
        only_double = write("calc.py", CALC.replace("a - b", "a - b + 0"))
        first, second = do(READ, only_double, PROPOSE, FINISH), do(MEND, PROPOSE, FINISH)
        result = await bench.run(first, second, text="test_add of test_calc.py fails: add() subtracts")
        told = bench.stage.told(0)
        assert "1 pass and 1 fail" in told
        assert "`test_calc.py::test_add`\n```\nAssertionError" in told
        assert "`test_calc.py::test_double`" not in told
        assert (
            "The task names these tests, and they still fail:\n- test_calc.py::test_add"
            in bench.stage.told(1)
        )
        assert result.outcome == "proposed"

    async def test_a_stranger_s_remark_names_none(self, bench: Bench) -> None:
        add_commit(bench.repository, {"test_calc.py": BOTH}, "Show the defect")
        await bench.run(do(FINISH), do(FINISH), text="Tidy the code")
        assert "has to make them pass" not in bench.stage.told(0)


class TestTheModelRunsThem:
    async def test_it_sees_what_fails_and_what_failed_before(self, bench: Bench) -> None:
        add_commit(bench.repository, {"test_calc.py": BOTH}, "Show the defect")
        one = ("run_tests", {"tests": ["test_calc.py::test_double"]})
        calls = do(("run_tests", {}), READ), do(FIX, ("run_tests", {}), READ), do(one, READ), do(FINISH)
        await bench.run(*calls, do(FINISH))
        first, second, third = (bench.stage.told(request) for request in (1, 2, 3))
        assert "failed before your change, too: `test_calc.py::test_add`" in first
        assert "def double" in first, "what failed before blocks nothing"
        assert "failed before your change" not in second
        assert "Not run: a call before this one failed" in second
        assert "Not run" in third
        assert [ids for _, ids in bench.verifiers[0].made if ids] == [("test_calc.py::test_double",)]

    def test_without_a_test_command_there_is_no_such_tool(self, stage: Stage, repository: Path) -> None:
        stage.script(FIX_IT)
        body = stage.run("--repo", str(repository), "--task", "Fix add()").result["pull_request"]["body"]
        assert "run_tests" not in tools_on_offer(stage.model.requests[0].body)
        assert "No command and no test was run." in body
        assert stage.events()[-1]["result"]["tests"] is None

    @pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
    @pytest.mark.parametrize("contract", ["json-plan", "native", "single-step"])
    async def test_every_contract_offers_it(self, bench: Bench, contract: str) -> None:
        await bench.run(do(FINISH), do(FINISH), contract=contract, max_rounds=1)
        assert "run_tests" in tools_on_offer(bench.stage.model.requests[0].body)


class TestChangedTests:
    CHANGED = write("test_calc.py", TESTS.replace("== 6", "== 12"))

    async def test_what_passes_only_as_changed_goes_back_once(self, bench: Bench) -> None:
        result = await bench.run(do(BREAKING, self.CHANGED), do(self.CHANGED, PROPOSE), do(PROPOSE, FINISH))
        told = bench.stage.told(2)
        assert "propose it again as it is" in told
        assert "test_double" in told
        assert result.outcome == "proposed"
        assert (
            "passed before and passes now only because it was changed"
            in bench.body(result).partition("\n***\n")[0]
        )
        assert result.pull_request is not None
        assert not result.pull_request.draft


async def test_a_cycle_that_is_cancelled_in_a_run_keeps_its_work(bench: Bench) -> None:
    running = asyncio.Event()
    bench.set_up = lambda runs: setattr(runs, "hangs", running)
    bench.stage.script(FIX_IT)
    program = bench.program(TASK)
    cycle = asyncio.create_task(program.cycle())
    await running.wait()
    program.stop.at_once()
    cycle.cancel()
    result = await cycle
    await program.close()
    assert result.outcome == "interrupted"
    assert result.saved
    assert not branches(bench.repository)
    (verifier,) = bench.verifiers
    assert (verifier.ended, verifier.is_closed) == (1, True)
    bench.set_up = lambda _runs: None
    resumed = await bench.run(do(READ, MEND, PROPOSE, FINISH))
    assert resumed.outcome == "proposed", resumed.error
    assert "You were stopped in the middle" in bench.stage.told(1)


async def test_minutes_of_tests_are_the_cycle_s(bench: Bench) -> None:
    bench.set_up = lambda runs: setattr(runs, "hangs", asyncio.Event())
    result = await bench.run(FIX_IT, max_minutes=0.03)
    assert result.outcome == "limit"
    assert bench.verifiers[0].ended == bench.verifiers[0].begun
    assert result.saved or not bench.verifiers[0].begun


async def test_a_replay_runs_none_and_goes_the_same_way(bench: Bench) -> None:
    asked = do(("run_tests", {}), BREAKING, ("run_tests", {}))
    first = await bench.run(asked, do(PROPOSE), do(READ, MEND, PROPOSE, FINISH), dry_run=True)
    asked_then = len(bench.stage.model.requests)
    again = await bench.run(model=f"replay:{first.run}", dry_run=True)
    assert again.outcome == "planned", again.error
    assert len(bench.stage.model.requests) == asked_then
    assert len(bench.verifiers) == 1
    ends = [
        [event["status"] for event in bench.stage.events(run) if event["type"] == "ToolCallEnded"]
        for run in (str(first.run), str(again.run))
    ]
    assert ends[0] == ends[1]
    assert again.tests is None
    assert "No command and no test was run." in bench.body(again)


async def test_a_dry_run_runs_them_too(bench: Bench) -> None:
    result = await bench.run(do(BREAKING, PROPOSE, FINISH), do(READ, MEND, PROPOSE, FINISH), dry_run=True)
    assert result.outcome == "planned"
    assert find_block(bench.body(result)).statement is not None


class TestOnGitHub:
    @pytest.fixture
    def hosted(self, github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Hosted:
        monkeypatch.setenv("GITHUB_TOKEN", github.token())
        return Hosted.begin(github, stage, {"calc.py": CALC, "test_calc.py": TESTS})

    @pytest.fixture
    def far(self, hosted: Hosted, tmp_path: Path) -> Bench:
        flags = {"github_url": hosted.github.web_url}
        return Bench(hosted.stage, tmp_path / "nothing", tmp_path, flags, repo=NAME)

    MENDED = do(READ, MEND, PROPOSE, FINISH)

    @staticmethod
    def body(hosted: Hosted) -> str:
        return hosted.pull.body or ""

    @pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
    async def test_a_pull_request_on_its_moved_base_says_what_its_tests_are_now(
        self, hosted: Hosted, far: Bench
    ) -> None:
        await far.run(self.MENDED, text=None)
        first = hosted.tip
        words = self.body(hosted).partition("\n***\n")[2]
        assert commit_of_report(self.body(hosted)) == first
        hosted.people_commit({"README.md": "# Calc\n"}, branch="main")
        people.label(hosted.github, hosted.pull, REBASE_LABEL, "ada")
        result = await far.run(text=None)
        assert result.outcome == "proposed", result.error
        assert hosted.asked == 1
        assert hosted.tip != first
        assert commit_of_report(self.body(hosted)) == hosted.tip
        assert self.body(hosted).partition("\n***\n")[2] == words
        assert result.tests is not None

    @pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
    async def test_what_the_moved_base_breaks_is_for_a_model(self, hosted: Hosted, far: Bench) -> None:
        await far.run(self.MENDED, text=None)
        first = hosted.tip
        other = TESTS + "\ndef test_zero():\n    assert add(1, 1) == 0\n"
        hosted.people_commit({"test_calc.py": other}, branch="main")
        people.label(hosted.github, hosted.pull, REBASE_LABEL, "ada")
        give_up = do(("finish", {"reason": "The new test wants the defect."}))
        await far.run(give_up, give_up, text=None)
        assert hosted.asked > 1
        assert hosted.tip == first
        assert any("test_zero" in str(event) for event in events(far.stage, "Verified"))

    @pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
    async def test_what_an_earlier_cycle_had_begun_is_run_again_and_proposed_without_a_model(
        self, hosted: Hosted, far: Bench
    ) -> None:
        down = Fault("POST", r".*/pulls", 99, status=502)
        hosted.github.faults.append(down)
        first = await far.run(self.MENDED, text=None)
        assert first.pull_request is None, first
        hosted.github.faults.remove(down)
        second = await far.run(text=None)
        assert second.outcome == "proposed", second.error
        assert hosted.asked == 1
        assert [kind for kind, _ in far.verifiers[1].made] == ["before", "after"]
        assert commit_of_report(self.body(hosted)) == hosted.tip

    async def test_the_issue_gets_the_table_and_the_commands_until_the_change_is_proposed(
        self, hosted: Hosted, far: Bench
    ) -> None:
        kept = await far.run(do(BREAKING, PROPOSE), GIVE_UP, GIVE_UP, text=None)
        assert kept.outcome == "tests_fail", kept.error
        assert kept.task is not None
        said = "\n".join(comment.body for comment in hosted.ours(1))
        assert "did not propose it, because its tests fail" in said
        assert "| after: this change | 0 | 1 | 0 |" in said
        assert f"pullwright retry {kept.task.key} " in said
        assert f"--task {kept.task.key} --propose-failing" in said
        result = await far.run(do(READ, MEND, PROPOSE, FINISH), text=kept.task.key)
        assert result.outcome == "proposed", result.error
        said = "\n".join(comment.body for comment in hosted.ours(1))
        assert "its tests fail" not in said

    @pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
    async def test_the_label_of_failing_tests_goes_when_they_pass(self, hosted: Hosted, far: Bench) -> None:
        await far.run(do(FIX, PROPOSE, FINISH), text=None, max_rounds=1, propose_failing=True)
        assert "tests-fail" in hosted.pull.labels
        reviews.say(hosted.github, hosted.pull, "ada", "Please mend double() too.")
        again = await far.run(do(READ, MEND, PROPOSE, FINISH), text=None)
        assert again.outcome == "proposed", again.error
        assert "tests-fail" not in hosted.pull.labels
        assert "WARNING" not in self.body(hosted)


def test_with_real_runs_of_a_runner_that_writes_no_report(stage: Stage, tmp_path: Path) -> None:
    case = "import unittest\nfrom calc import double\n\nclass T(unittest.TestCase):\n    def test_double(self):\n"
    files = {"calc.py": CALC, "test_calc.py": f"{case}        self.assertEqual(double(3), 6)\n"}
    repository = make_repository(tmp_path / "calc", files)
    command = f"{shlex.quote(sys.executable)} -S -m unittest"
    stage.script(do(BREAKING, PROPOSE, FINISH), do(READ, MEND, PROPOSE, FINISH))
    done = stage.run("--repo", str(repository), "--task", TASK, "--test-command", command, "--sandbox", "off")
    assert "the test command ends with exit code 0" in stage.told(0)
    assert "passed before your change and fail" in stage.told(1)
    assert done.result["outcome"] == "proposed", done.err
    assert done.result["tests"]["after"] == {"passed": None, "failed": None, "skipped": None, "exit": 0}
    assert commit_of_report(done.result["pull_request"]["body"]) == done.result["commit"]
    told = [(event["kind"], event["exit"]) for event in events(stage, "TestRunEnded")]
    assert told == [("before", 0), ("after", 1), ("after", 0)]
