from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.core.errors import ConfigurationError
from orchestrator.guard.protected import PathPolicy

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
    """,
    DOT_FOLDER: """
        .github/dependabot.yml .github/ISSUE_TEMPLATE/bug.md .vscode/settings.json .husky/pre-push
        .devcontainer/x .cargo/config.toml a/b/.claude/settings.local .circleci/config.yml .idea/x .x/y
        sub/.github/workflows/x.yml .codex/instructions.md .githooks/pre-commit .gitlab/x ./.github/x
    """,
    DOT_FILE: """
        .npmrc .yarnrc .yarnrc.yml .pypirc .envrc .env sub/.env.local .pre-commit-config.yaml .mise.toml
        .tool-versions .eslintrc.js .pylintrc .bazelrc .coveragerc .bashrc ... .gitx
    """,
    "a file that names reviewers": "CODEOWNERS docs/CODEOWNERS codeowners OWNERS",
    "a lock file": """
        package-lock.json a/yarn.lock pnpm-lock.yaml bun.lock bun.lockb poetry.lock uv.lock Pipfile.lock
        Cargo.lock go.sum Gemfile.lock composer.lock flake.lock requirements-dev.lock npm-shrinkwrap.json
        deno.lock mix.lock packages.lock.json .terraform.lock.hcl Package.resolved pylock.dev.toml
    """,
    "a manifest of dependencies": """
        package.json web/package.json pyproject.toml setup.py setup.cfg requirements.txt requirements-dev.txt
        dev-requirements.txt requirements/base.txt requirements/ci/base.in Pipfile Cargo.toml go.mod go.work
        Gemfile x.gemspec composer.json pom.xml build.gradle build.gradle.kts settings.gradle x.csproj
        Directory.Packages.props NuGet.Config global.json Package.swift mix.exs pubspec.yaml deno.json
        bunfig.toml gradle.properties stack.yaml tox.ini
    """,
    "an instruction file of agents": """
        AGENTS.md sub/AGENTS.md CLAUDE.md CLAUDE.local.md GEMINI.md .cursorrules .windsurfrules .clinerules
        docs/copilot-instructions.md x.instructions.md skills/x/SKILL.md .mcp.json
    """,
    "a file whose settings git follows": ".gitattributes sub/.gitattributes .gitmodules .lfsconfig",
    "settings of a robot": "renovate.json codecov.yml",
    "settings of this program": "pullwright.toml",
    "inside .git": ".git/config sub/.GIT/hooks/x .git git~1/x .g\u200cit/x .git::$INDEX_ALLOCATION/x .git./x",
}


@pytest.mark.parametrize(
    ("path", "reason"), [(path, reason) for reason, paths in CASES.items() for path in paths.split()]
)
def test_what_waits_for_a_person(path: str, reason: str) -> None:
    assert POLICY(written(path)) == reason
    version = FileVersion("100644", b"x", 1)
    # A removal, and a change of the mode alone.
    assert POLICY(FileChange(path, version, None)) == reason
    assert POLICY(FileChange(path, version, FileVersion("100755", b"x", 1))) == reason


UNTOUCHED = """
    src/main.py README.md docs/guide.md Makefile Dockerfile conftest.py noxfile.py tests/test_x.py
    .gitignore sub/.gitignore .editorconfig .dockerignore package.json.md mypackage.json lock unlock.py
    agents.py claude.py github/workflows/x.yml setup.pyc requirements.md docs/requirements.rst a..b/c x.git/y
    data/env workspace/base.py blocked.md café.py CONVENTIONS.md
    """


@pytest.mark.parametrize("path", UNTOUCHED.split())
def test_what_does_not(path: str) -> None:
    assert POLICY(written(path)) is None


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize("allow", [["*"], ["**"], [".git/**", ".git"], ["x"]])
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


@pytest.mark.parametrize("pattern", ["", "  ", "#x", "/", "!", "[a", "a\\"])
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


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "path",
    ["a/" * 100_000 + "x", "a" * 1_000_000, "package.json/" * 20_000, ".github/" * 30_000, "../" * 100_000],
    ids=range(5),
)
def test_a_hostile_path_does_not_stall_the_check(path: str) -> None:
    POLICY(written(path))
