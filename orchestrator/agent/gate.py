"""The gate between validation and execution: may this call run?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from orchestrator.core.messages import ToolCall
    from orchestrator.tools.base import Tool

Gate: TypeAlias = Callable[["Tool", "ToolCall"], str | None]
"""Gives the reason why a call may not run, or None if it may."""


def safe_mode(tool: Tool, call: ToolCall) -> str | None:
    """Refuse dangerous tools. They are not shown to the model either, but it may guess their names."""
    if tool.dangerous:
        return f"{call.name} is not available. Use only the tools that you were given."
    return None


def allow_all(_tool: Tool, _call: ToolCall) -> str | None:
    """Let every call run: the user passed --allow-dangerous-tools."""
    return None
