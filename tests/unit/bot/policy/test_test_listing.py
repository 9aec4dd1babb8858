"""What a change does to tests by its text: names that vanish, reasons to be skipped, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.policy.test_listing import TestListing, list_tests
from orchestrator.core.changes import LINK_MODE, FileChange, FileVersion
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

ONE = "def test_total():\n    assert total([1, 2]) == 3\n"
TWO = ONE + "\ndef test_empty():\n    assert total([]) == 0\n"
CLASS = "class TestTotal:\n    def test_total(self):\n        assert total([1, 2]) == 3\n"
CASE = f"import unittest\n\n{CLASS}".replace("TestTotal", "TotalTest(unittest.TestCase)")
DECORATED = "def test_a():\n    @one\n    def inner():\n        return 1\n    assert inner()\n"
PATH = "tests/test_a.py"


def version(text: str | bytes | None, mode: str = "100644") -> FileVersion | None:
    if text is None:
        return None
    content = text.encode() if isinstance(text, str) else text
    return FileVersion(mode, content, len(content))


def change(path: str, old: str | bytes | None, new: str | bytes | None) -> FileChange:
    return FileChange(path, version(old), version(new))


def listed(old: str | bytes | None, new: str | bytes | None, path: str = PATH) -> TestListing:
    return list_tests([change(path, old, new)])


@table(
    ("old", "new", "gone"),
    [
        (TWO, ONE, ["test_empty"]),
        (TWO, None, ["test_empty", "test_total"]),
        (ONE, ONE.replace("test_", "check_"), ["test_total"]),
        (CLASS, CLASS.replace("TestTotal", "CheckTotal"), ["TestTotal.test_total"]),
        (CASE, CASE.replace("(unittest.TestCase)", ""), ["TotalTest.test_total"]),
        (ONE, "def test_sums():\n    assert 1 + 1 == 2\n", ["test_total"]),
        (ONE, f"{ONE}\ndel test_total\n", ["test_total"]),
        (ONE, f"{ONE}\ntest_total = None\n", ["test_total"]),
        (CLASS, f"{CLASS}\nclass TestTotal:\n    pass\n", ["TestTotal.test_total"]),
        (ONE, f"if False:\n    {ONE.replace('    ', '        ')}", ["test_total"]),
        (ONE, f"if __name__ == '__main__':\n    {ONE.replace('    ', '        ')}", ["test_total"]),
        (ONE, f"def outer():\n    {ONE.replace('    ', '        ')}", ["test_total"]),
        (ONE, f"if TYPE_CHECKING:\n    {ONE.replace('    ', '        ')}", ["test_total"]),
        (ONE, f"if typing.TYPE_CHECKING:\n    {ONE.replace('    ', '        ')}", ["test_total"]),
        (DECORATED, DECORATED.replace("test_a", "test_b").replace("@one", "@two"), ["test_a"]),
    ],
)
def test_a_test_that_vanished_is_named(old: str, new: str | None, gone: list[str]) -> None:
    found = listed(old, new)
    assert [str(place) for place in found.vanished] == [f"{PATH}: {name} is gone" for name in gone]
    assert not found.skipped


@table(
    ("old", "new"),
    [
        (ONE, TWO),
        (ONE, ONE.replace("test_total", "test_of_two")),
        (ONE, CLASS),
        (CLASS, CLASS.replace("TestTotal", "TestSum")),
        (CLASS, CASE),
        (ONE, ONE.replace("def", "async def")),
        (ONE, ONE.replace("3", "4")),
        (ONE, f"try:\n    import numpy\nexcept ImportError:\n    numpy = None\n\n{ONE}"),
        (ONE, "if numpy:\n    " + ONE.replace("    ", "        ")),
        (ONE, "if numpy and scipy:\n    " + ONE.replace("    ", "        ")),
        (ONE, f"import pytest\n\nneeds, made = pytest.importorskip, make()\n\n{ONE}"),
        (ONE, f"import pytest\n\nneeds = pytest.importorskip\n\n{ONE}"),
        (ONE, f"import pytest\n\nmade = make()\n\n{ONE}"),
        (ONE, f"import pytest\n\ndef leave():\n    pytest.skip()\n\n{ONE}"),
        (ONE, "import pytest\n\n" + ONE.replace("assert", "leave = pytest.skip\n    assert")),
        (DECORATED, DECORATED.replace("test_a", "test_b")),
        (ONE, f"import pytest\n\nslow = pytest.mark.skip\n\n{ONE}"),
        (ONE, f"import pytest\n\n{ONE}\n@pytest.mark.skip\ndef test_new():\n    pass\n"),
        (ONE, ONE.replace("assert", "lexer.skip()\n    assert")),
        ("def test_a(): assert f() == 1\n", "def test_b(): assert f() == 1\n"),
    ],
)
def test_a_test_that_only_changed_moved_or_is_new_is_not_listed(old: str, new: str) -> None:
    found = listed(old, new)
    assert (found.vanished, found.skipped, found.unreadable) == ((), (), ())
    assert [one.path for one in found.files] == [PATH]


HEAD = "import unittest\nimport pytest\nfrom pytest import mark as m\n"
SKIPPED = [
    f"{HEAD}@pytest.mark.skip\n{ONE}",
    f"{HEAD}@pytest.mark.xfail(reason='later')\n{ONE}",
    f"{HEAD}@m.skipif(True)\n{ONE}",
    f"{HEAD}later = pytest.mark.skip\n@later\n{ONE}",
    f"{HEAD}@unittest.expectedFailure\n{ONE}",
    f"from unittest import skip as passing\n@passing\n{ONE}",
    f"{HEAD}@pytest.mark.parametrize('n', [pytest.param(1, marks=pytest.mark.skip)])\n{ONE}",
    f"{HEAD}pytestmark = pytest.mark.skip\n{ONE}",
    f"{HEAD}pytestmark: object = [pytest.mark.slow, pytest.mark.skipif(1)]\n{ONE}",
    f"{HEAD}if True:\n    pytest.skip(allow_module_level=True)\n{ONE}",
    f"{HEAD}numpy = pytest.importorskip('nowhere')\n{ONE}",
    f"{HEAD}raise unittest.SkipTest\n{ONE}",
    f"{HEAD}__test__ = False\n{ONE}",
    f"{HEAD}def setup_module():\n    pytest.skip()\n{ONE}",
    f"{HEAD}@pytest.fixture(autouse=True)\ndef ready():\n    pytest.skip()\n{ONE}",
    f"{HEAD}@noted\n@pytest.fixture(autouse=True)\ndef ready():\n    pytest.skip()\n{ONE}",
    f"{HEAD}@pytest.mark.skipif(version() < 1.5)\n{ONE}",
    f"{HEAD}@pytest.mark.skipif(version() is None)\n{ONE}",
    HEAD + ONE.replace("assert", "pytest.skip()\n    assert"),
    HEAD + ONE.replace("assert", "raise unittest.SkipTest('later')\n    assert"),
]


@table("new", SKIPPED)
def test_a_test_with_a_new_reason_to_be_skipped_is_named(new: str) -> None:
    found = listed(HEAD + ONE, new)
    (place,) = found.skipped
    assert place.what == "test_total may be skipped now"
    assert new.splitlines()[place.line - 1].startswith("def test_total")
    assert found.vanished == ()
    assert listed(new, new.replace("total([1, 2])", "sum_of([1, 2])")).notes == ()
    assert listed(new, HEAD + ONE).notes == ()


@table(
    "new",
    [
        f"{HEAD}@unittest.skip('later')\n{CLASS}",
        CLASS.replace("    def", "    pytestmark = pytest.mark.skip\n    def", 1),
        CLASS.replace("    def", "    __test__ = False\n    def", 1),
        CLASS.replace(
            "    def", "    pytestmark = pytest.mark.skip\n    class TestNone:\n        pass\n    def", 1
        ),
        CLASS.replace("    def", "    def setUp(self):\n        self.skipTest('later')\n\n    def", 1),
    ],
)
def test_what_skips_a_class_skips_its_tests(new: str) -> None:
    assert [one.what for one in listed(CLASS, new).skipped] == ["TestTotal.test_total may be skipped now"]


def test_a_reason_that_is_reworded_is_none_and_another_condition_is_one() -> None:
    old = f"{HEAD}@pytest.mark.skipif(sys.version_info < (3, 8), reason='old')\n{ONE}"
    assert not listed(old, old.replace("'old'", "'too old'")).skipped
    assert listed(old, old.replace("(3, 8)", "(3, 99)")).skipped
    assert listed(old, old.replace("<", ">")).skipped


def test_what_skips_a_class_skips_the_tests_of_the_classes_in_it() -> None:
    inner = "class TestAll:\n" + "".join(f"    {line}\n" for line in CLASS.splitlines())
    marked = inner.replace("    class", "    pytestmark = pytest.mark.skip\n    class", 1)
    names = [one.what for one in listed(inner, marked).skipped]
    assert names == ["TestAll.TestTotal.test_total may be skipped now"]


@table("marked", [1, 2])
def test_of_two_copies_a_test_moved_to_the_one_that_runs(marked: int) -> None:
    skip = f"import pytest\n\npytestmark = pytest.mark.skip\n\n{ONE}"
    copies = [change(f"tests/test_{n}.py", None, skip if n == marked else ONE) for n in (1, 2)]
    assert list_tests([change(PATH, ONE, None), *copies]).skipped == ()


def test_files_that_say_nothing_hide_none_after_them() -> None:
    nothing = [change("tests/test_b.py", ONE, ONE), change("README.md", "a", "b")]
    assert len(list_tests([*nothing, change(PATH, ONE, None)]).vanished) == 1
    assert listed(TWO, ONE).lost == (f"{PATH}: test_empty is gone",)


def test_tests_of_other_languages_are_lost_where_there_are_fewer_in_all() -> None:
    def lost(*counts: tuple[int, int]) -> list[str]:
        changes = [
            change(f"{n}.test.ts", f"// {n}\n" + "it('a', f)\n" * old, "it('a', f)\n" * new)
            for n, (old, new) in enumerate(counts)
        ]
        return [line.partition(":")[0] for line in list_tests(changes).lost]

    assert lost((3, 1), (1, 2), (1, 1)) == ["0.test.ts"]
    assert lost((2, 1), (1, 2)) == []
    assert lost((2, 1), (0, 0)) == ["0.test.ts"]
    assert lost((1, 0), (0, 0)) == ["0.test.ts"]
    assert lost((0, 1), (1, 0)) == []


def test_a_test_that_moved_to_another_file_and_is_skipped_there_is_skipped() -> None:
    marked = f"import pytest\n\npytestmark = pytest.mark.skip\n\n{ONE}"
    found = list_tests([change(PATH, ONE, None), change("tests/test_b.py", None, marked)])
    assert [str(one) for one in found.skipped] == ["tests/test_b.py:5: test_total may be skipped now"]
    assert list_tests([change(PATH, ONE, None), change("tests/totals.py", None, ONE)]).vanished


@given(st.permutations(range(6)), st.integers(0, 6))
def test_the_order_and_the_file_of_tests_do_not_matter(order: list[int], moved: int) -> None:
    tests = [f"def test_{n}():\n    x = f{n}()\n    assert x.a == {n}\n" for n in range(6)]
    shuffled = [tests[n] for n in order]
    one = change("test_a.py", "".join(tests), "".join(shuffled[moved:]))
    other = change("test_b.py", None, "".join(shuffled[:moved]))
    assert list_tests([one, other]).notes == ()


COLLECTED = """
import unittest, pytest
def test_a(): pass
def testb(): pass
def check_c(): pass
class TestD:
    def test_e(self): pass
    def check(self): pass
    class TestF:
        def test_g(self): pass
class Helper:
    def test_h(self): pass
class Case(unittest.TestCase):
    def test_i(self): pass
if False:
    def test_j(): pass
try:
    def test_k(): pass
finally:
    def test_l(): pass
def test_a(): "the last one counts"
test_m = test_a
del testb
"""


def test_the_tests_are_those_that_pytest_collects(tmp_path: Path) -> None:
    """Pytest is the oracle, but for a value that is a function: `test_m` has no text of its own."""
    (tmp_path / "test_x.py").write_text(COLLECTED)
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "test_x.py"]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=True)
    ids = [line.partition("::")[2].replace("::", ".") for line in done.stdout.splitlines() if "::" in line]
    found = listed(COLLECTED, None, "test_x.py").vanished
    assert sorted(place.what.removesuffix(" is gone") for place in found) == sorted({*ids} - {"test_m"})
    assert len(ids) > 6


@table(
    ("path", "test"),
    [
        ("src/a.test.ts", 'it("adds", () => {\n  expect(1).toBe(1);\n});\n'),
        ("src/a.spec.js", "test.each([1])('adds', () => {});\n"),
        ("a_test.go", "func TestAdds(t *testing.T) {\n}\n"),
        ("src/lib.rs", "    #[tokio::test]\n    fn adds() {}\n"),
        ("src/test/java/ATest.java", "  @Test\n  void adds() {}\n"),
        ("A.Tests/ATests.cs", "  [Fact]\n  public void Adds() {}\n"),
        ("spec/a_spec.rb", "  it 'adds' do\n  end\n"),
        ("tests/ATest.php", "  public function testAdds(): void {}\n"),
        ("test/a.bats", '@test "adds" {\n}\n'),
    ],
)
def test_tests_of_other_languages_are_counted(path: str, test: str) -> None:
    (one,) = listed(test * 3, test, path).files
    assert (one.before, one.after) == (3, 1)
    (note,) = listed(test * 3, test, path).lost
    assert note.startswith(f"{path}: changed by +0 -")
    assert note.endswith("tests declared: 3 before, 1 now")
    assert listed(test, test * 3, path).lost == ()
    (none,) = listed(test, "\n", path).lost
    assert none.endswith("tests declared: 1 before, 0 now")
    moved = [change(path, test * 2, test), change(f"more/{path}", None, test)]
    assert list_tests(moved).lost == ()


@table(
    ("text", "what"),
    [
        ("import pytest\n", "imports pytest"),
        ("from unittest.mock import ANY\n", "imports unittest.mock"),
        ("import _pytest.runner as r\n", "imports _pytest.runner"),
        ("import os\nQUIET = 'PYTEST_CURRENT_TEST' in os.environ\n", "names 'PYTEST_CURRENT_TEST'"),
        ("import sys\nQUIET = 'pytest' in sys.modules\n", "uses sys.modules"),
        ("import os\ndef f():\n    os._exit(0)\n", "uses os._exit"),
        ("from os import _exit as leave\ndef f():\n    leave(0)\n", "uses os._exit"),
        ("import atexit as a\na.register(print)\n", "uses atexit.register"),
        ("import inspect\nprint(inspect.stack()[1].function)\n", "uses inspect.stack"),
        ("import sys\nleave = sys._getframe\n", "uses sys._getframe"),
        ("class A:\n    def __eq__(self, other):\n        return True\n", "A is equal to everything"),
        ("class A:\n    '''Doc.'''\n    __eq__ = lambda self, other: 1\n", "A is equal to everything"),
        (
            "class A:\n    def __ne__(self, other):\n        'Doc.'\n        return False\n",
            "A is equal to everything",
        ),
    ],
)
def test_code_that_reaches_for_the_runner_is_noted_with_its_line(text: str, what: str) -> None:
    found = listed("x = 1\n", f"x = 1\n{text}", "shop/total.py").runner_uses
    assert what in [place.what for place in found]
    assert all(place.line > 1 for place in found)
    assert str(found[0]).startswith("shop/total.py:")
    assert listed(text, f"{text}x = 1\n", "shop/total.py").notes == ()
    assert listed("", text, PATH).runner_uses == ()


def test_what_is_used_more_often_than_before_is_noted_so_many_times() -> None:
    old, new = ("import sys\n" + "sys.modules\n" * count for count in (2, 4))
    notes = listed(old, new, "shop/total.py").runner_uses
    assert [(place.line, place.what) for place in notes] == [(4, "uses sys.modules"), (5, "uses sys.modules")]


def test_honest_code_is_not_noted() -> None:
    text = (
        "import os, sys, inspect\nfrom .pytest import x\nNAME = 'pytest'\nsys.exit(0)\ninspect.signature(x)\n"
        "class A:\n    def __eq__(self, other):\n        return self.x == other.x\n"
    )
    assert listed("", text, "shop/total.py").notes == ()


@table("path", ["pytest.py", "src/_pytest/__init__.py", "sitecustomize.py"])
def test_a_new_module_with_the_name_of_a_runner_is_noted(path: str) -> None:
    assert listed(None, "x = 1\n", path).runner_uses
    assert not listed("x = 1\n", "x = 2\n", path).runner_uses


def test_a_listing_is_lines_and_says_how_many_are_left_out() -> None:
    many = "".join(f"def test_{n}():\n    assert f({n})\n" for n in range(80))
    found = listed(many, many.replace("test_7", "check_7"))
    assert len(found.vanished) == 11
    assert found.lines()[-1] == f"{PATH}: changed by +11 -11 lines; tests declared: 80 before, 69 now"
    lines = listed(many, None).lines()
    assert (len(lines), lines[-1]) == (50, "and 32 more")
    assert listed(None, None, "README.md").lines() == []
    few = "".join(f"def test_{n}():\n    assert f({n})\n" for n in range(49))
    assert len(lines := listed(few, None).lines()) == 50
    assert lines[-1] == f"{PATH}: changed by +0 -98 lines; tests declared: 49 before, 0 now"
    assert listed(few, None).lines(beside_runs=True) == []
    noted = listed("", "import pytest\n", "shop/total.py")
    assert noted.lines(beside_runs=True) == noted.lines() == ["shop/total.py:1: imports pytest"]


@table(
    ("old", "new"),
    [
        (version(ONE), version("def test_total(:\n")),
        (version("print 'two'\n"), version(ONE)),
        (version(ONE), version(b"\xff\xfe")),
        (version(ONE), version("x = " + "(" * 5000 + ")" * 5000 + "\n")),
        (version(ONE), version("x = " + "-" * 100_000 + "1\n")),
        (version(ONE), FileVersion("100644", None, 10**9)),
        (version(ONE), version(ONE + "#" * 600_000)),
    ],
)
@table("path", [PATH, "shop/total.py"])
def test_what_cannot_be_read_is_said(old: FileVersion, new: FileVersion, path: str) -> None:
    (place,) = list_tests([FileChange(path, old, new)]).unreadable
    assert "cannot be read" in str(place)


def test_a_change_of_too_much_python_is_said() -> None:
    text = ONE + "# more words\n" * 18_000
    changes = [change(f"tests/test_{n}.py", text, f"{text}x = 1\n") for n in range(10)]
    assert [one.path for one in list_tests(changes).unreadable] == ["tests/test_8.py", "tests/test_9.py"]


def test_a_test_that_became_a_link_is_gone() -> None:
    found = list_tests([FileChange(PATH, version(ONE), version("../x.py", LINK_MODE))])
    assert [place.what for place in found.vanished] == ["test_total is gone"]


MANY = 5_000
TESTS = "".join(f"def test_{n}(): f({n})\n" for n in range(MANY))
LARGE = [
    (PATH, TESTS),
    (PATH, "import pytest\n" + "".join(f"pytest.skip('', a{n})\n" for n in range(MANY)) + TESTS),
    (PATH, f"class Test{'x' * 200_000}:\n" + TESTS.replace("def", " def")),
    (PATH, "a = b.c\n" + "".join(f"a{n + 1} = a{n}.x\n" for n in range(MANY))),
    (PATH, f"from {'m' * 200_000} import " + ", ".join(f"a{n}" for n in range(MANY)) + "\n"),
    (PATH, ("f" + "()" * 2_000 + "\n") * 20),
    (PATH, "class TestA:\n pytestmark = skip\n def test_a(): pass\n" * 2_000),
    (PATH, "".join(f"{' ' * n}class TestA:\n" for n in range(95)) + " " * 95 + "def test_a(s): pass\n"),
    ("shop/total.py", "x = sys" + ".modules" * 2_000 + "\n"),
    ("a_test.go", "func (" * 80_000),
    ("a_test.go", "func (\n" * 80_000),
    ("a.test.ts", "it" + ".x" * 200_000),
    ("a.test.ts", "it " + " " * 400_000),
    ("tests/a.rb", "it " + " " * 400_000),
    ("src/lib.rs", "#[" + "a::" * 150_000),
]


@pytest.mark.slow(reason="growth: large files of each language")
@pytest.mark.parametrize(("path", "text"), LARGE, ids=range(len(LARGE)))
def test_time_is_linear(path: str, text: str) -> None:
    """Where it is not, each of these takes minutes, and the suite's own limit ends it."""
    list_tests([change(path, text, text.replace("a", "b").replace("test_", "test_it_"))])
    list_tests([change(path, None, text), change(f"x/{path}", text, None)])


@given(st.text(max_size=80), st.sampled_from([PATH, "a.py", "a.test.ts", "a_test.go", "a.rs", "spec/a.rb"]))
def test_no_text_is_an_error(text: str, path: str) -> None:
    for lines in (listed(ONE, text, path).lines(), listed(text, None, path).lines()):
        assert all("\n" not in line for line in lines)
