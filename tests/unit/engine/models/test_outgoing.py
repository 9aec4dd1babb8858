"""What is sent to a model holds no secret, is the same text in each request, and costs each message once."""

from __future__ import annotations

import gc
from dataclasses import replace
from typing import Any

from orchestrator.core.messages import (
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
)
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.models.base import OutputSchema, Request
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.transport import OutgoingRequests
from orchestrator.engine.policy.secrets import Redactor
from tests.fuzz.growth import grows

SECRET = "zebraquartzmellowfinch"
WIRE = ChatWire.at("http://127.0.0.1:9/v1", "m")
PARTS = (
    Message(Role.USER, (Text(f"it is {SECRET}"), Image(SECRET.encode() * 2, "image/png"))),
    Message(
        Role.ASSISTANT,
        (
            Reasoning(f"so {SECRET}", {"signature": SECRET}),
            ToolCall("call_1", "look", {SECRET: [f"a{SECRET[::-1]}b", 1]}),
        ),
    ),
    Message(Role.TOOL, (ToolResult("call_1", "look", f"found {SECRET.upper()}", images=()),)),
)
TOOL = ToolDefinition("look", f"Looks at {SECRET}.", {"type": "object", "description": SECRET})
REQUEST = Request(
    f"You know {SECRET}.",
    PARTS,
    (TOOL,),
    OutputSchema("plan", {"title": SECRET}),
    provider_options={"openai": {"user": SECRET}},
)


class Counting(Redactor):
    """Counts the texts that it searches."""

    def __init__(self, *values: str) -> None:
        super().__init__(values)
        self.searched: list[str] = []

    def redact(self, text: str) -> str:
        self.searched.append(text)
        return super().redact(text)


def test_every_part_of_a_request_is_redacted_but_ids_and_what_a_vendor_wants_back() -> None:
    clean = OutgoingRequests(Redactor([SECRET])).clean(REQUEST)
    reasoning = clean.messages[1].parts[0]
    assert isinstance(reasoning, Reasoning)
    assert reasoning.opaque == {"signature": SECRET}
    rest = replace(clean.messages[1], parts=clean.messages[1].parts[1:])
    shown = str((clean.system, clean.messages[0], rest, clean.messages[2], clean.tools, clean.output_schema))
    shown += f"{clean.provider_options}{reasoning.text}"
    for form in (SECRET, SECRET[::-1], SECRET.upper()):
        assert form not in shown
    assert clean.system == f"You know {REPLACEMENT}."
    assert [part.id for part in clean.messages[1].parts if isinstance(part, ToolCall)] == ["call_1"]
    assert [part.call_id for part in clean.messages[2].parts if isinstance(part, ToolResult)] == ["call_1"]


def test_a_clean_request_stays_as_it_is() -> None:
    outgoing = OutgoingRequests(Redactor([SECRET]))
    request = Request("You look.", (Message.user("look"), Message.assistant("I do")))
    clean = outgoing.clean(request)
    assert clean == replace(request, messages=list(request.messages))
    assert [one is other for one, other in zip(clean.messages, request.messages, strict=True)] == [True, True]


def test_the_beginning_of_a_conversation_keeps_its_bytes_and_is_searched_once() -> None:
    redactor = Counting(SECRET)
    outgoing = OutgoingRequests(redactor)
    messages: list[Message] = []
    before = b""
    for number in range(5):
        messages.append(Message.user(f"{number} it is {SECRET}"))
        request = replace(REQUEST, messages=tuple(messages))
        body = WIRE.encode(outgoing.clean(request), stream=False).content
        end = body.rindex(b"]")
        start = body.index(b'"messages":[') if b'"messages":[' in body else 0
        conversation = body[start:end]
        assert conversation.startswith(before[: len(before)])
        before = conversation[: conversation.rindex(b"}") + 1] if number else conversation[:40]
    told = [text for text in redactor.searched if text[:1].isdigit()]
    assert len(told) == len(set(told)) == 5
    assert redactor.searched.count(REQUEST.system) == 1


def test_what_is_learnt_later_is_taken_out_of_what_was_searched_before() -> None:
    redactor = Redactor()
    outgoing = OutgoingRequests(redactor)
    request = Request(f"You know {SECRET}.", (Message.user(SECRET),))
    assert outgoing.clean(request).messages[0].text == SECRET
    redactor.learn([SECRET])
    clean = outgoing.clean(request)
    assert (clean.system, clean.messages[0].text) == (f"You know {REPLACEMENT}.", REPLACEMENT)


def test_no_message_is_kept_alive() -> None:
    outgoing = OutgoingRequests(Redactor([SECRET]))
    messages = tuple(Message.user(f"{number} {text}") for number in range(9) for text in ("clean", SECRET))
    outgoing.clean(Request("", messages))
    assert len(vars(outgoing)["_messages"]) == len(messages)
    del messages
    gc.collect()
    assert vars(outgoing)["_messages"] == {}


def test_the_time_of_a_conversation_grows_with_its_length() -> None:
    def talk(text: str) -> Any:
        outgoing = OutgoingRequests(Redactor([SECRET]))
        messages: list[Message] = []
        for line in text.splitlines():
            messages.append(Message.user(line * 20))
            outgoing.clean(Request("You look.", tuple(messages)))

    grows(talk, ("", f"{'a line of a conversation ' * 20}{SECRET}\n", ""), small_chars=20_000)
