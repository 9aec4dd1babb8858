"""The web servers of a worker: its health, and the receiver of GitHub's webhooks."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from orchestrator.app.http_server import (
    LOOPBACK_NAMES,
    NOT_HERE,
    ServerLimits,
    listen,
    serving,
    without_port,
)
from orchestrator.core.addresses import is_loopback
from orchestrator.core.errors import FleetError
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from orchestrator.plugins.worker.members import Health

_HEALTH_LIMITS = ServerLimits(connections=16, body_bytes=0)
_PROMETHEUS = (
    "text/plain; version=0.0.4; charset=utf-8"  # https://prometheus.io/docs/instrumenting/exposition_formats
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}


@asynccontextmanager
async def serving_health(health: Health, host: str, port: int) -> AsyncIterator[int]:
    """Serve a worker's health while the block runs: `/healthz` as JSON, `/metrics` for Prometheus. Yield the port."""
    app: ASGIApp = _health_app(health)
    with listen(host, port) as bound:
        async with serving(_OnlyLocal(app) if is_loopback(host) else app, bound, limits=_HEALTH_LIMITS):
            yield bound.getsockname()[1]


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
    """Refuses requests for other host names."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value.strip().lower() for value in Headers(scope=scope).getlist("host")]
        app = self._app
        if len(hosts) != 1 or without_port(hosts[0]) not in LOOPBACK_NAMES:
            app = PlainTextResponse(NOT_HERE, 403, _HEADERS)
        await app(scope, receive, send)


PATH = "/webhook"
MOST_BYTES = 5_000_000
"""Maximum body in bytes. Longer deliveries are left to polling."""
_WEBHOOK_LIMITS = ServerLimits(body_bytes=MOST_BYTES + 1)  # the receiver itself refuses what is longer
ANSWER_SECONDS = 8.0
"""GitHub demands a response within 10 seconds, and does not repeat deliveries."""
_MOST_AT_ONCE = 16
_LATER = "polling finds it later"
EVENTS = frozenset(
    {"issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment"}
    | {"check_run", "check_suite", "status", "push"}
)
"""The events after which there may be work. https://docs.github.com/en/webhooks/webhook-events-and-payloads"""


class Receiver:
    """Checks GitHub's webhook deliveries, and queues a look at their repositories without waiting for the next poll.

    The look reads the repository itself, as polling does. No text of a delivery is used.

    Args:
        secret: the webhook's secret on GitHub.
        repositories: the keys of the fleet's repositories.
        take: queues a look, given the digest of the body and the repository key; returns False for a repeated
            delivery. It blocks, and may raise `FleetError`.
        seconds: time limit for a response.
    """

    def __init__(
        self,
        secret: str,
        repositories: Collection[str],
        take: Callable[[str, str], bool],
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._secret = secret.encode()
        self._repositories = frozenset(repositories)
        self._take = take
        self._seconds = seconds
        self._queueing: set[asyncio.Task[bool]] = set()

    async def receive(self, request: Request) -> Response:
        """Respond to one delivery."""
        try:
            async with asyncio.timeout(self._seconds):
                status, said = await self._answer(request)
        except (TimeoutError, FleetError):
            status, said = 503, f"the queue cannot be reached: {_LATER}"
        return PlainTextResponse(f"{said}\n", status)

    async def _answer(self, request: Request) -> tuple[int, str]:
        body = bytearray()
        async for piece in request.stream():
            body += piece
            if len(body) > MOST_BYTES:
                return 413, f"the body is too long: {_LATER}"
        if not self._is_signed(bytes(body), request.headers.get("x-hub-signature-256", "")):
            return 401, "the signature is missing or wrong"
        repository = _repository(bytes(body))
        if request.headers.get("x-github-event") not in EVENTS or repository not in self._repositories:
            return 202, "nothing to do"
        if len(self._queueing) >= _MOST_AT_ONCE:
            return 503, f"busy: {_LATER}"
        # The header with the delivery's id is not signed, so equal bodies are the same delivery.
        digest = hashlib.sha256(body).hexdigest()
        queueing = asyncio.create_task(asyncio.to_thread(self._take, digest, repository))
        self._queueing.add(queueing)
        queueing.add_done_callback(self._queueing.discard)
        is_new = await asyncio.shield(queueing)
        return (202, "queued") if is_new else (202, "received before")

    def _is_signed(self, body: bytes, signature: str) -> bool:
        expected = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace"))


def _repository(body: bytes) -> str:
    """Return the repository key of a payload; empty if it names none."""
    try:
        found = json.loads(body)["repository"]["html_url"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return repository_key(found) if isinstance(found, str) else ""


def receiving_app(receiver: Receiver) -> Starlette:
    """Create the application that passes deliveries to a receiver."""
    return Starlette(routes=[Route(PATH, receiver.receive, methods=["POST"])])


@asynccontextmanager
async def receiving(receiver: Receiver, host: str, port: int) -> AsyncIterator[int]:
    """Receive deliveries while the block runs. Yield the port, which the system chooses for 0."""
    with listen(host, port) as bound:
        async with serving(receiving_app(receiver), bound, limits=_WEBHOOK_LIMITS):
            yield bound.getsockname()[1]
