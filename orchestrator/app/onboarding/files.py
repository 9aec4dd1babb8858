"""The files that `init` writes: a repository's rules, and the workflow that works on its backlog."""

from __future__ import annotations

import json
import re
import tomllib
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.app.config.settings import LOCAL_FILE, as_toml, parse_toml
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.files import replace_file

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.app.onboarding.installation import ActionFile, ActionPlace

WORKFLOW_FILE = ".github/workflows/pullwright.yml"
_RULES_HEAD = """\
# What Pullwright may do in this repository, as this file is on the default branch.
# It makes the rules of whoever runs Pullwright stricter, never looser.
# `pullwright config` lists all options, with their values.
"""
_TESTS_HEAD = "# Used where the person who runs it says --test-command auto:\n"
_TESTS = ("test_command", "setup_command", "test_report")
_TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)
CHECKOUT = "actions/checkout@08c6903cd8c0fde910a37f88322edcfb5dd907a8 # v5.0.0"
_LOCAL_ACTION = "./.github/actions/pullwright"
_PLAIN_MODEL = re.compile(r"[A-Za-z0-9._:/@+-]+")
_KEYS = {
    "anthropic": "ANTHROPIC_API_KEY",
    "openai": "OPENAI_API_KEY",
    "openai-chat": "OPENAI_API_KEY",
    "openai-responses": "OPENAI_API_KEY",
    "gemini": "GEMINI_API_KEY",
}


def key_variable(model: str | None) -> str:
    """Return the variable for the key of a vendor's model; all variables if no vendor is named."""
    provider = (model or "").partition(":")[0].lower()
    return _KEYS.get(provider, "ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY")


def write_action_file(top: Path, file: ActionFile) -> None:
    """Write a file below `top` atomically, but never through a symbolic link.

    Raises:
        ConfigurationError: the file cannot be written.
    """
    path = top / file.path
    if any(one.is_symlink() for one in (path, *path.parents) if one != top and one.is_relative_to(top)):
        raise ConfigurationError(f"{path} is behind a symbolic link: nothing is written there")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, file.content, 0o755 if file.is_executable else 0o644)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error


def rules_text(old: str | None, values: Mapping[str, Any]) -> str:
    """Return the repository's file with these options set. Its other content is kept unchanged.

    Raises:
        ConfigurationError: the file is not valid TOML, or the options cannot be set without another change.
    """
    if old is None:
        return _RULES_HEAD + _lines(values)
    present = parse_toml(old, LOCAL_FILE)
    text, added = old, {}
    for key, value in values.items():
        if key not in present:
            added[key] = value
        elif present[key] != value:
            line = f"{key} = {as_toml(value)}".replace("\\", "\\\\")
            text = re.sub(rf"^{key}[ \t]*=.*$", line, text, count=1, flags=re.MULTILINE)
    text = _above_tables(text, _lines(added))
    with suppress(ValueError):  # the replacement can break a value of several lines
        if tomllib.loads(text) == present | dict(values):
            return text
    raise ConfigurationError(f"{LOCAL_FILE} cannot be changed by a program: change it by hand")


def _lines(values: Mapping[str, Any]) -> str:
    others = "".join(f"{key} = {as_toml(value)}\n" for key, value in values.items() if key not in _TESTS)
    tests = "".join(f"{key} = {as_toml(value)}\n" for key, value in values.items() if key in _TESTS)
    return others + (_TESTS_HEAD + tests if tests else "")


def _above_tables(text: str, lines: str) -> str:
    """Insert lines before the first table."""
    table = _TABLE.search(text)
    end = table.start() if table else len(text)
    before = text[:end]
    gap = "" if not before or before.endswith("\n") else "\n"
    return f"{before}{gap}{lines}{text[end:]}"


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """The contents of a workflow.

    Attributes:
        place: commit of the action; None for the copy in the workflow's own repository.
        repository: `owner/name` where it runs; None if that is not known.
        model: `PROVIDER:NAME` of a vendor's model; None to use a variable of the repository.
        has_tests: whether the repository's file sets the test command.
        hosts: hosts that the tests' set-up may connect to.
    """

    place: ActionPlace | None
    repository: str | None
    model: str | None
    max_usd: float
    has_tests: bool
    hosts: tuple[str, ...] = ()


def workflow_text(template: str, plan: WorkflowPlan) -> str:
    """Return the workflow for a repository, based on this program's own workflow.

    Raises:
        ConfigurationError: the model's name is not valid in a workflow.
    """
    if plan.model is not None and not _PLAIN_MODEL.fullmatch(plan.model):
        raise ConfigurationError(f"the model {plan.model!r} cannot be named in a workflow: name another one")
    notes, _, rest = template.partition("\nname: ")
    text = f"{_workflow_head(notes, plan)}name: {rest}"
    uses = (
        plan.place.uses
        if plan.place
        else f"{_LOCAL_ACTION} # zizmor: ignore[self-repository] known to every runner"
    )
    step = f"- uses: {uses}"
    if plan.place is None:
        step = f"- uses: {CHECKOUT}\n        with:\n          persist-credentials: false\n      {step}"
    text = _once(text, r"- uses: \$/\.github/actions/pullwright.*$", step)
    text = _once(text, r'max-usd: "[^"]*"', f'max-usd: "{plan.max_usd:g}"')
    if plan.model is not None:
        text = _once(text, r"model: \$\{\{ vars\.PULLWRIGHT_MODEL \}\}", f"model: {json.dumps(plan.model)}")
        condition = f"github.repository == '{plan.repository}' # not in forks" if plan.repository else ""
        line = f"    if: {condition}\n" if condition else ""
        text = _once(text, r"    if: vars\.PULLWRIGHT_MODEL != ''\n", line)
    if plan.has_tests:
        text = _once(text, r"test-command: \$\{\{.*\}\}", f"test-command: auto # as {LOCAL_FILE} says")
        text = _once(text, r" *setup-command: \$\{\{.*\}\}\n", "")
        hosts = "".join(f"\n            {host}" for host in plan.hosts)
        line = f"          allow-host: |{hosts}\n" if hosts else ""
        text = _once(text, r" *allow-host: \$\{\{.*\}\}\n", line)
    return text


def _once(text: str, pattern: str, new: str) -> str:
    changed, count = re.subn(pattern, lambda _match: new, text, flags=re.MULTILINE)
    if count != 1:
        raise AssertionError(f"the workflow has {count} places like {pattern}")
    return changed


def _workflow_head(notes: str, plan: WorkflowPlan) -> str:
    """Return the head comment: the remaining steps, and the template's note about the job's token."""
    of_token = notes[notes.index("# Pull requests that the job's own token opens") :]
    lines = [
        "# Works through the issues that carry the label `pullwright`, a task an hour. Made by `pullwright init`.",
        "#",
        "# What is left to do in this repository's settings:",
    ]
    if plan.model is None:
        lines.append(
            "#   - the variable PULLWRIGHT_MODEL, as PROVIDER:NAME; while it is not set, the job does nothing;"
        )
    lines.append(f"#   - a secret for Actions: {key_variable(plan.model)};")
    if not plan.has_tests:
        lines.append(
            "#   - for tests before each pull request, the variable PULLWRIGHT_TEST_COMMAND, which runs them;"
        )
    lines += [
        "#   - in Actions, General: allow GitHub Actions to create and approve pull requests;",
        "#   - the label `pullwright`, on an issue.",
        "#",
        of_token.rstrip(),
    ]
    return "\n".join(lines) + "\n"
