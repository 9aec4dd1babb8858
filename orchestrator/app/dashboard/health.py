"""The health of a worker over HTTP: `/healthz` as JSON, `/metrics` for Prometheus. It reads nothing but the path."""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from orchestrator.app.dashboard.serving import listen, serving
from orchestrator.core.addresses import is_loopback

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from orchestrator.bot.fleet.members import Health

_MOST_CONNECTIONS = 16
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PROMETHEUS = (
    "text/plain; version=0.0.4; charset=utf-8"  # https://prometheus.io/docs/instrumenting/exposition_formats
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}


@asynccontextmanager
async def serving_health(health: Health, host: str, port: int) -> AsyncIterator[int]:
    """Listen while the block runs; gives the port.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    app: ASGIApp = _health_app(health)
    with listen(host, port) as bound:
        number = bound.getsockname()[1]
        async with serving(_OnlyLocal(app) if is_loopback(host) else app, bound, _MOST_CONNECTIONS):
            yield number


def _health_app(health: Health) -> Starlette:
    async def healthz(request: Request) -> Response:
        if request.url.query:
            return await missing(request)
        state = health.state()
        text = json.dumps(state, ensure_ascii=False) + "\n"
        status = 200 if state["status"] == "ok" else 503
        return Response(text.encode("utf-8", "replace"), status, _HEADERS, "application/json")

    async def metrics(_request: Request) -> Response:
        return Response(health.metrics().encode("utf-8", "replace"), 200, _HEADERS, _PROMETHEUS)

    async def missing(_request: Request, _error: Exception | None = None) -> Response:
        return PlainTextResponse("there are /healthz and /metrics\n", 404, _HEADERS)

    async def refused(_request: Request, _error: Exception) -> Response:
        return PlainTextResponse("GET and HEAD only\n", 405, {**_HEADERS, "Allow": "GET, HEAD"})

    routes = [Route("/healthz", healthz), Route("/metrics", metrics)]
    app = Starlette(routes=routes, exception_handlers={404: missing, 405: refused})
    app.router.redirect_slashes = False
    return app


class _OnlyLocal:
    """Answers only who names this machine: a page in a browser may point a name of its own here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        app = self._app
        if len(hosts) != 1 or not _is_loopback_name(hosts[0]):
            app = PlainTextResponse("this address is for programs of this machine\n", 403, _HEADERS)
        await app(scope, receive, send)


def _is_loopback_name(host: bytes) -> bool:
    return re.sub(r":[0-9]{1,5}$", "", host.strip().decode("latin-1").lower()) in _LOOPBACK_NAMES
