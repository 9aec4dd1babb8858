"""Builds objects from the settings. Only this package names concrete backends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.app.config.keys import ApiKeys
from orchestrator.app.config.settings import load_settings
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.app.wiring.spans import Tracing
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event


def ignore_event(_event: Event) -> None:
    """Ignore an event. Used where there is no run and no view."""


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The configuration and surroundings from which a run's objects are built.

    Attributes:
        environ: environment variables, which hold secrets.
        tracing: sends the traces of this process; None if none are sent.
    """

    loaded: Loaded
    keys: ApiKeys
    home: Home
    clock: Clock
    emit: Emit
    stop: Stop
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
    ) -> BuildContext:
        """Read the configuration. Without `stop`, nothing requests an early end.

        Raises:
            ConfigurationError: an option or a key is wrong.
        """
        loaded, keys, home = load_settings(flags, environ, cwd), ApiKeys.of(environ), Home.of(environ)
        return cls(loaded, keys, home, clock or SystemClock(), emit, stop or Stop(), environ, tracing)

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.loaded.settings

    @property
    def in_workflow(self) -> bool:
        """Whether the process runs in a job of GitHub Actions."""
        return self.environ.get("GITHUB_ACTIONS") == "true"
