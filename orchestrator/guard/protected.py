"""Which changes wait for a person: those to files that steer machines and agents, and those that reach them by a link."""

from __future__ import annotations

import os
import posixpath
import re
from typing import TYPE_CHECKING

from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.git_names import folded_name, is_git_name
from orchestrator.guard.protected_names import GLOBS, HARMLESS_DOT_FILES, NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pathspec import GitIgnoreSpec

    from orchestrator.core.changes import FileChange, FileVersion

_IN_GIT = "inside .git"
_LINK = "a symbolic link"
_DRIVE = re.compile(r"[A-Za-z]:")


class PathPolicy:
    """Says why the change to a path waits for a person, or None.

    A name is compared as any file system would: letters of both cases are one, so are spellings of one
    letter, characters that are not seen are left out, and so are dots and spaces at the end. A change of
    the mode counts like one of the content.

    Args:
        allow: patterns as in `.gitignore`; what matches is let through, but nothing in a `.git` and no link
            that leaves the repository. Compared letter by letter. A link needs that its target is
            allowed, too. It stands above `more`: a person typed it.
        more: patterns as in `.gitignore` of what waits as well.

    Raises:
        ConfigurationError: a pattern matches nothing, or is none.
    """

    def __init__(self, allow: Sequence[str] = (), more: Sequence[str] = ()) -> None:
        self._allowed = _spec(allow)
        self._more = _spec(more)
        self._more_folded = _spec([folded_name(pattern) for pattern in more])
        self._globs = [(reason, _spec(patterns)) for reason, patterns in GLOBS.items()]

    def __call__(self, change: FileChange) -> str | None:
        """Why the change waits, in a few words."""
        versions = [version for version in (change.old, change.new) if version is not None]
        modes = {version.mode for version in versions}
        if any(is_git_name(name) for name in _names(change.path)):
            return _IN_GIT
        if change.new is not None and change.new.mode == LINK_MODE:
            reason = self._reason_against_link(change.path, change.new)
            if reason is not None:
                return reason
        if self._allows(change.path):
            return None
        if SUBMODULE_MODE in modes:
            return "a submodule"
        return self._reason(change.path, is_folder=LINK_MODE in modes)

    def _reason_against_link(self, path: str, version: FileVersion) -> str | None:
        if version.content is None:
            return f"{_LINK} with a target that is too long"
        target = os.fsdecode(version.content).replace("\\", "/")
        place = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        if place.startswith(("/", "../")) or place == ".." or _DRIVE.match(target) or "\0" in target:
            return f"{_LINK} that leaves the repository"
        if any(is_git_name(name) for name in _names(place)):
            return f"{_LINK} into .git"
        if self._allows(place) or self._reason(place, is_folder=True) is None:
            return None
        return f"{_LINK} to a protected path"

    def _allows(self, path: str) -> bool:
        return self._allowed.match_file(path)

    def _reason(self, path: str, *, is_folder: bool) -> str | None:
        """Why a path is protected; `is_folder` where it may lead to a folder and not only to a file."""
        names = [folded_name(name) for name in _names(path)]
        folded = "/".join(names)
        reason = NAMES.get(names[-1])
        reason = reason or next((why for why, spec in self._globs if spec.match_file(folded)), None)
        reason = reason or _reason_against_dots(names, is_folder=is_folder)
        # A link in place of a folder brings all that would be in it.
        spellings = (path, f"{path}/_") if is_folder else (path,)
        if reason is None and any(map(self._waits_here, spellings)):
            return "protected in this repository"
        return reason

    def _waits_here(self, path: str) -> bool:
        folded = "/".join(folded_name(name) for name in _names(path))
        return self._more.match_file(path) or self._more_folded.match_file(folded)


def _reason_against_dots(names: list[str], *, is_folder: bool) -> str | None:
    if any(name.startswith(".") for name in (names if is_folder else names[:-1])):
        return "in a folder whose name begins with a dot"
    if names[-1].startswith(".") and names[-1] not in HARMLESS_DOT_FILES:
        return "a file whose name begins with a dot"
    return None


def _spec(patterns: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        spec = GitIgnoreSpec.from_lines(patterns)
    except ValueError as error:
        message = f"not a pattern for paths, as in .gitignore: {error}"
        raise ConfigurationError(message) from error
    # Empty lines are no patterns to it, comments are such that match nothing.
    found = iter(spec.patterns)
    for line in patterns:
        if not line or next(found).include is None:
            message = f"{line!r} matches no path; write a pattern as in .gitignore, such as docs/**"
            raise ConfigurationError(message)
    return spec


def _names(path: str) -> list[str]:
    """The names in a path. Windows takes a backslash for a slash."""
    return [name for name in path.replace("\\", "/").split("/") if name not in {"", "."}] or [""]
