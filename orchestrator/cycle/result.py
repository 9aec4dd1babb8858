"""What a cycle came to, as `--json` prints it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import Usage

if TYPE_CHECKING:
    from orchestrator.cycle.tasks import Task


class Outcome(StrEnum):
    """How a cycle ended. `planned` is a dry run's `proposed`."""

    PROPOSED = "proposed"
    PLANNED = "planned"
    NO_TASK = "no_task"
    QUESTION = "question"
    LIMIT = "limit"
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
        patch: the file that holds changes which were not proposed.
        diff: what a dry run would have pushed.
        usd: None where the model's price is unknown.
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
    reason: str | None = None
    patch: str | None = None
    diff: str | None = None
    usage: Usage = field(default_factory=Usage)
    usd: float | None = 0.0
    error: str | None = None
    cause: Exception | None = None

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
            "reason": self.reason,
            "patch": self.patch,
            "diff": self.diff,
            "usage": {**asdict(usage), "total_tokens": usage.total_tokens},
            "usd": self.usd,
            "run": self.run,
            "error": self.error,
        }
