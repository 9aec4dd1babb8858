"""The options of `agents`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.options import Reach, option

if TYPE_CHECKING:
    from orchestrator.app.forms import Line


class AgentOptions:
    """The option that names an agent program."""

    agent: Line | None = option(
        None,
        "Coding-agent program that works in place of the model's loop: claude, codex, gemini, opencode, or the command "
        "of another one that speaks the Agent Client Protocol.",
        "one line of text, not empty, of at most 200 characters",
        Reach.NEVER,
        begins="an agent program",
    )
