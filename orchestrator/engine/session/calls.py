"""Runs the calls of a reply: look up, validate, ask the gate, execute, emit in full, truncate, answer."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter, deque
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import (
    CommandRefusedError,
    ForgeError,
    JournalError,
    OvertakenError,
    SandboxMissingError,
    ToolError,
    WorkspaceError,
)
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
)
from orchestrator.core.messages import Image, ToolResult
from orchestrator.core.prompts import render
from orchestrator.core.todos import TodoList
from orchestrator.engine.contracts.base import Running
from orchestrator.engine.models.base import invalid_arguments, paid_by
from orchestrator.engine.session.budget import SidePayments
from orchestrator.engine.session.gate import Refusal, no_such_tool, shows_all
from orchestrator.engine.session.history import INTERRUPTED_RESULT, interrupted
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
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolCall
    from orchestrator.core.todos import TodoItem
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.gate import Approve, Gate
    from orchestrator.engine.tools.base import Ledger, Tool, ToolOutcome
    from orchestrator.engine.tools.registry import ToolRegistry


LONGEST_PATTERN = 3
DEFAULT_WINDOW = 10
DEFAULT_TOOL_SECONDS = 660.0
"""Time for one call of any tool: a minute more than a command may take."""

MAX_CALLS = 200
"""Calls of one reply that may run. The rest is answered as not run."""

READING_TOOLS: Mapping[str, str] = {
    "read_file": "with offset and limit",
    "file_read": "with start_line and end_line",
}
"""Tools that can read the stored copy of a long output, and the parameters that select a part of it."""
SHOWS_FILES = frozenset({*READING_TOOLS, "read_many_files"})
"""Tools whose output comes from files, which can be read again."""

MAX_AT_ONCE = 16
"""Calls that may run concurrently."""

_TOO_MANY_DENIALS = "Not run: too many calls of this session were refused before it."
_INTERRUPTED_BEFORE = "Not run: the work was interrupted before this call."
_CUT_OFF = "Not run: the reply was cut off before this call was complete."
_TOO_MANY = f"Not run: a reply may have at most {MAX_CALLS} calls. Send this one again if it is still right."
_ONE_A_STEP = (
    "Not executed: only the first tool call of a step is executed. Send this one in a step of its own."
)


class FailedCalls:
    """Counts the answers of failed calls since the last call that changed something."""

    def __init__(self) -> None:
        self._answers: Counter[tuple[str, str]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._answers)

    def answer(self, call: ToolCall, message: str) -> str:
        """Return the answer to a failed call, with a note if the same answer was given before.

        The answers are compared, not the calls: a nearly identical call fails for the same reason.
        """
        count = self.count(call.name, message)
        return message if count == 1 else f"{message}\n\n{render('agent/failed_again', count=count)}"

    def count(self, name: str, message: str) -> int:
        """Count an answer; return how many times it was given."""
        self._answers[name, message] += 1
        return self._answers[name, message]

    def forget(self) -> None:
        """Forget all answers after a change: the same call may succeed now."""
        self._answers.clear()


class Repetition:
    """Detects when the calls of a session repeat, by name and arguments.

    Args:
        window: the number of calls that must follow one pattern; at least 2.
    """

    def __init__(self, window: int = DEFAULT_WINDOW) -> None:
        self.window = max(window, 2)
        self._recent: deque[bytes] = deque(maxlen=self.window)

    def add(self, call: ToolCall) -> None:
        """Add a call to the window."""
        text = json.dumps([call.name, dict(call.arguments)], sort_keys=True, default=str)
        self._recent.append(hashlib.sha256(text.encode("utf-8", "replace")).digest())

    def found(self) -> bool:
        """Return whether the whole window repeats one, two or three calls; if so, empty the window.

        The pattern need not fit the window evenly: ten calls of a cycle of three are a loop.
        """
        calls = list(self._recent)
        if len(calls) < self.window:
            return False
        for length in range(1, min(LONGEST_PATTERN, self.window // 2) + 1):
            if calls[length:] == calls[:-length]:
                self._recent.clear()
                return True
        return False


def unchanged(_what: str, text: str) -> str:
    """Return a text as it is."""
    return text


@dataclass(frozen=True, slots=True)
class CallEnd:
    """The end of one call: its result for the model, and the end of the session if the call caused it."""

    result: ToolResult
    ending: Ends | None = None

    @property
    def failed(self) -> bool:
        """Whether the call failed, was refused or did not run."""
        return self.result.is_error


@dataclass(slots=True)
class ToolRunner:
    """Runs calls. `times` and `limits` may change between two calls.

    Attributes:
        ledger: the shared memory of the tools.
        limits: replace the defaults of truncation.
        tool_seconds: time-out of a call, for tools that have one.
        shows: whether a tool is visible to the model.
        told: the names of the tools that the model was told of. No answer names another one.
        budget: counts refused calls; None counts nothing.
        clean: returns a text as the model may see it, given a description of the text and the text itself.
        todos: the model's to-do list; each change is emitted.
        skills: the skill texts that the model was given, by name.
        images: whether the model reads images; if not, it gets a note in their place.
        approve: asks a person about calls that a higher level would allow; None asks nobody.
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
    told: tuple[str, ...] = ()
    budget: Budget | None = None
    clean: Callable[[str, str], str] = unchanged
    todos: TodoList = field(default_factory=TodoList)
    clock: Clock = field(default_factory=SystemClock)
    images: bool = True
    approve: Approve | None = None
    skills: dict[str, str] = field(default_factory=dict)
    failures: FailedCalls = field(default_factory=FailedCalls)
    _emitted_todos: tuple[TodoItem, ...] = ()

    async def run(self, call: ToolCall) -> CallEnd:
        """Run one call. A tool that fails, breaks or hangs gives a result that says so.

        Once the limit of refused calls is reached, no call runs. Every call emits its end.

        Raises:
            ForgeError, WorkspaceError, JournalError, OvertakenError, SandboxMissingError: what
                the model cannot repair.
        """
        if self.budget and self.budget.denied:
            return self.skip(call, _TOO_MANY_DENIALS)
        self.emit(ToolCallStarted(call.id, call.name, call.arguments))
        tool = self.tools.get(call.name)
        try:
            status, outcome = await self._outcome(tool, call)
        except BaseException as error:
            # Cancelled, or a failure of the host: in both cases the call's progress is unknown.
            why = (
                INTERRUPTED_RESULT
                if isinstance(error, asyncio.CancelledError)
                else f"{INTERRUPTED_RESULT} {error}"
            )
            self.emit(ToolCallEnded(call.id, call.name, CallStatus.INTERRUPTED, why))
            raise
        if isinstance(outcome, Failed):
            outcome = replace(outcome, message=self.failures.answer(call, outcome.message))
        elif tool and (tool.dangerous or tool.order is Order.ALONE):
            self.failures.forget()
        return self._end(call, status, outcome)

    def skip(self, call: ToolCall, why: str) -> CallEnd:
        """Answer a call without running it."""
        self.emit(ToolCallStarted(call.id, call.name, call.arguments))
        return self._end(call, CallStatus.SKIPPED, Failed(why))

    def emit_todos(self) -> None:
        """Emit the model's to-do list if it has changed since it was last emitted."""
        if (items := self.todos.items) != self._emitted_todos:
            self._emitted_todos = items
            self.emit(TodosChanged(items, self.todos.added))

    async def _outcome(self, tool: Tool | None, call: ToolCall) -> tuple[CallStatus, ToolOutcome]:
        if tool is None:
            return CallStatus.FAILED, Failed(no_such_tool(self.told))
        task = asyncio.current_task()
        stops_before = task.cancelling() if task else 0
        outcome = await self._execute(tool, call) if self.shows(tool) else Refusal(no_such_tool(self.told))
        if task and task.cancelling() > stops_before:
            raise asyncio.CancelledError  # even if the tool swallowed the cancellation
        if isinstance(outcome, Refusal):
            if self.budget:
                self.budget.count_denial()
            if not (outcome.scope and self.approve):  # else a person refused it: `CallDecided` was emitted
                self.emit(Guarded(outcome.defence, str(outcome)))
            return CallStatus.REFUSED, Failed(str(outcome))
        return (CallStatus.FAILED if isinstance(outcome, Failed) else CallStatus.OK), outcome

    async def _execute(self, tool: Tool, call: ToolCall) -> ToolOutcome | Refusal:
        """Check the arguments, ask the gate and run the tool.

        A host's own tool or gate may be broken as well, so every exception of theirs becomes a result.
        """

        def show(text: str) -> None:
            self.emit(ToolOutputDelta(call.id, text))

        deadline = asyncio.timeout(self.tool_seconds if tool.is_timed else None)
        try:
            if (obstacle := await self._obstacle(tool, call)) is not None:
                return obstacle
            alone = self.ledger.changing if tool.order is Order.ALONE else nullcontext()
            async with alone, deadline:
                context = ToolContext(
                    self.environment,
                    self.ledger,
                    show,
                    self.times,
                    self.todos,
                    self.clock,
                    self.skills,
                    frozenset(self.told),
                )
                with paid_by(SidePayments(self.budget, self.emit)) if self.budget else nullcontext():
                    return _checked_outcome(await tool.execute(call.arguments, context))
        except ToolError as error:
            is_refusal = isinstance(error, CommandRefusedError)
            return Refusal(str(error), Defence.COMMANDS) if is_refusal else Failed(str(error))
        except (ForgeError, WorkspaceError, JournalError, OvertakenError, SandboxMissingError):
            raise  # see `run`
        except TimeoutError as error:
            late = f"{self._named(call)} gave no answer within {self.tool_seconds:g} seconds and was stopped."
            return Failed(late) if deadline.expired() else self._broken(call, error)
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current and current.cancelling():
                raise
            return self._broken(call, error)  # something that the tool awaited was cancelled, not the session
        except (Exception, SystemExit) as error:  # noqa: BLE001  border: a broken tool must not end the session
            return self._broken(call, error)

    async def _obstacle(self, tool: Tool, call: ToolCall) -> Failed | Refusal | None:
        if (text := invalid_arguments(call)) is not None:
            return Failed(f"The arguments of {self._named(call)} are not a JSON object: {text[:200]}")
        if problems := argument_problems(call.arguments, tool.definition):
            return Failed(f"Invalid arguments for {self._named(call)}: {'; '.join(problems)}")
        if tool.refusal and (why := tool.refusal(call.arguments)):
            return Refusal(why, Defence.COMMANDS)
        reason = self.gate(tool, call)
        if reason is not None:
            refusal = reason if isinstance(reason, Refusal) else Refusal(reason, Defence.LEVEL)
            if not refusal.scope or self.approve is None:
                return refusal
            if (why := await self.approve(tool, call, refusal)) is not None:
                return Refusal(why, refusal.defence, refusal.scope)
        return None

    def _named(self, call: ToolCall) -> str:
        return call.name if call.name in self.told else "the call"

    def _broken(self, call: ToolCall, error: BaseException) -> Failed:
        return Failed(f"{self._named(call)} broke: {type(error).__name__}: {error}")

    def _end(self, call: ToolCall, status: CallStatus, outcome: ToolOutcome) -> CallEnd:
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
        self.emit(ToolCallEnded(call.id, call.name, status, output if full is None else full))
        self.emit_todos()
        # After truncation, so that the cost does not grow with the output.
        shown = self.clean(f"the answer of {call.name}", self._cut(output, cut_as, full))
        if images and not self.images:
            shown, images = f"{shown}\n\n{render('agent/image_not_shown', count=len(images))}", ()
        result = ToolResult(call.id, call.name, shown, is_error=status is not CallStatus.OK, images=images)
        return CallEnd(result, outcome if isinstance(outcome, Ends) else None)

    def _cut(self, output: str, cut_as: str, full: str | None) -> str:
        """Return the truncated output, with a handle under which the model can read the rest."""
        shown = truncate(output, cut_as, self.limits)
        if (shown == output and full is None) or cut_as in SHOWS_FILES:
            return shown
        whole = output if full is None else full
        reader = next((name for name in READING_TOOLS if name in self.told), None)
        handle = self.ledger.outputs.keep(whole) if reader else None
        if reader is None or handle is None:
            return shown
        lines = whole.count("\n") + 1
        note = render(
            "agent/kept_output", handle=handle, lines=lines, tool=reader, part=READING_TOOLS[reader]
        )
        return f"{shown}\n\n{note}"


def _checked_outcome(outcome: object) -> ToolOutcome:
    match outcome:
        case Ok(str(), tuple() as images) if all(isinstance(image, Image) for image in images):
            return outcome
        case Failed(str()) | Ends("finish" | "question", str()):
            return outcome
        case _:
            raise TypeError(f"it returned {str(outcome)[:100]!r}, not Ok, Failed or Ends with a text")


async def run_calls(  # noqa: PLR0913  keyword arguments
    runner: ToolRunner,
    calls: Sequence[ToolCall],
    withheld: Sequence[ToolCall] = (),
    *,
    answer: Callable[[tuple[ToolResult, ...]], None],
    running: Running = Running.IN_ORDER,
    parallel: bool = True,
    ways: tuple[int, ...] = (),
) -> Ends | None:
    """Run the calls of a reply; return the end of the session if one of them caused it.

    Args:
        withheld: calls of a truncated reply, which must not run.
        answer: receives a result for each call, in the order of the calls, even if the calls are interrupted.
        running: the order that the contract demands.
        parallel: False runs one after the other the calls that could run concurrently.
        ways: see `Actions`.
    """
    reply = _Reply(runner, (*calls, *withheld))
    most = min(len(calls), MAX_CALLS)
    try:
        match running:
            case Running.IN_ORDER:
                await reply.run_in_order(most, ways)
            case Running.TOGETHER:
                await reply.run_together(most, parallel=parallel)
            case Running.FIRST_ONLY:
                await reply.run_first(most)
            case _:
                assert_never(running)
        for index in range(most, len(reply.calls)):
            reply.skip(index, _TOO_MANY if index < len(calls) else _CUT_OFF)
    finally:
        answer(reply.results())
    return next((end.ending for _, end in sorted(reply.ends.items()) if end.ending), None)


@dataclass(slots=True)
class _Reply:
    """The calls of one reply, by position, which of them were started or skipped, and the ends of those that ended."""

    runner: ToolRunner
    calls: Sequence[ToolCall]
    ends: dict[int, CallEnd] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    async def run(self, index: int) -> CallEnd:
        self.begun.add(index)
        end = self.ends[index] = await self.runner.run(self.calls[index])
        return end

    def skip(self, index: int, why: str) -> None:
        self.begun.add(index)
        self.ends[index] = self.runner.skip(self.calls[index], why)

    def results(self) -> tuple[ToolResult, ...]:
        """Return a result for each call; calls without an end are answered as interrupted."""
        for index in range(len(self.calls)):
            if index not in self.begun:
                self.skip(index, _INTERRUPTED_BEFORE)
        return tuple(
            self.ends[index].result if index in self.ends else interrupted(call)
            for index, call in enumerate(self.calls)
        )

    async def run_in_order(self, most: int, ways: tuple[int, ...]) -> None:
        """Run calls up to the first that fails or ends the session. After a failure go on with the next way."""
        blocker = ""
        for index in range(most):
            if index in ways and not any(end.ending for end in self.ends.values()):
                blocker = "" if blocker else "another way to do this succeeded."
            if blocker:
                self.skip(index, f"Not run: {blocker}")
                continue
            end = await self.run(index)
            if end.failed:
                blocker = "a call before this one failed. Send it again if it is still right."
            elif end.ending:
                blocker = "a call before this one ended the session."

    async def run_first(self, most: int) -> None:
        if most:
            await self.run(0)
        for index in range(1, most):
            self.skip(index, _ONE_A_STEP)

    async def run_together(self, most: int, *, parallel: bool) -> None:
        """Run read-only calls concurrently; each other call waits for all calls before it, and runs alone."""
        room = asyncio.Semaphore(MAX_AT_ONCE if parallel else 1)
        started: list[asyncio.Task[CallEnd]] = []

        async def run(index: int) -> CallEnd:
            async with room:
                return await self.run(index)

        try:
            for index in range(most):
                tool = self.runner.tools.get(self.calls[index].name)
                order = tool.order if tool else Order.TOGETHER
                if order is not Order.TOGETHER:
                    await asyncio.gather(*started)
                    started.clear()
                if reason := self._not_run(order):
                    self.skip(index, reason)
                elif order is Order.TOGETHER:
                    started.append(asyncio.create_task(run(index)))
                else:
                    await self.run(index)
            await asyncio.gather(*started)
        finally:
            for task in started:
                task.cancel()
            await asyncio.gather(*started, return_exceptions=True)

    def _not_run(self, order: Order) -> str:
        """Return why a call must not run after those that have ended; empty if it may."""
        if any(end.ending for end in self.ends.values()):
            return "Not run: a call before this one ended the session."
        if order is Order.LAST and any(end.failed for end in self.ends.values()):
            return "Not run: a call before this one failed. Send it again when all is right."
        return ""
