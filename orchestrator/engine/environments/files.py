"""The files of one folder: which paths are allowed, and the only way from a path to a file.

A file is reached from the root by directory descriptors. Each name is opened relative to the open folder
above it, and only if it is no symbolic link. So a folder that is replaced by a link meanwhile cannot lead
outside.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import unicodedata
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from orchestrator.core.confined import (
    KERNEL_FOLDERS,
    ConfinedFolder,
    Entry,
    UnsuitableFileError,
    enter,
    entry_at,
    file_kind,
    kernel_devices,
    names_in,
    open_regular,
    replace_at,
    require_regular,
    sorted_entries,
)
from orchestrator.core.errors import (
    FileMissingError,
    FilePermissionError,
    FileTooLargeError,
    FileUnreadableError,
    PathRefusedError,
    ToolError,
)
from orchestrator.core.files import is_full
from orchestrator.core.repositories import is_git_name

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

_MAX_NAME_BYTES = 255
"""The longest name of common file systems (ext4, APFS, NTFS in UTF-16 units)."""

_MAX_PATH_BYTES = 3_000
"""The longest relative path. It leaves room for the root below Linux's limit of 4,096 for a whole path."""

_DRIVE = re.compile(r"[A-Za-z]:")


def split_path(path: str, roots: Sequence[str] = ()) -> tuple[str, ...]:
    """Split a path, by its spelling alone, into the names from the root down; the root itself is `()`.

    Args:
        path: relative, or absolute inside one of `roots`; `/` between folders.
        roots: absolute spellings of the root.

    Raises:
        PathRefusedError: the path is empty, leaves the root, names a `.git`, or means different files on
            different systems.
    """
    _check_spelling(path)
    names = _normalised(path, inside=not path.startswith("/"))
    if path.startswith("/"):
        names = _below_a_root(path, names, roots)
    if names and _DRIVE.match(names[0]):
        raise _refused(path, "it becomes a path with a drive letter")
    if names and names[0] == "~":
        raise _refused(path, "~ is not expanded; use a path inside the repository")
    for name in names:
        if len(os.fsencode(name)) > _MAX_NAME_BYTES:
            raise _refused(path, f"a name in it is over {_MAX_NAME_BYTES} bytes long")
        if is_git_name(name):
            raise _refused(path, "tools do not enter .git, however it is spelled")
    if sum(len(os.fsencode(name)) + 1 for name in names) > _MAX_PATH_BYTES:
        raise _refused(path, f"it is over {_MAX_PATH_BYTES:,} bytes long")
    return names


def _refused(path: str, why: str) -> PathRefusedError:
    return PathRefusedError(f"{quoted(path)} is refused: {why}")


def collision_key(name: str) -> str:
    """Return a key that is equal for names that differ only in case or Unicode form: some file systems mix them up."""
    folded = unicodedata.normalize("NFD", name).casefold()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", folded).casefold())


def shown(name: str) -> str:
    """Return the name as printable text: bytes that are not UTF-8 and control characters are escaped."""
    text = os.fsencode(name).decode("utf-8", "backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def quoted(path: str) -> str:
    """Return a path from the model for use in a message: on one line, and shortened."""
    text = ascii(path)[1:-1] if not path.isprintable() else path
    return text if len(text) <= _MAX_NAME_BYTES else f"{text[:100]}...{text[-100:]}"


def _check_spelling(path: str) -> None:
    if not path.strip():
        raise PathRefusedError("the path is empty; name a file or folder, or . for the whole repository")
    if "\0" in path:
        raise _refused(path, "it has a NUL character")
    if any(unicodedata.category(char) in {"Cc", "Cs", "Zl", "Zp"} for char in path):
        raise _refused(path, "it has control characters or is not valid Unicode")
    if "\\" in path or _DRIVE.match(path):
        raise _refused(path, "write / between folders, no backslash and no drive letter")


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
            raise _refused(path, "it leaves the repository; use a path inside it")
    return tuple(names)


def _below_a_root(path: str, names: tuple[str, ...], roots: Sequence[str]) -> tuple[str, ...]:
    for root in roots:
        above = _normalised(root, inside=False)
        if names[: len(above)] == above:
            return names[len(above) :]
    raise _refused(path, "it is outside the repository; use a path relative to its root")


def is_above(upper: str, lower: str) -> bool:
    """Return whether a path is the other one or a folder above it; both absolute and normal."""
    return lower == upper or lower.startswith(upper.rstrip("/") + "/")


def _link_refused(label: str) -> PathRefusedError:
    return PathRefusedError(f"{label} is refused: it is a symbolic link, and links are not followed")


def _other_repository(label: str) -> PathRefusedError:
    return PathRefusedError(
        f"{label} is refused: it is inside another repository (a submodule or a nested clone)"
    )


@contextmanager
def _os_errors(label: str, verb: str) -> Iterator[None]:
    """Convert errors of the operating system into tool errors with a message."""
    try:
        yield
    except FileNotFoundError:
        raise FileMissingError(f"{label} does not exist") from None
    except UnsuitableFileError as error:
        if error.errno == errno.ELOOP:
            raise _link_refused(label) from None
        kind = ToolError if error.errno == errno.EAGAIN else FileUnreadableError
        raise kind(f"{label} {error.strerror}") from None
    except OSError as error:
        if is_full(error):
            raise ToolError(f"{label} was not {verb}: no space is left on the disk") from None
        match error.errno:
            case errno.ELOOP:
                raise _link_refused(label) from None
            case errno.EACCES | errno.EPERM:
                raise FilePermissionError(f"{label} cannot be {verb}: no permission") from None
            case errno.EROFS:
                raise ToolError(f"{label} was not {verb}: the disk is read-only") from None
            case _:
                raise FileUnreadableError(
                    f"{label} cannot be {verb}: {os.strerror(error.errno or 0)}"
                ) from None


def _entered(folder: int, name: str, label: str, *, create: bool = False) -> int:
    """Open a folder inside an open folder, never through a link. `create` creates a missing folder."""
    with _os_errors(label, "opened"):
        return enter(folder, name, label, create=_NEW_FOLDER_MODE if create else None)


def _check_neighbours(folder: int, above: tuple[str, ...], name: str) -> None:
    """Refuse a name in another repository, and a name that some file systems treat as an existing one."""
    label = shown("/".join((*above, name)))
    with _os_errors(shown("/".join(above)) or ".", "listed"):
        existing = names_in(folder)
    if above and any(is_git_name(neighbour) for neighbour in existing):
        raise _other_repository(label)
    if name in existing:
        return
    key = collision_key(name)
    for neighbour in existing:
        if collision_key(neighbour) == key:
            spelled = shown("/".join((*above, neighbour)))
            raise PathRefusedError(
                f"{label} is refused: {spelled} exists and differs only in case or Unicode form; use it"
            )


def _refuse_nested_clone(folder: int, above: tuple[str, ...], label: str) -> None:
    """Refuse a folder that is another repository. The root itself is allowed."""
    if above and any(is_git_name(neighbour) for neighbour in names_in(folder)):
        raise _other_repository(label)


def _mode_to_keep(folder: int, name: str, label: str) -> int | None:
    """Return the permissions of the file that is replaced, or None if there is no such file."""
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(mode):
        raise _link_refused(label)
    if not stat.S_ISREG(mode):
        raise ToolError(f"{label} is {file_kind(mode)}; it is not replaced")
    return stat.S_IMODE(mode) & 0o777


_NEW_FOLDER_MODE = 0o777  # the process's umask is applied to it
POINTER_BYTES = 4_096
"""The part that is read of a `.git` that is a file."""


class ConfinedTree:
    """The files below one folder.

    Every method raises `PathRefusedError` for a path that leaves the folder, enters a `.git` or passes through a
    symbolic link. Methods raise the errors of `ExecutionEnvironment`.

    Args:
        root: the folder; it is opened now, and stays the same one even if it is renamed.
        submodules: relative paths that belong to another repository; no file is written there.

    Raises:
        FileMissingError, FileUnreadableError: there is no folder at `root`.
        PathRefusedError: `root` is in `/proc`, `/sys` or `/dev`, or above them.
    """

    def __init__(self, root: Path, *, submodules: Collection[str] = ()) -> None:
        self._roots = (os.path.abspath(root), os.path.realpath(root))
        with _os_errors(str(root), "opened"):
            self._folder_of_root = ConfinedFolder(root)
        self._kernels = kernel_devices()
        is_above_kernel = any(is_above(self._roots[1], folder) for folder in KERNEL_FOLDERS)
        if is_above_kernel or self._folder_of_root.status.st_dev in self._kernels:
            self.close()
            raise _refused(str(root), "it belongs to the system, not to a project")
        self._submodules = frozenset(split_path(path) for path in submodules)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the root. May be called again; any other use afterwards is an error."""
        self._folder_of_root.close()

    @property
    def root(self) -> str:
        """The folder's real path, as it was when the folder was opened."""
        return self._roots[1]

    def split(self, path: str) -> tuple[str, ...]:
        """See `split_path`."""
        return split_path(path, self._roots)

    def relative(self, path: str) -> str:
        """Return the path's normal form: relative, `/` between names, `.` for the root."""
        return "/".join(self.split(path)) or "."

    def stat(self, path: str) -> Entry:
        """Return the entry at the path."""
        *above, name = self.split(path) or (".",)
        label = quoted(path)
        with self._folder(tuple(above)) as folder, _os_errors(label, "looked at"):
            found = entry_at(folder, name)
        if found.is_link:
            raise _link_refused(label)
        return found

    def exists(self, path: str) -> bool:
        """Return whether the path is a regular file."""
        try:
            return self.stat(path).is_file
        except (FileMissingError, FileUnreadableError):
            return False

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """See `ExecutionEnvironment.read_file`."""
        names = self.split(path)
        if not names:
            raise FileUnreadableError(f"{quoted(path)} is a folder, not a regular file")
        return self.read_names(names, max_bytes=max_bytes)

    def read_names(self, names: tuple[str, ...], *, max_bytes: int) -> bytes:
        """Return a file's content like `read`, for names that `split` or `entries` returned."""
        label = shown("/".join(names))
        with (
            self._folder(names[:-1]) as folder,
            _os_errors(label, "read"),
            os.fdopen(open_regular(folder, names[-1]), "rb") as file,
        ):
            found = os.fstat(file.fileno())
            self._require_disk(label, found)
            content = file.read(found.st_size + 1) if found.st_size <= max_bytes else b""
        size = max(found.st_size, len(content))
        if size > max_bytes:
            raise FileTooLargeError(
                f"{label} is {size:,} bytes, over the limit of {max_bytes:,} for this: use grep, or read a part of it"
            )
        return content

    def write(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """See `ExecutionEnvironment.write_file`.

        The content goes to a new file beside the old one, which is then renamed. A crash leaves the old or
        the new file, and another name of the old file (a hard link) keeps the old content. There is no fsync:
        a clone that is lost in a power cut can be cloned again.

        Raises:
            PathRefusedError: also inside another repository, and where the name differs from an existing one
                only in case or Unicode form.
        """
        names = self.split(path)
        label = quoted(path)
        if not names or path.endswith("/"):
            raise ToolError(f"{label} names a folder; name a file to write")
        self._refuse_submodules(names, label)
        replacement_mode = None if mode_of is None else stat.S_IMODE(self.stat(mode_of).mode) & 0o777
        with self._folder(names[:-1], create=True) as folder:
            _check_neighbours(folder, names[:-1], names[-1])
            with _os_errors(label, "written"):
                kept_mode = _mode_to_keep(folder, names[-1], label)
                mode = kept_mode if replacement_mode is None else replacement_mode
                replace_at(folder, names[-1], content, mode)

    def remove(self, path: str) -> None:
        """See `ExecutionEnvironment.remove_file`. Other names (hard links) stay; in another repository it is refused."""
        names = self.split(path)
        label = quoted(path)
        if not names or path.endswith("/"):
            raise FileUnreadableError(f"{label} names a folder; name a file to remove")
        self._refuse_submodules(names, label)
        with self._folder(names[:-1], refuse_nested=True) as folder, _os_errors(label, "removed"):
            _refuse_nested_clone(folder, names[:-1], label)
            require_regular(entry_at(folder, names[-1]).mode, label)
            os.unlink(names[-1], dir_fd=folder)

    def entries(self, names: tuple[str, ...]) -> list[Entry]:
        """Return the entries directly in a folder, sorted by name, without any spelling of `.git`."""
        label = shown("/".join(names)) or "."
        with self._folder(names) as folder, _os_errors(label, "listed"):
            return [entry for entry in sorted_entries(folder) if not is_git_name(entry.name)]

    def _require_disk(self, label: str, found: os.stat_result) -> None:
        """Refuse a file on a file system that is not on a disk, such as `/proc` mounted inside."""
        if found.st_dev in self._kernels:
            raise PathRefusedError(f"{label} is refused: it is on a file system of processes or devices")

    def _refuse_submodules(self, names: tuple[str, ...], label: str) -> None:
        if any(names[: len(inner)] == inner for inner in self._submodules):
            raise _other_repository(label)

    @contextmanager
    def _folder(
        self, names: tuple[str, ...], *, create: bool = False, refuse_nested: bool = False
    ) -> Iterator[int]:
        """Open a folder, name by name from the root, and yield its descriptor; `refuse_nested` refuses nested clones."""
        if any(name in {"", ".", ".."} or "/" in name or is_git_name(name) for name in names):
            raise PathRefusedError(
                f"{shown('/'.join(names))} is refused: it is not a plain path below the root"
            )
        try:
            with _os_errors("the repository", "opened"), self._folder_of_root.opened() as root:
                folder = os.dup(root)
        except ToolError:
            if self._folder_of_root.is_open:
                raise
            raise ToolError("the environment was closed, so it cannot be used any more") from None
        try:
            for depth, name in enumerate(names):
                if create:
                    _check_neighbours(folder, names[:depth], name)
                if refuse_nested:
                    _refuse_nested_clone(folder, names[:depth], shown("/".join(names)))
                label = shown("/".join(names[: depth + 1]))
                inner = _entered(folder, name, label, create=create)
                folder, outer = inner, folder
                os.close(outer)
                self._require_disk(label, os.fstat(folder))
            yield folder
        finally:
            os.close(folder)
