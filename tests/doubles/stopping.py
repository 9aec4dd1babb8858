"""A request to stop whose waits take no time."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading


def no_wait(stop: threading.Event, _seconds: float) -> bool:
    """Return without waiting."""
    return stop.is_set()
