"""One reply's calls, in order: look up, validate, gate, execute, emit in full, truncate, return."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.errors import PullwrightError, ToolError
from orchestrator.core.events import CallStatus, ToolCallEnded, ToolCallStarted, ToolOutputDelta
from orchestrator.core.messages import ToolResult
from orchestrator.models.base import invalid_arguments
from orchestrator.tools.base import Ends, Failed, Ok, ToolContext
from orchestrator.tools.schema import argument_problems
from orchestrator.tools.truncation import truncate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.agent.gate import Gate
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import ToolCall
    from orchestrator.environments.base import ExecutionEnvironment
    from orchestrator.tools.base import Ledger, Tool, ToolOutcome
    from orchestrator.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class Workbench:
    """What calls run with: the tools, who may run them, where they act and what they remember."""

    tools: ToolRegistry
    gate: Gate
    environment: ExecutionEnvironment
    ledger: Ledger
    emit: Emit


@dataclass(slots=True)
class CallsOutcome:
    """A result for each call, run or not, and the ending if one of them ended the session."""

    results: list[ToolResult] = field(default_factory=list)
    ending: Ends | None = None
    failed: bool = False


async def run_calls(
    bench: Workbench, calls: Iterable[ToolCall], withheld: Iterable[ToolCall] = ()
) -> CallsOutcome:
    """Run calls in order until one fails or ends the session; the others get a result that says so.

    Args:
        bench: what the calls run with.
        calls: the reply's calls.
        withheld: calls of a reply that was cut off, which must not run.
    """
    outcome = CallsOutcome()
    blocker = ""
    for call in calls:
        if outcome.failed or outcome.ending:
            _skip(bench, outcome, call, f"Not run: {blocker}")
            continue
        status, result = await _run_one(bench, call)
        if isinstance(result, Ends):
            outcome.ending = result
            blocker = f"{call.name} ended the session before this call."
        outcome.failed = status is not CallStatus.OK
        if outcome.failed:
            blocker = f"{call.name} failed before this call. Send it again if it is still right."
        limits_of = result.cut_as if isinstance(result, Failed) else None
        _finish(bench, outcome, call, status, _words(result), limits_of)
    for call in withheld:
        _skip(bench, outcome, call, "Not run: the reply was cut off before this call was complete.")
    return outcome


async def _run_one(bench: Workbench, call: ToolCall) -> tuple[CallStatus, ToolOutcome]:
    bench.emit(ToolCallStarted(call.id, call.name, call.arguments))
    tool = bench.tools.get(call.name)
    if tool is None:
        return CallStatus.FAILED, Failed(f"There is no tool named {call.name!r}.")
    if refusal := bench.gate(tool, call):
        return CallStatus.REFUSED, Failed(refusal)
    if problem := _argument_problem(tool, call):
        return CallStatus.FAILED, Failed(problem)
    result = await _execute(bench, tool, call)
    return (CallStatus.FAILED if isinstance(result, Failed) else CallStatus.OK), result


def _argument_problem(tool: Tool, call: ToolCall) -> str:
    if (text := invalid_arguments(call)) is not None:
        return f"The arguments of {call.name} are not a JSON object: {text[:200]}"
    problems = argument_problems(call.arguments, tool.definition)
    return f"Invalid arguments for {call.name}: {'; '.join(problems)}" if problems else ""


async def _execute(bench: Workbench, tool: Tool, call: ToolCall) -> ToolOutcome:
    def show(text: str) -> None:
        bench.emit(ToolOutputDelta(call.id, text))

    try:
        return await tool.execute(call.arguments, ToolContext(bench.environment, bench.ledger, show))
    except ToolError as error:
        return Failed(str(error))
    except PullwrightError:
        raise  # the host's own trouble (push, forge, disk): no model can mend it
    except Exception as error:  # noqa: BLE001  border: a broken tool must not end the session
        return Failed(f"{call.name} broke: {type(error).__name__}: {error}")


def _words(result: ToolOutcome) -> str:
    match result:
        case Ok(output):
            return output
        case Failed(message=message):
            return message
        case Ends(_, text):
            return text


def _finish(  # noqa: PLR0913, PLR0917  one call's end, fact by fact
    bench: Workbench,
    outcome: CallsOutcome,
    call: ToolCall,
    status: CallStatus,
    output: str,
    limits_of: str | None = None,
) -> None:
    bench.emit(ToolCallEnded(call.id, call.name, status, output))
    shown = truncate(output, limits_of or call.name)
    outcome.results.append(ToolResult(call.id, call.name, shown, is_error=status is not CallStatus.OK))


def _skip(bench: Workbench, outcome: CallsOutcome, call: ToolCall, why: str) -> None:
    bench.emit(ToolCallStarted(call.id, call.name, call.arguments))
    _finish(bench, outcome, call, CallStatus.SKIPPED, why)
