"""The transport to a server over HTTP: answers of limited length, and no redirects."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.engine.mcp.sign_in import signing_in
from orchestrator.engine.mcp.stdio import MAX_MESSAGE_BYTES, UNASKED_MESSAGES

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    import httpx2
    from mcp.client import Transport
    from mcp.client._transport import TransportStreams

    from orchestrator.engine.mcp.base import ServerAddress
    from orchestrator.engine.mcp.sign_in import ShowPage
    from orchestrator.engine.mcp.stdio import ServerReport

_Hook: TypeAlias = "Callable[[httpx2.Response], Awaitable[None]]"

CONNECT_SECONDS = 20.0
_EVENTS = "text/event-stream"


def remote_transport(
    address: ServerAddress, report: ServerReport, call_seconds: float, show: ShowPage | None = None
) -> Transport:
    """Return the transport to a server over HTTP.

    Args:
        call_seconds: time-out between two pieces of an answer.
        show: see `signing_in`.
    """
    return _streams(address, report, call_seconds, show)


@asynccontextmanager
async def _streams(
    address: ServerAddress, report: ServerReport, call_seconds: float, show: ShowPage | None
) -> AsyncGenerator[TransportStreams]:
    import httpx2
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    times = httpx2.Timeout(CONNECT_SECONDS, read=call_seconds)
    async with signing_in(address, show) as login:

        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            # Compressed answers are refused below, so none is requested.
            given = {**address.headers, **(headers or {}), "Accept-Encoding": "identity"}
            return httpx2.AsyncClient(
                headers=given,
                timeout=timeout or times,
                auth=auth or login,
                event_hooks={"response": [_bounding(report)]},
                follow_redirects=False,
            )

        if address.events:
            async with sse_client(
                address.url,
                timeout=CONNECT_SECONDS,
                sse_read_timeout=call_seconds,
                httpx_client_factory=client,
            ) as streams:
                yield streams
        else:
            async with (
                client() as http,
                streamable_http_client(
                    address.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
                ) as streams,
            ):
                yield streams


def _bounding(report: ServerReport) -> _Hook:
    """Return a hook that limits the length of every answer's body, whatever its headers say."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
            self._inner, self._most = inner, most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            seen = 0
            async for piece in self._inner:
                seen += len(piece)
                if seen > self._most:
                    report.problem = f"it sent an answer of more than {self._most >> 20} MiB"
                    raise httpx2.StreamError(report.problem)
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def bound(response: httpx2.Response) -> None:
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            report.problem = (
                f"it compresses its answers ({packed[:20]!a}), although the request does not allow that"
            )
            raise httpx2.StreamError(report.problem)
        is_stream = response.headers.get("content-type", "").startswith(_EVENTS)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            most = MAX_MESSAGE_BYTES * (UNASKED_MESSAGES if is_stream else 1)
            response.stream = Bounded(response.stream, most)

    return bound
