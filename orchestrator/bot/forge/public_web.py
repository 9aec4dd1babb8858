"""Requests to public addresses: the check that an address is public, and the download of files.

The IP addresses of a host are resolved and checked here, and the connection goes to exactly the address that was
checked. So a name cannot lead elsewhere a moment later. Proxies of the environment are not used, because a proxy
would resolve the name again without a check. What is refused or fails raises a `ToolError`: a text that is no address
of the public web, an unknown host, a private address, a server's failure, a file that is too large.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from orchestrator.core.addresses import SCHEME_PORTS, bracketed, certificates_for, ip_address, is_public
from orchestrator.core.errors import ToolError
from orchestrator.core.http_client import (
    USER_AGENT,
    FailureKind,
    failure_of,
    http_errors,
    open_client,
    read_body,
)
from orchestrator.core.redaction import without_secrets

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Mapping

    import httpx2

T = TypeVar("T")

_ENCODINGS = "gzip, deflate"
_KNOWN_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_REDIRECTS = 5
_MAX_CONNECT_TRIES = 3
_CONNECT_SECONDS = 6.0
"""Time limit of each attempt to connect."""
_SECONDS = 20.0
_MAX_BYTES = 5_000_000
"""Size limit of a decompressed page."""

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
    """Return the target of a redirect, checked like any other address."""
    if not location.isprintable():
        raise ToolError("the redirect's address has characters that cannot be seen")
    return parse_address(str(_parsed(base.url).join(_parsed(location))), allowed_private)


async def public_ips(address: WebAddress, resolve: Resolver) -> tuple[str, ...]:
    """Return the IP addresses to connect to, all of them checked."""
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


class PublicWeb:
    """Requests to public addresses; calls may run at the same time in one event loop, and no connection stays open."""

    def __init__(
        self,
        *,
        allowed_private: frozenset[str] = frozenset(),
        resolve: Resolver = system_resolver,
        seconds: float = _SECONDS,
        key: str = "",
    ) -> None:
        """Create the client. No connection is opened before the first call.

        Args:
            allowed_private: places (`host:port`) that may be opened although they are private.
            resolve: resolves host names.
            seconds: time limit of what `within` awaits, redirects included.
            key: a secret in requests, which is left out of messages.
        """
        self._allowed_private = allowed_private
        self._resolve = resolve
        self._seconds = seconds
        self._key = key
        self._tls: ssl.SSLContext | None = None

    def address(self, url: str) -> WebAddress:
        """Check an address; see `parse_address`."""
        return parse_address(url, self._allowed_private)

    async def download(
        self, url: str, hosts: frozenset[str], *, bearer: str = "", max_bytes: int = 10_000_000
    ) -> tuple[int, bytes]:
        """Return status and content of a file, unchanged; the content is empty for a status other than 200.

        Every host, also of a redirect, must be one of `hosts`.

        Args:
            bearer: token sent to the host of the address itself, and to no other.
        """
        address = self.address(url)
        return await self.within(address.host, self._download(address, hosts, bearer, max_bytes))

    async def _download(
        self, address: WebAddress, hosts: frozenset[str], bearer: str, max_bytes: int
    ) -> tuple[int, bytes]:
        async with self.following(address, "*/*", hosts=hosts, bearer=bearer) as (last, response):
            is_there = response.status_code == HTTPStatus.OK
            data = await self.body(last.host, response, max_bytes) if is_there else b""
            return response.status_code, data

    async def within(self, host: str, work: Awaitable[T]) -> T:
        """Await within the time limit, and convert errors of the HTTP library to `ToolError`.

        The error is raised outside of the `except` clause, because the library's error refers to the request,
        which contains a key.
        """
        try:
            async with asyncio.timeout(self._seconds):
                return await work
        except http_errors() as error:
            found = failure_of(error)
        match found.kind:
            case FailureKind.LATE | FailureKind.SILENT:
                failure = f"{host} did not answer in full within {self._seconds:g} seconds"
            case FailureKind.CONNECTING_TOO_LONG:
                failure = f"{host} cannot be reached: connecting took too long"
            case FailureKind.UNREADABLE:
                failure = f"{host} sent a body that cannot be decompressed"
            case _:
                said = without_secrets(found.detail, self._key)
                failure = f"{host} cannot be reached or broke the connection: {said}"
        raise ToolError(failure)

    @asynccontextmanager
    async def following(
        self, address: WebAddress, accept: str, *, hosts: frozenset[str] | None = None, bearer: str = ""
    ) -> AsyncIterator[tuple[WebAddress, httpx2.Response]]:
        """Follow the redirects of an address, each checked like the first; yield the last address and response.

        Args:
            hosts: if given, no other host is asked, and the scheme must stay.
            bearer: token sent to the place of the first address only.
        """
        first = address
        for _ in range(_MAX_REDIRECTS + 1):
            if hosts is not None and (address.host not in hosts or address.scheme != first.scheme):
                raise ToolError(f"files are not downloaded from {address.host}")
            headers = {"accept": accept}
            if bearer and address.place == first.place:
                headers["authorization"] = f"Bearer {bearer}"
            async with self.open(address, "GET", headers) as response:
                location = response.headers.get("location", "")
                if response.status_code not in _REDIRECTS or not location:
                    yield address, response
                    return
            try:
                address = joined(address, location, self._allowed_private)
            except ToolError as error:
                raise ToolError(f"{address.host} redirects to an address that is refused: {error}") from None
        raise ToolError(f"{address.host} redirects more than {_MAX_REDIRECTS} times")

    async def body(self, host: str, response: httpx2.Response, most: int = _MAX_BYTES) -> bytes:
        """Read and decompress the body piece by piece, so that a small one cannot become a huge one."""
        if response.headers.get("content-encoding", "").strip().lower() not in _KNOWN_ENCODINGS:
            raise ToolError(f"{host} sent a body with a compression that was not requested")
        data = await read_body(response, most)
        if data is None:
            raise ToolError(f"the page at {host} is over {most:,} bytes, and no more than that is read")
        return data

    @asynccontextmanager
    async def open(
        self,
        address: WebAddress,
        method: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send one request to a checked IP address of the host; try the next address if one does not answer.

        The URL contains the IP address, so the name is not resolved again. The server gets the name in the
        `Host` header, and the certificate must be for the name.
        """
        import httpx2

        ips = (await public_ips(address, self._resolve))[:_MAX_CONNECT_TRIES]
        ours = {"host": address.authority, "accept-encoding": _ENCODINGS, "user-agent": USER_AGENT}
        for place, ip in enumerate(ips, 1):
            # A new client for each attempt: a pooled connection is found by its IP address, for whatever name it was opened.
            async with self._client(address.scheme) as client:
                request = client.build_request(
                    method,
                    f"{address.scheme}://{bracketed(ip)}:{address.port}{address.target}",
                    params=params,
                    headers={**ours, **headers},
                    content=content,
                    extensions={"sni_hostname": address.host},
                )
                try:
                    response = await client.send(request, stream=True)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if place == len(ips):
                        raise
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return

    def _client(self, scheme: str) -> httpx2.AsyncClient:
        verify = certificates_for(f"{scheme}:")
        if verify is True:
            import httpx2

            verify = self._tls = self._tls or httpx2.create_ssl_context()
        return open_client(
            uses_proxies=False,
            certificates=verify,
            silent_seconds=self._seconds,
            connect_seconds=_CONNECT_SECONDS,
        )
