"""When work begins: at intervals or at the times of a crontab line, and the alarm that rings then."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

from orchestrator.bot.worker.crontab import read_crontab
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping

    from orchestrator.core.clock import Clock

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=366)
_SPREAD = 0.1  # of the time between two fires
_MOST_SPREAD_SECONDS = 300.0
_FIRES_LOOKED_AT = 5  # for the shortest time between two
_LOOK_SECONDS = 60
"""A machine that slept has its alarm rung at most so long after it woke: timers do not count its sleep."""
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A row of times.

    Attributes:
        text: as the person wrote it, for messages.
        trigger: APScheduler's, which knows the times and nothing of clocks.
        spread_seconds: how much later than the time an alarm may ring, so that many machines come one by one.
        begins_at_once: the first time is the start itself.
    """

    text: str
    trigger: Any
    spread_seconds: float
    begins_at_once: bool

    def next_fire(self, after: datetime) -> datetime:
        """The first time (UTC) after this one.

        A time in the hour that is skipped in spring comes once, as far after midnight; one in the
        hour that is repeated in autumn comes twice.

        Raises:
            ConfigurationError: there is none.
        """
        found: datetime | None = self.trigger.get_next_fire_time(None, after + _TICK)
        if found is None:
            raise ConfigurationError(f"the schedule '{self.text}' names a time that never comes")
        return found.astimezone(UTC)


def make_schedule(every: str | None, cron: str | None, timezone: str, start: datetime) -> Schedule | None:
    """The schedule that the options name; None if they name none.

    Args:
        every: a number with `s`, `m`, `h` or `d`.
        cron: minute, hour, day, month, weekday.
        timezone: of the times in `cron`.
        start: from when intervals count.

    Raises:
        ConfigurationError: both are given, a time zone is unknown, a field is wrong, or no time ever comes.
    """
    if every is not None and cron is not None:
        raise ConfigurationError("every and cron exclude each other: leave one of them out")
    if every is not None:
        return _intervals(every, start)
    zone = time_zone(timezone)
    return None if cron is None else _crontab(cron, zone, start)


def time_zone(name: str) -> ZoneInfo:
    """The time zone of this name.

    Raises:
        ConfigurationError: there is none.
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # the last one where the name is that of a folder
        raise ConfigurationError(
            f"there is no time zone {name!r}: it takes a name such as UTC or Europe/Berlin"
        ) from None


def _intervals(every: str, start: datetime) -> Schedule:
    from apscheduler.triggers.interval import IntervalTrigger

    match = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", every)
    if match is None:
        raise ConfigurationError(
            f"every {every!r} is no time: it takes a number with s, m, h or d, such as 30m"
        )
    length = timedelta(**{_UNITS[match[2]]: int(match[1])})
    if length > _LONGEST:
        raise ConfigurationError(f"every {every!r} is more than a year")
    trigger = IntervalTrigger(seconds=int(length.total_seconds()), start_date=start, timezone=UTC)
    return Schedule(f"every {every}", trigger, _spread(length), begins_at_once=True)


def _crontab(cron: str, zone: ZoneInfo, start: datetime) -> Schedule:
    from apscheduler.triggers.combining import OrTrigger
    from apscheduler.triggers.cron import CronTrigger

    fields = read_crontab(cron)
    day = {"day": fields.day, "day_of_week": fields.weekday}
    # APScheduler would ask for both kinds of days.
    days = [{"day": fields.day}, {"day_of_week": fields.weekday}] if fields.either_day else [day]
    time_of_day = {"minute": fields.minute, "hour": fields.hour, "month": fields.month, "second": "0"}
    triggers = [CronTrigger(**time_of_day, **one, timezone=zone) for one in days]
    schedule = Schedule(
        f"{cron} {zone.key}",
        triggers[0] if len(triggers) == 1 else OrTrigger(triggers),
        0.0,
        begins_at_once=False,
    )
    times = [schedule.next_fire(start)]
    for _ in range(_FIRES_LOOKED_AT):
        times.append(schedule.next_fire(times[-1]))
    shortest = min(later - earlier for earlier, later in pairwise(times))
    return Schedule(schedule.text, schedule.trigger, _spread(shortest), begins_at_once=False)


def _spread(between: timedelta) -> float:
    return min(between.total_seconds() * _SPREAD, _MOST_SPREAD_SECONDS)


class Alarms:
    """Rings for names at the times of their schedules. A job only says its name; who listens does the work.

    Nothing is stored: whoever starts again computes the times anew. A time that was missed while
    the machine slept rings once.

    Args:
        schedules: by name.
        ring: called in the event loop; several calls for a name mean no more than one.
        clock: waits for the spread.
        source: of the spread.
    """

    def __init__(
        self,
        schedules: Mapping[str, Schedule],
        ring: Callable[[str], None],
        clock: Clock,
        source: random.Random,
    ) -> None:
        self._schedules = schedules
        self._ring = ring
        self._clock = clock
        self._source = source
        self._scheduler: Any = None

    async def __aenter__(self) -> Self:
        """Start. Those that begin at once ring now."""
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        once = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=once)
        for name, schedule in self._schedules.items():
            self._scheduler.add_job(partial(self._fire, name), schedule.trigger, id=name)
            if schedule.begins_at_once:
                self._ring(name)
        self._scheduler.add_job(_look, "interval", seconds=_LOOK_SECONDS)
        self._scheduler.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop; nothing rings after this."""
        self._scheduler.shutdown(wait=False)
        self._ring = _silent
        await asyncio.sleep(0)  # the scheduler ends in the loop's next turn

    async def _fire(self, name: str) -> None:
        await self._clock.sleep(self._source.uniform(0, self._schedules[name].spread_seconds))
        self._ring(name)


async def _look() -> None:
    """Makes the scheduler compare its times with the clock."""


def _silent(name: str) -> None:
    del name
