"""What a profile is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Profile:
    """Tools and words that suit a model, whatever protocol carries them.

    Attributes:
        name: `planner`, and later those of the vendors' models.
        tools: all tools, dangerous ones included; the gate and the prompt leave those out in
            safe mode.
        base_prompt: the first part of the system prompt, already rendered.
    """

    name: str
    tools: ToolRegistry
    base_prompt: str
