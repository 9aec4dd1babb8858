"""What a model may see of names and lines that others wrote, and what is told of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.config import Settings
from orchestrator.app.wiring.guards import GuardMaker
from orchestrator.bot.cycle.parts import Sanitizer
from orchestrator.core.defences import Defence, Guarded
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from orchestrator.core.events import Event


def test_what_is_hidden_in_a_name_is_left_out_and_told_once() -> None:
    heard: list[Event] = []
    sanitizer = Sanitizer(GuardMaker(Redactor(["made-up-key-1234"]))(Settings()), heard.append)
    for _ in range(2):
        assert sanitizer.words("Mend\u200b it") == "Mend it"
    assert sanitizer.words("Use made-up-key-1234") == "Use [redacted]"
    [event] = heard
    assert isinstance(event, Guarded)
    assert (event.defence, event.details) == (
        Defence.HIDDEN_TEXT,
        ('format characters at 4: "<U+200B>"',),
    )
