"""What the runs of this home have spent, or may still spend, in a UTC day: read from their journals."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.codec import TYPE_KEY, UnknownRecord, decode
from orchestrator.bot.journal.costs import Unanswered, cost_of
from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.open_runs import is_alive
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    CycleEnded,
    ReplyReceived,
    Reserved,
    SubagentEvent,
    TurnStarted,
    WaitStarted,
)
from orchestrator.core.locks import LONGEST_WAIT_SECONDS, keeper, wait_for_lock_async
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import date
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.events import Event

LOCK_FILE = "spend.lock"
_PRIVATE = 0o600
_SECONDS_A_MINUTE = 60.0
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
        at = _moment(stamp[1]) if stamp else None
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
        event = _event(data)
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


def _event(data: dict[str, Any]) -> Event | None:
    try:
        event = decode(data)
    except JournalError:
        return None
    return None if isinstance(event, UnknownRecord) else event


def _moment(stamp: bytes) -> datetime | None:
    try:
        at = datetime.fromisoformat(stamp.decode("ascii"))
    except ValueError:
        return None
    return at.astimezone(UTC) if at.tzinfo else None
