"""What happened since a time, from the journals: done, not done and why, kept, spent."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import JOURNAL_FILE, is_full
from orchestrator.bot.journal.index import RunNote, note_run
from orchestrator.bot.journal.reader import objects_in, piece_of, runs
from orchestrator.bot.journal.records import decode
from orchestrator.core.cycle_events import CycleStarted, TaskTaken
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.repositories import repository_key, same_repository
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.index import Pause


DECISIONS_FILE = "decisions.jsonl"
NEWEST_RUNS = 300
"""So many journals are looked into for the words of tasks."""
_PRIVATE = 0o600
_BEGINNING_BYTES = 256 * 1024
_MOST_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person decided about a task, by `retry`, `close` or `forget`.

    Attributes:
        at: UTC.
        repository: as journals name it.
        task: its key.
        state: the task's state from then on, in the words of `worker.task_states`.
        saved: the hidden ref that has its unfinished work; empty where there is none.
    """

    at: datetime
    repository: str
    task: str
    state: str
    saved: str = ""


def note_decision(home: Home, decision: Decision) -> None:
    """Write a decision down, so that the digest tells what holds now and not what a run came to before.

    Raises:
        JournalError: it cannot be written.
        DiskFullError: no space is left.
    """
    path = home.root / DECISIONS_FILE
    fields = {
        "at": decision.at.isoformat(),
        "repository": decision.repository,
        "task": decision.task,
        "state": decision.state,
        "saved": decision.saved,
    }
    try:
        home.root.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)
        try:
            # One write to a file that is open for appending: lines of two processes do not mix.
            os.write(file, f"{json.dumps(fields)}\n".encode("ascii"))
        finally:
            os.close(file)
    except OSError as error:
        kind = DiskFullError if is_full(error) else JournalError
        raise kind(f"cannot write {path}: {error.strerror or error}") from error


def decisions(home: Home) -> dict[tuple[str, str], Decision]:
    """The last decision about each task, by the repository's key and the task's. What cannot be read is left out."""
    found = {}
    for data in objects_in(piece_of(home.root / DECISIONS_FILE, _MOST_BYTES, from_end=True)):
        try:
            texts = [data[name] for name in ("repository", "task", "state", "saved")]
            at = datetime.fromisoformat(str(data["at"]))
        except (KeyError, ValueError):
            continue
        if all(isinstance(text, str) for text in texts) and at.tzinfo is not None:
            one = Decision(at, *map(str, texts))
            found[repository_key(one.repository), one.task] = one
    return found


def tasks_taken(home: Home, repository: str) -> dict[str, TaskTaken]:
    """The tasks that the newest runs on a repository worked on, as they were last, by key; the newest first.

    Args:
        home: where the runs are.
        repository: as journals name it.
    """
    try:
        newest = runs(home)[:NEWEST_RUNS]
    except JournalError:
        return {}
    wanted, found = repository_key(repository), dict[str, TaskTaken]()
    for folder in newest:
        task = _task_of(folder / JOURNAL_FILE, wanted)
        if task is not None:
            found.setdefault(task.key, task)
    return found


def _task_of(path: Path, wanted: str) -> TaskTaken | None:
    for data in objects_in(piece_of(path, _BEGINNING_BYTES, from_end=False)):
        if data.get("type") not in {CycleStarted.__name__, TaskTaken.__name__}:
            continue
        try:
            event = decode(data)
        except JournalError:
            return None
        if isinstance(event, TaskTaken):
            return event
        if isinstance(event, CycleStarted) and repository_key(event.repository) != wanted:
            return None
    return None


# As `new_run_id` makes them.
_RUN_NAME = re.compile(r"(\d{8}-\d{6})-[0-9a-z]+")
_LONGEST_RUN = timedelta(days=1)  # a run that began this long before still counts if it ended within the time
_UNDONE = frozenset({"failed", "paused", "limit", "interrupted", "unfinished", "damaged"})
# Where the reasons of a backlog without a task are joined; titles may hold semicolons.
_NEXT_REASON = re.compile(r"; (?=issue #\d|the task |and \d+ more$)")
_MORE = re.compile(r"and \d+ more")


@dataclass(frozen=True, slots=True)
class Undone:
    """What did not come to its end: the newest run of it, and how many ended so."""

    run: RunNote
    times: int


@dataclass(frozen=True, slots=True)
class Digest:
    """The runs of a time, oldest first. Nothing in it was made harmless: these are other people's words."""

    since: datetime
    now: datetime
    runs: tuple[RunNote, ...] = ()
    decided: Mapping[tuple[str, str], Decision] = field(default_factory=dict)
    _newest: dict[tuple[str, str], RunNote] = field(default_factory=dict, repr=False)
    _names: dict[str, str] = field(default_factory=dict, repr=False)
    """What each repository was called last."""

    def __post_init__(self) -> None:
        for run in self.runs:
            self._names[_key(run)] = run.repository
            if run.task is not None:
                self._newest[_key(run), run.task.key] = run
        for key, run in self._newest.items():
            decision = self.decided.get(key)
            if decision is not None and run.started is not None and decision.at > run.started:
                self._newest[key] = replace(run, outcome=decision.state, patch="", saved=decision.saved)

    @property
    def pulls(self) -> list[RunNote]:
        """The last run that created or updated each pull request."""
        return list({(_key(run), run.pull.number): run for run in self.runs if run.pull}.values())

    @property
    def questions(self) -> list[RunNote]:
        """Questions after which no later run took the same task on."""
        return [run for run in self._newest.values() if run.outcome == "question"]

    @property
    def kept(self) -> list[RunNote]:
        """Runs that left work behind which no later run of the task took over."""
        return [run for run in self._newest.values() if run.patch or run.saved]

    @property
    def working(self) -> list[RunNote]:
        """Runs whose process is alive."""
        return [run for run in self.runs if run.outcome == "running"]

    @property
    def undone(self) -> list[Undone]:
        """Tasks whose newest run did not come to its end, and failures without a task; the newest first."""
        found: dict[tuple[str, str], Undone] = {}
        for run in reversed(self.runs):
            if run.outcome not in _UNDONE:
                continue
            if run.task is not None and self._newest[_key(run), run.task.key].outcome not in _UNDONE:
                continue
            key = (_key(run), run.task.key if run.task else f" {run.outcome} {run.error or run.reason}")
            before = found.get(key)
            newest = self._newest[key] if run.task else run
            found[key] = Undone(before.run, before.times + 1) if before else Undone(newest, 1)
        return list(found.values())

    @property
    def skipped(self) -> list[tuple[str, int]]:
        """Why tasks were left alone, and in how many runs; the most frequent first."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            reasons = _NEXT_REASON.split(run.reason) if run.outcome == "no_task" and run.reason else []
            named = [*reasons, *run.refused]
            counts.update(dict.fromkeys(reason for reason in named if not _MORE.fullmatch(reason)).keys())
        return counts.most_common()

    @property
    def costs(self) -> dict[tuple[str, str], Spent]:
        """What each model has cost in each repository. Minutes count once a run, for its first model."""
        costs: dict[tuple[str, str], Spent] = {}
        for run in self.runs:
            minutes = run.minutes
            for model, spent in (run.costs or {run.model: Spent()}).items():
                key = (self._names[_key(run)], model)
                costs[key] = costs.get(key, Spent()) + spent + Spent(minutes=minutes)
                minutes = 0.0
        return {key: spent for key, spent in costs.items() if spent.rounds}

    @property
    def spent(self) -> Spent:
        """Everything together."""
        return sum((run.spent for run in self.runs), Spent())

    @property
    def requests(self) -> int:
        """To the forge."""
        return sum(run.requests for run in self.runs)

    @property
    def waking(self) -> dict[str, Pause]:
        """Until when each repository is left alone, as its newest run says, where that is not over."""
        newest = {_key(run): run for run in self.runs}
        return {
            self._names[name]: run.pause
            for name, run in newest.items()
            if run.pause is not None and run.pause.until > self.now
        }


def make_digest(home: Home, since: datetime, now: datetime, repository: str | None = None) -> Digest:
    """What happened. Only journals of runs that may have worked within the time are opened.

    Args:
        home: where the runs are.
        since: with this time (UTC) it begins.
        now: with this one it ends.
        repository: only runs on this one, under any of its names that are whole.

    Raises:
        JournalError: the folder of the runs cannot be read.
    """
    notes = [note_run(folder) for folder in _folders(home, since)]
    kept = tuple(n for n in notes if repository is None or same_repository(n.repository, repository))
    return Digest(since, now, kept, decisions(home))


def _key(run: RunNote) -> str:
    return repository_key(run.repository)


def _folders(home: Home, since: datetime) -> list[Path]:
    found = []
    try:
        with os.scandir(home.runs) as entries:
            for entry in entries:
                began = _began(entry.name)
                if began is not None and _within(entry, began, since):
                    found.append(Path(entry.path))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {home.runs}: {error.strerror or error}") from error
    return sorted(found, key=lambda folder: folder.name)


def _within(entry: os.DirEntry[str], began: datetime, since: datetime) -> bool:
    """Whether the run began within the time, or was still written to in it."""
    if began < since - _LONGEST_RUN:
        return False
    try:
        written = os.stat(os.path.join(entry.path, JOURNAL_FILE)).st_mtime  # noqa: PTH116, PTH118  ten thousand of them
    except OSError:
        return False
    return began >= since or written >= since.timestamp()


def _began(name: str) -> datetime | None:
    match = _RUN_NAME.fullmatch(name)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
