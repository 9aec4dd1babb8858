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
