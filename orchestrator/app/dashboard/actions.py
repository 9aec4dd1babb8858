"""The actions of a person on the page: those of the command line, done by the same functions."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orchestrator
from orchestrator.app.options import flag_of
from orchestrator.app.wiring.repository import OnDisk, open_tasks, parse_place
from orchestrator.app.words import counted, short_line
from orchestrator.bot.forge.base import CheckState, FeedbackKind, PullRequestState
from orchestrator.bot.journal.reader import LOCK_FILE, is_alive
from orchestrator.bot.worker.task_states import TaskStatus
from orchestrator.core.errors import ConfigurationError, ForgeError, JournalError, PullwrightError
from orchestrator.core.repositories import PROGRAM, Commands

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from contextlib import AbstractContextManager
    from datetime import datetime

    from orchestrator.app.wiring.repository import OpenTasks
    from orchestrator.bot.forge.base import Check, Feedback, Forge, PullRequest
    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.worker.task_states import DecisionResult, TaskState
    from orchestrator.core.clock import Clock

VERBS = ("answer", "retry", "close", "release", "stop")
_BY_HAND = "by hand"
_MOST_LOOKED_AT = 20
_GOOD = frozenset({0, 3, 4, 5, 130})
"""The exit statuses of runs that did not fail: see `pullwright --help`."""
_MOST_LOG_BYTES = 20_000
_PRIVATE = 0o600
_MOST_PID_BYTES = 20


@dataclass(frozen=True, slots=True)
class PullState:
    """Our open pull request on its forge, with its checks and reviews in words.

    Attributes:
        is_red: whether a check failed.
    """

    pull: PullRequest
    checks: str = ""
    reviews: str = ""
    is_red: bool = False


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

    @property
    def merged(self) -> list[TaskState]:
        """The tasks whose pull request was merged."""
        return [state for state in self.states if state.status is TaskStatus.MERGED]

    def pull(self, number: int) -> PullRequest | None:
        """Return our pull request with this number."""
        known = [state.pull for state in self.states if state.pull is not None]
        return next((pull for pull in known if pull.number == number), None)


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
            place = parse_place(repository, "https://github.com")
        except PullwrightError:
            return False
        return isinstance(place, OnDisk) and place.is_repository

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
                shown = tuple(_pull_state(decisions.forge, pull) for pull in is_open[:_MOST_LOOKED_AT])
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

    def answer_command(self, repository: str, task: str, answer: str) -> list[str]:
        """Return the command that answers a task's question."""
        typed = [PROGRAM, "run", f"--repo={repository}", f"--task={task}", f"--answer={answer}"]
        return [*typed, *_as_flags(self.flags)]

    def _answer(self, repository: str, task: str, answer: str) -> str:
        """Start a run that continues with the answer, in a process that may outlive this one.

        Raises:
            ConfigurationError: the run cannot start, or failed at once.
        """
        if not answer.strip():
            raise ConfigurationError("the answer is empty: write what the model should know")
        if any(
            one.process.poll() is None and (one.repository, one.task) == (repository, task)
            for one in self.begun
        ):
            raise ConfigurationError(f"a run with an answer to {task} is in progress already")
        self.begun = [one for one in self.begun if (one.repository, one.task) != (repository, task)]
        log, process = self._begin(self.answer_command(repository, task, answer))
        begun = Answering(repository, task, process, log)
        self.begun.append(begun)
        try:
            status = process.wait(self.begin_seconds)
        except subprocess.TimeoutExpired:
            return f"the run that continues {task} has begun"
        said = _last_line(log)
        if status in _GOOD:
            return f"the run with the answer has ended: {said}"
        raise ConfigurationError(f"the run with the answer ended with status {status}: {said}")

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
            f"The run with your answer to {one.task} ended with status {status}: {_last_line(one.log)}"
            for one, status in ended
            if status is not None and status not in _GOOD
        ]

    def worker_of(self, run: str) -> int:
        """Return the id of the process that works on a run.

        Raises:
            JournalError: there is none.
        """
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
        """Ask the process of a run to end after its current round, like Ctrl+C.

        Raises:
            JournalError: there is no such process, or it cannot be asked.
        """
        pid = self.worker_of(run)
        try:
            os.kill(pid, signal.SIGINT)
        except OSError as error:
            raise JournalError(f"process {pid} cannot be told to end: {error.strerror or error}") from error
        return f"process {pid} was told to end; it finishes its round and keeps the work"

    def what(self, verb: str, fields: Mapping[str, str]) -> tuple[str, str]:
        """Return the effect of an action in a sentence, and the equivalent command.

        Raises:
            PullwrightError: the action is not possible.
        """
        repository, task = fields.get("repository", ""), fields.get("task", "")
        commands = Commands(repository)
        match verb:
            case "answer":
                command = shlex.join(self.answer_command(repository, task, "ANSWER"))
                return (
                    f"This begins a run that continues {task} with your answer. The model is asked again.",
                    command,
                )
            case "retry":
                return f"The next cycle may take {task} again.", commands.retry(task)
            case "close":
                number = fields.get("number", "")
                return (
                    f"This closes pull request #{number} without merging it.",
                    f"{PROGRAM} close {number} --repo {repository}",
                )
            case "release":
                return (
                    f"This takes {task} away from whoever holds it. What that worker has not pushed is not proposed.",
                    commands.release(task),
                )
            case "stop":
                pid = self.worker_of(fields.get("run", ""))
                return (
                    f"This tells process {pid} to end after the rounds that are running. A worker ends as a whole.",
                    f"kill -INT {pid}",
                )
            case _:
                raise ConfigurationError(f"there is no action {short_line(verb, 40)!r}")

    def do(self, verb: str, fields: Mapping[str, str]) -> str:
        """Carry out an action, and return what was done, in words.

        Raises:
            PullwrightError: it could not be done.
        """
        repository, task = fields.get("repository", ""), fields.get("task", "")
        match verb:
            case "answer":
                return self._answer(repository, task, fields.get("answer", ""))
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
                raise ConfigurationError(f"there is no action {short_line(verb, 40)!r}")


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


def _pull_state(forge: Forge, pull: PullRequest) -> PullState:
    try:
        checks, feedback = forge.checks(pull.commit), forge.feedback(pull.number)
    except ForgeError as error:
        return PullState(pull, f"not known: {error}")
    return PullState(
        pull,
        _checks_in_words(checks),
        _reviews_in_words(feedback),
        any(one.state is CheckState.FAILED for one in checks),
    )


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
