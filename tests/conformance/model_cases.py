"""The table of requests that every wire protocol is asked to encode, and the wires themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.clock import Clock, ManualClock
from orchestrator.core.messages import Image, Message, Role, Text, ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import INVALID_ARGUMENTS, OutputSchema, Request, ToolChoice
from orchestrator.engine.models.gemini import GeminiWire
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.models.transport import HttpModel
from tests.doubles.vendor_replies import Protocol, Thought, VendorReply, render_whole

if TYPE_CHECKING:
    from orchestrator.engine.models.transport import HttpOptions
    from orchestrator.engine.models.wire import Wire

KEY = "sk-made-up-0123456789"

_ADDRESSES = {
    Protocol.CHAT: "https://api.openai.com/v1",
    Protocol.RESPONSES: "https://api.openai.com/v1",
    Protocol.MESSAGES: "https://api.anthropic.com",
    Protocol.GEMINI: "https://generativelanguage.googleapis.com/v1beta",
}
_MODELS = {
    Protocol.CHAT: "gpt-5.2",
    Protocol.RESPONSES: "gpt-5.2",
    Protocol.MESSAGES: "claude-sonnet-4-6",
    Protocol.GEMINI: "gemini-3-flash-preview",
}


def wire_at(protocol: Protocol, address: str = "", model: str = "") -> Wire:
    """The protocol's wire, to its vendor where no other address is given."""
    address, model = address or _ADDRESSES[protocol], model or _MODELS[protocol]
    match protocol:
        case Protocol.CHAT:
            return ChatWire.at(address, model)
        case Protocol.RESPONSES:
            return ResponsesWire.at(address, model)
        case Protocol.MESSAGES:
            return AnthropicWire.at(address, model)
        case Protocol.GEMINI:
            return GeminiWire.at(address, model)


def read(protocol: Protocol, reply: VendorReply) -> Message:
    """What our side makes of a reply."""
    return wire_at(protocol).decoder(Request("", ())).read(render_whole(protocol, reply)).message


def model_at(
    protocol: Protocol,
    address: str,
    model: str = "",
    *,
    clock: Clock | None = None,
    options: HttpOptions | None = None,
) -> HttpModel:
    """A model behind the protocol's wire, whose waits cost no time. Whoever asks it closes it."""
    return HttpModel(
        f"{protocol}:made-up",
        wire_at(protocol, address, model),
        api_key=KEY,
        clock=clock or ManualClock(),
        random=lambda: 0.0,
        options=options,
    )


@dataclass(frozen=True, slots=True)
class RequestCase:
    """A request, and whether its reply is wanted as a stream."""

    request: Request
    stream: bool = False


MakeRequest: TypeAlias = Callable[[Protocol], RequestCase]

PNG = b"\x89PNG\r\n\x1a\n made up"
PICTURE = Image(PNG, "image/png")
SYSTEM = "Be brief. Sei nett — 简短."
ASK = Message.user("What does main.py do?")
READ = ToolDefinition(
    "read_file",
    "Read a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
LIST = ToolDefinition("list_dir", "List a folder.", {"type": "object", "properties": {}})
TOOLS = (READ, LIST)
PLAN = OutputSchema(
    "plan",
    {
        "type": "object",
        "properties": {"plan": {"type": "string", "minLength": 1}, "risk": {"enum": ["low", "high"]}},
        "required": ["plan", "risk"],
        "additionalProperties": False,
    },
)
CALL = ToolCall("call_1", "read_file", {"path": "ä.py", "limit": 3})
SECOND = ToolCall("call_2", "list_dir", {})
THIRD = ToolCall("call_3", "read_file", {INVALID_ARGUMENTS: '{"path": "a'})
RAN = ToolResult("call_1", "read_file", "1 | x = 'ü'\n")
OPTIONS = {
    "openai": {"service_tier": "flex"},
    "anthropic": {"beta_headers": ["context-1m-2025-08-07", "made-up"], "metadata": {"user_id": "u1"}},
    "gemini": {
        "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "grounding": True,
    },
}
THINKING = VendorReply((Thought("I must look.", "c2lnbmVk"), Text("I read."), CALL))


def _asks(*messages: Message, stream: bool = False, **fields: object) -> MakeRequest:
    """The same request for every protocol."""
    case = RequestCase(Request(messages=messages or (ASK,), **{"system": SYSTEM, **fields}), stream)  # type: ignore[arg-type]  # the fields are a request's
    return lambda _: case


def _said(*parts: Text | ToolCall) -> Message:
    return Message(Role.ASSISTANT, parts)


def _told(*parts: Text | ToolResult) -> Message:
    return Message(Role.TOOL, parts)


def _after_reasoning(made_by: Callable[[Protocol], Protocol]) -> MakeRequest:
    """A conversation in which the reasoning was read from a reply of one of the protocols."""

    def make(protocol: Protocol) -> RequestCase:
        thought = read(made_by(protocol), THINKING)
        return RequestCase(Request(SYSTEM, (ASK, thought, _told(RAN)), tools=TOOLS, reasoning_effort="high"))

    return make


def other_than(protocol: Protocol) -> Protocol:
    """Another protocol, whose reasoning this one cannot read."""
    listed = list(Protocol)
    return listed[(listed.index(protocol) + 1) % len(listed)]


REQUESTS: dict[str, MakeRequest] = {
    "text": _asks(system=""),
    "stream": _asks(stream=True),
    "system": _asks(),
    "turns": _asks(ASK, Message.assistant("It prints."), Message.user("And then?")),
    "image": _asks(Message(Role.USER, (Text("Look."), PICTURE, Text("And?")))),
    "tools": _asks(tools=TOOLS),
    "call": _asks(ASK, _said(Text("I read."), CALL), _told(RAN), tools=TOOLS),
    "calls": _asks(
        ASK,
        _said(CALL, SECOND, THIRD),
        _told(
            RAN,
            ToolResult("call_2", "list_dir", "no such folder", is_error=True),
            ToolResult("call_3", "read_file", "the arguments are no JSON", is_error=True),
        ),
        tools=TOOLS,
    ),
    "result_image": _asks(
        ASK,
        _said(CALL),
        _told(ToolResult("call_1", "read_file", "a picture", images=(PICTURE,))),
        tools=TOOLS,
    ),
    "text_after_results": _asks(ASK, _said(CALL), _told(RAN, Text("Mind the time.")), tools=TOOLS),
    "empty_assistant": _asks(ASK, Message.assistant(""), Message.user("Say something.")),
    "own_reasoning": _after_reasoning(lambda protocol: protocol),
    "foreign_reasoning": _after_reasoning(other_than),
    "effort_low": _asks(reasoning_effort="low"),
    "effort_high": _asks(reasoning_effort="high"),
    "schema": _asks(output_schema=PLAN),
    "choice_none": _asks(tools=TOOLS, tool_choice=ToolChoice.NONE),
    "choice_required": _asks(tools=TOOLS, tool_choice=ToolChoice.REQUIRED),
    "one_call_at_a_time": _asks(tools=TOOLS, parallel_tool_calls=False),
    "sampling": _asks(temperature=0.5),
    "top_p": _asks(top_p=0.9),
    "output_limit": _asks(max_output_tokens=1_000),
    "options": _asks(provider_options=OPTIONS, tools=TOOLS),
}
