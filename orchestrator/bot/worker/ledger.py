"""What all machines together spend on a repository in a UTC day: a record on the remote, moved by compare-and-swap."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.worker.spending import (
    Caps,
    Granted,
    Refused,
    least,
    left,
    nothing_left,
    refused_for_today,
)
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.bot.coordination.records import Records, RemoteRecord
    from orchestrator.core.clock import Clock

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
        records: the hidden references of the remote.
        clock: tells the day.
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
            caps: of the repository's day.
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

    from orchestrator.bot.worker.ledger_form import LedgerForm

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
