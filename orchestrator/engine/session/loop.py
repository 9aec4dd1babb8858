"""The agent loop: ask the model, read its reply, run its calls, return the results, ask again."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.errors import (
    BadReplyError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    ModelError,
    PullwrightError,
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
from orchestrator.engine.contracts.base import Actions, Malformed
from orchestrator.engine.contracts.written_calls import is_quotation
from orchestrator.engine.models.base import paid_by
from orchestrator.engine.session.budget import NoRoomError, Reservation, SidePayments, reserve
from orchestrator.engine.session.calls import Repetition, run_calls
from orchestrator.engine.session.history import Turn, TurnKind, commands_of, message_bytes
from orchestrator.engine.session.request import SentRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolCall, ToolResult
    from orchestrator.engine.contracts.base import ReadReply
    from orchestrator.engine.models.base import Response
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.calls import ToolRunner
    from orchestrator.engine.session.compaction import Compaction
    from orchestrator.engine.session.config import Host, SessionConfig
    from orchestrator.engine.session.history import History, RanCommand
    from orchestrator.engine.session.request import NextRequest
    from orchestrator.engine.tools.base import Ends

BAD_REPLIES_IN_A_ROW = 3
EMPTY_REPLIES_IN_A_ROW = 3
IDLE_REPLIES_IN_A_ROW = 10
"""Replies without a call after which the loop ends, because a model that only talks would never end."""
CONTEXT_WARNING_SHARE = 0.8
"""Share of the context window above which the estimate can no longer rule out an overflow.

At 4 characters a token the estimate is wrong by a fifth for some code and languages, and the vendors' counts
of the same text differ by as much.
"""

_LIMITS_OF_ONE_INPUT = frozenset({"tool_rounds", "replies"})
"""Limits that count for one input only: the next input may go on after them."""


class EndKind(StrEnum):
    """The reason why the loop ended."""

    COMPLETED = "completed"
    """The model answered in text without a call."""
    AWAITING = "awaiting"
    """The model answered in text without a call, and the text is a question."""
    FINISH = "finish"
    QUESTION = "question"
    LIMIT = "limit"
    INTERRUPTED = "interrupted"
    OVERFLOW = "overflow"
    """The conversation does not fit into the model's context window."""


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The end of the loop.

    Attributes:
        text: the model's last text, the reason, the question, or the limit's detail.
        limit: the name of the limit as in `LimitReached`; empty for every other kind of end.
    """

    kind: EndKind
    text: str
    limit: str = ""


class Worker(Protocol):
    """Works on an input in place of the loop, with the session's tools, events and budget."""

    async def __call__(self, message: Message, inputs: Inputs, runner: ToolRunner) -> SessionEnd:
        """Work until the input is done, and return how that ended.

        Args:
            message: the input.
            inputs: the conversation, its budget and its events.
            runner: runs the calls of the session's tools.

        Raises:
            PullwrightError: the work cannot go on.
        """


@dataclass(slots=True)
class Inputs:
    """The inputs of one session, and the state that the loop needs to process them.

    An empty message raises a `ConfigurationError`.

    Attributes:
        repetition: detects repeated calls across all inputs; None switches detection off.
        compaction: keeps the conversation short; None lets it grow.
        worker: works on each input in place of the loop, which asks the model; None lets the loop do it.
    """

    history: History
    budget: Budget
    host: Host
    clock: Clock
    emit: Emit
    repetition: Repetition | None = field(default_factory=Repetition)
    compaction: Compaction | None = None
    worker: Worker | None = None
    _steering: deque[str] = field(default_factory=deque, init=False)
    _follow_ups: deque[str] = field(default_factory=deque, init=False)

    def steer(self, message: str) -> None:
        """Queue a message for the next round."""
        self._steering.append(input_message(message).text)

    def follow_up(self, message: str) -> None:
        """Queue another input."""
        self._follow_ups.append(input_message(message).text)

    def take_steering(self) -> list[str]:
        """Return the messages for the next round, and empty their queue."""
        taken = list(self._steering)
        self._steering.clear()
        return taken

    async def process(
        self, message: Message, runner: ToolRunner, next_request: Callable[[], NextRequest]
    ) -> SessionEnd:
        """Process an input, then the queued follow-ups, as long as the model itself ends each of them."""
        while True:
            self.emit(InputReceived(message.text))
            await self.add_user_message(TurnKind.USER, message)
            try:
                end = await (
                    self.worker(message, self, runner)
                    if self.worker
                    else Loop(self, runner, next_request).run()
                )
            finally:
                self.budget.tool_rounds = 0  # also after a cancellation: the next input has all its rounds
            is_done = end.kind in {EndKind.COMPLETED, EndKind.AWAITING, EndKind.FINISH} or (
                end.limit in _LIMITS_OF_ONE_INPUT and not self.budget.exceeded()
            )
            if not is_done or not self._follow_ups:
                return end
            message = Message.user(self._follow_ups.popleft())

    def change(self, config: SessionConfig) -> None:
        """Apply other settings from now on."""
        self.budget.change(config.limits, config.wrap_up_share)
        if self.compaction:
            self.compaction.policy = config.compaction
        if not config.enable_loop_detection:
            self.repetition = None
        elif self.repetition is None or self.repetition.window != config.loop_detection_window:
            self.repetition = Repetition(config.loop_detection_window)

    def interrupt(self) -> None:
        """Add results for the calls that were interrupted."""
        self.history.interrupt(self.clock.now())

    def fail(self, error: BaseException) -> None:
        """Emit the error that stops the processing of the input."""
        self.interrupt()
        self.emit(ErrorOccurred(type(error).__name__, str(error)))

    async def add_user_message(self, kind: TurnKind, message: Message) -> None:
        """Add a user message, together with the memories that match it."""
        recalled = ""
        try:
            with paid_by(SidePayments(self.budget, self.emit)):
                found = await self.host.recall(message.text)
            recalled = self.host.clean("what was remembered", found).strip()
        except PullwrightError as error:
            self.emit(Warned(f"nothing was recalled: {error}"))
        finally:  # also after a cancellation: the message belongs to the conversation
            self.add_message(kind, _with_recalled(message, recalled), recalled=len(recalled))

    def add_message(
        self, kind: TurnKind, message: Message, ran: tuple[RanCommand, ...] = (), *, recalled: int = 0
    ) -> None:
        """Add a message that does not come from the model.

        Args:
            ran: the commands whose results the message contains.
            recalled: the number of characters at the end of the message that come from memory.
        """
        self.history.add(Turn(kind, message, self.clock.now(), ran=ran, recalled=recalled))
        self.emit(MessageAdded(message, recalled))


def input_message(user: object) -> Message:
    """Return an input as a message.

    Raises:
        ConfigurationError: the input is neither text nor a message, or is empty.
    """
    message = Message.user(user) if isinstance(user, str) else user
    if not isinstance(message, Message):
        raise ConfigurationError(f"an input must be a text or a Message, not {type(user).__name__}")
    if not any(not isinstance(part, Text) or part.text.strip() for part in message.parts):
        raise ConfigurationError("the input is empty: say what is to be done")
    return message


def _with_recalled(message: Message, recalled: str) -> Message:
    if not recalled:
        return message
    last = message.parts[-1]
    if isinstance(last, Text):
        return replace(message, parts=(*message.parts[:-1], Text(f"{last.text}\n\n{recalled}")))
    return replace(message, parts=(*message.parts, Text(recalled)))


class Loop:
    """One run of the loop, with its counts of consecutive replies of each kind.

    Args:
        inputs: the conversation, which is extended, and the state that goes with it.
        next_request: returns the next request; it may change between rounds.
    """

    def __init__(self, inputs: Inputs, runner: ToolRunner, next_request: Callable[[], NextRequest]) -> None:
        self.inputs, self.runner, self.next_request = inputs, runner, next_request
        self.history, self.budget, self.host = inputs.history, inputs.budget, inputs.host
        self.emit = inputs.emit
        self.rejected = self.empty = self.idle = self.same = 0
        self.last_failed: object = None
        self.warned_of_context = self.guessed_overflow = self.told_of_call = False

    async def run(self) -> SessionEnd:
        """Run rounds until the model is done, a call ends the session, or a limit is reached.

        Raises:
            ModelError: the provider gave no answer.
            BadReplyError: three replies in a row did not have the contract's form.
        """
        while True:
            await asyncio.sleep(0)  # lets the reader of the events steer before the next request is sent
            await self._steer(self.inputs.take_steering())
            if self.host.stopped():
                return SessionEnd(EndKind.INTERRUPTED, "interrupted")
            deadline = asyncio.timeout(self.budget.seconds_left)
            try:
                async with deadline:
                    end = await self._round(self.next_request())
            except TimeoutError:
                if not deadline.expired():
                    raise
                return self._limit(self.budget.out_of_time())
            if end:
                return end

    async def _round(self, request: NextRequest) -> SessionEnd | None:
        """Send one request, if the limits allow it, and act on the reply. Return None if the loop goes on."""
        if self.inputs.compaction:
            request = await self.inputs.compaction.prepare(request)
        reservation = await self._authorize(request)
        if isinstance(reservation, LimitReached):
            return self._limit(reservation)
        try:
            response = await self._send(request, reservation)
        except NoRoomError:
            return None
        except ModelError as error:
            return await self._handle_refusal(request, error)
        reading = request.contract.read(response, request.tools, round_number=self.budget.rounds)
        if _is_empty(response, reading) and response.finish is not FinishReason.PAUSE:
            return await self._handle_empty(request, response, reading)
        if isinstance(reading, Malformed):
            return await self._handle_malformed(request, response, reading)
        return await self._act(request, response, reading)

    async def _authorize(self, request: NextRequest) -> Reservation | LimitReached:
        """Reserve the cost of the request, or else of a last turn to wrap up; return the limit if none fits.

        Wait while there is no room only because of the reservations of other sessions' running requests.
        """
        budget = self.budget
        while True:
            if limit := budget.exceeded():
                return limit
            limit = budget.wrapping_up or budget.wrap_up_due()
            if limit is None:
                room = reserve(budget, request.need(self.history))
                if isinstance(room, Reservation):
                    return room
                if room.passes:
                    await budget.wait_for_release()
                    continue
                limit = room.limit
            if not budget.wrap_up_share or not budget.rounds:
                return limit
            last = self._authorize_last(request, limit)
            if last is not None:
                return last
            await budget.wait_for_release()

    def _authorize_last(self, request: NextRequest, limit: LimitReached) -> Reservation | LimitReached | None:
        """Reserve the cost of the wrap-up turn; return None if there may be room for it later."""
        message = request.contract.answer((), self._wrap_up_words(request))
        is_announced = self.budget.wrapping_up is not None
        more = 0 if is_announced else message_bytes(message)
        room = reserve(self.budget, request.need(self.history, more), wrap_up=True)
        if not isinstance(room, Reservation):
            return None if room.passes else room.limit
        if not is_announced:
            self.budget.wrapping_up = limit
            self.emit(Warned(f"nearly at a limit ({limit.detail}): the model gets one last turn to wrap up"))
            self._add_from_program(message)
        return room

    def _wrap_up_words(self, request: NextRequest) -> str:
        if words := self.host.wrap_up or request.contract.wrap_up:
            return words
        names = {tool.name for tool in request.tools}
        proposes, finishes = "create_pull_request" in names, names & {"finish", "submit"}
        return render("agent/wrap_up", proposes=proposes, finishes=finishes)

    async def _send(self, request: NextRequest, reservation: Reservation) -> Response:
        share = request.context_share(self.history)
        if share > CONTEXT_WARNING_SHARE and not self.warned_of_context:
            self.emit(Warned(f"Context usage at ~{share:.0%} of context window"))
        self.warned_of_context = share > CONTEXT_WARNING_SHARE
        messages = self.history.context(request.contract)
        return await SentRequest(
            request, messages, self.history, reservation, self.emit, self.inputs.clock.now
        ).reply()

    async def _act(self, request: NextRequest, response: Response, reading: Actions) -> SessionEnd | None:
        """Act on a reply in the contract's form."""
        self.rejected = self.empty = 0
        if reading.written and is_quotation(reading.written, self.history.foreign_texts()):
            reading = Actions(response.text, (), note=render("contracts/call_in_text"))
        called = len(reading.calls) + len(reading.withheld)
        self.emit(PlanAccepted(reading.plan, called, repaired=reading.repaired, cut_off=reading.cut_off))
        if self.inputs.compaction and reading.plan.strip():
            self.inputs.compaction.plan = reading.plan
        if not called:
            return await self._handle_text(request, response, reading)
        self.idle = 0
        self.told_of_call = False
        if ending := await self._run_calls(request, reading):
            return SessionEnd(EndKind(ending.ending), ending.text)
        self._warn_of_repetition(reading)
        most = self.budget.limits.same_replies
        if most is not None and self.same >= most:
            detail = f"{self.same} replies in a row were the same, and none of their calls succeeded"
            return self._limit(LimitReached("replies", detail))
        return None

    def _count_failed(self, calls: Sequence[ToolCall], results: Sequence[ToolResult]) -> None:
        """Count equal replies in a row of which no call succeeded."""
        failed = [(call.name, dict(call.arguments)) for call in calls] if _all_failed(results) else None
        self.same = (
            self.same + 1 if failed is not None and failed == self.last_failed else int(failed is not None)
        )
        self.last_failed = failed

    async def _run_calls(self, request: NextRequest, reading: Actions) -> Ends | None:
        """Run the calls of the reply. The model gets a result for each call, however it ended."""
        reply = self.history.turns[-1]
        self.budget.tool_rounds += 1

        def answer(results: tuple[ToolResult, ...]) -> None:
            note = "\n".join(filter(None, [reading.note, render("agent/cut_off") if reading.cut_off else ""]))
            self._count_failed((*reading.calls, *reading.withheld), results)
            if self.history.turns[-1] is reply:  # else the interruption has added the results already
                ran = commands_of((*reading.calls, *reading.withheld), results)
                self.inputs.add_message(TurnKind.TOOL_RESULTS, request.contract.answer(results, note), ran)

        return await run_calls(
            self.runner,
            reading.calls,
            reading.withheld,
            answer=answer,
            running=request.contract.running,
            parallel=request.parallel,
            ways=reading.ways,
        )

    async def _handle_text(
        self, request: NextRequest, response: Response, reading: Actions
    ) -> SessionEnd | None:
        """Handle a reply without calls: end, continue after a provider's pause, or ask the model to go on."""
        text, text_ends = response.text.strip(), request.contract.text_ends
        if response.finish is FinishReason.PAUSE:
            return self._idle()  # the vendor wants the conversation again, including its partial reply
        _require_no_refusal(response)
        if not text_ends and await self.host.is_done():
            return SessionEnd(EndKind.COMPLETED, text)
        words = "" if self.told_of_call else reading.note
        self.told_of_call = self.told_of_call or bool(words)
        if text_ends and text and not reading.cut_off and not words:
            words = await self.host.may_end(text) or ""
            late = self.inputs.take_steering()
            if not words and not late:
                return SessionEnd(EndKind.AWAITING if is_question(text) else EndKind.COMPLETED, text)
            await self._steer(late)
            if not words:
                return None
        if end := self._idle():
            return end
        note = words or (
            render("agent/cut_off") if reading.cut_off else request.contract.go_on(request.tools)
        )
        self._add_from_program(request.contract.answer((), note))
        return None

    def _idle(self) -> SessionEnd | None:
        """Count a reply without calls that does not end the work; return an end once there are too many."""
        self.idle += 1
        if self.idle < IDLE_REPLIES_IN_A_ROW:
            return None
        return self._limit(LimitReached("replies", f"{self.idle} replies in a row had no tool call"))

    async def _handle_refusal(self, request: NextRequest, error: ModelError) -> SessionEnd | None:
        """Compact or prune the conversation if it was too long for the model, or end.

        A refusal without a known reason counts once as a refusal of the length, if the window is nearly full.
        """
        if not isinstance(error, ContextLengthError):
            share = request.request_share(self.history)
            if self.guessed_overflow or not error.is_unexplained or share < CONTEXT_WARNING_SHARE:
                raise error
            self.guessed_overflow = True
            self.emit(
                Warned(
                    f"{error}: the reason is unknown, but the request takes ~{share:.0%} of the context window,"
                    " so it counts as too long"
                )
            )
        if self.inputs.compaction and await self.inputs.compaction.overflowed(request):
            return None
        prunes = request.contract.prunes
        if prunes and (dropped := self.history.prune()):
            self.emit(Warned(f"the conversation was too long; its oldest {dropped} turns were dropped"))
            return None
        why = "pruning did not help" if prunes else "start a new session, or use a larger model"
        text = f"the conversation is longer than the model can read ({error}); {why}"
        self.emit(Warned(text))
        return SessionEnd(EndKind.OVERFLOW, text)

    async def _handle_empty(
        self, request: NextRequest, response: Response, reading: ReadReply
    ) -> SessionEnd | None:
        """Handle an empty reply: end if all work is done, else ask again."""
        _require_no_refusal(response)
        if await self.host.is_done():
            return SessionEnd(EndKind.COMPLETED, "")
        cut_off, contract = response.finish is FinishReason.LENGTH, request.contract
        self.empty += 1
        self.emit(ReplyRejected(("reply: it was empty",), self.empty))
        if self.empty >= EMPTY_REPLIES_IN_A_ROW:
            hint = "; the model ran into its output limit: raise --max-output-tokens" if cut_off else ""
            return self._limit(LimitReached("replies", f"{self.empty} replies in a row were empty{hint}"))
        if isinstance(reading, Malformed):
            self._add_from_program(contract.complain(reading.problems))
        else:
            words = reading.note or contract.go_on(request.tools)
            self._add_from_program(contract.answer((), render("agent/cut_off") if cut_off else words))
        return None

    async def _handle_malformed(
        self, request: NextRequest, response: Response, reading: Malformed
    ) -> SessionEnd | None:
        """Handle an unreadable reply. If all work is done, text that cannot be a plan ends the loop."""
        is_last = self.rejected + 1 >= BAD_REPLIES_IN_A_ROW
        if (is_last or "{" not in response.text) and await self.host.is_done():
            return SessionEnd(EndKind.COMPLETED, response.text.strip())
        self.rejected += 1
        self.emit(ReplyRejected(reading.problems, self.rejected))
        self.runner.failures.count("reply", reading.problems[0])
        if is_last:
            raise BadReplyError(
                f"{self.rejected} replies in a row were no valid plan (the last: {reading.problems[0]}); "
                "try a larger model, or a server that supports JSON-schema output"
            )
        self._add_from_program(request.contract.complain(reading.problems))
        return None

    def _warn_of_repetition(self, reading: Actions) -> None:
        repetition = self.inputs.repetition
        if repetition is None:
            return
        for call in reading.calls:
            repetition.add(call)
        if repetition.found():
            warning = render("agent/loop_detected", window=repetition.window)
            self.inputs.add_message(TurnKind.STEERING, Message.user(warning))
            self.emit(LoopDetected(warning))

    async def _steer(self, texts: list[str]) -> None:
        for text in texts:
            await self.inputs.add_user_message(TurnKind.STEERING, Message.user(text))
            self.emit(SteeringInjected(text))

    def _add_from_program(self, message: Message) -> None:
        """Add a message from the program."""
        self.inputs.add_message(TurnKind.SYSTEM, message)

    def _limit(self, limit: LimitReached) -> SessionEnd:
        self.emit(limit)
        return SessionEnd(EndKind.LIMIT, limit.detail, limit.limit)


def _all_failed(results: Sequence[ToolResult]) -> bool:
    return all(result.is_error for result in results)


def is_question(text: str) -> bool:
    """Return whether a reply ends with a question to the user, ignoring closing markup and quotes."""
    full_width = "\uff1f"
    return text.rstrip(" \t\r\n*_`\"')]»”").endswith(("?", full_width))


def _is_empty(response: Response, reading: ReadReply) -> bool:
    """Return whether a reply has neither text nor calls."""
    if isinstance(reading, Malformed):
        return not response.text.strip()
    return not (reading.calls or reading.withheld or reading.plan.strip())


def _require_no_refusal(response: Response) -> None:
    if response.finish in {FinishReason.REFUSAL, FinishReason.CONTENT_FILTER}:
        said = response.text.strip()[:300] or response.finish.value
        raise ContentFilterError(f"the model refused to answer: {said}")
