"""A task of 300 rounds with 2 kB each in a window of 16,000 tokens: it ends with its pull request."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.model_server import calls, plan, reply
from tests.scenarios.stage import PROPOSE, Stage, add_commit, branches, content

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step
    from tests.scenarios.stage import Call

ROUNDS, WINDOW = 300, 16_000
TASK = "Write each number from 1 to 10 into a file of its own, and never use mocks"
SUMMARY = "\n".join(
    f"## {name}\nwords of the summary {'of some length ' * 20}"
    for name in ("Goal", "Progress and decisions", "Constraints", "Remaining", "Critical data")
)
FORMS = {"json-plan": plan, "native": calls, "single-step": calls}


@dataclass
class LongTask:
    """Looks at files of 2 kB, and every 30 rounds writes one and runs a command.

    Attributes:
        asked: what was asked of it, without the questions for a summary.
    """

    contract: str
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
        if self.given > ROUNDS:
            return PROPOSE if self.given == ROUNDS + 1 else ("finish", {"reason": "done"})
        if rest == 1:
            return "write_file", {"path": f"number{number + 1}.txt", "content": f"{number + 1}\n"}
        if rest == 2:
            return "run_shell_command", {"command": f"echo result {number}; exit {number}"}
        return "read_file", {"path": f"pages/{self.given % 50}.txt"}


@pytest.mark.slow(reason="300 rounds of a whole cycle")
@pytest.mark.parametrize("contract", FORMS)
def test_a_long_task_ends_with_its_pull_request(stage: Stage, repository: Path, contract: str) -> None:
    pages = {f"pages/{number}.txt": f"page {number}\n" + "words and words\n" * 125 for number in range(50)}
    add_commit(repository, {**pages, "AGENTS.md": "Keep the names short.\n"}, "Pages")
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
    assert max(one["tokens_after"] for one in shorter) < WINDOW * 0.45
    assert model.questions == len(shorter)
