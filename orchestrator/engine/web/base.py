"""The interface between the web tools and the network, and the check that an address is public."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from orchestrator.core.addresses import SCHEME_PORTS, bracketed, ip_address, is_public
from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search engine. All three fields are one line of plain, untrusted text."""

    title: str
    url: str
    snippet: str


class PageKind(StrEnum):
    """The kind of a page's text."""

    HTML = "html"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class WebPage:
    """The decoded, untrusted content of an address.

    Attributes:
        url: the page's address after redirects.
        kind: whether readable text has yet to be extracted.
    """

    url: str
    kind: PageKind
    text: str


class WebAccess(Protocol):
    """Fetches pages and searches. It reaches public addresses only, and sends no cookies and no credentials."""

    @property
    def can_search(self) -> bool:
        """Whether there is a search engine; without one the model is offered no search."""

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the results of the search engine, best first, at most `max_results`.

        Raises:
            ToolError: no engine is configured, or it refused, failed or could not be reached.
        """

    async def fetch(self, url: str) -> WebPage:
        """Return the page at an `http` or `https` address. A repeated request is answered from memory.

        Raises:
            ToolError: the address is refused, its content is not readable, or the server failed.
        """


MAX_URL_CHARACTERS = 2_048

PORTS = frozenset({80, 443, 8080, 8443})
"""The web's own ports and their two usual alternatives.

The list is closed: a request to another port would reach services that are not meant for strangers (mail,
databases, caches).
"""

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the IP addresses of a host name. Raises `OSError` if there are none."""


_NOT_PUBLIC_NAMES = ("localhost", "local", "localdomain", "internal", "intranet", "lan", "home.arpa", "onion")

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_MAX_HOST_CHARACTERS = 253


@dataclass(frozen=True, slots=True)
class WebAddress:
    """A checked address.

    Attributes:
        host: in lower case ASCII, without a dot at its end; IPv6 without brackets.
        target: path and query, as they are sent.
        trusted: whether the operator allowed this host and port, which may be private.
    """

    scheme: str
    host: str
    port: int
    target: str
    trusted: bool = False

    @property
    def authority(self) -> str:
        """Host and port as in the `Host` header: without the scheme's default port."""
        return self.place if self.port != SCHEME_PORTS[self.scheme] else bracketed(self.host)

    @property
    def place(self) -> str:
        """`host:port`."""
        return f"{bracketed(self.host)}:{self.port}"

    @property
    def url(self) -> str:
        """The whole address, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.target}"


def parse_address(url: str, allowed_private: frozenset[str] = frozenset()) -> WebAddress:
    """Check an address, as far as possible without resolving the host.

    Args:
        url: the whole address.
        allowed_private: places (`host:port`) that may be opened although they are private.

    Raises:
        ToolError: it is not an address of the public web.
    """
    text = url.strip()
    if len(text) > MAX_URL_CHARACTERS:
        raise ToolError(f"the address is longer than {MAX_URL_CHARACTERS:,} characters")
    if not text.isprintable() or " " in text or "\\" in text:
        raise ToolError(
            "the address has spaces, backslashes or characters that cannot be seen: write them as %XX"
        )
    parsed = _parsed(text)
    if parsed.scheme not in SCHEME_PORTS:
        if not parsed.scheme or "://" not in text:
            raise ToolError("give the whole address, beginning with https:// or http://")
        raise ToolError(f"only http and https addresses can be opened, not {parsed.scheme}")
    if parsed.userinfo:
        raise ToolError("the address has a user name or password in it: leave them out")
    host = parsed.raw_host.decode("ascii").lower().removesuffix(".")
    port = SCHEME_PORTS[parsed.scheme] if parsed.port is None else parsed.port
    address = WebAddress(parsed.scheme, host, port, parsed.raw_path.decode("ascii"))
    if address.place in allowed_private:
        return WebAddress(address.scheme, host, port, address.target, trusted=True)
    _check_host(host)
    if port not in PORTS:
        raise ToolError(f"port {port} is refused: only {', '.join(map(str, sorted(PORTS)))} can be opened")
    return address


def joined(base: WebAddress, location: str, allowed_private: frozenset[str] = frozenset()) -> WebAddress:
    """Return the target of a redirect, checked like any other address.

    Raises:
        ToolError: see `parse_address`.
    """
    if not location.isprintable():
        raise ToolError("the redirect's address has characters that cannot be seen")
    return parse_address(str(_parsed(base.url).join(_parsed(location))), allowed_private)


async def public_ips(address: WebAddress, resolve: Resolver) -> tuple[str, ...]:
    """Return the IP addresses to connect to, all of them checked.

    Raises:
        ToolError: the host is unknown, or one of its addresses is not public.
    """
    try:
        found = (
            [address.host] if ip_address(address.host) else list(await resolve(address.host, address.port))
        )
    except (OSError, UnicodeError):
        found = []
    if not found:
        raise ToolError(f"there is no host {address.host}: check the address")
    for ip in found:
        if not (address.trusted or is_public(ip)):
            raise _private(address.host, ip)
    return tuple(dict.fromkeys(found))


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Resolve a host with the system's resolver, without addresses to which this machine has no route."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [str(place[0]) for *_, place in found]


def _parsed(text: str) -> httpx2.URL:
    import httpx2

    try:
        return httpx2.URL(text)
    except httpx2.InvalidURL as error:
        raise ToolError(f"this is not a valid address: {error}") from None


def _check_host(host: str) -> None:
    if not host:
        raise ToolError("the address names no host")
    if ip_address(host):
        if not is_public(host):
            raise _private(host, host)
        return
    labels = host.split(".")
    if len(host) > _MAX_HOST_CHARACTERS or not all(_LABEL.fullmatch(label) for label in labels):
        raise ToolError("the host in the address is not a valid name")
    # The system would read 127.1, 2130706433 and 0x7f.1 as IP addresses.
    if _NUMBER.fullmatch(labels[-1]):
        raise ToolError("the host is an unusual spelling of an IP address: write it as four plain numbers")
    if any(host == name or host.endswith(f".{name}") for name in _NOT_PUBLIC_NAMES):
        raise ToolError(f"{host} is a private name: only the public web can be opened")


def _private(host: str, ip: str) -> ToolError:
    leads = "is" if host == ip else f"leads to {ip},"
    return ToolError(f"{host} {leads} a private or reserved address: only the public web can be opened")
