"""Anthropic Messages: our messages as the vendor's content blocks."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import Image, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.anthropic_reply import BLOCK, SIGNATURE
from orchestrator.engine.models.names import plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.core.messages import Message, Part

# From a mark the vendor looks back over 20 blocks for a cached prompt; some room for what it counts itself.
_LOOKED_BACK_BLOCKS = 16

_MAX_NAME_CHARACTERS = 128


@dataclass(frozen=True, slots=True)
class BlockEncoder:
    """Makes blocks.

    Attributes:
        past_reasoning: give reasoning back.
        unsigned_reasoning: also that which came without a signature, as other makers' models send it; the
            vendor refuses it (a reply that was cut off has such).
        carried: give back other blocks that we do not read.
    """

    past_reasoning: bool = True
    carried: bool = True
    unsigned_reasoning: bool = False

    def entry(self, message: Message, mark: object = None) -> Iterator[dict[str, Any]]:
        """A message as an entry of the vendor's list; none where nothing is left to say.

        Args:
            message: any.
            mark: the `cache_control` of its last block.
        """
        parts = message.parts
        if message.role is not Role.ASSISTANT:  # the vendor wants results before anything else
            results = [part for part in parts if isinstance(part, ToolResult)]
            # It refuses pictures in a result that is an error: they follow.
            pictures = [image for part in results if part.is_error for image in part.images]
            parts = (*results, *pictures, *(part for part in parts if not isinstance(part, ToolResult)))
        blocks = [block for part in parts if (block := self.block(part))]
        if not blocks:
            return
        if mark:
            blocks[-1] = {**blocks[-1], "cache_control": mark}
        yield {"role": "assistant" if message.role is Role.ASSISTANT else "user", "content": blocks}

    def block(self, part: Part) -> dict[str, Any]:
        """A part as a block; empty where there is none for it (the vendor refuses blank texts)."""
        match part:
            case Text():
                return {"type": "text", "text": part.text} if part.text.strip() else {}
            case Image():
                return _image(part)
            case ToolCall():
                arguments = dict(part.arguments)
                return {
                    "type": "tool_use",
                    "id": _id(part.id),
                    "name": plain_name(part.name, _MAX_NAME_CHARACTERS),
                    "input": arguments,
                }
            case ToolResult():
                return _result(part)
            case Reasoning():
                return self._reasoning(part)

    def _reasoning(self, part: Reasoning) -> dict[str, Any]:
        """Reasoning as it came; none that another protocol brought."""
        whole = part.opaque.get(BLOCK)
        if isinstance(whole, dict):
            is_reasoning = whole.get("type") == "redacted_thinking"
            return whole if (self.past_reasoning if is_reasoning else self.carried) else {}
        signature = part.opaque.get(SIGNATURE)
        if signature is None or not self.past_reasoning or not (signature or self.unsigned_reasoning):
            return {}
        return {"type": "thinking", "thinking": part.text, "signature": signature}


def bridge_of(messages: Sequence[Message]) -> int | None:
    """The message where the last request ended, if this one adds more blocks than the vendor looks back.

    A mark there finds what the last request left in the cache. Only the end of the conversation is read.
    """
    added = 0
    for number in range(len(messages) - 1, 0, -1):
        added += len(messages[number].parts)
        if messages[number].role is Role.ASSISTANT:
            is_wide = added > _LOOKED_BACK_BLOCKS and messages[number - 1].role is not Role.ASSISTANT
            return number - 1 if is_wide else None
    return None


def _id(text: str) -> str:
    """An id with the characters that the vendor takes: other vendors' have dots and colons."""
    return plain_name(text, max(len(text), 1))


def _image(image: Image) -> dict[str, Any]:
    data = base64.b64encode(image.data).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": data}}


def _result(result: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": _id(result.call_id)}
    text = result.content
    if not text.strip() and result.is_error:
        text = "failed"  # the vendor refuses an error that says nothing
    if result.images and not result.is_error:
        texts = [{"type": "text", "text": text}] if text.strip() else []
        block["content"] = [*texts, *(_image(image) for image in result.images)]
    else:
        block["content"] = text
    return {**block, "is_error": True} if result.is_error else block
