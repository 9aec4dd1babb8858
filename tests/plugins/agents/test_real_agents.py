"""The four published agents through the whole cycle, each with a model server that plays for it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.doubles.sse_server import SseServer
from tests.plugins.agents.real_agents import AGENTS, ModelOf, installed
from tests.scenarios.stage import FIXED, branches, content, git

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.scenarios.stage import Done, Stage

pytestmark = pytest.mark.slow(reason="each starts a published agent, which takes seconds")
TASK = ("--task", "Fix add() in calc.py")
PROPOSE = ("create_pull_request$", {"title": "Make add() add", "body": "It subtracted."})
FINISH = ("finish$", {"reason": "The pull request is open."})
EVERY_AGENT = pytest.mark.parametrize("name", sorted(AGENTS))


@contextlib.contextmanager
def model_of(name: str, home: Path) -> Iterator[ModelOf]:
    """A model server for an agent that is installed."""
    installed(home, name)
    with SseServer() as server:
        yield ModelOf(AGENTS[name], server)


def run(stage: Stage, repository: Path, name: str, model: ModelOf, *more: str) -> Done:
    """`pullwright run` with an agent."""
    played = model.played
    place = ["--model", played.model, "--api-url", f"{model.server.url}{played.path}"]
    return stage.command("run", "--json", "--repo", str(repository), "--agent", name, *place, *TASK, *more)


@EVERY_AGENT
def test_a_task_is_done_and_the_commit_is_exact(stage: Stage, repository: Path, name: str) -> None:
    with model_of(name, stage.home) as model:
        model.steps = [*model.played.look, model.played.edit, PROPOSE, FINISH]
        done = run(stage, repository, name, model)
        assert done.code == 0, done.err
        assert done.result["outcome"] == "proposed", done.err
        (branch,) = branches(repository)
        assert content(repository, branch, "calc.py") + "\n" == FIXED
        assert git(repository, "diff", "--name-status", "main", branch) == "M\tcalc.py"
        assert done.result["rounds"] >= len(model.asked) - 1
