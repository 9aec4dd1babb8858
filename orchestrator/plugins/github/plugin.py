"""What `github` adds."""

from __future__ import annotations

from types import MappingProxyType

from orchestrator.app.plugins import Plugin, Point

PLUGIN = Plugin(
    name="github",
    text="work on repositories of github.com and of GitHub Enterprise servers: --repo owner/name",
    options=".options:GitHubOptions",
    adds=MappingProxyType(
        {
            Point.ATTACKS: ".attacks:FOLDER",
            Point.FORGE: ".servers:SERVERS",
            Point.FORGE_PROBES: ".probes:forge_probes",
        }
    ),
)
