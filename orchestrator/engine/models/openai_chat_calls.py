"""Chat Completions: puts tool calls together from the pieces in which they are streamed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import ToolCall
from orchestrator.engine.models.wire import dicts, made_up_id, read_arguments, read_json, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(slots=True)
class _Call:
    """A tool call that is being received."""

    id: str = ""
    name: str = ""
    arguments: Any = ""
    extra: Any = None


@dataclass(slots=True)
class CallPieces:
    """The tool calls of a reply, received in pieces."""

    calls: list[_Call] = field(default_factory=list)
    by_index: dict[int, _Call] = field(default_factory=dict)

    def take_whole(self, message: Mapping[str, Any]) -> str:
        """Take the calls of a whole message: each entry is a call of its own. Gives what `take` gives."""
        entries = dicts(message.get("tool_calls"))
        return self.take(
            {**message, "tool_calls": [{**entry, "index": n} for n, entry in enumerate(entries)]}
        )

    def take(self, delta: Mapping[str, Any]) -> str:
        """Take the pieces that a chunk of a stream has. Gives the text of their arguments."""
        pieces = dicts(delta.get("tool_calls"))
        legacy = delta.get("function_call")
        if isinstance(legacy, dict) and (legacy.get("name") or self.calls) and not pieces:
            pieces = [{"function": legacy}]
        texts = []
        for piece in pieces:
            function = piece.get("function")
            if isinstance(function, dict):
                self._add(piece, function)
                texts.append(text_of(function.get("arguments")))
        return "".join(texts)

    def _add(self, piece: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        index, name = piece.get("index"), text_of(function.get("name"))
        call = self._current(index, text_of(piece.get("id")), name)
        call.id = call.id or text_of(piece.get("id"))
        if name != call.name:  # some servers repeat the name in every piece
            call.name += name
        arguments = function.get("arguments")
        if isinstance(arguments, str) and isinstance(call.arguments, str):
            call.arguments += arguments
        elif arguments is not None:
            call.arguments = arguments
        call.extra = piece.get("extra_content") or call.extra

    def _current(self, index: object, call_id: str, name: str) -> _Call:
        """The call that a piece belongs to: by index, else by id, else the last; or a new one.

        A piece with another id, or with a name after complete arguments, begins a new call even
        under a known index: some servers send each call whole, all with index 0.
        """
        same_id = next((call for call in reversed(self.calls) if call_id and call.id == call_id), None)
        if isinstance(index, int):
            # An index that counts pieces: the id says whose piece it is.
            known = self.by_index.get(index) or (None if name else same_id)
        else:
            known = same_id or (self.calls[-1] if self.calls else None)
        if known is not None:
            other_id = bool(call_id and known.id and call_id != known.id)
            again = bool(name and not call_id and known.arguments and _is_complete(known.arguments))
            if not other_id and not again:
                return known
        call = _Call()
        self.calls.append(call)
        if isinstance(index, int):
            self.by_index[index] = call
        return call

    def finish(self, reply_id: str | None) -> tuple[list[ToolCall], dict[str, Any]]:
        """The calls, and what servers want back with each of them, by id."""
        calls: list[ToolCall] = []
        extras: dict[str, Any] = {}
        for number, call in enumerate(self.calls):
            if not call.name and not call.arguments:
                continue
            arguments = read_arguments(call.arguments)
            is_new = bool(call.id) and all(
                call.id != known.id for known in calls
            )  # each has a result of its own
            call_id = call.id if is_new else made_up_id(number, reply_id, call.name, call.arguments)
            calls.append(ToolCall(call_id, call.name, arguments))
            if call.extra:
                extras[call_id] = call.extra
        return calls, extras


def _is_complete(arguments: object) -> bool:
    try:
        return not isinstance(arguments, str) or isinstance(read_json(arguments), dict)
    except ValueError:
        return False
