"""What the command's exit status means."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection

DONE = 0
FAILED = 1
USAGE = 2
NOTHING = 3
QUESTION = 4
LIMIT = 5
INTERRUPTED = 130

MEANINGS: dict[int, str] = {
    DONE: "done: a pull request was proposed, or planned with --dry-run",
    FAILED: "the model's provider, GitHub or git failed",
    USAGE: "bad usage or configuration",
    NOTHING: "nothing to do: no task was found, in no cycle of the run",
    QUESTION: "a question was asked, a person has to answer",
    LIMIT: "a limit was reached",
    INTERRUPTED: "interrupted",
}

_OUTCOMES = {
    "proposed": DONE,
    "planned": DONE,
    "finished": DONE,
    "no_task": NOTHING,
    "question": QUESTION,
    "limit": LIMIT,
    "paused": FAILED,
    "failed": FAILED,
    "interrupted": INTERRUPTED,
}


def for_outcome(outcome: str) -> int:
    """The status for a cycle's outcome; one without a status of its own is a failure."""
    return _OUTCOMES.get(outcome, FAILED)


def for_run(ends: Collection[int], last: int) -> int:
    """The status of a run of several cycles.

    Args:
        ends: the status with which the last cycle on each task ended.
        last: the status of the last cycle of all.
    """
    if last in {INTERRUPTED, USAGE}:
        return last
    # Every run that has done its work ends by a cycle that finds nothing to do.
    return next((code for code in (QUESTION, FAILED, LIMIT, DONE) if code in {*ends, last}), NOTHING)


def for_error(error: BaseException) -> int:
    """The status for an error that ended the program."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return FAILED
