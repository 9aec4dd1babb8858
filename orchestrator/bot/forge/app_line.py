"""A GitHub App's way to sign requests: a token for one repository, renewed before it expires."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import Traffic
from orchestrator.bot.forge.calls import Calls, Patience
from orchestrator.bot.forge.line import Line, Request
from orchestrator.bot.forge.refusals import TOKEN_VARIABLE
from orchestrator.core.errors import ForgeAuthenticationError, ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.forge.refusals import Reply

RENEWAL_MARGIN = timedelta(minutes=5)
"""A token is not used in its last minutes, so that a clone or push that begins with it ends with it."""


class AppLine:
    """Signs requests with an app's installation token.

    Args:
        name: the repository, `owner/name`; the token is good for no other.
        patience: how the calls for a token behave in time.
        as_app: opens a line that is signed with the app's own key.
        with_token: opens a line that is signed with a token.
    """

    def __init__(
        self,
        name: str,
        patience: Patience,
        *,
        as_app: Callable[[], Line],
        with_token: Callable[[str], Line],
    ) -> None:
        self._name, self._patience = name, patience
        self._as_app, self._with_token = as_app, with_token
        self._line: Line | None = None
        self._token = ""
        self._expires_at: datetime | None = None
        self._lock = threading.RLock()
        self._spent = Traffic()

    @property
    def has_token(self) -> bool:
        """Always: without one there is an error."""
        return True

    @property
    def token_variable(self) -> str:
        """What would be used in place of the app."""
        return TOKEN_VARIABLE

    def send(self, request: Request) -> Reply:
        """One request, one reply, with a token that is good for some minutes more."""
        return self._renewed().send(request)

    def token(self) -> str:
        """A token that is good for some minutes more."""
        with self._lock:
            self._renewed()
            return self._token

    def traffic(self) -> Traffic:
        """The requests that the tokens took so far."""
        return self._spent

    def close(self) -> None:
        """Let go of connections."""
        if self._line is not None:
            self._line.close()

    def _renewed(self) -> Line:
        # Git asks for the token in one thread while requests go out in another.
        with self._lock:
            return self._with_good_token()

    def _with_good_token(self) -> Line:
        now = self._patience.clock.now()
        if self._line is None or self._expires_at is None or self._expires_at - now < RENEWAL_MARGIN:
            line = self._as_app()
            calls = Calls(line, self._patience)
            try:
                self._token, self._expires_at = self._new_token(calls)
            finally:
                line.close()
                new, old = calls.traffic(), self._spent
                self._spent = Traffic(old.requests + new.requests, old.unchanged, old.writes + new.writes)
            self.close()
            self._line = self._with_token(self._token)
        return self._line

    def _new_token(self, calls: Calls) -> tuple[str, datetime]:
        doing = f"get the GitHub App's token for {self._name}"
        try:
            found = Request("GET", f"/repos/{self._name}/installation", doing)
            number = calls.read(found, lambda data: int(data["id"]))
            only = {"repositories": [self._name.split("/")[1]]}
            asked = Request("POST", f"/app/installations/{number}/access_tokens", doing, body=only)
            return calls.read(
                asked,
                lambda data: (str(data["token"]), datetime.fromisoformat(data["expires_at"])),
                repeatable=True,
            )
        except ForgeNotFoundError:
            raise ForgeNotFoundError(
                f"cannot {doing}: no such repository, or the app is not installed on it"
            ) from None
        except ForgeAuthenticationError:
            raise ForgeAuthenticationError(
                f"cannot {doing}: check the app's id and its private key"
            ) from None
