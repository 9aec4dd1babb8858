"""A worker whose repositories are worked on by an agent program, by a flag or in the fleet's file."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING

from tests.doubles import forked
from tests.doubles.model_server import calls
from tests.plugins.agents.test_cycle import FINISH, agent
from tests.scenarios.stage import FIXED, add_commit, branches, content, do, make_repository

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.model_server import RecordedRequest, Step
    from tests.scenarios.stage import Stage

TASKS = "- [ ] Mend add()\n- [ ] Write a note\n"


def planned(folder: Path, backlog: str) -> Path:
    """A repository with a backlog."""
    repository = make_repository(folder)
    add_commit(repository, {"BACKLOG.md": backlog}, "Plan")
    return repository


def fleet(folder: Path, stage: Stage, *repositories: str) -> Path:
    """A file of repositories, which ask the scripted model."""
    file = folder / "fleet.toml"
    defaults = f'[defaults]\nmodel = "openai-chat:scripted-1"\napi_url = "{stage.model.url}"\n'
    file.write_text(defaults + "".join(f"[[repository]]\n{one}\n" for one in repositories))
    return file


def scripted() -> str:
    """The keys of a repository that name the scripted agent."""
    _, command, *readable = agent()
    return f"agent = {json.dumps(command)}\nsandbox_read = {json.dumps(readable[1::2])}"


def working(request: RecordedRequest) -> Step:
    """What a model says to the task that it is given: an agent's, or our own."""
    agents, told = "tools" in request.body, str(request.body["messages"][-1]["content"])
    path, text = ("calc.py", FIXED) if "Mend add()" in told.rpartition("Its words:")[2] else ("a.txt", "a\n")
    propose = ("create_pull_request", {"title": f"Write {path}", "body": "So."})
    if agents:
        return calls(("write", {"path": path, "text": text}), propose, FINISH)
    return do(("write_file", {"path": path, "content": text}), propose, FINISH)


def test_a_worker_gives_an_agent_one_task_after_the_other(stage: Stage, tmp_path: Path) -> None:
    repository = planned(tmp_path / "calc", TASKS)
    file = fleet(tmp_path, stage, 'name = "./calc"')
    stage.script(working, working)
    with forked.piped("worker", "--config", str(file), "--json", *agent()) as (process, out, err):
        told = [json.loads(out.readline()) for _ in range(3)]
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130, err.read()
    assert [(one["outcome"], one["rounds"]) for one in told] == [
        ("proposed", 1),
        ("proposed", 1),
        ("no_task", 0),
    ]
    assert [one["task"]["title"] for one in told[:2]] == ["Mend add()", "Write a note"]
    mended, noted = branches(repository)
    assert content(repository, mended, "calc.py") + "\n" == FIXED
    assert content(repository, noted, "a.txt") == "a"


def test_a_fleet_has_repositories_with_agents_beside_others(stage: Stage, tmp_path: Path) -> None:
    """What an agent does not fit is one line for its own repository, and stops no other one."""
    for name in ("one", "own", "absent", "misfit"):
        planned(tmp_path / name, "- [ ] Mend add()\n")
    misfit = f'name = "./misfit"\n{scripted()}\ntemperature = 0.5'
    names = (f'name = "./one"\n{scripted()}', 'name = "./own"', 'name = "./absent"\nagent = "claude"', misfit)
    file = fleet(tmp_path, stage, *names)
    stage.script(working, working)
    done = stage.command("worker", "--config", str(file), "--once", "--json")
    told = {one["repository"].rpartition("/")[2]: one for one in done.results}
    assert {name: one["outcome"] for name, one in told.items()} == {
        **dict.fromkeys(("one", "own"), "proposed"),
        **dict.fromkeys(("absent", "misfit"), "failed"),
    }, done.err
    asked = {"tools" in one.body for one in stage.model.requests}
    assert asked == {True, False}, "one is asked by the agent, and one by the own loop"
    for name, words in (
        ("absent", "Claude Code is not installed: npm install"),
        ("misfit", "temperature does not apply to python"),
    ):
        assert words in told[name]["disabled"]
        assert "\n" not in told[name]["disabled"]
        assert branches(tmp_path / name) == []
