"""Reads journals back: one run, all runs, and the replies of a run for its replay."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.codec import TYPE_KEY, UnknownRecord, decode
from orchestrator.bot.journal.costs import cost_of_all
from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.writer import FORMAT, HEADER_TYPE
from orchestrator.core.errors import JournalError
from orchestrator.core.events import CycleEnded, ReplyReceived, SubagentEvent, TaskTaken

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.events import Event

LAST = "last"
"""The name under which the newest run is found."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry of a journal. `at` is in UTC; `data` is the whole entry as it was written."""

    seq: int
    at: datetime
    event: Event | UnknownRecord
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """A run as its journal tells it.

    Attributes:
        id: the name of the run's folder.
        version: the version of the program that wrote it; empty if not even that was written.
        records: without the header.
        torn: the last line was cut off in the middle of writing, and is left out.
    """

    id: str
    folder: Path
    version: str
    records: tuple[Record, ...]
    torn: bool

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened, without what only a newer version understands."""
        return tuple(record.event for record in self.records if not isinstance(record.event, UnknownRecord))


@dataclass(frozen=True, slots=True)
class Summary:
    """A run on one line. `outcome` is `unfinished` where the journal just stops; `usd` is None if unknown."""

    id: str
    started: datetime | None
    outcome: str
    task: str
    usd: float | None


def read_run(folder: Path) -> Run:
    """Read the journal in a run's folder.

    Raises:
        JournalError: there is none, it needs a newer version, or a line before the last is damaged.
    """
    path = folder / JOURNAL_FILE
    lines, torn = _lines(path)
    records = []
    version = ""
    for number, data in enumerate(lines, start=1):
        try:
            if number == 1:
                version = _read_header(data)
            else:
                records.append(_read_record(data, number - 1))
        except JournalError as error:
            raise JournalError(f"{path}, line {number}: {error}") from error
    return Run(folder.name, folder, version, tuple(records), torn)


def responses(run: Run) -> list[ReplyReceived]:
    """The model's replies, those to subagents too, in the order in which they came."""
    inner = [event.event if isinstance(event, SubagentEvent) else event for event in run.events]
    return [event for event in inner if isinstance(event, ReplyReceived)]


def replay_of(run: Run) -> list[ReplyReceived]:
    """All that a replay needs.

    Raises:
        JournalError: subagents took part, whose replies came at the same time as the session's own.
    """
    if any(isinstance(event, SubagentEvent) for event in run.events):
        message = f"run {run.id} used subagents, so its replies have no order and cannot be replayed"
        raise JournalError(message)
    return responses(run)


def runs(home: Home) -> list[Path]:
    """The folders of all runs, newest first."""
    try:
        folders = [folder for folder in home.runs.iterdir() if (folder / JOURNAL_FILE).is_file()]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise JournalError(f"cannot read {home.runs}: {error.strerror or error}") from error
    return sorted(folders, key=lambda folder: folder.name, reverse=True)


def find_run(home: Home, name: str) -> Path:
    """The folder of the run with this id, the only one whose id begins so, or the `last` one.

    Raises:
        JournalError: there is no such run, or more than one.
    """
    folders = {folder.name: folder for folder in runs(home)}
    if not folders:
        raise JournalError(f"there is no run in {home.runs}")
    if name == LAST:
        return next(iter(folders.values()))
    if name in folders:
        return folders[name]
    matches = [run for run in folders if name and run.startswith(name)]
    if len(matches) == 1:
        return folders[matches[0]]
    if matches:
        raise JournalError(f"{len(matches)} runs begin with {name!r}: {', '.join(matches[:5])}")
    nearest = difflib.get_close_matches(name, folders, n=1, cutoff=0.0)[0]
    raise JournalError(f"there is no run {name!r}; the nearest is {nearest}")


def summarise(folder: Path) -> Summary:
    """The essentials of a run, also of one whose journal is damaged."""
    try:
        run = read_run(folder)
    except JournalError:
        return Summary(folder.name, None, "damaged", "", None)
    outcome, task = "unfinished", ""
    for event in run.events:
        if isinstance(event, TaskTaken):
            task = event.title
        elif isinstance(event, CycleEnded):
            outcome = str(event.result.get("outcome", outcome))
    return Summary(
        run.id, run.records[0].at if run.records else None, outcome, task, cost_of_all(responses(run)).usd
    )


def _lines(path: Path) -> tuple[list[dict[str, Any]], bool]:
    """The JSON objects of a file, and whether its last line is torn."""
    try:
        pieces = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        raise JournalError(f"there is no journal {path}") from None
    except OSError as error:
        raise JournalError(f"cannot read the journal {path}: {error.strerror or error}") from error
    if not pieces[-1]:
        pieces.pop()
    found: list[dict[str, Any]] = []
    for number, piece in enumerate(pieces, start=1):
        data = _parse(piece)
        if data is None:
            if number == len(pieces):
                return found, True
            raise JournalError(f"{path}, line {number}: not a JSON object; the journal is damaged")
        found.append(data)
    return found, False


def _parse(piece: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(piece)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _read_header(data: dict[str, Any]) -> str:
    written = data.get("format")
    if data.get(TYPE_KEY) != HEADER_TYPE or type(written) is not int:
        raise JournalError("not the beginning of a journal")
    if written > FORMAT:
        raise JournalError(
            f"written in format {written}, this version reads up to {FORMAT}; update Pullwright"
        )
    return str(data.get("version", ""))


def _read_record(data: dict[str, Any], seq: int) -> Record:
    if data.get("seq") != seq:
        raise JournalError(f"record {seq} is missing here")
    try:
        at = datetime.fromisoformat(data["at"])
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError("has no time") from error
    return Record(seq, at, decode(data), data)
