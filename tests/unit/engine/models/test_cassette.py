"""Traffic of a real server (llama.cpp, a 1.5B coder model), recorded once with vcrpy.

`PULLWRIGHT_TEST_BASE_URL=http://127.0.0.1:8090 pytest tests/unit/engine/models/test_cassette.py` records it again.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ContextLengthError
from orchestrator.core.messages import FinishReason, Message
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import Completed, OutputSchema, Request, TextPiece
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.models.transport import HttpModel

vcr: Any = importlib.import_module("vcr")  # has no types

CASSETTES = Path(__file__).parents[3] / "data" / "cassettes"
BASE_URL = os.environ.get("PULLWRIGHT_TEST_BASE_URL", "")
KEY = "sk-made-up-0123456789"
PLAN = {
    "type": "object",
    "properties": {"plan": {"type": "string"}, "tool_calls": {"type": "array", "items": {"type": "object"}}},
    "required": ["plan", "tool_calls"],
    "additionalProperties": False,
}
ASK = Request(
    "You answer with a JSON object that has plan and tool_calls. Be very short.",
    (Message.user("Say that nothing is to be done. No tool calls."),),
    output_schema=OutputSchema("plan", PLAN),
    max_output_tokens=40,
    temperature=0.0,
)
TWO_TURNS = Request(
    "You are terse.",
    (
        Message.user("The secret word is marmalade. Say OK."),
        Message.assistant("OK"),
        Message.user("What is the secret word?"),
    ),
    max_output_tokens=24,
    temperature=0.0,
)


def without_local_names(response: dict[str, Any]) -> dict[str, Any]:
    body = response["body"]["string"]
    response["body"]["string"] = re.sub(rb'"[^"]*\.gguf"', b'"coder"', body)
    return response


def with_short_body(request: Any) -> Any:
    request.body = request.body[:1_000]
    return request


def cassette(name: str) -> Any:
    recorder = vcr.VCR(
        record_mode=vcr.mode.ALL if BASE_URL else vcr.mode.NONE,
        filter_headers=["authorization", "x-api-key"],
        match_on=["method", "path", "body"],
        before_record_request=with_short_body,
        before_record_response=without_local_names,
    )
    return recorder.use_cassette(str(CASSETTES / f"{name}.yaml"))


def model(kind: type[ChatWire | ResponsesWire | AnthropicWire] = ChatWire) -> HttpModel:
    wire = kind.at(BASE_URL or "http://127.0.0.1:8090", "coder")
    return HttpModel("made-up:coder", wire, api_key=KEY, clock=ManualClock(), random=lambda: 0.0)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_constrained_plan(*, stream: bool) -> None:
    asked = model()
    with cassette("plan_stream" if stream else "plan_whole") as tape:
        if stream:
            *pieces, last = [event async for event in asked.stream(ASK)]
            assert isinstance(last, Completed)
            response = last.response
            assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == response.text
            assert len(pieces) > 5
        else:
            response = await asked.complete(ASK)
        await asked.aclose()
        assert BASE_URL or tape.play_count == 1
    assert json.loads(response.text).keys() == {"plan", "tool_calls"}
    assert response.finish is FinishReason.STOP
    assert 10 < response.usage.input_tokens < 100
    assert 5 < response.usage.output_tokens <= 40


@pytest.mark.parametrize(
    ("name", "kind"), [("responses_stream", ResponsesWire), ("messages_stream", AnthropicWire)]
)
async def test_the_servers_other_protocols(name: str, kind: type[ResponsesWire | AnthropicWire]) -> None:
    asked = model(kind)
    with cassette(name) as tape:
        *pieces, last = [event async for event in asked.stream(TWO_TURNS)]
        await asked.aclose()
        assert BASE_URL or tape.play_count == 1
    assert isinstance(last, Completed)
    response = last.response
    assert "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)) == response.text
    assert "marmalade" in response.text.lower()
    assert len(pieces) > 2
    assert response.finish is FinishReason.STOP
    assert 20 < response.usage.input_tokens < 100
    assert 2 < response.usage.output_tokens <= 24
    assert BASE_URL or response.model == "coder"
    assert response.id


async def test_a_request_that_is_too_long() -> None:
    asked = model()
    with cassette("too_long"):
        with pytest.raises(ContextLengthError, match="context size"):
            await asked.complete(Request("", (Message.user("word " * 9_000),), max_output_tokens=5))
        await asked.aclose()


def test_no_key_was_recorded() -> None:
    tapes = sorted(CASSETTES.glob("*.yaml"))
    assert tapes
    assert not [
        tape for tape in tapes if re.search(r"(?i)authorization|x-api-key|bearer|sk-", tape.read_text())
    ]
