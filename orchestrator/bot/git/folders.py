"""The folder of a clone: locked by its process, removed at the end, swept after the process died."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.git.hostgit import storage_errors
from orchestrator.bot.git.remote import is_commit_id
from orchestrator.core.clock import SystemClock
from orchestrator.core.confined import (
    MOST_LEVELS,
    ConfinedFolder,
    enter_to_change,
    remove_at,
    rename_at,
    sorted_entries,
)
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.files import FOLDER_PREFIX, OWNER_FILE, lock_new_folder, try_lock
from orchestrator.core.repositories import folded_name, is_branch_name, is_git_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from pathlib import Path

    from orchestrator.core.clock import Clock


def remove_folder(folder: Path) -> None:
    """Remove a folder and its content. Links are removed, never followed. A missing folder is not an error."""
    try:
        with suppress(FileNotFoundError), ConfinedFolder(folder.parent) as above:
            above.remove(folder.name)
    except OSError as error:
        raise WorkspaceError(
            f"the clone in {folder} could not be removed ({error.strerror or error}); remove it by hand"
        ) from error


def folder_size(folder: Path) -> int:
    """Return the bytes of all files below a folder, which may change meanwhile."""
    with suppress(FileNotFoundError), ConfinedFolder(folder) as opened:
        walked = opened.walk(on_error=lambda _path, _error: None)
        return sum(entry.size for _, entry in walked if not entry.is_dir)
    return 0


KEPT_FILE = "kept"
"""New name of the owner file of a folder that stays. Renaming needs no space on a full disk."""

_LOCK_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_BYTES = 10_000


@dataclass(frozen=True, slots=True)
class OwnerFacts:
    """The content of the owner file. `branch` and `commit` are empty until the clone is complete."""

    run: str = ""
    address: str = ""
    branch: str = ""
    commit: str = ""


def address_key(url: str) -> str:
    """Return a file name for a repository's address that does not reveal the address."""
    return hashlib.sha256(os.fsencode(url)).hexdigest()


class Owner:
    """This process's lock on a clone's folder.

    Attributes:
        facts: the content of the owner file when it was opened.
        kept: whether the folder stays.
    """

    def __init__(self, folder: Path, handle: int, facts: OwnerFacts, *, kept: bool) -> None:
        self.folder = folder
        self.facts = facts
        self.kept = kept
        self._handle: int | None = handle

    def complete(self, branch: str, commit: str) -> None:
        """Record that the clone is complete, and what was cloned."""
        if self._handle is not None:
            os.write(self._handle, _line({"branch": branch, "commit": commit}))

    def keep(self) -> None:
        """Mark the folder so that it is never swept. Raise `WorkspaceError` if it cannot be marked."""
        if not self.kept:
            with storage_errors("cannot mark the kept clone"):
                (self.folder / OWNER_FILE).rename(self.folder / KEPT_FILE)
            self.kept = True

    def remove(self) -> None:
        """Remove the folder, then release the lock.

        The owner file is removed last: if the process dies in between, the rest is still recognized as ours.
        """
        try:
            with (
                storage_errors(f"cannot remove the clone in {self.folder}"),
                suppress(FileNotFoundError),
                ConfinedFolder(self.folder) as folder,
            ):
                folder.remove_content(keep=OWNER_FILE)
            remove_folder(self.folder)
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock. It may be called again."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.close(handle)


def new_owned_folder(parent: Path, run: str, address: str) -> Owner:
    """Create a folder that only this user can enter, and lock it. Raise `OSError` if it cannot be created."""
    folder, handle = lock_new_folder(parent)
    try:
        os.write(handle, _line({"run": run, "address": address}))
    except OSError:
        os.close(handle)
        remove_folder(folder)
        raise
    return Owner(folder, handle, OwnerFacts(run, address), kept=False)


def lock_abandoned_folder(folder: Path) -> Owner | None:
    """Lock the folder of a dead process; return None if the process is alive, or the folder is not ours.

    Raises:
        OSError: the folder cannot be read.
    """
    # Opened as a folder first: no link is followed, not even where somebody swaps the path for one.
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(opened).st_uid != os.geteuid():
            return None
        for name in (KEPT_FILE, OWNER_FILE):
            with suppress(FileNotFoundError):
                handle = os.open(name, _LOCK_FLAGS, dir_fd=opened)
                return _owner_of(folder, opened, handle, name)
    finally:
        os.close(opened)
    return None


def _owner_of(folder: Path, opened: int, handle: int, name: str) -> Owner | None:
    try:
        if try_lock(handle) and _is_same_file(name, opened, handle) and _is_same_file(folder, None, opened):
            text = os.read(handle, _MOST_BYTES)
            return Owner(folder, os.dup(handle), _facts(text), kept=name == KEPT_FILE)
        return None
    finally:
        # The copy shares the lock.
        os.close(handle)


def _is_same_file(name: Path | str, folder: int | None, handle: int) -> bool:
    """Return whether the name still refers to the opened file."""
    try:
        return os.path.samestat(os.stat(name, dir_fd=folder, follow_symlinks=False), os.fstat(handle))
    except FileNotFoundError:
        return False


def _line(fields: dict[str, str]) -> bytes:
    return f"{json.dumps(fields)}\n".encode("ascii")


def _facts(text: bytes) -> OwnerFacts:
    """Parse the complete lines of an owner file."""
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
    return OwnerFacts(found.get("run", ""), found.get("address", ""), branch, commit)


# Names by `tempfile.mkdtemp` with our prefixes: that of clones and scratch folders, and `pw-` of the environments (a
# folder for one container's number, one for the socket of a connection).
_CLONE = re.compile(FOLDER_PREFIX + "[a-z0-9_]{8}")
_SMALL = re.compile(r"pw-[a-z0-9_]{8}")
_OURS = re.compile(f"{_CLONE.pattern}|{_SMALL.pattern}")
_SMALL_CONTENT = frozenset({"complaints", "number", "s"})
_PRIVATE_FOLDER = 0o700
# A folder is locked microseconds after it was created, but the machine may sleep in between.
_UNMARKED_SECONDS = 600.0
_UNKNOWN_SECONDS = 7 * 24 * 3600.0
# No environment lives longer without touching its folder.
_SMALL_SECONDS = 2 * 24 * 3600.0


def sweep(
    parent: Path,
    keep: Collection[Path] = (),
    *,
    is_over: Callable[[str], bool] = lambda _run: True,
    clock: Clock | None = None,
) -> list[Path]:
    """Remove the clones of dead processes, and their small leftovers. Several processes may sweep at once.

    A clone is removed only if its owner file is ours and not locked. A folder without that file is removed
    only if it is old and empty: another process may be creating it, or own it. Folders marked by `Clone.keep`
    stay.

    Args:
        parent: where the clones are made.
        keep: folders that stay, because somebody continues with them.
        is_over: returns whether a run is known to be complete. The clones of other runs stay for a week:
            another process may be about to save their content, or one with another state folder.
        clock: determines the age of an unmarked folder; the machine's clock by default.

    Returns:
        The folders that were removed. Others are left for the next time.
    """
    now = (clock or SystemClock()).now().timestamp()
    parent = parent.resolve()
    kept = {os.path.realpath(folder) for folder in keep}
    try:
        with os.scandir(parent) as entries:
            names = sorted(
                entry.name
                for entry in entries
                if _OURS.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False)
            )
    except OSError:
        return []
    removed = []
    for name in names:
        folder = parent / name
        if str(folder) in kept:
            continue
        with suppress(OSError, WorkspaceError):
            is_clone = _CLONE.fullmatch(name) is not None
            if _remove_clone(folder, is_over, now) if is_clone else _remove_small(folder, now):
                removed.append(folder)
    return removed


def find_clone(parent: Path, run: str) -> Path | None:
    """Return the folder of the clone that a dead run made; None if there is none."""
    for folder in sorted(parent.resolve().glob(f"{FOLDER_PREFIX}*")):
        with suppress(OSError):
            owner = lock_abandoned_folder(folder) if _CLONE.fullmatch(folder.name) else None
            if owner is not None:
                owner.release()
                if owner.facts.run == run:
                    return folder
    return None


def _remove_clone(folder: Path, is_over: Callable[[str], bool], now: float) -> bool:
    if os.path.lexists(folder / KEPT_FILE):
        return False
    if not os.path.lexists(folder / OWNER_FILE):
        if not _is_old(folder, now, _UNMARKED_SECONDS):
            return False
        folder.rmdir()  # fails where there is anything in it
        return True
    owner = lock_abandoned_folder(folder)
    if owner is None:
        return False
    run = owner.facts.run
    if owner.kept or (run and not is_over(run) and not _is_old(folder, now, _UNKNOWN_SECONDS)):
        owner.release()
        return False
    owner.remove()
    return True


def _remove_small(folder: Path, now: float) -> bool:
    """Remove an old folder of an environment that contains only files of ours."""
    with ConfinedFolder(folder) as opened:
        found = {entry.name for entry in opened.entries()}
        if not _is_old(folder, now, _SMALL_SECONDS) or not found <= _SMALL_CONTENT:
            return False
        opened.remove_content()
    folder.rmdir()
    return True


def _is_old(folder: Path, now: float, seconds: float) -> bool:
    """Return whether the folder is private, and nothing was added or removed for this time."""
    found = folder.lstat()
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()
    return ours and stat.S_IMODE(found.st_mode) == _PRIVATE_FOLDER and found.st_mtime < now - seconds


# With a file HEAD and one of these, git takes a folder for a bare repository and obeys its configuration
# (`is_git_directory` in https://github.com/git/git/blob/master/setup.c).
_HEAD = "head"
_SIGNS = {"refs", "commondir"}
_DOING = "cannot make the kept clone safe for git"


def disarm(tree: Path) -> None:
    """Remove every `.git` in `tree`, and rename what makes a folder a bare repository.

    Every folder, file or link whose name some file system treats as `.git` is removed. `HEAD` next to other
    parts of a repository becomes `HEAD.disarmed`. Content below 100 nested folders is removed, because it
    cannot be examined.

    Args:
        tree: the files; nothing happens if this is not a folder.
    """
    with storage_errors(_DOING), suppress(FileNotFoundError), ConfinedFolder(tree.parent) as above:
        if above.is_folder(tree.name):
            with above.opened(tree.name) as opened:
                _look(os.dup(opened), 0)


def _look(folder: int, level: int) -> None:
    """Disarm an open folder, and close it."""
    try:
        # Without these rights nothing in it can be seen or moved.
        os.fchmod(folder, stat.S_IMODE(os.fstat(folder).st_mode) | stat.S_IRWXU)
        found = [(entry.name, entry.is_dir) for entry in sorted_entries(folder)]
        names = {folded_name(name) for name, _ in found}
        for name, is_folder in found:
            if is_git_name(name) or (is_folder and level >= MOST_LEVELS):
                remove_at(folder, name)
            elif is_folder:
                _look(enter_to_change(folder, name), level + 1)
            elif folded_name(name) == _HEAD and names & _SIGNS:
                target = f"{name}.disarmed"
                while folded_name(target) in names:
                    target += "-"
                rename_at(folder, name, target)
    finally:
        os.close(folder)
