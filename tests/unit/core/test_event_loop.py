"""Functions that are called in threads: what they open is not lost, whatever cancels the wait for them."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.event_loop import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_SECONDS = 60.0


class Opener:
    """Opens something as soon as it may, and counts what is open."""

    def __init__(self, error: Exception | None = None) -> None:
        self.begun, self.may_end = threading.Event(), threading.Event()
        self.opened: list[str] = []
        self._error = error

    def open(self, name: str) -> str:
        self.begun.set()
        assert self.may_end.wait(WAIT_SECONDS)
        if self._error is not None:
            raise self._error
        self.opened.append(name)
        return name

    async def cancelled(self, *, times: int, undo: Callable[[str], object] | None) -> None:
        calling = asyncio.create_task(in_thread(self.open, "it", undo=undo))
        await asyncio.to_thread(self.begun.wait, WAIT_SECONDS)
        for _ in range(times):
            calling.cancel()
            await asyncio.sleep(0)
        assert not calling.done()  # it waits for the thread
        self.may_end.set()
        await asyncio.wait([calling])
        assert calling.cancelled()


async def test_a_call_returns_what_the_function_returns() -> None:
    opener = Opener()
    opener.may_end.set()
    assert await in_thread(opener.open, "it", undo=opener.opened.remove) == "it"
    assert opener.opened == ["it"]


@pytest.mark.parametrize("times", [1, 2, 5])
async def test_what_was_opened_for_a_cancelled_task_is_closed(times: int) -> None:
    opener = Opener()
    await opener.cancelled(times=times, undo=opener.opened.remove)
    assert opener.opened == []


async def test_without_an_undo_the_call_ends_before_the_task() -> None:
    opener = Opener()
    await opener.cancelled(times=2, undo=None)
    assert opener.opened == ["it"]


async def test_an_error_of_a_cancelled_call_and_of_its_undo_is_not_raised() -> None:
    def fails(_name: str) -> None:
        raise OSError

    await Opener(OSError()).cancelled(times=1, undo=fails)
    await Opener().cancelled(times=1, undo=fails)


async def test_an_error_of_the_function_is_raised() -> None:
    opener = Opener(ValueError("no"))
    opener.may_end.set()
    with pytest.raises(ValueError, match="no"):
        await in_thread(opener.open, "it")
