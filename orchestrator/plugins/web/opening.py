"""Opens the web for a run or a conversation, and loads nothing if the settings do not allow it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.session_parts import MakeTools


def open_web(context: BuildContext) -> MakeTools | None:
    """Return what makes the web tools of a profile; None if the settings name no web."""
    engine: str | None = getattr(context.settings, "web", None)
    if engine is None:
        return None
    from orchestrator.plugins.web.client import HttpWeb

    if engine == "pages":
        return HttpWeb().tools
    return HttpWeb(engine=engine, api_key=getattr(context.keys, engine)).tools
