"""Builds objects from the settings, and the sender of traces. Only this package names concrete backends."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from orchestrator.app.config.settings import load_settings
from orchestrator.app.terminal import known_secrets
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.addresses import bracketed
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.suggestions import install_command
from orchestrator.core.watchdog import watched_run
from orchestrator.engine.models.keys import ApiKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.app.wiring.spans import Tracing
    from orchestrator.bot.journal.records import EventBus, JournalWriter
    from orchestrator.bot.journal.retention import RunsToKeep
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.policy.secrets import Redactor


_LOCK_WAIT_SECONDS = 60.0


def ignore_event(_event: Event) -> None:
    """Ignore an event. Used where there is no run and no view."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The configuration and surroundings from which a run's objects are built.

    Attributes:
        redactor: knows the secrets of this process; who learns another one tells it (`Redactor.learn`).
        environ: environment variables, which hold secrets.
        tracing: sends the traces of this process; None if none are sent.
    """

    loaded: Loaded
    keys: ApiKeys
    home: Home
    clock: Clock
    emit: Emit
    stop: Stop
    redactor: Redactor
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)
    tracing: Tracing | None = None

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
        tracing: Tracing | None = None,
        redactor: Redactor | None = None,
    ) -> BuildContext:
        """Read the configuration. Without `stop`, nothing requests an early end.

        Args:
            redactor: None for the one that knows the secrets of this environment.

        Raises:
            ConfigurationError: an option or a key is wrong.
        """
        loaded, keys, home = load_settings(flags, environ, cwd), ApiKeys.of(environ), Home.of(environ)
        known = redactor or known_secrets(environ)
        return cls(loaded, keys, home, clock or SystemClock(), emit, stop or Stop(), known, environ, tracing)

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


# https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
# https://opentelemetry.io/docs/specs/otel/protocol/exporter/
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_DISABLED = "OTEL_SDK_DISABLED"
_PROTOCOL = "http/protobuf"


@contextmanager
def tracing(
    environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]
) -> Iterator[Tracing | None]:
    """Send traces while the block runs, and the remaining ones at its end. Yield None if none are sent.

    Args:
        tell: shows a person one line, such as why the collector does not accept spans.
    """
    opened = open_tracing(environ, clock, tell)
    try:
        yield opened
    finally:
        if opened is not None:
            opened.close()


def open_tracing(environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]) -> Tracing | None:
    """Return the sender of this process's traces, which the caller has to close; None if none are sent.

    A machine may set the variables for other programs. So a value that cannot be used here, or a missing
    extra, is reported in one line, and work continues without traces. If no traces are sent, no part of
    OpenTelemetry is imported.
    """
    variable = _first_set(_ENDPOINTS, environ)
    if variable is None or _is_off(environ):
        return None
    try:
        return _opened(variable, environ, clock, tell)
    except ConfigurationError as error:
        tell(f"no traces are sent: {error}; {_DISABLED}=true switches tracing off")
        return None


def _first_set(names: tuple[str, ...], environ: Mapping[str, str]) -> str | None:
    return next((name for name in names if environ.get(name, "").strip()), None)


def _opened(variable: str, environ: Mapping[str, str], clock: Clock, tell: Callable[[str], None]) -> Tracing:
    collector = _collector(variable, environ[variable].strip())
    name = _first_set(_PROTOCOLS, environ)
    if name is not None and (protocol := environ[name].strip()) != _PROTOCOL:
        raise ConfigurationError(
            f"{name} is {protocol}: traces are sent by {_PROTOCOL} only, for which collectors listen on port 4318"
        )
    try:
        from orchestrator.app.wiring.spans import Tracing

        return Tracing(collector, environ, clock, tell)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{variable} asks for traces, which need the package {error.name}: {install_command('otel')}"
        ) from None
    except (ValueError, RuntimeError) as error:  # raised by the library, which reads some variables on import
        raise ConfigurationError(f"a variable of OpenTelemetry (OTEL_...) makes no sense: {error}") from None


def _is_off(environ: Mapping[str, str]) -> bool:
    exporters = {name.strip() for name in environ.get("OTEL_TRACES_EXPORTER", "").split(",")} - {""}
    is_disabled = environ.get(_DISABLED, "").strip().lower() == "true"
    return is_disabled or bool(exporters and "otlp" not in exporters)


def _collector(variable: str, url: str) -> str:
    """Return the host and port of an address, without user and path, which may be secret."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port, parts = None, None, urlsplit("")
    if not host or parts.scheme not in {"http", "https"}:
        raise ConfigurationError(f"{variable} is no address of a collector: write it as http://HOST:4318")
    return f"{bracketed(host)}{f':{port}' if port else ''}"
