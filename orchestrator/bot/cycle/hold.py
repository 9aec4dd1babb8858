"""Keeps a claim alive while its task is worked on, and ends the work when the claim is lost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import ClaimLostError, WorkspaceError
from orchestrator.core.events import Warned

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from orchestrator.bot.coordination.claims import Lease
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.core.spent import Spent


class Hold:
    """A heartbeat. Where another worker has taken the claim over, the block ends with `ClaimLostError`.

    A remote that cannot be reached is no reason to stop: the fence decides when the branch is pushed.

    Args:
        lease: what is renewed; None where nothing is claimed, as in a dry run.
        spent: what the task has cost so far, for the claim's record.
        clock: time between two beats.
        emit: told of beats that failed.
    """

    def __init__(self, lease: Lease | None, spent: Callable[[], Spent], clock: Clock, emit: Emit) -> None:
        self._lease, self._spent, self._clock, self._emit = lease, spent, clock, emit
        self._beats: asyncio.Task[None] | None = None
        self._lost: ClaimLostError | None = None

    async def __aenter__(self) -> Self:
        """Begin to beat."""
        worker = asyncio.current_task()
        if self._lease is not None and worker is not None:
            self._beats = asyncio.create_task(self._beat(self._lease, worker))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop beating.

        Raises:
            ClaimLostError: that is why the work was cancelled.
        """
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.wait([self._beats])
        worker = asyncio.current_task()
        if self._lost is None or not isinstance(error, asyncio.CancelledError) or worker is None:
            return
        if worker.uncancel() == 0:  # else somebody else cancelled too, and that counts
            raise self._lost from None

    async def _beat(self, lease: Lease, worker: asyncio.Task[object]) -> None:
        while True:
            await self._clock.sleep(lease.renew_seconds)
            try:
                await asyncio.to_thread(lease.renew, self._spent())
            except ClaimLostError as error:
                self._lost = error
                worker.cancel()
                return
            except WorkspaceError as error:
                self._emit(Warned(f"the claim could not be renewed, and is tried again: {error}"))
