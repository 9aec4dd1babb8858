"""What a cycle is given, what is shown to its model, and the result that it fills in."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from orchestrator.bot.forge.base import Traffic
from orchestrator.core.errors import (
    ConnectionFailedError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    OverloadedError,
    RateLimitError,
    RemoteUnavailableError,
)
from orchestrator.core.events import Defence, Guarded
from orchestrator.core.fence import one_line
from orchestrator.core.messages import Spent, Usage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.coordination.budget import Caps, CycleBudget
    from orchestrator.bot.coordination.records import Records
    from orchestrator.bot.cycle.act import CycleSession
    from orchestrator.bot.cycle.attachments import Download
    from orchestrator.bot.cycle.claim import TaskSource
    from orchestrator.bot.cycle.claimer import Claimer
    from orchestrator.bot.cycle.earlier import Earlier
    from orchestrator.bot.cycle.repository_rules import RulesFile, Trailer
    from orchestrator.bot.cycle.skills import SkillOptions
    from orchestrator.bot.cycle.tasks import Task, TaskKind
    from orchestrator.bot.cycle.verify import RecordedTests
    from orchestrator.bot.forge.base import Forge, PullRequest, RequestQuota
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.journal.folders import KeptWork
    from orchestrator.bot.policy.incoming import Cleaned
    from orchestrator.bot.policy.test_listing import TestListing
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.core.changes import DiffStat, FileChange
    from orchestrator.core.clock import Clock
    from orchestrator.core.events import CycleStarted, Emit
    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.mcp.base import ForeignTools
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.budget import Limits
    from orchestrator.engine.session.context import CompactionPolicy
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.session.loop import SessionEnd
    from orchestrator.engine.tools.base import Ledger, Tool


class Outcome(StrEnum):
    """How a cycle ended."""

    PROPOSED = "proposed"
    """A pull request was created or updated."""
    PLANNED = "planned"
    """A dry run would have proposed a pull request."""
    ANSWERED = "answered"
    """A person talked with the model, which answered."""
    NO_TASK = "no_task"
    """There is no task that may be done now."""
    FOUND = "found"
    """There is a task, and nothing was claimed: the cycle was only to look."""
    QUESTION = "question"
    """The model asked a person something, and the task waits for the answer."""
    LIMIT = "limit"
    """A limit was reached before a pull request was made. The work is kept."""
    PAUSED = "paused"
    """A quota is spent, or a server is down: nothing is wrong with the task."""
    FAILED = "failed"
    """The model gave up, or a program or a server failed. The work is kept."""
    INTERRUPTED = "interrupted"
    """A person or the system ended the run. The work is kept."""


@dataclass(frozen=True, slots=True)
class PullRequestResult:
    """The pull request that a cycle created or updated; without number and url in a dry run."""

    title: str
    body: str
    draft: bool
    number: int | None = None
    url: str | None = None


@dataclass(frozen=True, slots=True)
class FoundTask:
    """What a look at the backlog found: the task that a cycle would claim now.

    Attributes:
        attempt: the name under which it counts as tried.
        claim: the number that its next claim has.
    """

    key: str
    title: str
    kind: TaskKind
    attempt: str
    claim: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one cycle is to do, where that was decided before it.

    Attributes:
        task: the key of the only task that it may take; empty for any.
        only_look: say which task there is, and claim none.
        dead_runs: runs on other machines that are known to be dead, so that their claims are free.
        run: the name of the run; None makes one.
    """

    task: str = ""
    only_look: bool = False
    dead_runs: tuple[str, ...] = ()
    run: str | None = None


@dataclass(slots=True)
class CycleResult:
    """A cycle's result, filled in as the cycle goes on.

    Attributes:
        run: the run's name; None where none began.
        reason: why there was nothing to do, or the model's words on finishing.
        question_url: where the question can be answered.
        patch: the file that holds changes which were not proposed.
        saved: the hidden ref on the remote that holds unfinished work, from which the next cycle goes on.
        diff: what a dry run would have pushed.
        changed: the files and lines of the pull request.
        tests: the runs of the repository's tests, as `run --json` has them; None where none were made.
        tests_fail: something that passed before fails with the change, or what the task names does.
        usd: None where the model's price is unknown.
        uncertain_usd: the part of `usd` that is an estimate, of requests whose cost nobody told.
        uncertain_tokens: those of such requests, beside `usage`.
        minutes: wall time of the cycle.
        quotas: of such requests, as the forge said last.
        requests: to the forge; `unchanged` ones cost nothing of its rate limit.
        wake_at: before this time (UTC, ISO 8601) another cycle makes no sense; None if it does.
        found: what a cycle that was only to look has found.
        error: one line, where the outcome is `failed`.
        cause: the error itself; not printed, it chooses the exit code.
    """

    run: str | None
    outcome: Outcome = Outcome.FAILED
    task: Task | None = None
    plan: str | None = None
    rounds: int = 0
    branch: str | None = None
    commit: str | None = None
    pull_request: PullRequestResult | None = None
    question: str | None = None
    question_url: str | None = None
    reason: str | None = None
    patch: str | None = None
    saved: str | None = None
    diff: str | None = None
    changed: DiffStat | None = None
    tests: dict[str, Any] | None = None
    tests_fail: bool = False
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    uncertain_usd: float = 0.0
    uncertain_tokens: int = 0
    minutes: float = 0.0
    requests: Traffic = field(default_factory=Traffic)
    quotas: Sequence[RequestQuota] = ()
    wake_at: datetime | None = None
    found: FoundTask | None = None
    error: str | None = None
    cause: Exception | None = None

    @property
    def spent(self) -> Spent:
        """What the cycle has cost."""
        tokens = self.usage.total_tokens + self.uncertain_tokens
        return Spent(self.usd, tokens, self.minutes, self.rounds)

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        task, usage = self.task, self.usage
        return {
            "outcome": str(self.outcome),
            "task": None
            if task is None
            else {
                "key": task.key,
                "title": task.title,
                "source": task.source,
                "number": task.number,
                "url": task.url,
            },
            "plan": self.plan,
            "rounds": self.rounds,
            "branch": self.branch,
            "commit": self.commit,
            "pull_request": None if self.pull_request is None else asdict(self.pull_request),
            "question": self.question,
            "question_url": self.question_url,
            "reason": self.reason,
            "patch": self.patch,
            "saved": self.saved,
            "diff": self.diff,
            "changed": None if self.changed is None else asdict(self.changed),
            "tests": self.tests,
            "usage": {**asdict(usage), "total_tokens": usage.total_tokens},
            "usd": self.usd,
            "uncertain_usd": self.uncertain_usd,
            "uncertain_tokens": self.uncertain_tokens,
            "minutes": round(self.minutes, 2),
            "requests": asdict(self.requests),
            "wake_at": self.wake_at.isoformat(timespec="seconds") if self.wake_at else None,
            "run": self.run,
            "error": self.error,
        }


def in_words(spent: Spent) -> str:
    """What something has cost, for a person."""
    money = "an unknown sum" if spent.usd is None else f"${spent.usd:,.4f}"
    rounds = "1 round" if spent.rounds == 1 else f"{spent.rounds} rounds"
    return f"{rounds}, {spent.tokens:,} tokens, {money}"


_PASSING = (
    ConnectionFailedError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    OverloadedError,
    RateLimitError,
    RemoteUnavailableError,
)


def outcome_of(error: BaseException) -> Outcome:
    """How a cycle ends that an error ended: what passes by itself is a pause."""
    if isinstance(error, asyncio.CancelledError):
        return Outcome.INTERRUPTED
    return Outcome.PAUSED if isinstance(error, _PASSING) else Outcome.FAILED


_LONGEST_PATH_CHARS = 300


def shown_path(path: str) -> str:
    """The path in one line, what cannot be seen escaped. A model can name the file if nothing changed."""
    return one_line(path, limit=_LONGEST_PATH_CHARS)


class OutgoingWording(Protocol):
    """Makes a model's words harmless where people and robots of the forge read them."""

    def title(self, text: str) -> str:
        """A title: one line, capped."""

    def inline(self, text: str) -> str:
        """One line of Markdown to stand behind words of the program, capped."""

    def text(self, text: str, *, issue: int | None) -> str:
        """Markdown: capped; `issue` is the one that it may close."""

    def comment(self, text: str, *, issue: int | None) -> str:
        """Markdown for a comment: the same, and every line is quoted (`> `)."""

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        """A commit's message, which is no Markdown: title, other people's words, and the program's own."""


@dataclass(frozen=True, slots=True)
class Guards:
    """The checks of one run. None of them asks a model, and each fails closed.

    Attributes:
        words: what people wrote, without what a reader would not see.
        names: the same for what is one line: titles, names of files and branches.
        output: what a tool answers, with what a reader would not see made visible.
        gate: may a call run?
        protect: why the change to a path waits for a person, or None.
        size: why a change is too large, or None.
        tests: what a change does to tests, as far as its text shows it.
        wording: for what goes to the forge.
    """

    words: Callable[[str], Cleaned]
    names: Callable[[str], Cleaned]
    output: Callable[[str], Cleaned]
    redact: Callable[[str], str]
    holds_secret: Callable[[str], bool]
    gate: Gate
    shows: Callable[[Tool], bool]
    protect: Callable[[FileChange], str | None]
    size: Callable[[Sequence[FileChange]], str | None]
    tests: Callable[[Sequence[FileChange]], TestListing]
    wording: OutgoingWording


_REPORTED = 20


class Sanitizer:
    """Shows things to the model of one session; what was hidden in a file or a name is told by an event, once."""

    def __init__(self, guards: Guards, emit: Emit) -> None:
        self._guards, self._emit = guards, emit
        self._told: set[str] = set()

    def text(self, where: str, text: str) -> str:
        """Text of files and programs without secrets, and with what a reader would not see made visible."""
        cleaned = self._guards.output(text)
        if cleaned.removed:
            found = tuple(str(one) for one in cleaned.removed[:_REPORTED])
            self._emit(Guarded(Defence.HIDDEN_TEXT, f"hidden characters in {where} are shown", found))
        return self._guards.redact(cleaned.text)

    def words(self, text: str) -> str:
        """A name or a line that somebody wrote, without what a reader would not see."""
        cleaned = self._guards.names(text)
        if cleaned.removed and text not in self._told:
            self._told.add(text)
            found = tuple(str(one) for one in cleaned.removed[:_REPORTED])
            self._emit(
                Guarded(Defence.HIDDEN_TEXT, "hidden characters in a name or a subject are left out", found)
            )
        return self._guards.redact(cleaned.text)

    def paths(self, paths: Iterable[str]) -> list[str]:
        """Names of files, sorted."""
        return [self.words(shown_path(path)) for path in sorted(paths)]


Propose: TypeAlias = Callable[[str, str], Awaitable[str]]
MayFinish: TypeAlias = Callable[[str], Awaitable[str | None]]
MakeForeignTools: TypeAlias = Callable[["Path", Callable[[str, str], str], "Emit"], "ForeignTools"]
RunTests: TypeAlias = Callable[["Sequence[str]"], Awaitable[str]]


SAVING_SECONDS = 20.0
"""Whoever stops a program waits about so long before it is killed."""


Wait: TypeAlias = Callable[[threading.Event, float], bool]
"""Waits until something happens, or for so many seconds; says whether it has happened."""


def no_wait(wish: threading.Event, _seconds: float) -> bool:
    """In the place of waiting: for tests and demonstrations, in which nobody asks for patience."""
    return wish.is_set()


class Stop:
    """Somebody's wish that the program ends: after the round that is running, or at once."""

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
        context_characters: how much file text the first prompt may hold.
        author_email: whose commits on a task's branch are ours.
        require_tests: nothing is proposed whose tests were not run and found good; without a test command,
            nothing after which tests are gone or skipped.
        other_base: a branch was named to start from, which may not be the default one.
        signoff: `auto`, `always` or `never`; `trailer`: `auto` or how a commit names the model.
        respects_ai_policy: a repository that wants nothing from machines is left alone.
        starts_no_checks: what our token does starts no workflow, so a pull request says so.
        context_window: how many tokens the model can read; None takes what is known of it.
        compaction: when the conversation is made shorter; None never does.
        system_prompt: what the user wants of the model in every cycle; may be empty.
        max_subagents, subagent_timeout_seconds: see `SessionConfig`.
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
    context_window: int | None = None
    compaction: CompactionPolicy | None = None
    system_prompt: str = ""
    max_subagents: int | None = None
    subagent_timeout_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class CycleParts:
    """The rooms' objects that one cycle works with.

    Attributes:
        run: the run's name; `folder` is its folder, where the journal and saved work are.
        repository: what people and journals call it.
        verifier: runs the tests of a clone; None without a test command, or where none is found.
        memory: what was learned about the repository; None without.
        foreign_tools: makes the tools that others run, for a work tree, what the model may see of a text, and who
            is told; None where there are none.
        download: fetches what people attached to a task; None fetches nothing.
        skills: which skills there are; None is none.
        recorded_tests: what was said of them in the run that is replayed, in which nothing is run.
        records: the hidden refs of the remote; None in a dry run.
        kept: unfinished work of the repository that only this machine has; None in a dry run.
        open_clone: clones into a folder of its own below the one given.
        environment: the place where tools act, for a work tree and the submodules in it.
        profile: the tools and words, given what `create_pull_request`, `finish` and `run_tests` ask the host (the
            last is None where no tests are run), and the tools that others run.
        reply_tokens: the longest reply that the model can give.
        price: what a reply cost in USD, or None where the model's price is unknown.
        stop: whether somebody asked for an end.
        tasks: where the next task comes from; `claimer` claims it, and is None in a dry run.
        recovery: repairs what runs left that were killed; None in a dry run.
        budget: what may be spent; `least` is what one request may cost at most.
        operator: a person who works in the place of the model's loop; None where nobody does.
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
    memory: CycleMemory | None = None
    foreign_tools: MakeForeignTools | None = None
    download: Download | None = None
    skills: SkillOptions | None = None
    operator: Operator | None = None


class ProposeChange(Protocol):
    """Verifies and proposes what is changed in a clone; returns what came of it."""

    def __call__(self, title: str, body: str, *, is_begun: bool = False) -> Awaitable[str]:
        """Do it.

        Args:
            is_begun: what is refused once is not: see `Proposer.prepare`.

        Raises:
            ToolError: the change is not fit to be proposed, or its tests are not.
            WorkspaceError: git failed.
            ForgeError: the forge failed.
        """


class Operator(Protocol):
    """A person who works on a task in the place of the model's loop."""

    @property
    def brings(self) -> Earlier | None:
        """Work that is proposed as it is, without a model. A copy of it stays where it was made.

        None goes on with what an earlier cycle left.
        """

    @property
    def spent(self) -> Spent:
        """What the work that it brings has cost."""

    async def work(self, session: CycleSession, propose: ProposeChange) -> SessionEnd:
        """Work until the person is done; how it ended.

        Raises:
            PullwrightError: what ended the work.
        """


class CycleMemory(Protocol):
    """What one cycle learns about the repository and recalls of it."""

    async def learn(self) -> None:
        """Read what is known, and store what pull requests have taught since. It does not raise."""

    async def recall(
        self, message: str, files: Collection[str], blobs: Callable[[Sequence[str]], Mapping[str, str]]
    ) -> str:
        """What is remembered and has to do with a message, as Markdown; empty if nothing is.

        Args:
            files: those that the task is about.
            blobs: gives the blobs of files on the base, of those that are there.

        Raises:
            MemoryStoreError: this machine's file cannot be used.
            ModelError: there is no vector for a new fact.
        """

    async def note(self, notes: Sequence[str], pull: PullRequest, cited: Mapping[str, str]) -> None:
        """Store what a model wrote and its pull request shows. It counts once that is merged. It does not raise.

        Args:
            cited: files that the notes may be about, each with its blob in the pull request.
        """


@dataclass(frozen=True, slots=True)
class CycleStart:
    """What is known of a cycle before the repository was asked anything.

    Attributes:
        parts: gives the objects to work with, as strict as the text of that file says, and notes on it; it opens the hidden refs.
        assignment: what was decided before; None leaves the choice to the cycle.
    """

    run: str
    forge: Forge
    emit: Emit
    stop: Stop
    event: CycleStarted
    rules_file: RulesFile
    parts: Callable[[str | None], tuple[CycleParts, Sequence[str]]]
    assignment: Assignment = Assignment()


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
    """

    parts: CycleParts
    task: Task
    clone: Clone
    ledger: Ledger
    sanitizer: Sanitizer
    result: CycleResult
    emit: Emit
