"""Classifies network addresses: public or not, local or not, with or without a credential."""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import ssl

SCHEME_PORTS = {"http": 80, "https": 443}
"""The port of an address without one, by its scheme."""

_NOT_PUBLIC_V4 = tuple(
    ipaddress.IPv4Network(network)
    for network in (
        # https://www.iana.org/assignments/iana-ipv4-special-registry
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        # The host's agent in Azure, public by its number only:
        # https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
        "168.63.129.16/32",
    )
)
_PUBLIC_V6 = ipaddress.IPv6Network("2000::/3")
"""The global unicast range.

It excludes loopback, link-local, unique local, multicast, and the forms that embed an IPv4 address (mapped,
compatible, NAT64).
"""

_NOT_PUBLIC_V6 = tuple(
    ipaddress.IPv6Network(network)
    for network in (
        # https://www.iana.org/assignments/iana-ipv6-special-registry
        "2001::/23",  # Teredo, benchmarks, ORCHID and other protocols
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries an IPv4 address
        "3fff::/20",
    )
)


def bracketed(host: str) -> str:
    """Return the host as it is written in a URL: IPv6 in brackets."""
    return f"[{host}]" if ":" in host else host


def is_public(ip: str) -> bool:
    """Return whether a text is an IP address of the public internet."""
    parsed = ip_address(ip)
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_V4)
    if isinstance(parsed, ipaddress.IPv6Address):
        known = parsed.scope_id is None and parsed in _PUBLIC_V6
        return known and not any(parsed in network for network in _NOT_PUBLIC_V6)
    return False


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Parse a text as an IP address; return None if it is none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine."""
    parsed = ip_address(host.strip("[]"))
    return host.lower() == "localhost" or (parsed is not None and parsed.is_loopback)


class ServerPlace(NamedTuple):
    """Where a URL leads: its scheme, its host in small letters, and its port."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        usual = self.port == SCHEME_PORTS[self.scheme]
        return bracketed(self.host) if usual else f"{bracketed(self.host)}:{self.port}"


_PLAIN_URL = re.compile(
    r"(https?)://([a-z0-9_.-]{1,253}|\[[0-9a-f:.]{2,45}\])(?::([0-9]{1,5}))?(?:/[!-~]*)?",
    re.IGNORECASE | re.ASCII,
)
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9_-]{0,61}[a-z0-9])?")


def server_of(url: str) -> ServerPlace | None:
    """Return where a URL leads; None if it is not written in the one way that all parsers read alike.

    A user name, an empty label or a dot at the end of the host, letters of other alphabets, escapes and
    backslashes are not accepted, so that a credential is never sent to another server than the one compared.
    """
    match = _PLAIN_URL.fullmatch(url)
    if match is None:
        return None
    scheme, host = match[1].lower(), match[2].lower().strip("[]")
    if not match[2].startswith("[") and not all(map(_LABEL.fullmatch, host.split("."))):
        return None
    port = int(match[3]) if match[3] else SCHEME_PORTS[scheme]
    return ServerPlace(scheme, host, port) if port <= _LAST_PORT else None


_LAST_PORT = 65_535
_WITH_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/]*)@")
_IGNORED = re.compile(r"[\x00-\x20]")
"""Characters that URL parsers remove: https://url.spec.whatwg.org/#concept-basic-url-parser."""
_SSH = frozenset({"ssh", "git+ssh", "ssh+git"})


def holds_credential(address: str) -> bool:
    """Return whether a URL has a user name, a password or a token before its host.

    A user name alone is not a credential in an ssh URL. Any `@` before the first slash counts, because URL
    parsers disagree on where a user name ends.
    """
    found = _WITH_USER.match(_IGNORED.sub("", address))
    return found is not None and (found["scheme"].lower() not in _SSH or ":" in found["user"])


def without_credential(address: str) -> str:
    """Return an address without the credential before its host, so that it can be shown."""
    found = _WITH_USER.match(address)
    return f"{found['scheme']}://{address[found.end() :]}" if found else address


def certificates_for(url: str) -> ssl.SSLContext | bool:
    """Return the `verify` of a client that only talks to the server of this address.

    Loading the machine's certificates is slow. Without TLS it is left out: the context accepts no certificate.
    """
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.lower().startswith("http:") else True
