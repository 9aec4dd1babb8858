"""Which files a task means."""

from __future__ import annotations

import pytest

from orchestrator.bot.cycle.relevance import (
    named_files,
    path_overlap,
    query_of,
    split_identifier,
    word_scores,
)
from tests.tables import table

PATHS = [
    "README.md",
    "src/app/calc.py",
    "src/app/user_store.py",
    "src/app/__init__.py",
    "src/app/http/client.py",
    "src/ui/LoginForm.tsx",
    "src/ui/LoginForm.test.tsx",
    "tests/test_calc.py",
    "tests/unit/user_store_test.py",
    "tests/__init__.py",
]


def _named(text: str) -> list[str]:
    scores = named_files(query_of(text, ""), PATHS)
    return sorted(scores, key=lambda path: (-scores[path], path))


@table(
    ("text", "expected"),
    [
        ("Fix src/app/calc.py", ["src/app/calc.py", "tests/test_calc.py"]),
        ("Fix ./src/app/calc.py:12, please.", ["src/app/calc.py", "tests/test_calc.py"]),
        (r"Fix src\app\calc.py", ["src/app/calc.py", "tests/test_calc.py"]),
        ("add() in calc.py is wrong", ["src/app/calc.py", "tests/test_calc.py"]),
        ("app/calc.py is wrong", ["src/app/calc.py", "tests/test_calc.py"]),
        ("app.calc.add is wrong", ["src/app/calc.py", "tests/test_calc.py"]),
        ("The `user_store` forgets names", ["tests/unit/user_store_test.py", "src/app/user_store.py"]),
        ("user_store forgets names", ["tests/unit/user_store_test.py", "src/app/user_store.py"]),
        ("LoginForm ignores Enter", ["src/ui/LoginForm.tsx"]),
        ("tests/test_calc.py fails", ["tests/test_calc.py", "src/app/calc.py"]),
        ("other/calc.py is wrong", []),
        ("Make it nice.", []),
    ],
)
def test_files_are_found_by_what_the_task_calls_them(text: str, expected: list[str]) -> None:
    assert [path for path in _named(text) if "LoginForm.test" not in path] == expected


def test_a_test_beside_its_module_is_found() -> None:
    assert "src/ui/LoginForm.test.tsx" in _named("Fix src/ui/LoginForm.tsx")


def test_a_name_that_many_files_have_points_at_none() -> None:
    paths = [f"pkg{i}/__init__.py" for i in range(20)] + ["a/one.py"]
    scores = named_files(query_of("__init__.py and one.py", ""), paths)
    assert scores["a/one.py"] > 3 * scores["pkg3/__init__.py"]


@table(
    ("identifier", "words"),
    [
        ("parseHTTPHeader", ("parsehttpheader", "parse", "http", "header")),
        ("user_store_2", ("user_store_2", "user", "store")),
        ("MAX_SIZE", ("max_size", "max", "size")),
        ("the", ()),
        ("größe", ("größe",)),
    ],
)
def test_identifiers_fall_apart_into_words(identifier: str, words: tuple[str, ...]) -> None:
    assert split_identifier(identifier)[: len(words)] == words


def test_rare_words_weigh_more_than_common_ones() -> None:
    texts = {f"f{i}.py": "error error error value" for i in range(20)}
    texts["rare.py"] = "def retry():\n    backoff()\n"
    scores = word_scores(query_of("Error in backoff", ""), texts)
    assert max(scores, key=lambda path: scores[path]) == "rare.py"


def test_a_word_that_is_there_more_often_counts_more_but_less_each_time() -> None:
    """By BM25, of texts of one length: once is 1 / (1 + 1.2), three times 3 / (3 + 1.2)."""
    texts = {"one.py": "retry other other", "many.py": "retry retry retry"}
    scores = word_scores(query_of("Retry", ""), texts)
    assert scores == {"one.py": pytest.approx(40 * (1 / 2.2) / (3 / 4.2)), "many.py": 40}


def test_a_definition_weighs_more_than_many_uses() -> None:
    texts = {"uses.py": "open_door\n" * 50, "door.py": "x = 1\n" * 50 + "def open_door():\n    pass\n"}
    scores = word_scores(query_of("`open_door` creaks", ""), texts)
    assert scores["door.py"] > scores["uses.py"]


def test_no_words_and_no_files_are_no_trouble() -> None:
    assert word_scores(query_of("", ""), {"a": "", "b": "x"}) == {"a": 0.0, "b": 0.0}
    assert word_scores(query_of("x", ""), {}) == {}
    assert path_overlap(query_of("user store", ""), "src/user_store.py") == 2
