"""Which files `.gitignore` files leave out, and a walk over the others."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pathspec
    from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

    from orchestrator.engine.environments.confined import ConfinedTree, Entry

MAX_RULES_BYTES = 1_000_000
"""A longer `.gitignore` does not count."""

_IGNORE_FILE = ".gitignore"


class ReadsFiles(Protocol):
    """Where `.gitignore` files are read from."""

    def read_names(self, names: tuple[str, ...], *, max_bytes: int) -> bytes:
        """The file's content; `ToolError` where there is none."""


class IgnoreRules:
    """The rules of every `.gitignore` from the root down, as git applies them, without git.

    For one search: files are read once. Rules of the user, of the machine and of
    `.git/info/exclude` do not count, so that a repository gives the same answers everywhere.
    """

    def __init__(self, tree: ReadsFiles) -> None:
        self._tree = tree
        self._specs: dict[tuple[str, ...], pathspec.GitIgnoreSpec | None] = {}
        self._folders: dict[tuple[str, ...], bool] = {(): False}

    def ignored(self, names: tuple[str, ...], *, is_dir: bool) -> bool:
        """Whether the path, or a folder above it, is left out."""
        if not names:
            return False
        if self._folder_ignored(names[:-1]):
            return True
        return self._folder_ignored(names) if is_dir else self._decided(names, "")

    def _folder_ignored(self, names: tuple[str, ...]) -> bool:
        known = self._folders.get(names)
        if known is None:
            known = self._folder_ignored(names[:-1]) or self._decided(names, "/")
            self._folders[names] = known
        return known

    def _decided(self, names: tuple[str, ...], suffix: str) -> bool:
        """What the nearest file with a rule for this path says."""
        for depth in range(len(names) - 1, -1, -1):
            spec = self._spec(names[:depth])
            if spec is not None:
                verdict = spec.check_file("/".join(names[depth:]) + suffix).include
                if verdict is not None:
                    return verdict
        return False

    def _spec(self, folder: tuple[str, ...]) -> pathspec.GitIgnoreSpec | None:
        if folder not in self._specs:
            self._specs[folder] = self._load(folder)
        return self._specs[folder]

    def _load(self, folder: tuple[str, ...]) -> pathspec.GitIgnoreSpec | None:
        try:
            content = self._tree.read_names((*folder, _IGNORE_FILE), max_bytes=MAX_RULES_BYTES)
        except ToolError:  # none there, a link, or too large: no rules
            return None
        return _spec_of(content.decode("utf-8-sig", "replace").split("\n"))


def _spec_of(lines: list[str]) -> pathspec.GitIgnoreSpec:
    import pathspec
    from pathspec.patterns.gitignore.base import GitIgnorePatternError

    rules: list[GitIgnoreSpecPattern] = []
    for line in lines:
        try:
            rules += pathspec.GitIgnoreSpec.from_lines([line.removesuffix("\r")]).patterns
        except GitIgnorePatternError:  # git passes over a line that is no pattern
            continue
    return pathspec.GitIgnoreSpec(rules)


def walk(
    tree: ConfinedTree, base: tuple[str, ...], rules: IgnoreRules | None
) -> Iterator[tuple[tuple[str, ...], Entry]]:
    """Regular files below a folder, in the order of their paths; links and `.git` are left out.

    Args:
        tree: where to walk.
        base: the folder to begin in.
        rules: leaves files out; None walks over all.

    Raises:
        ToolError: the folder to begin in cannot be read.
    """
    waiting = _below(tree, base)
    while waiting:
        names, entry = waiting.pop()
        if rules is not None and rules.ignored(names, is_dir=entry.is_dir):
            continue
        if entry.is_file:
            yield names, entry
        elif entry.is_dir:
            with suppress(ToolError):  # no permission, or removed meanwhile
                waiting += _below(tree, names)


def _below(tree: ConfinedTree, folder: tuple[str, ...]) -> list[tuple[tuple[str, ...], Entry]]:
    return [((*folder, entry.name), entry) for entry in reversed(tree.entries(folder))]
