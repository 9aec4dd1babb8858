from __future__ import annotations

import re
from pathlib import Path

import pytest

from orchestrator.app.cli.arguments import parse
from orchestrator.app.cli.exit_codes import MEANINGS
from orchestrator.app.config.keys import VARIABLES
from orchestrator.app.config.settings import KEYS, Settings, description
from tests.readme_commands import commands

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def row(key: str, help_text: str) -> str:
    """A line of the README's table of options."""
    name = f"--{key.replace('_', '-')}"
    flag = f"`{name}`" if f" {name}" in help_text else ""
    value = Settings.model_fields[key].default
    shown = "" if value in (None, ()) else f"`{str(value).lower() if isinstance(value, bool) else value}`"
    return f"| `{key}` | {flag} | {shown} | {description(key)} |"


def test_the_table_of_options_is_the_truth(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["run", "--help"])
    help_text = " ".join(capsys.readouterr().out.split())
    missing = [line for key in KEYS if (line := row(key, help_text)) not in README]
    assert missing == []


def test_every_exit_status_is_explained() -> None:
    assert [code for code in MEANINGS if f"\n| {code} | " not in README] == []


def test_every_key_is_named() -> None:
    names = [name for group in VARIABLES.values() for name in group]
    assert [name for name in names if f"`{name}`" not in README] == []


def test_the_set_up_is_two_commands() -> None:
    first, second = commands(README)
    assert "run --demo" in first
    assert "pytest" in second


def test_every_test_that_is_named_is_there() -> None:
    root = Path(__file__).parents[2]
    named = re.findall(r"`(tests/[\w/*.]+)`", README)
    assert len(named) > 10
    assert [name for name in named if not list(root.glob(name))] == []
