"""The known runs, and the overview's content: what needs a person, what runs, outcomes, and costs.

Each journal is read once, the newest first, and again only after a change.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import urlencode

from orchestrator.app.event_lines import Narrator, RunProgress
from orchestrator.app.words import counted, money, short_line
from orchestrator.bot.cycle.task_state import TaskStatus, status_of_outcome
from orchestrator.bot.cycle.tasks import CHOICE
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.journal.digest import Digest
from orchestrator.bot.journal.folders import JOURNAL_FILE, RUN_NAME, run_names
from orchestrator.bot.journal.index import last_looks, summarise
from orchestrator.bot.journal.notes import answers, decisions
from orchestrator.bot.journal.reader import JournalTail, read_line
from orchestrator.bot.journal.records import UnknownRecord
from orchestrator.bot.worker.task_decisions import results_of, usd_of_a_month
from orchestrator.core.messages import Spent
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence
    from datetime import date
    from pathlib import Path

    from orchestrator.app.event_lines import EventLine
    from orchestrator.app.html.page import Tone
    from orchestrator.bot.cycle.task_state import TaskState
    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.run_facts import Pause, RunSummary
    from orchestrator.bot.worker.task_decisions import Results


MOST_RUNS = 10_000
"""Number of the newest runs that are listed and counted. Older runs have pages only."""
_CHANGEABLE = 64
"""Number of the newest runs that are read again after their end: a worker may add a pause to them."""
_MOST_PLAN_CHARS = 2_000
_MOST_LINES = 200
_SHOWN_LINES = 6
# Records that are never skipped, however many were written since the last reading.
_CALL = re.compile(rb'^\{"seq":\d+,"at":"[^"]*","type":"ToolCallEnded"')
_TELLING = re.compile(
    rb'^\{"seq":\d+,"at":"[^"]*","type":"(?:PhaseEntered|TurnStarted|PlanAccepted|TodosChanged)"'
)


@dataclass(slots=True)
class LiveRun:
    """The state of a run in progress.

    Attributes:
        lines: the last lines about its events. The tuple is replaced, never changed, because other threads read it.
    """

    tail: JournalTail
    progress: RunProgress = field(default_factory=lambda: RunProgress("starting"))
    lines: tuple[EventLine, ...] = ()
    _narrator: Narrator = field(default_factory=Narrator)

    def read_on(self) -> bool:
        """Read the new records, and return whether there are any. Of very many, only the last and some kinds are parsed."""
        is_new = False
        while found := self.tail.lines():
            is_new = True
            last = found[-1][0] - _MOST_LINES
            for seq, line in found:
                if seq > last or _TELLING.match(line):
                    self._take(line)
                else:
                    self.progress.facts.calls += _CALL.match(line) is not None
        return is_new

    def _take(self, line: bytes) -> None:
        record = read_line(line)
        if record is None or isinstance(record.event, UnknownRecord):
            return
        self.progress.take(record.event, record.at)
        if (told := self._narrator.line(record.event)) is not None:
            self.lines = (*self.lines, told)[-_SHOWN_LINES:]


@dataclass(frozen=True, slots=True)
class _Stored:
    key: tuple[int, int]
    run: RunSummary


class RunStore:
    """Keeps the summaries of the newest runs. `refresh` may be called from any thread.

    Attributes:
        version: grows with every change.
        unread: number of journals that are not read yet.
        live: the runs in progress, by id.
        looks: the last look at each repository that found no task, oldest first.
    """

    def __init__(self, home: Home, most: int = MOST_RUNS) -> None:
        self.home = home
        self.version = 0
        self.unread = 0
        self.live: dict[str, LiveRun] = {}
        self.looks: list[RunSummary] = []
        self._most = most
        self._stored: dict[str, _Stored] = {}
        self._names: list[str] = []
        self._lock = threading.Lock()

    @property
    def runs(self) -> list[RunSummary]:
        """The known runs, newest first."""
        stored = self._stored
        return [stored[name].run for name in self._names if name in stored]

    def refresh(self, seconds: float = float("inf")) -> bool:
        """Read new and changed journals, the newest first, for at most this time. Return whether anything changed."""
        with self._lock:
            before = self.version
            until = time.monotonic() + seconds
            names = [name for name in run_names(self.home)[: self._most] if RUN_NAME.fullmatch(name)]
            if gone := self._stored.keys() - set(names):
                self._stored = {name: one for name, one in self._stored.items() if name not in gone}
                self.version += 1
            before_looks, self.looks = self.looks, last_looks(self.home)
            self.version += self.looks != before_looks
            self._names = names
            self.unread = 0
            for number, name in enumerate(names):
                known = self._stored.get(name)
                if known is not None and number >= _CHANGEABLE and _is_over(known.run):
                    continue
                if number and time.monotonic() > until:  # the newest one is always read
                    self.unread += known is None
                    continue
                self._look(name, known)
            self._follow()
            return self.version != before

    def _look(self, name: str, known: _Stored | None) -> None:
        folder = self.home.runs / name
        key = _key(folder)
        if known is not None and known.key == key and not known.run.is_running:
            return
        run = _compact(summarise(folder))
        if known is None or known.run != run:
            self.version += 1
        self._stored[name] = _Stored(key, run)

    def _follow(self) -> None:
        """Read the new records of the runs in progress."""
        going = [one.run.id for one in self._stored.values() if one.run.is_running]
        self.live = {
            name: self.live.get(name) or LiveRun(JournalTail(self.home.runs / name)) for name in going
        }
        for live in self.live.values():
            self.version += live.read_on()


def _key(folder: Path) -> tuple[int, int]:
    try:
        found = (folder / JOURNAL_FILE).stat()
    except OSError:
        return (-1, 0)
    return found.st_size, found.st_mtime_ns


def _is_over(run: RunSummary) -> bool:
    return not run.is_running and run.outcome not in {"unfinished", "damaged"}


def _compact(run: RunSummary) -> RunSummary:
    """Remove what only the run's own page shows, because there may be thousands of runs."""
    task = replace(run.task, body="") if run.task is not None else None
    return replace(run, task=task, plan=run.plan[:_MOST_PLAN_CHARS], touched=())


DAYS = 14
_WEEK = timedelta(days=7)
_MOST_ROWS = 40
_MOST_FAILURES = 8
_MOST_COST_PLOTS = 6
_MOST_CONSIDERED = 1_000
"""Number of the newest runs that count, except for the plots, which are of all runs."""
_DIGITS = re.compile(r"\d+|[0-9a-f]{7,}")
_HAS_PULL = re.compile(
    r"""(?:issue #\d+|the task (?:'(?:[^'\\]|\\.)*'|"[^"]*")) (?:was done by|has an open pull request,) """
)
"""Reasons of `task_state` for tasks that wait for no cycle: their pull requests are listed."""
_COLUMNS: tuple[tuple[str, Tone, frozenset[str]], ...] = (
    ("proposed", "ok", frozenset({"proposed", "planned"})),
    ("done without a pull request", "quiet", frozenset({"finished", "answered"})),
    ("asked", "warning", frozenset({"question"})),
    (
        "stopped early",
        "active",
        frozenset({"limit", "paused", "interrupted", "unfinished", "conflict", "withdrawn"}),
    ),
    ("failed", "failed", frozenset({"failed", "tests_fail", "damaged"})),
)


@dataclass(frozen=True, slots=True)
class WaitingItem:
    """Something that waits for a person.

    Attributes:
        what: `question`, `waits` (only a person can help), `failed`, `tests` (they do not pass), or `nothing` (the
            model found nothing to do).
        task: the key of the task, if it is not that of the run.
        times: number of runs with the same end.
        answer: a person's answer to the question, which is kept for the next run.
    """

    what: str
    run: RunSummary
    text: str
    times: int = 1
    task: str = ""
    answer: str = ""

    @property
    def choices(self) -> list[tuple[str, str]]:
        """The numbered choices of a question: number and text."""
        found = CHOICE.finditer(self.text) if self.what == "question" else ()
        return [(one["number"], one["text"]) for one in found]


@dataclass(frozen=True, slots=True)
class Bar:
    """One day of a plot: its parts from bottom to top, each with a colour, a value and a description."""

    label: str
    parts: tuple[tuple[Tone, float, str], ...]

    @property
    def total(self) -> float:
        """The sum of the parts."""
        return sum(value for _, value, _ in self.parts)


@dataclass(frozen=True, slots=True)
class Plot:
    """Bars over days.

    Attributes:
        said: a summary in words, also for screen readers.
        cap: value and name of a horizontal line.
        names: the meanings of the colours.
        is_money: whether the values are US dollars; else they are counts.
        least_top: minimum of the scale, so that several plots can have the same one.
    """

    title: str
    said: str
    bars: Sequence[Bar]
    cap: tuple[float, str] | None = None
    names: Sequence[tuple[Tone, str]] = ()
    least_top: float = 0.0
    is_money: bool = True

    @property
    def highest(self) -> float:
        """The maximum of the scale."""
        cap = self.cap[0] if self.cap else 0.0
        return max([bar.total for bar in self.bars] + [cap, self.least_top]) or 1.0

    @property
    def labelled(self) -> set[int]:
        """The bars above which their total stands: the highest, and the last one unless it is beside that."""
        totals = [bar.total for bar in self.bars]
        if not any(totals):
            return set()
        top, last = totals.index(max(totals)), len(totals) - 1
        return {top, last} if totals[last] and last - top > 1 else {top}


@dataclass(frozen=True, slots=True)
class PullState:
    """Our open pull request on its forge, with its checks and reviews in words."""

    pull: PullRequest
    checks: str = ""
    reviews: str = ""
    upkeep: str = ""
    """What the program does about it, and when it stops."""


@dataclass(frozen=True, slots=True)
class Look:
    """The tasks of a repository as its remote and its forge showed them at one time.

    Attributes:
        held: keys of the tasks that a worker holds.
        error: why the repository could not be read; empty if it could.
    """

    repository: str
    at: datetime
    states: tuple[TaskState, ...] = ()
    pulls: tuple[PullState, ...] = ()
    held: tuple[str, ...] = ()
    error: str = ""
    is_local: bool = False

    def pull(self, number: int) -> PullRequest | None:
        """Return our pull request with this number."""
        known = [state.pull for state in self.states if state.pull is not None]
        return next((pull for pull in known if pull.number == number), None)


@dataclass(frozen=True, slots=True)
class Overview:
    """The page's content, from the runs that are known at one time.

    Attributes:
        is_paused: whether an obstacle caused one of the pauses. An idle worker only waits for the next look.
        pulls: the last run of each pull request; those that may be open come first, then the newest.
        waiting_pulls: number of pull requests that wait for a person's review, as far as known.
        closed_here: repository key and number of the pull requests that a person closed on this machine.
        queue: why tasks wait, by repository, each reason with its number of tasks.
    """

    now: datetime
    needs: Sequence[WaitingItem]
    working: Sequence[tuple[RunSummary, LiveRun | None]]
    pauses: Mapping[str, Pause]
    is_paused: bool
    tiles: Sequence[tuple[str, str, str]]
    plots: Sequence[Plot]
    cost_plots: Sequence[Plot]
    pulls: Sequence[RunSummary]
    waiting_pulls: int
    closed_here: Container[tuple[str, int]]
    queue: Sequence[tuple[str, Sequence[tuple[str, int]]]]
    failures: Sequence[tuple[str, int, RunSummary]]
    costs: Sequence[tuple[str, Spent, int]]
    recent: Sequence[RunSummary]
    idle: int
    last_at: datetime | None
    repositories: Sequence[str]
    total: int
    unread: int
    looks: Mapping[str, Look] = field(default_factory=dict)
    troubles: Sequence[str] = ()
    titles: Mapping[tuple[str, str], str] = field(default_factory=dict)

    def title_of(self, repository: str, task: str) -> str:
        """Return the title of a task; empty if no run here has worked on it."""
        return self.titles.get((repository_key(repository), task), "")

    def is_closed_here(self, run: RunSummary) -> bool:
        """Return whether a person closed the pull request of a run on this machine."""
        return run.pull is not None and (repository_key(run.repository), run.pull.number) in self.closed_here

    @property
    def heartbeat(self) -> tuple[Tone, str]:
        """The current activity, in a few words with a colour."""
        if self.working:
            return "active", f"{counted(len(self.working), 'run')} at work"
        if self.pauses:
            return ("warning", "paused") if self.is_paused else ("quiet", "waiting")
        return "quiet", "nothing runs"


@dataclass(frozen=True, slots=True)
class DayCap:
    """The configured limits in US dollars per day; None for no limit.

    Attributes:
        usd: limit of this machine.
        repository_usd: limit of each repository.
    """

    usd: float | None = None
    repository_usd: float | None = None


def make_overview(store: RunStore, now: datetime, cap: DayCap, looks: Mapping[str, Look]) -> Overview:
    """Create the overview from the known runs.

    Args:
        looks: the last readings of repositories, by name.
    """
    runs = sorted([*store.runs, *store.looks], key=lambda run: run.id, reverse=True)
    newest = runs[:_MOST_CONSIDERED]
    whole = Digest(now - timedelta(days=36_500), now, tuple(reversed(newest)), decisions(store.home))
    week = Digest(now - _WEEK, now, tuple(reversed(_since(newest, now - _WEEK))), whole.decided)
    shown = [run for run in runs if run.outcome != "no_task" or run.task is not None]
    results = results_of(state for look in looks.values() for state in look.states)
    closed = {
        (repository_key(run.repository), run.pull.number)
        for run in newest
        if run.pull and (decision := whole.decision_since(run)) and decision.state == TaskStatus.DECLINED
    }
    pulls = sorted(whole.pulls, key=lambda run: run.id, reverse=True)
    is_over = {run.id: not _may_be_open(run, looks, closed) for run in pulls}
    costs = _costs_by_day(runs, now)
    return Overview(
        now=now,
        needs=[*_needs(whole, answers(store.home)), *_without_work(week)],
        working=[(run, store.live.get(run.id)) for run in newest if run.is_running],
        pauses=whole.waking,
        is_paused=_is_paused(newest, now),
        tiles=list(_tiles(week, now, cap, results)),
        plots=[cost_plot(costs, now, cap.usd), _outcome_plot(runs, now)],
        cost_plots=cost_plots(costs, now, cap.repository_usd),
        pulls=sorted(pulls, key=lambda run: is_over[run.id])[:_MOST_ROWS],
        waiting_pulls=len(pulls) - sum(is_over.values()),
        closed_here=closed,
        queue=_queue(week, now),
        failures=_failures(week.runs),
        costs=_costs(week),
        recent=shown[:_MOST_ROWS],
        idle=len(runs) - len(shown),
        last_at=max((run.ended for run in runs[:_MOST_ROWS] if run.ended), default=None),
        repositories=list(dict.fromkeys(run.repository for run in runs if run.repository)),
        total=len(runs),
        unread=store.unread,
        looks=looks,
        titles=titles_of(newest),
    )


def titles_of(runs: Iterable[RunSummary]) -> dict[tuple[str, str], str]:
    """Return the titles of tasks by repository key and task key, of the first run on each."""
    titles: dict[tuple[str, str], str] = {}
    for run in runs:
        if run.task is not None:
            titles.setdefault((repository_key(run.repository), run.task.key), run.task.title)
    return titles


_MOST_SEARCHED_CHARS = 200


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs a person wants to see. Empty texts filter nothing.

    Attributes:
        q: words that each occur in title, task, repository, model, reason, error or id.
    """

    q: str = ""
    repository: str = ""
    outcome: str = ""

    @classmethod
    def of(cls, fields: Mapping[str, str]) -> RunFilter:
        """Read the fields of a form."""
        return cls(
            *(fields.get(name, "").strip()[:_MOST_SEARCHED_CHARS] for name in ("q", "repository", "outcome"))
        )

    @property
    def is_any(self) -> bool:
        """Whether it leaves out any run."""
        return bool(self.q or self.repository or self.outcome)

    def query(self, before: str) -> str:
        """Return the query of the page with the runs before one."""
        return urlencode({**{name: text for name, text in asdict(self).items() if text}, "before": before})

    def matches(self, run: RunSummary) -> bool:
        """Return whether a run is wanted."""
        if (self.repository and run.repository != self.repository) or (
            self.outcome and run.outcome != self.outcome
        ):
            return False
        task = (run.task.title, run.task.key, f"#{run.task.number}") if run.task else ()
        text = " ".join(
            (*task, run.id, run.repository, run.model, run.reason, run.error, run.said)
        ).casefold()
        return all(word in text for word in self.q.casefold().split())


def _may_be_open(run: RunSummary, looks: Mapping[str, Look], closed: Container[tuple[str, int]]) -> bool:
    """Return whether a pull request waits for a person, as far as this machine knows."""
    if run.pull is None or (repository_key(run.repository), run.pull.number) in closed:
        return False
    look = looks.get(run.repository)
    known = look.pull(run.pull.number) if look is not None and not look.error else None
    return known is None or known.state is PullRequestState.OPEN


def _since(runs: Iterable[RunSummary], since: datetime) -> list[RunSummary]:
    return [run for run in runs if run.started is not None and (run.ended or run.started) >= since]


def _is_paused(newest_first: Sequence[RunSummary], now: datetime) -> bool:
    last = {repository_key(run.repository): run for run in reversed(newest_first)}
    return any(run.pause_at(now) or run.outcome == "paused" for run in last.values())


_WAITING = {TaskStatus.FAILED, TaskStatus.TESTS_FAIL}


def _needs(digest: Digest, kept: Mapping[tuple[str, str], str]) -> Iterable[WaitingItem]:
    """Yield what waits for a person: questions, then failed tasks, then pull requests whose tests do not pass."""
    for run in reversed(digest.questions):
        answer = kept.get((run.task.key if run.task else "", run.id), "")
        yield WaitingItem("question", run, run.question, answer=answer)
    for run, task, why in digest.waiting:
        yield WaitingItem("waits", run, why, task=task)
    waiting = {(repository_key(run.repository), task) for run, task, _ in digest.waiting}
    for one in digest.undone:
        if one.run.task is not None and (repository_key(one.run.repository), one.run.task.key) in waiting:
            continue
        if one.run.task is not None and status_of_outcome(one.run.outcome) in _WAITING:
            yield WaitingItem("failed", one.run, one.run.error or one.run.reason, one.times)
    for run in reversed(digest.pulls):
        if run.verified is not None and run.verified.is_red:
            yield WaitingItem("tests", run, "; ".join(run.verified.reasons))


def _without_work(week: Digest) -> Iterable[WaitingItem]:
    """Yield the tasks in which the model found nothing to do, and about which no person has decided since."""
    newest = {(repository_key(run.repository), run.task.key): run for run in week.runs if run.task}
    for run in newest.values():
        if run.outcome == "no_task" and not week.decision_since(run):
            yield WaitingItem("nothing", run, run.reason)


def _queue(week: Digest, now: datetime) -> list[tuple[str, list[tuple[str, int]]]]:
    """Return why tasks wait, by repository, according to its last cycle without a task."""
    newest = {
        repository_key(run.repository): run
        for run in week.runs
        if run.task is None and run.outcome == "no_task"
    }
    found = []
    for run in newest.values():
        skipped = Digest(week.since, now, (run,)).skipped
        reasons = [(reason, times) for reason, times in skipped if not _HAS_PULL.match(reason)]
        if reasons:
            found.append((run.repository, reasons[:_MOST_ROWS]))
    return sorted(found)


def _tiles(week: Digest, now: datetime, cap: DayCap, results: Results) -> Iterable[tuple[str, str, str]]:
    """Yield the figures of the last seven days, each with its name and a note."""
    pulls = len(week.pulls)
    # Including the possible cost of requests in progress, as the caps count it.
    today = sum((run.costs_by_day.get(now.date(), Spent()) for run in week.runs), Spent())
    since = (now - _WEEK).date()
    costs = [cost for run in week.runs for day, cost in run.costs_by_day.items() if day > since]
    spent = sum(costs, Spent())
    yield "Pull requests", f"{pulls:,}", "opened or updated in 7 days"
    yield (
        "Spent today",
        money(today.usd, "unknown"),
        f"of {money(cap.usd)} a day" if cap.usd else "no cap per day is set",
    )
    yield "Spent in 7 days", money(spent.usd, "unknown"), f"{spent.tokens:,} tokens"
    month = usd_of_a_month(spent, _WEEK)
    yield "A month at this rate", money(month, "unknown"), "if it goes on as in these 7 days"
    if results.merged:
        yield "Cost of a merged one", money(results.usd_each, "unknown"), str(results)
    elif pulls:
        each = None if spent.usd is None else spent.usd / pulls
        yield "Cost of a pull request", money(each, "unknown"), "none is known to be merged"


def _days(now: datetime) -> list[date]:
    """Return the days of a plot, in UTC like the caps."""
    return [(now - timedelta(days=back)).astimezone(UTC).date() for back in range(DAYS - 1, -1, -1)]


DayCosts: TypeAlias = "Mapping[tuple[str, date], Spent]"
"""Costs by repository and day (UTC)."""


def _costs_by_day(runs: Sequence[RunSummary], now: datetime) -> DayCosts:
    first = _days(now)[0]
    costs: dict[tuple[str, date], Spent] = {}
    for run in runs:
        for day, cost in run.costs_by_day.items():
            if day >= first:
                key = run.repository, day
                costs[key] = costs.get(key, Spent()) + cost
    return costs


def cost_plot(
    costs: DayCosts, now: datetime, cap: float | None, title: str = "Cost a day", least_top: float = 0.0
) -> Plot:
    """Return a plot of the total cost per day."""
    bars, unknown = [], 0
    for day in _days(now):
        spent = sum((cost for (_, when), cost in costs.items() if when == day), Spent())
        unknown += spent.usd is None
        value = spent.usd or 0.0
        bars.append(Bar(f"{day:%b %d}", (("active", value, f"{day:%b %d}: {money(spent.usd)}"),)))
    total = sum(bar.total for bar in bars)
    said = f"{money(total if total or not unknown else None)} in {DAYS} days"
    said += f"; the price of some replies is unknown on {counted(unknown, 'day')}" if unknown else ""
    line = (cap, f"cap {money(cap)}") if cap else None
    return Plot(title, said, bars, line, least_top=least_top)


def cost_plots(costs: DayCosts, now: datetime, cap: float | None) -> list[Plot]:
    """Return plots of the cost of each repository per day, the most expensive first, all with one scale.

    The cheapest ones beyond the limit share a plot.
    """
    totals: dict[str, float] = {}
    for (name, _), cost in costs.items():
        totals[name] = totals.get(name, 0.0) + (cost.usd or 0.0)
    names = sorted(totals, key=lambda name: (-totals[name], name))
    shown = names if len(names) <= _MOST_COST_PLOTS else names[: _MOST_COST_PLOTS - 1]
    parts = {name: {key: cost for key, cost in costs.items() if key[0] == name} for name in shown}
    top = max((cost.usd or 0.0 for part in parts.values() for cost in part.values()), default=0.0)
    plots = [cost_plot(part, now, cap, name, top) for name, part in parts.items()]
    if rest := set(names) - set(shown):
        others = {key: cost for key, cost in costs.items() if key[0] in rest}
        plots.append(cost_plot(others, now, None, f"{len(rest)} other repositories together", top))
    return plots


def _outcome_plot(runs: Sequence[RunSummary], now: datetime) -> Plot:
    counts: defaultdict[date, Counter[str]] = defaultdict(Counter)
    for run in runs:
        if run.started is not None:
            name = next((name for name, _, outcomes in _COLUMNS if run.outcome in outcomes), "")
            counts[run.started.date()][name] += bool(name)
    bars = [
        Bar(
            f"{day:%b %d}",
            tuple(
                (tone, float(number), f"{day:%b %d}: {number} {name}")
                for name, tone, _ in _COLUMNS
                if (number := counts[day][name])
            ),
        )
        for day in _days(now)
    ]
    sums = sum((counts[day] for day in _days(now)), Counter[str]())
    said = ", ".join(f"{sums[name]} {name}" for name, *_ in _COLUMNS) + f" in {DAYS} days"
    return Plot(
        "Outcomes a day", said, bars, names=[(tone, name) for name, tone, _ in _COLUMNS], is_money=False
    )


_STOPPED = {
    *("failed", "tests_fail", "paused", "limit", "interrupted", "unfinished", "damaged", "conflict"),
}


def _failures(runs: Sequence[RunSummary]) -> list[tuple[str, int, RunSummary]]:
    """Return why runs failed or stopped, grouped by reason without numbers, the most frequent first."""
    found: dict[str, tuple[str, int, RunSummary]] = {}
    for run in runs:
        if run.outcome in _STOPPED:
            why = short_line(run.error or run.reason or "the process died before the end", 160)
            kind = f"{run.outcome} {_DIGITS.sub('#', why)}"
            found[kind] = (why, found[kind][1] + 1 if kind in found else 1, run)
    return sorted(found.values(), key=lambda one: -one[1])[:_MOST_FAILURES]


def _costs(week: Digest) -> list[tuple[str, Spent, int]]:
    """Return each repository's cost and its number of pull requests."""
    spent: dict[str, Spent] = {}
    for (repository, _), cost in week.costs.items():
        spent[repository] = spent.get(repository, Spent()) + cost
    pulls = Counter(run.repository for run in week.pulls)
    return sorted(
        ((name, cost, pulls[name]) for name, cost in spent.items()), key=lambda one: -(one[1].usd or 0.0)
    )
