"""How patient the program is with a model's server: time-outs, tries, and the waits between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import ResumableError
from orchestrator.engine.models.failures import is_transient

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.core.clock import Clock
    from orchestrator.core.errors import ModelError


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Limits on time and tries.

    Attributes:
        connect_seconds: to open a connection.
        read_seconds: between two pieces of a reply; a local model may read long before the first.
        total_seconds: for one call with all its tries and waits.
        tries: how often a request is sent at most.
        max_wait_seconds: all waits of one call together; a longer one is left to the caller.
        first_backoff_seconds: the longest wait after the first failure; it doubles with each.
        max_backoff_seconds: where the doubling ends.
    """

    connect_seconds: float = 15.0
    read_seconds: float = 300.0
    total_seconds: float = 1_800.0
    tries: int = 5
    max_wait_seconds: float = 120.0
    first_backoff_seconds: float = 0.5
    max_backoff_seconds: float = 30.0


class Attempts:
    """The tries of one call, and what they have used up so far."""

    def __init__(self, options: HttpOptions, clock: Clock, random: Callable[[], float]) -> None:
        self._options = options
        self._clock = clock
        self._random = random
        self._deadline = clock.monotonic() + options.total_seconds
        self._failures = 0
        self._waited_seconds = 0.0

    def seconds_left(self) -> float:
        """How long the call may still take."""
        return max(self._deadline - self._clock.monotonic(), 0.0)

    def plan(self, failure: ModelError) -> float:
        """How many seconds to wait until the request may be sent again.

        Raises:
            ModelError: the failure itself, if trying again is of no use or would take too long.
        """
        self._failures += 1
        if not is_transient(failure) or self._failures >= self._options.tries:
            raise failure
        seconds = self._wait_seconds(failure)
        if self._waited_seconds + seconds > self._options.max_wait_seconds or seconds >= self.seconds_left():
            raise failure
        self._waited_seconds += seconds
        return seconds

    async def pause(self, seconds: float) -> None:
        """Wait."""
        await self._clock.sleep(seconds)

    def _wait_seconds(self, failure: ModelError) -> float:
        """Exponential backoff with full jitter, on top of what the server asked for.

        https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        """
        doubled = self._options.first_backoff_seconds * 2.0 ** (self._failures - 1)
        backoff = self._random() * min(doubled, self._options.max_backoff_seconds)
        resume_at = failure.resume_at if isinstance(failure, ResumableError) else None
        asked = (resume_at - self._clock.now()).total_seconds() if resume_at else 0.0
        return max(asked, 0.0) + backoff
