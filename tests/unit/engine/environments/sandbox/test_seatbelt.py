"""The text of the profile for macOS. It was not run: that takes a Mac."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestrator.bot.git.folders import sweep
from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.engine.environments.base import Command, SandboxFolder, SandboxLimits, SandboxOptions
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.environments.sandbox.seatbelt import SeatbeltSandbox, seatbelt_profile, with_limits
from orchestrator.engine.environments.sandbox.visible import Scratch


def rules(root: str = "/Users/me/project", *, read_only: bool = False) -> list[str]:
    folder = SandboxFolder(root, () if read_only else (".git",), read_only)
    text = seatbelt_profile(folder, readable=("/opt/x",), scratch="/private/tmp/s", port=4321)
    return text.splitlines()


def test_it_denies_by_default_and_protects_git_last() -> None:
    lines = rules()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert lines[-1] == '(deny file-write* (subpath "/Users/me/project/.git"))'
    writes = [line for line in lines if line.startswith("(allow file-write*")]
    assert writes == ['(allow file-write* (subpath "/Users/me/project") (subpath "/private/tmp/s"))']
    assert [line for line in lines if "network" in line] == [
        '(allow network-outbound (remote tcp "localhost:4321"))'
    ]
    assert not any('(subpath "/Users")' in line or '(subpath "/")' in line for line in lines)


def test_a_folder_to_read_is_readable_and_not_writable() -> None:
    lines = rules(read_only=True)
    assert [line for line in lines if "file-write" in line] == [
        '(allow file-write* (subpath "/private/tmp/s"))',
        '(allow file-write-data (literal "/dev/null"))',
    ]
    assert [line.count('(subpath "/Users/me/project")') for line in lines if "file-read*" in line] == [1]


def test_a_path_cannot_add_rules() -> None:
    hostile = '/a") (allow file-write* (subpath "/'
    assert rules(hostile)[-1] == '(deny file-write* (subpath "/a\\") (allow file-write* (subpath \\"/.git"))'
    assert '(subpath "/a\\\\")' in "\n".join(rules("/a\\"))
    for path in ("/a\nb", "relative", "/a\0"):
        with pytest.raises(ToolError):
            rules(path)


def test_without_the_program_there_is_no_sandbox() -> None:
    with pytest.raises(SandboxMissingError, match="sandbox-exec"):
        find_sandbox(platform="darwin")


DIES = """
import os, sys
from orchestrator.engine.environments.sandbox.visible import Scratch

made = Scratch()
os.mkdir(made.path + "/locked")
open(made.path + "/locked/file", "w").close()
os.chmod(made.path + "/locked", 0)
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))  # it is read once
    return folder.resolve()


def test_what_a_dead_process_leaves_is_swept_and_what_lives_is_not(temporary: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", DIES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[5],
        env={**os.environ, "TMPDIR": str(temporary)},
    ) as process:
        assert process.stdout is not None
        path = Path(os.fsdecode(process.stdout.readline().strip()))
        assert path.parent.parent == temporary
        assert sweep(temporary) == []
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert sweep(temporary) == [path.parent]
    assert list(temporary.iterdir()) == []


def test_a_command_leaves_nothing_and_what_it_locks_is_left_to_the_sweep(temporary: Path) -> None:
    made = Scratch()
    Path(made.path, "file").touch()
    made.remove()
    assert list(temporary.iterdir()) == []
    made = Scratch()
    locked = Path(made.path, "locked")
    locked.mkdir()
    (locked / "file").touch()
    locked.chmod(0)
    made.remove()
    if os.geteuid() != 0:
        assert locked.is_dir()
        assert len(sweep(temporary)) == 1
    assert list(temporary.iterdir()) == []


async def test_a_command_may_write_beside_its_mark_only(temporary: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    opened = SeatbeltSandbox(SandboxOptions(), {}).open(SandboxFolder(str(root)))
    launch = opened.launch(Command("true", str(root), {}, 1))
    (folder,) = temporary.iterdir()
    rules = launch.argv[2].splitlines()
    assert f'(allow file-write* (subpath "{root}") (subpath "{folder}/home"))' in rules
    assert not any(f'"{folder}"' in line or "owner" in line for line in rules)
    await launch.close()
    assert list(temporary.iterdir()) == []


def test_a_command_that_cannot_be_confined_leaves_nothing(temporary: Path, tmp_path: Path) -> None:
    root = tmp_path / "ro\not"
    root.mkdir()
    opened = SeatbeltSandbox(SandboxOptions(), {}).open(SandboxFolder(str(root)))
    with pytest.raises(ToolError):
        opened.launch(Command("true", str(root), {}, 1))
    assert list(temporary.iterdir()) == []


def test_a_missing_folder_for_temporary_files_is_an_error(temporary: Path) -> None:
    temporary.rmdir()
    with pytest.raises(ToolError, match="cannot create a folder for temporary files"):
        Scratch()


def test_the_words_before_a_command_set_its_limits() -> None:
    limits = SandboxLimits(memory_bytes=1 << 30, file_bytes=1 << 20, open_files=50)
    line = "ulimit -c; ulimit -d; ulimit -f; ulimit -n; nice; ps -o comm= -p $$; exit 7"
    words = [*with_limits(limits), "/bin/bash", "-c", line]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    told = ["0", str(1 << 20), "1024", "50", str(min(os.nice(0) + 10, 19)), "bash"]  # in KiB
    assert (ran.stdout.split(), ran.stderr, ran.returncode) == (told, "", 7)


def test_a_limit_that_is_lower_already_stays() -> None:
    words = [*with_limits(SandboxLimits(open_files=1 << 20)), "/bin/bash", "-c", "ulimit -n"]
    ran = subprocess.run(
        ["/bin/bash", "-c", 'ulimit -n 60; exec "$@"', "bash", *words], capture_output=True, check=True
    )
    assert ran.stdout == b"60\n"
