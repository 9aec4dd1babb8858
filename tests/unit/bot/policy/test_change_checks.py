from __future__ import annotations

import difflib
import string
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.bot.policy import change_checks
from orchestrator.bot.policy.change_checks import ChangeLimits, PathPolicy, places_of_secrets
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.secrets import Redactor
from tests.fuzz.growth import grows
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
    "a file that names reviewers": "CODEOWNERS docs/CODEOWNERS docs\uff0fCODEOWNERS codeowners OWNERS",
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


def test_only_what_a_person_named_is_proposed_against_gitignore() -> None:
    policy = PathPolicy(allow=["dist/**", ".git/**"])
    assert policy.admits("dist/a.js")
    assert not policy.admits("build/a.js")
    assert not policy.admits("dist/.git/config")
    assert not policy.admits(f"dist/{'x' * 5_000}")


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
        "a/" * 100_000 + "x", "a" * 1_000_000, "package.json/" * 20_000, ".github/" * 30_000, "../" * 100_000,
        "azure" * 800, "azurepipeline" * 300, "compose" * 500, "a-requirements" * 290,
        "src/main/features/" * 220,
    ],
    ids=range(10),
)  # fmt: skip
def test_a_hostile_path_does_not_stall_the_check(path: str) -> None:
    POLICY(written(path))


def data_of(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(change_checks.__file__).with_name(name).read_text("utf-8"))


MANAGERS = data_of("renovate.toml")["managers"]
LEFT_OUT = data_of("protected.toml")["left_out"]
# One strategy for all, so that hypothesis reads each pattern once. A backslash stands for a slash, as on Windows.
LETTERS = st.sampled_from(sorted({*string.printable} - {*string.whitespace, "\\"}))


@pytest.mark.parametrize(
    ("manager", "pattern"), [(manager, one) for manager, patterns in MANAGERS.items() for one in patterns]
)
@given(data=st.data())
@settings(max_examples=settings().max_examples // 5)  # of each of some hundred and seventy patterns
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


WIDE = 10**9
LINES = st.lists(st.sampled_from([b"a", b"b", b"", b"cc"]), max_size=8).map(b"\n".join)


def version(content: bytes) -> FileVersion:
    return FileVersion("100644", content, len(content))


def change(old: bytes | None, new: bytes | None) -> FileChange:
    return FileChange("x", None if old is None else version(old), None if new is None else version(new))


def counted(*changes: FileChange) -> tuple[int, int]:
    """Lines and bytes, found by trying limits."""

    def least(make: type[ChangeLimits], name: str) -> int:
        low, high = -1, WIDE
        while high - low > 1:
            middle = (low + high) // 2
            limits = {"files": WIDE, "lines": WIDE, "bytes": WIDE, name: middle}
            low, high = (low, middle) if make(**limits)(changes) is None else (middle, high)
        return high

    return least(ChangeLimits, "lines"), least(ChangeLimits, "bytes")


@table(
    ("old", "new", "expected"),
    [
        (None, b"a\nb\n", (2, 4)),
        (b"a\nb\n", None, (2, 4)),
        (b"a\nb\n", b"a\nc\n", (2, 4)),
        (b"a\n", b"a\na\n", (1, 2)),
        (b"a\nb\n", b"b\na\n", (0, 0)),
        (None, b"", (0, 0)),
        (None, b"no end", (1, 7)),
        (b"same", b"same", (0, 0)),
        (b"\0\1", b"\0\1\2", (0, 5)),
        (b"text\n", b"\0\1", (0, 7)),
        (None, b"a\rb\r", (1, 5)),
    ],
)
def test_what_counts(old: bytes | None, new: bytes | None, expected: tuple[int, int]) -> None:
    assert counted(change(old, new)) == expected


def test_what_was_too_large_to_be_read_counts_whole() -> None:
    large = FileVersion("100644", None, 2_000_000)
    assert counted(FileChange("x", version(b"a\n"), large)) == (0, 2_000_002)
    assert counted(FileChange("x", large, None)) == (0, 2_000_000)


def test_a_change_within_the_limits_is_let_through() -> None:
    limits = ChangeLimits(files=2, lines=3, bytes=6)
    assert limits([change(None, b"a\nb\n"), change(None, b"c\n")]) is None
    assert limits([]) is None


def test_what_is_too_much_is_said_in_one_line_with_the_flag() -> None:
    changes = [change(None, b"a\n" * 1500), change(b"b\n", b"c\n")]
    said = ChangeLimits(files=1, lines=1501, bytes=10)(changes)
    assert said == (
        "the change is too large: 2 changed files, at most 1 are allowed (--max-files); "
        "1,502 added and removed lines, at most 1,501 are allowed (--max-lines); "
        "3,004 added and removed bytes, at most 10 are allowed (--max-bytes)"
    )
    assert ChangeLimits(files=0, lines=WIDE, bytes=WIDE)([change(b"x", b"x")]) is not None


@given(LINES, LINES)
def test_it_is_never_more_than_a_diff_shows(old: bytes, new: bytes) -> None:
    before = old.removesuffix(b"\n").split(b"\n") if old else []
    after = new.removesuffix(b"\n").split(b"\n") if new else []
    codes = difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
    shown = sum(end - start + stop - begin for tag, start, end, begin, stop in codes if tag != "equal")
    lines, _ = counted(change(old, new))
    assert lines <= shown
    assert (lines == 0) == (sorted(before) == sorted(after))


def test_time_is_linear() -> None:
    """A comparison of each line with each is quadratic."""
    limits = ChangeLimits(1, 1, 1)
    piece = "".join(f"line {number}\n" for number in range(7))
    grows(
        lambda text: limits([change(text.encode(), text[::-1].encode())]),
        ("", piece, ""),
        small_chars=100_000,
    )


SECRET = "made-up-" + "value-0123456789"
HOLDS = Redactor([SECRET]).holds_secret


def diff(before: str, after: str, path: str = "a.txt") -> str:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"a/{path}", f"b/{path}"
    )
    return "".join(lines)


def test_an_added_secret_is_named_with_its_place() -> None:
    assert places_of_secrets(diff("one\n", f"one\nkey = {SECRET}\n"), HOLDS) == ["a.txt:2"]


def test_a_secret_that_was_there_before_does_not_count() -> None:
    assert places_of_secrets(diff(f"{SECRET}\none\n", f"{SECRET}\ntwo\n"), HOLDS) == []
    assert places_of_secrets(diff(f"{SECRET}\none\n", "one\n"), HOLDS) == []


def test_a_line_that_looks_like_a_file_header_hides_nothing() -> None:
    assert places_of_secrets(diff("one\n", f"one\n++ {SECRET}\n"), HOLDS) == ["a.txt:2"]


def test_a_key_of_several_lines_is_found() -> None:
    holds = Redactor(["line-one-of-it\nline-two-of-it"]).holds_secret
    after = "one\nline-one-of-it\nline-two-of-it\n"
    assert places_of_secrets(diff("one\n", after), holds) == ["a.txt:2"]


@table("text", ["", "no diff at all\n", "Binary files a/x and b/x differ\n"])
def test_what_adds_nothing_is_clean(text: str) -> None:
    assert places_of_secrets(text, HOLDS) == []


def test_a_diff_that_cannot_be_read_is_looked_at_whole() -> None:
    broken = f"--- a/x\n+++ b/x\n@@ -1,1 +1,9 @@\n+{SECRET}\n"
    assert places_of_secrets(broken, HOLDS) == ["the change"]
    more_lines_than_it_counts = f"--- a/x\n+++ b/x\n@@ -1,0 +1,1 @@\n {SECRET}\n"
    assert places_of_secrets(more_lines_than_it_counts, HOLDS) == ["the change"]
    a_line_without_a_sign = f"--- a/x\n+++ b/x\n@@ -0,0 +1,2 @@\n+one\n{SECRET}\n+two\n"
    assert places_of_secrets(a_line_without_a_sign, HOLDS) == ["the change"]


@table(
    ("text", "places"),
    [
        (f'--- "a/\\303.txt"\n+++ "b/\\303.txt"\n@@ -0,0 +1 @@\n+{SECRET}\n', ["\\303.txt:1"]),
        (f'--- a/x"\n+++ b/x"\n@@ -0,0 +1 @@\n+{SECRET}\n', ['x":1']),
        (f"--- a/x\n+++ b/x\n@@ -1 +0,0 @@\n-{SECRET}\n", []),
        (f"@@ -0,0 +1 @@\n+{SECRET}\n", ["the change"]),
        (f"{SECRET} is no diff\n", ["the change"]),
    ],
)
def test_how_a_diff_is_read(text: str, places: list[str]) -> None:
    assert places_of_secrets(text, HOLDS) == places


def test_of_many_places_five_are_named() -> None:
    many = "".join(diff("", f"{SECRET}\n", f"{number}.txt") for number in range(7))
    assert places_of_secrets(many, HOLDS) == [f"{number}.txt:1" for number in range(5)]


@given(st.lists(st.sampled_from(["one", "++", "--", "@@ -1 +1 @@", "diff --git a/x b/x", ""])), st.data())
def test_no_added_line_hides_a_secret(lines: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(lines)))
    after = [*lines[:at], f"x {SECRET}", *lines[at:]]
    before = "".join(f"{line}\n" for line in lines)
    assert places_of_secrets(diff(before, "".join(f"{line}\n" for line in after)), HOLDS)


def git_diff(folder: Path, files: dict[str, bytes]) -> str:
    """What git says of files that are new."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    for words in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *words], cwd=folder, check=True)
    done = subprocess.run(["git", "diff", "--text", "--cached"], cwd=folder, check=True, capture_output=True)
    return done.stdout.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (f"a\n{SECRET}\n".encode("utf-16"), 2),
        (b"\x00\xff\n" + SECRET.encode(), 2),
        (f'x = "{SECRET[:6]}" +\n  "{SECRET[6:]}"\n'.encode(), 2),
        (b'x = ["ghp" + "_",\n "' + b"a1B2" * 9 + b'"]', 1),
        (f"a\r{SECRET}\u2028\x0c\n".encode(), 1),
        ("\n".join(SECRET).encode(), 1),
    ],
)
def test_what_git_calls_binary_and_what_is_in_parts(tmp_path: Path, content: bytes, line: int) -> None:
    assert places_of_secrets(git_diff(tmp_path, {"f": content}), HOLDS) == [f"f:{line}"]


@pytest.mark.parametrize("name", [f"{SECRET}.txt", f"\u00fc {SECRET}"])
@pytest.mark.parametrize("content", [b"", b"x\n", b"\0"])
def test_the_name_of_a_new_file_counts_and_is_not_repeated(tmp_path: Path, name: str, content: bytes) -> None:
    assert places_of_secrets(git_diff(tmp_path, {name: content}), HOLDS) == ["the name of a file"]


def test_a_new_name_counts_and_an_old_one_does_not() -> None:
    head = f"diff --git a/x b/{SECRET}\nsimilarity index 100%\nrename from x\nrename to {SECRET}\n"
    assert places_of_secrets(head, HOLDS) == ["the name of a file"]
    assert places_of_secrets(diff("a\n", "b\n", SECRET), HOLDS) == []


def test_five_megabytes_are_searched() -> None:
    text = diff("", "".join(f"line {number} of it is here\n" for number in range(180_000)))
    assert places_of_secrets(text, HOLDS) == []


@table("quote", ['"', "'"])
def test_a_list_of_hashes_is_no_secret_and_a_key_in_a_list_is(quote: str) -> None:
    hashes = ", ".join(
        f'"{"0123456789abcdef"[n:] + "9f3b7c"[: n % 6] + "c0ffee1234567890" * 2:.40}"' for n in range(6)
    )
    key = "gh" + "p_" + "a8Kq0Zr3Tn5Wx7Yb2Vc4Md6Fg9Hj1Lp0Qs2R"
    parts = ", ".join(f'"{key[at : at + 9]}"' for at in range(0, len(key), 9))

    def diff(line: str) -> str:
        return f"diff --git a/x.py b/x.py\n--- a/x.py\n+++ b/x.py\n@@ -0,0 +1 @@\n+{line}\n"

    holds = Redactor().holds_secret
    hashes, parts = (text.replace('"', quote) for text in (hashes, parts))
    assert places_of_secrets(diff(f"x = [{hashes}]"), holds) == []
    assert places_of_secrets(diff(f"x = [{parts}]"), holds) == ["x.py:1"]


def test_the_place_is_that_of_the_hunk_with_the_secret() -> None:
    before = "".join(f"{number}\n" for number in range(1, 60))
    after = before.replace("5\n", "5 plain\n", 1).replace("\n50\n", f"\n50 {SECRET}\n")
    assert places_of_secrets(diff(before, after), HOLDS) == ["a.txt:50"]


def test_a_secret_across_hunks_is_named_with_the_first_added_line() -> None:
    before = "".join(f"{number}\n" for number in range(1, 60))
    after = before.replace("\n5\n", "\nline-one-of-it\n", 1).replace("\n50\n", "\nline-two-of-it\n")
    holds = Redactor(["line-one-of-it\nline-two-of-it"]).holds_secret
    assert places_of_secrets(diff(before, after), holds) == ["a.txt:5"]
