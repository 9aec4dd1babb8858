"""Each wording of the table of error bodies: what it means, and from when another try makes sense."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from orchestrator.core.errors import (
    ContextLengthError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    RateLimitError,
    ResumableError,
    SpentQuotaError,
)
from orchestrator.engine.models.failures import error_from_body, error_in_reply, set_resume_time
from tests.conformance.error_bodies import BODIES, Body, Meaning
from tests.tables import table

NOW = datetime(2026, 1, 1, tzinfo=UTC)

_MEANINGS: dict[type[ModelError], Meaning] = {
    ContextLengthError: Meaning.TOO_LONG,
    RateLimitError: Meaning.PACE,
    SpentQuotaError: Meaning.QUOTA,
    OverloadedError: Meaning.BUSY,
    InvalidRequestError: Meaning.REFUSED,
}


def error_of(body: Body) -> ModelError:
    """The error that a session gets, with its time as the HTTP half makes it."""
    if body.status == 200:
        error = error_in_reply(body.body, "api.test")
        set_resume_time(error, NOW)
        return error
    raw = body.body if isinstance(body.body, bytes) else json.dumps(body.body).encode()
    return error_from_body(body.status, {}, raw, NOW, "api.test")


@table("body", BODIES, ids=lambda body: f"{body.vendor} {body.status} {body.meaning}")
def test_what_a_body_means(body: Body) -> None:
    error = error_of(body)
    assert _MEANINGS.get(type(error), Meaning.OTHER) is body.meaning, error
    if body.seconds is not None:
        assert isinstance(error, ResumableError)
        assert error.resume_at == NOW + timedelta(seconds=body.seconds)
