"""An agent beside the model's own loop, on a repository's past."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli import main
from tests.doubles.model_server import ModelServer, calls, reply
from tests.plugins.agents.test_cycle import FINISH, PROPOSE, agent
from tests.plugins.backtest.past import PYTEST, make_past
from tests.plugins.backtest.scripted_past import ScriptedPast, copies

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step
    from tests.scenarios.stage import Stage


@pytest.mark.slow(reason="it runs a case's tests many times")
@pytest.mark.timeout(600)
def test_an_agent_and_the_own_loop_are_two_arms(
    tmp_path: Path, own_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del own_state
    past = make_past(tmp_path / "shop")
    python = [word for folder in {sys.prefix, sys.base_prefix} for word in ("--sandbox-read", folder)]
    with ScriptedPast({"copies": copies(past)}) as models:
        main(
            [
                *("backtest", "--json", "--plain", "--repo", str(past), "--from-git", "--last", "1"),
                *(
                    "--model",
                    "openai-chat:copies",
                    "--api-url",
                    models.url,
                    "--test-command",
                    PYTEST,
                    *python,
                ),
                *("--agent", "none", *agent()),
            ]
        )
    told = json.loads(capsys.readouterr().out)
    judged = {one["arm"]: one["judged"] for one in told["tries"]}
    # The model's script has the form of the own loop's replies, so that an agent finds nothing to do in it.
    assert judged == {"openai-chat:copies, json-plan": "solved", "openai-chat:copies, python": "nothing"}


@pytest.mark.slow(reason="it runs a case's tests many times")
@pytest.mark.timeout(600)
def test_an_agent_is_compared_bare_and_inside(
    tmp_path: Path, own_state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bare it has nobody to tell it that its first change was wrong, and no tool of the host's."""
    del own_state
    past = make_past(tmp_path / "shop")
    right, wrong = copies(past), {"shop.py": "def total(prices, discount):\n    return 0\n"}
    offered: dict[str, set[str]] = {}
    asked: list[str] = []

    class Mending(ModelServer):
        """Writes what is wrong, proposes it, and mends it if it is told so."""

        def take(self, request: RecordedRequest) -> Step:
            body = request.body
            names = {one["function"]["name"] for one in body["tools"]}
            first = str(body["messages"][0]["content"])
            arm = "inside" if "create_pull_request" in names else "bare"
            offered[arm], said = names, [one for one in body["messages"] if one["role"] == "assistant"]
            asked.append(arm)
            steps = [calls(*(("write", {"path": path, "text": text}) for path, text in wrong.items()))]
            if arm == "inside":
                mended = right(first).items()
                steps += [calls(PROPOSE)]
                steps += [calls(*(("write", {"path": path, "text": text}) for path, text in mended))]
                steps += [calls(PROPOSE), calls(FINISH)]
            return steps[len(said)] if len(said) < len(steps) else reply("It is done.")

    python = [word for folder in {sys.prefix, sys.base_prefix} for word in ("--sandbox-read", folder)]
    flag, command, *readable = agent()
    with Mending() as models:
        place = ["--model", "openai-chat:mends", "--api-url", models.url, "--test-command", PYTEST]
        words = ["backtest", "--json", "--plain", "--repo", str(past), "--from-git", "--last", "1", *place]
        main([*words, *python, flag, command, flag, f"bare:{command}", *readable])
    told = json.loads(capsys.readouterr().out)
    judged = {one["arm"]: one["judged"] for one in told["tries"]}
    assert judged == {"openai-chat:mends, python": "solved", "openai-chat:mends, bare-python": "wrong"}, told
    assert offered["bare"] == {"read_file", "list_dir", "grep", "glob"}
    assert asked.count("bare") == 2, "no second turn"


def test_an_agent_that_is_not_there_is_named_before_anything_is_paid(stage: Stage, repository: Path) -> None:
    model = ["--model", "anthropic:made-up", "--api-url", stage.model.url]
    done = stage.command(
        "backtest",
        "--repo",
        str(repository),
        "--from-git",
        "--agent",
        "claude",
        *model,
        "--test-command",
        "true",
    )
    assert done.code != 0
    assert "Claude Code is not installed" in done.err
