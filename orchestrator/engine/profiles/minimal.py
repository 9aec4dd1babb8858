"""The profile of the one-step agent specification: few tools, at most one call a step."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT, Profile, base_prompt
from orchestrator.engine.tools.control import submit as submit_tool
from orchestrator.engine.tools.files import read_text_or_image
from orchestrator.engine.tools.patches.apply import apply_unified_patch
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import grep_files, list_dir_in_pages
from orchestrator.engine.tools.shell import shell_command

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool


def minimal_tools(web: tuple[Tool, ...] = (), *, submit: bool = False) -> tuple[Tool, ...]:
    """Return the tools of that specification; `submit` only if it is enabled."""
    tools = (
        shell_command(),
        read_text_or_image(),
        list_dir_in_pages(),
        grep_files(),
        apply_unified_patch(),
        *web,
    )
    return (*tools, submit_tool()) if submit else tools


def minimal(
    *,
    web: tuple[Tool, ...] = (),
    custom: tuple[Tool, ...] = (),
    dangerous: bool = True,
    submit: bool = False,
) -> Profile:
    """Create the profile `minimal`.

    Args:
        submit: whether only a call of `submit` ends the session.
    """
    tools = with_custom(minimal_tools(web, submit=submit), custom)
    return Profile(
        name="minimal",
        tools=tools,
        base_prompt=base_prompt("minimal", tools, dangerous=dangerous),
        documents=(UNIVERSAL_DOCUMENT,),
        documents_from_root=True,
        supports_parallel_tool_calls=False,
    )
