"""The encodings that a repository names for its files: `charset` of `.editorconfig`, `working-tree-encoding` of git.

Formats: https://spec.editorconfig.org and https://git-scm.com/docs/gitattributes
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from orchestrator.core.encodings import encoding_called
from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.patterns import PathPattern, attribute_test

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.core.encodings import DeclaredEncoding
    from orchestrator.engine.environments.files import ConfinedTree

EDITORCONFIG, GITATTRIBUTES = ".editorconfig", ".gitattributes"
MAX_BYTES = 200_000
"""Of one such file; a longer one names nothing."""
_MOST_SECTIONS = 500
_MOST_PATTERN_CHARACTERS = 300
_ENCODING = "working-tree-encoding"
_RANGE = re.compile(r"\{(-?[0-9]{1,6})\.\.(-?[0-9]{1,6})\}")
_MOST_NUMBERS = 200


@dataclass(frozen=True, slots=True)
class _EditorConfig:
    """The sections of an `.editorconfig` that name a charset, the last first, and whether those above count, too."""

    sections: Sequence[tuple[PathPattern, str]]
    is_root: bool


class DeclaredEncodings:
    """What the files of a tree say. An object serves one search or call: it reads each of these files once.

    Args:
        read: returns the content of a file by its names; empty if there is none.
    """

    def __init__(self, read: Callable[[tuple[str, ...]], bytes]) -> None:
        self._read = read
        self._editor: dict[tuple[str, ...], _EditorConfig] = {}
        self._git: dict[tuple[str, ...], Sequence[tuple[Callable[[bytes], bool], str]]] = {}

    @classmethod
    def of_tree(cls, tree: ConfinedTree) -> Self:
        """Return what the files of a tree say; one that is a link, or too long, says nothing."""

        def read(names: tuple[str, ...]) -> bytes:
            try:
                return tree.read_names(names, max_bytes=MAX_BYTES)
            except ToolError:
                return b""

        return cls(read)

    def of(self, names: tuple[str, ...]) -> DeclaredEncoding | None:
        """Return the encoding that is named for a file; None if there is none. Git's own word counts first."""
        folders = [names[:depth] for depth in range(len(names) - 1, -1, -1)]
        return self._from_git(names, folders) or self._from_editor(names, folders)

    def names_wide(self, base: tuple[str, ...]) -> bool:
        """Return whether the files at a place and above it name UTF-16 for any file."""
        places = declaring_files((*base, ""))
        return any(b"utf-16" in self._read(names).lower() for names in places)

    def _from_git(
        self, names: tuple[str, ...], folders: Sequence[tuple[str, ...]]
    ) -> DeclaredEncoding | None:
        for folder in folders:
            path = os.fsencode("/".join(names[len(folder) :]))
            if folder not in self._git:
                self._git[folder] = _attributes(self._read((*folder, GITATTRIBUTES)))
            value = next((value for matches, value in self._git[folder] if matches(path)), None)
            if value is not None:
                return encoding_called(value) if value else None
        return None

    def _from_editor(
        self, names: tuple[str, ...], folders: Sequence[tuple[str, ...]]
    ) -> DeclaredEncoding | None:
        for folder in folders:
            if folder not in self._editor:
                self._editor[folder] = _editor_config(self._read((*folder, EDITORCONFIG)))
            found = self._editor[folder]
            below = names[len(folder) :]
            charset = next((value for pattern, value in found.sections if pattern.matches(below)), None)
            if charset is not None:
                return None if charset == "unset" else encoding_called(charset)
            if found.is_root:
                return None
        return None


def declaring_files(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return the names of the files that may say something about a file."""
    folders = [names[:depth] for depth in range(len(names))]
    return [(*folder, name) for folder in folders for name in (GITATTRIBUTES, EDITORCONFIG)]


def _attributes(content: bytes) -> list[tuple[Callable[[bytes], bool], str]]:
    """Return the lines that decide about the encoding, the last first; an empty value stands for none."""
    found: list[tuple[Callable[[bytes], bool], str]] = []
    if _ENCODING.encode() not in content:
        return found
    for line in content.decode("utf-8", "surrogateescape").splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "[attr]", "!")):
            continue
        text = line.lstrip()
        if text.startswith('"'):  # a name with a quotation mark in it is not found
            pattern, _, rest = text[1:].partition('"')
        else:
            pattern, _, rest = text.replace("\t", " ").partition(" ")
        words = rest.split()
        values = [word for word in words if word.lstrip("-!").startswith(_ENCODING)]
        test = attribute_test(os.fsencode(pattern)) if values else None
        if test is not None:
            value = values[-1].partition("=")[2] if values[-1].startswith(f"{_ENCODING}=") else ""
            found.append((test, value))
    return found[::-1]


def _editor_config(content: bytes) -> _EditorConfig:
    sections: list[tuple[PathPattern, str]] = []
    pattern: PathPattern | None = None
    is_root, is_preamble = False, True
    for raw in content.decode("utf-8-sig", "replace").splitlines():
        line = raw.strip()
        if line.startswith("[") and line.endswith("]"):
            is_preamble = False
            pattern = _section(line[1:-1]) if len(sections) < _MOST_SECTIONS else None
            continue
        name, _, value = line.partition("=")
        key, plain = name.strip().lower(), value.strip().lower()
        if is_preamble:
            is_root |= (key, plain) == ("root", "true")
        elif key == "charset" and pattern is not None:
            sections.append((pattern, plain))
    return _EditorConfig(sections[::-1], is_root)


def _section(glob: str) -> PathPattern | None:
    """Return a section's pattern; None if it is none. Two stars also match within a name, `{1..3}` is numbers."""
    if len(glob) > _MOST_PATTERN_CHARACTERS or glob.startswith("!"):
        return None
    text = _RANGE.sub(_numbers, glob)
    text = re.sub(r"(?<![*/])\*\*(?!\*)", "{*,*/**/*}", text) if not text.startswith("**") else text
    text = re.sub(r"(^|/)\*\*(?![*/]|$)", r"\1{*,**/*}", text)
    try:
        return PathPattern.for_filter(text)
    except ToolError:
        return None


def _numbers(found: re.Match[str]) -> str:
    first, last = sorted((int(found[1]), int(found[2])))
    if last - first >= _MOST_NUMBERS:
        return found[0]
    return f"{{{','.join(map(str, range(first, last + 1)))}}}"
