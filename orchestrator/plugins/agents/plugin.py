"""What `agents` adds."""

from __future__ import annotations

from types import MappingProxyType

from orchestrator.app.plugins import Plugin, Point

PLUGIN = Plugin(
    name="agents",
    text="let a coding-agent program work in place of the model's loop: Claude Code, Codex, Gemini CLI, opencode",
    options=".options:AgentOptions",
    adds=MappingProxyType(
        {
            Point.ATTACKS: ".attacks:FOLDER",
            Point.PROBES: ".choose:agent_probes",
            Point.WORKER: ".choose:choose_agent",
        }
    ),
    extra="agents",
)
