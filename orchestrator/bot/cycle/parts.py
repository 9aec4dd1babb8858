"""What a cycle is given: everything that differs between users, repositories and tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from orchestrator.core.errors import ForgeUnavailableError
from orchestrator.engine.session.config import recalls_nothing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from orchestrator.bot.coordination.budget import Caps, CycleBudget
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.claim import Claimer, TaskSource
    from orchestrator.bot.cycle.guards import Guards, Sanitizer
    from orchestrator.bot.cycle.repository_rules import RulesFile, Trailer
    from orchestrator.bot.cycle.result import CycleResult
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.cycle.verify import RecordedTests
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.clock import Clock
    from orchestrator.core.cycle_events import CycleStarted
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import Usage
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.budget import Limits
    from orchestrator.engine.tools.base import Ledger

Propose: TypeAlias = Callable[[str, str], Awaitable[str]]
MayFinish: TypeAlias = Callable[[str], Awaitable[str | None]]
RunTests: TypeAlias = Callable[["Sequence[str]"], Awaitable[str]]


SAVING_SECONDS = 20.0
"""Whoever stops a program waits about so long before it is killed."""


Wait: TypeAlias = Callable[[threading.Event, float], bool]
"""Waits until something happens, or for so many seconds; says whether it has happened."""


def no_wait(wish: threading.Event, _seconds: float) -> bool:
    """In the place of waiting: for tests and demonstrations, in which nobody asks for patience."""
    return wish.is_set()


class Stop:
    """Somebody's wish that the program ends: after the round that is running, or at once.

    Args:
        wait: how `sleep` waits.
    """

    def __init__(self, wait: Wait = threading.Event.wait) -> None:
        self.requested = False
        self._wait = wait
        self._at_once = threading.Event()
        self._saving_until = 0.0

    def request(self) -> None:
        """Ask for the end after this round."""
        self.requested = True

    def at_once(self) -> None:
        """Ask for the end now; who waits in `sleep` is woken."""
        self.requested = True
        self._at_once.set()

    def now(self) -> bool:
        """Whether the end is wanted at once. While work is being saved it is not yet."""
        return self._at_once.is_set() and time.monotonic() >= self._saving_until

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Let what is in the block reach the remote although the end is wanted, if that does not take long."""
        self._saving_until = time.monotonic() + SAVING_SECONDS
        try:
            yield
        finally:
            self._saving_until = 0.0

    def sleep(self, seconds: float) -> None:
        """Wait, in a thread.

        Raises:
            ForgeUnavailableError: somebody asked for the end.
        """
        if not self._wait(self._at_once, seconds):
            return
        # Work that is being saved is waited for, whether the end was wanted before or is only now.
        if self.now():
            raise ForgeUnavailableError("interrupted while waiting for GitHub")
        self._wait(threading.Event(), min(seconds, SAVING_SECONDS))

    def __call__(self) -> bool:
        """Whether somebody asked."""
        return self.requested


@dataclass(frozen=True, slots=True)
class CycleOptions:
    """How a cycle goes about it.

    Attributes:
        dry_run: nothing is pushed and nothing is written to the forge.
        draft: new pull requests are drafts.
        context_characters: how much file text the first prompt may hold.
        author_email: whose commits on a task's branch are ours.
        require_tests: nothing is proposed whose tests were not run and found good; without a test command,
            nothing after which tests are gone or skipped.
        other_base: a branch was named to start from, which may not be the default one.
        signoff: `auto`, `always` or `never`; `trailer`: `auto` or how a commit names the model.
        respects_ai_policy: a repository that wants nothing from machines is left alone.
        starts_no_checks: what our token does starts no workflow, so a pull request says so.
    """

    dry_run: bool
    draft: bool
    stream: bool
    context_characters: int
    author_email: str
    author_name: str = "Pullwright"
    temperature: float | None = None
    max_output_tokens: int | None = None
    reasoning_effort: str | None = None
    require_tests: bool = False
    other_base: bool = False
    signoff: str = "auto"
    trailer: Trailer | Literal["auto"] = "auto"
    respects_ai_policy: bool = True
    starts_no_checks: bool = False


@dataclass(frozen=True, slots=True)
class CycleParts:
    """The rooms' objects that one cycle works with.

    Attributes:
        run: the run's name; `folder` is its folder, where the journal and saved work are.
        repository: what people and journals call it.
        verifier: runs the tests of a clone; None without a test command, or where none is found.
        recall: see `Host`.
        recorded_tests: what was said of them in the run that is replayed, in which nothing is run.
        records: the hidden refs of the remote; None in a dry run.
        kept: unfinished work of the repository that only this machine has; None in a dry run.
        open_clone: clones into a folder of its own below the one given.
        environment: the place where tools act, for a work tree and the submodules in it.
        profile: the tools and words, given what `create_pull_request`, `finish` and `run_tests` ask the host; the
            last is None where no tests are run.
        profile_name: the profile's.
        reply_tokens: the longest reply that the model can give.
        price: what a reply cost in USD, or None where the model's price is unknown.
        stop: whether somebody asked for an end.
        tasks: where the next task comes from; `claimer` claims it, and is None in a dry run.
        recovery: repairs what runs left that were killed; None in a dry run.
        budget: what may be spent; `least` is what one request may cost at most.
    """

    run: str
    folder: Path
    repository: str
    forge: Forge
    model: Model
    contract: Contract
    open_clone: Callable[[Path], Clone]
    environment: Callable[[Path, list[str]], ExecutionEnvironment]
    profile: Callable[[Propose, MayFinish, RunTests | None], Profile]
    guards: Guards
    profile_name: str
    limits: Limits
    price: Callable[[Usage], float | None]
    reply_tokens: int
    options: CycleOptions
    records: Records | None
    kept: KeptWork | None
    clock: Clock
    emit: Emit
    stop: Stop
    tasks: TaskSource
    claimer: Claimer | None
    recovery: RunRecovery | None
    budget: CycleBudget
    least: Caps
    verifier: Callable[[Clone], Verifier | None] | None = None
    recorded_tests: RecordedTests | None = None
    recall: Callable[[str], Awaitable[str]] = recalls_nothing


@dataclass(frozen=True, slots=True)
class CycleStart:
    """What is known of a cycle before the repository was asked anything.

    Attributes:
        event: the first event of the cycle.
        rules_file: the repository's own rules for the program.
        parts: gives the objects to work with, as strict as the text of that file says, and notes on it; it opens the hidden refs.
    """

    run: str
    forge: Forge
    emit: Emit
    stop: Stop
    event: CycleStarted
    rules_file: RulesFile
    parts: Callable[[str | None], tuple[CycleParts, Sequence[str]]]


class RunRecovery(Protocol):
    """Repairs what runs of this machine left that were killed."""

    def recover(self) -> Collection[str]:
        """Save their work, and close their journals; returns the runs whose claims are free.

        Raises:
            WorkspaceError: the remote refused, or nothing can be saved now.
        """


@dataclass(frozen=True, slots=True)
class Attempt:
    """One cycle's attempt at its task: what all who take part in it share.

    Attributes:
        clone: holds the change.
        ledger: which files tools have touched, and which the model has seen.
        sanitizer: what the model may see of texts and names.
        result: what the cycle ends with; it is filled in on the way.
        emit: takes the events of the cycle.
    """

    parts: CycleParts
    task: Task
    clone: Clone
    ledger: Ledger
    sanitizer: Sanitizer
    result: CycleResult
    emit: Emit
