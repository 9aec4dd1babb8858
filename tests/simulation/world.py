"""One world in one process: workers on machines, tasks, people, a model, and what goes wrong. Nothing is real but the code."""

from __future__ import annotations

import asyncio
import random
import resource
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from orchestrator.app.config.settings import load_settings
from orchestrator.app.options import all_options
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.cycle_parts import RunParts, Safeguards
from orchestrator.app.wiring.guards import GuardMaker
from orchestrator.app.wiring.model import ChosenModel
from orchestrator.app.wiring.program import Program
from orchestrator.app.wiring.repository import Site, Source, kept_work, lease_times
from orchestrator.bot.coordination.budget import CycleBudget, RepositoryLedger
from orchestrator.bot.coordination.claim_record import CLAIMS, parse_claim
from orchestrator.bot.coordination.claims import Claims
from orchestrator.bot.coordination.records import Records, RemoteRecord
from orchestrator.bot.cycle.earlier import MOST_ATTEMPTS
from orchestrator.bot.cycle.parts import Assignment, Stop
from orchestrator.bot.cycle.tasks import key_of
from orchestrator.bot.forge.base import PullRequestState
from orchestrator.bot.git.base import Identity
from orchestrator.bot.journal.folders import JOURNAL_FILE, Home, create_run_folder, new_run_id
from orchestrator.bot.journal.reader import is_open, lock_run
from orchestrator.bot.journal.records import EventBus, JournalWriter
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker.backlog import Backlog, TaskSelection
from orchestrator.bot.worker.task_decisions import TaskDecisions
from orchestrator.bot.worker.worker import CycleTiming, NextStepChooser, Waiter, work
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, TaskTaken
from orchestrator.core.errors import (
    ForgeUnavailableError,
    PullwrightError,
    PushRejectedError,
    RemoteUnavailableError,
)
from orchestrator.core.events import InputReceived, ReasoningDelta, TextDelta, ToolCallEnded, ToolOutputDelta
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.memory_git import (
    ADDRESS,
    MemoryGit,
    MemoryRemote,
    Move,
    open_memory_clone,
    reopen_memory_clone,
)
from tests.doubles.world_forge import WRITER, FarForge, WorldForge
from tests.simulation.model import WRITTEN, ScriptedModel, files_of
from tests.simulation.plan import (
    CHECKS_STEP,
    CLAIM_MINUTES,
    LABEL,
    MOST_SECONDS,
    MOST_STARTS,
    RECOVERY,
    REVIEW_STEP,
    WITHDRAWING,
    Act,
    Kind,
)
from tests.simulation.scheduler import Scheduler, VirtualLock, VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orchestrator.app.config.settings import Loaded, Settings
    from orchestrator.bot.coordination.claim_record import ClaimRecord
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.forge.base import Forge
    from orchestrator.bot.worker.recovery import Recovery
    from orchestrator.core.events import Event
    from orchestrator.engine.models.base import Response
    from tests.simulation.plan import Deed, Incident, Plan, Task
    from tests.simulation.scheduler import Thread

T = TypeVar("T")
TAKEN_OFF = "hosts.txt"
"""The file that a person takes off the base."""
START = datetime(2026, 1, 5, 9, tzinfo=UTC)
_OWN = Identity("Pullwright", "bot@example.com")
_UNWRITTEN = (TextDelta, ReasoningDelta, ToolOutputDelta, InputReceived)
_REST_SECONDS = 300.0
_LONG_REST_SECONDS = 2700.0  # longer than a claim whose holder is dead, with what clocks may differ
_QUIET_STARTS = 2
_OTHER_RUNS = 250
_QUIET_MINUTES = 15.0  # a review is a task only after some minutes


_SAID = {Act.COMMENT: "Please keep it short.", Act.ANSWER: "Do it as you like."}
_ON_ISSUES = {Act.COMMENT, Act.CLOSE, Act.UNLABEL, Act.ANSWER, Act.STOP, Act.ASSIGN, Act.RIVAL}


class Killed(BaseException):
    """The process is dead. Whatever runs on its way out has no effect."""


@cache
def settings_of(flags: tuple[tuple[str, Any], ...]) -> Loaded:
    """Return the settings of a worker."""
    own = {
        "model": "openai-chat:canned",
        "api_url": "http://127.0.0.1:9",
        "github_url": "https://github.com",
        "label": LABEL,
        "claim_minutes": CLAIM_MINUTES,
        "max_open_prs": 100,
        "max_prs_per_day": 1000,
        "max_unreviewed": 100,
        "context_chars": 1000,
        "mirror": False,
        "stream": False,
        "disable_skills": True,
        "repository_memory": False,
        "author_email": _OWN.email,
        "author_name": _OWN.name,
    }
    there = {key: value for key, value in own.items() if key in all_options()}
    return load_settings({**there, **dict(flags)}, {"PULLWRIGHT_CONFIG": "/dev/null"}, Path("/nonexistent"))


@dataclass(slots=True)
class Machine:
    """A computer. A lost one is replaced by a new one with an empty disk.

    Attributes:
        home: where the program keeps its state.
        temporary: where clones are made.
    """

    number: int
    root: Path
    name: str
    skew: timedelta = timedelta(0)
    full_until: float = 0.0
    home: Path = field(init=False)
    temporary: Path = field(init=False)

    def __post_init__(self) -> None:
        self.home, self.temporary = self.root / "home", self.root / "tmp"


@dataclass(slots=True)
class Paid:
    """A request to the model that was answered, and with that paid for.

    Attributes:
        step: what it was paid for; 0 is for the pull request.
        was_there: whether a ref of the task already had the result.
        moves: so many refs had moved before.
        is_done: whether the calls of the reply were carried out and recorded.
    """

    task: int
    step: int
    run: str
    machine: str
    was_there: bool
    moves: int
    is_done: bool = False


@dataclass(slots=True)
class Ended:
    """A cycle that ended by itself."""

    machine: str
    result: CycleResult


class Observer(Protocol):
    """Looks at a world while it runs."""

    def moved(self, move: Move) -> None:
        """See a ref that has moved."""

    def forget(self, key: str) -> None:
        """Expect nothing any more that was saved of a task."""


class World:
    """A world that runs a plan to its end.

    Attributes:
        unwanted: tasks that nobody wants any more, and since when.
        came_back: refs that moved to a history with that commit, and when.
        fixed: tasks whose change a person pushed to the base.
        taken_off: the commit of the base whose file a person took off; empty if nobody did.
        reviewed: by task, the steps that people asked for on its pull request.
        dropped: those of them whose saved work a person deleted; what was said on the page stays handled.
        counts: how often each place was passed.
        struck: the incidents that happened.
        observers: told what happens.
        on_moment: called where a process may die: before a request with `KILLED_BEFORE`, and with `KILLED` after a
            request was carried out or a record was written.
    """

    def __init__(self, plan: Plan, folder: Path, *, program: type[SimulatedProgram] | None = None) -> None:
        self.plan, self.folder = plan, folder
        self.program = program or SimulatedProgram
        self.scheduler = Scheduler()
        self.scheduler.on_switch = self._enter
        self.pace = random.Random(plan.pace)  # noqa: S311  no secret
        self.ids = random.Random(plan.pace)  # noqa: S311  no secret
        self.server = MemoryRemote()
        self.forge = WorldForge(self.server, self.now, ADDRESS)
        self.machines: dict[int, Machine] = {}
        self.lives: dict[Thread, Life] = {}
        self.counts: dict[str, int] = {}
        self.struck: list[Incident] = []
        self._pending = [(incident, [incident.nth]) for incident in plan.incidents]
        self._earlier: dict[str, tuple[Any, Any]] = {}
        self.requests: Counter[str] = Counter()
        self.refused: Counter[int] = Counter()
        self.paid: list[Paid] = []
        self.ended: list[Ended] = []
        self.people: set[int] = set()
        self.reviewed: dict[int, set[int]] = {}
        self.dropped: dict[int, set[int]] = {}
        self.starts = 0
        self.is_endless = False
        self.taken_off = ""
        self.came_back: list[tuple[str, datetime]] = []
        self.rewritten_at: datetime | None = None
        self.unwanted: dict[int, datetime] = {}
        self.fixed: set[int] = set()
        self.changes = 0
        self.trace: list[str] = []
        self.observers: list[Observer] = []
        self.on_moment: Callable[[Life, Kind], None] = lambda _life, _kind: None
        self.server.on_move = self._moved
        self.server.refuse = self._refuse
        self._begin()

    def now(self) -> datetime:
        """Return the true time."""
        return START + timedelta(seconds=self.scheduler.now)

    def note(self, text: str) -> None:
        """Add a line to the story of the world."""
        self.trace.append(f"{self.scheduler.now:.1f} {text.replace(str(self.folder), '')}")

    def run(self) -> None:
        """Run until there is nothing to do any more."""
        tempdir = tempfile.tempdir
        try:
            for slot in self.plan.slots:
                self.scheduler.start(partial(self._work_at, slot))
            for deed in self.plan.deeds:
                self.scheduler.at(deed.minutes * 60.0, partial(self._do, deed))
            self.scheduler.run()
        finally:
            tempfile.tempdir = tempdir
            self._limit_disk(full=False)

    def machine(self, number: int) -> Machine:
        """Return a machine, a new one where there was none or it was lost."""
        if number not in self.machines:
            name = f"machine-{number}-{len(list(self.folder.iterdir()))}"
            machine = Machine(number, self.folder / name, name)
            machine.temporary.mkdir(parents=True)
            self.machines[number] = machine
        return self.machines[number]

    def fate(self, place: str) -> Kind | None:
        """Return what goes wrong at a place that is passed now."""
        self.counts[place] = self.counts.get(place, 0) + 1
        found = None
        for item in list(self._pending):
            incident, left = item
            if place.startswith(incident.where):
                left[0] -= 1
                if left[0] <= 0 and found is None:
                    found = incident.kind
                    self.struck.append(incident)
                    self._pending.remove(item)
                    self.note(f"{place}: {incident.kind}")
        return found

    def earlier(self, place: str, answer: Any) -> Any:
        """Return what a read showed before, and remember what it shows now."""
        before = self._earlier.get(place, (answer, answer))
        self._earlier[place] = (before[1], answer)
        return before[1]

    def steps_on_refs(self, task: int) -> set[int]:
        """Return the steps of a task that some ref has."""
        key = f"issue-{task}"
        refs = [ref for ref in self.server.refs if ref.endswith(f"/{key}") or f"/{key}-" in ref]
        return {step for ref in refs for step in self.steps_of(task, self.server.refs[ref])}

    def steps_of(self, task: int, commit: str) -> set[int]:
        """Return the steps of a task that a commit of a branch or of saved work has."""
        message = self.server.message(commit)
        if message.startswith("pullwright: unfinished work"):
            (commit,) = self.server.parents(commit)
        elif message.startswith("pullwright: "):
            return set()
        return {step for number, step in files_of(self.server.files(commit)) if number == task}

    def _begin(self) -> None:
        objects = self.folder / "objects"
        objects.mkdir(parents=True)
        files = {"README.md": b"# Many\n", TAKEN_OFF: b"not for everybody\n"}
        self.base = base = self.server.commit(files, [], "Ada <ada@example.com>", "First\n", objects)
        self.server.refs["refs/heads/main"] = base
        self.forge.add_strangers(self.plan.strangers, LABEL, START - timedelta(days=1))
        self.forge.locked = {number for number, task in enumerate(self.plan.tasks, 1) if task.locked}
        self.forge.denied = {
            (write, number): status
            for number, task in enumerate(self.plan.tasks, 1)
            for write, status in task.denied
        }
        self.forge.unprocessable = {n for n, task in enumerate(self.plan.tasks, 1) if task.unprocessable}
        for number, task in enumerate(self.plan.tasks, 1):
            labels = (LABEL,)
            self.forge.add_issue(f"Task {number}", f"Do task {number}: {task.steps} steps.", author=WRITER, labels=labels)  # fmt: skip

    def _moved(self, move: Move) -> None:
        if not move.ref.startswith("refs/pullwright/claims/"):
            self.changes += 1
        for one in self.observers:
            one.moved(move)
        self.note(f"{move.by} moved {move.ref}: {str(move.old)[:7]} -> {str(move.new)[:7]}")  # fmt: skip

    def _refuse(self, move: Move) -> str | None:
        """Refuse a branch for what is in it, as a server does that looks for secrets."""
        if move.new is None or not move.ref.startswith("refs/heads/"):
            return None
        new = [one for one in self.server.history(move.new) if one not in self.server.history(self.base)]
        for number, task in enumerate(self.plan.tasks, 1):
            is_there = any(
                file.startswith(f"task-{number}-step-") and content.endswith(WRITTEN)
                for commit in new
                for file, content in self.server.files(commit).items()
            )
            if is_there and task.refused and (task.refusals is None or self.refused[number] < task.refusals):
                self.refused[number] += 1
                return task.refused
        return None

    def _work_at(self, number: int, thread: Thread) -> None:
        """Start the program again and again, until nothing has changed for a while."""
        idle = 0
        quiet = {Act.REVIEW: _QUIET_MINUTES}
        last = max((deed.minutes + quiet.get(deed.act, 0.0) for deed in self.plan.deeds), default=0.0) * 60.0
        thread.sleep(self.pace.uniform(0.0, 60.0))
        while (
            idle < (_QUIET_STARTS if self._is_unsettled() else 1)
            and self.starts < MOST_STARTS
            and not self.is_endless
        ):
            before, begun = self._state(), self.scheduler.now
            life = Life(self, self.machine(number), thread)
            self.lives[thread] = life
            self._enter(thread)
            did_something = life.run()
            del self.lives[thread]
            self._enter(thread)
            is_full = life.machine.full_until > self.scheduler.now
            is_idle = before == self._state() and not did_something and not self._has_more()
            self.starts += not (is_idle or is_full)
            idle = idle + 1 if is_idle and not is_full and begun > last else 0
            self._answer()
            rest = _LONG_REST_SECONDS if is_idle or is_full else _REST_SECONDS
            thread.sleep(rest + self.pace.uniform(0.0, 60.0))

    def _is_unsettled(self) -> bool:
        """Return whether time alone changes something: a claim whose holder is dead, or a task that rests after deaths."""
        return any(claim.state == "held" or 0 < claim.deaths < MOST_ATTEMPTS for claim in self.claims())

    def _has_more(self) -> bool:
        """Return whether the last look left issues for the next one."""
        return bool(self.ended) and "looked at by the next cycles" in (self.ended[-1].result.reason or "")

    def claims(self) -> list[ClaimRecord]:
        """Return all claims."""
        return [
            parse_claim(
                ref.removeprefix(CLAIMS), RemoteRecord(ref, commit, None, self.server.message(commit))
            )
            for ref, commit in self.server.refs.items()
            if ref.startswith(CLAIMS)
        ]

    def _state(self) -> tuple[int, ...]:
        """Return what changes whenever something happens that could matter to a worker."""
        return self.changes, len(self.forge.pulls()), len(self.struck), len(self.people)

    def _answer(self) -> None:
        """A person answers each open question once."""
        for number in range(1, len(self.plan.tasks) + 1):
            asked = [one for one in self.forge.comments(number) if "question" in one.body.lower()]
            if asked and number not in self.people:
                self.people.add(number)
                self.forge.say(number, WRITER, _SAID[Act.ANSWER])
                if any(one.act is Act.STOP for one in self.plan.deeds):
                    self.unwanted.pop(number, None)  # who answers wants it again

    def _do(self, deed: Deed) -> None:
        self.note(f"a person: {deed.act} on task {deed.task}")
        number = deed.task
        self._limit_disk(full=False)
        if deed.act in _ON_ISSUES and number not in self.forge.issues():
            return  # somebody deleted it
        self._overtake(deed)
        match deed.act:
            case Act.COMMENT | Act.ANSWER:
                self.forge.say(number, WRITER, _SAID[deed.act])
            case Act.CLOSE:
                self.forge.close(number)
            case Act.UNLABEL:
                self.forge.unlabel(number, LABEL)
            case Act.PUSH:
                self._push(number)
            case Act.RELEASE | Act.RETRY | Act.FORGET:
                self._decide(deed.act, f"issue-{number}")
            case Act.REVIEW | Act.CHECKS:
                self._review(deed.act, number)
            case Act.OTHERS:
                self._add_other_runs()
            case Act.DAMAGE:
                self._damage()
            case _:
                pass

    def _review(self, act: Act, task: int) -> None:
        """A person asks for a change of a pull request, or a check of it begins to fail."""
        pulls = [pull for pull in self.forge.pulls() if key_of(pull.branch) == f"issue-{task}"]
        for pull in pulls:
            if pull.state is PullRequestState.OPEN:
                asked = self.reviewed.setdefault(task, set())
                if act is Act.REVIEW:
                    step = REVIEW_STEP + len(asked) + 1
                    self.forge.say(pull.number, WRITER, f"Please add step {step}.")
                else:
                    step = CHECKS_STEP
                    self.forge.failing[pull.branch] = f"task-{task}-step-{step}.txt"
                asked.add(step)

    def _push(self, task: int) -> None:
        """A person adds a commit to the branch of a task, if there is one."""
        for ref, tip in list(self.server.refs.items()):
            if ref.startswith("refs/heads/") and f"/issue-{task}-" in ref:
                files = self.server.files(tip) | {f"by-ada-{task}.txt": b"Mine.\n"}
                new = self.server.commit(
                    files, [tip], "Ada <ada@example.com>", "Mine\n", self.folder / "objects"
                )
                self.server.move(Move(ref, tip, new, "ada"))

    def _overtake(self, deed: Deed) -> None:
        """A person does what may make a task's work unwanted or its base another one."""
        number = deed.task
        if deed.act in WITHDRAWING:
            self.unwanted.setdefault(number, self.now())
        if deed.act in {Act.COMMENT, Act.ANSWER} and any(one.act is Act.STOP for one in self.plan.deeds):
            self.unwanted.pop(number, None)
        if deed.act is Act.FIX:
            self.fixed.add(number)
        match deed.act:
            case Act.STOP:
                self.forge.say(number, WRITER, "Please stop.")
            case Act.ASSIGN:
                self.forge.assign(number, "grace")
            case Act.DELETE:
                self.forge.delete(number)
            case Act.RIVAL:
                self.forge.add_rival(number)
            case Act.MOVE | Act.FIX | Act.CLASH | Act.REWRITE:
                self._change_base(deed.act, number)
            case _:
                pass

    def _change_base(self, act: Act, task: int) -> None:
        """A person pushes to the base."""
        tip = self.server.refs["refs/heads/main"]
        files, parents = dict(self.server.files(tip)), [tip]
        steps = range(1, self.plan.tasks[task - 1].steps + 1)
        match act:
            case Act.REWRITE:
                files.pop(TAKEN_OFF, None)
                parents = []
                self.taken_off, self.rewritten_at = tip, self.now()
            case Act.MOVE:
                files[f"moved-{len(self.server.moves)}.txt"] = b"Moved.\n"
            case _:
                text = "Step {}.\n" if act is Act.FIX else "Something else.\n"
                files |= {f"task-{task}-step-{step}.txt": text.format(step).encode() for step in steps}
        objects = self.folder / "objects"
        new = self.server.commit(files, parents, "Ada <ada@example.com>", "By hand\n", objects)
        self.server.move(Move("refs/heads/main", tip, new, "ada"))

    def _add_other_runs(self) -> None:
        for machine in self.machines.values():
            home, clock = Home(machine.home), WorldClock(self, machine)
            for _ in range(_OTHER_RUNS):
                run = new_run_id(clock.now(), self.ids)
                folder = create_run_folder(home, run)
                with lock_run(folder), JournalWriter(folder, Redactor(), clock) as journal:
                    journal(CycleStarted(run, "octo/other", "canned:1", "json-plan", "safe: no commands"))
                    journal(CycleEnded({"outcome": "no_task"}))

    def _damage(self) -> None:
        for machine in self.machines.values():
            for path in sorted(Home(machine.home).runs.glob(f"*/{JOURNAL_FILE}")):
                if is_open(path.parent):
                    lines = path.read_bytes().splitlines(keepends=True)
                    lines[len(lines) // 2] = b"\0" * 20 + b"\n"
                    path.write_bytes(b"".join(lines))

    def _decide(self, act: Act, key: str) -> None:
        """A person decides about a task, at a desk from which everything is reached."""
        desk = Machine(-1, self.folder / "desk", "desk")
        desk.temporary.mkdir(parents=True, exist_ok=True)
        clock, wire = WorldClock(self, desk), DeskWire()
        make = lambda folder, git_dir: MemoryGit(folder, git_dir, self.server, wire, "desk")  # noqa: E731
        nonce = lambda: f"{self.ids.getrandbits(64):x}"  # noqa: E731
        times = lease_times(settings_of(self.plan.flags).settings)
        with Records(desk.temporary, ADDRESS, lambda: None, clock=clock, make_git=make) as records:
            claims = Claims(records, "desk", clock, times, nonce)
            forge = cast("Forge", self.forge)
            kept = kept_work(Home(desk.home), records)
            backlog = Backlog(forge, TaskSelection(), LABEL, clock=clock)
            commands = Commands("REPO")
            decisions = TaskDecisions(records, claims, forge, times, clock, commands, (), {}, kept, backlog)
            state = next((one for one in decisions.states() if one.key == key), None)
            with suppress(PushRejectedError):  # a worker was faster
                if act is Act.RELEASE:
                    claims.release(key, "released")
                elif act is Act.RETRY and state is not None:
                    decisions.retry(state)
                elif state is not None:
                    for one in self.observers:
                        one.forget(key)
                    had_work = state.wip is not None
                    if decisions.forget(state).changed and had_work:
                        number = int(key.rpartition("-")[2])
                        self.dropped.setdefault(number, set()).update(self.reviewed.get(number, ()))

    def _enter(self, thread: Thread) -> None:
        """Make the surroundings of the running thread those of its machine."""
        life = self.lives.get(thread)
        tempfile.tempdir = str(life.machine.temporary) if life is not None else None
        self._limit_disk(full=life is not None and life.machine.full_until > self.scheduler.now)

    @staticmethod
    def _limit_disk(*, full: bool) -> None:
        """Let each write of this process fail, as on a full disk, or let them succeed."""
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        wanted = 0 if full else hard
        if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != wanted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (wanted, hard))


class DeskWire:
    """The wire of a person, which works."""

    def request(self, what: str, do: Callable[[], T], fail: Callable[[], T]) -> T:
        """Do it."""
        del what, fail
        return do()

    def check(self) -> None:
        """A person is alive."""


class WorldClock:
    """The clock of a machine."""

    def __init__(self, world: World, machine: Machine) -> None:
        self._world, self._machine = world, machine

    def now(self) -> datetime:
        """Return the time that the machine believes in."""
        return self._world.now() + self._machine.skew

    def monotonic(self) -> float:
        """Return seconds since the world began."""
        return self._world.scheduler.now

    async def sleep(self, seconds: float) -> None:
        """Wait for some seconds."""
        await asyncio.sleep(seconds)


class Life:
    """One process: from its start to its end, or to its death."""

    def __init__(self, world: World, machine: Machine, thread: Thread) -> None:
        self.world, self.machine, self.thread = world, machine, thread
        self.clock = WorldClock(world, machine)
        self.is_dead = False
        self.run_id = ""
        self.at_work = 0
        self.paid: Paid | None = None
        self._loop: VirtualLoop | None = None
        self._disk: dict[Path, bytes | None] | None = None
        self.stop = Stop(lambda _event, seconds: self._pause(seconds))
        self.clone: Any = None
        self._did_something = False
        self._skipped = 0.0
        self._helpers: set[Thread] = set()
        self._is_ending = False

    # What the program passes.

    def lock(self) -> VirtualLock:
        """Return a lock for the threads of this process."""
        return VirtualLock(self.world.scheduler)

    def check(self) -> None:
        """Raise if the process is dead."""
        if self.is_dead:
            raise Killed
        if self.world.scheduler.now > MOST_SECONDS:
            self.world.is_endless = True
            self.die()
        if self.world.machines.get(self.machine.number) is not self.machine:
            self.die(keeps_disk=False)

    def request(self, what: str, do: Callable[[], T], fail: Callable[[], T]) -> T:
        """Send a request over a line on which everything happens that a plan says."""
        self.check()
        self.world.requests[self.run_id] += 1
        self._pass(what)
        fate = self.world.fate(what)
        self._before(fate)
        self._sleep(1800.0 if fate is Kind.SLOW else self.world.pace.uniform(0.05, 0.5))
        if fate is Kind.ERROR:
            return fail()
        answer = do()
        earlier = self.world.earlier(what, answer) if what.startswith("forge ") else answer
        self._sleep(self.world.pace.uniform(0.01, 0.1))
        self._after(fate)
        if fate is Kind.UNANSWERED:
            return fail()
        is_read = not any(word in what for word in ("ensure", "remove", "push"))
        return earlier if fate is Kind.STALE and is_read else answer

    # What the model asks of its process.

    def task(self, number: int) -> Task:
        """Return a task by the number of its issue."""
        return self.world.plan.tasks[number - 1]

    def files(self) -> Iterator[str]:
        """Return the names of the files in its clone, without those that have a conflict."""
        files = (path for path in self.clone.tree.iterdir() if path.is_file())
        return (path.name for path in files if "<<<<<<<" not in path.read_text())

    def pay(self, task: int, step: int) -> None:
        """Pay for a reply."""
        was_there, moves = step in self.world.steps_on_refs(task), len(self.world.server.moves)
        self.paid = Paid(task, step, self.run_id, self.machine.name, was_there, moves)
        self.world.paid.append(self.paid)

    async def ask_model(self, do: Callable[[], Response], fail: Callable[[], Response]) -> Response:
        """The same for a request to the model: other tasks of the process go on meanwhile."""
        self.check()
        self._pass("model")
        fate = self.world.fate("model")
        self._before(fate)
        await asyncio.sleep(1800.0 if fate is Kind.SLOW else self.world.pace.uniform(2.0, 60.0))
        self.check()
        if fate is Kind.ERROR:
            return fail()
        answer = do()
        self._after(fate)
        return fail() if fate is Kind.UNANSWERED else answer

    def view(self, event: Event) -> None:
        """Pass a record that was just written."""
        if isinstance(event, _UNWRITTEN):
            return
        self.check()
        if isinstance(event, ToolCallEnded) and self.paid is not None:
            self.paid.is_done = True
        if isinstance(event, TaskTaken):
            self.at_work = event.number or 0
        self._pass(f"record {type(event).__name__}")
        self._after(self.world.fate(f"record {type(event).__name__}"))

    def _pass(self, place: str) -> None:
        """Die where the task kills its workers. A task that kills those that save its work did so at the model before."""
        tasks = enumerate(self.world.plan.tasks, 1)
        for number, task in tasks:
            where = "model" if task.kills == RECOVERY else task.kills
            if where and number == self.at_work and place.startswith(where):
                self.die()
            if task.kills == RECOVERY and not self.at_work and place == "git push claims wip":
                self.die()

    def _before(self, fate: Kind | None) -> None:
        self.world.on_moment(self, Kind.KILLED_BEFORE)
        if fate is Kind.KILLED_BEFORE:
            self.die()

    def _after(self, fate: Kind | None) -> None:
        self.world.on_moment(self, Kind.KILLED)
        match fate:
            case Kind.KILLED | Kind.LOST:
                self.die(keeps_disk=fate is Kind.KILLED)
            case Kind.FULL:
                self.machine.full_until = self.world.scheduler.now + 3600.0
                self.world._enter(self.thread)
            case Kind.JUMP:
                self.machine.skew += timedelta(minutes=5)
            case Kind.STOP:
                self.stop.request()
            case _:
                pass

    def die(self, *, keeps_disk: bool = True) -> None:
        """Be dead from now on.

        Raises:
            Killed: always.
        """
        self.is_dead = True
        for thread in (self.thread, *self._helpers):
            thread.wake()
        self.world.note(f"{self.machine.name} run {self.run_id} dies")
        if keeps_disk:
            self._disk = read_disk(self.machine.root)
        elif self.world.machines.get(self.machine.number) is self.machine:
            del self.world.machines[self.machine.number]
        raise Killed

    def _sleep(self, seconds: float | None) -> None:
        thread = self.world.scheduler.current
        thread.sleep(seconds)
        if self.machine.full_until:
            self.world._enter(thread)
        self.check()

    def _start(self, call: Callable[[], None]) -> None:
        """Start another thread of this process."""

        def body(thread: Thread) -> None:
            call()
            self._helpers.discard(thread)
            del self.world.lives[thread]
            if self._is_ending:
                self.thread.wake()

        thread = self.world.scheduler.start(body)
        self.world.lives[thread] = self
        self._helpers.add(thread)

    def _pause(self, seconds: float) -> bool:
        self._sleep(seconds)
        return False

    # The process itself.

    def run(self) -> bool:
        """Run the program until it ends. Return whether it did more than look for a task."""
        now = lambda: self.world.scheduler.now + self._skipped  # noqa: E731
        loop = self._loop = VirtualLoop(self.thread, now, self._wait, self._start)
        asyncio.set_event_loop(None)
        program = self.world.program.of(self)
        try:
            loop.run_until_complete(self._work(program))
        except Killed:
            pass
        except PullwrightError as error:  # the program says it and ends
            self.world.note(f"{self.machine.name} ends: {error}")
        finally:
            self._end(loop, program)
        return self._did_something or self.is_dead

    def _wait(self, seconds: float | None) -> None:
        if not self.is_dead:
            self._sleep(seconds)
        elif seconds is None:
            self.thread.sleep(None)  # its other threads are on their way out
        else:
            self._skipped += seconds

    async def _work(self, program: SimulatedProgram) -> None:
        waiter = Waiter(self.clock)
        pace = NextStepChooser(self.clock, self.world.pace)
        timing = CycleTiming(self.clock, waiter, pace, lambda _pause, _after: None)
        try:
            await work(program.next_cycle, self._report, self.stop, timing, max_cycles=self.world.plan.cycles)
        finally:
            if not self.is_dead:
                await program.close()

    def _report(self, result: CycleResult) -> None:
        self.check()
        self._did_something |= result.task is not None
        self.world.ended.append(Ended(self.machine.name, result))
        key = result.task.key if result.task else ""
        why = result.error or result.reason or ""
        self.world.note(f"{self.machine.name} {result.run} {result.outcome} {key}: {why[:200]}")  # fmt: skip

    def _end(self, loop: VirtualLoop, program: SimulatedProgram) -> None:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
        self._is_ending = True
        while self._helpers:
            self.thread.sleep(None)
        loop.close()
        if self.is_dead:
            self.world._limit_disk(full=False)
            program.let_go()
            if self._disk is not None:
                _write_disk(self.machine.root, self._disk)


class SimulatedProgram(Program):
    """The program as the command line builds it, over doubles."""

    _life: Life

    @classmethod
    def of(cls, life: Life) -> SimulatedProgram:
        """Build the program of a process."""
        world, machine = life.world, life.machine
        loaded = settings_of(world.plan.flags)
        redactor = Redactor()
        bus = EventBus(life.view, redactor)
        context = BuildContext(
            loaded, ApiKeys.of({}), Home(machine.home), life.clock, bus, life.stop, redactor
        )
        forge = cast("Forge", FarForge(world.forge, life, lambda: -machine.skew))
        site = Site(forge, lambda: Source(ADDRESS, "main"), lambda: None, label="octo/many")
        chosen = ChosenModel(ScriptedModel(life), lambda usage: usage.total_tokens * 1e-5)
        shared = RunParts(context, site, chosen, Safeguards(redactor, GuardMaker(redactor), None))
        program = cls(shared, bus)
        program._life = life
        program._records = program._new_records()
        return program

    def _new_records(self) -> Records:
        life = self._life

        def sleep(seconds: float) -> None:
            try:
                life.stop.sleep(seconds)
            except ForgeUnavailableError as error:
                raise RemoteUnavailableError("interrupted while waiting for the repository") from error

        return Records(
            life.machine.temporary,
            ADDRESS,
            lambda: None,
            clock=life.clock,
            sleep=sleep,
            cancelled=life.stop.now,
            make_git=self._git,
            make_lock=life.lock,
        )

    def _git(self, folder: Path, git_dir: Path) -> MemoryGit:
        return MemoryGit(folder, git_dir, self._life.world.server, self._life, self._life.machine.name)

    async def next_cycle(self) -> CycleResult:
        """Run a cycle whose name comes from the world."""
        life = self._life
        life.run_id = new_run_id(life.clock.now(), life.world.ids)
        life.at_work = 0
        return await self.cycle(Assignment(run=life.run_id))

    def parts(self, run: str, folder: Path, settings: Settings, only: str) -> CycleParts:
        """Build the parts as the program does, with clones in memory and names from the world."""
        made = super().parts(run, folder, settings, only)
        life = self._life
        records, claimer = self._records, made.claimer
        if records is None or claimer is None:
            raise AssertionError("a simulated run is never dry")
        nonce = lambda: f"{life.world.ids.getrandbits(64):016x}"  # noqa: E731
        claimer.claims.nonce, claimer.claims.owner = nonce, life.machine.name
        claimer.claims.make_lock = life.lock
        recovery = cast("Recovery", cast("Any", made.recover).__self__)
        reopen = lambda place: reopen_memory_clone(place, _OWN, life.clock, records.remote, self._git)  # noqa: E731
        again = lambda: self._open_clone(run, life.machine.temporary)  # noqa: E731
        recovery = replace(recovery, claims=claimer.claims, reopen=reopen, open_clone=again)
        from orchestrator.app.wiring.repository import scope_caps

        ledger = RepositoryLedger(records, life.clock, nonce)
        budget = CycleBudget(Home(life.machine.home), life.clock, scope_caps(settings), ledger)
        return replace(
            made, open_clone=partial(self._open_clone, run), recover=recovery.recover, budget=budget
        )

    def _open_clone(self, run: str, parent: Path) -> Any:
        if self._records is None:
            raise AssertionError("there are records")
        clone = open_memory_clone(parent, run, _OWN, self._life.clock, self._records.remote, self._git)
        self._life.clone = clone
        return clone

    def let_go(self) -> None:
        """Release what the system releases for a dead process."""
        if self._records is not None:
            self._records.close()


def read_disk(root: Path) -> dict[Path, bytes | None]:
    """Return what is on a disk: the content of each file, None for a folder."""
    return {path: None if path.is_dir() else path.read_bytes() for path in root.rglob("*")}


def _write_disk(root: Path, disk: dict[Path, bytes | None]) -> None:
    """Make a disk as it was."""
    for path in sorted(root.rglob("*"), reverse=True):
        if path not in disk:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink()
    for path, content in sorted(disk.items(), key=lambda item: item[0]):
        if content is None:
            path.mkdir(exist_ok=True, mode=0o700)
        elif not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
