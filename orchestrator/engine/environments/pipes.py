"""Waiting for descriptors, and pipes whose reading end is let go when we say so, whoever still holds the other end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_PIECE_BYTES = 1 << 16
_PIECES = 16
"""As many as a pipe can hold, unless root makes it larger: pipe(7)."""


class PipeReader:
    """Hands on a new pipe's bytes as they come.

    Args:
        take: gets each piece.
        finish: called once, at the end.

    Attributes:
        writing: the descriptor to write to, which the caller closes.
        ended: set when the pipe is closed, by whoever.
    """

    def __init__(self, take: Callable[[bytes], None], finish: Callable[[], None]) -> None:
        self._take, self._finish = take, finish
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self._loop.add_reader(self._reading, self.read)

    def read(self) -> bool:
        """Take a piece of what is there now. False: nothing is, or no more will be."""
        if self.ended.done():
            return False
        try:
            piece = os.read(self._reading, _PIECE_BYTES)
        except BlockingIOError:
            return False
        if piece:
            self._take(piece)
        else:
            self.close()
        return bool(piece)

    def drain(self) -> bool:
        """Take what was written before now; whether that was all there will ever be."""
        for _ in range(_PIECES):
            if not self.read():
                break
        return self.ended.done()

    def close(self) -> None:
        """Let go of the reading end. Doing it again is no error."""
        if not self.ended.done():
            self._loop.remove_reader(self._reading)
            os.close(self._reading)
            self._finish()
            self.ended.set_result(None)


def open_pipes(
    out: tuple[Callable[[bytes], None], Callable[[], None]],
    err: tuple[Callable[[bytes], None], Callable[[], None]],
) -> tuple[PipeReader, PipeReader]:
    """Two pipes, or none; see `PipeReader` for the arguments of each.

    Raises:
        OSError: too many files are open.
    """
    first = PipeReader(*out)
    try:
        return first, PipeReader(*err)
    except OSError:
        first.close()
        os.close(first.writing)
        raise


async def readable(descriptor: int) -> None:
    """Wait until a descriptor can be read. That of a process (`os.pidfd_open`) can be read when the process has ended."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def come() -> None:
        loop.remove_reader(descriptor)
        if not ready.done():  # cancelled meanwhile
            ready.set_result(None)

    loop.add_reader(descriptor, come)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
