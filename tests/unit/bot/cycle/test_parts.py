"""The parts of a cycle: its stop, and what its model is shown."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config.settings import Settings
from orchestrator.app.wiring.guards import GuardMaker
from orchestrator.bot.cycle.parts import SAVING_SECONDS, Sanitizer, Stop
from orchestrator.core.errors import ForgeUnavailableError
from orchestrator.core.events import Defence, Guarded
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from orchestrator.core.events import Event


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
    assert [round(seconds) for seconds in asked.seconds] == [30, SAVING_SECONDS, 2, 2]
    with pytest.raises(ForgeUnavailableError):
        asked.stop.sleep(2)


def test_what_is_hidden_in_a_name_is_left_out_and_told_once() -> None:
    heard: list[Event] = []
    sanitizer = Sanitizer(GuardMaker(Redactor(["made-up-key-1234"]))(Settings()), heard.append)
    for _ in range(2):
        assert sanitizer.line("Mend\u200b it") == "Mend it"
    assert sanitizer.line("Use made-up-key-1234") == "Use [redacted]"
    [event] = heard
    assert isinstance(event, Guarded)
    assert (event.defence, event.details) == (
        Defence.HIDDEN_TEXT,
        ('format characters at 4: "<U+200B>"',),
    )


def test_all_that_is_saved_has_the_time_of_one_stop_together() -> None:
    clock = [100.0]
    stop = Stop(monotonic=lambda: clock[0])
    stop.at_once()
    for at, is_over in ((100.0, False), (103.0, False), (106.5, True)):
        clock[0] = at
        with stop.saving(), stop.saving():
            assert stop.now() is is_over
            assert not stop.now_unless_saving()
        stop.at_once()  # asked again, which gives no more time
        assert stop.now()
        assert stop.now_unless_saving()
