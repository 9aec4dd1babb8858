"""The table of failures: what each vendor sends when something is wrong, and what it means to us."""

from __future__ import annotations

from dataclasses import dataclass, field
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
)
from tests.conformance.model_cases import KEY
from tests.doubles.sse_server import Answer, json_answer
from tests.doubles.vendor_replies import Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

TRIES = 3
"""How often a request is sent at most in these tests."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failure in the words of all vendors.

    Attributes:
        kind: what it means to us.
        answers: what the vendor sends.
        again: whether the same request makes sense once more.
        resume_seconds: after how long, where the vendor says so.
        words: part of what a person reads.
    """

    kind: type[ModelError]
    answers: Mapping[Protocol, Answer]
    again: bool = False
    resume_seconds: float | None = None
    words: Mapping[Protocol, str] = field(default_factory=dict)


def _openai(status: int, message: str, kind: str, code: str | None = None, **headers: str) -> Answer:
    error = {"message": message, "type": kind, "param": None, "code": code}
    return json_answer({"error": error}, status=status, headers=_named(headers))


def _anthropic(status: int, message: str, kind: str, **headers: str) -> Answer:
    body = {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}
    return json_answer(body, status=status, headers=_named(headers))


def _google(code: int, message: str, status: str, *details: dict[str, Any]) -> Answer:
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return json_answer({"error": {**error, **({"details": details} if details else {})}}, status=code)


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def _each(chat: Answer, responses: Answer, messages: Answer, gemini: Answer) -> dict[Protocol, Answer]:
    return dict(zip(Protocol, (chat, responses, messages, gemini), strict=True))


def _all(answer: Answer) -> dict[Protocol, Answer]:
    return dict.fromkeys(Protocol, answer)


_INVALID = "invalid_request_error"
_GOOGLE_TYPES = "type.googleapis.com/google.rpc."
_NO_KEY = _openai(401, f"Incorrect API key provided: {KEY}.", _INVALID, "invalid_api_key")
_NOT_ALLOWED = _openai(403, "You are not allowed to sample from this model", _INVALID)
_NO_MODEL = _openai(404, "The model `gpt-9` does not exist", _INVALID, "model_not_found")
_SPENT = _openai(
    429,
    "You exceeded your current quota, please check your plan.",
    "insufficient_quota",
    "insufficient_quota",
)
_BROKEN = _openai(500, "The server had an error while processing your request.", "server_error")
_BUSY = _openai(503, "The engine is currently overloaded.", "server_error", "overloaded")
_FLAGGED = _openai(
    400, "Your prompt was flagged as potentially violating our usage policy.", _INVALID, "invalid_prompt"
)
_BAD = _openai(400, "Invalid value for 'n': expected an integer.", _INVALID, "invalid_value")
_BLOCKED = json_answer({"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}})
_PAGE = b"<!DOCTYPE html><html><body>Sign in to the network</body></html>"


def _limited(seconds: int) -> dict[Protocol, Answer]:
    """Too many requests; the time of the reset is in a header, or in Google's details."""
    reset = f"{seconds // 60}m{seconds % 60}s"
    limits = {"x_ratelimit_remaining_requests": "0", "x_ratelimit_reset_requests": reset}
    openai = _openai(429, "Rate limit reached for requests", "requests", "rate_limit_exceeded", **limits)
    quota = {"@type": f"{_GOOGLE_TYPES}QuotaFailure", "violations": [{"quotaId": "RequestsPerMinute"}]}
    retry = {"@type": f"{_GOOGLE_TYPES}RetryInfo", "retryDelay": f"{seconds}s"}
    return _each(
        openai,
        openai,
        _anthropic(429, "You are sending too many requests", "rate_limit_error", retry_after=str(seconds)),
        _google(429, "You exceeded your current quota.", "RESOURCE_EXHAUSTED", quota, retry),
    )


FAILURES = {
    "401": Failure(
        AuthenticationError,
        _each(
            _NO_KEY,
            _NO_KEY,
            _anthropic(401, f"invalid x-api-key: {KEY}", "authentication_error"),
            _google(
                400,
                f"API key not valid: {KEY}. Please pass a valid API key.",
                "INVALID_ARGUMENT",
                {"@type": f"{_GOOGLE_TYPES}ErrorInfo", "reason": "API_KEY_INVALID"},
            ),
        ),
        words=dict.fromkeys(Protocol, "check the API key"),
    ),
    "403": Failure(
        PermissionDeniedError,
        _each(
            _NOT_ALLOWED,
            _NOT_ALLOWED,
            _anthropic(403, "Your API key may not use the resource", "permission_error"),
            _google(403, "The caller does not have permission", "PERMISSION_DENIED"),
        ),
    ),
    "404": Failure(
        ModelNotFoundError,
        _each(
            _NO_MODEL,
            _NO_MODEL,
            _anthropic(404, "model: claude-9", "not_found_error"),
            _google(404, "models/gemini-9 is not found for API version v1beta", "NOT_FOUND"),
        ),
        words=dict.fromkeys(Protocol, "check the model's name"),
    ),
    "429": Failure(RateLimitError, _limited(20), again=True, resume_seconds=20),
    "429 for an hour": Failure(RateLimitError, _limited(3_600), resume_seconds=3_600),
    "spent quota": Failure(
        RateLimitError,
        _each(
            _SPENT,
            _SPENT,
            _anthropic(400, "Your credit balance is too low to access the API.", _INVALID),
            _google(
                429,
                "You exceeded your current quota, please check your plan and billing details.",
                "RESOURCE_EXHAUSTED",
                {
                    "@type": f"{_GOOGLE_TYPES}QuotaFailure",
                    "violations": [{"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}],
                },
            ),
        ),
        words={
            **dict.fromkeys(Protocol, "no credit or quota left"),
            Protocol.GEMINI: "the quota of the day is used up",
        },
    ),
    "500": Failure(
        OverloadedError,
        _each(
            _BROKEN,
            _BROKEN,
            _anthropic(500, "Internal server error", "api_error"),
            _google(500, "An internal error has occurred.", "INTERNAL"),
        ),
        again=True,
    ),
    "503": Failure(
        OverloadedError,
        _each(
            _BUSY,
            _BUSY,
            _anthropic(503, "Service unavailable", "api_error"),
            _google(503, "The model is overloaded. Please try again later.", "UNAVAILABLE"),
        ),
        again=True,
    ),
    "529": Failure(OverloadedError, _all(_anthropic(529, "Overloaded", "overloaded_error")), again=True),
    "context": Failure(
        ContextLengthError,
        _each(
            _openai(
                400,
                "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000"
                " tokens. Please reduce the length of the messages.",
                _INVALID,
                "context_length_exceeded",
            ),
            _openai(
                400,
                "Your input exceeds the context window of this model. Please adjust your input and try again.",
                _INVALID,
                "context_length_exceeded",
            ),
            _anthropic(400, "prompt is too long: 210000 tokens > 200000 maximum", _INVALID),
            _google(
                400,
                "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
                "INVALID_ARGUMENT",
            ),
        ),
        words=dict.fromkeys(Protocol, "the conversation is too long for this model"),
    ),
    "content filter": Failure(
        ContentFilterError,
        _each(
            _FLAGGED,
            _FLAGGED,
            _anthropic(400, "Output blocked by content filtering policy", _INVALID),
            _BLOCKED,
        ),
    ),
    "400": Failure(
        InvalidRequestError,
        _each(
            _BAD,
            _BAD,
            _anthropic(400, "messages.0.content: Field required", _INVALID),
            _google(400, "Unable to submit request because it has an empty field.", "INVALID_ARGUMENT"),
        ),
    ),
    "page": Failure(
        ProviderError,
        _all(Answer((_PAGE,), 200, {"content-type": "text/html"})),
        words=dict.fromkeys(Protocol, "a web page; check the API address"),
    ),
    "502 page": Failure(
        OverloadedError, _all(Answer((_PAGE,), 502, {"content-type": "text/html"})), again=True
    ),
    "nothing": Failure(ConnectionFailedError, _all(json_answer(b"")), again=True),
    "no stream": Failure(
        ConnectionFailedError, _all(Answer((), 200, {"content-type": "text/event-stream"})), again=True
    ),
    "half": Failure(ConnectionFailedError, _all(json_answer({"id": "x" * 1_000}, cut=True)), again=True),
    "another service": Failure(ProviderError, _all(json_answer({"status": "ok"}))),
}
