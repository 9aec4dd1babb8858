"""What `containers` adds."""

from __future__ import annotations

from types import MappingProxyType

from orchestrator.app.plugins import Plugin, Point

PLUGIN = Plugin(
    name="containers",
    text="run commands in a container of an image, by Docker or Podman: --sandbox docker:IMAGE",
    adds=MappingProxyType({Point.SANDBOX: ".sandbox:find_container_sandbox"}),
)
