"""What each model takes: thinking, sampling, output limits, schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from orchestrator.core.messages import Message, Reasoning, Role, ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.models.anthropic import (
    SIGNATURE,
    AnthropicWire,
    ModelTraits,
    anthropic_format,
)
from orchestrator.engine.models.base import OutputSchema, Request, ToolChoice
from orchestrator.engine.models.openai_chat import REASONING_FIELD
from tests.tables import table

OPUS = AnthropicWire.at("https://api.anthropic.com/v1", "claude-opus-4-8")
HAIKU = AnthropicWire.at("https://api.anthropic.com/v1", "claude-haiku-4-5")
ASK = (Message.user("Hello there"),)
TOOL = ToolDefinition("read_file", "Read.", {"type": "object"})
SCHEMA = OutputSchema("plan", {"type": "object", "properties": {"a": {"type": "string"}}})


def body_of(wire: AnthropicWire, request: Request) -> dict[str, Any]:
    return wire.encode(request, stream=False).body


@table(
    ("model", "version"),
    [
        ("claude-3-5-sonnet-20241022", (3, 5)),
        ("claude-3-7-sonnet-latest", (3, 7)),
        ("claude-opus-4-20250514", (4, 0)),
        ("claude-4-opus-20250514", (4, 0)),
        ("claude-opus-4-1@20250805", (4, 1)),
        ("anthropic/claude-sonnet-4.5", (4, 5)),
        ("anthropic.claude-opus-4-6-v1:0", (4, 6)),
        ("claude-haiku-5-5", (5, 5)),
        ("claude-opus-5", (5, 0)),
        ("claude-mythos-preview", (99, 0)),
        ("qwen3-coder", None),
    ],
)
def test_names_of_models(model: str, version: object) -> None:
    assert ModelTraits.of(model).version == version


ADAPTIVE = {"type": "adaptive", "display": "summarized"}


@table(
    ("model", "effort", "fields"),
    [
        ("claude-3-5-sonnet-latest", "high", {}),
        ("claude-haiku-4-5", "low", {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("claude-haiku-4-5", "something", {"thinking": {"type": "enabled", "budget_tokens": 16_000}}),
        ("claude-haiku-4-5", "none", {}),
        (
            "claude-opus-4-5",
            "medium",
            {
                "thinking": {"type": "enabled", "budget_tokens": 8_192},
                "output_config": {"effort": "medium"},
            },
        ),
        ("claude-opus-4-6", "xhigh", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}}),
        ("claude-opus-4-6", "max", {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}}),
        ("claude-opus-4-8", "none", {}),
        ("claude-sonnet-5", "minimal", {"thinking": ADAPTIVE, "output_config": {"effort": "low"}}),
        ("claude-sonnet-5", "XHigh", {"thinking": ADAPTIVE, "output_config": {"effort": "xhigh"}}),
        ("claude-sonnet-5", "off", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5", "none", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "none", {"thinking": {"type": "between_tools"}}),
        ("claude-haiku-5-5", "none", {"thinking": {"type": "disabled"}}),
        ("claude-opus-5-5", "none", {"output_config": {"effort": "low"}}),
        ("claude-something-new", "high", {"thinking": ADAPTIVE, "output_config": {"effort": "high"}}),
        ("qwen3-coder", "medium", {"thinking": {"type": "enabled", "budget_tokens": 4_096}}),
        ("qwen3-coder", "none", {"thinking": {"type": "disabled"}}),
    ],
)
def test_effort(model: str, effort: str, fields: dict[str, Any]) -> None:
    body = body_of(AnthropicWire.at("http://host", model), Request("", ASK, reasoning_effort=effort))
    assert {name: body[name] for name in ("thinking", "output_config") if name in body} == fields


@table(("limit", "budget"), [(None, 16_000), (64_000, 16_384), (4_000, 2_000), (2_048, 1_024), (2_047, None)])
def test_a_budget_leaves_half_of_the_limit(limit: int | None, budget: int | None) -> None:
    request = Request("", ASK, reasoning_effort="high", max_output_tokens=limit)
    body = body_of(HAIKU, request)
    assert body.get("thinking", {}).get("budget_tokens") == budget
    assert body["max_tokens"] == (limit or 32_000)


@table(
    ("model", "effort", "limit"),
    [
        ("claude-3-opus-20240229", None, 4_096),
        ("claude-3-5-haiku-latest", None, 8_192),
        ("claude-sonnet-4-5", "max", 32_000),
        ("claude-opus-5", None, 32_000),
        ("claude-opus-5", "xhigh", 64_000),
        ("llama", None, 8_192),
    ],
)
def test_the_output_limit_where_none_is_configured(model: str, effort: str | None, limit: int) -> None:
    wire = AnthropicWire.at("http://host", model)
    assert body_of(wire, Request("", ASK, reasoning_effort=effort))["max_tokens"] == limit


@pytest.mark.parametrize("wire", [HAIKU, OPUS])
def test_a_forced_call_excludes_thinking(wire: AnthropicWire) -> None:
    request = Request("", ASK, tools=(TOOL,), tool_choice=ToolChoice.REQUIRED, reasoning_effort="high")
    assert "thinking" not in body_of(wire, request)
    assert body_of(wire, request)["tool_choice"] == {"type": "any"}


def test_a_budget_waits_until_a_reply_without_reasoning_is_answered() -> None:
    call = ToolCall("c1", "f", {})
    foreign = Message(Role.ASSISTANT, (Reasoning("Hm.", {REASONING_FIELD: "reasoning"}), call))
    own = Message(Role.ASSISTANT, (Reasoning("Hm.", {SIGNATURE: "s"}), call))
    result = Message(Role.TOOL, (ToolResult("c1", "f", "x"),))

    def thinks(*messages: Message) -> bool:
        return "thinking" in body_of(HAIKU, Request("", messages, reasoning_effort="low"))

    assert not thinks(*ASK, foreign, result)
    assert thinks(*ASK, own, result)
    assert thinks(*ASK, foreign, result, Message.assistant("Done."), *ASK)


@table(
    ("model", "effort", "given", "sent"),
    [
        ("claude-3-5-sonnet-latest", None, (0.0, 0.9), {"temperature": 0.0, "top_p": 0.9}),
        ("claude-haiku-4-5", None, (0.0, None), {"temperature": 0.0}),
        ("claude-haiku-4-5", None, (0.5, 0.9), {"temperature": 0.5}),
        ("claude-haiku-4-5", "low", (0.5, 0.9), {}),
        ("claude-haiku-4-5", "low", (0.5, 0.97), {"top_p": 0.97}),
        ("claude-opus-4-6", "low", (0.5, None), {}),
        ("claude-opus-4-6", None, (0.5, None), {"temperature": 0.5}),
        ("claude-opus-4-7", None, (0.5, 0.9), {}),
        ("qwen3-coder", "low", (0.5, 0.9), {"temperature": 0.5, "top_p": 0.9}),
    ],
)
def test_sampling(
    model: str, effort: str | None, given: tuple[float | None, float | None], sent: dict[str, float]
) -> None:
    request = Request("", ASK, temperature=given[0], top_p=given[1], reasoning_effort=effort)
    body = body_of(AnthropicWire.at("http://host", model), request)
    assert {name: body[name] for name in ("temperature", "top_p") if name in body} == sent


def test_the_output_schema() -> None:
    body = body_of(OPUS, Request("", ASK, output_schema=SCHEMA, reasoning_effort="low"))
    assert body["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {**SCHEMA.schema, "additionalProperties": False}},
    }


@pytest.mark.parametrize("model", ["claude-opus-4-1", "qwen3-coder"])
def test_models_without_structured_output_get_no_schema(model: str) -> None:
    body = body_of(AnthropicWire.at("http://host", model), Request("", ASK, output_schema=SCHEMA))
    assert "output_config" not in body


def test_a_schema_is_narrowed() -> None:
    schema = {
        "$schema": "s",
        "type": "object",
        "properties": {
            "n": {"type": "integer", "minimum": 0},
            "l": {"type": "array", "minItems": 3, "items": {"oneOf": [{"type": "string"}, {"type": "null"}]}},
            "o": {"type": "object", "additionalProperties": False},
        },
    }
    before = json.dumps(schema)
    assert anthropic_format(schema) == {
        "type": "json_schema",
        "schema": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "n": {"type": "integer"},
                "l": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "o": {"type": "object", "additionalProperties": False},
            },
        },
    }
    assert json.dumps(schema) == before


@table(
    "schema",
    [
        {"type": "object"},
        {"type": ["object", "null"], "additionalProperties": True},
        {"type": "object", "properties": {"a": {}}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"not": {"type": "string"}, "type": "string"}}},
        {"type": "array", "items": {"type": "object"}},
        {"anyOf": [True]},
        True,
    ],
)
def test_a_schema_that_cannot_be_had(schema: object) -> None:
    assert anthropic_format(schema) is None
