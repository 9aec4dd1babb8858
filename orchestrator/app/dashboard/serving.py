"""The web servers of this program: their applications, their limits, and access control.

They serve the dashboard, a worker's health and GitHub's webhooks.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import json
import re
import secrets
import socket
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from orchestrator.core.addresses import bracketed, is_loopback
from orchestrator.core.errors import ConfigurationError, FleetError
from orchestrator.core.event_loop import on_ending_signals
from orchestrator.core.http_server import ServerLimits, serving
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection

    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from orchestrator.bot.fleet.members import Health


_BACKLOG = 64
_MOST_TRIED_PORTS = 20
_NO_IPV6 = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def listen(host: str, port: int) -> socket.socket:
    """Open a socket at an address.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    bound = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_BACKLOG)
    except OSError as error:
        if bound is not None:
            bound.close()
        raise ConfigurationError(
            f"cannot listen at {bracketed(host)}:{port}: {error.strerror or error}"
        ) from error
    return bound


def listen_for_browsers(port: int) -> list[socket.socket]:
    """Open sockets at both loopback addresses with the same port, which the system chooses for 0.

    Browsers ask ::1 first for a name below `localhost`, so no other program may listen there.

    Raises:
        ConfigurationError: the port cannot be listened at.
    """
    for _ in range(_MOST_TRIED_PORTS):
        first = listen("127.0.0.1", port)
        try:
            return [first, listen("::1", first.getsockname()[1])]
        except ConfigurationError as error:
            reason = error.__cause__
            if isinstance(reason, OSError) and reason.errno in _NO_IPV6:
                return [first]
            first.close()
            if port:
                raise
    raise ConfigurationError("cannot listen at [::1]: other programs have the ports; choose one with --port")


async def serve(app: ASGIApp, bound: Collection[socket.socket], stopping: asyncio.Event) -> None:
    """Serve requests until a signal ends the program."""
    on_ending_signals(stopping.set, interrupt=stopping.set)
    async with serving(app, *bound):
        await stopping.wait()


_HEALTH_LIMITS = ServerLimits(connections=16, body_bytes=0)
_NOT_HERE = "this address is for programs of this machine\n"
"""The answer to a request for another host name: a foreign site's name may resolve to this machine."""
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_PROMETHEUS = (
    "text/plain; version=0.0.4; charset=utf-8"  # https://prometheus.io/docs/instrumenting/exposition_formats
)
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "Connection": "close"}


@asynccontextmanager
async def serving_health(health: Health, host: str, port: int) -> AsyncIterator[int]:
    """Serve a worker's health while the block runs: `/healthz` as JSON, `/metrics` for Prometheus. Yield the port.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
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
        if len(hosts) != 1 or _without_port(hosts[0]) not in _LOOPBACK_NAMES:
            app = PlainTextResponse(_NOT_HERE, 403, _HEADERS)
        await app(scope, receive, send)


def _without_port(host: str) -> str:
    return re.sub(r":[0-9]{1,5}$", "", host)


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
    """Receive deliveries while the block runs. Yield the port, which the system chooses for 0.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    with listen(host, port) as bound:
        async with serving(receiving_app(receiver), bound, limits=_WEBHOOK_LIMITS):
            yield bound.getsockname()[1]


POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_PAGE_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"content-security-policy", POLICY.encode("ascii")),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),  # without a referrer, browsers send no origin with a form
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_SAFE = frozenset({"GET", "HEAD"})
_TOKEN_BYTES = 32
_TOKEN_FIELD = "token"  # noqa: S105  the name of a field
_NAME_BYTES = 16
_COOKIE = "pullwright"


@dataclass(frozen=True, slots=True)
class BrowserSecrets:
    """The secrets of one start of the dashboard, which a browser must have.

    Attributes:
        name: the host name below `localhost` under which this server alone answers. Browsers send a cookie to all
            ports of its host, so a host that others use too, such as 127.0.0.1, would share the session with them.
            No other page of this host was ever open, so no service worker or cookie of another program is there.
        token: part of the printed address; it opens the page in any browser of this machine.
        session: value of the cookie that the address with the token sets.
    """

    name: str = field(default_factory=lambda: f"{secrets.token_hex(_NAME_BYTES)}.localhost", repr=False)
    token: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES), repr=False)
    session: str = field(default_factory=lambda: secrets.token_urlsafe(_TOKEN_BYTES), repr=False)

    @property
    def form(self) -> str:
        """The token in each of our forms, which other sites cannot read."""
        return hmac.new(self.session.encode(), b"form", hashlib.sha256).hexdigest()

    def is_form(self, text: str) -> bool:
        """Return whether a form token is valid."""
        return hmac.compare_digest(text.encode(), self.form.encode())


@dataclass(slots=True)
class Gate:
    """Passes on allowed requests, and adds the security headers to every response.

    Attributes:
        port: where the server listens.
    """

    app: ASGIApp
    port: int
    secrets: BrowserSecrets

    @property
    def host(self) -> str:
        """The only allowed value of the `Host` header."""
        return f"{self.secrets.name}:{self.port}"

    @property
    def address(self) -> str:
        """The address that opens the page."""
        return f"http://{self.host}/?{_TOKEN_FIELD}={self.secrets.token}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_PAGE_HEADERS]
            await send(message)

        refusal = self._refusal(scope["method"], headers)
        if refusal is not None:
            app: ASGIApp = refusal
        elif (place := self._exchanged(scope)) is not None:
            cookie = f"{_COOKIE}={self.secrets.session}; Path=/; HttpOnly; SameSite=Strict"
            app = PlainTextResponse("", 303, {"location": place, "set-cookie": cookie})
        elif not self._is_known(headers):
            app = _closed(401)
        else:
            app = self.app
        await app(scope, receive, send_with_policy)

    def _refusal(self, method: str, headers: Headers) -> Response | None:
        """Return the response to a request that is refused because of its headers; None if it is not."""
        if [host.lower() for host in headers.getlist("host")] != [self.host]:
            return _closed(403) if _is_of_this_machine(headers) else PlainTextResponse(_NOT_HERE, 403)
        if method not in _SAFE and headers.getlist("origin") != [f"http://{self.host}"]:
            return PlainTextResponse("this was sent by another page\n", 403)
        return None

    def _exchanged(self, scope: Scope) -> str | None:
        """Return the address without its valid token; None if it has none."""
        if scope["method"] not in _SAFE:
            return None
        fields = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given = [value for name, value in fields if name == _TOKEN_FIELD]
        if len(given) != 1 or not hmac.compare_digest(given[0].encode(), self.secrets.token.encode()):
            return None
        rest = urlencode([(name, value) for name, value in fields if name != _TOKEN_FIELD])
        # Browsers read `//host` and `/\\host` as another host.
        path = "/" + quote(scope["path"].lstrip("/\\"))
        return f"{path}?{rest}" if rest else path

    def _is_known(self, headers: Headers) -> bool:
        """Return whether the request has the session cookie."""
        try:
            cookies = SimpleCookie("; ".join(headers.getlist("cookie")))
        except CookieError:
            return False
        given = cookies.get(_COOKIE)
        return given is not None and hmac.compare_digest(given.value.encode(), self.secrets.session.encode())


def _is_of_this_machine(headers: Headers) -> bool:
    """Return whether a request was made under a name of this machine, as by the address of an earlier start."""
    names = [_without_port(host.lower()) for host in headers.getlist("host")]
    return len(names) == 1 and (names[0] in _LOOPBACK_NAMES or names[0].endswith(".localhost"))


def _closed(status: int) -> Response:
    """Create the page that says how to open the dashboard."""
    from orchestrator.app.dashboard.pages import TEMPLATES
    from orchestrator.app.html.page import content_policy, html_from_template, stylesheet

    values = {"style": stylesheet(), "policy": content_policy()}
    return HTMLResponse(html_from_template("closed.html", values, str, folder=TEMPLATES), status)
