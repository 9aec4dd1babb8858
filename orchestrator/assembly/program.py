"""Builds the parts of each cycle of a run, and keeps what outlives a cycle."""

from __future__ import annotations

import asyncio
import functools
import random
import sys
import tempfile
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.agent.limits import Limits
from orchestrator.assembly.choosing import Choosing
from orchestrator.assembly.claiming import make_claims, new_nonce, open_hidden_refs, owner_name
from orchestrator.assembly.guards import as_lines, rules_in_words, runs_commands, told_of_refusals
from orchestrator.assembly.relay import Recorder
from orchestrator.assembly.spending import scope_caps, smallest_request
from orchestrator.assembly.toolbox import choose_contract, cycle_profile, profile_name
from orchestrator.config import LOCAL_FILE, tightened
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.events import Warned
from orchestrator.cycle.cycle import run_cycle
from orchestrator.cycle.parts import CycleParts, Manner
from orchestrator.cycle.result import Outcome
from orchestrator.environments.local import LocalEnvironment
from orchestrator.forge.base import TokenKind
from orchestrator.journal.folders import create_run_folder, new_run_id
from orchestrator.journal.open_runs import hold
from orchestrator.journal.writer import JournalWriter
from orchestrator.worker.admission import Admission
from orchestrator.worker.backlog import Backlog, Wanted
from orchestrator.worker.idle import Idle
from orchestrator.worker.ledger import RepositoryLedger
from orchestrator.worker.manners import Manners
from orchestrator.worker.recovery import Recovery
from orchestrator.worker.spending import Purse
from orchestrator.worker.taking import Taker
from orchestrator.workspace.base import Identity
from orchestrator.workspace.clone import open_clone
from orchestrator.workspace.reopen import reopen_clone
from orchestrator.workspace.wip import list_wip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.assembly.forge import Site
    from orchestrator.assembly.model import ChosenModel
    from orchestrator.assembly.relay import Relay
    from orchestrator.config import Settings
    from orchestrator.core.clock import Clock
    from orchestrator.core.spent import Spent
    from orchestrator.cycle.guards import Guards
    from orchestrator.cycle.parts import Choice, Stop
    from orchestrator.cycle.result import CycleResult
    from orchestrator.environments.base import ExecutionEnvironment
    from orchestrator.environments.confinement import Sandbox
    from orchestrator.guard.secrets import Redactor
    from orchestrator.journal.folders import Home
    from orchestrator.web.base import WebAccess
    from orchestrator.workspace.claims import Claims
    from orchestrator.workspace.clone import Clone
    from orchestrator.workspace.records import Records


_CYCLES_A_SCRATCH = 100
"""The folder for hidden refs grows with each fetch, and is made anew after so many cycles."""


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
    environ: Mapping[str, str] = field(default_factory=dict)
    answer: str | None = None
    _attempted: set[str] = field(default_factory=set)
    _idle: Idle = field(default_factory=Idle)
    _records: Records | None = None
    _cycles: int = 0
    _rules: tuple[str, Settings, list[str]] | None = None

    async def cycle(self) -> CycleResult:
        """Run one cycle with a journal of its own, on a clone of its own."""
        run = new_run_id(self.clock.now(), random.SystemRandom())
        folder = create_run_folder(self.home, run)
        rules = self.settings
        purse: Purse | None = None
        backlog: Backlog | None = None
        pulse = functools.cache(self.site.forge.pulse)  # once a cycle

        async def tighten(parts: CycleParts) -> CycleParts:
            nonlocal rules
            rules, notes = await asyncio.to_thread(self._tightened, pulse)
            for note in notes:
                parts.emit(Guarded(Defence.INSTRUCTIONS, note))
            # Asks the forge for the address, so not before the cycle has begun: an outage is a result of it.
            records = await asyncio.to_thread(self._hidden_refs)
            return replace(
                parts if rules == self.settings else self._parts(run, folder, rules), records=records
            )

        async def choose() -> Choice:
            nonlocal purse, backlog
            claims = await asyncio.to_thread(self._claims)
            dead = await asyncio.to_thread(self._recover, claims, run) if claims else []
            purse = self._purse(rules)
            needs = smallest_request(rules, self.chosen)
            spent_up = partial(purse.why_not, needs=needs)
            taker = self._taker(claims, run, dead, rules, spent_up) if claims else None
            backlog = self._backlog(rules, taker, pulse)
            choosing = Choosing(backlog, taker, purse, needs, folder, self.relay, self.stop.saving)
            return await choosing.choose()

        with hold(folder), JournalWriter(folder, self.redactor.redact, self.clock) as journal:
            recorder = Recorder(journal, self.relay.always, self.stop)
            self.relay.listen(recorder)
            result = await run_cycle(self._parts(run, folder, rules), choose, tighten)
            if purse is not None:
                await self._settle(purse, result)
            if backlog is not None and result.outcome is Outcome.PAUSED:
                backlog.put_back()
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
        self._attempted.clear()
        self._idle = Idle()

    async def close(self) -> None:
        """Let go of connections and folders."""
        await self.chosen.model.aclose()
        if self._records is not None:
            await asyncio.to_thread(self._records.close)

    async def _settle(self, purse: Purse, result: CycleResult) -> None:
        try:
            with self.stop.saving():
                await purse.close(result.run or "", result.spent)
        except WorkspaceError as error:
            self.relay(Warned(f"what the cycle has cost was not written down for other machines: {error}"))

    def _claims(self) -> Claims | None:
        """The claims on the remote; None in a dry run, which writes nothing."""
        records = self._hidden_refs()
        if records is None:
            return None
        return make_claims(records, owner_name(self.environ), self.settings, self.clock)

    def _hidden_refs(self) -> Records | None:
        if self._records is None and not self.dry_run:
            self._records = open_hidden_refs(self.site, self.clock, self.stop)
        return self._records

    def _recover(self, claims: Claims, run: str) -> list[str]:
        if self._records is None:
            raise AssertionError("claims are on hidden refs")
        recovery = Recovery(
            self.home,
            self.repository,
            self.site.forge,
            Path(tempfile.gettempdir()),
            self._records,
            claims,
            self._reopen,
            run,
            self.clock,
            self.relay,
            self.redactor.redact,
            self.guards(self.settings).hold_back,
        )
        return recovery.recover()

    def _taker(
        self,
        claims: Claims,
        run: str,
        dead: list[str],
        settings: Settings,
        spent_up: Callable[[Spent], str | None],
    ) -> Taker:
        if self._records is None:
            raise AssertionError("claims are on hidden refs")
        admission = Admission(self.site.forge, settings.label, settings.allow_actor)
        guards = self.guards(settings)
        return Taker(
            self._records,
            claims,
            self.site.forge,
            run,
            dead,
            named=self.wanted != Wanted(),
            may=admission.may,
            clean=lambda text, _author: guards.redact(guards.words(text).text),
            spent_up=spent_up,
            answer=self.answer,
        )

    def _purse(self, settings: Settings) -> Purse:
        ledger = RepositoryLedger(self._records, self.clock, new_nonce) if self._records else None
        return Purse(self.home, self.clock, scope_caps(settings), ledger)

    def _tightened(self, pulse: Callable[[], str]) -> tuple[Settings, list[str]]:
        """The settings as the repository's own file, on its default branch, makes them stricter.

        While nothing has changed on the forge, the file is not read again.
        """
        now = pulse()
        if self._rules is None or self._rules[0] != now:
            text = self.site.forge.read_file(LOCAL_FILE)
            where = f"{LOCAL_FILE} of {self.repository}"
            rules, notes = (self.settings, []) if text is None else tightened(self.settings, text, where)
            self._rules = now, rules, notes
        return self._rules[1], self._rules[2]

    def _backlog(self, settings: Settings, taker: Taker | None, pulse: Callable[[], str]) -> Backlog:
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
            manners=Manners(
                settings.max_open_prs,
                settings.max_prs_per_day,
                sys.maxsize if self.site.is_local else settings.max_unreviewed,
                settings.review_rounds,
                settings.quiet_minutes,
            ),
            claim=taker.take if taker else None,
            in_flight=taker.held_by_others if taker else tuple,
            pulse=pulse,
            has_conflict=self.site.forge.has_conflict,
            unfinished=partial(list_wip, taker.records) if taker else tuple,
            clock=self.clock,
            idle=self._idle,
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
            open_clone=partial(self._open_clone, run),
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
            profile_name=profile_name(settings, self.chosen),
            limits=Limits(settings.max_rounds, settings.max_tokens, settings.max_usd, settings.max_minutes),
            price=self.chosen.price,
            reply_tokens=self.chosen.reply_tokens,
            manner=self._manner(settings),
            records=self._records,
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
            author_name=settings.author_name,
            temperature=settings.temperature,
            max_output_tokens=settings.max_output_tokens,
            reasoning_effort=settings.reasoning_effort,
            strict_tests=settings.strict_tests,
            other_base=settings.base is not None,
            signoff=settings.signoff,
            trailer=settings.trailer,
            respects_ai_policy=settings.ai_policy == "respect",
            starts_no_checks=self.site.forge.token_kind() is TokenKind.WORKFLOW,
        )

    def _open_clone(self, run: str, parent: Path) -> Clone:
        source = self.site.source()
        far = "://" in source.url and not source.url.startswith("file:")
        return open_clone(
            source.url,
            branch=source.branch,
            credential=self.site.credential,
            parent=parent,
            with_git=runs_commands(self.settings),
            identity=self._identity,
            clock=self.clock,
            cancelled=self.stop.now,
            mirror=self.home.cache / "mirrors" if far and self.settings.mirror else None,
            run=run,
            note=lambda text: self.relay(Warned(text)),
        )

    def _reopen(self, folder: Path) -> Clone:
        return reopen_clone(
            folder,
            self.site.source().url,
            credential=self.site.credential,
            identity=self._identity,
            clock=self.clock,
            cancelled=self.stop.now,
        )

    @property
    def _identity(self) -> Identity:
        return Identity(self.settings.author_name, self.settings.author_email)

    def _environment(self, tree: Path, submodules: list[str]) -> ExecutionEnvironment:
        return LocalEnvironment(
            tree,
            clock=self.clock,
            submodules=submodules,
            sandbox=self.sandbox or self.settings.sandbox,
            on_refused=told_of_refusals(self.relay),
        )
