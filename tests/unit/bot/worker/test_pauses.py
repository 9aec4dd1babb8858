from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.journal.index import Pause
from orchestrator.bot.worker.worker import NeedsPerson, pause_after
from orchestrator.core import errors
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    AuthenticationError,
    BadReplyError,
    ClaimLostError,
    ConfigurationError,
    ConnectionFailedError,
    DiskFullError,
    ForgeAuthenticationError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RemoteUnavailableError,
    SandboxMissingError,
    SpentQuotaError,
)
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable

NOW = datetime(2026, 1, 1, tzinfo=UTC)
IN_2_H = NOW + timedelta(hours=2)


def minutes(error: BaseException, failures: int = 1, jitter: float = 0.0) -> float:
    pause = pause_after(error, NOW, failures, jitter)
    assert isinstance(pause, Pause)
    return (pause.until - NOW).total_seconds() / 60


def test_nothing_follows_a_cycle_without_an_error() -> None:
    assert pause_after(None, NOW, 0, 0.0) is None


@table(
    "error",
    [
        SpentQuotaError("x", resume_at=IN_2_H),
        RateLimitError("x", resume_at=IN_2_H),
        OverloadedError("x", resume_at=IN_2_H),
        ForgeRateLimitError("x", resume_at=IN_2_H),
    ],
)
def test_a_named_time_is_kept(error: Exception) -> None:
    assert minutes(error) == 120
    assert 120 < minutes(error, jitter=0.99) < 121  # never before it


@table(
    ("error", "first", "last"),
    [
        (RateLimitError("x"), 15, 360),
        (OverloadedError("x"), 1, 30),
        (ConnectionFailedError("x"), 1, 30),
        (ForgeUnavailableError("x"), 1, 30),
        (ForgeRateLimitError("x"), 1, 30),
        (RemoteUnavailableError("x"), 1, 30),
        (DiskFullError("x"), 15, 360),
        (ValueError("x"), 15, 360),
    ],
)
def test_without_a_time_the_waits_grow(error: Exception, first: float, last: float) -> None:
    waits = [minutes(error, failures) for failures in range(1, 12)]
    assert (waits[0], waits[1], waits[-1]) == (first, 2 * first, last)
    assert waits == sorted(waits)
    assert waits[0] < minutes(error, jitter=0.5) < 2 * first


@table("seconds", [-3_600, 0, 1])
def test_a_time_of_no_use_does_not_make_the_waits_shorter(seconds: int) -> None:
    error = RateLimitError("x", resume_at=NOW + timedelta(seconds=seconds))
    assert [minutes(error, failures) for failures in (1, 2, 3)] == [1, 2, 4]


def test_no_server_puts_the_worker_to_sleep_for_years() -> None:
    assert minutes(RateLimitError("x", resume_at=NOW + timedelta(days=900))) == 32 * 24 * 60


@table(
    "error",
    [
        SpentQuotaError("no credit left"),
        AuthenticationError("check the API key"),
        PermissionDeniedError("x"),
        ConfigurationError("x"),
        SandboxMissingError("install bubblewrap"),
        ForgeAuthenticationError("x"),
        ForgePermissionError("x"),
    ],
)
def test_where_only_a_person_can_help_the_worker_ends_and_says_so(error: Exception) -> None:
    halt = pause_after(error, NOW, 1, 0.0)
    assert isinstance(halt, NeedsPerson)
    assert str(error) in halt.reason
    assert "\n" not in halt.reason


@pytest.mark.parametrize("error", [BadReplyError("x"), ClaimLostError("x")])
def test_one_task_that_fails_does_not_stop_the_others(error: Exception) -> None:
    assert pause_after(error, NOW, 1, 0.0) is None
    assert pause_after(error, NOW, 2, 0.0) is None
    assert [minutes(error, failures) for failures in (3, 4, 5)] == [15, 30, 60]


def test_a_reason_is_one_line_and_never_empty() -> None:
    pause = pause_after(OSError(), NOW, 1, 0.0)
    assert pause is not None
    assert pause.reason == "OSError"
    several = pause_after(ValueError("one\ntwo"), NOW, 1, 0.0)
    assert several is not None
    assert several.reason == "one two"


def test_a_git_server_that_names_a_pause_gets_it() -> None:
    pause = pause_after(errors.RemoteRateLimitError("x", seconds=900.0), NOW, 1, 0.0)
    assert isinstance(pause, Pause)
    assert pause.until == NOW + timedelta(minutes=15)


def kinds() -> list[type[errors.PullwrightError]]:
    def below(kind: type[errors.PullwrightError]) -> list[type[errors.PullwrightError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    return sorted(set(below(errors.PullwrightError)), key=lambda kind: kind.__name__)


def at_once(kind: type[errors.PullwrightError]) -> Callable[[datetime], BaseException]:
    """An error whose server always names a time that is already there, where it has one."""
    if issubclass(kind, RateLimitError | OverloadedError | ForgeRateLimitError):
        return lambda now: kind("x", resume_at=now)
    return lambda _now: kind("x")


@pytest.mark.parametrize(
    "make", [*(at_once(kind) for kind in kinds()), lambda _now: OSError(), lambda _now: KeyError()]
)
async def test_no_error_makes_the_worker_spin(make: Callable[[datetime], BaseException]) -> None:
    """A day in which each cycle fails at once with the same error."""
    clock = ManualClock(NOW)
    cycles = 0
    while clock.now() < NOW + timedelta(days=1):
        cycles += 1
        assert cycles < 60
        follows = pause_after(make(clock.now()), clock.now(), cycles, cycles * 0.37 % 1)
        if isinstance(follows, NeedsPerson):
            break
        if follows:
            await clock.sleep((follows.until - clock.now()).total_seconds())
