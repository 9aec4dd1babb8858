"""Budgets: what a cycle may spend, given earlier costs of its task, the day, and the repository on all machines."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.bot.coordination.records import parse_message
from orchestrator.bot.journal.index import spent_on
from orchestrator.core.cycle_events import Reserved
from orchestrator.core.errors import JournalError, PushRejectedError, WorkspaceError
from orchestrator.core.files import LONGEST_WAIT_SECONDS, lock_file_async
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from orchestrator.bot.coordination.records import Records, RemoteRecord
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit

_Dollars = Annotated[float, Field(ge=0, le=1e9)]
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Run = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]


class _Form(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class AmountForm(_Form):
    """An amount that was spent or reserved; None means unknown, or without a cap."""

    usd: _Dollars | None
    tokens: _Count | None
    minutes: _Dollars | None
    rounds: _Count | None


class DayForm(_Form):
    """One UTC day: the total cost of completed runs, and the reservations of the others."""

    spent: AmountForm
    open: dict[_Run, AmountForm] = Field(max_length=1_000)


class LedgerForm(_Form):
    """The content of the ledger."""

    version: int = Field(ge=1, le=1)
    days: dict[date, DayForm] = Field(max_length=10)
    nonce: str = Field(max_length=100)


_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Caps:
    """Upper limits; None is no limit. The fields correspond to those of `Spent`."""

    usd: float | None = None
    tokens: int | None = None
    minutes: float | None = None
    rounds: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is no limit at all."""
        return self == Caps()


@dataclass(frozen=True, slots=True)
class ScopeCaps:
    """The caps of all scopes. `repository` covers all machines, `day` this one; both per UTC day."""

    cycle: Caps = field(default_factory=Caps)
    task: Caps = field(default_factory=Caps)
    day: Caps = field(default_factory=Caps)
    repository: Caps = field(default_factory=Caps)


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is left. `until` (UTC) is when there is budget again; None if waiting is useless.

    `scope` is `task`, `day` or `repository`. If it is `task`, other tasks may be done.
    """

    reason: str
    scope: str
    until: datetime | None = None


def left(caps: Caps, spent: Spent) -> Caps:
    """Return what is left of each cap, never below zero. A USD cap with unknown costs has nothing left."""
    return Caps(
        None if caps.usd is None else 0.0 if spent.usd is None else max(caps.usd - spent.usd, 0.0),
        None if caps.tokens is None else max(caps.tokens - spent.tokens, 0),
        None if caps.minutes is None else max(caps.minutes - spent.minutes, 0.0),
        None if caps.rounds is None else max(caps.rounds - spent.rounds, 0),
    )


def least(*caps: Caps) -> Caps:
    """Return the minimum of each cap."""
    return Caps(
        min((one.usd for one in caps if one.usd is not None), default=None),
        min((one.tokens for one in caps if one.tokens is not None), default=None),
        min((one.minutes for one in caps if one.minutes is not None), default=None),
        min((one.rounds for one in caps if one.rounds is not None), default=None),
    )


def nothing_left(caps: Caps, spent: Spent, needs: Caps, per: str) -> str | None:
    """Return why a cycle cannot start, in words; None if it can.

    Args:
        needs: the least that a cycle needs to make progress; None is anything above zero.
        per: end of the message: `a day`.
    """
    rest = left(caps, spent)
    if caps.usd is not None and spent.usd is None:
        return f"it is not known how much of ${caps.usd:.2f} {per} is spent: a model without a known price was used"
    for kind, say in _SAY.items():
        cap, remains, need = (getattr(one, kind) for one in (caps, rest, needs))
        if cap is None or (remains > 0 and remains >= (need or 0)):
            continue
        words = say(getattr(spent, kind), cap).format(per)
        return words if remains <= 0 else f"{words}, and the rest is less than one request may cost"
    return None


_SAY: dict[str, Callable[[float, float], str]] = {
    "usd": lambda spent, cap: f"${spent:.2f} of ${cap:.2f} {{}} are spent or set aside",
    "tokens": lambda spent, cap: f"{spent:,} of {cap:,} tokens {{}} are used",
    "minutes": lambda spent, cap: f"{spent:.1f} of {cap:g} minutes {{}} are used",
    "rounds": lambda spent, cap: f"{spent} of {cap} rounds {{}} are used",
}


def midnight(now: datetime) -> datetime:
    """Return the start of the next UTC day."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)


def refused_for_today(words: str, scope: str, now: datetime) -> Refused:
    """Return a refusal until the next UTC day."""
    return Refused(f"{words}; free again at 00:00 UTC", scope, midnight(now))


SPEND_LOCK_FILE = "spend.lock"


@asynccontextmanager
async def spend_lock(home: Home, *, seconds: float = LONGEST_WAIT_SECONDS) -> AsyncIterator[None]:
    """Lock the spending of this machine, from reading the costs until the reservation is recorded.

    Args:
        seconds: longest wait for another process, in real time.

    Raises:
        JournalError: another process holds the lock for longer, or the file cannot be created.
    """
    path = home.root / SPEND_LOCK_FILE
    try:
        file = await lock_file_async(path, seconds)
    except OSError as error:
        raise JournalError(f"cannot lock {path} to read today's costs: {error.strerror or error}") from error
    try:
        yield
    finally:
        os.close(file)


class CycleBudget:
    """Grants a cycle its budget, and reserves it until the cycle ends.

    Scopes without caps are not read: without caps of the day no journal, without those of the repository no
    remote.

    Args:
        home: the folder of the runs that count for the day.
        ledger: costs of all machines on the repository; read only if `caps.repository` has a cap.
    """

    def __init__(
        self, home: Home, clock: Clock, caps: ScopeCaps, ledger: RepositoryLedger | None = None
    ) -> None:
        self._home = home
        self._clock = clock
        self._caps = caps
        self._ledger = None if caps.repository.is_open else ledger
        self._reserved: set[str] = set()

    async def open(
        self, folder: Path, task: Spent, emit: Emit, needs: Caps | None = None, usd_cap: float | None = None
    ) -> Caps | Refused:
        """Reserve what a cycle may spend. `emit` records it before others can read what is left.

        Args:
            folder: the run's folder, which the caller has locked (`reader.lock_run`) until after `close`,
                with its journal; `emit` must write into that journal at once.
            task: earlier cost of the task, on any machine.
            needs: highest cost of a first request: with less left no cycle starts.
            usd_cap: what a person allows for the task in words; only a lower cap than the configured one counts.

        Returns:
            The minimum of what is left in all scopes, or why the cycle must not start. `close` has to be
            called in both cases.

        Raises:
            JournalError: today's costs cannot be read, or another process reads them for longer than the
                cycle may last.
            RemoteUnavailableError: the repository's ledger cannot be reached.
            WorkspaceError: the repository's ledger cannot be read or written.
        """
        caps, needs, run = self._caps, needs or Caps(), folder.name
        if usd_cap is not None and needs.usd is None:
            why = f"a person allows up to ${usd_cap:.2f}, and the price of this model is not known"
            return Refused(why, "task")
        caps = replace(caps, task=least(caps.task, Caps(usd=usd_cap)))
        if words := nothing_left(caps.task, task, needs, "a task"):
            return Refused(words, "task")
        # One cycle may not spend more than all together, even if the ledger is not read (a dry run).
        granted = least(caps.cycle, caps.repository, left(caps.task, task))
        reason = "" if caps.task.is_open else "what is left of the task"
        longest = LONGEST_WAIT_SECONDS if granted.minutes is None else granted.minutes * _SECONDS_A_MINUTE
        async with spend_lock(self._home, seconds=longest):
            if not caps.day.is_open:
                now = self._clock.now()
                spent = await asyncio.to_thread(spent_on, self._home, now, besides=run)
                if words := nothing_left(caps.day, spent, needs, "a day"):
                    return refused_for_today(words, "day", now)
                granted = least(granted, left(caps.day, spent))
                reason = "what is left of the day"
            _emit_reserved(emit, granted, reason)
        if self._ledger is None:
            return granted
        self._reserved.add(run)  # before the answer, which may be lost
        answer = await asyncio.to_thread(self._ledger.reserve, run, caps.repository, granted, needs)
        if isinstance(answer, Refused):
            self._reserved.discard(run)
            _emit_reserved(emit, Caps(0.0, 0, 0.0, 0), answer.reason)
        elif answer != granted:
            _emit_reserved(emit, answer, "what is left of the repository's day")
        return answer

    def why_not(self, task: Spent, needs: Caps) -> str | None:
        """Return why a task with this cost so far is not started, in words; None if it may be."""
        return nothing_left(self._caps.task, task, needs, "a task")

    async def close(self, run: str, spent: Spent) -> None:
        """Record the cost of the completed cycle, and release the rest of its reservation.

        Raises:
            RemoteUnavailableError: the ledger cannot be reached; the whole reservation counts for the day.
            WorkspaceError: the same, for another reason.
        """
        if self._ledger is not None and run in self._reserved:
            self._reserved.discard(run)
            await asyncio.to_thread(self._ledger.settle, run, spent)


def _emit_reserved(emit: Emit, caps: Caps, reason: str) -> None:
    emit(Reserved(caps.usd, caps.tokens, caps.minutes, caps.rounds, reason))


REF = "refs/pullwright/spend"
_VERSION = 1
_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class _Day:
    """The cost of completed runs, and the reservations of the others."""

    spent: Spent = field(default_factory=Spent)
    open: Mapping[str, Caps] = field(default_factory=dict)

    def total(self, besides: str) -> Spent:
        """Return the total, without one run."""
        return sum((_charge(caps) for run, caps in self.open.items() if run != besides), self.spent)


class RepositoryLedger:
    """Reserves and settles on `refs/pullwright/spend`. It blocks: call it in a thread.

    A run that never settles counts with its whole reservation for the day of the reservation. Everyone with push
    access can change or delete the ledger: it keeps honest machines within their caps. Without an answer, a
    reservation may exist all the same.

    Args:
        nonce: creates a globally unique text.
    """

    def __init__(self, records: Records, clock: Clock, nonce: Callable[[], str]) -> None:
        self._records = records
        self._clock = clock
        self._nonce = nonce

    def reserve(self, run: str, caps: Caps, wants: Caps, needs: Caps) -> Caps | Refused:
        """Reserve what a run wants, as far as it is left. A second call replaces the first reservation.

        Args:
            run: a globally unique run id.
            wants: the most that the run may spend for other reasons.
            needs: with less left nothing is reserved.
        """
        for _ in range(_MOST_TRIES):
            found, days = self._read()
            now = self._clock.now()
            today = now.astimezone(UTC).date()
            day = days.get(today, _Day())
            spent = day.total(besides=run)
            if words := nothing_left(caps, spent, needs, "a day for this repository"):
                return refused_for_today(words, "repository", now)
            granted = least(wants, left(caps, spent))
            days[today] = replace(day, open={**day.open, run: granted})
            if self._write(found, days, today):
                return granted
        raise PushRejectedError(f"{REF} changes faster than it can be read")

    def settle(self, run: str, spent: Spent) -> None:
        """Replace a run's reservation by its actual cost. Without a reservation nothing changes."""
        for _ in range(_MOST_TRIES):
            found, days = self._read()
            at = next((at for at, day in days.items() if run in day.open), None)
            if at is None:
                return
            day = days[at]
            usd = day.open[run].usd if spent.usd is None else spent.usd  # unknown: the most that it can be
            others = {name: caps for name, caps in day.open.items() if name != run}
            days[at] = _Day(day.spent + replace(spent, usd=usd), others)
            if self._write(found, days, self._clock.now().astimezone(UTC).date()):
                return
        raise PushRejectedError(f"{REF} changes faster than it can be read")

    def _read(self) -> tuple[str | None, dict[date, _Day]]:
        record = self._records.read(REF)
        return (record.commit, _parse(record)) if record else (None, {})

    def _write(self, found: str | None, days: Mapping[date, _Day], today: date) -> bool:
        # Yesterday is kept: a machine whose clock is ahead must not end the day of the others.
        kept = {at.isoformat(): _fields(day) for at, day in days.items() if at >= today - timedelta(days=1)}
        form = {"version": _VERSION, "days": kept, "nonce": self._nonce()}
        message = f"pullwright: what was spent\n\n{json.dumps(form)}\n"
        return self._records.swap(REF, found, self._records.commit(message, found))


def _charge(caps: Caps) -> Spent:
    """Convert a reservation to a cost. Amounts without a cap count only after settling."""
    return Spent(caps.usd or 0.0, caps.tokens or 0, caps.minutes or 0.0, caps.rounds or 0)


def _fields(day: _Day) -> dict[str, Any]:
    return {"spent": asdict(day.spent), "open": {run: asdict(caps) for run, caps in day.open.items()}}


def _parse(record: RemoteRecord) -> dict[date, _Day]:
    """Parse a record. If it cannot be parsed, it is not known what is left: nobody may spend."""
    form = parse_message(LedgerForm, record)
    if isinstance(form, str):
        raise WorkspaceError(
            f"the costs of this repository cannot be read from {REF} ({' '.join(form.split())[:200]}): "
            "delete that reference to begin the day again"
        )
    return {
        at: _Day(
            Spent(day.spent.usd, day.spent.tokens or 0, day.spent.minutes or 0.0, day.spent.rounds or 0),
            {run: Caps(**caps.model_dump()) for run, caps in day.open.items()},
        )
        for at, day in form.days.items()
    }
