"""The three vendors of the parity matrix: how each profile edits, and where its protocol's bodies say what.

A test plays a session over real HTTP::

    async with played(vendor, folder, turn(vendor.create("a.txt", "x")), turn("Done.")) as game:
        events = await game.submit("Write a.txt")
        assert game.results(1)[0].text
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator import LocalEnvironment, Session, anthropic_profile, gemini_profile, openai_profile
from orchestrator.core.messages import Text, ToolCall
from tests.doubles.sse_server import SseServer, sse_answer
from tests.doubles.vendor_replies import Protocol, VendorReply, render

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
    from pathlib import Path

    from orchestrator import SessionConfig, SessionEvent
    from orchestrator.core.events import Event
    from orchestrator.engine.profiles.base import Profile
    from tests.doubles.sse_server import Answer, PostedRequest

Body: TypeAlias = "Mapping[str, Any]"
Call: TypeAlias = tuple[str, "Mapping[str, Any]"]
Turn: TypeAlias = "VendorReply | Callable[[Body], VendorReply]"

KEY = "sk-for-the-double-only"


@dataclass(frozen=True, slots=True)
class Told:
    """What a request says about one call. `is_error` is None where the protocol has no word for it."""

    call_id: str
    text: str
    is_error: bool | None


def turn(*parts: str | Call) -> VendorReply:
    """A reply with words and calls; the calls' ids are `c1`, `c2` and so on."""
    made = [
        Text(part) if isinstance(part, str) else ToolCall(f"c{number}", *part)
        for number, part in enumerate(parts, 1)
    ]
    return VendorReply(tuple(made))


@dataclass(frozen=True, slots=True)
class Vendor:
    """One column of the matrix.

    Attributes:
        model: as the profile takes it; a real one, whose fields for reasoning are known.
        path: where requests have to arrive.
    """

    name: str
    protocol: Protocol
    make: Callable[..., Profile]
    model: str
    path: str

    def __str__(self) -> str:
        return self.name

    def create(self, path: str, content: str) -> Call:
        """The call that makes a file, by the profile's own way."""
        if self.protocol is not Protocol.RESPONSES:
            return "write_file", {"file_path": path, "content": content}
        lines = "".join(f"+{line}\n" for line in content.splitlines())
        return "apply_patch", {"patch": f"*** Begin Patch\n*** Add File: {path}\n{lines}*** End Patch"}

    def edit(self, path: str, old: str, new: str) -> Call:
        """The call that replaces one line, by the profile's own way."""
        if self.protocol is not Protocol.RESPONSES:
            return "edit_file", {"file_path": path, "old_string": old, "new_string": new}
        patch = f"*** Begin Patch\n*** Update File: {path}\n@@\n-{old}\n+{new}\n*** End Patch"
        return "apply_patch", {"patch": patch}

    def key(self, headers: Mapping[str, str]) -> str:
        """The key that came in."""
        name = {Protocol.RESPONSES: "authorization", Protocol.MESSAGES: "x-api-key"}
        return headers.get(name.get(self.protocol, "x-goog-api-key"), "").removeprefix("Bearer ")

    def system(self, body: Body) -> str:
        """The system prompt."""
        match self.protocol:
            case Protocol.RESPONSES:
                return str(body["instructions"])
            case Protocol.MESSAGES:
                return "".join(block["text"] for block in body["system"])
            case _:
                return "".join(part["text"] for part in body["systemInstruction"]["parts"])

    def tools(self, body: Body) -> dict[str, Any]:
        """The schemas of the tools' arguments, by name."""
        if self.protocol is Protocol.GEMINI:
            listed = body["tools"][0]["functionDeclarations"]
            return {tool["name"]: tool["parametersJsonSchema"] for tool in listed}
        field = "parameters" if self.protocol is Protocol.RESPONSES else "input_schema"
        return {tool["name"]: tool[field] for tool in body["tools"]}

    def effort(self, body: Body) -> object:
        """The vendor's own field for reasoning effort."""
        match self.protocol:
            case Protocol.RESPONSES:
                return body["reasoning"]["effort"]
            case Protocol.MESSAGES:
                return body["output_config"]["effort"]
            case _:
                return body["generationConfig"]["thinkingConfig"]["thinkingLevel"].lower()

    def users(self, body: Body) -> list[str]:
        """What the user said, in order."""
        match self.protocol:
            case Protocol.RESPONSES:
                return [item["content"] for item in body["input"] if item.get("role") == "user"]
            case Protocol.MESSAGES:
                return [block["text"] for block in _blocks(body, "user") if block["type"] == "text"]
            case _:
                return [part["text"] for part in _parts(body, "user") if "text" in part]

    def results(self, body: Body) -> list[Told]:
        """All results of calls in a request, oldest first."""
        match self.protocol:
            case Protocol.RESPONSES:
                found = [item for item in body["input"] if item.get("type") == "function_call_output"]
                return [Told(item["call_id"], item["output"], None) for item in found]
            case Protocol.MESSAGES:
                blocks = [block for block in _blocks(body, "user") if block["type"] == "tool_result"]
                return [
                    Told(block["tool_use_id"], block["content"], block.get("is_error", False))
                    for block in blocks
                ]
            case _:
                parts = _parts(body, "user")
                found = [part["functionResponse"] for part in parts if "functionResponse" in part]
                return [
                    Told(one["id"], next(iter(one["response"].values())), "error" in one["response"])
                    for one in found
                ]

    def last(self, body: Body) -> object:
        """The last entry of the conversation, as it was sent."""
        field = {Protocol.RESPONSES: "input", Protocol.MESSAGES: "messages", Protocol.GEMINI: "contents"}
        return body[field[self.protocol]][-1]


def _blocks(body: Body, role: str) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        if message["role"] == role:
            content = message["content"]
            yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def _parts(body: Body, role: str) -> Iterator[dict[str, Any]]:
    for content in body["contents"]:
        if content["role"] == role:
            yield from content["parts"]


OPENAI = Vendor(
    "openai", Protocol.RESPONSES, openai_profile, "openai-responses:gpt-5.2-codex", "/v1/responses"
)
ANTHROPIC = Vendor("anthropic", Protocol.MESSAGES, anthropic_profile, "claude-opus-4-6", "/v1/messages")
GEMINI = Vendor(
    "gemini",
    Protocol.GEMINI,
    gemini_profile,
    "gemini-3-pro-preview",
    "/v1beta/models/gemini-3-pro-preview:streamGenerateContent?alt=sse",
)
VENDORS = (OPENAI, ANTHROPIC, GEMINI)


V4A = """*** Begin Patch
*** Update File: twice.txt
@@
-same
 same
+new
*** Delete File: old.txt
*** Add File: added.txt
+added
*** Update File: before.txt
*** Move to: after.txt
@@
-before
+after
*** End Patch"""
TWICE = {"file_path": "twice.txt", "old_string": "same", "new_string": "new"}
NATIVE_EDITS: dict[Vendor, tuple[list[Call], str, dict[str, str]]] = {
    OPENAI: (
        [("apply_patch", {"patch": V4A})],
        "patch",
        {"twice.txt": "same\nnew\n", "added.txt": "added\n", "after.txt": "after\n"},
    ),
    ANTHROPIC: (
        [("edit_file", TWICE), ("edit_file", {**TWICE, "replace_all": True})],
        "replace_all",
        {"twice.txt": "new\nnew\n", "old.txt": "old\n", "before.txt": "before\n"},
    ),
    GEMINI: (
        [("edit_file", TWICE), ("edit_file", {**TWICE, "expected_replacements": 2})],
        "expected_replacements",
        {"twice.txt": "new\nnew\n", "old.txt": "old\n", "before.txt": "before\n"},
    ),
}
"""What each profile's own way to edit makes of three files: the calls, a parameter that only it has, the end."""


@dataclass(frozen=True, slots=True)
class Game:
    """A session that talks to a vendor's double."""

    vendor: Vendor
    session: Session
    server: SseServer

    async def submit(
        self, text: str, *, on_call: Callable[[Session], object] | None = None
    ) -> list[SessionEvent]:
        """All events of one input. `on_call` is called once, when the first call starts."""
        events = []
        async for event in self.session.submit(text):
            events.append(event)
            if on_call and event.kind == "tool_call_start":
                on_call(self.session)
                on_call = None
        return events

    @property
    def bodies(self) -> list[Body]:
        """What the double received."""
        return [request.body for request in self.server.requests]

    def results(self, request: int) -> list[Told]:
        """All results of calls in this request, counted from 0; -1 is the last one."""
        return self.vendor.results(self.bodies[request])


@asynccontextmanager
async def played(
    vendor: Vendor, folder: Path, *turns: Turn, config: SessionConfig | None = None
) -> AsyncGenerator[Game]:
    """A session whose model says these turns; at its end all of them were asked for."""
    with SseServer([answering(vendor, one) for one in turns]) as server:
        base = "" if vendor.protocol is Protocol.GEMINI else "/v1"
        profile = vendor.make(vendor.model, api_url=server.url + base, api_key=KEY)
        session = Session(profile=profile, environment=LocalEnvironment(folder, sandbox="off"), config=config)
        try:
            yield Game(vendor, session, server)
        finally:
            await session.close()
            await session.model.aclose()
        assert server.answers == [], "the model was asked as often as it had something to say"
        for request in server.requests:
            assert (request.path, vendor.key(request.headers)) == (vendor.path, KEY)


def answering(vendor: Vendor, one: Turn) -> Callable[[PostedRequest], Answer]:
    """The answer to a request that is this turn."""

    def answer(request: PostedRequest) -> Answer:
        reply = one(request.body) if callable(one) else one
        return sse_answer(render(vendor.protocol, reply))

    return answer


def of(events: list[SessionEvent], kind: type[Event]) -> list[Any]:
    """The events of one class."""
    return [event.event for event in events if isinstance(event.event, kind)]
