"""No tool reads what is no file: processes, devices, pipes, by whatever way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import FileUnreadableError, PathRefusedError
from orchestrator.engine.environments.base import GrepOptions
from orchestrator.engine.environments.files import ConfinedTree
from orchestrator.engine.environments.local import LocalEnvironment
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems have no /proc")
PATHS = [
    "/proc/self/environ",
    "/proc/1/environ",
    "/proc/self/fd/0",
    "/proc/self/cwd/file",
    f"/proc/self/{'root'}/etc/passwd",
    "/dev/fd/0",
    "/dev/stdin",
    "/dev/zero",
    "/dev/../proc/self/maps",
    "//proc//self/./environ",
    "/sys/kernel/notes",
    "/sys",
    "../../../../../../../../proc/self/environ",
    "to-proc/self/environ",
    "to-environ",
    "to-zero",
    "to-fd/0",
    "sub/../to-zero",
]


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[LocalEnvironment]:
    (tmp_path / "sub").mkdir()
    (tmp_path / "file").touch()
    for name, target in {
        "to-proc": "/proc", "to-environ": "/proc/self/environ", "to-zero": "/dev/zero", "to-fd": "/dev/fd",
    }.items():  # fmt: skip
        (tmp_path / name).symlink_to(target)
    environment = LocalEnvironment(tmp_path)
    yield environment
    await environment.cleanup()


@pytest.mark.parametrize("path", PATHS)
async def test_no_way_of_any_tool_leads_there(path: str, here: LocalEnvironment) -> None:
    for act in (
        here.read_file(path, max_bytes=10**9),
        here.write_file(path, b"x"),
        here.write_file("fine", b"x", mode_of=path),
        here.remove_file(path),
        here.list_directory(path, depth=1),
        here.grep("x", path, GrepOptions()),
        here.glob("*", path),
        here.exec_command("true", timeout_ms=9_000, working_dir=path),
    ):
        with pytest.raises(PathRefusedError):
            await act


@table("root", ["/", "/proc", "/proc/self", "/sys/kernel", "/dev", "/dev/fd/.."])
def test_no_tree_begins_there(root: str) -> None:
    with pytest.raises(PathRefusedError, match="system"):
        ConfinedTree(Path(root))


MOUNTED = """
import sys
from pathlib import Path
from orchestrator.core.errors import PathRefusedError
from orchestrator.engine.environments.files import ConfinedTree
with ConfinedTree(Path(sys.argv[1])) as tree:
    for path in ("inner/self/environ", "inner/version", "zero"):
        try:
            tree.read(path, max_bytes=10**6)
        except Exception as error:
            print(path, type(error).__name__)
    try:
        print(tree.entries(("inner",)))
    except PathRefusedError:
        print("inner refused")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
def test_a_mount_inside_is_not_entered(tmp_path: Path) -> None:
    """In a mount namespace of its own, which ends with the command."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "zero").touch()
    line = 'mount -t proc none "$1/inner" && mount --bind /dev/zero "$1/zero" && exec "$2" -c "$3" "$1"'
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-ec", line, "sh", tmp_path, sys.executable, MOUNTED],
        capture_output=True, text=True, check=True, timeout=30,
    )  # fmt: skip
    assert ran.stdout.splitlines() == [
        "inner/self/environ PathRefusedError",
        "inner/version PathRefusedError",
        "zero FileUnreadableError",
        "inner refused",
    ]


def test_a_file_that_grows_is_read_to_a_bound(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"x" * 1_000)
    stop = threading.Event()

    def grow() -> None:
        with file.open("ab", buffering=0) as log:
            while not stop.is_set() and log.tell() < 10**8:
                log.write(b"x" * 10_000)

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        with ConfinedTree(tmp_path) as tree:
            for _ in range(50):
                try:
                    assert len(tree.read("log", max_bytes=1_000_000)) <= 1_000_001
                except FileUnreadableError as error:
                    assert "over the limit" in str(error)  # noqa: PT017  both ends are right
    finally:
        stop.set()
        writer.join()
