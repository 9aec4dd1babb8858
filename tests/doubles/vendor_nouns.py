"""What a model says in a test, in no vendor's words. See `vendor_replies`, which renders it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from orchestrator.core.messages import FinishReason, Text, ToolCall, Usage
from orchestrator.engine.models.base import invalid_arguments

MODEL = "scripted-1"
ID = "reply_1"
USAGE = Usage(input_tokens=100, output_tokens=20)
NOISE = {"never_seen_before": {"type": "text", "text": "not for the reader", "list": [1, None]}}
"""An unknown field, as a newer server has it."""


class Protocol(StrEnum):
    """The wire protocols that a reply can be rendered for."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"
    GEMINI = "gemini"


@dataclass(frozen=True, slots=True)
class Thought:
    """Reasoning that the reader may see.

    Attributes:
        signature: base64, what the vendor wants back. Chat Completions has no place for it.
    """

    text: str
    signature: str = ""


VendorPart: TypeAlias = Thought | Text | ToolCall


@dataclass(frozen=True, slots=True)
class VendorReply:
    """One reply.

    Attributes:
        parts: in the order in which they are said. A call with `{INVALID_ARGUMENTS: text}` is
            rendered with that text as its arguments, where the protocol has arguments as text.
        finish: None is what the parts suggest. A protocol without a word for a reason raises `KeyError`.
        noise: put unknown fields and unknown events in between.
    """

    parts: tuple[VendorPart, ...]
    finish: FinishReason | None = None
    usage: Usage = USAGE
    noise: bool = False

    @property
    def reason(self) -> FinishReason:
        """Why it ends."""
        calls = any(isinstance(part, ToolCall) for part in self.parts)
        return self.finish or (FinishReason.TOOL_CALLS if calls else FinishReason.STOP)


def json_text(value: object) -> str:
    """JSON as a vendor writes it."""
    return json.dumps(value, ensure_ascii=False)


def event_bytes(value: object, name: str = "") -> bytes:
    """One server-sent event."""
    return f"{f'event: {name}' + chr(10) if name else ''}data: {json_text(value)}\n\n".encode()


def arguments_text(call: ToolCall) -> str:
    """A call's arguments where they are text."""
    text = invalid_arguments(call)
    return json_text(dict(call.arguments)) if text is None else text
