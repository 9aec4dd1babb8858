"""The tool `use_skill`, which gives the model a skill's text and the files of the skill's folder."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.core.fence import fenced
from orchestrator.engine.tools.base import TEXT, Failed, Ok, Tool, ToolContext, ToolOutcome, define

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.engine.skills import Skill, Skills

_SHOWN_CHARS = 100


def use_skill(skills: Skills, most_bytes: int) -> Tool:
    """Create the tool `use_skill(name, file?)`; its description lists the skills.

    Args:
        most_bytes: limit of a skill's text that is shown.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        skill, file = skills.get(arguments["name"]), arguments.get("file")
        if skill is None:
            return Failed(
                f"There is no skill {arguments['name'][:_SHOWN_CHARS]!r}. There are: {skills.names}."
            )
        if file:
            return await asyncio.to_thread(_skill_file, skill, file)
        if skill in skills.chosen or skill.name in context.skills:
            return Ok(f"You have the skill {skill.name} already: it is above.")
        words = context.skills[skill.name] = skill.words(most_bytes)
        return Ok(words)

    definition = define("use_skill", {"name": TEXT, "file": TEXT}, ("name",))
    described = replace(definition, description=f"{definition.description}\n\n{skills.listing()}".strip())
    return Tool(described, execute)


def _skill_file(skill: Skill, file: str) -> ToolOutcome:
    """Return a file in a skill's folder. Only listed files exist for the model; no path is looked up."""
    name = file.strip().removeprefix("./")
    text = skill.open(name) if name in skill.files else None
    if text is None:
        return Failed(
            f"The skill {skill.name} has no text file {file[:_SHOWN_CHARS]!r}. There are: {', '.join(skill.files) or 'none'}."
        )
    return Ok(fenced(text))
