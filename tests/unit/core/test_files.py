"""Files are replaced whole. Locks are waited for in real time, up to a bound, and whoever keeps one is named."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import orchestrator
from orchestrator.core.files import (
    FOLDER_PREFIX,
    OWNER_FILE,
    lock_file,
    lock_file_async,
    lock_new_folder,
    replace_file,
    try_lock,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

KEEPER = """
import pathlib, sys
from orchestrator.core.files import lock_file
lock_file(pathlib.Path(sys.argv[1]), 60)
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def kept(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process has the lock, until its input ends."""
    command = [sys.executable, "-c", KEEPER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "lock"


@pytest.fixture
def handle(path: Path) -> Iterator[int]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT)
    yield handle
    os.close(handle)


def held_by(path: Path, seconds: float = 0.0) -> str:
    """Why the file cannot be locked."""
    with pytest.raises(BlockingIOError) as caught:
        lock_file(path, seconds)
    return str(caught.value.strerror)


def test_a_keeper_is_waited_for_until_it_lets_go(path: Path, handle: int) -> None:
    got: list[int] = []
    with kept(path) as process:
        waiting = threading.Thread(target=lambda: got.append(lock_file(path, 600)))
        waiting.start()
        assert not try_lock(handle)
        assert process.stdin is not None
        process.stdin.close()
        waiting.join()
    assert not try_lock(handle)
    os.close(*got)
    assert path.read_text() == str(os.getpid())


def test_one_that_is_killed_keeps_nothing(path: Path) -> None:
    with kept(path) as process:
        process.kill()
        process.wait()
        os.close(lock_file(path, 600))


def test_one_that_is_stopped_is_named_when_the_time_is_over(path: Path) -> None:
    with kept(path) as process:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        said = held_by(path, 0.01)
        assert f"process {process.pid}, which is stopped, keeps {path} locked" in said
        assert f"kill -CONT {process.pid}" in said
        os.kill(process.pid, signal.SIGCONT)
        os.waitid(os.P_PID, process.pid, os.WCONTINUED | os.WNOWAIT)
        assert "which is stopped" not in held_by(path)


async def test_other_tasks_run_while_one_waits(path: Path) -> None:
    handle = await lock_file_async(path, 0.0)
    waiting = asyncio.create_task(lock_file_async(path, 600))
    await asyncio.sleep(0)
    os.close(handle)
    os.close(await waiting)


def test_a_lock_file_is_private_and_no_link(path: Path, tmp_path: Path) -> None:
    os.close(lock_file(path))
    assert path.stat().st_mode & 0o777 == 0o600
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="symbolic links"):
        lock_file(link)


def test_who_only_looks_disturbs_nobody_who_looks(path: Path, handle: int) -> None:
    other = os.open(path, os.O_RDONLY)
    assert try_lock(handle, shared=True)
    assert try_lock(other, shared=True)
    assert not try_lock(other)
    os.close(other)


def test_nobody_else_locks_files() -> None:
    folder = Path(orchestrator.__file__).parent
    users = [path for path in folder.rglob("*.py") if "fcntl.flock" in path.read_text("utf-8")]
    assert [path.name for path in users] == ["files.py"]


def test_a_new_folder_is_private_and_marked_as_this_processs(tmp_path: Path) -> None:
    folder, handle = lock_new_folder(tmp_path)
    other = os.open(folder / OWNER_FILE, os.O_RDWR)
    try:
        assert folder.parent == tmp_path
        assert folder.name.startswith(FOLDER_PREFIX)
        assert folder.stat().st_mode & 0o777 == 0o700
        assert os.fstat(handle).st_mode & 0o777 == 0o600
        assert not try_lock(other)
        os.close(handle)
        assert try_lock(other)
    finally:
        os.close(other)


@pytest.mark.parametrize(
    ("before", "asked", "after"),
    [(None, None, 0o600), (0o640, None, 0o640), (None, 0o755, 0o755), (0o600, 0o644, 0o644)],
)
def test_the_content_and_the_permissions(
    before: int | None, asked: int | None, after: int, tmp_path: Path
) -> None:
    path = tmp_path / "settings.toml"
    if before is not None:
        path.write_bytes(b"the old content, which is longer")
        path.chmod(before)
    replace_file(path, b"new", asked)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == after
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_replaced_is_unchanged_and_nothing_is_left_behind(tmp_path: Path) -> None:
    folder = tmp_path / "settings.toml"
    (folder / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        replace_file(folder, b"new")
    assert list(tmp_path.iterdir()) == [folder]
    assert list(folder.iterdir()) == [folder / "inside"]
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "absent" / "file", b"new")
