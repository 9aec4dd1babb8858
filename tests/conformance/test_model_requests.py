"""Every case of the table in every protocol: the request pinned, and checked against the vendor's own types."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import ValidationError

from orchestrator.core.messages import Message, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.base import Request
from tests.conformance.model_cases import KEY, REQUESTS, SYSTEM, TOOLS, other_than, read, wire_at
from tests.conformance.vendor_types import check_body
from tests.doubles.vendor_replies import Protocol, Thought, VendorReply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.engine.models.wire import Wire

PINNED = Path(__file__).parents[1] / "data" / "wire"
MAY_WRITE = os.environ.get("PULLWRIGHT_PIN_WIRE") == "1"
SIGNATURE = "c2lnbmVk"

every_protocol = pytest.mark.parametrize("protocol", list(Protocol))


def as_sent(protocol: Protocol, name: str) -> str:
    """The request as a pinned file has it."""
    case = REQUESTS[name](protocol)
    wire = wire_at(protocol)
    sent = wire.encode(case.request, stream=case.stream)
    headers = {**sent.headers, **wire.credentials(KEY)}
    value = {"url": sent.url, "headers": headers, "body": sent.body}
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


@every_protocol
@pytest.mark.parametrize("name", REQUESTS)
def test_the_request_is_the_pinned_one(protocol: Protocol, name: str) -> None:
    file = PINNED / protocol / f"{name}.json"
    sent = as_sent(protocol, name)
    pinned = file.read_text(encoding="utf-8") if file.exists() else ""
    if MAY_WRITE and sent != pinned:
        file.parent.mkdir(exist_ok=True)
        file.write_text(sent, encoding="utf-8")
        pytest.skip(f"written: {protocol}/{name}.json; read the difference")
    assert sent == pinned, "if this is meant, see tests/data/wire/README.md"


@every_protocol
def test_no_pinned_file_is_left_over(protocol: Protocol) -> None:
    assert {file.stem for file in (PINNED / protocol).iterdir()} == set(REQUESTS)


WRONG: dict[Protocol, Callable[[Any], object]] = {
    Protocol.CHAT: lambda body: body["messages"][0].update(role="sytem"),
    Protocol.RESPONSES: lambda body: body["input"][0].update(role="sytem"),
    Protocol.MESSAGES: lambda body: body["messages"][0].update(role="sytem"),
    Protocol.GEMINI: lambda body: body["contents"][0].update(rolle="user"),
}


@every_protocol
def test_the_bodies_pass_the_vendors_types(protocol: Protocol) -> None:
    # All in one test, because the vendors' types take seconds to build.
    refused: dict[str, str] = {}
    for name, make in REQUESTS.items():
        case = make(protocol)
        try:
            check_body(protocol, wire_at(protocol).encode(case.request, stream=case.stream).body)
        except (AssertionError, ValidationError) as error:
            refused[name] = str(error)[:2_000]
    assert refused == {}
    body = wire_at(protocol).encode(REQUESTS["turns"](protocol).request, stream=False).body
    WRONG[protocol](body)
    with pytest.raises(ValidationError):
        check_body(protocol, body)


@every_protocol
@pytest.mark.parametrize("name", ["text", "call", "own_reasoning"])
def test_nothing_is_sent_that_is_not_configured(protocol: Protocol, name: str) -> None:
    said = json.dumps(wire_at(protocol).encode(REQUESTS[name](protocol).request, stream=False).head)
    for field in ("temperature", "top_p", "topP", "tool_choice", "toolConfig", "parallel", "format"):
        assert field not in said


@every_protocol
def test_reasoning_goes_back_to_its_own_protocol_only(protocol: Protocol) -> None:
    own, foreign = as_sent(protocol, "own_reasoning"), as_sent(protocol, "foreign_reasoning")
    carries_text = protocol is Protocol.CHAT  # which has no signatures
    assert ("I must look." if carries_text else SIGNATURE) in own
    assert "I must look." not in foreign
    assert SIGNATURE not in foreign


def session(made_by: Protocol) -> Iterator[list[Message]]:
    """The conversations of 50 requests, each as long as the one before and two messages more."""
    messages = [Message.user("Fix the failing test. " * 20)]
    for number in range(50):
        yield messages
        call = ToolCall(f"call_{number}", "read_file", {"path": f"tests/test_{number}.py"})
        thought = Thought(f"Step {number}.", SIGNATURE)
        reply = read(made_by, VendorReply((thought, Text(f"I look at file {number}."), call)))
        result = ToolResult(call.id, call.name, f"{number} | assert x == {number}\n" * 20)
        messages += [reply, Message(Role.TOOL, (result,))]


@every_protocol
@pytest.mark.parametrize("is_own", [True, False], ids=["own", "foreign"])
def test_a_request_begins_with_the_one_before(protocol: Protocol, *, is_own: bool) -> None:
    wire = wire_at(protocol)
    made_by = protocol if is_own else other_than(protocol)
    before, kept, total = b"", 0, 0
    for messages in session(made_by):
        request = Request(SYSTEM, list(messages), tools=TOOLS, reasoning_effort="high")
        content = wire.encode(request, stream=True).content
        if before:
            same = same_bytes(before, content)
            assert same >= 0.95 * len(before)
            kept, total = kept + same, total + len(before)
        before = content
    assert kept >= 0.99 * total


def same_bytes(one: bytes, other: bytes) -> int:
    """How many bytes both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (left, right) in pairs if left != right), min(len(one), len(other)))


@every_protocol
def test_a_message_is_encoded_once(protocol: Protocol) -> None:
    wire: Any = wire_at(protocol)
    earlier: list[bytes] = []
    for messages in session(protocol):
        entries = [entry for entry in entries_of(wire, messages) if entry]
        assert all(one is other for one, other in zip(earlier, entries, strict=False))
        assert len(wire.encoded) == len(messages)
        earlier = entries


def entries_of(wire: Wire, messages: list[Message]) -> list[bytes]:
    """What stands for the messages. The first entry may be the system prompt's, which is a request's own."""
    listed = list(wire.encode(Request("", list(messages), tools=TOOLS), stream=True).entries)
    return listed[-len(messages) :]
