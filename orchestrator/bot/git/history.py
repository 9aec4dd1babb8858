"""What the base commit holds, and the commits before it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orchestrator.bot.git.base import CommitLine, FileKind, TrackedFile

if TYPE_CHECKING:
    from orchestrator.bot.git.hostgit import HostGit

_KINDS: dict[bytes, FileKind] = {b"120000": "link", b"160000": "submodule"}


def tracked_files(git: HostGit, commit: str) -> list[TrackedFile]:
    """Every entry of a commit, sorted by path."""
    output = git.run("ls-tree", "-r", "-z", "-l", "--full-tree", commit, doing="cannot list the files")
    return sorted(map(_tracked_file, output.split(b"\0")[:-1]), key=lambda file: file.path)


def _tracked_file(line: bytes) -> TrackedFile:
    """Read `<mode> <type> <object> <size>TAB<path>`."""
    fields, _, path = line.partition(b"\t")
    mode, _, _, size = fields.split()
    kind = _KINDS.get(mode, "file")
    return TrackedFile(os.fsdecode(path), 0 if size == b"-" else int(size), kind)


def recent_commits(git: HostGit, commit: str, count: int) -> list[CommitLine]:
    """A commit and those before it, newest first."""
    if count < 1:
        return []
    output = git.run(
        *("log", "-z", f"--max-count={count}", "--encoding=UTF-8", "--format=%H%x09%cs%x09%s", commit),
        doing="cannot read the history",
    )
    lines = (line.decode("utf-8", "replace").split("\t", 2) for line in output.split(b"\0") if line)
    return [CommitLine(found, subject, date) for found, date, subject in lines]
