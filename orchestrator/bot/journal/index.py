"""The index of runs: folds each journal into one summary, which answers all questions about many runs."""

from __future__ import annotations

import copy
import json
import math
import os
import re
import shutil
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.reader import (
    MOST_LINE_BYTES,
    Unanswered,
    bounded_lines,
    cost_of,
    is_alive,
    read_header,
    why_killed,
)
from orchestrator.bot.journal.records import UnknownRecord, append_last, decode_event
from orchestrator.core.changes import DiffStat
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
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    MessageAdded,
    PlanAccepted,
    ReplyReceived,
    SubagentEvent,
    ToolCallEnded,
    ToolCallStarted,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.policy.secrets import Redactor

_Kind = TypeVar("_Kind")
MOST_RUNS_FOR_PAUSES = 1_000
"""Newest runs that are searched. Each look at a repository is a run: a fleet makes many in an hour."""
MOST_RUNS_FOR_TASKS = 300
_MOST_SUMMARIES = 2_048  # that a process remembers
_BEGINNING_BYTES = 1024 * 1024
_SAID_CHARS = 300
_SECONDS_A_MINUTE = 60.0
# The beginning of each line, as the journal's writer makes it.
_HEAD = re.compile(rb'\{"seq":(\d{1,12}),"at":"([0-9T:.+-]{25,32})","type":"(\w+)"')
_LAST_COUNTS = (CycleStarted, TaskTaken, Verified, Proposed, QuestionAsked, WorkSaved, Reserved)
_FOLDED = frozenset(
    kind.__name__.encode()
    for kind in (
        *_LAST_COUNTS,
        *(PlanAccepted, ReplyReceived, ToolCallStarted, ToolCallEnded, Guarded, ForgeUsed, Paused),
        *(CycleEnded, TurnStarted, WaitStarted),
    )
)
# Of subagents only costs count. Inside a text the quotation marks would be escaped.
_REPLY = b'"type":"ReplyReceived"'
_PAID = re.compile(rb'"type":"(?:TurnStarted|WaitStarted|ReplyReceived)"')
_WRITERS = frozenset({"edit_file", "write_file", "replace"})
_PATCHERS = frozenset({"apply_patch", "apply_patch_unified"})
_WRITING = re.compile(
    rb'"name":"(?:' + b"|".join(name.encode() for name in sorted(_WRITERS | _PATCHERS)) + rb')"'
)
# Of OpenAI's patches, and of unified diffs.
_PATCHED = re.compile(r"^(?:\*\*\* (?:Add|Update|Delete) File: |(?:\+\+\+ b|--- a)/)([^\n\t]+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Pause:
    """A time (UTC) until which nothing starts, with the reason in one line."""

    until: datetime
    reason: str

    @property
    def event(self) -> Paused:
        """The event for a journal."""
        return Paused(self.until.isoformat(timespec="seconds"), self.reason)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """The summary of a run. Missing texts are empty.

    Attributes:
        started: time of its first record.
        ended: time of its end, or of its last record if it has none.
        outcome: as in `CycleResult.outcome`; `running` if its process is alive, `unfinished` if that died,
            `damaged` if the journal does not even contain the start.
        is_running: whether its journal has no end, and its process is alive.
        is_damaged: whether lines are missing or unreadable, or a newer version wrote the journal.
        fault: why an existing journal cannot be read.
        task_url: where a person can read the task.
        is_conversation: whether a person talked with the model.
        said: for a conversation the person's first message; for a verification the pull request.
        plan: the last plan.
        verified: what the tests proved about the last verified change.
        refused: why a request was refused.
        waits: the tasks that were seen to wait for a person, by key, each with the reason.
        patch: file with work that was not proposed.
        saved: hidden ref with that work.
        changed: files and lines of the pull request, or of what a dry run would have proposed.
        touched: paths that our tools wrote, in order.
        costs: cost of replies, by model.
        costs_by_day: by UTC day, including possible costs of requests without a reply.
        reserved: the last reservation.
        pause: the time after it in which there is nothing to do.
        noted_pause: the pause that a worker recorded after it; a restart waits for its end.
    """

    id: str
    started: datetime | None = None
    ended: datetime | None = None
    repository: str = ""
    model: str = ""
    outcome: str = "damaged"
    is_running: bool = False
    is_damaged: bool = True
    fault: str = ""
    task: TaskTaken | None = None
    task_url: str = ""
    is_conversation: bool = False
    said: str = ""
    plan: str = ""
    verified: Verified | None = None
    pull: Proposed | None = None
    question: str = ""
    question_url: str = ""
    reason: str = ""
    error: str = ""
    refused: tuple[str, ...] = ()
    waits: Mapping[str, str] = field(default_factory=dict)
    patch: str = ""
    saved: str = ""
    changed: DiffStat = DiffStat()  # noqa: RUF009  a frozen value
    touched: tuple[str, ...] = ()
    costs: Mapping[str, Spent] = field(default_factory=dict)
    costs_by_day: Mapping[date, Spent] = field(default_factory=dict)
    reserved: Reserved | None = None
    requests: int = 0
    pause: Pause | None = None
    noted_pause: Pause | None = None

    @property
    def minutes(self) -> float:
        """The duration of the run."""
        return _minutes(self.started, self.ended)

    @property
    def spent(self) -> Spent:
        """The cost of its replies, of all models together, and its duration."""
        return sum(self.costs.values(), Spent(minutes=self.minutes))

    def pause_at(self, now: datetime) -> Pause | None:
        """Return the pause that a worker recorded after it, if it is not over."""
        return self.noted_pause if self.noted_pause and self.noted_pause.until > now else None


def summarise(folder: Path) -> RunSummary:
    """Summarize a run from its journal. Unreadable lines are skipped.

    Only the new part of a grown journal is read.
    """
    path = folder / JOURNAL_FILE
    try:
        summary, is_over = _FOLDS.summary(path)
    except (FileNotFoundError, NotADirectoryError):
        return RunSummary(folder.name)
    except OSError as error:
        return RunSummary(folder.name, fault=f"cannot read the journal {path}: {error.strerror or error}")
    if is_over:
        return summary
    if not is_alive(folder):
        return replace(summary, error=summary.error or why_killed(folder))
    outcome = "running" if summary.outcome == "unfinished" else summary.outcome
    return replace(summary, outcome=outcome, is_running=True)


@dataclass(slots=True)
class _Fold:
    """Folds the records of one journal. Only relevant records are parsed."""

    lines: int = 0
    first_broken: float = math.inf
    started: datetime | None = None
    ended: datetime | None = None
    last: dict[type, Event] = field(default_factory=dict)  # of each of `_LAST_COUNTS`
    said: str = ""
    plan: str = ""
    requests: int = 0
    pause: Pause | None = None
    refused: list[str] = field(default_factory=list)
    costs: dict[str, Spent] = field(default_factory=dict)
    costs_by_day: dict[date, Spent] = field(default_factory=dict)
    unanswered: Unanswered = field(default_factory=Unanswered)
    result: Mapping[str, Any] | None = None
    calls: dict[str, tuple[str, ...]] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)

    def add(self, line: bytes) -> None:
        """Add the next line."""
        self.lines += 1
        head = _HEAD.match(line)
        at = _moment(head[2].decode("ascii")) if head else None
        if head is None or at is None or not line.endswith(b"}\n"):
            self.first_broken = min(self.first_broken, self.lines)
        elif int(head[1]) != self.lines - 1 or (self.lines == 1 and not _is_header(line)):
            self.first_broken = 0
        if head is None or at is None:
            return
        if self.result is None:  # a pause may be noted after the end
            self.started, self.ended = self.started or at, at
        kind = head[3]
        if kind == b"ToolCallStarted" and not _WRITING.search(line):
            return
        is_paid = kind == b"SubagentEvent" and _PAID.search(line) is not None
        begin = self._last(CycleStarted)
        is_first_message = kind == b"MessageAdded" and not self.said and begin is not None and begin.door
        if not (is_paid or is_first_message or kind in _FOLDED) or (
            kind == b"ToolCallEnded" and not self.calls
        ):
            return
        event = _event(line)
        if event is not None:
            self._take(event, at)
            self.unanswered.take(event, at)
        elif _REPLY in line:
            self._count(at, Spent(None, rounds=1))  # the cost of an unreadable reply is unknown
        if kind == b"CycleEnded":
            self._end(at)

    def _end(self, at: datetime) -> None:
        self.result = {} if self.result is None else self.result
        reported = _reported_unanswered(self.result)
        if reported is not None:
            self.unanswered = Unanswered()  # the run itself knew more than its journal says
            self._count(at, reported)

    def _count(self, at: datetime, cost: Spent) -> None:
        day = at.date()
        self.costs_by_day[day] = self.costs_by_day.get(day, Spent()) + cost

    def _last(self, kind: type[_Kind]) -> _Kind | None:
        found = self.last.get(kind)
        return found if isinstance(found, kind) else None

    def _take(self, event: Event, at: datetime) -> None:  # noqa: C901  one case an event
        match event:
            case SubagentEvent():
                self._take(event.event, at)
            case MessageAdded():
                self.said = event.message.text[:_SAID_CHARS]
            case PlanAccepted() if event.plan.strip():
                self.plan = event.plan
            case ReplyReceived():
                cost = cost_of(event)
                self.costs[event.model] = self.costs.get(event.model, Spent()) + cost
                self._count(at, cost)
            case ToolCallStarted() if paths := _written(event):
                self.calls[event.call_id] = paths
            case ToolCallEnded() if event.status is CallStatus.OK:
                self.touched.update(dict.fromkeys(self.calls.pop(event.call_id, ())))
            case Guarded() if event.defence is Defence.ADMISSION:
                self.refused.append(event.message)
            case ForgeUsed():
                self.requests += max(event.requests, 0)
            case Paused():
                self.pause = _pause(event.until, event.reason) or self.pause
            case CycleEnded():
                self.result = event.result
            case _ if isinstance(event, _LAST_COUNTS):
                self.last[type(event)] = event
            case _:
                pass

    def summary(self, run: str) -> RunSummary:
        """Return the summary, for a run whose process is dead."""
        by_day = dict(self.costs_by_day)
        for at, cost in self.unanswered.all:
            by_day[at.date()] = by_day.get(at.date(), Spent()) + cost
        result = self.result or {}
        task = result.get("task")
        begin, question, work = self._last(CycleStarted), self._last(QuestionAsked), self._last(WorkSaved)
        return RunSummary(
            id=run,
            started=self.started,
            ended=self.ended,
            repository=begin.repository if begin else "",
            model=begin.model if begin else "",
            outcome=(_text(result, "outcome") or "unfinished") if begin else "damaged",
            # The last line may have been cut off while it was written.
            is_damaged=not self.lines or self.first_broken < self.lines,
            task=self._last(TaskTaken),
            task_url=_text(task, "url") if isinstance(task, dict) else "",
            is_conversation=bool(self.said),
            said=self.said or (_text(result, "reason") if begin and begin.door else ""),
            plan=_text(result, "plan") or self.plan,
            verified=self._last(Verified),
            pull=self._last(Proposed),
            question=_text(result, "question") or (question.question if question else ""),
            question_url=_text(result, "question_url") or (question.url or "" if question else ""),
            reason=_text(result, "reason"),
            error=_text(result, "error"),
            refused=tuple(self.refused),
            waits=_texts(result, "waits"),
            patch=_text(result, "patch") or (work.path if work else ""),
            saved=_text(result, "saved") or (work.ref if work else ""),
            changed=_changed(result),
            touched=tuple(self.touched),
            costs=dict(self.costs),
            costs_by_day=by_day,
            reserved=self._last(Reserved),
            requests=self.requests,
            pause=self.pause or _pause(_text(result, "wake_at"), _text(result, "reason")),
            noted_pause=self.pause,
        )


@dataclass(slots=True)
class _KnownJournal:
    """What was read of a journal, up to the end of its last complete line."""

    file: tuple[int, int]
    size: int = -1
    changed: int = -1
    read: int = 0
    fold: _Fold = field(default_factory=_Fold)
    result: tuple[RunSummary, bool] | None = None


class _Folds:
    """Caches the summaries of recently read journals. It is thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[Path, _KnownJournal] = OrderedDict()
        self._lock = threading.Lock()

    def summary(self, path: Path) -> tuple[RunSummary, bool]:
        """Return the summary of a journal, and whether it has an end."""
        with self._lock, path.open("rb") as file:
            found = os.fstat(file.fileno())
            known = self._known.pop(path, None)
            if known is None or known.file != (found.st_dev, found.st_ino) or known.read > found.st_size:
                known = _KnownJournal((found.st_dev, found.st_ino))
            if known.result is None or (known.size, known.changed) != (found.st_size, found.st_mtime_ns):
                known.result = _read_on(known, file, path.parent.name)
                known.size, known.changed = found.st_size, found.st_mtime_ns
            self._known[path] = known
            if len(self._known) > self._most:
                self._known.popitem(last=False)
            return known.result


def _read_on(known: _KnownJournal, file: BinaryIO, run: str) -> tuple[RunSummary, bool]:
    """Fold the appended lines. An incomplete last line counts for now, and is read again later."""
    fold = known.fold
    file.seek(known.read)
    for line in bounded_lines(file):
        if not line.endswith(b"\n") and len(line) < MOST_LINE_BYTES:
            fold = copy.deepcopy(fold)
            fold.add(line)
            break
        fold.add(line)
        known.read = file.tell()
    return fold.summary(run), fold.result is not None


_FOLDS = _Folds(_MOST_SUMMARIES)


def newest_run(
    home: Home,
    *,
    repository: str | None = None,
    model: str | None = None,
) -> RunSummary | None:
    """Return the newest run whose journal contains the start.

    Args:
        repository: only runs on this one count, under any of its absolute names.
        model: only runs with this one count.
    """
    return next(_newest_runs(home, MOST_RUNS_FOR_PAUSES, repository, model), None)


def keep_look(home: Home, run: str) -> None:
    """Move the folder of a completed run that found no task to the last looks, in place of that at its repository.

    Only the last look says why tasks wait. If the folder cannot be moved, it is removed.
    """
    folder = home.runs / run
    earlier = [look.id for look in last_looks(home) if _is_at_same_place(home.looks / look.id, folder)]
    with suppress(OSError):
        home.looks.mkdir(mode=0o700, exist_ok=True)
        folder.rename(home.looks / run)
    for path in (folder, *(home.looks / name for name in earlier)):
        shutil.rmtree(path, ignore_errors=True)


def _is_at_same_place(first: Path, second: Path) -> bool:
    begins = [_beginning(folder / JOURNAL_FILE) for folder in (first, second)]
    places = {begin and repository_key(begin.repository) for begin in begins}
    return len(places) == 1


def last_looks(home: Home) -> list[RunSummary]:
    """Return the last look at each repository that found no task, oldest first."""
    with suppress(OSError):
        names = sorted(path.name for path in home.looks.iterdir() if RUN_NAME.fullmatch(path.name))
        return [summarise(home.looks / name) for name in names]
    return []


def _newest_runs(
    home: Home, most: int, repository: str | None, model: str | None = None
) -> Iterator[RunSummary]:
    """Yield the newest runs on a repository with a model. Only the beginning of others is read."""
    wanted = None if repository is None else repository_key(repository)
    with suppress(JournalError):
        for name in run_names(home)[:most]:
            begin = _beginning(home.runs / name / JOURNAL_FILE)
            if begin is None or model not in (None, begin.model):
                continue
            if wanted is None or repository_key(begin.repository) == wanted:
                yield summarise(home.runs / name)


def _beginning(path: Path) -> CycleStarted | None:
    """Return the first record after the header, with the parameters of the run."""
    try:
        with path.open("rb") as file:
            file.readline(_BEGINNING_BYTES)
            event = _event(file.readline(_BEGINNING_BYTES))
    except OSError:
        return None
    return event if isinstance(event, CycleStarted) else None


def last_pause(
    home: Home,
    now: datetime,
    *,
    repository: str | None = None,
    model: str | None = None,
) -> Pause | None:
    """Return the pause after the run that `newest_run` returns, if it is not over. Unreadable records are ignored.

    A restart with another model need not wait.
    """
    run = newest_run(home, repository=repository, model=model)
    return None if run is None else run.pause_at(now)


def note_pause(home: Home, run: str, pause: Pause, redactor: Redactor, clock: Clock) -> None:
    """Append a pause to the journal of a completed run, so that a restart knows it.

    Write errors are ignored: the waiting worker knows the time anyway.
    """
    folder = home.runs / run
    with suppress(DiskFullError, JournalError, OSError):
        with (folder / JOURNAL_FILE).open("rb") as journal:
            number = sum(1 for _ in journal)
        append_last(folder, pause.event, number, redactor, clock)


def tasks_taken(home: Home, repository: str) -> dict[str, TaskTaken]:
    """Return the tasks of the newest runs on a repository, in their latest form, by key; the newest first."""
    found = dict[str, TaskTaken]()
    for run in _newest_runs(home, MOST_RUNS_FOR_TASKS, repository):
        if run.task is not None:
            found.setdefault(run.task.key, run.task)
    return found


def find_task(home: Home, repository: str, key: str) -> TaskTaken | None:
    """Return the task with this key in its latest form, however many newer runs there are; None if no run took it."""
    runs = _newest_runs(home, sys.maxsize, repository)
    return next((run.task for run in runs if run.task is not None and run.task.key == key), None)


def typed_for(home: Home, repository: str, key: str) -> tuple[str, JsonObject]:
    """Return the newest run that asked a question on a task, and the options that a person typed for it; or empty."""
    for run in _newest_runs(home, sys.maxsize, repository):
        if run.task is not None and run.task.key == key and run.question:
            begin = _beginning(home.runs / run.id / JOURNAL_FILE)
            return run.id, begin.typed if begin is not None else {}
    return "", {}


def spent_on(home: Home, now: datetime, *, besides: str = "") -> Spent:
    """Return what the runs of this UTC day have cost, or may still cost.

    A completed run counts with its journal's costs; one whose process is dead also with possible costs of
    requests without a reply; one that is alive with its reservation. Only runs that began today or yesterday
    are read.

    Args:
        besides: the run that asks, which does not count.
    """
    today = now.astimezone(UTC).date()
    days = tuple(f"{day:%Y%m%d}-" for day in (today - timedelta(days=1), today))
    total = Spent()
    for name in run_names(home):
        if name.startswith(days) and name != besides:
            run = summarise(home.runs / name)
            if run.fault:
                raise JournalError(run.fault)
            total += _charge(run, today, now)
    return total


def _charge(run: RunSummary, day: date, now: datetime) -> Spent:
    """Return the cost of a run on a day."""
    start = datetime.combine(day, time(), UTC)
    end = max(now, run.ended) if run.is_running and run.ended else run.ended
    before = sum((cost for on, cost in run.costs_by_day.items() if on < day), Spent())
    before += Spent(minutes=_minutes(run.started, end and min(end, start)))
    first = run.started and max(run.started, start)
    spent = run.costs_by_day.get(day, Spent())
    spent += Spent(minutes=_minutes(first, end and min(end, start + timedelta(days=1))))
    held = run.reserved
    if not run.is_running or held is None:
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


def _minutes(begin: datetime | None, end: datetime | None) -> float:
    if begin is None or end is None:
        return 0.0
    return max((end - begin).total_seconds(), 0.0) / _SECONDS_A_MINUTE


def _is_header(line: bytes) -> bool:
    """Return whether a line is the header of a journal that this version can read."""
    try:
        read_header(json.loads(line))
    except (ValueError, RecursionError, JournalError):
        return False
    return True


def _event(line: bytes) -> Event | None:
    try:
        data = json.loads(line.decode())
        event = decode_event(data) if isinstance(data, dict) else None
    except (ValueError, RecursionError, JournalError):
        return None
    return None if isinstance(event, UnknownRecord) else event


def _reported_unanswered(result: Mapping[str, Any]) -> Spent | None:
    """Return the possible cost of requests without a reply, if the end of a run reports it."""
    if "uncertain_tokens" not in result:
        return None
    usd, tokens = result.get("uncertain_usd", 0.0), result["uncertain_tokens"]
    known = max(float(usd), 0.0) if isinstance(usd, int | float) and math.isfinite(usd) else 0.0
    return Spent(None if usd is None else known, max(tokens, 0) if isinstance(tokens, int) else 0)


def _written(call: ToolCallStarted) -> tuple[str, ...]:
    """Return the paths that a call will write, as far as its arguments name them plainly."""
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


def _texts(values: Mapping[str, Any], name: str) -> dict[str, str]:
    found = values.get(name)
    items = found.items() if isinstance(found, dict) else ()
    return {key: text for key, text in items if isinstance(text, str)}


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
    reported = result.get("changed")
    fields = reported if isinstance(reported, dict) else {}
    files = fields.get("files")
    names = tuple(name for name in files if isinstance(name, str)) if isinstance(files, list) else ()
    added, removed = (fields.get(name) for name in ("added", "removed"))
    return DiffStat(names, added if type(added) is int else 0, removed if type(removed) is int else 0)
