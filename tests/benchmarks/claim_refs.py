"""Claims under fire: processes race for tasks over HTTP; the server breaks down, and workers are killed.

Run with `python -m tests.benchmarks.claim_refs [--rounds N] [--workers 50] [--tasks 20]`. A round ends when
each task was done. A double holder is a fencing number that two have, or a task that two brought to its end.
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
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ClaimLostError, PushRejectedError, WorkspaceError
from orchestrator.workspace.claims import Claims, Lease, LeaseTimes
from orchestrator.workspace.credential import GitCredential
from orchestrator.workspace.hostgit import HostGit
from orchestrator.workspace.records import Records
from orchestrator.workspace.swap import Update
from tests.doubles.github.faults import Fault
from tests.doubles.github.server import GitHub

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_GIT = r"/o/r\.git/.*"
_PUSH = r"/o/r\.git/git-receive-pack"
_TIMES = LeaseTimes(lease_seconds=6.0, renew_seconds=0.5, skew_seconds=1.0)
# One request in so many, on average, goes wrong.
_REQUESTS_A_FAULT = 8
_LOOK_SECONDS = 0.02
# Of one worker, so that it lives long enough to do something.
_KILLS_PER_SECOND = 1 / 30
_MOST_ROUND_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Place:
    """What a worker must know."""

    url: str
    host: str
    token: str
    folder: Path
    tasks: Sequence[str]


def work(place: Place, name: str) -> None:
    """Take what is free and do it, until everything is done."""
    chance = random.Random(name)  # noqa: S311  no secret
    credential = GitCredential(place.host, "x-access-token", place.token)
    counter = itertools.count()
    with Records(place.folder / "scratch", place.url, lambda: credential) as records:
        claims = Claims(records, "bench", SystemClock(), _TIMES, lambda: f"{name}-{next(counter)}")
        while True:
            with contextlib.suppress(WorkspaceError):
                left = _left(place)
                if not left:
                    return
                _do(place, claims, records, chance.choice(left), name)


def _left(place: Place) -> list[str]:
    return [task for task in place.tasks if not (place.folder / f"{task}.done").exists()]


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
    (place.folder / f"{task}.done").touch()
    lease.release("proposed")


def _note(place: Place, fields: dict[str, object]) -> None:
    """One write of one line: lines of several processes do not mix."""
    with (place.folder / "notes").open("ab", buffering=0) as file:
        file.write(json.dumps(fields).encode() + b"\n")


@contextlib.contextmanager
def _trouble(github: GitHub, chance: random.Random) -> Iterator[None]:
    """Delays, 5xx and cut replies, all the time."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(_LOOK_SECONDS):
            if not any(fault.times > 0 for fault in github.faults):
                fault = chance.choice(
                    [
                        Fault("*", _GIT, delay=chance.uniform(0.05, 1.0)),
                        Fault("*", _GIT, status=chance.choice([500, 502, 503])),
                        Fault("POST", _PUSH, lost_reply=True),
                        Fault("POST", _PUSH, lost_reply=True, delay=chance.uniform(0.05, 1.0)),
                    ]
                )
                fault.skip = chance.randrange(2 * _REQUESTS_A_FAULT)
                github.faults[:] = [fault]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        github.faults.clear()


@dataclass(slots=True)
class Score:
    """What happened in all rounds so far."""

    rounds: int = 0
    taken: int = 0
    takeovers: int = 0
    killed: int = 0
    refused: int = 0
    doubles: int = 0
    forgotten: int = 0
    seconds: float = 0.0

    def lines(self) -> list[str]:
        """A table."""
        each = self.seconds / self.taken if self.taken else 0.0
        rows: list[tuple[str, object]] = [
            ("rounds", self.rounds),
            ("claims taken", self.taken),
            ("of them takeovers", self.takeovers),
            ("workers killed", self.killed),
            ("zombies refused", self.refused),
            ("double holders", self.doubles),
            ("tasks forgotten", self.forgotten),
            ("seconds per claim", f"{each:.2f}"),
        ]
        return [f"{name:<20}{value:>10}" for name, value in rows]


def play(github: GitHub, parent: Path, size: tuple[int, int], seed: int, score: Score) -> None:
    """One round. The size is that many workers and tasks."""
    workers, tasks = size
    chance = random.Random(seed)  # noqa: S311  no secret
    folder = Path(tempfile.mkdtemp(dir=parent))
    repository = github.repository("o/r") or github.add_repository("o/r")
    keys = [f"issue-{seed}-{number}" for number in range(tasks)]
    place = Place(
        f"{github.web_url}/o/r.git", github.web_url.partition("://")[2], github.token(), folder, keys
    )
    context = multiprocessing.get_context("forkserver")
    names = itertools.count()
    running: list[multiprocessing.process.BaseProcess] = []
    end = time.monotonic() + _MOST_ROUND_SECONDS
    with _trouble(github, chance):
        while _left(place) and time.monotonic() < end:
            running = [process for process in running if process.is_alive()]
            while len(running) < workers:
                process = context.Process(target=work, args=(place, f"run-{seed}-{next(names)}"))
                process.start()
                running.append(process)
            time.sleep(min(chance.expovariate(_KILLS_PER_SECOND * workers), 2.0))
            victim = chance.choice(running)
            if victim.pid is not None and victim.is_alive():
                os.kill(victim.pid, signal.SIGKILL)
                score.killed += 1
    for process in running:
        process.join(60)
        if process.is_alive():
            process.kill()
            process.join()
    _count(score, place, repository.path)
    shutil.rmtree(folder)


def _count(score: Score, place: Place, path: Path) -> None:
    notes = [json.loads(line) for line in (place.folder / "notes").read_bytes().splitlines()]
    taken = Counter(tuple(note["taken"]) for note in notes if "taken" in note)
    pushed = Counter(note["pushed"] for note in notes if "pushed" in note)
    score.rounds += 1
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
        for seed in range(options.rounds):
            play(github, Path(folder), (options.workers, options.tasks), seed, score)
    print("\n".join(score.lines()))
    sys.exit(1 if score.doubles or score.forgotten else 0)


if __name__ == "__main__":
    main()
