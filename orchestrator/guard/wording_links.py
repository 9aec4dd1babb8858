"""Which links and images may stand in what goes out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_ADDRESS = re.compile(r"https?://([A-Za-z0-9.-]+)(?::(?:80|443))?(?:[/?#][^\s\\<>\"]*)?", re.IGNORECASE)
_RELATIVE = re.compile(r"(?![/\\]{2})(?:[A-Za-z0-9._~%+,=@()-]*(?:[/?#][^\s\\<>\"]*)?)")
_HOST = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//(?:[^\s/?#]*@)?([^\s/?#:]+)")


@dataclass(frozen=True, slots=True)
class Hosts:
    """The hosts that may be linked to.

    Attributes:
        names: those themselves.
        parents: those below which every host counts, each with a dot in front.
    """

    names: frozenset[str]
    parents: tuple[str, ...]

    @classmethod
    def of(cls, hosts: Iterable[str]) -> Hosts:
        """The hosts of a list in which `*.x` stands for what is below `x`."""
        listed = [host.strip().lower().rstrip(".") for host in hosts]
        names = frozenset(host for host in listed if host and "*" not in host)
        return cls(names, tuple(host[1:] for host in listed if re.fullmatch(r"\*(?:\.[a-z0-9-]+)+", host)))

    def allow(self, address: str) -> bool:
        """Whether an address leads to one of these. User names, other ports and odd letters never do."""
        match = _ADDRESS.fullmatch(address)
        if match is None:
            return False
        host = match[1].lower().rstrip(".")
        return host in self.names or any(host.endswith(parent) for parent in self.parents)

    def allow_target(self, target: str) -> bool:
        """Whether a link's target leads to one of these, or stays within the repository."""
        return self.allow(target) or _RELATIVE.fullmatch(target) is not None


def host_of(address: str) -> str:
    """The name of the host, to be shown."""
    match = _HOST.match(address)
    return match[1] if match else "elsewhere"


def as_code(text: str) -> str:
    """The text as a code span that nothing in it can end."""
    return "`" + text.replace("`", "%60").replace("|", "%7C").replace("]", "%5D").replace("\n", " ") + "`"
