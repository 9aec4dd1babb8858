"""Selects the skills of a session from the settings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.app.config.settings import users_skills
from orchestrator.bot.cycle.briefing import SkillOptions, skills_of_tree
from orchestrator.core.errors import ConfigurationError, WorkspaceError
from orchestrator.engine.skills import FolderSkills, Skills, find_skills

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.bot.git.clone import Clone
    from orchestrator.engine.skills import SkillFiles


def skill_options(settings: Settings) -> SkillOptions | None:
    """Return the options for skills; None if skills are disabled.

    Raises:
        ConfigurationError: a skill is chosen although all are disabled.
    """
    if settings.disable_skills:
        if settings.skill:
            raise ConfigurationError(
                "--skill names a skill and --disable-skills offers none: leave out one of them"
            )
        return None
    users = FolderSkills(users_skills())
    return SkillOptions((users,), settings.skill, settings.skill_bytes)


def skills_at(
    settings: Settings, place: Path | Clone, clean: Callable[[str, str], str] = lambda _what, text: text
) -> Skills:
    """Read the skills of a conversation: the user's, and those on the repository's default branch.

    Args:
        place: folder of the conversation, in a repository or not; or a clone.
        clean: sanitizes a text for the model, given its description and the text.

    Raises:
        ConfigurationError: a chosen skill does not exist, or all are disabled.
    """
    options = skill_options(settings)
    if options is None:
        return Skills()
    remarks: tuple[str, ...] = ()
    theirs: Sequence[SkillFiles] = ()
    try:
        theirs = _of_repository(place, settings.base)
    except WorkspaceError as error:
        remarks = (f"the repository's skills cannot be read: {error}",)
    found = find_skills((*options.user, *theirs), clean)
    chosen = found.choosing(options.chosen)
    return replace(chosen, most_bytes=options.most_bytes, notes=(*remarks, *found.notes))


def _of_repository(place: Path | Clone, base: str | None) -> Sequence[SkillFiles]:
    """Return the skill folders on the default branch.

    There are none outside of a repository, or if a branch other than the default one was cloned.
    """
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.git.local import LocalRepository, locate

    if isinstance(place, Clone):
        return skills_of_tree(place.trees, place.base_commit) if base is None else ()
    top = locate(place).top
    if not (top / ".git").exists():
        return ()
    repository = LocalRepository(top)
    commit = repository.reviewed_commit()
    return skills_of_tree(repository.trees(), commit) if commit else ()
