"""A cycle's parts with some of them taken away, and an eye on the work tree."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from orchestrator.app.redteam.evidence import files_below
from orchestrator.app.redteam.plain import CarelessRuns, PlainFiles
from orchestrator.core.defences import Defence
from orchestrator.engine.environments.wrappers import Wrapper

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.redteam.evidence import Evidence
    from orchestrator.app.redteam.plain import CarelessHost
    from orchestrator.bot.cycle.parts import CycleParts
    from orchestrator.engine.environments.base import ExecutionEnvironment


def watched(
    parts: CycleParts,
    settings: Settings,
    off: Collection[Defence],
    evidence: Evidence,
    careless: CarelessHost | None,
) -> CycleParts:
    """The parts without these defences; what is in the work tree at the end becomes evidence."""

    def environment(tree: Path, submodules: list[str]) -> ExecutionEnvironment:
        inner = parts.environment(tree, submodules)
        plain = PlainFiles(inner) if Defence.PATHS in off else inner
        return _Watched(plain, tree, evidence, careless)

    options = parts.options
    if Defence.INSTRUCTIONS in off:
        options = dataclasses.replace(options, other_base=False)
    verifier = parts.verifier
    if verifier is not None and Defence.TEST_INTEGRITY in off:
        words = (settings.test_command or "", settings.setup_command or "", settings.test_report or "")
        verifier = lambda clone: CarelessRuns(clone.tree, *words)  # noqa: E731  a field of functions
    return dataclasses.replace(parts, environment=environment, options=options, verifier=verifier)


class _Watched(Wrapper):
    """Looks at the work tree before it is gone."""

    def __init__(
        self, inner: ExecutionEnvironment, tree: Path, evidence: Evidence, careless: CarelessHost | None
    ) -> None:
        super().__init__(inner)
        self._tree, self._evidence, self._careless = tree, evidence, careless

    async def initialize(self) -> None:
        """Make ready."""
        if self._careless:
            await asyncio.to_thread(self._careless.before, self._tree)
        await super().initialize()

    async def cleanup(self) -> None:
        """Look, then let go."""
        if self._careless:
            await asyncio.to_thread(self._careless.after, self._tree)
        self._evidence.in_clone = await asyncio.to_thread(files_below, self._tree)
        await super().cleanup()
