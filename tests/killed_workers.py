"""Worker processes that are started, killed and replaced until everything is done; and what came of it."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.reader import open_runs
from tests.chaos import LABEL, PRELOADED, REPOSITORY, Post, files, serve
from tests.doubles.github import bare
from tests.doubles.github.trouble import GIT, REST, trouble

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.context import ForkServerContext, ForkServerProcess
    from pathlib import Path

    from tests.doubles.github.server import GitHub

_LOOK_SECONDS = 0.3
# Every so manieth worker shares its machine with the first one.
_SHARING = 5
# Then somebody hangs, and that is to be seen instead of waited for.
_MOST_SECONDS = 540.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How many, and what befalls them.

    Attributes:
        kills: so many workers are killed at most.
        kills_per_second: while there are tasks left.
        claim_minutes: as the option.
        clock_minutes: how wrong the clock of the n-th worker is.
        faults: whether the server has any.
    """

    workers: int = 50
    tasks: int = 20
    kills: int = 12
    kills_per_second: float = 0.5
    claim_minutes: float = 0.25
    clock_minutes: Callable[[int], float] = lambda _number: 0.0
    faults: bool = True
    seed: int = 0


@dataclass(slots=True)
class Found:
    """What came of it. Tasks are named by their keys.

    Attributes:
        pulls: how many pull requests each task ever had; `branches` likewise.
        hidden: the hidden references at the end, and what the claims among them say.
        asked: the processes that paid for a request, for each task.
        unexplained: who paid for a task that somebody else did, and was neither killed nor failed.
        left: what lies in the machines' temporary folders.
        takeovers: claims of dead workers that others took.
    """

    pulls: Counter[str] = field(default_factory=Counter)
    branches: Counter[str] = field(default_factory=Counter)
    hidden: dict[str, str] = field(default_factory=dict)
    asked: dict[str, list[int]] = field(default_factory=dict)
    unexplained: list[Any] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    most_alive: int = 0
    killed: int = 0
    takeovers: int = 0
    seconds: float = 0.0

    def lines(self) -> str:
        """For people."""
        paid_again = sum(len(pids) - 1 for pids in self.asked.values())
        return (
            f"{self.most_alive} workers at once, {self.killed} killed, {len(self.pulls)} tasks, "
            f"{self.takeovers} takeovers, {paid_again} requests to the model paid again, {self.seconds:.0f} s"
        )


class KilledWorkers:
    """One run of a plan against a double. `folder` is where the machines are."""

    def __init__(self, github: GitHub, folder: Path, plan: Plan) -> None:
        self._plan, self._folder, self._github = plan, folder, github
        self._chance = random.Random(plan.seed)  # noqa: S311  no secret
        self._repo = github.add_repository(REPOSITORY, files(plan.tasks), private=True)
        for number in range(1, plan.tasks + 1):
            github.add_issue(self._repo, f"Task {number}", f"Mark task-{number}.txt, please.", [LABEL])
        self._over = folder / "over"
        self._notes = folder / "notes"
        self._notes.touch()
        self._first = Post(
            github.web_url, github.token(), self._notes, folder, self._over, plan.claim_minutes
        )
        self._context: ForkServerContext = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(PRELOADED))
        self._alive: dict[ForkServerProcess, Post] = {}
        self._started = 0
        self._killed: set[int] = set()
        self._found = Found()

    def run(self) -> Found:
        """Until every task has its pull request and every machine was started once more."""
        start = time.monotonic()
        noise = trouble(self._github, self._chance, GIT, REST) if self._plan.faults else nullcontext()
        try:
            with noise:
                while self._proposed() < self._plan.tasks and time.monotonic() < start + _MOST_SECONDS:
                    self._fill()
                    self._pass()
                    if self._is_kill_due():
                        self._kill()
            self._over.touch()
            self._end()
            self._revive()
        finally:
            for process in self._alive:
                process.kill()
                process.join()
        self._found.seconds = time.monotonic() - start
        return self._judged()

    def _proposed(self) -> int:
        return len({pull.head for pull in self._repo.pulls.values()})

    def _fill(self) -> None:
        """New workers on new machines, so that there are as many as there should be."""
        while len(self._alive) < self._plan.workers:
            number = self._started
            machine = self._folder / f"machine-{0 if number % _SHARING == 0 else number}"
            self._start(replace(self._first, machine=machine, clock_minutes=self._plan.clock_minutes(number)))
        self._found.most_alive = max(self._found.most_alive, len(self._alive))

    def _start(self, post: Post) -> ForkServerProcess:
        process = self._context.Process(target=serve, args=(post,))
        process.start()
        self._started += 1
        self._alive[process] = post
        return process

    def _pass(self, seconds: float = _LOOK_SECONDS) -> None:
        """Wait a moment, and forget who has died."""
        wait([process.sentinel for process in self._alive], seconds)
        self._alive = {process: post for process, post in self._alive.items() if process.is_alive()}

    def _is_kill_due(self) -> bool:
        """By chance; the first as soon as somebody works, as a fast machine may be through before chance strikes."""
        by_chance = self._chance.random() < self._plan.kills_per_second * _LOOK_SECONDS
        return by_chance or (self._plan.kills > 0 and not self._killed and bool(self._open_claims()))

    def _kill(self) -> None:
        """Kill one who works, or else anyone. Half of the machines start a worker again, the others are gone."""
        if len(self._killed) == self._plan.kills:
            return
        busy = {pid for _, pid in self._open_claims()}
        victims = [process for process in self._alive if process.pid in busy] or list(self._alive)
        victim = self._chance.choice(victims)
        if victim.pid is None or not victim.is_alive():
            return
        os.kill(victim.pid, signal.SIGKILL)
        self._killed.add(victim.pid)
        post = self._alive.pop(victim)
        victim.join()
        if self._chance.random() < 1 / 2:
            self._start(post)

    def _end(self) -> None:
        """Let all come to their end."""
        end = time.monotonic() + _MOST_SECONDS
        while self._alive and time.monotonic() < end:
            self._pass()

    def _revive(self) -> None:
        """A worker for one cycle on every machine that was left in the middle of something."""
        self._over.unlink()
        for machine in sorted(self._folder.glob("machine-*")):
            if any(open_runs(Home(machine / "home"))) or any((machine / "tmp").iterdir()):
                self._start(replace(self._first, machine=machine, cycles=1))
        self._end()

    def _open_claims(self) -> list[tuple[str, int]]:
        """Task and process of each cycle that has no end."""
        opened: dict[int, str] = {}
        for note in self._read():
            if "claimed" in note:
                opened[note["pid"]] = note["claimed"]
            elif "ended" in note:
                opened.pop(note["pid"], None)
        return [(task, pid) for pid, task in opened.items()]

    def _read(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._notes.read_bytes().splitlines()]

    def _judged(self) -> Found:
        found, notes = self._found, self._read()
        found.killed = len(self._killed)
        for pull in self._repo.pulls.values():
            found.pulls[_key(pull.head)] += 1
        for name in self._repo.branches():
            if name.startswith("pullwright/"):
                found.branches[_key(name)] += 1
        listed = bare.git(
            self._repo.path, "for-each-ref", "--format=%(refname) %(contents:lines=1)", "refs/pullwright/"
        )
        for ref in listed.splitlines():
            name = ref.partition(" ")[0]
            found.hidden[name] = bare.git(self._repo.path, "log", "-1", "--format=%B", name)
        for note in notes:
            if "asked" in note:
                found.asked.setdefault(note["asked"], []).append(note["pid"])
            found.takeovers += bool(note.get("claimed") and note["number"] > 1)
        failed = {
            (note["ended"], note["pid"])
            for note in notes
            if note.get("ended") and note["outcome"] != "proposed"
        }
        for task, pids in found.asked.items():
            whole = [pid for pid in pids if pid not in self._killed and (task, pid) not in failed]
            if len(whole) > 1:
                found.unexplained.append((task, whole, [note for note in notes if task in note.values()]))
        for machine in self._folder.glob("machine-*"):
            with suppress(FileNotFoundError):
                found.left += [str(path) for path in (machine / "tmp").iterdir()]
        return found


def _key(branch: str) -> str:
    return "-".join(branch.removeprefix("pullwright/").split("-")[:2])
