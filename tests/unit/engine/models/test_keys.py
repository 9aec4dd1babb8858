"""Where keys are found, and that none is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.redaction import masked
from orchestrator.engine.models.keys import ApiKeys, secret_values
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

PEM = "-----BEGIN PRIVATE KEY-----\nMIIBVgIBADANBgkqhkiG\n-----END PRIVATE KEY-----"


@table(
    ("environ", "name", "expected"),
    [
        ({"OPENAI_API_KEY": "a"}, "openai", "a"),
        ({"ANTHROPIC_API_KEY": " a\n"}, "anthropic", "a"),
        ({"GOOGLE_API_KEY": "a"}, "gemini", "a"),
        ({"GOOGLE_API_KEY": "a", "GEMINI_API_KEY": "b"}, "gemini", "b"),
        ({"GITHUB_TOKEN": "", "GH_TOKEN": "a"}, "github", "a"),
        ({"PULLWRIGHT_API_KEY": "a"}, "other", "a"),
        ({"PULLWRIGHT_GITHUB_APP_KEY": PEM}, "github_app", PEM),
        (
            {"PULLWRIGHT_GITHUB_APP_KEY": PEM.replace("\n", "\\n")},
            "github_app",
            PEM,
        ),
        ({}, "openai", None),
    ],
)
def test_keys_come_from_the_environment(environ: dict[str, str], name: str, expected: str | None) -> None:
    keys = ApiKeys.of(environ)
    assert getattr(keys, name) == expected
    assert repr(keys) == "ApiKeys()"


@pytest.mark.parametrize("folder", ["keys", "tmp-i0oN8bh3Qx7Rk2"])
def test_the_apps_key_may_be_in_a_file(tmp_path: Path, folder: str) -> None:
    """The path of the file is no secret, also where a folder's name was drawn at random."""
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "app.pem"
    path.write_text(PEM + "\n")
    environ = {"PULLWRIGHT_GITHUB_APP_KEY_FILE": str(path)}
    assert ApiKeys.of(environ).github_app == PEM
    assert secret_values(environ) == [PEM]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"hello", "is not a private key in PEM form"),
        (b"\xff\xfe", "is not a private key in PEM form"),
    ],
)
def test_a_bad_key_file_is_named_and_hides_nothing_else(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    path = tmp_path / "app.pem"
    if content is not None:
        path.write_bytes(content)
    environ = {"PULLWRIGHT_GITHUB_APP_KEY_FILE": str(path), "GH_TOKEN": "x"}
    with pytest.raises(ConfigurationError) as caught:
        ApiKeys.of(environ)
    assert str(caught.value) == f"PULLWRIGHT_GITHUB_APP_KEY_FILE={path} {message}"
    assert secret_values(environ) == ["x"]


@table("value", ["a b", "a\nHost: evil", "ключ", "a\0b"])
def test_a_key_that_cannot_be_one_is_refused_without_being_shown(value: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        ApiKeys.of({"OPENAI_API_KEY": value})
    assert str(caught.value).startswith("OPENAI_API_KEY holds a space")
    assert value not in str(caught.value)


def test_everything_named_like_a_secret_is_one() -> None:
    environ = {
        "OPENAI_API_KEY": "value-one",
        "PULLWRIGHT_GITHUB_APP_KEY": PEM,
        "MISTRAL_API_KEY": "value-two",
        "npm_token": "value-three",
        "TOKEN": "value-four",
        "DB_PASSWORD": "value-five",
        "AWS_SECRET_ACCESS_KEY": "value-six",
        "CLIENT_SECRET": "value-seven",
        "POSTGRES_PASSWORD": "postgres",
        "MAX_TOKENS": "no",
        "TOKENIZER": "no",
        "PATH": "no",
        "EMPTY_TOKEN": "",
    }
    assert sorted(secret_values(environ)) == sorted(
        [PEM, "value-one", "value-two", "value-three", "value-four", "value-five", "value-six", "value-seven"]
    )


@table(
    ("value", "expected"),
    [
        ("short", "set"),
        ("x" * 20, "set"),
        ("x" * 20 + "abcd", "set, ends in …abcd"),
        (PEM, "set"),
    ],
)
def test_a_key_is_known_by_its_end_only(value: str, expected: str) -> None:
    assert masked(value) == expected
