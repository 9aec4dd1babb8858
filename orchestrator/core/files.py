"""Files that a person names, and files that processes share: replaced whole, locked, and temporary folders.

A folder where somebody else may write is opened by `orchestrator.core.confined` alone. The kernel releases a lock
when its process ends. What fails raises an `OSError`; `Raises:` says what a caller can tell apart.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import mmap
import os
import select
import shutil
import stat
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LONGEST_WAIT_SECONDS = 600.0
"""Default longest wait: long for a busy machine, and half of the default lifetime of a claim."""
_PAUSES_SECONDS = (0.01, 0.02, 0.05)
_LAST_PAUSE_SECONDS = 0.1
_MOST_PID_BYTES = 20

FOLDER_PREFIX = "pullwright-"
"""Prefix of all temporary folders that are removed after their process has died."""
OWNER_FILE = "owner"
"""File that marks such a folder. The process that uses the folder holds a lock on it."""
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_TRIES = 5


NAMED_SECONDS = 60.0
"""How long a file that a person names may take to be read, such as a pipe from a program that asks for a password."""
_PIECE_BYTES = 1 << 16


def read_own(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file of the user that may be read more than once. Links are followed.

    Raises:
        OSError: it cannot be read, is a pipe, or has more than `max_bytes`.
    """
    return read_named(path, max_bytes, is_read_once=False)


def read_named(
    path: Path, max_bytes: int, *, seconds: float = NAMED_SECONDS, is_read_once: bool = True
) -> bytes:
    """Return the content of a file that a person names on the command line and that is read once.

    A link, a pipe such as that of `<(...)`, and a device are right there. Nothing is read by a call that blocks.

    Raises:
        OSError: it cannot be read, has more than `max_bytes`, or does not end within `seconds`.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        if not is_read_once and stat.S_ISFIFO(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "it is a pipe, and this file is read more than once", str(path))
        waiting = select.poll()
        waiting.register(handle, select.POLLIN)
        end = time.monotonic() + seconds
        content = bytearray()
        while len(content) <= max_bytes:
            left = end - time.monotonic()
            if left <= 0 or not waiting.poll(left * 1_000):
                raise OSError(errno.ETIMEDOUT, f"its end did not come within {seconds:g} seconds", str(path))
            with suppress(BlockingIOError):
                piece = os.read(handle, min(_PIECE_BYTES, max_bytes + 1 - len(content)))
                if not piece:
                    return bytes(content)
                content += piece
    finally:
        os.close(handle)
    raise OSError(errno.EOVERFLOW, f"it has more than {max_bytes:,} bytes", str(path))


def write_named(path: Path, text: str, *, append: bool = False) -> None:
    """Write a text to a file that a person names, or append it. A link, a pipe that is read and a device are right.

    Raises:
        OSError: it cannot be written, or is a named pipe that nobody reads.
    """
    how = os.O_APPEND if append else os.O_TRUNC
    # Without waiting for a reader; what is written then may wait.
    handle = os.open(
        path, os.O_WRONLY | os.O_CREAT | how | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, _NAMED_MODE
    )
    os.set_blocking(handle, True)
    with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)


_NAMED_MODE = 0o666  # the process's umask is applied to it


def is_full(error: OSError) -> bool:
    """Return whether the disk, the quota or the maximum file size is used up."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


def sync_folder(folder: Path) -> None:
    """Write the names of a folder's entries to the disk, so that a power cut does not lose them.

    Raises:
        OSError: it cannot be opened, or the disk fails. A file system without that is no error.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in {errno.EINVAL, errno.ENOTSUP, errno.EBADF}:
            raise
    finally:
        os.close(handle)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Create a folder and those above it, and write their names to the disk. An existing one is left as it is.

    Args:
        mode: permissions of the folder itself.
    """
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(mode, parents=True, exist_ok=True)
    for one in missing:
        sync_folder(one.parent)


def replace_file(path: Path, content: bytes, mode: int | None = None, *, is_durable: bool = True) -> None:
    """Replace a file atomically: a reader, or a start after a crash, finds the old content or the new one.

    Args:
        path: the file; its folder exists.
        content: the whole new content.
        mode: permissions of the file; by default those of the file it replaces, or 0600 for a new one.
        is_durable: whether a power cut after the return must not lose the new content.

    Raises:
        OSError: the file cannot be written. The old one is unchanged, and nothing else is left in the folder.
    """
    if mode is None and path.exists():
        mode = path.stat().st_mode
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if is_durable:
        sync_folder(path.parent)


def detects_mapped_writes(probe: Path) -> bool:
    """Return whether the file system updates the times of a file that is written through shared memory.

    Args:
        probe: a file that is created and removed, in a folder where nobody else writes.
    """
    probe.unlink(missing_ok=True)
    with probe.open("xb+") as file:
        file.write(b"0")
        file.flush()
        os.utime(file.fileno(), ns=(0, 0))
        with mmap.mmap(file.fileno(), 1) as shared:
            # Such file systems do not notice a write to a page that was read before.
            shared[0] = shared[0] + 1
        changed = os.fstat(file.fileno()).st_mtime_ns != 0
    probe.unlink()
    return changed


def try_lock(handle: int, *, shared: bool = False) -> bool:
    """Lock an open file without waiting. Return False if another process holds the lock.

    Args:
        handle: descriptor of the file; the lock lasts until it is closed.
        shared: whether other processes may hold a shared lock at the same time.
    """
    try:
        fcntl.flock(handle, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_new_folder(parent: Path | None = None) -> tuple[Path, int]:
    """Create a folder that only this user can enter, and lock the owner file in it.

    Args:
        parent: None uses the folder for temporary files.

    Returns:
        The folder, and the descriptor of the owner file.

    Raises:
        OSError: the folder cannot be created. `EAGAIN` means that another process removed each new folder at
            once.
    """
    for _ in range(_FOLDER_TRIES):
        folder = Path(tempfile.mkdtemp(prefix=FOLDER_PREFIX, dir=parent))
        try:
            handle = os.open(folder / OWNER_FILE, _NEW_FILE, 0o600)
        except FileNotFoundError:  # a sweeper was faster
            continue
        try:
            if try_lock(handle) and os.fstat(handle).st_nlink:
                return folder, handle
        except OSError:
            os.close(handle)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        os.close(handle)  # it is the sweeper's
    raise BlockingIOError(errno.EAGAIN, "something removes each new folder at once")


def lock_file(path: Path, seconds: float = 0.0) -> int:
    """Open a file, lock it, and write this process's id into it. A missing file is created. It blocks.

    Args:
        path: no link.
        seconds: longest wait in real time, because another process is waited for.

    Returns:
        The descriptor; the lock lasts until it is closed.

    Raises:
        BlockingIOError: another process held the lock all the time. `strerror` says who, and what to do.
        OSError: the file cannot be opened, or the file system does not support locks.
    """
    with _opened(path) as handle:
        for pause in _pauses(handle, path, seconds):
            time.sleep(pause)
        return handle


async def lock_file_async(path: Path, seconds: float) -> int:
    """Do the same as `lock_file` while other tasks run. It can be cancelled."""
    with _opened(path) as handle:
        for pause in _pauses(handle, path, seconds):
            await asyncio.sleep(pause)
        return handle


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    """Open a file that is locked inside of the block. It stays open if that succeeds."""
    with ExitStack() as opened:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        opened.callback(os.close, handle)
        yield handle
        opened.pop_all()


def _pauses(handle: int, path: Path, seconds: float) -> Iterator[float]:
    """Yield the pauses between attempts, short ones first, until the lock is ours."""
    end = time.monotonic() + seconds
    pauses = iter(_PAUSES_SECONDS)
    while not try_lock(handle):
        if (rest := end - time.monotonic()) <= 0:
            raise BlockingIOError(errno.EAGAIN, _holder(handle, path))
        yield min(next(pauses, _LAST_PAUSE_SECONDS), rest)
    with suppress(OSError):  # a full disk is no reason to go without the lock
        os.ftruncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode("ascii"), 0)


def _holder(handle: int, path: Path) -> str:
    """Describe who holds a lock and what to do about it."""
    try:
        pid = int(os.pread(handle, _MOST_PID_BYTES, 0))
    except (OSError, ValueError):
        return f"another process keeps {path} locked: end it, or wait for it"
    if _is_stopped(pid):
        return f"process {pid}, which is stopped, keeps {path} locked: kill -CONT {pid} lets it go on, kill -9 {pid} ends it"
    return f"process {pid} keeps {path} locked: wait for it, or end it"


def _is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by a signal. Format: proc_pid_stat(5), the state follows the name."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return False
    return bool(state) and state[0] in {"T", "t"}
