"""Suggests how to run a repository's tests, from its files alone. It executes nothing.

A repository's text is untrusted: it only selects among known commands. The exception is a command in a workflow or
in instructions, which is copied as one plain line; such a suggestion is marked.
"""

from __future__ import annotations

import configparser
import itertools
import json
import re
import shlex
import tomllib
from collections import Counter
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from orchestrator.core.changes import is_test_path
from orchestrator.core.prompts import fence_after

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_PATHS = 200_000
_MOST_CHARS = 200_000
"""Most characters read from one file."""
_MOST_TESTS_READ = 20
_REPORT_XML = "test-report.xml"
_REPORT_JSON = "test-report.json"


class Confidence(IntEnum):
    """How likely a suggestion is right."""

    GUESS = 1
    """The command was only mentioned, or is often right for such files."""
    LIKELY = 2
    """The repository names the command or its tool; whether it runs here is unknown."""
    NAMED = 3
    """The repository has the runner's settings, or names the command as its test."""
    SURE = 4
    """It was run here, and was seen to run tests. No file alone can show this."""


@dataclass(frozen=True, slots=True)
class SuggestedCommand:
    """A suggested test command.

    Attributes:
        command: runs the tests, in the repository's folder.
        source: the evidence in the repository, in a few words.
        setup: prepares what they need; empty for nothing.
        report: where the command writes its report; empty for pytest, which gets the path when it is started, and
            if there is no report.
        copied: whether the command or the set-up is the repository's own text.
        unreached: the commands of other projects in the repository, whose tests this command does not run.
    """

    command: str
    source: str
    confidence: Confidence
    setup: str = ""
    report: str = ""
    copied: bool = False
    unreached: tuple[str, ...] = ()

    @property
    def evidence(self) -> str:
        """The source, and which tests of the repository the command does not reach."""
        return f"{self.source}{self._gap}"

    @property
    def _gap(self) -> str:
        if not self.unreached:
            return ""
        whole = " && ".join(f"({command})" for command in (self.command, *self.unreached))
        return (
            f"; it does not reach the tests of {', '.join(self.unreached)}: to run all, name --test-command "
            f"{shlex.quote(whole)}"
        )


def suggest(paths: Iterable[str], read: Callable[[str], str | None]) -> list[SuggestedCommand]:
    """Return suggestions for a repository, the best one first; none if nothing is known about its tests.

    Args:
        paths: its files, relative, with `/`. Those after the first `MOST_PATHS` are ignored.
        read: returns a file's text; None if it is missing or not text.
    """
    files = _Files(paths, read)
    found = [*_ranked(files), *_in_folders(files)]
    found.sort(key=lambda one: (one.made.confidence, one.tests), reverse=True)
    best: dict[str, SuggestedCommand] = {}
    for one in found:
        best.setdefault(one.made.command, replace(one.made, unreached=_unreached_by(one, found)))
    return list(best.values())


@dataclass(frozen=True, slots=True)
class _Found:
    """A suggestion, and the project that it is for.

    Attributes:
        ends: the suffixes of the project's language; empty if the command may run tests in any.
        tests: the number of test files with them in the folder.
    """

    made: SuggestedCommand
    ends: tuple[str, ...]
    tests: int
    folder: str = ""


_MOST_UNREACHED = 3


def _unreached_by(one: _Found, found: Iterable[_Found]) -> tuple[str, ...]:
    """Return the likeliest commands of projects with tests that a suggestion does not run, as far as that is certain."""
    if not one.ends:
        return ()
    seen, commands = {(one.folder, one.ends)}, []
    for other in found:
        is_inside = other.ends == one.ends and (
            _holds(one, other) or (_holds(other, one) and other.tests <= one.tests)
        )
        is_likely = other.tests and other.made.confidence >= Confidence.LIKELY and not other.made.copied
        if other.ends and is_likely and not is_inside and (other.folder, other.ends) not in seen:
            seen.add((other.folder, other.ends))
            commands.append(other.made.command)
    return tuple(commands[:_MOST_UNREACHED])


def _holds(one: _Found, other: _Found) -> bool:
    """Return whether the folder of the other one is in this one's, or the same."""
    return not one.folder or f"{other.folder}/".startswith(f"{one.folder}/")


def _ranked(files: _Files) -> Iterator[_Found]:
    """Yield the suggestions for one project.

    What belongs to a language that is a small part of the project, as a tool or a binding, is only a guess.
    """
    for suggester, ends in _SUGGESTERS:
        is_small = bool(ends) and files.share_of(ends) < _SMALL_SHARE
        for one in suggester(files):
            confidence = min(one.confidence, Confidence.GUESS) if is_small else one.confidence
            yield _Found(replace(one, confidence=confidence), ends, files.tests_in(ends))


_SMALL_SHARE = 0.1
"""A language with a smaller share of the files with code is not the one that the tests are of."""
_MOST_FOLDERS = 4
_MANIFESTS = {
    **dict.fromkeys(("pyproject.toml", "setup.py", "setup.cfg", "requirements.txt"), "python"),
    **dict.fromkeys(("pom.xml", "build.gradle", "build.gradle.kts"), "java"),
    **dict.fromkeys(("deno.json", "deno.jsonc"), "deno"),
    "package.json": "node", "Cargo.toml": "rust", "go.mod": "go", "Gemfile": "ruby", "composer.json": "php",
    "mix.exs": "elixir", "Package.swift": "swift", "build.zig": "zig", "CMakeLists.txt": "c", "meson.build": "c",
}  # fmt: skip
"""The files that make a folder a project, and the kind of it."""
_NO_PROJECT = re.compile(
    r"(?i:^\.|^(?:node_modules|vendor|third[-_]?party|external|deps|examples?|samples?|demos?|docs?|fixtures?|testdata|templates?|tests?)$)"
)
_PLAIN_FOLDER = re.compile(r"[\w-][\w.-]{0,60}(?:/[\w-][\w.-]{0,60}){0,3}")


def _in_folders(files: _Files) -> Iterator[_Found]:
    """Yield the suggestions for projects in folders, of kinds that the root is no project of.

    A command begins with `cd`, and the folder is part of its report.
    """
    kinds = {kind for name, kind in _MANIFESTS.items() if name in files.paths}
    folders: dict[str, set[str]] = {}
    for path in files.paths:
        folder, _, name = path.rpartition("/")
        parts = folder.split("/")
        kind = _MANIFESTS.get(name, "")
        if not folder or not kind or kind in kinds or len(parts) > 2 or any(map(_NO_PROJECT.search, parts)):  # noqa: PLR2004
            continue
        if _PLAIN_FOLDER.fullmatch(folder):
            folders.setdefault(folder, set()).add(kind)
    inner = [(folder, files.below(folder)) for folder in folders]
    inner.sort(key=lambda pair: (-len(pair[1].tests), pair[0]))
    for folder, own in inner[:_MOST_FOLDERS]:
        for found in _ranked(own):
            one = found.made
            if not one.copied:
                report = f"{folder}/{one.report}" if one.report else ""
                setup = f"cd {folder} && {one.setup}" if one.setup else ""
                moved = replace(
                    one,
                    command=f"cd {folder} && {one.command}",
                    source=f"{one.source} in {folder}",
                    setup=setup,
                    report=report,
                    confidence=min(one.confidence, Confidence.LIKELY),
                )
                yield replace(found, made=moved, folder=folder)


class _Files:
    """The repository's files, each read once."""

    def __init__(self, paths: Iterable[str], read: Callable[[str], str | None]) -> None:
        self.paths = {path: None for path, _ in zip(paths, range(MOST_PATHS), strict=False)}
        self._read = read
        self._texts: dict[str, str] = {}

    def has(self, *paths: str) -> str:
        """Return the first of these paths that exists, or an empty text."""
        return next((path for path in paths if path in self.paths), "")

    def text(self, path: str) -> str:
        """Return the beginning of a file; empty if it is missing."""
        if path not in self._texts:
            self._texts[path] = (self._read(path) or "")[:_MOST_CHARS] if path in self.paths else ""
        return self._texts[path]

    def toml(self, path: str) -> dict[str, Any]:
        """Return the values of a TOML file; empty if it is invalid."""
        try:
            return tomllib.loads(self.text(path))
        except (ValueError, RecursionError):  # a plain ValueError: more digits than Python reads
            return {}

    def json(self, path: str) -> dict[str, Any]:
        """Return the values of a JSON file; empty if it is invalid or not an object."""
        try:
            values = json.loads(self.text(path) or "{}")
        except (ValueError, RecursionError):
            return {}
        return values if isinstance(values, dict) else {}

    def sections(self, path: str) -> set[str]:
        """Return the sections of an INI file; empty if it is invalid."""
        parser = configparser.RawConfigParser(strict=False)
        try:
            parser.read_string(self.text(path))
        except configparser.Error:
            return set()
        return set(parser.sections())

    @cached_property
    def tests(self) -> list[str]:
        """The paths that belong to the tests."""
        return [path for path in self.paths if is_test_path(path)]

    def below(self, folder: str) -> _Files:
        """Return the files of a folder, as if it were the repository."""
        start = f"{folder}/"
        inside = (path.removeprefix(start) for path in self.paths if path.startswith(start))
        return _Files(inside, lambda path: self.text(f"{start}{path}") or None)

    def share_of(self, suffixes: tuple[str, ...]) -> float:
        """Return the share of the files with code that have one of these suffixes; 1 if no file has code."""
        total = sum(self._code.values())
        return sum(self._code[one] for one in suffixes) / total if total else 1.0

    @cached_property
    def _code(self) -> Counter[str]:
        """The number of files with code, by suffix."""
        known = {one for _, ends in _SUGGESTERS for one in ends} | _OTHER_CODE
        ends = (path.rpartition("/")[2].rpartition(".")[2] for path in self.paths)
        return Counter(end for end in ends if end in known)

    def mention(self, name: str, pattern: re.Pattern[str]) -> str:
        """Return the first file of this name, in any folder, with a match; empty if there is none."""
        named = (path for path in self.paths if path.rpartition("/")[2] == name)
        first = sorted(named, key=lambda path: (path.count("/"), path))[:_MOST_TESTS_READ]
        return next((path for path in first if pattern.search(self.text(path))), "")

    def tests_in(self, suffixes: tuple[str, ...]) -> int:
        """Count the test files with one of these suffixes."""
        return sum(path.rpartition(".")[2] in suffixes for path in self.tests)


def _table(values: object, *keys: str) -> dict[str, Any]:
    """Return a nested table; an empty one if it is missing."""
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values if isinstance(values, dict) else {}


# Python.

_TEST_GROUPS = ("test", "tests", "testing", "dev", "develop", "development")
"""The usual names of extras and groups for tests. Others count if they name pytest."""
_PLAIN_NAME = re.compile(r"[A-Za-z][\w.-]{0,40}")
"""The names that may be copied into a command."""
_MOST_OTHER_GROUPS = 2
_TEST_REQUIREMENTS = (
    "requirements-test.txt", "requirements-tests.txt", "requirements-dev.txt", "requirements_test.txt",
    "requirements_dev.txt", "test-requirements.txt", "dev-requirements.txt", "requirements/test.txt",
    "requirements/tests.txt", "requirements/testing.txt", "requirements/dev.txt", "tests/requirements.txt",
)  # fmt: skip
_VENV = "python3 -m venv .venv"
"""Creates the environment into which suggested set-ups install."""
_PYTEST = ".venv/bin/python -m pytest"
_INSTALL = ".venv/bin/python -m pip install -q"
_TOOLS = "python3 -m venv .tools && .tools/bin/python -m pip install -q"
"""Folder for tools that create the tests' environment, outside of that environment."""
_NAMES_PYTEST = re.compile(r"\bpytest\b")
_PYTEST_STYLE = re.compile(r"^(?:import pytest|from pytest |(?:async )?def test_|@pytest\.)", re.MULTILINE)
_NOX_SESSION = re.compile(
    r"^@nox\.session(?:\((?![^)\n]*(?:python|name))[^)\n]*\))?\n(?:async )?def (tests?|unit|pytest)\(",
    re.MULTILINE,
)
"""A session without a Python version of its own, so that its environment is named after the session."""


class _Python:
    """A repository's settings for Python tests."""

    def __init__(self, files: _Files) -> None:
        self.files = files
        self.project = files.toml("pyproject.toml")
        self.tool = _table(self.project, "tool")
        self.extras = self._test_extras(_table(self.project, "project", "optional-dependencies"))
        self.groups = self._test_extras(_table(self.project, "dependency-groups"))
        self.requirements = [path for path in _TEST_REQUIREMENTS if files.has(path)]
        self.is_installable = bool(
            _table(self.project, "project")
            or files.has("setup.py")
            or {"metadata", "options"} & files.sections("setup.cfg")
        )
        if files.has("requirements.txt") and not _table(self.project, "project"):
            self.requirements.insert(0, "requirements.txt")

    def _test_extras(self, table: dict[str, Any]) -> dict[str, str]:
        """Return extras or groups for tests, with their requirements."""
        lists = {
            name: "\n".join(item for item in listed if isinstance(item, str))
            for name, listed in table.items()
            if isinstance(listed, list) and _PLAIN_NAME.fullmatch(name)
        }
        named = [name for name in _TEST_GROUPS if name in lists]
        others = [name for name, text in lists.items() if name not in named and _NAMES_PYTEST.search(text)]
        return {name: lists[name] for name in (*named, *others[:_MOST_OTHER_GROUPS])}

    def pytest_source(self) -> str:
        """Return the evidence that pytest runs the tests; empty if there is none."""
        files = self.files
        if "pytest" in self.tool:
            return "[tool.pytest] in pyproject.toml"
        for path, section in (("pytest.ini", "pytest"), ("tox.ini", "pytest"), ("setup.cfg", "tool:pytest")):
            if section in files.sections(path):
                return f"[{section}] in {path}"
        if path := files.has("pytest.ini", ".pytest.ini", "pytest.toml", "conftest.py", "tests/conftest.py"):
            return path
        named = (
            "pyproject.toml",
            *self.requirements,
            "setup.py",
            "setup.cfg",
            "tox.ini",
            "noxfile.py",
            "Pipfile",
        )
        for path in named:
            if _NAMES_PYTEST.search(files.text(path)):
                return f"pytest in {path}"
        tests = [path for path in files.tests if path.endswith(".py")][:_MOST_TESTS_READ]
        return next((path for path in tests if _PYTEST_STYLE.search(files.text(path))), "")

    def setup_by_tool(self) -> tuple[str, str] | None:
        """Return the set-up by the project's own tool, and the tool's name; None if it has none."""
        files, chosen = self.files, " ".join(f"--group {name}" for name in self.groups if name != "dev")
        extras = " ".join(f"--extra {name}" for name in self.extras if name not in self.groups)
        if files.has("uv.lock"):
            words = " ".join(filter(None, (".tools/bin/uv sync -q --frozen", chosen, extras)))
            return f"{_TOOLS} uv && {words}", "uv.lock"
        if files.has("poetry.lock") or "poetry" in self.tool:
            tables = _table(self.tool, "poetry", "group")
            groups = [name for name in _TEST_GROUPS if name in tables]
            groups += [
                name
                for name in tables
                if name not in groups
                and _PLAIN_NAME.fullmatch(name)
                and "pytest" in _table(tables, name, "dependencies")
            ]
            with_groups = f" --with {','.join(groups)}" if groups else ""
            install = "POETRY_VIRTUALENVS_IN_PROJECT=true .tools/bin/poetry install -q --no-interaction"
            return f"{_TOOLS} poetry && {install}{with_groups}", files.has("poetry.lock") or "[tool.poetry]"
        if files.has("pdm.lock") or "pdm" in self.tool:
            older = self._test_extras(_table(self.tool, "pdm", "dev-dependencies"))
            named = " ".join(f"-G {name}" for name in (*self.groups, *self.extras, *older))
            words = " ".join(filter(None, (".tools/bin/pdm install -q", named)))
            return f"{_TOOLS} pdm && {words}", files.has("pdm.lock") or "[tool.pdm]"
        if files.has("Pipfile.lock"):
            return f"{_TOOLS} pipenv && PIPENV_VENV_IN_PROJECT=1 .tools/bin/pipenv sync --dev", "Pipfile.lock"
        return None

    def setup_by_pip(self, *packages: str) -> str:
        """Return the set-up by pip; empty if nothing has to be installed."""
        steps = []
        if self.requirements:
            steps.append(" ".join((_INSTALL, *(f"-r {path}" for path in self.requirements))))
        words = []
        if self.is_installable:
            words += ["-e", f'".[{",".join(self.extras)}]"' if self.extras else "."]
        words += [f"--group {name}" for name in self.groups]
        listed = " ".join(
            (*self.extras.values(), *self.groups.values(), *map(self.files.text, self.requirements))
        )
        words += [package for package in packages if not re.search(rf"\b{package}\b", listed)]
        if self.groups:
            steps.insert(0, f"{_INSTALL} --upgrade pip")  # groups need pip 25.1
        if words:
            steps.append(" ".join((_INSTALL, *words)))
        return " && ".join((_VENV, *steps)) if steps else ""


def _python(files: _Files) -> Iterator[SuggestedCommand]:
    if not files.tests_in(("py",)):
        return
    own = (
        "pyproject.toml",
        "setup.py",
        "setup.cfg",
        "tox.ini",
        "pytest.ini",
        "conftest.py",
        "noxfile.py",
        "Pipfile",
    )
    names = {"pyproject.toml", "setup.py", "requirements.txt"}
    inner = (path for path in files.paths if path.rpartition("/")[2] in names and path.count("/") in {1, 2})
    if not files.has(*own, *_TEST_REQUIREMENTS, "requirements.txt") and any(inner):
        return  # the projects are in folders
    python = _Python(files)
    source = python.pytest_source()
    if setup_by_tool := python.setup_by_tool():
        setup, tool = setup_by_tool
        confidence = Confidence.NAMED if source else Confidence.LIKELY
        if not source and not _has_unittest(files):
            return
        yield SuggestedCommand(_PYTEST, f"{tool}, {source or 'test files'}", confidence, setup)
        return
    if not source:
        yield from _unittest(files, python)
        return
    declared = python.extras or python.groups or python.requirements
    if not declared:
        yield from _environment_tools(files, python)
    confidence = Confidence.NAMED if declared else Confidence.LIKELY
    yield SuggestedCommand(_PYTEST, source, confidence, python.setup_by_pip("pytest"))


def _environment_tools(files: _Files, python: _Python) -> Iterator[SuggestedCommand]:
    """Suggest the environments of tox, nox and hatch, whose settings list the tests' requirements.

    The code is installed in editable mode; otherwise an installed copy would be tested in place of the change.
    """
    is_tox = {"tox", "testenv"} & files.sections("tox.ini") or "tox:tox" in files.sections("setup.cfg")
    if is_tox or "tox" in python.tool or files.has("tox.toml"):
        setup_command = f"{_TOOLS} tox && .tools/bin/tox run -q -e py --notest --develop"
        where = files.has("tox.ini", "tox.toml", "pyproject.toml", "setup.cfg")
        command = ".tox/py/bin/python -m pytest"
        yield SuggestedCommand(command, f"tox in {where}", Confidence.NAMED, setup_command)
    if session := _NOX_SESSION.search(files.text("noxfile.py")):
        program = f".nox/{session[1]}/bin/python -m"
        editable = f" && {program} pip install -q -e ." if python.is_installable else ""
        setup_command = f"{_TOOLS} nox && .tools/bin/nox -s {session[1]} --install-only{editable}"
        yield SuggestedCommand(f"{program} pytest", "noxfile.py", Confidence.NAMED, setup_command)
    if environments := _table(python.tool, "hatch", "envs"):
        hatch, source = "HATCH_DATA_DIR=.hatch .tools/bin/hatch", "[tool.hatch.envs] in pyproject.toml"
        has_script = "test" in _table(environments, "default", "scripts")
        run, create = ("run test", "run python -V") if has_script else ("test", "test -- --version")
        setup_command = f"{_TOOLS} hatch && {hatch} {create}"
        yield SuggestedCommand(f"{hatch} {run}", source, Confidence.NAMED, setup_command)


def _has_unittest(files: _Files) -> bool:
    """Return whether a Python file among the tests is one of unittest. Others may be there for another language."""
    tests = [path for path in files.tests if path.endswith(".py")][:_MOST_TESTS_READ]
    return any(re.search(r"\bunittest\b|\bTestCase\b", files.text(path)) for path in tests)


def _unittest(files: _Files, python: _Python) -> Iterator[SuggestedCommand]:
    """Suggest unittest, and pytest, which runs such tests too and reports each result."""
    if not _has_unittest(files):
        return
    setup = python.setup_by_pip()
    program = ".venv/bin/python" if setup else "python3"
    names = [path.rpartition("/")[2] for path in files.tests if path.endswith(".py")]
    pattern = "" if any(name.startswith("test") for name in names) else ' -p "*_test.py"'
    tops = {path.partition("/")[0] for path in files.tests if "/" in path}
    folder = next((name for name in ("tests", "test") if name in tops), "")
    start = f" -s {folder}" if folder else ""
    if files.has(f"{folder}/__init__.py"):
        start += " -t ."
    if files.has("manage.py"):
        command, source = f"{program} manage.py test", "manage.py"
    else:
        command, source = f"{program} -m unittest discover{start}{pattern}", "test files without pytest"
    yield SuggestedCommand(command, source, Confidence.LIKELY, setup)
    by_pytest = python.setup_by_pip("pytest")
    yield SuggestedCommand(_PYTEST, "test files; pytest runs them too", Confidence.GUESS, by_pytest)


# JavaScript.

_MANAGERS = (  # the lock file, the program, the set-up
    ("pnpm-lock.yaml", "pnpm", "pnpm install --frozen-lockfile"),
    ("yarn.lock", "yarn", "yarn install --frozen-lockfile"),
    ("bun.lock", "bun", "bun install --frozen-lockfile"),
    ("bun.lockb", "bun", "bun install --frozen-lockfile"),
    ("package-lock.json", "npm", "npm ci --no-audit --no-fund"),
    ("npm-shrinkwrap.json", "npm", "npm ci --no-audit --no-fund"),
)
_NO_LOCK = ("", "npm", "npm install --no-audit --no-fund")
_EXEC_PREFIXES = {"npm": "npx --no", "pnpm": "pnpm exec", "yarn": "yarn run", "bun": "bunx --no-install"}
_NODE_REPORTS = {  # the options that make a runner write a supported report, and the report's path
    "jest": (f"--json --outputFile={_REPORT_JSON}", _REPORT_JSON),
    "react-scripts": (f"--watchAll=false --json --outputFile={_REPORT_JSON}", _REPORT_JSON),
    "vitest": (f"--reporter=json --outputFile={_REPORT_JSON}", _REPORT_JSON),
    "mocha": (f"--reporter xunit --reporter-option output={_REPORT_XML}", _REPORT_XML),
    "node": (f"--test-reporter=junit --test-reporter-destination={_REPORT_XML}", _REPORT_XML),
    "bun": (f"--reporter=junit --reporter-outfile={_REPORT_XML}", _REPORT_XML),
}
_RUNNER_CALL = re.compile(  # a script that ends with a runner's call, so that further arguments reach it
    r"(?:(?>.*(?:&&|;))\s*)?(?:cross-env(?:-shell)?\s+)?(?:[A-Z_]+=\S*+\s++)*(?:npx\s+(?:--no\S*\s+)?|c8\s+|nyc\s+)?"
    r"(?:(?P<runner>jest|vitest|mocha)\b|(?P<scripts>react-scripts)\s+test\b|(?P<node>node)\s(?>[^|;&]*--test\b)"
    r"|(?P<bun>bun)\s+test\b)(?P<rest>[^|;&<>]*)"
)
_NO_TEST = "no test specified"
_MOST_SCRIPT_CHARS = 1_000


def _node(files: _Files) -> Iterator[SuggestedCommand]:
    package = files.json("package.json")
    if not package:
        return
    named = str(package.get("packageManager", "")).partition("@")[0]
    locks = (one for one in _MANAGERS if files.has(one[0]))
    by_name = (one for one in _MANAGERS if one[1] == named)
    found = next(locks, None) or next(by_name, None)
    _, manager, setup = found or _NO_LOCK
    needed = {**_table(package, "dependencies"), **_table(package, "devDependencies")}
    if manager == "yarn" and files.has(".yarnrc.yml"):
        setup = "yarn install --immutable"
    if not (needed or found or package.get("workspaces")):
        setup = ""
    scripts = _scripts(package)
    found_script = next((name for name in _TEST_SCRIPTS if _runs_tests(name, scripts)), "")
    if found_script:
        command, report = _script_call(manager, found_script, scripts[found_script])
        confidence = Confidence.NAMED if found_script == "test" else Confidence.LIKELY
        source = f"the script {found_script} in package.json"
        yield SuggestedCommand(command, source, confidence, setup, report)
        return
    if call := _workspaces_call(files, package, manager):
        yield SuggestedCommand(call, "the workspaces in package.json", Confidence.LIKELY, setup)
        return
    runner = next((name for name in ("vitest", "jest", "mocha") if name in needed), "")
    if runner:
        options, report = _NODE_REPORTS[runner]
        command = f"{_EXEC_PREFIXES[manager]} {runner}{' run' if runner == 'vitest' else ''} {options}"
        yield SuggestedCommand(command, f"{runner} in package.json", Confidence.LIKELY, setup, report)
    elif manager == "bun" and files.tests_in(("ts", "tsx", "js", "jsx")) and "test" not in scripts:
        options, report = _NODE_REPORTS["bun"]
        yield SuggestedCommand(f"bun test {options}", "test files", Confidence.LIKELY, setup, report)
    elif files.tests_in(("js", "mjs", "cjs")) and _NO_TEST in scripts.get("test", _NO_TEST):
        options, report = _NODE_REPORTS["node"]
        yield SuggestedCommand(f"node --test {options}", "test files", Confidence.GUESS, setup, report)


def _scripts(package: dict[str, Any]) -> dict[str, str]:
    """Return the scripts of a package; those that are not short texts are left out."""
    return {
        name: text.strip()
        for name, text in _table(package, "scripts").items()
        if isinstance(text, str) and text.strip() and len(text) <= _MOST_SCRIPT_CHARS
    }


_TEST_SCRIPTS = ("test", "test:ci", "test:run", "test:once", "ci:test", "test:unit", "tests", "unit")
"""Scripts that may run the tests, the first that does not watch files."""
_WATCH_WORDS = {
    "-w",
    "--watch",
    "--watchAll",
    "--watch-all",
    "--watch=true",
    "--watchAll=true",
    "--ui",
    "nodemon",
    "chokidar",
}
_WATCH_CALLS = {
    *(
        ("vitest", "watch"),
        ("vitest", "dev"),
        ("karma", "start"),
        ("ng", "test"),
        ("cypress", "open"),
        ("tsx", "watch"),
    ),
    *(("gulp", "watch"), ("ember", "server"), ("testem", "dev"), ("ptw", "."), ("cargo", "watch")),
}
_ENDS_BY_ITSELF = {
    "--watch=false",
    "--no-watch",
    "--watchAll=false",
    "--single-run",
    "--run",
    "--no-watchAll",
}


_NO_TEST_PROGRAMS = {
    *("echo", "exit", "true", ":"),
    *(
        "eslint",
        "prettier",
        "tsc",
        "tslint",
        "stylelint",
        "standard",
        "semistandard",
        "xo",
        "biome",
        "oxlint",
        "publint",
        "knip",
    ),
}
"""Programs that only print, end, or check the text of the code."""


def _runs_nothing(script: str) -> bool:
    """Return whether each program of a script runs no test."""
    parts = [part.split() for part in re.split(r"&&|;", script)]
    programs = [next((word for word in words if word != "npx"), "") for words in parts]
    return all(program in _NO_TEST_PROGRAMS for program in programs)


_SCRIPT_CALLERS = {
    "npm",
    "pnpm",
    "yarn",
    "bun",
    "run-s",
    "run-p",
    "npm-run-all",
    "npm-run-all2",
    "concurrently",
}
_MOST_SCRIPTS_DEEP = 5
_CALL_OF_SCRIPT = re.compile(r"(?:npm|pnpm|yarn|bun)(?: -s| --silent)?(?: run)? ([\w:.-]{1,60})(?: --)?")


def _runs_tests(name: str, scripts: dict[str, str]) -> bool:
    """Return whether a script may run tests and ends by itself, also by the scripts that it calls."""
    text = scripts.get(name, "")
    if not text or _NO_TEST in text or _only_checks(name, scripts):
        return False
    return not _waits(name, scripts)


def _only_checks(name: str, scripts: dict[str, str], depth: int = 0) -> bool:
    """Return whether a script runs no test, also where it only calls scripts that run none."""
    text = scripts[name]
    parts = [part.strip() for part in re.split(r"&&|;", text)]
    called = [found[1] if (found := _CALL_OF_SCRIPT.fullmatch(part)) else "" for part in parts]
    return depth < _MOST_SCRIPTS_DEEP and all(
        _only_checks(script, scripts, depth + 1)
        if script in scripts and script != name
        else _runs_nothing(part)
        for part, script in zip(parts, called, strict=True)
    )


def _waits(name: str, scripts: dict[str, str], depth: int = 0) -> bool:
    """Return whether a script, or one that it calls, does not end by itself."""
    text = scripts[name]
    words = {word.removeprefix("npm:") for word in re.split(r"[\s;&|'\"]+", text)}
    called = words & scripts.keys() - {name} if words & _SCRIPT_CALLERS else set()
    return _watches(text) or (
        depth < _MOST_SCRIPTS_DEEP and any(_waits(one, scripts, depth + 1) for one in called)
    )


def _watches(script: str) -> bool:
    """Return whether a script waits for changes of files, and so never ends."""
    words = script.replace("&&", " ").replace(";", " ").split()
    if not _ENDS_BY_ITSELF.isdisjoint(words):
        return False
    return not _WATCH_WORDS.isdisjoint(words) or not _WATCH_CALLS.isdisjoint(itertools.pairwise(words))


def _workspaces_call(files: _Files, package: dict[str, Any], manager: str) -> str:
    """Return the command that runs the script `test` of every workspace; empty if there are none."""
    has_workspaces = bool(package.get("workspaces")) or bool(files.has("pnpm-workspace.yaml"))
    inner = (path for path in files.paths if path.endswith("/package.json") and path.count("/") <= 3)  # noqa: PLR2004
    tested = (_runs_tests("test", _scripts(files.json(path))) for path in inner)
    if not has_workspaces or not any(itertools.islice(tested, _MOST_TESTS_READ * 5)):
        return ""
    return {
        "npm": "npm run test --workspaces --if-present",
        "pnpm": "pnpm -r --if-present run test",
        "yarn": "yarn workspaces foreach -A run test"
        if files.has(".yarnrc.yml")
        else "yarn workspaces run test",
        "bun": "bun run --filter '*' test",
    }[manager]


def _script_call(manager: str, name: str, script: str) -> tuple[str, str]:
    """Return the call of a package's script, with options that make a known runner write a report."""
    call = f"{manager} run {name}"
    match = _RUNNER_CALL.fullmatch(script)
    runner = next(filter(None, match.group("runner", "scripts", "node", "bun")), "") if match else ""
    if not match:
        return call, ""
    options, report = _NODE_REPORTS[runner]
    if runner == "node":  # its options precede the names of files
        return f'NODE_OPTIONS="{options}" {call}', report
    if runner == "vitest" and not {"run", "--run"} & set(match["rest"].split()):
        options = f"--run {options}"
    before = "CI=true " if runner == "react-scripts" else ""
    return f"{before}{call} {'-- ' if manager == 'npm' else ''}{options}", report


# Other languages. Their caches are in the folder, because only files there are kept for the next command.


def _rust(files: _Files) -> Iterator[SuggestedCommand]:
    if not files.has("Cargo.toml"):
        return
    locked = " --locked" if files.has("Cargo.lock") else ""
    cargo = "CARGO_HOME=.cargo-home cargo"
    profiles = _table(files.toml(".config/nextest.toml"), "profile")
    reports = {name: _table(profiles, name, "junit").get("path") for name in ("ci", "default")}
    profile, path = next(((name, path) for name, path in reports.items() if isinstance(path, str)), ("", ""))
    if re.fullmatch(r"[\w-]{1,60}\.xml", path):
        command = f"{cargo} nextest run{locked} --offline --no-fail-fast --profile {profile}"
        setup = f"{cargo} nextest run{locked} --no-run"
        report = f"target/nextest/{profile}/{path}"
        yield SuggestedCommand(command, ".config/nextest.toml", Confidence.NAMED, setup, report)
        return
    command = f"{cargo} test{locked} --offline --no-fail-fast"
    yield SuggestedCommand(command, "Cargo.toml", Confidence.NAMED, f"{cargo} test{locked} --no-run")


def _go(files: _Files) -> Iterator[SuggestedCommand]:
    if not files.has("go.mod"):
        return
    go = 'GOCACHE="$PWD/.go-build" GOMODCACHE="$PWD/.go-mod" GOFLAGS=-modcacherw go'
    needs = re.search(r"^[^\S\n]*require\b", files.text("go.mod"), re.MULTILINE)
    fetch = f"{go} mod download && " if needs and not files.has("vendor/modules.txt") else ""
    command = f"{go} test -count=1 -json ./... > {_REPORT_JSON}"
    setup = f"{fetch}{go} test -count=1 -run=^none$ ./..."  # builds what the tests need
    yield SuggestedCommand(command, "go.mod", Confidence.NAMED, setup, _REPORT_JSON)


def _java(files: _Files) -> Iterator[SuggestedCommand]:
    if files.has("pom.xml"):
        program = "MAVEN_USER_HOME=.maven ./mvnw" if files.has("mvnw") else "mvn"
        maven = f'{program} -B -q -fae -Dmaven.repo.local="$PWD/.m2"'
        setup = f"{maven} -Dmaven.test.failure.ignore=true test"  # running tests fetches the runner
        report = "**/target/surefire-reports/TEST-*.xml"
        yield SuggestedCommand(f"{maven} -o test", "pom.xml", Confidence.NAMED, setup, report)
    if path := files.has("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"):
        program = "./gradlew" if files.has("gradlew") else "gradle"
        gradle = f'GRADLE_USER_HOME="$PWD/.gradle-home" {program} --no-daemon -q'
        report = "**/build/test-results/*/TEST-*.xml"
        command = f"{gradle} --offline --continue test"
        yield SuggestedCommand(command, path, Confidence.NAMED, f"{gradle} testClasses", report)


def _ruby(files: _Files) -> Iterator[SuggestedCommand]:
    yield from _minitest(files)
    specs = any(path.startswith("spec/") and path.endswith("_spec.rb") for path in files.paths)
    if not (specs or files.has(".rspec")):
        return
    options = f"--format json --out {_REPORT_JSON}"
    if files.has("Gemfile"):
        setup = "BUNDLE_PATH=.bundle/gems bundle install --quiet"
        command = f"BUNDLE_PATH=.bundle/gems bundle exec rspec {options}"
        yield SuggestedCommand(command, "Gemfile, spec", Confidence.NAMED, setup, _REPORT_JSON)
    else:
        yield SuggestedCommand(f"rspec {options}", "spec", Confidence.LIKELY, report=_REPORT_JSON)


def _minitest(files: _Files) -> Iterator[SuggestedCommand]:
    tests = [
        path
        for path in files.paths
        if re.fullmatch(r"test/(?:[^/]+/){0,9}(?:test_[^/]+|[^/]+_test)\.rb", path)
    ]
    if not tests:
        return
    bundle, setup = (
        ("BUNDLE_PATH=.bundle/gems bundle", "install --quiet") if files.has("Gemfile") else ("", "")
    )
    before = f"{bundle} exec " if bundle else ""
    if files.has("bin/rails"):
        command, source = f"{before}rails test", "bin/rails, test"
    elif re.search(r"\bTestTask\b|task[ (]+:test\b", files.text("Rakefile")):
        command, source = f"{before}rake test", "Rakefile, test"
    else:
        every = 'Dir.glob("test/**/*test*.rb") { |file| require "./#{file}" if file.match?(/(^|_)test[_.]/) }'
        command, source = f"{before}ruby -Ilib -Itest -e '{every}'", "test"
    yield SuggestedCommand(command, source, Confidence.NAMED, f"{bundle} {setup}".strip())


def _php(files: _Files) -> Iterator[SuggestedCommand]:
    path = files.has("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
    package = files.json("composer.json")
    needed = _table(package, "require-dev")
    is_pest = "pestphp/pest" in needed or bool(files.has("tests/Pest.php"))
    if not path and not is_pest and "phpunit/phpunit" not in needed:
        return
    setup = "COMPOSER_HOME=.composer composer install -q --no-interaction --no-progress" if package else ""
    program = f"vendor/bin/{'pest' if is_pest else 'phpunit'}" if package else "phpunit"
    command = f"{program} --log-junit {_REPORT_XML}"
    yield SuggestedCommand(command, path or "composer.json", Confidence.NAMED, setup, _REPORT_XML)


def _c(files: _Files) -> Iterator[SuggestedCommand]:
    """Suggest CTest and Meson. The change is compiled in each run, in the folder that the set-up filled."""
    has_tests = re.compile(
        r"\b(?:enable_testing|add_test|gtest_discover_tests|catch_discover_tests|doctest_discover_tests)\b|\(CTest\)"
    )
    if files.has("CMakeLists.txt") and (path := files.mention("CMakeLists.txt", has_tests)):
        build = "cmake -S . -B build && cmake --build build -j 2"
        run = (
            f'ctest --test-dir build --output-on-failure --no-tests=error --output-junit "$PWD/{_REPORT_XML}"'
        )
        yield SuggestedCommand(f"{build} && {run}", path, Confidence.NAMED, build, _REPORT_XML)
    if files.has("meson.build") and (
        path := files.mention("meson.build", re.compile(r"^\s{0,40}test\(", re.MULTILINE))
    ):
        report = "build/meson-logs/testlog.junit.xml"
        yield SuggestedCommand(
            "meson test -C build --print-errorlogs",
            path,
            Confidence.NAMED,
            "meson setup build && meson compile -C build",
            report,
        )


_DOTNET_TESTS = re.compile(
    r"Microsoft\.NET\.Test\.Sdk|\"(?:xunit(?:\.v3)?|NUnit|MSTest(?:\.Sdk)?(?:/[\d.]+)?|TUnit)\""
)


def _compiled(files: _Files) -> Iterator[SuggestedCommand]:
    """Suggest the one way in which tests are run for Elixir, .NET, Swift and Zig."""
    if files.has("mix.exs"):
        mix = 'MIX_HOME="$PWD/.mix" HEX_HOME="$PWD/.hex" mix'
        setup = f"{mix} local.hex --force --if-missing && {mix} deps.get && MIX_ENV=test {mix} compile"
        yield SuggestedCommand(f"{mix} test", "mix.exs", Confidence.NAMED, setup)
    projects = [path for path in files.paths if path.endswith((".csproj", ".fsproj", ".vbproj"))]
    if tested := next((path for path in projects if _DOTNET_TESTS.search(files.text(path))), ""):
        dotnet = 'DOTNET_CLI_HOME="$PWD/.dotnet-home" NUGET_PACKAGES="$PWD/.nuget" dotnet'
        where = (
            ""
            if any(re.fullmatch(r"[^/]+\.slnx?", path) for path in files.paths)
            else f" {shlex.quote(tested)}"
        )
        yield SuggestedCommand(f"{dotnet} test{where}", tested, Confidence.NAMED, f"{dotnet} restore{where}")
    if files.has("Package.swift") and any(path.startswith("Tests/") for path in files.paths):
        run = f"swift test --xunit-output {_REPORT_XML}"
        yield SuggestedCommand(
            run, "Package.swift", Confidence.NAMED, "swift build --build-tests", _REPORT_XML
        )
    if re.search(r"\baddTest\b", files.text("build.zig")):
        zig = 'ZIG_GLOBAL_CACHE_DIR="$PWD/.zig-global" zig build test --summary all'
        yield SuggestedCommand(zig, "build.zig", Confidence.NAMED)


_ONE_WAY = (  # files of the project, where its tests are and how they end, the command, its set-up
    (("Makefile.PL", "Build.PL", "cpanfile", "dist.ini"), "t/", ".t", "prove -l -r t", ""),
    ((".busted", "*.rockspec"), "spec/", "_spec.lua", "busted", ""),
    (("Project.toml",), "test/", "runtests.jl", "julia --project=. -e 'using Pkg; Pkg.test()'", "julia --project=. -e 'using Pkg; Pkg.instantiate()'"),
    (("dune-project",), "", "/dune", "dune test --force", "dune build"),
    (("build.sbt",), "src/test/", ".scala", "sbt test", "sbt Test/compile"),
    (("project.clj",), "test/", (".clj", ".cljc"), "lein test", "lein deps"),
    (("shard.yml",), "spec/", "_spec.cr", "crystal spec", "shards install"),
    (("rebar.config",), "test/", "_SUITE.erl", "rebar3 ct", "rebar3 compile"),
    (("rebar.config",), "test/", "_tests.erl", "rebar3 eunit", "rebar3 compile"),
    (("gleam.toml",), "test/", ".gleam", "gleam test", "gleam build"),
    (("elm.json",), "tests/", ".elm", "npx --no elm-test", "npm install --no-audit --no-fund"),
    (("*.nimble",), "tests/t", ".nim", "nimble test", "nimble install -y --depsOnly"),
    (("foundry.toml",), "test/", ".t.sol", "forge test", "forge build"),
    (("dub.json", "dub.sdl"), "source/", ".d", "dub test", "dub build"),
    (("v.mod",), "", "_test.v", "v test .", ""),
    (("fpm.toml",), "test/", (".f90", ".F90"), "fpm test", "fpm build"),
    (("spago.yaml", "spago.dhall"), "test/", ".purs", "spago test", "spago build"),
    (("info.rkt",), "tests/", ".rkt", "raco test .", "raco pkg install --auto --skip-installed"),
    ((".shellspec",), "spec/", "_spec.sh", "shellspec", ""),
    (("*.psd1",), "", ".Tests.ps1", "pwsh -NoProfile -Command 'Invoke-Pester -CI'", ""),
    (("*.tf",), "", ".tftest.hcl", "terraform test", "terraform init -backend=false -input=false"),
    (("configure.ac",), "", "Makefile.am", "make check", "autoreconf -i && ./configure && make"),
)  # fmt: skip
"""Languages whose tests are run in one way."""


_BAZEL_TEST = re.compile(r"^\s{0,40}\w{1,60}_test(?:_suite)?\(", re.MULTILINE)
_MILL_TEST = re.compile(r"\bTestModule\b|\b(?:object|trait) (?:test|Tests?)\b")


def _of_many_languages(files: _Files) -> Iterator[SuggestedCommand]:
    """Suggest the tests of Bazel and Mill, which build whatever is in the repository."""
    if path := files.has("MODULE.bazel", "WORKSPACE.bazel", "WORKSPACE"):
        builds = [one for one in files.paths if one.rpartition("/")[2] in {"BUILD", "BUILD.bazel"}]
        if any(_BAZEL_TEST.search(files.text(one)) for one in builds[:_MOST_TESTS_READ]):
            yield SuggestedCommand(
                "bazel test --test_output=errors //...", path, Confidence.NAMED, "bazel build //..."
            )
    path = files.has("build.mill", "build.mill.scala", "build.sc")
    if path and _MILL_TEST.search(files.text(path)):
        mill = "./mill" if files.has("mill") else "mill"
        yield SuggestedCommand(f"{mill} __.test", path, Confidence.NAMED, f"{mill} __.compile")


def _in_one_way(files: _Files) -> Iterator[SuggestedCommand]:
    tops = [path for path in files.paths if "/" not in path]
    for names, start, end, run, setup_command in _ONE_WAY:
        own = (
            path
            for path in tops
            if path in names or any(one[0] == "*" and path.endswith(one[1:]) for one in names)
        )
        found = next(own, "")
        if found and any(path.endswith(end) and f"/{start}" in f"/{path}" for path in files.paths):
            yield SuggestedCommand(run, found, Confidence.NAMED, setup_command)


def _dart(files: _Files) -> Iterator[SuggestedCommand]:
    """Suggest the tests of Dart, or of Flutter if the package needs it."""
    tests = (path.startswith("test/") and path.endswith("_test.dart") for path in files.paths)
    if not files.has("pubspec.yaml") or not any(tests):
        return
    program = (
        "flutter" if re.search(r"^\s{1,9}sdk: flutter", files.text("pubspec.yaml"), re.MULTILINE) else "dart"
    )
    cache = 'PUB_CACHE="$PWD/.pub-cache" '
    yield SuggestedCommand(
        f"{cache}{program} test", "pubspec.yaml", Confidence.NAMED, f"{cache}{program} pub get"
    )


def _scripted(files: _Files) -> Iterator[SuggestedCommand]:
    """Suggest the one way in which tests are run for Deno, Haskell, R and the shell."""
    if path := files.has("deno.json", "deno.jsonc"):
        deno = 'DENO_DIR="$PWD/.deno" deno'
        task = _table(files.json(path), "tasks").get("test")
        has_task = isinstance(task, str | dict) and not _watches(json.dumps(task).replace('"', " "))
        run = f"{deno} task test" if has_task else f"{deno} test -A --junit-path={_REPORT_XML}"
        yield SuggestedCommand(
            run, path, Confidence.NAMED, f"{deno} install", "" if has_task else _REPORT_XML
        )
    yield from _in_one_way(files)
    yield from _of_many_languages(files)
    yield from _dart(files)
    suite = re.compile(r"^test-suite\b|^tests:", re.MULTILINE)
    cabal = [path for path in files.paths if "/" not in path and path.endswith(".cabal")]
    if any(suite.search(files.text(path)) for path in ("package.yaml", *cabal)):
        if files.has("stack.yaml"):
            stack = 'STACK_ROOT="$PWD/.stack" stack'
            setup = f"{stack} build --test --no-run-tests"
            yield SuggestedCommand(f"{stack} test", "stack.yaml", Confidence.NAMED, setup)
        else:
            setup = 'CABAL_DIR="$PWD/.cabal" cabal update && CABAL_DIR="$PWD/.cabal" cabal build all --enable-tests'
            run = 'CABAL_DIR="$PWD/.cabal" cabal test all --test-show-details=direct'
            yield SuggestedCommand(run, (cabal or ["package.yaml"])[0], Confidence.NAMED, setup)
    if re.search(r"^Package:", files.text("DESCRIPTION"), re.MULTILINE) and any(
        path.startswith("tests/testthat/") for path in files.paths
    ):
        run = """Rscript -e 'testthat::test_local(reporter = "summary", stop_on_failure = TRUE)'"""
        yield SuggestedCommand(run, "tests/testthat", Confidence.NAMED)
    if bats := [path for path in files.paths if path.endswith(".bats")]:
        folders = {path.partition("/")[0] for path in bats if "/" in path}
        where = next((name for name in ("test", "tests") if name in folders), min(folders, default="."))
        if _PLAIN_FOLDER.fullmatch(where) or where == ".":
            yield SuggestedCommand(f"bats -r {where}", bats[0], Confidence.NAMED)


_TARGET = re.compile(
    r"^(test|tests|check)(?: [^:=\n]*)?::?(?![:=])(?P<needs>[^\n]*)(?P<recipe>(?:\n[ \t][^\n]*)*)",
    re.MULTILINE,
)
_WATCHERS = re.compile(
    r"\b(?:ptw|pytest-watch|watchexec|entr|inotifywait|fswatch|watchmedo|nodemon|while true)\b"
)


def _recipe_runs(needs: str, recipe: str) -> bool:
    """Return whether a target may run tests and ends: it needs another one, or one of its lines does more than print."""
    lines = [line.strip().lstrip("@-") for line in recipe.split("\n") if line.strip()]
    lines = [line for line in lines if not line.startswith("#")]
    if any(map(_WATCHERS.search, lines)):
        return False
    own = needs.partition("#")[0].partition(";")
    return bool(own[0].split() or own[2].strip()) or any(not _runs_nothing(line) for line in lines)


def _make(files: _Files) -> Iterator[SuggestedCommand]:
    for path in ("GNUmakefile", "makefile", "Makefile", "justfile", "Justfile", ".justfile"):
        program = "just" if path.lower().endswith("justfile") else "make"
        targets = [
            found[1]
            for found in _TARGET.finditer(files.text(path))
            if _recipe_runs(found["needs"], found["recipe"])
        ]
        if targets:
            target = min(targets, key=("test", "tests", "check").index)
            yield SuggestedCommand(f"{program} {target}", f"{target} in {path}", Confidence.LIKELY)
            return
    if "test" in _table(files.toml("mise.toml"), "tasks"):
        yield SuggestedCommand("mise run test", "test in mise.toml", Confidence.LIKELY)
        return
    names = (
        f"{begin}askfile{middle}.{end}"
        for begin in "Tt"
        for middle in ("", ".dist")
        for end in ("yml", "yaml")
    )
    for path in names:
        if re.search(r"^ {2,4}test:(?: |$)", files.text(path), re.MULTILINE):
            yield SuggestedCommand("task test", f"test in {path}", Confidence.LIKELY)
            return


# Commands that stand in instructions or workflows. A command is copied only as one plain line.

_MOST_COPIED_CHARS = 200
_MOST_WORKFLOWS = 30
_MOST_STEPS = 4
_INSTRUCTIONS = (
    *("AGENTS.md", "CLAUDE.md", "GEMINI.md"),
    *("CONTRIBUTING.md", ".github/CONTRIBUTING.md", "CONTRIBUTING.rst"),
)
_ARGUMENTS = r"""(?: (?:[\w./:=,@+~^%*\[\]-]|'[^'\n]*'|"[^"$`\\\n]*")+)*"""
_TEST_COMMAND = re.compile(
    r"(?:[A-Z][A-Z0-9_]*=[\w./:-]* )*(?:(?:uv|poetry|pdm|pipenv|hatch|rye) run (?:-[\w=-]+ )*)?(?:"
    r"(?:(?:[\w./-]+/)?python3? -m )?(?:[\w./-]+/)?(?:pytest|unittest|tox|nox|nose2|stestr)"
    r"|hatch (?:run )?test|(?:npm|pnpm|yarn|bun|deno)(?: run)? test|npm t|(?:npx|pnpm exec|yarn) (?:jest|vitest|mocha|ava|tap)"
    r"|make (?:test|tests|check)|just (?:test|check)|cargo (?:nextest run|test)|go test|dotnet test|mix test|swift test|sbt test"
    r"|(?:\./)?mvnw? (?>(?:[-\w.=]+ )*?(?:test|verify)(?= |\Z))|(?:\./)?gradlew? (?>(?:[-\w.=]+ )*?(?:test|check)(?= |\Z))|(?:bundle exec )?(?:rspec|rake (?:test|spec))"
    r"|(?:(?:\./)?vendor/bin/)?(?:phpunit|pest)|composer test|bazel test|ctest"
    rf"){_ARGUMENTS}"
)
_SETUP_COMMAND = re.compile(
    r"(?:(?:python3? -m )?pip3? install|uv (?:sync|pip install)|poetry install|pdm install|npm (?:ci|install|i)|pnpm (?:install|i)"
    r"|yarn(?: install)?|bun install|bundle install|composer install|go mod download|cargo fetch)"
    rf"{_ARGUMENTS}"
)
_EXAMPLE = re.compile(r"::|path/to|some_|\bfoo\b|\bTestName\b|(?:^| )-k ")


def _copied(files: _Files) -> Iterator[SuggestedCommand]:
    """Suggest the test command of the first instructions that have one, and that of the first workflow."""
    for path in _INSTRUCTIONS:
        # The shortest one: longer commands run only some of the tests, or print more.
        lines = (line for line in _test_commands(_code_lines(files.text(path))) if _exists(files, line))
        if command := min(lines, key=len, default=""):
            yield SuggestedCommand(command, path, Confidence.LIKELY, copied=True)
            break
    workflows = [path for path in files.paths if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path)]
    workflows = [
        path for path in workflows if not _OTHER_JOB.search(path.rpartition("/")[2].rpartition(".")[0])
    ]
    workflows.sort(key=lambda path: (not re.search(r"test|ci|check", path.rpartition("/")[2]), path))
    for path in workflows[:_MOST_WORKFLOWS]:
        if found := _command_in_workflow(files, files.text(path)):
            command, steps = found
            yield SuggestedCommand(command, path, Confidence.LIKELY, " && ".join(steps), copied=True)
            break


_OTHER_JOB = re.compile(
    r"(?i:(?:^|[-_. ])(?:lint\w{0,4}|types?|typing|typecheck\w{0,3}|mypy|pyright|format\w{0,4}|fmt|docs?|release\w{0,2}"
    r"|publish\w{0,3}|deploy\w{0,4}|bench\w{0,6}|codeql|stale|audit|spell\w{0,4})(?:$|[-_. ]))"
)
"""The names of jobs, workflows and environments that are no tests, whatever they call."""


def _command_in_workflow(files: _Files, text: str) -> tuple[str, list[str]] | None:
    """Return the first test command in a workflow's steps, and the job's earlier install commands; None without one.

    Each runs in the folder of its step.
    """
    for name, job in _run_steps_by_job(text):
        if _OTHER_JOB.search(name):
            continue
        for number, (line, folder) in enumerate(job):
            commands = _test_commands([line]) if _is_folder(files, folder) else []
            if commands and _exists(files, commands[0], folder):
                before = [
                    (step, where)
                    for step, where in job[:number]
                    if _is_plain(step) and _SETUP_COMMAND.fullmatch(step) and _is_folder(files, where)
                ]
                return _with_environment((commands[0], folder), before[:_MOST_STEPS])
    return None


def _with_environment(test: tuple[str, str], steps: list[tuple[str, str]]) -> tuple[str, list[str]]:
    """Return a test command and its set-up with their folders, and with an environment for pip.

    A workflow installs into the runner's Python, which a sandbox cannot write to.
    """
    needs_venv = any("pip" in step for step, _ in steps)

    def placed(line: str, folder: str) -> str:
        if needs_venv:
            program = f"{'../' * (folder.count('/') + 1) if folder else ''}.venv/bin/python -m "
            line = re.sub(r"^(?:python3? -m )?pip3?\b", f"{program}pip", line)
            line = re.sub(r"^(?:python3? -m )?(?=pytest|unittest)", program, line)
        return f"cd {folder} && {line}" if folder else line

    made = [placed(*step) for step in steps[: _MOST_STEPS - needs_venv]]
    made = [f"({step})" if step.startswith("cd ") and len(made) > 1 else step for step in made]
    return placed(*test), [*([_VENV] if needs_venv else []), *made]


def _is_folder(files: _Files, folder: str) -> bool:
    """Return whether a step's folder is the root, or one of the repository with a plain name."""
    if not folder:
        return True
    return _PLAIN_FOLDER.fullmatch(folder) is not None and any(
        path.startswith(f"{folder}/") for path in files.paths
    )


_SCRIPT_OF = re.compile(
    r"(npm|pnpm|yarn|bun|deno|composer|make|just|task)(?: run| task)? (test|tests|check|t)\b"
)


def _exists(files: _Files, command: str, folder: str = "") -> bool:
    """Return whether the script or target that a copied command names is there."""
    named = _SCRIPT_OF.match(command)
    if named is None:
        return True
    program, script = named[1], "test" if named[2] == "t" else named[2]
    own = files.below(folder) if folder else files
    if program in {"npm", "pnpm", "yarn", "composer"} or (program == "bun" and " run " in command):
        manifest = own.json("composer.json" if program == "composer" else "package.json")
        if isinstance(_table(manifest, "scripts").get(script), list):  # of Composer
            return True
        return _runs_tests(script, _scripts(manifest))
    if program == "make":
        texts = [own.text(path) for path in ("GNUmakefile", "makefile", "Makefile") if path in own.paths]
        generated = own.has("configure", "configure.ac", "Makefile.am", "Makefile.in", "CMakeLists.txt")
        lines = (line for text in texts for line in text.splitlines() if not line.startswith("\t"))
        targets = {word for line in lines if ":" in line for word in line.partition(":")[0].split()}
        return script in targets or bool(generated and not texts) or any("include" in text for text in texts)
    return True


def _test_commands(lines: Iterable[str]) -> list[str]:
    """Return the lines that consist of a call of a test runner."""
    plain = (re.sub(r"^\s*(?:[$>] )?\s*", "", line).rstrip() for line in lines)
    return [
        line
        for line in plain
        if _is_plain(line)
        and _TEST_COMMAND.fullmatch(line)
        and not _EXAMPLE.search(line)
        and not _is_other_environment(line)
    ]


def _is_other_environment(line: str) -> bool:
    """Return whether a command selects an environment of tox, nox or hatch that runs no tests."""
    if re.search(r"\b(?:tox|nox|hatch)\b", line) is None:
        return False
    return any(map(_OTHER_JOB.fullmatch, re.split(r"[\s,:='\"]+", line)))


def _is_plain(line: str) -> bool:
    """Return whether a line is short and printable, so that a person sees everything that it does."""
    return len(line) <= _MOST_COPIED_CHARS and line.isprintable() and "${{" not in line


def _code_lines(text: str) -> Iterator[str]:
    """Yield the lines of code blocks, and the inline code, of a Markdown text."""
    fence = ""
    for line in text.splitlines():
        before, fence = fence, fence_after(line.lstrip(), fence)
        is_outside = not (before or fence)
        if (before and fence) or (is_outside and line.startswith(("    ", "\t"))):
            yield line
        elif is_outside:
            yield from re.findall(r"`([^`]+)`", line)


_STEP = re.compile(r"^(?P<indent> *)(?:- +)?run: *(?P<rest>.*)")
_FOLDER = re.compile(r"^ *(?:- +)?working-directory: *(.*)")
_KEY = re.compile(r"^( *)([\w-]+): *$")
_NO_ITEM = 1_000


def _run_steps_by_job(text: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the name of each job of a workflow, and the lines of its `run` steps with the folder of each.

    https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-syntax#jobsjob_idstepsrun. Steps in
    an unusual layout are skipped.
    """
    everywhere, job, jobs_indent = "", _WorkflowJob(), -1
    block_indent = -1  # how far the `run` of a block is indented
    for line in text.replace("\\\n", " ").splitlines():
        indent = len(line) - len(line.lstrip(" "))
        if block_indent >= 0 and (not line.strip() or indent > block_indent):
            job.commands.append(" ".join(line.split()))
            continue
        block_indent = -1
        key = _KEY.match(line)
        if key and key[2] == "jobs" and not indent:
            everywhere, job, jobs_indent = job.folder, _WorkflowJob(), 0
        elif key and jobs_indent >= 0 and indent and indent == (jobs_indent or indent):
            yield job.name, job.all_steps(everywhere)
            job, jobs_indent = _WorkflowJob(key[2]), indent
        elif key and key[2] == "steps":
            job.indent_of_items = _NO_ITEM
        else:
            block_indent = job.read(line, indent)
    yield job.name, job.all_steps(everywhere)


_ELSEWHERE = re.compile(
    r"^\s{0,40}(?:- )?if: .{0,200}(?:==\s*['\"]?(?:windows|macos)|startsWith\(.{0,60}['\"](?:windows|macos))",
    re.IGNORECASE,
)
"""The condition of a step that runs on another system only."""


class _WorkflowJob:
    """What was read of one job.

    Attributes:
        folder: in which its steps run that name no other.
        commands: the lines of the present step.
        indent_of_items: how far its steps are indented.
    """

    def __init__(self, name: str = "") -> None:
        self.name, self.folder, self.commands = name, "", list[str]()
        self.indent_of_items = _NO_ITEM
        self._step_folder = ""
        self._is_elsewhere = False
        self._steps: list[tuple[str, str]] = []

    def read(self, line: str, indent: int) -> int:
        """Read a line. Return how far the key `run` is indented if a block of commands follows, else -1."""
        is_item = line.startswith("- ", indent) and indent <= self.indent_of_items
        if is_item:
            self._end_step()
            self.indent_of_items = indent
        if _ELSEWHERE.match(line):
            self._is_elsewhere = True
        elif folder := _FOLDER.match(line):
            where = _unquoted(folder[1].strip()).removeprefix("./").rstrip("/")
            where = "" if where == "." else where
            if is_item or self.indent_of_items < indent:
                self._step_folder = where
            else:
                self.folder = where
        elif step := _STEP.match(line):
            rest = step["rest"].strip()
            if re.fullmatch(r"[|>][-+0-9]*", rest):
                return line.index("run:")
            self.commands.append(_unquoted(rest))
        return -1

    def _end_step(self) -> None:
        if not self._is_elsewhere:
            self._steps += [(line, self._step_folder) for line in self.commands]
        self.commands, self._step_folder, self._is_elsewhere = [], "", False

    def all_steps(self, everywhere: str) -> list[tuple[str, str]]:
        """Return the lines of all steps, with their folders. `everywhere` is that of the whole workflow."""
        self._end_step()
        return [(line, folder or self.folder or everywhere) for line, folder in self._steps]


def _unquoted(text: str) -> str:
    quoted = re.fullmatch(r"'([^']*)'|\"([^\"\\]*)\"", text)
    return "".join(quoted.groups("")) if quoted else text


_NO_PROGRAM = {"cd", "exec", "export", "env", "test", "true", "."}


def programs_of(*commands: str) -> list[str]:
    """Return the programs that commands need from the machine: not those in folders, which a set-up creates."""
    found: dict[str, None] = {}
    for part in re.split(r"&&|\|\||[;|()]", " && ".join(commands)):
        try:
            words = shlex.split(part)
        except ValueError:
            continue
        program = next((word for word in words if not re.match(r"\w+=", word)), "")
        if program and "/" not in program and program not in _NO_PROGRAM:
            found[program] = None
    return list(found)


_OTHER_CODE = frozenset(
    ("c", "h", "cc", "cpp", "cxx", "hpp", "sh", "pl", "pm", "m", "lua", "tcl", "asm", "s", "f90", "jl")
)
"""Suffixes of code of which no suggestion counts the tests."""
_SUGGESTERS: tuple[tuple[Callable[[_Files], Iterator[SuggestedCommand]], tuple[str, ...]], ...] = (
    (_python, ("py",)),
    (_node, ("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts")),
    (_rust, ("rs",)),
    (_go, ("go",)),
    (_java, ("java", "kt", "kts", "groovy", "scala")),
    (_ruby, ("rb",)),
    (_php, ("php",)),
    (_c, ("c", "h", "cc", "cpp", "cxx", "hpp")),
    (_compiled, ()),
    (_scripted, ()),
    (_copied, ()),
    (_make, ()),
)
