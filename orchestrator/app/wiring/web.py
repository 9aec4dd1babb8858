"""The web tools: which engine searches, and under which names a profile shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.app.wiring.around import Around
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.web.base import WebAccess


def choose_web(around: Around) -> WebAccess | None:
    """The way to the web, if the settings open it.

    Raises:
        ConfigurationError: the engine's key is missing.
    """
    engine = around.settings.web
    if engine is None:
        return None
    from orchestrator.engine.web.client import HttpWeb

    key: str | None = getattr(around.keys, engine)
    return HttpWeb(engine=engine, api_key=key)


def tools_for(profile: str, web: WebAccess) -> tuple[Tool, ...]:
    """The web tools as this profile names them."""
    from orchestrator.engine.tools.web import searches, web_fetch, web_tools
    from orchestrator.engine.tools.web_text import PageReader

    if profile == "gemini":
        return *searches(web), web_fetch(PageReader(web))
    return web_tools(web)
