"""Skills: folders with a `SKILL.md` that explains how to do a kind of work, and other files.

The format is that of https://agentskills.io/specification. Published skills do not always keep to it, so
everything is read that can be understood. A skill is text: it never grants a permission, whatever its front
matter says.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.prompts import cut, fenced, one_line, render
from orchestrator.engine.tools.base import TEXT, Failed, Ok, Tool, ToolContext, ToolOutcome, define
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.engine.profiles.base import Profile

REPOSITORY_FOLDERS = (".agents/skills", ".claude/skills")
"""The folders of a repository with skills. Of two with the same name, the one in the first folder is used."""

MOST_SKILLS = 100
"""The limit of skills from one place."""
MOST_FILES = 2_000
"""The limit of files that are examined in one place."""
MOST_BYTES = 256_000
"""The size limit of one file of a skill."""
MOST_LISTED_CHARS = 8_000
"""The limit of all names and descriptions together in the list for the model."""
DESCRIPTION_CHARS = 1_024
_SKILL_BYTES = 20_480
"""Size of a skill: about the 5,000 tokens that the specification of skills recommends."""
_EXPLORER_SKILL_BYTES = 4_096
"""Section "Skills" of the teaching agent specification."""
MOST_NAMED_FILES = 50

_LEAST_DESCRIPTION_CHARS = 40
_MAIN = ("SKILL.md", "skill.md")
_NAME = re.compile(r"[A-Za-z0-9](?:[._-]?[A-Za-z0-9])*[_-]?")
_NAME_CHARS = 64
_SHOWN_CHARS = 80
_FRONT = re.compile(r"---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(
    r"^(name|description|disable-model-invocation)[ \t]*:[ \t]*(?:[|>][-+0-9]*(?=[ \t]*$))?(.*(?:\n(?:[ \t]+.*|(?=\n)))*)$",
    re.MULTILINE,
)


class SkillOrigin(StrEnum):
    """The owner of a skill."""

    USER = "user"
    REPOSITORY = "repository"


class SkillFiles(Protocol):
    """A place with skills. Every path is relative to it, with `/`, and names a regular file."""

    @property
    def origin(self) -> SkillOrigin:
        """The owner of the skills."""

    @property
    def place(self) -> str:
        """The name of the place in messages."""

    def paths(self) -> tuple[Sequence[str], Sequence[str]]:
        """Return all files, and remarks on what is left out or cannot be read."""

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """Return a file's content; None if it cannot be read or has more than `most_bytes`."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill.

    Attributes:
        body: the text of its `SKILL.md` below the front matter.
        place: path of that file.
        files: the skill's other files, relative to its folder.
        is_listed: whether the model is told of it; otherwise a person has to name it.
        open: returns the text of one of `files`; None if it is no text, or too long.
    """

    name: str
    description: str
    body: str
    place: str
    origin: SkillOrigin
    files: tuple[str, ...] = ()
    is_listed: bool = True
    open: Callable[[str], str | None] = field(default=lambda _file: None, compare=False, repr=False)

    def text(self, most_bytes: int) -> tuple[str, str]:
        """Return at most `most_bytes` of the text in UTF-8, and a notice if it is cut, else an empty text."""
        content = self.body.encode("utf-8", "replace")
        if len(content) <= most_bytes:
            return self.body, ""
        notice = f"the skill {self.name} is cut: {most_bytes:,} of its {len(content):,} bytes are shown"
        return content[:most_bytes].decode(errors="ignore"), f"{notice} (skill_bytes is the limit)"

    def words(self, most_bytes: int, reader: str = "") -> str:
        """Return the text that a model gets when the skill is used.

        Args:
            reader: the tool that shows the files beside it; empty if the model was shown none.
        """
        text, notice = self.text(most_bytes)
        return render(
            "plugins/skills/skill",
            name=self.name,
            by_user=self.origin is SkillOrigin.USER,
            block=fenced(text),
            notice=notice,
            folder=posixpath.dirname(self.place),
            files=[one_line(file, limit=_SHOWN_CHARS * 2) for file in self.files[:MOST_NAMED_FILES]],
            more=max(len(self.files) - MOST_NAMED_FILES, 0),
            reader=reader,
        )


@dataclass(frozen=True, slots=True)
class Skills:
    """The skills of a session.

    Attributes:
        all: the skills, each name once.
        chosen: skills that a person named, which the model gets from the start.
        most_bytes: limit of a skill's text for the model; None uses the profile's limit.
        notes: remarks for people on what was left out, one line each.
    """

    all: tuple[Skill, ...] = ()
    chosen: tuple[Skill, ...] = ()
    most_bytes: int | None = None
    notes: tuple[str, ...] = ()

    def get(self, name: str) -> Skill | None:
        """Return the skill of this name, or None."""
        return next((skill for skill in self.all if skill.name == name.strip()), None)

    @property
    def names(self) -> str:
        """All names, for a message."""
        return ", ".join(skill.name for skill in self.all) or "none"

    def choosing(self, names: Iterable[str]) -> Skills:
        """Return the same skills with these chosen, each once.

        Raises:
            ConfigurationError: there is no skill of such a name.
        """
        chosen: dict[str, Skill] = {}
        for name in names:
            skill = self.get(name)
            if skill is None:
                raise ConfigurationError(
                    f"there is no skill {name[:_SHOWN_CHARS]!r}; there are: {self.names}. They are looked for in "
                    f"skills/ of your configuration folder and in {' and '.join(REPOSITORY_FOLDERS)} of the repository"
                )
            chosen[skill.name] = skill
        return Skills(self.all, tuple(chosen.values()), self.most_bytes, self.notes)

    def limit(self, usual: int) -> int:
        """Return the limit of a skill's text in bytes: `most_bytes`, or the usual limit if it is None."""
        return usual if self.most_bytes is None else self.most_bytes

    def cut_notices(self, usual: int) -> list[str]:
        """Return a notice for each chosen skill that is cut."""
        return [notice for skill in self.chosen if (notice := skill.text(self.limit(usual))[1])]

    def listing(self) -> str:
        """Return the names and descriptions for the model; empty if there are none."""
        listed = [skill for skill in self.all if skill.is_listed]
        if not listed:
            return ""
        room = MOST_LISTED_CHARS // len(listed)
        own, theirs = (
            [
                f"- {skill.name}: {cut(skill.description, max(room - len(skill.name), _LEAST_DESCRIPTION_CHARS))}"
                for skill in listed
                if (skill.origin is SkillOrigin.USER) is is_own
            ]
            for is_own in (True, False)
        )
        return render(
            "plugins/skills/listed",
            own=fenced("\n".join(own)) if own else "",
            theirs=fenced("\n".join(theirs)) if theirs else "",
        )


def find_skills(
    places: Iterable[SkillFiles], clean: Callable[[str, str], str] = lambda _what, text: text
) -> Skills:
    """Read the skills of these places. Of two with the same name, the first is used. Never raises.

    Args:
        clean: returns a text as a model may see it; takes the text's name and the text.
    """
    found: dict[str, Skill] = {}
    notes: list[str] = []
    for place in places:
        paths, remarks = place.paths()
        notes += remarks
        skills = _skills_in(place, paths, notes, clean)
        for number, skill in enumerate(skills):
            if number >= MOST_SKILLS:
                notes.append(f"{place.place}: more than {MOST_SKILLS} skills, the rest is left out")
                break
            if (known := found.get(skill.name)) is not None:
                notes.append(f"{skill.place} is left out: {known.place} has the name {skill.name}, too")
            else:
                found[skill.name] = skill
    return Skills(tuple(found.values()), notes=tuple(notes))


def _skills_in(
    place: SkillFiles, paths: Sequence[str], notes: list[str], clean: Callable[[str, str], str]
) -> Iterator[Skill]:
    folders: dict[str, list[str]] = {}
    for path in sorted(paths)[:MOST_FILES]:
        folder, slash, rest = path.partition("/")
        if slash and ".." not in PurePosixPath(path).parts:
            folders.setdefault(folder, []).append(rest)
    if len(paths) > MOST_FILES:
        notes.append(f"{place.place}: more than {MOST_FILES:,} files, the rest is left out")
    for folder, files in sorted(folders.items()):
        main = next((name for name in _MAIN if name in files), None)
        if main is None:
            continue
        skill_or_reason = _skill(place, folder, main, [file for file in files if file != main], clean)
        if isinstance(skill_or_reason, Skill):
            yield skill_or_reason
        else:
            where = one_line(f"{place.place}/{folder}/{main}", limit=_SHOWN_CHARS * 2)
            notes.append(f"{where} is left out: {skill_or_reason}")


def _skill(
    place: SkillFiles, folder: str, main: str, files: Sequence[str], clean: Callable[[str, str], str]
) -> Skill | str:
    """Return the skill of a folder, or why it is none."""
    data = place.read(f"{folder}/{main}", MOST_BYTES)
    if data is None:
        return f"it cannot be read, or has more than {MOST_BYTES:,} bytes"
    if b"\0" in data:
        return "it is not a text file"
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    front, body = _split_front_matter(text)
    name = next((name for name in (front.get("name"), folder) if name and _is_name(name)), None)
    if name is None:
        return "its name is not made of letters, digits, hyphens, dots and underscores"
    body = clean(f"the skill {name}", body.strip())
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), "")
    description = " ".join((front.get("description") or first).split())
    if not description or not body:
        return "it has no text"

    def read(file: str) -> str | None:
        content = place.read(f"{folder}/{file}", MOST_BYTES)
        if content is None or b"\0" in content:
            return None
        return clean(f"{file} of the skill {name}", content.decode("utf-8", "replace"))

    return Skill(
        name,
        one_line(clean(f"the skill {name}", description), limit=DESCRIPTION_CHARS, keep="`"),
        body,
        one_line(f"{place.place}/{folder}/{main}", limit=_SHOWN_CHARS * 2),
        place.origin,
        tuple(files),
        front.get("disable-model-invocation", "").lower() != "true",
        read,
    )


def _is_name(text: str) -> bool:
    return len(text) <= _NAME_CHARS and _NAME.fullmatch(text) is not None


def _split_front_matter(text: str) -> tuple[dict[str, str], str]:
    """Return the relevant fields of the front matter, and the text below it."""
    match = _FRONT.match(text)
    if match is None:
        return {}, text
    import yaml

    try:
        # Every value is read as text, also `yes` and dates, as in the reference library.
        values: Any = yaml.load(match[1], Loader=yaml.BaseLoader)  # noqa: S506  it creates only texts, lists and dicts
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        values = None
    if not isinstance(values, dict):  # often because of a colon in unquoted text, or a tab as indentation
        values = {
            key: " ".join(value.split()).strip("\"'") for key, value in reversed(_FIELD.findall(match[1]))
        }
    # Only texts are used: aliases of lists may expand to more than fits into memory.
    wanted = ("name", "description", "disable-model-invocation")
    front = {key: values[key].strip() for key in wanted if isinstance(values.get(key), str)}
    return front, text[match.end() :]


@dataclass(frozen=True, slots=True)
class FolderSkills:
    """The skills in a folder of the user. Links in it are not followed."""

    root: Path
    origin: ClassVar = SkillOrigin.USER

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.root)

    def paths(self) -> tuple[list[str], list[str]]:
        """See `SkillFiles`."""
        found: list[str] = []
        remarks: list[str] = []

        def report(path: str, error: OSError) -> None:
            remarks.append(f"{self._shown(path)} cannot be read: {error.strerror}")

        try:
            with ConfinedFolder(self.root) as folder:
                for path, entry in folder.walk(
                    enters=lambda _path, entry: not entry.name.startswith("."), on_error=report
                ):
                    if entry.is_link:
                        remarks.append(f"{self._shown(path)} is a link, which is not followed")
                    elif not entry.is_dir:
                        found.append(path)
                    if len(found) > MOST_FILES:
                        break
        except FileNotFoundError:
            pass
        except OSError as error:
            remarks.append(f"{self.root} cannot be read: {error.strerror}")
        return found, remarks

    def _shown(self, path: str) -> str:
        return one_line(f"{self.root}/{path}", limit=_SHOWN_CHARS * 2)

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `SkillFiles`."""
        try:
            with ConfinedFolder(self.root) as folder:
                return folder.read(path, most_bytes)
        except OSError:
            return None


def usual_bytes(profile: str) -> int:
    """Return the usual limit of a skill's text for the models of a profile."""
    return _EXPLORER_SKILL_BYTES if profile == "explorer" else _SKILL_BYTES


def with_skills(profile: Profile, skills: Skills) -> Profile:
    """Return a copy with a tool that reads skills, and with the text of the chosen skills.

    A brief profile gets only the chosen ones.
    """
    most = skills.limit(usual_bytes(profile.name))
    if skills.all and not profile.is_brief:
        reader = use_skill(skills, most)
        profile = replace(profile, tools=ToolRegistry.unchecked([*profile.tools, reader]))

    def chosen(shown: frozenset[str]) -> str:
        name = "use_skill" if "use_skill" in shown else ""
        return render("plugins/skills/chosen", skills=[skill.words(most, name) for skill in skills.chosen])

    return profile.with_words(chosen) if skills.chosen else profile


def use_skill(skills: Skills, most_bytes: int) -> Tool:
    """Create the tool `use_skill(name, file?)`, which shows `most_bytes` of a skill; its description lists them."""

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
        words = context.skills[skill.name] = skill.words(most_bytes, definition.name)
        return Ok(words)

    definition = define(
        "use_skill", {"name": TEXT, "file": TEXT}, ("name",), prompt="plugins/skills/use_skill"
    )
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
