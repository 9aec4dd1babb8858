from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.config.settings import Settings
from orchestrator.app.wiring.guards import (
    GuardMaker,
    choose_sandbox,
    report_refusals,
    rules_in_words,
)
from orchestrator.bot.policy.incoming import clean_words
from orchestrator.bot.worker.task_rules import as_lines
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.core.events import Event


@table(
    ("settings", "words"),
    [
        ({}, "safe: no commands"),
        ({"permission": "read-only", "allow_command": ("ls",)}, "read-only: no commands"),
        ({"allow_command": ("pytest *", "ls")}, "safe: pytest *, ls, in bubblewrap"),
        (
            {"permission": "dangerous", "allow_host": ("pypi.org",)},
            "dangerous: every command, in bubblewrap, hosts: pypi.org",
        ),
        ({"permission": "dangerous", "sandbox": "off"}, "dangerous: every command, WITHOUT a sandbox"),
        (
            {"test_command": "pytest -q", "allow_host": ("pypi.org",)},
            "safe: no commands for the model; the host runs pytest -q; in bubblewrap, hosts: pypi.org",
        ),
        (
            {"test_command": "auto", "allow_command": ("ls",)},
            "safe: ls for the model; the host runs the tests; in bubblewrap",
        ),
        (
            {"test_command": "make", "permission": "read-only", "sandbox": "off"},
            "read-only: no commands for the model; the host runs make; WITHOUT a sandbox",
        ),
    ],
)
def test_what_may_run_is_said_in_a_line(settings: dict[str, Any], words: str) -> None:
    chosen = Settings(**settings)
    assert rules_in_words(chosen, choose_sandbox(chosen)) == words


def test_a_sandbox_is_looked_for_only_where_commands_can_run() -> None:
    assert choose_sandbox(Settings()) is None
    for settings in (Settings(permission="dangerous"), Settings(test_command="make")):
        found = choose_sandbox(settings)
        assert found is not None
        assert found.name == find_sandbox().name


@table(
    "settings",
    [
        {"allow_command": ("echo 'x",)},
        {"allow_command": ("*",)},
        {"deny_command": ("a && b",)},
        {"permission": "dangerous", "sandbox_read": ("relative",)},
    ],
)
def test_a_rule_that_makes_no_sense_is_said_before_anything_is_paid_for(settings: dict[str, Any]) -> None:
    chosen = Settings(**settings)
    with pytest.raises(ConfigurationError) as caught:  # noqa: PT012  one of the two
        GuardMaker(Redactor())(chosen)
        choose_sandbox(chosen)
    assert len(str(caught.value).splitlines()) == 1


def test_a_refused_connection_is_host_command_and_flag() -> None:
    heard: list[Event] = []
    report_refusals(heard.append)("pypi.org:443", "pip install x")
    report_refusals(heard.append)("pypi.org:8443", "pip install x")
    assert [(event.message, event.details) for event in heard] == [  # type: ignore[union-attr]
        (
            "refused connection to pypi.org:443; the person who runs this can allow it with --allow-host pypi.org",
            ("pip install x",),
        ),
        (
            "refused connection to pypi.org:8443; the person who runs this can allow it with --allow-host pypi.org:8443",
            ("pip install x",),
        ),
    ]


def test_what_people_wrote_comes_clean_and_redacted_with_a_report() -> None:
    clean = as_lines(clean_words, Redactor(["made-up-key-1234"]).redact)
    seen = clean("Use made-up-key-1234<!-- x --> in List<int> and in <int>")
    assert seen.text == "Use [redacted] in List<int> and in <int>"
    assert seen.hidden == ['HTML comment at 20: "<!-- x -->"']
    assert seen.kept == ['HTML tag at 38: "<int>"']


TRACEABLE = """
import ctypes, sys
from orchestrator.app.wiring.guards import refuse_tracing
from orchestrator.app.config.settings import Settings

refuse_tracing(Settings(permission=sys.argv[1], sandbox=sys.argv[2]))
print(ctypes.CDLL(None).prctl(3))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it is Linux's")
@pytest.mark.parametrize(
    ("permission", "sandbox", "traceable"),
    [("dangerous", "off", "0"), ("safe", "off", "1"), ("dangerous", "auto", "1")],
)
def test_beside_commands_without_a_sandbox_nobody_traces_this_program(
    permission: str, sandbox: str, traceable: str
) -> None:
    words = [sys.executable, "-c", TRACEABLE, permission, sandbox]
    ran = subprocess.run(words, cwd=Path(__file__).parents[4], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == traceable
