"""A fleet's file: what it gives each repository, and the one clear line for everything that is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.app.config.settings import load_settings
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.fleet.fleet_file import DEFAULT_EVERY, FleetFile, ListenAddress, load_fleet

TOKEN = "ghp_" + "a1B2c3D4e5" * 4
ONE = '[[repository]]\nname = "owner/name"\n'


def read(folder: Path, text: str, **environ: str) -> FleetFile:
    path = folder / "fleet.toml"
    path.write_text(text)
    return load_fleet(path, environ)


def test_options_of_a_repository_stand_over_those_for_all(tmp_path: Path) -> None:
    fleet = read(
        tmp_path,
        '[fleet]\nhealth = "127.0.0.1:8787"\nparallel = 2\ntimezone = "Europe/Berlin"\n'
        '[defaults]\nmodel = "openai:a"\nmax_rounds = 5\nevery = "30m"\n'
        '[[repository]]\nname = "owner/one"\nmax_rounds = 3\n'
        '[[repository]]\nname = "owner/two"\ncron = "0 3 * * *"\ntimezone = "UTC"\n',
    )
    assert fleet.health == ListenAddress("127.0.0.1", 8787)
    assert fleet.parallel == 2
    one, two = fleet.repositories
    common = {"model": "openai:a"}
    assert one.settings == {**common, "max_rounds": 3, "every": "30m", "timezone": "Europe/Berlin"}
    assert two.settings == {**common, "max_rounds": 5, "cron": "0 3 * * *", "timezone": "UTC"}


def test_an_option_of_the_file_that_was_renamed_is_understood(tmp_path: Path) -> None:
    (one,) = read(tmp_path, f"{ONE}strict_tests = true\n").repositories
    loaded = load_settings(one.settings, one.environ, tmp_path)
    assert loaded.settings.require_tests
    assert loaded.notices == ("--strict-tests is called --require-tests now",)


def test_a_repository_without_a_schedule_is_looked_at_every_so_often(tmp_path: Path) -> None:
    (one,) = read(tmp_path, ONE).repositories
    assert one.settings == {"every": DEFAULT_EVERY}


def test_a_token_comes_from_the_variable_that_is_named_and_stands_alone(tmp_path: Path) -> None:
    fleet = read(
        tmp_path,
        f'{ONE}token_env = "ONE_TOKEN"\n[[repository]]\nname = "owner/two"\n',
        ONE_TOKEN=TOKEN,
        GITHUB_TOKEN="common",
        GH_TOKEN="other",
        GITHUB_ENTERPRISE_TOKEN="another",
        PULLWRIGHT_GITHUB_APP_ID="1",
    )
    one, two = fleet.repositories
    assert one.environ == {"ONE_TOKEN": TOKEN, "GITHUB_TOKEN": TOKEN, "GH_ENTERPRISE_TOKEN": TOKEN}
    assert two.environ["GITHUB_TOKEN"] == "common"
    assert "token_env" not in one.settings
    assert TOKEN not in repr(fleet)


def test_a_path_counts_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "calc").mkdir()
    (one,) = read(tmp_path, '[[repository]]\nname = "./calc"\n').repositories
    assert one.name == str((tmp_path / "calc").resolve())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:0", ListenAddress("127.0.0.1", 0)),
        ("8787", ListenAddress("127.0.0.1", 8787)),
        (":8787", None),
        ("[::1]:8787", ListenAddress("::1", 8787)),
        ("192.0.2.1:80", ListenAddress("192.0.2.1", 80)),
        ("localhost:80", ListenAddress("localhost", 80)),
        ("host:99999", None),
        ("host:", None),
        ("", None),
        ("http://localhost:80", None),
        ("a b:80", None),
        ("host:²", None),
    ],
)
def test_where_health_is_served(tmp_path: Path, text: str, expected: ListenAddress | None) -> None:
    file = f'[fleet]\nhealth = "{text}"\n{ONE}'
    if expected is None:
        with pytest.raises(ConfigurationError, match=r"health in .*fleet\.toml must be an address"):
            read(tmp_path, file)
    else:
        assert read(tmp_path, file).health == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no repository"),
        ("repository = 1\n", "names no repository"),
        ("[repository]\nname = 'a/b'\n", "names no repository"),
        ("[fleets]\n" + ONE, "unknown key 'fleets'; the nearest known one is 'fleet'"),
        ("fleet = 1\n" + ONE, r"fleet in .* must be a table"),
        (
            "[fleet]\nparalel = 1\n" + ONE,
            r"\[fleet\].*unknown key 'paralel'; the nearest known one is 'parallel'",
        ),
        ("[fleet]\nparallel = 0\n" + ONE, "parallel in .* from 1 to 16"),
        ("[fleet]\nparallel = true\n" + ONE, "parallel in .* from 1 to 16"),
        ("[fleet]\nhealth = 80\n" + ONE, "health in .*must be an address"),
        ("[fleet]\ntimezone = '..'\n" + ONE, r"timezone in \[fleet\] in .*must be a name"),
        ("[defaults]\nmax_round = 1\n" + ONE, r"\[defaults\].*unknown key 'max_round'.*'max_rounds'"),
        ("[defaults]\nmax_rounds = 0\n" + ONE, r"max_rounds in \[defaults\] in .*must be a whole number"),
        ("[defaults]\nsandbox = 'off'\n" + ONE, r"sandbox of \[defaults\].*type --sandbox"),
        ("[defaults]\nmax_cycles = 3\n" + ONE, "max_cycles of .*--once"),
        ("[defaults]\nevery = '1h'\ncron = '0 3 * * *'\n" + ONE, "exclude each other"),
        (ONE + "every = '1h'\ncron = '0 3 * * *'\n", "owner/name in .*exclude each other"),
        (ONE + "token = 'x'\n", "write token_env"),
        (ONE + "api_key = 'x'\n", "keys do not belong in files"),
        (ONE + "weight = 2\n", "unknown key 'weight'"),
        (ONE + "token_env = 'NO SUCH'\n", "must be the name of an environment variable"),
        (ONE + "token_env = 'MISSING_TOKEN'\n", "names MISSING_TOKEN, which is not set"),
        (ONE + "token_env = 'EMPTY_TOKEN'\n", "names EMPTY_TOKEN, which is not set"),
        (ONE + "token_env = 'PLAIN'\n", "names PLAIN, which commands of the model could read"),
        (ONE + "token_env = 'SOME_TOKEN'\ngithub_app_id = '1'\n", "token_env and github_app_id"),
        ("[[repository]]\nevery = '1h'\n", "has no name"),
        ("[[repository]]\nname = ' '\n", "has no name"),
        ('[[repository]]\nname = "a\\nb"\n', "has no name"),
        (f"[defaults]\nauthor_name = '{TOKEN}'\n" + ONE, "defaults.author_name in .*looks like a key"),
        (f"{ONE}allow_command = ['curl -H {TOKEN}']\n", "repository.allow_command in .*looks like a key"),
        (
            f"[[repository]]\nname = 'https://x:{TOKEN}@github.com/a/b'\n",
            "repository.name in .*looks like a key",
        ),
        ("[[repository]]\nname = 'https://ada:short@github.com/a/b'\n", "holds (a credential|what looks)"),
        ("[[repository]]\nname = 'HTTPS://short@github.com/a/b'\n", "holds a credential"),
        ("[[repository]]\nname = 'ssh://git:short@github.com/a/b'\n", "holds (a credential|what looks)"),
        (f"[defaults]\n{TOKEN} = 1\n" + ONE, "as a key's name"),
        ("[[", "is not valid TOML"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        read(tmp_path, text, EMPTY_TOKEN=" ", PLAIN="value", SOME_TOKEN="value-of-it")
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)
    assert "short@" not in str(caught.value)


def test_a_secret_of_the_environment_is_known_again_in_the_file(tmp_path: Path) -> None:
    secret = "correct horse battery"
    with pytest.raises(ConfigurationError, match=r"defaults\.label in") as caught:
        read(tmp_path, f"[defaults]\nlabel = '{secret}'\n{ONE}", DEPLOY_PASSWORD=secret)
    assert secret not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no file .*none\.toml"):
        load_fleet(tmp_path / "none.toml", {})


def test_the_documented_example(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs/running.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```toml\n(\[fleet\].*?)```", page, flags=re.DOTALL)
    one, two = read(tmp_path, block, TWO_TOKEN=TOKEN).repositories
    assert (one.settings["every"], two.settings["cron"]) == ("30m", "0 3 * * *")
    assert two.environ["GITHUB_TOKEN"] == TOKEN
