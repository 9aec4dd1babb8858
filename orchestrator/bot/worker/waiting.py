"""The one place where a worker does nothing: until a time, or until something wakes it."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from orchestrator.core.clock import Clock

LONGEST_SECONDS = 60.0
"""So often the time of day is looked at: a clock that was set, or a machine that slept, is noticed."""


def _nobody() -> None:
    pass


class Waiting:
    """Waits by the clock.

    Args:
        clock: the time.
        turned: called whenever the wait begins and at least every `LONGEST_SECONDS` of it, to show that
            the program is alive.
    """

    def __init__(self, clock: Clock, turned: Callable[[], None] = _nobody) -> None:
        self._clock = clock
        self._turned = turned
        self._woken = asyncio.Event()
        self._waits = False

    @property
    def is_on(self) -> bool:
        """Whether somebody waits now."""
        return self._waits

    def wake(self) -> None:
        """End the wait that is going on, or the next one."""
        self._woken.set()

    async def until(self, when: datetime | None) -> None:
        """Wait until the time, or until `wake`; without a time until `wake` only.

        A clock that is set back meanwhile makes the wait no longer.
        """
        self._waits = True
        try:
            await self._until(when)
        finally:
            self._waits = False

    async def _until(self, when: datetime | None) -> None:
        self._turned()
        begun, longest = self._clock.monotonic(), self._left(when)
        while not self._woken.is_set():
            left = min(self._left(when), longest - (self._clock.monotonic() - begun))
            if left <= 0:
                return
            await self._pass(min(left, LONGEST_SECONDS))
            self._turned()
        self._woken.clear()

    def _left(self, when: datetime | None) -> float:
        return math.inf if when is None else (when - self._clock.now()).total_seconds()

    async def _pass(self, seconds: float) -> None:
        both = [asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._woken.wait())]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
