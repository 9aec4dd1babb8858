"""The tools that run shell commands. All are dangerous, and none runs a command that would destroy the machine."""

from __future__ import annotations

from posixpath import join
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import CommandRefusedError, ToolError
from orchestrator.engine.policy.destructive import LONGEST_COMMAND, blocked
from orchestrator.engine.policy.reading import why_not_reading
from orchestrator.engine.tools.base import (
    FLAG,
    FROM_ONE,
    MAX_TIMEOUT_MS,
    TEXT,
    Failed,
    Ok,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
    integer,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.messages import JsonObject

_DEFAULT_TIMEOUT_MS = 120_000
_ASSISTANT_SECONDS = 30
_ASSISTANT_MOST_SECONDS = 300
"""Section 2.3.2 of the assistant specification."""

_SHOWN_HOSTS = 10
_NOTHING_PRINTED = "The command printed nothing.\n"


def run_shell_command() -> Tool:
    """Create the tool that runs a command in the root of the clone."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        timeout_ms = integer(arguments, "timeout_ms") or _DEFAULT_TIMEOUT_MS
        return await _run(context, arguments["command"], timeout_ms=timeout_ms)

    timeout = {**FROM_ONE, "maximum": MAX_TIMEOUT_MS}
    properties: dict[str, JsonObject] = {"command": TEXT, "timeout_ms": timeout}
    return Tool(define("run_shell_command", properties, ("command",)), execute, dangerous=True)


def shell() -> Tool:
    """Create the tool `shell(command, timeout_ms?, description?)`. Dangerous."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await _run(context, arguments["command"], timeout_ms=integer(arguments, "timeout_ms"))

    properties = {"command": TEXT, "timeout_ms": FROM_ONE, "description": TEXT}
    return Tool(define("shell", properties, ("command",), prompt="core/shell"), execute, dangerous=True)


def shell_command() -> Tool:
    """Create the tool `shell_command(command, workdir?, timeout_ms?, max_output_chars?)`. Dangerous."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await _run(
            context,
            arguments["command"],
            timeout_ms=integer(arguments, "timeout_ms"),
            working_dir=arguments.get("workdir") or None,
            max_output_chars=integer(arguments, "max_output_chars"),
        )

    properties = {"command": TEXT, "workdir": TEXT, "timeout_ms": FROM_ONE, "max_output_chars": FROM_ONE}
    definition = define("shell_command", properties, ("command",), prompt="step/shell_command")
    return Tool(definition, execute, dangerous=True)


def shell_execute() -> Tool:
    """Create the tool `shell_execute(command, working_directory?, timeout_seconds?, capture_stderr?)`. Dangerous."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        seconds = integer(arguments, "timeout_seconds") or _ASSISTANT_SECONDS
        return await _run(
            context,
            arguments["command"],
            timeout_ms=seconds * 1_000,
            working_dir=arguments.get("working_directory") or None,
            errors=arguments.get("capture_stderr", True),
            limit_name="timeout_seconds",
        )

    properties: dict[str, JsonObject] = {
        "command": {**TEXT, "maxLength": LONGEST_COMMAND},
        "working_directory": TEXT,
        "timeout_seconds": {**FROM_ONE, "maximum": _ASSISTANT_MOST_SECONDS},
        "capture_stderr": FLAG,
    }
    definition = define("shell_execute", properties, ("command",), prompt="assistant/shell_execute")
    return Tool(definition, execute, dangerous=True)


def run_reading_command() -> Tool:
    """Create the tool `run_command(command)`: a command that only reads, or several joined by `|` or `||`. Dangerous.

    A command that could do more is refused at every permission level, whatever rules grant it.
    """

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        if why := _reading_problem(arguments):
            raise CommandRefusedError(why)
        return await _run(context, arguments["command"], timeout_ms=_DEFAULT_TIMEOUT_MS)

    definition = define("run_command", {"command": TEXT}, ("command",), prompt="explorer/run_command")
    return Tool(definition, execute, dangerous=True, only_reads=True, refusal=_reading_problem)


def _reading_problem(arguments: Mapping[str, Any]) -> str | None:
    """Return why a command line is refused; None if it only reads."""
    why = why_not_reading(arguments["command"])
    return None if why is None else f"Not run: {why}."


async def _run(  # noqa: PLR0913  all but the command are keyword-only
    context: ToolContext,
    command: str,
    *,
    timeout_ms: int | None = None,
    working_dir: str | None = None,
    max_output_chars: int | None = None,
    errors: bool = True,
    limit_name: str = "timeout_ms",
) -> ToolOutcome:
    """Run a command; the answer has its output, its exit code and its duration.

    An exit code other than 0 and a time-out are a failure.

    Args:
        timeout_ms: None uses the default of `context`; a higher value than its maximum is reduced to that.
        working_dir: a folder of the clone; None means the root.
        max_output_chars: limit of the shown output; None shows it whole.
        errors: whether to show standard error too.
        limit_name: the name of the tool's parameter for the time.
    """
    if not command.strip():
        raise ToolError("the command is empty")
    if why := blocked(command, join(context.environment.working_directory(), working_dir or "")):
        raise CommandRefusedError(f"Not run at any level: {why}.")
    limit_ms = min(context.times.default_ms if timeout_ms is None else timeout_ms, context.times.max_ms)
    context.ledger.shell_used = True
    result = await context.environment.exec_command(
        command, timeout_ms=limit_ms, working_dir=working_dir, on_output=context.print
    )
    seconds = result.duration_ms / 1_000
    ending = f"[exit code {result.exit_code}, {seconds:.1f} s]"
    if result.timed_out:
        ending = (
            f"[ERROR: Command timed out after {limit_ms}ms. Partial output is shown above. You can retry "
            f"with a longer timeout by setting the {limit_name} parameter.]"
        )
    killed = [f"[the command was killed: it used {result.killed_for}]"] if result.killed_for else []
    ending = "\n".join([*_network_lines(result.refused_hosts), *killed, ending])
    nothing = "" if result.timed_out else _NOTHING_PRINTED
    printed = result.output if errors else result.stdout
    full = (_with_line_end(printed) or nothing) + ending
    shown, kept = full, None
    if max_output_chars is not None:
        shown, kept = (_with_line_end(_cut(printed, max_output_chars)) or nothing) + ending, full
    failed = result.timed_out or result.exit_code != 0
    return Failed(shown, full=kept) if failed else Ok(shown, full=kept)


def _network_lines(refused: tuple[str, ...]) -> list[str]:
    """Return lines about the connections that the sandbox refused, and how a person can allow them."""
    from orchestrator.engine.environments.sandbox.proxy import explain_refused

    lines = [f"[network: {explain_refused(place)}]" for place in refused[:_SHOWN_HOSTS]]
    more = len(refused) - _SHOWN_HOSTS
    return [*lines, f"[network: refused connections to {more} other places]"] if more > 0 else lines


def _with_line_end(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _cut(output: str, most: int) -> str:
    """Return both ends of an output, at most `most` characters together, and how many are missing."""
    removed = len(output) - most
    if removed <= 0:
        return output
    head = most // 2
    return (
        f"{output[:head]}\n[... {removed:,} characters left out, as max_output_chars asks ...]\n"
        f"{output[head + removed :]}"
    )
