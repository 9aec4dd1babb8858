"""What an HTTP exchange with a model's server can look like: its end, its errors, its kinds of replies."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConnectionFailedError, NotConnectedError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2

    from orchestrator.models.retries import HttpOptions

MAX_ERROR_BYTES = 64 * 1024
DRAIN_SECONDS = 0.25


def connection_failure(host: str, error: Exception, options: HttpOptions) -> ConnectionFailedError:
    """What a broken or silent connection is called, in one line."""
    import httpx2

    said = " ".join(str(error).split()) or type(error).__name__
    match error:
        case TimeoutError():
            said = f"no whole reply from {host} within {options.total_seconds:g} s"
        case httpx2.ConnectTimeout():
            return NotConnectedError(f"cannot connect to {host} within {options.connect_seconds:g} s")
        case httpx2.ConnectError():
            words = f"cannot connect to {host}: {said}; is the address right, and the server running?"
            return NotConnectedError(words)
        case httpx2.TimeoutException():
            said = f"{host} sent nothing for {options.read_seconds:g} s"
        case _:
            said = f"the connection to {host} broke: {said}"
    return ConnectionFailedError(said)


async def drain(events: AsyncGenerator[object]) -> None:
    """Read what comes after the protocol's end mark: only a body read to its end leaves the connection open."""
    import httpx2

    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in events:
                pass
    except (httpx2.TransportError, httpx2.DecodingError, TimeoutError):
        pass  # the reply is complete; the connection is closed instead of kept


def is_document(response: httpx2.Response) -> bool:
    """Whether the server answered a request for a stream with one JSON document, or with a web page."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind.endswith(("json", "html"))


async def read_start(response: httpx2.Response) -> bytes:
    """The beginning of an error's body, as far as it can be read."""
    import httpx2

    body = b""
    try:
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except (httpx2.TransportError, httpx2.DecodingError):
        pass  # the status alone says enough
    return body[:MAX_ERROR_BYTES]
