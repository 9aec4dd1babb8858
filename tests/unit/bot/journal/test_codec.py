"""Every event survives being written and read, and journals of other versions are understood."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.journal.codec import UnknownRecord, decode, encode
from orchestrator.core.errors import JournalError
from orchestrator.core.events import (
    CycleEnded,
    Event,
    MessageAdded,
    PhaseEntered,
    ReplyReceived,
    SessionEnded,
    ToolCallStarted,
)
from orchestrator.core.messages import FinishReason, Image, Message, Reasoning, Role, Text, ToolCall, Usage
from tests.tables import table
from tests.unit.bot.journal.strategies import EVENT_CLASSES, any_event, of_class

REPLY = ReplyReceived(
    Message(
        Role.ASSISTANT,
        (
            Reasoning("hm", {"signature": "x"}),
            Text("yes"),
            Image(b"\x89PNG\xff", "image/png"),
            ToolCall("1", "grep", {"a": [1]}),
        ),
    ),
    FinishReason.STOP,
    Usage(10, 5),
    0.25,
    "some-model",
)


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
@given(data=st.data())
def test_every_event_of_the_union_comes_back(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(of_class(cls))
    assert decode(json.loads(json.dumps(encode(event)))) == event


@table("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_no_field_takes_a_name_that_the_record_needs(cls: type[Event]) -> None:
    assert not {field.name for field in dataclasses.fields(cls)} & {"seq", "at", "type"}


def test_a_reply_in_json() -> None:
    assert encode(REPLY) == {
        "type": "ReplyReceived",
        "message": {
            "role": "assistant",
            "parts": [
                {"type": "Reasoning", "text": "hm", "opaque": {"signature": "x"}},
                {"type": "Text", "text": "yes"},
                {"type": "Image", "data": "iVBOR/8=", "media_type": "image/png"},
                {"type": "ToolCall", "id": "1", "name": "grep", "arguments": {"a": [1]}},
            ],
        },
        "finish": "stop",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cached_input_tokens": 0,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
        },
        "usd": 0.25,
        "model": "some-model",
    }


@given(any_event)
def test_each_text_goes_through_redaction(event: Event) -> None:
    written = json.dumps(encode(event, lambda _text: "#"))
    decoded = decode(json.loads(written))
    assert type(decoded) is type(event), "the names of types, fields and enumerations stay as they are"
    if isinstance(decoded, SessionEnded):
        assert decoded.reason == "#"


def test_a_picture_that_holds_a_secret_is_left_out() -> None:
    event = MessageAdded(Message(Role.USER, (Image(b"12345", "image/png"),)))
    assert encode(event, lambda text: text.replace("MTIz", ""))["message"]["parts"][0]["data"] == ""


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    assert decode({"type": "SessionEnded", "reason": "x", "mood": 1}) == SessionEnded("x")
    data = encode(REPLY)
    data["usage"] = {"input_tokens": 3, "of_another_kind": 4}
    assert decode(data) == dataclasses.replace(REPLY, usage=Usage(3))


@table(
    "data",
    [
        {"type": "Invented", "x": 1},
        {"type": "PhaseEntered", "phase": "invented"},
        {"type": "MessageAdded", "message": {"role": "user", "parts": [{"type": "Video", "data": ""}]}},
        {"type": "MessageAdded", "message": {"role": "narrator", "parts": []}},
    ],
)
def test_what_a_newer_version_wrote_is_an_unknown_record(data: dict[str, Any]) -> None:
    assert decode(data) == UnknownRecord(data["type"], data)


@table(
    ("data", "message"),
    [
        ({}, "a record has no type"),
        ({"type": 1}, "a record has no type"),
        ({"type": "SessionEnded"}, "SessionEnded has no reason"),
        ({"type": "SessionEnded", "reason": 1}, "SessionEnded.reason: not a str"),
        ({"type": "TurnStarted", "round": True}, "TurnStarted.round: not a int"),
        ({"type": "WaitStarted", "seconds": True, "reason": ""}, "WaitStarted.seconds: not a float"),
        ({"type": "PhaseEntered", "phase": 1}, "PhaseEntered.phase: not a Phase"),
        ({"type": "ReplyRejected", "problems": "x", "attempt": 1}, "ReplyRejected.problems: not a list"),
        ({"type": "CycleEnded", "result": []}, "CycleEnded.result: not an object"),
        ({"type": "MessageAdded", "message": 1}, "MessageAdded.message: Message is not an object"),
        (
            {"type": "MessageAdded", "message": {"role": "user", "parts": [1]}},
            "MessageAdded.message: Message.parts: has no type",
        ),
        (
            {
                "type": "MessageAdded",
                "message": {"role": "user", "parts": [{"type": "Image", "data": "?", "media_type": ""}]},
            },
            "MessageAdded.message: Message.parts: Image.data: not base64",
        ),
    ],
)
def test_damage_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(JournalError) as caught:
        decode(data)
    assert str(caught.value) == message


def test_arguments_nested_too_deeply_and_numbers_beyond_json_can_be_written() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    written = encode(ToolCallStarted("1", "x", {"deep": deep, "big": float("inf"), "none": float("nan")}))
    assert "[nested too deeply]" in json.dumps(written, allow_nan=False)
    assert written["arguments"]["big"] == "inf"


def test_enumerations_in_a_result_are_written_as_their_value() -> None:
    from orchestrator.core.events import Phase

    assert encode(CycleEnded({"phase": Phase.ACT}))["result"] == {"phase": "act"}
    assert encode(PhaseEntered(Phase.ACT)) == {"type": "PhaseEntered", "phase": "act"}
