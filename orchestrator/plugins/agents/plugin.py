"""What `agents` adds."""

from __future__ import annotations

from orchestrator.app.plugins import Plugin

PLUGIN = Plugin(name="agents", text="let other agent programs work in the place of our own loop")
