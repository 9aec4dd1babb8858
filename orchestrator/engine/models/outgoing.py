"""Takes secrets out of what is sent to a model."""

from __future__ import annotations

import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.core.messages import Message, Reasoning, ToolCall, ToolResult

if TYPE_CHECKING:
    from orchestrator.core.messages import Part
    from orchestrator.engine.models.base import Request
    from orchestrator.engine.policy.secrets import Redactor


class OutgoingRequests:
    """Redacts requests to one model. Each message, and what all requests share, is searched once.

    A message is the same text in every request, so that the beginning of a conversation keeps its bytes. Left as they
    are: the ids of calls, which results refer to, and what a vendor wants back unchanged (`Reasoning.opaque`).
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forget()

    def _forget(self) -> None:
        self._version = self._redactor.version
        # The clean message, or None if the message itself is clean: it must not be kept alive.
        self._messages: dict[int, tuple[weakref.ref[Message], Message | None]] = {}
        self._heads: tuple[Request, Request] | None = None

    def clean(self, request: Request) -> Request:
        """Return the request without secrets."""
        if self._version != self._redactor.version:  # another secret was learnt
            self._forget()
        head = replace(request, messages=(), on_retry=None)
        if self._heads is None or self._heads[0] != head:
            self._heads = head, self._clean_head(head)
        messages = [self._message(one) for one in request.messages]
        return replace(self._heads[1], messages=messages, on_retry=request.on_retry)

    def _clean_head(self, head: Request) -> Request:
        redact = self._redactor.redact_value
        return replace(
            head,
            system=self._redactor.redact(head.system),
            tools=redact(head.tools),
            output_schema=redact(head.output_schema),
            provider_options=redact(head.provider_options),
        )

    def _message(self, message: Message) -> Message:
        key = id(message)
        known = self._messages.get(key)
        if known is not None and known[0]() is message:
            return known[1] or message
        parts = tuple(map(self._part, message.parts))
        clean = None if parts == message.parts else Message(message.role, parts)

        def forget(_: weakref.ref[Message]) -> None:
            self._messages.pop(key, None)

        self._messages[key] = weakref.ref(message, forget), clean
        return clean or message

    def _part(self, part: Part) -> Part:
        clean: Part = self._redactor.redact_value(part)
        if isinstance(part, Reasoning) and isinstance(clean, Reasoning):
            return replace(clean, opaque=part.opaque)
        if isinstance(part, ToolCall) and isinstance(clean, ToolCall):
            return replace(clean, id=part.id)
        if isinstance(part, ToolResult) and isinstance(clean, ToolResult):
            return replace(clean, call_id=part.call_id)
        return clean
