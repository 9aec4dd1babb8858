"""Plan and act: one session between the model and the tools, on one clone."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.agent.config import Host, SessionConfig
from orchestrator.agent.session import Session
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import ToolError
from orchestrator.core.events import Phase, PhaseEntered, PlanAccepted
from orchestrator.core.messages import Message
from orchestrator.core.prompts import render
from orchestrator.cycle.briefing import first_message
from orchestrator.cycle.documents import shown_path
from orchestrator.cycle.evidence import Evidence
from orchestrator.cycle.propose import Proposer
from orchestrator.cycle.template import find_template
from orchestrator.tools.base import Ledger, Order

if TYPE_CHECKING:
    from orchestrator.agent.loop import SessionEnd
    from orchestrator.core.events import Event
    from orchestrator.core.messages import ToolDefinition
    from orchestrator.cycle.parts import CycleParts
    from orchestrator.cycle.result import CycleResult
    from orchestrator.cycle.tasks import Task
    from orchestrator.profiles.base import Profile
    from orchestrator.workspace.base import TrackedFile
    from orchestrator.workspace.clone import Clone

_RECENT_COMMITS = 8
_REPORTED = 20
_TEMPLATE_BYTES = 64_000
_OTHER_BASE = "instruction files count from the default branch only, so those of this branch are plain files"


class Act:
    """The session of one cycle, and what it may ask the host for."""

    def __init__(
        self, parts: CycleParts, task: Task, clone: Clone, files: list[TrackedFile], result: CycleResult
    ) -> None:
        self._parts, self._task, self._files, self._result = parts, task, files, result
        self.clone = clone
        self.ledger = Ledger()
        self._evidence = Evidence(parts.guards.redact)
        self._session: Session | None = None
        self._reminded = False
        self._phase = Phase.PLAN
        submodules = [file.path for file in files if file.kind == "submodule"]
        self._environment = parts.environment(clone.tree, submodules)
        self._finish_refused = False
        self._proposer = Proposer(
            clone=clone,
            forge=parts.forge,
            task=task,
            ledger=self.ledger,
            evidence=self._evidence,
            result=result,
            emit=self._emit,
            guards=parts.guards,
            strict_tests=parts.manner.strict_tests,
            author_email=parts.manner.author_email,
            model=parts.model.name,
            template=None,
            draft=parts.manner.draft,
            dry_run=parts.manner.dry_run,
        )

    async def run(self) -> SessionEnd:
        """Hold the session.

        Raises:
            PullwrightError: the model, the forge or git failed.
        """
        parts = self._parts
        await self._environment.initialize()
        self._emit(PhaseEntered(Phase.PLAN))
        self._proposer.template = await self._template()
        profile = parts.profile(self._proposer.propose, self._may_finish)
        self._session = Session(
            profile=replace(profile, documents=()),  # the first message has them
            environment=self._environment,
            model=parts.model,
            contract=parts.contract,
            config=self._config(),
            host=self._host(profile),
            clock=parts.clock,
            session_id=parts.run,
        )
        return await self._session.run(await self._brief(profile))

    def _config(self) -> SessionConfig:
        manner, limits = self._parts.manner, self._parts.limits
        return SessionConfig(
            max_turns=limits.rounds or 0,
            max_tokens=limits.tokens,
            max_usd=limits.usd,
            max_minutes=limits.minutes,
            max_output_tokens=manner.max_output_tokens,
            temperature=manner.temperature,
            reasoning_effort=manner.reasoning_effort,
            stream=manner.stream,
        )

    def _host(self, profile: Profile) -> Host:
        parts = self._parts

        def system(shown: tuple[ToolDefinition, ...]) -> str:
            return f"{profile.base_prompt}\n\n{parts.contract.describe(shown)}"

        return Host(
            gate=parts.guards.gate,
            shows=parts.guards.shows,
            clean=self._visible,
            price=parts.price,
            stopped=parts.stop,
            may_end=self._may_end,
            last_round=render("agent/last_round"),
            # Where the form of replies is part of the prompt, nothing else stands between it and the job.
            system=None if parts.contract.text_ends or parts.contract.prunes else system,
            ledger=self.ledger,
            emit=self._emit,
            owns_environment=False,
        )

    async def close(self) -> None:
        """Stop what still runs, and note what was spent."""
        if self._session:
            await self._session.close()
            spent = self._session.budget
            self._result.rounds, self._result.usage, self._result.usd = spent.rounds, spent.usage, spent.usd
        await self._environment.cleanup()

    async def _template(self) -> str | None:
        """The repository's pull-request template, read before the model can change it."""
        path = find_template([file.path for file in self._files])
        if path is None:
            return None
        try:
            raw = await self._environment.read_file(path, max_bytes=_TEMPLATE_BYTES)
        except ToolError:
            return None  # a template that cannot be read is no reason to lose the change
        return raw.decode("utf-8", "replace")

    def _visible(self, where: str, text: str) -> str:
        """Text of files and programs without secrets, and with what a reader would not see made visible."""
        cleaned = self._parts.guards.output(text)
        if cleaned.removed:
            found = tuple(str(one) for one in cleaned.removed[:_REPORTED])
            self._emit(Guarded(Defence.HIDDEN_TEXT, f"hidden characters in {where} are shown", found))
        return self._parts.guards.redact(cleaned.text)

    async def _brief(self, profile: Profile) -> Message:
        commits = await asyncio.to_thread(self.clone.recent_commits, _RECENT_COMMITS)
        documents = profile.documents
        if self._parts.manner.other_base and not await asyncio.to_thread(self._on_default_branch):
            self._emit(Guarded(Defence.INSTRUCTIONS, _OTHER_BASE))
            documents = ()
        briefing = await first_message(
            task=self._task,
            files=self._files,
            read=lambda path, limit: self._environment.read_file(path, max_bytes=limit),
            visible=self._visible,
            commits=[(line.commit[:8], self._words(line.subject)) for line in commits],
            budget=self._parts.manner.context_characters,
            documents=documents,
            looks_only=not any(
                self._parts.guards.shows(tool) and (tool.dangerous or tool.order is Order.ALONE)
                for tool in profile.tools
            ),
        )
        self.ledger.shown |= briefing.shown
        text = briefing.text
        if self._parts.limits.rounds == 1:
            text = f"{text}\n\n{render('agent/last_round')}"
        return Message.user(text)

    def _on_default_branch(self) -> bool:
        return self._parts.forge.repository().default_branch == self.clone.base_branch

    def _words(self, text: str) -> str:
        return self._parts.guards.redact(self._parts.guards.names(text).text)

    async def _may_end(self, _text: str) -> str | None:
        """Nobody reads what the model only says: tell it so once, unless all is proposed."""
        pending = await asyncio.to_thread(self.pending)
        if self._reminded or (self._result.pull_request and not pending):
            return None
        self._reminded = True
        return render("cycle/nobody_reads", paths=self._shown(pending))

    async def _may_finish(self, _reason: str) -> str | None:
        """Refuse the first `finish` that would leave changes unproposed."""
        pending = await asyncio.to_thread(self.pending)
        if not pending or self._finish_refused:
            return None
        self._finish_refused = True
        return render("agent/finish_refused", paths=self._shown(pending))

    def _shown(self, paths: set[str]) -> list[str]:
        """Names of files as the model may see them."""
        guards = self._parts.guards
        return [guards.redact(guards.names(shown_path(path)).text) for path in sorted(paths)]

    def pending(self) -> set[str]:
        """What was changed and not committed, by path."""
        changed = self.clone.changed_paths()
        mine = changed if self.ledger.shell_used else changed & self.ledger.touched
        return mine - self._proposer.left_out

    def pending_patch(self) -> bytes:
        """Everything that the remote does not hold yet, as a binary-safe patch; empty if nothing."""
        return self.clone.pending_patch(set(self.ledger.touched), include_commands=self.ledger.shell_used)

    def _emit(self, event: Event) -> None:
        self._evidence(event)
        if isinstance(event, PhaseEntered):
            self._phase = event.phase
        if isinstance(event, PlanAccepted):
            self._result.plan = event.plan or self._result.plan
            if self._phase is not Phase.ACT:
                self._emit(PhaseEntered(Phase.ACT))
        self._parts.emit(event)
