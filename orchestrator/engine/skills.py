"""Skills: folders with a `SKILL.md` that tells how to do a kind of work, and files beside it.

The form is that of https://agentskills.io/specification. What others published does not always keep to it, so
everything is read that can be understood. A skill is text: it never grants anything, whatever its front matter says.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.fence import fenced, one_line
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

REPOSITORY_FOLDERS = (".agents/skills", ".claude/skills")
"""Where a repository has its skills; of two with one name that of the first folder counts."""

MOST_SKILLS = 100
"""That are taken from one place."""
MOST_FILES = 2_000
"""That are looked at in one place."""
MOST_BYTES = 256_000
"""Of one file of a skill."""
MOST_LISTED_CHARS = 8_000
"""Of all names and descriptions together, as the model is told them."""
DESCRIPTION_CHARS = 1_024
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
    """Who brings a skill."""

    USER = "user"
    REPOSITORY = "repository"


class SkillFiles(Protocol):
    """A place that has skills. Every path is relative to it, with `/`, and names a regular file."""

    @property
    def origin(self) -> SkillOrigin:
        """Whose it is."""

    @property
    def place(self) -> str:
        """What messages call it."""

    def paths(self) -> tuple[Sequence[str], Sequence[str]]:
        """All files, and remarks on what is left out. What cannot be read at all is a remark."""

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """What a file holds; None where that cannot be read, or is more."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill.

    Attributes:
        body: what its `SKILL.md` says below the front matter.
        place: where that file is.
        files: those beside it, relative to its folder.
        is_listed: the model is told of it; else a person has to name it.
        open: gives the text of one of `files`; None where it is none, or too long.
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
        """What it says, at most so many bytes of UTF-8; and a notice where that is not all, else nothing."""
        content = self.body.encode("utf-8", "replace")
        if len(content) <= most_bytes:
            return self.body, ""
        notice = f"the skill {self.name} is cut: {most_bytes:,} of its {len(content):,} bytes are shown"
        return content[:most_bytes].decode(errors="ignore"), f"{notice} (skill_bytes is the limit)"

    def words(self, most_bytes: int) -> str:
        """What a model is given of it when it is used."""
        text, notice = self.text(most_bytes)
        return render(
            "agent/skill",
            name=self.name,
            by_user=self.origin is SkillOrigin.USER,
            block=fenced(text),
            notice=notice,
            folder=posixpath.dirname(self.place),
            files=[one_line(file, limit=_SHOWN_CHARS * 2) for file in self.files[:MOST_NAMED_FILES]],
            more=max(len(self.files) - MOST_NAMED_FILES, 0),
        )


@dataclass(frozen=True, slots=True)
class Skills:
    """The skills of a session.

    Attributes:
        all: each name once.
        chosen: those that a person named, which the model is given from the start.
        most_bytes: of a skill's text that a model is given; None leaves that to the profile.
        notes: what a person should know of what was left out, a line each.
    """

    all: tuple[Skill, ...] = ()
    chosen: tuple[Skill, ...] = ()
    most_bytes: int | None = None
    notes: tuple[str, ...] = ()

    def get(self, name: str) -> Skill | None:
        """The skill of this name."""
        return next((skill for skill in self.all if skill.name == name.strip()), None)

    @property
    def names(self) -> str:
        """All names, for a message."""
        return ", ".join(skill.name for skill in self.all) or "none"

    def choosing(self, names: Iterable[str]) -> Skills:
        """The same, with these chosen; each once.

        Raises:
            ConfigurationError: there is none of such a name.
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
        """How many bytes of a skill a model is given: `most_bytes`, else the usual number."""
        return usual if self.most_bytes is None else self.most_bytes

    def cut_notices(self, usual: int) -> list[str]:
        """Which of the chosen ones are cut, a line each."""
        return [notice for skill in self.chosen if (notice := skill.text(self.limit(usual))[1])]

    def listing(self) -> str:
        """Names and descriptions as the model is told them; empty where there are none."""
        listed = [skill for skill in self.all if skill.is_listed]
        if not listed:
            return ""
        room = MOST_LISTED_CHARS // len(listed)
        own, theirs = (
            [
                f"- {skill.name}: {_shortened(skill.description, room - len(skill.name))}"
                for skill in listed
                if (skill.origin is SkillOrigin.USER) is is_own
            ]
            for is_own in (True, False)
        )
        return render(
            "agent/skills_listed",
            own=fenced("\n".join(own)) if own else "",
            theirs=fenced("\n".join(theirs)) if theirs else "",
        )


def _shortened(text: str, most: int) -> str:
    most = max(most, _LEAST_DESCRIPTION_CHARS)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def find_skills(
    places: Iterable[SkillFiles], clean: Callable[[str, str], str] = lambda _what, text: text
) -> Skills:
    """Read the skills of these places. Of two with one name the first counts. Nothing raises.

    Args:
        clean: a text as a model may see it, by what it is and what it says.
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
        made = _skill(place, folder, main, [file for file in files if file != main], clean)
        if isinstance(made, Skill):
            yield made
        else:
            where = one_line(f"{place.place}/{folder}/{main}", limit=_SHOWN_CHARS * 2)
            notes.append(f"{where} is left out: {made}")


def _skill(
    place: SkillFiles, folder: str, main: str, files: Sequence[str], clean: Callable[[str, str], str]
) -> Skill | str:
    """The skill of a folder, or why it is none."""
    data = place.read(f"{folder}/{main}", MOST_BYTES)
    if data is None:
        return f"it cannot be read, or has more than {MOST_BYTES:,} bytes"
    if b"\0" in data:
        return "it is no text"
    text = data.decode("utf-8", "replace").removeprefix("\ufeff").replace("\r\n", "\n")
    front, body = _parted(text)
    name = next((name for name in (front.get("name"), folder) if name and _is_name(name)), None)
    if name is None:
        return "its name is not made of letters, digits, hyphens, dots and underscores"
    body = clean(f"the skill {name}", body.strip())
    first = next((line.strip("# \t") for line in body.splitlines() if line.strip("# \t")), "")
    description = " ".join((front.get("description") or first).split())
    if not description or not body:
        return "it says nothing"

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


def _parted(text: str) -> tuple[dict[str, str], str]:
    """The fields of the front matter that count, and what stands below it."""
    match = _FRONT.match(text)
    if match is None:
        return {}, text
    import yaml

    try:
        # Every value is a text, as in the reference library: `yes` and dates too.
        values: Any = yaml.load(match[1], Loader=yaml.BaseLoader)  # noqa: S506  it makes texts, lists and dicts only
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError):
        values = None
    if not isinstance(values, dict):  # often a colon in a text that is not in quotes, or a tab that indents
        values = {
            key: " ".join(value.split()).strip("\"'") for key, value in reversed(_FIELD.findall(match[1]))
        }
    # Only what is a text: an alias of lists may stand for more than fits into memory.
    wanted = ("name", "description", "disable-model-invocation")
    front = {key: values[key].strip() for key in wanted if isinstance(values.get(key), str)}
    return front, text[match.end() :]


@dataclass(frozen=True, slots=True)
class FolderSkills:
    """The skills in a folder of the user's. No link in it is followed."""

    root: Path
    origin: SkillOrigin = SkillOrigin.USER

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.root)

    def paths(self) -> tuple[list[str], list[str]]:
        """See `SkillFiles`."""
        found: list[str] = []
        remarks: list[str] = []

        def report(error: OSError) -> None:
            if not isinstance(error, FileNotFoundError):
                remarks.append(f"{error.filename} cannot be read: {error.strerror}")

        for folder, folders, files in os.walk(self.root, onerror=report):
            above = os.path.relpath(folder, self.root)
            below = "" if above == "." else f"{PurePosixPath(above)}/"
            for name in sorted((*folders, *files)):
                path = os.path.join(folder, name)  # noqa: PTH118  names may be no valid text
                if os.path.islink(path):  # noqa: PTH114  the same
                    remarks.append(
                        f"{one_line(path, limit=_SHOWN_CHARS * 2)} is a link, which is not followed"
                    )
                elif name in files:
                    found.append(f"{below}{name}")
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            if len(found) > MOST_FILES:
                break
        return found, remarks

    def read(self, path: str, most_bytes: int) -> bytes | None:
        """See `SkillFiles`."""
        try:
            # Not blocking: a pipe has no writer.
            descriptor = os.open(self.root / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as stream:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                data = stream.read(most_bytes + 1)
        except (OSError, ValueError):
            return None
        return data if len(data) <= most_bytes else None
