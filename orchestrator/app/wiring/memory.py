"""What sessions remember, as far as the program knows it: a plug-in gives the rest (`Point.MEMORY`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.app.plugins import Point, added

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.repository import OnDisk
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.attempt import CycleMemory
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.worker.candidates import SeenPulls
    from orchestrator.engine.tools.base import Tool


@dataclass(frozen=True, slots=True)
class CycleSources:
    """What the memory of a cycle may read, and whether it may write.

    Attributes:
        profile: the name of the session's profile.
        open_records: opens the hidden refs of the remote.
        seen: returns what the search for a task has read.
        at_reference: returns the remote's ref of learned facts, as seen before; None means to ask the remote.
        clean: returns a comment as people see it, without secrets.
        is_local: whether the repository is a folder, in which nobody reviews.
        writes: whether anything may be stored for other machines.
    """

    profile: str
    forge: Forge
    open_records: Callable[[], Records]
    seen: Callable[[], SeenPulls]
    at_reference: Callable[[], Mapping[str, str] | None]
    clean: Callable[[str], str]
    is_local: bool
    writes: bool


class SessionMemory(Protocol):
    """What the sessions of a run, or of a conversation, remember. Each method may raise a `MemoryStoreError`."""

    @property
    def question(self) -> str:
        """What to ask a person before the first message of a conversation; empty for nothing."""

    async def answer(self, *, agrees: bool) -> None:
        """Take the answer of a person to `question`. May raise `ConfigurationError`."""

    def tools(self, profile: str, *, attended: bool = False) -> tuple[Tool, ...]:
        """Return the tools for a session under this profile.

        Args:
            attended: whether a person can be asked what is remembered for long.
        """

    def recall(self, profile: str) -> Callable[[str], Awaitable[str]]:
        """Return what finds the memories for a message of a conversation, as Markdown: see `Host.recall`."""

    def in_cycle(self, sources: CycleSources) -> CycleMemory | None:
        """Return what a cycle remembers; None for nothing."""

    async def import_folder(self, folder: Path) -> tuple[int, Sequence[str]]:
        """Store what another program's folder remembers; return how much is new, and notes on what is not taken.

        It may raise `ConfigurationError` and `ModelError`.
        """

    async def aclose(self) -> None:
        """Close everything that is open."""


def open_session_memory(
    context: BuildContext, repository: str = "", here: OnDisk | None = None
) -> SessionMemory | None:
    """Return what the sessions on a repository remember; None if no plug-in remembers anything.

    Args:
        repository: label of the repository (`Site.label`); empty for none.
        here: the folder of a person's conversation, which is about no named repository.
    """
    found = (open_memory(context, repository, here) for open_memory in added(Point.MEMORY))
    return next(found, None)
