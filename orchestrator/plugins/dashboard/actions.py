"""The actions of a person on the page: those of the command line on tasks and on the fleet, done by the same functions.

An action that is not possible, or cannot be done, raises a `PullwrightError`.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import orchestrator
from orchestrator.app.options import flag_of
from orchestrator.app.plugins import absence_of
from orchestrator.app.terminal import known_secrets
from orchestrator.app.wiring.repository import disk_place, open_tasks
from orchestrator.app.words import clean, counted, short_line
from orchestrator.bot.forge.base import CheckState, FeedbackKind, PullRequestState
from orchestrator.bot.journal.notes import PersonAnswer, keep_answer
from orchestrator.bot.journal.reader import LOCK_FILE, is_alive
from orchestrator.bot.suggestions import PROGRAM, Commands, install_command
from orchestrator.bot.worker.candidates import upkeep_in_words
from orchestrator.core.errors import ConfigurationError, FleetError, ForgeError, JournalError, PullwrightError
from orchestrator.core.messages import Spent
from orchestrator.plugins.dashboard.overview import Look, Plot, PullState, cost_plot, cost_plots

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import date, datetime

    from orchestrator.app.wiring.repository import OpenTasks
    from orchestrator.bot.forge.base import Check, Feedback, PullRequest
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.worker.task_decisions import DecisionResult, TaskDecisions
    from orchestrator.core.clock import Clock
    from orchestrator.plugins.fleet.control import CommandResult, FleetSnapshot
    from orchestrator.plugins.fleet.store import FleetStore
    from orchestrator.plugins.fleet.turns import DailyCost


_BY_HAND = "by hand"
_MOST_LOOKED_AT = 20
_GOOD = frozenset({0, 3, 4, 5, 6, 130})
"""The exit statuses of runs that did not fail: see `pullwright --help`."""
_MOST_LOG_BYTES = 20_000
_PRIVATE = 0o600
_MOST_PID_BYTES = 20


@dataclass(slots=True)
class Answering:
    """A run that continues a task with a person's answer."""

    repository: str
    task: str
    process: subprocess.Popen[bytes]
    log: Path


@dataclass(slots=True)
class TaskActions:
    """Reads repositories and decides about their tasks, like the commands that a person types.

    Attributes:
        flags: the typed options; they apply to every repository.
        begin_seconds: time to wait for a run with an answer, which may fail at once.
        begun: the runs that were started with an answer.
    """

    home: Home
    flags: Mapping[str, Any]
    environ: Mapping[str, str]
    cwd: Path
    clock: Clock
    begin_seconds: float = 3.0
    begun: list[Answering] = field(default_factory=list)

    def is_local(self, repository: str) -> bool:
        """Return whether a repository is on this disk, so that no server has to be asked about it."""
        try:
            place = disk_place(repository)
        except PullwrightError:
            return False
        return place is not None and place.is_repository

    def look(self, repository: str) -> Look:
        """Read the tasks of a repository from its remote and its forge."""
        now, is_local = self.clock.now(), self.is_local(repository)
        try:
            with self._open(repository, writes=False) as tasks:
                decisions = tasks.decisions
                try:
                    states = decisions.states()
                except ForgeError:
                    states = decisions.states(with_pulls=False)
                pulls = [state.pull for state in states if state.pull is not None]
                is_open = [pull for pull in pulls if pull.state is PullRequestState.OPEN]
                shown = tuple(_pull_state(decisions, pull) for pull in is_open[:_MOST_LOOKED_AT])
                held = tuple(state.key for state in states if state.claim and decisions.is_held(state.claim))
            return Look(repository, now, tuple(states), shown, held, is_local=is_local)
        except PullwrightError as error:
            return Look(repository, now, error=str(error), is_local=is_local)

    def _open(self, repository: str, *, writes: bool) -> AbstractContextManager[OpenTasks]:
        return open_tasks(repository, self.flags, self.environ, self.cwd, writes=writes)

    def _release(self, tasks: OpenTasks, task: str) -> str:
        claims = tasks.decisions.claims
        shown = claims.show(task)
        released = claims.release(task, _BY_HAND, shown) if shown is not None else None
        if released is None:
            return f"nobody holds {task}"
        return f"released {task}, held by {released.owner}; its next push is refused"

    def answer_command(self, repository: str, task: str, answer: str = "") -> list[str]:
        """Return the command that goes on with a task, with the answer to its question unless that is kept."""
        typed = [PROGRAM, "run", f"--repo={repository}", f"--task={task}"]
        return [*typed, *([f"--answer={answer}"] if answer else []), *_as_flags(self.flags)]

    def _answer(self, repository: str, task: str, run: str, answer: str) -> str:
        """Keep the answer, then start a run that continues with it, in a process that may outlive this one."""
        if not answer.strip():
            raise ConfigurationError("the answer is empty: write what the model should know")
        kept = PersonAnswer(self.clock.now(), repository, task, run, answer)
        keep_answer(self.home, known_secrets(self.environ).redact_value(kept))
        if any(
            one.process.poll() is None and (one.repository, one.task) == (repository, task)
            for one in self.begun
        ):
            raise ConfigurationError(
                f"your answer is kept, but a run with an earlier answer to {task} is in progress already"
            )
        self.begun = [one for one in self.begun if (one.repository, one.task) != (repository, task)]
        log, process = self._begin(self.answer_command(repository, task))
        begun = Answering(repository, task, process, log)
        self.begun.append(begun)
        try:
            status = process.wait(self.begin_seconds)
        except subprocess.TimeoutExpired:
            return f"your answer is kept, and a run that continues {task} with it starts"
        said = _last_line(log)
        if status in _GOOD:
            return f"the run with your answer has ended: {said}"
        raise ConfigurationError(
            f"your answer is kept, and the next run on {task} goes on with it; the one that was started here ended with "
            f"status {status}: {said}"
        )

    def _begin(self, typed: list[str]) -> tuple[Path, subprocess.Popen[bytes]]:
        """Start this program with typed arguments. Return its log file and its process."""
        folder = self.home.cache / "answers"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = folder / f"{self.clock.now():%Y%m%d-%H%M%S-%f}.log"
        package = str(Path(orchestrator.__file__).parent.parent)
        paths = [package, *filter(None, [self.environ.get("PYTHONPATH")])]
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _PRIVATE)
        try:
            process = subprocess.Popen(  # noqa: S603  our own program
                [sys.executable, "-m", "orchestrator", *typed[1:], "--plain"],
                cwd=self.cwd,
                env={**self.environ, "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=handle,
                stderr=handle,
                start_new_session=True,
            )
        finally:
            os.close(handle)
        return log, process

    def failed_answers(self) -> list[str]:
        """Return one line for each failed run that was started with an answer."""
        ended = [(one, one.process.poll()) for one in self.begun]
        return [
            f"The run with your answer to {one.task} ended with status {status}. Your answer is kept: "
            f"the next run goes on with it. {_last_line(one.log)}"
            for one, status in ended
            if status is not None and status not in _GOOD
        ]

    def worker_of(self, run: str) -> int:
        """Return the id of the process that works on a run."""
        folder = self.home.runs / run
        try:
            pid = int((folder / LOCK_FILE).read_bytes()[:_MOST_PID_BYTES])
        except (OSError, ValueError):
            pid = 0
        # The lock shows that a process works on the run; that process wrote the number.
        if pid <= 1 or not is_alive(folder):
            raise JournalError(f"no process works on the run {run}")
        return pid

    def _stop(self, run: str) -> str:
        """Ask the process of a run to end after its current round, like Ctrl+C."""
        pid = self.worker_of(run)
        try:
            os.kill(pid, signal.SIGINT)
        except OSError as error:
            raise JournalError(f"process {pid} cannot be told to end: {error.strerror or error}") from error
        return f"process {pid} was told to end; it finishes its round and keeps the work"

    def what(self, verb: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Return the effect of an action in a sentence, and the equivalent command."""
        repository, task = fields.get("repository", ""), fields.get("task", "")
        commands = Commands(repository)
        match verb:
            case "answer":
                what = f"This keeps your answer, and begins a run that continues {task} with it. The model is asked again."
                return what, shlex.join(self.answer_command(repository, task, "ANSWER"))
            case "retry":
                return f"The next cycle may take {task} again.", commands.retry(task)
            case "close":
                number = fields.get("number", "")
                what = f"This closes pull request #{number} without merging it."
                return what, f"{PROGRAM} close {number} --repo {repository}"
            case "release":
                what = f"This takes {task} away from whoever holds it. What that worker has not pushed is not proposed."
                return what, commands.release(task)
            case "stop":
                pid = self.worker_of(fields.get("run", ""))
                what = f"This tells process {pid} to end after the rounds that are running. A worker ends as a whole."
                return what, f"kill -INT {pid}"
            case _:
                raise _no_such_action(verb)

    def do(self, verb: str, fields: Mapping[str, str]) -> str:
        """Carry out an action, and return what was done, in words."""
        repository, task = fields.get("repository", ""), fields.get("task", "")
        match verb:
            case "answer":
                return self._answer(repository, task, fields.get("run", ""), fields.get("answer", ""))
            case "retry":
                with self._open(repository, writes=True) as tasks:
                    return _noted(tasks, tasks.decisions.retry(tasks.decisions.find(task)))
            case "close":
                number = fields.get("number", "")
                if not (number.isascii() and number.isdigit()):
                    raise ConfigurationError(f"{short_line(number, 40)!r} is not a pull request's number")
                with self._open(repository, writes=True) as tasks:
                    return _noted(tasks, tasks.decisions.close(int(number[:20])))
            case "release":
                with self._open(repository, writes=True) as tasks:
                    return self._release(tasks, task)
            case "stop":
                return self._stop(fields.get("run", ""))
            case _:
                raise _no_such_action(verb)


def _no_such_action(verb: str) -> ConfigurationError:
    return ConfigurationError(f"there is no action {short_line(verb, 40)!r}")


def _noted(tasks: OpenTasks, decided: DecisionResult) -> str:
    if decided.changed:
        tasks.note(decided)
    return decided.words


def _as_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return options as a person types them."""
    flags = []
    for key, value in settings.items():
        if isinstance(value, bool):
            flags.append(flag_of(key) if value else f"--no-{flag_of(key)[2:]}")
        else:
            flags += [
                f"{flag_of(key)}={item}" for item in (value if isinstance(value, list | tuple) else [value])
            ]
    return flags


def _last_line(log: Path) -> str:
    try:
        lines = log.read_bytes()[-_MOST_LOG_BYTES:].decode("utf-8", "replace").strip().splitlines()
    except OSError:
        lines = []
    return short_line(lines[-1].removeprefix(f"{PROGRAM}: "), 400) if lines else "it said nothing"


def _pull_state(decisions: TaskDecisions, pull: PullRequest) -> PullState:
    forge = decisions.forge
    try:
        checks, feedback = forge.checks(pull.commit), forge.feedback(pull.number)
        upkeep = upkeep_in_words(pull, feedback, forge.own_login(), decisions.backlog.limits.review_rounds)
    except ForgeError as error:
        return PullState(pull, f"not known: {error}")
    return PullState(pull, _checks_in_words(checks), _reviews_in_words(feedback), upkeep)


def _checks_in_words(checks: Collection[Check]) -> str:
    counts = [(sum(one.state is state for one in checks), state.value) for state in CheckState]
    return ", ".join(f"{count} {name}" for count, name in counts if count) or "no checks"


def _reviews_in_words(feedback: Iterable[Feedback]) -> str:
    verdicts: dict[str, str] = {}
    comments = 0
    for one in feedback:
        if one.kind is FeedbackKind.REVIEW and one.state in {"approved", "changes_requested"}:
            verdicts[one.author] = one.state
        else:
            comments += bool(one.body.strip())
    approved = sum(state == "approved" for state in verdicts.values())
    told = [f"{approved} approved"] if approved else []
    told += [f"{len(verdicts) - approved} want changes"] if len(verdicts) > approved else []
    told += [counted(comments, "comment")] if comments else []
    return ", ".join(told) or "no reviews"


T = TypeVar("T")
_FLEET_PREFIX = "fleet-"
"""The beginning of the names of actions in forms."""
FLEET_VERBS = tuple(f"{_FLEET_PREFIX}{name}" for name in ("add", "pause", "resume", "cancel", "drain"))
_READING_SECONDS = 1.5
"""Time for which a reading of the database is used again."""
_DATABASE_SECONDS = 5.0
"""Time that a page waits for the database."""
_FLEET_EFFECTS = {
    "add": "This has the repository looked at now.",
    "pause": "No new cycle begins on the repository. Cycles that run go on to their end.",
    "resume": "New cycles may begin on the repository again.",
    "cancel": "This ends the repository's current or next cycle, and goes on with another task. Work is kept.",
    "drain": "The worker ends after the rounds that it runs.",
}


@dataclass(frozen=True)
class FleetView:
    """The content of the fleet's page.

    Attributes:
        snapshot: the last successful reading of the database; None if there was none.
        error: why the database could not be read; empty if it could.
    """

    now: datetime
    snapshot: FleetSnapshot | None = None
    error: str = ""

    @property
    def plots(self) -> list[Plot]:
        """The cost of each repository per day."""
        return cost_plots(self._costs(), self.now, None)

    @property
    def plot(self) -> Plot:
        """The total cost per day, with the cap."""
        return cost_plot(self._costs(), self.now, self.snapshot.day_cap if self.snapshot else None)

    @property
    def _daily(self) -> Sequence[DailyCost]:
        return self.snapshot.costs if self.snapshot else ()

    def _costs(self) -> dict[tuple[str, date], Spent]:
        return {(one.repository, one.day): Spent(usd=one.usd) for one in self._daily}

    def total(self, repository: str) -> tuple[int, float]:
        """Return a repository's number of cycles and cost, including reservations, over all shown days."""
        return self._sums.get(repository, (0, 0.0))

    def today(self, repository: str) -> tuple[int, float]:
        """Return a repository's number of cycles and cost today (UTC)."""
        return self._today.get(repository, (0, 0.0))

    @cached_property
    def _sums(self) -> dict[str, tuple[int, float]]:
        return _sums(self._daily)

    @cached_property
    def _today(self) -> dict[str, tuple[int, float]]:
        day = self.now.astimezone(UTC).date()
        return _sums(one for one in self._daily if one.day == day)


def _sums(costs: Iterable[DailyCost]) -> dict[str, tuple[int, float]]:
    sums: dict[str, tuple[int, float]] = {}
    for one in costs:
        cycles, usd = sums.get(one.repository, (0, 0.0))
        sums[one.repository] = cycles + one.cycles, usd + one.usd
    return sums


@dataclass(slots=True)
class FleetActions:
    """Reads a fleet's database and carries out actions. The database library is imported at the first use.

    The database is used in separate threads, so that a database without an answer delays nothing else.

    Attributes:
        find: returns the database's URL; raises `ConfigurationError` if there is none.
    """

    find: Callable[[], str]
    clock: Clock
    answer_seconds: float = _DATABASE_SECONDS
    _store: FleetStore | None = None
    _seen: FleetView | None = None
    _looking: asyncio.Future[FleetView] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    async def view(self) -> FleetView:
        """Return the content of the database, not older than `_READING_SECONDS`, or why it cannot be read."""
        now = self.clock.now()
        if self._seen is not None and (now - self._seen.now).total_seconds() < _READING_SECONDS:
            return self._seen
        if self._looking is None or self._looking.done():
            self._looking = self._in_thread(self._look)
        try:
            return await asyncio.wait_for(asyncio.shield(self._looking), self.answer_seconds)
        except TimeoutError:
            known = self._seen.snapshot if self._seen else None
            return FleetView(now, known, "the fleet's database does not answer")

    def _look(self) -> FleetView:
        now = self.clock.now()
        try:
            store = self._opened()
            from orchestrator.plugins.fleet.control import read_snapshot

            self._seen = FleetView(now, read_snapshot(store))
        except ModuleNotFoundError as error:
            return FleetView(
                now, None, f"the page of the fleet needs the package {error.name}: {install_command('fleet')}"
            )
        except PullwrightError as error:
            self._seen = FleetView(now, self._seen.snapshot if self._seen else None, str(error))
        return self._seen

    def _opened(self) -> FleetStore:
        if absent := absence_of("fleet"):
            raise ConfigurationError(absent)
        from orchestrator.plugins.fleet.store import FleetStore

        if self._store is None:
            store = FleetStore(self.find(), self.clock, redactor=known_secrets(os.environ))
            try:
                store.open()
            except FleetError:
                store.close()
                raise
            self._store = store
        return self._store

    def what(self, verb: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Return the effect of an action in a sentence, and the equivalent command."""
        name = _fleet_action(verb)
        words = [PROGRAM, "fleet", name, *_fleet_subject(name, fields)]
        if name == "pause":
            words.append(f"--reason={fields.get('reason') or _BY_HAND}")
        sentence = _FLEET_EFFECTS[name]
        if name == "add" and fields.get("task"):
            sentence = f"This tries {fields['task']} next, in place of what the repository waits for."
        return sentence, shlex.join(words)

    async def do(self, verb: str, fields: Mapping[str, str]) -> str:
        """Carry out an action, and return what was done, in words."""
        name = _fleet_action(verb)
        steered = await self._in_thread(lambda: self._steer(name, fields))
        self.forget()
        said = f"{_fleet_subject(name, fields)[0]} {steered.words}"
        if not steered.is_done:
            raise FleetError(said)
        return said

    def forget(self) -> None:
        """Discard the last reading."""
        self._seen = None

    def _steer(self, name: str, fields: Mapping[str, str]) -> CommandResult:
        store, (subject, *task) = self._opened(), _fleet_subject(name, fields)
        from orchestrator.plugins.fleet import control

        match name:
            case "add":
                return control.add(store, subject, *task)
            case "pause":
                return control.pause(store, subject, clean(fields.get("reason") or _BY_HAND))
            case "resume":
                return control.resume(store, subject)
            case "cancel":
                return control.cancel(store, subject)
            case _:
                return control.drain(store, subject)

    def _in_thread(self, call: Callable[[], T]) -> asyncio.Future[T]:
        """Call a function in a daemon thread. Only one call runs at a time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def tell(result: T | None, error: Exception | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)  # type: ignore[arg-type]

        def run() -> None:
            result, caught = None, None
            with self._lock:
                try:
                    result = call()
                except Exception as error:  # noqa: BLE001  the awaiting code raises it
                    caught = error
            with suppress(RuntimeError):  # the program has ended meanwhile
                loop.call_soon_threadsafe(tell, result, caught)

        threading.Thread(target=run, name="fleet", daemon=True).start()
        return future

    def close(self) -> None:
        """Close the database, unless a thread is using it."""
        if self._lock.acquire(blocking=False) and self._store is not None:
            self._store.close()


def _fleet_action(verb: str) -> str:
    if verb not in FLEET_VERBS:
        raise _no_such_action(verb)
    return verb.removeprefix(_FLEET_PREFIX)


def _fleet_subject(name: str, fields: Mapping[str, str]) -> list[str]:
    """Return the object of an action: a worker, or a repository and perhaps a task."""
    if name == "drain":
        return [fields.get("worker", "")]
    task = fields.get("task", "") if name == "add" else ""
    return [fields.get("repository", ""), *([task] if task else [])]
