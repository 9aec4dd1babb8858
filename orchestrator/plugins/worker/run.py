"""`pullwright worker`: runs cycles for the repositories of a file, and prints a line for each cycle.

`pullwright fleet run` does the same with a queue that several workers share.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.cli.arguments import DONE, FAILED, INTERRUPTED, NOTHING
from orchestrator.app.cli.output import end_on_signals, print_lines, print_problem
from orchestrator.app.terminal import known_secrets, print_json
from orchestrator.app.wiring import NO_OBSERVERS, Observers, observing
from orchestrator.app.wiring.model import name_in_journals
from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.app.wiring.repository import label_of
from orchestrator.app.words import local_time, money, outcome_in_words, short_line
from orchestrator.bot.cycle.parts import Outcome, Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.index import newest_run, note_pause
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker.schedule import make_schedule
from orchestrator.bot.worker.worker import LONGEST_SECONDS, EndAsked, NeedsPerson, NextStepChooser
from orchestrator.core import event_loop
from orchestrator.core.addresses import bracketed
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key
from orchestrator.core.version import __version__
from orchestrator.engine.models.catalog import OFFICIAL_URLS, Provider
from orchestrator.engine.models.keys import ApiKeys, secret_values
from orchestrator.plugins.fleet.command import database_file, open_store
from orchestrator.plugins.fleet.fleet_file import FleetSettings, listen_address, load_fleet
from orchestrator.plugins.worker.members import Health, Member, MemberTotals

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.bot.worker.worker import NextStep
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.plugins.fleet.fleet_file import FleetFile, FleetRepository


_OWN_QUEUE = "PULLWRIGHT_DATABASE_URL has no effect here: only pullwright fleet run uses that database"
_FILES, _FILES_A_REPOSITORY = 512, 4
"""Open files of a worker: those of running cycles, and the connections and the lock of each repository."""
_ENDING = "ending after the rounds that are running; press Ctrl+C again to end at once"


def worker(options: argparse.Namespace) -> int:
    """Run cycles for the repositories of a fleet's file until a person stops the worker."""
    path = Path(options.config).expanduser()
    file = load_fleet(path, os.environ)
    if options.webhook is not None:
        file = replace(file, webhook=listen_address(options.webhook, "--webhook"))
    if ApiKeys.of(os.environ).database is not None:
        print_problem(_OWN_QUEUE)
    url = database_file(path, os.environ, dry_run=options.dry_run)
    return run_worker(file, options, url, alone=True)


def allow_open_files(wanted: int) -> None:
    """Raise the limit on open files of this process to this number, or as far as the system allows."""
    import resource

    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
    if now != resource.RLIM_INFINITY and now < allowed:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, most))


def run_worker(file: FleetFile, options: argparse.Namespace, url: str, *, alone: bool) -> int:
    """Run one worker, with the observers of the plug-ins. Return the exit status.

    Args:
        url: address of the database with the queue.
        alone: see `_WorkerRun`.
    """
    redactor = known_secrets(os.environ)
    for one in file.repositories:
        redactor.learn(secret_values(one.environ))
    with observing(os.environ, SystemClock(), print_problem) as observers:
        return event_loop.run(_WorkerRun(file, options, url, redactor, observers, alone=alone).run())


class _WorkerRun:
    """One worker, from its start to its end.

    Args:
        url: address of the database with the queue.
        alone: whether no other worker uses this queue. Then it prints a line even for a cycle that found no task,
            and ends when every repository needs a person. A worker of a fleet waits, because other workers and
            people change the queue.
    """

    def __init__(  # noqa: PLR0913  one caller has all of them
        self,
        file: FleetFile,
        options: argparse.Namespace,
        url: str,
        redactor: Redactor,
        observers: Observers,
        *,
        alone: bool,
    ) -> None:
        self._store = open_store(url, patient=True)  # before the imports, because it names a missing package
        from orchestrator.plugins.worker.engine import (
            LEASE_SECONDS,
            EngineOptions,
            FleetEngine,
            FleetWorker,
            new_worker_name,
        )

        self._file = file
        self._options = options
        self._alone = alone
        self._once = alone and options.once
        self._redactor = redactor
        self._clock = SystemClock()
        self._home = Home.of(os.environ)
        self._stop = Stop()
        self._ended = asyncio.Event()
        self._outcomes: set[str] = set()
        make, settings = Members(options, self._home, self._clock, observers), FleetSettings(options)
        self._worker = FleetWorker(
            new_worker_name(socket.gethostname()),
            self._store,
            {settings.key(one): make.member(one) for one in file.repositories},
            self._clock,
            self._stop,
            random.SystemRandom(),
            self._report,
            most_usd=file.max_usd_per_day,
            once=self._once,
            on_over=self._end_if_over,
        )
        lease = float(file.lease_seconds or LEASE_SECONDS)
        how = EngineOptions(self._worker.name, __version__, file.parallel, file.most_running, lease)
        self._engine = FleetEngine(self._store, how, self._clock, self._worker, self._drain, self._say)
        self._health = Health(self._worker.members, self._clock, self._redactor.redact)

    async def run(self) -> int:
        """Work until the end, and return the exit status."""
        self._listen_to_signals()
        allow_open_files(_FILES + _FILES_A_REPOSITORY * len(self._file.repositories))
        async with AsyncExitStack() as stack:
            await asyncio.to_thread(self._store.open)
            stack.push_async_callback(asyncio.to_thread, self._store.close)
            if (address := self._file.health) is not None:
                from orchestrator.plugins.worker.serving import serving_health

                served = serving_health(self._health, address.host, address.port)
                port = await stack.enter_async_context(served)
                self._say(f"health at http://{bracketed(address.host)}:{port}/healthz and /metrics")
            await asyncio.to_thread(self._worker.begin)
            for member in self._worker.members:
                if member.halted is not None:
                    self._say(member.halted)
            stack.push_async_callback(self._worker.close)
            await self._engine.launch()
            stack.push_async_callback(self._engine.close)
            self._print_start()
            await self._receive(stack)
            self._end_if_over()
            while not self._ended.is_set():
                self._health.note_turn()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._ended.wait(), LONGEST_SECONDS)
        return self._status()

    def _status(self) -> int:
        if self._stop():
            return INTERRUPTED
        if not self._once or self._outcomes & {"failed", "paused"}:
            return FAILED  # without --once, it ends by itself only when no repository is left
        return NOTHING if self._outcomes <= {"no_task"} else DONE

    def _end_if_over(self) -> None:
        if self._alone and self._worker.is_over:
            self._ended.set()

    def _print_start(self) -> None:
        """Print where the queue is; for a worker alone, when the first cycle begins, if that is not now."""
        if not self._alone:
            self._say(f"worker {self._worker.name} takes turns from {self._store.place}")
            return
        now = self._clock.now()
        times = [(at, one) for one in self._worker.members if (at := one.next_at(now)) is not None]
        at, first = min(times, key=itemgetter(0))
        if at > now and not self._once:
            why = f" ({short_line(first.pause.reason)})" if first.pause else ""
            self._say(f"nothing to do before {local_time(at)}, then {first.name}{why}")

    async def _receive(self, stack: AsyncExitStack) -> None:
        """Listen for webhooks, if the file names an address."""
        address, secret = self._file.webhook, ApiKeys.of(os.environ).webhook_secret
        if address is None or self._once:
            return
        if secret is None:
            typed = getattr(self._options, "webhook", None)
            where = f"webhook in {self._options.config}" if typed is None else "--webhook"
            raise ConfigurationError(
                f"{where} needs a secret: set PULLWRIGHT_WEBHOOK_SECRET to the one that you "
                "gave GitHub for this webhook"
            )
        from orchestrator.plugins.worker.serving import PATH, Receiver, receiving

        receiver = Receiver(secret, self._worker.by_key, self._store.receive)
        port = await stack.enter_async_context(receiving(receiver, address.host, address.port))
        self._say(f"webhooks at port {port} of {address.host}, path {PATH}")

    def _drain(self, reason: str) -> None:
        if not self._stop():
            self._say(f"ends after the rounds that are running: {reason}")
            self._worker.request_stop()
            self._ended.set()

    def _listen_to_signals(self) -> None:
        def end_at_once() -> None:
            self._worker.stop_at_once()
            self._ended.set()

        def end() -> None:
            if any(one.running for one in self._worker.members):
                self._say(_ENDING)
            self._worker.request_stop()
            self._ended.set()

        end_on_signals(self._stop, end, end_at_once)

    def _report(self, member: Member, result: CycleResult, onward: NextStep) -> None:
        self._outcomes.add(str(result.outcome))
        now = self._clock.now()
        if isinstance(onward, Pause):
            for one in self._worker.sharing(member, result):
                # A repository that waits longer already has another pause.
                if one.pause == onward and one.totals.last_run is not None:
                    note_pause(self._home, one.totals.last_run, onward, self._redactor, self._clock)
        if self._options.json:
            print_json(cycle_json(member, result, onward, now, once=self._once))
        elif self._alone or result.outcome is not Outcome.NO_TASK or result.task is not None:
            print_lines([cycle_line(member, result, onward, now, once=self._once)[:_MOST_CHARS_A_CYCLE]])

    def _say(self, text: str) -> None:
        print_problem(text)


class Members:
    """Makes the members of a fleet, one for each repository of its file."""

    def __init__(
        self, options: argparse.Namespace, home: Home, clock: Clock, observers: Observers = NO_OBSERVERS
    ) -> None:
        self._options = options
        self._home = home
        self._clock = clock
        self._observers = observers
        self._settings = FleetSettings(options)
        self._names: dict[str, str] = {}

    def member(self, repository: FleetRepository) -> Member:
        """Make the member for one repository. Its options are read now, so that mistakes show at the start.

        Raises:
            ConfigurationError: an option is wrong, or the repository was made a member before.
        """
        flags = self._settings.flags(repository)
        settings = self._settings.of(repository)
        self._only_once(repository.name, settings)
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

    def _only_once(self, name: str, settings: Settings) -> None:
        """Refuse a repository that the file names twice, also if the spelling differs."""
        place = repository_key(label_of(name, settings))
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
        """Return the pause that the repository's last run with this model left, and that run."""
        with suppress(ConfigurationError):  # reported when a cycle of the repository begins
            model = name_in_journals(settings)
            label = label_of(name, settings)
            run = newest_run(self._home, repository=label, model=model)
            if run is not None:
                return run.pause_at(self._clock.now()), run.id
        return None, None

    def _build(self, member: Member, repository: FleetRepository, flags: Mapping[str, object]) -> Program:
        def heard(event: Event) -> None:
            del event
            member.active_at = self._clock.monotonic()

        request = RunRequest(repository.name, dry_run=self._options.dry_run)
        return build_program(request, flags, repository.environ, Path.cwd(), heard, observers=self._observers)


def quota_of(settings: Settings) -> str:
    """Return a text that is equal for repositories which share a provider's quota: model and address.

    The provider's key is not part of it, because all repositories of a fleet have the same keys.
    """
    name, address = settings.model or "", settings.api_url or ""
    with suppress(ConfigurationError):  # reported when a cycle of the repository begins
        name = name_in_journals(settings) or name
    provider = name.partition(":")[0]
    if not address and provider in set(Provider):
        address = OFFICIAL_URLS.get(Provider(provider), "")
    # A repository with fallback models continues where one without them has to wait.
    return " ".join((name, address.rstrip("/"), *settings.fallback_model))


_MOST_REASON_CHARS = 160
_MOST_CHARS_A_CYCLE = 1_000


def cycle_line(member: Member, result: CycleResult, onward: NextStep, now: datetime, *, once: bool) -> str:
    """Return one line about a cycle: time, repository, outcome, cost, and when the next one begins."""
    parts = list(_what(member, result, onward))
    if result.rounds:
        parts.append(money(result.usd))
    if isinstance(onward, NeedsPerson):
        parts.append("no further cycle until the worker is started again")
    elif (next_at := _next_at(member, onward, now, once=once)) is not None:
        parts.append(f"next {local_time(next_at)}")
    head = f"{local_time(now)}  {member.name}  {outcome_in_words(result.outcome)}"
    return f"{head}: {'; '.join(map(short_line, parts))}" if parts else head


def _next_at(member: Member, onward: NextStep, now: datetime, *, once: bool) -> datetime | None:
    """Return when the member's next cycle begins; None if there is no next one."""
    return None if once or isinstance(onward, EndAsked) else member.next_at(now)


def _what(member: Member, result: CycleResult, onward: NextStep) -> Iterator[str]:
    if result.task is not None:
        yield result.task.title
    if (pull := result.pull_request) is not None and pull.url:
        where = pull.url if pull.url.startswith("http") else f"pull request #{pull.number}"
        yield f"{where}{f' ({result.proof.sentence})' if result.proof else ''}"
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
    """Return a cycle's result as JSON, with the time of the next cycle."""
    next_at = _next_at(member, onward, now, once=once)
    return {
        "at": now.isoformat(timespec="seconds"),
        "repository": member.name,
        "next_at": next_at.isoformat(timespec="seconds") if next_at else None,
        "paused_until": onward.until.isoformat(timespec="seconds") if isinstance(onward, Pause) else None,
        "disabled": onward.reason if isinstance(onward, NeedsPerson) else None,
        **result.to_json(),
    }
