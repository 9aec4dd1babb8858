"""What a cycle may spend, after what was spent before in its task, its day and, by all machines, its repository."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass, field, replace
from datetime import (
    UTC,
    date,
    datetime,
    time,
    timedelta,
)
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from orchestrator.bot.journal.index import spend_lock, spent_on
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from orchestrator.core.events import Reserved
from orchestrator.core.locks import LONGEST_WAIT_SECONDS
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
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
    """What was spent, or reserved; None is unknown, or not capped."""

    usd: _Dollars | None
    tokens: _Count | None
    minutes: _Dollars | None
    rounds: _Count | None


class DayForm(_Form):
    """One UTC day: what ended runs have spent together, and what each of the others has reserved."""

    spent: AmountForm
    open: dict[_Run, AmountForm] = Field(max_length=1_000)


class LedgerForm(_Form):
    """The ledger."""

    version: int = Field(ge=1, le=1)
    days: dict[date, DayForm] = Field(max_length=10)
    nonce: str = Field(max_length=100)


_SECONDS_A_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Caps:
    """The most that may be spent; None is no cap. The fields mean what those of `Spent` mean."""

    usd: float | None = None
    tokens: int | None = None
    minutes: float | None = None
    rounds: int | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is no cap at all."""
        return self == Caps()


@dataclass(frozen=True, slots=True)
class ScopeCaps:
    """The caps of all scopes. `repository` is for all machines, `day` for this one; both for a UTC day."""

    cycle: Caps = field(default_factory=Caps)
    task: Caps = field(default_factory=Caps)
    day: Caps = field(default_factory=Caps)
    repository: Caps = field(default_factory=Caps)


@dataclass(frozen=True, slots=True)
class Granted:
    """What a cycle may spend at most."""

    caps: Caps


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing is left. `until` (UTC) is when there is again; None where waiting is of no use.

    `scope` is `task`, `day` or `repository`. Where it is `task`, another task may be done.
    """

    reason: str
    scope: str
    until: datetime | None = None


def left(caps: Caps, spent: Spent) -> Caps:
    """What is left of each cap, never below zero. Of a cap in USD nothing, where the cost so far is unknown."""
    return Caps(
        None if caps.usd is None else 0.0 if spent.usd is None else max(caps.usd - spent.usd, 0.0),
        None if caps.tokens is None else max(caps.tokens - spent.tokens, 0),
        None if caps.minutes is None else max(caps.minutes - spent.minutes, 0.0),
        None if caps.rounds is None else max(caps.rounds - spent.rounds, 0),
    )


def least(*caps: Caps) -> Caps:
    """The smallest of each cap."""
    return Caps(
        min((one.usd for one in caps if one.usd is not None), default=None),
        min((one.tokens for one in caps if one.tokens is not None), default=None),
        min((one.minutes for one in caps if one.minutes is not None), default=None),
        min((one.rounds for one in caps if one.rounds is not None), default=None),
    )


def nothing_left(caps: Caps, spent: Spent, needs: Caps, per: str) -> str | None:
    """Why a cycle cannot begin, in words, or None if it can.

    Args:
        needs: what a cycle needs at least to get anywhere; None is anything above zero.
        per: ends the words: `a day`.
    """
    rest = left(caps, spent)
    if caps.usd is not None and spent.usd is None:
        return f"what was spent of ${caps.usd:.2f} {per} is not known: a model without a known price answered"
    for kind, say in _SAY.items():
        cap, remains, need = (getattr(one, kind) for one in (caps, rest, needs))
        if cap is None or (remains > 0 and remains >= (need or 0)):
            continue
        words = say(getattr(spent, kind), cap).format(per)
        return words if remains <= 0 else f"{words}, and the rest is less than a request may need"
    return None


_SAY: dict[str, Callable[[float, float], str]] = {
    "usd": lambda spent, cap: f"${spent:.2f} of ${cap:.2f} {{}} are spent or set aside",
    "tokens": lambda spent, cap: f"{spent:,} of {cap:,} tokens {{}} are used",
    "minutes": lambda spent, cap: f"{spent:.1f} of {cap:g} minutes {{}} are over",
    "rounds": lambda spent, cap: f"{spent} of {cap} rounds {{}} are used",
}


def midnight(now: datetime) -> datetime:
    """When the next UTC day begins."""
    return datetime.combine(now.astimezone(UTC).date() + timedelta(days=1), time(), UTC)


def refused_for_today(words: str, scope: str, now: datetime) -> Refused:
    """Nothing is left until the next UTC day."""
    return Refused(f"{words}; free again at 00:00 UTC", scope, midnight(now))


class CycleBudget:
    """Says what a cycle may spend, and keeps it for the cycle until it ends.

    What is not capped is not read: without caps of the day no journal, without those of the repository no remote.

    Args:
        home: whose runs count for the day.
        ledger: what all machines spend on the repository; asked only where `caps.repository` has a cap.
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
        self, folder: Path, task: Spent, emit: Emit, needs: Caps | None = None
    ) -> Granted | Refused:
        """Reserve what a cycle may spend. It is written down, by `emit`, before others can read what is left.

        Args:
            folder: the run's, which the caller holds (`open_runs.lock_run`) until after `close`, with its journal
                in it; `emit` must write into that journal at once.
            task: what the task has cost before, on any machine.
            needs: what a first request may cost at most: with less left no cycle begins.

        Returns:
            The least of what is left in all scopes; or why the cycle must not begin. However it ends,
            `close` has to be called.

        Raises:
            JournalError: what was spent today cannot be read, or another process reads it for longer than the
                cycle may last.
            RemoteUnavailableError: the repository's ledger cannot be reached.
            WorkspaceError: the repository's ledger cannot be read or written.
        """
        caps, needs, run = self._caps, needs or Caps(), folder.name
        if words := self.why_not(task, needs):
            return Refused(words, "task")
        # One cycle may not take more than all of them, also where nobody else is asked (a dry run).
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
            _tell(emit, granted, reason)
        if self._ledger is None:
            return Granted(granted)
        self._reserved.add(run)  # before the answer, which may be lost
        answer = await asyncio.to_thread(self._ledger.reserve, run, caps.repository, granted, needs)
        if isinstance(answer, Refused):
            self._reserved.discard(run)
            _tell(emit, Caps(0.0, 0, 0.0, 0), answer.reason)
        elif answer.caps != granted:
            _tell(emit, answer.caps, "what is left of the repository's day")
        return answer

    def why_not(self, task: Spent, needs: Caps) -> str | None:
        """Why a task is not begun that has cost this much, in words, or None if it may be."""
        return nothing_left(self._caps.task, task, needs, "a task")

    async def close(self, run: str, spent: Spent) -> None:
        """The cycle is over and has cost this. What it did not spend is free for others.

        Raises:
            RemoteUnavailableError: the ledger cannot be reached; the whole reservation counts for the day.
            WorkspaceError: the same, for another reason.
        """
        if self._ledger is not None and run in self._reserved:
            self._reserved.discard(run)
            await asyncio.to_thread(self._ledger.settle, run, spent)


def _tell(emit: Emit, caps: Caps, reason: str) -> None:
    emit(Reserved(caps.usd, caps.tokens, caps.minutes, caps.rounds, reason))


REF = "refs/pullwright/spend"
_VERSION = 1
_MOST_LOOKS = 20


@dataclass(frozen=True, slots=True)
class _Day:
    """What ended runs have spent, and what each of the others has reserved."""

    spent: Spent = field(default_factory=Spent)
    open: Mapping[str, Caps] = field(default_factory=dict)

    def total(self, besides: str) -> Spent:
        """All that counts, but for one run."""
        return sum((_charge(caps) for run, caps in self.open.items() if run != besides), self.spent)


class RepositoryLedger:
    """Reserves and settles on `refs/pullwright/spend`. It blocks: call it in a thread.

    A run that never settles counts with its whole reservation for the day of the reservation. Who
    can push can write here, as he can delete it: it keeps honest machines within their caps.

    Args:
        nonce: makes a text that was never made before, on any machine.
    """

    def __init__(self, records: Records, clock: Clock, nonce: Callable[[], str]) -> None:
        self._records = records
        self._clock = clock
        self._nonce = nonce

    def reserve(self, run: str, caps: Caps, wants: Caps, needs: Caps) -> Granted | Refused:
        """Reserve for a run what it wants, as far as it is left. Again, it replaces what was reserved before.

        Args:
            run: who reserves; no other run anywhere has this name.
            wants: the most that the run may spend for other reasons.
            needs: with less left nothing is reserved.

        Raises:
            RemoteUnavailableError: no answer, after several tries; it may be reserved all the same.
            WorkspaceError: the ledger cannot be read or written.
        """
        for _ in range(_MOST_LOOKS):
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
                return Granted(granted)
        raise PushRejectedError(f"{REF} changes faster than it can be read")

    def settle(self, run: str, spent: Spent) -> None:
        """Put what a run has spent in the place of what it reserved. Without a reservation nothing changes.

        Raises:
            RemoteUnavailableError: no answer, after several tries.
            WorkspaceError: the ledger cannot be read or written.
        """
        for _ in range(_MOST_LOOKS):
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
        # Yesterday's stay: a clock that is ahead must not end the day of the others.
        kept = {at.isoformat(): _fields(day) for at, day in days.items() if at >= today - timedelta(days=1)}
        form = {"version": _VERSION, "days": kept, "nonce": self._nonce()}
        message = f"pullwright: what was spent\n\n{json.dumps(form)}\n"
        return self._records.swap(REF, found, self._records.commit(message, found))


def _charge(caps: Caps) -> Spent:
    """A reservation as what it may cost. What it does not cap is not counted before it is settled."""
    return Spent(caps.usd or 0.0, caps.tokens or 0, caps.minutes or 0.0, caps.rounds or 0)


def _fields(day: _Day) -> dict[str, Any]:
    return {"spent": asdict(day.spent), "open": {run: asdict(caps) for run, caps in day.open.items()}}


def _parse(record: RemoteRecord) -> dict[date, _Day]:
    """What a record says. One that cannot be read says nothing about what is left: nobody may spend."""
    from pydantic import ValidationError

    fault = record.fault
    if fault is None:
        try:
            form = LedgerForm.model_validate_json(record.message.partition("\n")[2])
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            fault = f"{'.'.join(str(part) for part in first['loc']) or 'its message'}: {first['msg']}"
        else:
            return {
                at: _Day(
                    Spent(
                        day.spent.usd, day.spent.tokens or 0, day.spent.minutes or 0.0, day.spent.rounds or 0
                    ),
                    {run: Caps(**caps.model_dump()) for run, caps in day.open.items()},
                )
                for at, day in form.days.items()
            }
    raise WorkspaceError(
        f"what was spent on this repository cannot be read from {REF} ({' '.join(fault.split())[:200]}): "
        f"delete that reference to begin the day anew"
    )
