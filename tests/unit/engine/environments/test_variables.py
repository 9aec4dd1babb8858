"""Which variables a command gets."""

from __future__ import annotations

from orchestrator.engine.environments.variables import EnvPolicy, child_variables
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
