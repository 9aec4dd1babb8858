"""The host's only way to what is in a folder where somebody else may write.

Somebody else is a sandbox, a model, a test, a server, or a repository. Everything is reached from an open folder by
descriptors: each name is opened relative to the open folder above it, only if it is no symbolic link, and without
waiting. So a link, a named pipe, a device, an endless file, or a folder that is replaced by a link meanwhile can
neither lead outside nor stop the program. Paths are relative, with `/` between names, `""` for the folder itself, and
bytes that are not UTF-8 as surrogates.

Every method raises `OSError`; what is there but is refused is an `UnsuitableFileError`.
"""

from __future__ import annotations

import errno
import hashlib
import itertools
import operator
import os
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE_MODE = 0o666  # the process's umask is applied to it
_PRIVATE = 0o700
_CHUNK_BYTES = 1_048_576

MOST_LEVELS: Final = 100
"""The deepest nesting that is walked. Each level holds an open folder; systems let a process have at least 256."""
MOST_ENTRIES: Final = 1_000_000
"""Entries of one walk, of which some are held at once."""
MOST_LISTED: Final = 200_000
"""Entries of one folder, which are held at once: about 150 MB."""
MOST_DIGEST_BYTES: Final = 4 << 30
_BLOCK_BYTES = 512  # of `st_blocks`: inode(7)
_MOST_HOLE_BYTES = 1 << 20
_REMOVED_AT_ONCE = 10_000
_MOST_REFILLED = 1_000

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}
_IS_LINK = "is a symbolic link, and links are not followed"

# Names: the kernel's Documentation/filesystems
_KERNEL_TYPES = frozenset(
    {"binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs"}
    | {"mqueue", "nsfs", "proc", "pstore", "securityfs", "selinuxfs", "sysfs", "tracefs"}
)
KERNEL_FOLDERS: Final = ("/proc", "/sys", "/dev")
"""The folders of file systems without a disk: processes, devices and settings of the kernel."""


class UnsuitableFileError(OSError):
    """What is at a path is refused. `strerror` completes a sentence that begins with the path: `is a named pipe, …`."""


class Entry(NamedTuple):
    """What is at a path, as `lstat` reports it. `name` is as on disk, undecodable bytes as surrogates."""

    name: str
    status: os.stat_result

    @property
    def mode(self) -> int:
        """The kind and the permissions."""
        return self.status.st_mode

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.status.st_size

    @property
    def modified_ns(self) -> int:
        """The time of the last change of the content."""
        return self.status.st_mtime_ns

    @property
    def is_dir(self) -> bool:
        """Whether the entry is a real folder, not a link to one."""
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        """Whether the entry is a regular file, not a link to one."""
        return stat.S_ISREG(self.mode)

    @property
    def is_link(self) -> bool:
        """Whether the entry is a symbolic link."""
        return stat.S_ISLNK(self.mode)

    @property
    def kind(self) -> str:
        """The kind in words, for a message."""
        if self.is_file:
            return "a regular file"
        return "a symbolic link" if self.is_link else file_kind(self.mode)


def file_kind(mode: int) -> str:
    """Return the kind of a file that is neither regular nor a link, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "something else")


def kernel_devices() -> frozenset[int]:
    """Return the device numbers (`st_dev`) of all mounted file systems without a disk, such as `/proc`."""
    found = set()
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").splitlines():
            before, _, after = line.partition(" - ")
            if after.split(" ", 1)[0] in _KERNEL_TYPES:
                major, _, minor = before.split(" ", 3)[2].partition(":")
                found.add(os.makedev(int(major), int(minor)))
    disk = Path("/").stat().st_dev
    for folder in KERNEL_FOLDERS:
        with suppress(OSError):
            device = Path(folder).stat().st_dev
            found |= {device} - {disk}
    return frozenset(found)


class ConfinedFolder:
    """An open folder where somebody else may write.

    Args:
        path: the folder. It is opened now and stays the same one even if it is renamed. Links on the way to it are
            followed, so nobody else may write in the folders above it; use `folder` for one further down.

        handle: the open folder, which is closed with this one; by default the folder at the path is opened.

    Raises:
        OSError: there is no folder at the path.
    """

    def __init__(self, path: Path | str, handle: int | None = None) -> None:
        self.path = Path(os.path.realpath(path)) if handle is None else Path(path)
        if handle is None:
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._handles = [handle]
        """The open folder, or nothing: only one thread can take it out to close it."""
        self._device = os.fstat(handle).st_dev

    @classmethod
    def made(cls, path: Path) -> Self:
        """Create a missing folder, private to this user, and open it; see the constructor."""
        path.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        return cls(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_open(self) -> bool:
        """Whether it was not closed yet."""
        return bool(self._handles)

    @property
    def status(self) -> os.stat_result:
        """The folder itself."""
        with self.opened() as folder:
            return os.fstat(folder)

    def close(self) -> None:
        """Close the folder. May be called again; any other use afterwards is an error.

        Another thread may be using it. What that thread has begun goes on in the same folder.
        """
        with suppress(IndexError):
            os.close(self._handles.pop())

    # What is there.

    def stat(self, path: str) -> Entry:
        """Return what is at the path, a link too. Raise `FileNotFoundError` if there is nothing."""
        with self.above(path) as (folder, name):
            return entry_at(folder, name)

    def find(self, path: str) -> Entry | None:
        """Return what is at the path; None if there is nothing, or it cannot be reached without a link."""
        try:
            return self.stat(path)
        except OSError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether something is at the path, a link too."""
        return self.find(path) is not None

    def is_file(self, path: str) -> bool:
        """Return whether a regular file is at the path."""
        found = self.find(path)
        return found is not None and found.is_file

    def is_folder(self, path: str) -> bool:
        """Return whether a folder is at the path."""
        found = self.find(path)
        return found is not None and found.is_dir

    def link_target(self, path: str) -> str:
        """Return where a symbolic link points."""
        with self.above(path) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def entries(self, path: str = "") -> list[Entry]:
        """Return what is directly in a folder, sorted by name. More than `MOST_LISTED` are an error."""
        with self.opened(path) as folder:
            return sorted_entries(folder, path)

    def walk(
        self,
        path: str = "",
        *,
        enters: Callable[[str, Entry], bool] = lambda _path, _entry: True,
        on_error: Callable[[str, OSError], None] | None = None,
    ) -> Iterator[tuple[str, Entry]]:
        """Yield everything below a folder with its path relative to this folder: a folder first, then its content.

        Args:
            enters: called with each folder; whether its content is yielded, too.
            on_error: called for each folder that cannot be listed, was removed meanwhile, or is nested deeper than
                `MOST_LEVELS`. By default the error is raised.

        Raises:
            OSError: the first folder cannot be listed, or there are more than `MOST_ENTRIES` entries.
        """
        with self.opened(path) as first:
            listed = sorted_entries(first, path)
            known = len(listed)
            levels = [("/".join(split(path)), os.dup(first), iter(listed))]
            try:
                while levels:
                    above, folder, waiting = levels[-1]
                    prefix = f"{above}/" if above else ""
                    for entry in waiting:
                        below = prefix + entry.name
                        yield below, entry
                        if stat.S_ISDIR(entry.status.st_mode) and enters(below, entry):
                            break
                    else:
                        levels.pop()
                        os.close(folder)
                        continue
                    try:
                        inner, listed = _level(len(levels), below, folder, entry.name)
                    except OSError as error:
                        if on_error is None:
                            raise
                        on_error(below, error)
                        continue
                    levels.append((below, inner, iter(listed)))
                    known += len(listed)
                    if known > MOST_ENTRIES:
                        raise UnsuitableFileError(
                            errno.EOVERFLOW, f"has more than {MOST_ENTRIES:,} entries below it", path
                        )
            finally:
                for _, folder, _ in levels:
                    os.close(folder)

    # Reading.

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the content of a regular file. One over `max_bytes` is an error, a growing one too."""
        with self.file(path) as file:
            size = os.fstat(file.fileno()).st_size
            content = file.read(max_bytes + 1) if size <= max_bytes else b""
        if max(size, len(content)) > max_bytes:
            raise UnsuitableFileError(errno.EOVERFLOW, f"has more than {max_bytes:,} bytes", path)
        return content

    def beginning(self, path: str, max_bytes: int) -> bytes:
        """Return the first bytes of a regular file."""
        with self.file(path) as file:
            return file.read(max_bytes)

    def file(self, path: str) -> BufferedReader:
        """Open a regular file for reading. It may grow without end: the caller sets a limit."""
        with self.above(path) as (folder, name):
            return os.fdopen(open_regular(folder, name), "rb")

    def digest(self, path: str) -> str:
        """Return the SHA-256 of a regular file. One over `MOST_DIGEST_BYTES` or mostly of holes is an error."""
        with self.file(path) as file:
            found, left = os.fstat(file.fileno()), MOST_DIGEST_BYTES
            if found.st_size > found.st_blocks * _BLOCK_BYTES + _MOST_HOLE_BYTES:
                raise UnsuitableFileError(errno.EOVERFLOW, "has holes, which would take long to read", path)
            digest = hashlib.sha256()
            while piece := file.read(min(_CHUNK_BYTES, left + 1)):
                left -= len(piece)
                if left < 0:
                    raise UnsuitableFileError(errno.EOVERFLOW, "is too large to be read", path)
                digest.update(piece)
        return digest.hexdigest()

    # Changing.

    def make_folder(self, path: str, mode: int = _PRIVATE) -> None:
        """Create a folder and missing ones above it; an existing one is no error."""
        with self.opened(path, create=mode):
            pass

    def write(self, path: str, content: bytes, mode: int | None = None) -> None:
        """Replace a regular file atomically, or create it. Anything else at the path is refused.

        Args:
            path: its folder exists.
            mode: permissions; by default those of any new file of this process.
        """
        with self.above(path) as (folder, name):
            with suppress(FileNotFoundError):
                require_regular(entry_at(folder, name).mode, path)
            replace_at(folder, name, content, mode)

    def make_link(self, path: str, target: bytes) -> None:
        """Create a symbolic link, which nothing of this module follows. Something at the path is an error."""
        with self.above(path) as (folder, name):
            os.symlink(target, os.fsencode(name), dir_fd=folder)

    def rename(self, path: str, target: str, to: ConfinedFolder | None = None) -> None:
        """Rename or move what is at the path, a link too. A file at the target is replaced.

        Args:
            target: the new path, in this folder, or in `to`, which is on the same disk.
        """
        other = to or self
        with self.above(path) as (folder, name), other.above(target) as (folder_to, name_to):
            os.rename(name, name_to, src_dir_fd=folder, dst_dir_fd=folder_to)

    def chmod(self, path: str, mode: int) -> None:
        """Set the permissions of a regular file or a folder."""
        with self.above(path) as (folder, name):
            chmod_at(folder, name, mode)

    def touch(self, path: str) -> None:
        """Set the time of the last change of a regular file or a folder to now."""
        with self.above(path) as (folder, name):
            handle = enter(folder, name) if entry_at(folder, name).is_dir else open_regular(folder, name)
            try:
                os.utime(handle)
            finally:
                os.close(handle)

    def remove(self, path: str) -> None:
        """Remove what is at the path, a folder with everything below it. Nothing there is no error.

        Links are removed, not followed. Permissions that this user may change are no obstacle.
        """
        with suppress(FileNotFoundError), self.above(path) as (folder, name):
            remove_at(folder, name)

    def remove_file(self, path: str) -> None:
        """Remove a file or a link; a folder is an error, and nothing there is none."""
        with suppress(FileNotFoundError), self.above(path) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def remove_empty(self, path: str) -> None:
        """Remove a folder if nothing is in it; otherwise raise `OSError`."""
        with self.above(path) as (folder, name):
            os.rmdir(name, dir_fd=folder)

    def remove_content(self, path: str = "", *, keep: str = "") -> None:
        """Remove everything in a folder, but not the folder, and not the entry named `keep` in it."""
        with self.opened(path) as folder:
            _own(folder)
            _empty(folder, keep)

    # Folders further down.

    def folder(self, path: str) -> ConfinedFolder:
        """Open a folder further down. It stays open when this one is closed."""
        with self.opened(path) as handle:
            return ConfinedFolder(self.path.joinpath(*split(path)), os.dup(handle))

    @contextmanager
    def opened(self, path: str = "", *, create: int | None = None) -> Iterator[int]:
        """Yield the descriptor of a folder further down, for the functions of this module.

        Args:
            create: the permissions of folders that are created where they are missing.
        """
        folder = self._own_handle(path)
        try:
            names = split(path)
            for depth, name in enumerate(names):
                inner = enter(folder, name, "/".join(names[: depth + 1]), create=create)
                folder, outer = inner, folder
                os.close(outer)
                require_disk(folder, self._device, path)
            yield folder
        finally:
            os.close(folder)

    def _own_handle(self, path: str) -> int:
        """Return one more descriptor of the folder; the caller closes it."""
        closed = UnsuitableFileError(errno.EBADF, "is in a folder that was closed", path)
        try:
            folder = os.dup(self._handles[0])
        except IndexError:
            raise closed from None
        except OSError as error:
            raise (error if self.is_open else closed) from None
        if not self.is_open:  # it was closed meanwhile, so the number may have been another file's already
            os.close(folder)
            raise closed
        return folder

    @contextmanager
    def above(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield the open folder above a path and the last name, and put the whole path into errors."""
        names = split(path)
        if not names:
            raise UnsuitableFileError(errno.EINVAL, "is the folder itself", path)
        with self.opened("/".join(names[:-1])) as folder:
            try:
                yield folder, names[-1]
            except OSError as error:
                error.filename = path
                raise


def split(path: str) -> tuple[str, ...]:
    """Return the names of a relative path. Raise `OSError` if it leaves the folder or no file can have it."""
    names = tuple(name for name in path.split("/") if name not in {"", "."})
    try:
        is_plain = not path.startswith("/") and ".." not in names and b"\0" not in os.fsencode(path)
    except ValueError:
        is_plain = False
    if not is_plain:
        raise UnsuitableFileError(errno.EINVAL, "is no plain path below the folder", path)
    return names


# The functions below take the descriptor of an open folder and one name in it.


def entry_at(folder: int, name: str) -> Entry:
    """Return what has the name."""
    return Entry(name, os.stat(name, dir_fd=folder, follow_symlinks=False))


@contextmanager
def _scanned(folder: int) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List an open folder, from its beginning.

    The folder is opened once more for it: duplicates of one descriptor share the place up to which it was listed, so
    that another thread, which lists the same folder at the same time, would miss entries.
    """
    handle = os.open(".", OPEN_FOLDER, dir_fd=folder)
    try:
        with os.scandir(handle) as items:
            yield items
    finally:
        os.close(handle)


def entries_of(folder: int) -> Iterator[Entry]:
    """Yield what is in an open folder, in no order."""
    with _scanned(folder) as items:
        for item in items:
            try:
                status = item.stat(follow_symlinks=False)
            except FileNotFoundError:  # removed since it was listed
                continue
            yield Entry(item.name, status)


def names_in(folder: int) -> list[str]:
    """Return the names in an open folder, in no order."""
    with _scanned(folder) as items:
        return [item.name for item in items]


def sorted_entries(folder: int, path: str = "") -> list[Entry]:
    """Return what is in an open folder, sorted by name. More than `MOST_LISTED` are an error."""
    found = list(itertools.islice(entries_of(folder), MOST_LISTED + 1))
    if len(found) > MOST_LISTED:
        raise UnsuitableFileError(errno.EOVERFLOW, f"has more than {MOST_LISTED:,} entries", path)
    found.sort(key=_name)
    # Characters beyond ASCII are in the order of their numbers, those that stand for undecodable bytes are not.
    if not all(entry.name.isascii() for entry in found):
        found.sort(key=lambda entry: os.fsencode(entry.name))
    return found


_name = operator.attrgetter("name")


def enter(folder: int, name: str, path: str = "", *, create: int | None = None) -> int:
    """Open a folder in an open folder. `create` gives the permissions with which a missing one is created."""
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if create is None:
            raise
    except OSError as error:
        raise _not_entered(folder, name, path or name, error) from None
    with suppress(FileExistsError):
        os.mkdir(name, create, dir_fd=folder)
    try:
        return os.open(name, OPEN_FOLDER, dir_fd=folder)
    except OSError as error:
        raise _not_entered(folder, name, path or name, error) from None


def _not_entered(folder: int, name: str, path: str, error: OSError) -> OSError:
    if error.errno not in {errno.ELOOP, errno.ENOTDIR}:
        error.filename = path
        return error
    try:
        mode = entry_at(folder, name).mode
    except OSError:
        return UnsuitableFileError(
            errno.EAGAIN, "was changed by something else at the same time; try again", path
        )
    if stat.S_ISLNK(mode):
        return UnsuitableFileError(errno.ELOOP, _IS_LINK, path)
    return UnsuitableFileError(errno.ENOTDIR, "is not a folder", path)


def require_disk(handle: int, known: int, path: str) -> None:
    """Raise `OSError` if an open file or folder is on a file system without a disk, such as a mounted `/proc`.

    Args:
        known: the device of a folder that is on a disk.
    """
    device = os.fstat(handle).st_dev
    if device != known and device in kernel_devices():
        raise UnsuitableFileError(errno.EXDEV, "is on a file system of processes or devices", path)


def require_regular(mode: int, path: str) -> None:
    """Raise `OSError` unless the mode is that of a regular file."""
    if stat.S_ISLNK(mode):
        raise UnsuitableFileError(errno.ELOOP, _IS_LINK, path)
    if stat.S_ISDIR(mode):
        raise UnsuitableFileError(errno.EISDIR, "is a folder, not a regular file", path)
    if not stat.S_ISREG(mode):
        raise UnsuitableFileError(errno.EINVAL, f"is {file_kind(mode)}, not a regular file", path)


def open_regular(folder: int, name: str) -> int:
    """Open a regular file for reading."""
    require_regular(entry_at(folder, name).mode, name)
    handle = os.open(name, _READ, dir_fd=folder)
    try:
        require_regular(os.fstat(handle).st_mode, name)
    except OSError:
        os.close(handle)
        raise
    return handle


def replace_at(folder: int, name: str, content: bytes, mode: int | None = None) -> None:
    """Write a new file beside the old one, and give it the name. See `ConfinedFolder.write`."""
    temporary = f".pullwright-{os.getpid()}-{next(_NUMBERS)}"
    handle = os.open(temporary, _CREATE, _NEW_FILE_MODE, dir_fd=folder)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(
                content[start : start + _CHUNK_BYTES] for start in range(0, len(content), _CHUNK_BYTES)
            )
            if mode is not None:
                os.fchmod(handle, mode)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        with suppress(FileNotFoundError):  # it was renamed, unless something failed
            os.unlink(temporary, dir_fd=folder)


_NUMBERS = itertools.count()


def chmod_at(folder: int, name: str, mode: int) -> None:
    """Set the permissions of a regular file or a folder, also of one that this user may not open yet."""
    if os.chmod in os.supports_follow_symlinks:
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    handle = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(handle).st_mode
        if not stat.S_ISDIR(found):
            require_regular(found, name)
        Path(f"/proc/self/fd/{handle}").chmod(mode)
    finally:
        os.close(handle)


def remove_at(folder: int, name: str) -> None:
    """Remove what has the name, a folder with everything below it."""
    try:
        os.unlink(name, dir_fd=folder)
    except (IsADirectoryError, PermissionError):
        if not entry_at(folder, name).is_dir:
            raise
        inner = enter_to_change(folder, name)
        try:
            _empty(inner)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)


def rename_at(folder: int, name: str, target: str) -> None:
    """Give a file in an open folder another name in it."""
    os.rename(name, target, src_dir_fd=folder, dst_dir_fd=folder)


def enter_to_change(folder: int, name: str) -> int:
    """Open a folder, and take all permissions on it."""
    try:
        inner = enter(folder, name)
    except PermissionError:
        chmod_at(folder, name, _PRIVATE)
        inner = enter(folder, name)
    _own(inner)
    return inner


def _own(folder: int) -> None:
    """Take all permissions on an open folder: moving or removing what is in it needs them."""
    if os.fstat(folder).st_mode & _PRIVATE != _PRIVATE:
        os.fchmod(folder, _PRIVATE)


def _empty(top: int, keep: str = "") -> None:
    """Remove everything in an open folder, but an entry named `keep`.

    Folders that are nested too deep are moved to the top first. Names are taken in portions, so that a huge folder
    needs no memory. What somebody adds meanwhile is removed, too, up to a limit.
    """
    levels: list[tuple[str, int, list[tuple[str, bool]]]] = [("", os.dup(top), [])]
    moved = refilled = 0
    try:
        while levels:
            name, folder, waiting = levels[-1]
            if not waiting:
                waiting += _portion(folder, keep if len(levels) == 1 else "")
            if not waiting:
                levels.pop()
                os.close(folder)
                if levels and not _is_removed_empty(levels[-1][1], name):
                    refilled += 1
                    if refilled > _MOST_REFILLED:
                        raise UnsuitableFileError(
                            errno.ENOTEMPTY, "is filled by something else at the same time", name
                        )
                continue
            inner, is_folder = waiting.pop()
            if not is_folder:
                with suppress(FileNotFoundError):
                    os.unlink(inner, dir_fd=folder)
            elif not _is_removed_empty(folder, inner):
                opened = enter_to_change(folder, inner)
                if len(levels) < MOST_LEVELS:
                    levels.append((inner, opened, []))
                else:
                    os.close(opened)  # it has the permissions now that moving it needs
                    moved = _moved(folder, inner, top, moved)
    finally:
        for _, folder, _ in levels:
            os.close(folder)


def _portion(folder: int, keep: str) -> list[tuple[str, bool]]:
    """Return some names in an open folder, and whether each is a folder."""
    with _scanned(folder) as items:
        found = ((item.name, item.is_dir(follow_symlinks=False)) for item in items if item.name != keep)
        return list(itertools.islice(found, _REMOVED_AT_ONCE))


def _is_removed_empty(folder: int, name: str) -> bool:
    """Remove a folder if it is empty; return whether it is gone."""
    try:
        os.rmdir(name, dir_fd=folder)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
            return False
        raise
    return True


def _moved(folder: int, name: str, top: int, number: int) -> int:
    """Move a folder to the top under an unused name; return the number of the name."""
    while True:
        number += 1
        try:
            os.rename(name, f"deep-{os.getpid()}-{number}", src_dir_fd=folder, dst_dir_fd=top)
        except OSError as error:
            if error.errno not in {errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR}:
                raise
        else:
            return number


def _level(number: int, path: str, folder: int, name: str) -> tuple[int, list[Entry]]:
    """Open and list a folder for `walk`. Raise `OSError` if it is nested too deep."""
    if number >= MOST_LEVELS:
        raise UnsuitableFileError(errno.ENAMETOOLONG, f"is nested over {MOST_LEVELS} folders deep", path)
    inner = enter(folder, name, path)
    try:
        return inner, sorted_entries(inner, path)
    except OSError:
        os.close(inner)
        raise
