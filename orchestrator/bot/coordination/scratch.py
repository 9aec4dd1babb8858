"""A folder for objects of ours: a bare repository for each kind of ids, made when it is first needed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal

from orchestrator.bot.git.failures import storage_errors
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.owner import new_owned_folder

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.owner import Owner

IdKind = Literal["sha1", "sha256"]
GIT_DIR = "records.git"
_SHA1_CHARACTERS = 40
_CONFIGURATIONS: dict[IdKind, str] = {
    "sha1": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    "sha256": "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n",
}


class Scratch:
    """Safe for use by several threads. What a process that is killed leaves is swept as a clone is.

    Args:
        parent: where the folder is made.
    """

    def __init__(self, parent: Path) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._owner: Owner | None = None
        self._gits: dict[IdKind, HostGit] = {}

    def git(self, kind: IdKind) -> HostGit:
        """Git on objects with ids of a kind.

        Raises:
            WorkspaceError: git is missing or failed, or there is no space.
        """
        with self._lock:
            if kind not in self._gits:
                self._gits[kind] = self._new(kind)
            return self._gits[kind]

    def close(self) -> None:
        """Remove everything. May be called again, and used again.

        Raises:
            WorkspaceError: something could not be removed.
        """
        with self._lock:
            owner, self._owner = self._owner, None
            self._gits.clear()
        if owner is not None:
            owner.remove()

    def _new(self, kind: IdKind) -> HostGit:
        doing = "cannot make a folder for records"
        with storage_errors(doing):
            if self._owner is None:
                self._parent.mkdir(parents=True, exist_ok=True)
                self._owner = new_owned_folder(self._parent.resolve(), "", "")
            folder = self._owner.folder / kind
            folder.mkdir(exist_ok=True)
            _make(folder / GIT_DIR, kind)
        return HostGit(folder, folder / GIT_DIR)


def _make(path: Path, kind: IdKind) -> None:
    """A bare repository with nothing in it, by hand: `git init` takes longer than all that is done with it.

    What it must have: https://git-scm.com/docs/gitrepository-layout
    """
    for name in ("objects/pack", "refs/heads"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n", "ascii")
    (path / "config").write_text(_CONFIGURATIONS[kind], "ascii")


def kind_of(commit: str) -> IdKind:
    """What kind of id it is, by its length."""
    return "sha256" if len(commit) > _SHA1_CHARACTERS else "sha1"
