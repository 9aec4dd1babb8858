"""The profile of the assistant specification, with its tools and their names, for work in a folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT, Profile, base_prompt
from orchestrator.engine.tools.file_suite import file_suite, pdf_extract_text
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.shell import shell_execute

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.web.base import WebAccess


INSTRUCTIONS = "PROMPT.md"
"""The user's own instructions beside the project (section 3.4 of the specification)."""


def assistant_tools(web: tuple[Tool, ...] = ()) -> tuple[Tool, ...]:
    """Return the tools of appendix A of the specification that need nothing of the host.

    The session adds those for subagents, `make_profile` those for the to-do list, and a host with a memory
    those for the memory.
    """
    return (*file_suite(), shell_execute(), pdf_extract_text(), *web)


def assistant_web_tools(access: WebAccess) -> tuple[Tool, ...]:
    """Return `web_fetch`, and `web_search` if a search engine is available."""
    from orchestrator.engine.tools.web import PageReader, searches, web_fetch

    return web_fetch(PageReader(access)), *searches(access)


def assistant(
    *, web: tuple[Tool, ...] = (), custom: tuple[Tool, ...] = (), dangerous: bool = True
) -> Profile:
    """Create the profile `assistant`."""
    tools = with_custom(assistant_tools(web), custom)
    return Profile(
        name="assistant",
        tools=tools,
        base_prompt=base_prompt("assistant", tools, dangerous=dangerous),
        documents=(UNIVERSAL_DOCUMENT, INSTRUCTIONS),
        subagents=True,
        subagents_in_background=True,
    )
