"""Pipes whose reading end is let go when we say so, even while some process still holds the other end."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class PipeReader(asyncio.Protocol):
    """Hands on one pipe's bytes as they come. `ended` is set when the pipe is closed, by whoever.

    Args:
        take: gets each piece.
        finish: called once, at the end.
    """

    def __init__(self, take: Callable[[bytes], None], finish: Callable[[], None]) -> None:
        self._take, self._finish = take, finish
        self._transport: asyncio.BaseTransport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BaseProtocol`."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._take(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002  the protocol's
        """See `asyncio.BaseProtocol`."""
        self._finish()
        if not self.ended.done():
            self.ended.set_result(None)

    def close(self) -> None:
        """Let go of the reading end; `ended` is set soon after."""
        if self._transport is not None:
            self._transport.close()


async def open_pipe(take: Callable[[bytes], None], finish: Callable[[], None]) -> tuple[PipeReader, int]:
    """A new pipe: what reads it, and the descriptor to write to, which the caller closes."""
    ours, theirs = os.pipe()
    try:
        _, reader = await asyncio.get_running_loop().connect_read_pipe(
            lambda: PipeReader(take, finish),
            open(ours, "rb", buffering=0),  # noqa: PTH123, SIM115, ASYNC230  a descriptor; the transport closes it
        )
    except BaseException:  # cancelled in between: nobody else knows the descriptor
        os.close(theirs)
        raise
    return reader, theirs
