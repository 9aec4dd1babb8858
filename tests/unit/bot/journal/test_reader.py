"""Reading journals: whole, torn, damaged, newer ones, and finding them."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import (
    MOST_LINE_BYTES,
    JournalTail,
    find_run,
    is_open,
    read_run,
    replay_of,
    run_folders,
)
from orchestrator.bot.journal.records import JournalWriter, UnknownRecord
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import JournalError
from orchestrator.core.events import ReplyReceived, SessionEnded, SessionStarted, TurnStarted, Warned
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.journals import DAMAGE, with_field, with_lines

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event

START = datetime(2026, 11, 21, 3, 31, 12, tzinfo=UTC)
EVENTS: list[Event] = [TurnStarted(1), Warned("be careful"), SessionEnded("done")]


def reply(text: str, usd: float | None) -> ReplyReceived:
    return ReplyReceived(Message.assistant(text), FinishReason.STOP, Usage(1, 2), usd, "m")


def write(folder: Path, events: list[Event] = EVENTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with JournalWriter(folder, Redactor(), ManualClock(START)) as writer:
        for event in events:
            writer(event)
    return writer.path


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path)
    run = read_run(tmp_path)
    assert run.events == tuple(EVENTS)
    assert [record.seq for record in run.records] == [1, 2, 3]
    assert run.records[0].at == START
    assert run.records[1].data["message"] == "be careful"
    assert (run.id, run.torn, run.version) == (tmp_path.name, False, "0.1.0")


@given(cut=st.integers(min_value=0))
def test_a_journal_cut_off_anywhere_is_read_up_to_there(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    path = write(folder)
    whole = path.read_bytes()
    path.write_bytes(whole[: cut % len(whole)])
    run = read_run(folder)
    assert run.events == tuple(EVENTS)[: len(run.events)]
    kept = whole[: cut % len(whole)]
    assert len(run.events) >= kept.count(b"\n") - 1
    assert run.torn == (bool(kept) and not kept.endswith((b"\n", b"}")))


def test_zeros_after_a_power_cut_are_a_torn_line(tmp_path: Path) -> None:
    path = write(tmp_path)
    path.write_bytes(path.read_bytes() + bytes(100))
    assert read_run(tmp_path).torn
    assert read_run(tmp_path).events == tuple(EVENTS)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_line_costs_no_other_record(tmp_path: Path, kind: str) -> None:
    damage, lost, told = DAMAGE[kind]
    events: list[Event] = [Warned(f"again {number}") for number in range(1, 6)]
    path = write(tmp_path, events)
    path.write_bytes(damage(path.read_bytes(), 2))
    run = read_run(tmp_path)
    assert run.damage[0].startswith(told)
    assert set(run.events) <= set(events)
    assert len(events) - len(run.events) == lost - (kind == "another number")
    if kind != "another number":
        assert list(run.events) == sorted(run.events, key=events.index)
    assert run.unbroken.events == tuple(events if not lost else events[:1])
    with pytest.raises(JournalError, match="the journal is damaged"):
        run.require_whole()
    assert {record.event for record in JournalTail(tmp_path).records()} == set(run.events)


def test_an_unknown_kind_is_no_damage(tmp_path: Path) -> None:
    path = write(tmp_path, [Warned("a"), Warned("b"), Warned("c")])
    path.write_bytes(with_field(path.read_bytes(), 2, b'"Warned"', b'"Worried"'))
    run = read_run(tmp_path)
    assert (run.damage, run.events, len(run.records)) == ((), (Warned("a"), Warned("c")), 3)


@pytest.mark.slow(reason="reads lines of 128 MB")
def test_of_a_line_without_an_end_only_the_beginning_is_read(tmp_path: Path) -> None:
    """A file system may leave a hole of any size."""
    path = write(tmp_path, [Warned("a")])
    with path.open("ab") as file:
        file.truncate(file.tell() + MOST_LINE_BYTES + 1)
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"seq":3,"at":"2026-11-21T03:31:12.000000+00:00","type":"TurnStarted","round":1}\n')
    run = read_run(tmp_path)
    assert run.events == (Warned("a"), TurnStarted(1))
    assert run.damage == ("line 3: not a JSON object",)
    assert Warned("a") in [record.event for record in JournalTail(tmp_path).records()]
    with path.open("ab") as file:
        file.truncate(file.tell() + MOST_LINE_BYTES + 1)
    assert is_open(tmp_path)
    assert summarise(tmp_path).is_damaged


def test_what_was_said_before_a_gap_is_unbroken_since_the_session_began(tmp_path: Path) -> None:
    events: list[Event] = [
        Warned("a"),
        Warned("b"),
        SessionStarted("s", "x"),
        Warned("c"),
        TurnStarted(1),
        TurnStarted(2),
    ]
    path = write(tmp_path, events)
    path.write_bytes(with_lines(with_lines(path.read_bytes(), 5), 1))
    assert read_run(tmp_path).unbroken.events == (Warned("b"), SessionStarted("s", "x"), Warned("c"))


def test_a_record_of_a_newer_version_is_kept_apart(tmp_path: Path) -> None:
    path = write(tmp_path)
    with path.open("a") as file:
        file.write('{"seq":4,"at":"2026-11-21T03:31:12.000000+00:00","type":"Invented","x":1}\n')
    run = read_run(tmp_path)
    assert run.events == tuple(EVENTS)
    assert isinstance(run.records[-1].event, UnknownRecord)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"seq":0,"at":"x","type":"Journal","format":2}', "written in format 2, this version reads up to 1"),
    ],
)
def test_a_newer_journal_is_refused(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "journal.jsonl").write_text(line + "\n")
    with pytest.raises(JournalError, match=message):
        read_run(tmp_path)


@pytest.mark.parametrize("header", [b"", b'{"seq":0,"at":"x","type":"Journal"}\n', b"{garbage\n"])
def test_a_journal_without_its_header_iswith_lines(tmp_path: Path, header: bytes) -> None:
    path = write(tmp_path)
    path.write_bytes(with_lines(path.read_bytes(), 0, header))
    run = read_run(tmp_path)
    assert run.events == tuple(EVENTS)
    assert run.damage[0].startswith("line 1: ")
    assert run.version == ""


def test_a_missing_journal_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no journal"):
        read_run(tmp_path)


def test_the_replies_are_what_a_replay_needs(tmp_path: Path) -> None:
    first, second = reply("a", 0.1), reply("b", None)
    write(tmp_path, [TurnStarted(1), first, TurnStarted(2), second])
    assert replay_of(read_run(tmp_path)) == [first, second]


RUNS = ["20261120-100000-aaaaaa", "20261121-100000-bbbbbb", "20261121-110000-cccccc"]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    for run in RUNS:
        write(create_run_folder(home, run))
    (home.runs / "99999999-not-a-run").mkdir()
    return home


def test_runs_are_listed_newest_first(home: Home) -> None:
    assert [folder.name for folder in run_folders(home)] == RUNS[::-1]
    assert run_folders(Home(home.root / "none")) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [("last", RUNS[2]), (RUNS[0], RUNS[0]), ("20261120", RUNS[0]), ("20261121-10", RUNS[1])],
)
def test_a_run_is_found(home: Home, name: str, expected: str) -> None:
    assert find_run(home, name).name == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("20261121", f"2 runs begin with '20261121': {RUNS[2]}, {RUNS[1]}"),
        ("20261120-100000-aaaaab", f"there is no run '20261120-100000-aaaaab'; the nearest is {RUNS[0]}"),
        ("../../etc", "there is no run '../../etc'; the nearest is"),
        ("", "there is no run ''; the nearest is"),
    ],
)
def test_a_run_that_is_not_there_is_answered(home: Home, name: str, message: str) -> None:
    with pytest.raises(JournalError) as caught:
        find_run(home, name)
    assert str(caught.value).startswith(message)


def test_without_any_run_this_is_said(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no run in"):
        find_run(Home(tmp_path), "last")
