"""`pullwright ask`: asks the model one question, and prints its answer."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import INTERRUPTED, UsageError, for_error, for_outcome, given_settings
from orchestrator.app.cli.live import LiveView
from orchestrator.app.cli.output import print_lines, print_problem
from orchestrator.app.cli.run import end_at_once, observed_by, with_state
from orchestrator.app.terminal import print_json
from orchestrator.app.words import clean
from orchestrator.bot.cycle.parts import CycleResult
from orchestrator.core import event_loop
from orchestrator.core.errors import PullwrightError
from orchestrator.core.event_loop import on_ending_signals
from orchestrator.engine.session.loop import EndKind
from orchestrator.plugins.chat.conversation import begun_in
from orchestrator.plugins.chat.program import build_chat

if TYPE_CHECKING:
    import argparse

    from orchestrator.engine.session.loop import SessionEnd
    from orchestrator.plugins.chat.program import ChatProgram

_ANSWERS = frozenset({EndKind.COMPLETED, EndKind.AWAITING, EndKind.FINISH, EndKind.QUESTION})
_STANDARD_INPUT = "-"
_MOST_CHARS = 1_000_000


def ask(options: argparse.Namespace) -> int:
    """Ask the model, print its answer, and return the exit status."""
    question = sys.stdin.read(_MOST_CHARS) if options.text == _STANDARD_INPUT else options.text
    if not question.strip():
        raise UsageError("the question is empty: type it, or write it to standard input")
    view = LiveView.on_stderr(plain=options.plain, answers=True)
    emit = with_state(view) if options.debug else view
    with ExitStack() as stack:
        try:
            observers = stack.enter_context(observed_by(view))
            program = build_chat(
                "ask",
                options.repo,
                given_settings(options),
                os.environ,
                Path.cwd(),
                emit,
                observers=observers,
            )
            program.submits = options.submit
            if options.resume:
                program.begun = begun_in(program.context.home, options.resume, program.label)
        except PullwrightError as error:
            return _report_answer(CycleResult(None), "", error, as_json=options.json)
        with view:
            result, end, stopped = event_loop.run(_ask(program, question))
    answer = clean(end.text) if end and end.kind in _ANSWERS else ""
    return _report_answer(result, answer, stopped, as_json=options.json)


async def _ask(
    program: ChatProgram, question: str
) -> tuple[CycleResult, SessionEnd | None, BaseException | None]:
    task = asyncio.ensure_future(program.say(question))
    end_now = partial(end_at_once, program.context.stop, task)
    on_ending_signals(end_now, interrupt=end_now)
    end: SessionEnd | None = None
    error: BaseException | None = None
    try:
        end = await task
    except (PullwrightError, asyncio.CancelledError) as stopped:
        error = stopped
    result = await program.end(error) or CycleResult(None)
    await program.close()
    return result, end, error


def _report_answer(result: CycleResult, answer: str, error: BaseException | None, *, as_json: bool) -> int:
    problem = clean(str(error)) if isinstance(error, PullwrightError) else ""
    if problem:
        print_problem(problem)
    if as_json:
        result.error = problem or result.error
        print_json({"answer": answer, **result.to_json()})
    elif answer:
        print_lines([answer])
    if isinstance(error, asyncio.CancelledError):
        return INTERRUPTED
    return for_error(error) if error else for_outcome(result.outcome)
