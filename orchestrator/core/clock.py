"""Time as a value that is passed in."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """What the program knows of time."""

    def now(self) -> datetime:
        """The time of day, in UTC."""

    def monotonic(self) -> float:
        """Seconds that only go forward; for durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The time of day, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait, and let other tasks run."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that stands still until it is moved; sleeping moves it. For tests and demonstrations."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        """The start time plus what has been slept or advanced."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Seconds slept or advanced so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Move the clock at once, and let other tasks run."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._elapsed += seconds
