"""Which hosts a command may reach, and the way there: public addresses only, exactly the one that was checked."""

from __future__ import annotations

import asyncio
import re
import socket
from dataclasses import dataclass

from orchestrator.core.addresses import is_public
from orchestrator.core.errors import ConfigurationError

WEB_PORTS = frozenset({80, 443})
CONNECT_SECONDS = 20.0
_MAX_PORT = 65_535
_NAME = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?(?:\.[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?)*\Z"
)


@dataclass(frozen=True, slots=True)
class HostRule:
    """One `--allow-host`. With `below`, the hosts below the name and not itself."""

    name: str
    ports: frozenset[int]
    below: bool = False

    def allows(self, host: str, port: int) -> bool:
        """Whether this host may be reached at this port."""
        if port not in self.ports:
            return False
        return host.endswith(f".{self.name}") if self.below else host == self.name


def host_rule(text: str) -> HostRule:
    """Read `pypi.org`, `*.pypi.org` or `name:port`.

    Raises:
        ConfigurationError: it is none of these.
    """
    name, colon, port = text.strip().lower().partition(":")
    below = name.startswith("*.")
    name = host_name(name.removeprefix("*."))
    number = port_number(port) if colon else None
    if not name or (colon and number is None) or (below and "." not in name):
        raise ConfigurationError(
            f"--allow-host {text!r} is no host: write name, *.example.org or name:port, without http://"
        )
    return HostRule(name, WEB_PORTS if number is None else frozenset({number}), below)


def host_name(text: str) -> str:
    """The name in the form in which names are compared, or nothing where it is no name."""
    name = text.lower().removesuffix(".")
    return name if _NAME.match(name) else ""


def port_number(text: str) -> int | None:
    """The port, or None where it is no port."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT)) else 0
    return number if 0 < number <= _MAX_PORT else None


def flag_for(refused: str) -> str:
    """The flag that allows a `host:port`."""
    host, _, port = refused.rpartition(":")
    return f"--allow-host {host if int(port) in WEB_PORTS else refused}"


def refusal(refused: str) -> str:
    """What is said of an entry of `refused_hosts`: `host:port`, or that and, after a blank, why it is refused."""
    place, _, why = refused.partition(" ")
    told = f"refused connection to {place}"
    return (
        f"{told}: {why}" if why else f"{told}; the person who runs this can allow it with {flag_for(place)}"
    )


async def connect_public(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first public address of a name that answers.

    Raises:
        OSError: it has no public address, or none answers.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(item[4][0]) for item in found]
    public = [address for address in dict.fromkeys(addresses) if is_public(address)]
    if not public:
        raise PermissionError(f"{host} has no public address")
    failure: OSError = ConnectionError(f"{host} does not answer")
    for address in public:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.open_connection(address, port)
        except OSError as error:  # a time-out is one
            failure = error
    raise failure
