"""What people said about tasks on this machine, a line each: decisions, and answers to questions.

An answer is kept before a run begins with it. A run that cannot begin, or that another machine's worker is faster than, loses
nothing: the next run on the task goes on with it.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import DiskFullError, JournalError
from orchestrator.core.files import is_full, make_folder, sync_folder
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.journal.folders import Home


DECISIONS_FILE = "decisions.jsonl"
ANSWERS_FILE = "answers.jsonl"
_PRIVATE = 0o600
_MOST_BYTES = 4_000_000


@dataclass(frozen=True, slots=True)
class PersonDecision:
    """A person's decision about a task, by `retry`, `close` or `forget`.

    Attributes:
        state: the task's new state, as named by `cycle.task_state`.
        saved: the hidden ref of its unfinished work; empty if there is none.
    """

    at: datetime
    repository: str
    task: str
    state: str
    saved: str = ""


@dataclass(frozen=True, slots=True)
class PersonAnswer:
    """A person's answer to the question with which a run ended.

    Attributes:
        repository: where the task is, for people who read the file.
        run: the run that asked. The answer is for no other question.
    """

    at: datetime
    repository: str
    task: str
    run: str
    text: str


def note_decision(home: Home, decision: PersonDecision) -> None:
    """Store a decision, so that the digest shows it instead of the outcome of earlier runs."""
    _append(home, DECISIONS_FILE, decision)


def decisions(home: Home) -> dict[tuple[str, str], PersonDecision]:
    """Return the last decision about each task, by repository key and task key. Unreadable ones are left out."""
    found = {}
    for at, (repository, task, state, saved) in _read(
        home, DECISIONS_FILE, "repository", "task", "state", "saved"
    ):
        found[repository_key(repository), task] = PersonDecision(at, repository, task, state, saved)
    return found


def keep_answer(home: Home, answer: PersonAnswer) -> None:
    """Store an answer, for the next run on its task."""
    _append(home, ANSWERS_FILE, answer)


def answers(home: Home) -> dict[tuple[str, str], str]:
    """Return the last answer to each question, by task key and the run that asked.

    The id of a run is unique. A repository may be written in several ways.
    """
    return {(task, run): text for _, (task, run, text) in _read(home, ANSWERS_FILE, "task", "run", "text")}


def kept_answer(home: Home, task: str, run: str) -> str:
    """Return the last answer that was kept for the question of a run; empty if there is none."""
    return answers(home).get((task, run), "")


def _append(home: Home, file_name: str, what: Any) -> None:
    path = home.root / file_name
    line = json.dumps(asdict(what), default=datetime.isoformat)
    try:
        make_folder(home.root)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _PRIVATE)
        try:
            # One write to a file that is open for appending: lines of two processes do not mix.
            os.write(file, f"{line}\n".encode("ascii"))
            os.fsync(file)
        finally:
            os.close(file)
        sync_folder(home.root)
    except OSError as error:
        kind = DiskFullError if is_full(error) else JournalError
        raise kind(f"cannot write {path}: {error.strerror or error}") from error


def _read(home: Home, file_name: str, *names: str) -> Iterator[tuple[datetime, list[str]]]:
    """Yield the time and the named texts of each line, oldest first. Unreadable ones are left out."""
    try:
        with (home.root / file_name).open("rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - _MOST_BYTES, 0))
            lines = file.read(_MOST_BYTES).split(b"\n")
    except OSError:
        return
    for line in lines:
        try:
            data = json.loads(line)
            texts = [data[name] for name in names]
            at = datetime.fromisoformat(str(data["at"]))
        except (KeyError, TypeError, ValueError, RecursionError):
            continue
        if all(isinstance(text, str) for text in texts) and at.tzinfo is not None:
            yield at, texts
