"""Whether an address is public, and whether it holds a credential: one rule for all who ask."""

from __future__ import annotations

import ipaddress
import re

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
"""All that is handed out as global unicast. Loopback, link-local, unique local, multicast, and the forms that
carry an IPv4 address (mapped, compatible, NAT64) lie outside."""

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


def is_public(ip: str) -> bool:
    """Whether an IP address belongs to the public internet. What is no IP address does not."""
    parsed = ip_address(ip)
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _NOT_PUBLIC_V4)
    if isinstance(parsed, ipaddress.IPv6Address):
        known = parsed.scope_id is None and parsed in _PUBLIC_V6
        return known and not any(parsed in network for network in _NOT_PUBLIC_V6)
    return False


def ip_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a text writes, or None where it writes none."""
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def is_loopback(host: str) -> bool:
    """Whether a host, by its name or address, is this machine."""
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


_WITH_USER = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://(?P<user>[^/]*)@")
_IGNORED = re.compile(r"[\x00-\x20]")
"""Parsers of URLs leave these out: https://url.spec.whatwg.org/#concept-basic-url-parser."""
_SSH = frozenset({"ssh", "git+ssh", "ssh+git"})


def holds_credential(address: str) -> bool:
    """Whether a URL has a user name, a password or a token in front of its host.

    Over ssh a user name alone is none. Any `@` before the first slash counts, because readers of URLs do not agree
    on where a user name ends.
    """
    found = _WITH_USER.match(_IGNORED.sub("", address))
    return found is not None and (found["scheme"].lower() not in _SSH or ":" in found["user"])


def without_credential(address: str) -> str:
    """An address as a person may be shown it: what stands before `@` in a URL is left out."""
    return _WITH_USER.sub(r"\g<scheme>://", address, count=1) if _WITH_USER.match(address) else address
