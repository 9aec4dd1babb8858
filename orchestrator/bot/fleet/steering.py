"""The commands that steer a fleet: the effect of each, and its result in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import claim_ref

if TYPE_CHECKING:
    from orchestrator.bot.fleet.store import FleetStore

_UNKNOWN = "has not been begun: start a worker with pullwright fleet run"


@dataclass(frozen=True, slots=True)
class Steered:
    """Whether a command had an effect, and the text that follows the name of its subject."""

    is_done: bool
    words: str


def add(store: FleetStore, repository: str, task: str = "") -> Steered:
    """Look at a repository now, or try a task there next.

    Raises:
        WorkspaceError: the task key is invalid.
        FleetError: the database cannot be reached.
    """
    if not task:
        return _told(store.wake(repository), "is looked at now", _UNKNOWN)
    claim_ref(task)
    why = "has a turn that runs, is paused, or was never begun: see pullwright fleet status"
    return _told(store.ask(repository, task), f"tries {task} next", why)


def pause(store: FleetStore, repository: str, reason: str) -> Steered:
    """Start nothing more in a repository.

    Raises:
        FleetError: the database cannot be reached.
    """
    return _told(store.pause(repository, reason), "is paused; what runs goes on to its end", _UNKNOWN)


def resume(store: FleetStore, repository: str) -> Steered:
    """Continue a paused repository.

    Raises:
        FleetError: the database cannot be reached.
    """
    return _told(store.resume(repository), "goes on", _UNKNOWN)


def cancel(store: FleetStore, repository: str) -> Steered:
    """End the turn of a repository.

    Raises:
        FleetError: the database cannot be reached.
    """
    done = "goes on with another task; a cycle that runs ends within seconds"
    return _told(store.cancel(repository), done, "has no turn")


def drain(store: FleetStore, worker: str) -> Steered:
    """Let a worker end after its running turns.

    Raises:
        FleetError: the database cannot be reached.
    """
    is_done = store.drain(worker)
    names = "" if is_done else ", ".join(one.worker for one in store.workers()) or "none"
    return _told(is_done, "ends after the rounds that it runs", f"is no worker; there are: {names}")


def _told(is_done: bool, words: str, otherwise: str) -> Steered:  # noqa: FBT001  what the store answered
    return Steered(is_done, words if is_done else otherwise)
