"""What an HTTP exchange with a model's server can look like: its end, its errors, its kinds of replies, their size."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConnectionFailedError, NotConnectedError, ProviderError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    import httpx2

    from orchestrator.core.errors import ModelError
    from orchestrator.engine.models.retries import HttpOptions

MAX_ERROR_BYTES = 64 * 1024
MAX_EVENT_BYTES = 8 * 1024 * 1024
"""A server may send a whole file as one event (a tool call that is not cut into pieces)."""

MAX_DOCUMENT_BYTES = MAX_EVENT_BYTES
"""Of a reply or a list that comes as one document: parsed, it takes many times as much memory."""

MAX_STREAM_BYTES = 128 * 1024 * 1024
"""Of a streamed reply. 128,000 tokens, each in an event of its own of 600 bytes, are 77 million bytes."""

MAX_SAID_CHARACTERS = 16 * 1024 * 1024
"""Of what a streamed reply says: many times what any model can write in one."""

LEAST_PIECE_CHARACTERS = 32
"""A piece of what is said counts as so many at least: it takes memory and time beside its text."""

DRAIN_SECONDS = 0.25

PLAIN = {"accept-encoding": "identity"}
"""Asks for a body that is not packed. A server that packs it all the same is understood, within the bounds."""


def oversized(host: str, what: str, most: int) -> ProviderError:
    """The error of a reply that nobody can mean. It is not asked for again."""
    return ProviderError(f"{host} sent {what} of more than {most:,} bytes; the rest was not read")


def connection_failure(host: str, error: Exception, options: HttpOptions) -> ModelError:
    """What a broken or silent connection is called, in one line."""
    import httpx2

    said = " ".join(str(error).split()) or type(error).__name__
    match error:
        case TimeoutError():
            said = f"no whole reply from {host} within {options.total_seconds:g} s"
        case httpx2.SSEError():
            return oversized(host, "an event", MAX_EVENT_BYTES)
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


async def read_document(response: httpx2.Response, host: str) -> bytes:
    """The whole body, unpacked piece by piece, so that a small one cannot become a huge one.

    Raises:
        ProviderError: it is too large for a reply.
    """
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise oversized(host, "a reply", MAX_DOCUMENT_BYTES)
    return bytes(body)


def read_list(
    client: httpx2.Client,
    url: str,
    headers: Mapping[str, str],
    host: str,
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[int, dict[str, str], bytes]:
    """Ask for a small document: status, headers and body.

    Args:
        client: asks; its time-out is for each piece of the body.
        url: the document's.
        headers: go with the request.
        host: names the server in messages.
        is_late: whether the whole has taken too long; asked after each piece.

    Raises:
        ProviderError: it is too large for what was asked, or late.
        httpx2.HTTPError: no whole answer came.
    """
    body = bytearray()
    with client.stream("GET", url, headers={**headers, **PLAIN}) as reply:
        for chunk in reply.iter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise oversized(host, "a list", MAX_DOCUMENT_BYTES)
            if is_late():
                raise ProviderError(f"{host} takes too long for a list")
        return reply.status_code, dict(reply.headers), bytes(body)


class BoundedText:
    """A streamed body as the reader of events wants it, and no more of it than a reply can have.

    It takes the place of the response there: the reader asks for its headers and its text only.
    """

    def __init__(self, response: httpx2.Response, host: str) -> None:
        self.request = response.request
        # Some servers forget the content type; what is no event stream has no events in it.
        self.headers = {"content-type": "text/event-stream"}
        self._response = response
        self._host = host

    async def aiter_text(self) -> AsyncIterator[str]:
        """The text, unpacked piece by piece.

        Raises:
            ProviderError: it is too long for a reply.
        """
        seen = 0
        async for text in self._response.aiter_text():
            seen += len(text)
            if seen > MAX_STREAM_BYTES:
                raise oversized(self._host, "a stream", MAX_STREAM_BYTES)
            yield text
