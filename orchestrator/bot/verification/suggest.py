"""Suggests how to run a repository's tests, from its files alone. It executes nothing.

A repository's text is untrusted: it only selects among known commands. The exception is a command in a workflow or
in instructions, which is copied as one plain line; such a suggestion is marked.
"""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from dataclasses import dataclass
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
    SURE = 3
    """The repository has the runner's settings, or names the command as its test."""


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
    """

    command: str
    source: str
    confidence: Confidence
    setup: str = ""
    report: str = ""
    copied: bool = False


def suggest(paths: Iterable[str], read: Callable[[str], str | None]) -> list[SuggestedCommand]:
    """Return suggestions for a repository, the best one first; none if nothing is known about its tests.

    Args:
        paths: its files, relative, with `/`. Those after the first `MOST_PATHS` are ignored.
        read: returns a file's text; None if it is missing or not text.
    """
    files = _Files(paths, read)
    found = [(one, files.tests_in(ends)) for suggester, ends in _SUGGESTERS for one in suggester(files)]
    found.sort(key=lambda pair: (pair[0].confidence, pair[1]), reverse=True)
    best: dict[str, SuggestedCommand] = {}
    for suggestion, _ in found:
        best.setdefault(suggestion.command, suggestion)
    return list(best.values())


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
"""Names of extras and groups that may be copied into a command."""
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
        lists = ((name, table.get(name)) for name in _TEST_GROUPS)
        return {
            name: "\n".join(item for item in listed if isinstance(item, str))
            for name, listed in lists
            if isinstance(listed, list)
        }

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
            groups = [name for name in _TEST_GROUPS if name in _table(self.tool, "poetry", "group")]
            with_groups = f" --with {','.join(groups)}" if groups else ""
            install = "POETRY_VIRTUALENVS_IN_PROJECT=true .tools/bin/poetry install -q --no-interaction"
            return f"{_TOOLS} poetry && {install}{with_groups}", files.has("poetry.lock") or "[tool.poetry]"
        if files.has("pdm.lock") or "pdm" in self.tool:
            named = " ".join(f"-G {name}" for name in (*self.groups, *self.extras))
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
    python = _Python(files)
    source = python.pytest_source()
    if setup_by_tool := python.setup_by_tool():
        setup, tool = setup_by_tool
        confidence = Confidence.SURE if source else Confidence.LIKELY
        yield SuggestedCommand(_PYTEST, f"{tool}, {source or 'test files'}", confidence, setup)
        return
    if not source:
        yield from _unittest(files, python)
        return
    declared = python.extras or python.groups or python.requirements
    if not declared:
        yield from _environment_tools(files, python)
    confidence = Confidence.SURE if declared else Confidence.LIKELY
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
        yield SuggestedCommand(command, f"tox in {where}", Confidence.SURE, setup_command)
    if session := _NOX_SESSION.search(files.text("noxfile.py")):
        program = f".nox/{session[1]}/bin/python -m"
        editable = f" && {program} pip install -q -e ." if python.is_installable else ""
        setup_command = f"{_TOOLS} nox && .tools/bin/nox -s {session[1]} --install-only{editable}"
        yield SuggestedCommand(f"{program} pytest", "noxfile.py", Confidence.SURE, setup_command)
    if environments := _table(python.tool, "hatch", "envs"):
        hatch, source = "HATCH_DATA_DIR=.hatch .tools/bin/hatch", "[tool.hatch.envs] in pyproject.toml"
        has_script = "test" in _table(environments, "default", "scripts")
        run, create = ("run test", "run python -V") if has_script else ("test", "test -- --version")
        setup_command = f"{_TOOLS} hatch && {hatch} {create}"
        yield SuggestedCommand(f"{hatch} {run}", source, Confidence.SURE, setup_command)


def _unittest(files: _Files, python: _Python) -> Iterator[SuggestedCommand]:
    """Suggest unittest, and pytest, which runs such tests too and reports each result."""
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
    if not needed and not found:
        setup = ""
    script = _table(package, "scripts").get("test")
    if isinstance(script, str) and script.strip() and _NO_TEST not in script:
        command, report = _script_call(manager, script.strip())
        yield SuggestedCommand(command, "the script test in package.json", Confidence.SURE, setup, report)
        return
    runner = next((name for name in ("vitest", "jest", "mocha") if name in needed), "")
    if runner:
        options, report = _NODE_REPORTS[runner]
        command = f"{_EXEC_PREFIXES[manager]} {runner}{' run' if runner == 'vitest' else ''} {options}"
        yield SuggestedCommand(command, f"{runner} in package.json", Confidence.LIKELY, setup, report)
    elif files.tests_in(("js", "mjs", "cjs")):
        options, report = _NODE_REPORTS["node"]
        yield SuggestedCommand(f"node --test {options}", "test files", Confidence.GUESS, setup, report)


def _script_call(manager: str, script: str) -> tuple[str, str]:
    """Return the call of a package's script, with options that make a known runner write a report."""
    call = f"{manager} run test"
    match = _RUNNER_CALL.fullmatch(script) if len(script) <= _MOST_SCRIPT_CHARS else None
    runner = next(filter(None, match.group("runner", "scripts", "node", "bun")), "") if match else ""
    if not match or "--watch" in match["rest"]:
        return call, ""
    options, report = _NODE_REPORTS[runner]
    if runner == "node":  # its options precede the names of files
        return f'NODE_OPTIONS="{options}" {call}', report
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
        yield SuggestedCommand(command, ".config/nextest.toml", Confidence.SURE, setup, report)
        return
    command = f"{cargo} test{locked} --offline --no-fail-fast"
    yield SuggestedCommand(command, "Cargo.toml", Confidence.SURE, f"{cargo} test{locked} --no-run")


def _go(files: _Files) -> Iterator[SuggestedCommand]:
    if not files.has("go.mod"):
        return
    go = 'GOCACHE="$PWD/.go-build" GOMODCACHE="$PWD/.go-mod" GOFLAGS=-modcacherw go'
    needs = re.search(r"^[^\S\n]*require\b", files.text("go.mod"), re.MULTILINE)
    fetch = f"{go} mod download && " if needs and not files.has("vendor/modules.txt") else ""
    command = f"{go} test -count=1 -json ./... > {_REPORT_JSON}"
    setup = f"{fetch}{go} test -count=1 -run=^none$ ./..."  # builds what the tests need
    yield SuggestedCommand(command, "go.mod", Confidence.SURE, setup, _REPORT_JSON)


def _java(files: _Files) -> Iterator[SuggestedCommand]:
    if files.has("pom.xml"):
        program = "MAVEN_USER_HOME=.maven ./mvnw" if files.has("mvnw") else "mvn"
        maven = f'{program} -B -q -fae -Dmaven.repo.local="$PWD/.m2"'
        setup = f"{maven} -Dmaven.test.failure.ignore=true test"  # running tests fetches the runner
        report = "**/target/surefire-reports/TEST-*.xml"
        yield SuggestedCommand(f"{maven} -o test", "pom.xml", Confidence.SURE, setup, report)
    if path := files.has("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"):
        program = "./gradlew" if files.has("gradlew") else "gradle"
        gradle = f'GRADLE_USER_HOME="$PWD/.gradle-home" {program} --no-daemon -q'
        report = "**/build/test-results/*/TEST-*.xml"
        command = f"{gradle} --offline --continue test"
        yield SuggestedCommand(command, path, Confidence.SURE, f"{gradle} testClasses", report)


def _ruby(files: _Files) -> Iterator[SuggestedCommand]:
    specs = any(path.startswith("spec/") and path.endswith("_spec.rb") for path in files.paths)
    if not (specs or files.has(".rspec")):
        return
    options = f"--format json --out {_REPORT_JSON}"
    if files.has("Gemfile"):
        setup = "BUNDLE_PATH=.bundle/gems bundle install --quiet"
        command = f"BUNDLE_PATH=.bundle/gems bundle exec rspec {options}"
        yield SuggestedCommand(command, "Gemfile, spec", Confidence.SURE, setup, _REPORT_JSON)
    else:
        yield SuggestedCommand(f"rspec {options}", "spec", Confidence.LIKELY, report=_REPORT_JSON)


def _php(files: _Files) -> Iterator[SuggestedCommand]:
    path = files.has("phpunit.xml", "phpunit.xml.dist", "phpunit.dist.xml")
    package = files.json("composer.json")
    if not path and "phpunit/phpunit" not in _table(package, "require-dev"):
        return
    setup = "COMPOSER_HOME=.composer composer install -q --no-interaction --no-progress" if package else ""
    program = "vendor/bin/phpunit" if package else "phpunit"
    command = f"{program} --log-junit {_REPORT_XML}"
    yield SuggestedCommand(command, path or "composer.json", Confidence.SURE, setup, _REPORT_XML)


def _make(files: _Files) -> Iterator[SuggestedCommand]:
    for path in ("GNUmakefile", "makefile", "Makefile", "justfile"):
        program = "just" if path == "justfile" else "make"
        targets = re.findall(r"^(test|tests|check)(?: [^:=\n]*)?:(?![:=])", files.text(path), re.MULTILINE)
        if targets:
            target = min(targets, key=("test", "tests", "check").index)
            yield SuggestedCommand(f"{program} {target}", f"{target} in {path}", Confidence.LIKELY)
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
        if command := min(_test_commands(_code_lines(files.text(path))), key=len, default=""):
            yield SuggestedCommand(command, path, Confidence.LIKELY, copied=True)
            break
    workflows = [path for path in files.paths if re.fullmatch(r"\.github/workflows/[^/]+\.ya?ml", path)]
    workflows.sort(key=lambda path: (not re.search(r"test|ci|check", path.rpartition("/")[2]), path))
    for path in workflows[:_MOST_WORKFLOWS]:
        if found := _command_in_workflow(files.text(path)):
            command, steps = found
            if any("pip" in step for step in steps):
                # A workflow installs into the runner's Python, which a sandbox cannot write to.
                pip = r"^(?:python3? -m )?pip3?\b"
                steps = [_VENV, *(re.sub(pip, ".venv/bin/python -m pip", step) for step in steps)]
                command = re.sub(r"^(?:python3? -m )?(?=pytest|unittest)", ".venv/bin/python -m ", command)
            setup = " && ".join(steps[:_MOST_STEPS])
            yield SuggestedCommand(command, path, Confidence.LIKELY, setup, copied=True)
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
    fence = ""
    for line in text.splitlines():
        before, fence = fence, fence_after(line.lstrip(), fence)
        is_outside = not (before or fence)
        if (before and fence) or (is_outside and line.startswith(("    ", "\t"))):
            yield line
        elif is_outside:
            yield from re.findall(r"`([^`]+)`", line)


_STEP = re.compile(r"^(?P<indent> *)(?:- +)?run: *(?P<rest>.*)")
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


_SUGGESTERS: tuple[tuple[Callable[[_Files], Iterator[SuggestedCommand]], tuple[str, ...]], ...] = (
    (_python, ("py",)),
    (_node, ("js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts")),
    (_rust, ("rs",)),
    (_go, ("go",)),
    (_java, ("java", "kt", "kts", "groovy", "scala")),
    (_ruby, ("rb",)),
    (_php, ("php",)),
    (_copied, ()),
    (_make, ()),
)
