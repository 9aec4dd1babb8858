"""Skills in the sessions of the program: what a profile gets, what a sandbox reads, and the command of `chat`.

A chosen skill that does not exist or is disabled raises a `ConfigurationError`.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, cast

from orchestrator.app.config import user_folder
from orchestrator.app.plugins import SlashCommand
from orchestrator.app.words import short_line
from orchestrator.core.errors import ConfigurationError, WorkspaceError
from orchestrator.core.events import Warned
from orchestrator.core.prompts import render
from orchestrator.plugins.skills.skills import (
    REPOSITORY_FOLDERS,
    FolderSkills,
    SkillOrigin,
    Skills,
    find_skills,
    usual_bytes,
    with_skills,
)

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.bot.cycle.parts import CompleteProfile, ProfileSources
    from orchestrator.bot.git.objects import Trees
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.plugins.chat.slash import Chat
    from orchestrator.plugins.skills.options import SkillOptions

_FILE = "100"
_LINK = "120000"
_SHOWN_CHARS = 60


def _options(settings: Settings) -> SkillOptions:
    """Return the settings as those of this plug-in."""
    return cast("SkillOptions", settings)


def users_folder() -> Path:
    """Return the folder of the user's own skills."""
    return user_folder(os.environ) / "skills"


def readable_folders(settings: Settings) -> tuple[str, ...]:
    """Return what commands may read: the user's skills, which may have scripts beside them."""
    folder = users_folder()
    return (str(folder),) if not _options(settings).disable_skills and folder.is_dir() else ()


def complete_profile(settings: Settings) -> CompleteProfile | None:
    """Return what adds skills to the profile of a session; None if skills are disabled."""
    if _options(settings).disable_skills:
        if _options(settings).skill:
            raise ConfigurationError(
                "--skill names a skill and --disable-skills offers none: leave out one of them"
            )
        return None

    def complete(profile: Profile, sources: ProfileSources) -> Profile:
        if sources.whole_file:
            if _options(settings).skill:
                sources.warn("the contract whole-file has no room for skills: --skill has no effect")
            return profile
        found = skills_of(settings, sources)
        for note in (*found.notes, *found.cut_notices(found.limit(usual_bytes(profile.name)))):
            sources.warn(note)
        return with_skills(profile, found)

    return complete


def skills_of(settings: Settings, sources: ProfileSources) -> Skills:
    """Read the skills of a session: the user's, and those of the reviewed files of a repository."""
    if _options(settings).disable_skills:
        return Skills()
    theirs = [
        TreeSkills(sources.trees, sources.commit, place) for place in REPOSITORY_FOLDERS if sources.trees
    ]
    found = find_skills((FolderSkills(users_folder()), *theirs), sources.clean)
    return replace(found.choosing(_options(settings).skill), most_bytes=_options(settings).skill_bytes)


@dataclass(frozen=True, slots=True)
class TreeSkills:
    """The skills in a folder of a git tree. Links and submodules are not followed."""

    trees: Trees
    tree: str
    place: str
    origin: ClassVar = SkillOrigin.REPOSITORY

    def paths(self) -> tuple[list[str], list[str]]:
        """Return the paths below the folder, and remarks: see `SkillFiles`."""
        below = f"{self.place}/"
        try:
            entries = self.trees.entries(self.tree)
        except WorkspaceError as error:
            return [], [f"the skills in {self.place} cannot be read: {error}"]
        inside = {path.removeprefix(below): mode for path, mode in entries.items() if path.startswith(below)}
        links = [path for path, mode in inside.items() if mode == _LINK]
        remarks = [f"{below}{path} is a link, which is not followed" for path in links]
        return [path for path, mode in inside.items() if mode.startswith(_FILE)], remarks

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Read a file: see `SkillFiles`."""
        try:
            text = self.trees.text(self.tree, f"{self.place}/{path}", most_bytes=most_bytes)
        except WorkspaceError:
            return None
        return None if text is None else text.encode()


async def _skill(chat: Chat, name: str) -> None:
    """Give the model the skill of this name, or list all of them."""
    program = await chat.program()
    conversation = await program.opened() if name else program.conversation
    warnings: list[str] = []
    sources = await asyncio.to_thread(program.profile_sources, warnings.append)
    skills = await asyncio.to_thread(skills_of, program.settings, sources)
    loaded = {*_options(program.settings).skill, *(conversation.skills if conversation else ())}
    if not name:
        for note in (
            () if conversation else (*warnings, *skills.notes)
        ):  # those of a conversation were told at its start
            program.bus(Warned(note))
        rows = [
            (f"{skill.name} (loaded)" if skill.name in loaded else skill.name, short_line(skill.description))
            for skill in skills.all
        ]
        chat.view.rows(rows) if rows else chat.view.say(
            "there is no skill; docs/assistant.md says where skills are stored"
        )
        return
    skill = skills.get(name)
    if skill is None or conversation is None:
        raise ConfigurationError(f"there is no skill {name[:_SHOWN_CHARS]!r}; there are: {skills.names}")
    if skill.name in loaded:
        raise ConfigurationError(f"the model has the skill {skill.name} already")
    most = skills.limit(usual_bytes(conversation.parts.profile.name))
    words = conversation.skills[skill.name] = skill.words(most)
    conversation.tell(render("plugins/skills/chosen", skills=[words]))
    chat.view.say(f"the model gets the skill {skill.name} with your next message")
    if notice := skill.text(most)[1]:
        chat.view.say(notice)


SLASH_COMMANDS = (SlashCommand("/skill", "[NAME]", "give the model a skill, or list them", _skill),)
