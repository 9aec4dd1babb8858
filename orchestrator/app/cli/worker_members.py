"""The members of a worker's fleet: each repository of the file with its options, schedule and model."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli.arguments import given_settings
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from orchestrator.app.config import Settings
    from orchestrator.app.config.fleet import FleetRepository
    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.index import Pause
    from orchestrator.bot.worker.fleet import Member
    from orchestrator.bot.worker.schedule import Schedule
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Event


class Members:
    """Makes the members of one fleet.

    Args:
        options: what was typed.
        home: where the runs are.
        clock: the time.
    """

    def __init__(self, options: argparse.Namespace, home: Home, clock: Clock) -> None:
        self._options = options
        self._home = home
        self._clock = clock
        self._typed = given_settings(options)
        self._names: dict[str, str] = {}

    def member(self, repository: FleetRepository) -> Member:
        """One repository; its options are read now, so that a mistake is said at the start.

        Raises:
            ConfigurationError: an option is wrong, or the repository was made a member before.
        """
        from orchestrator.app.config import load
        from orchestrator.bot.worker.fleet import Member, Tally
        from orchestrator.bot.worker.worker import Pace

        flags = self._flags(repository)
        settings = load(flags, repository.environ, Path.cwd()).settings
        self._only_once(repository.name, settings.github_url)
        left, last_run = self._left(repository.name, settings)
        member = Member(
            repository.name,
            lambda: self._build(member, repository, flags),
            quota_of(settings),
            self._schedule(repository.name, settings),
            Pace(self._clock, random.SystemRandom()),
            left,
            tally=Tally(last_run=last_run),
        )
        return member

    def _only_once(self, name: str, github_url: str) -> None:
        """Refuse a repository that is named twice, in whatever spellings."""
        from orchestrator.app.wiring.forge import label_of

        place = repository_key(label_of(name, github_url))
        if (other := self._names.get(place)) is not None:
            spelled = "" if other == name else f", once as {other}"
            raise ConfigurationError(f"{self._options.config} names the repository {name} twice{spelled}")
        self._names[place] = name

    def _schedule(self, name: str, settings: Settings) -> Schedule:
        from orchestrator.bot.worker.schedule import make_schedule

        place, now = f"{name} in {self._options.config}", self._clock.now()
        try:
            schedule = make_schedule(settings.every, settings.cron, settings.timezone, now)
        except ConfigurationError as error:
            raise ConfigurationError(f"{place}: {error}") from None
        if schedule is None:
            raise ConfigurationError(f"{place} has no schedule")
        return schedule

    def _left(self, name: str, settings: Settings) -> tuple[Pause | None, str | None]:
        """The pause that an earlier worker with this model left, and its last run."""
        from orchestrator.app.wiring.forge import label_of
        from orchestrator.app.wiring.model import name_in_journals
        from orchestrator.bot.journal.index import newest_run

        with suppress(ConfigurationError):  # said when the repository has its turn
            model = name_in_journals(settings)
            label = label_of(name, settings.github_url)
            run = newest_run(self._home, repository=label, model=model)
            if run is not None:
                return run.pause_at(self._clock.now()), run.id
        return None, None

    def _flags(self, repository: FleetRepository) -> Mapping[str, object]:
        """The file's options with what was typed over them; of two schedules the one that was typed."""
        when = {"every", "cron"}
        typed_when = bool(when & self._typed.keys())
        own = {key: value for key, value in repository.settings.items() if not (typed_when and key in when)}
        return {**own, **self._typed}

    def _build(self, member: Member, repository: FleetRepository, flags: Mapping[str, object]) -> Program:
        from orchestrator.app.wiring.program import Errand, build_program

        def heard(event: Event) -> None:
            del event
            member.heard_at = self._clock.monotonic()

        errand = Errand(repository.name, dry_run=self._options.dry_run)
        return build_program(errand, flags, repository.environ, Path.cwd(), heard)


def quota_of(settings: Settings) -> str:
    """By what a provider counts: model and address, in one spelling.

    The key follows from them, because all repositories of a fleet have the same keys, and is not told.
    """
    from orchestrator.app.wiring.model import name_in_journals
    from orchestrator.engine.models.catalog import OFFICIAL_URLS, Provider

    name, address = settings.model or "", settings.api_url or ""
    with suppress(ConfigurationError):  # said when the repository has its turn
        name = name_in_journals(settings) or name
    provider = name.partition(":")[0]
    if not address and provider in set(Provider):
        address = OFFICIAL_URLS.get(Provider(provider), "")
    # Whoever has others to ask goes on where one without them has to wait.
    return " ".join((name, address.rstrip("/"), *settings.fallback_model))
