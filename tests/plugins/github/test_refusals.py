"""Every kind of refusal by its status, headers and body, without a server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeRejectedError,
    ForgeUnavailableError,
)
from orchestrator.plugins.github.calls import Reply, error_of_reply
from tests.doubles.world_forge import LOCKED, REFUSALS
from tests.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NOT_ACCESSIBLE = {"message": "Resource not accessible by personal access token"}


def refused(
    status: int, headers: dict[str, str] | None = None, body: Any = None, *, has_token: bool = True
) -> ForgeError:
    text = body if isinstance(body, str) else json.dumps(body or {})
    return error_of_reply(
        Reply(status, headers or {}, text), "open the door", NOW, has_token=has_token, variable="GITHUB_TOKEN"
    )


@table(
    ("found", "kind", "text"),
    [
        (
            refused(401, body={"message": "Bad credentials"}),
            ForgeAuthenticationError,
            (
                "cannot open the door: GitHub does not accept the token (401: Bad credentials): "
                "set a valid one in GITHUB_TOKEN"
            ),
        ),
        (
            refused(401, body={"message": "Requires authentication"}, has_token=False),
            ForgeAuthenticationError,
            "cannot open the door: it needs a token (401: Requires authentication): set GITHUB_TOKEN",
        ),
        (
            refused(404),
            ForgeNotFoundError,
            "cannot open the door: not found, or the token cannot see it (404)",
        ),
        (
            refused(404, has_token=False),
            ForgeNotFoundError,
            "cannot open the door: not found, or it is private: set GITHUB_TOKEN (404)",
        ),
        (
            refused(410, body={"message": "Issues are disabled for this repo"}),
            ForgeNotFoundError,
            "cannot open the door: gone (410: Issues are disabled for this repo)",
        ),
        (
            refused(307, {"location": "https://api.github.com/repositories/7"}),
            ForgeNotFoundError,
            "cannot open the door: it has moved to https://api.github.com/repositories/7: use its new name",
        ),
        (
            refused(403, {"x-accepted-github-permissions": "pull_requests=write"}, NOT_ACCESSIBLE),
            ForgePermissionError,
            (
                "cannot open the door: the token lacks the permission pull_requests=write "
                "(403: Resource not accessible by personal access token): grant it to the token or the app"
            ),
        ),
        (
            refused(403, {"x-github-sso": "required; url=https://x.example"}, {"message": "SAML"}),
            ForgePermissionError,
            (
                "cannot open the door: the organization wants the token authorized for single sign-on "
                "(403: SAML): required; url=https://x.example"
            ),
        ),
        (
            refused(403, {"x-oauth-scopes": "gist", "x-accepted-oauth-scopes": "repo"}, {"message": "No"}),
            ForgePermissionError,
            "cannot open the door: the token has the scopes [gist], one of [repo] is needed (403: No)",
        ),
        (
            refused(403, body="<html>Forbidden by the office</html>"),
            ForgeUnavailableError,
            "cannot open the door: GitHub, or a proxy in front of it, has a problem (403): try again later",
        ),
        (
            refused(403, {"x-accepted-github-permissions": "issues=write"}, body="{}"),
            ForgePermissionError,
            "cannot open the door: the token lacks the permission issues=write (403): grant it to the token or the app",
        ),
        (
            refused(502, {"x-accepted-github-permissions": "issues=write"}, body="<html>Unicorn!</html>"),
            ForgeUnavailableError,
            "cannot open the door: GitHub, or a proxy in front of it, has a problem (502): try again later",
        ),
        (
            refused(503, body={"message": "Service down"}),
            ForgeUnavailableError,
            (
                "cannot open the door: GitHub, or a proxy in front of it, has a problem (503: Service down): "
                "try again later"
            ),
        ),
        (
            refused(
                422,
                body={
                    "message": "Validation Failed",
                    "errors": [{"field": "head", "code": "invalid"}, {"message": "Too\nlong"}, "Other"],
                },
            ),
            ForgeRejectedError,
            (
                "cannot open the door: GitHub rejected the request "
                "(422: Validation Failed; head: invalid; Too long; Other)"
            ),
        ),
    ],
)
def test_a_refusal_is_told_by_status_headers_and_body(
    found: ForgeError, kind: type[ForgeError], text: str
) -> None:
    assert type(found) is kind
    assert str(found) == text


PERMISSION = {"x-accepted-github-permissions": "contents=write"}


@table("status", [403, 429])
@table(
    ("headers", "body", "seconds"),
    [
        ({"retry-after": "30", "x-ratelimit-remaining": "7"}, NOT_ACCESSIBLE, 30),
        ({"retry-after": "Thu, 01 Jan 2026 00:02:00 GMT"}, NOT_ACCESSIBLE, 120),
        ({"retry-after": "30", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767229200"}, {}, 30),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1767229200"}, NOT_ACCESSIBLE, 3601),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "0"}, {}, 1),
        (
            {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "soon"},
            {"message": "API rate limit exceeded"},
            60,
        ),
        ({}, {"message": "You have exceeded a secondary rate limit."}, 60),
        ({}, {"message": "You have triggered an abuse detection mechanism."}, 60),
        ({}, {"message": "Please wait a few minutes before you try again."}, 60),
    ],
)
def test_a_limit_is_never_taken_for_a_missing_permission(
    status: int, headers: dict[str, str], body: dict[str, str], seconds: int
) -> None:
    found = refused(status, {**PERMISSION, **headers}, body)
    assert isinstance(found, ForgeRateLimitError)
    assert found.resume_at == NOW + timedelta(seconds=seconds)
    assert "cannot open the door before 2026-01-01" in str(found)


def test_a_permission_is_not_taken_for_a_limit_because_the_quota_is_shown() -> None:
    found = refused(
        403, {**PERMISSION, "x-ratelimit-remaining": "4999", "x-ratelimit-reset": "9"}, NOT_ACCESSIBLE
    )
    assert type(found) is ForgePermissionError


@given(
    st.integers(300, 599),
    st.dictionaries(
        st.sampled_from(
            ["retry-after", "x-ratelimit-remaining", "x-ratelimit-reset", "location", "x-github-sso"]
        ),
        st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=15),
    ),
    st.one_of(
        st.text(max_size=300),
        st.recursive(
            st.none() | st.booleans() | st.text(max_size=5) | st.integers(),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(st.sampled_from(["message", "errors", "field", "code"]), inner)
            ),
            max_leaves=8,
        ).map(json.dumps),
    ),
)
def test_any_reply_becomes_one_line(status: int, headers: dict[str, str], text: str) -> None:
    found = error_of_reply(Reply(status, headers, text), "x", NOW, has_token=True, variable="GITHUB_TOKEN")
    assert len(str(found).splitlines()) == 1
    assert len(str(found)) < 600


def test_a_simulated_world_refuses_as_github_does() -> None:
    for status, (kind, _said) in REFUSALS.items():
        body = {"message": "Unable to create comment because issue is locked." if status == LOCKED else "No"}
        assert type(refused(403 if status == LOCKED else status, body=body)) is kind
