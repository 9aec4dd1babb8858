"""`pullwright worker`: many repositories from one file, a line of summary a cycle."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from contextlib import AsyncExitStack, suppress
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, NOTHING, given_settings
from orchestrator.app.config.fleet import load_fleet
from orchestrator.app.config.keys import secret_values
from orchestrator.app.config.settings import load_settings
from orchestrator.app.wiring.model import name_in_journals
from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.app.wiring.repository import label_of
from orchestrator.app.wiring.tracing import tracing
from orchestrator.app.words import as_json_text, clean, local_time, money, short_line
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.index import Pause, newest_run, note_pause
from orchestrator.bot.worker.fleet import Fleet, Member, MemberTotals
from orchestrator.bot.worker.health import Health
from orchestrator.bot.worker.schedule import Alarms, make_schedule
from orchestrator.bot.worker.worker import EndAsked, NeedsPerson, NextStepChooser, Waiter
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import PROGRAM, Commands, repository_key
from orchestrator.engine.models.catalog import OFFICIAL_URLS, Provider
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from orchestrator.app.config.fleet import Address, FleetFile, FleetRepository
    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring.program import Program
    from orchestrator.app.wiring.spans import Tracing
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStep
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event


_ENDING = "ending after the rounds that are running; press Ctrl+C again to end at once"


def worker(options: argparse.Namespace) -> int:
    """Run cycles for the repositories of a fleet's file until a person stops the worker.

    Raises:
        ConfigurationError: the file, or an option in it, is wrong.
    """
    file = load_fleet(Path(options.config).expanduser(), os.environ)
    secrets = [value for one in file.repositories for value in secret_values(one.environ)]
    redactor = Redactor(dict.fromkeys([*secret_values(os.environ), *secrets]))
    with tracing(os.environ, SystemClock(), partial(say, redactor)) as traces:
        return asyncio.run(_WorkerRun(file, options, redactor, traces).run())


def say(redactor: Redactor, text: str) -> None:
    """Print a line on standard error, without secrets."""
    print(f"{PROGRAM}: {redactor.redact(clean(text))}", file=sys.stderr, flush=True)


class _WorkerRun:
    """The parts of one run of the worker."""

    def __init__(
        self, file: FleetFile, options: argparse.Namespace, redactor: Redactor, traces: Tracing | None
    ) -> None:

        self._file = file
        self._options = options
        self._redactor = redactor
        self._clock = SystemClock()
        self._home = Home.of(os.environ)
        self._stop = Stop()
        self._outcomes: set[str] = set()
        waiting = Waiter(self._clock, self._turned)
        make = Members(options, self._home, self._clock, traces)
        self._fleet = Fleet(
            [make.member(one) for one in file.repositories],
            self._clock,
            waiting,
            self._stop,
            self._report,
            parallel=file.parallel,
            once=options.once,
        )
        self._health = Health(self._fleet, self._clock, redactor.redact)

    async def run(self) -> int:
        """Work until the end, and return the exit status."""
        self._listen_to_signals()
        async with AsyncExitStack() as stack:
            if self._file.health is not None:
                await self._serve(stack, self._file.health)
            if not self._options.once:
                schedules = {one.name: one.schedule for one in self._fleet.members}
                alarms = Alarms(schedules, self._fleet.notify, self._clock, random.SystemRandom())
                await stack.enter_async_context(alarms)
                self._tell_first()
            await self._fleet.run()
        if self._stop():
            return INTERRUPTED
        if "failed" in self._outcomes or "paused" in self._outcomes or not self._options.once:
            return FAILED  # without --once, it ends by itself only when no repository is left
        return NOTHING if self._outcomes <= {"no_task"} else DONE

    def _tell_first(self) -> None:
        """Say what the worker waits for, if nothing can begin now."""
        now = self._clock.now()
        times = [(at, one) for one in self._fleet.members if (at := one.next_at(now)) is not None]
        at, first = min(times, key=itemgetter(0))
        if at > now:
            why = f" ({short_line(first.pause.reason)})" if first.pause else ""
            self._say(f"nothing to do before {local_time(at)}, then {first.name}{why}")

    def _turned(self) -> None:
        self._health.note_turn()

    async def _serve(self, stack: AsyncExitStack, address: Address) -> None:
        from orchestrator.app.dashboard.health import serving_health

        port = await stack.enter_async_context(serving_health(self._health, address.host, address.port))
        host = f"[{address.host}]" if ":" in address.host else address.host
        self._say(f"health at http://{host}:{port}/healthz and /metrics")

    def _report(self, member: Member, result: CycleResult, onward: NextStep) -> None:

        self._outcomes.add(str(result.outcome))
        redact, now = self._redactor.redact, self._clock.now()
        if isinstance(onward, Pause):
            for one in self._fleet.sharing(member, result):
                if one.pause == onward and one.totals.last_run is not None:  # else it waits longer already
                    note_pause(self._home, one.totals.last_run, onward, redact, self._clock)
        if self._options.json:
            shown = self._redactor.redact_value(
                cycle_json(member, result, onward, now, once=self._options.once)
            )
            print(as_json_text(shown), flush=True)
        else:
            line = cycle_line(member, result, onward, now, once=self._options.once)
            print(redact(short_line(line, most_chars=1_000)), flush=True)

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
        say(self._redactor, text)


class Members:
    """Makes the members of one fleet."""

    def __init__(
        self, options: argparse.Namespace, home: Home, clock: Clock, traces: Tracing | None = None
    ) -> None:
        self._options = options
        self._home = home
        self._clock = clock
        self._traces = traces
        self._typed = given_settings(options)
        self._names: dict[str, str] = {}

    def member(self, repository: FleetRepository) -> Member:
        """Make the member for one repository. Its options are read now, so that mistakes show at the start.

        Raises:
            ConfigurationError: an option is wrong, or the repository was made a member before.
        """
        flags = self._flags(repository)
        settings = load_settings(flags, repository.environ, Path.cwd()).settings
        self._only_once(repository.name, settings.github_url)
        left, last_run = self._earlier_pause(repository.name, settings)
        member = Member(
            repository.name,
            lambda: self._build(member, repository, flags),
            quota_of(settings),
            self._schedule(repository.name, settings),
            NextStepChooser(self._clock, random.SystemRandom()),
            left,
            settings.max_usd or 0.0,
            totals=MemberTotals(last_run=last_run),
        )
        return member

    def key(self, repository: FleetRepository) -> str:
        """Return the key by which all machines know a repository."""
        flags = self._flags(repository)
        settings = load_settings(flags, repository.environ, Path.cwd()).settings
        return repository_key(label_of(repository.name, settings.github_url))

    def keys(self, repositories: Iterable[FleetRepository]) -> dict[str, str]:
        """Return the key of each repository by its name in the file."""
        return {one.name: self.key(one) for one in repositories}

    def _only_once(self, name: str, github_url: str) -> None:
        """Refuse a repository that is named twice, also in two spellings."""
        place = repository_key(label_of(name, github_url))
        if (other := self._names.get(place)) is not None:
            spelled = "" if other == name else f", once as {other}"
            raise ConfigurationError(f"{self._options.config} names the repository {name} twice{spelled}")
        self._names[place] = name

    def _schedule(self, name: str, settings: Settings) -> Schedule:
        place, now = f"{name} in {self._options.config}", self._clock.now()
        try:
            schedule = make_schedule(settings.every, settings.cron, settings.timezone, now)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}: {error}") from None
        if schedule is None:
            raise ConfigurationError(f"{place} has no schedule")
        return schedule

    def _earlier_pause(self, name: str, settings: Settings) -> tuple[Pause | None, str | None]:
        """Return the pause that an earlier worker with this model left, and its last run."""
        with suppress(ConfigurationError):  # said when the repository has its turn
            model = name_in_journals(settings)
            label = label_of(name, settings.github_url)
            run = newest_run(self._home, repository=label, model=model)
            if run is not None:
                return run.pause_at(self._clock.now()), run.id
        return None, None

    def _flags(self, repository: FleetRepository) -> Mapping[str, object]:
        """Return the file's options, replaced by those that were typed. A typed schedule replaces the file's."""
        when = {"every", "cron"}
        typed_when = bool(when & self._typed.keys())
        own = {key: value for key, value in repository.settings.items() if not (typed_when and key in when)}
        return {**own, **self._typed}

    def _build(self, member: Member, repository: FleetRepository, flags: Mapping[str, object]) -> Program:
        def heard(event: Event) -> None:
            del event
            member.active_at = self._clock.monotonic()

        request = RunRequest(repository.name, dry_run=self._options.dry_run)
        return build_program(request, flags, repository.environ, Path.cwd(), heard, tracing=self._traces)


def quota_of(settings: Settings) -> str:
    """Return what a provider's quota counts by: model and address, in one spelling.

    The key follows from them, because all repositories of a fleet have the same keys, and is not told.
    """
    name, address = settings.model or "", settings.api_url or ""
    with suppress(ConfigurationError):  # said when the repository has its turn
        name = name_in_journals(settings) or name
    provider = name.partition(":")[0]
    if not address and provider in set(Provider):
        address = OFFICIAL_URLS.get(Provider(provider), "")
    # Whoever has others to ask goes on where one without them has to wait.
    return " ".join((name, address.rstrip("/"), *settings.fallback_model))


_MOST_REASON_CHARS = 160


def cycle_line(member: Member, result: CycleResult, onward: NextStep, now: datetime, *, once: bool) -> str:
    """Return one line about a cycle: when, where, what came of it, its cost, and when the next one begins."""
    parts = [f"{local_time(now)}", member.name, str(result.outcome), *_what(member, result, onward)]
    if result.rounds:
        parts.append(money(result.usd))
    if isinstance(onward, NeedsPerson):
        parts.append("no further cycle until the worker is started again")
    elif (next_at := _next_at(member, onward, now, once=once)) is not None:
        parts.append(f"next {local_time(next_at)}")
    return " | ".join(short_line(part) for part in parts)


def _next_at(member: Member, onward: NextStep, now: datetime, *, once: bool) -> datetime | None:
    """Return when the member's next cycle begins; None if there is no next one."""
    return None if once or isinstance(onward, EndAsked) else member.next_at(now)


def _what(member: Member, result: CycleResult, onward: NextStep) -> Iterator[str]:
    if result.task is not None:
        yield result.task.title
    if result.pull_request is not None and result.pull_request.url:
        yield f"{result.pull_request.url}{' (tests do not pass)' if result.tests_fail else ''}"
    elif result.question is not None:
        url = result.question_url or ""
        yield f"asked: {url if url.startswith('http') else result.question}"
        if result.task is not None and not url.startswith("http"):
            yield f"answer with: {Commands(member.name).answer(result.task.key)}"
    reason = onward.reason if isinstance(onward, Pause | NeedsPerson) else result.error or result.reason
    if reason and result.pull_request is None and result.question is None:
        yield short_line(reason, _MOST_REASON_CHARS)


def cycle_json(
    member: Member, result: CycleResult, onward: NextStep, now: datetime, *, once: bool
) -> dict[str, Any]:
    """Return the same for programs, with the cycle's whole result."""
    next_at = _next_at(member, onward, now, once=once)
    return {
        "at": now.isoformat(timespec="seconds"),
        "repository": member.name,
        "next_at": next_at.isoformat(timespec="seconds") if next_at else None,
        "paused_until": onward.until.isoformat(timespec="seconds") if isinstance(onward, Pause) else None,
        "disabled": onward.reason if isinstance(onward, NeedsPerson) else None,
        **result.to_json(),
    }
