"""The action with an agent: what is installed, and a whole job with the scripted one."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.plugins.agents.known import known_agents
from tests.doubles.model_server import calls
from tests.plugins.agents.test_cycle import FINISH, PROPOSE, WRITE, agent
from tests.scenarios.stage import FILES
from tests.scenarios.test_action import ACTION, NAME, ROOT, Bench, Job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.doubles.github.server import GitHub
    from tests.scenarios.stage import Stage

pytestmark = [
    pytest.mark.skipif(not ACTION.is_dir(), reason="the built wheel brings no action along"),
    pytest.mark.slow(reason="scripts of the action, and a whole job of it"),
]


def test_the_library_is_installed_by_its_hash_and_the_agent_in_its_tried_version(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.says(
        f'case "$*" in "-I -c "*) exec {shlex.quote(sys.executable)} "$@" ;; esac\n'
        f'echo "$*" >> {tmp_path}/calls\n'
        'case "$*" in *venv*) mkdir -p venv/bin; cp "$0" venv/bin/python ;; esac'
    )
    npm = tmp_path / "bin/npm"
    npm.parent.mkdir()
    npm.write_text(f'#!/bin/sh\necho "npm $*" >> {tmp_path}/calls\n')
    npm.chmod(0o755)
    path = f"{npm.parent}:/usr/bin:/bin"
    status, out = bench.run("install.sh", PYTHON=str(bench.program), INPUT_AGENT="claude", PATH=path)
    assert status == 0, out
    # There is no uv here, so pip installs.
    *_, pip, installed = (tmp_path / "calls").read_text().splitlines()
    assert "--require-hashes" in pip
    assert pip.endswith(f"-r {ROOT}/requirements.lock -r {ACTION}/agents.lock")
    assert installed.startswith("npm install --silent --ignore-scripts ")
    assert installed.endswith(f" {known_agents()['claude'].install}")
    assert bench.outputs["agents"].endswith("/agents/node_modules/.bin")


def test_the_lock_is_that_of_the_tests() -> None:
    pinned = [line for line in (ACTION / "agents.lock").read_text().splitlines() if line[:1] != "#"]
    assert "\n".join(pinned) in (ROOT / "tests/requirements.lock").read_text()


def test_the_program_finds_the_agent_where_it_was_installed(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.says('echo "looks in $PATH" >&2')
    status, out = bench.run(INPUT_AGENTS="/somewhere/node_modules/.bin")
    assert status == 0, out
    assert ":/somewhere/node_modules/.bin\n" in out


def test_a_job_with_an_agent_opens_a_pull_request(tmp_path: Path, github: GitHub, stage: Stage) -> None:
    repo = github.add_repository(NAME, FILES, private=True)
    github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
    (tmp_path / "job").mkdir()
    job = Job(tmp_path / "job", github, stage)
    _, command, *readable = agent()
    stage.script(calls(WRITE), calls(PROPOSE, FINISH))
    args = "\n".join(["--price=1/2", *readable])
    outputs = job.run(agent=command, label="pullwright", args=args)
    assert outputs["outcome"] == "proposed", job.runner.log
    assert [one.title for one in repo.pulls.values()] == ["Make add() add"]
