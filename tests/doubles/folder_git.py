"""What git says of a repository that is only a few values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


@dataclass(slots=True)
class FolderGit:
    """Branches with their commits. `head` is the branch that HEAD names, and is there even without a commit.

    Attributes:
        into: by commit, those that are part of its history.
        asked: what was asked, in order; each would be a program.
    """

    commits: Mapping[str, str]
    head: str | None = "main"
    into: Mapping[str, Collection[str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def heads(self) -> tuple[str | None, Mapping[str, str]]:
        self.asked.append("heads")
        return self.head, self.commits

    def read_file(self, path: str, commit: str) -> str | None:
        self.asked.append("file")
        return f"{path} in {commit}"

    def merged(self, commits: Collection[str], into: str) -> Collection[str]:
        self.asked.append("merged")
        return set(commits).intersection(self.into.get(into, ()))
