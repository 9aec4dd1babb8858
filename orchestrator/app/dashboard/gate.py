"""Access control of the page: for browsers that know the token, and only under names of this machine."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass, field
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from orchestrator.app.dashboard.pages import TEMPLATES
from orchestrator.app.html.page import content_policy, html_from_template, stylesheet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: tuple[tuple[bytes, bytes], ...] = (
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


@dataclass(frozen=True, slots=True)
class BrowserSecrets:
    """The secrets that a browser must have.

    Attributes:
        token: part of the printed address; it opens the page in any browser of this machine.
        session: value of the cookie that the address with the token sets.
    """

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
        hosts: the allowed values of the `Host` header, with the port.
    """

    app: ASGIApp
    hosts: frozenset[str]
    secrets: BrowserSecrets

    @property
    def cookie(self) -> str:
        """The cookie's name. It has the port, because browsers share cookies between the ports of a host."""
        return f"pullwright-{min(self.hosts).rpartition(':')[2]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or pass it on."""
        if scope["type"] != "http":
            return
        headers = _headers(scope)

        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        refusal = self._refusal(str(scope["method"]), headers)
        if refusal is not None:
            await _answer(send_with_policy, 403, refusal)
        elif (place := self._exchanged(scope)) is not None:
            cookie = f"{self.cookie}={self.secrets.session}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send_with_policy, 303, "", (("location", place), ("set-cookie", cookie)))
        elif not self._is_known(headers):
            page = html_from_template(
                "closed.html", {"style": stylesheet(), "policy": content_policy()}, folder=TEMPLATES
            )
            await _answer(send_with_policy, 401, page, (("content-type", "text/html; charset=utf-8"),))
        else:
            await self.app(scope, receive, send_with_policy)

    def _refusal(self, method: str, headers: Mapping[str, list[str]]) -> str | None:
        """Return why a request is refused because of its headers; None if it is not."""
        hosts = headers.get("host", [])
        if (
            len(hosts) != 1 or hosts[0].lower() not in self.hosts
        ):  # a foreign site's name may resolve to this machine
            return "this address is for programs of this machine\n"
        if method not in _SAFE and headers.get("origin", []) not in [
            [f"http://{host}"] for host in self.hosts
        ]:
            return "this was sent by another page\n"
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

    def _is_known(self, headers: Mapping[str, list[str]]) -> bool:
        """Return whether the request has the session cookie."""
        try:
            cookies = SimpleCookie("; ".join(headers.get("cookie", [])))
        except CookieError:
            return False
        given = cookies.get(self.cookie)
        return given is not None and hmac.compare_digest(given.value.encode(), self.secrets.session.encode())


def _headers(scope: Scope) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name, value in scope["headers"]:
        found.setdefault(name.decode("latin-1").lower(), []).append(value.decode("latin-1"))
    return found


async def _answer(send: Send, status: int, text: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
    body = text.encode()
    named = dict(headers)
    named.setdefault("content-type", "text/plain; charset=utf-8")
    named["content-length"] = str(len(body))
    encoded = [(name.encode("ascii"), value.encode("latin-1")) for name, value in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
    await send({"type": "http.response.body", "body": body})
