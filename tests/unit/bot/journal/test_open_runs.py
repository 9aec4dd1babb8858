"""Runs of dead processes are found and told, those of living ones left alone, and closed ones forgotten."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, create_run_folder, new_run_id
from orchestrator.bot.journal.reader import (
    OPEN_RUNS_FILE,
    DeadRuns,
    close_run,
    is_open,
    lock_run,
    open_runs,
    read_run,
    unreadable_runs,
)
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import (
    Claimed,
    Cloned,
    CycleEnded,
    CycleStarted,
    Proposed,
    QuestionAsked,
    TaskTaken,
)
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    MessageAdded,
    ReplyReceived,
    SubagentEvent,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Message, Role, Spent, Text, ToolResult, Usage
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.journals import with_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.core.events import Event

START = datetime(2026, 11, 21, 3, 31, 12, tzinfo=UTC)


def reply(text: str, usd: float | None) -> ReplyReceived:
    return ReplyReceived(Message.assistant(text), FinishReason.STOP, Usage(10, 2), usd, "m")


RESULT_MESSAGE = Message(Role.TOOL, (ToolResult("1", "read", '"type":"CycleEnded",'), Text("x")))
STORY: list[Event] = [
    CycleStarted("run", "owner/name", "m", "json_plan"),
    TaskTaken("issue-7", "Fix it", "please", "issue", 7),
    Claimed("issue-7", "me", 3, "2026-11-21T04:00:00+00:00"),
    Claimed("issue-7", "me", 4, "2026-11-21T05:00:00+00:00", "earlier"),
    Cloned("a" * 40, "main", 12, "/scratch/pullwright-abcdefgh"),
    MessageAdded(Message.user("do it")),
    TurnStarted(1),
    reply("first", 0.25),
    MessageAdded(RESULT_MESSAGE),
    SubagentEvent("s", TurnStarted(1)),
    SubagentEvent("s", reply("inner", 0.5)),
    TurnStarted(2),
    reply("second", 0.25),
    QuestionAsked("which?", None),
]


def begin(
    home: Home, events: Sequence[Event] = STORY, *, at: datetime = START, seed: int = 1, lock: bool = True
) -> Path:
    """The folder of a run whose process is dead."""
    folder = create_run_folder(home, new_run_id(at, random.Random(seed)))  # noqa: S311  names of made-up runs
    with (
        lock_run(folder) if lock else contextlib.nullcontext(),
        JournalWriter(folder, Redactor(), ManualClock(at)) as write,
    ):
        for event in events:
            write(event)
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def test_the_story_of_a_dead_run(home: Home) -> None:
    proposed = Proposed(3, "t", "u", "b", "c" * 40, created=True)
    folder = begin(home, [*STORY, proposed])
    [run] = open_runs(home)
    assert (run.id, run.folder) == (folder.name, folder)
    assert run.facts.start == STORY[0]
    assert run.facts.task == STORY[1]
    assert run.facts.claim == STORY[3]
    assert run.facts.cloned == STORY[4]
    assert run.is_about("owner/name")
    assert not run.is_about("owner/other")
    assert run.facts.spent_at_most == Spent(1.0, 36, rounds=2)
    assert run.facts.pull == proposed
    assert run.facts.question == QuestionAsked("which?", None)


def test_a_price_that_is_unknown_stays_unknown(home: Home) -> None:
    begin(home, [*STORY, reply("third", None)])
    assert open_runs(home)[0].facts.spent_at_most.usd is None


def test_what_a_killed_run_may_have_spent_without_a_reply(home: Home) -> None:
    lost = WaitStarted(1.0, "cut", 300, 0.25), SubagentEvent("s", TurnStarted(2, 200, 0.125))
    begin(home, [*STORY, TurnStarted(3, 400, 0.5), *lost])
    [run] = open_runs(home)
    assert run.facts.spent_at_most == Spent(1.0 + 0.875, 36 + 900, rounds=3)


def test_a_run_that_came_to_nothing(home: Home) -> None:
    begin(home, [])
    [run] = open_runs(home)
    assert (run.facts.task, run.facts.claim, run.facts.spent_at_most) == (None, None, Spent())


@given(cut=st.integers(min_value=0))
def test_killed_at_any_byte(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    folder = begin(home, [*STORY, CycleEnded({"outcome": "proposed"})])
    path = folder / JOURNAL_FILE
    content = path.read_bytes()
    path.write_bytes(content[: cut % len(content)])
    # Without its line break the last record may be whole, and then it counts.
    whole = cut % len(content) == len(content) - 1
    assert len(open_runs(home)) == (0 if whole else 1)
    with lock_run(folder):
        close_run(folder, {"outcome": "interrupted"}, Redactor(), ManualClock(START))
    assert open_runs(home) == []
    assert whole or not is_open(folder)
    if path.read_bytes().startswith(b'{"seq":0,"at":"2026-11-21T03:31:12.000000+00:00","type":"Journal"'):
        run = read_run(folder)
        assert not run.torn
        assert isinstance(run.events[-1], CycleEnded)
        assert sum(isinstance(event, CycleEnded) for event in run.events) == 1
        assert [record.seq for record in run.records] == list(range(1, len(run.records) + 1))


def test_killed_just_before_a_line_break(home: Home) -> None:
    events = [*STORY[:3], CycleEnded({"outcome": "proposed"})]
    content = (begin(home, events, seed=0) / JOURNAL_FILE).read_bytes()
    breaks = [place for place, byte in enumerate(content) if byte == ord("\n")]
    for seed, place in enumerate(breaks, start=1):
        folder = begin(home, events, seed=seed)
        (folder / JOURNAL_FILE).write_bytes(content[:place])
        assert len(open_runs(home)) == (place != breaks[-1])
        close_run(folder, {"outcome": "interrupted"}, Redactor(), ManualClock(START))
        assert open_runs(home) == []
        told = read_run(folder).events
        assert told[: seed - 1] == tuple(events[: seed - 1])
        assert sum(isinstance(event, CycleEnded) for event in told) == 1


_WORKER = """
import contextlib, random, sys
from datetime import UTC, datetime
from pathlib import Path
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import TaskTaken
from orchestrator.bot.journal.folders import Home, create_run_folder, new_run_id
from orchestrator.bot.journal.reader import lock_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.engine.policy.secrets import Redactor

start = datetime(2026, 11, 21, tzinfo=UTC)
folder = create_run_folder(Home(Path(sys.argv[1])), new_run_id(start, random.Random(5)))
with lock_run(folder), JournalWriter(folder, Redactor(), ManualClock(start)) as write:
    write(TaskTaken("issue-7", "Fix it", "", "issue", 7))
    print(folder, flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def living(home: Home) -> Iterator[tuple[Path, subprocess.Popen[bytes]]]:
    with subprocess.Popen(
        [sys.executable, "-c", _WORKER, str(home.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        yield Path(os.fsdecode(process.stdout.readline().strip())), process
        process.kill()


def test_a_living_run_is_left_alone_until_it_is_killed(home: Home) -> None:
    with living(home) as (folder, process):
        assert is_open(folder)
        assert open_runs(home) == []
        with pytest.raises(JournalError, match=f"process {process.pid} keeps .* locked"), lock_run(folder):
            pass
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert [run.id for run in open_runs(home)] == [folder.name]
        with lock_run(folder):
            # Who starts at the same time does not take it up as well.
            assert open_runs(home) == []
            close_run(folder, {"outcome": "resumed"}, Redactor(), ManualClock(START))
        assert open_runs(home) == []
        assert read_run(folder).events[-1] == CycleEnded({"outcome": "resumed"})


def test_looking_keeps_nobody_from_looking(home: Home) -> None:
    """A look takes the lock for a moment, shared."""
    import fcntl

    folder = begin(home)
    with (folder / "lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        assert len(open_runs(home)) == 1


def test_ended_runs_and_those_of_older_versions_are_not_open(home: Home) -> None:
    long = {"outcome": "proposed", "text": "x" * 100_000}
    assert not is_open(begin(home, [*STORY, CycleEnded(long)], seed=1))
    begin(home, [*STORY, CycleEnded({"outcome": "x"}), Warned("after the end")], seed=2)
    begin(home, STORY, seed=3, lock=False)
    begin(home, [Warned("y" * 50_000), CycleEnded({}), *[Warned("z" * 3000)] * 5], seed=4)
    (home.runs / "20261121-033112-abcdef").mkdir()
    (home.runs / "notes").mkdir()
    assert open_runs(home) == []


def test_words_do_not_end_a_run(home: Home) -> None:
    line = '{"seq":1,"at":"2026-11-21T03:31:12+00:00","type":"CycleEnded","result":{}}'
    begin(home, [Warned(f"a\n{line}\n"), Warned(line)])
    assert len(open_runs(home)) == 1


def test_a_damaged_journal_counts_and_gets_an_end(home: Home) -> None:
    folder = begin(home, seed=1)
    path = folder / JOURNAL_FILE
    path.write_bytes(with_lines(path.read_bytes(), 3, b"{garbage\n"))
    (run,) = open_runs(home)
    assert run.events == (*STORY[:2], *STORY[3:])
    close_run(folder, {"outcome": "x"}, Redactor(), ManualClock(START))
    assert read_run(folder).records[-1].seq == len(STORY) + 1
    assert open_runs(home) == []
    assert not is_open(folder)


def test_a_newer_journal_is_passed_over(home: Home) -> None:
    newer = begin(home, seed=2) / JOURNAL_FILE
    newer.write_bytes(newer.read_bytes().replace(b'"format":1', b'"format":99'))
    good = begin(home, seed=3)
    assert [run.folder for run in open_runs(home)] == [good]
    assert unreadable_runs(home) == [
        f"{newer}, line 1: written in format 99, this version reads up to 1; update Pullwright"
    ]
    before = newer.read_bytes()
    with pytest.raises(JournalError):
        close_run(newer.parent, {}, Redactor(), ManualClock())
    assert newer.read_bytes() == before


def test_newest_first_however_many_ended_since(home: Home) -> None:
    names = [begin(home, [], at=START + timedelta(days=day), seed=day).name for day in range(8)]
    assert [run.id for run in open_runs(home)] == names[::-1]
    for number in range(250):
        begin(home, [CycleEnded({})], at=START + timedelta(days=9, seconds=number), seed=number)
    assert [run.id for run in open_runs(home)] == names[::-1]
    assert [run.id for run in open_runs(home)] == names[::-1]


def _without(index: bytes, name: str) -> bytes:
    return (
        index.replace(f'"{name}"'.encode(), b"")
        .replace(b"[, ", b"[")
        .replace(b", ]", b"]")
        .replace(b", , ", b", ")
    )


def _replace(path: Path, program: str) -> None:
    path.unlink()
    subprocess.run([program, path], check=True)


INDEX_DAMAGE: dict[str, Callable[[Path, str], object]] = {
    "lost": lambda path, _name: path.unlink(),
    "empty": lambda path, _name: path.write_bytes(b""),
    "cut": lambda path, _name: path.write_bytes(path.read_bytes()[:-9]),
    "nothing but NUL bytes": lambda path, _name: path.write_bytes(bytes(path.stat().st_size)),
    "garbage": lambda path, _name: path.write_bytes(bytes(range(256))),
    "too deep": lambda path, _name: path.write_bytes(b"[" * 100_000),
    "another type": lambda path, _name: path.write_bytes(b'{"last": 7, "open": {}, "digest": []}'),
    "no strings": lambda path, _name: path.write_bytes(
        path.read_bytes().replace(b'"open": [', b'"open": [7, ')
    ),
    "a run left out": lambda path, name: path.write_bytes(_without(path.read_bytes(), name)),
    "of a later time": lambda path, _name: path.write_bytes(
        path.read_bytes().replace(b'"last": "2026', b'"last": "2099')
    ),
    "another encoding": lambda path, _name: path.write_bytes(path.read_bytes().decode().encode("utf-16")),
    "a folder": lambda path, _name: _replace(path, "mkdir"),
    "a pipe": lambda path, _name: _replace(path, "mkfifo"),
    "not to be read": lambda path, _name: path.chmod(0),
}


@pytest.mark.parametrize("damage", INDEX_DAMAGE)
def test_a_damaged_index_loses_no_run(home: Home, damage: str) -> None:
    begin(home, [CycleEnded({})], seed=1)
    dead = [begin(home, at=START + timedelta(minutes=number), seed=number).name for number in (2, 3)]
    assert [run.id for run in open_runs(home)] == dead[::-1]
    INDEX_DAMAGE[damage](home.root / OPEN_RUNS_FILE, dead[0])
    assert [run.id for run in open_runs(home)] == dead[::-1]
    for name in dead:
        close_run(home.runs / name, {}, Redactor(), ManualClock(START))
    assert open_runs(home) == []


_SEED = st.integers(min_value=0, max_value=40)
_STEPS = st.one_of(
    st.tuples(st.just("begin"), _SEED),  # in any order of time: clocks are set
    st.tuples(st.just("begin without a journal"), _SEED),
    st.tuples(st.just("write the journal"), _SEED),
    st.tuples(st.just("end"), _SEED),
    st.tuples(st.just("remove"), _SEED),
    st.tuples(st.just("look"), _SEED),
    st.tuples(st.just("a slower process writes what it saw"), _SEED),
)


@given(steps=st.lists(_STEPS, max_size=30))
def test_the_index_says_what_the_folders_say(  # noqa: C901  one case a step
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    home = Home(tmp_path_factory.mktemp("home"))
    index, seen = home.root / OPEN_RUNS_FILE, list[bytes]()
    expected, removed = set[str](), set[str]()
    for what, number in steps:
        at = START + timedelta(minutes=number)
        name = new_run_id(at, random.Random(number))  # noqa: S311
        folder = home.runs / name
        match what:
            case _ if name in removed:
                pass
            case "begin" if not folder.exists():
                begin(home, STORY[:1], at=at, seed=number)
                expected.add(name)
            case "begin without a journal" if not folder.exists():
                create_run_folder(home, name)
            case "write the journal" if folder.exists() and not (folder / JOURNAL_FILE).exists():
                with lock_run(folder), JournalWriter(folder, Redactor(), ManualClock(at)):
                    expected.add(name)
            case "end" if name in expected:
                close_run(folder, {}, Redactor(), ManualClock(at))
                expected.remove(name)
            case "remove" if folder.exists():
                shutil.rmtree(folder)
                expected.discard(name)
                removed.add(name)  # no other run gets its name
            case "a slower process writes what it saw" if seen:
                index.write_bytes(seen[number % len(seen)])
            case "look":
                assert {run.id for run in open_runs(home)} == expected
                if index.exists():
                    seen.append(index.read_bytes())
            case _:
                pass
    assert {run.id for run in open_runs(home)} == expected


def test_whether_a_run_is_over_is_found_out_however_old_it_is(home: Home) -> None:
    over = begin(home, [CycleEnded({})], seed=1).name
    dead = begin(home, seed=2).name
    runs = DeadRuns(home) | ["known"]
    assert over in runs
    assert "known" in runs
    assert dead not in runs
    assert f"../runs/{over}" not in runs
    assert "20260101-000000-abcdef" not in runs


def test_only_the_end_of_old_journals_is_read(home: Home) -> None:
    """A journal of which only the end is there is still known to have ended."""
    folder = begin(home, [Warned("x" * 100_000), CycleEnded({})])
    path = folder / JOURNAL_FILE
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\0" * (size - 5000))
    assert not is_open(folder)
    assert open_runs(home) == []


def test_no_home_and_no_journal(home: Home) -> None:
    assert open_runs(home) == []
    folder = create_run_folder(home, "20261121-033112-abcdef")
    assert not is_open(folder)
    with pytest.raises(JournalError, match="there is no journal"):
        close_run(folder, {}, Redactor(), ManualClock())
    with pytest.raises(JournalError, match="cannot lock the run"), lock_run(home.runs / "nowhere"):
        pass


def test_a_lock_that_is_a_link_is_not_followed(home: Home, tmp_path: Path) -> None:
    folder = begin(home)
    (folder / "lock").unlink()
    (folder / "lock").symlink_to(tmp_path / "elsewhere")
    assert open_runs(home) == []
    with pytest.raises(JournalError), lock_run(folder):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_closing_twice_writes_once_and_secrets_are_taken_out(home: Home) -> None:
    folder = begin(home)
    for _ in range(2):
        close_run(
            folder,
            {"outcome": "x", "error": "open-sesame"},
            Redactor(["open-sesame"]),
            ManualClock(START),
        )
    lines = (folder / JOURNAL_FILE).read_text().splitlines()
    assert json.loads(lines[-1])["result"] == {"outcome": "x", "error": "[redacted]"}
    assert len([line for line in lines if "CycleEnded" in line and line.startswith('{"seq":15')]) == 1
    assert len(lines) == len(STORY) + 2


def test_a_full_disk_leaves_the_journal_as_it_was(home: Home) -> None:
    folder = begin(home)
    before = (folder / JOURNAL_FILE).read_bytes()
    code = (
        "import resource, signal, sys\nfrom pathlib import Path\n"
        "from orchestrator.core.clock import ManualClock\nfrom orchestrator.core.errors import DiskFullError\n"
        "from orchestrator.bot.journal.reader import close_run\n"
        "from orchestrator.engine.policy.secrets import Redactor\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        f"resource.setrlimit(resource.RLIMIT_FSIZE, ({len(before) + 20},) * 2)\n"
        "try:\n    close_run(Path(sys.argv[1]), {'outcome': 'x'}, Redactor(), ManualClock())\n"
        "except DiskFullError:\n    sys.exit(7)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, str(folder)], check=False).returncode == 7
    assert (folder / JOURNAL_FILE).read_bytes() == before
