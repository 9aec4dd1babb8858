from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.verification.python_tests import (
    MOST_IDS,
    ControlTest,
    checked_ids,
    exit_without,
    is_plain_id,
    parse_pytest,
    place_control,
)
from orchestrator.core.errors import ToolError
from tests.tables import table

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
    assert call.stops_early is stops


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
    control = place_control(paths)
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
    ("exit_code", "others", "expected"),
    [(1, False, 0), (1, True, 1), (2, False, 2), (0, False, 0), (139, False, 139)],
)
def test_the_exit_code_without_the_test_that_must_fail(
    exit_code: int, expected: int, *, others: bool
) -> None:
    assert exit_without(exit_code, others_failed=others) == expected


@table(
    ("command", "bears"),
    [("pytest", True), ("pytest -x", False), ("pytest --cov --cov-fail-under=80", False)],
)
def test_a_call_that_bears_a_test_that_must_fail(command: str, *, bears: bool) -> None:
    call = parse_pytest(command)
    assert call is not None
    assert call.bears_control is bears
