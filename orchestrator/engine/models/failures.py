"""Converts the error replies of every vendor into the program's `ModelError` classes."""

from __future__ import annotations

import re
import zoneinfo
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

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
from orchestrator.core.http_client import (
    DURATION,
    LONGEST_SECONDS,
    asked_seconds,
    plain_number,
    seconds_until,
)
from orchestrator.core.json_rpc import read_json
from orchestrator.core.prompts import cut
from orchestrator.engine.models.refusals import is_other_limit, is_overflow
from orchestrator.engine.models.wire import as_object, as_text, dicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


LEAST_QUOTA_SECONDS = 600.0
"""A shorter wait in the reply to a spent quota does not refer to the quota."""
_ABOUT = r"(?:about |around |approximately |at least |another )?"
_TRY_AGAIN = re.compile(
    rf"(?:\b(?:again|retry|retrying|resets?|available) (?:in|after)|\bwait(?: for)?) {_ABOUT}({DURATION.pattern})"
    # A field of an upstream body inside a message.
    rf"|retry[_-]?(?:delay|after)[\\\"']*\s*[:=]\s*[\\\"']*({DURATION.pattern}|\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_ON_A_DATE = re.compile(
    r"(?:access|again|resets?|available) (?:on |at |after )?(\d{4}-\d\d-\d\d)(?:(?: at |[T ])(\d\d:\d\d(?::\d\d)?))?",
    re.IGNORECASE,
)
_RESET = re.compile(
    r"(?P<begin>(?:x-)?rate-?limit-)reset(?P<openai>-.+)?|anthropic-ratelimit(?P<anthropic>-.+)-reset"
)
_PARAMETER = re.compile(r"(?:^|[;,\s])(r|remaining|t|reset)=\"?(\d+(?:\.\d+)?)")


def resume_time(status: int, headers: Mapping[str, str], message: str, now: datetime) -> datetime | None:
    """Return when to try again, if the server names a time.

    `retry-after-ms` and `Retry-After` (seconds or an HTTP date) come first, then "try again in 18.6s" or
    "regain access on 2026-12-01 at 00:00 UTC" in the message, then, with status 429, the rate limit's reset
    headers. A wait of nothing counts only if no other one is named.
    """
    in_milliseconds = headers.get("retry-after-ms") or headers.get("x-ms-retry-after-ms") or ""
    milliseconds = plain_number(in_milliseconds.partition(",")[0])
    waits = [
        milliseconds / 1_000 if milliseconds is not None else None,
        asked_seconds(headers, now),
        seconds_until(_wait_in(message), now),
        (date - now).total_seconds() if (date := _date_in(message)) else None,
        _reset(headers, now) if status == HTTPStatus.TOO_MANY_REQUESTS else None,
    ]
    named = [wait for wait in waits if wait is not None]
    seconds = next((wait for wait in named if wait > 0), next(iter(named), None))
    return None if seconds is None else now + timedelta(seconds=min(max(seconds, 0.0), LONGEST_SECONDS))


def _quota_time(headers: Mapping[str, str], message: str, now: datetime) -> datetime | None:
    """Return when a spent quota is renewed, if the server names a time.

    Waits of seconds are ignored: they refer to the rate of requests, which servers report with every error,
    and a spent quota is not renewed so soon. A date that has just passed comes from a wrong clock on either
    side; the next attempt then follows a little later.
    """
    least = now + timedelta(seconds=LEAST_QUOTA_SECONDS)
    date = _date_in(message)
    if date is not None:
        return max(least, min(date, now + timedelta(seconds=LONGEST_SECONDS)))
    named = resume_time(HTTPStatus.OK, headers, message, now)
    return named if named and named >= least else None


def _wait_in(message: str) -> str:
    """Return the wait in an error's message ("try again in 18.6s", "wait 2 minutes"), or an empty text."""
    found = _TRY_AGAIN.search(message)
    return (found[1] or found[2]) if found else ""


def _date_in(message: str) -> datetime | None:
    """Return the date in an error's message on which access is regained, in UTC."""
    found = _ON_A_DATE.search(message)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}").replace(tzinfo=UTC)
    except ValueError:
        return None


def midnight_pacific(now: datetime) -> datetime:
    """Return when Google's daily quotas are renewed.

    https://ai.google.dev/gemini-api/docs/rate-limits: "Requests per day (RPD) quotas reset at midnight
    Pacific time".
    """
    pacific = zoneinfo.ZoneInfo("America/Los_Angeles")
    tomorrow = now.astimezone(pacific).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), pacific).astimezone(UTC)


def _reset(headers: Mapping[str, str], now: datetime) -> float | None:
    """Return the longest reset of the spent limits, or the shortest of all if no limit is marked as spent."""
    spent: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        match = _RESET.fullmatch(name)
        seconds = seconds_until(value, now) if match else None
        if match is None or seconds is None:
            continue
        kind = match["openai"] or match["anthropic"] or ""
        prefix = (
            "anthropic-ratelimit" + kind + "-remaining"
            if match["anthropic"]
            else f"{match['begin']}remaining{kind}"
        )
        is_spent = plain_number(headers.get(prefix)) == 0
        rejected = headers.get(prefix.removesuffix("-remaining") + "-status") == "rejected"
        (spent if is_spent or rejected else others).append(seconds)
    for seconds, is_spent in _limits(headers.get("ratelimit", "")):
        (spent if is_spent else others).append(seconds)
    return max(spent) if spent else min(others, default=None)


def _limits(text: str) -> Iterator[tuple[float, bool]]:
    """Yield the seconds until the reset of each limit in a `RateLimit` header, and whether the limit is spent.

    https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/: `"default";r=0;t=30`, and in earlier
    versions `limit=100, remaining=0, reset=30`.
    """
    for item in text.split(",") if ";" in text else [text]:
        values = {name: float(number) for name, number in _PARAMETER.findall(item)}
        seconds = values.get("t", values.get("reset"))
        if seconds is not None:
            yield seconds, values.get("r", values.get("remaining")) == 0


def _read_details(details: object) -> tuple[list[str], str]:
    """Return the words that identify the kind of error, and the requested wait (`34s`) or an empty text."""
    listed = dicts(details)
    quotas = [as_text(quota.get("quotaId")) for item in listed for quota in dicts(item.get("violations"))]
    words = [as_text(item.get("reason")) for item in listed] + quotas
    waits = [as_text(item.get("retryDelay")) for item in listed]
    return [word for word in words if word], next(filter(None, waits), "")


MAX_MESSAGE_CHARACTERS = 500
_MAX_READ_CHARACTERS = 8_000  # of a message, whose decisive words may come after links

_MESSAGE_FIELDS = ("message", "detail", "msg", "status_msg", "error_description", "title")
_WAIT_FIELDS = {
    "resets_in_seconds": "retry-after",
    "resets_at": "retry-after",
    "retry_after": "retry-after",
    "retryAfter": "retry-after",
    "retry_after_seconds": "retry-after",
    "retry_after_ms": "retry-after-ms",
    "retryAfterMs": "retry-after-ms",
}
_CHECK_KEY = "check the API key"
_CHECK_NAME = "check the model's name and the API address"


@dataclass(frozen=True, slots=True)
class _ReportedError:
    """The content of an error body.

    Attributes:
        kinds: its type, code and status words, joined by spaces.
        param: the request field that it names, or empty.
        status: an HTTP status inside the body, which some servers send with status 200.
        waits: the waits in the body, under the names of HTTP headers in lower case: from its own fields, and
            from the upstream server's headers that a gateway such as OpenRouter includes.
    """

    message: str
    kinds: str = ""
    param: str = ""
    status: int | None = None
    waits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Rule:
    """An error class, the expression for the words that identify it, and a hint for the user."""

    kind: type[ModelError]
    words: str
    hint: str = ""
    in_message: bool = True  # whether to search the message, too, or only type and code


_NO_CREDIT = "the account has no credit or quota left"
# Google also reports "exceeded your current quota" for the requests in a minute.
_GOOGLE_NO_CREDIT = _Rule(
    SpentQuotaError, r"\bRESOURCE_EXHAUSTED\b.*(limit: 0\b|depleted|spend(ing)? cap)", _NO_CREDIT
)
_GOOGLE_DAILY_QUOTA = _Rule(
    SpentQuotaError,
    r"\bRESOURCE_EXHAUSTED\b.*(PerDay|limit .{0,80}per day)",
    "the quota of the day is used up",
)
_GOOGLE_RATE_LIMIT = _Rule(RateLimitError, r"\bRESOURCE_EXHAUSTED\b")
_QUOTA = _Rule(
    SpentQuotaError,
    r"insufficient_quota|billing_hard_limit|billing_not_active|exceeded your current quota"
    r"|credit balance is too low|insufficient (credits|balance|funds)"
    r"|billing_error|spend_limit_reached|specified api usage limits",
    _NO_CREDIT,
)
# llama.cpp reports this with status 500, which would be retried.
_UNSUPPORTED_INPUT = _Rule(
    InvalidRequestError,
    r"(image|audio|video) input is not supported",
    "this model does not support this kind of input",
)
_TOO_LONG_HINT = (
    "the conversation is too long for this model: lower --context-chars, or use one that reads more"
)
# Checked before the length of the request.
_FIRST_RULES = (_GOOGLE_NO_CREDIT, _GOOGLE_DAILY_QUOTA, _GOOGLE_RATE_LIMIT, _QUOTA, _UNSUPPORTED_INPUT)
# In this order. Checked before the status, because vendors differ less in words than in status codes.
_REQUEST_RULES = (
    _Rule(
        AuthenticationError,
        r"authentication_error|invalid_api_key|api_key_invalid|api key not valid|incorrect api key"
        r"|unregistered callers",
        _CHECK_KEY,
    ),
    _Rule(
        ContentFilterError,
        r"content_filter|content_policy_violation|responsibleaipolicy|content (management|filtering) policy"
        r"|invalid_prompt|bio_policy|misalignment_policy_violation",
    ),
    _Rule(
        ModelNotFoundError, r"model_not_found|not_found_error|\bNOT_FOUND\b", _CHECK_NAME, in_message=False
    ),
    _Rule(PermissionDeniedError, r"permission_error|permission_denied", in_message=False),
)
# Checked only for errors inside a stream, which have no status.
_STREAM_RULES = (
    _Rule(RateLimitError, r"rate_limit|resource_exhausted|too_many_requests|rate limit"),
    _Rule(
        OverloadedError,
        r"overloaded|server_error|internal_error|api_error|timeout_error|\bINTERNAL\b"
        r"|service_unavailable|unavailable_error|\bUNAVAILABLE\b|slow_down",
    ),
    _Rule(
        InvalidRequestError,
        r"invalid_(request|argument|image|base64_image)|bad_?request"
        r"|image_(too|file|parse)|(unsupported|empty)_image|failed_to_download_image",
        in_message=False,
    ),
)
_BY_STATUS: dict[int, tuple[type[ModelError], str]] = {
    HTTPStatus.UNAUTHORIZED: (AuthenticationError, _CHECK_KEY),
    HTTPStatus.PAYMENT_REQUIRED: (SpentQuotaError, _NO_CREDIT),
    HTTPStatus.FORBIDDEN: (PermissionDeniedError, "this key lacks the permission"),
    HTTPStatus.NOT_FOUND: (ModelNotFoundError, _CHECK_NAME),
    HTTPStatus.METHOD_NOT_ALLOWED: (ModelNotFoundError, _CHECK_NAME),
    HTTPStatus.REQUEST_TIMEOUT: (ConnectionFailedError, ""),
    HTTPStatus.CONFLICT: (OverloadedError, ""),
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: (ContextLengthError, _TOO_LONG_HINT),
    HTTPStatus.TOO_EARLY: (OverloadedError, ""),
    HTTPStatus.TOO_MANY_REQUESTS: (RateLimitError, ""),
    HTTPStatus.NOT_IMPLEMENTED: (InvalidRequestError, ""),
}


def is_transient(error: ModelError) -> bool:
    """Return whether the same request may succeed if it is sent again."""
    passing = isinstance(error, RateLimitError | OverloadedError | ConnectionFailedError)
    return passing and not isinstance(error, SpentQuotaError)


def error_from_body(
    status: int, headers: Mapping[str, str], body: bytes, now: datetime, where: str
) -> ModelError:
    """Return the error for an unsuccessful HTTP reply.

    Args:
        status: not 200.
        headers: their names in lower case.
        body: in any form.
        now: the time from which waits count.
        where: the server's host, for the message.
    """
    try:
        reported = _parse_error(read_json(body))
    except ValueError:
        text = body.decode("utf-8", "replace").strip()
        reported = _ReportedError("a web page" if text.startswith("<") else _one_line(text))
    error = _error(status, headers, reported, now, where)
    error.is_unexplained = _is_unexplained(error, reported)
    return error


def _error(
    status: int, headers: Mapping[str, str], reported: _ReportedError, now: datetime, where: str
) -> ModelError:
    kind, hint = _kind(status, reported)
    message = _message(where, status, reported, hint)
    asked = {**reported.waits, **headers}
    may_not_retry = headers.get("x-should-retry") == "false"
    if issubclass(kind, SpentQuotaError):  # without a time the user has to pay for more, or request more
        midnight = midnight_pacific(now) if _is_daily(reported) else None
        return kind(message, status=status, resume_at=_quota_time(asked, reported.message, now) or midnight)
    if issubclass(kind, RateLimitError) and may_not_retry:
        later = _quota_time(asked, reported.message, now) or now + timedelta(seconds=LEAST_QUOTA_SECONDS)
        return SpentQuotaError(message, status=status, resume_at=later)
    if issubclass(kind, ResumableError) and not may_not_retry:
        return kind(message, status=status, resume_at=resume_time(status, asked, reported.message, now))
    return (ProviderError if issubclass(kind, ResumableError) else kind)(message, status=status)


def _is_daily(reported: _ReportedError) -> bool:
    return _matches(reported, _GOOGLE_DAILY_QUOTA) and not _matches(reported, _GOOGLE_NO_CREDIT)


def error_in_reply(value: object, where: str) -> ModelError:
    """Return the error for an error object with status 200, in a stream or in place of a reply."""
    reported = _parse_error(value)
    status = reported.status or HTTPStatus.OK
    kind, hint = _kind(status, reported)
    message = _message(where, status, reported, hint)
    if issubclass(kind, SpentQuotaError):
        if _is_daily(reported):
            return RateLimitError(message, status=status)  # the next request gets a status with the time
        return kind(message, status=status, resume_at=_date_in(reported.message))
    if not issubclass(kind, ResumableError):
        error = kind(message, status=status)
        error.is_unexplained = _is_unexplained(error, reported)
        return error
    named = _wait_in(reported.message)
    return kind(message, status=status, waits={**reported.waits, **({"retry-after": named} if named else {})})


def set_resume_time(error: ModelError, now: datetime) -> None:
    """Convert the wait that an error inside a reply names to a time, because decoders have no clock."""
    if isinstance(error, ResumableError) and error.waits and error.resume_at is None:
        error.resume_at = resume_time(error.status or HTTPStatus.OK, error.waits, "", now)


# A path into the request, or a quoted name: the wrong field.
_FIELD = re.compile(r"\w[.\[]\d|['\"`]\w+['\"`]|\w_\w")
_UNEXPLAINED_STATUSES = frozenset({200, 400, 422, 500})


def _is_unexplained(error: ModelError, reported: _ReportedError) -> bool:
    """Return whether a request was refused without a known reason: the error names nothing wrong with it."""
    if type(error) not in {InvalidRequestError, OverloadedError, ProviderError}:
        return False
    names_field = reported.param or _FIELD.search(reported.message)
    known = names_field or _matches(reported, _UNSUPPORTED_INPUT) or is_other_limit(reported.message)
    return error.status in _UNEXPLAINED_STATUSES and not known


def _parse_error(value: object) -> _ReportedError:
    """Find the message and its kind in any vendor's error body."""
    outer = value[0] if isinstance(value, list) and value else value
    if not isinstance(outer, dict):
        return _ReportedError(_one_line(str(outer)))
    error = outer.get("error") or outer.get("base_resp") or next(iter(dicts(outer.get("errors"))), outer)
    inner: Mapping[str, Any] = error if isinstance(error, dict) else {**outer, "message": error}
    metadata = as_object(inner.get("metadata"))
    headers = as_object(metadata.get("headers")).items()
    upstream = {str(name).lower(): text for name, text in headers if isinstance(text, str)}
    said = [next(filter(None, map(inner.get, _MESSAGE_FIELDS)), None), metadata.get("raw")]
    kinds = [inner.get(key) for key in ("type", "code", "status", "reason")]
    details = inner.get("details")
    more, delay = _read_details(details)
    retry = {"retry-after": delay} if delay else {}
    statuses = [str(inner.get(key)) for key in ("code", "status_code", "status", "raw_status_code")]
    kinds += [*more, as_object(details).get("error_code")]
    return _ReportedError(
        message=_one_line(": ".join(str(part) for part in said if part)),
        kinds=" ".join(kind for kind in kinds if isinstance(kind, str)),
        param=str(inner.get("param") or ""),
        status=next((int(word) for word in statuses if re.fullmatch(r"[45]\d\d", word)), None),
        waits={
            **_waits(outer),
            **_waits(outer.get("parameters")),
            **_waits(inner),
            **_waits(metadata),
            **retry,
            **upstream,
        },
    )


def _waits(value: object) -> dict[str, str]:
    """Return the waits in fields of a body, each under the name of the equivalent header."""
    named = ((header, as_object(value).get(name)) for name, header in _WAIT_FIELDS.items())
    return {
        header: str(wait)
        for header, wait in named
        if isinstance(wait, int | float | str) and not isinstance(wait, bool)
    }


def _one_line(text: str) -> str:
    return " ".join(text[:_MAX_READ_CHARACTERS].split())


def _message(where: str, status: int, reported: _ReportedError, hint: str) -> str:
    said = cut(reported.message or reported.kinds, MAX_MESSAGE_CHARACTERS) or "no reason given"
    field = f" (in {reported.param})" if reported.param and reported.param not in said else ""
    answered = "in its reply" if status == HTTPStatus.OK else f"with status {status}"
    return f"{where} reported an error {answered}: {said}{field}{f' [{hint}]' if hint else ''}"


def _matches(reported: _ReportedError, rule: _Rule) -> bool:
    text = f"{reported.kinds} {reported.message}" if rule.in_message else reported.kinds
    return re.search(rule.words, text, re.IGNORECASE) is not None


def _kind(status: int, reported: _ReportedError) -> tuple[type[ModelError], str]:
    known = next((rule for rule in _FIRST_RULES if _matches(reported, rule)), None)
    text = f"{reported.kinds} {reported.message}"
    if known is None and is_overflow(status, text, reported.param):
        return ContextLengthError, _TOO_LONG_HINT
    rules: tuple[_Rule, ...] = ()
    if status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.TOO_MANY_REQUESTS:
        rules += _REQUEST_RULES
    if status == HTTPStatus.OK:
        rules += _STREAM_RULES
    known = known or next((rule for rule in rules if _matches(reported, rule)), None)
    if known is not None:
        return known.kind, known.hint
    if status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE and is_other_limit(text):
        return InvalidRequestError, ""
    return _BY_STATUS.get(status) or _kind_of_range(status)


def _kind_of_range(status: int) -> tuple[type[ModelError], str]:
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return OverloadedError, ""
    if status >= HTTPStatus.BAD_REQUEST:
        return InvalidRequestError, ""
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        return ProviderError, "redirects are not followed; set the API address to the new location"
    return ProviderError, ""
