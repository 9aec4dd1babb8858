"""Inputs of a cycle, what its model is shown, and its result."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from orchestrator.bot.forge.base import Traffic
from orchestrator.core.cycle_events import (
    Proof,
    Verified,
)
from orchestrator.core.errors import (
    AuthenticationError,
    BadReplyError,
    BaseConflictError,
    ConfigurationError,
    ConnectionFailedError,
    ContentFilterError,
    ContextLengthError,
    ForgeAuthenticationError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    GitMissingError,
    InvalidRequestError,
    ModelNotFoundError,
    OverloadedError,
    OvertakenError,
    PermissionDeniedError,
    PullwrightError,
    RateLimitError,
    RemoteRefusedError,
    RemoteUnavailableError,
    SupersededError,
    ToolError,
    WithdrawnError,
)
from orchestrator.core.events import CallStatus, Defence, Guarded, ToolCallEnded
from orchestrator.core.messages import Spent, Usage
from orchestrator.core.prompts import shown_path
from orchestrator.engine.session.config import SessionConfig
from orchestrator.engine.tools.control import RUN_TESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from orchestrator.bot.cycle.tasks import Task, TaskKind
    from orchestrator.bot.forge.base import AttachmentPlace, PullRequest, RequestQuota
    from orchestrator.bot.git.objects import Trees
    from orchestrator.bot.policy.hidden_characters import Cleaned
    from orchestrator.bot.policy.test_listing import TestListing
    from orchestrator.bot.policy.wording import Wording
    from orchestrator.core.changes import DiffStat, FileChange
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.tools.base import Tool


class Outcome(StrEnum):
    """How a cycle ended."""

    PROPOSED = "proposed"
    """A pull request was created or updated."""
    PLANNED = "planned"
    """A dry run would have proposed a pull request."""
    ANSWERED = "answered"
    """A person talked with the model, which answered."""
    NO_TASK = "no_task"
    """No task can be done now."""
    FOUND = "found"
    """A task was found and not claimed, because the cycle only looked."""
    QUESTION = "question"
    """The model asked a person a question, and the task waits for the answer."""
    LIMIT = "limit"
    """A limit was reached before a pull request was made. The work is saved."""
    PAUSED = "paused"
    """A quota is used up, or a server is down. The task itself has no problem."""
    FAILED = "failed"
    """The model gave up, or a program or a server failed. The work is saved."""
    WITHDRAWN = "withdrawn"
    """While it was worked on, the task was closed, assigned, stopped or proposed by others. The work is saved."""
    SUPERSEDED = "superseded"
    """While it was worked on, the base got the change by itself. Nothing is left to propose."""
    CONFLICT = "conflict"
    """The base has moved, and the change does not fit onto it. The work is saved."""
    TESTS_FAIL = "tests_fail"
    """A change was made and not proposed, because its tests fail. The work is saved."""
    INTERRUPTED = "interrupted"
    """A person or the system ended the run. The work is saved."""


@dataclass(frozen=True, slots=True)
class PullRequestResult:
    """The pull request that a cycle created or updated; without number and address in a dry run."""

    title: str
    body: str
    draft: bool
    number: int | None = None
    url: str | None = None

    @classmethod
    def of(cls, pull: PullRequest) -> PullRequestResult:
        """Return the result for a pull request of the forge."""
        return cls(pull.title, pull.body, pull.draft, pull.number, pull.url)


@dataclass(frozen=True, slots=True)
class Withheld:
    """A changed file that is not in a pull request.

    Attributes:
        flag: the flag with which it would be; empty if there is none.
    """

    path: str
    reason: str
    flag: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}{f'; {self.flag} lets it in' if self.flag else ''}"


@dataclass(frozen=True, slots=True)
class FoundTask:
    """The task that a cycle would claim now.

    Attributes:
        attempt: the key that marks it as already attempted.
        claim: the number of its next claim.
        is_last: whether its last worker died or failed, so that it comes after all others.
    """

    key: str
    title: str
    kind: TaskKind
    attempt: str
    claim: int
    is_last: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """Instructions for one cycle that were decided before it.

    Attributes:
        task: the key of the only task that it may take; empty for any.
        only_look: whether it only reports which task there is, without a claim.
        dead_runs: dead runs on other machines, whose claims are free.
        run: the id of the run; None creates one.
    """

    task: str = ""
    only_look: bool = False
    dead_runs: tuple[str, ...] = ()
    run: str | None = None


@dataclass(slots=True)
class CycleResult:
    """The result of a cycle, filled in as the cycle proceeds.

    Attributes:
        run: the run's id; None if none began.
        reason: why there was nothing to do, or the model's reason for finishing.
        question_url: where the question can be answered.
        unasked: why the question could not be posted; empty if it was, or there is none.
        patch: the file with changes that were not proposed.
        saved: the hidden ref on the remote with unfinished work, from which the next cycle continues.
        diff: what a dry run would have pushed.
        changed: the files and lines of the pull request.
        left_out: changed files that the pull request does not have.
        tests: what the test runs prove, and their counts, in the form of `run --json`; None if there were none.
        statement: the in-toto statement about the tests of the proposed commit, for whoever signs it; None without one.
        usd: None if the model's price is unknown.
        uncertain_usd: the estimated part of `usd`, for requests whose cost was not reported.
        uncertain_tokens: tokens of such requests, in addition to `usage`.
        minutes: wall time of the cycle.
        requests: requests to the forge; `unchanged` ones do not count against its rate limit.
        quotas: how many requests the forge still answers, as it said last.
        wake_at: the time before which another cycle is useless; None if there is none.
        found: the task that a cycle with `only_look` found.
        is_kept_here: whether unfinished work is stored on this machine alone, for a cycle here.
        is_over: whether nothing of the task is left to continue, so that what was saved of it is removed.
        waits: the tasks that were seen to wait for a person, by key, each with the reason.
        error: one line, if the outcome is `failed`.
        cause: the error itself; it is not printed, but determines the exit status.
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
    unasked: str = ""
    reason: str | None = None
    patch: str | None = None
    saved: str | None = None
    diff: str | None = None
    changed: DiffStat | None = None
    left_out: Sequence[Withheld] = ()
    tests: dict[str, Any] | None = None
    statement: dict[str, Any] | None = None
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    uncertain_usd: float = 0.0
    uncertain_tokens: int = 0
    minutes: float = 0.0
    requests: Traffic = field(default_factory=Traffic)
    quotas: Sequence[RequestQuota] = ()
    wake_at: datetime | None = None
    found: FoundTask | None = None
    is_kept_here: bool = False
    is_over: bool = False
    waits: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    cause: Exception | None = None

    @property
    def proof(self) -> Proof | None:
        """What the tests prove about the change; None if none were run."""
        return None if self.tests is None else Proof(self.tests["proof"])

    @property
    def spent(self) -> Spent:
        """The cost of the cycle."""
        tokens = self.usage.total_tokens + self.uncertain_tokens
        return Spent(self.usd, tokens, self.minutes, self.rounds)

    def end_by(self, error: PullwrightError) -> None:
        """Record the error that ended the cycle. What others did meanwhile is a reason, and no failure."""
        self.outcome, self.cause = outcome_of(error), error
        if isinstance(error, OvertakenError):
            self.reason = str(error)
        else:
            self.error = str(error)

    def to_json(self) -> dict[str, Any]:
        """Return the result as a JSON object, without what only the program uses."""
        internal: dict[str, Any] = {
            "task": None,
            "quotas": (),
            "found": None,
            "is_kept_here": False,
            "is_over": False,
            "cause": None,
            "unasked": "",
        }
        fields = asdict(replace(self, **internal))
        shown = {name: value for name, value in fields.items() if name == "task" or name not in internal}
        if self.task is not None:
            names = ("key", "title", "source", "number", "url")
            shown["task"] = {name: getattr(self.task, name) for name in names}
        shown["outcome"] = str(self.outcome)
        shown["usage"]["total_tokens"] = self.usage.total_tokens
        shown["minutes"] = round(self.minutes, 2)
        shown["wake_at"] = self.wake_at.isoformat(timespec="seconds") if self.wake_at else None
        return shown


TEMPORARY_ERRORS = (
    ConnectionFailedError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    OverloadedError,
    RemoteUnavailableError,
)
"""Errors of servers that pass within minutes, apart from quotas."""

TASK_ERRORS = (BadReplyError, ContentFilterError, ContextLengthError, InvalidRequestError, ToolError)
"""Errors of the model or the task, which may not occur with another task."""


_OVERTAKEN = {
    WithdrawnError: Outcome.WITHDRAWN,
    SupersededError: Outcome.SUPERSEDED,
    BaseConflictError: Outcome.CONFLICT,
}
OVERTAKEN = frozenset(_OVERTAKEN.values())
"""Outcomes of a cycle whose change was not proposed because others acted meanwhile."""
OVERTAKEN_KEY = "overtaken"
"""Section of our comment on an issue that says why nothing was proposed."""
ACCESS_ERRORS = (
    AuthenticationError,
    PermissionDeniedError,
    ModelNotFoundError,
    ConfigurationError,
    ForgeAuthenticationError,
    GitMissingError,
    RemoteRefusedError,
)
"""Errors that no task causes: they do not count as an attempt at one."""


def outcome_of(error: BaseException) -> Outcome:
    """Return the outcome of a cycle that an error ended. Temporary errors and used-up quotas are pauses."""
    if isinstance(error, asyncio.CancelledError):
        return Outcome.INTERRUPTED
    for kind, outcome in _OVERTAKEN.items():
        if isinstance(error, kind):
            return outcome
    return Outcome.PAUSED if isinstance(error, (*TEMPORARY_ERRORS, RateLimitError)) else Outcome.FAILED


@dataclass(frozen=True, slots=True)
class Guards:
    """The checks of one run. None of them asks a model, and each fails closed.

    Attributes:
        words: removes what a reader would not see from people's text.
        names: does the same for single lines: titles, names of files and branches.
        output: makes hidden characters in a tool's output visible.
        redactor: finds and removes secrets.
        gate: decides whether a call may run.
        protect: returns why the change to a path waits for a person, or None.
        admits: returns whether a path is proposed although an ignore rule names it.
        size: returns why a change is too large, or None.
        tests: lists what a change does to tests, judged by its text.
        wording: makes a model's text harmless for the people and bots of a forge.
    """

    words: Callable[[str], Cleaned]
    names: Callable[[str], Cleaned]
    output: Callable[[str], Cleaned]
    redactor: Redactor
    gate: Gate
    shows: Callable[[Tool], bool]
    protect: Callable[[FileChange], str | None]
    admits: Callable[[str], bool]
    size: Callable[[Sequence[FileChange]], str | None]
    tests: Callable[[Sequence[FileChange]], TestListing]
    wording: Wording


_MOST_REPORTED = 20


class Sanitizer:
    """Sanitizes text for the model of one session, and emits an event about hidden characters."""

    def __init__(self, guards: Guards, emit: Emit) -> None:
        self._guards, self._emit = guards, emit
        self._reported: set[str] = set()

    def text(self, where: str, text: str) -> str:
        """Return text of files and programs without secrets and with hidden characters made visible."""
        cleaned = self._guards.output(text)
        if cleaned.removed:
            self._report(f"hidden characters in {where} are shown", cleaned)
        return self._guards.redactor.redact(cleaned.text)

    def line(self, text: str) -> str:
        """Return a name or line without what a reader would not see. Each is reported once."""
        cleaned = self._guards.names(text)
        if cleaned.removed and text not in self._reported:
            self._reported.add(text)
            self._report("hidden characters in a name or a subject are left out", cleaned)
        return self._guards.redactor.redact(cleaned.text)

    def paths(self, paths: Iterable[str]) -> list[str]:
        """Return file names, sorted."""
        return [self.line(shown_path(path)) for path in sorted(paths)]

    def _report(self, message: str, cleaned: Cleaned) -> None:
        details = tuple(str(one) for one in cleaned.removed[:_MOST_REPORTED])
        self._emit(Guarded(Defence.HIDDEN_TEXT, message, details))


SAVING_SECONDS = 6.0
"""How long an immediate stop waits for a remote that takes saved work. Then the work is saved on this machine, in
the rest of the grace after which the watchdog kills the process (`orchestrator.core.watchdog.GRACE_SECONDS`)."""


OVERTIME_SECONDS = 30.0
"""How long a cycle may go on after its time limit, to save and report. It is half of the time after which the
watchdog ends the program (`orchestrator.core.watchdog.OVERTIME_SECONDS`)."""

Wait: TypeAlias = Callable[[threading.Event, float], bool]
"""Waits for an event or for so many seconds. Returns whether the event happened."""


class Stop:
    """A request to stop the program, after the current round or at once."""

    def __init__(
        self, wait: Wait = threading.Event.wait, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.requested = False
        self._wait, self._monotonic = wait, monotonic
        self._at_once = threading.Event()
        self._requested_at = 0.0
        self._saving = 0

    def request(self) -> None:
        """Request a stop after this round."""
        self.requested = True

    def at_once(self) -> None:
        """Request a stop now, and wake threads in `sleep`."""
        self.requested = True
        if not self._at_once.is_set():
            self._requested_at = self._monotonic()
            self._at_once.set()

    def now(self) -> bool:
        """Return whether an immediate stop was requested. It is delayed for some seconds while work is saved."""
        return self._at_once.is_set() and not (self._saving and self._saving_left > 0)

    def now_unless_saving(self) -> bool:
        """Return whether an immediate stop was requested and no work is being saved: for what needs no remote."""
        return self._at_once.is_set() and not self._saving

    @property
    def _saving_left(self) -> float:
        return self._requested_at + SAVING_SECONDS - self._monotonic()

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Delay an immediate stop, so that the block can save work: to the remote only for a short time."""
        self._saving += 1
        try:
            yield
        finally:
            self._saving -= 1

    def sleep(self, seconds: float) -> None:
        """Wait, in a thread.

        Raises:
            ForgeUnavailableError: a stop was requested.
        """
        if not self._wait(self._at_once, seconds):
            return
        if self.now():
            raise ForgeUnavailableError("interrupted while waiting for GitHub")
        # Work is being saved: continue to wait, but not for long.
        self._wait(threading.Event(), min(seconds, max(self._saving_left, 0.0)))

    def __call__(self) -> bool:
        """Return whether a stop was requested."""
        return self.requested


@dataclass(frozen=True, slots=True)
class CycleOptions:
    """Options of a cycle.

    Attributes:
        dry_run: push nothing and write nothing to the forge.
        context_characters: most characters of file text in the first prompt.
        require_tests: propose only what was tested with success; without a test command, no change that
            removes or skips tests.
        propose_failing: propose a change even if it breaks tests, as a draft.
        untested: go on where the set-up of the tests fails.
        other_base: whether the user named a branch to start from, which may not be the default one.
        signoff: `auto`, `always` or `never`; `trailer`: `auto` or how a commit names the model.
        respects_ai_policy: leave a repository alone that does not accept machine-made changes.
        starts_no_checks: whether our token starts no workflows, which the pull request then mentions.
        session: the options of the session, without the limits of this cycle.
    """

    dry_run: bool
    draft: bool
    context_characters: int
    author_email: str
    author_name: str = "Pullwright"
    require_tests: bool = False
    propose_failing: bool = False
    untested: bool = False
    other_base: bool = False
    signoff: str = "auto"
    trailer: Trailer | Literal["auto"] = "auto"
    respects_ai_policy: bool = True
    starts_no_checks: bool = False
    session: SessionConfig = field(default_factory=SessionConfig)


Trailer = Literal["none", "assisted-by", "generated-by", "co-authored-by"]


Download: TypeAlias = Callable[["AttachmentPlace", str, int], Awaitable[tuple[int, bytes]]]
"""Returns the status and at most so many bytes at a place, using a credential (empty for none). It may raise `ToolError`.
"""


@dataclass(frozen=True, slots=True)
class ProfileSources:
    """What a plug-in may complete the profile of a session with.

    Attributes:
        clean: returns a text as a model may see it; takes the text's name and the text.
        warn: tells people one line.
        trees: the trees of the repository; None if there is none, or if none of its files was reviewed.
        commit: the commit with the reviewed files, which is of the default branch.
        whole_file: whether the replies of the model are whole files, so that it is shown little else.
    """

    clean: Callable[[str, str], str]
    warn: Callable[[str], None]
    trees: Trees | None = None
    commit: str = ""
    whole_file: bool = False


CompleteProfile: TypeAlias = "Callable[[Profile, ProfileSources], Profile]"
"""Completes the profile of a session, in a thread. It may raise `ConfigurationError`."""


class RecordedTests:
    """The test results of a run that is replayed, in order."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._refusals = deque(event.refusal for event in events if isinstance(event, Verified))
        self._answers = deque(
            event for event in events if isinstance(event, ToolCallEnded) and event.name == RUN_TESTS
        )
        self.has_any = bool(self._refusals or self._answers)

    def refusal(self) -> str:
        """Return why the next change went back to the model; empty if it did not, or if nothing was recorded."""
        return self._refusals.popleft() if self._refusals else ""

    @property
    def is_over(self) -> bool:
        """Whether no further change was verified in the recorded run."""
        return not self._refusals

    def answer(self) -> str:
        """Return the model's answer from the recorded test run."""
        if not self._answers:
            raise ToolError("The recorded run has no more runs of the tests.")
        ended = self._answers.popleft()
        if ended.status is not CallStatus.OK:
            raise ToolError(ended.output)
        return ended.output
