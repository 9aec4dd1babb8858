"""Starts the program again and again, each time in a process of its own that may die after its n-th record.

Reads one order a line as JSON on standard input, and answers each with how the process ended. Everything is
imported once and then forked, so that a start costs next to nothing.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.bot.cycle.parts import Stop
from orchestrator.core.events import InputReceived, ReasoningDelta, TextDelta, ToolOutputDelta
from tests.doubles.stopping import no_wait

if TYPE_CHECKING:
    from orchestrator.core.events import Event

_IMPORTED_LATE = (
    "anyio._backends._asyncio",
    "genai_prices.data",
    "git",
    "httpcore2",
    "jinja2",
    "jsonschema",
    "orchestrator.plugins.github.forge",
    "orchestrator.engine.models.transport",
    "orchestrator.engine.models.openai_chat",
    "pathspec",
    "truststore",
)
_UNWRITTEN = (TextDelta, ReasoningDelta, ToolOutputDelta, InputReceived)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Countdown:
    """A view that kills the process right after the n-th record of the journal, or the first one of a kind. 0: never."""

    def __init__(self, left: int | str) -> None:
        self._left = left

    def __call__(self, event: Event) -> None:
        """An event was written down."""
        if isinstance(event, _UNWRITTEN):
            return
        name = type(event).__name__
        _tell(name)
        if isinstance(self._left, int):
            self._left -= 1
        if self._left in {0, name}:
            os.kill(os.getpid(), signal.SIGKILL)


async def run_once(order: dict[str, Any], view: Countdown) -> int:
    """One cycle, as `pullwright run` does it."""
    request = RunRequest(order["repository"], issue=order.get("issue"), text=order.get("text"))
    # The second between two writes to GitHub would be most of what a test takes.
    program = build_program(request, order["flags"], os.environ, Path.cwd(), view, stop=Stop(no_wait))
    try:
        result = await program.cycle()
    finally:
        await program.close()
    _tell(json.dumps(result.to_json()))
    return 0


def obey(order: dict[str, Any]) -> int:
    """Do what is ordered in a child process; its status as `os.waitpid` gives it."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    status = 70
    try:
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.environ.update(order["environ"])
        tempfile.tempdir = order["environ"]["TMPDIR"]
        os.chdir(tempfile.tempdir)
        status = asyncio.run(run_once(order, Countdown(order["dies_after"])))
    except BaseException:  # noqa: BLE001  whatever it is, it must not run on in the parent's code
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        os._exit(status)


def main() -> None:
    """Import everything, then obey."""
    for heavy in _IMPORTED_LATE:
        importlib.import_module(heavy)
    for line in sys.stdin:
        _tell(json.dumps(obey(json.loads(line))))


if __name__ == "__main__":
    main()
