"""Builds objects from the settings. Only this package names concrete backends.

Everything here raises a `ConfigurationError` for a setting, an argument, a key or a folder that cannot be used, a
`SandboxMissingError` if this machine has no sandbox, a `JournalError` for a run that is missing or damaged, a
`WorkspaceError` if git failed, and a `ForgeError` if the forge did.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from orchestrator.app.config.settings import load_settings
from orchestrator.app.plugins import Point, added
from orchestrator.app.terminal import known_secrets
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock
from orchestrator.core.watchdog import watched_run
from orchestrator.engine.models.keys import ApiKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.bot.journal.records import EventBus, JournalWriter
    from orchestrator.bot.journal.retention import RunsToKeep
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.policy.secrets import Redactor


_LOCK_WAIT_SECONDS = 60.0


def ignore_event(_event: Event) -> None:
    """Ignore an event. Used where there is no run and no view."""


class Observer(Protocol):
    """Sees the events of the runs of this process, such as what sends traces. A plug-in opens it (`Point.OBSERVERS`).

    It delays no run and raises nothing.
    """

    def follow(self, api_url: str) -> Emit:
        """Return a listener for the events of one `EventBus`.

        Args:
            api_url: the address of the model's server; empty if there is none.
        """

    def close(self) -> None:
        """Complete what is open. The caller waits for it at the end of the program."""


@dataclass(frozen=True, slots=True)
class Observers:
    """The observers that the plug-ins opened."""

    opened: tuple[Observer, ...] = ()

    def follow(self, api_url: str) -> tuple[Emit, ...]:
        """Return each observer's listener."""
        return tuple(one.follow(api_url) for one in self.opened)

    def close(self) -> None:
        """Close all observers."""
        for one in self.opened:
            one.close()


NO_OBSERVERS = Observers()


def open_observers(environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]) -> Observers:
    """Return the observers that the plug-ins open, which the caller has to close.

    Args:
        tell: shows a person one line, such as why an observer cannot do its work.
    """
    opened = (open_one(environ, clock, tell) for open_one in added(Point.OBSERVERS))
    return Observers(tuple(one for one in opened if one is not None))


@contextmanager
def observing(environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]) -> Iterator[Observers]:
    """Have observers while the block runs."""
    opened = open_observers(environ, clock, tell)
    try:
        yield opened
    finally:
        opened.close()


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The configuration and surroundings from which a run's objects are built.

    Attributes:
        redactor: knows the secrets of this process; who learns another one tells it (`Redactor.learn`).
        environ: environment variables, which hold secrets.
        observers: see the events of every run of this process.
    """

    loaded: Loaded
    keys: ApiKeys
    home: Home
    clock: Clock
    emit: Emit
    stop: Stop
    redactor: Redactor
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    observers: Observers = NO_OBSERVERS

    @classmethod
    def of(  # noqa: PLR0913  what a person typed, and the world around
        cls,
        flags: Mapping[str, Any],
        environ: Mapping[str, str],
        cwd: Path,
        *,
        emit: Emit = ignore_event,
        stop: Stop | None = None,
        clock: Clock | None = None,
        observers: Observers = NO_OBSERVERS,
        redactor: Redactor | None = None,
        named: Callable[[Settings], str] | None = None,
    ) -> BuildContext:
        """Read the configuration. Without `stop`, nothing requests an early end.

        Args:
            named: see `load_settings`.
            redactor: None for the one that knows the secrets of this environment.
        """
        loaded = load_settings(flags, environ, cwd, named)
        keys, home = ApiKeys.of(environ, *loaded.named_key), Home.of(environ)
        known = redactor or known_secrets(environ)
        return cls(
            loaded, keys, home, clock or SystemClock(), emit, stop or Stop(), known, environ, observers
        )

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.loaded.settings

    @contextmanager
    def recording(self, bus: EventBus, folder: Path) -> Iterator[JournalWriter]:
        """Write the events of `bus` to the journal of a new run, whose folder is locked meanwhile.

        If the journal cannot be written any more, a stop is requested.

        Raises:
            JournalError: the folder stays locked, or the journal cannot be created.
            DiskFullError: no space is left.
        """
        from orchestrator.bot.journal.reader import lock_run
        from orchestrator.bot.journal.records import JournalWriter

        # The folder is new, so another holder of its lock only looks at it. On a busy machine that may take a while.
        with (
            lock_run(folder, seconds=_LOCK_WAIT_SECONDS),
            watched_run(folder),
            JournalWriter(folder, self.redactor, self.clock) as journal,
        ):
            bus.record(journal, self.stop.request)
            try:
                yield journal
            finally:
                bus.forget()

    @property
    def runs_to_keep(self) -> RunsToKeep:
        """Which runs of this machine stay."""
        from orchestrator.bot.journal.retention import RunsToKeep

        return RunsToKeep(self.settings.runs_days, self.settings.runs_mb)

    @property
    def in_workflow(self) -> bool:
        """Whether the process runs in a job of GitHub Actions."""
        return self.environ.get("GITHUB_ACTIONS") == "true"
