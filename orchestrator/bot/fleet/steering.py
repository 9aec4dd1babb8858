"""The commands of a person to a fleet. Each returns its result in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import claim_ref

if TYPE_CHECKING:
    from orchestrator.bot.fleet.store import FleetStore

_UNKNOWN = "is unknown to the fleet: start a worker with pullwright fleet run"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """Whether a command had an effect, and the text that follows the name of its subject."""

    is_done: bool
    words: str


def add(store: FleetStore, repository: str, task: str = "") -> CommandResult:
    """Look at a repository now, or try a task there next.

    Raises:
        WorkspaceError: the task key is invalid.
        FleetError: the database cannot be reached.
    """
    if not task:
        return _outcome(store.wake(repository), "is looked at now", _UNKNOWN)
    claim_ref(task)
    why = "has a running turn, is paused, or is unknown to the fleet: see pullwright fleet status"
    return _outcome(store.ask(repository, task), f"tries {task} next", why)


def pause(store: FleetStore, repository: str, reason: str) -> CommandResult:
    """Pause a repository: no further turn starts there.

    Raises:
        FleetError: the database cannot be reached.
    """
    return _outcome(
        store.pause(repository, reason), "is paused; a running turn continues to its end", _UNKNOWN
    )


def resume(store: FleetStore, repository: str) -> CommandResult:
    """Continue a paused repository.

    Raises:
        FleetError: the database cannot be reached.
    """
    return _outcome(store.resume(repository), "continues", _UNKNOWN)


def cancel(store: FleetStore, repository: str) -> CommandResult:
    """Cancel the turn of a repository.

    Raises:
        FleetError: the database cannot be reached.
    """
    done = "continues with another task; a running cycle ends within seconds"
    return _outcome(store.cancel(repository), done, "has no turn")


def drain(store: FleetStore, worker: str) -> CommandResult:
    """Let a worker end after the current rounds of its cycles.

    Raises:
        FleetError: the database cannot be reached.
    """
    is_done = store.drain(worker)
    names = "" if is_done else ", ".join(one.worker for one in store.workers()) or "none"
    return _outcome(
        is_done, "ends after the current rounds of its cycles", f"is not a worker; the workers are: {names}"
    )


def _outcome(is_done: bool, words: str, otherwise: str) -> CommandResult:  # noqa: FBT001  the store's answer
    return CommandResult(is_done, words if is_done else otherwise)
