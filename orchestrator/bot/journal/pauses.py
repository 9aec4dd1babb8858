"""Until when a worker pauses: read back from the newest journals, so that a restart knows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.codec import UnknownRecord, decode
from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.pieces import objects_in, piece_of
from orchestrator.bot.journal.reader import runs
from orchestrator.core.errors import JournalError
from orchestrator.core.events import CycleStarted, Paused
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home

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
        event = _event(data)
        if isinstance(event, CycleStarted):
            return event
    return None


def _pause_in(path: Path) -> Pause | None:
    found: Pause | None = None
    for data in objects_in(piece_of(path, _END_BYTES, from_end=True)):
        event = _event(data)
        if isinstance(event, Paused):
            found = _pause(event) or found
    return found


def _pause(event: Paused) -> Pause | None:
    try:
        until = datetime.fromisoformat(event.until)
    except ValueError:
        return None
    return Pause(until if until.tzinfo else until.replace(tzinfo=UTC), event.reason)


def _event(data: dict[str, Any]) -> object:
    if data.get("type") not in (CycleStarted.__name__, Paused.__name__):
        return None
    try:
        event = decode(data)
    except JournalError:
        return None
    return None if isinstance(event, UnknownRecord) else event
