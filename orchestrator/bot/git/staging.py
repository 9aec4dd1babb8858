"""Staging into an index: what changed, what of it is taken, and what is named instead."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import LeftOut
from orchestrator.bot.git.failures import error_for, main_line, storage_errors
from orchestrator.bot.git.hostgit import decode_paths, encode_paths
from orchestrator.bot.git.selection import Selection, Selector
from orchestrator.core.changes import LINK_MODE
from orchestrator.core.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.bot.git.changes import Difference
    from orchestrator.bot.git.hostgit import HostGit

COMMITTING = "cannot commit"
# What `update-index` prints, without failing, about a name that some system takes for `.git`.
_IGNORING = "Ignoring path"


class Stager:
    """Brings changes of the work tree into an index file.

    Args:
        files: git on our objects and the work tree.
        tree: the work tree.

    Attributes:
        links: the links of the index that was read last, with their objects.
        taken: the paths that the index has which was staged into last.
    """

    def __init__(self, files: HostGit, tree: Path) -> None:
        self.links: dict[str, str] = {}
        self.taken: set[str] = set()
        self._git = files.without_tree()
        self._files = files
        self._tree = tree

    def changed(self, index: Path) -> set[str]:
        """Tracked paths that differ from the index, and new ones that no ignore file of the clone covers."""
        output = self._files.run(
            *("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames"),
            "--ignore-submodules=all",
            doing="cannot see what changed",
            variables=_on(index),
        )
        # `XY path`: X is the index against HEAD, which is not asked here; Y is the files against the index.
        return {entry[3:].rstrip("/") for entry in decode_paths(output) if entry[1] != " "}

    def stage(
        self, index: Path, touched: set[str], *, include_commands: bool, large_limit_bytes: int
    ) -> list[LeftOut]:
        """Stage the touched paths, and with `include_commands` all that changed.

        Returns:
            What was not staged, sorted by path.
        """
        by_commands = self.changed(index) if include_commands else set[str]()
        tracked = self._tracked(index)
        with storage_errors(COMMITTING):
            selection = Selector(self._tree, tracked, large_limit_bytes).select(touched, by_commands)
        # What commands made and is ignored is not among the changes; what a tool wrote may be.
        ignored = self._ignored([path for path in selection.add if path not in tracked], index)
        selection.add = [path for path in selection.add if path not in ignored]
        selection.left_out += [LeftOut(path, "ignored by .gitignore") for path in ignored]
        self._remove(selection, index)
        refused = self._add(selection, index)
        self.taken = {*tracked, *selection.add} - {*selection.remove, *(item.path for item in refused)}
        return sorted(selection.left_out + refused, key=lambda item: item.path)

    def write_tree(self, index: Path) -> str:
        """The id of the tree that the index makes."""
        output = self._git.run("write-tree", doing=COMMITTING, variables=_on(index))
        return output.decode("ascii").strip()

    def restore(self, listed: Sequence[Difference], index: Path) -> None:
        """Give the index what each difference had before.

        Raises:
            WorkspaceError: git does not take one of the paths, or it is a file and a folder at once.
        """
        # Without --replace, which would make room for an entry by removing others. With the files, as all that
        # writes an index: git looks again at those that changed in the moment in which it was written.
        result = self._files.attempt(
            *("update-index", "-z", "--index-info"),
            doing=COMMITTING,
            stdin=b"".join(_index_line(difference) for difference in listed),
            variables=_on(index),
        )
        if result.status != 0 or _IGNORING in result.stderr:
            raise error_for(result.stderr, COMMITTING)

    def _tracked(self, index: Path) -> dict[str, str]:
        """Paths of the index with their modes, from lines `<mode> <object> <stage>TAB<path>`."""
        output = self._git.run("ls-files", "-z", "--stage", doing=COMMITTING, variables=_on(index))
        lines = (
            (path, *fields.split())
            for fields, _, path in (line.partition("\t") for line in decode_paths(output))
        )
        entries = {path: (mode, object_id) for path, mode, object_id, _ in lines}
        self.links = {path: object_id for path, (mode, object_id) in entries.items() if mode == LINK_MODE}
        return {path: mode for path, (mode, _) in entries.items()}

    def _ignored(self, paths: list[str], index: Path) -> set[str]:
        if not paths:
            return set()
        result = self._files.attempt(
            *("check-ignore", "-z", "--stdin"),
            doing=COMMITTING,
            # This command knows no literal paths; behind `./` no character begins a pattern's magic.
            stdin=encode_paths(f"./{path}" for path in paths),
            variables={**_on(index), "GIT_LITERAL_PATHSPECS": "0"},
        )
        none_is_ignored = 1
        if result.status not in {0, none_is_ignored}:
            raise error_for(result.stderr, COMMITTING)
        return {path.removeprefix("./") for path in decode_paths(result.stdout)}

    def _remove(self, selection: Selection, index: Path) -> None:
        if selection.remove:
            self._files.run(
                *("update-index", "-z", "--force-remove", "--stdin"),
                doing=COMMITTING,
                stdin=encode_paths(selection.remove),
                variables=_on(index),
            )

    def _add(self, selection: Selection, index: Path) -> list[LeftOut]:
        refused: list[LeftOut] = []
        pending = [selection.add] if selection.add else []
        while pending:
            paths = pending.pop()
            result = self._files.attempt(
                *("update-index", "-z", "--add", "--remove", "--replace", "--stdin"),
                doing=COMMITTING,
                stdin=encode_paths(paths),
                variables=_on(index),
            )
            if result.status == 0 and _IGNORING not in result.stderr:
                continue
            if result.status == 0:
                taken = self._tracked(index)
                refused += [LeftOut(path, "not a path that git takes") for path in paths if path not in taken]
                continue
            error = error_for(result.stderr, COMMITTING)
            if isinstance(error, DiskFullError):
                raise error
            # A run that failed changed nothing. Halving finds the paths that git does not take.
            if len(paths) == 1:
                refused.append(LeftOut(paths[0], f"git does not take it: {main_line(result.stderr)}"))
            else:
                half = len(paths) // 2
                pending += [paths[half:], paths[:half]]
        return refused


def _on(index: Path) -> dict[str, str]:
    return {"GIT_INDEX_FILE": str(index)}


def _index_line(difference: Difference) -> bytes:
    """A line of `<mode> <object>TAB<path>`; mode 0 removes the path."""
    old, new = difference.old, difference.new
    if old is not None:
        entry = f"{old.mode} {old.object_id}"
    else:
        entry = f"0 {'0' * len(new.object_id) if new is not None else ''}"
    return entry.encode("ascii") + b"\t" + os.fsencode(difference.path) + b"\0"
