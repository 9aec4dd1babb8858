"""Virtual time for several processes: each runs in a thread of its own, and only one thread runs at a time.

The one that wakes first goes on, so a world needs no sleep, and the same plan always has the same order of steps.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_STACK_BYTES = 1 << 20


class Scheduler:
    """Decides who runs.

    Attributes:
        now: seconds since the world began.
        on_switch: called by each thread before it goes on.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.on_switch: Callable[[Thread], None] = lambda _thread: None
        self._waiting: list[tuple[float, int, Thread | Callable[[], None]]] = []
        self._order = itertools.count()
        self._over = threading.Lock()
        self._alive = 0
        self.failure: BaseException | None = None

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._waiting, (seconds, next(self._order), do))

    def start(self, body: Callable[[Thread], None]) -> Thread:
        """Start a thread, whose body runs from now on."""
        thread = Thread(self, body)
        self._alive += 1
        self.wake_at(self.now, thread)
        return thread

    def wake_at(self, seconds: float, thread: Thread) -> None:
        """Let a thread that waits go on at a time."""
        heapq.heappush(self._waiting, (seconds, next(self._order), thread))

    def run(self) -> None:
        """Run until every thread has ended."""
        self._over.acquire()
        if (first := self.next()) is not None:
            first.go()
            self._over.acquire()
        if self.failure is not None:
            raise self.failure

    def next(self) -> Thread | None:
        """Move the time to the next thread that goes on, and return it; None if there is none."""
        while self._alive:
            when, _, what = heapq.heappop(self._waiting)
            self.now = max(self.now, when)
            if isinstance(what, Thread):
                return what
            try:
                what()
            except Exception as error:  # noqa: BLE001  it is raised by `run`, and the running thread is not its cause
                self.failure = self.failure or error
        return None

    def ended(self, failure: BaseException | None) -> None:
        """Note that the running thread ends, and let the next one go on."""
        self._alive -= 1
        self.failure = self.failure or failure
        thread = self.next()
        if thread is None:
            self._over.release()
        else:
            thread.go()


class Thread:
    """One of the threads of a scheduler."""

    def __init__(self, scheduler: Scheduler, body: Callable[[Thread], None]) -> None:
        self._scheduler, self._body = scheduler, body
        self._go = threading.Lock()
        self._go.acquire()
        self._thread: threading.Thread | None = None

    def go(self) -> None:
        """Let it go on, or begin; the caller then waits or ends."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()
        else:
            self._go.release()

    def sleep(self, seconds: float) -> None:
        """Wait, in this thread, while others run."""
        scheduler = self._scheduler
        scheduler.wake_at(scheduler.now + max(seconds, 0.0), self)
        thread = scheduler.next()
        if thread is not self:
            if thread is None:
                raise AssertionError("a thread that sleeps is among those that wait")
            thread.go()
            self._go.acquire()
            scheduler.on_switch(self)

    def _run(self) -> None:
        failure: BaseException | None = None
        self._scheduler.on_switch(self)
        try:
            self._body(self)
        except BaseException as error:  # noqa: BLE001  it is raised by `Scheduler.run`
            failure = error
        self._scheduler.ended(failure)


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time. What would be done in another thread is done at once.

    Args:
        time: returns the present time in seconds.
        sleep: waits for some seconds while other processes run.
    """

    def __init__(self, time: Callable[[], float], sleep: Callable[[float], None]) -> None:
        super().__init__()
        self._selector = self
        self._time, self._sleep = time, sleep
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Return the present time."""
        return self._time()

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until the next timer. No file is ever ready."""
        if timeout is None:
            raise AssertionError("nothing will ever wake this loop")
        if timeout > 0:
            self._sleep(timeout)
        return []

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call a function and return its result as a future."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  as an executor does
            future.set_exception(error)
        return future

    def _process_events(self, _events: list[Any]) -> None:
        """Do nothing: there are no files."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no other threads."""
