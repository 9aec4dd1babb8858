"""What a worker does after a cycle that failed: go on, pause until a time, or end with what a person has to do."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.journal.pauses import Pause
from orchestrator.core.errors import (
    AuthenticationError,
    BadReplyError,
    ClaimLostError,
    ConfigurationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    EmptyRepositoryError,
    ForgeAuthenticationError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    GitMissingError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    PushRejectedError,
    RemoteRateLimitError,
    RemoteRefusedError,
    RemoteUnavailableError,
    ResumableError,
    SpentQuotaError,
    ToolError,
)

if TYPE_CHECKING:
    from datetime import datetime

SHORT_MINUTES = (1.0, 2.0, 4.0, 8.0, 16.0, 30.0)
"""After something that passes by itself: an overload, no connection, GitHub away."""
LONG_MINUTES = (15.0, 30.0, 60.0, 120.0, 240.0, 360.0)
"""After a quota without a time, and after what nobody foresaw."""
TASKS_IN_A_ROW = 3
"""So many tasks may fail one after another, each for a reason of its own, until that is a reason to wait."""
_LONGEST_DAYS = 32  # quotas are of a month at most
_SPREAD = 0.25  # of a wait without a named end: machines that failed together come back one by one
_SPREAD_SECONDS = 30.0  # after the end that a server named

_NEEDS_PERSON = (
    AuthenticationError,
    PermissionDeniedError,
    ModelNotFoundError,
    ConfigurationError,
    ForgeAuthenticationError,
    ForgePermissionError,
    GitMissingError,
    EmptyRepositoryError,
    RemoteRefusedError,
)
_PASSING = (
    OverloadedError,
    ConnectionFailedError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    RemoteUnavailableError,
)
_OF_THE_TASK = (
    BadReplyError,
    ContextLengthError,
    ContentFilterError,
    InvalidRequestError,
    PushRejectedError,
    ClaimLostError,
    ForgeNotFoundError,
    ToolError,
)


@dataclass(frozen=True, slots=True)
class Halt:
    """The worker ends: only a person can help. The reason is one line and says what to do."""

    reason: str


def pause_after(
    error: BaseException | None, now: datetime, failures_in_a_row: int, jitter: float
) -> Pause | Halt | None:
    """What follows a cycle's error; None is that the next cycle may begin at once.

    =======================================  =====================================================
    error                                    what follows
    =======================================  =====================================================
    quota or rate limit                      a pause until the time that the server names, else
                                             15 minutes, 30, 60 ... 6 hours
    quota that only money brings back        `Halt`
    overload, connection, GitHub or remote   a pause until the named time, else 1 minute, 2, 4
    away, GitHub's rate limit                ... 30
    key, token, permission, configuration    `Halt`
    one task's own fault                     None; from the third in a row 15 minutes, 30 ...
    anything else (a full disk, git)         15 minutes, 30, 60 ... 6 hours
    =======================================  =====================================================

    A named time never makes a pause shorter than the short waits: a server whose times are of no
    use is not asked more and more often.

    Args:
        error: why the cycle failed.
        now: the time, in UTC.
        failures_in_a_row: cycles that failed one after another, this one included.
        jitter: from 0 up to 1; spreads workers that failed at the same moment.
    """
    if error is None:
        return None
    said = _line(error)
    if isinstance(error, SpentQuotaError) and error.resume_at is None:
        return Halt(f"the model's quota is spent and no time is named when it is free again: {said}")
    if isinstance(error, _NEEDS_PERSON):
        return Halt(said)
    if isinstance(error, _OF_THE_TASK):
        return _after_tasks(said, now, failures_in_a_row, jitter)
    return Pause(_until(error, now, failures_in_a_row, jitter), said)


def _after_tasks(said: str, now: datetime, failures_in_a_row: int, jitter: float) -> Pause | None:
    rest = failures_in_a_row - TASKS_IN_A_ROW + 1
    if rest < 1:
        return None
    several = f"{failures_in_a_row} cycles failed in a row, the last one so: {said}"
    return Pause(_later(now, LONG_MINUTES, rest, jitter), several)


def _until(error: BaseException, now: datetime, failures_in_a_row: int, jitter: float) -> datetime:
    named = error.resume_at if isinstance(error, ResumableError | ForgeRateLimitError) else None
    if named is None:
        steps = SHORT_MINUTES if isinstance(error, _PASSING) else LONG_MINUTES
        later = _later(now, steps, failures_in_a_row, jitter)
        asked = error.seconds if isinstance(error, RemoteRateLimitError) else 0.0
        return max(later, now + timedelta(seconds=asked))
    latest = now + timedelta(days=_LONGEST_DAYS)
    until = min(named + timedelta(seconds=_SPREAD_SECONDS * jitter), latest)
    return max(until, _later(now, SHORT_MINUTES, failures_in_a_row, jitter))


def _later(now: datetime, minutes: tuple[float, ...], number: int, jitter: float) -> datetime:
    step = minutes[min(max(number, 1), len(minutes)) - 1]
    return now + timedelta(minutes=step * (1 + _SPREAD * jitter))


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
