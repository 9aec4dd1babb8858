"""Pages that anybody who can push may have written."""

from __future__ import annotations

import json

import pytest

from orchestrator.cycle.earlier import SESSION_PAGE, STATE_PAGE, read_pages

STATE = {"run": "r", "why": "limit", "model": "m", "contract": "native", "profile": "p"}
REPLY = {"type": "ReplyReceived", "message": {"role": "assistant", "parts": []}, "usage": {}, "usd": 10**400}


@pytest.mark.parametrize(
    "line", [b"[]", b"1", b"null", b'"x"', b"[" * 100_000, json.dumps(REPLY).encode(), b"\xff"]
)
def test_a_conversation_that_is_not_in_form_is_not_used(line: bytes) -> None:
    assert read_pages({STATE_PAGE: json.dumps(STATE).encode(), SESSION_PAGE: line}) is None


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"[]",
        b"1",
        b'"abc"',
        b"null",
        b"{}",
        *(json.dumps(STATE | {"touched": odd}).encode() for odd in (3, [[1]])),
    ],
)
def test_a_state_that_is_not_in_form_is_not_used(state: bytes) -> None:
    assert read_pages({STATE_PAGE: state}) is None
