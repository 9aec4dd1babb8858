"""The profile for Anthropic's models: files are changed by replacing text that occurs in them once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT, Profile, base_prompt
from orchestrator.engine.tools.edit import edit_string
from orchestrator.engine.tools.files import overwrite_file, read_text_or_image
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import glob, grep
from orchestrator.engine.tools.shell import shell

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.tools.base import Tool

COMMAND_TIMEOUT_MS = 120_000
"""Default time-out of a command: section 3.5 of the specification; the session's maximum still applies."""


def anthropic_tools(web: tuple[Tool, ...] = ()) -> tuple[Tool, ...]:
    """Return the tools of section 3.5 of the coding agent loop specification, except those for subagents."""
    look = grep("core/grep", output_modes=True), glob("core/glob")
    return (read_text_or_image(), overwrite_file(), edit_string(), shell(), *look, *web)


def anthropic(
    *,
    web: tuple[Tool, ...] = (),
    custom: tuple[Tool, ...] = (),
    dangerous: bool = True,
    beta_headers: Sequence[str] | str = (),
) -> Profile:
    """Create the profile `anthropic`. Its commands have a time-out of 120 s unless the model sets one.

    Args:
        beta_headers: names of beta features, sent with each request; a single name may be a plain string.
    """
    betas = [beta_headers] if isinstance(beta_headers, str) else list(beta_headers)
    options: dict[str, JsonObject] = {"anthropic": {"beta_headers": betas}} if betas else {}
    tools = with_custom(anthropic_tools(web), custom)
    return Profile(
        name="anthropic",
        tools=tools,
        base_prompt=base_prompt("anthropic", tools, dangerous=dangerous),
        documents=(UNIVERSAL_DOCUMENT, "CLAUDE.md"),
        command_timeout_ms=COMMAND_TIMEOUT_MS,
        subagents=True,
        provider_options=options,
    )
