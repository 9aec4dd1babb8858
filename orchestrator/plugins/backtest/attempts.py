"""Builds the objects of `backtest`: arms from settings, repositories from past changes, a cycle per try."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any

from orchestrator.app.config.settings import LOCAL_FILE, tightened
from orchestrator.app.options import AUTO, all_options
from orchestrator.app.terminal import known_secrets
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.cycle_parts import smallest_request
from orchestrator.app.wiring.guards import (
    TestPlace,
    choose_sandbox,
    proposals_of,
    run_options,
    runs_commands,
)
from orchestrator.app.wiring.model import choose_model
from orchestrator.app.wiring.program import Program, RunRequest, assemble, choose_worker
from orchestrator.app.wiring.repository import (
    OnDisk,
    OnServer,
    choose_site,
    disk_place,
    label_of,
    parse_place,
)
from orchestrator.app.wiring.session_parts import cycle_contract_name, cycle_profile_name
from orchestrator.bot.cycle.parts import CycleResult, Outcome
from orchestrator.bot.cycle.tasks import checklist
from orchestrator.bot.forge.base import PastForge
from orchestrator.bot.git.folders import address_key, remove_folder
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.local import (
    LocalRepository,
    RepositoryHistory,
    create_store,
    fetch_branch,
    fetch_commits,
)
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.git.remote import parse_remote
from orchestrator.bot.journal.folders import HOME_VARIABLE, Home
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import run_folders
from orchestrator.bot.journal.records import EventBus
from orchestrator.bot.verification.trees import TestFiles
from orchestrator.bot.worker.backlog import TaskSelection
from orchestrator.bot.worker.candidates import BACKLOG_FILES
from orchestrator.core.errors import (
    BadReplyError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    GitMissingError,
    PullwrightError,
    ToolError,
    WorkspaceError,
)
from orchestrator.core.event_loop import in_thread
from orchestrator.core.messages import Spent, Usage
from orchestrator.core.version import __version__
from orchestrator.plugins.backtest.cases import CaseSearch, Judged, Judgement, TestsOfChange, digest_of, judge
from orchestrator.plugins.backtest.past_changes import (
    MOST_LOOKED_AT,
    copy_proposal,
    create_task_repository,
    from_commits,
    from_pull_requests,
    patch_between,
)
from orchestrator.plugins.backtest.summary import OpenBacklog
from orchestrator.plugins.backtest.trials import Arm, Attempted, TryResult

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring.repository import Site
    from orchestrator.bot.coordination.budget import Caps
    from orchestrator.bot.cycle.parts import Stop
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.verification.base import RunOptions
    from orchestrator.bot.verification.runs import HostRuns
    from orchestrator.core.events import Emit
    from orchestrator.plugins.backtest.cases import FoundCases, ReadyCase
    from orchestrator.plugins.backtest.past_changes import Case, PastChange, UnfitChange
    from orchestrator.plugins.backtest.trials import Try

PATCHES = "patches"
"""The folder with the patches of the tries."""
_KEY_CHARS = 16
_MOST_TEXT_BYTES = 1_000_000
_OFF_IN_A_TRY = {
    "allow_host": (),
    "memory": False,
    "repository_memory": False,
    "base": None,
    "mirror": False,
    "every": None,
    "cron": None,
    "max_cycles": None,
    "ai_policy": "ignore",
    **{
        f"max_{what}_per_{scope}": None
        for what in ("usd", "tokens", "minutes", "rounds")
        for scope in ("day", "repo")
    },
}
"""Options that are off in a try: all that access something outside of it, or limit more than one cycle.

The project's policy on contributions from machines is ignored, because nothing is proposed to anybody.
"""
_MODEL_ERRORS = (BadReplyError, ContentFilterError, ContextLengthError)
"""Errors that count as the model's answer to the task. Other errors say nothing about the model."""


NO_AGENT = "none"
"""Stands for the model's own loop among the agents that are compared."""
_BARE = "bare:"
"""Stands before an agent that works without what this program adds, its test runs among it."""
_WITHOUT_TESTS = {"test_command": None, "setup_command": None, "test_report": None, "require_tests": False}


def _in_a_try(settings: Settings) -> Settings:
    """Return the settings of a try. Options of plug-ins that are not there are left out."""
    there = all_options()
    return settings.model_copy(update={key: off for key, off in _OFF_IN_A_TRY.items() if key in there})


@dataclass(frozen=True, slots=True)
class BacktestRequest:
    """The request of a person to `backtest`, apart from the settings.

    Attributes:
        models, contracts, agents: values to compare; empty for those of the settings.
        is_capped: whether `--max-usd-total` is set, which needs the price of each model.
    """

    repository: str
    from_git: bool
    models: tuple[str, ...] = ()
    contracts: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    is_capped: bool = False


@dataclass(frozen=True, slots=True)
class Contestant:
    """An arm and its settings."""

    arm: Arm
    flags: Mapping[str, Any]
    settings: Settings
    least_usd: float


class Backtest:
    """The objects and folders of one `backtest`.

    A `ConfigurationError` means that the settings or the request cannot be used, or that the repository has no usable
    history; a `WorkspaceError` that git failed.

    Args:
        flags: the settings that were typed, without model, contract and agent.
    """

    def __init__(
        self,
        request: BacktestRequest,
        flags: Mapping[str, Any],
        environ: Mapping[str, str],
        cwd: Path,
        stop: Stop,
    ) -> None:
        if not request.from_git and disk_place(request.repository) is not None:
            raise ConfigurationError(
                "a folder has no pull requests: add --from-git for its commits, or name owner/name"
            )
        self.request, self._flags, self._environ, self._cwd, self.stop = request, flags, environ, cwd, stop
        self._named = partial(label_of, request.repository)
        self.context = BuildContext.of(flags, environ, cwd, stop=stop, named=self._named)
        settings = self.context.settings
        _refuse(settings)
        self.place = parse_place(request.repository, settings)
        self.folder = self.context.home.root / "backtests" / address_key(self.place.label)[:_KEY_CHARS]
        alone = _in_a_try(settings)
        self._sandbox = choose_sandbox(alone)
        self._setup_sandbox = choose_sandbox(alone.model_copy(update={"allow_host": settings.allow_host}))
        self._tests = TestPlace(self.context, self.folder / "tests", self._sandbox, self._setup_sandbox)
        self.contestants = self._contestants()

    @property
    def is_held(self) -> bool:
        """Whether commands run in a sandbox. Without one, tests of a try could read the history on this disk."""
        return self._sandbox is not None

    @property
    def arms(self) -> list[Arm]:
        """The arms to compare."""
        return [one.arm for one in self.contestants]

    @property
    def label(self) -> str:
        """The repository's name in journals and messages."""
        return self.place.label

    def backlog(self) -> OpenBacklog:
        """Return the number of open tasks in the backlog, and the rate of new issues."""
        forge, label = self._site.forge, self.context.settings.label
        listed = ((name, forge.read_file(name)) for name in BACKLOG_FILES)
        items = sum(len(list(checklist(name, text))) for name, text in listed if text)
        if isinstance(self.place, OnDisk):
            return OpenBacklog(items)
        rate = forge.issue_rate() if isinstance(forge, PastForge) else None
        return OpenBacklog(items + len(forge.open_issues(label)), rate)

    async def cases(
        self,
        wanted: int,
        jobs: int,
        watch: Callable[[PastChange, ReadyCase | UnfitChange | None], None],
    ) -> FoundCases:
        """Find cases among the past changes."""
        search = CaseSearch(self.history, self.folder, self._tests_of, watch)
        return await search.find(await in_thread(self._changes), wanted, jobs, self.stop)

    @cached_property
    def history(self) -> RepositoryHistory:
        """The repository's commits: its own on this disk, or those fetched from its server."""
        if isinstance(self.place, OnDisk):
            try:
                return LocalRepository(self.place.path).history()
            except GitMissingError:
                raise
            except WorkspaceError as error:
                raise ConfigurationError(str(error)) from None
        return RepositoryHistory(create_store(self.folder / "history.git"))

    def _changes(self) -> Iterator[PastChange | UnfitChange]:
        settings = self.context.settings
        if isinstance(self.place, OnServer) and not self.request.from_git:
            return from_pull_requests(
                self._past_forge(), self._fetch, with_comments=settings.comments != "none"
            )
        if isinstance(self.place, OnServer):
            start = self._fetch_branch()
        else:
            start = self.history.resolve(settings.base or "HEAD")
            if self.history.is_shallow():
                raise ConfigurationError(
                    f"{self.place.path} is a shallow clone without its history: get it with git fetch --unshallow"
                )
        files = TestFiles(settings.test_paths, (settings.test_command or "", settings.setup_command or ""))
        return from_commits(self.history, start, files)

    @cached_property
    def _site(self) -> Site:
        return choose_site(self.request.repository, self.context, writes=False)

    def _past_forge(self) -> PastForge:
        forge = self._site.forge
        if isinstance(forge, PastForge):
            return forge
        raise ConfigurationError(
            f"the forge of {self.place.label} does not tell its past: add --from-git for its commits"
        )

    def _remote(self) -> tuple[Remote, str]:
        source = self._site.source()
        remote = parse_remote(source.url, self._site.credential)
        return replace(remote, cancelled=self.stop.now), source.branch

    def _fetch(self, commit: str, depth: int) -> RepositoryHistory:
        fetch_commits(self.history.git, self._remote()[0], {commit: depth})
        return self.history

    def _fetch_branch(self) -> str:
        """Fetch the newest commits of the branch, and return the id of the last one."""
        remote, branch = self._remote()
        return fetch_branch(self.history.git, remote, branch, MOST_LOOKED_AT)

    def _tests_of(self, change: PastChange) -> TestsOfChange | str:
        """Return how to run the tests of the code before a change, or why that is not known."""
        trees = Trees(self.history.git)
        options = self._options(trees, trees.tree_of(change.base))
        if options is None:
            return "nothing in its files says how its tests are run"
        files = TestFiles(options.test_paths, (options.command, options.setup))
        return TestsOfChange(options, files, partial(self._open_runs, options))

    def _options(self, trees: Trees, tree: str) -> RunOptions | None:
        settings = self.context.settings
        if settings.test_command != AUTO:
            return run_options(settings, None, self._sandbox)
        text = trees.text(tree, LOCAL_FILE, most_bytes=_MOST_TEXT_BYTES)
        if text is not None:
            settings, _ = tightened(settings, text, LOCAL_FILE)
        found = next(iter(proposals_of(trees, tree)), None) if settings.test_command == AUTO else None
        return run_options(settings, found, self._sandbox)

    @asynccontextmanager
    async def _open_runs(self, options: RunOptions, trees: Trees, base: str) -> AsyncIterator[HostRuns]:
        made = self._tests.runs(trees, base, options)
        try:
            yield made
        finally:
            await made.close()

    def _contestants(self) -> list[Contestant]:
        request = self.request
        models: Sequence[str | None] = request.models or (None,)
        contracts: Sequence[str | None] = request.contracts or (None,)
        agents: Sequence[str | None] = request.agents or (None,)
        made = [self._contestant(*one) for one in product(models, contracts, agents)]
        names = [one.arm.name for one in made]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigurationError(
                f"{twice} would be compared with itself: name each model, contract and agent once"
            )
        return made

    def _contestant(self, model: str | None, contract: str | None, agent: str | None) -> Contestant:
        named = {"model": model, "contract": contract, "agent": None if agent == NO_AGENT else agent}
        flags = {**self._flags, **{key: value for key, value in named.items() if value is not None}}
        context = BuildContext.of(flags, self._environ, self._cwd, stop=self.stop, named=self._named)
        settings = _in_a_try(context.settings)
        if (agent or "").startswith(_BARE):
            settings = settings.model_copy(update=_WITHOUT_TESTS)
        chosen = choose_model(replace(context, loaded=replace(context.loaded, settings=settings)))
        if self.request.is_capped and chosen.price(Usage(input_tokens=1000, output_tokens=1000)) is None:
            raise ConfigurationError(
                f"--max-usd-total cannot be kept: the price of {chosen.model.name} is unknown; set it with "
                "--price IN/OUT, such as --price 3/15"
            )
        program = worker(settings) if (worker := choose_worker(context, chosen)) else None
        how = program.name if program else cycle_contract_name(settings, chosen)
        profile = cycle_profile_name(settings, chosen)
        # The server's address is not part of the arm, so that a model may move to another server.
        facts = settings.model_dump(
            mode="json", exclude={"api_url", "github_url", "label", "request_timeout_seconds"}
        )
        digest = digest_of(__version__, chosen.model.name, how, profile, facts)
        name = f"{chosen.model.name}, {how}"
        return Contestant(
            Arm(name, digest, chosen.model.name, how),
            flags,
            settings,
            smallest_request(settings, chosen).usd or 0.0,
        )

    def tests_of(self, case: Case) -> TestsOfChange:
        """Return how to run the tests of a case."""
        found = self._tests_of(case.change)
        if isinstance(found, str):
            raise ConfigurationError(found)
        return found

    def patch_of(self, result: TryResult) -> str:
        """Return a try's change as a diff; empty if there is none, or if the file is gone."""
        path = self.folder / PATCHES / result.patch
        if not result.patch or not path.is_file():
            return ""
        return path.read_text(encoding="utf-8", errors="replace")

    @staticmethod
    def real_patch(ready: ReadyCase) -> str:
        """Return the change that people made, without the tests that judge a try."""
        return patch_between(ready.case.store, ready.case.tests, ready.case.head)

    def program(self, wanted: Try, folder: Path, granted: Caps, view: Emit) -> Program:
        """Build the program of one try, as `run` does, in its own state folder."""
        contestant = next(one for one in self.contestants if one.arm == wanted.arm)
        environ = {**self._environ, HOME_VARIABLE: str(folder / "home")}
        redactor = known_secrets(environ)
        bus = EventBus(view, redactor)
        context = BuildContext.of(
            contestant.flags, environ, self._cwd, emit=bus, stop=self.stop, redactor=redactor
        )
        settings = within(contestant.settings, granted)
        loaded = replace(context.loaded, settings=settings, tables=frozenset(), notices=())
        context = replace(context, loaded=loaded)
        request = RunRequest(str(folder / "repository.git"))
        program = assemble(request, context, bus, choose_model(context), is_alone=True)
        shared = program.shared
        program.shared = replace(
            shared,
            safeguards=replace(shared.safeguards, setup_sandbox=self._setup_sandbox),
            # Not by `RunRequest.text`, which may also be the key of a task.
            request=replace(shared.request, wanted=TaskSelection(text=wanted.case.case.text.whole)),
        )
        return program


def _refuse(settings: Settings) -> None:
    """Refuse settings without tests to judge by, or under which the model could read the real change."""
    if settings.test_command is None:
        raise ConfigurationError(
            "backtest judges by the repository's tests: name their command with --test-command, or "
            "--test-command auto; pullwright doctor --repo REPO proposes one"
        )
    if settings.sandbox == "off" and runs_commands(settings):
        raise ConfigurationError(
            "with --sandbox off a command of the model could read the real change on this disk: leave out "
            "--sandbox off, or what allows commands"
        )


def within(settings: Settings, granted: Caps) -> Settings:
    """Return the settings with limits of a try that do not exceed what was granted."""
    caps = {
        "max_usd": _least(settings.max_usd, granted.usd),
        "max_minutes": _least(settings.max_minutes, granted.minutes),
    }
    return settings.model_copy(update=caps)


def _least(one: float | None, other: float | None) -> float | None:
    return min((value for value in (one, other) if value is not None), default=None)


class CycleAttempts:
    """Makes tries, each a cycle on its own repository: see `orchestrator.plugins.backtest.trials.TryMaker`.

    Args:
        view: returns the `Emit` that shows a try.
    """

    def __init__(self, backtest: Backtest, view: Callable[[Try], Emit]) -> None:
        self._backtest, self._view = backtest, view

    def _folder(self, wanted: Try) -> Path:
        return self._backtest.folder / "tries" / wanted.key

    def spent(self, wanted: Try) -> Spent:
        """Return the cost of an unfinished try so far, over all processes that worked on it."""
        home = Home(self._folder(wanted) / "home")
        return sum((summarise(folder).spent for folder in run_folders(home)), Spent())

    def least_usd(self, arm: Arm) -> float:
        """Return the maximum cost of a try's first request."""
        return next(one.least_usd for one in self._backtest.contestants if one.arm == arm)

    async def make(self, wanted: Try, granted: Caps) -> Attempted:
        """Start or continue a try, within the granted limits."""
        folder = self._folder(wanted)
        await asyncio.to_thread(_prepare, wanted.case.case, folder)
        program = self._backtest.program(wanted, folder, granted, self._view(wanted))
        try:
            result = await _proposed_before(program) or await program.cycle()
        finally:
            await program.close()
        own = next(one.settings for one in self._backtest.contestants if one.arm == wanted.arm)
        if why := _without_answer(result, is_capped=within(own, granted) != own):
            is_cut = result.outcome in {Outcome.LIMIT, Outcome.INTERRUPTED}
            return Attempted(None, self.spent(wanted), why, is_cut=is_cut)
        try:
            judged, patch = await self._judged(wanted, result, folder)
        except ToolError as error:
            return Attempted(None, self.spent(wanted), f"the tests cannot be run: {error}")
        done = self._result(wanted, result, judged, patch)
        await asyncio.to_thread(_tidy, folder)
        return Attempted(done, done.spent)

    async def _judged(self, wanted: Try, result: CycleResult, folder: Path) -> tuple[Judgement, str]:
        """Return the judgement of the hidden tests on the proposed change, and the file with its patch."""
        if result.commit is None:
            said = result.reason or result.question or result.error or ""
            return Judgement(Judged.NOTHING, detail=" ".join(said.split())[:200]), ""
        store, ready = folder / "store.git", wanted.case
        tree = await asyncio.to_thread(_copy_in, ready.case, folder / "repository.git", result.commit, store)
        patch = await asyncio.to_thread(patch_between, store, ready.case.base, tree)
        name = f"{wanted.key}.diff"
        await asyncio.to_thread(_write, self._backtest.folder / PATCHES / name, patch)
        case = replace(ready.case, store=store)
        tests = await in_thread(self._backtest.tests_of, case)
        return await judge(case, ready.hidden, tree, tests.open_runs), name

    def _result(self, wanted: Try, result: CycleResult, judged: Judgement, patch: str) -> TryResult:
        spent = self.spent(wanted)
        return TryResult(
            key=wanted.key,
            case=wanted.case.case.id,
            arm=wanted.arm.name,
            number=wanted.number,
            outcome=str(result.outcome),
            judged=str(judged.judged),
            detail=judged.detail,
            patch=patch,
            run=result.run or "",
            usd=spent.usd,
            tokens=spent.tokens,
            minutes=round(spent.minutes, 3),
            rounds=spent.rounds,
        )


async def _proposed_before(program: Program) -> CycleResult | None:
    """Return the result that a killed process proposed; None if it proposed nothing."""
    pulls = await asyncio.to_thread(program.shared.site.forge.our_pull_requests, "")
    if not pulls:
        return None
    return CycleResult(None, Outcome.PROPOSED, branch=pulls[0].branch, commit=pulls[0].commit)


def _without_answer(result: CycleResult, *, is_capped: bool) -> str:
    """Return why a cycle's end says nothing about the arm; empty if it does."""
    match result.outcome:
        case Outcome.INTERRUPTED:
            return "interrupted"
        case Outcome.LIMIT if is_capped:
            return f"cut short by a cap of all tries: {result.reason}"
        case Outcome.PAUSED | Outcome.FAILED if isinstance(result.cause, PullwrightError) and not isinstance(
            result.cause, _MODEL_ERRORS
        ):
            return result.error or str(result.outcome)
    return ""


def _prepare(case: Case, folder: Path) -> None:
    """Create the repository of a try. If it exists, the try continues with it."""
    repository, new = folder / "repository.git", folder / "new.git"
    if repository.is_dir():
        return
    remove_folder(new)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    create_task_repository(case, new)
    new.rename(repository)


def _copy_in(case: Case, repository: Path, commit: str, store: Path) -> str:
    """Create a store with the judging tests and the proposal of a try, and return the proposal's id."""
    remove_folder(store)
    source = RepositoryHistory(HostGit(case.store, case.store))
    made = create_store(store, source.object_format())
    for tree in (case.base, case.tests):
        source.copy_tree(tree, made)
    return copy_proposal(repository, commit, store)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", errors="surrogateescape")


def _tidy(folder: Path) -> None:
    """Remove the large files of a try. Its journal is kept."""
    for path in (folder / "repository.git", folder / "store.git", folder / "home" / "cache"):
        remove_folder(path)
