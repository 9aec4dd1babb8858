"""A real repository as the remote, and a clone of it. Used by every test of this room."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.opening import open_clone
from orchestrator.core.clock import ManualClock
from tests.doubles.templates import copied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    import pytest

    from orchestrator.bot.git.clone import Clone
    from orchestrator.core.redaction import Credential

US = Identity("Pullwright", "bot@example.invalid")
_WHO = ("-c", "user.name=Someone", "-c", "user.email=someone@example.invalid", "-c", "maintenance.auto=false")


def git(folder: Path, *arguments: str, stdin: bytes | None = None) -> str:
    """Run git as a person would, with none of the program's hardening."""
    done = subprocess.run(
        ["git", "-C", str(folder), *_WHO, *arguments], check=True, capture_output=True, input=stdin
    )
    return done.stdout.decode("utf-8", "surrogateescape").removesuffix("\n")


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    """Write files below a folder."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def make_source(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A repository with one commit on `main`."""

    def make(template: Path) -> None:
        template.mkdir()
        git(template, "init", "-q", "-b", "main")
        write(template, files)
        git(template, "add", ".")
        git(template, "commit", "-qm", "first")

    return copied(folder, ("source", tuple(files.items())), make)


def add_empty_commits(folder: Path, count: int, what: str) -> None:
    """Put commits that change nothing on the branch that is checked out, all by one program."""
    branch = git(folder, "symbolic-ref", "HEAD")
    head, stream = git(folder, "rev-parse", "HEAD"), ""
    for number in range(count):
        message = f"{what} {number}"
        stream += f"commit {branch}\ncommitter Someone <someone@example.invalid> now\n"
        stream += f"data {len(message.encode())}\n{message}\n"
        stream += "" if number else f"from {head}\n"
    git(folder, "fast-import", "--quiet", "--date-format=now", stdin=stream.encode())


def clone(
    source: Path | str,
    parent: Path,
    *,
    branch: str | None = None,
    with_git: bool = False,
    credential: Callable[[], Credential | None] = lambda: None,
) -> Clone:
    """Our clone of it."""
    return open_clone(
        str(source),
        branch=branch,
        credential=credential,
        parent=parent,
        with_git=with_git,
        identity=US,
        clock=ManualClock(),
    )


_SSH = """#!/bin/sh
for command; do :; done
exec sh -c "$command"
"""


def over_ssh(source: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a repository on a server, where git obeys its hooks; the server is this machine."""
    program = folder / "server" / "ssh"
    write(program.parent, {"ssh": _SSH})
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return f"ssh://server.invalid{source}"


def show(source: Path, commit: str, path: str) -> bytes:
    """A file's bytes in a commit."""
    command = ["git", "-C", str(source), "cat-file", "blob", f"{commit}:{path}"]
    return subprocess.run(command, check=True, capture_output=True).stdout
