"""The profile of the pull-request bot: its tools and its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.prompts import render
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import read_file, write_file
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import glob, grep, list_dir
from orchestrator.engine.tools.shell import run_shell_command

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.tools.registry import ToolRegistry


def planner(
    *,
    web: tuple[Tool, ...] = (),
    custom: tuple[Tool, ...] = (),
    dangerous: bool = False,
    name: str = "planner",
) -> Profile:
    """Create the profile `planner`, or one with its tools and a separate prompt.

    Args:
        web: the web tools; none if the session has no web.
        custom: tools of the host, after the others; of two with one name the host's is used.
        dangerous: has no effect, because the prompt never names dangerous tools.
        name: the name of the profile and of its prompt.
    """
    del dangerous
    own = (read_file(), list_dir(), grep(), glob(), edit_file(), write_file(), run_shell_command())
    return planner_over(with_custom((*own, *web), custom), name)


def planner_over(tools: ToolRegistry, name: str = "planner") -> Profile:
    """Create the profile with these tools. Its base prompt names only safe tools, whatever the mode."""
    safe = [definition.name for definition in tools.definitions(dangerous=False)]
    return Profile(name, tools, render(f"profiles/{name}", tools=safe), has_role=True)
