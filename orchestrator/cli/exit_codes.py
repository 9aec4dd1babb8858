"""What the command's exit status means."""

from __future__ import annotations

from orchestrator.core.errors import ConfigurationError

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
    NOTHING: "nothing to do: no task was found",
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


def for_error(error: BaseException) -> int:
    """The status for an error that ended the program."""
    if isinstance(error, ConfigurationError):
        return USAGE
    if isinstance(error, KeyboardInterrupt):
        return INTERRUPTED
    return FAILED
