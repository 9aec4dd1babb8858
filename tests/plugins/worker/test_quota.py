"""Which members of a fleet share what a provider counts."""

from __future__ import annotations

import pytest

from orchestrator.app.config.settings import Settings
from orchestrator.plugins.worker.run import quota_of

SECRET = "sk-" + "a1B2" * 10


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"model": "openai:a"}, {"model": "openai-responses:a"}, True),
        ({"model": "openai:a"}, {"model": "openai:a", "api_url": "https://api.openai.com/v1"}, True),
        (
            {"model": "openai-chat:a", "api_url": "http://localhost:1/v1"},
            {"model": "a", "api_url": "http://localhost:1/v1/"},
            True,
        ),
        ({"model": "openai:a"}, {"model": "openai:b"}, False),
        ({"model": "openai:a"}, {"model": "anthropic:a"}, False),
        ({"model": "openai:a"}, {"model": "openai:a", "api_url": "http://localhost:1/v1"}, False),
        ({"model": "openai:a"}, {"model": "openai:a", "fallback_model": ["openai:b"]}, False),
        ({}, {"model": "openai:a"}, False),
    ],
)
def test_a_quota_is_of_a_model_at_an_address(
    one: dict[str, object],
    other: dict[str, object],
    same: bool,  # noqa: FBT001  a column
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    told = [quota_of(Settings.model_validate(fields)) for fields in (one, other)]
    assert (told[0] == told[1]) is same
    assert not any(SECRET in text for text in told)
