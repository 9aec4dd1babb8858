"""What goes to GitHub, and the connection on which it goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.bot.forge.refusals import Reply


@dataclass(frozen=True, slots=True)
class Request:
    """What goes to GitHub. `doing` is for messages, after "cannot".

    A GraphQL query has its words in `body`, no path, and changes nothing although it is a POST.
    """

    method: str
    path: str
    doing: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_graphql: bool = False

    @property
    def writes(self) -> bool:
        """Whether it may change something."""
        return self.method != "GET" and not self.is_graphql


class Line(Protocol):
    """A connection to one server under one name."""

    @property
    def has_token(self) -> bool:
        """Whether it shows a token."""

    @property
    def token_variable(self) -> str:
        """The environment variable that a token for this server is set in, for messages."""

    def send(self, request: Request) -> Reply:
        """One request, one reply, whatever its status.

        Raises:
            ForgeUnavailableError: there is no reply.
        """

    def close(self) -> None:
        """Let go of connections."""
