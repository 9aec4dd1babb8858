"""One call: look up, validate, gate, execute, emit in full, truncate, return. A hidden tool is refused at once."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, assert_never

from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import ForgeError, JournalError, SandboxMissingError, ToolError, WorkspaceError
from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted, ToolOutputDelta
from orchestrator.core.messages import Image, ToolResult
from orchestrator.engine.models.base import invalid_arguments
from orchestrator.engine.session.gate import Refusal, not_available, shows_all
from orchestrator.engine.session.history import INTERRUPTED
from orchestrator.engine.session.repetition import FailedCalls
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
    from collections.abc import Callable, Iterator

    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolCall
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.session.limits import Budget
    from orchestrator.engine.tools.base import Ledger, Tool, ToolOutcome
    from orchestrator.engine.tools.registry import ToolRegistry

DEFAULT_TOOL_SECONDS = 660.0
"""For one call of any tool: a minute more than a command may take."""

_TOO_MANY_DENIALS = "Not run: too many calls of this session were refused before it."


def _as_it_is(_what: str, text: str) -> str:
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
    clean: Callable[[str, str], str] = _as_it_is
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
