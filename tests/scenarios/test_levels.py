"""What a level does not grant does not run, under every profile and contract, and through subagents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.doubles.model_server import RecordedRequest, Step, calls, plan
from tests.scenarios.stage import CALC, FINISH, PROPOSE, Call, Stage, add_commit, branches

if TYPE_CHECKING:
    from pathlib import Path

TASK = ("--task", "Fix add() in calc.py")
V4A = "*** Begin Patch\n*** Add File: evil.py\n+x = 1\n*** End Patch\n"
UNIFIED = "--- /dev/null\n+++ b/evil.py\n@@ -0,0 +1 @@\n+x = 1\n"

CHANGES: dict[str, tuple[Call, ...]] = {
    "planner": (
        ("write_file", {"path": "evil.py", "content": "x = 1\n"}),
        ("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}),
        ("run_shell_command", {"command": "touch evil.py"}),
    ),
    "openai": (
        ("apply_patch", {"patch": V4A}),
        ("write_file", {"file_path": "evil.py", "content": "x = 1\n"}),
        ("shell", {"command": "touch evil.py"}),
    ),
    "anthropic": (
        ("write_file", {"file_path": "evil.py", "content": "x = 1\n"}),
        ("edit_file", {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}),
        ("shell", {"command": "touch evil.py"}),
    ),
    "gemini": (
        ("write_file", {"file_path": "evil.py", "content": "x = 1\n"}),
        ("edit_file", {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}),
        ("shell", {"command": "touch evil.py"}),
    ),
    "minimal": (
        ("apply_patch", {"patch": UNIFIED}),
        ("shell_command", {"command": "touch evil.py"}),
        ("apply_patch", {"patch": UNIFIED.replace("evil", "worse")}),
    ),
}
CONTRACTS = ("json-plan", "native", "single-step")
slow = pytest.mark.slow(reason="the default tier has each profile under one contract")
EVERY = [
    pytest.param(profile, contract, marks=() if number % len(CONTRACTS) == index else slow)
    for number, profile in enumerate(CHANGES)
    for index, contract in enumerate(CONTRACTS)
]


def say(contract: str, *wanted: Call) -> Step:
    """A reply that calls tools, in the form of the contract."""
    return plan("Do it.", wanted) if contract == "json-plan" else calls(*wanted)


@pytest.mark.parametrize(("profile", "contract"), EVERY)
@pytest.mark.parametrize("whose", ["person", "repository"])
def test_read_only_changes_and_proposes_nothing(
    stage: Stage, repository: Path, profile: str, contract: str, whose: str
) -> None:
    how = ("--permission", "read-only")
    if whose == "repository":
        add_commit(repository, {"pullwright.toml": "permission = 'read-only'\n"}, "Rules")
        how = ("--permission", "dangerous")
    stage.script(*(say(contract, call) for call in (*CHANGES[profile], PROPOSE, FINISH)))
    done = stage.run("--repo", str(repository), *TASK, *how, "--profile", profile, "--contract", contract)
    assert stage.model.requests, done.err
    offered = str(stage.model.requests[0].body.get("tools", "")) + str(
        stage.model.requests[0].body.get("response_format", "")
    )
    for name, _ in CHANGES[profile]:
        assert name not in offered
    assert "You have no tool of this name" in str(stage.asked(1))
    assert len(stage.model.requests) == 3, "three refusals end the session"
    assert branches(repository) == []
    assert done.result.get("patch") is None
    assert (repository / "calc.py").read_text() == CALC
    assert done.code != 0


@pytest.mark.parametrize(("profile", "contract"), EVERY)
def test_the_safe_level_has_no_shell(stage: Stage, repository: Path, profile: str, contract: str) -> None:
    (shell,) = [call for call in CHANGES[profile] if "shell" in call[0]]
    stage.script(say(contract, shell), say(contract, FINISH))
    stage.run("--repo", str(repository), *TASK, "--profile", profile, "--contract", contract)
    assert stage.model.requests
    assert f'"name": "{shell[0]}"' not in str(stage.model.requests[0].body).replace("'", '"')
    assert "You have no tool of this name" in str(stage.asked(1))
    assert branches(repository) == []


def test_refusals_of_subagents_count_for_the_session(stage: Stage, repository: Path) -> None:
    def answer(request: RecordedRequest) -> Step:
        said = json.dumps(request.body["messages"])
        if started := re.search(r"agent_id: ([\w-]+)", said):
            return calls(("wait", {"agent_id": started[1]}))
        if "Run commands for me." in said:
            return calls(("shell", {"command": "touch evil.py"}), ("shell", {"command": f"echo {len(said)}"}))
        return calls(("shell", {"command": "id"}), ("spawn_agent", {"task": "Run commands for me."}))

    stage.script(*[answer] * 9)
    done = stage.run("--repo", str(repository), *TASK, "--contract", "native", "--profile", "anthropic")
    assert len(stage.model.requests) == 3
    assert done.code == 5
    assert "3 calls were refused" in done.result["reason"]
