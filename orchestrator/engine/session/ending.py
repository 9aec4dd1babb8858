"""The end of a session, however it comes: what runs is stopped, what was taken hold of is let go."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orchestrator.core.errors import (
    ConnectionFailedError,
    ContentFilterError,
    OverloadedError,
    ProviderError,
    RateLimitError,
)
from orchestrator.core.events import SessionEnded
from orchestrator.engine.session.history import INTERRUPTED
from orchestrator.engine.session.stream import stop

if TYPE_CHECKING:
    from orchestrator.engine.session.dialogue import Dialogue
    from orchestrator.engine.session.holdings import Holdings
    from orchestrator.engine.session.loop import SessionEnd
    from orchestrator.engine.session.stream import EventStream
    from orchestrator.engine.session.subagents import Subagents

PASSING = (RateLimitError, OverloadedError, ConnectionFailedError, ProviderError, ContentFilterError)
"""After these the same session may be asked again; after every other error it is closed."""


class Ending:
    """Ends a session once.

    Attributes:
        is_heard: the session has said that it started, and says that it has ended.
    """

    def __init__(
        self, dialogue: Dialogue, subagents: Subagents, holdings: Holdings, events: EventStream
    ) -> None:
        self._dialogue, self._subagents = dialogue, subagents
        self._holdings, self._events = holdings, events
        self._task: asyncio.Task[None] | None = None
        self.is_heard = False

    @property
    def is_begun(self) -> bool:
        """Whether the session ends, or has ended."""
        return self._task is not None

    async def reach(
        self, reason: str, work: asyncio.Task[SessionEnd] | None, error: BaseException | None
    ) -> None:
        """End in a task of its own, so that a tool that closes its session does not cut the end short.

        Args:
            reason: one line.
            work: is stopped; None where it ends by itself.
            error: why it ends, if something went wrong.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._end(reason, work, error))
            await asyncio.shield(self._task)
        else:
            await asyncio.wait([self._task])  # who began it hears what went wrong

    async def _end(
        self, reason: str, work: asyncio.Task[SessionEnd] | None, error: BaseException | None
    ) -> None:
        """Steps 1 to 8 of Appendix B of the specification; what can be stopped at the same time is."""
        try:
            if error:
                self._dialogue.tell(error)
            await asyncio.gather(stop(work), self._subagents.close())
            if work and not work.done():  # a tool does not let itself be stopped
                self._dialogue.interrupt()
                self._events.end_calls(INTERRUPTED)
            await self._holdings.let_go()
        finally:
            try:
                if self.is_heard:
                    self._events(SessionEnded(reason))
            finally:
                self._events.end()
