"""What this machine knows of tasks: their words, from its journals, and what a person decided about them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from orchestrator.bot.journal.codec import decode
from orchestrator.bot.journal.folders import JOURNAL_FILE, is_full
from orchestrator.bot.journal.pieces import objects_in, piece_of
from orchestrator.bot.journal.reader import runs
from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.events import CycleStarted, TaskTaken
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home

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
