"""What one cycle works with: its objects, how it starts, and the values of its attempt on a task."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from orchestrator.bot.cycle.parts import Assignment
from orchestrator.core.errors import BaseConflictError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.coordination.budget import Caps, CycleBudget
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.choice import TaskSource
    from orchestrator.bot.cycle.claimer import Claimer
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.parts import (
        CompleteProfile,
        CycleOptions,
        CycleResult,
        Download,
        Guards,
        RecordedTests,
        Sanitizer,
        Stop,
    )
    from orchestrator.bot.cycle.repository_rules import RulesFile
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import Forge, PullRequest
    from orchestrator.bot.git.base import MovedBase
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.bot.journal.reader import DeadRuns
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.clock import Clock
    from orchestrator.core.cycle_events import CycleStarted
    from orchestrator.core.events import Emit, ToolCallEnded
    from orchestrator.core.messages import Spent, Usage
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.budget import Limits
    from orchestrator.engine.session.loop import Worker
    from orchestrator.engine.tools.base import ForeignTools, Ledger, Tool
    from orchestrator.engine.tools.control import MayFinish, Propose, RunTests


MakeForeignTools: TypeAlias = Callable[["Path", Callable[[str, str], str], "Emit"], "ForeignTools"]


@dataclass(frozen=True, slots=True)
class CycleParts:
    """The objects that one cycle works with.

    Attributes:
        run: the run's id; `folder` is its folder, with the journal and saved work.
        repository: its name in messages and journals.
        open_clone: clones into a new folder below the given one.
        environment: creates the environment of tools, for a working tree and its submodules.
        profile: creates the profile, given the callbacks of `create_pull_request`, `finish` and `run_tests`
            (the last is None if no tests are run), and the tools of other programs.
        price: the cost of a reply in USD, or None if the model's price is unknown.
        records: the hidden refs of the remote; None in a dry run.
        kept: unfinished work of the repository that only this machine has; None in a dry run.
        claimer: claims tasks; None in a dry run.
        recover: saves what killed runs of this machine left, and returns the runs whose claims are free;
            raises `WorkspaceError`. None in a dry run.
        budget: what may be spent; no cycle starts with less than `least`, the cost of its smallest request.
        verifier: runs the tests of a clone; None without a test command.
        recorded_tests: the test results of the run that is replayed, in which nothing is run.
        memory: learned facts about the repository; None without memory.
        foreign_tools: creates the tools of other programs, given a working tree, a text sanitizer and an event
            listener.
        download: downloads files attached to a task; None downloads nothing.
        completions: complete the profile of the session, one after the other.
        operator: the work of a person in place of the model's loop; None if nobody does it.
        worker: works in place of the model's loop, in the same session; None lets the loop work.
        statements: the file with the model's answers about statements of repositories; None keeps none.
    """

    run: str
    folder: Path
    repository: str
    forge: Forge
    model: Model
    contract: Contract
    open_clone: Callable[[Path], Clone]
    environment: Callable[[Path, list[str]], ExecutionEnvironment]
    profile: Callable[[Propose, MayFinish, RunTests | None, tuple[Tool, ...]], Profile]
    guards: Guards
    profile_name: str
    limits: Limits
    price: Callable[[Usage], float | None]
    options: CycleOptions
    records: Records | None
    kept: KeptWork | None
    clock: Clock
    emit: Emit
    stop: Stop
    tasks: TaskSource
    claimer: Claimer | None
    recover: Callable[[], DeadRuns] | None
    budget: CycleBudget
    least: Caps
    verifier: Callable[[Clone], Verifier | None] | None = None
    recorded_tests: RecordedTests | None = None
    memory: CycleMemory | None = None
    foreign_tools: MakeForeignTools | None = None
    download: Download | None = None
    completions: tuple[CompleteProfile, ...] = ()
    operator: PersonsWork | None = None
    worker: Worker | None = None
    statements: Path | None = None


class PersonsWork(Protocol):
    """The work of a person who works on a task in place of the model's loop. `Operator` does it."""

    @property
    def prepared_work(self) -> Earlier | None:
        """Work that is proposed unchanged, without a model. A copy of it stays where it was made.

        None continues an earlier unfinished cycle.
        """

    @property
    def spent(self) -> Spent:
        """The cost of the work in `prepared_work`."""


class CycleMemory(Protocol):
    """The memory of a repository, as used by one cycle."""

    async def learn(self) -> None:
        """Read the known facts, and store what pull requests have taught since. It does not raise."""

    async def recall(
        self, message: str, files: Collection[str], blobs: Callable[[Sequence[str]], Mapping[str, str]]
    ) -> str:
        """Return the memories that are relevant to a message, as Markdown; empty if there are none.

        Args:
            files: the files that the task is about.
            blobs: returns the blobs of existing files on the base.

        Raises:
            MemoryStoreError: the memory file of this machine cannot be used.
            ModelError: a new fact could not be embedded.
        """

    def notes_in(self, call: ToolCallEnded) -> Sequence[str]:
        """Return what a successful call has newly stored, for the text of the pull request."""

    async def note(self, notes: Sequence[str], pull: PullRequest, cited: Mapping[str, str]) -> None:
        """Store notes of a model that its pull request shows. They count once it is merged. It does not raise.

        Args:
            cited: files that the notes may be about, each with its blob in the pull request.
        """


@dataclass(frozen=True, slots=True)
class CycleStart:
    """What is needed to start a cycle, before the repository is read.

    Attributes:
        parts: opens the hidden refs and builds the cycle's parts, given the text of the repository's rules
            file. It returns them with notes on that file.
        minutes: the user's time limit; None without one. The session ends at its own limit. This one, with
            `OVERTIME_SECONDS` added, ends the cycle whatever it does.
    """

    run: str
    forge: Forge
    emit: Emit
    stop: Stop
    event: CycleStarted
    rules_file: RulesFile
    parts: Callable[[str | None], tuple[CycleParts, Sequence[str]]]
    assignment: Assignment = Assignment()  # noqa: RUF009  a frozen value
    minutes: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The values shared by all parts of one cycle on its task.

    Attributes:
        ledger: which files tools have touched, and which the model has seen.
        result: the cycle's result, filled in step by step.
    """

    parts: CycleParts
    task: Task
    clone: Clone
    ledger: Ledger
    sanitizer: Sanitizer
    result: CycleResult
    emit: Emit

    def moved_base(self) -> MovedBase | None:
        """Return the base's present head; None if it has not moved. A default branch is followed to its new name.

        Raises:
            BaseConflictError: the branch does not exist any more, and was not renamed.
            ForgeError: the forge could not say what its default branch is.
        """
        try:
            return self.clone.moved_base()
        except BaseConflictError as error:
            default = None if self.parts.options.other_base else self.parts.forge.repository().default_branch
            if default is None or not self.clone.rename_base(default):
                raise BaseConflictError(
                    f"{error}: restore it, or name the branch to start from with --base"
                ) from error
            return self.clone.moved_base()
