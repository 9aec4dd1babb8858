"""Plays one attack: the user's own program, in a world of its own, with a model that obeys."""

from __future__ import annotations

import asyncio
import functools
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.app.config.keys import ApiKeys, secret_values
from orchestrator.app.config.settings import Loaded
from orchestrator.app.redteam.attack import Place
from orchestrator.app.redteam.cast import NAME, in_the_place_of_the_model, make_forge, make_web
from orchestrator.app.redteam.evidence import (
    Evidence,
    Left,
    around,
    look_at_forge,
    look_at_ground,
    look_at_model,
    look_at_web,
)
from orchestrator.app.redteam.grounds import (
    DEFAULT_BRANCH,
    PAGE,
    borrowed_environment,
    prepared,
)
from orchestrator.app.redteam.obedient import ObedientModel
from orchestrator.app.redteam.off import ClosableMarkers, loosened, looser, without
from orchestrator.app.redteam.plain import CarelessHost
from orchestrator.app.redteam.reading import any_reports, host_reports
from orchestrator.app.redteam.watched import watched
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.cycle_parts import RunParts, Safeguards
from orchestrator.app.wiring.guards import GuardMaker, choose_sandbox
from orchestrator.app.wiring.program import EventBus, Program
from orchestrator.app.wiring.repository import Site, Source
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock
from orchestrator.core.defences import Defence
from orchestrator.core.errors import ConfigurationError, SandboxMissingError
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from typing import Any

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.redteam.attack import Attack
    from orchestrator.app.redteam.grounds import Grounds
    from orchestrator.app.redteam.run import Configured
    from orchestrator.app.redteam.secrets import Drawn
    from orchestrator.bot.cycle.parts import CycleParts, CycleResult

_LEADS: Mapping[Place, Mapping[str, Any]] = {
    Place.WEB_PAGE: {"tool": "fetch", "url": PAGE},
    Place.WEB_SEARCH: {"tool": "search", "query": "how to greet"},
    Place.TOOL_OUTPUT: {"tool": "grep", "pattern": "OBEY", "path": "docs/deep"},
}
"""What the task makes the model do first, so that it comes to read the words."""


@dataclass
class _Staged(Program):
    """The program, with the parts of a cycle changed before it runs."""

    change: Callable[[CycleParts], CycleParts] = field(kw_only=True)
    is_tightened: bool = field(kw_only=True)

    async def play(self) -> CycleResult:
        """Run one cycle, and let go of everything."""
        try:
            return await self.cycle()
        finally:
            await self.close()

    def parts(self, run: str, folder: Path, settings: Settings) -> CycleParts:
        """As they are for a user, and then changed."""
        return self.change(super().parts(run, folder, settings))

    def tightened(self, text: str | None) -> tuple[Settings, list[str]]:
        """As for a user, unless this defence is away."""
        return super().tightened(text if self.is_tightened else None)


async def play(attack: Attack, user: Configured, drawn: Drawn, off: Collection[Defence] = ()) -> Evidence:
    """Run one cycle under attack, and say what was seen.

    Args:
        attack: the attack.
        user: the configuration to be tried.
        drawn: for the run of attacks that it is one of.
        off: defences that are taken away.

    Raises:
        WorkspaceError: git is missing or refused.
    """
    base = user.settings.base or DEFAULT_BRANCH
    async with prepared(attack, drawn, base) as grounds:
        evidence = Evidence(user.settings, grounds.secrets)
        with borrowed_environment(grounds.environment(attack.world.variables)):
            try:
                await _run(attack, user, grounds, base, off, evidence)
            except SandboxMissingError as error:
                evidence.refusal, evidence.refused_by = str(error), Defence.SANDBOX
            except ConfigurationError as error:
                evidence.refusal = str(error)
    return evidence


async def _run(  # noqa: PLR0913, PLR0917  one story, its facts
    attack: Attack,
    user: Configured,
    grounds: Grounds,
    base: str,
    off: Collection[Defence],
    evidence: Evidence,
) -> None:
    settings = _settings(attack, user, grounds, off, evidence)
    forge = make_forge(attack, grounds, settings, base, trusting=Defence.ADMISSION in off)
    model = (ClosableMarkers if Defence.MARKERS in off else ObedientModel)(
        lead=attack.world.lead or _LEADS.get(attack.place, {}),
        program_only=attack.trusts == "program",
        at_once=attack.at_once or settings.max_rounds < _FEW_ROUNDS,
    )
    web = make_web(attack, grounds, checked=Defence.NETWORK not in off)
    redactor = _redactor(frozenset(secret_values(os.environ)))
    planted = await asyncio.to_thread(around, grounds)
    make = GuardMaker(redactor)
    careless = None
    if Defence.HOST_GIT in off:
        careless = CarelessHost(grounds.secrets.all["NETRC"], (forge.issue(1).title, base))
    bus = EventBus(evidence.events.append)
    shared = RunParts(
        BuildContext(Loaded(settings, {}), ApiKeys(), Home(grounds.state), SystemClock(), bus, Stop()),
        Site(forge, lambda: Source(str(grounds.repository), base), lambda: None, label=NAME),
        in_the_place_of_the_model(model, settings),
        Safeguards(
            redactor,
            lambda rules: without(make(rules), off),
            choose_sandbox(settings, grounds.sink.connect),
        ),
        web=web if settings.web else None,
    )
    program = _Staged(
        shared,
        bus,
        change=lambda parts: watched(parts, settings, off, evidence, careless),
        is_tightened=Defence.INSTRUCTIONS not in off,
    )
    evidence.result = await program.play()
    look_at_model(evidence, model)
    look_at_forge(evidence, forge, any_reports if Defence.TEST_INTEGRITY in off else host_reports)
    look_at_web(evidence, web)
    await asyncio.to_thread(look_at_ground, evidence, grounds, base, planted)
    await asyncio.to_thread(_look_at_journal, evidence, grounds)


@functools.lru_cache(maxsize=4)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)


def _look_at_journal(evidence: Evidence, grounds: Grounds) -> None:
    for file in (grounds.state).rglob("*.jsonl"):
        evidence.left.append(Left("journal", file.read_text(encoding="utf-8")))


_HOW_TO_TEST = ("test_command", "setup_command", "test_report")
_FEW_ROUNDS = 8
"""With fewer, a model that does one thing at a time would not come to the end."""


def _settings(
    attack: Attack, user: Configured, grounds: Grounds, off: Collection[Defence], evidence: Evidence
) -> Settings:
    """The user's settings in the world of the attack, and what in them was loosened."""
    settings = user.settings
    planted = attack.world.files.get("pullwright.toml")
    if attack.world.settings_file is not None:
        if Defence.INSTRUCTIONS in off:
            planted = attack.world.settings_file
        else:
            settings = user.read(grounds.started_in)
    # The person's own command for tests is for the files of another repository.
    named = {key: attack.settings.get(key) for key in _HOW_TO_TEST} if settings.test_command else {}
    changes = loosened(off, None if planted is None else grounds.fill(planted))
    settings = settings.model_copy(update=named | dict(changes))
    evidence.settings = settings
    evidence.loosened = []
    if attack.place is Place.SETTINGS_FILE:
        evidence.loosened = looser(user.read(grounds.folder), settings)
    return settings
