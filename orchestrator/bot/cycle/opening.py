"""The first words of a session: the task and its files, or that an earlier session is gone on with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.briefing import first_message
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.messages import Message
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.fence import fenced
from orchestrator.engine.tools.base import Order

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.cycle.bring import Brought
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.parts import Attempt
    from orchestrator.bot.git.base import TrackedFile
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.profiles.base import Profile

_RECENT_COMMITS = 8
_OTHER_BASE = "instruction files count from the default branch only, so those of this branch are plain files"


@dataclass(frozen=True, slots=True)
class Opening:
    """Writes them for one session.

    Attributes:
        files: those that git tracks.
    """

    attempt: Attempt
    files: Sequence[TrackedFile]
    environment: ExecutionEnvironment

    async def brief(
        self, profile: Profile, brought: Brought, tests: str, *, whole_file: bool = False
    ) -> tuple[Message, str]:
        """All that a model needs that knows nothing yet, and the file that it is most likely about.

        Args:
            profile: the session's.
            brought: what is changed already.
            tests: what the model is told of the project's tests.
            whole_file: its reply has to be a changed file.

        Raises:
            PullwrightError: the forge or git failed.
        """
        parts = self.attempt.parts
        commits = await asyncio.to_thread(self.attempt.clone.recent_commits, _RECENT_COMMITS)
        briefing = await first_message(
            task=self.attempt.task,
            files=self.files,
            read=lambda path, limit: self.environment.read_file(path, max_bytes=limit),
            visible=self.attempt.sight.text,
            commits=[(line.commit[:8], self.attempt.sight.words(line.subject)) for line in commits],
            budget=parts.manner.context_characters,
            documents=await self._documents(profile, brought),
            looks_only=not any(
                parts.guards.shows(tool) and (tool.dangerous or tool.order is Order.ALONE)
                for tool in profile.tools
            ),
            brought=brought.paths,
            conflicts=brought.conflicts,
            tests=tests,
            brief=profile.is_brief,
            whole_file=whole_file,
        )
        self.attempt.ledger.shown |= briefing.shown
        text = briefing.text
        if parts.limits.rounds == 1 and not whole_file:
            text = f"{text}\n\n{render('agent/last_round')}"
        return Message.user(text), briefing.subject

    def go_on(self, earlier: Earlier, brought: Brought) -> Message:
        """What has changed since the conversation that the model has before it."""
        answer = earlier.answer
        text = render(
            "cycle/resumed",
            why=earlier.state.why,
            answer=answer,
            answer_block=fenced(answer.text) if answer else "",
            paths=[f"`{path}`" for path in self.attempt.sight.paths(brought.paths)],
            conflicts=[f"`{path}`" for path in self.attempt.sight.paths(brought.conflicts)],
            base_moved=brought.base_moved,
            files_lost=earlier.state.files_lost,
        )
        return Message.user(text)

    async def _documents(self, profile: Profile, brought: Brought) -> Sequence[str]:
        """The names of files that instruct; none where they are not the default branch's."""
        is_other = self.attempt.parts.manner.other_base and not await asyncio.to_thread(
            self._is_on_default_branch
        )
        if is_other or brought.joined:
            self.attempt.emit(Guarded(Defence.INSTRUCTIONS, _OTHER_BASE))
            return ()
        return profile.documents

    def _is_on_default_branch(self) -> bool:
        return self.attempt.parts.forge.repository().default_branch == self.attempt.clone.base_branch
