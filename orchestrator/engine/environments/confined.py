"""The one way from a path to a file: down from the root by directory descriptors, never through a link.

A name is opened only relative to the open folder above it, and only if it is no symbolic
link, so nothing that is swapped meanwhile can lead outside.
"""

from __future__ import annotations

import itertools
import os
import stat
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.core.git_names import is_git_name
from orchestrator.engine.environments.descent import (
    check_neighbours,
    enter,
    mode_to_keep,
    refuse_nested_clone,
)
from orchestrator.engine.environments.kernel_files import holds_kernel_files, kernel_devices
from orchestrator.engine.environments.paths import quoted, shown, split_path
from orchestrator.engine.environments.refusals import (
    explained,
    link_refused,
    other_repository,
    require_file,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from pathlib import Path

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEFAULT_MODE = 0o666  # the process's umask takes its part away
_CHUNK_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in a folder, as `lstat` sees it. `name` is as on disk, undecodable bytes as surrogates."""

    name: str
    mode: int
    size: int
    modified_ns: int

    @property
    def is_dir(self) -> bool:
        """Whether it is a real folder, not a link to one."""
        return stat.S_ISDIR(self.mode)

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file, not a link to one."""
        return stat.S_ISREG(self.mode)


class ConfinedTree:
    """The files below one folder. Every method refuses a path that leaves it, enters a `.git` or
    passes through a symbolic link, with `PathRefusedError`.

    Args:
        root: the folder; it is opened now and followed even when it is renamed.
        submodules: relative paths that belong to another repository; nothing is written there.

    Raises:
        FileMissingError, FileUnreadableError: there is no folder at `root`.
        PathRefusedError: `root` is in `/proc`, `/sys` or `/dev`, or above them.
    """  # noqa: D205  the summary needs two lines

    def __init__(self, root: Path, *, submodules: Collection[str] = ()) -> None:
        self._roots = (os.path.abspath(root), os.path.realpath(root))  # noqa: PTH100  lexical on purpose: links stay
        with explained(str(root), "opened"):
            self._root_fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._kernels = kernel_devices()
        if holds_kernel_files(self._roots[1]) or os.fstat(self._root_fd).st_dev in self._kernels:
            self.close()
            raise PathRefusedError(f"{quoted(str(root))} is refused: it shows the system, not a project")
        self._submodules = frozenset(split_path(path) for path in submodules)
        self._numbers = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the root. Closing twice is no error; any other use afterwards is."""
        if self._root_fd >= 0:
            descriptor, self._root_fd = self._root_fd, -1  # before another thread can be given its number
            os.close(descriptor)

    @property
    def root(self) -> str:
        """The folder's real path, as it was when it was opened."""
        return self._roots[1]

    def split(self, path: str) -> tuple[str, ...]:
        """The names on the way from the root to the path, by spelling alone."""
        return split_path(path, self._roots)

    def relative(self, path: str) -> str:
        """The path's normal form: relative, `/` between names, `.` for the root."""
        return "/".join(self.split(path)) or "."

    def stat(self, path: str) -> Entry:
        """What is at the path.

        Raises:
            FileMissingError: nothing.
            PathRefusedError: a symbolic link, or see the class.
        """
        *above, name = self.split(path) or (".",)
        label = quoted(path)
        with self._folder(tuple(above)) as folder, explained(label, "looked at"):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            raise link_refused(label)
        return Entry(name, found.st_mode, found.st_size, found.st_mtime_ns)

    def exists(self, path: str) -> bool:
        """Whether a regular file is there."""
        try:
            return self.stat(path).is_file
        except (FileMissingError, FileUnreadableError):
            return False

    def read(self, path: str, *, max_bytes: int) -> bytes:
        """A regular file's whole content.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: not a regular file, over `max_bytes`, or no permission.
        """
        names = self.split(path)
        if not names:
            raise FileUnreadableError(f"{quoted(path)} is a folder, not a regular file")
        return self.read_names(names, max_bytes=max_bytes)

    def read_names(self, names: tuple[str, ...], *, max_bytes: int) -> bytes:
        """`read`, for names as `split` or `entries` gave them."""
        label = shown("/".join(names))
        with self._folder(names[:-1]) as folder, explained(label, "read"):
            require_file(label, os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode)
            descriptor = os.open(names[-1], _READ, dir_fd=folder)
            with open(descriptor, "rb") as file:  # noqa: PTH123  a descriptor, not a path
                found = os.fstat(descriptor)
                require_file(label, found.st_mode)
                self._require_disk(label, found)
                content = file.read(found.st_size + 1) if found.st_size <= max_bytes else b""
        size = max(found.st_size, len(content))
        if size > max_bytes:
            raise FileUnreadableError(
                f"{label} is {size:,} bytes, over the limit of {max_bytes:,} for this: use grep, or read a part of it"
            )
        return content

    def write(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        """Create or replace a file, and the folders above it; an existing file's mode is kept.

        The content goes to a new file beside the old one, which then takes its name: a crash
        leaves the old or the new file, and another name of the old file (a hard link) keeps the
        old content. There is no fsync: a clone that a power cut takes can be cloned again.

        Args:
            path: the file.
            content: all of it.
            mode_of: a file whose mode it takes instead.

        Raises:
            FileMissingError: there is nothing at `mode_of`.
            PathRefusedError: see the class; also inside another repository, and where the name
                differs from an existing one only in case or Unicode form.
            ToolError: no permission, no space, a folder or something else is in the way.
        """
        names = self.split(path)
        label = quoted(path)
        if not names or path.endswith("/"):
            raise ToolError(f"{label} names a folder; name a file to write")
        self._refuse_submodules(names, label)
        taken = None if mode_of is None else stat.S_IMODE(self.stat(mode_of).mode) & 0o777
        with self._folder(names[:-1], create=True) as folder:
            check_neighbours(folder, names[:-1], names[-1])
            with explained(label, "written"):
                kept = mode_to_keep(folder, names[-1], label)
                self._replace(folder, names[-1], content, kept if taken is None else taken)

    def remove(self, path: str) -> None:
        """Remove a regular file; another name of it (a hard link) stays, and so does the folder.

        Raises:
            PathRefusedError: see the class; also inside another repository.
            FileMissingError: nothing is there.
            FileUnreadableError: not a regular file, or no permission.
        """
        names = self.split(path)
        label = quoted(path)
        if not names or path.endswith("/"):
            raise FileUnreadableError(f"{label} names a folder; name a file to remove")
        self._refuse_submodules(names, label)
        with self._folder(names[:-1], own=True) as folder, explained(label, "removed"):
            refuse_nested_clone(folder, names[:-1], label)
            require_file(label, os.stat(names[-1], dir_fd=folder, follow_symlinks=False).st_mode)
            os.unlink(names[-1], dir_fd=folder)

    def entries(self, names: tuple[str, ...]) -> list[Entry]:
        """What is directly in a folder, sorted by name; every spelling of `.git` is left out.

        Args:
            names: the way to the folder, as `split` or earlier entries gave it.

        Raises:
            FileMissingError: nothing is there.
            FileUnreadableError: it is not a folder, or no permission.
        """
        label = shown("/".join(names)) or "."
        found = []
        with self._folder(names) as folder, explained(label, "listed"), os.scandir(folder) as items:
            for item in items:
                if is_git_name(item.name):
                    continue
                with suppress(FileNotFoundError):  # removed since it was listed
                    seen = item.stat(follow_symlinks=False)
                    found.append(Entry(item.name, seen.st_mode, seen.st_size, seen.st_mtime_ns))
        return sorted(found, key=lambda entry: os.fsencode(entry.name))

    def _require_disk(self, label: str, found: os.stat_result) -> None:
        """Refuse what another file system shows that was mounted inside: processes, devices, the kernel."""
        if found.st_dev in self._kernels:
            raise PathRefusedError(f"{label} is refused: it is on a file system of processes or devices")

    def _refuse_submodules(self, names: tuple[str, ...], label: str) -> None:
        if any(names[: len(inner)] == inner for inner in self._submodules):
            raise other_repository(label)

    @contextmanager
    def _folder(self, names: tuple[str, ...], *, create: bool = False, own: bool = False) -> Iterator[int]:
        """An open descriptor of the folder, reached name by name from the root; `own` refuses nested clones."""
        if any(name in {"", ".", ".."} or "/" in name or is_git_name(name) for name in names):
            raise PathRefusedError(
                f"{shown('/'.join(names))} is refused: it is not a plain path below the root"
            )
        if self._root_fd < 0:
            raise ToolError("the environment was closed, so nothing is done in it any more")
        with explained("the repository", "opened"):
            folder = os.dup(self._root_fd)
        try:
            for depth, name in enumerate(names):
                if create:
                    check_neighbours(folder, names[:depth], name)
                if own:
                    refuse_nested_clone(folder, names[:depth], shown("/".join(names)))
                label = shown("/".join(names[: depth + 1]))
                inner = enter(folder, name, label, create=create)
                folder, outer = inner, folder
                os.close(outer)
                self._require_disk(label, os.fstat(folder))
            yield folder
        finally:
            os.close(folder)

    def _replace(self, folder: int, name: str, content: bytes, mode: int | None) -> None:
        fresh = f".pullwright-{os.getpid()}-{next(self._numbers)}"
        descriptor = os.open(fresh, _CREATE, _DEFAULT_MODE, dir_fd=folder)
        try:
            with open(descriptor, "wb") as file:  # noqa: PTH123  a descriptor, not a path
                file.writelines(
                    content[start : start + _CHUNK_BYTES] for start in range(0, len(content), _CHUNK_BYTES)
                )
                if mode is not None:
                    os.fchmod(descriptor, mode)
            os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):  # it has the other name now, unless something failed
                os.unlink(fresh, dir_fd=folder)
