"""An agent beside the model's own loop, on a repository's past."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli import main
from tests.plugins.agents.test_cycle import agent
from tests.plugins.backtest.past import PYTEST, make_past
from tests.plugins.backtest.scripted_past import ScriptedPast, copies

if TYPE_CHECKING:
    from pathlib import Path

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
