from __future__ import annotations

import string
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.bot.policy import protected
from orchestrator.bot.policy.protected import PathPolicy
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.core.errors import ConfigurationError
from tests.tables import table

POLICY = PathPolicy()
DOT_FOLDER = "in a folder whose name begins with a dot"
DOT_FILE = "a file whose name begins with a dot"
LEAVES = "a symbolic link that leaves the repository"


def written(path: str, mode: str = "100644", content: bytes | None = b"x") -> FileChange:
    return FileChange(path, None, FileVersion(mode, content, 1))


def link(path: str, target: str) -> FileChange:
    return written(path, LINK_MODE, target.encode("utf-8", "surrogateescape"))


CASES = {
    "a workflow": """
        .github/workflows/ci.yml .github/workflows/x/y .github/actions/a/action.yml action.yml Jenkinsfile
        .gitlab-ci.yml .gitlab-ci-extra.yml azure-pipelines.yml .travis.yml bitbucket-pipelines.yml
        sub/.github/workflows/x.yml .circleci/config.yml buildspec-test.yml plugins.txt ci_scripts/ci_post_clone.sh vercel.json
    """,
    DOT_FOLDER: """
        .github/ISSUE_TEMPLATE/bug.md .vscode/settings.json .devcontainer/x .cargo/config.toml .yarn/plugins/x.cjs
        a/b/.claude/settings.local .idea/x .x/y .codex/instructions.md .gitlab/x ./.github/x .mvn/extensions
        .cursor/rules/x .gemini/settings.json .junie/guidelines.txt .kiro/steering/x .roo/x .devin/x .continue/x
    """,
    DOT_FILE: """
        .npmrc .yarnrc .pypirc .envrc .env sub/.env.local .eslintrc.js .pylintrc .bazelrc .coveragerc .bashrc ...
        .gitx .pnpmfile.cjs .aider.model.settings.yml .rspec .huskyrc .lintstagedrc .user.ini .gdbinit
    """,
    "a file that names reviewers": "CODEOWNERS docs/CODEOWNERS codeowners OWNERS",
    "a lock file": """
        package-lock.json a/yarn.lock pnpm-lock.yaml bun.lock bun.lockb poetry.lock uv.lock Pipfile.lock
        Cargo.lock go.sum Gemfile.lock composer.lock flake.lock requirements-dev.lock npm-shrinkwrap.json
        deno.lock mix.lock packages.lock.json .terraform.lock.hcl Package.resolved pylock.dev.toml
        MODULE.bazel.lock gradle.lockfile nimble.lock
    """,
    "a manifest of dependencies": """
        package.json web/package.json pyproject.toml setup.cfg requirements.txt requirements-dev.txt
        dev-requirements.txt requirements/base.txt a/requirements/ci/base.in Pipfile Cargo.toml go.mod go.work
        Gemfile x.gemspec composer.json pom.xml NuGet.Config Package.swift
        mix.exs pubspec.yaml deno.json bunfig.toml stack.yaml .yarnrc.yml .tool-versions sub/.mise.toml
        .pre-commit-config.yaml Package@swift-5.9.swift gemfiles/rails.gemfile sub/x.gemfile Gemfile.next
        build.zig.zon rust-toolchain rust-toolchain.toml poetry.toml requirements.yml manifest.json devbox.json
        project.yml node_modules/x/index.js web/node_modules/x/index.js Puppetfile DESCRIPTION
    """,
    "run by an installation, a build or a test run": """
        setup.py tox.ini x.csproj build.gradle build.gradle.kts settings.gradle gradle.properties gradlew
        gradlew.bat mvnw mvnw.cmd a/gradle/wrapper/gradle-wrapper.jar binding.gyp a/x.gypi build.rs build.zig
        extconf.rb Rakefile lib/tasks/x.rake Makefile src/Makefile.am x.mk CMakeLists.txt cmake/x.cmake meson.build
        BUILD.bazel a/BUILD WORKSPACE rules/x.bzl Dockerfile x.dockerfile Dockerfile.dev compose.yaml noxfile.py
        sitecustomize.py x.pth Justfile Taskfile.yml SConstruct wscript configure.ac tox.toml book.toml jest.config.js
        a/vitest.config.mts x.config.cts karma.conf.js webpack.prod.js gulpfile.js nx.json turbo.json pytest.ini docs/conf.py
        x.targets global.json Directory.Packages.props Setup.hs config.nims apps/a/config/test.exs build.sbt build.mill magefile.go Tiltfile Vagrantfile
        all.code-workspace App.xcodeproj/project.pbxproj debian/rules PKGBUILD x.spec rubygems_plugin.rb
    """,
    "a hook of git": """
        lefthook.yml lefthook.yaml lefthook-local.toml captainhook.json hk.pkl prek.toml hooks/pre-commit scripts/commit-msg
        githooks/x tools/git-hooks/x simple-git-hooks.cjs .husky/pre-push .githooks/pre-commit
    """,
    "an instruction file of agents": """
        AGENTS.md sub/AGENTS.md CLAUDE.md CLAUDE.local.md GEMINI.md .cursorrules .windsurfrules .clinerules
        docs/copilot-instructions.md x.instructions.md skills/x/SKILL.md .mcp.json mcp_config.json
        .windsurf/mcp_config.json cline_mcp_settings.json .vscode/mcp.json mcp.jsonc opencode.json CRUSH.md firebender.json
    """,
    "a file whose settings git follows": ".gitattributes sub/.gitattributes .gitmodules .lfsconfig",
    "settings of a robot": "renovate.json sub/renovate.json5 codecov.yml .github/dependabot.yml bors.toml",
    "settings of this program": "pullwright.toml",
    "run by a tool of that name": "Strangefile sub/Caddyfile",
    "a path that is too long": "a/" * 2_048 + "x",
    "inside .git": ".git/config sub/.GIT/hooks/x .git git~1/x .g\u200cit/x .git::$INDEX_ALLOCATION/x .git./x",
}


@table(("path", "reason"), [(path, reason) for reason, paths in CASES.items() for path in paths.split()])
def test_what_waits_for_a_person(path: str, reason: str) -> None:
    assert POLICY(written(path)) == reason
    version = FileVersion("100644", b"x", 1)
    # A removal, and a change of the mode alone.
    assert POLICY(FileChange(path, version, None)) == reason
    assert POLICY(FileChange(path, version, FileVersion("100755", b"x", 1))) == reason


UNTOUCHED = """
    src/main.py README.md docs/guide.md conftest.py tests/conftest.py tests/test_x.py src/setup.ts LICENSE
    .gitignore sub/.gitignore .editorconfig .dockerignore package.json.md mypackage.json lock unlock.py
    agents.py claude.py github/workflows/x.yml setup.pyc requirements.md docs/requirements.rst a..b/c x.git/y
    data/env bot/git/base.py blocked.md café.py CONVENTIONS.md makefile.py procfile.go src/file profile Profile.tsx
    src/build/x.py build/x.py hooks/useThing.ts src/app/app.config.ts docs/pre-commit.md data/x.toml mcp/server.py
    main.tf charts/values.yaml index.html k8s/kustomization.yaml roles/x/tasks/main.yml infra/main.bicep thesis.typ
    config.json mkdocs.yml openapi.yaml src/lib.rs b.toml a.json cmd/main.go lib/x.rb src/gradle.kt tsconfig.json config/routes.rb
    """


@table("path", UNTOUCHED.split())
def test_what_does_not(path: str) -> None:
    assert POLICY(written(path)) is None


@table(
    "path",
    [
        *("PACKAGE.JSON", "Package.Json", "package.json.", "package.json ", "package.json::$DATA"),
        *("pac\u200bkage.json", "\u212aey/pac\u212aage.json", "package.js\u2060on", "\ufeffpackage.json"),
        *("\uff50ackage.json", "sub\\package.json", "\u017fetup.py", "se\u0301tup.py", "p\u0131pfile"),
        *(".GitHub/workflows/x", ".github./x", ".git\u200bhub/x", ".github\\workflows\\x", "\uff0egithub/x"),
        *("agents.MD", "AGENTS\u00ad.md", "package.json\udcff"),
    ],
)
def test_other_spellings_of_protected_names(path: str) -> None:
    assert POLICY(written(path)) is not None


@table(
    ("path", "target", "reason"),
    [
        ("x", "src/main.py", None),
        ("docs/x", "../src/main.py", None),
        ("x", ".gitignore", "a symbolic link to a protected path"),
        ("x", "/etc/passwd", LEAVES),
        ("x", "../outside", LEAVES),
        ("x", "..", LEAVES),
        ("a/b/x", "../../../outside", LEAVES),
        ("a/x", "b/../../../outside", LEAVES),
        ("x", "C:/x", LEAVES),
        ("x", "..\\outside", LEAVES),
        ("x", ".git/config", "a symbolic link into .git"),
        ("x", "a/.GIT", "a symbolic link into .git"),
        ("docs/x", "../.github", "a symbolic link to a protected path"),
        ("x", "a/../.github/workflows/ci.yml", "a symbolic link to a protected path"),
        ("x", ".\\.github\\workflows", "a symbolic link to a protected path"),
        ("x", "AGENTS.md", "a symbolic link to a protected path"),
        ("notes.md", "./CLAUDE.MD", "a symbolic link to a protected path"),
        ("CLAUDE.md", "docs/x.md", "an instruction file of agents"),
        (".vscode", "config/editor", DOT_FOLDER),
        (".gitignore", "x", DOT_FOLDER),
    ],
)
def test_links(path: str, target: str, reason: str | None) -> None:
    assert POLICY(link(path, target)) == reason


def test_a_link_that_was_not_read_waits() -> None:
    assert POLICY(written("x", LINK_MODE, None)) == "a symbolic link with a target that is too long"


def test_a_link_that_becomes_a_file_is_judged_by_its_path() -> None:
    old, new = FileVersion(LINK_MODE, b"/etc/passwd", 11), FileVersion("100644", b"x", 1)
    assert POLICY(FileChange("x", old, new)) is None
    assert POLICY(FileChange("x", new, old)) == LEAVES


def test_submodules() -> None:
    old, new = FileVersion(SUBMODULE_MODE, b"0" * 40, 40), FileVersion(SUBMODULE_MODE, b"1" * 40, 40)
    changes = (FileChange("sub", old, new), FileChange("sub", None, new), FileChange("sub", old, None))
    assert {POLICY(change) for change in changes} == {"a submodule"}
    assert POLICY(FileChange("sub", old, FileVersion("100644", b"x", 1))) == "a submodule"
    assert PathPolicy(allow=["sub"])(changes[0]) is None


def test_what_is_allowed_is_let_through_and_no_more() -> None:
    policy = PathPolicy(allow=["package.json", ".github/**", "!.github/workflows/release.yml", "/AGENTS.md"])
    for path in ("package.json", "web/package.json", ".github/workflows/ci.yml", "AGENTS.md"):
        assert policy(written(path)) is None
    for path in (
        *("Package.json", "package-lock.json", "sub/.github/x", ".github/workflows/release.yml"),
        *("sub/AGENTS.md", ".github\u200b/x", ".GitHub/x"),
    ):
        assert policy(written(path)) is not None


@table("allow", [["*"], ["**"], [".git/**", ".git"], ["x"]])
def test_nothing_allows_git_or_a_way_out(allow: list[str]) -> None:
    policy = PathPolicy(allow=allow)
    assert policy(written(".git/config")) == "inside .git"
    assert policy(written("sub/.git")) == "inside .git"
    assert policy(link("x", "/etc/passwd")) == LEAVES
    assert policy(link("x", ".git/config")) == "a symbolic link into .git"
    assert policy(written("x", LINK_MODE, None)) is not None


def test_a_link_needs_both_its_place_and_its_target_allowed() -> None:
    change = link("CLAUDE.md", "AGENTS.md")
    assert PathPolicy(allow=["CLAUDE.md"])(change) == "a symbolic link to a protected path"
    assert PathPolicy(allow=["AGENTS.md"])(change) == "an instruction file of agents"
    assert PathPolicy(allow=["CLAUDE.md", "AGENTS.md"])(change) is None


def test_a_repository_adds_and_cannot_take_away() -> None:
    policy = PathPolicy(more=["infra/**", "*.sql", "!package.json", "Straße/", "we:ird.txt"])
    here = "protected in this repository"
    for path in ("infra/main.tf", "INFRA/Main.tf", "db/x.sql", "x.SQL", "strasse/x", "we:ird.txt"):
        assert policy(written(path)) == here
    assert policy(link("infra", "src")) == here
    assert policy(link("x", "infra")) == "a symbolic link to a protected path"
    assert policy(written("package.json")) is not None
    assert policy(written("src/main.py")) is None
    assert PathPolicy(allow=["infra/main.tf"], more=["infra/**"])(written("infra/main.tf")) is None


@table("pattern", ["", "  ", "#x", "/", "!", "[a", "a\\"])
def test_patterns_that_are_none_are_refused_in_one_line(pattern: str) -> None:
    for arguments in ({"allow": [pattern]}, {"more": [pattern]}):
        with pytest.raises(ConfigurationError) as caught:
            PathPolicy(**arguments)
        assert "\n" not in str(caught.value)


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_path_and_no_target_breaks_it(path: str, target: str) -> None:
    POLICY(written(path))
    POLICY(written(path, LINK_MODE, target.encode("utf-8", "surrogatepass")))


@given(st.sampled_from(["package.json", ".github/workflows/x.yml", "CODEOWNERS"]), st.data())
def test_the_case_of_letters_never_matters(path: str, data: st.DataObject) -> None:
    spelled = "".join(data.draw(st.sampled_from([letter.lower(), letter.upper()])) for letter in path)
    assert POLICY(written(spelled)) is not None


def test_a_large_change_is_judged() -> None:
    changes = [written(f"package{number}/module/deep/file{number}.py") for number in range(2000)]
    assert not any(map(POLICY, changes))


@table(
    "path",
    [
        *(
            "a/" * 100_000 + "x",
            "a" * 1_000_000,
            "package.json/" * 20_000,
            ".github/" * 30_000,
            "../" * 100_000,
        ),
        *(
            "azure" * 800,
            "azurepipeline" * 300,
            "compose" * 500,
            "a-requirements" * 290,
            "src/main/features/" * 220,
        ),
    ],
    ids=range(10),
)
def test_a_hostile_path_does_not_stall_the_check(path: str) -> None:
    POLICY(written(path))


def data_of(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(protected.__file__).with_name(name).read_text("utf-8"))


MANAGERS = data_of("renovate.toml")["managers"]
LEFT_OUT = data_of("protected.toml")["left_out"]
# One strategy for all, so that hypothesis reads each pattern once. A backslash stands for a slash, as on Windows.
LETTERS = st.sampled_from(sorted({*string.printable} - {*string.whitespace, "\\"}))


@pytest.mark.parametrize(
    ("manager", "pattern"), [(manager, one) for manager, patterns in MANAGERS.items() for one in patterns]
)
@given(data=st.data())
@settings(max_examples=10)
def test_what_a_manager_of_renovate_looks_for_waits(manager: str, pattern: str, data: st.DataObject) -> None:
    """Whatever the pattern takes, in any folder where it has no root, in small and in capital letters."""
    path = data.draw(st.from_regex(pattern, alphabet=LETTERS, fullmatch=True))
    if pattern.startswith("(^|/)"):
        path = data.draw(st.sampled_from(["", "sub/", "a/b/"])) + path.removeprefix("/")
    assume(path[0] != "/" and "//" not in path)
    path = data.draw(st.sampled_from([path, path.upper(), path.lower()]))
    assert (POLICY(written(path)) is not None) or manager in LEFT_OUT, path


def test_the_tables_name_managers_that_exist_and_no_file_twice() -> None:
    tables = {name: table for name, table in data_of("protected.toml").items() if name != "left_out"}
    words = [word for table in tables.values() for word in table["files"].split()]
    assert sorted({word for word in words if words.count(word) > 1}) == []
    managers = [one for table in tables.values() for one in table.get("managers", "").split() if one != "*"]
    assert len(managers) == len({*managers})
    assert {*managers} <= set(MANAGERS) - set(LEFT_OUT)


def test_each_manager_that_is_left_out_has_a_reason_and_exists() -> None:
    assert set(LEFT_OUT) < set(MANAGERS)
    assert all(LEFT_OUT.values())


def test_a_link_in_place_of_a_folder_brings_what_would_be_in_it() -> None:
    for path in ("node_modules", "gradle/wrapper", "githooks", "sub/node_modules"):
        assert POLICY(link(path, "src")) is not None
