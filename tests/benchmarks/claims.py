"""Claims under fire: processes race for tasks over HTTP; the server breaks down, and workers are killed.

Run with `python -m tests.benchmarks.claims [--rounds N] [--workers 50] [--tasks 20]`. So many tasks are open at
any time, and a round is so many that were done: the next ones begin while those of dead workers still expire.
Done twice is a fencing number that two have, or a task that two brought to its end.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.coordination.claim_record import LeaseTimes
from orchestrator.bot.coordination.claims import Claims, Lease
from orchestrator.bot.coordination.records import Records
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.remote import Update
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ClaimLostError, PushRejectedError, WorkspaceError
from orchestrator.core.redaction import Credential
from tests.doubles.github.server import GitHub
from tests.doubles.github.trouble import GIT, trouble

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_TIMES = LeaseTimes(lease_seconds=10.0, renew_seconds=0.5, skew_seconds=2.0)
# Loaded once and shared by all processes.
_PRELOADED = ["git", "orchestrator.bot.coordination.claims", "tests.doubles.github.server"]
_STRIKES_PER_SECOND = 0.4
_FROZEN_SECONDS = 20.0
# A worker rests so many times as long as its try took, so that some race and the machine is not flooded.
_MOST_REST = 20.0
_FIRST_REST_SECONDS = 10.0
# They share a repository; a server tells of all its references at every push.
_ROUNDS_A_GAME = 20
# Of silence: then somebody is lost, and that is to be seen instead of waited for.
_MOST_SILENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker must know. Of the tasks, the first `open_tasks` that are not done may be taken."""

    url: str
    host: str
    token: str
    folder: Path
    tasks: Sequence[str]
    open_tasks: int

    @property
    def done(self) -> Path:
        """A folder with a file for each task that was done."""
        return self.folder / "done"

    @property
    def busy(self) -> Path:
        """A folder with a file for each worker that does something."""
        return self.folder / "busy"

    def left(self) -> list[str]:
        """All tasks that are not done."""
        done = {path.name for path in self.done.iterdir()}
        return [task for task in self.tasks if task not in done]


def work(place: Place, name: str) -> None:
    """Take what is free and do it, until everything is done."""
    chance = random.Random(name)  # noqa: S311  no secret
    credential = Credential(place.host, "x-access-token", place.token)
    counter = itertools.count()
    time.sleep(chance.uniform(0.0, _FIRST_REST_SECONDS))
    with Records(place.folder / "scratch", place.url, lambda: credential) as records:
        claims = Claims(records, "bench", SystemClock(), _TIMES, lambda: f"{name}-{next(counter)}")
        while left := place.left()[: place.open_tasks]:
            start = time.monotonic()
            with contextlib.suppress(WorkspaceError), _busy(place):
                _do(place, claims, records, chance.choice(left), name)
            time.sleep((time.monotonic() - start) * chance.uniform(0.0, _MOST_REST))


@contextlib.contextmanager
def _busy(place: Place) -> Iterator[None]:
    """Who kills finds those who do something."""
    mark = place.busy / str(os.getpid())
    mark.touch()
    try:
        yield
    finally:
        mark.unlink()


def _do(place: Place, claims: Claims, records: Records, task: str, name: str) -> None:
    start = time.monotonic()
    lease = claims.take(task, name, unless=lambda record: record.outcome or None)
    if not isinstance(lease, Lease):
        return
    number = lease.record.number
    _note(place, {"taken": [task, number], "seconds": time.monotonic() - start})
    time.sleep(_TIMES.renew_seconds)
    try:
        lease.renew()
        git = HostGit(records.objects.parent.parent, records.objects.parent)
        made = records.commit(f"done by {name}, number {number}", None)
        lease.push(git, Update(f"refs/heads/{task}", None, made), doing="cannot push")
        _note(place, {"pushed": task})
    except ClaimLostError:
        _note(place, {"zombie": True})
        return
    except PushRejectedError:
        _note(place, {"found done": True})  # by a holder before, who died before he could say so
    (place.done / task).touch()
    lease.release("proposed")


def _note(place: Place, fields: dict[str, object]) -> None:
    """One write of one line: lines of several processes do not mix."""
    with (place.folder / "notes").open("ab", buffering=0) as file:
        file.write(json.dumps(fields).encode() + b"\n")


@dataclass(slots=True)
class Score:
    """What happened in all rounds so far."""

    rounds: int = 0
    done: int = 0
    taken: int = 0
    takeovers: int = 0
    killed: int = 0
    frozen: int = 0
    refused: int = 0
    doubles: int = 0
    forgotten: int = 0
    seconds: float = 0.0
    wall: float = 0.0

    def lines(self) -> list[str]:
        """A table."""
        each = self.seconds / self.taken if self.taken else 0.0
        rows: list[tuple[str, object]] = [
            ("rounds", self.rounds),
            ("tasks done", self.done),
            ("claims taken", self.taken),
            ("of them takeovers", self.takeovers),
            ("workers killed", self.killed),
            ("workers frozen", self.frozen),
            ("zombie pushes refused", self.refused),
            ("done twice", self.doubles),
            ("forgotten", self.forgotten),
            ("seconds per claim", f"{each:.2f}"),
            ("seconds per round", f"{self.wall / max(self.rounds, 1):.1f}"),
        ]
        return [f"{name:<22}{value:>10}" for name, value in rows]


class Crowd:
    """The worker processes, and what befalls them: some are killed, some frozen until their claims expired."""

    def __init__(self, chance: random.Random, score: Score) -> None:
        self.running: list[multiprocessing.process.BaseProcess] = []
        self._chance = chance
        self._score = score
        self._frozen: dict[int, float] = {}

    def size(self) -> int:
        """How many are alive."""
        self.running = [process for process in self.running if process.is_alive()]
        return len(self.running)

    def strike(self, place: Place) -> None:
        """Kill or freeze one, rather one that does something, and let go of those who froze for long enough."""
        now = time.monotonic()
        for pid in [pid for pid, until in self._frozen.items() if until < now]:
            self._signal(pid, signal.SIGCONT)
            del self._frozen[pid]
        alive = {process.pid for process in self.running if process.is_alive() and process.pid}
        busy = alive & {int(path.name) for path in place.busy.iterdir()} - set(self._frozen)
        pid = self._chance.choice(sorted(busy or alive))
        if self._chance.random() < 1 / 2:
            self._signal(pid, signal.SIGKILL)
            self._frozen.pop(pid, None)
            self._score.killed += 1
        elif pid not in self._frozen:
            self._signal(pid, signal.SIGSTOP)
            self._frozen[pid] = now + self._chance.uniform(0.0, _FROZEN_SECONDS)
            self._score.frozen += 1

    def close(self) -> None:
        """Let all come to their end."""
        for pid in self._frozen:
            self._signal(pid, signal.SIGCONT)
        for process in self.running:
            process.join(60)
            if process.is_alive():
                process.kill()
                process.join()

    def _signal(self, pid: int, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def play(github: GitHub, parent: Path, size: tuple[int, int], game: range, score: Score) -> None:
    """Some rounds in a repository of their own. The size is that many workers and tasks."""
    workers, tasks = size
    chance = random.Random(game.start)  # noqa: S311  no secret
    folder = Path(tempfile.mkdtemp(dir=parent))
    repository = github.add_repository(f"o/r{game.start}")
    keys = [f"issue-{number}-{task}" for number in game for task in range(tasks)]
    url = f"{github.web_url}/{repository.full_name}.git"
    place = Place(url, github.web_url.partition("://")[2], github.token(), folder, keys, tasks)
    place.done.mkdir()
    place.busy.mkdir()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    names = itertools.count()
    start = since = time.monotonic()
    seen, crowd = -1, Crowd(chance, score)
    with trouble(github, chance, GIT):
        while left := place.left():
            if len(left) != seen:
                seen, since = len(left), time.monotonic()
            if time.monotonic() > since + _MOST_SILENCE_SECONDS:
                break
            while crowd.size() < workers:
                process = context.Process(target=work, args=(place, f"run-{game.start}-{next(names)}"))
                process.start()
                crowd.running.append(process)
            time.sleep(min(chance.expovariate(_STRIKES_PER_SECOND), 5.0))
            crowd.strike(place)
    score.wall += time.monotonic() - start
    crowd.close()
    score.rounds += len(game)
    _count(score, place, repository.path)
    shutil.rmtree(folder)
    shutil.rmtree(repository.path)
    github.repositories.remove(repository)
    github.requests.clear()


def _count(score: Score, place: Place, path: Path) -> None:
    notes = [json.loads(line) for line in (place.folder / "notes").read_bytes().splitlines()]
    taken = Counter(tuple(note["taken"]) for note in notes if "taken" in note)
    pushed = Counter(note["pushed"] for note in notes if "pushed" in note)
    score.done += len(place.tasks) - len(place.left())
    score.taken += taken.total()
    score.takeovers += sum(number > 1 for _, number in taken)
    score.refused += sum("zombie" in note for note in notes)
    score.seconds += sum(note.get("seconds", 0.0) for note in notes)
    # Each fencing number has one holder, and one holder of a task brings it to its end.
    score.doubles += sum(count > 1 for count in (*taken.values(), *pushed.values()))
    git = HostGit(place.folder, path)
    found = git.run("for-each-ref", "--format=%(refname)", "refs/heads/", doing="cannot count").decode()
    score.forgotten += len({f"refs/heads/{task}" for task in place.tasks} - set(found.split()))


def main() -> None:
    """Play, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=50)
    parser.add_argument("--tasks", type=int, default=20)
    options = parser.parse_args()
    score = Score()
    with tempfile.TemporaryDirectory() as folder, GitHub(Path(folder) / "github") as github:
        for first in range(0, options.rounds, _ROUNDS_A_GAME):
            game = range(first, min(first + _ROUNDS_A_GAME, options.rounds))
            play(github, Path(folder), (options.workers, options.tasks), game, score)
            print("\n".join(score.lines()), end="\n\n", flush=True)
    sys.exit(1 if score.doubles or score.forgotten else 0)


if __name__ == "__main__":
    main()
