"""The first part of a system prompt, which names only tools that the model is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from orchestrator.engine.tools.registry import ToolRegistry


def base_prompt(profile_name: str, tools: ToolRegistry, *, dangerous: bool) -> str:
    """Render `prompts/profiles/<profile_name>.md`.

    Args:
        profile_name: the profile's name.
        tools: all tools of the session, those of the host included.
        dangerous: whether dangerous tools are shown.
    """
    shown = tools.definitions(dangerous=dangerous)
    return render(f"profiles/{profile_name}", tools=[tool.name for tool in shown], definitions=shown)
