"""The table of requests, and a few cases more, over a real server that speaks three of the protocols, such as llama.cpp's.

`PULLWRIGHT_TEST_BASE_URL=http://127.0.0.1:8090 pytest -n 0 tests/conformance/test_model_live.py`
"""

from __future__ import annotations

import json
import os
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ContextLengthError
from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.models.base import Completed, OutputSchema, Request, Restarted, TextPiece
from tests.conformance.model_cases import REQUESTS, model_at
from tests.doubles.vendor_replies import Protocol

if TYPE_CHECKING:
    from orchestrator.engine.models.base import Response

BASE_URL = os.environ.get("PULLWRIGHT_TEST_BASE_URL", "")

pytestmark = [
    pytest.mark.skipif(not BASE_URL, reason="skipped: set PULLWRIGHT_TEST_BASE_URL to a llama.cpp server"),
    pytest.mark.timeout(300),
]
spoken = pytest.mark.parametrize("protocol", [Protocol.CHAT, Protocol.RESPONSES, Protocol.MESSAGES])
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])

SYSTEM = "You are terse."
READ = ToolDefinition(
    "read_file",
    "Read a file.",
    {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
CALL = ToolCall("call_1", "read_file", {"path": "colour.txt"})
COLOUR = OutputSchema(
    "colour",
    {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green", "blue"]}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)


async def ask(protocol: Protocol, request: Request, *, stream: bool) -> Response:
    """The reply; a stream's pieces are checked against it."""
    async with aclosing(model_at(protocol, BASE_URL, "coder", clock=SystemClock())) as model:
        if not stream:
            return await model.complete(request)
        *pieces, last = [event async for event in model.stream(request)]
    assert isinstance(last, Completed)
    assert not any(isinstance(piece, Restarted) for piece in pieces)
    said = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    assert said == last.response.text
    return last.response


def question(*messages: Message, **fields: object) -> Request:
    asked = {"max_output_tokens": 24, "temperature": 0.0, **fields}
    return Request(SYSTEM, messages, **asked)  # type: ignore[arg-type]  # the fields are a request's


# What depends on the model: pictures, and options that belong to one vendor.
_NOT_EVERYWHERE = {"image", "result_image", "options"}


@spoken
@pytest.mark.parametrize("name", sorted(REQUESTS.keys() - _NOT_EVERYWHERE))
async def test_the_table(name: str, protocol: Protocol) -> None:
    """Every request of the table is taken. What a model says to it is its own affair."""
    case = REQUESTS[name](protocol)
    request = replace(case.request, max_output_tokens=4)
    response = await ask(protocol, request, stream=case.stream)
    assert response.usage.input_tokens > 0
    assert response.message.parts


@spoken
@both_ways
async def test_text(protocol: Protocol, *, stream: bool) -> None:
    response = await ask(protocol, question(Message.user("Say: hello")), stream=stream)
    assert "hello" in response.text.lower()
    assert response.finish is FinishReason.STOP
    assert response.tool_calls == ()
    assert response.id
    assert 10 < response.usage.input_tokens < 100
    assert 0 < response.usage.output_tokens <= 24


@spoken
@both_ways
async def test_a_reply_that_runs_into_its_limit(protocol: Protocol, *, stream: bool) -> None:
    request = question(Message.user("Count from one to a hundred."), max_output_tokens=6)
    response = await ask(protocol, request, stream=stream)
    assert response.text
    assert response.finish is FinishReason.LENGTH
    assert response.usage.output_tokens == 6


@spoken
@both_ways
async def test_several_turns(protocol: Protocol, *, stream: bool) -> None:
    turns = (
        Message.user("The secret word is marmalade. Say OK."),
        Message.assistant("OK"),
        Message.user("What is the secret word?"),
    )
    response = await ask(protocol, question(*turns), stream=stream)
    assert "marmalade" in response.text.lower()


@spoken
@both_ways
async def test_tools_and_a_result(protocol: Protocol, *, stream: bool) -> None:
    """Offered tools are taken, and so are a call and its result. A small model may call or talk."""
    asked = Message.user("Which colour is in colour.txt?")
    first = await ask(protocol, question(asked, tools=(READ,)), stream=stream)
    assert first.text or first.tool_calls
    assert all(call.id and call.name for call in first.tool_calls)

    called = Message(Role.ASSISTANT, (Text("I read it."), CALL))
    told = Message(Role.TOOL, (ToolResult(CALL.id, CALL.name, "The colour is turquoise."),))
    second = await ask(protocol, question(asked, called, told, tools=(READ,)), stream=stream)
    assert second.text or second.tool_calls
    assert second.usage.input_tokens > first.usage.input_tokens


@spoken
@both_ways
async def test_a_reply_by_schema(protocol: Protocol, *, stream: bool) -> None:
    request = question(Message.user("Name a colour as JSON."), output_schema=COLOUR)
    response = await ask(protocol, request, stream=stream)
    assert response.text
    # Messages: a schema goes only to models that are known to take one. Responses: llama.cpp does
    # not look at `text.format`, without saying so.
    if protocol is Protocol.CHAT:
        assert json.loads(response.text)["colour"] in {"red", "green", "blue"}


@spoken
@both_ways
async def test_a_request_that_is_too_long(protocol: Protocol, *, stream: bool) -> None:
    with pytest.raises(ContextLengthError):
        await ask(protocol, question(Message.user("word " * 20_000)), stream=stream)
