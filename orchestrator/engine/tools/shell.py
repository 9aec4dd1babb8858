"""`run_shell_command`: anything that a command line can do. Dangerous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import ToolError
from orchestrator.engine.environments.sandbox.proxy import explain_refused
from orchestrator.engine.tools.base import (
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

_SHOWN_HOSTS = 10
_NOTHING_PRINTED = "The command printed nothing.\n"


def run_shell_command() -> Tool:
    """The tool that runs a command in the root of the clone."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        timeout_ms = integer(arguments, "timeout_ms") or _DEFAULT_TIMEOUT_MS
        return await run_command(context, arguments["command"], timeout_ms=timeout_ms)

    timeout = {**FROM_ONE, "maximum": MAX_TIMEOUT_MS}
    properties: dict[str, JsonObject] = {"command": TEXT, "timeout_ms": timeout}
    return Tool(define("run_shell_command", properties, ("command",)), execute, dangerous=True)


def shell() -> Tool:
    """`shell(command, timeout_ms?, description?)`. Dangerous."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await run_command(context, arguments["command"], timeout_ms=integer(arguments, "timeout_ms"))

    properties = {"command": TEXT, "timeout_ms": FROM_ONE, "description": TEXT}
    return Tool(define("shell", properties, ("command",), prompt="core/shell"), execute, dangerous=True)


def shell_command() -> Tool:
    """`shell_command(command, workdir?, timeout_ms?, max_output_chars?)`. Dangerous."""

    async def execute(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await run_command(
            context,
            arguments["command"],
            timeout_ms=integer(arguments, "timeout_ms"),
            working_dir=arguments.get("workdir") or None,
            max_output_chars=integer(arguments, "max_output_chars"),
        )

    properties = {"command": TEXT, "workdir": TEXT, "timeout_ms": FROM_ONE, "max_output_chars": FROM_ONE}
    definition = define("shell_command", properties, ("command",), prompt="step/shell_command")
    return Tool(definition, execute, dangerous=True)


async def run_command(
    context: ToolContext,
    command: str,
    *,
    timeout_ms: int | None = None,
    working_dir: str | None = None,
    max_output_chars: int | None = None,
) -> ToolOutcome:
    """Run a command; what it prints, its exit code and its duration are the answer.

    Args:
        context: where to run it, and how long it may take by default and at most.
        command: shell text.
        timeout_ms: None takes the default; more than the most is taken as that.
        working_dir: a folder of the clone; the root if it is None.
        max_output_chars: cut what was printed to that; None leaves it whole.

    Returns:
        `Failed` for an exit code other than 0 and for a time-out, with the output in it.

    Raises:
        ToolError: the command is empty or cannot be started.
    """
    if not command.strip():
        raise ToolError("the command is empty")
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
            "with a longer timeout by setting the timeout_ms parameter.]"
        )
    ending = "\n".join([*_network_lines(result.refused_hosts), *_limit_lines(result.killed_for), ending])
    nothing = "" if result.timed_out else _NOTHING_PRINTED
    full = (_with_line_end(result.output) or nothing) + ending
    told, kept = full, None
    if max_output_chars is not None:
        told, kept = (_with_line_end(_cut(result.output, max_output_chars)) or nothing) + ending, full
    failed = result.timed_out or result.exit_code != 0
    return Failed(told, full=kept) if failed else Ok(told, full=kept)


def _network_lines(refused: tuple[str, ...]) -> list[str]:
    """Which connections the sandbox refused, and what a person could do about it."""
    lines = [f"[network: {explain_refused(place)}]" for place in refused[:_SHOWN_HOSTS]]
    more = len(refused) - _SHOWN_HOSTS
    return [*lines, f"[network: refused connections to {more} other places]"] if more > 0 else lines


def _limit_lines(killed_for: str) -> list[str]:
    return [f"[the command was killed: it used {killed_for}]"] if killed_for else []


def _with_line_end(text: str) -> str:
    return text if text.endswith("\n") or not text else f"{text}\n"


def _cut(output: str, most: int) -> str:
    """Both ends, at most so many characters together, and how many are missing."""
    removed = len(output) - most
    if removed <= 0:
        return output
    head = most // 2
    return (
        f"{output[:head]}\n[... {removed:,} characters left out, as max_output_chars asks ...]\n"
        f"{output[head + removed :]}"
    )
