from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    AuthenticationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    ModelNotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ProviderError,
    RateLimitError,
    ResumableError,
    SpentQuotaError,
)
from orchestrator.engine.models.failures import (
    MAX_MESSAGE_CHARACTERS,
    error_from_body,
    error_in_reply,
    is_transient,
    midnight_pacific,
    resume_time,
    set_resume_time,
)
from tests.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def classified(status: int, body: Any, headers: dict[str, str] | None = None) -> ModelError:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_from_body(status, headers or {}, raw, NOW, "api.test")


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


@table(
    ("status", "body", "kind"),
    [
        (400, said("bad"), InvalidRequestError),
        (400, said("API key not valid. Please pass a valid API key."), AuthenticationError),
        (400, said("This model's maximum context length is 8192 tokens", code=400), ContextLengthError),
        (400, said("x", code="context_length_exceeded"), ContextLengthError),
        (
            400,
            said("request (9030 tokens) exceeds the available context size (8192 tokens)"),
            ContextLengthError,
        ),
        (400, said("prompt is too long: 210000 tokens > 200000 maximum"), ContextLengthError),
        (413, said("Request too large for model, tokens per minute"), ContextLengthError),
        (400, said("Your credit balance is too low"), SpentQuotaError),
        (400, said("The response was filtered", code="content_filter"), ContentFilterError),
        (400, said("No such model", code="model_not_found"), ModelNotFoundError),
        (401, said("Incorrect API key provided"), AuthenticationError),
        (402, said("Insufficient Balance"), SpentQuotaError),
        (403, said("Country not supported"), PermissionDeniedError),
        (404, b"404 page not found", ModelNotFoundError),
        (405, said("Method Not Allowed"), ModelNotFoundError),
        (408, said("timeout"), ConnectionFailedError),
        (409, said("conflict"), OverloadedError),
        (422, {"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}, InvalidRequestError),
        (429, said("slow down"), RateLimitError),
        (
            429,
            said("Limit 30000, Used 9000, Requested 22000. Please reduce the length of the messages."),
            RateLimitError,
        ),
        (429, said("x", type="insufficient_quota"), SpentQuotaError),
        (500, said("The server had an error, exceeded context window"), ContextLengthError),
        (500, said("The server had an error in its context window manager"), OverloadedError),
        (500, said("image input is not supported - hint: provide the mmproj"), InvalidRequestError),
        (501, said("This server does not support it"), InvalidRequestError),
        (503, said("Loading model", type="unavailable_error"), OverloadedError),
        (
            529,
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            OverloadedError,
        ),
        (302, b"", ProviderError),
    ],
)
def test_classes(status: int, body: Any, kind: type[ModelError]) -> None:
    error = classified(status, body)
    assert type(error) is kind
    assert error.status == status


@table(
    ("body", "kind"),
    [
        ({"error": {"message": "busy", "type": "server_error"}}, OverloadedError),
        ({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, OverloadedError),
        ({"error": {"message": "Rate limit reached", "code": "rate_limit_exceeded"}}, RateLimitError),
        ({"error": {"message": "x", "code": 502}}, OverloadedError),
        ({"error": {"message": "x", "code": "429"}}, RateLimitError),
        ({"error": {"message": "x", "code": "context_length_exceeded"}}, ContextLengthError),
        ({"error": {"message": "x", "type": "invalid_request_error"}}, InvalidRequestError),
        ({"object": "error", "message": "x", "type": "BadRequestError", "code": 400}, InvalidRequestError),
        ({"error": "something"}, ProviderError),
    ],
)
def test_errors_inside_replies(body: Any, kind: type[ModelError]) -> None:
    assert type(error_in_reply(body, "api.test")) is kind


@table(
    ("body", "words"),
    [
        (said("what is wrong"), "what is wrong"),
        ([said("in a list")], "in a list"),
        ({"error": "plain"}, "plain"),
        ({"message": "at the top"}, "at the top"),
        ({"object": "error", "message": "another form"}, "another form"),
        ({"detail": "a detail"}, "a detail"),
        (said("Provider returned error", metadata={"raw": "the upstream's words"}), "the upstream's words"),
        (said("x", param="messages[3]"), "(in messages[3])"),
        (b"upstream connect error", "upstream connect error"),
        (b"<html><body>Bad gateway</body></html>", "a web page"),
        (b"", "no reason given"),
        (b"\xff\xfe", "api.test"),
    ],
)
def test_the_message_says_what_the_server_said(body: Any, words: str) -> None:
    assert words in str(classified(400, body))


def test_a_message_is_one_short_line() -> None:
    text = str(classified(400, said("word\n\n " * 1_000)))
    assert "\n" not in text
    assert len(text) < MAX_MESSAGE_CHARACTERS + 100


def test_what_passes_by_itself() -> None:
    passing = [RateLimitError("x"), OverloadedError("x"), ConnectionFailedError("x")]
    lasting = [SpentQuotaError("x"), ProviderError("x"), InvalidRequestError("x"), ContextLengthError("x")]
    assert all(is_transient(error) for error in passing)
    assert not any(is_transient(error) for error in lasting)


def test_the_server_may_forbid_another_try() -> None:
    headers = {"x-should-retry": "false"}
    assert not is_transient(classified(429, said("x"), headers))
    assert not is_transient(classified(503, said("x"), headers))


@table(
    ("headers", "message", "seconds"),
    [
        ({}, "", None),
        ({"retry-after": "3"}, "", 3),
        ({"retry-after": "0.5"}, "", 0.5),
        ({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}, "", 60),
        ({"retry-after": "Wed, 31 Dec 2025 23:59:00 GMT"}, "", 0),
        ({"retry-after": "soon"}, "", None),
        ({"retry-after": "-5"}, "", None),
        ({"retry-after": "nan"}, "", None),
        ({"retry-after": "1e300"}, "", 366 * 86_400),
        ({"retry-after-ms": "250", "retry-after": "9"}, "", 0.25),
        ({}, "Please try again in 18.642s. Visit", 18.642),
        ({}, "Please try again in 174ms.", 0.174),
        ({}, "try again in 1h2m3s", 3_723),
        ({"x-ratelimit-reset-requests": "1s", "x-ratelimit-reset-tokens": "6m0s"}, "", 1),
        (
            {
                "x-ratelimit-reset-requests": "1s",
                "x-ratelimit-reset-tokens": "6m0s",
                "x-ratelimit-remaining-tokens": "0",
            },
            "",
            360,
        ),
        ({"x-ratelimit-reset-tokens-minute": "11.38"}, "", 11.38),
        ({"x-ratelimit-reset": str((NOW + timedelta(seconds=5)).timestamp())}, "", 5),
        ({"x-ratelimit-reset": str(int((NOW + timedelta(seconds=5)).timestamp() * 1_000))}, "", 5),
        (
            {
                "anthropic-ratelimit-tokens-reset": "2026-01-01T00:00:30Z",
                "anthropic-ratelimit-tokens-remaining": "0",
            },
            "",
            30,
        ),
        ({"retry-after": "2", "x-ratelimit-reset-tokens": "9s"}, "", 2),
        ({}, "Please retry after 26 seconds.", 26),
        ({}, "Try again in 1 hour 5 minutes, or pay", 3_900),
        ({}, "try again in 5 more steps", None),
        ({}, "You will regain access on 2026-01-02 at 06:00 UTC.", 30 * 3_600),
        ({}, "The limit resets at 2026-01-01T00:00:09Z", 9),
        ({}, "regain access on 2026-13-45", None),
        (
            {
                "anthropic-ratelimit-unified-status": "rejected",
                "anthropic-ratelimit-unified-reset": str(int((NOW + timedelta(hours=3)).timestamp())),
                "anthropic-ratelimit-requests-reset": "2026-01-01T00:00:01Z",
            },
            "",
            10_800,
        ),
        ({"ratelimit-reset": "7"}, "", 7),
        ({"ratelimit-reset": "7", "ratelimit-remaining": "0", "x-ratelimit-reset-requests": "1s"}, "", 7),
        ({"x-rate-limit-reset": str(int((NOW + timedelta(seconds=5)).timestamp()))}, "", 5),
        ({"ratelimit-reset-tokens": "9", "ratelimit-remaining-tokens": "0", "ratelimit-reset": "2"}, "", 9),
        ({"ratelimit": '"default";r=0;t=30'}, "", 30),
        ({"ratelimit": '"burst";r=5;t=1, "daily";r=0;t=3600'}, "", 3_600),
        ({"ratelimit": '"burst";r=5;t=1, "daily";r=2;t=3600'}, "", 1),
        ({"ratelimit": "limit=100, remaining=0, reset=12"}, "", 12),
        ({"ratelimit": "problem", "ratelimit-policy": '"default";q=100;w=60'}, "", None),
        ({"ratelimit": '"default";r=0;t=30', "retry-after": "4"}, "", 4),
        ({"retry-after": "5, 5"}, "", 5),
        ({"retry-after": "5, 30"}, "", 30),
        ({"retry-after": "5, Thu, 01 Jan 2026 00:01:00 GMT"}, "", 60),
        ({"retry-after": "Thursday, 01-Jan-26 00:01:00 GMT, 2"}, "", 60),
        ({"retry-after-ms": "250, 250"}, "", 0.25),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT, Thu, 01 Jan 2026 00:01:00 GMT"}, "", 60),
        ({"retry-after": "1 hour, 5 minutes"}, "", 3_900),
        ({"retry-after": "PT1M30S"}, "", 90),
        ({"retry-after": "00:01:30"}, "", 90),
        (
            {"retry-after": "0", "x-ratelimit-reset-requests": "20s", "x-ratelimit-remaining-requests": "0"},
            "",
            20,
        ),
        ({"retry-after": "0"}, "", 0),
        ({"x-ms-retry-after-ms": "1500"}, "", 1.5),
    ],
)
def test_when_to_try_again(headers: dict[str, str], message: str, seconds: float | None) -> None:
    moment = resume_time(429, headers, message, NOW)
    assert moment == (None if seconds is None else NOW + timedelta(seconds=seconds))


@table("status", [408, 409, 425, 429, 500, 502, 503, 504, 520, 529])
def test_a_wait_is_honoured_with_every_status_that_passes(status: int) -> None:
    error = classified(status, said("x"), {"retry-after": "30"})
    assert isinstance(error, ResumableError)
    assert error.resume_at == NOW + timedelta(seconds=30)


@table(
    ("words", "seconds"),
    [
        ("Please try again in 11.054s.", 11.054),
        ("try again in 1m2.5s", 62.5),
        ("Try again in 350ms", 0.35),
        ("retry in 20 seconds", 20),
        ("Please retry in 34.074824224s.", 34.074824224),
        ("wait for about 2 minutes and 5 seconds", 125),
        ("resets in 1 hour, 5 minutes", 3_900),
        ('{"error":{"details":[{"retryDelay":"19s"}]}}', 19),
        ("{'retry_after': 3.5}", 3.5),
        ("Retry-After: 12", 12),
        ("try again in a while", None),
        ("Support is available 24 hours a day", None),
        ("Timed out: waited 30 s", None),
        ("wait for 3 more models", None),
    ],
)
def test_the_wait_in_words_inside_a_reply(words: str, seconds: float | None) -> None:
    error = error_in_reply(said(words, code="rate_limit_exceeded"), "api.test")
    assert isinstance(error, ResumableError)
    assert error.resume_at is None
    set_resume_time(error, NOW)
    assert error.resume_at == (None if seconds is None else NOW + timedelta(seconds=seconds))


def test_rate_limit_headers_of_a_server_error_say_nothing() -> None:
    assert resume_time(500, {"x-ratelimit-reset-tokens": "9s"}, "", NOW) is None


CREDIT = "You exceeded your current quota, please check your plan and billing details."
MONTH = "You have reached your specified API usage limits. You will regain access on 2026-02-01 at 00:00 UTC."


def resumes(error: ModelError) -> datetime | None:
    assert isinstance(error, SpentQuotaError)
    return error.resume_at


@table(
    ("status", "body", "headers"),
    [
        (429, said(CREDIT, type="insufficient_quota"), {}),
        (
            429,
            said(CREDIT, type="insufficient_quota"),
            {"x-ratelimit-reset-requests": "1s", "retry-after": "20"},
        ),
        (400, said("Your credit balance is too low to access the API."), {}),
        (402, said("Insufficient credits"), {"retry-after": "5"}),
    ],
)
def test_a_quota_that_only_money_brings_back_has_no_time(
    status: int, body: Any, headers: dict[str, str]
) -> None:
    assert resumes(classified(status, body, headers)) is None


@table(
    ("status", "body", "headers", "moment"),
    [
        (400, said(MONTH), {}, datetime(2026, 2, 1, tzinfo=UTC)),
        (402, said("Insufficient credits"), {"retry-after": "7200"}, NOW + timedelta(hours=2)),
        # A clock that is ahead: the time named has just passed here, and the server still refuses.
        (400, said(MONTH.replace("2026-02-01", "2025-12-31")), {}, NOW + timedelta(minutes=10)),
        (429, said("x"), {"x-should-retry": "false"}, NOW + timedelta(minutes=10)),
        (429, said("x"), {"x-should-retry": "false", "retry-after": "3600"}, NOW + timedelta(hours=1)),
    ],
)
def test_when_a_quota_is_free_again(
    status: int, body: Any, headers: dict[str, str], moment: datetime
) -> None:
    assert resumes(classified(status, body, headers)) == moment


def test_a_long_wait_stays_a_rate_limit_that_says_when() -> None:
    words = "Rate limit reached on tokens per day (TPD): Limit 100000. Please try again in 2h14m24.5s."
    error = classified(429, said(words, code="rate_limit_exceeded"))
    assert type(error) is RateLimitError
    assert error.resume_at == NOW + timedelta(hours=2, minutes=14, seconds=24.5)


@table(
    "body",
    [
        {"error": {"type": "usage_limit_reached", "message": "x", "resets_in_seconds": 90}},
        {"error": {"type": "usage_limit_reached", "message": "x", "resets_at": int(NOW.timestamp()) + 90}},
        {"ok": False, "error_code": 429, "description": "x", "parameters": {"retry_after": 90}},
    ],
)
def test_a_wait_in_a_field_of_the_body(body: Any) -> None:
    error = classified(429, body)
    assert isinstance(error, RateLimitError)
    assert error.resume_at == NOW + timedelta(seconds=90)


def test_a_gateway_passes_the_reset_on_in_the_body() -> None:
    reset = NOW + timedelta(hours=9)
    headers = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(reset.timestamp() * 1_000)), "X": 1}
    body = said("Rate limit exceeded: free-models-per-day", code=429, metadata={"headers": headers})
    error = classified(429, body)
    assert isinstance(error, RateLimitError)
    assert error.resume_at == reset


@table(
    ("now", "midnight"),
    [
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, 8, tzinfo=UTC)),
        (datetime(2026, 1, 1, 8, tzinfo=UTC), datetime(2026, 1, 2, 8, tzinfo=UTC)),
        (datetime(2026, 7, 1, 6, 59, tzinfo=UTC), datetime(2026, 7, 1, 7, tzinfo=UTC)),
        (datetime(2026, 3, 8, 12, tzinfo=UTC), datetime(2026, 3, 9, 7, tzinfo=UTC)),
    ],
)
def test_googles_day_ends_at_midnight_in_california(now: datetime, midnight: datetime) -> None:
    assert midnight_pacific(now) == midnight


def test_a_quota_inside_a_stream() -> None:
    dated = error_in_reply(said(MONTH, type="invalid_request_error"), "api.test")
    assert resumes(dated) == datetime(2026, 2, 1, tzinfo=UTC)
    assert resumes(error_in_reply(said(CREDIT, code="insufficient_quota"), "api.test")) is None
    daily = google(SPENT, "RESOURCE_EXHAUSTED", 429, quota("RequestsPerDay"))
    # Nothing names a time here; the same question as a new request is answered with a status that does.
    assert is_transient(error_in_reply(daily, "api.test"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["error", "message", "type", "code", "param", "details", "metadata", "raw", "status"]
            ),
            inner,
        )
    ),
    max_leaves=10,
)


@given(st.integers(300, 599), JSON | st.binary(max_size=30), st.text(max_size=20))
def test_any_body_gives_an_error_of_ours(status: int, body: Any, header: str) -> None:
    headers = {"retry-after": header, "x-ratelimit-reset-a": header, "retry-after-ms": header}
    error = classified(status, body, headers)
    assert isinstance(error, ModelError)
    assert "api.test" in str(error)
    assert isinstance(error_in_reply(body, "api.test"), ModelError)


def google(message: str, status: str, code: int, *details: dict[str, Any]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "status": status, "details": list(details)}}


SPENT = (
    "You exceeded your current quota, please check your plan and billing details. " + "For more, see. " * 40
)
IN_34_S = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}


def quota(name: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.QuotaFailure"
    return {"@type": kind, "violations": [{"quotaMetric": "requests", "quotaId": name}]}


@table(
    ("status", "body", "kind"),
    [
        (
            400,
            google(
                "API key not valid. Please pass a valid API key.",
                "INVALID_ARGUMENT",
                400,
                {"reason": "API_KEY_INVALID"},
            ),
            AuthenticationError,
        ),
        (
            400,
            google("API key expired.", "INVALID_ARGUMENT", 400, {"reason": "API_KEY_INVALID"}),
            AuthenticationError,
        ),
        (
            400,
            [
                google(
                    "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
                    "INVALID_ARGUMENT",
                    400,
                )
            ],
            ContextLengthError,
        ),
        (400, google("Invalid value at 'contents'", "INVALID_ARGUMENT", 400), InvalidRequestError),
        (
            403,
            google("Method doesn't allow unregistered callers.", "PERMISSION_DENIED", 403),
            AuthenticationError,
        ),
        (
            403,
            google("Permission denied on resource", "PERMISSION_DENIED", 403),
            PermissionDeniedError,
        ),
        (404, google("models/x is not found for API version v1beta", "NOT_FOUND", 404), ModelNotFoundError),
        (503, google("The model is overloaded.", "UNAVAILABLE", 503), OverloadedError),
        (500, google("An internal error has occurred.", "INTERNAL", 500), OverloadedError),
        (504, google("Deadline expired.", "DEADLINE_EXCEEDED", 504), OverloadedError),
        (429, google("Resource exhausted.", "RESOURCE_EXHAUSTED", 429), RateLimitError),
        (
            429,
            google(SPENT, "RESOURCE_EXHAUSTED", 429, quota("GenerateRequestsPerMinutePerProject"), IN_34_S),
            RateLimitError,
        ),
        (
            429,
            google(SPENT, "RESOURCE_EXHAUSTED", 429, quota("GenerateRequestsPerDayPerProject"), IN_34_S),
            SpentQuotaError,
        ),
        (
            429,
            google("You exceeded your current quota: limit: 0, model: x", "RESOURCE_EXHAUSTED", 429),
            SpentQuotaError,
        ),
    ],
)
def test_googles_errors(status: int, body: Any, kind: type[ModelError]) -> None:
    assert type(classified(status, body)) is kind


def test_googles_waits() -> None:
    error = classified(429, google(SPENT, "RESOURCE_EXHAUSTED", 429, {"violations": "?"}, IN_34_S))
    assert isinstance(error, RateLimitError)
    assert error.resume_at == NOW + timedelta(seconds=34.5)
    soon = classified(503, google("x", "UNAVAILABLE", 503, IN_34_S), {"retry-after": "2"})
    assert isinstance(soon, OverloadedError)
    assert soon.resume_at == NOW + timedelta(seconds=2)


@table(
    ("message", "name", "moment"),
    [
        (SPENT, "RequestsPerDay", datetime(2026, 1, 1, 8, tzinfo=UTC)),
        (
            "Quota exceeded for metric 'Requests' and limit 'Requests per day'",
            "",
            datetime(2026, 1, 1, 8, tzinfo=UTC),
        ),
        (f"{SPENT} limit: 0", "RequestsPerDay", None),
        ("Your prepayment credits are depleted.", "", None),
        ("Your project has exceeded its monthly spending cap.", "", None),
    ],
)
def test_googles_quotas(message: str, name: str, moment: datetime | None) -> None:
    body = google(message, "RESOURCE_EXHAUSTED", 429, quota(name), IN_34_S)
    assert resumes(classified(429, body)) == moment


def test_google_may_name_the_time_itself() -> None:
    wait = {**IN_34_S, "retryDelay": "14400s"}
    body = google("x", "RESOURCE_EXHAUSTED", 429, quota("RequestsPerDay"), wait)
    assert resumes(classified(429, body)) == NOW + timedelta(hours=4)


def test_a_quota_of_a_day_is_not_waited_for() -> None:
    daily = google(SPENT, "RESOURCE_EXHAUSTED", 429, quota("RequestsPerDay"), IN_34_S)
    assert not is_transient(classified(429, daily))
    assert is_transient(classified(429, google(SPENT, "RESOURCE_EXHAUSTED", 429, quota("RequestsPerMinute"))))
