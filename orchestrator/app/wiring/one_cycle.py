"""What is built for one cycle while it runs: the rules that hold in it, its purse and its backlog."""

from __future__ import annotations

import asyncio
import functools
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.wiring.choosing import Choosing
from orchestrator.app.wiring.claiming import kept_work, make_claims, new_nonce, owner_name
from orchestrator.app.wiring.cycle_parts import reopen
from orchestrator.app.wiring.guards import as_lines
from orchestrator.app.wiring.spending import scope_caps, smallest_request
from orchestrator.bot.cycle.result import Outcome
from orchestrator.bot.worker.admission import Admission
from orchestrator.bot.worker.backlog import Backlog, Wanted
from orchestrator.bot.worker.ledger import RepositoryLedger
from orchestrator.bot.worker.manners import Manners
from orchestrator.bot.worker.reading import Screen
from orchestrator.bot.worker.recovery import Recovery
from orchestrator.bot.worker.remains import Remains
from orchestrator.bot.worker.spending import Purse
from orchestrator.bot.worker.taking import Taker
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.events import Event, Warned

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.parts import Choice, CycleParts
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.core.spent import Spent


def _not_again(_key: str) -> str:
    """A dry run does not see the claims."""
    return ""


class OneCycle:
    """Gives `run_cycle` what it asks for, and closes the books after it."""

    def __init__(self, program: Program, run: str, folder: Path) -> None:
        self._program, self._run, self._folder = program, run, folder
        self._rules = program.settings
        self._pulse = functools.cache(program.site.forge.pulse)  # once a cycle
        self._purse: Purse | None = None
        self._backlog: Backlog | None = None

    def parts(self) -> CycleParts:
        """What the cycle works with, under the rules as they are known by now."""
        return self._program.parts(self._run, self._folder, self._rules)

    async def tighten(self, parts: CycleParts) -> CycleParts:
        """The parts under the rules of the repository's own file.

        Raises:
            PullwrightError: the forge failed.
        """
        program = self._program
        self._rules, notes = await asyncio.to_thread(program.tightened, self._pulse)
        for note in notes:
            parts.emit(Guarded(Defence.INSTRUCTIONS, note))
        # Asks the forge for the address, so not before the cycle has begun: an outage is a result of it.
        records = await asyncio.to_thread(program.hidden_refs)
        kept = kept_work(program.home, records) if records else None
        return replace(parts if self._rules == program.settings else self.parts(), records=records, kept=kept)

    async def choose(self) -> Choice:
        """A task that is ours, with what may be spent on it. What runs killed here have left is saved first.

        Raises:
            PullwrightError: the forge or the remote failed.
        """
        program = self._program
        records = await asyncio.to_thread(program.hidden_refs)
        recovery = self._recovery(records) if records else None
        dead = await asyncio.to_thread(recovery.recover) if recovery else []
        purse = self._purse = self._make_purse(records)
        needs = smallest_request(self._rules, program.chosen)
        spent_up = partial(purse.why_not, needs=needs)
        taker = self._taker(recovery, dead, spent_up) if recovery else None
        self._backlog = self._make_backlog(taker)
        choosing = Choosing(
            self._backlog, taker, purse, needs, self._folder, program.relay, program.stop.saving
        )
        return await choosing.choose()

    async def settle(self, result: CycleResult) -> None:
        """Note what the cycle has cost, and what is to be tried again; a warning where that fails."""
        if self._purse is not None:
            try:
                with self._program.stop.saving():
                    await self._purse.close(result.run or "", result.spent)
            except WorkspaceError as error:
                warning = f"what the cycle has cost was not written down for other machines: {error}"
                self._program.relay(Warned(warning))
        if self._backlog is not None and result.outcome is Outcome.PAUSED:
            self._backlog.put_back()

    def _make_purse(self, records: Records | None) -> Purse:
        program = self._program
        ledger = RepositoryLedger(records, program.clock, new_nonce) if records else None
        return Purse(program.home, program.clock, scope_caps(self._rules), ledger)

    def _recovery(self, records: Records) -> Recovery:
        program, temporary = self._program, Path(tempfile.gettempdir())
        remains = Remains(
            records,
            kept_work(program.home, records),
            partial(reopen, program),
            partial(self.parts().open_clone, temporary),
            self._run,
            program.clock,
            program.relay,
            program.redactor.redact,
            program.guards(program.settings).hold_back,
        )
        return Recovery(
            program.home,
            program.repository,
            program.site.forge,
            temporary,
            records,
            make_claims(records, owner_name(program.environ), program.settings, program.clock),
            remains,
            program.clock,
            program.relay,
            program.redactor.redact,
        )

    def _taker(self, recovery: Recovery, dead: list[str], spent_up: Callable[[Spent], str | None]) -> Taker:
        """Who claims tasks. The claims of dead runs are free."""
        program, rules = self._program, self._rules
        forge = program.site.forge
        return Taker(
            recovery.records,
            recovery.claims,
            forge,
            self._run,
            dead,
            named=program.wanted != Wanted(),
            may=Admission(forge, rules.label, rules.allow_actor).may,
            clean=self._clean_answer,
            spent_up=spent_up,
            kept=kept_work(program.home, recovery.records),
            tell=lambda text: program.relay(Warned(text)),
            commands=program.commands,
            answer=program.answer,
            base=rules.base,
            author_email=rules.author_email,
        )

    def _clean_answer(self, text: str, author: str) -> str:
        """Words of somebody who answers, as people see them; what they do not see is told."""
        guards, noticed = self._program.guards(self._rules), list[Event]()
        screen = Screen(as_lines(guards.words, guards.redact), as_lines(guards.names, guards.redact), noticed)
        seen = screen.text(text, f"comment by {author or 'an account that is gone'}")
        for event in noticed:
            self._program.relay(event)
        return seen

    def _make_backlog(self, taker: Taker | None) -> Backlog:
        program, rules = self._program, self._rules
        forge, guards = program.site.forge, program.guards(rules)
        return Backlog(
            forge,
            program.wanted,
            rules.label,
            program.attempted,
            allow_actors=rules.allow_actor,
            comments_policy=rules.comments,
            clean=as_lines(guards.words, guards.redact),
            clean_name=as_lines(guards.names, guards.redact),
            emit=program.relay,
            manners=Manners(
                rules.max_open_prs,
                rules.max_prs_per_day,
                sys.maxsize if program.site.is_local else rules.max_unreviewed,
                rules.review_rounds,
                rules.quiet_minutes,
            ),
            claim=taker.take if taker else None,
            in_flight=taker.held_by_others if taker else tuple,
            asked_again=taker.asked_again if taker else _not_again,
            commands=program.commands,
            pulse=self._pulse,
            has_conflict=forge.has_conflict,
            unfinished=taker.unfinished if taker else tuple,
            clock=program.clock,
            idle=program.idle,
        )
