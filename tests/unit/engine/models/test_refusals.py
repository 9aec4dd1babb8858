from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import InvalidRequestError, ModelError, ModelNotFoundError
from orchestrator.core.messages import Message, Text, ToolDefinition
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import Completed, Relaxed, Request, ToolChoice
from orchestrator.engine.models.gemini import GeminiWire
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.models.refusals import (
    changed_fields,
    highest_reply_limit,
    named_field,
    nearest_effort,
)
from tests.conformance.model_cases import model_at
from tests.doubles.sse_server import SseServer, json_answer, sse_answer
from tests.doubles.vendor_replies import Protocol, VendorReply, render
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.engine.models.wire import Wire

FIELDS = ["max_tokens", "temperature", "top_p", "reasoning_effort", "tool_choice", "parallel_tool_calls"]
REPLY = VendorReply((Text("ok"),))
TOOL = ToolDefinition("look", "Look.", {"type": "object", "properties": {}})
ASK = Request(
    "Be brief.",
    (Message.user("Hello"),),
    (TOOL,),
    max_output_tokens=100_000,
    temperature=0.5,
    top_p=0.9,
    reasoning_effort="high",
    tool_choice=ToolChoice.AUTO,
    parallel_tool_calls=False,
)

# As the vendors say it; the sources of those that were reported are repositories with the number of the issue.
REFUSALS: list[tuple[str, str | None]] = [
    ("Unsupported parameter: 'reasoning_effort' is not supported with this model.", "reasoning_effort"),
    ("Unrecognized request argument supplied: reasoning_effort", "reasoning_effort"),
    # BerriAI/litellm#16265
    ("Model grok-4-latest does not support parameter reasoningEffort.", "reasoning_effort"),
    ("Argument not supported on this model: reasoningEffort", "reasoning_effort"),
    # Gitlawb/openclaude#1371, ollama/ollama#12561
    ('"llama3.1:8b" does not support thinking', "reasoning_effort"),
    ('think value "medium" is not supported for this model', "reasoning_effort"),
    ("Extra inputs are not permitted, field: 'reasoning_effort', value: 'high'", "reasoning_effort"),
    (
        "[{'type': 'extra_forbidden', 'loc': ['body', 'reasoning_effort'], 'msg': 'Extra inputs are not permitted'}]",
        "reasoning_effort",
    ),
    ("`reasoning_effort` is not supported with this model", "reasoning_effort"),
    ("reasoning_effort must be one of `none` or `default`", "reasoning_effort"),
    (
        "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model. Supported values are: 'low'",
        "reasoning_effort",
    ),
    ("openai does not support parameters: ['reasoning_effort'], for model=gpt-4o", "reasoning_effort"),
    (
        "Function tools with reasoning_effort are not supported for gpt-5.4 in chat completions",
        "reasoning_effort",
    ),
    ("Reasoning is not supported by this model", "reasoning_effort"),
    ("Unsupported value: 'temperature' does not support 0.5 with this model.", "temperature"),
    ("temperature is deprecated for this model", "temperature"),
    ("'top_p' cannot be set together with reasoning", "top_p"),
    ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", "parallel_tool_calls"),
    ("This model does not support parallel tool calls", "parallel_tool_calls"),
    # zed-industries/zed#36094
    ("No endpoints found that support the provided 'tool_choice' value.", "tool_choice"),
    ("deepseek-reasoner does not support this tool_choice", "tool_choice"),
    ("Thinking mode does not support this tool_choice", "tool_choice"),
    ("Unsupported parameter: max_tokens", "max_tokens"),
    ("body.reasoning_effort: Extra inputs are not permitted", "reasoning_effort"),
    ("`temperature` and `top_p` cannot both be specified for this model.", "temperature"),
    ("top_p is not supported when temperature is set", "top_p"),
    # stdapi-ai/stdapi.ai#90
    ("Value error, parallel_tool_calls=False is not supported on this backend.", "parallel_tool_calls"),
    # What is not refused, or is nothing that can be left out:
    ("Invalid 'temperature': decimal below minimum value. Expected a value >= 0, but got -1 instead.", None),
    ("`max_tokens` must be greater than `thinking.budget_tokens`", None),
    ("No endpoints found that support tool use.", None),
    ("'tools' is not supported by this model", None),
    ("Unsupported value: 'messages[0].role' does not support 'system' with this model.", None),
    ("The model `gpt-9` does not exist", None),
    ("The model grok-4-fast-reasoning does not exist", None),
    ("temperature must be <= 1", None),
    ("The reasoning_content in the thinking mode must be passed back to the API", None),
    ("Tool choice is required, but model did not call a tool", None),
    ("The temperature of the room is high", None),
    ("Unknown parameter: 'messages[3].reasoning_content'", None),
    ("Invalid schema for function 'look': 'top' is not valid", None),
]


@table(("said", "field"), REFUSALS)
def test_the_field_that_an_error_names(said: str, field: str | None) -> None:
    assert named_field(said, FIELDS) == field


@table(
    ("said", "limit"),
    [
        ("`max_tokens` must be less than or equal to `16384`, the maximum value for `max_tokens` is less", 16_384),
        ("max_completion_tokens must be less than or equal to 40960, the maximum value for it is", 40_960),
        ("max_tokens is too large: 100000. This model supports at most 16384 completion tokens", 16_384),
        ("max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens for x", 64_000),
        ("it has a maxOutputTokens value of 100000 but the supported range is from 1 (inclusive) to 65537 (exclusive).", 65_536),
        ("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]", 8_192),
        ("Range of max_tokens should be [1, 8192]", 8_192),
        ("`max_tokens` is not valid: integer above maximum value, expected a value <= 131072, but got 512000", 131_072),
        ("The maximum tokens you requested exceeds the model limit of 32768", 32_768),
        ("'max_tokens' is too large: 32000. This model's maximum context length is 32768 tokens and your request has 768 input tokens", 16_000),
        ("This endpoint's maximum context length is 131072 tokens. However, you requested about 138956 tokens (7884 of text input", 61_594),
        ("input length and `max_tokens` exceed context limit: 20000 + 190000 > 200000, decrease input length", 90_000),
        ("input length and `max_tokens` exceed context limit: 179413 + 32768 > 200000, decrease input length", None),
        ("prompt is too long: 213462 tokens > 200000 maximum", None),
        ("max_tokens is required", None),
    ],
)  # fmt: skip
def test_the_highest_limit_of_a_reply(said: str, limit: int | None) -> None:
    assert highest_reply_limit(said) == limit


@table(
    ("effort", "said", "nearest"),
    [
        ("xhigh", "Supported values are: 'low', 'medium', and 'high'. (in reasoning_effort)", "high"),
        ("xhigh", "This model does not support it. Supported levels: high, low, max, medium.", "high"),
        ("minimal", "Supported values are: 'none', 'low', 'medium', and 'high'.", "low"),
        ("medium", "Supported values are: 'low' and 'high'", "low"),
        ("high", "reasoning_effort must be one of `none` or `default`", None),
        ("high", "'reasoning_effort' is not supported. High load is no reason.", None),
        ("turbo", "Supported values are: 'low'", None),
    ],
)
def test_the_nearest_level_of_those_that_are_listed(effort: str, said: str, nearest: str | None) -> None:
    assert nearest_effort(said, effort, {effort}) == nearest


def test_levels_that_are_refused_one_after_another() -> None:
    wire: Wire = WIRES[0]
    request = replace(ASK, reasoning_effort="max")
    for said in ("'xhigh', 'high'", "'high', 'max'", "'max'"):
        error = InvalidRequestError(
            f"h: Unsupported value: 'reasoning_effort'. Supported values are: {said}."
        )
        wire = wire.relax(request, error) or wire
    assert "reasoning_effort" not in wire.encode(request, stream=True).body


def refusal(said: str, status: int = 400) -> Any:
    return json_answer({"error": {"message": said, "type": "invalid_request_error"}}, status=status)


# Protocol, what the server says, the path of the field in the request, and its value in the second one.
RECOVERIES: list[tuple[Protocol, str, str, Any]] = [
    (Protocol.CHAT, "Model m does not support parameter reasoningEffort.", "reasoning_effort", None),
    (Protocol.CHAT, "Unsupported value: 'reasoning_effort'. Supported values are: 'low' and 'medium'.", "reasoning_effort", "medium"),
    (Protocol.MESSAGES, "This model does not support effort level 'high'. Supported levels: low, medium.", "output_config.effort", "medium"),
    (Protocol.CHAT, "max_tokens must be less than or equal to 8000", "max_completion_tokens", 8_000),
    (Protocol.CHAT, "Unsupported parameter: 'parallel_tool_calls'", "parallel_tool_calls", None),
    (Protocol.RESPONSES, "Model m does not support parameter reasoningEffort.", "reasoning", None),
    (Protocol.RESPONSES, "Unsupported parameter: 'reasoning.effort' is not supported with this model.", "reasoning", None),
    (Protocol.RESPONSES, "Unsupported parameter: max_output_tokens", "max_output_tokens", None),
    (Protocol.RESPONSES, "Unsupported parameter: 'top_p' is not supported with this model.", "top_p", None),
    (Protocol.MESSAGES, "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens", "max_tokens", 64_000),
    (Protocol.MESSAGES, "thinking is not supported by this model", "thinking", None),
    (Protocol.MESSAGES, "tool_choice.disable_parallel_tool_use: Extra inputs are not permitted", "tool_choice", {"type": "auto"}),
    (Protocol.GEMINI, "The supported range of maxOutputTokens is from 1 (inclusive) to 8193 (exclusive).", "generationConfig.maxOutputTokens", 8_192),
    (Protocol.GEMINI, "topP is not supported by this model", "generationConfig.topP", None),
]  # fmt: skip


@pytest.mark.parametrize(("protocol", "said", "path", "value"), RECOVERIES)
async def test_what_is_refused_is_left_out_once_and_for_all(
    protocol: Protocol, said: str, path: str, value: Any
) -> None:
    good = sse_answer(render(protocol, REPLY))
    with SseServer([refusal(said), good, good]) as server:
        async with aclosing(model_at(protocol, server.url, clock=ManualClock())) as model:
            events = [event async for event in model.stream(ASK)]
            assert isinstance(events[-1], Completed)
            again = [event async for event in model.stream(ASK)]
    assert [type(event) for event in events].count(Relaxed) == 1
    assert not any(isinstance(event, Relaxed) for event in again)
    first, second, third = (sent.body for sent in server.requests)
    assert at(first, path) not in (None, value)
    assert at(second, path) == at(third, path) == value
    essential = (
        "model",
        "messages",
        "input",
        "contents",
        "tools",
        "system",
        "systemInstruction",
        "instructions",
    )
    assert [first.get(name) for name in essential] == [second.get(name) for name in essential]
    said_so_far = [sent.raw[sent.raw.rindex(CONVERSATIONS[protocol]) :] for sent in server.requests]
    assert said_so_far[0] == said_so_far[1] == said_so_far[2], "byte for byte, so that caches hit"


CONVERSATIONS = {
    Protocol.CHAT: b'"messages":',
    Protocol.RESPONSES: b'"input":',
    Protocol.MESSAGES: b'"messages":',
    Protocol.GEMINI: b'"contents":',
}


def at(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body.get(name, {})
    return body if body != {} else None


async def test_the_same_refusal_again_is_raised() -> None:
    said = "Model m does not support parameter reasoningEffort."
    with SseServer([refusal(said), refusal(said)]) as server:
        async with aclosing(model_at(Protocol.CHAT, server.url, clock=ManualClock())) as model:
            with pytest.raises(InvalidRequestError, match="reasoningEffort"):
                await model.complete(ASK)
    assert len(server.requests) == 2


def test_what_changed_in_words() -> None:
    assert changed_fields({"a": 1, "b": 2}, {"a": 1}) == "without b"
    assert changed_fields({"a": 1, "b": [2]}, {"a": 3, "b": [4]}) == "with a=3, another b"
    assert changed_fields({"a": 1}, {"a": 1}) == "without the refused parts of the conversation"


WIRES: list[Wire] = [
    ChatWire.at("http://h", "m"),
    ResponsesWire.at("http://h", "m"),
    AnthropicWire.at("http://h", "claude-opus-4-5"),
    GeminiWire.at("http://h", "gemini-3-flash"),
]
SAID = st.lists(
    st.sampled_from(
        [
            *(said for said, _ in REFUSALS),
            "messages",
            "model",
            "tools",
            "not supported",
            "Unknown parameter:",
            "`stream`",
        ]
    ),
    max_size=3,
).map(" ".join)
OWN: dict[str, dict[str, Any]] = {
    "openai": {"service_tier": "flex", "temperature": 1.0},
    "anthropic": {"metadata": {"user_id": "u"}},
    "gemini": {"labels": {"a": "b"}, "generationConfig": {"topK": 3}},
}


@pytest.mark.parametrize("wire", WIRES, ids=["chat", "responses", "messages", "gemini"])
@given(said=st.lists(SAID, max_size=5), missing=st.booleans())
def test_no_error_makes_a_request_lose_what_matters(wire: Wire, *, said: list[str], missing: bool) -> None:
    request = replace(ASK, provider_options=OWN)
    kind: type[ModelError] = ModelNotFoundError if missing else InvalidRequestError
    whole = wire.encode(request, stream=True).body
    kept = {name: whole[name] for name in ESSENTIAL & whole.keys()}
    relaxed: Wire = wire
    for words in said:
        relaxed = relaxed.relax(request, kind(f"h: {words}")) or relaxed
        body = relaxed.encode(request, stream=True).body
        assert {name: body.get(name) for name in kept} == kept


ESSENTIAL = {
    "model", "messages", "input", "contents", "tools", "system", "systemInstruction", "instructions", "stream",
    "service_tier", "metadata", "labels",
}  # fmt: skip
