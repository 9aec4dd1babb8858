"""What the cycles of one run share, and what outlives each of them."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.app.config import LOCAL_FILE, tightened
from orchestrator.app.wiring.cycle_parts import first_event, make_parts, open_hidden_refs
from orchestrator.app.wiring.relay import Recorder
from orchestrator.bot.cycle.cycle import run_cycle
from orchestrator.bot.cycle.house import RulesFile
from orchestrator.bot.cycle.parts import CycleStart
from orchestrator.bot.cycle.result import Outcome
from orchestrator.bot.journal.folders import create_run_folder, new_run_id
from orchestrator.bot.journal.open_runs import hold
from orchestrator.bot.journal.writer import JournalWriter
from orchestrator.bot.worker.idle import Idle
from orchestrator.core.commands import Commands
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.events import Warned

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.app.config import Settings
    from orchestrator.app.wiring.forge import Site
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.relay import Relay
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.guards import Guards
    from orchestrator.bot.cycle.parts import CycleParts, Stop
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.worker.backlog import Wanted
    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.confinement import Sandbox
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.web.base import WebAccess


_HOLD_SECONDS = 60.0
_CYCLES_A_SCRATCH = 100
"""The folder for hidden refs grows with each fetch, and is made anew after so many cycles."""


@dataclass(slots=True)
class Program:
    """Everything that the cycles of one run share. `cycle` runs the next one.

    Attributes:
        guards: makes the checks for settings.
        answer: a person's words on the question that the task waits with.
        commands: what a message tells a person to type.
        attempted: the keys of tasks that this process has tried; `idle` is what it knows of a backlog
            in which nothing has changed.
    """

    repository: str
    settings: Settings
    dry_run: bool
    site: Site
    chosen: ChosenModel
    web: WebAccess | None
    wanted: Wanted
    home: Home
    redactor: Redactor
    guards: Callable[[Settings], Guards]
    sandbox: Sandbox | None
    clock: Clock
    relay: Relay
    stop: Stop
    environ: Mapping[str, str] = field(default_factory=dict)
    answer: str | None = None
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    attempted: set[str] = field(default_factory=set)
    idle: Idle = field(default_factory=Idle)
    _records: Records | None = None
    _cycles: int = 0
    _rules_file: RulesFile | None = None

    async def cycle(self) -> CycleResult:
        """Run one cycle with a journal of its own, on a clone of its own."""
        run = new_run_id(self.clock.now(), random.SystemRandom())
        folder = create_run_folder(self.home, run)
        # A new folder: whoever has its lock only looks, and is on a busy machine.
        with (
            hold(folder, seconds=_HOLD_SECONDS),
            JournalWriter(folder, self.redactor.redact, self.clock) as journal,
        ):
            recorder = Recorder(journal, self.relay.always, self.stop)
            self.relay.listen(recorder)
            result = await run_cycle(self.start(run, folder))
        await self._tidy()
        if recorder.error and result.outcome is Outcome.INTERRUPTED:
            result.outcome, result.error, result.cause = Outcome.FAILED, str(recorder.error), recorder.error
        return result

    async def _tidy(self) -> None:
        """Let go of what grows with every cycle, now that no claim is held."""
        self._cycles += 1
        if self._records is not None and self._cycles % _CYCLES_A_SCRATCH == 0:
            try:
                await asyncio.to_thread(self._records.close)
            except WorkspaceError as error:
                self.relay.always(Warned(f"the folder of the hidden refs could not be removed: {error}"))

    def forget(self) -> None:
        """A new time has come: what this process tried before may be tried again."""
        self.attempted.clear()
        self.idle = Idle(told=self.idle.told)

    async def close(self) -> None:
        """Let go of connections and folders."""
        await self.chosen.model.aclose()
        if self._records is not None:
            await asyncio.to_thread(self._records.close)

    def hidden_refs(self) -> Records | None:
        """The hidden refs of the remote, opened once; None in a dry run, which writes nothing.

        Raises:
            ForgeError: the address of the repository could not be asked.
        """
        if self._records is None and not self.dry_run:
            self._records = open_hidden_refs(self.site, self.clock, self.stop)
        return self._records

    def start(self, run: str, folder: Path) -> CycleStart:
        """What the cycle `run` begins with. Nothing is contacted."""
        if self._rules_file is None:
            self._rules_file = RulesFile(self.site.forge, LOCAL_FILE)
        return CycleStart(
            run,
            self.site.forge,
            self.relay,
            self.stop,
            first_event(self, run),
            self._rules_file,
            partial(self._parts_under, run, folder),
        )

    def _parts_under(self, run: str, folder: Path, text: str | None) -> tuple[CycleParts, Sequence[str]]:
        settings, notes = self.tightened(text)
        return self.parts(run, folder, settings), notes

    def tightened(self, text: str | None) -> tuple[Settings, list[str]]:
        """The settings, as strict as the text of the repository's own file says, and notes on it."""
        if text is None:
            return self.settings, []
        return tightened(self.settings, text, f"{LOCAL_FILE} of {self.repository}")

    def parts(self, run: str, folder: Path, settings: Settings) -> CycleParts:
        """What the cycle `run` works with, under these settings."""
        return make_parts(self, run, folder, settings)
