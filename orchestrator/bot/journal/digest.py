"""A digest of the journals since a time: what was done, what was not and why, what was saved, and what it cost."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.index import last_looks, summarise
from orchestrator.bot.journal.notes import decisions
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import repository_key, same_repository

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.notes import PersonDecision
    from orchestrator.bot.journal.run_facts import Pause, RunSummary


_LONGEST_RUN = timedelta(days=1)  # a run that began this long before still counts if it ended within the time
_UNDONE = frozenset(
    {"failed", "tests_fail", "paused", "limit", "interrupted", "unfinished", "damaged", "conflict"}
)
# Where the reasons of a backlog without a task are joined; titles may hold semicolons.
_NEXT_REASON = re.compile(r"; (?=issue #\d|the task |(?:issue|item|text)-[0-9a-f]+ |and \d+ more$)")
_MORE = re.compile(r"and \d+ more")


@dataclass(frozen=True, slots=True)
class Undone:
    """Something that was not completed: its newest run, and the number of runs with the same end."""

    run: RunSummary
    times: int


@dataclass(frozen=True, slots=True)
class Digest:
    """The runs of a period, oldest first. Its texts are untrusted and not sanitized."""

    since: datetime
    now: datetime
    runs: tuple[RunSummary, ...] = ()
    decided: Mapping[tuple[str, str], PersonDecision] = field(default_factory=dict)
    _newest: dict[tuple[str, str], RunSummary] = field(default_factory=dict, repr=False)
    _names: dict[str, str] = field(default_factory=dict, repr=False)
    """The last name of each repository."""

    def __post_init__(self) -> None:
        for run in self.runs:
            self._names[_key(run)] = run.repository
            if run.task is not None:
                self._newest[_key(run), run.task.key] = run
        for key, run in self._newest.items():
            if decision := self._decision(key, run):
                self._newest[key] = replace(run, outcome=decision.state, patch="", saved=decision.saved)

    @property
    def pulls(self) -> list[RunSummary]:
        """The last run that created or updated each pull request."""
        return list({(_key(run), run.pull.number): run for run in self.runs if run.pull}.values())

    @property
    def questions(self) -> list[RunSummary]:
        """Questions of tasks that no later run continued."""
        return [run for run in self._newest.values() if run.outcome == "question"]

    @property
    def kept(self) -> list[RunSummary]:
        """Runs with saved work that no later run of the task took over."""
        return [run for run in self._newest.values() if run.patch or run.saved]

    @property
    def waiting(self) -> list[tuple[RunSummary, str, str]]:
        """Tasks that wait for a person: the run that saw it last, the task's key, and the reason."""
        found: dict[tuple[str, str], tuple[RunSummary, str, str]] = {}
        for run in self.runs:
            key = _key(run)
            is_whole = run.outcome == "no_task" and run.task is None
            for one in [one for one in found if one[0] == key]:
                if is_whole or (run.task is not None and run.task.key == one[1]):
                    del found[one]
            found |= {(key, task): (run, task, why) for task, why in run.waits.items()}
        return [one for key, one in found.items() if not self._decision(key, one[0])]

    def decision_since(self, run: RunSummary) -> PersonDecision | None:
        """Return what a person decided about the task of a run since it began; None if nothing."""
        return self._decision((_key(run), run.task.key), run) if run.task is not None else None

    def _decision(self, key: tuple[str, str], run: RunSummary) -> PersonDecision | None:
        decision = self.decided.get(key)
        is_later = decision is not None and run.started is not None and decision.at > run.started
        return decision if is_later else None

    @property
    def working(self) -> list[RunSummary]:
        """Runs whose process is alive."""
        return [run for run in self.runs if run.outcome == "running"]

    @property
    def undone(self) -> list[Undone]:
        """Tasks whose newest run was not completed, and failures without a task; the newest first."""
        found: dict[tuple[str, str], Undone] = {}
        for run in reversed(self.runs):
            if run.outcome not in _UNDONE:
                continue
            if run.task is not None and self._newest[_key(run), run.task.key].outcome not in _UNDONE:
                continue
            key = (_key(run), run.task.key if run.task else f" {run.outcome} {run.error or run.reason}")
            before = found.get(key)
            newest = self._newest[key] if run.task else run
            found[key] = Undone(before.run, before.times + 1) if before else Undone(newest, 1)
        return list(found.values())

    @property
    def skipped(self) -> list[tuple[str, int]]:
        """Reasons why tasks were skipped, each with its number of runs; the most frequent first."""
        counts: Counter[str] = Counter()
        for run in self.runs:
            reasons = _NEXT_REASON.split(run.reason) if run.outcome == "no_task" and run.reason else []
            named = [*reasons, *run.refused]
            counts.update(dict.fromkeys(reason for reason in named if not _MORE.fullmatch(reason)).keys())
        return counts.most_common()

    @property
    def costs(self) -> dict[tuple[str, str], Spent]:
        """The cost of each model in each repository. Minutes of a run count for its first model."""
        costs: dict[tuple[str, str], Spent] = {}
        for run in self.runs:
            minutes = run.minutes
            for model, spent in (run.costs or {run.model: Spent()}).items():
                key = (self._names[_key(run)], model)
                costs[key] = costs.get(key, Spent()) + spent + Spent(minutes=minutes)
                minutes = 0.0
        return {key: spent for key, spent in costs.items() if spent.rounds}

    @property
    def spent(self) -> Spent:
        """The total cost."""
        return sum((run.spent for run in self.runs), Spent())

    @property
    def requests(self) -> int:
        """The number of requests to the forge."""
        return sum(run.requests for run in self.runs)

    @property
    def waking(self) -> dict[str, Pause]:
        """The pause of each repository according to its newest run, if it is not over."""
        newest = {_key(run): run for run in self.runs}
        return {
            self._names[name]: run.pause
            for name, run in newest.items()
            if run.pause is not None and run.pause.until > self.now
        }


def make_digest(home: Home, since: datetime, now: datetime, repository: str | None = None) -> Digest:
    """Create the digest. Only journals of runs that may have been active in the period are opened.

    Args:
        repository: only runs on this one, under any of its absolute names.
    """
    runs = [
        summarise(home.runs / name)
        for name in reversed(run_names(home))
        if (began := _began(name)) is not None and _was_within(home.runs / name, began, since)
    ]
    looks = [look for look in last_looks(home) if look.ended is not None and look.ended >= since]
    found = sorted([*runs, *looks], key=lambda run: run.id)
    kept = tuple(run for run in found if repository is None or same_repository(run.repository, repository))
    return Digest(since, now, kept, decisions(home))


def _key(run: RunSummary) -> str:
    return repository_key(run.repository)


def _was_within(folder: Path, began: datetime, since: datetime) -> bool:
    """Return whether the run began in the period, or its journal was written in it."""
    if began < since - _LONGEST_RUN:
        return False
    try:
        written = (folder / JOURNAL_FILE).stat().st_mtime
    except OSError:
        return False
    return began >= since or written >= since.timestamp()


def _began(name: str) -> datetime | None:
    match = RUN_NAME.fullmatch(name)
    if match is None:
        return None
    try:
        return datetime.strptime(match[1], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        return None
