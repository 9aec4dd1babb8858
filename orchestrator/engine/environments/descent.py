"""One step down from an open folder to a name in it, and what is refused on the way."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from orchestrator.core.errors import FileUnreadableError, PathRefusedError, ToolError
from orchestrator.core.git_names import is_git_name
from orchestrator.engine.environments.paths import same_elsewhere, shown
from orchestrator.engine.environments.refusals import explained, kind_of, link_refused, other_repository

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def enter(folder: int, name: str, label: str, *, create: bool) -> int:
    """Open a folder in an open one, made if there is none and `create` says so; never through a link."""
    with explained(label, "opened"):
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except FileNotFoundError:
            if not create:
                raise
        except OSError as error:
            if error.errno in {errno.ELOOP, errno.ENOTDIR}:
                raise _not_a_folder(folder, name, label) from None
            raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        try:
            return os.open(name, _FOLDER, dir_fd=folder)
        except (FileNotFoundError, NotADirectoryError):
            raise _not_a_folder(folder, name, label) from None


def _not_a_folder(folder: int, name: str, label: str) -> ToolError:
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return ToolError(f"{label} was changed by something else at the same time; try again")
    if stat.S_ISLNK(mode):
        return link_refused(label)
    return FileUnreadableError(f"{label} is not a folder")


def check_neighbours(folder: int, above: tuple[str, ...], name: str) -> None:
    """Refuse a name in another repository, and one that some file systems cannot tell from an existing one."""
    label = shown("/".join((*above, name)))
    with explained(shown("/".join(above)) or ".", "listed"):
        existing = os.listdir(folder)
    if above and any(is_git_name(neighbour) for neighbour in existing):
        raise other_repository(label)
    if name in existing:
        return
    key = same_elsewhere(name)
    for neighbour in existing:
        if same_elsewhere(neighbour) == key:
            spelled = shown("/".join((*above, neighbour)))
            raise PathRefusedError(
                f"{label} is refused: {spelled} exists and differs only in case or Unicode form; use it"
            )


def refuse_nested_clone(folder: int, above: tuple[str, ...], label: str) -> None:
    """Refuse a folder that is another repository; the root is none."""
    if above and any(is_git_name(neighbour) for neighbour in os.listdir(folder)):
        raise other_repository(label)


def mode_to_keep(folder: int, name: str, label: str) -> int | None:
    """The permissions of the file that is to be replaced, or None where there is none."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise link_refused(label)
    if not stat.S_ISREG(mode):
        raise ToolError(f"{label} is {kind_of(mode)}; it is not replaced")
    return stat.S_IMODE(mode) & 0o777
