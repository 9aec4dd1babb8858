"""The profile of the teaching agent specification: it reads, changes nothing, and states its hypothesis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.profiles.base import Profile, base_prompt
from orchestrator.engine.tools.files import read_file
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import grep, list_dir
from orchestrator.engine.tools.shell import run_pipeline

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool

SKILL_BYTES = 4_096
"""Section "Skills" of the specification."""


def explorer_tools(web: tuple[Tool, ...] = ()) -> tuple[Tool, ...]:
    """Return the tools of section "Tool System" of the specification."""
    listing = list_dir("explorer/list_files", name="list_files")
    return (read_file(), listing, grep(), run_pipeline(), *web)


def explorer(*, web: tuple[Tool, ...] = (), custom: tuple[Tool, ...] = (), dangerous: bool = True) -> Profile:
    """Create the profile `explorer`."""
    tools = with_custom(explorer_tools(web), custom)
    return Profile(
        name="explorer",
        tools=tools,
        base_prompt=base_prompt("explorer", tools, dangerous=dangerous),
        skill_bytes=SKILL_BYTES,
    )
