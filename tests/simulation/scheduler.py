"""Virtual time for several processes: each runs in a thread of its own, and only one thread runs at a time.

The one that wakes first goes on, so a world needs no sleep, and the same plan always has the same order of steps.
"""

from __future__ import annotations

import _thread
import asyncio
import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Scheduler:
    """Decides who runs.

    Attributes:
        now: seconds since the world began.
        current: the thread that runs.
        on_switch: called by each thread before it goes on.
    """

    current: Thread

    def __init__(self) -> None:
        self.now = 0.0
        self.on_switch: Callable[[Thread], None] = lambda _thread: None
        self._waiting: list[tuple[float, int, Thread | Callable[[], None], int]] = []
        self._order = itertools.count()
        self._over = threading.Lock()
        self._alive = 0
        self._carriers: list[Carrier] = []
        self.failure: BaseException | None = None

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something at a time."""
        heapq.heappush(self._waiting, (seconds, next(self._order), do, 0))

    def start(self, body: Callable[[Thread], None]) -> Thread:
        """Start a thread, whose body runs from now on."""
        thread = Thread(self, body)
        self._alive += 1
        self.wake_at(self.now, thread)
        return thread

    def wake_at(self, seconds: float, thread: Thread) -> None:
        """Let a thread that waits go on at a time."""
        heapq.heappush(self._waiting, (seconds, next(self._order), thread, thread.turn))

    def run(self) -> None:
        """Run until every thread has ended."""
        self._over.acquire()
        if (first := self.next()) is not None:
            first.go()
            self._over.acquire()
        while self._carriers:
            self._carriers.pop().go()
        if self.failure is not None:
            raise self.failure

    def next(self) -> Thread | None:
        """Move the time to the next thread that goes on, and return it; None if there is none."""
        while self._alive:
            if not self._waiting:
                raise AssertionError("all threads wait for each other")
            when, _, what, turn = heapq.heappop(self._waiting)
            if isinstance(what, Thread) and what.turn != turn:
                continue  # it was woken before
            self.now = max(self.now, when)
            if isinstance(what, Thread):
                what.turn += 1
                return what
            try:
                what()
            except Exception as error:  # noqa: BLE001  it is raised by `run`, and the running thread is not its cause
                self.failure = self.failure or error
        return None

    def ended(self, failure: BaseException | None, carrier: Carrier) -> None:
        """Note that the running thread ends, and let the next one go on. `carrier` carries another one then."""
        self._alive -= 1
        self.failure = self.failure or failure
        thread = self.next()
        self._carriers.append(carrier)
        if thread is None:
            self._over.release()
        else:
            thread.go()

    def carrier(self) -> Carrier:
        """Return a thread of the system that carries nobody."""
        return self._carriers.pop() if self._carriers else Carrier()


class Carrier:
    """A thread of the system, which carries threads of a scheduler, one after another: to begin one takes long."""

    def __init__(self) -> None:
        self._go = _thread.allocate_lock()
        self._go.acquire()
        self.body: Callable[[], None] | None = None
        _thread.start_new_thread(self._run, ())

    def go(self) -> None:
        """Let it go on: to begin with its body, to end if it has none."""
        self._go.release()

    def wait(self) -> None:
        """Wait, in this thread, until another one lets it go on."""
        self._go.acquire()

    def _run(self) -> None:
        while True:
            self.wait()
            body, self.body = self.body, None
            if body is None:
                return
            body()


class Thread:
    """One of the threads of a scheduler.

    Attributes:
        turn: so often it went on.
    """

    def __init__(self, scheduler: Scheduler, body: Callable[[Thread], None]) -> None:
        self._scheduler, self._body, self.turn = scheduler, body, 0
        self._carrier: Carrier | None = None

    def go(self) -> None:
        """Let it go on, or begin; the caller then waits or ends."""
        if self._carrier is None:
            self._carrier = self._scheduler.carrier()
            self._carrier.body = self._run
        self._carrier.go()

    def sleep(self, seconds: float | None) -> None:
        """Wait, in this thread, while others run: so long, or until another thread wakes it."""
        scheduler = self._scheduler
        if seconds is not None:
            scheduler.wake_at(scheduler.now + max(seconds, 0.0), self)
        thread = scheduler.next()
        if thread is not self:
            if thread is None or self._carrier is None:
                raise AssertionError("a thread that sleeps is among those that wait")
            thread.go()
            self._carrier.wait()
            scheduler.current = self
            scheduler.on_switch(self)

    def wake(self) -> None:
        """Let it go on now if it waits."""
        self._scheduler.wake_at(self._scheduler.now, self)

    def _run(self) -> None:
        failure: BaseException | None = None
        self._scheduler.current = self
        self._scheduler.on_switch(self)
        try:
            self._body(self)
        except BaseException as error:  # noqa: BLE001  it is raised by `Scheduler.run`
            failure = error
        self.turn += 1
        if self._carrier is not None:
            self._scheduler.ended(failure, self._carrier)


class VirtualLock:
    """A lock for threads of a scheduler, which its owner may take again."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Thread | None = None
        self._taken = 0
        self._waiting: list[Thread] = []

    def __enter__(self) -> None:
        me = self._scheduler.current
        while self._owner not in {None, me}:
            self._waiting.append(me)
            me.sleep(None)
        self._owner = me
        self._taken += 1

    def __exit__(self, *_: object) -> None:
        self._taken -= 1
        if self._taken == 0:
            self._owner = None
            for thread in self._waiting:
                thread.wake()
            self._waiting.clear()


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop in virtual time, of one thread of a scheduler.

    Args:
        time: returns the present time in seconds.
        wait: waits for some seconds, or until the thread is woken, while others run.
        start: starts a thread of the same process.
    """

    def __init__(
        self,
        thread: Thread,
        time: Callable[[], float],
        wait: Callable[[float | None], None],
        start: Callable[[Callable[[], None]], None],
    ) -> None:
        super().__init__()
        self._selector = self
        self._thread, self._time, self._wait, self._start = thread, time, wait, start
        self._is_waiting = False
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Return the present time."""
        return self._time()

    def select(self, timeout: float | None) -> list[Any]:
        """Wait until the next timer. No file is ever ready."""
        if timeout is None or timeout > 0:
            self._is_waiting = True
            try:
                self._wait(timeout)
            finally:
                self._is_waiting = False
        return []

    def run_in_executor(self, _executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call a function in another thread, and return its result as a future."""
        future = self.create_future()

        def call() -> None:
            result, failure = None, None
            try:
                result = func(*args)
            except BaseException as error:  # noqa: BLE001  as an executor does
                failure = error
            if future.done():  # cancelled meanwhile
                return
            if failure is None:
                future.set_result(result)
            else:
                future.set_exception(failure)
            if self._is_waiting:
                self._thread.wake()

        self._start(call)
        return future

    def _process_events(self, _events: list[Any]) -> None:
        """Do nothing: there are no files."""

    def _write_to_self(self) -> None:
        """Do nothing: there are no other threads."""
