"""What a cycle came to, as `--json` prints it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import Traffic
from orchestrator.core.errors import (
    ConnectionFailedError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    OverloadedError,
    RateLimitError,
    RemoteUnavailableError,
)
from orchestrator.core.messages import Usage
from orchestrator.core.spent import Spent

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.core.diff_stat import DiffStat


class Outcome(StrEnum):
    """How a cycle ended. `planned` is a dry run's `proposed`."""

    PROPOSED = "proposed"
    PLANNED = "planned"
    NO_TASK = "no_task"
    QUESTION = "question"
    LIMIT = "limit"
    PAUSED = "paused"
    """A quota is spent, or a server is down: nothing is wrong with the task."""
    FAILED = "failed"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True, slots=True)
class PullRequestResult:
    """The pull request that a cycle created or updated; without number and url in a dry run."""

    title: str
    body: str
    draft: bool
    number: int | None = None
    url: str | None = None


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
        requests: to the forge; `unchanged` ones cost nothing of its rate limit.
        wake_at: before this time (UTC, ISO 8601) another cycle makes no sense; None if it does.
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
    wake_at: datetime | None = None
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
