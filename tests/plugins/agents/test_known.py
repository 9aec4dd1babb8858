"""The data files of the known agents, filled in, and agents that are not there."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.agents.known import agent_named, fill_in, find_installed, known_agents

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

VALUES = {
    "relay": "http://127.0.0.1:1",
    "tools": "http://127.0.0.1:2/mcp",
    "token": "made-up-token",
    "placeholder": "made-up-placeholder",
    "model": "made-up-model",
    "home": "/home/sandbox",
    "output_tokens": "8000",
    "window": "100000",
}
SHELLS = {"claude": "Bash", "codex": "shell_tool", "gemini": "run_shell_command", "opencode": "bash"}
"""What each agent calls its shell."""


@pytest.mark.parametrize("name", sorted(known_agents()))
def test_an_agent_is_pointed_to_the_relay_and_has_no_shell_in_safe(name: str) -> None:
    kind = known_agents()[name]
    safe, dangerous = (fill_in(kind, level, VALUES, ["finish"]) for level in ("safe", "dangerous"))
    for filled in (safe, dangerous):
        told = json.dumps([dict(filled.environment), dict(filled.meta)])
        told += "".join(content.decode() for content in filled.files.values())
        assert VALUES["relay"] in told
        assert VALUES["placeholder"] in told
        assert VALUES["model"] in told
        assert "{{" not in told
        for path, content in filled.files.items():
            assert path.startswith("/home/sandbox/")
            (tomllib.loads if path.endswith(".toml") else json.loads)(content.decode())
    forms = [
        json.dumps([dict(one.meta), {path: one.files[path].decode() for path in one.files}])
        for one in (safe, dangerous)
    ]
    assert forms[0] != forms[1]
    if name == "claude":
        assert SHELLS[name] not in safe.meta["claudeCode"]["options"]["tools"]
        assert safe.meta["claudeCode"]["options"]["allowedTools"] == ["mcp__pullwright__finish"]
    else:
        assert SHELLS[name] in forms[0]  # switched off by its name


WAITS = {
    "claude": '"API_TIMEOUT_MS": "86400000"',
    "codex": "stream_idle_timeout_ms = 86400000",
    "gemini": '"flags": [{"flagId": 45773134, "intValue": "86400"}]',
    "opencode": '"timeout": false, "headerTimeout": false, "chunkTimeout": false',
}


@pytest.mark.parametrize("name", WAITS)
def test_an_agent_waits_for_a_slow_model_as_long_as_the_relay_does(name: str) -> None:
    """Without it, opencode gave up after five minutes, in which a model on two cores had not read its first request."""
    filled = fill_in(known_agents()[name], "safe", VALUES, [])
    told = json.dumps(dict(filled.environment)) + "".join(
        content.decode() for content in filled.files.values()
    )
    assert WAITS[name] in " ".join(told.split())


def test_a_value_that_could_leave_its_place_is_refused() -> None:
    kind = known_agents()["codex"]
    with pytest.raises(ConfigurationError, match="unusual characters"):
        fill_in(kind, "safe", {**VALUES, "model": 'x"\nshell_tool = true'}, [])


def test_an_agent_that_is_not_there_is_named_with_its_command(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"npm install --ignore-scripts --prefix .* opencode-ai@1"):
        find_installed(known_agents()["opencode"], [tmp_path], "")
    with pytest.raises(ConfigurationError, match="there is no such program"):
        find_installed(agent_named("/nowhere/agent --acp"), [tmp_path], "")


def test_a_package_is_found_beside_its_program_on_the_path(tmp_path: Path) -> None:
    modules = tmp_path / "lib/node_modules"
    program = modules / "@google/gemini-cli/bundle/gemini.js"
    program.parent.mkdir(parents=True)
    program.write_text("#!/usr/bin/env node\n")
    program.chmod(0o755)
    (modules / "@google/gemini-cli/package.json").write_text('{"version": "9.9.9"}')
    (tmp_path / "bin").mkdir()
    for name, target in (("gemini", program), ("node", Path("/bin/sh"))):
        (tmp_path / "bin" / name).symlink_to(target)
    found = find_installed(known_agents()["gemini"], [tmp_path / "empty"], str(tmp_path / "bin"))
    assert found.version == "9.9.9"
    assert found.argv[1:] == (str(program), "--acp")
    assert str(modules) in found.readable


def test_doctor_says_how_an_agent_is_installed(stage: Stage) -> None:
    model = ["--model", "anthropic:made-up", "--api-url", stage.model.url]
    done = stage.command("doctor", "--agent", "claude", *model)
    assert "Claude Code is not installed: npm install" in done.out
