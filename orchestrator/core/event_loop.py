"""Runs the event loop of a command: signals reach it beside the watchdog, and no thread holds up its end for ever."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orchestrator.core.watchdog import ENDING_SIGNALS, wake_descriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_Result = TypeVar("_Result")

THREADS_SECONDS = 4.0
"""How long the end of the loop waits for the threads of `asyncio.to_thread`: with the exit, less than the grace."""
_WAKE_BYTES = 4096


def run(work: Coroutine[Any, Any, _Result], *, threads_seconds: float = THREADS_SECONDS) -> _Result:
    """Run a coroutine to its end in a new event loop, and return its result. Every command uses this function.

    Args:
        threads_seconds: how long the end waits for the threads of `asyncio.to_thread`.
    """
    try:
        with asyncio.Runner(loop_factory=lambda: _Loop(threads_seconds)) as runner:
            return runner.run(work)
    finally:
        work.close()  # Ctrl+C may have come before it began


def on_ending_signals(
    request_end: Callable[[], object], *, interrupt: Callable[[], object] | None = None
) -> None:
    """Call a function when SIGTERM or SIGHUP comes, while the running event loop lives.

    SIGHUP stays ignored if it is, as `nohup` wants it.

    Args:
        request_end: requests an end at once.
        interrupt: called for Ctrl+C; None leaves it as it is, which is that asyncio cancels the main task.
    """
    loop = asyncio.get_running_loop()
    if interrupt is not None:
        loop.add_signal_handler(signal.SIGINT, interrupt)
    for number in ENDING_SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, request_end)


async def to_the_end(work: asyncio.Future[Any]) -> None:
    """Wait for the end of a task. A cancellation is raised after that, and does not reach the task."""
    is_cancelled = False
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError


async def in_thread(
    function: Callable[..., _Result], *arguments: Any, undo: Callable[[_Result], object] | None = None
) -> _Result:
    """Call a function in a thread, as `asyncio.to_thread` does. A cancellation is raised only after its end.

    So what it opened is not lost, and what it works on is not removed under it.

    Args:
        undo: called with the result, in a thread too, if nobody takes it because of a cancellation. Its own error
            is not raised.
    """
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        await to_the_end(work)
    except asyncio.CancelledError:
        if not work.cancelled() and work.exception() is None and undo is not None:
            undoing = asyncio.ensure_future(asyncio.to_thread(undo, work.result()))
            undoing.add_done_callback(lambda done: done.cancelled() or done.exception())
            await to_the_end(undoing)
        raise
    return work.result()


async def in_abandoned_thread(work: Callable[[], _Result]) -> _Result:
    """Call a function in a thread that does not hold up the end of the process, as one that waits for input would.

    The function must not hold a lock that the interpreter needs for its end, such as that of `sys.stdin`.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_Result] = loop.create_future()

    def finish(result: _Result | None, error: BaseException | None) -> None:
        if done.done():  # cancelled meanwhile
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(cast("_Result", result))

    def call() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as raised:  # noqa: BLE001  it is raised again for the caller
            error = raised
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, result, error)

    threading.Thread(target=call, daemon=True).start()
    return await done


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that leaves `signal.set_wakeup_fd` to the watchdog, which wakes the loop after each signal."""

    def __init__(self, threads_seconds: float) -> None:
        super().__init__()
        self._threads_seconds = threads_seconds
        self._threads = ThreadPoolExecutor(thread_name_prefix="asyncio")
        self.set_default_executor(self._threads)
        self._replaced: dict[int, Any] = {}
        is_main = threading.current_thread() is threading.main_thread()
        self._wake = wake_descriptor() if is_main else None  # only there Python handles signals
        if self._wake is not None:
            self.add_reader(self._wake, self._drain)

    def _drain(self) -> None:
        """Read what the watchdog wrote. Python calls the handlers of the signals by itself, before or after this."""
        if self._wake is not None:
            with suppress(BlockingIOError):
                os.read(self._wake, _WAKE_BYTES)

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None:  # type: ignore[override]
        """Call a function in the loop when a signal comes."""
        if self._wake is None:
            super().add_signal_handler(sig, callback, *args)
            return
        before = signal.signal(sig, lambda *_: self.call_soon_threadsafe(callback, *args))
        self._replaced.setdefault(sig, before)

    def remove_signal_handler(self, sig: int) -> bool:
        """Handle a signal as it was before. Return whether there was a handler."""
        if self._wake is None:
            return super().remove_signal_handler(sig)
        if sig not in self._replaced:
            return False
        signal.signal(sig, self._replaced.pop(sig))
        return True

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109  as in asyncio
        """Wait for the threads, but not longer than a limit: asyncio waits for ever, or for 5 minutes."""
        ended = asyncio.Event()

        def end() -> None:
            self._threads.shutdown()
            with suppress(RuntimeError):  # the loop is closed
                self.call_soon_threadsafe(ended.set)

        threading.Thread(target=end, daemon=True).start()
        with suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(self._threads_seconds, timeout or self._threads_seconds))

    def close(self) -> None:
        """Close the loop."""
        for number in list(self._replaced):
            self.remove_signal_handler(number)
        super().close()
