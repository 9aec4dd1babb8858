from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import DiskFullError, WorkspaceError
from orchestrator.workspace.failures import error_for, main_line, storage_errors
from tests.unit.workspace.rig import clone, write

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.workspace.clone import Clone


@pytest.mark.parametrize(
    ("stderr", "said"),
    [
        ("fatal: Authentication failed for 'https://h/r/'", "check the token"),
        ("fatal: could not read Username for 'https://h': terminal prompts disabled", "check the token"),
        (
            "remote: Permission to a/b.git denied to c.\nfatal: ... The requested URL returned error: 403",
            "no permission",
        ),
        (
            "remote: Repository not found.\nfatal: repository 'https://h/r/' not found",
            "hidden from this token",
        ),
        (
            "git@h: Permission denied (publickey).\nfatal: Could not read from remote repository.",
            "ssh was not let in",
        ),
        ("Host key verification failed.\nfatal: Could not read from remote", "known_hosts"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "cannot be reached"),
        ("fatal: transport 'ext' not allowed", "not accepted"),
        ("warning: something\nfatal: strange\nhint: more", "cannot x: strange"),
        ("", "git said nothing"),
    ],
)
def test_what_git_says_in_our_words(stderr: str, said: str) -> None:
    error = error_for(stderr, "cannot x")
    assert said in str(error)
    assert "\n" not in str(error)


def test_a_full_disk_is_told_apart() -> None:
    error = error_for("fatal: write error: No space left on device", "cannot x")
    assert isinstance(error, DiskFullError)
    with pytest.raises(DiskFullError, match="free some"), storage_errors("cannot x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(WorkspaceError, match="cannot x: Permission denied"), storage_errors("cannot x"):
        raise PermissionError(errno.EACCES, "Permission denied", "f")


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert main_line("fatal: \x1b[31mred\x07\udcff") == "[31mred?"
    assert len(main_line("x" * 1000)) == 300


def full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    """A git that runs out of space at one command."""
    real = subprocess.run(["which", "git"], check=True, capture_output=True, text=True).stdout.strip()
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\ncase " $* " in *" {command} "*) echo "fatal: No space left on device" >&2; exit 128;; esac\n'
        f'exec {real} "$@"\n'
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize("command", ["update-index", "write-tree", "commit-tree", "status"])
def test_a_disk_that_is_full_while_committing_changes_nothing(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    write(safe.tree, {"a.txt": "1"})
    with monkeypatch.context() as patch:
        full_disk(tmp_path / "bin", patch, command)
        with pytest.raises(DiskFullError):
            safe.commit({"a.txt"}, "m", include_commands=True)
    assert safe.commit({"a.txt"}, "m", include_commands=True).files == ["a.txt"]


def test_a_disk_that_is_full_while_cloning(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(tmp_path / "bin", monkeypatch, "clone")
    with pytest.raises(DiskFullError):
        clone(source, tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


_INTERRUPTED = """
import signal, sys
from pathlib import Path
from tests.unit.workspace.rig import clone

class Stopped(BaseException):
    pass

def stop(*_):
    raise Stopped

signal.signal(signal.SIGTERM, stop)
try:
    clone(sys.argv[1], Path(sys.argv[2]))
except Stopped:
    print("stopped")
"""


def test_a_signal_while_git_runs_ends_git_and_removes_the_clone(source: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    os.mkfifo(tmp_path / "started")
    # The end of its input says that the program is now waiting for git's end.
    (folder / "git").write_text(f"#!/bin/sh\ncat\necho $$ > {tmp_path}/started\nexec sleep 600\n")
    (folder / "git").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}
    command = [sys.executable, "-c", _INTERRUPTED, str(source), str(tmp_path / "runs")]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    guard = threading.Timer(60, process.kill)
    guard.start()
    try:
        sleeper = int((tmp_path / "started").read_text())
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate()
    finally:
        guard.cancel()
    assert output == "stopped\n"
    assert list((tmp_path / "runs").iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(sleeper, 0)
