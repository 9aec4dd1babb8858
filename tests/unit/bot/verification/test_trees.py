from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.policy.change_checks import PathPolicy
from orchestrator.bot.verification.trees import TestFiles
from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE, FileChange, FileVersion, is_test_path
from tests.tables import table

if TYPE_CHECKING:
    import random

BASE = dict.fromkeys(
    (
        "app.py",
        "json_tools/__init__.py",
        "src/pkg/__init__.py",
        "src/pkg/core.py",
        "src/pkg/types.py",
        "tests/test_app.py",
        "tests/conftest.py",
        "pkg2/logic_test.py",
        "Makefile",
        "scripts/cover.sh",
    ),
    "100644",
)
FILES = TestFiles(("e2e-specs/", "*.golden.txt"), ("make test && python tools/all.py", "sh prepare-db.sh"))
TEXT = FileVersion("100644", b"x = 1\n", 6)


def added(path: str, content: bytes = b"x = 1\n", mode: str = "100644") -> FileChange:
    return FileChange(path, None, FileVersion(mode, content, len(content)))


def changed(path: str, content: bytes = b"x = 2\n") -> FileChange:
    return FileChange(path, TEXT, FileVersion("100644", content, len(content)))


def removed(path: str) -> FileChange:
    return FileChange(path, TEXT, None)


def restored(*files: FileChange) -> tuple[str, ...]:
    return FILES.restored(files, BASE)


READ_BY_RUNS = [
    "tests/test_app.py",
    "tests/data/expected.json",
    "spec/models/user_spec.rb",
    "__tests__/a.snap",
    "src/__tests__/x.ts",
    "src/a.test.ts",
    "web/__mocks__/fs.js",
    "web/__snapshots__/x.snap",
    "golden/prices.json",
    "lib/fixtures/user.yml",
    "internal/testdata/in.txt",
    "pkg/thing_test.go",
    "src/test/java/ATest.java",
    "conftest.py",
    "sub/conftest.py",
    "e2e-specs/login.txt",
    "any/where.golden.txt",
    "spec_helper.rb",
    "spec/rails_helper.rb",
    "test_helper.rb",
    "jest.setup.js",
    "src/setupTests.ts",
    "test-utils.js",
    "testutils.py",
    "tests.py",
    "vitest.config.ts",
    "jest.config.js",
    "pytest.ini",
    ".pytest.ini",
    "tox.ini",
    "setup.cfg",
    "pyproject.toml",
    "noxfile.py",
    ".coveragerc",
    ".env",
    "phpunit.xml",
    ".rspec",
    ".mocharc.js",
    "karma.conf.js",
    "Makefile",
    "GNUmakefile",
    "Cargo.toml",
    "build.rs",
    "go.mod",
    "pom.xml",
    "build.gradle",
    "package.json",
    "package-lock.json",
    "requirements.txt",
    "requirements-dev.txt",
    "setup.py",
    "Dockerfile",
    ".github/workflows/ci.yml",
    "Rakefile",
    "CMakeLists.txt",
    "foo.egg-info/entry_points.txt",
    "foo.egg-info/PKG-INFO",
    "plug-1.0.dist-info/entry_points.txt",
    "src/x.dist-info/METADATA",
    "zz.pth",
    "sitecustomize.py",
    "usercustomize.py",
    "run_tests.sh",
    "runtests",
    "scripts/test",
    "scripts/run-tests.sh",
    "bin/check",
    "ci/build.sh",
    "tools/all.py",
    "prepare-db.sh",
    "a/b/.hidden/x",
]

CODE = [
    "app.py",
    "src/pkg/core.py",
    "src/pkg/new.py",
    "newmodule.py",
    "newpkg/__init__.py",
    "newpkg/json.py",
    "src/pkg/types_extra.py",
    "src/pkg/json.py",
    "README.md",
    "docs/guide.md",
    "lib/thing.rb",
    "src/main.rs",
    "cmd/main.go",
    "src/App.tsx",
    "scripts/deploy.py",
    "tools/other.py",
    "src/contest.py",
    "latest.py",
    "attestation.py",
    "inspection.py",
    "src/checkout.py",
    "build_info.py",
    "src/testimony/data.py",
    "data/schema.sql",
    "templates/page.html",
]


@table("path", READ_BY_RUNS)
@table("change", [added, changed, removed])
def test_what_a_run_reads_is_the_bases(path: str, change: type) -> None:
    assert restored(change(path)) == (path,)


@table("path", CODE)
@table("change", [added, changed, removed])
def test_code_stays_as_the_change_has_it(path: str, change: type) -> None:
    assert restored(change(path)) == ()


@table(
    "path",
    [
        "pytest.py",
        "_pytest/__init__.py",
        "pytest/__main__.py",
        "pluggy.py",
        "unittest.py",
        "unittest/__init__.py",
        "src/json.py",
        "random.py",
        "lib/os.py",
        "tests/../ast.py",
        "pytest_cov.py",
        "pytest_helper/__init__.py",
        "xdist/plugin.py",
        "coverage.py",
        "pkg2/typing.py",
        "importlib/metadata.py",
        "site.py",
        "pytest.so",
    ],
)
def test_a_new_module_may_not_stand_before_pythons_or_the_runners(path: str) -> None:
    assert restored(added(path)) == (path,)


@table("path", ["src/pkg/types.py", "json_tools/io.py", "newpkg/json.py", "src/pkg/random.py"])
def test_a_module_inside_of_a_package_shadows_nothing(path: str) -> None:
    assert restored(added(path)) == ()


def test_a_new_module_may_not_stand_before_one_that_is_installed() -> None:
    files = [
        added("requests/__init__.py"),
        added("requests/api.py"),
        added("src/numpy.py"),
        added("fresh.py"),
    ]
    found = FILES.restored(files, BASE, {"requests", "numpy"}.__contains__)
    assert found == ("requests/__init__.py", "requests/api.py", "src/numpy.py")


def test_a_module_that_the_base_has_under_such_a_name_is_its_own() -> None:
    base = {**BASE, "types.py": "100644", "calendar/__init__.py": "100644"}
    assert FILES.restored([changed("types.py"), added("calendar/view.py")], base) == ()


@table(
    ("old", "new", "is_read"),
    [
        (b"", b"def pytest_collection_modifyitems(items):\n    items.clear()\n", True),
        (b"", b"class P:\n    def pytest_runtest_makereport(self): ...\n", True),
        (b"", b"pytest_plugins = ['x']\n", True),
        (b"def pytest_addoption(parser): ...\n", b"def pytest_addoption(parser, x): ...\n", False),
        (b"", b"# def pytest_configure\nx = 'pytest_plugins'\n", False),
    ],
)
def test_a_file_that_becomes_a_plug_in_is_not_code(old: bytes, new: bytes, *, is_read: bool) -> None:
    file = FileChange("src/pkg/core.py", FileVersion("100644", old, 1), FileVersion("100644", new, 1))
    assert restored(file) == (("src/pkg/core.py",) if is_read else ())


def test_a_link_or_a_submodule_in_the_place_of_a_folder_is_what_is_in_it() -> None:
    assert restored(added("tests", b"other", LINK_MODE)) == ("tests",)
    assert restored(added("src/pkg/link", b"../../Makefile", LINK_MODE)) == ("src/pkg/link",)
    assert restored(added("vendored", b"0" * 40, SUBMODULE_MODE)) == ("vendored",)


def test_only_tests_are_put_on_the_bases_code() -> None:
    files = [added("tests/test_new.py"), changed("pyproject.toml"), changed("app.py"), added("e2e-specs/x")]
    assert FILES.tests(files) == ("e2e-specs/x", "tests/test_new.py")


RUST = "pub fn add(a: i32) -> i32 {\n    a + 1\n}\n"
RUST_TESTS = "#[cfg(test)]\n#[allow(dead_code)]\nmod tests {\n    use super::*;\n    #[test]\n    fn adds() {\n        assert_eq!(add(1), 2);\n    }\n}\n"
BETTER = RUST.replace("a + 1", "1 + a")
OTHER_TESTS = RUST_TESTS.replace("2)", "3)")


def rust(old: str, new: str, path: str = "src/lib.rs") -> FileChange:
    versions = [FileVersion("100644", text.encode(), len(text)) for text in (old, new)]
    return FileChange(path, *versions)


@table(
    ("old", "new", "kept", "on_base"),
    [
        (
            f"{RUST}\n{RUST_TESTS}",
            f"{BETTER}\n{OTHER_TESTS}",
            f"{BETTER}\n{RUST_TESTS}",
            f"{RUST}\n{OTHER_TESTS}",
        ),
        (f"{RUST}\n{RUST_TESTS}", f"{BETTER}\n{RUST_TESTS}", None, None),
        (f"{RUST}\n{RUST_TESTS}", BETTER, f"{BETTER}{RUST_TESTS}", f"{RUST}\n"),
        (RUST, f"{BETTER}\n{RUST_TESTS}", f"{BETTER}\n", f"{RUST}{RUST_TESTS}"),
        (RUST, BETTER, None, None),
        # What is not laid out as rustfmt does it is code.
        (f"{RUST}{RUST_TESTS}fn more() {{}}\n", f"{BETTER}{OTHER_TESTS}fn more() {{}}\n", None, None),
        (
            f"{RUST}{RUST_TESTS}",
            f"{BETTER}#[cfg(test)]\nmod tests;\n",
            f"{BETTER}#[cfg(test)]\nmod tests;\n{RUST_TESTS}",
            f"{RUST}",
        ),
    ],
)
def test_tests_inside_of_a_source_file(old: str, new: str, kept: str | None, on_base: str | None) -> None:
    file = rust(old, new)
    expected = [{} if text is None else {"src/lib.rs": text.encode()} for text in (kept, on_base)]
    assert [FILES.merged_sources([file]), FILES.merged_sources([file], with_old_code=True)] == expected
    assert FILES.merged_sources([rust(old, new, "tests/all.rs"), rust(old, new, "src/lib.py")]) == {}


@table(
    ("path", "steers"),
    [
        ("requirements.txt", True),
        ("uv.lock", True),
        ("prepare-db.sh", True),
        ("app.py", False),
        ("tests/test_a.py", False),
    ],
)
def test_a_set_up_depends_on_manifests_and_what_it_names(path: str, *, steers: bool) -> None:
    assert FILES.affects_setup(changed(path)) is steers


_NAMES = st.text("abTest_.-/specconftes", min_size=1, max_size=30).filter(lambda path: "//" not in path)


@given(_NAMES)
def test_every_path_of_the_tests_and_every_protected_one_is_restored(path: str) -> None:
    change = changed(path)
    if is_test_path(path) or PathPolicy()(change) is not None:
        assert restored(change) == (path,)


@given(st.lists(_NAMES, max_size=8, unique=True), st.randoms())
def test_a_path_is_judged_by_itself(paths: list[str], source: random.Random) -> None:
    files = [changed(path) for path in paths]
    alone = {path for file in files for path in restored(file)}
    source.shuffle(files)
    assert restored(*files) == tuple(sorted(alone))


def test_a_link_affects_the_set_up_by_its_own_name_or_by_what_is_below_it() -> None:
    assert FILES.affects_setup(added("prepare-db.sh", b"elsewhere", LINK_MODE))
    assert not FILES.affects_setup(added("src/notes", b"elsewhere", LINK_MODE))
