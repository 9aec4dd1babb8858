"""What `tracing` adds."""

from __future__ import annotations

from orchestrator.app.plugins import Plugin, Point

PLUGIN = Plugin(
    name="tracing",
    text="send traces of runs to an OpenTelemetry collector",
    adds={Point.OBSERVERS: ".variables:open_tracing"},
    extra="otel",
)
