"""`pullwright run`: builds the program, runs its cycles, and prints the results."""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import (
    INTERRUPTED,
    for_error,
    for_outcome,
    for_run,
    given_settings,
)
from orchestrator.app.cli.live import LiveView
from orchestrator.app.cli.output import Unbroken, as_read, end_on_signals, print_lines, print_problem
from orchestrator.app.terminal import print_json
from orchestrator.app.wiring import Observers, observing
from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.app.wiring.repository import commands_here
from orchestrator.app.words import NO_TESTS, amounts, clean, counted, outcome_in_words, tests_in_words
from orchestrator.bot.cycle.finish import outcome_words
from orchestrator.bot.cycle.parts import CycleResult
from orchestrator.bot.journal.index import last_pause, note_pause
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.bot.worker.schedule import Alarm, make_schedule
from orchestrator.bot.worker.worker import CycleTiming, NextStepChooser, ScheduleSignal, Waiter, work
from orchestrator.core import event_loop
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import Paused
from orchestrator.core.errors import BadReplyError, PullwrightError
from orchestrator.core.events import Warned
from orchestrator.core.messages import Spent

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.journal.run_facts import Pause
    from orchestrator.bot.suggestions import Commands
    from orchestrator.core.events import Emit


_ENDING = "ending after this round; press Ctrl+C again to end at once"


def run(options: argparse.Namespace) -> int:
    """Run one cycle or several in a row, and return the exit status of the whole run."""
    view = LiveView.on_stderr(plain=options.plain, summary=not options.json)
    emit = with_state(view) if options.debug else view
    request = RunRequest(
        *(options.repo, options.issue, options.task, options.answer),
        demo=options.demo,
        dry_run=options.dry_run,
        thread=options.thread,
    )
    with ExitStack() as stack:
        try:
            observers = stack.enter_context(observed_by(view))
            program = build_program(
                request, given_settings(options), os.environ, Path.cwd(), emit, observers=observers
            )
        except PullwrightError as error:
            return _refuse(error, as_json=options.json)
        with view:
            return event_loop.run(_run(program, options, view))


def with_state(view: LiveView) -> Emit:
    """Return an `Emit` that also shows the session's state after each turn."""
    from orchestrator.app.cli.show import StateView

    return StateView(view, SystemClock(), view.tell)


def observed_by(view: LiveView) -> AbstractContextManager[Observers]:
    """Return the observers of a program whose view shows what they tell."""
    return observing(os.environ, SystemClock(), lambda problem: view(Warned(problem)))


async def _run(program: Program, options: argparse.Namespace, view: LiveView) -> int:
    waiting, whole = Waiter(program.shared.context.clock), RunTotals()
    task = asyncio.ensure_future(_work(program, options, view, waiting, whole))
    _listen_to_signals(program, task, waiting, view)
    try:
        last = await task
    except PullwrightError as error:
        view.pause()
        return _refuse(error, as_json=options.json)
    except asyncio.CancelledError:
        return INTERRUPTED
    finally:
        view.pause()
        await program.close()
    if whole.cycles > 1 and not options.json:
        print_lines([whole.line])
    return INTERRUPTED if last is None else whole.code


async def _work(
    program: Program, options: argparse.Namespace, view: LiveView, waiting: Waiter, whole: RunTotals
) -> CycleResult | None:
    """Run one cycle, or as many as `--continuous` or the schedule demands."""

    def report(result: CycleResult) -> None:
        view.pause()
        whole.add(result)
        _report(program, result, as_json=options.json)

    settings, clock, stop = program.shared.settings, program.shared.context.clock, program.stop
    schedule = make_schedule(settings.every, settings.cron, settings.timezone, clock.now())
    if schedule is None and not options.continuous:
        return await work(program.cycle, report, stop)
    timing = _timing(program, view, waiting)
    if schedule is None:
        return await work(program.cycle, report, stop, timing, max_cycles=settings.max_cycles)

    def show_next() -> None:
        until = schedule.next_fire(clock.now()).isoformat(timespec="seconds")
        reason = f"nothing to do before the next time of the schedule ({schedule.text})"
        view(Paused(until, reason, is_planned=True))

    signal = timing.signal = ScheduleSignal(waiting, show_next)
    async with Alarm(schedule, signal.notify, clock, random.SystemRandom()):
        return await work(program.cycle, report, stop, timing, max_cycles=settings.max_cycles)


def _timing(program: Program, view: LiveView, waiting: Waiter) -> CycleTiming:
    """Return the timing of the cycles. A pause that an earlier run left for this repository and model counts."""
    shared, context = program.shared, program.shared.context
    clock, model = context.clock, shared.chosen.model.name

    def show_pause(pause: Pause, after: CycleResult | None) -> None:
        if after is not None and after.run is not None:
            note_pause(context.home, after.run, pause, context.redactor, clock)
        view(pause.event)

    left = last_pause(context.home, clock.now(), repository=shared.site.label, model=model)
    pace = NextStepChooser(clock, random.SystemRandom())
    return CycleTiming(clock, waiting, pace, show_pause, left_pause=left, renew=shared.memory.forget)


def _listen_to_signals(
    program: Program, task: asyncio.Future[CycleResult | None], waiting: Waiter, view: LiveView
) -> None:
    stop = program.stop

    def end() -> None:
        waits = waiting.is_waiting
        stop.request()
        waiting.wake()
        if not waits:
            view(Warned(_ENDING))

    end_on_signals(lambda: stop.requested, end, partial(end_at_once, stop, task))


def end_at_once(stop: Stop, task: asyncio.Future[Any]) -> None:
    """End the work now, with all that waits for other machines."""
    stop.at_once()
    task.cancel()


def _report(program: Program, result: CycleResult, *, as_json: bool) -> None:
    request = program.shared.request
    if as_json:
        print_json(result.to_json())
    else:
        commands = commands_here(request.commands, program.shared.context.loaded, Path.cwd())
        print_lines(result_lines(result, commands, dry_run=request.dry_run))


def _refuse(error: PullwrightError, *, as_json: bool) -> int:
    """Report in one line why the run cannot start; with `--json` print a result as well."""
    problem = clean(str(error))
    print_problem(problem)
    if as_json:
        print_json(CycleResult(None, error=problem).to_json())
    return for_error(error)


_SHORT_COMMIT = 10
_BLOCKING = frozenset({"failed", "no_task", "superseded", "tests_fail"})
"""The outcomes after which a task waits for a person."""
_MOST_LEFT_OUT = 5
_UNCOUNTED = (
    " (counts for this machine's day, not for the repository's)"  # a dry run writes nothing to a remote
)


@dataclass(slots=True)
class RunTotals:
    """Totals of a run's cycles. Of each task only the last cycle counts for the exit status."""

    cycles: int = 0
    spent: Spent = field(default_factory=Spent)
    _last: int = 0
    _ends: dict[str, tuple[str, int]] = field(default_factory=dict)
    _pulls: set[int] = field(default_factory=set)

    def add(self, result: CycleResult) -> None:
        """Count a cycle that has ended."""
        self.cycles += 1
        self.spent += result.spent
        self._last = for_error(result.cause) if result.cause else for_outcome(result.outcome)
        if result.task is not None:
            self._ends[result.task.key] = str(result.outcome), self._last
        if result.pull_request is not None and result.pull_request.number is not None:
            self._pulls.add(result.pull_request.number)

    @property
    def code(self) -> int:
        """The exit status of the run."""
        return for_run({code for _, code in self._ends.values()}, self._last)

    @property
    def line(self) -> str:
        """The totals as one line."""
        outcomes = [outcome for outcome, _ in self._ends.values()]
        parts = [counted(self.cycles, "cycle"), counted(len(self._pulls), "pull request")]
        for outcome, noun, ending in (
            ("planned", "plan", ""),
            ("question", "question", " waiting for an answer"),
            ("limit", "task", " ended by a limit"),
            ("withdrawn", "task", " not wanted any more"),
            ("superseded", "task", " with nothing left to propose"),
            ("conflict", "task", " in conflict with the base"),
            ("paused", "task", " paused"),
            ("failed", "task", " failed"),
            ("tests_fail", "task", " not proposed because of failing tests"),
        ):
            if outcome in outcomes:
                parts.append(f"{counted(outcomes.count(outcome), noun)}{ending}")
        cost = f"{counted(self.spent.rounds, 'round')}, {amounts(self.spent.tokens, self.spent.usd)}"
        return f"In all: {', '.join(parts)}; {cost}"


def result_lines(result: CycleResult, commands: Commands, *, dry_run: bool) -> Iterator[str]:
    """Yield the lines of a result: the headline, then details and the next commands."""
    yield from _headline(result)
    yield from _details(result, commands, dry_run=dry_run)


def _headline(result: CycleResult) -> Iterator[str]:
    pull = result.pull_request
    match result.outcome:
        case "proposed" if pull:
            yield f"Pull request #{pull.number}: {pull.title}"
            if pull.url and not pull.url.startswith("file:"):  # the local forge's files are for programs
                yield f"  {pull.url}"
        case "planned" if pull:
            yield f"Would open a pull request: {pull.title}"
            yield f"\n{as_read(pull.body).strip()}\n"
            yield Unbroken(result.diff or "")
        case "no_task":
            yield f"{_said(result)}: {result.reason or 'the model changed nothing'}"
        case "question":
            yield f"Question: {result.question}"
        case "tests_fail":
            yield f"Not proposed, because its tests fail: {result.reason or 'as in the recorded run'}"
        case "interrupted":
            yield "Interrupted."
        case _:
            yield f"{_said(result)}: {result.error or result.reason}"


def _said(result: CycleResult) -> str:
    words = outcome_in_words(result.outcome)
    return f"{words[0].upper()}{words[1:]}"


def _details(result: CycleResult, commands: Commands, *, dry_run: bool) -> Iterator[str]:
    repository = commands.repository
    if result.task and result.outcome == "question" and not dry_run:
        yield f"  answer  {_where_to_answer(result.task, result.question_url or '', commands)}"
    if result.task:
        yield f"  task    {result.task.title}"
    if result.question and result.outcome != "question":
        yield f"  asked   {result.question}"
    if result.branch and result.commit:
        yield f"  branch  {result.branch}, {result.commit[:_SHORT_COMMIT]}"
        pull = result.pull_request.number if result.pull_request is not None else None
        if result.outcome == "proposed" and pull is not None and Path(repository).is_dir():
            yield f"  look    {commands.pull(pull)}"
            yield f"  merge   {commands.merge(pull)}"
    yield from _left_out(result)
    yield from _tests(result)
    if result.patch:
        yield f"  kept    {result.patch} (git apply applies it)"
    if result.rounds:
        spent = amounts(result.usage.total_tokens, result.usd)
        yield f"  spent   {counted(result.rounds, 'round')}, {spent}{_UNCOUNTED if dry_run else ''}"
    if result.task and not dry_run:
        yield from _next_tries(result, result.task, commands)
    more = " --verbose" if isinstance(result.cause, BadReplyError) else ""
    yield f"  run     {PROGRAM} show {result.run}{more}"


def _tests(result: CycleResult) -> Iterator[str]:
    if result.tests and (tests := tests_in_words(result.tests)):
        yield f"  tests   {tests}"
    elif result.outcome in {"proposed", "planned"}:
        yield f"  tests   {NO_TESTS}"


def _left_out(result: CycleResult) -> Iterator[str]:
    yield from (f"  without {item}" for item in result.left_out[:_MOST_LEFT_OUT])
    if (more := len(result.left_out) - _MOST_LEFT_OUT) > 0:
        yield f"  without {more} more files"


def _next_tries(result: CycleResult, task: Task, commands: Commands) -> Iterator[str]:
    """Yield the commands with which a person lets a task that waits go on."""
    if outcome_words(result, task).partition(" ")[0] in _BLOCKING:
        yield f"  again   {commands.retry(task.key)}"
    if result.outcome == "tests_fail":
        yield f"  draft   {commands.propose_failing(task.key)}"


def _where_to_answer(task: Task, url: str, commands: Commands) -> str:
    if url.startswith(("https://", "http://")):
        return f"below {url}"
    if not url:
        return "nobody can see the question: the next cycle goes on without an answer"
    return commands.answer(task.key)
