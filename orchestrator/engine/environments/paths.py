"""The spelling of paths: what a path says before any file system is asked."""

from __future__ import annotations

import os
import re
import unicodedata
from typing import TYPE_CHECKING

from orchestrator.core.errors import PathRefusedError
from orchestrator.core.git_names import is_git_name

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAME_BYTES = 255
"""The longest name of common file systems (ext4, APFS, NTFS in UTF-16 units)."""

MAX_PATH_BYTES = 3_000
"""Leaves room for the root below Linux's limit of 4,096 for a whole path."""

_DRIVE = re.compile(r"[A-Za-z]:")


def split_path(path: str, roots: Sequence[str] = ()) -> tuple[str, ...]:
    """Take a path apart into the names from the root down; the root itself is `()`.

    Args:
        path: relative, or absolute inside one of `roots`; `/` between folders.
        roots: absolute spellings of the root.

    Raises:
        PathRefusedError: the path is empty, leaves the root, names a `.git`, or is spelled in a
            way that means different things on different systems.
    """
    _check_spelling(path)
    names = _normalised(path, inside=not path.startswith("/"))
    if path.startswith("/"):
        names = _below_a_root(path, names, roots)
    if names and _DRIVE.match(names[0]):
        raise PathRefusedError(f"{quoted(path)} is refused: it becomes a path with a drive letter")
    if names and names[0] == "~":
        raise PathRefusedError(
            f"{quoted(path)} is refused: ~ is not expanded; use a path inside the repository"
        )
    for name in names:
        if is_git_name(name):
            raise PathRefusedError(
                f"{quoted(path)} is refused: tools do not enter .git, however it is spelled"
            )
        if len(os.fsencode(name)) > MAX_NAME_BYTES:
            raise PathRefusedError(
                f"{quoted(path)} is refused: a name in it is over {MAX_NAME_BYTES} bytes long"
            )
    if sum(len(os.fsencode(name)) + 1 for name in names) > MAX_PATH_BYTES:
        raise PathRefusedError(f"{quoted(path)} is refused: it is over {MAX_PATH_BYTES:,} bytes long")
    return names


def same_elsewhere(name: str) -> str:
    """A key that is equal for names which a case-insensitive, normalising file system takes for one."""
    folded = unicodedata.normalize("NFD", name).casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", folded).casefold())


def shown(name: str) -> str:
    """The name as printable text: bytes that are not UTF-8 and control characters are escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def quoted(path: str) -> str:
    """A model's path in a message: on one line, and not too long."""
    text = ascii(path)[1:-1] if not path.isprintable() else path
    return text if len(text) <= MAX_NAME_BYTES else f"{text[:100]}...{text[-100:]}"


def _check_spelling(path: str) -> None:
    if not path.strip():
        raise PathRefusedError("the path is empty; name a file or folder, or . for the whole repository")
    if "\0" in path:
        raise PathRefusedError(f"{quoted(path)} is refused: it has a NUL character")
    if any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in path):
        raise PathRefusedError(
            f"{quoted(path)} is refused: it has control characters or is not valid Unicode"
        )
    if "\\" in path or _DRIVE.match(path):
        raise PathRefusedError(
            f"{quoted(path)} is refused: write / between folders, no backslash and no drive letter"
        )


def _normalised(path: str, *, inside: bool) -> tuple[str, ...]:
    names: list[str] = []
    for name in path.split("/"):
        if name in {"", "."}:
            continue
        if name != "..":
            names.append(name)
        elif names:
            names.pop()
        elif inside:
            raise PathRefusedError(
                f"{quoted(path)} is refused: it leaves the repository; use a path inside it"
            )
    return tuple(names)


def _below_a_root(path: str, names: tuple[str, ...], roots: Sequence[str]) -> tuple[str, ...]:
    for root in roots:
        above = _normalised(root, inside=False)
        if names[: len(above)] == above:
            return names[len(above) :]
    raise PathRefusedError(
        f"{quoted(path)} is refused: it is outside the repository; use a path relative to its root"
    )
