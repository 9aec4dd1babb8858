"""The fleet on the page: reads its database when a browser asks, and carries out the actions of `pullwright fleet`."""

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

    from orchestrator.bot.fleet.control import CommandResult, FleetSnapshot
    from orchestrator.bot.fleet.store import FleetStore
    from orchestrator.bot.fleet.turns import DailyCost
    from orchestrator.core.clock import Clock

T = TypeVar("T")
_PREFIX = "fleet-"
"""The beginning of the names of actions in forms."""
VERBS = tuple(f"{_PREFIX}{name}" for name in ("add", "pause", "resume", "cancel", "drain"))
_LOOK_SECONDS = 1.5
"""Time for which a reading of the database is used again."""
_ANSWER_SECONDS = 5.0
"""Time that a page waits for the database."""
_BY_HAND = "by hand"
_SENTENCES = {
    "add": "This has the repository looked at now.",
    "pause": "No new cycle begins on the repository. Cycles that run go on to their end.",
    "resume": "New cycles may begin on the repository again.",
    "cancel": "This ends the repository's current or next cycle, and goes on with another task. Work is kept.",
    "drain": "The worker ends after the rounds that it runs.",
}


@dataclass(frozen=True)
class FleetView:
    """The content of the fleet's page.

    Attributes:
        snapshot: the last successful reading of the database; None if there was none.
        error: why the database could not be read; empty if it could.
    """

    now: datetime
    snapshot: FleetSnapshot | None = None
    error: str = ""

    @property
    def plots(self) -> list[Plot]:
        """The cost of each repository per day."""
        if self.snapshot is None:
            return []
        return cost_plots(self._costs(), self.now, None)

    @property
    def plot(self) -> Plot:
        """The total cost per day, with the cap."""
        return cost_plot(self._costs(), self.now, self.snapshot.day_cap if self.snapshot else None)

    def _costs(self) -> dict[tuple[str, date], Spent]:
        found = self.snapshot.costs if self.snapshot else ()
        return {(one.repository, one.day): Spent(usd=one.usd) for one in found}

    def total(self, repository: str) -> tuple[int, float]:
        """Return a repository's number of cycles and cost, including reservations, over all shown days."""
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
class FleetActions:
    """Reads a fleet's database and carries out actions. The database library is imported at the first use.

    The database is used in separate threads, so that a database without an answer delays nothing else.

    Attributes:
        find: returns the database's URL; raises `ConfigurationError` if there is none.
    """

    find: Callable[[], str]
    clock: Clock
    answer_seconds: float = _ANSWER_SECONDS
    _store: FleetStore | None = None
    _seen: FleetView | None = None
    _looking: asyncio.Future[FleetView] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def view(self) -> FleetView:
        """Return the content of the database, not older than `_LOOK_SECONDS`, or why it cannot be read."""
        now = self.clock.now()
        if self._seen is not None and (now - self._seen.now).total_seconds() < _LOOK_SECONDS:
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
            from orchestrator.bot.fleet.control import read_snapshot

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
        """Return the effect of an action in a sentence, and the equivalent command.

        Raises:
            ConfigurationError: the action does not exist.
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
        """Carry out an action, and return what was done, in words.

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
        """Discard the last reading."""
        self._seen = None

    def _steer(self, name: str, fields: Mapping[str, str]) -> CommandResult:
        store, (subject, *task) = self._opened(), _subject(name, fields)
        from orchestrator.bot.fleet import control

        match name:
            case "add":
                return control.add(store, subject, *task)
            case "pause":
                return control.pause(store, subject, clean(fields.get("reason") or _BY_HAND))
            case "resume":
                return control.resume(store, subject)
            case "cancel":
                return control.cancel(store, subject)
            case _:
                return control.drain(store, subject)

    def _in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in a daemon thread. Only one call runs at a time."""
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
                except Exception as error:  # noqa: BLE001  the awaiting code raises it
                    caught = error
            with suppress(RuntimeError):  # the program has ended meanwhile
                loop.call_soon_threadsafe(tell, result, caught)

        threading.Thread(target=run, name="fleet", daemon=True).start()
        return future

    def close(self) -> None:
        """Close the database, unless a thread is using it."""
        if self._lock.acquire(blocking=False) and self._store is not None:
            self._store.close()


def _name(verb: str) -> str:
    if verb not in VERBS:
        raise ConfigurationError(f"there is no action {short_line(verb, 40)!r}")
    return verb.removeprefix(_PREFIX)


def _subject(name: str, fields: Mapping[str, str]) -> list[str]:
    """Return the object of an action: a worker, or a repository and perhaps a task."""
    if name == "drain":
        return [fields.get("worker", "")]
    task = fields.get("task", "") if name == "add" else ""
    return [fields.get("repository", ""), *([task] if task else [])]
