"""A record to which lines are only added: what a killed process leaves of its last line harms no other line."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ConfigurationError, JournalError
from orchestrator.plugins.backtest.cases import JsonLines, digest_of, only_process

if TYPE_CHECKING:
    from pathlib import Path


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    record = JsonLines(tmp_path / "new" / "tries.jsonl")
    assert record.lines() == []
    record.add({"a": "ü\n"})
    record.add({"b": 2})
    assert record.lines() == [{"a": "ü\n"}, {"b": 2}]


def test_a_line_torn_anywhere_is_left_out_and_the_next_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    JsonLines(path).add({"a": 1})
    whole = path.read_bytes()
    for end in range(1, len(whole)):
        path.write_bytes(whole + whole[:end])
        record = JsonLines(path)
        record.add({"b": 2})
        assert record.lines()[0] == {"a": 1}
        assert record.lines()[-1] == {"b": 2}
        assert len(record.lines()) <= 3


def test_lines_of_another_form_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "tries.jsonl"
    path.write_text('{"form": 99, "a": 1}\n[]\n1\n{"form": 1, "b": 2}\n', "utf-8")
    assert JsonLines(path).lines() == [{"b": 2}]


def test_a_record_that_is_a_folder_is_an_error_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="cannot read"):
        JsonLines(tmp_path).lines()
    with pytest.raises(JournalError, match="cannot write"):
        JsonLines(tmp_path).add({})


def test_two_processes_are_not_at_it_at_once(tmp_path: Path) -> None:
    code = (
        "import pathlib, sys; from orchestrator.plugins.backtest.cases import only_process\n"
        "with only_process(pathlib.Path(sys.argv[1])): pass"
    )
    with only_process(tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False
        )
        assert "another process works" in done.stderr
        with pytest.raises(ConfigurationError), only_process(tmp_path):
            pass
    with only_process(tmp_path):
        pass


def test_equal_values_have_one_name() -> None:
    assert digest_of("a", {"x": 1, "y": (2,)}) == digest_of("a", {"y": (2,), "x": 1})
    assert digest_of("a", "b") != digest_of("ab")
    assert digest_of("\udcff")
