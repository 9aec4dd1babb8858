"""The profile of the pull-request bot: its tools, and how it is told to work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.prompts import render
from orchestrator.engine.profiles.base import Profile

if TYPE_CHECKING:
    from orchestrator.engine.tools.registry import ToolRegistry


def planner(tools: ToolRegistry) -> Profile:
    """The profile over these tools. Its base prompt names safe tools only, whatever mode it is used in."""
    safe = [definition.name for definition in tools.definitions(dangerous=False)]
    return Profile("planner", tools, render("profiles/planner", tools=safe))
