"""Which source wins, and the one clear line for everything that is wrong."""

from __future__ import annotations

import contextlib
import os
import socket
import tomllib
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from orchestrator.app.config import user_file, user_folder
from orchestrator.app.config.settings import (
    SUITE_VARIABLES,
    Origin,
    Settings,
    SourceKind,
    load_settings,
    tightened,
)
from orchestrator.app.options import Reach, all_options, limits_in_words
from orchestrator.core.errors import ConfigurationError
from tests.tables import table


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
        return load_settings(flags or {}, {**self.environ, **environ}, self.cwd)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def for_repository(place: Place, name: str, flags: dict[str, Any] | None = None) -> Any:
    return load_settings(flags or {}, place.environ, place.cwd, lambda _server: name)


def test_the_users_file_has_options_for_one_repository(place: Place) -> None:
    place.user.write_text(
        'model = "qwen3:8b"\napi_url = "http://127.0.0.1:1/v1"\nmax = "2usd, 9rounds"\n'
        '[repository."octo/calc"]\nmodel = "anthropic:claude"\nmax_usd = 7\n'
        '[repository."/home/ada/shop"]\ntest_command = "auto"\n'
    )
    calc, shop = for_repository(place, "octo/calc"), for_repository(place, "/home/ada/shop")
    other, none = for_repository(place, "octo/other").settings, place.load()
    assert (calc.settings.model, calc.settings.api_url) == ("anthropic:claude", None)
    assert (calc.settings.max_usd, calc.settings.max_rounds) == (7, 9)
    assert calc.origin["max_usd"].names("max_usd") == f"max_usd in {place.user}, repository octo/calc"
    assert (shop.settings.model, shop.settings.api_url) == ("qwen3:8b", "http://127.0.0.1:1/v1")
    assert (shop.settings.test_command, shop.settings.max_usd) == ("auto", 2)
    assert other == none.settings
    assert none.repositories == {"octo/calc", "/home/ada/shop"}
    assert for_repository(place, "octo/calc", {"max_usd": "3"}).settings.max_usd == 3
    place.local.write_text("max_usd = 1\n")
    assert for_repository(place, "octo/calc").settings.max_usd == 1


def test_a_vendors_model_is_not_asked_at_the_saved_address_of_another(place: Place) -> None:
    local = "http://127.0.0.1:1/v1"
    place.user.write_text(f'model = "qwen3:8b"\napi_url = "{local}"\n')
    asked = place.load({"model": "anthropic:claude"})
    assert (asked.settings.api_url, asked.notices) == (
        None,
        (
            f"api_url in {place.user} is for qwen3:8b, so --model anthropic:claude is asked at its vendor's server",
        ),
    )
    (notice,) = place.load(PULLWRIGHT_MODEL="openai:gpt").notices
    assert "so PULLWRIGHT_MODEL openai:gpt is" in notice
    for flags in ({"model": "llama:3"}, {"model": "openai-chat:x"}, {"model": "echo"}, {"model": "replay:x"}):
        assert (place.load(flags).settings.api_url, place.load(flags).notices) == (local, ())
    typed = place.load({"model": "anthropic:claude", "api_url": "http://127.0.0.1:2/v1"})
    assert (typed.settings.api_url, typed.notices) == ("http://127.0.0.1:2/v1", ())
    # A gateway for all models of a vendor, and one without a saved model, stay.
    place.user.write_text(f'model = "anthropic:a"\napi_url = "{local}"\n')
    assert place.load({"model": "anthropic:b"}).settings.api_url == local
    place.user.write_text(f'api_url = "{local}"\n')
    assert place.load({"model": "anthropic:b"}).settings.api_url == local


_LOCAL = "http://127.0.0.1:1/v1"
_SAVED = f'model = "openai-chat:a"\napi_url = "{_LOCAL}"\napi_key_variable = "TEAM_API_KEY"\n'


@table(
    ("saved", "flags", "used"),
    [
        (_SAVED, {}, _LOCAL),
        (_SAVED, {"model": "openai-chat:b"}, _LOCAL),
        (_SAVED, {"max_usd": "5"}, _LOCAL),
        (_SAVED, {"model": "anthropic:b"}, ""),
        (_SAVED, {"api_url": "http://127.0.0.1:2/v1"}, ""),
        (_SAVED, {"api_url": _LOCAL}, _LOCAL),
        (
            _SAVED,
            {"api_url": "http://127.0.0.1:2/v1", "api_key_variable": "TEAM_API_KEY"},
            "http://127.0.0.1:2/v1",
        ),
        ('model = "openai:a"\napi_key_variable = "A_KEY"\n', {"model": "anthropic:b"}, ""),
        (
            'model = "openai:a"\napi_key_variable = "A_KEY"\n',
            {"model": "openai-chat:b"},
            "https://api.openai.com/v1",
        ),
        ('api_key_variable = "A_KEY"\n', {"model": "openai:a"}, ""),
        (
            f'{_SAVED}[repository."o/n"]\napi_url = "http://127.0.0.1:3/v1"\n',
            {},
            "",
        ),
        (f'{_SAVED}[repository."o/n"]\nmodel = "anthropic:c"\n', {}, ""),
        (f'{_SAVED}[repository."o/n"]\nmax_usd = 5.0\n', {}, _LOCAL),
        (
            f'{_SAVED}[repository."o/n"]\nmodel = "anthropic:c"\napi_key_variable = "B_KEY"\n',
            {},
            "https://api.anthropic.com/v1",
        ),
    ],
)
def test_a_named_key_is_for_the_server_beside_which_it_is_named(
    place: Place, saved: str, flags: dict[str, str], used: str
) -> None:
    place.user.write_text(saved)
    loaded = load_settings(
        flags, {"PULLWRIGHT_CONFIG": str(place.user)}, place.local.parent, lambda _url: "o/n"
    )
    assert loaded.named_key[1] == used
    assert bool(loaded.settings.api_key_variable) is bool(used)


def test_a_named_key_that_is_not_used_is_told(place: Place) -> None:
    place.user.write_text(_SAVED)
    (notice,) = place.load({"api_url": "http://127.0.0.1:2/v1"}).notices
    assert notice == f"api_key_variable in {place.user} is for {_LOCAL}, so TEAM_API_KEY is not used"
    place.user.write_text('api_key_variable = "A_KEY"\n')
    (notice,) = place.load({"model": "openai:a"}).notices
    assert "is for the model beside it, and there is none" in notice
    # A vendor's own variable is no news.
    place.user.write_text('model = "openai:a"\napi_key_variable = "OPENAI_API_KEY"\n')
    assert place.load({"model": "anthropic:b"}).notices == ()


@table("value", ["sk-1234567890abcdef", "team_api_key", "HOME", "A KEY", "A_KEY=x", ""])
def test_only_the_name_of_a_secret_variable_names_a_key(place: Place, value: str) -> None:
    place.user.write_text(f'model = "openai:a"\napi_key_variable = "{value}"\n')
    with pytest.raises(ConfigurationError, match="must be the name of an environment variable") as caught:
        place.load()
    assert "sk-" not in str(caught.value)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ('[repository."octo/calc"]\nmodle = "x"\n', "holds the unknown key 'modle'; the nearest known one is 'model'"),
        ('[repository."octo/calc"]\nmax_usd = "many"\n', "repository octo/calc = 'many': must be"),
        ("[repository]\nmodel = 3\n", "must have a table for each repository"),
        ('repository = "octo/calc"\n', "must have a table for each repository"),
        ('[repository."octo/calc"]\nsandbox = "off"\n', "type --sandbox"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_table_of_a_repository(place: Place, toml: str, message: str) -> None:
    place.user.write_text(toml)
    with pytest.raises(ConfigurationError, match=r"\A[^\n]*\Z") as refused:
        for_repository(place, "octo/calc")
    assert message in str(refused.value)


def test_only_the_users_own_file_has_options_for_repositories(place: Place) -> None:
    place.local.write_text('[repository."octo/calc"]\nmax_usd = 9\n')
    with pytest.raises(ConfigurationError, match=r"\[repository\] in .* has no effect there"):
        place.load()
    _, notes = tightened(Settings(), '[repository."octo/calc"]\nmax_usd = 9\n', "its file")
    assert notes == [
        "[repository] in its file has no effect: only the person who runs this sets options for one repository"
    ]


def test_without_any_source_the_defaults_hold(place: Place) -> None:
    loaded = place.load()
    assert loaded.settings == Settings()
    assert set(loaded.origin) == set(all_options())
    assert set(loaded.origin.values()) == {Origin(SourceKind.DEFAULT, "")}


@pytest.mark.parametrize(
    ("sources", "kind"),
    [
        (("1", "2", "3", "4"), SourceKind.FLAG),
        ((None, "2", "3", "4"), SourceKind.ENVIRONMENT),
        ((None, None, "3", "4"), SourceKind.LOCAL_FILE),
        ((None, None, None, "4"), SourceKind.USER_FILE),
        ((None, None, None, None), SourceKind.DEFAULT),
        ((None, "", "3", None), SourceKind.LOCAL_FILE),
        (("1", None, None, "4"), SourceKind.FLAG),
    ],
)
def test_precedence(place: Place, sources: tuple[str | None, ...], kind: SourceKind) -> None:
    flag, variable, local, user = sources
    if local:
        place.local.write_text(f"max_rounds = {local}\n")
    if user:
        place.user.write_text(f"max_rounds = {user}\n")
    environ = {} if variable is None else {"PULLWRIGHT_MAX_ROUNDS": variable}
    loaded = place.load({"max_rounds": flag} if flag else {}, **environ)
    value, where = {
        SourceKind.FLAG: (1, "--max-rounds"),
        SourceKind.ENVIRONMENT: (2, "PULLWRIGHT_MAX_ROUNDS"),
        SourceKind.LOCAL_FILE: (3, str(place.local)),
        SourceKind.USER_FILE: (4, str(place.user)),
        SourceKind.DEFAULT: (20, ""),
    }[kind]
    assert loaded.settings.max_rounds == value
    assert loaded.origin["max_rounds"] == Origin(kind, where)
    assert loaded.origin["label"].kind is SourceKind.DEFAULT


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
        ({"api_url": "https://a:b@c"}, "--api-url = 'https://a:b@c': must be an http"),
        (
            {"reasoning_effort": "Very High"},
            "--reasoning-effort = 'Very High': must be one word in small letters",
        ),
        ({"model": "x" * 500}, f"--model = '{'x' * 58}…: must be one line of text"),
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
        ("a = " + "1" * 5000, "{} is not valid TOML: "),
        ("max_files = 0x" + "f" * 6000, "max_files in {} = a number with too many digits: must be"),
        ("allow_host = [0x" + "f" * 6000 + "]", "allow_host in {} = a number with too many digits: must be"),
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
        ("PULLWRIGHT_TEST_COMAND", "names no option; the nearest is PULLWRIGHT_TEST_COMMAND"),
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
    assert not {f"PULLWRIGHT_{key.upper()}" for key in all_options()} & SUITE_VARIABLES


def test_a_named_file_must_be_there(place: Place) -> None:
    with pytest.raises(
        ConfigurationError, match=r"PULLWRIGHT_CONFIG names .*nowhere\.toml, which does not exist"
    ):
        place.load(PULLWRIGHT_CONFIG=str(place.cwd / "nowhere.toml"))


def test_a_file_that_is_none_or_no_text_is_named(place: Place) -> None:
    place.local.mkdir()
    with pytest.raises(
        ConfigurationError, match=r"pullwright\.toml is a folder, not a regular file: make it a regular file"
    ):
        place.load()
    place.local.rmdir()
    place.local.write_bytes(b"label = '\xff'")
    with pytest.raises(ConfigurationError, match=r"pullwright\.toml is not UTF-8 text"):
        place.load()
    # It was read as far as the limit, so that what stood behind it had no effect.
    place.local.write_text("#" * 999_990 + "\nlabel = 'x'\n")
    with pytest.raises(ConfigurationError, match=r"pullwright\.toml has more than 1,000,000 bytes"):
        place.load()


@pytest.mark.parametrize("kind", ["pipe", "socket", "link out", "link to an endless file", "endless"])
def test_the_file_of_a_folder_is_a_regular_file_and_nothing_else_is_opened(place: Place, kind: str) -> None:
    if kind == "pipe":
        os.mkfifo(place.local)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, contextlib.chdir(place.local.parent):
            one.bind(place.local.name)  # a socket's path must be short
    elif kind == "link out":
        (place.cwd.parent / "secret").write_text("label = 'read'\n")
        place.local.symlink_to(place.cwd.parent / "secret")
    elif kind == "link to an endless file":
        place.local.symlink_to("/dev/zero")
    else:
        with place.local.open("wb") as file:
            file.truncate(1 << 40)
    with pytest.raises(
        ConfigurationError, match=r"pullwright\.toml (is|has) .*: make it a regular file, or remove it$"
    ):
        place.load()


def test_the_users_file_may_be_a_link_and_is_no_pipe(place: Place) -> None:
    own = place.cwd.parent / "own.toml"
    own.write_text("label = 'mine'\n")
    (place.cwd / "link.toml").symlink_to(own)
    assert place.load(PULLWRIGHT_CONFIG=str(place.cwd / "link.toml")).settings.label == "mine"
    os.mkfifo(place.cwd / "pipe.toml")
    with pytest.raises(ConfigurationError, match=r"it is a pipe, and this file is read more than once"):
        place.load(PULLWRIGHT_CONFIG=str(place.cwd / "pipe.toml"))


def test_the_users_file_is_where_the_platform_keeps_it() -> None:
    assert user_file({}).name == "config.toml"
    with pytest.MonkeyPatch.context() as patch:
        for folder in ("", "/elsewhere"):
            patch.setenv("XDG_CONFIG_HOME", folder)
            assert user_folder(os.environ) == platformdirs.user_config_path("pullwright", appauthor=False)


def test_the_users_own_file_is_trusted_even_where_it_lies_in_the_folder(place: Place) -> None:
    place.local.write_text("api_url = 'https://mine.example'\npermission = 'dangerous'\n")
    loaded = place.load(PULLWRIGHT_CONFIG=str(place.local))
    assert loaded.settings.api_url == "https://mine.example"
    assert loaded.settings.permission == "dangerous"


_A_VALUE_OF = {
    "agent": "'claude'",
    "api_url": "'https://collect.example'",
    "github_url": "'https://collect.example'",
    "web": "'exa'",
    "github_app_id": "'7'",
    "allow_actor": "['mallory']",
    "mcp_config": "'servers.json'",
    "allow_command": "['sh *']",
    "allow_host": "['collect.example']",
    "allow_link": "['collect.example']",
    "allow_path": "['.github/**']",
    "sandbox_read": "['/']",
    "label": "'bug'",
    "memory": "true",
    "repository_memory": "false",
    "embedding_api_url": "'https://collect.example'",
    "embedding_model": "'other'",
    "embedding_dimension": "256",
    "max_usd_per_day": "5.0",
    "max_tokens_per_day": "1000",
    "max_minutes_per_day": "5.0",
    "max_rounds_per_day": "5",
    "price": "'0/0'",
    "fallback_model": "['openai:x']",
    "key_host": "['openai=example.com']",
    "api_key_variable": "'TEAM_API_KEY'",
    "claim_minutes": "5.0",
    "propose_failing": "true",
    "untested": "true",
    "runs_days": "1",
    "runs_mb": "1",
    "ai_policy": "'ignore'",
    "mirror": "false",
    "every": "'30m'",
    "cron": "'0 3 * * *'",
    "timezone": "'Europe/Berlin'",
    "skill": "['theirs']",
    "system_prompt": "'Obey.'",
}


@pytest.mark.parametrize("key", [key for key in all_options() if all_options()[key].reach is Reach.NEVER])
def test_what_the_folder_may_never_set(place: Place, key: str) -> None:
    place.local.write_text(f"{key} = {_A_VALUE_OF[key]}\n")
    flag, variable = f"--{key.replace('_', '-')}", f"PULLWRIGHT_{key.upper()}"
    with pytest.raises(
        ConfigurationError, match=f"that file may come from a repository; pass {flag} or set {variable}"
    ):
        place.load()
    place.local.unlink()
    place.user.write_text(f"{key} = {_A_VALUE_OF[key]}\n")
    assert place.load().origin[key].kind is SourceKind.USER_FILE


LOOSER = {
    "permission": ("'safe'", "'dangerous'"),
    "comments": ("'writers'", "'quoted'"),
    "draft": ("true", "false"),
    "require_tests": ("true", "false"),
    "require_evidence": ("'bots'", "'none'"),
    "test_minutes": ("5.0", "6.0"),
    "max_rounds": ("5", "6"),
    "max_usd": ("0.5", "0.75"),
    "max_tokens": ("1000", "1001"),
    "max_minutes": ("5.0", "6.0"),
    "max_cycles": ("2", "3"),
    **{
        f"max_{unit}_per_{scope}": values
        for scope in ("task", "repo")
        for unit, values in {
            "usd": ("0.5", "0.75"),
            "tokens": ("1000", "1001"),
            "minutes": ("5.0", "6.0"),
            "rounds": ("5", "6"),
        }.items()
    },
    "max_open_prs": ("1", "2"),
    "max_prs_per_day": ("1", "2"),
    "max_unreviewed": ("1", "2"),
    "review_rounds": ("1", "2"),
    "max_files": ("3", "4"),
    "max_lines": ("30", "40"),
    "max_bytes": ("300", "400"),
    "disable_skills": ("true", "false"),
    "skill_bytes": ("300", "400"),
    "max_subagents": ("1", "2"),
    "subagent_timeout_seconds": ("10.0", "20.0"),
}


LOOSER = {key: values for key, values in LOOSER.items() if key in all_options()}
"""Some options are of plug-ins, which may not be there."""


@pytest.mark.parametrize("key", LOOSER)
def test_the_folder_may_tighten_a_rule_and_not_loosen_it(place: Place, key: str) -> None:
    strict, loose = LOOSER[key]
    place.user.write_text(f"{key} = {strict}\n")
    place.local.write_text(f"{key} = {loose}\n")
    with pytest.raises(ConfigurationError, match="may only be stricter there"):
        place.load()
    place.user.write_text(f"{key} = {loose}\n")
    place.local.write_text(f"{key} = {strict}\n")
    loaded = place.load()
    assert getattr(loaded.settings, key) == tomllib.loads(f"it = {strict}")["it"]
    assert loaded.origin[key].kind is SourceKind.LOCAL_FILE


def test_every_rule_has_a_case() -> None:
    lists = {"deny_command", "protect_path", "test_paths"}
    assert {key for key in all_options() if all_options()[key].reach is Reach.TIGHTEN} == {*LOOSER, *lists}


def test_the_folders_lists_are_added(place: Place) -> None:
    place.user.write_text("deny_command = ['rm *']\n")
    place.local.write_text("deny_command = ['git push *', 'rm *']\n")
    assert place.load().settings.deny_command == ("rm *", "git push *")


@pytest.mark.parametrize("which", ["local", "user", "variable"])
def test_the_sandbox_is_switched_off_by_typing_only(place: Place, which: str) -> None:
    variables = {}
    if which == "variable":
        variables["PULLWRIGHT_SANDBOX"] = "off"
    else:
        getattr(place, which).write_text("sandbox = 'off'\n")
    with pytest.raises(ConfigurationError, match="has no effect there: type --sandbox"):
        place.load(**variables)


@pytest.mark.parametrize("value", ["docker:ghcr.io/a/b:1.2@sha256:0f", "podman:localhost/rust", "auto"])
def test_a_sandbox_is_named_by_its_image(place: Place, value: str) -> None:
    assert place.load({"sandbox": value}).settings.sandbox == value


@pytest.mark.parametrize(
    "value", ["docker:", "docker", "docker:--privileged", "lxc:a", "docker:a b", "docker:a\n"]
)
def test_what_is_no_image_is_refused(place: Place, value: str) -> None:
    with pytest.raises(ConfigurationError, match="must be auto, docker:IMAGE, podman:IMAGE or off"):
        place.load({"sandbox": value})


def test_the_sandbox_is_off_where_a_person_typed_it(place: Place) -> None:
    assert place.load({"sandbox": "off"}).settings.sandbox == "off"
    assert place.load(PULLWRIGHT_SANDBOX="auto").settings.sandbox == "auto"


def test_lists_are_read_from_a_variable(place: Place) -> None:
    loaded = place.load(PULLWRIGHT_ALLOW_HOST="pypi.org, *.Example.com", PULLWRIGHT_ALLOW_COMMAND="a, b\nc\n")
    assert loaded.settings.allow_host == ("pypi.org", "*.example.com")
    assert loaded.settings.allow_command == ("a, b", "c")
    assert place.load({"allow_command": ["x, y"]}).settings.allow_command == ("x, y",)


class TestTheFileOfTheRepository:
    """`pullwright.toml` on the default branch of the repository that is worked on."""

    def test_what_counts_for_the_whole_run_is_said_to_have_no_effect(self) -> None:
        settings, notes = tightened(Settings(), "max_cycles = 1", "the file")
        assert settings == Settings()
        assert notes == ["max_cycles in the file has no effect: it counts for the whole run, not for a cycle"]

    @pytest.mark.parametrize("key", [key for key in LOOSER if key != "max_cycles"])
    def test_it_tightens_and_never_loosens(self, key: str) -> None:
        strict, loose = (tomllib.loads(f"it = {text}")["it"] for text in LOOSER[key])
        settings, notes = tightened(Settings(**{key: loose}), f"{key} = {LOOSER[key][0]}", "the file")
        assert (getattr(settings, key), notes) == (strict, [])
        settings, notes = tightened(Settings(**{key: strict}), f"{key} = {LOOSER[key][1]}", "the file")
        assert getattr(settings, key) == strict
        assert notes == [f"{key} in the file would loosen a rule and has no effect"]

    @pytest.mark.parametrize("key", [*_A_VALUE_OF, "sandbox"])
    def test_it_opens_nothing(self, key: str) -> None:
        settings, notes = tightened(Settings(), f"{key} = {_A_VALUE_OF.get(key, repr('off'))}", "the file")
        assert settings == Settings()
        assert notes == [f"{key} in the file has no effect: only the person who runs this may set it"]

    def test_its_other_options_are_passed_over(self) -> None:
        text = "model = 'x:y'\nstream = false\nunknown = 1\ndeny_command = ['rm *']"
        settings, notes = tightened(Settings(), text, "the file")
        assert settings == Settings(deny_command=("rm *",))
        assert notes == []

    @pytest.mark.parametrize(
        "text",
        [
            "max_files = 'few'",
            "= 1",
            "permission = 'root'",
            "a = " + "[" * 5000,
            "a = " + "1" * 5000,
            "max_files = 0x" + "f" * 6000,
        ],
    )
    def test_a_broken_one_stops_the_run(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="the file"):
            tightened(Settings(), text, "the file")


_HOW_TO_TEST = {
    "test_command": ("make check", "make other"),
    "setup_command": ("npm ci", "npm other"),
    "test_report": ("report.xml", "other.xml"),
}
_FILE = "".join(f"{key} = {value!r}\n" for key, (value, _) in _HOW_TO_TEST.items())


class TestACommandForTests:
    """It is a person's choice: a repository's file names one only to whom asks for it."""

    def test_every_option_of_the_kind_has_a_case(self) -> None:
        assert {key for key in all_options() if all_options()[key].reach is Reach.PROPOSE} == set(
            _HOW_TO_TEST
        )

    def test_the_folders_file_sets_none_and_that_is_said(self, place: Place) -> None:
        place.local.write_text(_FILE)
        loaded = place.load()
        assert loaded.settings == Settings()
        assert {origin.kind for origin in loaded.origin.values()} == {SourceKind.DEFAULT}
        (notice,) = loaded.notices
        assert "used only with --test-command auto" in notice
        assert all(key in notice for key in _HOW_TO_TEST)

    @pytest.mark.parametrize("command", ["auto", "make check"])
    def test_the_folders_file_does_not_choose_for_the_person(self, place: Place, command: str) -> None:
        place.local.write_text(f"test_command = {command!r}\n")
        assert place.load().settings.test_command is None

    def test_the_folders_file_changes_nothing_of_what_the_person_chose(self, place: Place) -> None:
        place.local.write_text(_FILE)
        place.user.write_text("test_command = 'pytest -q'\n")
        loaded = place.load()
        assert loaded.settings == Settings(test_command="pytest -q")
        assert len(loaded.notices) == 1
        chosen = place.load({"test_command": "auto"})
        assert chosen.settings == Settings(test_command="auto")
        assert chosen.notices == ()

    def test_a_person_names_it_anywhere_else(self, place: Place) -> None:
        place.user.write_text(_FILE)
        loaded = place.load(PULLWRIGHT_TEST_COMMAND="tox -q", PULLWRIGHT_TEST_MINUTES="2.5")
        assert loaded.settings == Settings(
            test_command="tox -q", setup_command="npm ci", test_report="report.xml", test_minutes=2.5
        )
        assert loaded.notices == ()

    @pytest.mark.parametrize(
        "report", ["/etc/passwd", "../x.xml", "a/../../x", "a\\b", "a\nb", "", "[z-a].xml", "./"]
    )
    def test_a_report_is_inside_the_repository(self, place: Place, report: str) -> None:
        with pytest.raises(ConfigurationError, match=r"--test-report = .*: must be a path or pattern inside"):
            place.load({"test_report": report})

    @pytest.mark.parametrize("chosen", [None, "pytest -q"])
    def test_on_the_default_branch_it_counts_for_nothing_without_auto(self, chosen: str | None) -> None:
        settings, notes = tightened(Settings(test_command=chosen), _FILE, "the file")
        assert settings == Settings(test_command=chosen)
        assert notes == [f"{', '.join(_HOW_TO_TEST)} in the file: used only with --test-command auto"]

    def test_on_the_default_branch_it_counts_with_auto_and_after_what_the_person_named(self) -> None:
        settings, notes = tightened(
            Settings(test_command="auto", setup_command="make deps"), _FILE, "the file"
        )
        assert settings == Settings(
            test_command="make check", setup_command="make deps", test_report="report.xml"
        )
        assert notes == []

    def test_a_broken_one_stops_a_run_that_would_take_it(self) -> None:
        with pytest.raises(ConfigurationError, match="test_report in the file: must be a path or pattern"):
            tightened(Settings(test_command="auto"), "test_report = '../../x'", "the file")

    @pytest.mark.parametrize("pattern", ["!", "\\", "! ", "a\\", "[z-a]", "#a", "", "x\ny"])
    @pytest.mark.parametrize("key", ["test_paths", "protect_path", "allow_path"])
    def test_what_is_no_pattern_is_refused(self, place: Place, key: str, pattern: str) -> None:
        with pytest.raises(ConfigurationError, match=r"must be .*a path pattern as in .gitignore") as refused:
            place.load({key: (pattern,)})
        assert len(str(refused.value).splitlines()) == 1

    def test_a_pattern_that_python_may_read_otherwise_some_day_is_taken(self, place: Place) -> None:
        assert place.load({"test_paths": ("a[[:x:]",)}).settings.test_paths == ("a[[:x:]",)

    def test_a_file_of_the_repository_names_no_bad_pattern(self) -> None:
        with pytest.raises(ConfigurationError, match=r"test_paths in the file: must be .*a path pattern"):
            tightened(Settings(), "test_paths = ['!']", "the file")

    def test_paths_of_tests_are_added(self) -> None:
        settings, notes = tightened(Settings(test_paths=("checks/**",)), "test_paths = ['it/*']", "the file")
        assert (settings.test_paths, notes) == (("checks/**", "it/*"), [])


class TestANameThatChanged:
    """`strict_tests` is `require_tests`, wherever it is written."""

    @pytest.mark.parametrize("which", ["local", "user"])
    def test_in_a_file(self, place: Place, which: str) -> None:
        path = getattr(place, which)
        path.write_text("strict_tests = true\n")
        loaded = place.load()
        assert loaded.settings == Settings(require_tests=True)
        assert loaded.notices == (f"strict_tests in {path} is called require_tests now",)

    def test_as_a_variable(self, place: Place) -> None:
        loaded = place.load(PULLWRIGHT_STRICT_TESTS="yes")
        assert loaded.settings == Settings(require_tests=True)
        assert loaded.notices == ("PULLWRIGHT_STRICT_TESTS is called PULLWRIGHT_REQUIRE_TESTS now",)

    def test_as_a_flag(self, place: Place) -> None:
        loaded = place.load({"strict_tests": True})
        assert loaded.settings == Settings(require_tests=True)
        assert loaded.notices == ("--strict-tests is called --require-tests now",)

    def test_beside_the_new_name_it_does_not_count(self, place: Place) -> None:
        loaded = place.load({"strict_tests": True, "require_tests": False})
        assert loaded.settings == Settings()
        assert len(loaded.notices) == 1

    def test_a_wrong_value_is_refused(self, place: Place) -> None:
        with pytest.raises(
            ConfigurationError, match=r"^PULLWRIGHT_STRICT_TESTS = 'perhaps': must be true or"
        ):
            place.load(PULLWRIGHT_STRICT_TESTS="perhaps")

    def test_it_loosens_as_little_as_the_new_one(self, place: Place) -> None:
        place.user.write_text("require_tests = true\n")
        place.local.write_text("strict_tests = false\n")
        with pytest.raises(ConfigurationError, match="may only be stricter there"):
            place.load()

    def test_in_the_file_of_the_repository(self) -> None:
        settings, notes = tightened(Settings(), "strict_tests = true", "the file")
        assert settings == Settings(require_tests=True)
        assert notes == ["strict_tests in the file is called require_tests now"]


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().max_rounds = 3


@table("key", all_options())
def test_every_option_is_described(key: str) -> None:
    assert all_options()[key].description.endswith(".")
    assert all_options()[key].allowed != "another value"


@settings(max_examples=settings().max_examples // 2)
@given(st.sampled_from(list(all_options())), st.text(max_size=30))
def test_any_text_is_taken_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, key: str, text: str
) -> None:
    try:
        load_settings({key: text}, {}, tmp_path_factory.getbasetemp())
    except ConfigurationError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017  both outcomes are right


@table(
    "words, wanted",
    [
        ("2usd", {"max_usd": 2.0}),
        ("$2", {"max_usd": 2.0}),
        ("5usd/day,3usd/task,200k/task", {"max_usd_per_day": 5.0, "max_usd_per_task": 3.0, "max_tokens_per_task": 200_000}),
        ("30min 2h/day", {"max_minutes": 30.0, "max_minutes_per_day": 120.0}),
        ("20rounds, 1.5M/repo", {"max_rounds": 20, "max_tokens_per_repo": 1_500_000}),
    ],
)  # fmt: skip
def test_limits_in_words_are_the_options_that_they_stand_for(words: str, wanted: dict[str, float]) -> None:
    assert limits_in_words(words) == wanted
    for flags, environ in (({"max": [words]}, {}), ({}, {"PULLWRIGHT_MAX": words})):
        settings = load_settings(flags, environ, Path("/nonexistent")).settings
        assert {key: getattr(settings, key) for key in wanted} == wanted


@table(
    "words",
    ["5", "5m", "2usd 3usd", "5usd/week", "1e5usd", "-2usd", "2.5rounds", "5usd/day/task", "0usd", "²usd"],
)
def test_what_is_no_limit_is_told(words: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--max"):
        load_settings({"max": [words]}, {}, Path("/nonexistent"))


def test_limits_in_words_in_a_repositorys_file_only_tighten(tmp_path: Path) -> None:
    (tmp_path / "pullwright.toml").write_text('max = "3usd"\n')
    assert load_settings({}, {}, tmp_path).settings.max_usd == 3.0
    settings, notes = tightened(Settings(max_usd=2.0), 'max = ["3usd", "10rounds"]', "pullwright.toml")
    assert (settings.max_usd, settings.max_rounds) == (2.0, 10)
    assert notes == ["max_usd in pullwright.toml would loosen a rule and has no effect"]
    (tmp_path / "pullwright.toml").write_text('max = "3usd"\nmax_usd = 2\n')
    with pytest.raises(ConfigurationError, match="are the same limit: leave out one"):
        load_settings({}, {}, tmp_path)
    with pytest.raises(
        ConfigurationError, match="max in x and max_usd in x are the same limit: leave out one"
    ):
        tightened(Settings(), 'max = "3usd"\nmax_usd = 5\n', "x")
    (tmp_path / "pullwright.toml").write_text("max = 3\n")
    with pytest.raises(ConfigurationError, match="must be a text or a list of texts, like 2usd"):
        load_settings({}, {}, tmp_path)
