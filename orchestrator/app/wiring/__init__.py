"""Settings become objects: the only place that names concrete backends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.app.config import ApiKeys, Loaded, Settings
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.journal.folders import Home
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit


@dataclass(frozen=True, slots=True)
class BuildContext:
    """The surroundings of a run. `in_workflow`: it is a job of GitHub Actions."""

    loaded: Loaded
    keys: ApiKeys
    home: Home
    clock: Clock
    emit: Emit
    stop: Stop
    in_workflow: bool = False

    @property
    def settings(self) -> Settings:
        """The effective settings."""
        return self.loaded.settings
