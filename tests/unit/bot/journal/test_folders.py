"""Work that only this machine has: replaced as a whole, and never lost by a write that fails."""

from __future__ import annotations

import json
import stat
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.folders import KeptWork, RefusedIssues
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


def test_refused_issues_are_known_for_a_day_and_while_they_do_not_change(tmp_path: Path) -> None:
    path, now = tmp_path / "cache" / "refused.json", datetime(2026, 1, 1, tzinfo=UTC)
    first = RefusedIssues(path)
    first.save(now)
    assert not path.exists()
    first.note(1, now, now, "no")
    first.note(2, None, now, "unknown")
    first.save(now)
    assert path.stat().st_mode & 0o777 == 0o600
    again = RefusedIssues(path)
    later = now + timedelta(hours=23)
    assert again.why(1, now, later) == "no"
    assert again.why(1, now + timedelta(seconds=1), later) == ""
    assert again.why(1, now, now + timedelta(hours=24)) == ""
    assert again.why(2, None, now) == ""
    again.note(3, later, later, "no")
    again.save(later + timedelta(hours=2))
    assert list(json.loads(path.read_bytes())) == ["3"]


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b'{"1": ["x"]}', b'{"1": ["a", "b", "c"]}', b'{"1": 1}', b"\xff"]
)
def test_damaged_refused_issues_are_none(tmp_path: Path, content: bytes) -> None:
    path, now = tmp_path / "refused.json", datetime(2026, 1, 1, tzinfo=UTC)
    path.write_bytes(content)
    assert RefusedIssues(path).why(1, now, now) == ""
