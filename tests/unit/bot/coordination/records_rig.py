"""A bare remote, records on it, workers that claim, and a git that breaks at some commands."""

from __future__ import annotations

import itertools
import os
import shutil
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.git.remote import PushAnswer, Update, push_updates
from orchestrator.core.clock import ManualClock
from tests.doubles.templates import copied
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest

    from orchestrator.bot.coordination.claim_record import ClaimRecord
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.core.redaction import Credential

REF = "refs/pullwright/claims/issue-12"
TASK = "issue-12"
TIMES = LeaseTimes()


class Naps:
    """A sleep that only remembers."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def bare(folder: Path, *options: str) -> Path:
    """A bare repository with one commit on `main`."""

    def make(template: Path) -> None:
        git(template.parent, "init", "-q", "--bare", "-b", "main", *options, template.name)
        tree = git(template, "mktree", stdin=b"")
        git(template, "update-ref", "refs/heads/main", git(template, "commit-tree", tree, "-m", "first"))

    return copied(folder / "bare.git", ("bare with a commit", options), make)


def put(path: Path, ref: str, message: str | bytes) -> str:
    """Anything as a record, as anybody who can push may do."""
    tree = git(path, "mktree", stdin=b"")
    who = "A <a@example.invalid> 0 +0000"
    head = f"tree {tree}\nauthor {who}\ncommitter {who}\n\n".encode()
    stdin = head + (message.encode() if isinstance(message, str) else message)
    made = git(path, "hash-object", "-t", "commit", "-w", "--stdin", stdin=stdin)
    git(path, "update-ref", ref, made)
    return made


def broken_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A git that does something else at some commands. `$real` is the true one."""
    folder = tmp_path / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "git").write_text(f'#!/bin/sh\nreal={shutil.which("git")}\n{script}\nexec $real "$@"\n')
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def logged_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A git that remembers its commands. Gives a function that says which were run since it was asked last."""
    log = tmp_path / "programs"
    script = 'skip=""; for word in "$@"; do case "$skip$word" in -c) skip=x;; x*) skip="";; -*) ;;'
    broken_git(tmp_path, monkeypatch, f"{script} *) echo $word >> '{log}'; break;; esac; done")

    def commands() -> list[str]:
        found = log.read_text().split() if log.exists() else []
        log.unlink(missing_ok=True)
        return found

    return commands


LOST = 'echo "fatal: the remote end hung up unexpectedly" >&2; exit 128'


def opened(remote: Path | str, tmp_path: Path) -> Records:
    return Records(tmp_path / "scratch", str(remote), lambda: None, sleep=Naps())


_COUNT = itertools.count(1)


class Worker:
    """A worker on a machine of its own.

    Attributes:
        clock: its clock, which may be wrong.
    """

    def __init__(
        self,
        remote: Path | str,
        folder: Path,
        name: str = "a",
        *,
        clock: ManualClock | None = None,
        credential: Credential | None = None,
    ) -> None:
        self.name = name
        self.clock = clock or ManualClock()
        self.naps = Naps()
        self.records = Records(
            folder / f"scratch-{name}", str(remote), lambda: credential, clock=self.clock, sleep=self.naps
        )
        self.claims = Claims(self.records, f"host-{name}", self.clock, TIMES, lambda: f"{name}{next(_COUNT)}")

    def take(self, run: str | None = None, task: str = TASK, dead: tuple[str, ...] = ()) -> Lease:
        """Take a task that is free."""
        taken = self.try_to_take(run, task, dead)
        assert isinstance(taken, Lease), taken
        return taken

    def try_to_take(
        self, run: str | None = None, task: str = TASK, dead: tuple[str, ...] = ()
    ) -> Lease | ClaimRecord | str:
        """Take a task if it is free."""
        return self.claims.take(task, run or f"run-{self.name}", dead)


class NoClaim:
    """Moves a reference as a lease does, without a claim."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote

    def push(self, git: HostGit, update: Update, *, doing: str, base: str | None = None) -> str | None:
        """See `Fence.push`."""
        del base
        pushed = push_updates(git, self._remote, [update], doing=doing)
        with Records(git.folder, self._remote.url, self._remote.credential, sleep=Naps()) as records:
            found = records.list(update.ref).get(update.ref)
        if found != update.new and pushed.answer is not PushAnswer.MOVED:
            raise pushed.error
        return found


def holder(path: Path, ref: str = REF) -> str:
    """The first line of a claim."""
    return git(path, "log", "-1", "--format=%s", ref)
