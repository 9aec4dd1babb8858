"""Which variables a command gets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.environments.base import SandboxLimits, SandboxOptions
from orchestrator.engine.environments.commands import EnvPolicy, child_variables
from orchestrator.engine.environments.local import conditions
from orchestrator.engine.environments.sandbox.seatbelt import SeatbeltSandbox
from tests.tables import table

KEPT = [
    "PULLWRIGHT_HOME",
    "PULLWRIGHT_API_URL",
    "GIT_ASKPASS",
    "GIT_CONFIG_COUNT",
    "SSH_AUTH_SOCK",
    "GPG_AGENT_INFO",
]


@table("name", KEPT)
def test_what_steers_git_or_signs_in_is_kept_from_commands_too(name: str) -> None:
    assert child_variables({name: "value"}, EnvPolicy.FILTERED) == {}
    assert child_variables({name: "value"}, EnvPolicy.CORE) == {}


@table("name", ["PATH", "PWD", "LC_ALL", "EDITOR", "CI", "PYTHONPATH", "KEYBOARD", "GITHUB_SHA"])
def test_other_variables_are_inherited(name: str) -> None:
    assert child_variables({name: "value"}, EnvPolicy.FILTERED) == {name: "value"}


def test_a_url_with_a_user_in_it_is_a_secret() -> None:
    variables = {
        "INDEX": "https://user:pass@host/simple",
        "DSN": "https://abc@host/1",
        "SITE": "https://host/a@b",
    }
    assert child_variables(variables, EnvPolicy.FILTERED) == {"SITE": "https://host/a@b"}


def test_the_other_policies() -> None:
    variables = {"PATH": "/bin", "CARGO_HOME": "/c", "LC_ALL": "C", "CI": "1", "GH_TOKEN": "t"}
    assert child_variables(variables, EnvPolicy.ALL) == variables
    assert child_variables(variables, EnvPolicy.NONE) == {}
    assert child_variables(variables, EnvPolicy.CORE) == {"PATH": "/bin", "CARGO_HOME": "/c", "LC_ALL": "C"}


INSIDE = SandboxOptions(("pypi.org",), (), SandboxLimits(processes=64))
HERE = {"PATH": "/bin", "LANG": "C", "EDITOR": "vi"}
CONDITIONS: dict[str, tuple[SandboxOptions | None, dict[str, str]]] = {
    "as they are": (INSIDE, HERE),
    "another limit": (replace(INSIDE, limits=SandboxLimits(processes=65)), HERE),
    "another host": (replace(INSIDE, hosts=("pypi.org:8080",)), HERE),
    "another folder": (replace(INSIDE, readable=("/opt",)), HERE),
    "another variable": (INSIDE, {**HERE, "LANG": "de"}),
    "one variable more": (INSIDE, {**HERE, "CI": "1"}),
    "no sandbox": (None, HERE),
    "another variable without a sandbox": (None, {**HERE, "EDITOR": "ed"}),
}


def _conditions(options: SandboxOptions | None, inherited: dict[str, str]) -> str:
    return conditions(SeatbeltSandbox(options, {}) if options else None, inherited)


def test_whatever_commands_find_otherwise_is_another_condition() -> None:
    assert len({_conditions(*given) for given in CONDITIONS.values()}) == len(CONDITIONS)


@pytest.mark.parametrize("options", [INSIDE, None])
def test_what_commands_are_not_given_or_their_shell_sets_is_none(options: SandboxOptions | None) -> None:
    elsewhere = {**HERE, "PWD": "/x", "OLDPWD": "/y", "SHLVL": "3", "_": "/bin/z", "GITHUB_TOKEN": "ghp_1"}
    assert _conditions(options, elsewhere) == _conditions(options, HERE)
