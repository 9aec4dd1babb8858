"""What a tool is told when the file system, or a rule of the tree, says no."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError

if TYPE_CHECKING:
    from collections.abc import Iterator

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def kind_of(mode: int) -> str:
    """What is at a path, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def link_refused(label: str) -> PathRefusedError:
    """For a symbolic link anywhere on the way."""
    return PathRefusedError(f"{label} is refused: it is a symbolic link, and links are not followed")


def other_repository(label: str) -> PathRefusedError:
    """For a path inside a submodule or a nested clone."""
    return PathRefusedError(
        f"{label} is refused: it is inside another repository (a submodule or a nested clone)"
    )


def require_file(label: str, mode: int) -> None:
    """Refuse everything that is not a regular file.

    Raises:
        PathRefusedError: it is a symbolic link.
        FileUnreadableError: it is something else.
    """
    if stat.S_ISLNK(mode):
        raise link_refused(label)
    if not stat.S_ISREG(mode):
        raise FileUnreadableError(f"{label} is {kind_of(mode)}, not a regular file")


@contextmanager
def explained(label: str, verb: str) -> Iterator[None]:
    """Turn the operating system's refusals into sentences."""
    try:
        yield
    except FileNotFoundError:
        raise FileMissingError(f"{label} does not exist") from None
    except OSError as error:
        match error.errno:
            case errno.ELOOP:
                raise link_refused(label) from None
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                raise ToolError(f"{label} was not {verb}: no space is left on the disk") from None
            case errno.EACCES | errno.EPERM:
                raise FileUnreadableError(f"{label} cannot be {verb}: no permission") from None
            case errno.EROFS:
                raise ToolError(f"{label} was not {verb}: the disk is read-only") from None
            case _:
                raise FileUnreadableError(
                    f"{label} cannot be {verb}: {os.strerror(error.errno or 0)}"
                ) from None


def too_large(label: str, size: int, max_bytes: int) -> FileUnreadableError:
    """For a file over the limit of what wants to read it."""
    return FileUnreadableError(
        f"{label} is {size:,} bytes, over the limit of {max_bytes:,} for this: use grep, or read a part of it"
    )
