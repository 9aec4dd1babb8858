"""The profile for OpenAI's models: files are changed by patches in the v4a format."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT, Profile, base_prompt
from orchestrator.engine.tools.files import overwrite_file, read_text_or_image
from orchestrator.engine.tools.patches.apply import apply_patch
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import glob, grep
from orchestrator.engine.tools.shell import shell

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool


def openai_tools(web: tuple[Tool, ...] = ()) -> tuple[Tool, ...]:
    """Return the tools of section 3.4 of the coding agent loop specification, except those for subagents."""
    look = grep("core/grep"), glob("core/glob")
    return (read_text_or_image(), apply_patch(), overwrite_file(), shell(), *look, *web)


def openai(
    *,
    web: tuple[Tool, ...] = (),
    custom: tuple[Tool, ...] = (),
    dangerous: bool = True,
) -> Profile:
    """Create the profile `openai`. Its commands have the session's time-out, 10 s by default."""
    tools = with_custom(openai_tools(web), custom)
    return Profile(
        name="openai",
        tools=tools,
        base_prompt=base_prompt("openai", tools, dangerous=dangerous),
        documents=(UNIVERSAL_DOCUMENT, ".codex/instructions.md"),
        subagents=True,
    )
