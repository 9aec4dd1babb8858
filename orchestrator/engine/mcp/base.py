"""What is known of an MCP server before it is started, and the names under which its tools are shown.

Protocol: https://modelcontextprotocol.io/specification
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeAlias

from orchestrator.core.errors import PullwrightError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.engine.tools.base import Tool

START_SECONDS = 30.0
CALL_SECONDS = 120.0
MOST_SECONDS = 600.0

PREFIX = "mcp_"
"""Begins the name of every tool of an MCP server, and of no other tool."""
MAX_NAME_CHARS = 64
_UNKNOWN = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 8

REPOSITORY = "${REPOSITORY}"
"""Stands in a server's arguments and variables for the path of the clone."""


class McpError(PullwrightError):
    """A server could not be started, or did not answer as it should. The message is one line and names no server."""


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """A server that is a program of this machine, spoken to over its standard input and output.

    Attributes:
        variables: more than the few harmless ones that it gets anyway; they may hold secrets.
        hosts: that it may reach, in the sandbox; see `SandboxOptions`.
        readable: paths that it may read, in the sandbox.
        repository: it may read the clone, and `REPOSITORY` stands for the clone's path.
        is_confined: it runs in a sandbox.
    """

    command: str
    arguments: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    hosts: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()
    repository: bool = False
    is_confined: bool = True

    def words(self, repository: str) -> list[str]:
        """The program and its arguments, for a clone."""
        return [word.replace(REPOSITORY, repository) for word in (self.command, *self.arguments)]


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """What a client signs in with by itself: OAuth 2.1, grant `client_credentials`.

    Attributes:
        issuer: the only authorization server that may be given the secret.
        scope: what is asked for, separated by blanks; empty asks for what the server names.
    """

    client_id: str
    client_secret: str = field(repr=False)
    issuer: str
    scope: str = ""


@dataclass(frozen=True, slots=True)
class BrowserLogin:
    """A person signs in at a browser: OAuth 2.1, grant `authorization_code`. So it needs a person at a terminal.

    Attributes:
        client_id: of a client that was registered by hand; empty registers one each time.
    """

    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """A server that is reached over HTTP.

    Attributes:
        headers: go with every request; they may hold secrets.
        events: it speaks the older form, in which one stream of server-sent events holds all answers.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    events: bool = False
    login: ClientLogin | BrowserLogin | None = None


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server, as the person who runs this has configured it.

    Attributes:
        allow: the raw names of tools that are not dangerous; `*` for all. What a server says of its tools counts
            for nothing.
        pin: the digest of all its definitions that were approved; empty where the file of approvals tells.
        start_seconds: for its start, the greeting and the list of its tools together.
        call_seconds: for one call.
    """

    name: str
    place: ServerProgram | ServerAddress
    allow: tuple[str, ...] = ()
    pin: str = ""
    start_seconds: float = START_SECONDS
    call_seconds: float = CALL_SECONDS

    def allows(self, tool: str) -> bool:
        """Whether a tool, by its raw name, is not dangerous."""
        return tool in self.allow or "*" in self.allow


RawName: TypeAlias = tuple[str, str]
"""A server's name, and the name of a tool as that server has it."""


def shown_names(tools: Iterable[RawName]) -> dict[RawName, str]:
    """The names under which tools are shown: `mcp_SERVER_TOOL`, 64 characters at most, no two alike.

    What a vendor does not take in a name becomes `_`. A name that is too long, or that several tools would have, ends
    in a digest of the raw one instead; it does not depend on the order of the tools.
    """
    plain = {raw: PREFIX + "_".join(_UNKNOWN.sub("_", part) for part in raw) for raw in tools}
    names = list(plain.values())
    longer = {raw: _with_digest(name, raw) for raw, name in plain.items()}
    taken = {
        longer[raw] for raw, name in plain.items() if len(name) > MAX_NAME_CHARS or names.count(name) > 1
    }
    # A name may also be chosen so that it is what another one becomes.
    return {
        raw: longer[raw] if longer[raw] in taken or name in taken else name for raw, name in plain.items()
    }


def _with_digest(name: str, raw: RawName) -> str:
    digest = hashlib.sha256("\0".join(raw).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    return f"{name[: MAX_NAME_CHARS - _DIGEST_CHARS - 1]}_{digest}"


def is_mcp_tool(name: str) -> bool:
    """Whether a tool of this name belongs to an MCP server."""
    return name.startswith(PREFIX)


class ForeignTools(Protocol):
    """Tools of a session that others than this program run."""

    async def open(self) -> tuple[Tool, ...]:
        """Start what is needed. What is not there costs a warning and its tools."""

    async def close(self) -> None:
        """End all that was started. May be called again, and before `open`."""
