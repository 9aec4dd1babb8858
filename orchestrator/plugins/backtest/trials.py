"""Tries of several arms on the same cases: their order, their total cost, and the record of results."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.coordination.budget import Caps
from orchestrator.core.messages import Spent
from orchestrator.plugins.backtest.cases import JsonLines, Judged, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from orchestrator.core.clock import Clock
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.plugins.backtest.cases import ReadyCase

_MOST_FAILURES = 2
"""Most failures of one arm in a row. After that many, a server is down or a key is wrong, and more tries would fail too."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One configuration that is compared with others.

    Attributes:
        name: its name in tables, such as `anthropic:claude-sonnet-4-5, native`.
        digest: the digest of all settings that influence a cycle.
        model, contract: as the user chose them.
    """

    name: str
    digest: str
    model: str
    contract: str


@dataclass(frozen=True, slots=True)
class Try:
    """One of several tries of an arm on a case."""

    case: ReadyCase
    arm: Arm
    number: int

    @property
    def key(self) -> str:
        """The try's key in the record. It depends on the configuration, the case and the text."""
        return digest_of(self.case.digest, self.arm.digest, self.number)


@dataclass(frozen=True, slots=True)
class TryResult:
    """The result of a try, as stored in the record.

    Attributes:
        key: see `Try.key`.
        outcome: the outcome of its cycle.
        judged: the result of the hidden tests.
        detail: one line of explanation.
        patch: file name of its change in the record's folder; empty if nothing was proposed.
        run: id of the last run, in the try's own state folder.
        usd: None if the price is unknown.
    """

    key: str
    case: str
    arm: str
    number: int
    outcome: str
    judged: str
    detail: str
    patch: str
    run: str
    usd: float | None
    tokens: int
    minutes: float
    rounds: int

    @property
    def is_solved(self) -> bool:
        """Whether every test ended as with the real change."""
        return self.judged == Judged.SOLVED

    @property
    def spent(self) -> Spent:
        """The cost of the try."""
        return Spent(self.usd, self.tokens, self.minutes, self.rounds)


class TryRecord:
    """The completed tries, in a file that stays complete if the process is killed.

    It raises what `JsonLines` raises.
    """

    def __init__(self, path: Path, redactor: Redactor | None = None) -> None:
        self._file = JsonLines(path, redactor)
        self.done: dict[str, TryResult] = {}
        for line in self._file.lines():
            with suppress(TypeError):  # a line of another version
                result = TryResult(**line)
                self.done[result.key] = result

    def add(self, result: TryResult) -> None:
        """Append a result, and wait until it is on the disk."""
        self._file.add(asdict(result))
        self.done[result.key] = result


@dataclass(frozen=True, slots=True)
class Attempted:
    """A try that has ended, with or without a result.

    Attributes:
        result: None if nothing is known about the arm, because a server was down or a cap for all tries was reached.
        spent: the cost of the try, including processes that were killed.
        why: why there is no result.
        is_cut: whether a cap for all tries, or a person, ended it, so that it is no failure of the arm.
    """

    result: TryResult | None
    spent: Spent
    why: str = ""
    is_cut: bool = False


class TryMaker(Protocol):
    """Makes tries, and continues those of a killed process."""

    def spent(self, wanted: Try) -> Spent:
        """Return the cost of an unfinished try so far."""

    def least_usd(self, arm: Arm) -> float:
        """Return the highest possible cost of the first request of a try."""

    async def make(self, wanted: Try, granted: Caps) -> Attempted:
        """Make or continue a try, within caps."""


@dataclass(slots=True)
class Totals:
    """The cost of all tries, and reservations for the running ones.

    Attributes:
        caps: the limits for all tries together, in dollars and in minutes since the start.
        spent: cost of completed and of interrupted tries.
        began: monotonic time of the start, in seconds.
    """

    caps: Caps
    clock: Clock
    jobs: int
    spent: Spent = field(default_factory=Spent)
    began: float = 0.0
    _reserved: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()

    def grant(self, key: str, least_usd: float) -> Caps | str:
        """Reserve a part of the remaining budget for one try. If none remains, return why.

        The remaining budget is divided among the tries that may run at once.
        """
        usd = None
        if self.caps.usd is not None:
            if self.spent.usd is None:
                return "the price of a reply is unknown, so --max-usd-total cannot be kept"
            free = self.caps.usd - self.spent.usd - sum(self._reserved.values())
            usd = free / (self.jobs - len(self._reserved))
            if usd <= 0 or usd < least_usd:
                spent = f"${self.spent.usd:.2f} of ${self.caps.usd:.2f} (--max-usd-total) are spent"
                return f"{spent}, and the rest is less than a try needs"
            self._reserved[key] = usd
        minutes = self.minutes_left()
        if minutes is not None and minutes <= 0:
            self._reserved.pop(key, None)
            return f"the limit of {self.caps.minutes:g} minutes (--max-minutes-total) is reached"
        return Caps(usd=usd, minutes=minutes)

    def minutes_left(self) -> float | None:
        """Return the minutes until the time limit; None without one."""
        if self.caps.minutes is None:
            return None
        return self.caps.minutes - (self.clock.monotonic() - self.began) / 60.0

    def settle(self, key: str, spent: Spent) -> None:
        """Add the cost of a try, and release its reservation."""
        self._reserved.pop(key, None)
        self.spent += spent


@dataclass(slots=True)
class Progress:
    """Reports the progress of tries to a person. Its methods may be called at any time."""

    began: Callable[[Try], None] = lambda _wanted: None
    ended: Callable[[Try, Attempted], None] = lambda _wanted, _attempted: None
    stopped: Callable[[str], None] = lambda _why: None


def planned(cases: Sequence[ReadyCase], arms: Sequence[Arm], tries: int) -> list[Try]:
    """Return all tries in the order in which they are made: each arm on each case before any repetition."""
    return [Try(case, arm, number) for number in range(1, tries + 1) for case in cases for arm in arms]


async def make_tries(  # noqa: PLR0913  most are given by name
    wanted: Iterable[Try],
    attempts: TryMaker,
    record: TryRecord,
    totals: Totals,
    *,
    progress: Progress,
    stopped: Callable[[], bool],
) -> None:
    """Make the tries that are not in the record, several in parallel, until all are done or a cap is reached."""
    failures: dict[str, int] = {}
    queue = iter([one for one in wanted if one.key not in record.done])
    over = ""

    async def work() -> None:
        nonlocal over
        for one in queue:
            if over or stopped():
                return
            if failures.get(one.arm.name, 0) >= _MOST_FAILURES:
                continue
            granted = totals.grant(one.key, attempts.least_usd(one.arm))
            if isinstance(granted, str):
                if not over:
                    over = granted
                    progress.stopped(granted)
                return
            before = attempts.spent(one)
            progress.began(one)
            attempted = Attempted(None, before)
            try:
                attempted = await attempts.make(one, granted)
            finally:
                totals.settle(one.key, _minus(attempts.spent(one), before))
            if attempted.result is not None:
                record.add(attempted.result)
            failed = attempted.result is None and not attempted.is_cut
            failures[one.arm.name] = failures.get(one.arm.name, 0) + 1 if failed else 0
            progress.ended(one, attempted)

    workers = [asyncio.ensure_future(work()) for _ in range(totals.jobs)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


def _minus(one: Spent, other: Spent) -> Spent:
    usd = None if one.usd is None or other.usd is None else one.usd - other.usd
    return Spent(usd, one.tokens - other.tokens, one.minutes - other.minutes, one.rounds - other.rounds)


def known_before(wanted: Iterable[Try], attempts: TryMaker, record: TryRecord) -> Spent:
    """Return the cost of the tries in earlier processes, both completed and interrupted ones."""
    total = Spent()
    for one in wanted:
        done = record.done.get(one.key)
        total += done.spent if done is not None else attempts.spent(one)
    return total
