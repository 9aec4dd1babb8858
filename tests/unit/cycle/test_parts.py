from __future__ import annotations

import threading

import pytest

from orchestrator.core.errors import ForgeUnavailableError
from orchestrator.cycle.parts import Stop


def test_a_wish_to_stop_does_not_wake_who_waits_but_an_end_at_once_does() -> None:
    stop = Stop()
    stop.request()
    stop.sleep(0)
    assert stop()
    assert not stop.now()
    threading.Timer(0.01, stop.at_once).start()
    with pytest.raises(ForgeUnavailableError, match="interrupted"):
        stop.sleep(30)
    assert stop.now()


def test_an_end_that_is_wanted_while_work_is_saved_is_no_error_of_who_saves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("orchestrator.cycle.parts.time.sleep", naps.append)
    stop = Stop()
    with stop.saving():
        threading.Timer(0.01, stop.at_once).start()
        stop.sleep(30)  # woken by the wish, and goes on
        stop.sleep(2)
    assert naps == [20.0, 2]
    with pytest.raises(ForgeUnavailableError):
        stop.sleep(2)
