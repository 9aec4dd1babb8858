"""Compaction: select the turns that stay, request a summary of the others, check it, and replace them with it."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.core.errors import ModelError, ToolError
from orchestrator.core.events import (
    SUMMARY_AGENT,
    Compacted,
    ReasoningDelta,
    SubagentEvent,
    TextDelta,
    TextStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Message
from orchestrator.core.prompts import fenced, one_line, render, shown_path
from orchestrator.core.todos import TodoStatus
from orchestrator.engine.models.base import ToolChoice, next_name, size_of_text
from orchestrator.engine.session.budget import (
    MIN_REPLY_TOKENS,
    Budget,
    Limits,
    NoRoomError,
    Reservation,
    reserve,
)
from orchestrator.engine.session.event_bus import stop
from orchestrator.engine.session.history import (
    FROM_USER,
    IMAGE_BYTES,
    History,
    Turn,
    TurnKind,
    images_of,
    message_bytes,
    recent,
    summary_message,
)
from orchestrator.engine.session.request import SentRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Response
    from orchestrator.engine.session.config import CompactionPolicy, SessionParts
    from orchestrator.engine.session.history import RanCommand
    from orchestrator.engine.session.request import NextRequest


LEAST_BYTES = 1_024
"""Minimum size of the known facts, however small the room is."""

WEIGHTS: Mapping[str, int] = {
    "task": 6,
    "orders": 6,
    "files": 6,
    "commands": 6,
    "todos": 4,
    "skills": 4,
    "more": 4,
    "plan": 1,
    "summary": 5,
    "missing": 1,
}
"""Weight of each part. A part that wants less than its share of the room leaves the rest to the others."""

_LEAST_TEXT_BYTES = 80
"""Minimum size of one text among several; if there is less room for each, fewer texts are shown."""
_LEAST_COMMAND_BYTES = 120
_LEAST_BLOCK_BYTES = 16
_MARKED_CUT_BYTES = 200
_MARK_BYTES = 60
_NAME_CHARS = 200
_MARKUP_BYTES = 24
"""Size of the markup around a file or a command in the list."""
_BETWEEN_BYTES = 2
_CONTINUES_MASK, _CONTINUES = 0b1100_0000, 0b1000_0000
"""What tells a byte that continues a character in UTF-8."""

_Name = TypeVar("_Name")


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The known facts about the replaced turns.

    Attributes:
        orders: user messages after the task, oldest first.
        files: paths that were changed, each with its state in words.
        commands: in the order in which they ran.
        plan: the last plan that the model stated.
        todos: open items of the model's to-do list.
        skills: the skill texts that the model was given, newest first; each is shown whole or not at all.
        more: facts of the host program, as Markdown.
        summary: in the model's words.
        missing: paths in the summary at which there is no file.
        images: number of users' images that are sent with the message; `images_left_out` do not.
    """

    task: str = ""
    orders: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    commands: Sequence[RanCommand] = ()
    plan: str = ""
    todos: Sequence[str] = ()
    skills: Sequence[str] = ()
    more: str = ""
    summary: str = ""
    missing: Sequence[str] = ()
    images: int = 0
    images_left_out: int = 0


def message_within(known: KnownFacts, room: int) -> str:
    """Return the message in at most `room` bytes, with at least `LEAST_BYTES` of facts in a tiny room."""
    files = [_FileLine(shown_path(path), state) for path, state in known.files]
    commands = [
        _CommandLine(one_line(ran.command, limit=_NAME_CHARS), ran.ok, fenced(ran.ending), ran.ending)
        for ran in known.commands
    ]
    all_orders = [order for order in known.orders if order.strip()]
    missing = [_Line(f"`{shown_path(path)}`") for path in known.missing]
    skills = [_Line(words) for words in known.skills]
    listed: dict[str, Sequence[_Line | _FileLine | _CommandLine]] = {
        "files": files,
        "commands": commands,
        "skills": skills,
        "missing": missing,
    }
    most = _shares(known, all_orders, listed, room)
    orders = blocks_within(all_orders, most["orders"])
    shown_files = _first_within(files, most["files"])
    shown_commands = _newest_within(commands, most["commands"])
    todos = _lines_within(known.todos, most["todos"])
    return _rendered(
        task=block_within(known.task, most["task"]),
        orders=orders,
        more_orders=len(all_orders) - len(orders),
        files=shown_files,
        more_files=len(files) - len(shown_files),
        commands=shown_commands,
        more_commands=len(commands) - len(shown_commands),
        plan=block_within(known.plan, most["plan"]),
        todos=block_within("\n".join(todos), most["todos"]),
        more_todos=len(known.todos) - len(todos),
        skills=[line.text for line in _first_within(skills, most["skills"])],
        more=known.more
        if size_of_text(known.more) <= most["more"]
        else block_within(known.more, most["more"]),
        summary=block_within(known.summary, most["summary"]),
        missing=[line.text for line in _first_within(missing, most["missing"])],
        images=known.images,
        images_left_out=known.images_left_out,
    )


def _shares(
    known: KnownFacts,
    orders: Sequence[str],
    listed: Mapping[str, Sequence[_Line | _FileLine | _CommandLine]],
    room: int,
) -> dict[str, int]:
    wanted = {
        "task": _block_size(known.task),
        "orders": sum(_block_size(order) + _BETWEEN_BYTES for order in orders),
        "todos": _block_size("\n".join(known.todos)),
        "more": size_of_text(known.more),
        "plan": _block_size(known.plan),
        "summary": _block_size(known.summary),
        **{name: sum(line.size for line in lines) for name, lines in listed.items()},
    }
    return fair_shares(wanted, WEIGHTS, max(room - _frame_bytes(wanted), LEAST_BYTES))


def fair_shares(wanted: Mapping[_Name, int], weights: Mapping[_Name, int], room: int) -> dict[_Name, int]:
    """Return how much of the room each part gets: all that it wants, or at least its weight's share.

    No part gets more than it wants, and the sum is at most the room. No room is unused while a part wants
    more.
    """
    given: dict[_Name, int] = {}
    open_parts, left = dict(wanted), max(room, 0)
    while open_parts:
        weight = sum(weights[name] for name in open_parts)
        fitting = [name for name, size in open_parts.items() if size * weight <= left * weights[name]]
        if not fitting:
            return given | {name: left * weights[name] // weight for name in open_parts}
        for name in fitting:
            given[name] = open_parts.pop(name)
        left = max(room, 0) - sum(given.values())
    return given


def both_ends(text: str, most: int) -> str:
    """Return both ends of a text that is longer than `most` bytes, and the number of missing characters."""
    if size_of_text(text) <= most:
        return text
    if most < _MARKED_CUT_BYTES:
        return _beginning(text, most)
    half = (most - _MARK_BYTES) // 2
    head, tail = _beginning(text, half), _beginning(text[::-1], half)[::-1]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters are left out here ...]\n{tail}"


def _beginning(text: str, most: int) -> str:
    """Return as many whole characters as fit into `most` bytes."""
    data = text[: max(most, 0)].encode("utf-8", "surrogatepass")
    end = min(max(most, 0), len(data))
    while end < len(data) and data[end] & _CONTINUES_MASK == _CONTINUES:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")


def block_within(text: str, most: int) -> str:
    """Return the text in a fence that it cannot close, in at most `most` bytes; empty if little would fit."""
    if not text.strip():
        return ""
    room, block = most, fenced(text)
    while size_of_text(block) > most:
        if room < _LEAST_BLOCK_BYTES:
            return ""
        block = fenced(both_ends(text, room))
        room -= max(size_of_text(block) - most, 1)
    return block


def _equal_shares(sizes: Sequence[int], least: int, most: int) -> list[int]:
    """Return the room of as many texts, in their order, as fit if each needs at most `least` bytes."""
    count, left = 0, most
    for size in sizes:
        left -= min(size, least)
        if left < 0:
            break
        count += 1
    wanted = dict(enumerate(sizes[:count]))
    shares = fair_shares(wanted, dict.fromkeys(wanted, 1), most)
    return [shares[index] for index in range(count)]


def blocks_within(texts: Sequence[str], most: int) -> list[str]:
    """Return texts as fenced blocks, in at most `most` bytes altogether.

    Long texts are cut before short ones, and the oldest are dropped first.
    """
    newest_first = texts[::-1]
    sizes = [_block_size(text) + _BETWEEN_BYTES for text in newest_first]
    shares = _equal_shares(sizes, _LEAST_TEXT_BYTES, most)
    blocks = [
        block_within(text, share - _BETWEEN_BYTES) for text, share in zip(newest_first, shares, strict=False)
    ]
    return [block for block in reversed(blocks) if block]


def _lines_within(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines that fit; the longest ones are cut at their end."""
    if _block_size("\n".join(lines)) <= most:
        return list(lines)
    sizes = [size_of_text(line) + 1 for line in lines]
    shares = _equal_shares(sizes, _LEAST_TEXT_BYTES, most - _LEAST_BLOCK_BYTES)
    return [_cut(line, share - 1) for line, share in zip(lines, shares, strict=False)]


def _cut(line: str, most: int) -> str:
    if size_of_text(line) <= most:
        return line
    return f"{_beginning(line, most - 3)}…"


@dataclass(frozen=True, slots=True)
class _Line:
    text: str

    @property
    def size(self) -> int:
        return size_of_text(self.text) + _BETWEEN_BYTES


@dataclass(frozen=True, slots=True)
class _FileLine:
    path: str
    state: str

    @property
    def size(self) -> int:
        return size_of_text(self.path) + size_of_text(self.state) + _MARKUP_BYTES


@dataclass(frozen=True, slots=True)
class _CommandLine:
    command: str
    ok: bool
    block: str
    ending: str

    @property
    def size(self) -> int:
        return size_of_text(self.command) + size_of_text(self.block) + _MARKUP_BYTES

    def within(self, most: int) -> _CommandLine:
        """Return the line with less output, and with less of the command if that alone is too long."""
        if self.size <= most:
            return self
        command = _cut(self.command, most - _MARKUP_BYTES)
        left = most - _MARKUP_BYTES - size_of_text(command)
        ending = _beginning(self.ending[::-1], left - _LEAST_BLOCK_BYTES)[::-1]
        return _CommandLine(command, self.ok, block_within(ending, left), ending)


_Listed = TypeVar("_Listed", _Line, _FileLine)


def _first_within(lines: Iterable[_Listed], most: int) -> list[_Listed]:
    """Return as many of the first lines as fit."""
    kept: list[_Listed] = []
    for line in lines:
        most -= line.size
        if most < 0:
            break
        kept.append(line)
    return kept


def _newest_within(lines: Sequence[_CommandLine], most: int) -> list[_CommandLine]:
    """Return the newest commands that have room for a line, each with as much of its output's end as fits."""
    newest_first = lines[::-1]
    shares = _equal_shares([line.size for line in newest_first], _LEAST_COMMAND_BYTES, most)
    return [line.within(share) for line, share in zip(newest_first, shares, strict=False)][::-1]


def _block_size(text: str) -> int:
    return size_of_text(fenced(text)) if text.strip() else 0


def _rendered(**values: Any) -> str:
    facts = render("agent/host_facts", **values)
    return render("agent/compacted", facts=facts, **values)


def _frame_bytes(wanted: Mapping[str, int]) -> int:
    """Return the size of a message that has these parts, without the parts."""
    many = 10**9
    has = {name: bool(size) for name, size in wanted.items()}
    return size_of_text(
        _rendered(
            task="-" * has["task"],
            orders=["-"] * has["orders"],
            more_orders=many * has["orders"],
            files=[_FileLine("-", "-")] * has["files"],
            more_files=many * has["files"],
            commands=[_CommandLine("-", ok=False, block="-", ending="-")] * has["commands"],
            more_commands=many * has["commands"],
            plan="-" * has["plan"],
            todos="-" * has["todos"],
            more_todos=many * has["todos"],
            skills=["-"] * has["skills"],
            more="-" * has["more"],
            summary="-" * has["summary"],
            missing=["-"] * has["missing"],
            images=many,
            images_left_out=many,
        )
    )


_NOT_FIRST = frozenset({TurnKind.TOOL_RESULTS, TurnKind.SUMMARY})
"""Kinds that no selection begins with, so that no result is left without its call."""


def summary_plus_recent(turns: Sequence[Turn]) -> Sequence[Turn]:
    """Return the newest summary, the turns before it that it keeps, and all turns after it."""
    newest = next((i for i in range(len(turns) - 1, -1, -1) if turns[i].kind is TurnKind.SUMMARY), None)
    if newest is None:
        return turns
    first = whole_from(turns, max(newest - turns[newest].keeps, 0))
    kept = [turn for turn in turns[first:newest] if turn.kind is not TurnKind.SUMMARY]
    return [turns[newest], *kept, *turns[newest + 1 :]]


def whole_from(turns: Sequence[Turn], first: int) -> int:
    """Return the first position from `first` on at which a cut does not separate a call from its result."""
    while first < len(turns) and turns[first].kind in _NOT_FIRST:
        first += 1
    return first


def newest_within(turns: Sequence[Turn], size: Callable[[Turn], int], most: int) -> int:
    """Return the start of the longest run of newest turns whose total size is at most `most`.

    A run does not begin with results whose calls are left out.
    """
    first = len(turns)
    left = most
    for index in range(len(turns) - 1, -1, -1):
        left -= size(turns[index])
        if left < 0:
            break
        if turns[index].kind not in _NOT_FIRST:
            first = index
    return first


ATTEMPTS = 2
"""One retry: after two unusable summaries no further one is requested."""
MOST_SHARE_AFTER = 0.9
"""Share of the former length: a conversation that would stay longer is left as it is."""
MOST_SUMMARY_TOKENS = 8_192
LEAST_SUMMARY_TOKENS = 256
_WORDS_A_TOKEN = 0.5
"""Words to ask for: a token is about three quarters of a word, and models exceed requested lengths."""
_LEAST_ROOM = 1 / 4
"""Share of the due length that remains for messages, however long the system prompt and the tools are."""
_REPLY_SHARE = 1 / 8
"""Share of the window that must remain for a reply, unless a shorter reply is requested."""
_SHORTER_REPLY = 4
"""The part of the reply that is asked for after a refusal."""
_MILD_REFUSALS, _MILD_SHARE = 3, 2 / 3
"""Until this refusal of one input, this share of what was refused is left for the messages."""
_WORDS_SHARE = 3 / 4
"""Share of the room for messages that the compacted message may take, its images included."""
_IMAGES_SHARE = 1 / 3
"""Share of the room for messages that users' images may take."""
_MOST_FILES = 400
_MOST_FILE_BYTES = 10_000_000
_MOST_NAMED = 100
_HEADING = re.compile(r"^## .+$", re.MULTILINE)
_NAMED_PATH = re.compile(r"`([\w.@+-]+(?:/[\w.@+-]+)*\.\w+)`|(?<![\w/.:@+-])((?:[\w.@+-]+/)+[\w@+-]+\.\w+)")
_TEXT_EVENTS = (TextStarted, TextDelta, ReasoningDelta)


@dataclass(frozen=True, slots=True)
class _Target:
    """The conversation to compact.

    Attributes:
        generation: of the history; after a change the conversation begins differently.
        until: turns before this position are summarized.
        by_person: whether a person requested it, so that it is done however much room there is.
    """

    reason: str
    generation: int
    until: int
    by_person: bool = False


@dataclass(frozen=True, slots=True)
class _Draft:
    """The result of a request for a summary. `text` is empty if no summary is usable; `problem` says why."""

    text: str
    problem: str = ""
    is_answered: bool = True


class Compaction:
    """Keeps one conversation short.

    A summary is written in the background while the loop goes on, and is used before the next request is
    sent. The loop waits for it only if that request would have no room.

    Args:
        budget: counts the cost of the summaries.

    Attributes:
        policy: when it is compacted, and how much of it stays; None never compacts it.
        plan: the last plan that the model stated.
    """

    def __init__(self, parts: SessionParts, history: History, budget: Budget, emit: Emit) -> None:
        self.policy = parts.config.compaction
        self._host, self._environment, self._clock = parts.host, parts.environment, parts.clock
        self._reads_images = parts.profile.supports_images
        self._history, self._budget, self._emit = history, budget, emit
        self._task: asyncio.Task[_Draft] | None = None
        self._target: _Target | None = None
        self._ceiling: int | None = None
        # How often the request after a reply was refused as too long, and the place of that reply.
        self._refused, self._refused_after = 0, -1
        self._is_mild = False
        self._due_from = 0
        self.plan = ""

    async def close(self) -> None:
        """Cancel a summary that is being written."""
        await stop(self._task)

    async def prepare(self, request: NextRequest) -> NextRequest:
        """Compact the conversation, or begin to, if the next request requires it; return the request.

        It is the same one, or one with a shorter reply if that leaves room for a long input as it is.

        Raises:
            ConfigurationError: a prompt cannot be used.
        """
        if self.policy is None:
            return request
        if self._task and self._task.done():
            await self._use_written(request)
        if self._lacks_room(request) or (self._refused == 1 and self._refused_after == self._last_reply()):
            if shorter := self._with_shorter_reply(request):
                return shorter
            await self.make_room(request, "no room is left for a reply")
        elif self._task is None:
            await self._begin(request, self.policy)
        return request

    def _with_shorter_reply(self, request: NextRequest) -> NextRequest | None:
        """Return the request with the longest reply that fits, if a compaction would cut the newest input; else None."""
        left = (self._window(request) or 0) - self._tokens(request)
        if left < MIN_REPLY_TOKENS or not self._would_cut_input(request):
            return None
        most = min(left, request.fixed.max_output_tokens or left)
        return replace(request, fixed=replace(request.fixed, max_output_tokens=most))

    def _would_cut_input(self, request: NextRequest) -> bool:
        """Return whether a compaction would cut what the user said since the last reply."""
        turns, last = self._history.turns, self._last_reply()
        newest = [turn for turn in turns[last + 1 if last else 0 :] if turn.kind in FROM_USER]
        size = int(sum(message_bytes(turn.message) for turn in newest) * self._rate(request))
        return size > self._room(request)

    async def make_room(self, request: NextRequest, reason: str, *, again: bool = False) -> bool:
        """Compact the conversation now; return whether it is shorter.

        Args:
            again: also if it was compacted since the last reply.
        """
        if self.policy is None:
            return False
        before = self._history.generation
        if self._task:
            await self._use_written(request)
            if self._history.generation != before and not self._lacks_room(request):
                return True
        if not again and not self._has_reply_since():
            return self._history.generation != before
        # The request of the last reply did fit, so one with one more message most likely fits, too.
        target = _Target(reason, self._history.generation, self._last_reply())
        draft = await self._write(request, target) if target.until else _Draft("")
        return await self._replace_turns(request, target, draft, is_urgent=True)

    async def shorten(self, request: NextRequest) -> bool:
        """Replace everything before the last reply with a summary, for a person; return whether it was done.

        Without a usable summary the conversation stays as it is. If there is little to summarize, no summary
        is requested.
        """
        before = self._history.generation
        if self._task:
            await self._use_written(request)
        target = _Target(
            "a person requested it", self._history.generation, self._last_reply(), by_person=True
        )
        summed = self._history.shown[: len(self._history.shown) - len(self._tail(target))]
        tokens = sum(message_bytes(turn.message) for turn in summed) * self._rate(request)
        if tokens <= LEAST_SUMMARY_TOKENS:
            return self._history.generation != before
        draft = await self._write(request, target)
        if not draft.text and draft.is_answered:
            self._gave_up(draft.problem)
        return bool(draft.text) and await self._replace_turns(request, target, draft)

    async def overflowed(self, request: NextRequest) -> bool:
        """Shorten a request that was too long for the model, and lower the assumed window. Return whether it is shorter.

        A long input is kept as long as it can be: first a shorter reply is asked for, because servers count it too; then
        the input is cut to about a half of what was refused, twice, and only then to what a compaction leaves.
        """
        if self.policy is None:
            return False
        tokens, window, place = self._tokens(request), self._window(request), self._last_reply()
        self._refused = self._refused + 1 if place == self._refused_after else 1
        self._refused_after = place
        is_long_input = not request.contract.forgets and self._would_cut_input(request)
        reply = request.fixed.max_output_tokens or request.reply_tokens
        shorter = max(reply // _SHORTER_REPLY, MIN_REPLY_TOKENS)
        if is_long_input and self._refused == 1 and shorter < reply:
            self._ceiling = min(tokens + shorter, window or tokens + shorter)
            if self._with_shorter_reply(request) is not None:
                return True
        self._ceiling = min(tokens, window or tokens)
        self._is_mild = is_long_input and self._refused <= _MILD_REFUSALS
        is_cut = is_long_input and self._refused > 1
        try:
            return await self.make_room(
                request, "the conversation was longer than the model can read", again=is_cut
            )
        finally:
            self._is_mild = False

    async def _begin(self, request: NextRequest, policy: CompactionPolicy) -> None:
        """Start a summary in the background if one is due."""
        tokens = self._tokens(request)
        reason = policy.due(tokens, self._history.chat_turns, self._window(request))
        if not reason or tokens < self._due_from or self._budget.wrapping_up:
            return
        if not self._has_reply_since() or not self._last_reply():
            return  # no reply since the last compaction
        target = _Target(reason, self._history.generation, len(self._history.turns))
        if request.contract.forgets:
            await self._replace_turns(request, target, _Draft(""))
            return
        reservation = self._reserve(self._question(request, ""))
        if reservation is None:
            return  # the remaining budget is for the work
        self._target = target
        self._task = asyncio.create_task(self._write(request, target, reservation))
        self._task.add_done_callback(lambda task: _settle(task, reservation))

    async def _use_written(self, request: NextRequest) -> None:
        """Wait for the summary that is being written in the background, and use it."""
        task, target = self._task, self._target
        if task is None or target is None:
            return
        draft = await task
        self._task = self._target = None
        if not draft.is_answered:  # after a failure the conversation stays as it is
            self._due_from = self._grown(self._tokens(request))
            return
        await self._replace_turns(request, target, draft)

    def _window(self, request: NextRequest) -> int | None:
        known = [size for size in (request.context_window, self._ceiling) if size is not None]
        return min(known, default=None)

    def _tokens(self, request: NextRequest) -> int:
        """Return the likely length of the next request; of the whole conversation if the contract forgets turns."""
        if request.contract.forgets:
            return self._history.tokens
        return self._history.meter.likely_tokens(next_name(request.model), request.fixed_bytes)

    def _rate(self, request: NextRequest) -> float:
        """Return the likely number of tokens in a byte of the conversation."""
        return self._history.meter.rate(next_name(request.model))

    def _lacks_room(self, request: NextRequest) -> bool:
        window = self._window(request)
        if window is None or request.contract.forgets:
            return False
        reply = min(request.fixed.max_output_tokens or request.reply_tokens, int(window * _REPLY_SHARE))
        return self._tokens(request) + reply > window

    def _has_reply_since(self) -> bool:
        """Return whether the model has replied since the last compaction or the beginning."""
        for turn in reversed(self._history.turns):
            if turn.kind is TurnKind.ASSISTANT:
                return True
            if turn.kind is TurnKind.SUMMARY:
                return False
        return True

    def _last_reply(self) -> int:
        """Return the position of the last reply; 0 if there is none."""
        turns = self._history.turns
        newest_first = range(len(turns) - 1, -1, -1)
        return next((index for index in newest_first if turns[index].kind is TurnKind.ASSISTANT), 0)

    @staticmethod
    def _grown(tokens: int) -> int:
        return tokens + tokens // 4

    # -- the summary ---------------------------------------------------------------------------------------------

    def _room(self, request: NextRequest) -> int:
        """Return the tokens that the messages may have right after a compaction."""
        policy = self.policy
        if policy is None:
            return 0
        window = self._window(request)
        most = policy.most_tokens(window)
        fixed = int(request.fixed_bytes * self._rate(request))
        if self._is_mild and window is not None:
            return max(int(window * _MILD_SHARE) - fixed, int(most * _LEAST_ROOM))
        return max(policy.target_tokens(window) - fixed, int(most * _LEAST_ROOM))

    def _question(self, request: NextRequest, problem: str) -> tuple[NextRequest, History]:
        """Return the request for a summary, without the contract's schema, and a history with the question.

        The history has nothing else. The first attempt keeps the tool choice, because another one would
        invalidate some providers' cache of the conversation; calls in its reply do not run. The second
        attempt forbids calls.
        """
        most = min(max(self._room(request) // 2, LEAST_SUMMARY_TOKENS), MOST_SUMMARY_TOKENS)
        words = render("agent/summarise", words=int(most * _WORDS_A_TOKEN), problem=problem)
        choice = ToolChoice.NONE if problem and request.fixed.tools else request.fixed.tool_choice
        fixed = replace(request.fixed, output_schema=None, max_output_tokens=most, tool_choice=choice)
        aside = History()
        aside.meter = self._history.meter.copy()
        aside.meter.longest_reply = 0
        aside.add(Turn(TurnKind.SYSTEM, Message.user(words), self._clock.now()))
        return replace(request, fixed=fixed), aside

    def _reserve(self, question: tuple[NextRequest, History]) -> Reservation | None:
        request, aside = question
        beside = Budget(Limits(), self._clock, self._budget)
        room = reserve(beside, request.need(aside))
        return room if isinstance(room, Reservation) else None

    async def _write(
        self, request: NextRequest, target: _Target, reservation: Reservation | None = None
    ) -> _Draft:
        """Request the summary, and once more if it is unusable."""
        shown = list(self._history.context(request.contract))
        later = self._history.turns[target.until :]
        prefix = shown[: len(shown) - sum(bool(turn.message.parts) for turn in later)]
        problem = ""
        try:
            for attempt in range(ATTEMPTS):
                question = self._question(request, problem)
                room = reservation if not attempt and reservation else self._reserve(question)
                if room is None:
                    return _Draft("", "the budget has no room for it", is_answered=False)
                response = await self._ask(question, prefix, room)
                problem = problem_of(
                    response, _HEADING.findall(question[1].turns[0].content), self._most_bytes(request)
                )
                if not problem:
                    return _Draft(response.text.strip())
        except (ModelError, NoRoomError) as error:
            return self._gave_up(str(error))
        except TimeoutError:
            return self._gave_up("no time is left")
        return _Draft("", problem)

    def _gave_up(self, why: str) -> _Draft:
        self._emit(Warned(f"the conversation could not be summarized: {why}"))
        return _Draft("", why, is_answered=False)

    def _most_bytes(self, request: NextRequest) -> int:
        """Return the maximum size of a summary, which has to leave room for the newest turns."""
        return int(self._room(request) / self._rate(request) * (3 / 4))

    async def _ask(
        self, question: tuple[NextRequest, History], prefix: Sequence[Message], room: Reservation
    ) -> Response:
        request, aside = question
        messages = (*prefix, *aside.context(request.contract))
        with room:
            async with asyncio.timeout(self._budget.seconds_left):
                return await SentRequest(request, messages, aside, room, self._tell, self._clock.now).reply()

    def _tell(self, event: Event) -> None:
        """Emit an event of the summary's request, except pieces of text, which are no part of the session's reply."""
        if not isinstance(event, _TEXT_EVENTS):
            self._emit(SubagentEvent(SUMMARY_AGENT, event))

    # -- the replacement -----------------------------------------------------------------------------------------

    async def _replace_turns(
        self, request: NextRequest, target: _Target, draft: _Draft, *, is_urgent: bool = False
    ) -> bool:
        """Replace the turns if they are still the same and the result is shorter; return whether it was done."""
        history, before = self._history, self._tokens(request)
        if target.generation != history.generation:
            return False
        rate = self._rate(request)
        message, images, keeps = await self._shortened(request, target, draft, rate, is_urgent=is_urgent)
        after = before
        if not request.contract.forgets:
            kept = history.turns[len(history.turns) - keeps :] if keeps else ()
            size = sum(message_bytes(turn.message) for turn in kept if turn.kind is not TurnKind.SUMMARY)
            after = int((request.fixed_bytes + message_bytes(message) + size) * rate)
            if after > before * (1.0 if target.by_person else MOST_SHARE_AFTER):
                self._due_from = self._grown(before)
                return False
            self._host.ledger.shown.clear()  # the model no longer sees these files
        history.add(Turn(TurnKind.SUMMARY, message, self._clock.now(), keeps=keeps))
        for name, words in list(self._host.skills.items()):
            if words not in message.text:  # the skill is no longer shown, so the model may load it again
                del self._host.skills[name]
        # A conversation that cannot get short is not compacted before every request.
        tokens = self._tokens(request)
        self._due_from = tokens + (self._room(request) if request.contract.forgets else tokens)
        why = f"; without a summary of the model: {draft.problem}" if draft.problem else ""
        self._emit(Compacted(before, after, keeps, f"{target.reason}{why}", message.text, images))
        return True

    async def _shortened(
        self, request: NextRequest, target: _Target, draft: _Draft, rate: float, *, is_urgent: bool
    ) -> tuple[Message, int, int]:
        """Return the replacing message, its number of images, and the number of newest turns that stay."""
        turns = self._history.turns
        room = int(self._room(request) / rate)
        known = await self._collect_facts()
        if request.contract.forgets:
            return Message.user(message_within(known, int(room * _WORDS_SHARE))), 0, len(turns)
        summary = self._host.clean("the summary of the conversation", draft.text)
        known = replace(known, summary=summary, missing=await missing_paths(summary, self._environment))
        tail = self._tail(target)
        left = room - message_bytes(self._message(known, len(turns), room)[0])
        start = newest_within(tail, lambda turn: message_bytes(turn.message), left)
        first = len(turns)
        if start < len(tail):
            first = next(index for index in reversed(range(first)) if turns[index] is tail[start])
        if draft.text and target.until < first:  # the summary does not cover later turns
            newer = turns[target.until :]
            fits = sum(message_bytes(turn.message) for turn in newer) <= left or not is_urgent
            first = whole_from(turns, target.until) if fits else first
        return *self._message(known, first, room), len(turns) - first

    def _message(self, known: KnownFacts, first: int, room: int) -> tuple[Message, int]:
        """Return the message that replaces all turns before `first`, in `room` bytes, and its number of images."""
        user_turns = self._history.user_turns_before(first)
        task = self._host.task() if self._host.task else ""
        if not task and user_turns:
            task = user_turns[0].said
        orders = list(dict.fromkeys(turn.said for turn in user_turns[1:]))
        images = images_of(user_turns)
        most = int(room * _IMAGES_SHARE) // IMAGE_BYTES if self._reads_images else 0
        shown = images[:most]
        known = replace(
            known, task=task, orders=orders, images=len(shown), images_left_out=len(images) - len(shown)
        )
        text = message_within(known, int(room * _WORDS_SHARE) - len(shown) * IMAGE_BYTES)
        return summary_message(text, shown), len(shown)

    def _tail(self, target: _Target) -> Sequence[Turn]:
        """Return the newest turns that may stay, before their size is considered.

        The policy decides; on a person's request it is the last reply and what follows.
        """
        shown, policy = self._history.shown, self.policy
        tail = shown[1:] if shown and shown[0].kind is TurnKind.SUMMARY else shown
        if target.by_person:
            return recent(tail, 1)
        if policy and policy.keep_turns:
            tail = recent(tail, policy.keep_turns)
        if policy and policy.max_turns:
            tail = tail[newest_within(tail, lambda turn: turn.is_chat, policy.max_turns // 2) :]
        return tail

    async def _collect_facts(self) -> KnownFacts:
        """Return the facts that the program knows without the model."""
        files = [
            (path, await _state(path, self._environment))
            for path in sorted(self._host.ledger.touched)[:_MOST_FILES]
        ]
        items = [item for item in self._host.todos.items if item.status is not TodoStatus.COMPLETED]
        items.sort(key=lambda item: item.status is not TodoStatus.IN_PROGRESS)
        return KnownFacts(
            files=files,
            # Commands of an earlier session come from the journal, which has their raw output.
            commands=[
                replace(ran, ending=self._host.clean("the end of a command's output", ran.ending))
                for ran in self._history.commands
            ],
            plan=self.plan,
            todos=[f"{item.id}: {item.content} ({item.status})" for item in items],
            skills=list(reversed(self._host.skills.values())),
            more=self._host.facts() if self._host.facts else "",
        )


def _settle(task: asyncio.Task[_Draft], reservation: Reservation) -> None:
    """Release the reservation of a task that was cancelled before it began, and retrieve the task's error."""
    with reservation:
        if not task.cancelled():
            task.exception()


def problem_of(response: Response, headings: Sequence[str], most_bytes: int) -> str:
    """Return why a reply is not a usable summary; empty if it is one."""
    text = response.text.strip()
    lines = {line.strip().rstrip(":").casefold() for line in text.splitlines()}
    missing = [heading for heading in headings if heading.casefold() not in lines]
    problems = (
        ("it has tool calls", bool(response.tool_calls)),
        ("it was cut off, so write less", response.finish is FinishReason.LENGTH),
        (f"it ended by {response.finish.value}", response.finish is not FinishReason.STOP),
        ("it is empty", not text),
        (f"it has no heading {', '.join(missing)}", bool(missing)),
        ("it is too long", len(text.encode("utf-8", "replace")) > most_bytes),
    )
    return next((words for words, is_so in problems if is_so), "")


async def missing_paths(text: str, environment: ExecutionEnvironment) -> list[str]:
    """Return paths of files that a text names and that do not exist."""
    named = dict.fromkeys(found[1] or found[2] for found in _NAMED_PATH.finditer(text))
    missing = []
    for path in list(named)[:_MOST_NAMED]:
        try:
            is_there = await environment.file_exists(path)
        except ToolError:
            is_there = False
        if not is_there:
            missing.append(path)
    return missing


async def _state(path: str, environment: ExecutionEnvironment) -> str:
    """Describe the current state of a changed file."""
    try:
        if not await environment.file_exists(path):
            return "removed"
        data = await environment.read_file(path, max_bytes=_MOST_FILE_BYTES)
    except ToolError:
        return "cannot be read"
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return f"{lines:,} lines, {len(data):,} bytes"
