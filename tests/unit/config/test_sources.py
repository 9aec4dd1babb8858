"""Which source wins, and the one clear line for everything that is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.config import Kind, Origin, Settings, key_refusal, load, may_send_key
from orchestrator.config.settings import KEYS, allowed, description
from orchestrator.config.sources import user_file
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


class Place:
    """A current folder and a user's file, both really there."""

    def __init__(self, folder: Path) -> None:
        self.cwd = folder / "work"
        self.cwd.mkdir()
        self.local = self.cwd / "pullwright.toml"
        self.user = folder / "config.toml"
        self.user.write_text("")
        self.environ = {"PULLWRIGHT_CONFIG": str(self.user)}

    def load(self, flags: dict[str, Any] | None = None, /, **environ: str) -> Any:
        return load(flags or {}, {**self.environ, **environ}, self.cwd)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_without_any_source_the_defaults_hold(place: Place) -> None:
    loaded = place.load()
    assert loaded.settings == Settings()
    assert set(loaded.origin) == set(KEYS)
    assert set(loaded.origin.values()) == {Origin(Kind.DEFAULT, "")}


@pytest.mark.parametrize(
    ("sources", "kind"),
    [
        (("1", "2", "3", "4"), Kind.FLAG),
        ((None, "2", "3", "4"), Kind.ENVIRONMENT),
        ((None, None, "3", "4"), Kind.LOCAL_FILE),
        ((None, None, None, "4"), Kind.USER_FILE),
        ((None, None, None, None), Kind.DEFAULT),
        ((None, "", "3", None), Kind.LOCAL_FILE),
        (("1", None, None, "4"), Kind.FLAG),
    ],
)
def test_precedence(place: Place, sources: tuple[str | None, ...], kind: Kind) -> None:
    flag, variable, local, user = sources
    if local:
        place.local.write_text(f"max_rounds = {local}\n")
    if user:
        place.user.write_text(f"max_rounds = {user}\n")
    environ = {} if variable is None else {"PULLWRIGHT_MAX_ROUNDS": variable}
    loaded = place.load({"max_rounds": flag} if flag else {}, **environ)
    value, where = {
        Kind.FLAG: (1, "--max-rounds"),
        Kind.ENVIRONMENT: (2, "PULLWRIGHT_MAX_ROUNDS"),
        Kind.LOCAL_FILE: (3, str(place.local)),
        Kind.USER_FILE: (4, str(place.user)),
        Kind.DEFAULT: (20, ""),
    }[kind]
    assert loaded.settings.max_rounds == value
    assert loaded.origin["max_rounds"] == Origin(kind, where)
    assert loaded.origin["label"].kind is Kind.DEFAULT


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("max_rounds", " 7 ", 7),
        ("max_usd", "0.5", 0.5),
        ("max_usd", "2", 2.0),
        ("draft", "No", False),
        ("stream", "on", True),
        ("temperature", "0", 0.0),
        ("model", "openai-chat:qwen", "openai-chat:qwen"),
        ("api_url", "http://localhost:11434/v1/", "http://localhost:11434/v1"),
        ("label", "7", "7"),
        ("base", "release/2.0", "release/2.0"),
    ],
)
def test_text_is_read_by_the_type_of_the_option(place: Place, key: str, text: str, expected: object) -> None:
    assert getattr(place.load(**{f"PULLWRIGHT_{key.upper()}": text}).settings, key) == expected
    assert getattr(place.load({key: text}).settings, key) == expected


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"max_rounds": "0"}, "--max-rounds = 0: must be a whole number from 1 to 10,000"),
        ({"max_rounds": "many"}, "--max-rounds = 'many': must be a whole number from 1 to 10,000"),
        ({"max_rounds": "2.5"}, "--max-rounds = '2.5': must be a whole number from 1 to 10,000"),
        ({"max_usd": "0"}, "--max-usd = 0.0: must be a number above 0 and up to 100,000"),
        ({"max_usd": "nan"}, "--max-usd = nan: must be a number above 0 and up to 100,000"),
        ({"temperature": "-1"}, "--temperature = -1.0: must be a number from 0 to 2"),
        ({"label": ""}, "--label = '': must be one line of text, not empty, of at most 200 characters"),
        (
            {"label": "a\nb"},
            r"--label = 'a\nb': must be one line of text, not empty, of at most 200 characters",
        ),
        ({"base": "a..b"}, "--base = 'a..b': must be a name that git allows"),
        ({"base": "--upload-pack=x"}, "--base = '--upload-pack=x': must be a name that git allows"),
        ({"api_url": "ftp://x"}, "--api-url = 'ftp://x': must be an http:// or https:// address without"),
        ({"api_url": "http://["}, "--api-url = 'http://[': must be an http:// or https:// address without"),
        ({"api_url": "https://a:b@c"}, "--api-url = 'https://a:[redacted]@c': must be an http"),
        (
            {"reasoning_effort": "Very High"},
            "--reasoning-effort = 'Very High': must be one word in small letters",
        ),
        ({"model": "x" * 500}, f"--model = '{'x' * 59}…: must be one line of text"),
        ({"max_round": 1}, "there is no option 'max_round'; the nearest known one is 'max_rounds'"),
    ],
)
def test_what_is_wrong_with_a_flag(place: Place, flags: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        place.load(flags)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("max_round = 3", "{} holds the unknown key 'max_round'; the nearest known one is 'max_rounds'"),
        ("max-usd = 3", "{} holds the unknown key 'max-usd'; the nearest known one is 'max_usd'"),
        ("max_token = 3", "{} holds the unknown key 'max_token'; the nearest known one is 'max_tokens'"),
        ("[run]\nlabel = 'x'", "{} holds the unknown key 'run'; the nearest known one is"),
        (
            "openai_api_key = 'sk-1'",
            (
                "{} holds 'openai_api_key': keys do not belong in files; "
                "set the environment variable OPENAI_API_KEY instead"
            ),
        ),
        (
            "token = 'x'",
            "{} holds 'token': keys do not belong in files; set the environment variable GITHUB_TOKEN",
        ),
        (
            "github-token = 'x'",
            (
                "{} holds 'github-token': keys do not belong in files; "
                "set the environment variable GITHUB_TOKEN"
            ),
        ),
        (
            "api_key = 'x'",
            (
                "{} holds 'api_key': keys do not belong in files; "
                "set the environment variable PULLWRIGHT_API_KEY"
            ),
        ),
        (
            "anthropic_key = 'x'",
            (
                "{} holds 'anthropic_key': keys do not belong in files; "
                "set the environment variable ANTHROPIC_API_KEY"
            ),
        ),
        ("draft = 'maybe'", "draft in {} = 'maybe': must be true or false"),
        ("draft = 1", "draft in {} = 1: must be true or false"),
        ("max_rounds = true", "max_rounds in {} = true: must be a whole number"),
        ("max_rounds = '3'", "max_rounds in {} = '3': must be a whole number"),
        ("label = 3", "label in {} = 3: must be one line of text"),
        ("model = ['a']", "model in {} = ['a']: must be one line of text"),
        ("draft = ", "{} is not valid TOML: "),
        ("a = " + "[" * 5000, "{} is not valid TOML: "),
    ],
)
@pytest.mark.parametrize("which", ["local", "user"])
def test_what_is_wrong_in_a_file(place: Place, which: str, toml: str, message: str) -> None:
    path = getattr(place, which)
    path.write_text(toml)
    with pytest.raises(ConfigurationError) as caught:
        place.load()
    assert str(caught.value).startswith(message.format(path))
    assert "sk-1" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "message"),
    [
        (
            "PULLWRIGHT_MAX_ROUND",
            "PULLWRIGHT_MAX_ROUND names no option; the nearest is PULLWRIGHT_MAX_ROUNDS",
        ),
        ("PULLWRIGHT_max_rounds", "PULLWRIGHT_max_rounds names no option; the nearest is"),
        ("PULLWRIGHT_HOMES", "PULLWRIGHT_HOMES names no option; the nearest is PULLWRIGHT_HOME"),
        ("PULLWRIGHT_", "PULLWRIGHT_ names no option; the nearest is"),
    ],
)
def test_an_unknown_variable_is_named(place: Place, variable: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        place.load(**{variable: "1"})


def test_a_wrong_variable_is_named(place: Place) -> None:
    with pytest.raises(ConfigurationError, match=r"^PULLWRIGHT_DRAFT = 'perhaps': must be true or false$"):
        place.load(PULLWRIGHT_DRAFT="perhaps")


def test_variables_that_are_no_options_are_left_alone(place: Place) -> None:
    loaded = place.load(
        PULLWRIGHT_HOME="/x", PULLWRIGHT_TEST_BASE_URL="x", PULLWRIGHT_API_KEY="x", PATH="/bin"
    )
    assert loaded.settings == Settings()


def test_a_named_file_must_be_there(place: Place) -> None:
    with pytest.raises(
        ConfigurationError, match=r"PULLWRIGHT_CONFIG names .*nowhere\.toml, which does not exist"
    ):
        place.load(PULLWRIGHT_CONFIG=str(place.cwd / "nowhere.toml"))


def test_a_file_that_is_none_or_no_text_is_named(place: Place) -> None:
    place.local.mkdir()
    with pytest.raises(ConfigurationError, match=r"pullwright\.toml cannot be read: Is a directory"):
        place.load()
    place.local.rmdir()
    place.local.write_bytes(b"label = '\xff'")
    with pytest.raises(ConfigurationError, match=r"pullwright\.toml is not UTF-8 text"):
        place.load()


def test_the_users_file_is_where_the_platform_keeps_it() -> None:
    assert user_file({}).name == "config.toml"
    assert "pullwright" in str(user_file({}).parent)


@pytest.mark.parametrize("key", ["api_url", "github_url"])
def test_no_key_goes_to_an_address_that_the_folder_brought(place: Place, key: str) -> None:
    url = "https://collect.example"
    place.local.write_text(f"{key} = '{url}'\nlabel = 'x'\n")
    loaded = place.load()
    assert not may_send_key(loaded, key)
    assert may_send_key(loaded, "label")
    assert key_refusal(loaded, key) == (
        f"{key} = {url} comes from {place.local}, a file that a repository may bring along, so no key is sent there; "
        f"to trust it, give --{key.replace('_', '-')} {url} or set PULLWRIGHT_{key.upper()}"
    )
    assert may_send_key(place.load({key: url}), key)
    assert may_send_key(place.load(**{f"PULLWRIGHT_{key.upper()}": url}), key)


def test_the_users_own_file_is_trusted_even_where_it_lies_in_the_folder(place: Place) -> None:
    place.local.write_text("api_url = 'https://mine.example'\nallow_dangerous_tools = true\n")
    loaded = place.load(PULLWRIGHT_CONFIG=str(place.local))
    assert may_send_key(loaded, "api_url")
    assert loaded.settings.allow_dangerous_tools


def test_the_folder_cannot_open_the_web(place: Place) -> None:
    place.local.write_text("web = 'exa'\n")
    with pytest.raises(ConfigurationError, match="give --web or set PULLWRIGHT_WEB"):
        place.load()


def test_the_folder_cannot_allow_dangerous_tools_but_may_forbid_them(place: Place) -> None:
    place.local.write_text("allow_dangerous_tools = true\n")
    with pytest.raises(
        ConfigurationError, match="has no effect there, because a repository may bring that file"
    ):
        place.load()
    place.local.write_text("allow_dangerous_tools = false\n")
    place.user.write_text("allow_dangerous_tools = true\n")
    assert not place.load().settings.allow_dangerous_tools


def test_a_secret_in_a_message_is_not_shown(place: Place) -> None:
    with pytest.raises(ConfigurationError) as caught:
        place.load({"temperature": "open-sesame-9"}, MY_TOKEN="open-sesame-9")
    assert "open-sesame-9" not in str(caught.value)


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().max_rounds = 3


@pytest.mark.parametrize("key", KEYS)
def test_every_option_is_described(key: str) -> None:
    assert description(key).endswith(".")
    assert allowed(key) != "another value"


@given(st.sampled_from(KEYS), st.text(max_size=30))
def test_any_text_is_taken_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, key: str, text: str
) -> None:
    try:
        load({key: text}, {}, tmp_path_factory.getbasetemp())
    except ConfigurationError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017  both outcomes are right
