"""A long conversation over each vendor's protocol: what a summary is asked with, and what stays as it was."""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator import LocalEnvironment, Session, anthropic_profile, gemini_profile, openai_profile
from orchestrator.core.events import Compacted
from orchestrator.core.messages import Text, ToolCall, Usage
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native
from orchestrator.engine.session.config import CompactionPolicy, Host, SessionConfig
from orchestrator.engine.session.loop import EndKind
from orchestrator.engine.tools.control import finish
from orchestrator.engine.tools.registry import ToolRegistry
from tests.doubles.sse_server import Answer, SseServer, sse_answer
from tests.doubles.vendor_replies import Protocol, Thought, VendorReply, render
from tests.scenarios.vendors import KEY

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.core.events import Event
    from orchestrator.engine.contracts.base import Contract
    from tests.doubles.sse_server import PostedRequest

STEPS = 45
WINDOW = 24_000
SUMMARY = "\n".join(
    f"## {name}\nwords of the summary"
    for name in ("Goal", "Progress and decisions", "Constraints", "Remaining", "Critical data")
)
PROFILES = {
    Protocol.CHAT: (openai_profile, "openai-chat:gpt-5.2", "/v1"),
    Protocol.RESPONSES: (openai_profile, "openai-responses:gpt-5.2", "/v1"),
    Protocol.MESSAGES: (anthropic_profile, "claude-opus-4-6", "/v1"),
    Protocol.GEMINI: (gemini_profile, "gemini-3-pro-preview", ""),
}
TALK = {Protocol.CHAT: "messages", Protocol.RESPONSES: "input", Protocol.MESSAGES: "messages"}
SYSTEM = ("instructions", "system", "systemInstruction")
SCHEMA = '"tool_name"'
NO_CALLS: dict[Protocol, Mapping[str, Any]] = {
    Protocol.CHAT: {"tool_choice": "none"},
    Protocol.RESPONSES: {"tool_choice": "none"},
    Protocol.MESSAGES: {"tool_choice": {"type": "none"}},
    Protocol.GEMINI: {"toolConfig": {"functionCallingConfig": {"mode": "NONE"}}},
}


def blocks(protocol: Protocol, body: Mapping[str, Any]) -> list[str]:
    """The conversation in its smallest pieces, as they were sent, without the marks of where a cache ends."""
    found: list[str] = []
    for message in body[TALK.get(protocol, "contents")]:
        content = message.get("content", message.get("parts"))
        if not isinstance(content, list) or message.get("type") == "reasoning":
            found.append(json.dumps(message, sort_keys=True))
            continue
        for part in content:
            plain = {name: value for name, value in part.items() if name != "cache_control"}
            found.append(json.dumps([message["role"], plain], sort_keys=True))
    if protocol is Protocol.MESSAGES:
        return found
    return [one for one in found if '"role": "system"' not in one]


def head(protocol: Protocol, body: Mapping[str, Any]) -> dict[str, Any]:
    """All of a request but its conversation."""
    return {name: value for name, value in body.items() if name != TALK.get(protocol, "contents")}


@dataclass
class Double:
    """Calls `read_file` so many times, each with a thought of its own; the first summary that it gives is a call."""

    protocol: Protocol
    is_plan: bool
    requests: list[Mapping[str, Any]] = field(default_factory=list)
    questions: list[Mapping[str, Any]] = field(default_factory=list)

    def __call__(self, request: PostedRequest) -> Answer:
        reply = replace(self.reply(request.body), usage=Usage(len(request.raw) // 4, 20))
        return sse_answer(render(self.protocol, reply))

    def reply(self, body: Mapping[str, Any]) -> VendorReply:
        if "this conversation is about to be made shorter" in blocks(self.protocol, body)[-1]:
            self.questions.append(body)
            if len(self.questions) == 1:
                return VendorReply((ToolCall("never", "read_file", {"file_path": "never.txt"}),))
            return VendorReply((Text(SUMMARY),))
        self.requests.append(body)
        number = len(self.requests)
        page = {"file_path": f"page{number % 9}.txt"}
        if self.is_plan:
            name = "finish" if number > STEPS else "read_file"
            arguments = {"reason": "done"} if number > STEPS else page
            call = {"tool_name": name, "arguments": arguments}
            return VendorReply((Text(json.dumps({"plan": f"step {number}", "tool_calls": [call]})),))
        if number > STEPS:
            return VendorReply((Text("Done."),))
        signature = base64.b64encode(f"signed {number}".encode()).decode()
        thought = () if self.protocol is Protocol.CHAT else (Thought(f"thought {number}", signature),)
        call_it = ToolCall(f"call{number}", "read_file", page)
        return VendorReply((*thought, Text(f"step {number}"), call_it))


async def may_finish(_reason: str) -> str | None:
    return None


async def play(folder: Path, protocol: Protocol, contract: Contract) -> tuple[Double, list[Compacted]]:
    for number in range(9):
        (folder / f"page{number}.txt").write_text(f"page {number}\n" + "words and words\n" * 125)
    make, model, base = PROFILES[protocol]
    double = Double(protocol, isinstance(contract, JsonPlan))
    told: list[Event] = []
    with SseServer([double] * (STEPS * 3)) as server:
        profile = make(model, api_url=server.url + base, api_key=KEY)
        profile = replace(profile, tools=ToolRegistry([*profile.tools, finish(may_finish)]))
        config = SessionConfig(
            compaction=CompactionPolicy(share=0.5), context_window=WINDOW, enable_loop_detection=False
        )
        async with Session(
            profile=profile,
            environment=LocalEnvironment(folder, sandbox="off"),
            contract=contract,
            config=config,
            host=Host(system=lambda _shown: "You are tested.", emit=told.append),
        ) as session:
            end = await session.run("The task: read the pages")
        assert end.kind in {EndKind.COMPLETED, EndKind.FINISH}
    return double, [event for event in told if isinstance(event, Compacted)]


@pytest.mark.parametrize("protocol", PROFILES)
async def test_a_summary_is_asked_for_behind_what_the_vendor_has_read(
    tmp_path: Path, protocol: Protocol
) -> None:
    double, shorter = await play(tmp_path, protocol, Native())
    assert len(shorter) > 1
    asked = [blocks(protocol, body) for body in double.requests]
    for question in double.questions:
        *before, last = blocks(protocol, question)
        assert "this conversation is about to be made shorter" in last
        place = asked.index(before)
        same, other = head(protocol, double.requests[place]), head(protocol, question)
        allowed = {"max_tokens", "max_completion_tokens", "max_output_tokens", "generationConfig"}
        allowed |= set(NO_CALLS[protocol]) if question is double.questions[1] else set()
        changed = {name for name in same.keys() | other.keys() if same.get(name) != other.get(name)}
        assert changed <= allowed, changed
    first, second = double.questions[:2]
    assert all(first.get(name) != value for name, value in NO_CALLS[protocol].items())
    assert all(second.get(name) == value for name, value in NO_CALLS[protocol].items())
    assert not any("never" in piece for body in double.requests for piece in blocks(protocol, body))


@pytest.mark.slow(
    reason="dozens of requests over HTTP for each protocol; the first table is in the default tier"
)
@pytest.mark.parametrize("protocol", PROFILES)
async def test_what_stays_is_what_was_sent_with_its_signatures(tmp_path: Path, protocol: Protocol) -> None:
    double, shorter = await play(tmp_path, protocol, Native())
    asked = [blocks(protocol, body) for body in double.requests]
    swaps = 0
    for before, after in itertools.pairwise(asked):
        if after[: len(before)] == before:
            continue
        swaps += 1
        assert "words of the summary" in after[0]
        place = before.index(after[1])
        assert after[1 : 1 + len(before) - place] == before[place:]
        for number in range(1, STEPS + 1):
            names = [f'"call{number}"', base64.b64encode(f"signed {number}".encode()).decode()]
            is_there = [any(name in piece for piece in after) for name in names]
            assert is_there[1] == (is_there[0] and protocol is not Protocol.CHAT), number
    assert swaps == len(shorter)


@pytest.mark.slow(reason="the same over each protocol with plans")
@pytest.mark.parametrize("protocol", PROFILES)
async def test_a_summary_is_asked_for_without_the_schema_of_plans(tmp_path: Path, protocol: Protocol) -> None:
    double, shorter = await play(tmp_path, protocol, JsonPlan())
    assert shorter
    asked = [blocks(protocol, body) for body in double.requests]
    for question in double.questions:
        same = double.requests[asked.index(blocks(protocol, question)[:-1])]
        assert SCHEMA in json.dumps(head(protocol, same))
        assert SCHEMA not in json.dumps(head(protocol, question))
        systems = [json.dumps(body.get(name)) for body in (same, question) for name in SYSTEM]
        assert systems[: len(SYSTEM)] == systems[len(SYSTEM) :]
