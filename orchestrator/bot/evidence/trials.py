"""Tries of several settings on the same cases: which are left, what all of them may cost, and the record of those done."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.coordination.budget import Caps
from orchestrator.bot.evidence.hidden_tests import Judged
from orchestrator.bot.evidence.record import JsonLines, digest_of
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from orchestrator.bot.evidence.cases import ReadyCase
    from orchestrator.core.clock import Clock

_MOST_FAILURES = 2
"""Of one arm in a row, by which a server is down or a key is wrong: then its other tries would only fail likewise."""


@dataclass(frozen=True, slots=True)
class Arm:
    """One way to do the tasks.

    Attributes:
        name: how tables call it, such as `anthropic:claude-sonnet-4-5, native`.
        digest: of all settings that decide how a cycle goes.
        model, contract: as they were chosen.
    """

    name: str
    digest: str
    model: str
    contract: str


@dataclass(frozen=True, slots=True)
class Try:
    """One arm on one case, for the so-and-so-many-th time."""

    case: ReadyCase
    arm: Arm
    number: int

    @property
    def key(self) -> str:
        """Names it in the record: another configuration, case or text is another try."""
        return digest_of(self.case.digest, self.arm.digest, self.number)


@dataclass(frozen=True, slots=True)
class TryResult:
    """What a try came to, as the record has it.

    Attributes:
        key: see `Try.key`.
        outcome: how its cycle ended.
        judged: what the hidden tests say.
        detail: one line about that.
        patch: what it changed, as a file's name in the folder of the record; empty if nothing was proposed.
        run: the last run's id, in the try's own state folder.
        usd: None where the price is not known.
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
        """What it has cost."""
        return Spent(self.usd, self.tokens, self.minutes, self.rounds)


class TryRecord:
    """The tries that are done. It survives the death of the process.

    Raises:
        JournalError: the file cannot be read or written.
    """

    def __init__(self, path: Path) -> None:
        self._file = JsonLines(path)
        self.done: dict[str, TryResult] = {}
        for line in self._file.lines():
            with suppress(TypeError):  # of another version
                result = TryResult(**line)
                self.done[result.key] = result

    def add(self, result: TryResult) -> None:
        """Write a result down. It is on the disk when this returns."""
        self._file.add(asdict(result))
        self.done[result.key] = result


@dataclass(frozen=True, slots=True)
class TotalCaps:
    """The most that all tries together may cost. `minutes` are those since the start of the command."""

    usd: float | None = None
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Attempted:
    """How a try ended: with a result, or without one.

    Attributes:
        result: None where nothing can be said of the arm: a server was down, a cap of all tries cut it short.
        spent: what the try has cost, also in processes that were killed.
        why: why there is no result.
        is_cut: a cap of all tries, or a person, ended it; the arm is not at fault.
    """

    result: TryResult | None
    spent: Spent
    why: str = ""
    is_cut: bool = False


class Attempts(Protocol):
    """Makes tries. What a process that was killed had begun is gone on with."""

    def spent(self, wanted: Try) -> Spent:
        """What an unfinished try has cost so far."""

    def least_usd(self, arm: Arm) -> float:
        """The most that the first request of a try may cost."""

    async def make(self, wanted: Try, granted: Caps) -> Attempted:
        """Make a try, or go on with it, within a cap."""


@dataclass(slots=True)
class Totals:
    """What all tries together have cost, and what those that run may still cost.

    Attributes:
        spent: of tries that are done, and of all that was begun.
        began: the monotonic time of the start, in seconds.
    """

    caps: TotalCaps
    clock: Clock
    jobs: int
    spent: Spent = field(default_factory=Spent)
    began: float = 0.0
    _held: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.began = self.clock.monotonic()

    def grant(self, key: str, least_usd: float) -> Caps | str:
        """Hold a part of what is left for one try; or say why nothing is left.

        What is left is divided by the tries that may run at once, so that each request that they send has its money.
        """
        usd = None
        if self.caps.usd is not None:
            if self.spent.usd is None:
                return "a reply of unknown price was given, so that --max-usd-total cannot be kept"
            free = self.caps.usd - self.spent.usd - sum(self._held.values())
            usd = free / (self.jobs - len(self._held))
            if usd <= 0 or usd < least_usd:
                return f"${self.spent.usd:.2f} of ${self.caps.usd:.2f} (--max-usd-total) are spent, and the rest is less than a try needs"
            self._held[key] = usd
        minutes = self.minutes_left()
        if minutes is not None and minutes <= 0:
            self._held.pop(key, None)
            return f"the {self.caps.minutes:g} minutes of --max-minutes-total are over"
        return Caps(usd=usd, minutes=minutes)

    def minutes_left(self) -> float | None:
        """How many minutes there are until the end; None without a cap."""
        if self.caps.minutes is None:
            return None
        return self.caps.minutes - (self.clock.monotonic() - self.began) / 60.0

    def settle(self, key: str, spent: Spent) -> None:
        """Count what a try has cost, and give back what was held for it."""
        self._held.pop(key, None)
        self.spent += spent


@dataclass(slots=True)
class Progress:
    """What a person is told while tries are made. Every function may be called at any time."""

    began: Callable[[Try], None] = lambda _wanted: None
    ended: Callable[[Try, Attempted], None] = lambda _wanted, _attempted: None
    stopped: Callable[[str], None] = lambda _why: None


def planned(cases: Sequence[ReadyCase], arms: Sequence[Arm], tries: int) -> list[Try]:
    """All tries, in the order in which they are made: each arm on each case before any of them a second time."""
    return [Try(case, arm, number) for number in range(1, tries + 1) for case in cases for arm in arms]


async def make_tries(  # noqa: PLR0913  what to do, by whom, and who looks on, given by name
    wanted: Iterable[Try],
    attempts: Attempts,
    record: TryRecord,
    totals: Totals,
    *,
    progress: Progress,
    stopped: Callable[[], bool],
) -> None:
    """Make the tries that are not in the record, several at once, until they are done or a cap is reached.

    Raises:
        PullwrightError: the record cannot be written, or this machine cannot go on.
    """
    left = [one for one in wanted if one.key not in record.done]
    failures: dict[str, int] = {}
    queue = iter(left)
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


def known_before(wanted: Iterable[Try], attempts: Attempts, record: TryRecord) -> Spent:
    """What the tries have cost in earlier processes: those that are done, and those that were cut short."""
    total = Spent()
    for one in wanted:
        done = record.done.get(one.key)
        total += done.spent if done is not None else attempts.spent(one)
    return total
