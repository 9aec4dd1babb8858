"""`pullwright run`: builds the program, runs its cycles, prints what they came to."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import given_settings
from orchestrator.app.cli.exit_codes import INTERRUPTED, for_error
from orchestrator.app.cli.outcome import WholeRun, print_result
from orchestrator.app.cli.text import as_json_text
from orchestrator.core.errors import PullwrightError
from orchestrator.core.events import Paused, Warned

if TYPE_CHECKING:
    import argparse

    from orchestrator.app.cli.live import LiveView
    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.journal.pauses import Pause
    from orchestrator.bot.worker.waiting import Waiting
    from orchestrator.bot.worker.worker import Rhythm

_ENDING = "ending after this round; press Ctrl+C again to end at once"


def run(options: argparse.Namespace) -> int:
    """Run one cycle, or one after another, and return the exit status of the whole run."""
    from orchestrator.app.cli.live import LiveView
    from orchestrator.app.wiring.program import Errand, build_program

    view = LiveView.on_stderr(plain=options.plain, summary=not options.json)
    errand = Errand(
        *(options.repo, options.issue, options.task, options.answer),
        demo=options.demo,
        dry_run=options.dry_run,
    )
    try:
        program = build_program(errand, given_settings(options), os.environ, Path.cwd(), view)
    except PullwrightError as error:
        return _refuse(error, as_json=options.json)
    with view:
        return asyncio.run(_run(program, options, view))


async def _run(program: Program, options: argparse.Namespace, view: LiveView) -> int:
    from orchestrator.bot.worker.waiting import Waiting

    waiting, whole = Waiting(program.clock), WholeRun()
    task = asyncio.ensure_future(_work(program, options, view, waiting, whole))
    _listen_to_signals(program, task, waiting, view)
    try:
        last = await task
    except PullwrightError as error:
        return _refuse(error, as_json=options.json)
    except asyncio.CancelledError:
        return INTERRUPTED
    finally:
        await program.close()
    if whole.cycles > 1 and not options.json:
        print(whole.line, flush=True)
    return INTERRUPTED if last is None else whole.code


async def _work(
    program: Program, options: argparse.Namespace, view: LiveView, waiting: Waiting, whole: WholeRun
) -> CycleResult | None:
    """One cycle, or as many as `--continuous` and the schedule ask for."""
    from orchestrator.bot.worker.schedule import Alarms, make_schedule
    from orchestrator.bot.worker.worker import Bell, work

    def report(result: CycleResult) -> None:
        view.pause()
        whole.add(result)
        _report(program, result, as_json=options.json)

    settings, clock = program.settings, program.clock
    schedule = make_schedule(settings.every, settings.cron, settings.timezone, clock.now())
    if schedule is None and not options.continuous:
        return await work(program.cycle, report, program.stop)
    rhythm = _rhythm(program, view, waiting)
    if schedule is None:
        return await work(program.cycle, report, program.stop, rhythm, max_cycles=settings.max_cycles)

    def tell_next() -> None:
        until = schedule.next_fire(clock.now()).isoformat(timespec="seconds")
        reason = f"nothing to do before the next time of the schedule ({schedule.text})"
        view(Paused(until, reason, is_planned=True))
        view.pause()

    bell = rhythm.bell = Bell(waiting, tell_next)
    async with Alarms({"": schedule}, bell.ring, clock, random.SystemRandom()):
        return await work(program.cycle, report, program.stop, rhythm, max_cycles=settings.max_cycles)


def _rhythm(program: Program, view: LiveView, waiting: Waiting) -> Rhythm:
    """When cycles begin, with the pause that an earlier run with this model on this repository left."""
    from orchestrator.bot.journal.pauses import last_pause
    from orchestrator.bot.worker.pace import Pace
    from orchestrator.bot.worker.pause_notes import note_pause
    from orchestrator.bot.worker.worker import Rhythm

    def tell(pause: Pause, after: CycleResult | None) -> None:
        if after is not None and after.run is not None:
            note_pause(program.home, after.run, pause, program.redactor.redact, program.clock)
        view(pause.event)
        view.pause()

    clock, model = program.clock, program.chosen.model.name
    left = last_pause(program.home, clock.now(), repository=program.repository, model=model)
    return Rhythm(clock, waiting, Pace(clock, random.SystemRandom()), tell, left=left, renew=program.forget)


def _listen_to_signals(
    program: Program, task: asyncio.Future[CycleResult | None], waiting: Waiting, view: LiveView
) -> None:
    """First Ctrl+C: end after this round. Second, or SIGTERM: end now; the cycle still keeps its work."""

    def at_once() -> None:
        program.stop.at_once()
        task.cancel()

    def interrupt() -> None:
        if program.stop.requested:
            at_once()
            return
        waits = waiting.is_on
        program.stop.request()
        waiting.wake()
        if not waits:
            view(Warned(_ENDING))

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGINT, interrupt)
    loop.add_signal_handler(signal.SIGTERM, at_once)


def _report(program: Program, result: CycleResult, *, as_json: bool) -> None:
    if as_json:
        clean = program.redactor.redact_value(result.to_json())
        print(as_json_text(clean), flush=True)
    else:
        print_result(result, program.redactor.redact, program.commands, dry_run=program.dry_run)


def _refuse(error: PullwrightError, *, as_json: bool) -> int:
    """One line for what cannot even begin; with `--json` a result as well."""
    from orchestrator.app.config import secret_values
    from orchestrator.engine.policy.secrets import Redactor

    said = Redactor(secret_values(os.environ)).redact(str(error))
    print(f"pullwright: {said}", file=sys.stderr)
    if as_json:
        from orchestrator.bot.cycle.parts import CycleResult

        print(as_json_text(CycleResult(None, error=said).to_json()))
    return for_error(error)
