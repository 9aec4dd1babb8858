"""Finds the command that runs the tests in what a repository says in words: its instructions and its workflows.

These texts are untrusted. What is copied from them is one plain line of a known form, short enough for a person to read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_MOST_COPIED_CHARS = 200
_WORDS = r"""(?: (?:[\w./:=,@+~^%*\[\]-]|'[^'\n]*'|"[^"$`\\\n]*")+)*"""
_TEST_CALL = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=[\w./:-]* )*(?:(?:uv|poetry|pdm|pipenv|hatch|rye) run (?:--?[\w=-]+ )*)?(?:"
    r"(?:(?:[\w./-]+/)?python3? -m )?(?:[\w./-]+/)?(?:pytest|unittest|tox|nox|nose2|stestr)"
    r"|hatch (?:run )?test|(?:npm|pnpm|yarn|bun|deno)(?: run)? test|npm t|(?:npx|pnpm exec|yarn) (?:jest|vitest|mocha|ava|tap)"
    r"|make (?:test|tests|check)|just (?:test|check)|cargo (?:nextest run|test)|go test|dotnet test|mix test|swift test|sbt test"
    r"|(?:\./)?mvnw? (?:[-\w.=]+ )*(?:test|verify)|(?:\./)?gradlew? (?:[-\w.=]+ )*(?:test|check)|(?:bundle exec )?(?:rspec|rake (?:test|spec))"
    r"|(?:(?:\./)?vendor/bin/)?(?:phpunit|pest)|composer test|bazel test|ctest"
    rf"){_WORDS}"
)
_SETUP_CALL = re.compile(
    r"(?:(?:python3? -m )?pip3? install|uv (?:sync|pip install)|poetry install|pdm install|npm (?:ci|install|i)|pnpm (?:install|i)"
    r"|yarn(?: install)?|bun install|bundle install|composer install|go mod download|cargo fetch)"
    rf"{_WORDS}"
)
_AN_EXAMPLE = re.compile(r"::|path/to|some_|\bfoo\b|\bTestName\b|(?:^| )-k ")


def call_in_instructions(text: str) -> str:
    """The shortest test call in the code of a Markdown text; empty without. Longer ones run some tests, or print more."""
    return min(_test_calls(_code(text)), key=len, default="")


def call_in_workflow(text: str) -> tuple[str, list[str]] | None:
    """The first test call in the steps of a workflow, and what its job installs before; None without."""
    for job in _jobs(text):
        for place, line in enumerate(job):
            if calls := _test_calls([line]):
                return calls[0], [before for before in job[:place] if _is_setup(before)]
    return None


def _test_calls(lines: Iterable[str]) -> list[str]:
    """The lines that are a call of a test runner and nothing else."""
    plain = (re.sub(r"^\s*(?:[$>] )?\s*", "", line).rstrip() for line in lines)
    return [
        line
        for line in plain
        if _may_be_copied(line) and _TEST_CALL.fullmatch(line) and not _AN_EXAMPLE.search(line)
    ]


def _may_be_copied(line: str) -> bool:
    """Whether a line of the repository is short, and shows a person all that it does."""
    return len(line) <= _MOST_COPIED_CHARS and line.isprintable()


def _code(text: str) -> Iterator[str]:
    """The lines of code blocks of a Markdown text, and what stands between backticks."""
    fenced = False
    for line in text.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif fenced or line.startswith(("    ", "\t")):
            yield line
        else:
            yield from re.findall(r"`([^`]+)`", line)


def _is_setup(line: str) -> bool:
    return _may_be_copied(line) and _SETUP_CALL.fullmatch(line) is not None


_STEP = re.compile(r"^(?P<indent> *)(?:- +)?run: *(?P<rest>.*)$")
_JOB = re.compile(r"^(?: {2}| {4})[\w-]+: *$")


def _jobs(text: str) -> Iterator[list[str]]:
    """The lines of the `run` steps of each job of a workflow.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstepsrun. What is not
    written in the usual form is passed over: this only proposes.
    """
    commands: list[str] = []
    inside = -1  # how far the `run` of a block is indented
    for line in text.replace("\\\n", " ").splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if inside >= 0 and (not line.strip() or indent > inside):
            commands.append(" ".join(line.split()))
            continue
        inside = -1
        if step := _STEP.match(line):
            rest = step["rest"].strip()
            if re.fullmatch(r"[|>][-+0-9]*", rest):
                inside = line.index("run:")
            else:
                quoted = re.fullmatch(r"'([^']*)'|\"([^\"\\]*)\"", rest)
                commands.append("".join(quoted.groups("")) if quoted else rest)
        elif _JOB.match(line) and commands:
            yield commands
            commands = []
    yield commands
