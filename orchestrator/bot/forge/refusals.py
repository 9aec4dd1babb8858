"""What a reply of GitHub that is not a success means: a limit, a permission, a mistake, an outage."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TOKEN_VARIABLE = "GITHUB_TOKEN"  # noqa: S105  a variable's name
ENTERPRISE_VARIABLE = "GH_ENTERPRISE_TOKEN"
"""For every server but github.com, as gh has it: cli.github.com/manual/gh_help_environment"""
SECONDARY_LIMIT_SECONDS = 60.0
"""The wait where GitHub names none: docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"""

_LONGEST_QUOTE = 4000
_TROUBLE_WORDS = re.compile(r"something went wrong|timed? ?out|timeout", re.IGNORECASE)
_LIMIT_WORDS = re.compile(r"rate limit|abuse detection|wait a few minutes|retry your request", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of GitHub. Header names are lower case; `text` is the body."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """The body as JSON, or None where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def messages(self) -> str:
        """What GitHub says in words, on one line, the details of a failed validation included."""
        return " ".join("; ".join(filter(None, self._said())).split())[:_LONGEST_QUOTE]

    def _said(self) -> Iterator[str]:
        body = self.json()
        if not isinstance(body, dict):
            return
        yield str(body.get("message", ""))
        errors = body.get("errors")
        for error in errors if isinstance(errors, list) else ():
            if isinstance(error, dict):
                yield str(error.get("message") or f"{error.get('field')}: {error.get('code')}")
            else:
                yield str(error)


def refusal(
    reply: Reply, doing: str, now: datetime, *, has_token: bool, variable: str = TOKEN_VARIABLE
) -> ForgeError:
    """The error that a reply of status 300 or more stands for.

    Args:
        reply: what GitHub answered.
        doing: what was tried, after "cannot": `open a pull request in owner/name`.
        now: the time, for limits that GitHub gives in seconds from now.
        has_token: whether a token was shown, which changes what a person can do about it.
        variable: where a token for this server is set.
    """
    status, said = reply.status, reply.messages()
    quoted = f"({status}: {said})" if said else f"({status})"
    forbidden = status in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
    error: ForgeError
    if forbidden and (limit := _limit(reply, now)):
        text = f"cannot {doing} before {limit:%Y-%m-%d %H:%M:%S} UTC: rate limit {quoted}"
        error = ForgeRateLimitError(text, resume_at=limit)
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR or (forbidden and not said and not _is_githubs(reply)):
        where = "GitHub, or a proxy before it, is in trouble"
        error = ForgeUnavailableError(f"cannot {doing}: {where} {quoted}: try again later")
    elif status == HTTPStatus.UNAUTHORIZED:
        why = "GitHub does not accept the token" if has_token else "it needs a token"
        what = f"set a valid one in {variable}" if has_token else f"set {variable}"
        error = ForgeAuthenticationError(f"cannot {doing}: {why} {quoted}: {what}")
    elif forbidden:
        error = ForgePermissionError(f"cannot {doing}: {_missing_permission(reply, quoted)}")
    elif status == HTTPStatus.NOT_FOUND:
        hidden = "or the token cannot see it" if has_token else f"or it is private: set {variable}"
        error = ForgeNotFoundError(f"cannot {doing}: not found, {hidden} (404)")
    elif status == HTTPStatus.GONE:
        error = ForgeNotFoundError(f"cannot {doing}: gone {quoted}")
    elif status < HTTPStatus.BAD_REQUEST:
        place = reply.headers.get("location", "another place")
        error = ForgeNotFoundError(f"cannot {doing}: it has moved to {place}: use its new name")
    else:
        error = ForgeError(f"cannot {doing}: GitHub rejected the request {quoted}")
    return error


def query_refusal(reply: Reply, doing: str, now: datetime) -> ForgeError | None:
    """The error in the answer to a GraphQL query, which comes with status 200; None if there is none.

    A part of an answer beside an error is no answer. The types are named at
    docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
    """
    body = reply.json()
    errors = body.get("errors") if isinstance(body, dict) else None
    if not errors:
        return None
    listed = errors if isinstance(errors, list) else []
    kinds = {str(error.get("type")) for error in listed if isinstance(error, dict)}
    said = reply.messages()
    if kinds & {"RATE_LIMITED", "RATE_LIMIT"} or "secondary rate limit" in said.lower():
        limit = _limit(reply, now) or now + timedelta(seconds=SECONDARY_LIMIT_SECONDS)
        text = f"cannot {doing} before {limit:%Y-%m-%d %H:%M:%S} UTC: rate limit ({said})"
        return ForgeRateLimitError(text, resume_at=limit)
    if kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
        return ForgePermissionError(f"cannot {doing}: the token may not do that ({said})")
    if "NOT_FOUND" in kinds:
        return ForgeNotFoundError(f"cannot {doing}: not found ({said})")
    if _TROUBLE_WORDS.search(said):
        return ForgeUnavailableError(f"cannot {doing}: GitHub is in trouble ({said}): try again later")
    return ForgeError(f"cannot {doing}: GitHub rejected the query ({said})")


def _limit(reply: Reply, now: datetime) -> datetime | None:
    """When a rate limit ends, or None if the reply is about something else.

    The order is GitHub's: `Retry-After`, then a spent quota with its reset, then a minute.
    """
    headers = reply.headers
    if (seconds := _number(headers.get("retry-after"))) is not None:
        return now + timedelta(seconds=seconds)
    reset = _number(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        # The reset is a whole second; within that second the quota may still be spent.
        return max(now, datetime.fromtimestamp(reset, UTC)) + timedelta(seconds=1)
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS or _LIMIT_WORDS.search(reply.messages()):
        return now + timedelta(seconds=SECONDARY_LIMIT_SECONDS)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,11}", text.strip()) else None


def _is_githubs(reply: Reply) -> bool:
    """Whether a refusal without words is GitHub's own: a proxy knows nothing of permissions."""
    return not reply.headers.keys().isdisjoint({"x-accepted-github-permissions", "x-github-sso"})


def _missing_permission(reply: Reply, quoted: str) -> str:
    headers = reply.headers
    if wanted := headers.get("x-accepted-github-permissions"):
        return f"the token lacks the permission {wanted} {quoted}: grant it to the token or the app"
    if sign_on := headers.get("x-github-sso"):
        return f"the organization wants the token authorized for single sign-on {quoted}: {sign_on}"
    held = headers.get("x-oauth-scopes")
    wanted = headers.get("x-accepted-oauth-scopes")
    if held is not None and wanted:
        return f"the token has the scopes [{held}], one of [{wanted}] is needed {quoted}"
    return f"the token may not do that {quoted}"
