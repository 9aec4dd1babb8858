"""A conversation made at one vendor goes on at another, whose rules for names and ids are other ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import JsonObject, Message, Role, ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.gemini import GeminiWire, function_name
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ENCRYPTED_REASONING, ResponsesWire
from orchestrator.engine.models.wire import plain_name, short_id
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.engine.models.wire import Wire

CHAT = ChatWire.at("https://api.openai.com/v1", "gpt-5.2")
RESPONSES = ResponsesWire.at("https://api.openai.com/v1", "gpt-5.2")
MESSAGES = AnthropicWire.at("https://api.anthropic.com", "claude-sonnet-4-6")
GEMINI = GeminiWire.at("https://generativelanguage.googleapis.com", "gemini-3-flash-preview")

NAMES = ("read_file", "mcp.read file/ä", "", "9lives", "n" * 300)
IDS = ("functions.read:0", "toolu_1", f"call_{'x' * 90}1", f"call_{'x' * 90}2", "call_9")
CALLS = tuple(ToolCall(call_id, name, {}) for call_id, name in zip(IDS, NAMES, strict=True))
TALK = (
    Message.user("Read."),
    Message(Role.ASSISTANT, CALLS),
    Message(Role.TOOL, tuple(ToolResult(call.id, call.name, "read") for call in CALLS)),
)
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def entries(wire: Wire, field: str) -> list[dict[str, Any]]:
    sent: list[dict[str, Any]] = wire.encode(Request("", TALK), stream=False).body[field]
    return sent


def test_chat_completions_at_the_vendor() -> None:
    _, asked, *results = entries(CHAT, "messages")
    ids = [call["id"] for call in asked["tool_calls"]]
    assert ids == [result["tool_call_id"] for result in results]
    assert ids[:2] == list(IDS[:2])
    assert max(map(len, ids)) == 40
    assert len(set(ids)) == len(IDS)
    assert all(NAME.fullmatch(call["function"]["name"]) for call in asked["tool_calls"])


def test_responses_at_the_vendor() -> None:
    items = entries(RESPONSES, "input")[1:]
    calls, results = items[: len(IDS)], items[len(IDS) :]
    ids = [call["call_id"] for call in calls]
    assert ids == [result["call_id"] for result in results]
    assert max(map(len, ids)) == 64
    assert len(set(ids)) == len(IDS)
    assert all(NAME.fullmatch(call["name"]) for call in calls)


def test_messages() -> None:
    _, asked, told = entries(MESSAGES, "messages")
    ids = [block["id"] for block in asked["content"]]
    assert ids == [block["tool_use_id"] for block in told["content"]]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]+", one) for one in ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["name"]) for block in asked["content"])


def test_gemini() -> None:
    _, asked, told = entries(GEMINI, "contents")
    names = [part["functionCall"]["name"] for part in asked["parts"]]
    assert names == [part["functionResponse"]["name"] for part in told["parts"]]
    assert names[:4] == ["read_file", "mcp.read_file__", "_", "_9lives"]
    assert all(re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}", name) for name in names)


def test_other_servers_keep_what_they_gave() -> None:
    """Some of them hide things in long ids, and take names with dots."""
    chat = entries(ChatWire.at("http://localhost:8080", "m"), "messages")[1]["tool_calls"]
    items = entries(ResponsesWire.at("http://localhost:8080", "m"), "input")[1:]
    kept = [(call.id, call.name or "_") for call in CALLS]
    assert [(call["id"], call["function"]["name"]) for call in chat] == kept
    assert [(item["call_id"], item["name"]) for item in items[: len(IDS)]] == kept


@table("text", ["", "a", "a" * 64, "ä.b", "call:1", "\ud800" * 70])
def test_names_and_ids_that_fit_stay(text: str) -> None:
    assert plain_name(plain_name(text, 64), 64) == plain_name(text, 64)
    assert function_name(function_name(text)) == function_name(text)
    assert short_id(short_id(text, 40), 40) == short_id(text, 40)


OWN = ToolDefinition("read_file", "Read.", {"type": "object", "properties": {}})
SEARCH: JsonObject = {"type": "web_search"}


@table(("wire", "vendor"), [(CHAT, "openai"), (RESPONSES, "openai"), (MESSAGES, "anthropic")])
def test_the_vendors_own_tools_come_after_ours(wire: Wire, vendor: str) -> None:
    options = {vendor: {"tools": [SEARCH]}}
    tools = wire.encode(Request("", TALK[:1], tools=(OWN,), provider_options=options), stream=False).body[
        "tools"
    ]
    own, search = tools
    assert "read_file" in (own.get("name"), own.get("function", {}).get("name"))
    assert search["type"] == "web_search"


def test_reasoning_still_comes_back_encrypted_beside_what_else_is_included() -> None:
    options: dict[str, JsonObject] = {
        "openai": {"include": ["file_search_call.results", ENCRYPTED_REASONING]}
    }
    body = RESPONSES.encode(Request("", TALK[:1], provider_options=options), stream=False).body
    assert body["include"] == [ENCRYPTED_REASONING, "file_search_call.results"]
