"""Small projects of many kinds, each as people have them, and how its tests are run."""

from __future__ import annotations

import json
import shlex
from typing import NamedTuple

import pytest

from orchestrator.bot.verification.suggest import Confidence, programs_of, suggest
from tests.tables import table

A_TEST = "import pytest\n\n\ndef test_a():\n    assert True\n"
PYTEST = ".venv/bin/python -m pytest"
PIP = ".venv/bin/python -m pip install -q"
JEST = "--json --outputFile=test-report.json"
VITEST = "--reporter=json --outputFile=test-report.json"
MOCHA = "--reporter xunit --reporter-option output=test-report.xml"
INSTALL = "npm install --no-audit --no-fund"


class Project(NamedTuple):
    """Files, the command that is proposed first (empty for none), and a part of its set-up and its report."""

    name: str
    files: dict[str, str]
    command: str
    setup: str = ""
    report: str = ""


def node(needs: str = "", **scripts: str) -> str:
    return json.dumps({"scripts": scripts, "devDependencies": dict.fromkeys(needs.split(), "1")})


def workflow(steps: str, job: str = "unit", more: str = "") -> str:
    return f"on:\n  push:\n    branches:\n      - main\njobs:\n  {job}:\n    runs-on: ubuntu-latest\n{more}    steps:\n{steps}"


LINES_OF_C = {f"src/{number}.c": "" for number in range(30)}
PROJECTS = (
    # Scripts that wait for changes of files.
    Project("vitest watch", {"package.json": node("vitest", test="vitest watch")}, f"npx --no vitest run {VITEST}", INSTALL, "test-report.json"),
    Project("vitest dev", {"package.json": node("vitest", test="vitest dev")}, f"npx --no vitest run {VITEST}", INSTALL, "test-report.json"),
    Project("mocha -w", {"package.json": node("mocha", test="mocha -w test")}, f"npx --no mocha {MOCHA}", INSTALL, "test-report.xml"),
    Project("jest --watchAll", {"package.json": node("jest", test="jest --watchAll")}, f"npx --no jest {JEST}", INSTALL, "test-report.json"),
    Project("a watching script beside one for CI", {"package.json": node("jest", **{"test": "jest --watch", "test:ci": "jest --ci"})}, f"npm run test:ci -- {JEST}", INSTALL, "test-report.json"),
    Project("vitest, which watches on a terminal", {"package.json": node("vitest", test="vitest")}, f"npm run test -- --run {VITEST}", INSTALL, "test-report.json"),
    Project("karma that does not end", {"package.json": node("karma", test="karma start")}, ""),
    Project("node that watches", {"package.json": node(test="node --test --watch"), "test/a.test.js": ""}, ""),
    Project("a script that calls one that watches", {"package.json": node("jest", **{"test": "npm run test:watch", "test:watch": "jest --watch"})}, f"npx --no jest {JEST}", INSTALL, "test-report.json"),
    Project("a script that calls one that watches, two steps away", {"package.json": node("vitest", **{"test": "run-s lint unit", "lint": "eslint .", "unit": "pnpm unit:dev", "unit:dev": "vitest dev"})}, f"npx --no vitest run {VITEST}", INSTALL, "test-report.json"),
    Project("a script that calls itself in a circle", {"package.json": node("tap", test="npm run a", a="npm run b", b="npm run a")}, "npm run test"),
    Project("cypress open", {"package.json": node("cypress", test="cypress open")}, ""),
    Project("tsx watch", {"package.json": node("tsx", test="tsx watch a.test.ts")}, ""),
    Project("workspaces that watch", {"package.json": '{"workspaces": ["p/*"]}', "p/a/package.json": node("vitest", test="vitest watch")}, ""),
    Project("Deno that watches", {"deno.json": '{"tasks": {"test": "deno test --watch"}}'}, 'DENO_DIR="$PWD/.deno" deno test -A --junit-path=test-report.xml', "", "test-report.xml"),
    # Scripts that run no test.
    Project("a script that prints", {"package.json": node(test="echo 'no tests yet' && exit 0")}, ""),
    Project("a script that ends", {"package.json": node("jest", test="exit 0")}, f"npx --no jest {JEST}", INSTALL, "test-report.json"),
    Project("a script that checks the text", {"package.json": node("eslint jest", **{"test": "eslint . && tsc --noEmit", "test:unit": "jest"})}, f"npm run test:unit -- {JEST}", INSTALL, "test-report.json"),
    Project("a script that prints first", {"package.json": node("tap", test="echo begin && tap")}, "npm run test"),
    Project("an import of Deno that is called test", {"deno.json": '{"imports": {"test": "x"}}'}, 'DENO_DIR="$PWD/.deno" deno test -A --junit-path=test-report.xml', "", "test-report.xml"),
    # The folder of a step.
    Project(
        "a step in a folder",
        {"web/package.json": node("tap", test="tap"), ".github/workflows/ci.yml": workflow("      - run: npm ci\n        working-directory: web\n      - working-directory: ./web\n        run: npm test\n")},
        "cd web && npm test", "cd web && npm ci",
    ),
    Project(
        "a job in a folder",
        {"api/reqs.txt": "", "api/check.py": "", ".github/workflows/ci.yml": workflow("      - run: pip install -r reqs.txt\n      - run: pytest -q\n", more="    defaults:\n      run:\n        working-directory: api\n")},
        f"cd api && ../{PYTEST} -q", "python3 -m venv .venv && cd api && ../.venv/bin/python -m pip install -r reqs.txt",
    ),
    Project("a folder from the matrix", {"a/x.py": "", ".github/workflows/ci.yml": workflow("      - run: pytest -q\n        working-directory: ${{ matrix.dir }}\n")}, ""),
    # What is copied.
    Project("a script that package.json lacks", {"package.json": node(build="tsc"), "AGENTS.md": "Run `npm test`.\n"}, ""),
    Project("a target that the Makefile lacks", {"Makefile": "all:\n\tcc a.c\n", "CONTRIBUTING.md": "Run `make check`.\n"}, ""),
    Project("values of the workflow", {".github/workflows/ci.yml": workflow("      - run: pytest '${{ matrix.args }}'\n      - run: ctest\n")}, "ctest"),
    Project("a typing job first", {".github/workflows/ci.yml": workflow("      - run: tox -e py\n", job="typing") + "  unit:\n    steps:\n      - run: tox -e unit\n"}, "tox -e unit"),
    Project("an environment for types", {"CONTRIBUTING.md": "Run `tox -e typing`, then `tox -e py312-django42`.\n"}, "tox -e py312-django42"),
    Project("a release workflow alone", {".github/workflows/release.yml": workflow("      - run: pytest -q\n")}, ""),
    Project("two steps of which one is in a folder", {"web/a.js": "", ".github/workflows/ci.yml": workflow("      - run: npm ci\n        working-directory: web\n      - run: npm ci\n      - run: ctest\n")}, "ctest", "(cd web && npm ci) && npm ci"),
    Project("a pyproject.toml that is none", {"tests/test_a.py": A_TEST, "pyproject.toml": "[x", "requirements.txt": "pytest\n"}, PYTEST, "-r requirements.txt"),
    # Languages.
    Project("Pest", {"composer.json": '{"require-dev": {"pestphp/pest": "^2"}}', "phpunit.xml": "", "tests/Pest.php": ""}, "vendor/bin/pest --log-junit test-report.xml", "composer install", "test-report.xml"),
    Project("dev dependencies in a group of another name", {"tests/test_a.py": A_TEST, "pyproject.toml": "[project]\nname='a'\n[dependency-groups]\nunit = ['pytest>=8']\ndocs = ['mkdocs']\n"}, PYTEST, f"{PIP} -e . --group unit"),
    Project("an extra of another name", {"tests/test_a.py": A_TEST, "pyproject.toml": "[project]\nname='a'\n[project.optional-dependencies]\nci = ['pytest']\n"}, PYTEST, f'{PIP} -e ".[ci]"'),
    Project("a group of Poetry of another name", {"tests/test_a.py": A_TEST, "poetry.lock": "", "pyproject.toml": "[tool.poetry.group.quality.dependencies]\npytest = '*'\n"}, PYTEST, "--with quality"),
    Project("git, with a crate", {**LINES_OF_C, "Cargo.toml": "[package]", "src/lib.rs": "", "Makefile": "test:\n\t$(MAKE) -C t\n"}, "make test"),
    Project("C with a vendored file of Python below its tests", {**LINES_OF_C, "tests/vendored/gen.py": "print(1)\n"}, ""),
    Project("CMake", {"CMakeLists.txt": "enable_testing()\n", "a.c": ""}, 'cmake -S . -B build && cmake --build build -j 2 && ctest --test-dir build --output-on-failure --no-tests=error --output-junit "$PWD/test-report.xml"', "cmake -S . -B build", "test-report.xml"),
    Project("CMake without tests", {"CMakeLists.txt": "project(a)\n", "a.c": ""}, ""),
    Project("Perl", {"Makefile.PL": "", "t/basic/a.t": "", "lib/A.pm": ""}, "prove -l -r t"),
    Project("Lua", {".busted": "", "spec/a_spec.lua": ""}, "busted"),
    Project("Julia", {"Project.toml": "", "test/runtests.jl": "", "src/A.jl": ""}, "julia --project=. -e 'using Pkg; Pkg.test()'", "Pkg.instantiate()"),
    Project("OCaml", {"dune-project": "", "test/dune": "(test (name a))", "src/a.ml": ""}, "dune test --force", "dune build"),
    Project("Scala", {"build.sbt": "", "core/src/test/scala/A.scala": ""}, "sbt test", "sbt Test/compile"),
    Project("Clojure", {"project.clj": "", "test/a/core_test.cljc": ""}, "lein test", "lein deps"),
    Project("Crystal", {"shard.yml": "", "spec/a_spec.cr": ""}, "crystal spec", "shards install"),
    Project("Erlang", {"rebar.config": "", "test/a_SUITE.erl": ""}, "rebar3 ct", "rebar3 compile"),
    Project("Gleam", {"gleam.toml": "", "test/a_test.gleam": ""}, "gleam test", "gleam build"),
    Project("Elm", {"elm.json": "{}", "tests/A.elm": ""}, "npx --no elm-test", "npm install"),
    Project("Dart", {"pubspec.yaml": "name: a\n", "test/a_test.dart": ""}, 'PUB_CACHE="$PWD/.pub-cache" dart test', "dart pub get"),
    Project("Flutter", {"pubspec.yaml": "dependencies:\n  flutter:\n    sdk: flutter\n", "test/a_test.dart": ""}, 'PUB_CACHE="$PWD/.pub-cache" flutter test', "flutter pub get"),
    Project("Dart without tests", {"pubspec.yaml": "name: a\n", "lib/a.dart": ""}, ""),
    Project("Autotools", {"configure.ac": "", "Makefile.am": "TESTS = a\n", "a.c": ""}, "make check", "autoreconf -i"),
    Project(".NET with xunit alone", {"A.sln": "", "T/T.csproj": '<PackageReference Include="xunit.v3" />'}, 'DOTNET_CLI_HOME="$PWD/.dotnet-home" NUGET_PACKAGES="$PWD/.nuget" dotnet test', "dotnet restore"),
    Project("a rule with two colons", {"Makefile": "test::\n\tx\n"}, "make test"),
    Project("a variable called test", {"Makefile": "test := 1\ncheck ::= 2\n"}, ""),
    Project("Justfile", {"Justfile": "test:\n  x\n"}, "just test"),
    Project("a task in one line", {"Taskfile.dist.yml": "tasks:\n  test: go vet ./...\n"}, "task test"),
    Project("mise", {"mise.toml": "[tasks.test]\nrun = 'x'\n"}, "mise run test"),
    Project("Meson", {"meson.build": "project('a', 'c')\ntest('a', exe)\n", "a.c": ""}, "meson test -C build --print-errorlogs", "meson setup build", "build/meson-logs/testlog.junit.xml"),
    Project("minitest", {"Gemfile": "", "Rakefile": "Minitest::TestTask.create\n", "test/test_a.rb": ""}, "BUNDLE_PATH=.bundle/gems bundle exec rake test", "bundle install"),
    Project("Rails", {"Gemfile": "", "bin/rails": "", "test/models/user_test.rb": ""}, "BUNDLE_PATH=.bundle/gems bundle exec rails test", "bundle install"),
    Project("Elixir", {"mix.exs": "", "test/a_test.exs": ""}, 'MIX_HOME="$PWD/.mix" HEX_HOME="$PWD/.hex" mix test', "deps.get"),
    Project(".NET", {"a.sln": "", "A.Tests/A.Tests.csproj": '<PackageReference Include="Microsoft.NET.Test.Sdk"/>'}, 'DOTNET_CLI_HOME="$PWD/.dotnet-home" NUGET_PACKAGES="$PWD/.nuget" dotnet test', "dotnet restore"),
    Project("Swift", {"Package.swift": "", "Tests/ATests/a.swift": ""}, "swift test --xunit-output test-report.xml", "swift build --build-tests", "test-report.xml"),
    Project("Zig", {"build.zig": "const t = b.addTest(.{});\n"}, 'ZIG_GLOBAL_CACHE_DIR="$PWD/.zig-global" zig build test --summary all'),
    Project("Deno", {"deno.json": "{}", "a_test.ts": ""}, 'DENO_DIR="$PWD/.deno" deno test -A --junit-path=test-report.xml', "deno install", "test-report.xml"),
    Project("a task of Deno", {"deno.json": '{"tasks": {"test": "deno test -A"}}'}, 'DENO_DIR="$PWD/.deno" deno task test', "deno install"),
    Project("Haskell by cabal", {"a.cabal": "test-suite spec\n  type: exitcode-stdio-1.0\n"}, 'CABAL_DIR="$PWD/.cabal" cabal test all --test-show-details=direct', "--enable-tests"),
    Project("Haskell by Stack", {"stack.yaml": "", "package.yaml": "tests:\n  spec: {}\n"}, 'STACK_ROOT="$PWD/.stack" stack test', "--no-run-tests"),
    Project("R", {"DESCRIPTION": "Package: a\n", "tests/testthat/test-a.R": ""}, """Rscript -e 'testthat::test_local(reporter = "summary", stop_on_failure = TRUE)'"""),
    Project("bats", {"test/a.bats": "", "a.sh": ""}, "bats -r test"),
    Project("Taskfile", {"Taskfile.yml": "version: '3'\ntasks:\n  test:\n    cmds:\n      - ./t.sh\n"}, "task test"),
    # Several projects in one repository.
    Project("workspaces of pnpm", {"package.json": node(), "pnpm-workspace.yaml": "", "pnpm-lock.yaml": "", "packages/a/package.json": node(test="vitest run")}, "pnpm -r --if-present run test", "pnpm install"),
    Project("workspaces of npm", {"package.json": '{"workspaces": ["p/*"]}', "package-lock.json": "", "p/a/package.json": node(test="node --test")}, "npm run test --workspaces --if-present", "npm ci"),
    Project("a workspace below other folders", {"package.json": '{"workspaces": ["a/b/*"]}', "a/b/c/package.json": node(test="node --test")}, "npm run test --workspaces --if-present", "npm install"),
    Project("a package too deep to be a workspace", {"package.json": '{"workspaces": ["a/*"]}', "a/b/c/d/package.json": node(test="node --test")}, ""),
    Project("workspaces without tests", {"package.json": '{"workspaces": ["a/*"]}', "a/b/package.json": node(build="tsc"), "a/b/other.json": node(test="node --test")}, ""),
    Project("a backend in a folder", {"backend/pyproject.toml": "[project]\nname='a'\n[project.optional-dependencies]\ntest=['pytest']\n", "backend/tests/test_a.py": A_TEST}, f"cd backend && {PYTEST}", "cd backend && python3 -m venv .venv"),
    Project("a frontend in a folder", {"web/package.json": node("jest", test="jest"), "README.md": ""}, f"cd web && npm run test -- {JEST}", "cd web && npm install", "web/test-report.json"),
    Project("an example is no project", {"examples/a/package.json": node("jest", test="jest")}, ""),
    # Several languages built by one program, and more languages.
    Project("Bazel", {"MODULE.bazel": "", "a/BUILD.bazel": "py_test(name='a')", "a/a_test.py": A_TEST}, "bazel test --test_output=errors //...", "bazel build //..."),
    Project("Bazel without tests", {"WORKSPACE": "", "a/BUILD": "cc_library(name='a')"}, ""),
    Project("Mill", {"build.mill": "object a extends ScalaModule { object test extends ScalaTests with TestModule.Utest }", "mill": "", "a/test/src/A.scala": ""}, "./mill __.test", "./mill __.compile"),
    Project("Foundry", {"foundry.toml": "", "test/A.t.sol": "", "src/A.sol": ""}, "forge test", "forge build"),
    Project("D", {"dub.json": "{}", "source/a.d": "unittest {}"}, "dub test", "dub build"),
    Project("V", {"v.mod": "", "a_test.v": ""}, "v test ."),
    Project("Fortran", {"fpm.toml": "", "test/check.f90": ""}, "fpm test", "fpm build"),
    Project("PureScript", {"spago.yaml": "", "test/Test/Main.purs": ""}, "spago test", "spago build"),
    Project("Terraform", {"main.tf": "", "tests/a.tftest.hcl": ""}, "terraform test", "terraform init"),
    Project("ShellSpec", {".shellspec": "", "spec/a_spec.sh": ""}, "shellspec"),
    Project("Pester", {"A.psd1": "", "tests/A.Tests.ps1": ""}, "pwsh -NoProfile -Command 'Invoke-Pester -CI'"),
    Project("Racket", {"info.rkt": "", "tests/a.rkt": ""}, "raco test .", "raco pkg install"),
    Project("Bun without a script", {"package.json": node(), "bun.lock": "", "a.test.ts": ""}, "bun test --reporter=junit --reporter-outfile=test-report.xml", "bun install", "test-report.xml"),
    # What only looks like tests.
    Project("a script that calls one that checks the text", {"package.json": node("eslint", test="npm run lint", lint="eslint .")}, ""),
    Project("several at once, of which one watches", {"package.json": node("jest", test="concurrently 'npm:serve' 'npm:unit'", serve="vite", unit="jest --watch")}, f"npx --no jest {JEST}", INSTALL, "test-report.json"),
    Project("a target without a recipe", {"Makefile": "test:\n\nall:\n\tcc a.c\n"}, ""),
    Project("a target that prints", {"Makefile": "test:\n\t@echo no tests yet\n"}, ""),
    Project("a target that watches", {"Makefile": "test:\n\tptw -- -q\n"}, ""),
    Project("a target that needs another one", {"Makefile": "test: unit\nunit:\n\tx\n"}, "make test"),
    Project("a step for Windows", {"Makefile": "test:\n\tx\n", ".github/workflows/ci.yml": workflow("      - if: runner.os == 'Windows'\n        run: ctest -C Debug\n      - run: make test\n")}, "make test"),
)  # fmt: skip


@pytest.mark.parametrize("project", PROJECTS, ids=[one.name for one in PROJECTS])
def test_what_is_proposed_first_for_a_project(project: Project) -> None:
    found = suggest(project.files, project.files.get)
    first = found[0] if found else None
    assert (first.command if first else "") == project.command
    if first is not None:
        assert project.setup in first.setup
        assert first.report == project.report
        assert first.confidence < Confidence.SURE, "no file shows that tests run"
        assert "${{" not in f"{first.command}{first.setup}"


@table(
    "command, programs",
    [
        ('A=1 cmake -S . -B build && ctest -j "$PWD"', ["cmake", "ctest"]),
        (".venv/bin/python -m pytest", []),
        ("cd web && npm run test -- --json", ["npm"]),
        ("python3 -m venv .venv && (cd a && poetry install)", ["python3", "poetry"]),
        ("vendor/bin/pest; make test | tee log", ["make", "tee"]),
        ("echo 'it", []),
    ],
)
def test_the_programs_that_a_command_needs(command: str, programs: list[str]) -> None:
    assert programs_of(command) == programs


PYTHON_IN_API = {
    "api/pyproject.toml": "[tool.pytest.ini_options]\n",
    "api/tests/test_a.py": A_TEST,
    "api/a.py": "",
}
NODE_IN_WEB = {"web/package.json": node("jest", test="jest"), "web/a.test.js": "", "web/a.js": ""}
NODE_TEST = f"cd web && npm run test -- {JEST}"


@table(
    "files, unreached",
    [
        ({**PYTHON_IN_API, "api/tests/test_b.py": A_TEST, **NODE_IN_WEB}, (NODE_TEST,)),
        ({**NODE_IN_WEB, "web/b.test.js": "", **PYTHON_IN_API}, (f"cd api && {PYTEST}",)),
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/test_a.py": A_TEST, **NODE_IN_WEB}, (NODE_TEST,)),
        (PYTHON_IN_API, ()),
        ({**PYTHON_IN_API, "web/package.json": node("jest", test="jest"), "web/a.js": ""}, ()),  # it has no tests
        ({"pyproject.toml": "[tool.pytest.ini_options]\n", "tests/test_a.py": A_TEST, **PYTHON_IN_API}, ()),
        ({**NODE_IN_WEB, "app/package.json": node("jest", test="jest"), "app/b.test.js": "", "app/c.test.js": ""}, (NODE_TEST,)),
    ],
)  # fmt: skip
def test_what_a_command_does_not_reach_is_said(files: dict[str, str], unreached: tuple[str, ...]) -> None:
    best = suggest(files, files.get)[0]
    assert best.unreached == unreached
    said = best.evidence.removeprefix(best.source)
    if not unreached:
        assert not said
        return
    whole = f"({best.command}) && ({unreached[0]})"
    assert said == (
        f"; it does not reach the tests of {unreached[0]}: to run all, name --test-command {shlex.quote(whole)}"
    )


def test_a_command_that_may_run_all_tests_is_not_said_to_miss_some() -> None:
    files = {**NODE_IN_WEB, **PYTHON_IN_API, "Makefile": "test:\n\tx\n"}
    assert [one.unreached for one in suggest(files, files.get) if one.command == "make test"] == [()]
