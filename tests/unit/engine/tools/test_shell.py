"""The tools that run commands."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.errors import CommandRefusedError, ToolError
from orchestrator.engine.environments.wrappers import ReadOnlyEnvironment
from orchestrator.engine.tools.base import Failed, Ok, ToolContext, ToolOutcome
from orchestrator.engine.tools.shell import (
    run_reading_command,
    run_shell_command,
    shell,
    shell_command,
    shell_execute,
)


async def run(context: ToolContext, command: str, **rest: Any) -> ToolOutcome:
    return await run_shell_command().execute({"command": command, **rest}, context)


def test_it_is_dangerous() -> None:
    assert run_shell_command().dangerous


async def test_output_exit_code_and_duration_are_told(context: ToolContext) -> None:
    printed: list[str] = []
    outcome = await run(replace(context, print=printed.append), "printf hello")
    assert isinstance(outcome, Ok)
    assert re.fullmatch(r"hello\n\[exit code 0, \d+\.\d s\]", outcome.output)
    assert printed == ["hello"]
    assert context.ledger.shell_used


async def test_silence_is_told(context: ToolContext) -> None:
    outcome = await run(context, "true")
    assert isinstance(outcome, Ok)
    assert outcome.output.startswith("The command printed nothing.\n[exit code 0")


async def test_another_exit_code_is_a_failure_with_the_output(context: ToolContext) -> None:
    outcome = await run(context, "echo wrong >&2; exit 2")
    assert isinstance(outcome, Failed)
    assert outcome.message.startswith("wrong\n[exit code 2, ")


async def test_a_time_out_says_so_under_the_output(context: ToolContext) -> None:
    outcome = await run(context, "echo early; sleep 600", timeout_ms=1_500)
    assert outcome == Failed(
        "early\n[ERROR: Command timed out after 1500ms. Partial output is shown above. "
        "You can retry with a longer timeout by setting the timeout_ms parameter.]"
    )


async def test_an_empty_command(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="empty"):
        await run(context, " \n")
    assert not context.ledger.shell_used


MAKERS = (run_shell_command, shell, shell_command, shell_execute, run_reading_command)
DESTRUCTIVE = (
    "rm -rf /",
    "mkfs /dev/x",
    "dd if=a of=b",
    ":(){ :|:& };:",
    "chmod -R 777 /",
    "echo a; rm -rf ~",
)


async def test_no_tool_runs_a_command_that_destroys_a_machine_whatever_the_host_allows(
    context: ToolContext,
) -> None:
    guarded = replace(context, environment=ReadOnlyEnvironment(context.environment))
    for make, command in itertools.product(MAKERS, DESTRUCTIVE):
        with pytest.raises(CommandRefusedError, match="Not run"):
            await make().execute({"command": command}, guarded)


async def test_a_command_is_read_in_the_folder_where_it_would_run(context: ToolContext) -> None:
    up = "/".join([".."] * context.environment.working_directory().count("/"))
    guarded = replace(context, environment=ReadOnlyEnvironment(context.environment))
    with pytest.raises(CommandRefusedError, match="would delete all"):
        await run(guarded, f"rm -rf {up}")
