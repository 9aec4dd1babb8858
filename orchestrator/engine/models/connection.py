"""The HTTP client behind a model: opened with the first request, kept open, and never led elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator import __version__
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.models.exchange import PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx2

    from orchestrator.core.clock import Clock
    from orchestrator.engine.models.retries import HttpOptions

STALE_SECONDS = 2.0
"""A kept connection that the server had closed fails at once. One that fails later carried the request."""

_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


class Connection:
    """Sends requests to one server.

    Args:
        options: time-outs.
        clock: tells a connection that was dead from one that died.
    """

    def __init__(self, options: HttpOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self.client: httpx2.AsyncClient | None = None

    async def post(self, url: str, headers: Mapping[str, str], content: bytes) -> httpx2.Response:
        """Send JSON and wait for the head of the answer. The caller closes the answer.

        Raises:
            ConfigurationError: the address, the proxy or the certificates are no good.
            httpx2.TransportError: no answer came.
        """
        import httpx2

        is_new = False

        async def watch(step: str, info: object) -> None:
            nonlocal is_new
            del info
            is_new = is_new or step.startswith("connection.connect")

        client = self._connected()
        ours = {"content-type": "application/json", "user-agent": f"pullwright/{__version__}"}
        try:
            built = client.build_request(
                "POST",
                url,
                headers={**ours, **PLAIN, **headers},
                content=content,
                extensions={"trace": watch},
            )
        except httpx2.InvalidURL:
            raise ConfigurationError(f"the API address {url!r} is not valid") from None
        sent_at = self._clock.monotonic()
        try:
            return await client.send(built, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.NetworkError):
            if is_new or self._clock.monotonic() - sent_at > STALE_SECONDS:
                raise
        # A kept connection that the server had closed in the meantime (llama.cpp closes each after a
        # stream and says that it does not) is no failure of the server.
        return await client.send(built, stream=True)

    async def aclose(self) -> None:
        """Let go of the connections. A later request opens new ones."""
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()

    def _connected(self) -> httpx2.AsyncClient:
        import httpx2

        if self.client is None:
            options = self._options
            timeout = httpx2.Timeout(options.read_seconds, connect=options.connect_seconds, pool=None)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
            # A key must not go elsewhere: no redirects. A server on this machine needs no proxy.
            try:
                self.client = httpx2.AsyncClient(
                    timeout=timeout, limits=limits, follow_redirects=False, mounts=dict.fromkeys(_LOOPBACK)
                )
            except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
                raise ConfigurationError(
                    f"the environment's proxy or certificate settings are no good: {error}"
                ) from None
        return self.client
