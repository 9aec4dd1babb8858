"""The check of a whole change: what it says, what it cannot read, and that nothing crashes or stalls it."""

from __future__ import annotations

import ast
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.core.changes import LINK_MODE, FileChange, FileVersion
from orchestrator.core.test_paths import is_test_path
from orchestrator.guard.integrity import Finding, weakened_tests

TEST = """
import pytest

CASES = [1, 2]

class TestTotal:
    @pytest.mark.parametrize("n", CASES)
    def test_total(self, n):
        with pytest.raises(ValueError, match="x"):
            total(None)
        assert total([n]) == n and n

def test_other():
    if True:
        assert total([]) == 0
"""


def version(text: str | bytes | None, mode: str = "100644") -> FileVersion | None:
    if text is None:
        return None
    content = text.encode() if isinstance(text, str) else text
    return FileVersion(mode, content, len(content))


def change(path: str, old: str | bytes | None, new: str | bytes | None) -> FileChange:
    return FileChange(path, version(old), version(new))


def told(*changes: FileChange) -> list[str]:
    return [str(one) for one in weakened_tests(changes)]


def test_a_finding_says_where_and_what() -> None:
    old = "def test_total():\n    x = total()\n    assert x == 3\n    assert x.ok\n"
    new = "def test_total():\n    x = total()\n    assert x in {3, 4}\n    assert x.ok\n"
    assert told(change("tests/test_a.py", old, new)) == [
        "tests/test_a.py:3: test_total: assertion loosened: `==` became `in`"
    ]


@pytest.mark.parametrize(
    ("path", "old", "new", "expected"),
    [
        ("a_test.py", "def test_a():\n    assert x == 1\n", "", "a_test.py:1: test_a: test removed"),
        (
            "a_test.py",
            "\n\ndef test_a():\n    assert x == 1\n",
            None,
            "a_test.py:1: test file removed, with 1 test",
        ),
        (
            "test_a.py",
            "def test_a():\n    assert x == 1\n",
            "import pytest\n@pytest.mark.xfail\ndef test_a():\n    assert x == 1\n",
            "test_a.py:2: test_a: xfail marker added",
        ),
        (
            "test_a.py",
            "import pytest\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n):\n    assert n == f(n)\n",
            "import pytest\n@pytest.mark.parametrize('n', [1])\ndef test_a(n):\n    assert n == f(n)\n",
            "test_a.py:3: test_a: cases reduced from 2 to 1",
        ),
        ("Makefile", "test:\n\tpytest\n", "test:\n\tpytest || true\n", "Makefile:2: `|| true` added"),
        (
            "pyproject.toml",
            "[tool.coverage.report]\nfail_under = 90\n",
            "# less\n[tool.coverage.report]\nfail_under = 80\n",
            "pyproject.toml:3: coverage threshold fail_under lowered from 90 to 80",
        ),
    ],
)
def test_what_a_finding_says(path: str, old: str, new: str | None, expected: str) -> None:
    assert told(change(path, old, new)) == [expected]


def test_a_class_that_is_skipped_is_told_once() -> None:
    body = "class TestA:\n" + "".join(
        f"    def test_{n}(self):\n        assert f({n}) == {n}\n" for n in range(9)
    )
    assert told(change("test_a.py", body, f"import pytest\n@pytest.mark.skip\n{body}")) == [
        "test_a.py:2: TestA.test_0: skip marker added"
    ]


def test_a_test_file_that_is_too_large_or_a_link_is_a_finding() -> None:
    large = FileChange("tests/test_a.py", version(TEST), FileVersion("100644", None, 2_000_000))
    assert told(large) == ["tests/test_a.py:1: too large to check"]
    link = FileChange("tests/test_a.py", version(TEST), version("../elsewhere.py", LINK_MODE))
    assert "tests/test_a.py:1: replaced by a link" in told(link)
    assert told(FileChange("data.bin", None, FileVersion("100644", None, 2_000_000))) == []


@pytest.mark.parametrize(
    "broken",
    [
        b"def test_total(:\n",
        b"\0" + TEST.encode(),
        b"# coding: nothing\n" + TEST.encode(),
        TEST.encode() + b"\xff\xfe",
        b"x = " + b"(" * 100_000,
        b"x = " + b"-" * 100_000 + b"1",
        b"x = " + b"+".join([b"1"] * 100_000),
        b"x = " + b".a" * 100_000,
        b"def f():\n" + b"".join(b" " * n + b"if x:\n" for n in range(1, 90)) + b" " * 90 + b"assert (" * 300,
    ],
    ids=range(9),
)
def test_a_test_that_cannot_be_read_any_more_is_a_finding(broken: bytes) -> None:
    found = weakened_tests([change("tests/test_a.py", TEST, broken)])
    assert any("cannot be read" in one.what or "removed" in one.what for one in found)


def test_nested_settings_are_read_or_a_finding() -> None:
    for deep in (b"[" * 100_000, b'{"a":' * 100_000):
        assert told(change("package.json", b"{}", deep)) == ["package.json:1: cannot be read any more"]


def test_there_are_at_most_fifty() -> None:
    body = "".join(f"def test_{n}():\n    assert f({n}) == g{n}()\n" for n in range(80))
    found = weakened_tests([change("test_a.py", body, "x = 1\n")])
    assert len(found) == 50
    assert found[-1].what == "and 31 more findings from here on"


def test_findings_are_sorted_and_the_same_in_any_order() -> None:
    changes = [change(f"test_{name}.py", TEST, "x = 1\n") for name in "cab"]
    assert weakened_tests(changes) == sorted(weakened_tests(changes[::-1]))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("tests/unit/a.py", True),
        ("src/a.test.ts", True),
        ("pkg/a_test.go", True),
        ("src/test/java/ATest.java", True),
        ("spec/a_spec.rb", True),
        ("conftest.py", True),
        ("shop/contest.py", False),
        ("shop/latest.go", False),
        ("README.md", False),
    ],
)
def test_which_paths_are_tests(path: str, expected: bool) -> None:  # noqa: FBT001  a table of cases
    assert is_test_path(path) is expected


PATHS = st.sampled_from([
    "tests/test_a.py", "conftest.py", "shop.py", "a.test.ts", "a_test.go", "src/lib.rs", "ATest.java", "a_spec.rb",
    "ATest.php", "Makefile", ".github/workflows/ci.yml", "pyproject.toml", "setup.cfg", "package.json", "tsconfig.json",
    "jest.config.js", "run.sh", "codecov.yml", "\udcff_test.py", "tests/a\nb_test.py",
])  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(PATHS, st.binary(max_size=300) | st.none(), st.binary(max_size=300) | st.none())
def test_any_bytes_are_answered(path: str, old: bytes | None, new: bytes | None) -> None:
    assert all(isinstance(one, Finding) for one in weakened_tests([change(path, old, new)]))


KEYS = st.sampled_from([
    "tool", "pytest", "ini_options", "addopts", "jest", "scripts", "test", "rules", "overrides", "module", "strict",
    "coverageThreshold", "lines", "ignore", "select", "filterwarnings", "compilerOptions", "fail_under", "report",
])  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-3, 200)
    | st.sampled_from(["off", "error", "-k 'not a'", "--cov-fail-under=9", "90%"])
)
SETTINGS = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, SETTINGS, max_size=4), st.dictionaries(KEYS, SETTINGS, max_size=4))
def test_settings_of_any_form_are_answered(old: dict[str, object], new: dict[str, object]) -> None:
    found = weakened_tests([change("package.json", json.dumps(old), json.dumps(new))])
    assert all("cannot be read" not in one.what for one in found)


def edit(text: str, start: int, length: int, put: str) -> str:
    start %= len(text)
    return text[:start] + put + text[start + length :]


PIECES = st.sampled_from(
    ["", "\n", " ", "(", ")", ":", "or True", "not ", "None", "'", '"', "\\", "#", "if 0:", "@", "[]"]
)
EDITS = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 30), PIECES), min_size=1, max_size=5)


@settings(max_examples=300, deadline=None)
@given(EDITS)
def test_mutated_python_is_answered(edits: list[tuple[int, int, str]]) -> None:
    text = TEST
    for start, length, put in edits:
        text = edit(text or " ", start, length, put)
    found = weakened_tests([change("tests/test_a.py", TEST, text)])
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        assert found
    assert all(one.line >= 1 and "\0" not in one.what for one in found)


ASSERTS = ["    assert f({n}) == {n}\n", "    assert {n} in f({n})\n", "    assert g({n}).a is None\n"]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=6), st.data())
def test_an_assertion_taken_away_is_always_found(kinds: list[int], data: st.DataObject) -> None:
    lines = [ASSERTS[kind].format(n=number) for number, kind in enumerate(kinds)]
    gone = data.draw(st.integers(0, len(lines) - 1))
    old = "def test_a():\n    x = 1\n" + "".join(lines)
    new = "def test_a():\n    x = 1\n" + "".join(lines[:gone] + lines[gone + 1 :])
    assert any("assertion removed" in one.what for one in weakened_tests([change("test_a.py", old, new)]))


@settings(max_examples=100, deadline=None)
@given(st.permutations(range(6)), st.integers(0, 6))
def test_tests_in_another_order_or_another_file_are_no_finding(order: list[int], moved: int) -> None:
    tests = [f"def test_{n}():\n    x = f{n}()\n    assert x.a == {n}\n" for n in range(6)]
    shuffled = [tests[n] for n in order]
    one = change("test_a.py", "".join(tests), "".join(shuffled[moved:]))
    other = change("test_b.py", None, "".join(shuffled[:moved]))
    assert weakened_tests([one, other]) == []


def repeated(size: int, suffix: str) -> bytes:
    bodies = {
        "py": "def test_{n}():\n    x = total([{n}])\n    assert x == {n}\n    assert x.name != 'a'\n",
        "ts": 'it("does {n}", () => {{\n  expect(total({n})).toBe({n});\n}});\n',
    }
    parts, length, number = [], 0, 0
    while length < size:
        parts.append(bodies[suffix].format(n=number))
        length += len(parts[-1])
        number += 1
    return "".join(parts).encode()


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "suffix", "size"), [("test_a.py", "py", 120_000), ("a.test.ts", "ts", 400_000)]
)
def test_time_is_linear(path: str, suffix: str, size: int) -> None:
    """Thousands of tests, all of another name: a comparison of each with each takes minutes."""
    old = repeated(size, suffix)
    found = weakened_tests(
        [change(path, old, old.replace(b"total", b"sum_of").replace(b"test_", b"test_it_"))]
    )
    assert not any("too large" in one.what for one in found)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("Makefile", "|| true" * 40_000),
        ("Makefile", "a | b " * 40_000),
        ("a.test.ts", '"\\' * 100_000),
        ("a.test.ts", "/*" * 100_000),
        ("a.test.ts", "expect(" * 40_000),
        ("a.test.ts", "it('a')\n" * 20_000),
        ("tests/test_a.py", "class TestA:\n pytestmark = skip\n def test_a(): pass\n" * 1_000),
        ("a.test.ts", ("/* \n" * 50_000)),
        ("tests/test_a.py", "x = '" + "\\'" * 100_000),
        ("package.json", '{"a": "' + "-k " * 80_000 + '"}'),
        ("package.json", '{"scripts": {"test": "' + "-k " * 80_000 + '"}}'),
        ("package.json", "{" + "," + " " * 200_000 + "x"),
        ("setup.cfg", "[flake8]\nignore = " + "a," * 80_000),
        ("codecov.yml", "target: 1\n" * 30_000),
        ("shop.py", "# noqa " * 40_000),
    ],
    ids=range(15),
)
def test_no_line_stalls_the_check(path: str, line: str) -> None:
    weakened_tests([change(path, "x\n", line)])
    weakened_tests([change(path, line, "x\n")])


def test_python_that_takes_too_long_is_a_finding() -> None:
    source = "".join(f"def test_{n}():\n    assert total([{n}, {n}]) == {n}\n" for n in range(12_000))
    found = weakened_tests([FileChange("tests/test_a.py", version(source), version(source + "x = 1\n"))])
    assert [str(one) for one in found] == ["tests/test_a.py:1: too large to check"]


def test_many_large_files_of_python_are_a_finding() -> None:
    """Here they are quick to read; the limit counts bytes."""
    source = "def test_a():\n    assert total()\n" + "# more words\n" * 18_000
    changes = [
        FileChange(f"tests/test_{n}.py", version(source), version(source + "x = 1\n")) for n in range(6)
    ]
    told = [str(one) for one in weakened_tests(changes)]
    assert told == ["tests/test_4.py:1: too large to check", "tests/test_5.py:1: too large to check"]
