"""`pullwright worker`: many repositories from one file, a line of summary a cycle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import AsyncExitStack
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.exit_codes import DONE, FAILED, INTERRUPTED, NOTHING
from orchestrator.app.cli.summary import as_json, as_line
from orchestrator.app.cli.text import as_json_text, clean, one_line
from orchestrator.app.cli.worker_members import Members
from orchestrator.core.clock import SystemClock

if TYPE_CHECKING:
    import argparse

    from orchestrator.app.config.fleet import Address, FleetFile
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.worker.fleet import Fleet, Member
    from orchestrator.bot.worker.health import Health
    from orchestrator.bot.worker.pace import Onward
    from orchestrator.bot.worker.waiting import Waiting
    from orchestrator.core.clock import Clock
    from orchestrator.engine.policy.secrets import Redactor

_ENDING = "ending after the rounds that are running; press Ctrl+C again to end at once"


def worker(options: argparse.Namespace) -> int:
    """Look after the repositories of a fleet's file until somebody asks for the end.

    Raises:
        ConfigurationError: the file, or an option in it, is wrong.
    """
    from orchestrator.app.config import secret_values
    from orchestrator.app.config.fleet import load_fleet
    from orchestrator.engine.policy.secrets import Redactor

    file = load_fleet(Path(options.config).expanduser(), os.environ)
    secrets = [value for one in file.repositories for value in secret_values(one.environ)]
    redactor = Redactor(dict.fromkeys([*secret_values(os.environ), *secrets]))
    return asyncio.run(_Work(file, options, redactor).run())


class _Work:
    """The parts of one run of the worker."""

    def __init__(self, file: FleetFile, options: argparse.Namespace, redactor: Redactor) -> None:
        from orchestrator.bot.cycle.parts import Stop
        from orchestrator.bot.journal.folders import Home
        from orchestrator.bot.worker.fleet import Fleet
        from orchestrator.bot.worker.health import Health
        from orchestrator.bot.worker.waiting import Waiting

        self._file = file
        self._options = options
        self._redactor = redactor
        self._clock: Clock = SystemClock()
        self._home: Home = Home.of(os.environ)
        self._stop = Stop()
        self._outcomes: set[str] = set()
        self._waiting: Waiting = Waiting(self._clock, self._turned)
        make = Members(options, self._home, self._clock)
        self._fleet: Fleet = Fleet(
            [make.member(one) for one in file.repositories],
            self._clock,
            self._waiting,
            self._stop,
            self._report,
            parallel=file.parallel,
            once=options.once,
        )
        self._health: Health = Health(self._fleet, self._clock, redactor.redact)

    async def run(self) -> int:
        """Until the end; the exit status."""
        from orchestrator.bot.worker.schedule import Alarms

        self._listen_to_signals()
        async with AsyncExitStack() as stack:
            if self._file.health is not None:
                await self._serve(stack, self._file.health)
            if not self._options.once:
                schedules = {one.name: one.schedule for one in self._fleet.members}
                alarms = Alarms(schedules, self._fleet.ring, self._clock, random.SystemRandom())
                await stack.enter_async_context(alarms)
                self._tell_first()
            await self._fleet.run()
        if self._stop():
            return INTERRUPTED
        if "failed" in self._outcomes or "paused" in self._outcomes or not self._options.once:
            return FAILED  # without --once, it ends by itself only when no repository is left
        return NOTHING if self._outcomes <= {"no_task"} else DONE

    def _tell_first(self) -> None:
        """Say what the worker waits for, where nothing can begin now."""
        now = self._clock.now()
        times = [(at, one) for one in self._fleet.members if (at := one.next_at(now)) is not None]
        at, first = min(times, key=itemgetter(0))
        if at > now:
            why = f" ({one_line(first.pause.reason)})" if first.pause else ""
            self._say(f"nothing to do before {at:%Y-%m-%d %H:%M} UTC, then {first.name}{why}")

    def _turned(self) -> None:
        self._health.turned()

    async def _serve(self, stack: AsyncExitStack, address: Address) -> None:
        from orchestrator.bot.worker.health import serving

        port = await stack.enter_async_context(serving(self._health, address.host, address.port))
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._say(f"health at http://{host}:{port}/healthz and /metrics")

    def _report(self, member: Member, result: CycleResult, onward: Onward) -> None:
        from orchestrator.bot.journal.pauses import Pause
        from orchestrator.bot.worker.pause_notes import note_pause

        self._outcomes.add(str(result.outcome))
        redact, now = self._redactor.redact, self._clock.now()
        if isinstance(onward, Pause):
            for one in self._fleet.sharing(member, result):
                if one.pause == onward and one.tally.last_run is not None:  # else it waits longer already
                    note_pause(self._home, one.tally.last_run, onward, redact, self._clock)
        if self._options.json:
            shown = self._redactor.redact_value(as_json(member, result, onward, now, once=self._options.once))
            print(as_json_text(shown), flush=True)
        else:
            line = as_line(member, result, onward, now, once=self._options.once)
            print(redact(one_line(line, most_chars=1_000)), flush=True)

    def _listen_to_signals(self) -> None:
        """First Ctrl+C: end after the rounds that run. Second, or SIGTERM: end now; cycles still keep their work."""

        def interrupt() -> None:
            if self._stop():
                self._fleet.stop_at_once()
                return
            if any(one.running for one in self._fleet.members):
                self._say(_ENDING)
            self._fleet.request_stop()

        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGINT, interrupt)
        loop.add_signal_handler(signal.SIGTERM, self._fleet.stop_at_once)

    def _say(self, text: str) -> None:
        print(f"pullwright: {self._redactor.redact(clean(text))}", file=sys.stderr, flush=True)
