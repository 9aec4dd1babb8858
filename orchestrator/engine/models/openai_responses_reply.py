"""OpenAI Responses, the receiving half: whole replies and streams, from the vendor and from compatibles.

https://platform.openai.com/docs/api-reference/responses-streaming
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ConnectionFailedError, ProviderError
from orchestrator.core.messages import FinishReason, Message, Role, ToolCall
from orchestrator.engine.models.base import CallPiece, ReasoningPiece, Response, TextPiece
from orchestrator.engine.models.failures import error_in_reply
from orchestrator.engine.models.openai_chat_reply import read_usage
from orchestrator.engine.models.openai_responses_items import CALL, MESSAGE, REASONING, Item, Items
from orchestrator.engine.models.usage import counted_or_estimated
from orchestrator.engine.models.wire import read_event, read_reply, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import Usage
    from orchestrator.engine.models.base import Piece, Request

_INCOMPLETE = {
    "max_output_tokens": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "length": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}
_ENDS = {
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
    "response.done",
}
_TEXT = {"response.output_text", "response.refusal"}
_THOUGHTS = {"response.reasoning_summary_text", "response.reasoning_text", "response.reasoning"}
_ARGUMENTS = "response.function_call_arguments"
_KINDS = {MESSAGE, REASONING, CALL}

# The counts have other names than in Chat Completions, and the same meaning.
_COUNTS = {
    "input_tokens": "prompt_tokens",
    "output_tokens": "completion_tokens",
    "input_tokens_details": "prompt_tokens_details",
    "output_tokens_details": "completion_tokens_details",
    "total_tokens": "total_tokens",
}


class ResponsesDecoder:
    """Reads one streamed reply."""

    def __init__(self, request: Request, *, model: str, where: str) -> None:
        self.done = False
        self._request = request
        self._where = where
        self._model = model
        self._id: str | None = None
        self._status = ""
        self._reason = ""
        self._is_bare = False
        self._usage: Usage | None = None
        self._items = Items()

    def feed(self, event: str, data: str) -> list[Piece]:
        """Take one server-sent event.

        Raises:
            ModelError: the event is an error, or no JSON, or says that the reply failed.
        """
        if self.done or not data.strip():
            return []
        if data.strip() == "[DONE]":
            self.done = True
            return []
        value = read_event(data, self._where)
        if not isinstance(value, dict):
            return []
        kind = text_of(value.get("type")) or event
        if kind == "error" or (value.get("error") and not value.get("response")):
            raise error_in_reply(value, self._where)
        response = value.get("response")
        if kind in _ENDS and isinstance(response, dict):
            return self.take_whole(response, ending=kind.rpartition(".")[2])
        if isinstance(response, dict):
            self._take_names(response)
        return self._take(kind, value)

    def take_whole(self, response: Mapping[str, Any], *, ending: str = "") -> list[Piece]:
        """Take a whole reply, or the last event of a stream, which repeats it.

        Raises:
            ModelError: it says that the reply failed.
        """
        self._take_names(response)
        self._status = text_of(response.get("status")) or ending
        details = response.get("incomplete_details")
        self._reason = text_of(details.get("reason")) if isinstance(details, dict) else ""
        if self._status == "failed" or response.get("error"):
            error = response.get("error") or "the reply failed, no reason given"
            raise error_in_reply({"error": error}, self._where)
        if self._status == "cancelled":
            raise ConnectionFailedError(f"{self._where} cancelled the reply before its end")
        if self._status in {"queued", "in_progress"} and ending in {"", "done"}:
            raise ProviderError(
                f"{self._where} answered before the reply was made; do not ask for a background reply"
            )
        usage = response.get("usage")
        if isinstance(usage, dict):
            self._usage = read_usage({name: usage.get(key) for key, name in _COUNTS.items()})
        self._is_bare = "incomplete_details" not in response
        self._items.take_output(response.get("output"))
        self.done = True
        return [piece for item in self._items.listed for piece in _rest(item)]

    def _take_names(self, response: Mapping[str, Any]) -> None:
        self._id = text_of(response.get("id")) or self._id
        self._model = text_of(response.get("model")) or self._model

    def _take(self, kind: str, value: Mapping[str, Any]) -> list[Piece]:
        subject, _, verb = kind.rpartition(".")
        if subject == "response.output_item":
            return self._take_item(verb, value)
        delta = text_of(value.get("delta"))
        if subject in _TEXT and verb == "delta" and delta:
            item = self._items.find(MESSAGE, value)
            item.refused = item.refused or subject == "response.refusal"
            return [TextPiece(item.add(delta))]
        if subject in _THOUGHTS and verb == "delta" and delta:
            part = value.get("summary_index", value.get("content_index"))
            thought = self._items.find(REASONING, value).add_thought(delta, subject, part)
            return [ReasoningPiece(thought)] if thought else []
        if subject == _ARGUMENTS and verb == "delta" and delta:
            return [CallPiece(self._items.find(CALL, value).add(delta))]
        if subject == _ARGUMENTS and verb == "done" and text_of(value.get("arguments")):
            self._items.find(CALL, value).pieces[:] = [value["arguments"]]
        return []

    def _take_item(self, verb: str, value: Mapping[str, Any]) -> list[Piece]:
        raw = value.get("item")
        kind = text_of(raw.get("type")) if isinstance(raw, dict) else ""
        if not isinstance(raw, dict) or kind not in _KINDS:
            return []
        if verb == "added":
            self._items.begin(kind, value.get("output_index"), raw)
        if verb != "done":
            return []
        item = self._items.find(kind, value)
        item.finish(raw)
        return _rest(item)

    def finish(self) -> tuple[list[Piece], Response]:
        """Nothing held back, and the whole reply.

        Raises:
            ConnectionFailedError: the stream had no end, or no reply in it.
        """
        if not self.done or not (self._status or self._items.listed):
            raise ConnectionFailedError(f"{self._where} ended its stream in the middle of the reply")
        message = Message(Role.ASSISTANT, tuple(self._items.parts(self._id)))
        usage, is_counted = counted_or_estimated(self._usage, self._request, message)
        reason = self._finish_reason(message)
        return [], Response(message, reason, usage, self._model, self._id, is_counted)

    def _finish_reason(self, message: Message) -> FinishReason:
        if self._status == "incomplete" or self._reason:
            return _INCOMPLETE.get(self._reason, FinishReason.OTHER)
        limit = self._request.max_output_tokens
        if self._is_bare and self._usage is not None and limit and self._usage.output_tokens >= limit:
            return FinishReason.LENGTH  # llama.cpp calls a reply complete that ran into the limit
        if any(isinstance(part, ToolCall) for part in message.parts):
            return FinishReason.TOOL_CALLS
        if any(item.refused for item in self._items.listed):
            return FinishReason.REFUSAL
        return FinishReason.STOP


_STATUSES = frozenset({"completed", "failed", "in_progress", "cancelled", "queued", "incomplete"})
"""https://platform.openai.com/docs/api-reference/responses/object"""


def decode_reply(body: bytes, request: Request, *, model: str, where: str) -> Response:
    """Read a whole reply.

    Raises:
        ModelError: the body is an error, or no reply.
    """
    value = read_reply(body, where)
    if isinstance(whole := value.get("response"), dict):  # the last event of a stream, as a document
        value = whole
    if value.get("object") == "error" or value.get("type") == "error":
        raise error_in_reply(value, where)
    is_reply = isinstance(value.get("output"), list) or text_of(value.get("status")) in _STATUSES
    if not is_reply and not value.get("error"):
        raise ProviderError(f"{where} answered without a reply in it (no output); check the API address")
    decoder = ResponsesDecoder(request, model=model, where=where)
    decoder.take_whole(value)
    return decoder.finish()[1]


def _rest(item: Item) -> list[Piece]:
    if item.kind == CALL or not (rest := item.rest()):
        return []
    return [TextPiece(rest) if item.kind == MESSAGE else ReasoningPiece(rest)]
