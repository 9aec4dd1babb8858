from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import (
    ConfigurationError,
    InvalidRequestError,
    ModelError,
    OverloadedError,
    RateLimitError,
)
from orchestrator.core.messages import (
    Image,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
)
from orchestrator.engine.models.anthropic import BLOCK, CACHE_MARK, SIGNATURE, AnthropicWire
from orchestrator.engine.models.base import OutputSchema, Request, ToolChoice
from orchestrator.engine.models.openai_chat import REASONING_FIELD
from tests.tables import table

OPUS = AnthropicWire.at("https://api.anthropic.com/v1", "claude-opus-4-8")
LOCAL = AnthropicWire.at("http://localhost:8080", "qwen3-coder")
ASK = (Message.user("Hello there"),)
TOOL = ToolDefinition("read_file", "Read.", {"type": "object", "properties": {"path": {"type": "string"}}})
SCHEMA = OutputSchema("plan", {"type": "object", "properties": {"a": {"type": "string"}}})
MARK = {"cache_control": {"type": "ephemeral"}}


def body_of(wire: AnthropicWire, request: Request) -> dict[str, Any]:
    return wire.encode(request, stream=False).body


def blocks_of(*parts: Part, role: Role = Role.ASSISTANT, wire: AnthropicWire = OPUS) -> list[dict[str, Any]]:
    entries = body_of(wire, Request("", (Message(role, parts),)))["messages"]
    return entries[0]["content"] if entries else []


def test_the_body_of_a_conversation() -> None:
    request = Request(
        "Be brief.",
        (
            Message(Role.USER, (Text("Look: "), Image(b"png", "image/png"))),
            Message(Role.ASSISTANT, (Text("I read."), ToolCall("c1", "read_file", {"path": "ä"}))),
            Message(
                Role.TOOL,
                (
                    ToolResult("c1", "read_file", "x = 1", images=(Image(b"png", "image/png"),)),
                    ToolResult("c2", "grep", "no", is_error=True),
                ),
            ),
            Message.assistant("Done."),
        ),
        tools=(TOOL, ToolDefinition("finish", "End.", {})),
    )
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "cG5n"}}
    assert OPUS.encode(request, stream=True).body == {
        "model": "claude-opus-4-8",
        "max_tokens": 32_000,
        "stream": True,
        "tools": [
            {"name": "read_file", "description": "Read.", "input_schema": TOOL.parameters},
            {"name": "finish", "description": "End.", "input_schema": {"type": "object"}, **MARK},
        ],
        "system": [{"type": "text", "text": "Be brief.", **MARK}],
        **MARK,
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look: "}, picture]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I read."},
                    {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "ä"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [{"type": "text", "text": "x = 1"}, picture],
                    },
                    {"type": "tool_result", "tool_use_id": "c2", "content": "no", "is_error": True},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ],
    }


def test_what_is_not_configured_is_not_sent() -> None:
    assert set(body_of(OPUS, Request("", ASK))) == {"model", "max_tokens", "cache_control", "messages"}


def test_headers() -> None:
    sent = OPUS.encode(Request("", ASK), stream=True)
    assert sent.headers == {"accept": "text/event-stream", "anthropic-version": "2023-06-01"}
    assert OPUS.credentials("k") == {"x-api-key": "k"}


@table(
    ("address", "url"),
    [
        ("https://api.anthropic.com", "https://api.anthropic.com/v1/messages"),
        ("https://api.anthropic.com/v1/", "https://api.anthropic.com/v1/messages"),
        ("https://api.example.org/anthropic", "https://api.example.org/anthropic/v1/messages"),
        ("https://api.example.org/x/v2beta?a=1", "https://api.example.org/x/v2beta/messages?a=1"),
        ("http://localhost:8080/my/messages", "http://localhost:8080/my/messages"),
    ],
)
def test_addresses(address: str, url: str) -> None:
    assert AnthropicWire.at(address, "m").url == url


def test_a_wrong_address() -> None:
    with pytest.raises(ConfigurationError):
        AnthropicWire.at("ftp://host", "m")


def test_provider_options() -> None:
    options = {
        "beta_headers": ["a-1", "b-2"],
        "output_config": {"task_budget": {"total": 9}},
        "metadata": {"user_id": "u"},
    }
    request = Request(
        "", ASK, reasoning_effort="low", provider_options={"anthropic": options, "openai": {"x": 1}}
    )
    sent = OPUS.encode(request, stream=False)
    assert sent.headers["anthropic-beta"] == "a-1,b-2"
    assert sent.body["output_config"] == {"effort": "low", "task_budget": {"total": 9}}
    assert sent.body["metadata"] == {"user_id": "u"}
    assert not sent.body.keys() & {"beta_headers", "x"}


def test_the_vendors_own_tools_come_after_ours() -> None:
    search = {"type": "web_search_20250305", "name": "web_search"}
    request = Request("", ASK, tools=(TOOL,), provider_options={"anthropic": {"tools": [search]}})
    tools = body_of(OPUS, request)["tools"]
    assert [tool["name"] for tool in tools] == ["read_file", "web_search"]
    assert [tool.get("cache_control") for tool in tools] == [None, CACHE_MARK]
    assert search.keys() == {"type", "name"}


def test_the_mark_can_be_chosen_or_left_out() -> None:
    hour = {"type": "ephemeral", "ttl": "1h"}
    request = Request("s", ASK, tools=(TOOL,), provider_options={"anthropic": {"cache_control": hour}})
    body = body_of(OPUS, request)
    assert body["cache_control"] == body["system"][0]["cache_control"] == hour
    assert body["tools"][0]["cache_control"] == hour
    without = Request("s", ASK, tools=(TOOL,), provider_options={"anthropic": {"cache_control": None}})
    assert b"cache_control" not in OPUS.encode(without, stream=False).content
    assert body_of(OPUS, without)["system"] == "s"


@table(
    ("choice", "parallel", "sent"),
    [
        (None, None, None),
        (None, True, None),
        (None, False, {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice.AUTO, None, {"type": "auto"}),
        (ToolChoice.REQUIRED, None, {"type": "any"}),
        (ToolChoice.REQUIRED, False, {"type": "any", "disable_parallel_tool_use": True}),
        (ToolChoice.NONE, False, {"type": "none"}),
    ],
)
def test_the_choice_of_tools(choice: ToolChoice | None, parallel: bool | None, sent: object) -> None:  # noqa: FBT001  a parameter of the table
    request = Request("", ASK, tools=(TOOL,), tool_choice=choice, parallel_tool_calls=parallel)
    assert body_of(OPUS, request).get("tool_choice") == sent


def test_newest_models_are_not_forced() -> None:
    request = Request("", ASK, tools=(TOOL,), tool_choice=ToolChoice.REQUIRED)
    wire = AnthropicWire.at("https://api.anthropic.com", "claude-opus-5-5")
    assert body_of(wire, request)["tool_choice"] == {"type": "auto"}


def test_reasoning_goes_back_as_it_came() -> None:
    redacted = {"type": "redacted_thinking", "data": "x"}
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
    parts = (Reasoning("Hm.", {SIGNATURE: "s"}), Reasoning("", {BLOCK: redacted}), Text("Yes."))
    assert blocks_of(*parts) == [thinking, redacted, {"type": "text", "text": "Yes."}]
    empty = {"type": "thinking", "thinking": "", "signature": "s"}
    assert blocks_of(Reasoning("", {SIGNATURE: "s"})) == [empty]


def test_other_reasoning_does_not_go_back() -> None:
    assert blocks_of(Reasoning("Hm.", {REASONING_FIELD: "reasoning"}), Reasoning("Hm."), Text("a")) == [
        {"type": "text", "text": "a"}
    ]


def test_unsigned_reasoning_goes_back_to_other_makers_only() -> None:
    unsigned = Reasoning("Hm.", {SIGNATURE: ""})
    assert blocks_of(unsigned) == []
    assert blocks_of(unsigned, wire=LOCAL) == [{"type": "thinking", "thinking": "Hm.", "signature": ""}]


def test_blank_texts_and_empty_messages_are_left_out() -> None:
    messages = (Message.user("a"), Message.assistant(" \n"), Message(Role.ASSISTANT, ()), Message.user("b"))
    body = body_of(OPUS, Request(" ", messages))
    assert [entry["role"] for entry in body["messages"]] == ["user", "user"]
    assert "system" not in body


def test_results_come_first_and_errors_say_something() -> None:
    blocks = blocks_of(Text("Go on."), ToolResult("c1", "f", " ", is_error=True), role=Role.USER)
    assert [block["type"] for block in blocks] == ["tool_result", "text"]
    assert blocks[0]["content"] == "failed"


def test_pictures_of_an_error_follow_its_text() -> None:
    failed = ToolResult("c1", "f", "cannot", is_error=True, images=(Image(b"png", "image/png"),))
    blocks = blocks_of(failed, Text("Go on."), role=Role.USER)
    assert [block["type"] for block in blocks] == ["tool_result", "image", "text"]
    assert blocks[0]["content"] == "cannot"


def test_ids_and_names_of_other_vendors() -> None:
    call, again = blocks_of(ToolCall("functions.f:0", "my.tool", {}), ToolCall("", "", {}))
    assert (call["id"], call["name"], again["id"], again["name"]) == ("functions_f_0", "my_tool", "_", "_")
    assert (
        blocks_of(ToolResult("functions.f:0", "my.tool", ""), role=Role.TOOL)[0]["tool_use_id"] == call["id"]
    )


def step(number: int, calls: int = 1) -> tuple[Message, Message]:
    ids = [f"c{number}_{call}" for call in range(calls)]
    asked = tuple(ToolCall(call_id, "read_file", {"path": f"src/file_{number}.py"}) for call_id in ids)
    results = tuple(ToolResult(call_id, "read_file", f"line {number}\n" * 40) for call_id in ids)
    return Message(Role.ASSISTANT, (Text("I read on."), *asked)), Message(Role.TOOL, results)


def test_a_longer_conversation_begins_with_the_bytes_of_the_shorter() -> None:
    messages = list(ASK)
    shares = []
    for number in range(50):
        before = OPUS.encode(Request("s", tuple(messages), tools=(TOOL,)), stream=True).content
        messages += step(number, calls=9 if number == 25 else 1)
        after = OPUS.encode(Request("s", tuple(messages), tools=(TOOL,)), stream=True).content
        same = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(before))
        shares.append(same / len(before))
        if number not in {25, 26}:
            assert after.startswith(before.removesuffix(b"]}"))
    assert sum(shares) / len(shares) >= 0.95


def test_a_step_wider_than_the_vendor_looks_back_gets_a_bridge() -> None:
    messages = (*ASK, *step(1), *step(2, calls=10))
    body = body_of(OPUS, Request("s", messages, tools=(TOOL,)))
    marked = [n for n, entry in enumerate(body["messages"]) if "cache_control" in entry["content"][-1]]
    assert marked == [2]
    assert (
        OPUS.encode(Request("s", messages, tools=(TOOL,)), stream=True).content.count(b'"cache_control"') == 4
    )
    narrow = body_of(OPUS, Request("s", (*messages, *step(3)), tools=(TOOL,)))
    assert "cache_control" not in json.dumps(narrow["messages"])


def test_an_unchanged_message_is_encoded_once() -> None:
    wire = AnthropicWire.at("http://host", "m")
    messages = (*ASK, *step(1))
    first = wire.encode(Request("", messages), stream=False).entries
    second = wire.encode(Request("", (*messages, *step(2))), stream=False).entries
    assert all(a is b for a, b in zip(first, second, strict=False))


EVERYTHING = Request(
    "s",
    ASK,
    tools=(TOOL,),
    output_schema=SCHEMA,
    reasoning_effort="low",
    temperature=0.5,
    tool_choice=ToolChoice.REQUIRED,
)


@table(
    ("said", "without"),
    [
        ("cache_control: Extra inputs are not permitted", "cache_control"),
        ("tool_choice forces tool use, which is not supported", "any"),
        ("output_config.format: Extra inputs are not permitted", "format"),
        ("Invalid JSON schema: too complex", "format"),
        ("Extra inputs are not permitted", "format"),
        ("output_config.effort: Extra inputs are not permitted", "effort"),
        ("`temperature` is deprecated for this model.", "temperature"),
    ],
)
def test_what_a_server_refuses_is_given_up(said: str, without: str) -> None:
    wire = AnthropicWire.at("http://host", "claude-opus-4-6")
    request = EVERYTHING if without != "temperature" else Request("", ASK, temperature=0.5)
    assert f'"{without}"'.encode() in wire.encode(request, stream=False).content
    relaxed = wire.relax(request, InvalidRequestError(f"host reported an error with status 400: {said}"))
    assert relaxed is not None
    assert f'"{without}"'.encode() not in relaxed.encode(request, stream=False).content
    assert relaxed.relax(request, InvalidRequestError(f"host: {said.partition(':')[0]} is wrong")) is None


def test_thinking_is_given_up() -> None:
    request = Request("", ASK, reasoning_effort="high")
    error = InvalidRequestError("host: adaptive thinking is not supported on this model")
    relaxed = OPUS.relax(request, error)
    assert relaxed is not None
    assert not body_of(relaxed, request).keys() & {"thinking", "output_config"}


def test_reasoning_that_the_vendor_does_not_know_is_given_up() -> None:
    past = Message(Role.ASSISTANT, (Reasoning("Hm.", {SIGNATURE: "s"}), Text("a")))
    request = Request("", (*ASK, past, *ASK), reasoning_effort="low")
    assert b"signature" in OPUS.encode(request, stream=False).content
    error = InvalidRequestError("host: messages.1.content.0: Invalid `signature` in `thinking` block")
    relaxed = OPUS.relax(request, error)
    assert relaxed is not None
    assert b"signature" not in relaxed.encode(request, stream=False).content
    assert "thinking" in body_of(relaxed, request)
    assert relaxed.relax(request, InvalidRequestError("host: Invalid `signature` again")) is None


@table(
    "error",
    [
        InvalidRequestError("host: messages: at least one message is required"),
        InvalidRequestError("host: tools.0.custom.input_schema: JSON schema is invalid"),
        InvalidRequestError("host: max_tokens: 100000 > 64000 is not supported"),
        RateLimitError("host: cache_control"),
        OverloadedError("host: Overloaded"),
    ],
)
def test_other_errors_change_nothing(error: ModelError) -> None:
    assert OPUS.relax(EVERYTHING, error) is None


PARTS = st.one_of(
    st.builds(Text, st.text(max_size=5)),
    st.builds(
        Reasoning, st.text(max_size=5), st.sampled_from([{}, {SIGNATURE: "s"}, {SIGNATURE: ""}, {"x": 1}])
    ),
    st.builds(ToolCall, st.text(max_size=5), st.text(max_size=5), st.just({})),
    st.builds(ToolResult, st.text(max_size=5), st.text(max_size=5), st.text(max_size=5), st.booleans()),
    st.builds(Image, st.binary(max_size=3), st.just("image/png")),
)
MESSAGES = st.lists(
    st.builds(Message, st.sampled_from(Role), st.lists(PARTS, max_size=4).map(tuple)), max_size=5
).map(tuple)


@given(MESSAGES)
def test_any_conversation_becomes_json_without_blank_texts(messages: tuple[Message, ...]) -> None:
    body = body_of(OPUS, Request("", messages))
    assert body["cache_control"] == CACHE_MARK
    for entry in body["messages"]:
        assert entry["content"]
        assert all(block.get("text", "x").strip() for block in entry["content"])
