"""Which skills a session has, from the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.config.settings import user_folder
from orchestrator.bot.cycle.skills import SkillOptions
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.skills import FolderSkills

if TYPE_CHECKING:
    from orchestrator.app.config.settings import Settings

FOLDER = "skills"
"""In the user's configuration folder."""


def skill_options(settings: Settings) -> SkillOptions | None:
    """Return the skills that these settings allow; None without any.

    Raises:
        ConfigurationError: one is chosen, and all are disabled.
    """
    if settings.disable_skills:
        if settings.skill:
            raise ConfigurationError(
                "--skill names a skill and --disable-skills offers none: leave out one of them"
            )
        return None
    users = FolderSkills(user_folder() / FOLDER)
    return SkillOptions((users,), settings.skill, settings.skill_bytes)
