"""The skills of a cycle: the user's, and those on the repository's default branch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import WorkspaceError
from orchestrator.core.events import Warned
from orchestrator.engine.skills import REPOSITORY_FOLDERS, SkillOrigin, Skills, find_skills

if TYPE_CHECKING:
    from orchestrator.bot.cycle.parts import Attempt
    from orchestrator.bot.git.objects import Trees
    from orchestrator.engine.skills import SkillFiles

_FILE = "100"
_LINK = "120000"


@dataclass(frozen=True, slots=True)
class SkillOptions:
    """Options for the skills of a cycle.

    Attributes:
        user: the user's own skills.
        chosen: names of the skills that the model receives at the start.
        most_bytes: see `Skills`.
    """

    user: tuple[SkillFiles, ...] = ()
    chosen: tuple[str, ...] = ()
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class TreeSkills:
    """The skills in a folder of a git tree. Links and submodules are not followed."""

    trees: Trees
    tree: str
    place: str
    origin: SkillOrigin = SkillOrigin.REPOSITORY

    def paths(self) -> tuple[list[str], list[str]]:
        """Return the paths of skills: see `SkillFiles`."""
        below = f"{self.place}/"
        try:
            entries = self.trees.entries(self.tree)
        except WorkspaceError as error:
            return [], [str(error)]
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


def skills_of_tree(trees: Trees, commit: str) -> tuple[TreeSkills, ...]:
    """Return the folders of skills in a commit.

    Raises:
        WorkspaceError: git failed.
    """
    trees.entries(commit)  # read now, so that it fails here if it does
    return tuple(TreeSkills(trees, commit, folder) for folder in REPOSITORY_FOLDERS)


async def skills_of_cycle(attempt: Attempt, options: SkillOptions, *, is_default: bool) -> Skills:
    """Read the skills of a cycle, and emit which ones were left out.

    Args:
        is_default: whether the clone is of the default branch: other branches are unreviewed.

    Raises:
        ConfigurationError: a chosen skill does not exist.
        WorkspaceError: git failed.
    """

    def find() -> Skills:
        clone = attempt.clone
        theirs = skills_of_tree(clone.trees, clone.base_commit) if is_default else ()
        return find_skills((*options.user, *theirs), attempt.sanitizer.text)

    skills = await asyncio.to_thread(find)
    for note in skills.notes:
        attempt.emit(Warned(attempt.sanitizer.words(note)))
    return replace(skills.choosing(options.chosen), most_bytes=options.most_bytes)
