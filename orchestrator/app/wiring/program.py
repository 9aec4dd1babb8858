"""Builds the program that runs consecutive cycles, from the command line's options."""

from __future__ import annotations

import asyncio
import random
import shutil
import tomllib
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.config.settings import LOCAL_FILE, tightened
from orchestrator.app.options import all_options
from orchestrator.app.plugins import Point, added, lacks_of
from orchestrator.app.terminal import known_secrets
from orchestrator.app.wiring import NO_OBSERVERS, BuildContext, Observers
from orchestrator.app.wiring.cycle_parts import (
    RunParts,
    Safeguards,
    TaskRequest,
    first_event,
    make_parts,
)
from orchestrator.app.wiring.foreign_tools import ForeignSources, open_foreign_tools
from orchestrator.app.wiring.guards import (
    NAME_COMMANDS,
    GuardMaker,
    choose_sandbox,
    open_rules,
    refuse_tracing,
)
from orchestrator.app.wiring.memory import open_session_memory
from orchestrator.app.wiring.repository import (
    choose_site,
    commands_for,
    label_of,
    open_hidden_refs,
    repository_here,
)
from orchestrator.app.wiring.session_parts import cycle_profile_name, no_tools, open_added_tools
from orchestrator.bot.cycle.attempt import CycleStart
from orchestrator.bot.cycle.cycle import run_cycle
from orchestrator.bot.cycle.parts import Assignment, Outcome, Stop
from orchestrator.bot.cycle.repository_rules import RulesFile
from orchestrator.bot.cycle.tasks import TASK_KEY, issue_of
from orchestrator.bot.git.base import Identity
from orchestrator.bot.git.hostgit import end_git_when
from orchestrator.bot.git.local import create_repository
from orchestrator.bot.journal.folders import Home, create_run_folder, new_run_id
from orchestrator.bot.journal.index import find_task, keep_look, typed_for
from orchestrator.bot.journal.notes import answers
from orchestrator.bot.journal.reader import find_run, read_run
from orchestrator.bot.journal.records import EventBus
from orchestrator.bot.journal.retention import find_old_runs, remove_old_runs
from orchestrator.bot.worker.backlog import TaskSelection
from orchestrator.core.errors import ConfigurationError, JournalError, WorkspaceError
from orchestrator.core.events import Warned
from orchestrator.core.messages import FinishReason, Message, Usage
from orchestrator.core.repositories import GITHUB, OWNER_AND_NAME
from orchestrator.core.watchdog import time_limit
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.replay import ReplayModel

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.app.wiring.cycle_parts import MakeWorker
    from orchestrator.app.wiring.model import ChosenModel
    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit


_CYCLES_A_SCRATCH = 100
"""Cycles after which the folder for hidden refs is created anew, because it grows with each fetch, and old runs are
removed."""


@dataclass(slots=True)
class Program:
    """Runs the consecutive cycles of a run. `stop` is the person's request to end."""

    shared: RunParts
    bus: EventBus
    stop: Stop = field(init=False)
    _records: Records | None = None
    _cycles: int = 0
    _rules_file: RulesFile | None = None

    def __post_init__(self) -> None:
        self.stop = self.shared.context.stop
        self.bus.on_step = self.shared.site.forge.begin_step

    async def cycle(self, assignment: Assignment = Assignment()) -> CycleResult:  # noqa: B008  a frozen value
        """Run one cycle on its own clone, with its own journal.

        A cycle that only finds a task for another one (`Outcome.FOUND`) leaves no journal, and one that finds none
        leaves it in place of the last such one.
        """
        context = self.shared.context
        end_git_when(self.stop.now_unless_saving)
        run = assignment.run or new_run_id(context.clock.now(), random.SystemRandom())
        folder = create_run_folder(context.home, run)
        with time_limit(self._minutes), context.recording(self.bus, folder) as journal:
            result = await run_cycle(self._start(run, folder, assignment), self.shared.operator)
        if result.outcome is Outcome.FOUND:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        elif result.outcome is Outcome.NO_TASK and journal.only_looked:
            await asyncio.to_thread(keep_look, context.home, run)
        await self._tidy()
        if (error := self.bus.error) and result.outcome is Outcome.INTERRUPTED:
            result.outcome, result.error, result.cause = Outcome.FAILED, str(error), error
        return result

    @property
    def _minutes(self) -> float | None:
        """The time limit of a cycle. A person who works in place of the model takes the time that they want."""
        return self.shared.settings.max_minutes if self.shared.operator is None else None

    async def _tidy(self) -> None:
        """Remove data that grows with every cycle. Called when no claim is held."""
        if self._cycles % _CYCLES_A_SCRATCH == 0:
            await asyncio.to_thread(self._remove_old_runs)
        self._cycles += 1
        if self._records is not None and self._cycles % _CYCLES_A_SCRATCH == 0:
            try:
                await asyncio.to_thread(self._records.close)
            except WorkspaceError as error:
                self.bus.view(Warned(f"the folder of the hidden refs could not be removed: {error}"))

    def _remove_old_runs(self) -> None:
        context = self.shared.context
        try:
            found = find_old_runs(context.home, context.runs_to_keep, context.clock.now())
        except JournalError as error:
            self.bus.view(Warned(f"old runs are not removed: {error}"))
        else:
            remove_old_runs(context.home, found)

    def forget(self) -> None:
        """Allow the next cycle to try again what this process has tried before."""
        self.shared.memory.forget()

    @property
    def attempted(self) -> set[str]:
        """Keys of the tasks not to be tried again before `forget`. It may be changed between two cycles."""
        return self.shared.memory.attempted

    async def close(self) -> None:
        """Close connections and remove folders."""
        await self.shared.chosen.model.aclose()
        if self.shared.long_term is not None:
            await self.shared.long_term.aclose()
        await self.close_records()

    async def close_records(self) -> None:
        """Remove the folder of the hidden refs."""
        if self._records is not None:
            await asyncio.to_thread(self._records.close)

    def _open_records(self) -> Records:
        """Open the hidden refs of the remote once. A dry run only reads them."""
        if self._records is None:
            context = self.shared.context
            self._records = open_hidden_refs(self.shared.site, context.clock, self.stop)
        return self._records

    def _start(self, run: str, folder: Path, assignment: Assignment) -> CycleStart:
        """Return the first parts of the cycle `run`. Nothing is contacted."""
        forge = self.shared.site.forge
        if self._rules_file is None:
            self._rules_file = RulesFile(forge, LOCAL_FILE)
        return CycleStart(
            run,
            forge,
            self.bus,
            self.stop,
            first_event(self.shared, run),
            self._rules_file,
            partial(self._parts_under, run, folder, assignment.task),
            assignment,
            self._minutes,
        )

    def _parts_under(
        self, run: str, folder: Path, only: str, text: str | None
    ) -> tuple[CycleParts, Sequence[str]]:
        settings, notes = self.tightened(text)
        return self.parts(run, folder, settings, only), notes

    def tightened(self, text: str | None) -> tuple[Settings, list[str]]:
        """Return the settings tightened by the repository's own file, and notes about that file."""
        if text is None:
            return self.shared.settings, []
        return tightened(self.shared.settings, text, f"{LOCAL_FILE} of {self.shared.site.label}")

    def parts(self, run: str, folder: Path, settings: Settings, only: str) -> CycleParts:
        """Return the parts of the cycle `run` under these settings. `only` is the key of its only task."""
        shared = replace(self.shared, request=replace(self.shared.request, only=only))
        return make_parts(shared, self._open_records, run, folder, settings)


_REPLAY = "replay:"


@dataclass(frozen=True, slots=True)
class RunRequest:
    """The request of a person to `run`, apart from the settings."""

    repository: str | None = None
    issue: int | None = None
    text: str | None = None
    answer: str | None = None
    demo: bool = False
    dry_run: bool = False
    thread: int | None = None


def build_program(  # noqa: PLR0913  what a person gave, where, and who looks on
    request: RunRequest,
    flags: Mapping[str, Any],
    environ: Mapping[str, str],
    cwd: Path,
    view: Emit,
    *,
    stop: Stop | None = None,
    clock: Clock | None = None,
    observers: Observers = NO_OBSERVERS,
) -> Program:
    """Read the configuration and build what a run needs.

    Args:
        stop: the person's request to end, and the limit on waiting for other machines; None for a new one.
        observers: see the events of every run of this process.
    """
    redactor = known_secrets(environ)
    bus = EventBus(view, redactor)
    read = partial(
        BuildContext.of,
        environ=environ,
        cwd=cwd,
        emit=bus,
        stop=stop or Stop(),
        clock=clock,
        observers=observers,
        redactor=redactor,
    )
    context = read(flags)
    if request.demo:
        repository, chosen = make_demo(context)
        request = RunRequest(repository, dry_run=request.dry_run, demo=True)
        context = replace(context, loaded=as_demo(context.loaded))
    else:
        from orchestrator.app.wiring.model import choose_model

        request = _as_recorded(request, context)
        repository = request.repository or repository_here(context.loaded, cwd)
        request = replace(request, repository=repository)
        read = partial(read, named=partial(label_of, repository))
        context = read(flags)
        if asked := _typed_before(request, context):
            context = read({**asked, **flags})
        chosen = choose_model(context)
    # A replayed run and the demo ask no server.
    return assemble(request, context, bus, chosen, is_alone=request.demo)


def assemble(
    request: RunRequest, context: BuildContext, bus: EventBus, chosen: ChosenModel, *, is_alone: bool
) -> Program:
    """Build what a run needs, for a chosen model.

    Args:
        bus: receives the events of `context.emit`.
        is_alone: whether to leave out memory and what the plug-ins add, whatever is configured.
    """
    if not request.repository:
        raise ConfigurationError(
            "no repository is named: pass --repo owner/name or --repo PATH, or try --demo"
        )
    settings = context.settings
    bus.observers = context.observers.follow(chosen.api_url)
    is_served = chosen.foreign is None and not is_alone
    foreign = open_foreign_tools(context) if is_served else ForeignSources()
    guards = GuardMaker(context.redactor)
    guards(settings)  # report an invalid rule now
    lacks = lacks_of(cycle_profile_name(settings, chosen))
    tell_notices(context, (*foreign.notices, *lacks))
    refuse_tracing(settings, others=foreign.runs_unconfined)
    site = choose_site(request.repository, context, writes=not request.dry_run)
    shared = RunParts(
        context,
        site,
        chosen,
        Safeguards(context.redactor, guards, choose_sandbox(settings)),
        _request(request, site, context),
        added_tools=no_tools if is_alone else open_added_tools(context),
        long_term=None if is_alone else open_session_memory(context, site.label),
        foreign=foreign,
        worker=choose_worker(context, chosen) if chosen.ref else None,
    )
    return Program(shared, bus)


def choose_worker(context: BuildContext, chosen: ChosenModel) -> MakeWorker | None:
    """Return what works in place of the model's loop; None if the loop works."""
    found = (choose(context, chosen) for choose in added(Point.WORKER))
    return next((one for one in found if one is not None), None)


def tell_notices(context: BuildContext, more: Sequence[str] = ()) -> None:
    """Emit the configuration's notices for the person as warnings."""
    for notice in (*context.loaded.notices, *more):
        context.emit(Warned(notice))
    if found := open_rules(context.settings):
        context.emit(Warned(f"{found}: {NAME_COMMANDS}"))


def _request(request: RunRequest, site: Site, context: BuildContext) -> TaskRequest:
    wanted = select_task(request, context.home, site.label)
    commands = commands_for(site)
    return TaskRequest(wanted, request.answer, request.dry_run, commands, thread=request.thread)


def select_task(request: RunRequest, home: Home, label: str) -> TaskSelection:
    """Return the task that the person named. `--task` accepts a task's key as well."""
    key = (request.text or "").strip()
    match key.partition("-")[0] if TASK_KEY.fullmatch(key) else "":
        case "issue":
            return TaskSelection(issue=issue_of(key))
        case "item":
            return TaskSelection(item=key)
        case "text":
            known = find_task(home, label, key)
            if known is None:
                raise ConfigurationError(
                    f"no run on this machine worked on {key}: give the text of the task with --task"
                )
            return TaskSelection(text=known.body or known.title)
        case _:
            return TaskSelection(request.issue, request.text)


_NOT_AGAIN = frozenset({"every", "cron", "timezone", "max_cycles"})
"""The options that say when and how often a run works, which an answer to its question does not repeat."""


def _typed_before(request: RunRequest, context: BuildContext) -> dict[str, Any]:
    """Return the options that were typed for the run whose question this one answers."""
    key = f"issue-{request.issue}" if request.issue else (request.text or "").strip()
    if not request.repository or not TASK_KEY.fullmatch(key):
        return {}
    kept = {} if request.answer is not None else answers(context.home)
    if request.answer is None and all(task != key for task, _ in kept):
        return {}  # most runs answer nothing, and read no journal for this
    label = label_of(request.repository, context.settings)
    run, typed = typed_for(context.home, label, key)
    if request.answer is None and (key, run) not in kept:
        return {}
    return {name: value for name, value in typed.items() if name in all_options() and name not in _NOT_AGAIN}


def _as_recorded(request: RunRequest, context: BuildContext) -> RunRequest:
    """Complete the request for `replay:RUN` with the repository and the task of that run, if none is named."""
    model = context.settings.model or ""
    if not model.startswith(_REPLAY) or (request.repository and (request.issue or request.text)):
        return request
    facts = read_run(find_run(context.home, model.removeprefix(_REPLAY))).facts
    started, task = facts.start, facts.task
    repository = request.repository or (typed_repository(started.repository) if started else None)
    issue, text = request.issue, request.text
    if task and not issue and not text:
        issue, text = task.number, task.body or task.title if task.source == "text" else None
    return replace(request, repository=repository, issue=issue, text=text)


def typed_repository(label: str) -> str:
    """Convert a repository's name in a journal to a `--repo` value that never means a folder of that name."""
    return f"https://{GITHUB}/{label}" if OWNER_AND_NAME.fullmatch(label) else label


_DEMO_NAME = "demo"
_DEMO_AUTHOR = Identity("Ada", "ada@example.com")


def as_demo(loaded: Loaded) -> Loaded:
    """Replace the options that do not match the demo's prepared replies."""
    update = {
        "contract": "json-plan",
        "profile": None,
        "permission": "safe",
        "allow_command": (),
        "test_command": None,
        "require_tests": False,
    }
    return replace(loaded, settings=loaded.settings.model_copy(update=update))


def make_demo(context: BuildContext) -> tuple[str, ChosenModel]:
    """Create the demo's repository and its model.

    Returns:
        The repository's path, and a model that gives the prepared replies at no cost.
    """
    from orchestrator.app.wiring.model import ChosenModel

    data = tomllib.loads(Path(__file__).with_name("demo.toml").read_text(encoding="utf-8"))
    name = new_run_id(context.clock.now(), random.SystemRandom())
    folder = context.home.cache / _DEMO_NAME / f"{name}.git"
    create_repository(folder, data["files"], "Start the project", _DEMO_AUTHOR)
    replies = [
        Response(Message.assistant(reply["text"]), FinishReason.STOP, Usage(), _DEMO_NAME)
        for reply in data["replies"]
    ]
    return str(folder), ChosenModel(ReplayModel(_DEMO_NAME, replies), lambda _usage: 0.0)
