"""The profiles that have tools of their own, and how a profile is created by name."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.prompts import render
from orchestrator.engine import tools
from orchestrator.engine.profiles.base import UNIVERSAL_DOCUMENT, Profile
from orchestrator.engine.tools.control import RUN_TESTS
from orchestrator.engine.tools.control import submit as submit_tool
from orchestrator.engine.tools.edit import edit_file, edit_string
from orchestrator.engine.tools.files import (
    overwrite_file,
    read_file,
    read_many_files,
    read_text_or_image,
    write_file,
)
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.search import glob, grep, grep_files, list_dir, list_dir_in_pages
from orchestrator.engine.tools.shell import (
    run_reading_command,
    run_shell_command,
    shell,
    shell_command,
    shell_execute,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.core.messages import JsonObject, ToolDefinition
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.tools.registry import ToolRegistry

    Tools = tuple[Tool, ...]


ANTHROPIC_TIMEOUT_MS = 120_000
"""Default time-out of a command: section 3.5 of the coding agent loop specification."""


SMALL_REPLY_TOKENS = 2_048
"""Enough for a file of 150 lines and a pull request. Small models may repeat themselves without end."""

_HIDDEN_FROM_SMALL = frozenset({"ask_question", RUN_TESTS})
"""Nobody could answer a question, and the host runs the tests anyway."""


def planner(*, custom: Tools = (), name: str = "planner") -> Profile:
    """Create the profile of the pull-request bot, or one with its tools and another prompt.

    Args:
        custom: tools of the host, after the others; of two with one name the host's is used.
        name: the name of the profile and of its prompt.
    """
    own = (read_file(), list_dir(), grep(), glob(), edit_file(), write_file(), run_shell_command())
    return planner_over(with_custom(own, custom), name)


def planner_over(registry: ToolRegistry, name: str = "planner") -> Profile:
    """Create the profile with these tools."""
    return Profile(name, registry, partial(_prompt, name), has_role=True)


def _prompt(name: str, shown: Sequence[ToolDefinition]) -> str:
    """Return the prompt of a profile, which names the tools shown and no other."""
    return render(f"profiles/{name}", tools=[tool.name for tool in shown], definitions=shown)


def small(*, custom: Tools = ()) -> Profile:
    """Create the profile for models with few parameters: whole files, few tools, short prompts.

    A model of a few billion parameters repairs a short program if it may write the whole file, and fails if
    it has to quote the lines that it changes, so the prompt asks for whole files. Its most likely reply is
    its best one. After a failed call the reply is sampled, so that it differs.

    Args:
        custom: tools of the host, after the others, except those for questions and for running tests.
    """
    whole, part = write_file("small/write_file", keeps_tail=True), edit_file("small/edit_file")
    shown = tuple(tool for tool in custom if tool.name not in _HIDDEN_FROM_SMALL)
    return Profile(
        "small",
        with_custom((whole, read_file(), part, run_shell_command()), shown),
        partial(_prompt, "small"),
        is_brief=True,
        max_output_tokens=SMALL_REPLY_TOKENS,
        temperature=0.0,
        has_role=True,
    )


def anthropic(
    *,
    custom: Tools = (),
    beta_headers: Sequence[str] | str = (),
) -> Profile:
    """Create the profile for Anthropic's models: edits replace text that occurs in a file once.

    Args:
        beta_headers: names of beta features, sent with each request; a single name may be a plain string.
    """
    betas = [beta_headers] if isinstance(beta_headers, str) else list(beta_headers)
    search = grep("core/grep", output_modes=True), glob("core/glob")
    own = (read_text_or_image(), overwrite_file(), edit_string(), shell(), *search)
    return replace(
        _vendor_profile("anthropic", own, custom, "CLAUDE.md"),
        command_timeout_ms=ANTHROPIC_TIMEOUT_MS,
        provider_options={"anthropic": {"beta_headers": betas}} if betas else {},
    )


def openai(*, custom: Tools = ()) -> Profile:
    """Create the profile for OpenAI's models: files are changed by patches in the v4a format."""
    from orchestrator.engine.tools.patches import apply_patch

    search = grep("core/grep"), glob("core/glob")
    own = (read_text_or_image(), apply_patch(), overwrite_file(), shell(), *search)
    return _vendor_profile("openai", own, custom, ".codex/instructions.md")


def gemini(
    *,
    custom: Tools = (),
    safety_settings: Sequence[JsonObject] | None = None,
    grounding: bool = False,
) -> Profile:
    """Create the profile for Google's models: files are read in bulk, and edits count their replacements.

    Args:
        safety_settings: the vendor's list of categories and thresholds; None uses its defaults.
        grounding: whether the model may search the web by itself.
    """
    options: dict[str, Any] = {}
    if safety_settings is not None:
        options["safety_settings"] = list(safety_settings)
    if grounding:
        options["grounding"] = True
    own = (
        read_text_or_image(),
        read_many_files(),
        overwrite_file(),
        edit_string(counted=True),
        shell(),
        grep("core/grep"),
        glob("core/glob"),
        list_dir("core/list_dir", needs_path=True),
    )
    profile = _vendor_profile("gemini", own, custom, "GEMINI.md")
    return replace(profile, provider_options={"gemini": options} if options else {})


def _vendor_profile(name: str, own: Tools, custom: Tools, document: str) -> Profile:
    """Create a profile of chapter 3 of the coding agent loop specification, with subagents."""
    profile = _profile(name, own, custom)
    return replace(profile, documents=(UNIVERSAL_DOCUMENT, document), subagents=True)


def _profile(name: str, own: Tools, custom: Tools) -> Profile:
    return Profile(name, with_custom(own, custom), partial(_prompt, name))


def minimal(*, custom: Tools = (), submit: bool = False) -> Profile:
    """Create the profile of the one-step agent specification: few tools, at most one call a step.

    Args:
        submit: whether only a call of `submit` ends the session.
    """
    from orchestrator.engine.tools.patches import apply_unified_patch

    own = (shell_command(), read_text_or_image(), list_dir_in_pages(), grep_files(), apply_unified_patch())
    ends = (submit_tool(),) if submit else ()
    profile = _profile("minimal", (*own, *ends), custom)
    return replace(profile, documents_from_root=True, supports_parallel_tool_calls=False)


def explorer(*, custom: Tools = ()) -> Profile:
    """Create the profile of the teaching agent specification, which only reads and names a hypothesis."""
    listing = list_dir("explorer/list_files", name="list_files")
    own = (read_file(), listing, grep(), run_reading_command())
    return replace(_profile("explorer", own, custom), only_reads=True)


def assistant(*, custom: Tools = ()) -> Profile:
    """Create the profile of the assistant specification, with the tools of its appendix A.

    The session adds the tools for subagents, `make_profile` those for the to-do list, and a host with a
    memory those for the memory.
    """
    from orchestrator.engine.tools.file_suite import file_suite
    from orchestrator.engine.tools.pdf import pdf_extract_text

    own = (*file_suite(), shell_execute(), pdf_extract_text())
    return replace(
        _profile("assistant", own, custom),
        documents=(UNIVERSAL_DOCUMENT, "PROMPT.md"),  # section 3.4 of the specification
        subagents=True,
        subagents_in_background=True,
    )


PROFILES: Mapping[str, Callable[..., Profile]] = {
    "small": small,
    "anthropic": anthropic,
    "openai": openai,
    "gemini": gemini,
    "minimal": minimal,
    "explorer": explorer,
    "assistant": assistant,
}
"""The profiles that have other tools than the planner. Each other prompt in `prompts/profiles` has the planner's."""


def make_profile(name: str, *, custom: Tools = ()) -> Profile:
    """Create a profile by name (`profile_names()`), with the tools whose modules name it.

    Args:
        custom: tools of the host, after the others; of two with one name the host's is used.
    """
    custom = (*_added_tools(name), *custom)
    if make := PROFILES.get(name):
        return make(custom=custom)
    return planner(custom=custom, name=name)


def _added_tools(profile: str) -> Tools:
    """Return the tools of all modules in `tools` whose `PROFILES` name this profile, sorted by module.

    Such a module has the name of its tool, and a function of that name that returns the tool, or a tuple of
    several.
    """
    added: list[Tool] = []
    for name in _modules_with_profiles():
        module = import_module(f"{tools.__name__}.{name}")
        if profile in module.PROFILES:
            made = getattr(module, name)()
            added += made if isinstance(made, tuple) else (made,)
    return tuple(added)


@cache
def _modules_with_profiles() -> tuple[str, ...]:
    """Return the modules in `tools` with `PROFILES`, found by their text: importing all would slow each start."""
    paths = sorted(path for folder in tools.__path__ for path in Path(folder).glob("*.py"))
    has_profiles = re.compile(r"^PROFILES\b", re.MULTILINE)
    return tuple(path.stem for path in paths if has_profiles.search(path.read_text("utf-8")))
