"""No trace shows a planted value, whatever an event says."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted
from orchestrator.core.events import SubagentEvent
from orchestrator.plugins.tracing.spans import Tracing
from tests.doubles.collector import Collector
from tests.scenarios.test_no_secret_leaves import MARKS, PLANTED, SHORT, WORDS, filled, leaks, with_values
from tests.unit.app.cli.examples import EVENTS

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    "change", [with_values, lambda _text: WORDS, lambda text: text or SHORT, lambda _text: f"a-{SHORT}"]
)
def test_no_trace_has_a_value_whatever_an_event_says(
    monkeypatch: pytest.MonkeyPatch, change: Callable[[str], str]
) -> None:
    events = [
        CycleStarted("a", "a", "a", "a", "a"),
        *EVENTS,
        CycleEnded({"outcome": "proposed", "error": "a"}),
    ]
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.root)
        told: list[str] = []
        tracing = Tracing("here", PLANTED, ManualClock(), told.append)
        for api_url in ("", f"http://{WORDS}.example/{SHORT}?key={quote(MARKS)}"):
            spans = tracing.follow(api_url)
            for event in events:
                spans(filled(event, change))
                spans(SubagentEvent(WORDS, filled(event, change)))
        tracing.close()
    sent = [body.decode("utf-8", "replace") for body in collector.bodies]
    assert sum(map(len, sent)) > 1_000
    assert [leaks(text) for text in (*sent, *told) if leaks(text)] == []
