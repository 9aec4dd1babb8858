"""Python's tests: calls of pytest, and copies of tests."""

from __future__ import annotations

import ast
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.verification.base import CaseResult, CaseStatus, RunKind, RunResult
from orchestrator.bot.verification.python_tests import (
    MOST_IDS,
    ControlTest,
    Copies,
    checked_ids,
    choose_control,
    copy_tests,
    is_plain_id,
    parse_pytest,
    select_tests,
)
from orchestrator.bot.verification.verdict import FindingKind, judge_runs
from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import ToolError
from tests.tables import table
from tests.unit.bot.verification.rig import bench

if TYPE_CHECKING:
    from pathlib import Path

PATHS = {"tests/test_a.py", "tests", "docs/guide.md", "tests/data.json", "a b/test_c.py"}
IDS = ["tests/test_a.py::test_b", "tests/test_a.py::T::test_c[x-'1' $(id)]"]


@table(
    ("command", "selecting"),
    [
        ("pytest", "pytest IDS"),
        ("pytest -q tests", "pytest IDS -q"),
        ("pytest tests/unit tests/more -x", "pytest IDS -x"),
        ("python -m pytest -n auto --cov src tests", "python -m pytest IDS -n auto --cov src"),
        (
            "python -m pytest -n4 -p no:randomly -k 'a or b' tests",
            "python -m pytest IDS -n4 -p no:randomly -k 'a or b'",
        ),
        (
            ".venv/bin/pytest -ra --cov=src --ignore tests/x tests",
            ".venv/bin/pytest IDS -ra --cov=src --ignore tests/x",
        ),
        ("uv run pytest -c other.ini", "uv run pytest IDS -c other.ini"),
        ("uv run --frozen pytest tests --cov", "uv run --frozen pytest IDS --cov"),
        ("A=1 B='x y' poetry run pytest tests", "A=1 B='x y' poetry run pytest IDS"),
        ("coverage run -m pytest", "coverage run -m pytest IDS"),
        ("uv run --with pytest pytest -q", "uv run --with pytest pytest IDS -q"),
    ],
)
def test_a_call_of_pytest_with_other_tests(command: str, selecting: str) -> None:
    call = parse_pytest(command)
    assert call is not None
    assert call.selecting(IDS) == selecting.replace("IDS", shlex.join(IDS))


@table(
    "command",
    [
        "make test",
        "tox",
        "pytest a && pytest b",
        "pytest; true",
        "pytest | tee log",
        "pytest > log",
        "pytest tests/*.py",
        "pytest $ARGS",
        "sh -c 'pytest'",
        "cargo test",
        "npm test",
        "(cd sub && pytest)",
        "cd sub && pytest",
        "echo pytest-cov",
        "",
    ],
)
def test_what_is_more_than_one_call_of_pytest(command: str) -> None:
    assert parse_pytest(command) is None


@table(
    ("command", "stops"),
    [
        ("pytest -x", True),
        ("pytest -qx", True),
        ("pytest --maxfail=2", True),
        ("pytest --maxfail 2", True),
        ("pytest --exitfirst", True),
        ("pytest --stepwise", True),
        ("pytest -q --maxprocesses=2", False),
        ("pytest -k x", False),
        ("pytest", False),
    ],
)
def test_a_call_that_ends_with_the_first_failure(command: str, *, stops: bool) -> None:
    call = parse_pytest(command)
    assert call is not None
    assert call.allows_control is not stops


@table(
    "name",
    [
        "tests/test_a.py",
        "tests/test_a.py::test_b",
        "tests/test_a.py::TestB::test_c[a b-<x>; rm -rf /]",
        "tests/",
        "tests",
        "a b/test_c.py::test_é",
        "docs/guide.md::guide.md",
    ],
)
def test_ids_that_name_something_of_the_tree(name: str) -> None:
    assert checked_ids([name, f" {name} "], PATHS) == [name]


@table(
    "name",
    [
        "",
        "-x",
        "--pdb",
        "--junitxml=/etc/x",
        "-p evil",
        "@tests/args.txt",
        "/etc/passwd",
        "../other/test_a.py",
        "tests/../../x.py",
        "tests/test_missing.py",
        "tests/data.json::x",
        "tests/test_a.py::x\ny",
        "tests/test_a.py::x\0",
        "tests/test_a.py::" + "x" * 2_000,
        "~/x.py",
        "$HOME/x.py",
        "test_b",
        "::test_b",
        "tests\\test_a.py",
    ],
)
def test_what_is_no_id_is_refused_with_an_example(name: str) -> None:
    with pytest.raises(ToolError, match=r"tests/test_a\.py::test_b"):
        checked_ids([name], PATHS)


def test_more_ids_than_a_call_takes_are_refused() -> None:
    ids = [f"tests/test_a.py::test_{number}" for number in range(MOST_IDS + 1)]
    assert checked_ids(ids[1:], PATHS) == ids[1:]
    with pytest.raises(ToolError, match="at most"):
        checked_ids(ids, PATHS)


@given(
    st.text(min_size=1, max_size=60),
    st.sampled_from(["pytest -q tests", "python -m pytest", "A=1 uv run pytest -x"]),
)
def test_no_id_becomes_an_option_or_a_word_of_the_shell(name: str, command: str) -> None:
    call = parse_pytest(command)
    assert call is not None
    if is_plain_id(name):
        words = shlex.split(call.selecting([name]))
        place = words.index("pytest") + 1
        assert words[place] == name
        assert words[:place] + words[place + 1 :] == shlex.split(call.selecting([]))
        assert not name.startswith(("-", "@", "/", "~", "$"))


@table(
    ("paths", "place"),
    [
        (["app.py"], None),
        (["tests/test_a.py", "tests/unit/test_b.py", "tests/unit/test_c.py"], "tests/unit/test_zzT.py"),
        (["test_a.py"], "test_zzT.py"),
        (["pkg/a_test.py", "pkg/b_test.py", "pkg/test_c.py"], "pkg/zzzzT_test.py"),
    ],
)
def test_the_test_that_must_fail_stands_last_beside_most_others(paths: list[str], place: str | None) -> None:
    control = choose_control(paths)
    assert (control and control.path("T")) == place
    if control:
        assert max([*paths, control.path("T")], key=lambda path: path.rpartition("/")[2]) == control.path("T")


def test_the_test_that_must_fail_raises() -> None:
    found: dict[str, object] = {}
    exec(ControlTest.text("abc"), found)  # noqa: S102  our own text
    made = found["test_abc"]
    assert callable(made)
    with pytest.raises(AssertionError):
        made()


@table(
    ("command", "bears"),
    [("pytest", True), ("pytest -x", False), ("pytest --cov --cov-fail-under=80", False)],
)
def test_a_call_that_bears_a_test_that_must_fail(command: str, *, bears: bool) -> None:
    call = parse_pytest(command)
    assert call is not None
    assert call.allows_control is bears


PATH = "tests/test_a.py"
TOKENS = ("aa", "bb")


def copied(source: str, *names: str) -> Copies:
    made = copy_tests(PATH, source.encode(), names, TOKENS)
    assert made is not None
    ast.parse(made.text)
    ast.parse(made.altered_text)
    return made


def run(**cases: str) -> RunResult:
    """A run in which tests of `PATH` end so: `status`, or `status message`."""
    made = {}
    for name, said in cases.items():
        status, _, message = said.partition(" ")
        is_own = "assert" in message
        made[f"{PATH}::{name}"] = CaseResult(f"{PATH}::{name}", CaseStatus(status), message, is_own, PATH)
    return RunResult(RunKind.BEFORE, "tree", made, 0, 1.0)


def test_a_copy_has_another_name_and_nothing_else() -> None:
    source = "# test_a\n\n\n@mark.x\ndef  {} ( ) :  # é\n    assert test_a\n\n\ndef test_b(): pass\n"
    made = copied(source.format("test_a"), "test_a")
    assert made.path == "tests/test_aa.py"
    assert made.text.decode() == source.format("test_aa_0")
    assert made.ids == ["tests/test_aa.py::test_aa_0"]
    assert made.files == {"tests/test_aa.py": made.text}


def test_tests_in_classes_and_coroutines_are_copied() -> None:
    made = copied(
        "class TestA:\n    class TestB:\n        async  def test_c(self):\n            assert f() == 1\n",
        "TestA::TestB::test_c",
    )
    assert made.ids == [
        "tests/test_aa.py::TestA::TestB::test_aa_0",
        "tests/test_bb.py::TestA::TestB::test_aa_0",
    ]


def test_a_file_that_is_named_otherwise_keeps_its_form() -> None:
    made = copy_tests("a_test.py", b"def test_a():\n    assert f() == 1\n", ["test_a"], TOKENS)
    assert made is not None
    assert (made.path, made.altered_path) == ("aa_test.py", "bb_test.py")


@table(
    ("statement", "altered"),
    [
        ("assert f() == 180", "assert f() == (180 * 3 + 1000003)"),
        ("assert 180 == f()", "assert (180 * 3 + 1000003) == f()"),
        ("assert f() == -1.5", "assert f() == -(1.5 * 3 + 1000003)"),
        ("assert f() == 'é' 'b', 'why'", "assert f() == ('é' 'b' + '-other'), 'why'"),
        ("assert f() == b'a'", "assert f() == (b'a' + b'-other')"),
        ("assert f() == True", "assert f() == (not True)"),
        ("assert f() == [(1, 2), 3]", "assert f() == [((1 * 3 + 1000003), 2), 3]"),
        ("assert f() == {'a': 1}", "assert f() == {'a': (1 * 3 + 1000003)}"),
        ("assert f() == pytest.approx(2, rel=1)", "assert f() == pytest.approx((2 * 3 + 1000003), rel=1)"),
        ("self.assertEqual(f(), 1)", "self.assertEqual(f(), (1 * 3 + 1000003))"),
        ("self.assertAlmostEqual(1, f())", "self.assertAlmostEqual((1 * 3 + 1000003), f())"),
        ("x = f(); assert x == 1; assert x == 2", "x = f(); assert x == (1 * 3 + 1000003); assert x == 2"),
    ],
)
def test_one_expected_value_is_another_one(statement: str, altered: str) -> None:
    made = copied(f"def test_a(self):\n    {statement}\n", "test_a")
    assert made.altered == {"test_aa_0"}
    assert made.altered_text.decode() == f"def test_aa_0(self):\n    {altered}\n"


@table(
    "body",
    [
        "assert f()",
        "assert f() is None",
        "assert f() == None",
        "assert f() == g()",
        "assert 1 == 2",
        "assert f() != 1",
        "assert 0 < f() == 1",
        "assert f() == [g()]",
        "if g():\n        assert f() == 1",
        "if g():\n        return\n    assert f() == 1",
        "with pytest.raises(AssertionError):\n        assert f() == 1",
        "yield\n    assert f() == 1",
        "self.assertNotEqual(f(), 1)",
    ],
)
def test_where_nothing_certain_is_expected_nothing_is_altered(body: str) -> None:
    made = copied(f"def test_a(self):\n    {body}\n", "test_a")
    assert not made.altered
    assert list(made.files) == [made.path]


@table("source", [b"", b"def test_b(): pass", b"def test_a(:", b"\xff", b"\0"])
def test_what_cannot_be_copied_is_not(source: bytes) -> None:
    assert copy_tests(PATH, source, ["test_a"], TOKENS) is None


def test_copies_are_compared_with_their_originals() -> None:
    made = copied(
        "def test_a(x):\n    assert f(x) == 180\n\n\ndef test_b():\n    assert g() == 2\n", "test_a", "test_b"
    )
    ends = {
        "tests/test_aa.py::test_aa_0[1]": ("failed", "test_aa_0: assert 190 == 180 at 0x7f00"),
        "tests/test_aa.py::test_aa_0[2]": ("passed", ""),
        "tests/test_aa.py::test_aa_1": ("error", ""),
        "tests/test_bb.py::test_aa_0[1]": ("failed", ""),
        "tests/test_bb.py::test_aa_1": ("passed", ""),
    }
    cases = {
        name: CaseResult(name, CaseStatus(status), words, is_assertion="assert" in words)
        for name, (status, words) in ends.items()
    }
    ran = RunResult(RunKind.KEPT, "tree", cases, 1, 1.0)
    kept = run(**{"test_a[1]": "passed", "test_a[2]": "passed", "test_b": "passed"})
    assert list(made.failing_renamed(ran, run(), kept)) == [f"{PATH}::test_a[1]"]
    assert made.passing_altered(ran) == [f"{PATH}::test_b"]
    same = run(**{"test_a[1]": "failed test_a: assert 190 == 180 at 0x8a11", "test_a[2]": "failed"})
    assert made.comparable(ran, same) == {f"{PATH}::test_a[1]"}
    assert made.comparable(ran, run(**{"test_a[1]": "failed no snapshot"})) == set()


def version(text: str) -> FileVersion:
    return FileVersion("100644", text.encode(), len(text))


OLD = "def test_a():\n    assert f() == 1\n\n\ndef test_b():\n    assert f() == 2\n"


@table(
    ("new", "elsewhere", "named"),
    [
        (OLD, "", set()),
        (OLD.replace("== 1", "== (\n        1\n    )  # why"), "", set()),
        (OLD.replace("== 1", "== 3"), "", {"test_a"}),
        (OLD.partition("\n\n\n")[2], "", {"test_a"}),
        (OLD.partition("\n\n\n")[2], OLD.partition("\n\n\n")[0], set()),
        ("def test_a(:", "", {"test_a", "test_b"}),
    ],
)
def test_tests_that_a_change_writes_otherwise_are_at_stake(new: str, elsewhere: str, named: set[str]) -> None:
    changes = [
        FileChange(PATH, version(OLD), version(new)),
        FileChange("tests/test_c.py", None, version(elsewhere)),
    ]
    green = run(test_a="passed", test_b="passed")
    assert select_tests(green, green, changes, 10) == ({PATH: named} if named else {})


def test_tests_that_pass_now_are_at_stake_up_to_a_number() -> None:
    before = run(
        **{
            "test_a[1]": "failed",
            "test_a[2]": "error",
            "test_b": "failed",
            "test_c": "passed",
            "test_d": "failed",
        }
    )
    kept = run(
        **{
            "test_a[1]": "passed",
            "test_a[2]": "passed",
            "test_b": "failed",
            "test_c": "passed",
            "test_d": "passed",
        }
    )
    assert select_tests(before, kept, [], 10) == {PATH: {"test_a", "test_d"}}
    assert select_tests(before, kept, [], 1) == {PATH: {"test_a"}}


@table(
    "value",
    [
        "1" + " + 1" * 1_500,
        "- " * 1_500 + "1",
        "0x" + "f" * 10_000,
        "f() == " * 10 + "[" * 150 + "1" + "]" * 150,
    ],
    ids=["a long sum", "a deep sign", "a long number", "deep lists"],
)
def test_a_test_that_is_too_large_to_be_compared_is_at_stake(value: str) -> None:
    source = f"def test_a():\n    assert f() == {value}\n\n\ndef test_b():\n    assert f() == 2\n"
    changes = [FileChange(PATH, version(source), version(source.replace("== 2", "== 3")))]
    green = run(test_a="passed", test_b="passed")
    found = select_tests(green, green, changes, 10)[PATH]
    assert "test_b" in found
    copied(source, "test_a", "test_b")


BY_ITS_NAME = """import json
from pathlib import Path

import pkg


def test_a():
    value = pkg.f()
    assert value == json.loads(Path(__file__).with_suffix(".json").read_text())
"""


async def test_a_right_change_whose_test_finds_its_data_by_its_own_name_is_not_red(tmp_path: Path) -> None:
    files = {"pkg.py": "", "tests/test_a.py": BY_ITS_NAME, "tests/test_a.json": "2"}
    with bench(tmp_path, files) as repository:
        change = repository.change({"pkg.py": "def f():\n    return 2\n"})
        async with repository.runs() as runs:
            verdict = judge_runs(await runs.verify(change), change)
    assert (verdict.is_red, verdict.reasons) == (False, ())
    assert verdict.of(FindingKind.FIXED) == (f"{PATH}::test_a",)


MISSING = "failed AttributeError: module 'a' has no attribute 'f'"
OWN = "failed assert 1 == 2"


@table(
    ("before", "copy_before", "copy", "is_known"),
    [
        (OWN, OWN, OWN, True),
        (OWN, OWN, "failed FileNotFoundError: test_aa.json", False),
        (MISSING, MISSING, "failed FileNotFoundError: test_aa.json", False),
        (MISSING, MISSING, OWN, False),
        ("passed", "passed", "failed KeyError: 'test_aa_0'", True),
        ("passed", "failed FileNotFoundError: test_aa.json", "failed FileNotFoundError: test_aa.json", False),
    ],
)
def test_a_test_that_finds_something_by_its_own_name_is_not_known_to_the_code(
    before: str, copy_before: str, copy: str, *, is_known: bool
) -> None:
    made = copied("def test_a():\n    assert f() == g()\n", "test_a")

    def of_copies(said: str) -> RunResult:
        (case,) = run(test_a=said).cases.values()
        return RunResult(RunKind.KEPT, "tree", {made.ids[0]: replace(case, id=made.ids[0])}, 0, 1.0)

    base = run(test_a=before)
    failing = made.failing_renamed(of_copies(copy), base, run(test_a="passed"))
    assert bool(made.comparable(of_copies(copy_before), base) & failing.keys()) == is_known
