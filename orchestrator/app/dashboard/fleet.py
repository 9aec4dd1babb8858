"""The fleet on the page: read from its database when somebody looks, and steered by the verbs of `pullwright fleet`."""

from __future__ import annotations

import asyncio
import shlex
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from orchestrator.app.dashboard.overview import Plot, cost_plot, cost_plots
from orchestrator.app.words import clean, short_line
from orchestrator.core.errors import ConfigurationError, FleetError, PullwrightError
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import PROGRAM, install_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import date, datetime

    from orchestrator.bot.fleet.limits import DailyCost
    from orchestrator.bot.fleet.snapshot import FleetSnapshot
    from orchestrator.bot.fleet.steering import CommandResult
    from orchestrator.bot.fleet.store import FleetStore
    from orchestrator.core.clock import Clock

T = TypeVar("T")
PREFIX = "fleet-"
"""Of the verbs, in forms."""
VERBS = tuple(f"{PREFIX}{name}" for name in ("add", "pause", "resume", "cancel", "drain"))
LOOK_SECONDS = 1.5
"""So long a look at the database counts."""
ANSWER_SECONDS = 5.0
"""A page waits so long for a database that does not answer."""
_BY_HAND = "by hand"
_SENTENCES = {
    "add": "This has the repository looked at now.",
    "pause": "This lets nothing more begin there. What runs goes on to its end.",
    "resume": "This goes on with the repository.",
    "cancel": "This ends what the repository runs or waits for, and goes on with another task. Work is kept.",
    "drain": "This lets the worker end after the rounds that it runs.",
}


@dataclass(frozen=True)
class FleetView:
    """What the page shows.

    Attributes:
        error: why there is nothing to show, or nothing newer.
    """

    now: datetime
    snapshot: FleetSnapshot | None = None
    error: str = ""

    @property
    def plots(self) -> list[Plot]:
        """What each repository cost a day."""
        if self.snapshot is None:
            return []
        return cost_plots(self._costs(), self.now, None)

    @property
    def plot(self) -> Plot:
        """What all of them cost a day, against the cap."""
        return cost_plot(self._costs(), self.now, self.snapshot.day_cap if self.snapshot else None)

    def _costs(self) -> dict[tuple[str, date], Spent]:
        found = self.snapshot.costs if self.snapshot else ()
        return {(one.repository, one.day): Spent(usd=one.usd) for one in found}

    def total(self, repository: str) -> tuple[int, float]:
        """Cycles and cost of a repository over all days that are shown, with what is set aside."""
        return self._sums.get(repository, (0, 0.0))

    def today(self, repository: str) -> tuple[int, float]:
        """Return a repository's number of cycles and cost today (UTC)."""
        return self._today.get(repository, (0, 0.0))

    @cached_property
    def _sums(self) -> dict[str, tuple[int, float]]:
        return _sums(self.snapshot.costs if self.snapshot else ())

    @cached_property
    def _today(self) -> dict[str, tuple[int, float]]:
        day = self.now.astimezone(UTC).date()
        return _sums(one for one in (self.snapshot.costs if self.snapshot else ()) if one.day == day)


def _sums(costs: Iterable[DailyCost]) -> dict[str, tuple[int, float]]:
    sums: dict[str, tuple[int, float]] = {}
    for one in costs:
        cycles, usd = sums.get(one.repository, (0, 0.0))
        sums[one.repository] = cycles + one.cycles, usd + one.usd
    return sums


@dataclass(slots=True)
class FleetDesk:
    """Looks at a fleet and steers it. What the database needs is loaded with the first look.

    One thread of its own asks the database, so that one that does not answer holds nothing else up.

    Attributes:
        find: the database's URL; raises `ConfigurationError` where there is none.
    """

    find: Callable[[], str]
    clock: Clock
    answer_seconds: float = ANSWER_SECONDS
    _store: FleetStore | None = None
    _seen: FleetView | None = None
    _looking: asyncio.Future[FleetView] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def view(self) -> FleetView:
        """Return the content of the database, now or a moment ago, or why there is none."""
        now = self.clock.now()
        if self._seen is not None and (now - self._seen.now).total_seconds() < LOOK_SECONDS:
            return self._seen
        if self._looking is None or self._looking.done():
            self._looking = self._in_thread(self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), self.answer_seconds)
        except TimeoutError:
            known = self._seen.snapshot if self._seen else None
            return FleetView(now, known, "the fleet's database does not answer")

    def _look(self) -> FleetView:
        now = self.clock.now()
        try:
            from orchestrator.bot.fleet.snapshot import read_snapshot

            self._seen = FleetView(now, read_snapshot(self._opened()))
        except ModuleNotFoundError as error:
            return FleetView(
                now, None, f"the page of the fleet needs the package {error.name}: {install_command('fleet')}"
            )
        except PullwrightError as error:
            self._seen = FleetView(now, self._seen.snapshot if self._seen else None, str(error))
        return self._seen

    def _opened(self) -> FleetStore:
        from orchestrator.bot.fleet.store import FleetStore

        if self._store is None:
            store = FleetStore(self.find(), self.clock)
            try:
                store.open()
            except FleetError:
                store.close()
                raise
            self._store = store
        return self._store

    def what(self, verb: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Return the effect of a verb in a sentence, and the equivalent command.

        Raises:
            ConfigurationError: the verb does not exist.
        """
        name = _name(verb)
        words = [PROGRAM, "fleet", name, *_subject(name, fields)]
        if name == "pause":
            words.append(f"--reason={fields.get('reason') or _BY_HAND}")
        sentence = _SENTENCES[name]
        if name == "add" and fields.get("task"):
            sentence = f"This tries {fields['task']} next, in place of what the repository waits for."
        return sentence, shlex.join(words)

    async def do(self, verb: str, fields: Mapping[str, str]) -> str:
        """Do it, and say what was done.

        Raises:
            PullwrightError: it could not be done.
        """
        name = _name(verb)
        steered = await self._in_thread(lambda: self._steer(name, fields))
        self.forget()
        said = f"{_subject(name, fields)[0]} {steered.words}"
        if not steered.is_done:
            raise FleetError(said)
        return said

    def forget(self) -> None:
        """Have the next look ask the database."""
        self._seen = None

    def _steer(self, name: str, fields: Mapping[str, str]) -> CommandResult:
        from orchestrator.bot.fleet import steering

        store, (subject, *task) = self._opened(), _subject(name, fields)
        match name:
            case "add":
                return steering.add(store, subject, *task)
            case "pause":
                return steering.pause(store, subject, clean(fields.get("reason") or _BY_HAND))
            case "resume":
                return steering.resume(store, subject)
            case "cancel":
                return steering.cancel(store, subject)
            case _:
                return steering.drain(store, subject)

    def _in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Do something in a thread, one at a time, for which the end of the program does not wait."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, caught = None, None
            with self._lock:
                try:
                    result = call()
                except Exception as error:  # noqa: BLE001  it is raised where somebody waits
                    caught = error
            with suppress(RuntimeError):  # the program has ended meanwhile
                loop.call_soon_threadsafe(tell, result, caught)

        threading.Thread(target=run, name="fleet", daemon=True).start()
        return future

    def close(self) -> None:
        """Let go of the database, unless it is being asked: then it goes with the program."""
        if self._lock.acquire(blocking=False) and self._store is not None:
            self._store.close()


def _name(verb: str) -> str:
    if verb not in VERBS:
        raise ConfigurationError(f"there is no verb {short_line(verb, 40)!r}")
    return verb.removeprefix(PREFIX)


def _subject(name: str, fields: Mapping[str, str]) -> list[str]:
    """Return the subject of a verb: a worker, or a repository and perhaps a task."""
    if name == "drain":
        return [fields.get("worker", "")]
    task = fields.get("task", "") if name == "add" else ""
    return [fields.get("repository", ""), *([task] if task else [])]
