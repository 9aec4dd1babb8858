"""The configuration of the assistant specification, taken over into the user's file."""

from __future__ import annotations

import json
import os
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.app.cli import main
from orchestrator.app.cli.arguments import DONE, USAGE
from orchestrator.app.cli.config import add_to_users_file, template
from orchestrator.app.config.foreign import Imported, read_foreign
from orchestrator.app.config.settings import Settings, as_toml, load_settings
from orchestrator.app.options import Reach, all_options
from orchestrator.app.terminal import known_secrets
from orchestrator.core.errors import ConfigurationError
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path


def imported(folder: Path, text: str | dict[str, Any]) -> Imported:
    path = folder / "ralph.config.json"
    path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
    return read_foreign(path, known_secrets(os.environ).holds_secret)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The person's own file, which does not exist yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULLWRIGHT_CONFIG", str(tmp_path / "own" / "config.toml"))
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    return tmp_path / "own" / "config.toml"


def test_a_new_file_has_every_option_and_changes_nothing(
    own: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "init"]) == DONE
    assert tomllib.loads(own.read_text()) == {}
    named = [
        line[1:].partition(" =")[0]
        for line in own.read_text().splitlines()
        if line.startswith("#") and line[1:2] != " "
    ]
    assert named == [key for key, one in all_options().items() if one.reach is not Reach.TYPED]
    defaults = "\n".join(
        line[1:]
        for line in own.read_text().splitlines()
        if line[:1] == "#" and line[1:2] != " " and line[-1] != "="
    )
    assert load_settings({}, {"PULLWRIGHT_CONFIG": str(own)}, own.parent).settings == Settings()
    own.write_text(defaults)
    assert load_settings({}, {"PULLWRIGHT_CONFIG": str(own)}, own.parent).settings == Settings()
    capsys.readouterr()
    assert main(["config", "init"]) == USAGE
    assert "exists already: 'pullwright config edit' opens it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "begins", ["", "template", "# mine\nmodel = 'old' # why\n\n[mcp.files]\ncommand = 'x'\n"]
)
def test_an_option_is_set_and_removed_and_all_else_stays(
    own: Path, begins: str, capsys: pytest.CaptureFixture[str]
) -> None:
    own.parent.mkdir()
    own.write_text(template() if begins == "template" else begins)
    before = own.read_text()
    assert main(["config", "set", "model", "openai:gpt-5.2"]) == DONE
    assert main(["config", "set", "max-usd", "2.5"]) == DONE
    assert main(["config", "set", "protect_path", "docs/", "*.lock"]) == DONE
    wanted = {"model": "openai:gpt-5.2", "max_usd": 2.5, "protect_path": ["docs/", "*.lock"]}
    assert tomllib.loads(own.read_text()).items() >= wanted.items()
    if begins == "template":
        assert len(own.read_text().splitlines()) == len(before.splitlines()), "each in its place"
    assert ("# why" in own.read_text()) is ("# why" in before)
    for key in ("model", "max-usd", "protect_path"):
        assert main(["config", "unset", key]) == DONE
    assert tomllib.loads(own.read_text()).keys() == tomllib.loads(before).keys() - wanted.keys()
    capsys.readouterr()
    assert main(["config", "unset", "model"]) == USAGE
    assert "does not set 'model'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        (("modell", "x"), "the unknown key 'modell'; the nearest known one is 'model'"),
        (("max_usd", "much"), "must be a number above 0"),
        (("github_token", "x"), "keys do not belong in files; set the environment variable GITHUB_TOKEN"),
        (("model", f"sk-proj-{'aB3' * 14}"), "keys belong in the environment"),
    ],
)
def test_what_is_refused_writes_nothing(
    own: Path, argv: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", "set", *argv]) == USAGE
    assert told in capsys.readouterr().err
    assert not own.exists()


def test_the_editor_of_the_person_opens_the_file(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("VISUAL", "sh -c 'echo max_usd = 1 >> \"$0\"'")
    assert main(["config", "edit"]) == DONE
    assert tomllib.loads(own.read_text()) == {"max_usd": 1}
    assert main(["config", "edit"]) == USAGE, "now the key is there twice"
    assert "is not valid TOML" in capsys.readouterr().err
    monkeypatch.setenv("VISUAL", "no-such-editor")
    assert main(["config", "edit"]) == USAGE
    assert "cannot be started" in capsys.readouterr().err


def test_every_place_is_named_before_it_exists(
    own: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PULLWRIGHT_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(own.parent))
    own = own.parent / "pullwright" / "config.toml"
    assert main(["config"]) == DONE
    shown = capsys.readouterr().out
    assert f"{own} (not there yet)" in shown
    assert str(own.parents[2] / "home" / "runs") in shown
    assert main(["config", "show", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["places"]["your own options"] == str(own)


SECTION_3_1: dict[str, Any] = {
    "api_url": "https://api.openai.com/v1/chat/completions",
    "model": "gpt-4o-mini",
    "anthropic_api_key": "",
    "openai_api_key": "",
    "openai_api_url": "",
    "embedding_api_url": "",
    "embedding_model": "",
    "system_prompt": "",
    "context_window": 8192,
    "max_tokens": -1,
    "max_subagents": 5,
    "subagent_timeout": 300,
    "mcpServers": {},
}
"""The schema of the specification with its defaults."""
EXAMPLES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        SECTION_3_1,
        {"model": "openai:gpt-4o-mini", "context_window": 8192, "max_subagents": 5, "subagent_timeout_seconds": 300.0},
    ),
    (
        {
            "api_url": "https://api.anthropic.com/v1/messages",
            "model": "claude-3-5-sonnet-20241022",
            "anthropic_api_key": "made-up",
            "openai_api_key": "made-up",
        },
        {"model": "anthropic:claude-3-5-sonnet-20241022"},
    ),
    (
        {"api_url": "http://localhost:1234/v1/chat/completions", "model": "local-model", "context_window": 32000},
        {"api_url": "http://localhost:1234/v1", "model": "local-model", "context_window": 32000},
    ),
    (
        {"model": "qwen3:8b", "openai_api_url": "http://localhost:11434/v1"},
        {"api_url": "http://localhost:11434/v1", "model": "qwen3:8b"},
    ),
    ({"model": "gpt-4o"}, {"model": "openai:gpt-4o"}),
    (
        {"max_tokens": 900, "system_prompt": 'Be\nbrief "now".', "subagent_timeout": 2.5},
        {"max_output_tokens": 900, "system_prompt": 'Be\nbrief "now".', "subagent_timeout_seconds": 2.5},
    ),
    ({}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("given_values", "wanted"), EXAMPLES)
def test_the_examples_of_the_document_become_options(
    tmp_path: Path, given_values: dict[str, Any], wanted: dict[str, Any]
) -> None:
    assert imported(tmp_path, given_values).values == wanted


@table("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
def test_json_is_read_in_each_encoding_that_json_has(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"mcpServers": {}, "system_prompt": "Größe"}', encoding=encoding)
    assert read_foreign(path, lambda _text: False).values == {"system_prompt": "Größe"}


def test_what_was_taken_over_is_what_a_run_uses(tmp_path: Path) -> None:
    environ = {"PULLWRIGHT_CONFIG": str(tmp_path / "deep/config.toml")}
    for _, wanted in EXAMPLES:
        (tmp_path / "deep/config.toml").unlink(missing_ok=True)
        done = add_to_users_file(wanted, environ)
        if wanted:
            settings = load_settings({}, environ, tmp_path).settings
            assert {key: getattr(settings, key) for key in wanted} == wanted
        assert done.added == wanted


def test_keys_servers_and_what_is_unknown_are_named_and_not_written(tmp_path: Path) -> None:
    found = imported(
        tmp_path,
        {
            "anthropic_api_key": "made-up-one",
            "openai_api_key": "made-up-two",
            "mcpServers": {"a": {}, "b": {}},
            "modle": "x",
            "system_prompt": f"Use ghp_{'a1B2' * 9}",
        },
    )
    assert found.values == {}
    assert [note.split(":")[0].split(" was")[0] for note in found.notes] == [
        "anthropic_api_key",
        "openai_api_key",
        "mcpServers",
        "'modle' is not known and",
        "system_prompt holds what looks like a key or password and",
    ]
    assert "set the environment variable ANTHROPIC_API_KEY" in found.notes[0]
    assert "OPENAI_API_KEY" in found.notes[1]
    assert f"--mcp-config {tmp_path}/ralph.config.json" in found.notes[2]
    assert found.notes[2].endswith(f'mcp_config = "{tmp_path}/ralph.config.json"')
    assert "made-up" not in str(found)
    inside = imported(tmp_path, {"api_url": "https://me:secret@host.example/v1"})
    assert (inside.values, inside.notes) == (
        {},
        ("api_url holds what looks like a key or password and was left out",),
    )
    other = imported(tmp_path, {"openai_api_key": "made-up", "api_url": "http://localhost:1234/v1"})
    assert "PULLWRIGHT_API_KEY" in other.notes[0]


BAD = [
    ("{", "is not valid JSON"),
    ("[" * 100_000, "is not valid JSON"),
    ("[]", "must hold one JSON object"),
    ('{"context_window": "large"}', "context_window in .* must be a whole number from 1"),
    ('{"context_window": true}', "context_window in"),
    ('{"api_url": "ftp://x"}', "api_url in .* must be an http"),
    ('{"api_url": 7, "model": "m"}', "api_url in"),
    ('{"model": ["m"]}', "model in"),
    ('{"max_subagents": 0}', "max_subagents in"),
    ('{"subagent_timeout": -1}', "subagent_timeout_seconds in"),
]


@pytest.mark.parametrize(("text", "error"), BAD)
def test_a_file_that_makes_no_sense_is_one_clear_line(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error) as raised:
        imported(tmp_path, text)
    assert "\n" not in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.json cannot be read: No such file"):
        read_foreign(tmp_path / "none.json", lambda _text: False)


def test_nothing_in_the_users_file_is_changed_or_lost(tmp_path: Path) -> None:
    real, link = tmp_path / "real.toml", tmp_path / "config.toml"
    old = '# mine\nlabel = "bug"\nmodel = "openai:mine"\n\n[table]\nx = 1\n'
    real.write_text(old)
    real.chmod(0o640)
    link.symlink_to(real)
    values = {"model": "openai:other", "context_window": 9, "label": "bug"}
    done = add_to_users_file(values, {"PULLWRIGHT_CONFIG": str(link)})
    assert (done.path, done.added, done.kept) == (real, {"context_window": 9}, ("model",))
    top, table_of_it = old.split("\n[", 1)
    assert real.read_text() == f"{top}context_window = 9\n\n[{table_of_it}"
    assert real.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["config.toml", "real.toml"]


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    for path in ("/dev/null", str(tmp_path)):
        with pytest.raises(ConfigurationError, match="is not a file"):
            add_to_users_file({"label": "x"}, {"PULLWRIGHT_CONFIG": path})


@given(
    st.one_of(
        st.text(st.characters(exclude_categories=["Cs"])),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_every_value_is_read_again_as_it_was(value: object) -> None:
    assert tomllib.loads(f"it = {as_toml(value)}")["it"] == value


def test_a_person_sees_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    users = tmp_path / "config.toml"
    monkeypatch.setenv("PULLWRIGHT_CONFIG", str(users))
    path = tmp_path / "ralph.config.json"
    path.write_text(json.dumps({"model": "gpt-4o", "openai_api_key": "made-up"}))
    assert main(["config", "--import", str(path)]) == 0
    printed = capsys.readouterr()
    assert printed.out == f'Added to {users}:\nmodel = "openai:gpt-4o"\n'
    assert printed.err.startswith("! openai_api_key was not copied: ")
    assert main(["config", "--import", str(path), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert (again["file"], again["added"], len(again["notes"])) == (str(users), {}, 1)
    assert "made-up" not in users.read_text()
    assert main(["config", "--import", str(tmp_path / "none")]) == 2
