"""Builds the parts of each cycle of a run, and keeps what outlives a cycle."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.agent.limits import Limits
from orchestrator.assembly.guards import as_lines, rules_in_words, runs_commands, told_of_refusals
from orchestrator.assembly.relay import Recorder
from orchestrator.assembly.toolbox import choose_contract, cycle_profile, profile_name
from orchestrator.config import LOCAL_FILE, tightened
from orchestrator.core.defences import Defence, Guarded
from orchestrator.cycle.cycle import run_cycle
from orchestrator.cycle.parts import CycleParts, Manner
from orchestrator.cycle.result import Outcome
from orchestrator.environments.local import LocalEnvironment
from orchestrator.journal.folders import create_run_folder, new_run_id
from orchestrator.journal.writer import JournalWriter
from orchestrator.worker.backlog import Backlog
from orchestrator.workspace.base import Identity
from orchestrator.workspace.clone import open_clone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.assembly.forge import Site
    from orchestrator.assembly.model import ChosenModel
    from orchestrator.assembly.relay import Relay
    from orchestrator.config import Settings
    from orchestrator.core.clock import Clock
    from orchestrator.cycle.guards import Guards
    from orchestrator.cycle.parts import Choice, Stop
    from orchestrator.cycle.result import CycleResult
    from orchestrator.environments.base import ExecutionEnvironment
    from orchestrator.environments.confinement import Sandbox
    from orchestrator.guard.secrets import Redactor
    from orchestrator.journal.folders import Home
    from orchestrator.web.base import WebAccess
    from orchestrator.worker.backlog import Wanted
    from orchestrator.workspace.clone import Clone


@dataclass(slots=True)
class Program:
    """Everything that the cycles of one run share. `cycle` runs the next one."""

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
    _attempted: set[str] = field(default_factory=set)

    async def cycle(self) -> CycleResult:
        """Run one cycle with a journal of its own, on a clone of its own."""
        run = new_run_id(self.clock.now(), random.SystemRandom())
        folder = create_run_folder(self.home, run)
        rules = self.settings

        async def tighten(parts: CycleParts) -> CycleParts:
            nonlocal rules
            rules, notes = await asyncio.to_thread(self._tightened)
            for note in notes:
                parts.emit(Guarded(Defence.INSTRUCTIONS, note))
            return parts if rules == self.settings else self._parts(run, folder, rules)

        async def choose() -> Choice:
            return await self._backlog(rules).choose()

        with JournalWriter(folder, self.redactor.redact, self.clock) as journal:
            recorder = Recorder(journal, self.relay.always, self.stop)
            self.relay.listen(recorder)
            result = await run_cycle(self._parts(run, folder, rules), choose, tighten)
        if recorder.error and result.outcome is Outcome.INTERRUPTED:
            result.outcome, result.error, result.cause = Outcome.FAILED, str(recorder.error), recorder.error
        return result

    async def close(self) -> None:
        """Let go of connections."""
        await self.chosen.model.aclose()

    def _tightened(self) -> tuple[Settings, list[str]]:
        """The settings as the repository's own file, on its default branch, makes them stricter."""
        text = self.site.forge.read_file(LOCAL_FILE)
        if text is None:
            return self.settings, []
        return tightened(self.settings, text, f"{LOCAL_FILE} of {self.repository}")

    def _backlog(self, settings: Settings) -> Backlog:
        guards = self.guards(settings)
        return Backlog(
            self.site.forge,
            self.wanted,
            settings.label,
            self._attempted,
            allow_actors=settings.allow_actor,
            comments_policy=settings.comments,
            clean=as_lines(guards.words, guards.redact),
            clean_name=as_lines(guards.names, guards.redact),
            emit=self.relay,
        )

    def _parts(self, run: str, folder: Path, settings: Settings) -> CycleParts:
        guards = self.guards(settings)
        return CycleParts(
            run=run,
            folder=folder,
            repository=self.repository,
            forge=self.site.forge,
            model=self.chosen.model,
            contract=choose_contract(settings),
            open_clone=self._open_clone,
            environment=self._environment,
            profile=partial(
                cycle_profile,
                profile_name(settings, self.chosen),
                self.chosen,
                dangerous=runs_commands(settings),
                web=self.web,
            ),
            guards=guards,
            rules=rules_in_words(settings, self.sandbox),
            limits=Limits(settings.max_rounds, settings.max_tokens, settings.max_usd, settings.max_minutes),
            price=self.chosen.price,
            manner=self._manner(settings),
            clock=self.clock,
            emit=self.relay,
            stop=self.stop,
        )

    def _manner(self, settings: Settings) -> Manner:
        return Manner(
            dry_run=self.dry_run,
            draft=settings.draft,
            stream=settings.stream,
            context_characters=settings.context_chars,
            author_email=settings.author_email,
            temperature=settings.temperature,
            max_output_tokens=settings.max_output_tokens,
            reasoning_effort=settings.reasoning_effort,
            strict_tests=settings.strict_tests,
            other_base=settings.base is not None,
        )

    def _open_clone(self, parent: Path) -> Clone:
        source = self.site.source()
        return open_clone(
            source.url,
            branch=source.branch,
            credential=self.site.credential,
            parent=parent,
            with_git=runs_commands(self.settings),
            identity=Identity(self.settings.author_name, self.settings.author_email),
            clock=self.clock,
            cancelled=self.stop.now,
        )

    def _environment(self, tree: Path, submodules: list[str]) -> ExecutionEnvironment:
        return LocalEnvironment(
            tree,
            clock=self.clock,
            submodules=submodules,
            sandbox=self.sandbox or self.settings.sandbox,
            on_refused=told_of_refusals(self.relay),
        )
