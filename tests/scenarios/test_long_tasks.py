"""A task of 300 rounds with 2 kB each in a window of 16,000 tokens: it ends with its pull request.

So does a shorter one whose program is killed while a summary is written, or that another machine goes on with.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.model_server import ModelServer, calls, plan, reply
from tests.scenarios.dying import Mortal, claims, hidden
from tests.scenarios.stage import PROPOSE, Stage, add_commit, branches, content, git, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step
    from tests.scenarios.stage import Call

ROUNDS, WINDOW = 300, 16_000
TASK = "Write each number from 1 to 10 into a file of its own, and never use mocks"
SUMMARY = "\n".join(
    f"## {name}\nwords of the summary {'of some length ' * 20}"
    for name in ("Goal", "Progress and decisions", "Constraints", "Remaining", "Critical data")
)
PAGES = {
    "AGENTS.md": "Keep the names short.\n",
    **{f"pages/{number}.txt": f"page {number}\n" + "words and words\n" * 125 for number in range(50)},
}
FORMS = {"json-plan": plan, "native": calls, "single-step": calls}


@dataclass
class LongTask:
    """Looks at files of 2 kB, and every 30 rounds writes one and runs a command.

    Attributes:
        asked: what was asked of it, without the questions for a summary.
    """

    contract: str
    rounds: int = ROUNDS
    asked: list[str] = field(default_factory=list)
    longest: int = 0
    questions: int = 0
    given: int = 0

    def __call__(self, request: RecordedRequest) -> Step:
        messages = request.body["messages"]
        said = json.dumps(messages)
        self.longest = max(self.longest, len(said))
        if "this conversation is about to be made shorter" in str(messages[-1]["content"]):
            self.questions += 1
            return reply(SUMMARY, usage=False)
        self.asked.append(said)
        self.given += 1
        call = self.call()
        step = plan(f"step {self.given}", [call]) if self.contract == "json-plan" else calls(call)
        if step.tool_calls:
            named = tuple({**one, "id": f"call_{self.given}"} for one in step.tool_calls)
            step = replace(step, tool_calls=named)
        return replace(step, usage=False)

    def call(self) -> Call:
        number, rest = divmod(self.given, 30)
        if self.given > self.rounds:
            return PROPOSE if self.given == self.rounds + 1 else ("finish", {"reason": "done"})
        if rest == 1:
            return "write_file", {"path": f"number{number + 1}.txt", "content": f"{number + 1}\n"}
        if rest == 2:
            return "run_shell_command", {"command": f"echo result {number}; exit {number}"}
        return "read_file", {"path": f"pages/{self.given % 50}.txt"}


@pytest.mark.slow(reason="300 rounds of a whole cycle")
@pytest.mark.parametrize("contract", FORMS)
def test_a_long_task_ends_with_its_pull_request(stage: Stage, repository: Path, contract: str) -> None:
    add_commit(repository, PAGES, "Pages")
    model = LongTask(contract)
    stage.script(*[model] * (ROUNDS * 2))
    flags: tuple[str, ...] = ("--contract", contract, "--profile", "planner", "--allow-dangerous-tools")
    flags = (*flags, "--context-window", str(WINDOW), "--max-rounds", "400")
    done = stage.run("--repo", str(repository), "--task", TASK, *flags)
    assert done.code == 0, done.err
    assert done.result["outcome"] == "proposed"
    (branch,) = branches(repository)
    assert [content(repository, branch, f"number{n}.txt") for n in (1, 10)] == ["1", "10"]
    assert model.longest // 4 < WINDOW
    last = model.asked[-1]
    wanted = [TASK, "Keep the names short.", *(f"number{n}.txt" for n in range(1, 11))]
    wanted += [f"result {n}" for n in range(10)]
    assert [words for words in wanted if words not in last] == []
    shorter: list[dict[str, Any]] = [one for one in stage.events() if one["type"] == "Compacted"]
    assert len(shorter) > 5
    # A fifth of the window, and what came in while the summary was written.
    assert max(one["tokens_after"] for one in shorter) < WINDOW * 0.5
    # Each summary that was written was taken over. The last one may have been under way at the end.
    aside = [one["event"]["type"] for one in stage.events() if one["type"] == "SubagentEvent"]
    assert model.questions == aside.count("TurnStarted")
    assert aside.count("ReplyReceived") == len(shorter)
    assert model.questions - len(shorter) == (aside[-1] == "TurnStarted")


@pytest.mark.parametrize("window", [8_192, 16_384])
def test_the_first_prompt_fits_a_small_window(stage: Stage, repository: Path, window: int) -> None:
    long = "A long line of words that says next to nothing at all.\n" * 900
    add_commit(repository, {**PAGES, "AGENTS.md": long, "big.py": f"TEXT = 1\n{long}"}, "Long")
    stage.script(calls(("finish", {"reason": "nothing to do"})))
    task = f"Mend big.py and pages/1.txt. {'Mind every word of it. ' * 2_000}"
    flags = ("--contract", "native", "--profile", "planner", "--context-window", str(window))
    done = stage.run("--repo", str(repository), "--task", task, *flags)
    assert done.result["outcome"] == "no_task", done.err
    body = stage.model.requests[0].body
    assert len(json.dumps([body["messages"], body["tools"]])) / 3 < window * 7 / 8
    assert "Mend big.py" in stage.told()


def summaries(asked: str) -> int:
    """How often a request has the sentence with which a message stands for what was before."""
    return asked.count("The conversation before this was made shorter")


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    make_repository(tmp_path / "work")
    add_commit(tmp_path / "work", PAGES, "Pages")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "work"), "bare.git")
    return tmp_path / "bare.git"


@pytest.mark.slow(reason="two cycles of dozens of rounds")
@pytest.mark.parametrize("contract", FORMS)
def test_another_machine_goes_on_with_a_conversation_that_was_made_shorter(
    stage: Stage,
    bare: Path,
    contract: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    model = LongTask(contract, rounds=75)
    stage.script(*[model] * 300)
    flags: tuple[str, ...] = ("--contract", contract, "--profile", "planner", "--allow-dangerous-tools")
    flags = ("--repo", str(bare), "--task", TASK, *flags, "--context-window", str(WINDOW))
    done = stage.run(*flags, "--max-rounds", "40")
    assert done.result["outcome"] == "limit", done.err
    assert model.questions >= 1
    before = len(model.asked)
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path_factory.mktemp("other")))
    done = stage.run(*flags, "--max-rounds", "200")
    assert done.result["outcome"] == "proposed", done.err
    went_on = model.asked[before]
    assert "stopped in the middle" in went_on
    assert summaries(went_on) == 1
    assert "words of the summary" in went_on
    assert model.longest // 4 < WINDOW
    shorter = [one for one in stage.events() if one["type"] == "Compacted"]
    assert shorter, "it was made shorter on the second machine, too"
    last = model.asked[-1]
    assert summaries(last) == 1
    for words in (TASK, "Keep the names short.", "number1.txt", "number3.txt", "result 0", "result 2"):
        assert words in last, words
    assert "# All files" not in last, "of the first message the task is left, and the rules"
    assert hidden(bare, "wip") == []


@pytest.fixture(scope="module")
def mortal() -> Iterator[Mortal]:
    program = Mortal()
    yield program
    program.close()


class Endless(list[Any]):
    """A script that is never over."""

    def __init__(self, model: LongTask) -> None:
        super().__init__([model])

    def pop(self, _index: Any = -1) -> Any:
        return self[0]


@pytest.mark.slow(reason="kills the program while it sums up, and just after")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("after", ["SubagentEvent", "Compacted"])
def test_what_is_killed_while_it_sums_up_goes_on(
    bare: Path, tmp_path: Path, mortal: Mortal, after: str
) -> None:
    flags = {
        "contract": "native",
        "profile": "planner",
        "context_window": WINDOW,
        "max_rounds": 200,
        "permission": "dangerous",
    }
    order: dict[str, Any] = {"repository": str(bare), "text": TASK, "flags": flags}
    model = LongTask("native", rounds=40)
    with ModelServer() as server:
        server.script = Endless(model)
        (tmp_path / "machine").mkdir()
        dead = mortal.start(tmp_path / "machine", server, dies_after=after, **order)
        assert dead.killed
        assert dead.printed[-1] == after
        before = len(model.asked)
        again = mortal.start(tmp_path / "machine", server, **order)
        assert not again.killed
        assert again.result["outcome"] == "proposed", again.printed
    assert summaries(model.asked[before]) == (after == "Compacted")
    assert model.longest // 4 < WINDOW
    assert TASK in model.asked[-1]
    (branch,) = branches(bare)
    assert content(bare, branch, "number2.txt") == "2"
    assert hidden(bare, "wip") == []
    assert [(one["state"], one["outcome"]) for one in claims(bare)] == [("released", "proposed")]


@pytest.mark.slow(reason="two cycles of dozens of rounds")
def test_a_run_that_was_made_shorter_is_repeated_without_a_model(stage: Stage, repository: Path) -> None:
    add_commit(repository, PAGES, "Pages")
    model = LongTask("native", rounds=40)
    stage.script(*[model] * 100)
    flags: tuple[str, ...] = (
        "--contract",
        "native",
        "--profile",
        "planner",
        "--allow-dangerous-tools",
        "--max-rounds",
        "60",
    )
    flags = ("--repo", str(repository), "--task", TASK, *flags, "--context-window", str(WINDOW), "--dry-run")
    assert stage.run(*flags).code == 0
    first = stage.events()
    assert any(one["type"] == "Compacted" for one in first)
    asked = len(stage.model.requests)
    state = json.loads(stage.command("show", "--state", "--json").out)
    assert state["context"]["is_summarised"]
    assert "words of the summary" in state["summary"]
    again = stage.command("run", "--model", "replay:last", *flags, "--json")
    assert again.code == 0, again.err
    assert len(stage.model.requests) == asked
    made = [
        [one["name"] for one in run if one["type"] == "ToolCallStarted"] for run in (first, stage.events())
    ]
    assert made[0] == made[1]
