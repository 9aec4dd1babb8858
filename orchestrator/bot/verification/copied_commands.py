"""Finds test commands in a repository's workflows and instructions. A command is copied only as one plain line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

VENV = "python3 -m venv .venv"
"""Creates the environment into which suggested set-ups install."""
_MOST_COPIED_CHARS = 200
_MOST_WORKFLOWS = 30
_MOST_STEPS = 4
_INSTRUCTIONS = (
    "AGENTS.md",
    "CLAUDE.md",
    "GEMINI.md",
    "CONTRIBUTING.md",
    ".github/CONTRIBUTING.md",
    "CONTRIBUTING.rst",
)
_ARGUMENTS = r"""(?: (?:[\w./:=,@+~^%*\[\]-]|'[^'\n]*'|"[^"$`\\\n]*")+)*"""
_TEST_COMMAND = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=[\w./:-]* )*(?:(?:uv|poetry|pdm|pipenv|hatch|rye) run (?:--?[\w=-]+ )*)?(?:"
    r"(?:(?:[\w./-]+/)?python3? -m )?(?:[\w./-]+/)?(?:pytest|unittest|tox|nox|nose2|stestr)"
    r"|hatch (?:run )?test|(?:npm|pnpm|yarn|bun|deno)(?: run)? test|npm t|(?:npx|pnpm exec|yarn) (?:jest|vitest|mocha|ava|tap)"
    r"|make (?:test|tests|check)|just (?:test|check)|cargo (?:nextest run|test)|go test|dotnet test|mix test|swift test|sbt test"
    r"|(?:\./)?mvnw? (?:[-\w.=]+ )*(?:test|verify)|(?:\./)?gradlew? (?:[-\w.=]+ )*(?:test|check)|(?:bundle exec )?(?:rspec|rake (?:test|spec))"
    r"|(?:(?:\./)?vendor/bin/)?(?:phpunit|pest)|composer test|bazel test|ctest"
    rf"){_ARGUMENTS}"
)
_SETUP_COMMAND = re.compile(
    r"(?:(?:python3? -m )?pip3? install|uv (?:sync|pip install)|poetry install|pdm install|npm (?:ci|install|i)|pnpm (?:install|i)"
    r"|yarn(?: install)?|bun install|bundle install|composer install|go mod download|cargo fetch)"
    rf"{_ARGUMENTS}"
)
_EXAMPLE = re.compile(r"::|path/to|some_|\bfoo\b|\bTestName\b|(?:^| )-k ")


def copied_commands(paths: Iterable[str], text_of: Callable[[str], str]) -> Iterator[tuple[str, str, str]]:
    """Yield the test command of the first instructions that have one, and that of the first workflow.

    Args:
        paths: the repository's files.
        text_of: returns a file's text; empty if it is missing.

    Yields:
        The command, the set-up or an empty text, and the path of the file.
    """
    for path in _INSTRUCTIONS:
        # The shortest one: longer commands run only some of the tests, or print more.
        if command := min(_test_commands(_code_lines(text_of(path))), key=len, default=""):
            yield command, "", path
            break
    workflows = [path for path in paths if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path)]
    workflows.sort(key=lambda path: (not re.search(r"test|ci|check", path.rpartition("/")[2]), path))
    for path in workflows[:_MOST_WORKFLOWS]:
        if found := _command_in_workflow(text_of(path)):
            command, steps = found
            if any("pip" in step for step in steps):
                # A workflow installs into the runner's Python, which a sandbox cannot write to.
                pip = r"^(?:python3? -m )?pip3?\b"
                steps = [VENV, *(re.sub(pip, ".venv/bin/python -m pip", step) for step in steps)]
                command = re.sub(r"^(?:python3? -m )?(?=pytest|unittest)", ".venv/bin/python -m ", command)
            yield command, " && ".join(steps[:_MOST_STEPS]), path
            break


def _command_in_workflow(text: str) -> tuple[str, list[str]] | None:
    """Return the first test command in a workflow's steps, and the job's earlier install commands; None without one."""
    for job in _run_steps_by_job(text):
        for number, line in enumerate(job):
            if commands := _test_commands([line]):
                setup = [step for step in job[:number] if _is_plain(step) and _SETUP_COMMAND.fullmatch(step)]
                return commands[0], setup
    return None


def _test_commands(lines: Iterable[str]) -> list[str]:
    """Return the lines that consist of a call of a test runner."""
    plain = (re.sub(r"^\s*(?:[$>] )?\s*", "", line).rstrip() for line in lines)
    return [
        line
        for line in plain
        if _is_plain(line) and _TEST_COMMAND.fullmatch(line) and not _EXAMPLE.search(line)
    ]


def _is_plain(line: str) -> bool:
    """Return whether a line is short and printable, so that a person sees everything that it does."""
    return len(line) <= _MOST_COPIED_CHARS and line.isprintable()


def _code_lines(text: str) -> Iterator[str]:
    """Yield the lines of code blocks, and the inline code, of a Markdown text."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced or line.startswith(("    ", "\t")):
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


_STEP = re.compile(r"^(?P<indent> *)(?:- +)?run: *(?P<rest>.*)$")
_JOB = re.compile(r"^(?: {2}| {4})[\w-]+: *$")


def _run_steps_by_job(text: str) -> Iterator[list[str]]:
    """Yield the lines of the `run` steps of each job of a workflow.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstepsrun. Steps in
    an unusual layout are skipped.
    """
    commands: list[str] = []
    block_indent = -1  # how far the `run` of a block is indented
    for line in text.replace("\\\n", " ").splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if block_indent >= 0 and (not line.strip() or indent > block_indent):
            commands.append(" ".join(line.split()))
            continue
        block_indent = -1
        if step := _STEP.match(line):
            rest = step["rest"].strip()
            if re.fullmatch(r"[|>][-+0-9]*", rest):
                block_indent = line.index("run:")
            else:
                quoted = re.fullmatch(r"'([^']*)'|\"([^\"\\]*)\"", rest)
                commands.append("".join(quoted.groups("")) if quoted else rest)
        elif _JOB.match(line) and commands:
            yield commands
            commands = []
    yield commands
