from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.hostgit import (
    GitResult,
    HostGit,
    end_git_when,
    error_for,
    main_line,
    server_words,
    storage_errors,
    without_trace,
)
from orchestrator.bot.git.remote import PAUSES_SECONDS, Remote, RetrySchedule, push_error
from orchestrator.core.errors import DiskFullError, RemoteRateLimitError, WorkspaceError
from tests.doubles.commits import commit_touched
from tests.doubles.forked import Forked
from tests.tables import table
from tests.unit.bot.git.rig import clone, write

if TYPE_CHECKING:
    from orchestrator.bot.git.clone import Clone


@table(
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
            "ssh was refused access",
        ),
        ("remote: This repository was archived so it is read-only.\nfatal: error: 403", "unarchive it"),
        ("ERROR: The 'acme' organization has enabled or enforced SAML SSO.\nfatal: x", "authorize the token"),
        ("Host key verification failed.\nfatal: Could not read from remote", "known_hosts"),
        ("fatal: unable to access 'https://h/': Could not resolve host: h", "cannot be reached"),
        (
            "fatal: unable to access 'https://h/': The requested URL returned error: 410",
            "refuses it (HTTP 410)",
        ),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 408", "cannot be reached"),
        ("fatal: unable to access 'https://h/': The requested URL returned error: 503", "cannot be reached"),
        ("fatal: transport 'ext' not allowed", "not accepted"),
        ("warning: something\nfatal: strange\nhint: more", "cannot x: strange"),
        ("", "git printed nothing"),
    ],
)
def test_what_git_says_in_our_words(stderr: str, said: str) -> None:
    error = error_for(stderr, "cannot x")
    assert said in str(error)
    assert "\n" not in str(error)


# As GitHub documents them: docs.github.com/code-security/concepts/secret-security/push-protection-from-the-command-line,
# docs.github.com/authentication/authenticating-with-saml-single-sign-on, and its answers to git of 2026.
GH013 = """remote: error: GH013: Repository rule violations found for refs/heads/pullwright/issue-1-a.
remote: Review all repository rules at https://github.com/o/r/rules?ref=refs%2Fheads%2Fpullwright%2Fissue-1-a
remote:
remote: - GITHUB PUSH PROTECTION
remote:   \u2014\u2014\u2014\u2014\u2014\u2014\u2014\u2014\u2014\u2014\u2014\u2014
remote:     Resolve the following violations before pushing again
remote:
remote:     - Push cannot contain secrets
remote:
remote:       \u2014\u2014 Example Access Token \u2014\u2014\u2014\u2014\u2014\u2014
remote:        locations:
remote:          - commit: 3b18e512dba79e4c8300dd08aeb37f8e728b8dad
remote:            path: deploy/settings.py:7
remote:
remote:        (?) To push, remove secret from commit(s) or follow this URL to allow the secret.
remote:        https://github.com/o/r/security/secret-scanning/unblock-secret/2abc
To https://github.com/o/r.git
error: failed to push some refs to 'https://github.com/o/r.git'
"""
WHOLE = [
    (GH013, ["GH013", "Push cannot contain secrets", "path: deploy/settings.py:7", "unblock-secret/2abc"]),
    (
        (
            "remote: This repository was archived so it is read-only.\n"
            "fatal: unable to access 'https://h/r/': The requested URL returned error: 403"
        ),
        ["archived so it is read-only."],
    ),
    (
        (
            "remote: The 'acme' organization has enabled or enforced SAML SSO.\n"
            "remote: To access this repository, you must re-authorize the OAuth Application 'x'.\n"
            "fatal: unable to access 'https://h/r/': The requested URL returned error: 403"
        ),
        ["The 'acme' organization", "re-authorize the OAuth Application"],
    ),
    (
        (
            "ERROR: The key you are authenticating with has been marked as read only.\n"
            "fatal: Could not read from remote repository.\n\n"
            "Please make sure you have the correct access rights\nand the repository exists."
        ),
        ["has been marked as read only."],
    ),
    (
        (
            "kex_exchange_identification: Connection closed by remote host\n"
            "fatal: Could not read from remote repository."
        ),
        ["kex_exchange_identification: Connection closed"],
    ),
    (
        (
            "remote: This server is being repaired\n"
            "fatal: unable to access 'https://h/r/': The requested URL returned error: 500"
        ),
        ["is being repaired"],
    ),
    (
        (
            "remote: Access to this repository has been disabled, see DMCA notice.\n"
            "fatal: unable to access 'https://h/r/': The requested URL returned error: 451"
        ),
        ["see DMCA notice."],
    ),
]


@table(("stderr", "words"), WHOLE)
def test_what_the_server_says_is_shown_whole_on_one_line(stderr: str, words: list[str]) -> None:
    rejected = GitResult(1, b"!\trefs/heads/a:refs/heads/a\t[remote rejected] (declined)\n", stderr)
    for said in (str(error_for(stderr, "cannot x")), str(push_error(rejected, "cannot push a"))):
        assert [word for word in words if word not in said] == []
        assert "the server says: " in said
        assert "\n" not in said
        assert "\u2014\u2014" not in said
        assert "Please make sure" not in said


def test_what_the_server_says_is_bounded_and_moves_no_cursor() -> None:
    said = server_words("".join(f"remote: \x1b[31m{number} is refused\u202e\n" for number in range(10_000)))
    assert 4000 < len(said) < 4100
    assert said.isprintable()
    assert said.startswith("; the server says: [31m0 is refused | [31m1 is refused")


@table(
    ("stderr", "seconds"),
    [
        ("fatal: unable to access 'https://h/r/': The requested URL returned error: 429", 60.0),
        ("error: RPC failed; HTTP 429 curl 22 The requested URL returned error: 429\nfatal: hung up", 60.0),
        (
            "remote: Slow down, and retry after 90 seconds.\nfatal: The requested URL returned error: 429",
            90.0,
        ),
        ("remote: Try again in 5 minutes.\nfatal: The requested URL returned error: 429", 300.0),
        ("remote: Try again in 2 s.\nfatal: The requested URL returned error: 429", 2.0),
        ("fatal: rate limited by 'https://h/r/', please try again in 30 seconds", 30.0),
        (
            "remote: You have exceeded a secondary rate limit.\nfatal: The requested URL returned error: 403",
            60.0,
        ),
        ("remote: Try again in 99999999999 hours.\nfatal: The requested URL returned error: 429", 900.0),
    ],
)
def test_a_server_that_wants_a_pause_gets_it(stderr: str, seconds: float) -> None:
    error = error_for(stderr, "cannot x")
    assert isinstance(error, RemoteRateLimitError)
    assert error.seconds == seconds
    slept: list[float] = []
    tries = RetrySchedule(slept.append)
    for _ in PAUSES_SECONDS:
        tries.wait(error)
    assert all(pause >= seconds for pause in slept)
    with pytest.raises(RemoteRateLimitError):
        tries.wait(error)


TRACED = """12:30:23.074013 http.c:672              => Send header, 0000000270 bytes (0x0000010e)
12:30:23.074025 http.c:684              => Send header: Authorization: Basic <redacted>
12:30:23.119467 http.c:684              <= Recv header: HTTP/2 301
12:30:23.119487 http.c:684              <= Recv header: retry-after: 99
12:30:23.119467 http.c:684              <= Recv header: HTTP/1.1 {status} x
12:30:23.119487 http.c:684              <= Recv header: {header}
12:30:23.119504 http.c:684              <= Recv header:
12:30:23.119540 http.c:725              == Info: Connection closed
remote: No.
fatal: unable to access 'https://h/r/': The requested URL returned error: {status}
"""


@table(
    ("status", "header", "seconds"),
    [
        ("429", "Retry-After: 7", 7.0),
        ("503", "retry-after: 3", 3.0),
        ("403", "Retry-After: 30", 30.0),
        ("429", "Retry-After: soon", 60.0),
        ("429", "X-Other: 7", 60.0),
        ("404", "Retry-After: 7", None),
        ("503", "X-Other: 7", None),
    ],
)
def test_the_wait_that_a_header_asks_for(status: str, header: str, seconds: float | None) -> None:
    said = without_trace(TRACED.format(status=status, header=header))
    assert "Recv" not in said
    assert "Authorization" not in said
    error = error_for(said, "cannot x")
    assert (error.seconds if isinstance(error, RemoteRateLimitError) else None) == seconds
    assert "the server says: No." in str(error)


def test_progress_is_nothing_that_a_server_says() -> None:
    stderr = "remote: Enumerating objects: 5, done.\nremote: Resolving deltas: 100% (1/1), done.\nremote: Total 3 (delta 0)"
    assert server_words(stderr) == ""


def test_a_full_disk_is_told_apart() -> None:
    error = error_for("fatal: write error: No space left on device", "cannot x")
    assert isinstance(error, DiskFullError)
    with pytest.raises(DiskFullError, match="free some"), storage_errors("cannot x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(DiskFullError), storage_errors("cannot x"):
        raise OSError(errno.EFBIG, "File too large")
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


@pytest.mark.parametrize("command", ["ls-files", "cat-file", "update-index", "write-tree", "commit-tree"])
def test_a_disk_that_is_full_while_committing_changes_nothing(
    safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    write(safe.tree, {"a.txt": "1"})
    with monkeypatch.context() as patch:
        full_disk(tmp_path / "bin", patch, command)
        with pytest.raises(DiskFullError):
            commit_touched(safe, {"a.txt"}, "m", include_commands=True)
    assert commit_touched(safe, {"a.txt"}, "m", include_commands=True).files == ["a.txt"]


def test_a_disk_that_is_full_while_cloning(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk(tmp_path / "bin", monkeypatch, "clone")
    with pytest.raises(DiskFullError):
        clone(source, tmp_path / "runs")
    assert list((tmp_path / "runs").iterdir()) == []


_STAYS = "trap '' TERM HUP INT\n(trap '' TERM HUP INT; exec sleep 600) &\nexec sleep 600\n"
"""Programs that are deaf, git and one that it started."""


@dataclass(frozen=True, slots=True)
class DeafGit:
    """A git that does not end by itself.

    Attributes:
        pipe: what it and the program that it starts hold open.
        path: the PATH on which it is.
    """

    pipe: Path
    path: str


@pytest.fixture
def deaf_git(tmp_path: Path) -> DeafGit:
    folder, pipe = tmp_path / "bin", tmp_path / "pipe"
    folder.mkdir()
    os.mkfifo(pipe)
    (folder / "git").write_text(f"#!/bin/sh\nexec 9> {pipe}\necho started >&9\n{_STAYS}")
    (folder / "git").chmod(0o755)
    return DeafGit(pipe, f"{folder}{os.pathsep}{os.environ['PATH']}")


class Waiting(threading.Thread):
    """Runs a command of git in a context of its own."""

    def __init__(self, folder: Path, stop: threading.Event, remote: Remote | None = None) -> None:
        super().__init__()
        self._git, self._stop_requested, self._remote = HostGit(folder), stop, remote
        self.error: Exception | None = None

    def run(self) -> None:
        end_git_when(self._stop_requested.is_set)
        try:
            self._git.run("version", doing="cannot ask", remote=self._remote)
        except WorkspaceError as error:
            self.error = error


def test_git_and_what_it_started_end_with_the_stop_of_the_run(
    deaf_git: DeafGit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", deaf_git.path)
    stop, place = threading.Event(), "https://git.example.com/calc"
    remote = Remote(place, place, "https", "git.example.com", lambda: None, cancelled=stop.is_set)
    both = [Waiting(tmp_path, stop), Waiting(tmp_path, stop, remote)]
    for waiting in both:
        waiting.start()
    with deaf_git.pipe.open() as pipe:
        assert [pipe.readline() for _ in both] == ["started\n"] * 2
        stop.set()
        assert pipe.read() == ""  # nobody has the pipe any more
    for waiting in both:
        waiting.join()
    assert [str(waiting.error) for waiting in both] == ["cannot ask: interrupted"] * 2


def test_git_and_what_it_started_end_with_the_death_of_the_program(deaf_git: DeafGit, tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.core.watchdog import start_watchdog

start_watchdog()
HostGit(Path({str(tmp_path)!r})).run("version", doing="cannot ask")
"""
    with Path(os.devnull).open("r+b") as nothing:
        environ = {**os.environ, "PATH": deaf_git.path}
        process = Forked((), (nothing.fileno(),) * 3, environ=environ, code=code)
    try:
        with deaf_git.pipe.open() as pipe:
            assert pipe.readline() == "started\n"
            process.kill()
            assert pipe.read() == ""
    finally:
        process.kill()


_INTERRUPTED = """
import signal, sys
from pathlib import Path
from tests.unit.bot.git.rig import clone

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
    # More than a pipe holds: it can only be written while the program waits for git and reads.
    script = f"head -c 200000 /dev/zero\necho $$ > {tmp_path}/started\nexec sleep 600\n"
    (folder / "git").write_text(f"#!/bin/sh\n{script}")
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
