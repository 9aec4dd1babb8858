"""A conversation that began in an earlier session: read from its events, made sound, cut to a size."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from orchestrator.core.events import (
    InputReceived,
    LoopDetected,
    MessageAdded,
    ReplyReceived,
    SteeringInjected,
    ToolCallEnded,
)
from orchestrator.core.messages import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.session.history import Turn, TurnKind, interrupted
from orchestrator.engine.session.worst_case import message_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.events import Event

_LONG_AGO = datetime.fromtimestamp(0, UTC)

_PARTS = {
    Role.USER: Text | Image,
    Role.ASSISTANT: Text | Reasoning | ToolCall,
    Role.TOOL: ToolResult | Text,
}
"""What a message may be made of."""

_KINDS_OF_EVENTS = {SteeringInjected: TurnKind.STEERING, LoopDetected: TurnKind.STEERING}
"""What these say of the message before them."""


def history_of(events: Iterable[Event], at: datetime = _LONG_AGO) -> list[Turn]:
    """The turns of a session, from its events in their order, as far as they go.

    The messages are those that the model was sent and sent itself. Subagents' events do not count. What was
    redacted in a journal stays redacted.

    Args:
        events: of one run, from its journal; `MessageAdded` and `ReplyReceived` alone do as well.
        at: the time that the turns bear, because events have none.
    """
    turns: list[Turn] = []
    asked, ran = False, False  # since the last reply
    for event in events:
        match event:
            case InputReceived():
                asked = True
            case ToolCallEnded():
                ran = True
            case MessageAdded(message):
                asked = asked or not turns
                turns.append(Turn(_kind(message, asked=asked, ran=ran), message, at))
                asked = ran = False
            case SteeringInjected() | LoopDetected():
                if turns and turns[-1].kind is not TurnKind.ASSISTANT:
                    turns[-1] = replace(turns[-1], kind=_KINDS_OF_EVENTS[type(event)])
            case ReplyReceived(message=message, usage=usage):
                turns.append(Turn(TurnKind.ASSISTANT, message, at, usage))
                asked = ran = False
            case _:
                pass
    return turns


def _kind(message: Message, *, asked: bool, ran: bool) -> TurnKind:
    if message.role is Role.ASSISTANT:
        return TurnKind.ASSISTANT
    if asked and message.role is Role.USER:
        return TurnKind.USER
    return TurnKind.TOOL_RESULTS if ran or message.role is Role.TOOL else TurnKind.SYSTEM


def sound(turns: Iterable[Turn], at: datetime) -> list[Turn]:
    """The same conversation in a form that every vendor takes.

    It begins with a user's words: what comes before them is left out. Each call has one result right behind
    it: a missing one is answered as interrupted. Left out are results without their calls, parts that a
    message of its role cannot have, and turns without content.

    Args:
        turns: oldest first.
        at: when calls were found to be interrupted.
    """
    kept: list[Turn] = []
    for turn in map(_with_its_parts, turns):
        if not turn.message.parts or (not kept and turn.message.role is not Role.USER):
            continue
        calls = _open_calls(kept)
        if turn.message.role is Role.TOOL:
            if calls:
                kept.append(_answered(turn, calls))
            continue
        if calls:
            kept.append(_answered(Turn(TurnKind.TOOL_RESULTS, Message(Role.TOOL, ()), at), calls))
        kept.append(turn)
    if calls := _open_calls(kept):
        kept.append(_answered(Turn(TurnKind.TOOL_RESULTS, Message(Role.TOOL, ()), at), calls))
    return kept


def _with_its_parts(turn: Turn) -> Turn:
    allowed = _PARTS[turn.message.role]
    parts = tuple(part for part in turn.message.parts if isinstance(part, allowed))
    return turn if parts == turn.message.parts else replace(turn, message=replace(turn.message, parts=parts))


def _open_calls(kept: Sequence[Turn]) -> Turn | None:
    """The last turn, if it has calls, which nothing answers yet."""
    return kept[-1] if kept and kept[-1].tool_calls else None


def _answered(turn: Turn, calls: Turn) -> Turn:
    """These results in the order of the calls, with those that are missing; other parts come behind them."""
    results = {result.call_id: result for result in turn.results}
    each = tuple(results.get(call.id) or interrupted(call) for call in calls.tool_calls)
    others = tuple(part for part in turn.message.parts if not isinstance(part, ToolResult))
    return replace(turn, message=replace(turn.message, parts=(*each, *others)))


def trimmed(turns: Sequence[Turn], most_characters: int) -> list[Turn]:
    """The first user's turn and the newest ones, if all together are longer than this.

    A reply and what answered it stay together. Where not even the first turn has room, nothing is left.

    Args:
        turns: oldest first.
        most_characters: of the messages, in bytes of UTF-8; pictures count by what they cost in tokens.
    """
    if sum(map(_size, turns)) <= most_characters:
        return list(turns)
    first = next((index for index, turn in enumerate(turns) if turn.kind is TurnKind.USER), None)
    if first is None or _size(turns[first]) > most_characters:
        return []
    room = most_characters - _size(turns[first])
    start = end = len(turns)
    for index in range(end - 1, first, -1):
        room -= _size(turns[index])
        if room < 0:
            break
        if _begins(turns[index]):
            start = index
    return [turns[first], *turns[start:]]


def _begins(turn: Turn) -> bool:
    """Whether a conversation can be taken up with this turn: it answers nothing that would be missing."""
    return turn.kind in {TurnKind.USER, TurnKind.ASSISTANT}


def _size(turn: Turn) -> int:
    return message_bytes(turn.message)
