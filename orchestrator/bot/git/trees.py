"""Trees of a clone's git objects: what is in them, new ones made of two, and their files in a fresh folder."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.bot.git.changes import Contents, Difference, differences
from orchestrator.bot.git.failures import error_for, storage_errors
from orchestrator.bot.git.hostgit import HostGit, decode_paths
from orchestrator.core.changes import LINK_MODE

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from orchestrator.core.changes import FileChange

_DOING = "cannot make the files of a test run"
_IGNORING = "Ignoring path"


class Trees:
    """Reads and makes trees in a git directory that only this program writes. Runs nothing of the repository's.

    Not safe for use by several threads at once.

    Args:
        git: git on those objects.

    Raises:
        WorkspaceError: git failed, in every method.
    """

    def __init__(self, git: HostGit) -> None:
        if git.git_dir is None:
            raise AssertionError("trees are made in a git directory")
        self._git = git.without_tree()
        self._git_dir = git.git_dir
        self._listed: dict[str, Mapping[str, str]] = {}

    def tree_of(self, commit: str) -> str:
        """The id of a commit's tree; of a tree, its own."""
        return (
            self._git.run(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{tree}}", doing=_DOING
            )
            .decode("ascii")
            .strip()
        )

    def entries(self, tree: str) -> Mapping[str, str]:
        """Git's mode of each path in a tree: `100644`, `100755`, `120000` for a link, `160000` for a submodule."""
        if tree not in self._listed:
            listed = self._git.run("ls-tree", "-r", "-z", "--full-tree", tree, doing=_DOING)
            # `<mode> <kind> <object>TAB<path>NUL`
            lines = (line.partition(b"\t") for line in listed.split(b"\0") if line)
            self._listed[tree] = {os.fsdecode(path): head[:6].decode("ascii") for head, _, path in lines}
        return self._listed[tree]

    def text(self, tree: str, path: str, *, most_bytes: int) -> str | None:
        """A file's text in a tree; None where there is none, it is larger, or it is not UTF-8."""
        if not self.entries(tree).get(path, "").startswith("100"):
            return None
        name = f"{tree}:{path}"
        if int(self._git.run("cat-file", "-s", name, doing=_DOING)) > most_bytes:
            return None
        try:
            return self._git.run("cat-file", "blob", name, doing=_DOING).decode("utf-8")
        except UnicodeDecodeError:
            return None

    def changes(self, old: str, new: str) -> tuple[FileChange, ...]:
        """Every path at which two commits or trees differ, with what it holds on both sides."""
        found = differences(self._git, old, new)
        contents = Contents(self._git, found)
        return tuple(map(contents.change, found))

    def importing(self, tree: str, module: str) -> list[str]:
        """The Python files of a tree that begin a line with the import of a module."""
        pattern = rf"^(import|from)[[:space:]]+{re.escape(module)}([^[:alnum:]_]|$)"
        return self.containing(tree, pattern, ("*.py",))

    def containing(self, tree: str, pattern: str, names: Iterable[str]) -> list[str]:
        """The files of a tree with such names that have a line for a pattern, as in `grep -E`."""
        found = self._git.attempt(
            *("grep", "-l", "-z", "-I", "-E", "-e", pattern, tree, "--", *names),
            doing=_DOING,
            variables={"GIT_LITERAL_PATHSPECS": "0"},
        )
        if found.status not in {0, 1}:  # 1 where there is none
            raise error_for(found.stderr, _DOING)
        return [path.removeprefix(f"{tree}:") for path in decode_paths(found.stdout)]

    def mixed(self, onto: str, source: str, paths: Collection[str]) -> str:
        """The tree `onto` with these paths as `source` has them; those that are not in it are gone.

        What is in the way of such a path, as a file is of a folder, is gone too.
        """
        listed = differences(self._git, onto, source) if paths else ()
        taken = [found for found in listed if found.path in paths]
        if not taken:
            return self.tree_of(onto)
        # What goes makes room for what comes.
        return self._changed(onto, map(_line, sorted(taken, key=lambda found: found.new is not None)))

    def replaced(self, tree: str, contents: Mapping[str, bytes]) -> str:
        """The tree with other content in some of its files."""
        lines = []
        for path, content in contents.items():
            words = ("hash-object", "-w", "--no-filters", "--stdin")
            blob = self._git.run(*words, doing=_DOING, stdin=content).strip()
            mode = self.entries(tree)[path].encode("ascii")
            lines.append(b"%s %s\t%s\0" % (mode, blob, os.fsencode(path)))
        return self._changed(tree, lines) if lines else tree

    def _changed(self, tree: str, lines: Iterable[bytes]) -> str:
        """The tree after these lines for an index."""
        on = {"GIT_INDEX_FILE": str(self._index())}
        self._git.run("read-tree", tree, doing=_DOING, variables=on)
        result = self._git.attempt(
            *("update-index", "-z", "--index-info"), doing=_DOING, stdin=b"".join(lines), variables=on
        )
        if result.status != 0 or _IGNORING in result.stderr:
            raise error_for(result.stderr, _DOING)
        return self._git.run("write-tree", doing=_DOING, variables=on).decode("ascii").strip()

    def export(self, tree: str, folder: Path) -> None:
        """Write a tree's files into an empty folder, as a checkout has them.

        No filter runs, a submodule is an empty folder, and a symbolic link that leads out of the folder is left out.
        """
        git = HostGit(self._git.folder, self._git_dir, folder)
        index = self._index()
        git.run("read-tree", "--reset", "-u", tree, doing=_DOING, variables={"GIT_INDEX_FILE": str(index)})
        with storage_errors(_DOING):
            index.unlink(missing_ok=True)
            _remove_links_out(
                folder, (path for path, mode in self.entries(tree).items() if mode == LINK_MODE)
            )

    def _index(self) -> Path:
        """A file for an index of our own; what a process that died left there is gone."""
        index = self._git_dir / "index.tests"
        with storage_errors(_DOING):
            for path in (index, index.with_name(f"{index.name}.lock")):
                path.unlink(missing_ok=True)
        return index


def _remove_links_out(folder: Path, links: Iterable[str]) -> None:
    root = os.path.realpath(folder)
    for path in links:
        # Resolved one by one: a link may lead out by way of another one, however its own words read.
        link = os.path.join(root, path)  # noqa: PTH118  a name of git's, joined as it is
        target = os.path.realpath(link)
        if target != root and not target.startswith(f"{root}/"):
            with suppress(FileNotFoundError):
                os.unlink(link)  # noqa: PTH108  a name


def _line(found: Difference) -> bytes:
    """A line of `<mode> <object>TAB<path>NUL`; mode 0 removes the path."""
    entry = found.new
    some = found.new or found.old
    digits = len(some.object_id) if some else 0
    head = f"{entry.mode} {entry.object_id}" if entry else f"0 {'0' * digits}"
    return head.encode("ascii") + b"\t" + os.fsencode(found.path) + b"\0"
