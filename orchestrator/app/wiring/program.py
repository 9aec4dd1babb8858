"""From the command line's choices to a program that runs one cycle after the other."""

from __future__ import annotations

import asyncio
import random
import re
import tomllib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.config import LOCAL_FILE, ApiKeys, load, secret_values, tightened
from orchestrator.app.wiring.context import BuildContext, EventBus, Recorder
from orchestrator.app.wiring.cycle_parts import first_event, make_parts
from orchestrator.app.wiring.forge import choose_site, commands_for
from orchestrator.app.wiring.guards import (
    NAME_COMMANDS,
    GuardMaker,
    choose_sandbox,
    open_rules,
    refuse_tracing,
)
from orchestrator.app.wiring.library import choose_web
from orchestrator.app.wiring.model import ChosenModel, choose_model
from orchestrator.app.wiring.tasks import open_hidden_refs
from orchestrator.bot.cycle.cycle import run_cycle
from orchestrator.bot.cycle.parts import CycleStart, Outcome, Stop
from orchestrator.bot.cycle.repository_rules import RulesFile
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.local import create_repository
from orchestrator.bot.journal.folders import Home, create_run_folder, new_run_id
from orchestrator.bot.journal.open_runs import hold
from orchestrator.bot.journal.reader import find_run, read_run
from orchestrator.bot.journal.tasks import tasks_taken
from orchestrator.bot.journal.writer import JournalWriter
from orchestrator.bot.worker.backlog import Wanted
from orchestrator.bot.worker.idle import Idle
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, WorkspaceError
from orchestrator.core.events import CycleStarted, TaskTaken, Warned
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.core.repositories import GITHUB, OWNER_AND_NAME, Commands
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.replay import ReplayModel
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from orchestrator.app.config import Loaded, Settings
    from orchestrator.app.wiring.forge import Site
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.parts import CycleParts, CycleResult, Guards
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.confinement import Sandbox
    from orchestrator.engine.web.base import WebAccess


_HOLD_SECONDS = 60.0
_CYCLES_A_SCRATCH = 100
"""The folder for hidden refs grows with each fetch, and is made anew after so many cycles."""


@dataclass(slots=True)
class Program:
    """Everything that the cycles of one run share. `cycle` runs the next one.

    Attributes:
        guards: makes the checks for settings.
        answer: a person's words on the question that the task waits with.
        commands: what a message tells a person to type.
        attempted: the keys of tasks that this process has tried; `idle` is what it knows of a backlog
            in which nothing has changed.
    """

    repository: str
    settings: Settings
    dry_run: bool
    site: Site
    chosen: ChosenModel
    web: WebAccess | None
    wanted: Wanted
    home: Home
    redactor: Redactor
    guards: Callable[[Settings], Guards]
    sandbox: Sandbox | None
    clock: Clock
    bus: EventBus
    stop: Stop
    environ: Mapping[str, str] = field(default_factory=dict)
    answer: str | None = None
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    attempted: set[str] = field(default_factory=set)
    idle: Idle = field(default_factory=Idle)
    _records: Records | None = None
    _cycles: int = 0
    _rules_file: RulesFile | None = None

    async def cycle(self) -> CycleResult:
        """Run one cycle with a journal of its own, on a clone of its own."""
        run = new_run_id(self.clock.now(), random.SystemRandom())
        folder = create_run_folder(self.home, run)
        # A new folder: whoever has its lock only looks, and is on a busy machine.
        with (
            hold(folder, seconds=_HOLD_SECONDS),
            JournalWriter(folder, self.redactor.redact, self.clock) as journal,
        ):
            recorder = Recorder(journal, self.bus.always, self.stop)
            self.bus.listen(recorder)
            result = await run_cycle(self.start(run, folder))
        await self._tidy()
        if recorder.error and result.outcome is Outcome.INTERRUPTED:
            result.outcome, result.error, result.cause = Outcome.FAILED, str(recorder.error), recorder.error
        return result

    async def _tidy(self) -> None:
        """Let go of what grows with every cycle, now that no claim is held."""
        self._cycles += 1
        if self._records is not None and self._cycles % _CYCLES_A_SCRATCH == 0:
            try:
                await asyncio.to_thread(self._records.close)
            except WorkspaceError as error:
                self.bus.always(Warned(f"the folder of the hidden refs could not be removed: {error}"))

    def forget(self) -> None:
        """A new time has come: what this process tried before may be tried again."""
        self.attempted.clear()
        self.idle = Idle(told=self.idle.told)

    async def close(self) -> None:
        """Let go of connections and folders."""
        await self.chosen.model.aclose()
        if self._records is not None:
            await asyncio.to_thread(self._records.close)

    def hidden_refs(self) -> Records | None:
        """The hidden refs of the remote, opened once; None in a dry run, which writes nothing.

        Raises:
            ForgeError: the address of the repository could not be asked.
        """
        if self._records is None and not self.dry_run:
            self._records = open_hidden_refs(self.site, self.clock, self.stop)
        return self._records

    def start(self, run: str, folder: Path) -> CycleStart:
        """What the cycle `run` begins with. Nothing is contacted."""
        if self._rules_file is None:
            self._rules_file = RulesFile(self.site.forge, LOCAL_FILE)
        return CycleStart(
            run,
            self.site.forge,
            self.bus,
            self.stop,
            first_event(self, run),
            self._rules_file,
            partial(self._parts_under, run, folder),
        )

    def _parts_under(self, run: str, folder: Path, text: str | None) -> tuple[CycleParts, Sequence[str]]:
        settings, notes = self.tightened(text)
        return self.parts(run, folder, settings), notes

    def tightened(self, text: str | None) -> tuple[Settings, list[str]]:
        """The settings, as strict as the text of the repository's own file says, and notes on it."""
        if text is None:
            return self.settings, []
        return tightened(self.settings, text, f"{LOCAL_FILE} of {self.repository}")

    def parts(self, run: str, folder: Path, settings: Settings) -> CycleParts:
        """What the cycle `run` works with, under these settings."""
        return make_parts(self, run, folder, settings)


_REPLAY = "replay:"
_KEY = re.compile(r"issue-[1-9][0-9]{0,9}|(?:item|text)-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Errand:
    """What a person asks of `run`, beside the settings."""

    repository: str | None = None
    issue: int | None = None
    text: str | None = None
    answer: str | None = None
    demo: bool = False
    dry_run: bool = False


def build_program(  # noqa: PLR0913  what a person gave, where, and who looks on
    errand: Errand,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    view: Emit,
    *,
    stop: Stop | None = None,
) -> Program:
    """Read the configuration and build everything that a run needs.

    Args:
        errand: what a person asks for.
        flags: the settings that were given on the command line.
        environ: the variables of the environment.
        cwd: the folder with the configuration file.
        view: is told of everything that happens.
        stop: how a person asks for the end, and how long is waited for others; None is a new one that waits.

    Raises:
        ConfigurationError: something that the person asked for cannot be done as asked.
        JournalError: the run to be replayed is missing or damaged.
        WorkspaceError: the folder named is no git repository.
    """
    home, clock, bus, stop = Home.of(environ), SystemClock(), EventBus(view), stop or Stop()
    loaded = load(flags, environ, cwd)
    in_workflow = environ.get("GITHUB_ACTIONS") == "true"
    context = BuildContext(loaded, ApiKeys.of(environ), home, clock, bus, stop, in_workflow)
    chosen: ChosenModel
    if errand.demo:
        repository, chosen = make_demo(home, clock)
        errand = Errand(repository, dry_run=errand.dry_run, demo=True)
    else:
        errand = _as_recorded(errand, loaded, home)
        chosen = choose_model(context)
    if not errand.repository:
        raise ConfigurationError(
            "no repository is named: pass --repo owner/name or --repo PATH, or try --demo"
        )
    settings = as_demo(loaded.settings) if errand.demo else loaded.settings
    redactor = Redactor(secret_values(environ))
    guards = GuardMaker(redactor)
    guards(settings)  # a rule that makes no sense is said now
    _tell(loaded, settings, bus)
    refuse_tracing(settings)
    site = choose_site(errand.repository, context, writes=not errand.dry_run)
    return Program(
        repository=site.label,
        settings=settings,
        dry_run=errand.dry_run,
        site=site,
        chosen=chosen,
        web=None if errand.demo else choose_web(context),
        wanted=_wanted(errand, home, site.label),
        home=home,
        redactor=redactor,
        guards=guards,
        sandbox=choose_sandbox(settings),
        clock=clock,
        bus=bus,
        stop=stop,
        environ=environ,
        answer=errand.answer,
        commands=commands_for(site, loaded),
    )


def _tell(loaded: Loaded, settings: Settings, emit: Emit) -> None:
    """Tell what a person should know of the configuration."""
    for notice in loaded.notices:
        emit(Warned(notice))
    if found := open_rules(settings):
        emit(Warned(f"{found}: {NAME_COMMANDS}"))


def _wanted(errand: Errand, home: Home, label: str) -> Wanted:
    """The task that the person named; `--task` takes its key as well, as messages name it.

    Raises:
        ConfigurationError: this machine does not know the text with that key.
    """
    key = (errand.text or "").strip()
    kind, _, rest = key.partition("-") if _KEY.fullmatch(key) else ("", "", "")
    match kind:
        case "issue":
            return Wanted(issue=int(rest))
        case "item":
            return Wanted(item=key)
        case "text":
            known = tasks_taken(home, label).get(key)
            if known is None:
                raise ConfigurationError(
                    f"no run on this machine worked on {key}: give its words with --task"
                )
            return Wanted(text=known.body or known.title)
        case _:
            return Wanted(errand.issue, errand.text)


def _as_recorded(errand: Errand, loaded: Loaded, home: Home) -> Errand:
    """For `replay:RUN`, take from the run what the person did not name: repository and task."""
    model = loaded.settings.model or ""
    if not model.startswith(_REPLAY) or (errand.repository and (errand.issue or errand.text)):
        return errand
    events = read_run(find_run(home, model.removeprefix(_REPLAY))).events
    started = next((event for event in events if isinstance(event, CycleStarted)), None)
    task = next((event for event in events if isinstance(event, TaskTaken)), None)
    repository = errand.repository or (_as_typed(started.repository) if started else None)
    issue, text = errand.issue, errand.text
    if task and not issue and not text:
        issue, text = task.number, task.body or task.title if task.source == "text" else None
    return replace(errand, repository=repository, issue=issue, text=text)


def _as_typed(label: str) -> str:
    """A repository's name in a journal as a `--repo` that means it everywhere, also beside a folder of that name."""
    return f"https://{GITHUB}/{label}" if OWNER_AND_NAME.fullmatch(label) else label


_DEMO_NAME = "demo"
_DEMO_AUTHOR = Identity("Ada", "ada@example.com")


def as_demo(settings: Settings) -> Settings:
    """The settings with the contract and the profile for which the replies were prepared."""
    return settings.model_copy(
        update={
            "contract": "json-plan",
            "profile": None,
            "permission": "safe",
            "allow_command": (),
            "test_command": None,
            "require_tests": False,
        }
    )


def make_demo(home: Home, clock: Clock) -> tuple[str, ChosenModel]:
    """Create the demo's repository and its model.

    Returns:
        The repository's path, and a model that gives the prepared replies at no cost.

    Raises:
        WorkspaceError: git is missing or failed.
    """
    data = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
    folder = home.cache / _DEMO_NAME / f"{new_run_id(clock.now(), random.SystemRandom())}.git"
    create_repository(folder, data["files"], "Start the project", _DEMO_AUTHOR)
    replies = [
        Response(Message.assistant(reply["text"]), FinishReason.STOP, Usage(), _DEMO_NAME)
        for reply in data["replies"]
    ]
    return str(folder), ChosenModel(ReplayModel(_DEMO_NAME, replies), lambda _usage: 0.0)
