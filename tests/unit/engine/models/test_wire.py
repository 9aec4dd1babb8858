from __future__ import annotations

from typing import Any

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.json_rpc import read_json
from orchestrator.core.messages import Image, Message, Role, Text, ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.models.base import INVALID_ARGUMENTS, OutputSchema, Request, estimated_usage
from orchestrator.engine.models.wire import EncodedMessages, endpoint, host_of, read_arguments
from tests.tables import table

SUFFIX = "/chat/completions"


@table(
    ("address", "url"),
    [
        ("http://localhost:11434", "http://localhost:11434/v1/chat/completions"),
        ("http://localhost:11434/", "http://localhost:11434/v1/chat/completions"),
        ("http://localhost:1234/v1", "http://localhost:1234/v1/chat/completions"),
        ("http://localhost:1234/v1/", "http://localhost:1234/v1/chat/completions"),
        (" https://openrouter.ai/api/v1 ", "https://openrouter.ai/api/v1/chat/completions"),
        ("https://h/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1/chat/completions/", "https://h/v1/chat/completions"),
        ("https://h/openai/v1?api-version=1#part", "https://h/openai/v1/chat/completions?api-version=1"),
        ("http://[::1]:8080", "http://[::1]:8080/v1/chat/completions"),
    ],
)
def test_addresses(address: str, url: str) -> None:
    assert endpoint(address, SUFFIX) == url


@table(
    "address",
    [
        "",
        "localhost:11434",
        "ftp://h/v1",
        "https://",
        "http://h:port/v1",
        "http://[::1",
        "http://h /v1",
        "file:///etc",
    ],
)
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(ConfigurationError, match="API address must look like"):
        endpoint(address, SUFFIX)


def test_a_password_in_an_address_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError, match="must not contain a password") as caught:
        endpoint("https://me:secret@h/v1", SUFFIX)
    assert "secret" not in str(caught.value)


def test_hosts_are_named_without_secrets() -> None:
    assert host_of("https://me:secret@h:1/v1?key=secret") == "h:1"


@table("text", ["NaN", "[Infinity]", "{", "", "[" * 100_000, b"\xff"])
def test_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_json(text)


def test_an_estimate_counts_everything_that_is_sent() -> None:
    def tokens(request: Request) -> int:
        return estimated_usage(request, Message.assistant("")).input_tokens

    empty = tokens(Request("", ()))
    long = "x" * 2_000
    parts = [
        Request(long, ()),
        Request("", (Message.user(long),)),
        Request("", (Message(Role.ASSISTANT, (ToolCall("c", "f", {"a": long}),)),)),
        Request("", (Message(Role.TOOL, (ToolResult("c", "f", long),)),)),
        Request("", (), tools=(ToolDefinition("t", long, {}),)),
        Request("", (), output_schema=OutputSchema("s", {"description": long})),
        Request("", (Message(Role.USER, (Text(""), Image(b"", "image/png"))),)),
    ]
    for request in parts:
        assert 1_000 <= tokens(request) - empty < 1_050


def test_what_has_not_changed_is_not_encoded_again() -> None:
    encoded = EncodedMessages()
    tools = {"parameters": {"type": "object"}}
    first = encoded.head({"model": "m", "tools": [tools]})
    assert encoded.head({"model": "m", "tools": [dict(tools)]}) is first
    other = encoded.head({"model": "m", "tools": [tools], "temperature": 0})
    assert other == b'{"model":"m","tools":[{"parameters":{"type":"object"}}],"temperature":0}'
    assert encoded.head({"temperature": 0, "model": "m", "tools": [tools]}) is other


@table(
    ("raw", "arguments"),
    [
        (None, {}),
        ("", {}),
        (" ", {}),
        ("null", {}),
        ('""', {}),
        ("[]", {}),
        ("{}", {}),
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ('"null"', {}),
        ('{"a": 1', {INVALID_ARGUMENTS: '{"a": 1'}),
        ("[1]", {INVALID_ARGUMENTS: "[1]"}),
        ("false", {INVALID_ARGUMENTS: "false"}),
        ('"text"', {INVALID_ARGUMENTS: '"text"'}),
        (17, {INVALID_ARGUMENTS: "17"}),
    ],
)
def test_arguments_in_every_form(raw: object, arguments: dict[str, Any]) -> None:
    assert read_arguments(raw) == arguments


@table("body", [b'{"a": "\xe9"}', b'{"a": "\xff"}'])
def test_a_byte_that_is_not_utf_8_damages_one_character(body: bytes) -> None:
    assert read_json(body) == {"a": "\ufffd"}
