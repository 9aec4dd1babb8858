"""The loop: ask the model, read its reply, run its calls, tell it the results, ask again."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.core.errors import (
    BadReplyError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    ModelError,
)
from orchestrator.core.events import (
    ErrorOccurred,
    InputReceived,
    LimitReached,
    LoopDetected,
    MessageAdded,
    PlanAccepted,
    ReplyRejected,
    SteeringInjected,
    Warned,
)
from orchestrator.core.messages import FinishReason, Message, Text
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.base import Malformed
from orchestrator.engine.session.budget import NoRoomError
from orchestrator.engine.session.calls import Repetition, run_calls
from orchestrator.engine.session.history import History, Turn, TurnKind
from orchestrator.engine.session.request import Admission, Sending, context_share, request_share

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolResult
    from orchestrator.engine.contracts.base import Actions, Reading
    from orchestrator.engine.models.base import Response
    from orchestrator.engine.session.budget import Budget, Reservation
    from orchestrator.engine.session.calls import Workbench
    from orchestrator.engine.session.config import SessionConfig, Setting
    from orchestrator.engine.session.request import Ask, Talk
    from orchestrator.engine.tools.base import Ends


async def _ends(_text: str) -> str | None:
    return None


async def _not_done() -> bool:
    return False


@dataclass(slots=True)
class Hooks:
    """What the loop asks its surroundings between rounds.

    Attributes:
        stopped: whether somebody asked for an end after the round that is running.
        steering: takes the words that came in since the last round out of their queue.
        may_end: asked when a reply in words would end the work; gives what to tell the model
            instead, or None where it may end.
        is_done: whether all of the work has left the session, so that a reply which calls nothing ends it.
        now: the time of day, for the turns.
        wrap_up: what the model is told before the last turn that the limits allow; empty takes the usual words.
        repetition: notices circles; None does not look.
    """

    now: Callable[[], datetime]
    stopped: Callable[[], bool] = lambda: False
    steering: Callable[[], list[str]] = list
    may_end: Callable[[str], Awaitable[str | None]] = _ends
    is_done: Callable[[], Awaitable[bool]] = _not_done
    wrap_up: str = ""
    repetition: Repetition | None = field(default_factory=Repetition)


class Inbox:
    """Two queues, emptied in order."""

    def __init__(self) -> None:
        self._steering: deque[str] = deque()
        self._follow_ups: deque[str] = deque()

    def steer(self, message: str) -> None:
        """Queue a word for the next round.

        Raises:
            ConfigurationError: there are no words in it.
        """
        self._steering.append(words_of(message).text)

    def follow_up(self, message: str) -> None:
        """Queue a further task.

        Raises:
            ConfigurationError: there are no words in it.
        """
        self._follow_ups.append(words_of(message).text)

    def take_steering(self) -> list[str]:
        """All words for the next round, which are gone then."""
        words = list(self._steering)
        self._steering.clear()
        return words

    def next_follow_up(self) -> str | None:
        """The next task, which is gone then; None where there is none."""
        return self._follow_ups.popleft() if self._follow_ups else None


def words_of(user: object) -> Message:
    """What somebody says to the model.

    Raises:
        ConfigurationError: it is no text and no message, or there is nothing in it.
    """
    message = Message.user(user) if isinstance(user, str) else user
    if not isinstance(message, Message):
        raise ConfigurationError(f"say it as text or as a Message, not as {type(user).__name__}")
    if not any(not isinstance(part, Text) or part.text.strip() for part in message.parts):
        raise ConfigurationError("there is nothing in it: say in words what is to be done")
    return message


_OF_ONE_INPUT = frozenset({"tool_rounds", "replies"})
"""Limits after which the next input may go on."""


@dataclass(frozen=True, slots=True)
class Dialogue:
    """The conversation of one session, and what bounds it."""

    history: History
    budget: Budget
    inbox: Inbox
    hooks: Hooks
    setting: Setting
    emit: Emit

    async def work_on(self, message: Message, talk: Talk, ask: Callable[[], Ask]) -> SessionEnd:
        """The input, then the follow-ups, as long as the model ends each by its own.

        Args:
            message: the input.
            talk: the session, which has started.
            ask: how the model is asked in the next round.
        """
        while True:
            self.emit(InputReceived(message.text))
            self.history.add(Turn(TurnKind.USER, message, self.setting.clock.now()))
            self.emit(MessageAdded(message))
            try:
                end = await run_loop(ask, talk.bench, self.budget, self.history, self.hooks)
            finally:
                self.budget.tool_rounds = 0  # also where somebody stops it: the next input has all its rounds
            done = end.kind in {EndKind.COMPLETED, EndKind.AWAITING, EndKind.FINISH}
            done = done or (end.limit in _OF_ONE_INPUT and not self.budget.exceeded())
            follow_up = self.inbox.next_follow_up() if done else None
            if follow_up is None:
                return end
            message = Message.user(follow_up)

    def change(self, config: SessionConfig) -> None:
        """Take other limits from now on."""
        self.budget.change(config.limits, config.wrap_up_share)
        watched = self.hooks.repetition
        if not config.enable_loop_detection:
            self.hooks.repetition = None
        elif watched is None or watched.window != config.loop_detection_window:
            self.hooks.repetition = Repetition(config.loop_detection_window)

    def interrupt(self) -> None:
        """Answer the calls that were cut short."""
        self.history.interrupt(self.setting.clock.now())

    def tell(self, error: BaseException) -> None:
        """Say that the session cannot go on with its input."""
        self.interrupt()
        self.emit(ErrorOccurred(type(error).__name__, str(error)))


def hooks_of(setting: Setting, inbox: Inbox) -> Hooks:
    """What the loop asks the host between rounds."""
    config, host = setting.config, setting.host
    return Hooks(
        now=setting.clock.now,
        stopped=host.stopped,
        steering=inbox.take_steering,
        may_end=host.may_end,
        is_done=host.is_done,
        wrap_up=host.wrap_up,
        repetition=Repetition(config.loop_detection_window) if config.enable_loop_detection else None,
    )


BAD_REPLIES_IN_A_ROW = 3
EMPTY_REPLIES_IN_A_ROW = 3
IDLE_REPLIES_IN_A_ROW = 10
"""Replies without a call that are asked to go on; a model that only talks would never end."""
CONTEXT_WARNING_SHARE = 0.8
"""From here on a request may be too long: 4 characters a token is wrong by a fifth for some code and languages, and
so far do the vendors' counts of the same text differ."""


class EndKind(StrEnum):
    """Why the loop is over."""

    COMPLETED = "completed"
    """The model answered in words and called nothing."""
    AWAITING = "awaiting"
    """So it did, and its words are a question."""
    FINISH = "finish"
    QUESTION = "question"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    OVERFLOW = "overflow"
    """The conversation is longer than the model can read."""


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """How the loop ended.

    Attributes:
        text: the model's last words, the reason, the question, or the limit's detail.
        limit: the name of the limit, as `LimitReached` has it; empty for every other kind of end.
    """

    kind: EndKind
    text: str
    limit: str = ""


async def run_loop(
    ask: Callable[[], Ask], bench: Workbench, budget: Budget, history: History, hooks: Hooks
) -> SessionEnd:
    """Run rounds until the model is done, a call ends the session, or a limit is reached.

    Args:
        ask: how to ask the model in the next round; it may change between rounds.
        bench: the tools and what they run with.
        budget: counts rounds, tokens, money and time; spent here.
        history: the conversation so far, which is appended to.
        hooks: what is asked between rounds.

    Raises:
        ModelError: the provider gave no answer.
        BadReplyError: three replies in a row were not in the contract's form.
    """
    return await _Loop(bench, budget, history, hooks).run(ask)


@dataclass(slots=True)
class _Loop:
    """One run of the loop: what it works on, and its counts in a row."""

    bench: Workbench
    budget: Budget
    history: History
    hooks: Hooks
    rejected: int = 0
    empty: int = 0
    idle: int = 0
    warned_of_context: bool = False
    guessed: bool = False
    admission: Admission = field(init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(self.budget, self.history, self._tell, self.bench.emit, self.hooks.wrap_up)

    async def run(self, ask: Callable[[], Ask]) -> SessionEnd:
        while True:
            await asyncio.sleep(0)  # who reads the events can speak before the next request goes out
            self._steer()
            if self.hooks.stopped():
                return SessionEnd(EndKind.INTERRUPTED, "interrupted")
            deadline = asyncio.timeout(self.budget.seconds_left)
            try:
                async with deadline:
                    end = await self._turn(ask)
            except TimeoutError:
                if not deadline.expired():
                    raise
                return self._limit(self.budget.out_of_time())
            if end:
                return end

    async def _turn(self, ask: Callable[[], Ask]) -> SessionEnd | None:
        """A round, if the limits allow it; the end of the loop, or None to go on."""
        room = await self.admission.next(asking := ask())
        return self._limit(room) if isinstance(room, LimitReached) else await self._round(asking, room)

    async def _round(self, ask: Ask, room: Reservation) -> SessionEnd | None:
        """One request and what follows from its reply."""
        try:
            response = await self._asked(ask, room)
        except NoRoomError:
            return None
        except ModelError as error:
            return self._refused(ask, error)
        reading = ask.contract.read(response, ask.tools, round_number=self.budget.rounds)
        if _is_empty(response, reading) and response.finish is not FinishReason.PAUSE:
            return await self._empty(ask, response, reading)
        return await self._read(ask, response, reading)

    async def _read(self, ask: Ask, response: Response, reading: Reading) -> SessionEnd | None:
        """What follows from a reply that says something."""
        if isinstance(reading, Malformed):
            return await self._malformed(ask, response, reading)
        self.rejected = self.empty = 0
        self.bench.emit(_accepted(reading))
        if not reading.calls and not reading.withheld:
            return await self._without_calls(ask, response, reading)
        self.idle = 0
        if ending := await self._run_calls(ask, reading):
            return SessionEnd(EndKind(ending.ending), ending.text)
        self._look_for_circles(reading)
        return None

    async def _run_calls(self, ask: Ask, reading: Actions) -> Ends | None:
        """Run what the reply calls; the model is told a result of each call, however they end."""
        reply = self.history.turns[-1]
        self.budget.tool_rounds += 1

        def answer(results: tuple[ToolResult, ...]) -> None:
            note = render("agent/cut_off") if reading.cut_off else ""
            if self.history.turns[-1] is reply:  # a tool that did not stop in time was answered for
                self._say(TurnKind.TOOL_RESULTS, ask.contract.answer(results, note))

        return await run_calls(
            self.bench,
            reading.calls,
            reading.withheld,
            answer=answer,
            running=ask.contract.running,
            parallel=ask.parallel,
        )

    async def _asked(self, ask: Ask, room: Reservation) -> Response:
        self._warn_of_context(ask)
        return await Sending(ask, self.history, room, self.bench.emit, self.hooks.now).reply()

    async def _without_calls(self, ask: Ask, response: Response, reading: Actions) -> SessionEnd | None:
        """A reply in words: the end, a pause of the provider's, or something to be asked about."""
        text = response.text.strip()
        if response.finish is FinishReason.PAUSE:
            return self._idle()  # the vendor wants the same conversation again, with what it said so far
        _require_no_refusal(response)
        if not ask.contract.text_ends and await self.hooks.is_done():
            return SessionEnd(EndKind.COMPLETED, text)
        words = ""
        if ask.contract.text_ends and text and not reading.cut_off:
            words = await self.hooks.may_end(text) or ""
            late = self.hooks.steering()
            if not words and not late:
                return SessionEnd(EndKind.AWAITING if asks(text) else EndKind.COMPLETED, text)
            self._inject(late)
            if not words:
                return None
        if end := self._idle():
            return end
        note = words or (render("agent/cut_off") if reading.cut_off else ask.contract.go_on)
        self._tell(ask.contract.answer((), note))
        return None

    def _idle(self) -> SessionEnd | None:
        """Count a reply that neither ends the work nor calls anything; the end of the loop if there are too many."""
        self.idle += 1
        if self.idle < IDLE_REPLIES_IN_A_ROW:
            return None
        return self._limit(LimitReached("replies", f"{self.idle} replies in a row had no tool call"))

    def _refused(self, ask: Ask, error: ModelError) -> SessionEnd | None:
        """Make the conversation shorter, or end, if it was too long for the model.

        A refusal without a reason that is known is taken for one of length once, where the window is nearly full.

        Raises:
            ModelError: the refusal itself, where length is not its reason.
        """
        if isinstance(error, ContextLengthError):
            return self._overflow(ask, error)
        share = request_share(ask, self.history)
        if self.guessed or not error.is_unexplained or share < CONTEXT_WARNING_SHARE:
            raise error
        self.guessed = True
        self.bench.emit(
            Warned(
                f"{error}: no reason that is known, and the request takes ~{share:.0%} of the context window;"
                " it is taken for too long"
            )
        )
        return self._overflow(ask, error)

    def _overflow(self, ask: Ask, error: ModelError) -> SessionEnd | None:
        """Prune and ask again where the contract says so; else, or if nothing can be dropped, the end."""
        dropped = self.history.prune() if ask.contract.prunes else 0
        if dropped:
            self.bench.emit(Warned(f"the conversation was too long; its oldest {dropped} turns were dropped"))
            return None
        why = "pruning did not help" if ask.contract.prunes else "start a new session, or use a larger model"
        text = f"the conversation is longer than the model can read ({error}); {why}"
        self.bench.emit(Warned(text))
        return SessionEnd(EndKind.OVERFLOW, text)

    def _warn_of_context(self, ask: Ask) -> None:
        """Say once that the conversation comes near what the model can read."""
        share = context_share(ask, self.history)
        if share > CONTEXT_WARNING_SHARE and not self.warned_of_context:
            self.bench.emit(Warned(f"Context usage at ~{share:.0%} of context window"))
        self.warned_of_context = share > CONTEXT_WARNING_SHARE

    async def _empty(self, ask: Ask, response: Response, reading: Reading) -> SessionEnd | None:
        """A reply without a word and without a call: the end where all is done, else it is asked for again."""
        _require_no_refusal(response)
        if await self.hooks.is_done():
            return SessionEnd(EndKind.COMPLETED, "")
        cut_off = response.finish is FinishReason.LENGTH
        self.empty += 1
        self.bench.emit(ReplyRejected(("reply: it was empty",), self.empty))
        if self.empty >= EMPTY_REPLIES_IN_A_ROW:
            hint = "; the model ran into its output limit: raise --max-output-tokens" if cut_off else ""
            return self._limit(LimitReached("replies", f"{self.empty} replies in a row were empty{hint}"))
        if isinstance(reading, Malformed):
            self._tell(ask.contract.complain(reading.problems))
        else:
            self._tell(ask.contract.answer((), render("agent/cut_off") if cut_off else ask.contract.go_on))
        return None

    async def _malformed(self, ask: Ask, response: Response, reading: Malformed) -> SessionEnd | None:
        """A reply that cannot be read. Where all is done, words that cannot be meant as a plan are the end."""
        is_last = self.rejected + 1 >= BAD_REPLIES_IN_A_ROW
        if (is_last or "{" not in response.text) and await self.hooks.is_done():
            return SessionEnd(EndKind.COMPLETED, response.text.strip())
        self.rejected += 1
        self.bench.emit(ReplyRejected(reading.problems, self.rejected))
        self.bench.failures.note("reply", reading.problems[0])
        if is_last:
            raise BadReplyError(
                f"{self.rejected} replies in a row were no valid plan (the last: {reading.problems[0]}); "
                "try a larger model, or a server that supports JSON-schema output"
            )
        self._tell(ask.contract.complain(reading.problems))
        return None

    def _look_for_circles(self, reading: Actions) -> None:
        repetition = self.hooks.repetition
        if repetition is None:
            return
        for call in reading.calls:
            repetition.add(call)
        if repetition.found():
            warning = render("agent/loop_detected", window=repetition.window)
            self._say(TurnKind.STEERING, Message.user(warning))
            self.bench.emit(LoopDetected(warning))

    def _steer(self) -> None:
        self._inject(self.hooks.steering())

    def _inject(self, words: list[str]) -> None:
        for text in words:
            self._say(TurnKind.STEERING, Message.user(text))
            self.bench.emit(SteeringInjected(text))

    def _tell(self, message: Message) -> None:
        """Add a word of the program."""
        self._say(TurnKind.SYSTEM, message)

    def _say(self, kind: TurnKind, message: Message) -> None:
        self.history.add(Turn(kind, message, self.hooks.now()))
        self.bench.emit(MessageAdded(message))

    def _limit(self, limit: LimitReached) -> SessionEnd:
        self.bench.emit(limit)
        return SessionEnd(EndKind.LIMIT, limit.detail, limit.limit)


def asks(text: str) -> bool:
    """Whether a reply ends with a question to the user. Marks and quotes around the end do not count."""
    return text.rstrip(" \t\r\n*_`\"')]»”").endswith(("?", "\uff1f"))  # and the full-width one


def _is_empty(response: Response, reading: Reading) -> bool:
    """Whether a reply says nothing and calls nothing."""
    if isinstance(reading, Malformed):
        return not response.text.strip()
    return not (reading.calls or reading.withheld or reading.plan.strip())


def _require_no_refusal(response: Response) -> None:
    if response.finish in {FinishReason.REFUSAL, FinishReason.CONTENT_FILTER}:
        said = response.text.strip()[:300] or response.finish.value
        raise ContentFilterError(f"the model refused to answer: {said}")


def _accepted(reading: Actions) -> PlanAccepted:
    return PlanAccepted(
        reading.plan,
        len(reading.calls) + len(reading.withheld),
        repaired=reading.repaired,
        cut_off=reading.cut_off,
    )
