"""Work that only this machine has: replaced as a whole, and never lost by a write that fails."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.folders import KeptWork
from orchestrator.core.errors import JournalError

if TYPE_CHECKING:
    from pathlib import Path

FILES = {"state.json": b"{}", "work.pack": bytes(range(256)) * 100}


@pytest.fixture
def kept(tmp_path: Path) -> KeptWork:
    return KeptWork(tmp_path / "home" / "unfinished" / "calc")


def test_looking_creates_nothing(kept: KeptWork, tmp_path: Path) -> None:
    assert kept.read("issue-1") is None
    assert kept.keys() == set()
    kept.remove("issue-1")
    assert kept.set_aside("issue-1") is None
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_and_replaced(kept: KeptWork) -> None:
    path = kept.write("issue-1", {"old": b"1"})
    kept.write("issue-1", FILES)
    kept.write("text-0123abcd", {})
    assert kept.read("issue-1") == FILES
    assert kept.keys() == {"issue-1", "text-0123abcd"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    kept.remove("issue-1")
    assert kept.keys() == {"text-0123abcd"}


def test_what_is_set_aside_is_there_for_a_person_alone(kept: KeptWork) -> None:
    kept.write("issue-1", FILES)
    first = kept.set_aside("issue-1")
    kept.write("issue-1", {})
    second = kept.set_aside("issue-1")
    assert first != second
    assert first is not None
    assert second is not None
    assert first.stat().st_size > second.stat().st_size, "the first one is still there"
    assert (kept.read("issue-1"), kept.keys()) == (None, set())


@pytest.mark.parametrize("damage", [b"", b"PK", b"no archive at all", b"\0" * 1000])
def test_a_damaged_file_is_none(kept: KeptWork, damage: bytes) -> None:
    kept.write("issue-1", FILES).write_bytes(damage)
    assert kept.read("issue-1") is None


def test_a_byte_that_was_turned_over_is_noticed(kept: KeptWork) -> None:
    path = kept.write("issue-1", FILES)
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 3] ^= 0xFF
    path.write_bytes(whole)
    assert kept.read("issue-1") is None


@pytest.mark.parametrize("key", ["", "../issue-1", "a/b", "A", ".", "issue-1\n"])
def test_only_keys_of_tasks_are_names(kept: KeptWork, key: str) -> None:
    with pytest.raises(JournalError, match="not the key"):
        kept.write(key, FILES)


def test_where_nothing_can_be_written_what_was_there_stays(kept: KeptWork, tmp_path: Path) -> None:
    (tmp_path / "home").write_bytes(b"a file where a folder should be")
    with pytest.raises(JournalError, match="cannot keep unfinished work"):
        kept.write("issue-1", FILES)
