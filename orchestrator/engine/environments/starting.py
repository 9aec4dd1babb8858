"""Starts a program so that a cancellation in the middle leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from typing import Any


async def start_program(*argv: str, **options: Any) -> asyncio.subprocess.Process:
    """`asyncio.create_subprocess_exec` in a process group of its own, whose start is not cancelled half-way.

    A cancelled start may make asyncio wait for ever for a program that has ended already
    (https://github.com/python/cpython/issues/103847). Here the start is waited for, the program
    is killed with its group, and then the cancellation goes on.

    Args:
        argv: the program and its arguments.
        options: those of `create_subprocess_exec`.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    starting = asyncio.ensure_future(asyncio.create_subprocess_exec(*argv, start_new_session=True, **options))
    try:
        return await asyncio.shield(starting)
    except asyncio.CancelledError:
        while not starting.done():
            with suppress(asyncio.CancelledError):  # of a second one; the first is passed on below
                await asyncio.wait([starting])
        if not starting.cancelled() and starting.exception() is None:
            await _kill(starting.result())
        raise


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdin is not None:
        process.stdin.close()
    ending = asyncio.ensure_future(process.wait())
    while not ending.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([ending])
