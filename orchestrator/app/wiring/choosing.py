"""Chooses the task of one cycle: after what may be spent, from the backlog, by a claim that nobody else has."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.parts import Choice
from orchestrator.bot.worker.spending import Refused
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.spent import Spent
from orchestrator.engine.session.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from orchestrator.bot.worker.backlog import Backlog
    from orchestrator.bot.worker.spending import Caps, Granted, Purse
    from orchestrator.bot.worker.taking import Taker
    from orchestrator.core.events import Emit


@dataclass(slots=True)
class Choosing:
    """Chooses for one run.

    Attributes:
        backlog: where tasks come from.
        taker: claims them; None in a dry run.
        purse: what may be spent; `needs` is what one request may cost at most.
        folder: the run's.
        saving: what is in its block may reach the remote although somebody wants the end at once.
    """

    backlog: Backlog
    taker: Taker | None
    purse: Purse
    needs: Caps
    folder: Path
    emit: Emit
    saving: Callable[[], AbstractContextManager[None]] = nullcontext

    async def choose(self) -> Choice:
        """The next task with what may be spent on it, or why there is none.

        Raises:
            PullwrightError: the forge or the remote failed.
        """
        choice = await self._chosen()
        if choice.task is None:
            return choice
        before = Spent()
        if choice.lease is not None and choice.lease.previous is not None:
            before = choice.lease.previous.spent
        granted = await self._granted(choice, before)
        if isinstance(granted, Refused):
            await self._give_back(choice)
            return Choice(None, f"{choice.task.key}: {granted.reason}", wake_at=granted.until)
        caps = granted.caps
        named = self.taker.named_tasks.get(choice.task.key) if self.taker else None
        task = choice.task
        if named is not None:
            task = replace(task, branch_folder=named.branch_folder, branch_suffix=named.branch_suffix)
        return replace(
            choice,
            task=task,
            earlier=self.taker.earlier.get(choice.task.key) if self.taker else None,
            spent_before=before,
            limits=Limits(caps.rounds, caps.tokens, caps.usd, caps.minutes),
        )

    async def _chosen(self) -> Choice:
        """What the backlog chooses, in a thread. One that is cancelled is waited for: it may have claimed a task."""
        choosing = asyncio.create_task(self.backlog.choose())
        try:
            return await asyncio.shield(choosing)
        except asyncio.CancelledError:
            await asyncio.wait([choosing])
            if not choosing.cancelled() and choosing.exception() is None:
                await self._give_back(choosing.result())
            raise

    async def _granted(self, choice: Choice, before: Spent) -> Granted | Refused:
        try:
            return await self.purse.open(self.folder, before, self.emit, self.needs)
        except BaseException:
            await self._give_back(choice)
            raise

    async def _give_back(self, choice: Choice) -> None:
        """Let the claim go as it was found."""
        self.backlog.put_back()
        lease = choice.lease
        if lease is None:
            return
        with self.saving(), suppress(WorkspaceError):  # else it expires by itself
            await asyncio.to_thread(lease.give_back)
