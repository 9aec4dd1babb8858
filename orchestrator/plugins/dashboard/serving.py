"""The web server of the dashboard: where it listens, and who may open it."""

from __future__ import annotations

import errno
import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from orchestrator.app.http_server import LOOPBACK_NAMES, NOT_HERE, listen, serving, without_port
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.event_loop import on_ending_signals

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Collection

    from starlette.types import ASGIApp, Message, Receive, Scope, Send


_MOST_TRIED_PORTS = 20
_NO_IPV6 = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


def listen_for_browsers(port: int) -> list[socket.socket]:
    """Open sockets at both loopback addresses with the same port, which the system chooses for 0.

    Browsers ask ::1 first for a name below `localhost`, so no other program may listen there.
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
            return _closed(403) if _is_of_this_machine(headers) else PlainTextResponse(NOT_HERE, 403)
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
    names = [without_port(host.lower()) for host in headers.getlist("host")]
    return len(names) == 1 and (names[0] in LOOPBACK_NAMES or names[0].endswith(".localhost"))


def _closed(status: int) -> Response:
    """Create the page that says how to open the dashboard."""
    from orchestrator.app.html.page import content_policy, html_from_template, stylesheet
    from orchestrator.plugins.dashboard.pages import TEMPLATES

    values = {"style": stylesheet(), "policy": content_policy()}
    return HTMLResponse(html_from_template("closed.html", values, str, folder=TEMPLATES), status)
