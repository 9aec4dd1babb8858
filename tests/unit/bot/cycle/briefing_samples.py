"""Repositories in memory, for tests of the first message."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.briefing import Briefing, first_message
from orchestrator.bot.cycle.tasks import Task
from orchestrator.bot.git.base import FileKind, TrackedFile
from orchestrator.core.errors import FileMissingError, FileUnreadableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.bot.cycle.briefing import Attached


def tracked_file(path: str, size: int, kind: FileKind = "file") -> TrackedFile:
    return TrackedFile(path, size, kind)


@dataclass
class Repo:
    """Files by path. What was read, and how often, is remembered."""

    files: dict[str, str | bytes]
    others: list[TrackedFile] = field(default_factory=list)
    reads: list[str] = field(default_factory=list)

    @property
    def tracked(self) -> list[TrackedFile]:
        sized = [TrackedFile(path, len(self._content(path)), "file") for path in sorted(self.files)]
        return [*sized, *self.others]

    def _content(self, path: str) -> bytes:
        content = self.files[path]
        return content if isinstance(content, bytes) else content.encode()

    async def read(self, path: str, limit: int) -> bytes:
        self.reads.append(path)
        if path not in self.files:
            raise FileMissingError(path)
        content = self._content(path)
        if len(content) > limit:
            raise FileUnreadableError(path)
        return content


def task(title: str, body: str = "", source: str = "issue", number: int | None = 12) -> Task:
    return Task("key", title, body, source, number if source == "issue" else None)


FIX = task("add() in calc.py is wrong")


async def brief(  # noqa: PLR0913  the usual case has none
    repo: Repo,
    work: Task = FIX,
    budget: int = 60_000,
    commits: tuple[tuple[str, str], ...] = (),
    documents: tuple[str, ...] = ("AGENTS.md",),
    *,
    is_brief: bool = False,
    whole_file: bool = False,
    attached: Sequence[Attached] = (),
) -> Briefing:
    return await first_message(
        task=work,
        files=repo.tracked,
        read=repo.read,
        commits=commits,
        budget=budget,
        documents=documents,
        brief=is_brief,
        whole_file=whole_file,
        attached=attached,
    )
