"""Clocks, which are passed in so that tests can control time."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    """Reads the time, and waits."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""

    def monotonic(self) -> float:
        """Return seconds that never decrease, to measure durations."""

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds while other tasks run."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """Return the current time, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds while other tasks run."""
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock for tests and demonstrations. Only `sleep` and `advance` move it, and `sleep` returns at once."""

    def __init__(self, start: datetime | None = None) -> None:
        self._start = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0
        self.slept: list[float] = []

    def now(self) -> datetime:
        """Return the start time plus the seconds that the clock was moved."""
        return self._start + timedelta(seconds=self._elapsed)

    def monotonic(self) -> float:
        """Return the seconds that the clock was moved so far."""
        return self._elapsed

    async def sleep(self, seconds: float) -> None:
        """Move the clock at once, and let other tasks run."""
        self.slept.append(seconds)
        self.advance(seconds)
        await asyncio.sleep(0)

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        self._elapsed += seconds
