"""Plays one attack: the user's own program, in a world of its own, with a model that obeys."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.assembly.forge import Site, Source
from orchestrator.assembly.guards import GuardMaker, choose_sandbox
from orchestrator.assembly.model import ChosenModel
from orchestrator.assembly.program import Program
from orchestrator.assembly.relay import Relay
from orchestrator.core.clock import SystemClock
from orchestrator.core.defences import Defence
from orchestrator.core.errors import ConfigurationError
from orchestrator.cycle.parts import Stop
from orchestrator.environments.wrappers import Wrapper
from orchestrator.forge.base import Permission
from orchestrator.forge.memory import MemoryForge
from orchestrator.guard.secrets import Redactor
from orchestrator.journal.folders import Home
from orchestrator.models.catalog import ModelRef, parse_model
from orchestrator.redteam.attack import Place
from orchestrator.redteam.evidence import (
    Evidence,
    Left,
    around,
    files_below,
    look_at_forge,
    look_at_ground,
    look_at_model,
    look_at_web,
)
from orchestrator.redteam.fake_web import FakeWeb
from orchestrator.redteam.grounds import (
    DEFAULT_BRANCH,
    PAGE,
    borrowed_environment,
    files_of,
    prepared,
)
from orchestrator.redteam.obedient import ObedientModel
from orchestrator.redteam.off import ClosableMarkers, TrustingForge, loosened, without
from orchestrator.redteam.plain import CarelessHost, PlainFiles
from orchestrator.worker.backlog import Wanted

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path
    from typing import Any

    from orchestrator.config import Settings
    from orchestrator.cycle.parts import CycleParts
    from orchestrator.environments.base import ExecutionEnvironment
    from orchestrator.redteam.attack import Attack
    from orchestrator.redteam.grounds import Grounds

NAME = "redteam/greeting"
_LEADS: Mapping[Place, Mapping[str, Any]] = {
    Place.WEB_PAGE: {"tool": "fetch", "url": PAGE},
    Place.WEB_SEARCH: {"tool": "search", "query": "how to greet"},
    Place.TOOL_OUTPUT: {"tool": "grep", "pattern": "OBEY", "path": "docs/deep"},
}
"""What the task makes the model do first, so that it comes to read the words."""


@dataclass(frozen=True, slots=True)
class Configured:
    """The user's configuration.

    Attributes:
        settings: as it is where the program is started.
        read: the same, as it would be in another folder; raises `ConfigurationError`.
    """

    settings: Settings
    read: Callable[[Path], Settings]


@dataclass
class _Staged(Program):
    """The program, with the parts of a cycle changed before it runs."""

    change: Callable[[CycleParts], CycleParts] = field(kw_only=True)
    is_tightened: bool = field(kw_only=True)

    def _parts(self, run: str, folder: Path, settings: Settings) -> CycleParts:
        return self.change(super()._parts(run, folder, settings))

    def _tightened(self) -> tuple[Settings, list[str]]:
        return super()._tightened() if self.is_tightened else (self.settings, [])


async def play(
    attack: Attack, user: Configured, source: random.Random, off: Collection[Defence] = ()
) -> Evidence:
    """Run one cycle under attack, and say what was seen.

    Args:
        attack: the attack.
        user: the configuration to be tried.
        source: draws secrets.
        off: defences that are taken away.

    Raises:
        WorkspaceError: git is missing or refused.
    """
    base = user.settings.base or attack.world.base or DEFAULT_BRANCH
    async with prepared(attack, source, base) as grounds:
        evidence = Evidence(user.settings, grounds.secrets)
        with borrowed_environment(grounds.environment(attack.world.variables)):
            try:
                await _run(attack, user, grounds, base, off, evidence)
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
    forge = _forge(attack, grounds, settings, trusting=Defence.ADMISSION in off)
    model = (ClosableMarkers if Defence.MARKERS in off else ObedientModel)(
        lead=attack.world.lead or _LEADS.get(attack.place, {}),
        program_only=attack.trusts == "program",
        at_once=attack.at_once or settings.max_rounds < _FEW_ROUNDS,
    )
    web = _web(attack, grounds, checked=Defence.NETWORK not in off)
    redactor = Redactor(grounds.secrets.variables.values())
    planted = await asyncio.to_thread(around, grounds)
    make = GuardMaker(redactor)
    careless = None
    if Defence.HOST_GIT in off:
        careless = CarelessHost(grounds.secrets.all["NETRC"], (forge.issue(1).title, base))
    program = _Staged(
        repository=NAME,
        settings=settings,
        dry_run=False,
        site=Site(forge, lambda: Source(str(grounds.repository), base), lambda: None),
        chosen=_chosen(model, settings),
        web=web if settings.web else None,
        wanted=Wanted(),
        home=Home(grounds.folder / "state"),
        redactor=redactor,
        guards=lambda rules: without(make(rules), off),
        sandbox=choose_sandbox(settings),
        clock=SystemClock(),
        relay=Relay(evidence.events.append),
        stop=Stop(),
        change=lambda parts: _changed(parts, off, evidence, careless),
        is_tightened=Defence.INSTRUCTIONS not in off,
    )
    evidence.result = await program.cycle()
    look_at_model(evidence, model)
    look_at_forge(evidence, forge)
    look_at_web(evidence, web)
    await asyncio.to_thread(look_at_ground, evidence, grounds, base, planted)
    for file in (grounds.folder / "state").rglob("*.jsonl"):
        evidence.left.append(Left("journal", file.read_text(encoding="utf-8")))


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
    changes = loosened(off, None if planted is None else grounds.fill(planted))
    settings = settings.model_copy(update=dict(changes))
    evidence.settings = settings
    evidence.loosened = _looser(user.settings, settings) if attack.place is Place.SETTINGS_FILE else []
    return settings


_LEVELS = ("read-only", "safe", "dangerous")
_OPENING = (
    "api_url",
    "github_url",
    "web",
    "sandbox",
    "allow_command",
    "allow_host",
    "allow_actor",
    "allow_path",
)


def _looser(before: Settings, after: Settings) -> list[str]:
    opened = [key for key in _OPENING if getattr(before, key) != getattr(after, key)]
    more = [key for key in ("max_rounds", "max_files") if getattr(after, key) > getattr(before, key)]
    if _LEVELS.index(after.permission) > _LEVELS.index(before.permission):
        more.append("permission")
    return [*opened, *more]


def _forge(attack: Attack, grounds: Grounds, settings: Settings, *, trusting: bool) -> MemoryForge:
    from orchestrator.redteam.planting import branches

    world = attack.world
    forge = (TrustingForge if trusting else MemoryForge)(
        NAME,
        str(grounds.repository),
        lambda branch: branches(grounds.repository).get(branch),
        DEFAULT_BRANCH,
        files_of(attack, grounds) if world.base is None else world.default_files,
        {login: Permission(held) for login, held in world.people.items()},
    )
    words = grounds.fill(attack.text)
    title = words if attack.place is Place.ISSUE_TITLE else grounds.fill(world.title)
    body = grounds.fill(world.body)
    if attack.place in {Place.ISSUE_BODY, Place.ACTOR}:
        body = f"{body}\n\n{words}"
    late = world.edited_by is not None
    number = forge.add_issue(
        grounds.fill(world.title) if late else title,
        grounds.fill(world.body) if late else body,
        author=world.author,
    )
    if world.labelled_by:
        forge.put_label(number, settings.label, by=world.labelled_by)
    if world.edited_by is not None:
        forge.edit_issue(number, by=world.edited_by, title=title, body=body)
    for comment in world.comments:
        forge.add_comment(
            number, grounds.fill(comment.body.replace("{{text}}", attack.text)), author=comment.author
        )
    return forge


def _web(attack: Attack, grounds: Grounds, *, checked: bool) -> FakeWeb:
    pages = dict(attack.world.pages)
    if attack.place in {Place.WEB_PAGE, Place.WEB_SEARCH}:
        pages.setdefault(PAGE, "{{text}}")
    filled = {url: grounds.fill(text.replace("{{text}}", attack.text)) for url, text in pages.items()}
    return FakeWeb(filled, attack.world.hosts, checked=checked)


def _chosen(model: ObedientModel, settings: Settings) -> ChosenModel:
    """The obedient model in the place of the user's, so that the profile is the one that they would get."""
    ref: ModelRef | None
    try:
        ref = parse_model(settings.model) if settings.model else None
    except ConfigurationError:
        ref = None
    return ChosenModel(model, lambda _usage: 0.0, ref)


def _changed(
    parts: CycleParts, off: Collection[Defence], evidence: Evidence, careless: CarelessHost | None
) -> CycleParts:
    def environment(tree: Path, submodules: list[str]) -> ExecutionEnvironment:
        inner = parts.environment(tree, submodules)
        plain = PlainFiles(inner) if Defence.PATHS in off else inner
        return _Watched(plain, tree, evidence, careless)

    manner = parts.manner
    if Defence.INSTRUCTIONS in off:
        manner = dataclasses.replace(manner, other_base=False)
    return dataclasses.replace(parts, environment=environment, manner=manner)


class _Watched(Wrapper):
    """Looks at the work tree before it is gone."""

    def __init__(
        self, inner: ExecutionEnvironment, tree: Path, evidence: Evidence, careless: CarelessHost | None
    ) -> None:
        super().__init__(inner)
        self._tree, self._evidence, self._careless = tree, evidence, careless

    async def initialize(self) -> None:
        """Make ready."""
        if self._careless:
            await asyncio.to_thread(self._careless.before, self._tree)
        await super().initialize()

    async def cleanup(self) -> None:
        """Look, then let go."""
        if self._careless:
            await asyncio.to_thread(self._careless.after, self._tree)
        self._evidence.in_clone = await asyncio.to_thread(files_below, self._tree)
        await super().cleanup()
