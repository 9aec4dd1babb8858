"""What `web` adds."""

from __future__ import annotations

from types import MappingProxyType

from orchestrator.app.plugins import Plugin, Point

PLUGIN = Plugin(
    name="web",
    text="let the model read web pages, and search the web with Tavily, Brave or Exa",
    options=".options:WebOptions",
    adds=MappingProxyType({Point.ATTACKS: ".attacks:FOLDER", Point.TOOLS: ".opening:open_web"}),
)
