"""Who owns a clone's folder: a file in it that the process keeps locked for as long as it lives."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.bot.git.failures import storage_errors
from orchestrator.bot.git.names import is_commit_id
from orchestrator.bot.git.removal import remove_folder
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.git_names import is_branch_name
from orchestrator.core.locks import try_lock

FOLDER_PREFIX = "pullwright-"
"""Begins the name of every clone's folder."""
OWNER_FILE = "owner"
"""Locked by the process that works in the folder. The kernel lets go of it at any death."""
KEPT_FILE = "kept"
"""What the owner's file is called once the folder is to stay. A new name needs no space on a full disk."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE = 0o600
_MOST_BYTES = 10_000
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Facts:
    """What the owner's file says. `branch` and `commit` are empty until the clone is complete."""

    run: str = ""
    address: str = ""
    branch: str = ""
    commit: str = ""


def address_key(url: str) -> str:
    """A repository's address as a name for files, which tells nobody the address."""
    return hashlib.sha256(os.fsencode(url)).hexdigest()


class Owner:
    """The hold of this process on a clone's folder.

    Attributes:
        folder: the folder.
        facts: what the file said when it was opened.
        kept: the folder is to stay.
    """

    def __init__(self, folder: Path, handle: int, facts: Facts, *, kept: bool) -> None:
        self.folder = folder
        self.facts = facts
        self.kept = kept
        self._handle: int | None = handle

    def complete(self, branch: str, commit: str) -> None:
        """Write down that the clone is complete, and what was cloned."""
        if self._handle is not None:
            os.write(self._handle, _line({"branch": branch, "commit": commit}))

    def keep(self) -> None:
        """Mark the folder as one that nobody sweeps.

        Raises:
            WorkspaceError: it cannot be marked.
        """
        if not self.kept:
            with storage_errors("cannot mark the kept clone"):
                (self.folder / OWNER_FILE).rename(self.folder / KEPT_FILE)
            self.kept = True

    def remove(self) -> None:
        """Remove the folder, then let go of it.

        The owner's file goes last: what a death in between leaves is still known as ours.

        Raises:
            WorkspaceError: something could not be removed.
        """
        try:
            with storage_errors(f"cannot remove the clone in {self.folder}"), suppress(FileNotFoundError):
                for entry in list(self.folder.iterdir()):
                    if entry.is_dir() and not entry.is_symlink():
                        remove_folder(entry)
                    elif entry.name != OWNER_FILE:
                        entry.unlink(missing_ok=True)
            remove_folder(self.folder)
        finally:
            self.release()

    def release(self) -> None:
        """Let go of the folder. May be called again."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def new_owned_folder(parent: Path, run: str, address: str) -> Owner:
    """Make a folder that nobody but this user can enter, and hold it.

    Raises:
        OSError: it cannot be made.
        WorkspaceError: sweepers took every folder that was made.
    """
    for _ in range(_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
        owner = _hold_new(folder, Facts(run, address))
        if owner is not None:
            return owner
    message = f"cannot hold a folder in {parent}: something removes it at once"
    raise WorkspaceError(message)


def _hold_new(folder: Path, facts: Facts) -> Owner | None:
    """None where a sweeper was faster: then the folder is its own."""
    try:
        handle = os.open(folder / OWNER_FILE, _NEW, _PRIVATE)
    except FileNotFoundError:
        return None
    try:
        if not try_lock(handle) or not os.fstat(handle).st_nlink:
            os.close(handle)
            return None
        os.write(handle, _line({"run": facts.run, "address": facts.address}))
    except OSError:
        os.close(handle)
        remove_folder(folder)
        raise
    return Owner(folder, handle, facts, kept=False)


def hold_again(folder: Path) -> Owner | None:
    """Hold the folder of a process that is dead; None where one lives, or the folder is not marked as ours.

    Raises:
        OSError: the folder cannot be looked at.
    """
    # Opened as a folder first: no link is followed, not even where somebody swaps the path for one.
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            return None
        for name in (KEPT_FILE, OWNER_FILE):
            with suppress(FileNotFoundError):
                handle = os.open(name, _OLD, dir_fd=opened)
                return _held(folder, opened, handle, name)
    finally:
        os.close(opened)
    return None


def _held(folder: Path, opened: int, handle: int, name: str) -> Owner | None:
    try:
        if try_lock(handle) and _is_still(name, opened, handle) and _is_still(folder, None, opened):
            text = os.read(handle, _MOST_BYTES)
            return Owner(folder, os.dup(handle), _facts(text), kept=name == KEPT_FILE)
        return None
    finally:
        # The copy shares the lock.
        os.close(handle)


def _is_still(name: Path | str, folder: int | None, handle: int) -> bool:
    """Whether the name still leads to what was opened."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _line(fields: dict[str, str]) -> bytes:
    return f"{json.dumps(fields)}\n".encode("ascii")


def _facts(text: bytes) -> Facts:
    """What the lines say, those that are whole."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        try:
            data = json.loads(line)
        except (ValueError, RecursionError):
            break
        if isinstance(data, dict):
            found |= {str(key): value for key, value in data.items() if isinstance(value, str)}
    branch, commit = found.get("branch", ""), found.get("commit", "")
    if not is_branch_name(branch) or not is_commit_id(commit):
        branch = commit = ""
    return Facts(found.get("run", ""), found.get("address", ""), branch, commit)
