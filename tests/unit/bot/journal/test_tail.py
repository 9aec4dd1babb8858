"""A journal that is read while it is written: nothing is lost, nothing is told twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.reader import JournalTail
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import SystemClock
from orchestrator.core.events import Warned
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def texts(tail: JournalTail) -> list[str]:
    return [record.event.message for record in tail.records() if isinstance(record.event, Warned)]


def test_what_is_appended_is_read_once(tmp_path: Path) -> None:
    tail = JournalTail(tmp_path)
    assert texts(tail) == []
    with JournalWriter(tmp_path, Redactor(), SystemClock()) as writer:
        writer(Warned("one"))
        writer(Warned("two"))
        assert (texts(tail), tail.seq) == (["one", "two"], 2)
        assert texts(tail) == []
        writer(Warned("three"))
        assert (texts(tail), tail.seq) == (["three"], 3)


def test_it_goes_on_after_the_number_that_is_known(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, Redactor(), SystemClock()) as writer:
        late = JournalTail(tmp_path, after=3)
        for number in range(1, 6):
            writer(Warned(str(number)))
            if number == 2:
                assert texts(late) == []
    assert [texts(JournalTail(tmp_path, after)) for after in (0, 3, 5, 9)] == [
        ["1", "2", "3", "4", "5"],
        ["4", "5"],
        [],
        [],
    ]
    assert texts(late) == ["4", "5"]


def test_half_a_line_waits_for_its_other_half(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, Redactor(), SystemClock()) as writer:
        writer(Warned("one"))
    path = tmp_path / JOURNAL_FILE
    whole = path.read_bytes()
    path.write_bytes(whole[:-5])
    tail = JournalTail(tmp_path)
    assert texts(tail) == []
    path.write_bytes(whole)
    assert texts(tail) == ["one"]


@given(
    st.lists(st.binary(max_size=30).filter(lambda line: b"\n" not in line), max_size=30), st.integers(1, 40)
)
def test_in_pieces_of_any_size_each_line_comes_once(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], most: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    (folder / JOURNAL_FILE).write_bytes(b"".join(line + b"\n" for line in [b"header", *lines]))
    tail = JournalTail(folder)
    found: list[tuple[int, bytes]] = []
    while new := tail.lines(most):
        assert sum(len(line) for _, line in new) <= max(len(line) for _, line in new) + most
        found += new
    assert found == list(enumerate(lines, start=1))
