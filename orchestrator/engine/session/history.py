"""The conversation of a session: its turns, their size, and how to restore it from events."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.events import (
    CallStatus,
    Compacted,
    InputReceived,
    LoopDetected,
    MessageAdded,
    ProcessingEnded,
    ReplyReceived,
    SteeringInjected,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
)
from orchestrator.core.messages import Image, Message, Reasoning, Role, Text, ToolCall, ToolResult, Usage
from orchestrator.core.todos import TodoList
from orchestrator.engine.models.base import (
    BYTES_PER_TOKEN,
    CHARACTERS_PER_TOKEN,
    TOKENS_PER_IMAGE,
    head_size,
    size_of_json,
    size_of_text,
)
from orchestrator.engine.tools.base import is_mcp_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from orchestrator.core.events import Event
    from orchestrator.core.messages import JsonObject, Part
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Request


ContextTransform: TypeAlias = "Callable[[Sequence[Turn]], Sequence[Turn]]"
"""Selects the turns that a request includes from all turns of a session, without changing them."""

MOST_COMMANDS = 20
"""Number of commands whose last run a history keeps."""

INTERRUPTED_RESULT = "Interrupted before it ended. What it did until then is not known."


class TurnKind(StrEnum):
    """The kind of a turn, by its author and purpose."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL_RESULTS = "tool_results"
    SYSTEM = "system"
    """A message of the program: a reply was cut off, empty, or not in the contract's form."""
    STEERING = "steering"
    """A message during processing, or the warning about repeated calls. The model sees a user message."""
    SUMMARY = "summary"
    """A message that replaces the turns before it, except the last `Turn.keeps` of them."""


FROM_USER = frozenset({TurnKind.USER, TurnKind.STEERING})


@dataclass(frozen=True, slots=True)
class RanCommand:
    """A command that ran.

    Attributes:
        command: as the model wrote it; the tool's name if the tool takes no command.
        ending: the end of its output, which includes its exit code.
    """

    command: str
    ok: bool
    ending: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One entry of the conversation.

    Attributes:
        message: what is sent to the model.
        at: when it was added, in UTC.
        usage: tokens of the request that it answers; only on assistant turns.
        response_id: the provider's id of the reply, if there is one.
        ran: commands whose results it contains.
        keeps: on a summary: the number of turns before it that stay visible.
        recalled: the number of characters at the end of its text that come from memory.
    """

    kind: TurnKind
    message: Message
    at: datetime
    usage: Usage | None = None
    response_id: str | None = None
    ran: tuple[RanCommand, ...] = ()
    keeps: int = 0
    recalled: int = 0

    @property
    def content(self) -> str:
        """The turn's text."""
        return self.message.text

    @property
    def said(self) -> str:
        """The turn's text without the recalled part."""
        text = self.message.text
        return text[: len(text) - self.recalled].rstrip() if self.recalled else text

    @property
    def reasoning(self) -> str:
        """The readable part of the model's reasoning."""
        return "".join(part.text for part in self.message.parts if isinstance(part, Reasoning))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls that the model asked for."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolCall))

    @property
    def is_chat(self) -> bool:
        """Whether it is an input, or a reply without calls."""
        return self.kind in FROM_USER or (self.kind is TurnKind.ASSISTANT and not self.tool_calls)

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """The results of calls in the message."""
        return tuple(part for part in self.message.parts if isinstance(part, ToolResult))


def recent(turns: Sequence[Turn], limit: int) -> Sequence[Turn]:
    """Return the newest turns, including at most `limit` inputs and replies without calls.

    Calls, their results and messages of the program are included and do not count.
    """
    left, first = limit, len(turns)
    for index in range(len(turns) - 1, -1, -1):
        if turns[index].is_chat:
            if not left:
                break
            left, first = left - 1, index
    return turns[first:]


class History:
    """The turns of a session, and running counts of their length in tokens.

    Args:
        turns: of an earlier session, in a form that vendors accept (`repaired_turns`).
        transform: selects the turns that a request includes; by default all. It must return every turn after the newest
            summary unchanged, because it is called only when a summary is added.

    Attributes:
        tokens: the approximate length of the conversation part of a request.
        chat_turns: the number of inputs, and of replies without calls, in a request.
        meter: the upper estimate of input tokens, used for reservations.
        generation: how many times the beginning of the requests was replaced.
    """

    def __init__(self, turns: Iterable[Turn] = (), transform: ContextTransform = lambda turns: turns) -> None:
        self._transform = transform
        self._turns: list[Turn] = []
        self._user_turns: list[tuple[int, Turn]] = []
        self._commands: dict[str, RanCommand] = {}
        self._messages: list[Message] = []
        self.tokens = self.chat_turns = self.generation = 0
        self.meter = InputMeter()
        for turn in turns:
            self.add(turn)

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def turns(self) -> Sequence[Turn]:
        """All turns, oldest first. Do not change the sequence."""
        return self._turns

    @property
    def commands(self) -> Sequence[RanCommand]:
        """The last run of each command, oldest run first; at most the newest `MOST_COMMANDS`."""
        return list(self._commands.values())

    def user_turns_before(self, position: int) -> list[Turn]:
        """Return the user turns before this position."""
        return [turn for at, turn in self._user_turns if at < position]

    def add(self, turn: Turn) -> None:
        """Append a turn. A turn without content, which no vendor accepts, is kept but not sent."""
        if turn.kind in FROM_USER:
            self._user_turns.append((len(self._turns), turn))
        for ran in turn.ran:
            self._commands.pop(ran.command, None)
            self._commands[ran.command] = ran
            if len(self._commands) > MOST_COMMANDS:
                del self._commands[next(iter(self._commands))]
        self._turns.append(turn)
        if turn.kind is TurnKind.SUMMARY:
            self._rebuild()
        else:
            self._show(turn)

    def _show(self, turn: Turn) -> None:
        if not turn.message.parts:
            return
        self._messages.append(turn.message)
        self.chat_turns += turn.is_chat
        self.tokens += -(-sum(map(_characters, turn.message.parts)) // CHARACTERS_PER_TOKEN)
        self.meter.add(turn.message)

    def _rebuild(self) -> None:
        """Rebuild the messages from the turns that the transform selects."""
        self._messages, self.tokens, self.chat_turns = [], 0, 0
        self.generation += 1
        self.meter.reset_size()
        for turn in self.shown:
            self._show(turn)
        self.meter.re_estimate()

    @property
    def shown(self) -> Sequence[Turn]:
        """The turns that a request includes."""
        return self._transform(self._turns)

    def recent(self, limit: int) -> Sequence[Turn]:
        """Return the newest turns; see the function `recent`."""
        return recent(self._turns, limit)

    def context(self, contract: Contract) -> Sequence[Message]:
        """Return the messages of the next request. Messages that it omits stay in the history."""
        if contract.forgets:
            return self._latest(with_reply=not contract.leaves_out_reply, with_task=not contract.guesses)
        return list(self._messages)

    def _latest(self, *, with_reply: bool, with_task: bool) -> list[Message]:
        """Return the user messages, the first one only `with_task`, and the program's answer to the last reply.

        Without that reply everything is joined into one message, because some models refuse two messages of
        one role in a row.
        """
        turns = self.shown
        replies = [place for place, turn in enumerate(turns) if turn.kind is TurnKind.ASSISTANT]
        last = replies[-1] if replies else len(turns)
        sent = FROM_USER | {TurnKind.SUMMARY}
        before = [turn for turn in turns[:last] if turn.message.parts and turn.kind in sent]
        after = [turn for turn in turns[last + 1 :] if turn.message.parts]
        before = before if with_task else before[1:]
        if with_reply and replies:
            return [turn.message for turn in (*before, turns[last], *after)]
        said = [*before, *after]
        return [Message.user("\n\n".join(turn.content for turn in said))] if said else []

    def interrupt(self, at: datetime) -> None:
        """Add results for interrupted calls, because vendors refuse a call without a result."""
        calls = self._turns[-1].tool_calls if self._turns else ()
        if calls:
            results = tuple(map(interrupted, calls))
            self.add(Turn(TurnKind.TOOL_RESULTS, Message(Role.TOOL, results), at))

    def foreign_texts(self) -> Iterator[str]:
        """Yield every text of the conversation that the model did not write."""
        for turn in self.turns:
            if turn.kind is not TurnKind.ASSISTANT:
                yield turn.content
                yield from (result.content for result in turn.results)

    def prune(self) -> int:
        """Drop the oldest half of the turns after the first user turn; return how many were dropped.

        A reply and the results of its calls stay together, and a cut before a user's turn is preferred
        (section "Context management" of the one-step agent specification). With a single reply nothing is
        dropped.
        """
        kinds = [turn.kind for turn in self._turns]
        starts = [index for index, kind in enumerate(kinds) if index and kind is TurnKind.ASSISTANT]
        if len(starts) < 2:  # noqa: PLR2004  the only step is the one that matters
            return 0
        first_user, half = kinds.index(TurnKind.USER), starts[len(starts) // 2]
        later = range(max(half, first_user + 1), starts[-1] + 1)
        cut = next((index for index in later if kinds[index] in FROM_USER), half)
        kept = [*self._turns[: first_user + 1], *self._turns[cut:]]
        dropped = len(self._turns) - len(kept)
        self._turns, self._user_turns, self._messages, self.tokens, self.steps = [], [], [], 0, 0
        self.generation += 1
        self.meter = InputMeter()  # the old counts belong to a longer conversation
        for turn in kept:
            self.add(turn)
        return dropped


_ENDING_CHARS = 300


def ran_command(name: str, arguments: JsonObject, output: str, *, ok: bool) -> RanCommand | None:
    """Return the command that a call ran on this machine; None if it ran none."""
    command = arguments.get("command")
    if not isinstance(command, str) or is_mcp_tool(name):
        if name != "run_tests":  # the only tool that runs a command without taking one
            return None
        command = name
    return RanCommand(command, ok, ending_of(output))


def ending_of(output: str) -> str:
    """Return the end of a command's output with its exit code, which shows how the command went."""
    return output.rstrip()[-_ENDING_CHARS:]


def commands_of(calls: Iterable[ToolCall], results: Iterable[ToolResult]) -> tuple[RanCommand, ...]:
    """Return the commands that the calls ran, each with the end of its result."""
    pairs = zip(calls, results, strict=True)
    found = (ran_command(call.name, call.arguments, one.content, ok=not one.is_error) for call, one in pairs)
    return tuple(one for one in found if one)


def interrupted(call: ToolCall) -> ToolResult:
    """Return the result of an interrupted call."""
    return ToolResult(call.id, call.name, INTERRUPTED_RESULT, is_error=True)


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


_BYTES_PER_PART = 32
IMAGE_BYTES = 2 * TOKENS_PER_IMAGE * BYTES_PER_TOKEN
"""Size of an image, as bytes of text."""

_MOST_BYTES_PER_TOKEN = 32
"""Upper bound for any text. A provider that reports fewer tokens has not counted all of its input."""

_MOST_COUNTS = 8


@dataclass(frozen=True, slots=True)
class _Count:
    """A provider's token count at one length of the conversation.

    Attributes:
        tokens: upper bound of the total.
        likely: the provider's own number, or the most likely one after a recalculation.
        at_bytes: the length of the conversation.
        fixed_bytes: the size of the rest of the request.
        tokens_a_byte: upper bound of the tokens in a byte.
        rate: the measured tokens in a byte.
    """

    tokens: int
    likely: int
    at_bytes: int
    fixed_bytes: int
    tokens_a_byte: float
    rate: float


class InputMeter:
    """Estimates an upper bound of the tokens that the next request reads.

    After a reply, the provider's own count of that request and its reply replaces the estimate for everything
    sent so far. Only later additions are estimated, at `BYTES_PER_TOKEN`, or at that request's bytes per
    token if those are fewer.

    Counts are kept by the name of the model in the request. The name in the reply does not suffice: it may be
    an alias, and a router may choose another model each time, whose counts of the same text differ. Of all
    models that have answered under the requested name, the one with the highest estimate counts. A model that
    never answered is estimated entirely.

    Attributes:
        longest_reply: the longest reply so far, in tokens: some servers enforce no limit, and some models are
            unknown.
    """

    def __init__(self) -> None:
        self.longest_reply = 0
        self._bytes = 0
        self._counts: dict[tuple[str, str], _Count] = {}

    def add(self, message: Message) -> None:
        """Add the size of a message."""
        self._bytes += message_bytes(message)

    def record_count(self, usage: Usage, asked: str, answered: str, fixed_bytes: int) -> None:
        """Record the provider's count of a reply that was added. Ignore an impossible count.

        Args:
            asked: the requested model, as the program names it.
            answered: the model that the provider names.
            fixed_bytes: the size of the request without the conversation.
        """
        self.longest_reply = max(self.longest_reply, usage.output_tokens)
        size = self._bytes + fixed_bytes
        if usage.input_tokens <= 0 or usage.total_tokens * _MOST_BYTES_PER_TOKEN < size:
            return
        rate = usage.total_tokens / max(1, size)
        most = max(1 / BYTES_PER_TOKEN, usage.input_tokens / max(1, size))
        self._counts.pop((asked, answered), None)
        total = usage.total_tokens
        self._counts[asked, answered] = _Count(total, total, self._bytes, fixed_bytes, most, rate)
        if len(self._counts) > _MOST_COUNTS:
            del self._counts[next(iter(self._counts))]

    def reset_size(self) -> None:
        """Start over with an empty conversation; call `re_estimate` when its messages are added."""
        self._bytes = 0

    def re_estimate(self) -> None:
        """Re-estimate all counts for the new conversation, at the measured rates."""
        for name, count in self._counts.items():
            size = self._bytes + count.fixed_bytes
            self._counts[name] = replace(
                count,
                tokens=math.ceil(size * count.tokens_a_byte),
                likely=math.ceil(size * count.rate),
                at_bytes=self._bytes,
            )

    def likely_tokens(self, asked: str, fixed_bytes: int) -> int:
        """Return the most likely number of tokens of the next request."""
        size = self._bytes
        counted = [one.likely + math.ceil((size - one.at_bytes) * one.rate) for one in self._counts_of(asked)]
        return max(counted, default=math.ceil((size + fixed_bytes) * self.rate(asked)))

    def rate(self, asked: str) -> float:
        """Return the most likely number of tokens in a byte of the conversation."""
        return max((count.rate for count in self._counts_of(asked)), default=1 / CHARACTERS_PER_TOKEN)

    def copy(self) -> InputMeter:
        """Return a copy, for a request outside of the conversation."""
        made = InputMeter()
        made.longest_reply, made._bytes, made._counts = self.longest_reply, self._bytes, dict(self._counts)
        return made

    def has_count_of(self, asked: str) -> bool:
        """Return whether a provider has reported counts for this model."""
        return bool(self._counts_of(asked))

    def _counts_of(self, asked: str) -> list[_Count]:
        return [count for (name, _answered), count in self._counts.items() if name == asked]

    def tokens(self, asked: str, fixed_bytes: int, more_bytes: int = 0) -> int:
        """Return an upper bound of the next request's tokens.

        Args:
            more_bytes: the size of what is still to be added to the conversation.
        """
        size = self._bytes + more_bytes
        known = self._counts_of(asked)
        if not known:
            rates = (count.tokens_a_byte for count in self._counts.values())
            return math.ceil((size + fixed_bytes) * max(rates, default=1 / BYTES_PER_TOKEN))
        return max(one.tokens + math.ceil((size - one.at_bytes) * one.tokens_a_byte) for one in known)


def fixed_bytes(request: Request) -> int:
    """Return the size of a request without the conversation, each part with its markup."""
    return head_size(request) + _BYTES_PER_PART * (len(request.tools) + 1)


def message_bytes(message: Message) -> int:
    """Return the size of a message, with images at their token cost."""
    return sum(map(_part_bytes, message.parts)) + _BYTES_PER_PART * (len(message.parts) + 1)


def _part_bytes(part: Part) -> int:
    match part:
        case Text(text):
            return size_of_text(text)
        case Reasoning(text, opaque):
            return size_of_text(text) + size_of_json(opaque)
        case ToolCall(id=name, name=tool, arguments=arguments):
            return size_of_text(name) + size_of_text(tool) + size_of_json(arguments)
        case ToolResult(call_id=name, content=content, images=images):
            return size_of_text(name) + size_of_text(content) + len(images) * IMAGE_BYTES
        case Image():
            return IMAGE_BYTES


_LONG_AGO = datetime.fromtimestamp(0, UTC)

_ALLOWED_PARTS = {
    Role.USER: Text | Image,
    Role.ASSISTANT: Text | Reasoning | ToolCall,
    Role.TOOL: ToolResult | Text,
}
"""The kinds of parts that a message of each role may have."""


def history_of(events: Iterable[Event], at: datetime = _LONG_AGO) -> list[Turn]:
    """Return the turns of a session from its events, in their order.

    The messages are those that were exchanged with the model. Subagents' events do not count. Text that a
    journal redacted stays redacted.

    Args:
        events: of one run, from its journal; `MessageAdded` and `ReplyReceived` alone suffice.
        at: the time of all turns, because events have none.
    """
    turns: list[Turn] = []
    has_input, ran = False, False  # since the last reply
    started: dict[str, ToolCallStarted] = {}
    commands: list[RanCommand] = []
    for event in events:
        match event:
            case InputReceived() | ProcessingEnded():
                has_input = True  # a journal has only the second: the next message is an input
            case ToolCallStarted(call_id):
                started[call_id] = event
            case ToolCallEnded(call_id, name, status, output):
                ran = True
                call = started.pop(call_id, None)
                found = call and ran_command(name, call.arguments, output, ok=status is CallStatus.OK)
                commands += [found] if found else []
            case MessageAdded(message, recalled):
                kind = _kind(message, has_input=has_input or not turns, ran=ran)
                turns.append(Turn(kind, message, at, ran=tuple(commands), recalled=max(recalled, 0)))
                has_input = ran = False
                commands.clear()
            case Compacted(turns=keeps, summary=text, images=images):
                shown = images_of(turns[: max(len(turns) - keeps, 0)])[:images] if images else ()
                turns.append(Turn(TurnKind.SUMMARY, summary_message(text, shown), at, keeps=keeps))
            case SteeringInjected() | LoopDetected():
                if turns and turns[-1].kind is not TurnKind.ASSISTANT:
                    turns[-1] = replace(turns[-1], kind=TurnKind.STEERING)
            case ReplyReceived(message=message, usage=usage):
                turns.append(Turn(TurnKind.ASSISTANT, message, at, usage))
                has_input = ran = False
            case _:
                pass
    return turns


def images_of(turns: Iterable[Turn]) -> list[Image]:
    """Return the images in the user turns."""
    user_turns = (turn for turn in turns if turn.kind in FROM_USER)
    return [part for turn in user_turns for part in turn.message.parts if isinstance(part, Image)]


def summary_message(words: str, images: Iterable[Image]) -> Message:
    """Return the message of a summary: its text, and images of the turns that it replaces."""
    return Message(Role.USER, (Text(words), *images))


def todos_of(events: Iterable[Event]) -> TodoList:
    """Return the model's to-do list after these events. Subagents' lists do not count."""
    latest = TodosChanged(())
    for event in events:
        if isinstance(event, TodosChanged):
            latest = event
    return TodoList(latest.items, latest.added)


def _kind(message: Message, *, has_input: bool, ran: bool) -> TurnKind:
    if message.role is Role.ASSISTANT:
        return TurnKind.ASSISTANT
    if has_input and message.role is Role.USER:
        return TurnKind.USER
    return TurnKind.TOOL_RESULTS if ran or message.role is Role.TOOL else TurnKind.SYSTEM


def repaired_turns(turns: Iterable[Turn], at: datetime) -> list[Turn]:
    """Return the turns in a form that every vendor accepts.

    The conversation begins with a user's message: earlier turns are dropped. Each call is followed directly
    by one result; a missing result becomes an interrupted one. Results without their calls, parts that a
    message of its role cannot have, and turns without content are dropped.

    Args:
        at: the time of the results that are added.
    """
    kept: list[Turn] = []
    no_results = Turn(TurnKind.TOOL_RESULTS, Message(Role.TOOL, ()), at)
    for turn in map(_with_allowed_parts, turns):
        if not turn.message.parts or (not kept and turn.message.role is not Role.USER):
            continue
        calls = _open_calls(kept)
        if turn.message.role is Role.TOOL:
            if calls:
                kept.append(_with_all_results(turn, calls))
            continue
        if calls:
            kept.append(_with_all_results(no_results, calls))
        kept.append(turn)
    if calls := _open_calls(kept):
        kept.append(_with_all_results(no_results, calls))
    return kept


WITHDRAWN = "earlier_tool"
"""The name of a tool in earlier turns that the model is not shown any more."""


def without_names(turns: Iterable[Turn], shown: Collection[str], hidden: Iterable[str]) -> list[Turn]:
    """Return the turns without the names of tools that the model is not shown, except in the words of people.

    Args:
        shown: the names of the tools that it is shown.
        hidden: the names of other tools that texts may have.
    """
    turns = list(turns)
    parts = [part for turn in turns for part in turn.message.parts]
    used = {part.name for part in parts if isinstance(part, ToolCall | ToolResult)}
    names = sorted({*hidden, *used} - {*shown})
    if not names:
        return turns

    def changed(part: Part, kind: TurnKind) -> Part:
        match part:
            case Text(text):
                return Text(re.sub(_mention(names, kind), rf"\g<1>{WITHDRAWN}", text))
            case ToolCall() | ToolResult() if part.name in names:
                return replace(part, name=WITHDRAWN)
            case _:
                return part

    return [
        turn
        if turn.kind in FROM_USER
        else replace(
            turn,
            message=replace(
                turn.message, parts=tuple(changed(part, turn.kind) for part in turn.message.parts)
            ),
        )
        for turn in turns
    ]


def _mention(names: Sequence[str], kind: TurnKind) -> str:
    """Return an expression for these names where a turn names a tool; files and arguments stay as they are."""
    any_of = "|".join(map(re.escape, names))
    match kind:
        case TurnKind.ASSISTANT:  # a plan in JSON
            return rf'("(?:tool_name|tool|name|function)"\s*+:\s*+")(?:{any_of})(?=")'
        case TurnKind.TOOL_RESULTS:  # the line above a result
            return rf"(?m:^)(\d{{1,4}}\. `)(?:{any_of})(?=`: )"
        case _:
            return rf"(`)(?:{any_of})(?=`)"


def _with_allowed_parts(turn: Turn) -> Turn:
    allowed = _ALLOWED_PARTS[turn.message.role]
    parts = tuple(part for part in turn.message.parts if isinstance(part, allowed))
    return turn if parts == turn.message.parts else replace(turn, message=replace(turn.message, parts=parts))


def _open_calls(kept: Sequence[Turn]) -> Turn | None:
    """Return the last turn if it has calls, which are still unanswered."""
    return kept[-1] if kept and kept[-1].tool_calls else None


def _with_all_results(turn: Turn, calls: Turn) -> Turn:
    """Return the results in the order of the calls, with missing ones added; other parts follow."""
    results = {result.call_id: result for result in turn.results}
    each = tuple(results.get(call.id) or interrupted(call) for call in calls.tool_calls)
    others = tuple(part for part in turn.message.parts if not isinstance(part, ToolResult))
    return replace(turn, message=replace(turn.message, parts=(*each, *others)))
