"""The configuration of MCP servers, and the names under which their tools are shown.

Protocol: https://modelcontextprotocol.io/specification
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.errors import PullwrightError
from orchestrator.engine.tools.base import MCP_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

START_SECONDS = 30.0
CALL_SECONDS = 120.0
MOST_SECONDS = 600.0
MAX_NAME_CHARS = 64
_UNKNOWN = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8

REPOSITORY = "${REPOSITORY}"
"""Placeholder for the clone's path in a server's arguments and variables."""


class McpError(PullwrightError):
    """A server could not be started, or gave no valid answer. The message is one line and names no server."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server that is a local program, reached over its standard input and output.

    Attributes:
        variables: environment variables in addition to a few harmless ones; they may hold secrets.
        hosts: hosts that it may reach from the sandbox; see `SandboxOptions`.
        readable: paths that it may read from the sandbox.
        repository: whether it may read the clone, whose path replaces `REPOSITORY`.
        is_confined: whether it runs in a sandbox.
    """

    command: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    repository: bool = False
    is_confined: bool = True

    def words(self, repository: str) -> list[str]:
        """Return the program and its arguments for a clone."""
        return [word.replace(REPOSITORY, repository) for word in (self.command, *self.arguments)]


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """Credentials of a client that signs in by itself: OAuth 2.1, grant `client_credentials`.

    Attributes:
        issuer: the only authorization server that may receive the secret.
        scope: the requested scopes, separated by blanks; empty requests those that the server names.
    """

    client_id: str
    client_secret: str = field(repr=False)
    issuer: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    """A sign-in by a person in a browser: OAuth 2.1, grant `authorization_code`. It needs a terminal.

    Attributes:
        client_id: of a manually registered client; empty registers one each time.
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server that is reached over HTTP.

    Attributes:
        headers: sent with every request; they may hold secrets.
        events: whether it uses the older transport, in which one stream of server-sent events has all
            answers.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    events: bool = False
    login: ClientLogin | BrowserLogin | None = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """A server as configured by the user.

    Attributes:
        allow: the raw names of tools that are not dangerous; `*` for all. A server's own statements about its
            tools are ignored.
        pin: the digest of all its approved definitions; empty uses the file of approvals.
        start_seconds: time-out for its start, initialization and list of tools together.
        call_seconds: time-out of one call.
    """

    name: str
    place: ServerProgram | ServerAddress
    allow: tuple[str, ...] = ()
    pin: str = ""
    start_seconds: float = START_SECONDS
    call_seconds: float = CALL_SECONDS

    def allows(self, tool: str) -> bool:
        """Return whether a tool, by its raw name, is not dangerous."""
        return tool in self.allow or "*" in self.allow


RawName: TypeAlias = tuple[str, str]
"""A server's name, and the server's own name of a tool."""


def shown_names(tools: Iterable[RawName]) -> dict[RawName, str]:
    """Return the names under which tools are shown: `mcp_SERVER_TOOL`, at most 64 characters, all different.

    Characters that vendors do not accept become `_`. A name that is too long, or that several tools would
    get, ends in a digest of the raw one instead, which does not depend on the order of the tools.
    """
    plain = {raw: MCP_PREFIX + "_".join(_UNKNOWN.sub("_", part) for part in raw) for raw in tools}
    names = list(plain.values())
    longer = {}
    for raw, name in plain.items():
        digest = hashlib.sha256("\0".join(raw).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
        longer[raw] = f"{name[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"
    taken = {
        longer[raw] for raw, name in plain.items() if len(name) > MAX_NAME_CHARS or names.count(name) > 1
    }
    # A server may choose a name that equals another tool's name with its digest.
    return {
        raw: longer[raw] if longer[raw] in taken or name in taken else name for raw, name in plain.items()
    }
