"""`pullwright ask`: answers one question on standard output; all other output goes to standard error."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import INTERRUPTED, UsageError, for_error, for_outcome, given_settings
from orchestrator.app.cli.live import LiveView
from orchestrator.app.cli.state import StateView
from orchestrator.app.wiring import tracing
from orchestrator.app.wiring.chat import build_chat
from orchestrator.app.words import as_json_text, clean, environment_redactor
from orchestrator.bot.chat.conversation import begun_in
from orchestrator.bot.cycle.parts import CycleResult
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import PullwrightError
from orchestrator.core.events import Warned
from orchestrator.engine.session.loop import EndKind

if TYPE_CHECKING:
    import argparse

    from orchestrator.app.wiring.chat import ChatProgram
    from orchestrator.engine.session.loop import SessionEnd

_ANSWERS = frozenset({EndKind.COMPLETED, EndKind.AWAITING, EndKind.FINISH, EndKind.QUESTION})
_STANDARD_INPUT = "-"
_MOST_CHARS = 1_000_000


def ask(options: argparse.Namespace) -> int:
    """Ask the model, print its answer, and return the exit status.

    Raises:
        UsageError: the question is empty.
    """
    question = sys.stdin.read(_MOST_CHARS) if options.text == _STANDARD_INPUT else options.text
    if not question.strip():
        raise UsageError("the question is empty: type it, or write it to standard input")
    view = LiveView.on_stderr(plain=options.plain, answers=True)
    emit = StateView(view, SystemClock(), view.tell) if options.debug else view
    with ExitStack() as stack:
        try:
            traces = stack.enter_context(
                tracing(os.environ, SystemClock(), lambda problem: view(Warned(problem)))
            )
            program = build_chat(
                "ask", options.repo, given_settings(options), os.environ, Path.cwd(), emit, tracing=traces
            )
            if options.resume:
                program.begun = begun_in(program.context.home, options.resume)
        except PullwrightError as error:
            return _report(CycleResult(None), "", error, as_json=options.json)
        with view:
            result, end, stopped = asyncio.run(_ask(program, question))
    answer = program.redactor.redact(clean(end.text)) if end and end.kind in _ANSWERS else ""
    return _report(result, answer, stopped, as_json=options.json)


async def _ask(
    program: ChatProgram, question: str
) -> tuple[CycleResult, SessionEnd | None, BaseException | None]:
    task = asyncio.ensure_future(program.say(question))
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, task.cancel)
    end: SessionEnd | None = None
    error: BaseException | None = None
    try:
        end = await task
    except (PullwrightError, asyncio.CancelledError) as stopped:
        error = stopped
    result = await program.end(error) or CycleResult(None)
    await program.close()
    return result, end, error


def _report(result: CycleResult, answer: str, error: BaseException | None, *, as_json: bool) -> int:
    problem = environment_redactor().redact(clean(str(error))) if isinstance(error, PullwrightError) else ""
    if problem:
        print(f"pullwright: {problem}", file=sys.stderr)
    if as_json:
        result.error = problem or result.error
        print(as_json_text({"answer": answer, **result.to_json()}), flush=True)
    elif answer:
        print(answer, flush=True)
    if isinstance(error, asyncio.CancelledError):
        return INTERRUPTED
    return for_error(error) if error else for_outcome(result.outcome)
