"""Whether the model may stop: not with changes that it has not proposed, without being told so once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.cycle.pending import Pending
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.cycle.sight import Sight


class Ending:
    """Asks once each: of a model that only says something, and of one that calls `finish`.

    Args:
        pending: what is not proposed.
        sight: shows it.
        result: the cycle's, for the pull request.
        is_last: whether this is the last turn that the session can have.
    """

    def __init__(
        self, pending: Pending, sight: Sight, result: CycleResult, is_last: Callable[[], bool]
    ) -> None:
        self._pending, self._sight, self._result, self._is_last = pending, sight, result, is_last
        self._reminded = False
        self._finish_refused = False

    async def may_end(self, _text: str) -> str | None:
        """Nobody reads what the model only says: tell it so once, unless all is proposed."""
        pending = await asyncio.to_thread(self._pending.paths)
        if self._reminded or (self._result.pull_request and not pending):
            return None
        self._reminded = True
        return render("cycle/nobody_reads", paths=self._sight.paths(pending))

    async def is_done(self) -> bool:
        """Whether the pull request is open and has all changes: then nothing is left that a model must say."""
        return self._result.pull_request is not None and not await asyncio.to_thread(self._pending.paths)

    async def may_finish(self, _reason: str) -> str | None:
        """Refuse the first `finish` that would leave changes unproposed."""
        pending = await asyncio.to_thread(self._pending.paths)
        if not pending or self._finish_refused or self._is_last():
            return None
        self._finish_refused = True
        return render("agent/finish_refused", paths=self._sight.paths(pending))
