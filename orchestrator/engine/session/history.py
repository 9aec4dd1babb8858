"""The conversation of a session: turns, only ever appended, and the view of them that a request takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, overload

from orchestrator.core.messages import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult
from orchestrator.engine.models.usage import CHARACTERS_PER_TOKEN, TOKENS_PER_IMAGE
from orchestrator.engine.session.worst_case import InputMeter

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from orchestrator.core.messages import Part, Usage

INTERRUPTED = "Interrupted before it ended. What it did until then is not known."


class TurnKind(StrEnum):
    """Who says a turn, and why."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL_RESULTS = "tool_results"
    SYSTEM = "system"
    """A word of the program: that a reply was cut off, empty, or not in the contract's form."""
    STEERING = "steering"
    """A word from outside while the session was at work, or the warning of a loop. The user's to the model."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of the conversation.

    Attributes:
        message: what is sent to the model.
        at: when it was added, in UTC.
        usage: tokens of the request that it answers; of an assistant turn only.
        response_id: the provider's name for the reply, if it gave one.
    """

    kind: TurnKind
    message: Message
    at: datetime
    usage: Usage | None = None
    response_id: str | None = None

    @property
    def content(self) -> str:
        """The turn's text."""
        return self.message.text

    @property
    def reasoning(self) -> str:
        """What the model thought, as far as it can be read."""
        return "".join(part.text for part in self.message.parts if isinstance(part, Reasoning))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model asked for."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What the model was told about its calls."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolResult))


class Conversation(Sequence[Message]):
    """The messages of a history as they were at one moment. Taking one costs the same however long it is."""

    __slots__ = ("_length", "_messages")

    def __init__(self, messages: list[Message]) -> None:
        self._messages = messages
        self._length = len(messages)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self._messages[i] for i in range(*index.indices(self._length))]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._messages[index % self._length]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # a list of messages is no key either

    def __repr__(self) -> str:
        return f"Conversation({list(self)!r})"


class History:
    """The turns of a session, and their length in tokens, kept as it grows.

    Args:
        turns: of an earlier session, in a form that vendors take (`earlier.sound`).

    Attributes:
        tokens: the approximate length.
        meter: the upper estimate that requests are reserved by.
    """

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._turns: list[Turn] = []
        self._messages: list[Message] = []
        self.tokens = 0
        self.meter = InputMeter()
        for turn in turns:
            self.add(turn)

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def turns(self) -> Sequence[Turn]:
        """All turns, oldest first. Not to be changed."""
        return self._turns

    def add(self, turn: Turn) -> None:
        """Append a turn. One without content, which no vendor takes, is kept as a turn and not sent."""
        self._turns.append(turn)
        if turn.message.parts:
            self._messages.append(turn.message)
            self.tokens += _tokens(turn.message)
            self.meter.add(turn.message)

    def conversation(self) -> Conversation:
        """The messages so far."""
        return Conversation(self._messages)

    def latest(self) -> list[Message]:
        """What users said, and the last reply with what the program answered to it.

        A small model often repeats the wrong reply that it sees, so that after each second one the reply is left out:
        then all is one message, because some models take no two in a row.
        """
        replies = [place for place, turn in enumerate(self._turns) if turn.kind is TurnKind.ASSISTANT]
        last = replies[-1] if replies else len(self._turns)
        sent = {TurnKind.USER, TurnKind.STEERING}
        before = [turn for turn in self._turns[:last] if turn.message.parts and turn.kind in sent]
        after = [turn for turn in self._turns[last + 1 :] if turn.message.parts]
        if len(replies) % 2 == 0:
            said = [*before, *after]
            return [Message.user("\n\n".join(turn.content for turn in said))] if said else []
        return [turn.message for turn in (*before, self._turns[last], *after)]

    def interrupt(self, at: datetime) -> None:
        """Answer calls that were cut short, because vendors refuse a call without a result."""
        calls = self._turns[-1].tool_calls if self._turns else ()
        if calls:
            results = tuple(map(interrupted, calls))
            self.add(Turn(TurnKind.TOOL_RESULTS, Message(Role.TOOL, results), at))

    def prune(self) -> int:
        """Drop the oldest half of what came after the first user turn; how many turns are gone, 0 if none can.

        A reply and the results of its calls stay together, and a cut before a user's turn is preferred
        (section "Context management" of the one-step agent specification).
        """
        starts = [
            index for index, turn in enumerate(self._turns) if index and turn.kind is TurnKind.ASSISTANT
        ]
        if len(starts) < 2:  # noqa: PLR2004  the only step is the one that matters
            return 0
        first_user = next(i for i, turn in enumerate(self._turns) if turn.kind is TurnKind.USER)
        half = starts[len(starts) // 2]
        users = [
            i
            for i, turn in enumerate(self._turns)
            if turn.kind in {TurnKind.USER, TurnKind.STEERING} and i > first_user
        ]
        cut = next((i for i in users if half <= i <= starts[-1]), half)
        kept = [*self._turns[: first_user + 1], *self._turns[cut:]]
        dropped = len(self._turns) - len(kept)
        self._turns, self._messages, self.tokens = [], [], 0  # new lists: requests under way keep the old
        self.meter = InputMeter()  # what was counted was longer
        for turn in kept:
            self.add(turn)
        return dropped


def interrupted(call: ToolCall) -> ToolResult:
    """The result of a call that was cut short."""
    return ToolResult(call.id, call.name, INTERRUPTED, is_error=True)


def _tokens(message: Message) -> int:
    characters = sum(map(_characters, message.parts))
    return -(-characters // CHARACTERS_PER_TOKEN)


def _characters(part: Part) -> int:
    match part:
        case Text(text) | Reasoning(text):
            return len(text)
        case ToolCall(name=name, arguments=arguments):
            return len(name) + sum(len(key) + len(str(value)) for key, value in arguments.items())
        case ToolResult(content=content, images=images):
            return len(content) + len(images) * TOKENS_PER_IMAGE * CHARACTERS_PER_TOKEN
        case Image():
            return TOKENS_PER_IMAGE * CHARACTERS_PER_TOKEN
