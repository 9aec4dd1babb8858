"""Cycles in a row: what follows each one, pauses after errors, and schedules."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.parts import CycleResult, Outcome, Stop
from orchestrator.bot.cycle.tasks import from_text
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.index import last_pause, note_pause
from orchestrator.bot.journal.reader import is_open, read_run
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.bot.journal.run_facts import Pause
from orchestrator.bot.worker.worker import (
    NOTHING_SECONDS,
    CycleTiming,
    EndAsked,
    NeedsPerson,
    NextStepChooser,
    NothingToDo,
    ScheduleSignal,
    StartAgain,
    Waiter,
    pause_after,
    work,
)
from orchestrator.core import errors
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted
from orchestrator.core.errors import (
    AuthenticationError,
    BadReplyError,
    ClaimLostError,
    ConfigurationError,
    ConnectionFailedError,
    DiskFullError,
    ForgeAuthenticationError,
    ForgeError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    ForgeUnreadError,
    OverloadedError,
    PermissionDeniedError,
    RateLimitError,
    RemoteUnavailableError,
    SandboxMissingError,
    SpentQuotaError,
)
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


NOW = datetime(2026, 1, 1, tzinfo=UTC)
IN_2_H = NOW + timedelta(hours=2)


def minutes(error: BaseException, failures: int = 1, jitter: float = 0.0) -> float:
    pause = pause_after(error, NOW, failures, jitter)
    assert isinstance(pause, Pause)
    return (pause.until - NOW).total_seconds() / 60


def test_nothing_follows_a_cycle_without_an_error() -> None:
    assert pause_after(None, NOW, 0, 0.0) is None


@table(
    "error",
    [
        SpentQuotaError("x", resume_at=IN_2_H),
        RateLimitError("x", resume_at=IN_2_H),
        OverloadedError("x", resume_at=IN_2_H),
        ForgeRateLimitError("x", resume_at=IN_2_H),
    ],
)
def test_a_named_time_is_kept(error: Exception) -> None:
    assert minutes(error) == 120
    assert 120 < minutes(error, jitter=0.99) < 121  # never before it


@table(
    ("error", "first", "last"),
    [
        (RateLimitError("x"), 15, 360),
        (OverloadedError("x"), 1, 30),
        (ConnectionFailedError("x"), 1, 30),
        (ForgeUnavailableError("x"), 1, 30),
        (ForgeRateLimitError("x"), 1, 30),
        (ForgeUnreadError("x"), 1, 30),
        (RemoteUnavailableError("x"), 1, 30),
        (DiskFullError("x"), 15, 360),
        (ValueError("x"), 15, 360),
    ],
)
def test_without_a_time_the_waits_grow(error: Exception, first: float, last: float) -> None:
    waits = [minutes(error, failures) for failures in range(1, 12)]
    assert (waits[0], waits[1], waits[-1]) == (first, 2 * first, last)
    assert waits == sorted(waits)
    assert waits[0] < minutes(error, jitter=0.5) < 2 * first


@table("seconds", [-3_600, 0, 1])
def test_a_time_of_no_use_does_not_make_the_waits_shorter(seconds: int) -> None:
    error = RateLimitError("x", resume_at=NOW + timedelta(seconds=seconds))
    assert [minutes(error, failures) for failures in (1, 2, 3)] == [1, 2, 4]


def test_no_server_puts_the_worker_to_sleep_for_years() -> None:
    assert minutes(RateLimitError("x", resume_at=NOW + timedelta(days=900))) == 32 * 24 * 60


@table(
    "error",
    [
        SpentQuotaError("no credit left"),
        AuthenticationError("check the API key"),
        PermissionDeniedError("x"),
        ConfigurationError("x"),
        SandboxMissingError("install bubblewrap"),
        ForgeAuthenticationError("x"),
        ForgePermissionError("x"),
    ],
)
def test_where_only_a_person_can_help_the_worker_ends_and_says_so(error: Exception) -> None:
    halt = pause_after(error, NOW, 1, 0.0)
    assert isinstance(halt, NeedsPerson)
    assert str(error) in halt.reason
    assert "\n" not in halt.reason


@pytest.mark.parametrize("error", [BadReplyError("x"), ClaimLostError("x")])
def test_one_task_that_fails_does_not_stop_the_others(error: Exception) -> None:
    assert pause_after(error, NOW, 1, 0.0) is None
    assert pause_after(error, NOW, 2, 0.0) is None
    assert [minutes(error, failures) for failures in (3, 4, 5)] == [15, 30, 60]


def test_a_reason_is_one_line_and_never_empty() -> None:
    pause = pause_after(OSError(), NOW, 1, 0.0)
    assert pause is not None
    assert pause.reason == "OSError"
    several = pause_after(ValueError("one\ntwo"), NOW, 1, 0.0)
    assert several is not None
    assert several.reason == "one two"


def test_a_git_server_that_names_a_pause_gets_it() -> None:
    pause = pause_after(errors.RemoteRateLimitError("x", seconds=900.0), NOW, 1, 0.0)
    assert isinstance(pause, Pause)
    assert pause.until == NOW + timedelta(minutes=15)


def kinds() -> list[type[errors.PullwrightError]]:
    def below(kind: type[errors.PullwrightError]) -> list[type[errors.PullwrightError]]:
        return [kind, *(found for child in kind.__subclasses__() for found in below(child))]

    return sorted(set(below(errors.PullwrightError)), key=lambda kind: kind.__name__)


def at_once(kind: type[errors.PullwrightError]) -> Callable[[datetime], BaseException]:
    """An error whose server always names a time that is already there, where it has one."""
    if issubclass(kind, RateLimitError | OverloadedError | ForgeRateLimitError):
        return lambda now: kind("x", resume_at=now)
    return lambda _now: kind("x")


@pytest.mark.parametrize(
    "make", [*(at_once(kind) for kind in kinds()), lambda _now: OSError(), lambda _now: KeyError()]
)
async def test_no_error_makes_the_worker_spin(make: Callable[[datetime], BaseException]) -> None:
    """A day in which each cycle fails at once with the same error."""
    clock = ManualClock(NOW)
    cycles = 0
    while clock.now() < NOW + timedelta(days=1):
        cycles += 1
        assert cycles < 60
        follows = pause_after(make(clock.now()), clock.now(), cycles, cycles * 0.37 % 1)
        if isinstance(follows, NeedsPerson):
            break
        if follows:
            await clock.sleep((follows.until - clock.now()).total_seconds())


TASK = from_text("a task")
START = datetime(2026, 1, 1, tzinfo=UTC)
SOURCE = random.Random(1)  # noqa: S311  no secret


def result(outcome: Outcome, **fields: object) -> CycleResult:
    made = CycleResult("run", outcome, task=TASK, rounds=1)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def quota(hours: float) -> CycleResult:
    cause = SpentQuotaError("the quota is spent", resume_at=START + timedelta(hours=hours))
    return result(Outcome.PAUSED, cause=cause, error=str(cause))


class StandingClock(ManualClock):
    """Time that does not pass by itself."""

    async def sleep(self, seconds: float) -> None:
        del seconds
        await asyncio.Event().wait()


class Script:
    """Plays results in order and remembers when each was asked for, in seconds from the start."""

    def __init__(self, *results: CycleResult | Outcome | Exception) -> None:
        self.left = [result(one) if isinstance(one, Outcome) else one for one in results]
        self.use(ManualClock(START))
        self.began: list[float] = []
        self.pauses: list[Pause] = []
        self.seen: list[Outcome] = []
        self.stop = Stop()
        self.renewed: list[int] = []
        self.told = asyncio.Event()
        self.during: Callable[[], None] = lambda: None

    def use(self, clock: ManualClock) -> None:
        self.clock = clock
        self.waiting = Waiter(clock)

    async def __call__(self) -> CycleResult:
        self.began.append(self.clock.monotonic())
        self.during()
        step = self.left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    def report(self, ended: CycleResult) -> None:
        self.seen.append(ended.outcome)

    def tell(self, pause: Pause, after: CycleResult | None) -> None:
        del after
        self.pauses.append(pause)
        self.told.set()

    def rhythm(self, bell: ScheduleSignal | None = None, left: Pause | None = None) -> CycleTiming:
        pace = NextStepChooser(self.clock, SOURCE)
        return CycleTiming(self.clock, self.waiting, pace, self.tell, bell, left, self.renew)

    def renew(self) -> None:
        self.renewed.append(len(self.began))

    async def play(self, rhythm: CycleTiming | None = None, most: int | None = None) -> CycleResult | None:
        return await work(self, self.report, self.stop, rhythm or self.rhythm(), max_cycles=most)

    async def play_on_schedule(self, *fires: float) -> CycleResult | None:
        """The schedule's times come while somebody waits; after the last one somebody asks for the end."""
        left = list(fires)

        def come() -> None:
            if not left:
                self.stop.request()
                self.waiting.wake()
                return
            self.clock.advance(max(left.pop(0) - self.clock.monotonic(), 0))
            bell.notify()

        bell = ScheduleSignal(self.waiting, come)
        return await self.play(self.rhythm(bell))


def after(ended: CycleResult) -> object:
    return NextStepChooser(ManualClock(START), SOURCE).after(ended)


@table(
    ("ended", "expected"),
    [
        (result(Outcome.PROPOSED), StartAgain(START)),
        (result(Outcome.PLANNED), StartAgain(START)),
        (result(Outcome.LIMIT), StartAgain(START)),
        (result(Outcome.QUESTION), StartAgain(START)),
        (result(Outcome.INTERRUPTED), EndAsked()),
        (result(Outcome.NO_TASK, task=None), NothingToDo()),
        (result(Outcome.NO_TASK, task=None, wake_at=START), NothingToDo(wake_at=START)),
        (result(Outcome.NO_TASK, reason="Nothing needs to change."), StartAgain(START)),
        (result(Outcome.NO_TASK, reason="No tasks were found."), NothingToDo()),
        (result(Outcome.NO_TASK, reason="no eligible task"), NothingToDo()),
        (result(Outcome.FAILED, cause=BadReplyError("x")), StartAgain(START)),
        (result(Outcome.FAILED, error="its last words"), StartAgain(START)),
        (result(Outcome.FAILED, cause=AuthenticationError("no key")), NeedsPerson("no key")),
        (
            result(Outcome.LIMIT, rounds=0),
            StartAgain(START + timedelta(seconds=NOTHING_SECONDS)),
        ),
        (
            result(Outcome.FAILED, rounds=0, cause=BadReplyError("x")),
            StartAgain(START + timedelta(seconds=NOTHING_SECONDS)),
        ),
    ],
)
def test_what_follows_a_cycle(ended: CycleResult, expected: object) -> None:
    assert after(ended) == expected


@table(
    "ended",
    [
        quota(2),
        result(Outcome.PAUSED, cause=OverloadedError("busy")),
        result(Outcome.FAILED, cause=ForgeError("x")),
        result(Outcome.FAILED, cause=ZeroDivisionError("x")),
        result(Outcome.FAILED, task=None, error="x"),
        result(Outcome.PAUSED, reason="the day's money is spent"),
    ],
)
def test_what_fails_outside_of_the_task_is_a_pause(ended: CycleResult) -> None:
    pause = after(ended)
    assert isinstance(pause, Pause)
    assert pause.until > START


def test_a_pause_is_not_over_before_another_cycle_makes_sense() -> None:
    late = START + timedelta(days=1)
    pause = after(result(Outcome.PAUSED, cause=OverloadedError("busy"), wake_at=late))
    assert isinstance(pause, Pause)
    assert pause.until == late


def test_failures_in_a_row_are_counted_until_one_succeeds() -> None:
    pace = NextStepChooser(ManualClock(START), SOURCE)
    bad = result(Outcome.FAILED, cause=BadReplyError("x"))
    assert [type(pace.after(bad)) for _ in range(3)] == [StartAgain, StartAgain, Pause]
    pace.after(result(Outcome.PROPOSED))
    assert isinstance(pace.after(bad), StartAgain)


def test_what_stays_unreadable_keeps_no_run_waiting() -> None:
    pace = NextStepChooser(ManualClock(START), SOURCE)
    unread = result(Outcome.FAILED, cause=ForgeUnreadError("issue #1 is left out"), task=None)
    assert [type(pace.after(unread)) for _ in range(4)] == [Pause, Pause, NothingToDo, NothingToDo]


END = result(Outcome.NO_TASK, task=None)


async def test_single_mode_runs_one_cycle_whatever_comes_of_it() -> None:
    script = Script(quota(1), Outcome.PROPOSED)
    await work(script, script.report, script.stop)
    assert len(script.left) == 1


async def test_continuous_mode_reports_each_cycle_until_there_is_no_task() -> None:
    nothing = result(Outcome.NO_TASK, task=None)
    script = Script(
        Outcome.PROPOSED, Outcome.LIMIT, Outcome.QUESTION, Outcome.PROPOSED, nothing, Outcome.PROPOSED
    )
    last = await script.play()
    assert script.seen == [
        Outcome.PROPOSED,
        Outcome.LIMIT,
        Outcome.QUESTION,
        Outcome.PROPOSED,
        Outcome.NO_TASK,
    ]
    assert last is not None
    assert last.outcome is Outcome.NO_TASK


async def test_continuous_mode_ends_at_the_most_cycles() -> None:
    script = Script(*[Outcome.PROPOSED] * 5)
    await script.play(most=2)
    assert len(script.left) == 3


async def test_continuous_mode_ends_when_stopped() -> None:
    script = Script(*[Outcome.PROPOSED] * 5)
    script.during = script.stop.request
    await script.play()
    assert len(script.left) == 4


async def test_a_pause_is_told_and_waited_for() -> None:
    script = Script(quota(2), Outcome.PROPOSED, result(Outcome.NO_TASK, task=None))
    await script.play()
    (pause,) = script.pauses
    assert pause.until >= START + timedelta(hours=2)
    assert script.began[1] >= 2 * 3600
    assert script.seen == [Outcome.PAUSED, Outcome.PROPOSED, Outcome.NO_TASK]


async def test_a_cycle_that_cannot_begin_is_a_failed_one() -> None:
    script = Script(DiskFullError("no space is left"), Outcome.PROPOSED, END)
    await script.play()
    assert script.seen == [Outcome.FAILED, Outcome.PROPOSED, Outcome.NO_TASK]
    assert [pause.reason for pause in script.pauses] == ["no space is left"]
    with pytest.raises(DiskFullError):
        await work(Script(DiskFullError("no space is left")), script.report, script.stop)


async def test_a_person_is_needed_and_the_worker_ends() -> None:
    script = Script(result(Outcome.FAILED, cause=AuthenticationError("no key")), Outcome.PROPOSED)
    await script.play()
    assert len(script.left) == 1


async def test_no_two_cycles_that_do_nothing_come_close_together() -> None:
    idle = [result(Outcome.LIMIT, rounds=0) for _ in range(4)]
    script = Script(*idle, END)
    await script.play()
    gaps = [later - earlier for earlier, later in zip(script.began, script.began[1:], strict=False)]
    assert min(gaps) >= NOTHING_SECONDS


async def test_a_pause_that_an_earlier_run_left_comes_before_the_first_cycle() -> None:
    script = Script(END)
    left = Pause(START + timedelta(minutes=5), "the quota is spent")
    await script.play(script.rhythm(left=left))
    assert script.began == [300]
    assert script.pauses == [left]


async def test_who_asks_for_the_end_in_a_pause_is_heard_at_once() -> None:
    script = Script(quota(48), Outcome.PROPOSED)
    script.use(StandingClock(START))
    playing = asyncio.ensure_future(script.play())
    await script.told.wait()
    script.stop.request()
    script.waiting.wake()
    last = await playing
    assert last is not None
    assert last.outcome is Outcome.PAUSED
    assert len(script.left) == 1


class SetBackClock(ManualClock):
    """Its time of day is set back by a day in the first minute of sleep."""

    def now(self) -> datetime:
        return super().now() - timedelta(days=1 if self.slept else 0)


async def test_a_clock_that_is_set_back_makes_a_pause_no_longer() -> None:
    script = Script(quota(2), END)
    script.use(SetBackClock(START))
    await script.play()
    assert 2 * 3600 <= script.began[1] < 3 * 3600


async def test_each_time_of_a_schedule_begins_work_until_there_is_nothing_to_do() -> None:
    nothing = result(Outcome.NO_TASK, task=None)
    script = Script(Outcome.PROPOSED, Outcome.PROPOSED, nothing, Outcome.PROPOSED, nothing)
    await script.play_on_schedule(100, 200)
    assert script.began == [100, 100, 100, 200, 200]


async def test_each_time_of_a_schedule_begins_anew_what_was_tried() -> None:
    script = Script(Outcome.PROPOSED, result(Outcome.NO_TASK, task=None), result(Outcome.NO_TASK, task=None))
    await script.play_on_schedule(0, 60)
    assert script.renewed[:2] == [0, 2]


async def test_a_question_does_not_end_a_schedule_nor_keep_other_tasks_waiting() -> None:
    nothing = [result(Outcome.NO_TASK, task=None) for _ in range(2)]
    script = Script(Outcome.QUESTION, Outcome.PROPOSED, *nothing)
    await script.play_on_schedule(100, 200)
    assert script.began == [100, 100, 100, 200]


async def test_times_that_come_during_a_cycle_count_as_one() -> None:
    nothing = result(Outcome.NO_TASK, task=None)
    script = Script(nothing, nothing)

    def end() -> None:
        script.stop.request()
        script.waiting.wake()

    bell = ScheduleSignal(script.waiting, end)

    def thrice() -> None:
        if len(script.began) == 1:
            for _ in range(3):
                bell.notify()

    script.during = thrice
    bell.notify()
    await script.play(script.rhythm(bell))
    assert script.seen == [Outcome.NO_TASK, Outcome.NO_TASK]


async def test_the_end_before_the_first_time_of_a_schedule_leaves_no_result() -> None:
    script = Script(Outcome.PROPOSED)
    assert await script.play_on_schedule() is None
    assert script.began == []


async def test_a_time_that_comes_in_a_pause_does_not_end_it() -> None:
    script = Script(quota(2), Outcome.PROPOSED)
    bell = ScheduleSignal(script.waiting, lambda: None)
    bell.notify()
    script.during = bell.notify
    await script.play(script.rhythm(bell), most=2)
    assert script.began[1] >= 2 * 3600


def test_a_restart_knows_the_pause_and_the_run_counts_as_ended(tmp_path: Path) -> None:
    home, clock = Home(tmp_path), ManualClock(START)
    folder = create_run_folder(home, "20260101-000000-aaaaaa")
    with JournalWriter(folder, Redactor(), clock) as journal:
        journal(CycleStarted("20260101-000000-aaaaaa", "owner/name", "m", "c", "p"))
        journal(CycleEnded({}))
    pause = Pause(START + timedelta(hours=1), "the quota of open-sesame is spent")
    note_pause(home, folder.name, pause, Redactor(["open-sesame"]), clock)
    read = read_run(folder)
    assert len(read.events) == 3
    assert not is_open(folder)
    found = last_pause(home, START, repository="owner/name", model="m")
    assert found == Pause(pause.until, "the quota of [redacted] is spent")
    assert last_pause(home, pause.until) is None


def test_a_pause_that_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    note_pause(Home(tmp_path), "no-such-run", Pause(START, "x"), Redactor(), ManualClock())


async def test_it_is_known_whether_somebody_waits() -> None:
    waiting = Waiter(ManualClock(START))
    seen = [waiting.is_waiting]
    begun = asyncio.ensure_future(waiting.wait())
    await asyncio.sleep(0)
    seen.append(waiting.is_waiting)
    waiting.wake()
    await begun
    assert [*seen, waiting.is_waiting] == [False, True, False]
