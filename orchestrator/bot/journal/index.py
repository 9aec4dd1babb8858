"""One summary of each run, from its journal."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.open_runs import is_alive
from orchestrator.bot.journal.reader import Unanswered, cost_of, objects_in, piece_of, runs
from orchestrator.bot.journal.records import TYPE_KEY, UnknownRecord, append_last, decode
from orchestrator.core.cycle_events import (
    CycleEnded,
    CycleStarted,
    ForgeUsed,
    Paused,
    Proposed,
    QuestionAsked,
    Reserved,
    TaskTaken,
    Verified,
    WorkSaved,
)
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.diff_stat import DiffStat
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import (
    CallStatus,
    PlanAccepted,
    ReplyReceived,
    SubagentEvent,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.locks import LONGEST_WAIT_SECONDS, keeper, wait_for_lock_async
from orchestrator.core.repositories import repository_key
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from datetime import date
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event


# The beginning of each line, as the journal's writer makes it.
_HEAD = re.compile(rb'\{"seq":\d+,"at":"([0-9T:.+-]{25,32})","type":"(\w+)"')
_WANTED = frozenset(
    kind.__name__.encode()
    for kind in (
        *(CycleStarted, TaskTaken, PlanAccepted, ReplyReceived, ToolCallStarted, ToolCallEnded, Guarded),
        *(Verified, Proposed, QuestionAsked, WorkSaved, ForgeUsed, Paused, CycleEnded),
    )
)
_A_REPLY = b'"type":"ReplyReceived"'
_SECONDS_A_MINUTE = 60.0
_WRITERS = frozenset({"edit_file", "write_file", "replace"})
_PATCHERS = frozenset({"apply_patch", "apply_patch_unified"})
# Of OpenAI's patches, and of unified diffs.
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:\+\+\+ b|--- a)/)([^\n\t]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class RunNote:
    """A run. Text is empty where there is none.

    Attributes:
        started: of the first record; None where there is none.
        outcome: as `CycleResult.outcome` has it; `running` while its process is alive, `unfinished` where
            that died, `damaged` where the journal does not even tell how it began.
        task_url: where a person reads it.
        plan: the last one.
        verified: what the tests proved of the last change that was looked at.
        refused: why what somebody asked for was not taken up.
        patch: the file that holds work which was not proposed.
        saved: the hidden ref that holds it.
        changed: the files and lines of the pull request, or of what a dry run would have proposed.
        touched: paths that tools of ours wrote, in order.
        costs: by model.
        pause: how long there is nothing to do after it.
    """

    id: str
    started: datetime | None = None
    repository: str = ""
    model: str = ""
    outcome: str = "damaged"
    task: TaskTaken | None = None
    task_url: str = ""
    plan: str = ""
    verified: Verified | None = None
    pull: Proposed | None = None
    question: str = ""
    question_url: str = ""
    reason: str = ""
    error: str = ""
    refused: tuple[str, ...] = ()
    patch: str = ""
    saved: str = ""
    changed: DiffStat = DiffStat()  # noqa: RUF009  a frozen value
    touched: tuple[str, ...] = ()
    costs: Mapping[str, Spent] = field(default_factory=dict)
    minutes: float = 0.0
    requests: int = 0
    pause: Pause | None = None

    @property
    def spent(self) -> Spent:
        """All models together."""
        return sum(self.costs.values(), Spent(minutes=self.minutes))


def note_run(folder: Path) -> RunNote:
    """Read a run's journal. Lines that cannot be read are passed over."""
    notes = _Notes()
    try:
        with (folder / JOURNAL_FILE).open("rb") as file:
            for line in file:
                notes.add(line)
    except OSError:
        return RunNote(folder.name)
    return notes.finish(folder)


@dataclass(slots=True)
class _Notes:
    """Collects what the records say."""

    started: datetime | None = None
    last: datetime | None = None
    begin: CycleStarted | None = None
    task: TaskTaken | None = None
    plan: str = ""
    verified: Verified | None = None
    pull: Proposed | None = None
    question: QuestionAsked | None = None
    work: WorkSaved | None = None
    requests: int = 0
    pause: Pause | None = None
    refused: list[str] = field(default_factory=list)
    costs: dict[str, Spent] = field(default_factory=dict)
    result: Mapping[str, Any] | None = None
    calls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Take one line in."""
        head = _HEAD.match(line)
        if head is None:
            return
        at = _moment(head[1].decode("ascii"))
        if self.result is None and at is not None:  # what is written after the end is no work
            self.started, self.last = self.started or at, at
        if head[2] in _WANTED or _A_REPLY in line:
            event = _event(line)
            if event is not None:
                self.take(event)

    def take(self, event: Event) -> None:  # noqa: C901, PLR0912  one case an event
        """Take an event in."""
        match event:
            case SubagentEvent():
                self.take(event.event)
            case CycleStarted():
                self.begin = event
            case TaskTaken():
                self.task = event
            case PlanAccepted() if event.plan.strip():
                self.plan = event.plan
            case ReplyReceived():
                self.costs[event.model] = self.costs.get(event.model, Spent()) + cost_of(event)
            case ToolCallStarted():
                self.calls[event.call_id] = _written(event)
            case ToolCallEnded() if event.status is CallStatus.OK:
                self.touched.update(dict.fromkeys(self.calls.pop(event.call_id, ())))
            case Guarded() if event.defence is Defence.ADMISSION:
                self.refused.append(event.message)
            case Verified():
                self.verified = event
            case Proposed():
                self.pull = event
            case QuestionAsked():
                self.question = event
            case WorkSaved():
                self.work = event
            case ForgeUsed():
                self.requests += max(event.requests, 0)
            case Paused():
                self.pause = _pause(event.until, event.reason) or self.pause
            case CycleEnded():
                self.result = event.result
            case _:
                pass

    def finish(self, folder: Path) -> RunNote:
        """What was collected."""
        result = self.result or {}
        task = result.get("task")
        works = self.result is None and is_alive(folder)
        outcome = _text(result, "outcome") or ("running" if works else "unfinished")
        return RunNote(
            folder.name,
            self.started,
            self.begin.repository if self.begin else "",
            self.begin.model if self.begin else "",
            outcome if self.begin else "damaged",
            self.task,
            _text(task, "url") if isinstance(task, dict) else "",
            _text(result, "plan") or self.plan,
            self.verified,
            self.pull,
            _text(result, "question") or (self.question.question if self.question else ""),
            _text(result, "question_url") or (self.question.url or "" if self.question else ""),
            _text(result, "reason"),
            _text(result, "error"),
            tuple(self.refused),
            _text(result, "patch") or (self.work.path if self.work else ""),
            _text(result, "saved") or (self.work.ref if self.work else ""),
            _changed(result),
            tuple(self.touched),
            self.costs,
            self._minutes(),
            self.requests,
            self.pause or _pause(_text(result, "wake_at"), _text(result, "reason")),
        )

    def _minutes(self) -> float:
        if self.started is None or self.last is None:
            return 0.0
        return max((self.last - self.started).total_seconds(), 0.0) / _SECONDS_A_MINUTE


def _event(line: bytes) -> Event | None:
    try:
        data = json.loads(line)
        event = decode(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError, JournalError):
        return None
    return None if isinstance(event, UnknownRecord) else event


def _written(call: ToolCallStarted) -> tuple[str, ...]:
    """The paths that a call is to write, as far as its arguments say so plainly."""
    arguments = call.arguments
    if call.name in _WRITERS:
        path = arguments.get("path") or arguments.get("file_path")
        return (path,) if isinstance(path, str) else ()
    if call.name in _PATCHERS:
        texts = [value for value in arguments.values() if isinstance(value, str)]
        return tuple(path.strip() for text in texts for path in _PATCHED.findall(text))
    return ()


def _text(values: Mapping[str, Any], name: str) -> str:
    value = values.get(name)
    return value if isinstance(value, str) else ""


def _pause(until: str, reason: str) -> Pause | None:
    at = _moment(until)
    return Pause(at, reason) if at else None


def _moment(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)


def _changed(result: Mapping[str, Any]) -> DiffStat:
    told = result.get("changed")
    fields = told if isinstance(told, dict) else {}
    files = fields.get("files")
    names = tuple(name for name in files if isinstance(name, str)) if isinstance(files, list) else ()
    added, removed = (fields.get(name) for name in ("added", "removed"))
    return DiffStat(names, added if type(added) is int else 0, removed if type(removed) is int else 0)


NEWEST_RUNS = 1_000
"""So many are looked at. Every look at every repository is a run: a fleet has many in an hour."""
_END_BYTES = 64 * 1024  # a pause is among the last records, which are short
_BEGINNING_BYTES = 16 * 1024  # the header and the first record


@dataclass(frozen=True, slots=True)
class Pause:
    """Nothing is begun until this time (UTC), for this reason, which is one line."""

    until: datetime
    reason: str

    @property
    def event(self) -> Paused:
        """As it is written into a journal."""
        return Paused(self.until.isoformat(timespec="seconds"), self.reason)


def last_pause(
    home: Home,
    now: datetime,
    *,
    repository: str | None = None,
    model: str | None = None,
    most: int = NEWEST_RUNS,
) -> Pause | None:
    """The pause that the newest run ended with, if it is not over.

    Only the beginnings and ends of the newest journals are read. What cannot be read is no pause.

    Args:
        home: where the runs are.
        now: the time.
        repository: only runs on this one count, under any of its names that are whole.
        model: only runs with this one count: who restarts with another model need not wait.
        most: so many of the newest runs are looked at.
    """
    folder = newest_run(home, repository=repository, model=model, most=most)
    return None if folder is None else pause_of(folder, now)


def pause_of(folder: Path, now: datetime) -> Pause | None:
    """The pause that the run in this folder ended with, if it is not over."""
    pause = _pause_in(folder / JOURNAL_FILE)
    return pause if pause and pause.until > now else None


def newest_run(
    home: Home, *, repository: str | None = None, model: str | None = None, most: int = NEWEST_RUNS
) -> Path | None:
    """The folder of the newest run on this repository with this model, as for `last_pause`."""
    try:
        newest = runs(home)[:most]
    except JournalError:
        return None
    wanted = None if repository is None else repository_key(repository)
    for folder in newest:
        started = _started(folder / JOURNAL_FILE)
        if started is None or model not in (None, started.model):
            continue
        if wanted is None or repository_key(started.repository) == wanted:
            return folder
    return None


def _started(path: Path) -> CycleStarted | None:
    for data in objects_in(piece_of(path, _BEGINNING_BYTES, from_end=False)):
        event = _pause_event(data)
        if isinstance(event, CycleStarted):
            return event
    return None


def _pause_in(path: Path) -> Pause | None:
    found: Pause | None = None
    for data in objects_in(piece_of(path, _END_BYTES, from_end=True)):
        event = _pause_event(data)
        if isinstance(event, Paused):
            found = _pause_told(event) or found
    return found


def _pause_told(event: Paused) -> Pause | None:
    try:
        until = datetime.fromisoformat(event.until)
    except ValueError:
        return None
    return Pause(until if until.tzinfo else until.replace(tzinfo=UTC), event.reason)


def _pause_event(data: dict[str, Any]) -> object:
    if data.get("type") not in (CycleStarted.__name__, Paused.__name__):
        return None
    try:
        event = decode(data)
    except JournalError:
        return None
    return None if isinstance(event, UnknownRecord) else event


LOCK_FILE = "spend.lock"
_PRIVATE = 0o600
# The beginning of each line, as the journal's writer makes it.
_STAMP = re.compile(rb'\{"seq":\d+,"at":"([0-9T:.+-]{25,32})"')
_KINDS = (TurnStarted, WaitStarted, ReplyReceived, Reserved, CycleEnded)
_MARKS = tuple(f'"type":"{kind.__name__}"'.encode() for kind in _KINDS)
_REPLY = _MARKS[_KINDS.index(ReplyReceived)]


@asynccontextmanager
async def spend_lock(home: Home, *, seconds: float = LONGEST_WAIT_SECONDS) -> AsyncIterator[None]:
    """Alone on this machine, from reading what is spent until what is reserved is written down.

    Args:
        home: whose runs are read.
        seconds: how long to wait for another process, in real time.

    Raises:
        JournalError: another process keeps it for longer, or the file cannot be made.
    """
    path = home.root / LOCK_FILE
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _PRIVATE)
    except OSError as error:
        raise JournalError(f"cannot open {path}: {error.strerror or error}") from error
    try:
        try:
            is_ours = await wait_for_lock_async(file, seconds)
        except OSError as error:
            raise JournalError(f"cannot lock {path}: {error.strerror or error}") from error
        if not is_ours:
            raise JournalError(f"what may be spent is not known after {seconds:.0f} s: {keeper(file, path)}")
        yield
    finally:
        os.close(file)


def spent_on(home: Home, now: datetime, *, besides: str = "") -> Spent:
    """What this UTC day's runs have cost, or may still cost.

    A run that has ended counts with what its journal shows; one whose process is dead with what the requests
    may have cost, too, to which no reply came; one that is alive with what it has reserved. Only runs that began today or yesterday are read.

    Args:
        home: where the runs are.
        now: the time, in UTC.
        besides: a run that does not count: the one that asks.

    Raises:
        JournalError: a journal is there and cannot be read.
    """
    today = now.astimezone(UTC).date()
    total = Spent()
    for folder in _folders(home, today):
        if folder.name != besides:
            account = _Account.read(folder, today)
            total += account.charge(now, alive=not account.ended and is_alive(folder))
    return total


def _folders(home: Home, today: date) -> list[Path]:
    days = tuple(f"{day:%Y%m%d}-" for day in (today - timedelta(days=1), today))
    try:
        return [one for one in home.runs.iterdir() if one.name.startswith(days) and one.is_dir()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {home.runs}: {error.strerror or error}") from error


@dataclass(slots=True)
class _Account:
    """What one journal says of a day, and of the time before it."""

    day: date
    before: Spent = field(default_factory=Spent)
    on_day: Spent = field(default_factory=Spent)
    reserved: Reserved | None = None
    unanswered: Unanswered = field(default_factory=Unanswered)
    ended: bool = False
    first: datetime | None = None
    last: datetime | None = None

    @classmethod
    def read(cls, folder: Path, day: date) -> _Account:
        account = cls(day)
        path = folder / JOURNAL_FILE
        try:
            with path.open("rb") as file:
                for line in file:
                    account.add(line)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise JournalError(f"cannot read the journal {path}: {error.strerror or error}") from error
        for at, cost in account.unanswered.all:
            account._count(at, cost)
        return account

    def add(self, line: bytes) -> None:
        """Take one line in. One that was torn off in the middle says nothing."""
        stamp = _STAMP.match(line)
        at = _stamped(stamp[1]) if stamp else None
        if at is None:
            return
        self.first = self.first or at
        self.last = at
        if not any(mark in line for mark in _MARKS):
            return
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            return
        self.ended = self.ended or data.get(TYPE_KEY) == CycleEnded.__name__
        event = _known(data)
        if event is not None:
            self.reserved = event if isinstance(event, Reserved) else self.reserved
            self.unanswered.take(event, at)
        if (told := _unanswered(data)) is not None:
            self.unanswered = Unanswered()  # the run itself knew better
        self._count(at, _reply(event, line) or told or Spent())

    def _count(self, at: datetime, cost: Spent) -> None:
        if at.date() == self.day:
            self.on_day += cost
        elif at.date() < self.day:
            self.before += cost

    def charge(self, now: datetime, *, alive: bool) -> Spent:
        """What the run counts for the day."""
        works = alive
        start = datetime.combine(self.day, time(), UTC)
        before = self.before + Spent(
            minutes=self._minutes(datetime.min.replace(tzinfo=UTC), start, now, works=works)
        )
        spent = self.on_day + Spent(minutes=self._minutes(start, start + timedelta(days=1), now, works=works))
        held = self.reserved
        if not works or held is None:
            return spent
        usd = spent.usd
        if held.usd is not None and usd is not None and before.usd is not None:
            usd = max(usd, held.usd - before.usd)
        return Spent(
            usd,
            spent.tokens if held.tokens is None else max(spent.tokens, held.tokens - before.tokens),
            spent.minutes if held.minutes is None else max(spent.minutes, held.minutes - before.minutes),
            spent.rounds if held.rounds is None else max(spent.rounds, held.rounds - before.rounds),
        )

    def _minutes(self, start: datetime, end: datetime, now: datetime, *, works: bool) -> float:
        """How long the run was at work within a time."""
        if self.first is None or self.last is None:
            return 0.0
        last = max(now, self.last) if works else self.last
        seconds = (min(last, end) - max(self.first, start)).total_seconds()
        return max(seconds, 0.0) / _SECONDS_A_MINUTE


def _reply(event: Event | None, line: bytes) -> Spent | None:
    """What a reply cost: of the session or of one that it started. Nobody knows it of one that cannot be read."""
    if event is None and _REPLY in line:
        return Spent(None, rounds=1)
    while isinstance(event, SubagentEvent):
        event = event.event
    return cost_of(event) if isinstance(event, ReplyReceived) else None


def _unanswered(data: dict[str, Any]) -> Spent | None:
    """What requests may have cost to which no reply came: the end of a cycle tells it, else it is None."""
    result = data.get("result")
    if data.get(TYPE_KEY) != CycleEnded.__name__ or not isinstance(result, dict):
        return None
    if "uncertain_tokens" not in result:
        return None
    usd, tokens = result.get("uncertain_usd", 0.0), result["uncertain_tokens"]
    known = max(float(usd), 0.0) if isinstance(usd, int | float) and math.isfinite(usd) else 0.0
    return Spent(None if usd is None else known, max(tokens, 0) if isinstance(tokens, int) else 0)


def _known(data: dict[str, Any]) -> Event | None:
    try:
        event = decode(data)
    except JournalError:
        return None
    return None if isinstance(event, UnknownRecord) else event


def _stamped(stamp: bytes) -> datetime | None:
    try:
        at = datetime.fromisoformat(stamp.decode("ascii"))
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else None


def note_pause(home: Home, run: str, pause: Pause, redact: Callable[[str], str], clock: Clock) -> None:
    """Append a pause to the journal of a run that has ended.

    What cannot be written is left out: the worker that waits knows the time anyway.
    """
    folder = home.runs / run
    with suppress(DiskFullError, JournalError, OSError):
        with (folder / JOURNAL_FILE).open("rb") as journal:
            number = sum(1 for _ in journal)
        append_last(folder, pause.event, number, redact, clock)
