"""A wish to end, and who waits meanwhile."""

from __future__ import annotations

import threading

import pytest

from orchestrator.bot.cycle.parts import Stop
from orchestrator.core.errors import ForgeUnavailableError


class Asked:
    """Waits for nothing: in the meantime somebody wants the end at once."""

    def __init__(self) -> None:
        self.stop = Stop(self.wait)
        self.seconds: list[float] = []

    def wait(self, wish: threading.Event, seconds: float) -> bool:
        self.seconds.append(seconds)
        self.stop.at_once()
        return wish.is_set()


def test_a_wish_to_stop_does_not_wake_who_waits() -> None:
    stop = Stop()
    stop.request()
    stop.sleep(0)
    assert stop()
    assert not stop.now()


def test_an_end_at_once_wakes_who_waits() -> None:
    stop = Stop()
    threading.Timer(0.01, stop.at_once).start()
    with pytest.raises(ForgeUnavailableError, match="interrupted"):
        stop.sleep(30)
    assert stop.now()


def test_an_end_that_is_wanted_while_work_is_saved_is_no_error_of_who_saves() -> None:
    asked = Asked()
    with asked.stop.saving():
        asked.stop.sleep(30)  # woken by the wish, and goes on
        asked.stop.sleep(2)
    assert asked.seconds == [30, 20.0, 2, 2]
    with pytest.raises(ForgeUnavailableError):
        asked.stop.sleep(2)
