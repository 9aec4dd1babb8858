"""Makes a conversation shorter: has a summary written, judges it, adds what the program knows, and swaps them in."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

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
from orchestrator.core.prompts import render
from orchestrator.core.todos import TodoStatus
from orchestrator.engine.models.base import ToolChoice, next_name
from orchestrator.engine.session.budget import Budget, Limits, NoRoomError, Reservation, reserve
from orchestrator.engine.session.context import is_step, newest_within, recent, whole_from
from orchestrator.engine.session.event_bus import stop
from orchestrator.engine.session.history import (
    IMAGE_BYTES,
    History,
    Turn,
    TurnKind,
    images_of,
    message_bytes,
    standing_for,
)
from orchestrator.engine.session.request import SentRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Response
    from orchestrator.engine.session.compacted_message import Known
    from orchestrator.engine.session.config import SessionParts
    from orchestrator.engine.session.context import CompactionPolicy
    from orchestrator.engine.session.request import NextRequest

ATTEMPTS = 2
"""One retry: what could not be used twice is not asked for again."""
MOST_SHARE_AFTER = 0.9
"""Of the length before. A conversation that would be longer than that after is left as it is."""
MOST_SUMMARY_TOKENS = 8_192
LEAST_SUMMARY_TOKENS = 256
_WORDS_A_TOKEN = 0.5
"""Asked for; a token is about three quarters of a word, and models write more than they are asked for."""
_LEAST_ROOM = 1 / 4
"""Of what makes a conversation due: left for its messages, however long the system prompt and the tools are."""
_REPLY_SHARE = 1 / 8
"""Of the window, that has to be left for a reply, where no shorter one is asked for."""
_WORDS_SHARE = 3 / 4
"""Of the room for messages: the most that the message takes which stands for the others, its images included."""
_IMAGES_SHARE = 1 / 3
"""Of the room for messages: the most that images take which people sent."""
_MOST_FILES = 400
_MOST_FILE_BYTES = 10_000_000
_MOST_NAMED = 100
_HEADING = re.compile(r"^## .+$", re.MULTILINE)
_NAMED_PATH = re.compile(r"`([\w.@+-]+(?:/[\w.@+-]+)*\.\w+)`|(?<![\w/.:@-])((?:[\w.@+-]+/)+[\w@+-]+\.\w+)")
_UNSHOWN = (TextStarted, TextDelta, ReasoningDelta)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Which conversation is to be made shorter.

    Attributes:
        generation: of the history; in another one the conversation does not begin in this way any more.
        until: the turns before this place are summed up.
        by_person: a person wants it now, however much room there is.
    """

    reason: str
    generation: int
    until: int
    by_person: bool = False


@dataclass(frozen=True, slots=True)
class _Written:
    """What came of asking. `text` is empty where no summary could be used; `problem` says why."""

    text: str
    problem: str = ""
    is_answered: bool = True


class Compaction:
    """Keeps one conversation short.

    A summary is written in the background while the loop goes on, and taken over when the next request is about to
    go out. Only where a request would have no room, the loop waits for it.

    Args:
        parts: of the session.
        history: its conversation.
        budget: what the summaries cost counts there.

    Attributes:
        plan: what the model said last that it intends.
    """

    def __init__(self, parts: SessionParts, history: History, budget: Budget, emit: Emit) -> None:
        self._policy = parts.config.compaction
        self._host, self._environment, self._clock = parts.host, parts.environment, parts.clock
        self._reads_images = parts.profile.supports_images
        self._history, self._budget, self._emit = history, budget, emit
        self._task: asyncio.Task[_Written] | None = None
        self._asked: _Asked | None = None
        self._ceiling: int | None = None
        self._due_from = 0
        self.plan = ""

    def change(self, policy: CompactionPolicy | None) -> None:
        """Take another policy from now on."""
        self._policy = policy

    async def close(self) -> None:
        """Stop a summary that is being written."""
        await stop(self._task)

    async def prepare(self, request: NextRequest) -> None:
        """Look at the conversation before a request goes out, with all that the request has.

        Raises:
            ConfigurationError: a prompt cannot be used.
        """
        if self._policy is None:
            return
        if self._task and self._task.done():
            await self._take_over(request)
        if self._lacks_room(request):
            await self.make_room(request, "no room is left for a reply")
        elif self._task is None:
            await self._begin(request, self._policy)

    async def make_room(self, request: NextRequest, reason: str) -> bool:
        """Make the conversation shorter now; whether it is.

        Right after it was made shorter, and before a reply came, it is not done again.
        """
        if self._policy is None:
            return False
        before = self._history.generation
        if self._task:
            await self._take_over(request)
            if self._history.generation != before and not self._lacks_room(request):
                return True
        if not self._has_reply_since():
            return self._history.generation != before
        # The request that the last reply answered had room, so one more message most likely has it, too.
        asked = _Asked(reason, self._history.generation, self._last_reply())
        written = await self._write(request, asked) if asked.until else _Written("")
        return await self._swap(request, asked, written, is_urgent=True)

    async def shorten(self, request: NextRequest) -> bool:
        """Put a summary in the place of all before the last reply, because a person asked for it; whether it was.

        Where no summary can be had the conversation stays as it is, and nothing is asked where there is little to
        sum up.
        """
        before = self._history.generation
        if self._task:
            await self._take_over(request)
        asked = _Asked("it was asked for", self._history.generation, self._last_reply(), by_person=True)
        summed = self._history.shown[: len(self._history.shown) - len(self._tail(asked))]
        tokens = sum(message_bytes(turn.message) for turn in summed) * self._history.meter.rate(
            next_name(request.model)
        )
        if tokens <= LEAST_SUMMARY_TOKENS:
            return self._history.generation != before
        written = await self._write(request, asked)
        if not written.text and written.is_answered:
            self._gave_up(written.problem)
        return bool(written.text) and await self._swap(request, asked, written)

    async def overflowed(self, request: NextRequest) -> bool:
        """The model could not read the request: make the conversation shorter, and keep it so from now on."""
        tokens = self._tokens(request)
        self._ceiling = min(tokens, self._window(request) or tokens)
        return await self.make_room(request, "the conversation was longer than the model can read")

    async def _begin(self, request: NextRequest, policy: CompactionPolicy) -> None:
        """Have a summary written in the background, if it is time for one."""
        tokens = self._tokens(request)
        reason = policy.due(tokens, self._history.steps, self._window(request))
        if not reason or tokens < self._due_from or self._budget.wrapping_up:
            return
        if not self._has_reply_since() or not self._last_reply():
            return  # nothing has happened yet
        asked = _Asked(reason, self._history.generation, len(self._history.turns))
        if request.contract.forgets:
            await self._swap(request, asked, _Written(""))
            return
        reservation = self._reserve(self._question(request, ""))
        if reservation is None:
            return  # the room that is left is for the work
        self._asked = asked
        self._task = asyncio.create_task(self._write(request, asked, reservation))
        self._task.add_done_callback(lambda task: _settle(task, reservation))

    async def _take_over(self, request: NextRequest) -> None:
        """Wait for the summary that is being written, and swap it in."""
        task, asked = self._task, self._asked
        if task is None or asked is None:
            return
        written = await task
        self._task = self._asked = None
        if not written.is_answered:  # a failure leaves the conversation alone
            self._due_from = self._grown(self._tokens(request))
            return
        await self._swap(request, asked, written)

    def _window(self, request: NextRequest) -> int | None:
        known = [size for size in (request.context_window, self._ceiling) if size is not None]
        return min(known, default=None)

    def _tokens(self, request: NextRequest) -> int:
        """How long the next request most likely is; of a contract that forgets, the whole conversation."""
        if request.contract.forgets:
            return self._history.tokens
        return self._history.meter.likely_tokens(next_name(request.model), request.fixed_bytes)

    def _lacks_room(self, request: NextRequest) -> bool:
        window = self._window(request)
        if window is None or request.contract.forgets:
            return False
        reply = min(request.fixed.max_output_tokens or request.reply_tokens, int(window * _REPLY_SHARE))
        return self._tokens(request) + reply > window

    def _has_reply_since(self) -> bool:
        """Whether the model has answered since the conversation was made shorter, or began."""
        for turn in reversed(self._history.turns):
            if turn.kind is TurnKind.ASSISTANT:
                return True
            if turn.kind is TurnKind.SUMMARY:
                return False
        return True

    def _last_reply(self) -> int:
        turns = self._history.turns
        replies = (
            place for place in range(len(turns) - 1, -1, -1) if turns[place].kind is TurnKind.ASSISTANT
        )
        return next(replies, 0)

    def _next_due(self, request: NextRequest) -> int:
        """From how many tokens on it is done again. A conversation that cannot be made short is not tried each time."""
        tokens = self._tokens(request)
        return tokens + self._room(request) if request.contract.forgets else 2 * tokens

    @staticmethod
    def _grown(tokens: int) -> int:
        return tokens + tokens // 4

    # -- the summary ---------------------------------------------------------------------------------------------

    def _room(self, request: NextRequest) -> int:
        """Tokens that the messages may have right after."""
        policy = self._policy
        if policy is None:
            return 0
        most = policy.most_tokens(self._window(request))
        rate = self._history.meter.rate(next_name(request.model))
        fixed = int(request.fixed_bytes * rate)
        return max(policy.target_tokens(self._window(request)) - fixed, int(most * _LEAST_ROOM))

    def _summary_tokens(self, request: NextRequest) -> int:
        return min(max(self._room(request) // 2, LEAST_SUMMARY_TOKENS), MOST_SUMMARY_TOKENS)

    def _question(self, request: NextRequest, problem: str) -> tuple[NextRequest, History]:
        """The request without the contract's schema, and a copy of what was measured, with the question in it.

        The first time calls are allowed as ever, and refused by not running them: another choice would undo some
        providers' caches of the conversation. The second time they are forbidden.
        """
        most = self._summary_tokens(request)
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
        self, request: NextRequest, asked: _Asked, reservation: Reservation | None = None
    ) -> _Written:
        """Ask for the summary, and once more if it cannot be used."""
        shown = list(self._history.context(request.contract))
        later = self._history.turns[asked.until :]
        prefix = shown[: len(shown) - sum(bool(turn.message.parts) for turn in later)]
        problem = ""
        try:
            for attempt in range(ATTEMPTS):
                question = self._question(request, problem)
                room = reservation if not attempt and reservation else self._reserve(question)
                if room is None:
                    return _Written("", "the budget has no room for it", is_answered=False)
                response = await self._ask(question, prefix, room)
                said = response.text.strip()
                problem = problem_of(response, _headings(question[1]), self._most_bytes(request))
                if not problem:
                    return _Written(said)
        except (ModelError, NoRoomError) as error:
            return self._gave_up(str(error))
        except TimeoutError:
            return self._gave_up("no time is left")
        return _Written("", problem)

    def _gave_up(self, why: str) -> _Written:
        self._emit(Warned(f"the conversation's summary could not be had: {why}"))
        return _Written("", why, is_answered=False)

    def _most_bytes(self, request: NextRequest) -> int:
        """Of a summary: it has to leave room for the newest turns."""
        return int(self._room(request) / self._history.meter.rate(next_name(request.model)) * (3 / 4))

    async def _ask(
        self, question: tuple[NextRequest, History], prefix: Sequence[Message], room: Reservation
    ) -> Response:
        request, aside = question
        messages = (*prefix, *aside.context(request.contract))
        with room:
            async with asyncio.timeout(self._budget.seconds_left):
                return await SentRequest(request, messages, aside, room, self._tell, self._clock.now).reply()

    def _tell(self, event: Event) -> None:
        """Tell of a request beside the conversation. What it says is no piece of the session's own reply."""
        if not isinstance(event, _UNSHOWN):
            self._emit(SubagentEvent(SUMMARY_AGENT, event))

    # -- the swap ------------------------------------------------------------------------------------------------

    async def _swap(
        self, request: NextRequest, asked: _Asked, written: _Written, *, is_urgent: bool = False
    ) -> bool:
        """Put the summary in the place of the turns before it, if that is still what the conversation begins with."""
        history, before = self._history, self._tokens(request)
        if asked.generation != history.generation:
            return False
        rate = history.meter.rate(next_name(request.model))
        message, images, keeps = await self._shortened(request, asked, written, rate, is_urgent=is_urgent)
        after = before
        if not request.contract.forgets:
            kept = history.turns[len(history.turns) - keeps :] if keeps else ()
            size = sum(message_bytes(turn.message) for turn in kept if turn.kind is not TurnKind.SUMMARY)
            after = int((request.fixed_bytes + message_bytes(message) + size) * rate)
            if after > before * (1.0 if asked.by_person else MOST_SHARE_AFTER):
                self._due_from = self._grown(before)
                return False
            self._host.ledger.shown.clear()  # the model does not see these files any more
        history.add(Turn(TurnKind.SUMMARY, message, self._clock.now(), keeps=keeps))
        for name, words in list(self._host.skills.items()):
            if words not in message.text:  # the model may ask for it again
                del self._host.skills[name]
        self._due_from = self._next_due(request)
        why = f"; without a summary of the model: {written.problem}" if written.problem else ""
        self._emit(Compacted(before, after, keeps, f"{asked.reason}{why}", message.text, images))
        return True

    async def _shortened(
        self, request: NextRequest, asked: _Asked, written: _Written, rate: float, *, is_urgent: bool
    ) -> tuple[Message, int, int]:
        """The message that stands for the turns before, how many images it has, and how many of the newest turns stay."""
        from orchestrator.engine.session.compacted_message import message_within

        turns = self._history.turns
        room = int(self._room(request) / rate)
        known = await self._known()
        if request.contract.forgets:
            return Message.user(message_within(known, int(room * _WORDS_SHARE))), 0, len(turns)
        summary = self._host.clean("the summary of the conversation", written.text)
        known = replace(known, summary=summary, missing=await missing_paths(summary, self._environment))

        def message(first: int) -> tuple[Message, int]:
            said = self._history.said_before(first)
            task, orders = self._said(said)
            sent = images_of(said)
            most = int(room * _IMAGES_SHARE) // IMAGE_BYTES if self._reads_images else 0
            shown = sent[:most]
            words = message_within(
                replace(
                    known,
                    task=task,
                    orders=orders,
                    images=len(shown),
                    images_left_out=len(sent) - len(shown),
                ),
                int(room * _WORDS_SHARE) - len(shown) * IMAGE_BYTES,
            )
            return standing_for(words, shown), len(shown)

        tail = self._tail(asked)
        left = room - message_bytes(message(len(turns))[0])
        place = newest_within(tail, lambda turn: message_bytes(turn.message), left)
        first = _place_of(turns, tail[place]) if place < len(tail) else len(turns)
        if written.text and asked.until < first:  # what came after it is in no summary
            newer = turns[asked.until :]
            fits = sum(message_bytes(turn.message) for turn in newer) <= left or not is_urgent
            first = whole_from(turns, asked.until) if fits else first
        return *message(first), len(turns) - first

    def _tail(self, asked: _Asked) -> Sequence[Turn]:
        """The newest turns that may stay, however long they are: as the policy says, or the last reply alone."""
        shown, policy = self._history.shown, self._policy
        tail = shown[1:] if shown and shown[0].kind is TurnKind.SUMMARY else shown
        if asked.by_person:
            return recent(tail, 1)
        if policy and policy.keep_turns:
            tail = recent(tail, policy.keep_turns)
        if policy and policy.max_turns:
            tail = tail[newest_within(tail, is_step, policy.max_turns // 2) :]
        return tail

    def _said(self, said: Sequence[Turn]) -> tuple[str, list[str]]:
        """The task, and what people said after it."""
        task = self._host.task() if self._host.task else ""
        if not task and said:
            task = said[0].said
        return task, list(dict.fromkeys(turn.said for turn in said[1:]))

    async def _known(self) -> Known:
        """What the program knows without the model."""
        from orchestrator.engine.session.compacted_message import Known

        files = [
            (path, await _state(path, self._environment))
            for path in sorted(self._host.ledger.touched)[:_MOST_FILES]
        ]
        items = [item for item in self._host.todos.items if item.status is not TodoStatus.COMPLETED]
        items.sort(key=lambda item: item.status is not TodoStatus.IN_PROGRESS)
        return Known(
            files=files,
            # Of an earlier session the journal has what a command printed, as it was.
            commands=[
                replace(ran, ending=self._host.clean("the end of a command's output", ran.ending))
                for ran in self._history.commands
            ],
            plan=self.plan,
            todos=[f"{item.id}: {item.content} ({item.status})" for item in items],
            skills=list(reversed(self._host.skills.values())),
            more=self._host.facts() if self._host.facts else "",
        )


def _settle(task: asyncio.Task[_Written], reservation: Reservation) -> None:
    """Release what was set aside for a task that was stopped before it began, and take note of its error."""
    with reservation:
        if not task.cancelled():
            task.exception()


def _place_of(turns: Sequence[Turn], turn: Turn) -> int:
    return next(place for place in range(len(turns) - 1, -1, -1) if turns[place] is turn)


def _headings(aside: History) -> list[str]:
    """The headings that the question asks for, which the summary has to have."""
    return _HEADING.findall(aside.turns[0].content)


def problem_of(response: Response, headings: Sequence[str], most_bytes: int) -> str:
    """Why a reply is no summary that can be used; empty if it is one."""
    text = response.text.strip()
    lines = {line.strip().rstrip(":").casefold() for line in text.splitlines()}
    missing = [heading for heading in headings if heading.casefold() not in lines]
    problems = (
        ("it calls something", bool(response.tool_calls)),
        ("it was cut off, so write less", response.finish is FinishReason.LENGTH),
        (f"it ended by {response.finish.value}", response.finish is not FinishReason.STOP),
        ("it is empty", not text),
        (f"it has no heading {', '.join(missing)}", bool(missing)),
        ("it is too long", len(text.encode("utf-8", "replace")) > most_bytes),
    )
    return next((words for words, is_so in problems if is_so), "")


async def missing_paths(text: str, environment: ExecutionEnvironment) -> list[str]:
    """Paths of files that a text names and that are not there."""
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
    """What is to say of a file that was changed."""
    try:
        if not await environment.file_exists(path):
            return "removed"
        data = await environment.read_file(path, max_bytes=_MOST_FILE_BYTES)
    except ToolError:
        return "cannot be read"
    lines = data.count(b"\n") + (not data.endswith(b"\n") and bool(data))
    return f"{lines:,} lines, {len(data):,} bytes"
