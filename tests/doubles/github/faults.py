"""Replies that go wrong on purpose."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class Fault:
    """What happens instead of, or on top of, the answer of matching requests.

    Attributes:
        method: the request's method, or `*`.
        path: a regular expression that the whole path below the API's root must match; for git
            the path of the URL.
        times: how many matching requests it strikes; then it is over.
        skip: how many matching requests pass unharmed before.
        status: answer this instead, without doing what was asked; None to answer as usual.
        lost_reply: do what was asked, then drop the connection without a word.
        refused: reset the connection instead of an answer, without doing what was asked.
        delay: seconds that the answer waits.
    """

    method: str
    path: str
    times: int = 1
    skip: int = 0
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    lost_reply: bool = False
    refused: bool = False
    delay: float = 0.0

    def strikes(self, method: str, path: str) -> bool:
        """Whether it strikes this request; counts it if so."""
        if self.times <= 0 or self.method not in {"*", method} or not re.fullmatch(self.path, path):
            return False
        if self.skip > 0:
            self.skip -= 1
            return False
        self.times -= 1
        return True


def primary_limit(method: str, path: str, *, reset_at: int, status: int = 403, times: int = 1) -> Fault:
    """The hourly quota is spent until `reset_at`, in seconds since 1970."""
    headers = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(reset_at)}
    body = {
        "message": "API rate limit exceeded for user ID 1.",
        "documentation_url": "https://docs.github.com/rest",
    }
    return Fault(method, path, times, status=status, headers=headers, body=body)


def secondary_limit(
    method: str, path: str, *, retry_after: int | None, status: int = 403, times: int = 1
) -> Fault:
    """Too many requests at once. GitHub says for how long, or (None) says nothing."""
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    message = "You have exceeded a secondary rate limit. Please wait a few minutes before you try again."
    return Fault(method, path, times, status=status, headers=headers, body={"message": message})


def server_error(method: str, path: str, *, status: int = 502, times: int = 1) -> Fault:
    """GitHub is down: an HTML page, as its front servers send it."""
    return Fault(method, path, times, status=status, body="<html><body>Unicorn!</body></html>")


def lost_reply(method: str, path: str, *, times: int = 1) -> Fault:
    """The request is done, but the answer never arrives."""
    return Fault(method, path, times, lost_reply=True)
