"""The calls of a reply: each is looked up, validated, gated, executed, emitted in full, truncated and answered."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, deque
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import ForgeError, JournalError, SandboxMissingError, ToolError, WorkspaceError
from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted, ToolOutputDelta
from orchestrator.core.messages import Image, ToolResult
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.base import Running
from orchestrator.engine.models.base import invalid_arguments
from orchestrator.engine.session.gate import Refusal, not_available, shows_all
from orchestrator.engine.session.history import INTERRUPTED, interrupted
from orchestrator.engine.tools.base import (
    CommandTimes,
    Ends,
    Failed,
    Ok,
    Order,
    OutputLimits,
    ToolContext,
    truncate,
)
from orchestrator.engine.tools.registry import argument_problems

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolCall
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.tools.base import Ledger, Tool, ToolOutcome
    from orchestrator.engine.tools.registry import ToolRegistry


LONGEST_PATTERN = 3
DEFAULT_WINDOW = 10


class FailedCalls:
    """The answers of failed calls since a call changed something."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str]] = Counter()

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._answers)

    def answer(self, call: ToolCall, message: str) -> str:
        """What the model is told of a call that failed; that it was told the same before, if it was.

        The answer tells, not the call: a call that is nearly the same fails for the same reason.
        """
        count = self.note(call.name, message)
        return message if count == 1 else f"{message}\n\n{render('agent/failed_again', count=count)}"

    def note(self, name: str, message: str) -> int:
        """Take note of an answer; how often it was given."""
        self._answers[name, message] += 1
        return self._answers[name, message]

    def forget(self) -> None:
        """Take note that something was changed, after which the same call may do."""
        self._answers.clear()


class Repetition:
    """The last calls of a session, by name and arguments.

    Args:
        window: how many calls must follow one pattern; at least 2.
    """

    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        self.window = max(window, 2)
        self._recent: deque[bytes] = deque(maxlen=self.window)

    def add(self, call: ToolCall) -> None:
        """Take note of a call."""
        said = json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)
        self._recent.append(hashlib.sha256(said.encode("utf-8", "replace")).digest())

    def found(self) -> bool:
        """Whether the whole window repeats one, two or three calls. After a yes the window begins anew.

        The pattern need not fit the window evenly: ten calls of a cycle of three are a loop.
        """
        calls = list(self._recent)
        if len(calls) < self.window:
            return False
        for length in range(1, LONGEST_PATTERN + 1):
            if 2 * length <= self.window and all(
                calls[i] == calls[i - length] for i in range(length, len(calls))
            ):
                self._recent.clear()
                return True
        return False


DEFAULT_TOOL_SECONDS = 660.0
"""For one call of any tool: a minute more than a command may take."""

_TOO_MANY_DENIALS = "Not run: too many calls of this session were refused before it."


def unchanged(_what: str, text: str) -> str:
    """Leave a text as it is, by what it is and what it says."""
    return text


@dataclass(slots=True)
class Workbench:
    """What calls run with. `times` and `limits` may change between two calls.

    Attributes:
        tools: what can be called.
        gate: who may run.
        environment: where calls act.
        ledger: what the tools remember.
        emit: takes the events.
        times: how long commands may run.
        limits: what replaces the defaults of truncation.
        tool_seconds: how long a call of a tool may take that is timed.
        shows: which tools exist for the model.
        budget: counts the calls that are refused; None counts nothing.
        clean: a text as the model may see it, by what it is and what it says.
        failures: knows the answers of failed calls.
    """

    tools: ToolRegistry
    gate: Gate
    environment: ExecutionEnvironment
    ledger: Ledger
    emit: Emit
    times: CommandTimes = field(default_factory=CommandTimes)
    limits: OutputLimits = field(default_factory=OutputLimits)
    tool_seconds: float = DEFAULT_TOOL_SECONDS
    shows: Callable[[Tool], bool] = shows_all
    budget: Budget | None = None
    clean: Callable[[str, str], str] = unchanged
    failures: FailedCalls = field(default_factory=FailedCalls)


@dataclass(frozen=True, slots=True)
class CallEnd:
    """How one call ended: what the model is told, and whether the session ends with it."""

    result: ToolResult
    ending: Ends | None = None

    @property
    def failed(self) -> bool:
        """Whether it failed, was refused or did not run."""
        return self.result.is_error


async def run_call(bench: Workbench, call: ToolCall) -> CallEnd:
    """Run one call. A tool that fails, breaks or hangs gives a result that says so.

    None runs any more once the limit of refused calls is reached. However a call ends, its end is told.

    Raises:
        ForgeError, WorkspaceError, JournalError, SandboxMissingError: the host's own trouble, which no model can mend.
    """
    if bench.budget and bench.budget.denied:
        return skip_call(bench, call, _TOO_MANY_DENIALS)
    bench.emit(ToolCallStarted(call.id, call.name, call.arguments))
    try:
        with _not_swallowing_an_interruption():
            status, outcome = await _outcome(bench, call)
    except BaseException as error:
        # Stopped, or the host's own trouble: either way nobody knows how far it came.
        why = INTERRUPTED if isinstance(error, asyncio.CancelledError) else f"{INTERRUPTED} {error}"
        bench.emit(ToolCallEnded(call.id, call.name, CallStatus.INTERRUPTED, why))
        raise
    if isinstance(outcome, Failed):
        outcome = replace(outcome, message=bench.failures.answer(call, outcome.message))
    elif (tool := bench.tools.get(call.name)) and (tool.dangerous or tool.order is Order.ALONE):
        bench.failures.forget()
    ending = outcome if isinstance(outcome, Ends) else None
    return CallEnd(_finish(bench, call, status, outcome), ending)


def skip_call(bench: Workbench, call: ToolCall, why: str) -> CallEnd:
    """Answer a call without running it."""
    bench.emit(ToolCallStarted(call.id, call.name, call.arguments))
    return CallEnd(_finish(bench, call, CallStatus.SKIPPED, Failed(why)))


@contextmanager
def _not_swallowing_an_interruption() -> Iterator[None]:
    """Pass on the request to stop, whatever a foreign tool made of it: nothing runs behind an interrupted call."""
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    yield
    if task and task.cancelling() > before:
        raise asyncio.CancelledError


async def _outcome(bench: Workbench, call: ToolCall) -> tuple[CallStatus, ToolOutcome]:
    tool = bench.tools.get(call.name)
    if tool is None:
        known = ", ".join(bench.tools.names())
        return CallStatus.FAILED, Failed(f"There is no tool named {call.name[:200]!r}. Known are: {known}.")
    if not bench.shows(tool):
        return _refuse(bench, not_available(call))
    outcome = await _execute(bench, tool, call)
    if isinstance(outcome, Refusal):
        return _refuse(bench, outcome)
    return (CallStatus.FAILED if isinstance(outcome, Failed) else CallStatus.OK), outcome


def _refuse(bench: Workbench, refusal: Refusal) -> tuple[CallStatus, ToolOutcome]:
    """Count the refusal, and say by an event which defence it was."""
    if bench.budget:
        bench.budget.deny()
    bench.emit(Guarded(refusal.defence, str(refusal)))
    return CallStatus.REFUSED, Failed(str(refusal))


def _argument_problem(tool: Tool, call: ToolCall) -> str:
    if (text := invalid_arguments(call)) is not None:
        return f"The arguments of {call.name} are not a JSON object: {text[:200]}"
    problems = argument_problems(call.arguments, tool.definition)
    return f"Invalid arguments for {call.name}: {'; '.join(problems)}" if problems else ""


def _obstacle(bench: Workbench, tool: Tool, call: ToolCall) -> Failed | Refusal | None:
    if problem := _argument_problem(tool, call):
        return Failed(problem)
    reason = bench.gate(tool, call)
    if reason is None or isinstance(reason, Refusal):
        return reason
    return Refusal(reason, Defence.LEVEL)


async def _execute(bench: Workbench, tool: Tool, call: ToolCall) -> ToolOutcome | Refusal:
    """Check the arguments, ask the gate and run the tool. A host's own may have a broken schema, or gate, too."""

    def show(text: str) -> None:
        bench.emit(ToolOutputDelta(call.id, text))

    deadline = asyncio.timeout(bench.tool_seconds if tool.is_timed else None)
    try:
        if (obstacle := _obstacle(bench, tool, call)) is not None:
            return obstacle
        async with deadline:
            context = ToolContext(bench.environment, bench.ledger, show, bench.times)
            return _sound(await tool.execute(call.arguments, context))
    except ToolError as error:
        return Failed(str(error))
    except (ForgeError, WorkspaceError, JournalError, SandboxMissingError):
        raise  # see run_call
    except TimeoutError as error:
        late = f"{call.name} gave no answer within {bench.tool_seconds:g} seconds and was stopped."
        return Failed(late) if deadline.expired() else _broken(call, error)
    except asyncio.CancelledError as error:
        current = asyncio.current_task()
        if current and current.cancelling():
            raise
        return _broken(call, error)  # of something that the tool waited for; nobody stopped the session
    except (Exception, SystemExit) as error:  # noqa: BLE001  border: a broken tool must not end the session
        return _broken(call, error)


def _sound(outcome: object) -> ToolOutcome:
    """What a tool gave back, if the session can go on with it."""
    match outcome:
        case Ok(str(), tuple() as images) if all(isinstance(image, Image) for image in images):
            return outcome
        case Failed(str()) | Ends("finish" | "question", str()):
            return outcome
        case _:
            raise TypeError(f"it gave back {str(outcome)[:100]!r}, not Ok, Failed or Ends with a text")


def _broken(call: ToolCall, error: BaseException) -> Failed:
    return Failed(f"{call.name} broke: {type(error).__name__}: {error}")


def _finish(bench: Workbench, call: ToolCall, status: CallStatus, outcome: ToolOutcome) -> ToolResult:
    images: tuple[Image, ...] = ()
    cut_as, full = call.name, None
    match outcome:
        case Ok():
            output, images, full = outcome.output, outcome.images, outcome.full
        case Failed():
            output, cut_as, full = outcome.message, outcome.cut_as or call.name, outcome.full
        case Ends():
            output = outcome.text
        case _:
            assert_never(outcome)
    bench.emit(ToolCallEnded(call.id, call.name, status, output if full is None else full))
    # After the cut, so that its cost does not grow with what a program prints.
    shown = bench.clean(f"the answer of {call.name}", truncate(output, cut_as, bench.limits))
    return ToolResult(call.id, call.name, shown, is_error=status is not CallStatus.OK, images=images)


MAX_CALLS = 200
"""That run of one reply. What comes behind them is answered as not run."""

MAX_AT_ONCE = 16
"""Calls that run at the same time."""

_INTERRUPTED_BEFORE = "Not run: the work was interrupted before this call."
_CUT_OFF = "Not run: the reply was cut off before this call was complete."
_TOO_MANY = f"Not run: a reply may have at most {MAX_CALLS} calls. Send this one again if it is still right."
_ONE_A_STEP = (
    "Not executed: only the first tool call of a step is executed. Send this one in a step of its own."
)


async def run_calls(  # noqa: PLR0913  what runs, how, and who is told
    bench: Workbench,
    calls: Sequence[ToolCall],
    withheld: Iterable[ToolCall] = (),
    *,
    answer: Callable[[tuple[ToolResult, ...]], None],
    running: Running = Running.IN_ORDER,
    parallel: bool = True,
) -> Ends | None:
    """Run the calls of a reply; the ending, if one of them ended the session.

    Args:
        bench: what the calls run with.
        calls: the reply's calls.
        withheld: calls of a reply that was cut off, which must not run.
        answer: takes a result for each call, in the order of the calls, also when the calls are interrupted.
        running: how the contract has them run.
        parallel: False runs calls one after the other that could run at the same time.
    """
    reply = _Reply(bench, (*calls, *withheld))
    taken = range(min(len(calls), MAX_CALLS))
    try:
        match running:
            case Running.IN_ORDER:
                await _in_order(reply, taken)
            case Running.TOGETHER:
                await _together(reply, taken, parallel=parallel)
            case Running.FIRST_ONLY:
                await _first_only(reply, taken)
            case _:
                assert_never(running)
        for place in range(len(taken), len(calls)):
            reply.skip(place, _TOO_MANY)
        for place in range(len(calls), len(reply.calls)):
            reply.skip(place, _CUT_OFF)
    finally:
        answer(reply.results())
    return next((end.ending for _, end in sorted(reply.ends.items()) if end.ending), None)


@dataclass(slots=True)
class _Reply:
    """The calls of one reply, by their place in it, and how those ended that did.

    Attributes:
        begun: the calls that were started, or skipped.
    """

    bench: Workbench
    calls: Sequence[ToolCall]
    ends: dict[int, CallEnd] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    async def run(self, place: int) -> CallEnd:
        """Run a call."""
        self.begun.add(place)
        end = self.ends[place] = await run_call(self.bench, self.calls[place])
        return end

    def skip(self, place: int, why: str) -> None:
        """Answer a call without running it."""
        self.begun.add(place)
        self.ends[place] = skip_call(self.bench, self.calls[place], why)

    def results(self) -> tuple[ToolResult, ...]:
        """A result for each call; those that an interruption left without an end are answered now."""
        for place in range(len(self.calls)):
            if place not in self.begun:
                self.skip(place, _INTERRUPTED_BEFORE)
        return tuple(
            self.ends[place].result if place in self.ends else interrupted(call)
            for place, call in enumerate(self.calls)
        )


async def _in_order(reply: _Reply, places: Sequence[int]) -> None:
    blocker = ""
    for place in places:
        if blocker:
            reply.skip(place, f"Not run: {blocker}")
            continue
        end, name = await reply.run(place), reply.calls[place].name
        if end.failed:
            blocker = f"{name} failed before this call. Send it again if it is still right."
        elif end.ending:
            blocker = f"{name} ended the session before this call."


async def _first_only(reply: _Reply, places: Sequence[int]) -> None:
    for place in places:
        if place:
            reply.skip(place, _ONE_A_STEP)
        else:
            await reply.run(place)


async def _together(reply: _Reply, places: Sequence[int], *, parallel: bool) -> None:
    """Calls that only look run beside each other; the others wait for those before them, and run alone."""
    room = asyncio.Semaphore(MAX_AT_ONCE if parallel else 1)
    started: list[asyncio.Task[CallEnd]] = []

    async def run(place: int) -> CallEnd:
        async with room:
            return await reply.run(place)

    try:
        for place in places:
            order = _order(reply.bench, reply.calls[place])
            if order is not Order.TOGETHER:
                await asyncio.gather(*started)
                started.clear()
            if reason := _not_run(order, reply.ends.values()):
                reply.skip(place, reason)
            elif order is Order.TOGETHER:
                started.append(asyncio.create_task(run(place)))
            else:
                await reply.run(place)
        await asyncio.gather(*started)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def _order(bench: Workbench, call: ToolCall) -> Order:
    tool = bench.tools.get(call.name)
    return tool.order if tool else Order.TOGETHER


def _not_run(order: Order, ends: Iterable[CallEnd]) -> str:
    """Why a call does not run after those that have ended; empty if it does."""
    if any(end.ending for end in ends):
        return "Not run: a call before this one ended the session."
    if order is Order.LAST and any(end.failed for end in ends):
        return "Not run: a call before this one failed. Send it again when all is right."
    return ""
