"""The profile for Google's models: files are read in bulk, and changed by counted replacements of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT, Profile, base_prompt
from orchestrator.engine.tools.edit import edit_string
from orchestrator.engine.tools.files import overwrite_file, read_many_files, read_text_or_image
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import glob, grep, list_dir
from orchestrator.engine.tools.shell import shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.web.base import WebAccess


def gemini_tools(web: tuple[Tool, ...] = ()) -> tuple[Tool, ...]:
    """Return the tools of section 3.6 of the coding agent loop specification, except those for subagents."""
    return (
        read_text_or_image(),
        read_many_files(),
        overwrite_file(),
        edit_string(counted=True),
        shell(),
        grep("core/grep"),
        glob("core/glob"),
        list_dir("core/list_dir", needs_path=True),
        *web,
    )


def gemini_web_tools(access: WebAccess) -> tuple[Tool, ...]:
    """Return `web_search`, if a search engine is available, and `web_fetch`, as Google's models know them."""
    from orchestrator.engine.tools.web import PageReader, searches, web_fetch

    return *searches(access), web_fetch(PageReader(access))


def gemini(
    *,
    web: tuple[Tool, ...] = (),
    custom: tuple[Tool, ...] = (),
    dangerous: bool = True,
    safety_settings: Sequence[JsonObject] | None = None,
    grounding: bool = False,
) -> Profile:
    """Create the profile `gemini`. Its commands have the session's time-out, 10 s by default.

    Args:
        safety_settings: the vendor's list of categories and thresholds; None uses its defaults.
        grounding: whether the model may search the web by itself.
    """
    options: dict[str, Any] = {}
    if safety_settings is not None:
        options["safety_settings"] = list(safety_settings)
    if grounding:
        options["grounding"] = True
    tools = with_custom(gemini_tools(web), custom)
    return Profile(
        name="gemini",
        tools=tools,
        base_prompt=base_prompt("gemini", tools, dangerous=dangerous),
        documents=(UNIVERSAL_DOCUMENT, "GEMINI.md"),
        subagents=True,
        provider_options={"gemini": options} if options else {},
    )
