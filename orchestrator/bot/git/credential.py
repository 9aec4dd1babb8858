"""What git shows to one server: asked for at each use, handed over by a helper that knows only that server."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.core.errors import WorkspaceError
from orchestrator.core.masking import REPLACEMENT, without

if TYPE_CHECKING:
    from pathlib import Path

_HELPER_NAME = "askpass"

# Git calls the helper with its question as the only argument. The questions of one server are compared
# as a whole, so a redirect to another host, scheme or port gets no answer. `printf` is built into the
# shell: the secret is in no process's arguments.
_HELPER = """#!/bin/sh
case "$1" in
    "$PULLWRIGHT_GIT_ASKS_USERNAME") printf '%s\\n' "$PULLWRIGHT_GIT_USERNAME" ;;
    "$PULLWRIGHT_GIT_ASKS_PASSWORD") printf '%s\\n' "$PULLWRIGHT_GIT_PASSWORD" ;;
    *) exit 1 ;;
esac
"""


@dataclass(frozen=True, slots=True)
class GitCredential:
    """A user name and a password (or token) for one server.

    Attributes:
        host: the server's name, with `:port` where only that port may have it.
    """

    host: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"GitCredential(host={self.host!r}, username={self.username!r}, password={REPLACEMENT!r})"

    def suits(self, authority: str) -> bool:
        """Whether this is for the server `name` or `name:port` of a URL."""
        wanted = self.host.casefold()
        given = authority.casefold()
        return wanted in {given, given.rpartition(":")[0]}

    def variables(self, scheme: str, authority: str, helper: Path) -> dict[str, str]:
        """The environment of one git command that may show this credential to that server.

        Raises:
            WorkspaceError: the user name or the password has a control character.
        """
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in self.username + self.password):  # noqa: PLR2004  ASCII control
            message = f"the credential for {self.host} contains a line break or another control character"
            raise WorkspaceError(message)
        # The wording of both questions: https://github.com/git/git/blob/master/credential.c
        user = quote(self.username, safe="")
        return {
            "GIT_ASKPASS": str(helper),
            "PULLWRIGHT_GIT_ASKS_USERNAME": f"Username for '{scheme}://{authority}': ",
            "PULLWRIGHT_GIT_ASKS_PASSWORD": f"Password for '{scheme}://{user}@{authority}': ",
            "PULLWRIGHT_GIT_USERNAME": self.username,
            "PULLWRIGHT_GIT_PASSWORD": self.password,
        }

    def redact(self, text: str) -> str:
        """The text without the password in the forms in which git or curl could print it."""
        basic = base64.b64encode(f"{self.username}:{self.password}".encode()).decode("ascii")
        return without(text, self.password).replace(basic, REPLACEMENT)


def write_helper(folder: Path) -> Path:
    """Write the helper into a folder that only this user can enter. It holds no secret."""
    helper = folder / _HELPER_NAME
    if not helper.exists():
        helper.write_text(_HELPER, encoding="ascii")
        helper.chmod(0o700)
    return helper
