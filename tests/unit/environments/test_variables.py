"""Which variables a command gets."""

from __future__ import annotations

import pytest

from orchestrator.environments.variables import EnvPolicy, child_variables, is_secret_name

SECRET = [
    "OPENAI_API_KEY",
    "openai_api_key",
    "MY_SECRET",
    "NPM_TOKEN",
    "DB_PASSWORD",
    "X_CREDENTIAL",
    "GITHUB_TOKEN",
    "GH_TOKEN",
    "GITHUB_PAT",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_ACCESS_KEY_ID",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "PGPASSWORD",
    "MYSQL_PWD",
    "PULLWRIGHT_HOME",
    "PULLWRIGHT_API_URL",
    "GIT_ASKPASS",
    "GIT_CONFIG_COUNT",
    "SSH_AUTH_SOCK",
    "DOCKER_AUTH_CONFIG",
    "APIKEY",
    "TOKEN",
]

HARMLESS = [
    "PATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "LANG",
    "LC_ALL",
    "EDITOR",
    "CI",
    "PYTHONPATH",
    "KEYBOARD",
    "PATIENT",
    "GITHUB_SHA",
]


@pytest.mark.parametrize("name", SECRET)
def test_secrets_are_kept_from_commands(name: str) -> None:
    assert is_secret_name(name)
    assert child_variables({name: "value"}, EnvPolicy.FILTERED) == {}
    assert child_variables({name: "value"}, EnvPolicy.CORE) == {}


@pytest.mark.parametrize("name", HARMLESS)
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
