"""Schedules: intervals or the times of a crontab line, and the alarm that rings at these times."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self
from zoneinfo import ZoneInfo

from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from orchestrator.core.clock import Clock


_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_ITEM = re.compile(
    r"(?:(?P<all>\*)|(?P<first>[0-9]{1,2}|[a-z]{3})(?:-(?P<last>[0-9]{1,2}|[a-z]{3}))?)(?:/(?P<step>[0-9]{1,2}))?"
)
_SUNDAY_AGAIN = 7


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    def number(self, text: str) -> int:
        """Return the value of a number or a name."""
        value = int(text) if text.isdigit() else self.names.index(text) + self.least
        if not self.least <= value <= self.most:
            raise ValueError
        return value


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("weekday", 0, _SUNDAY_AGAIN, _DAYS),
)


@dataclass(frozen=True, slots=True)
class Crontab:
    """The fields of a crontab line: numbers separated by commas, or `*`; weekdays as names.

    Attributes:
        either_day: whether one of `day` and `weekday` has to match, not both, because neither begins with a
            star: https://man7.org/linux/man-pages/man5/crontab.5.html
    """

    minute: str
    hour: str
    day: str
    month: str
    weekday: str
    either_day: bool


def read_crontab(text: str) -> Crontab:
    """Read `minute hour day month weekday`: `*`, numbers, three-letter names, ranges, steps and lists.

    Sunday is 0 and 7.

    Raises:
        ConfigurationError: the text is no crontab line; the message names the wrong field.
    """
    parts = text.lower().split()
    if len(parts) != len(_FIELDS):
        raise ConfigurationError(
            f"the schedule '{text}' has {len(parts)} fields, not five: minute, hour, day, month, weekday"
        )
    values = [_values(field, part, text) for field, part in zip(_FIELDS, parts, strict=True)]
    weekdays = {value % _SUNDAY_AGAIN for value in values[-1]}
    names = ",".join(_DAYS[value] for value in sorted(weekdays))
    minute, hour, day, month = (
        "*" if part == "*" else ",".join(map(str, sorted(found)))
        for part, found in zip(parts[:-1], values[:-1], strict=True)
    )
    weekday = "*" if len(weekdays) == len(_DAYS) else names
    either = not (parts[2].startswith("*") or parts[-1].startswith("*"))
    return Crontab(minute, hour, day, month, weekday, either)


def _values(field: _Field, part: str, text: str) -> set[int]:
    found: set[int] = set()
    for item in part.split(","):
        try:
            found.update(_item(field, item))
        except ValueError:
            names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
            raise ConfigurationError(
                f"the schedule '{text}' has a bad {field.name} {item!r}: "
                f"it takes {field.least} to {field.most}{names}, ranges as 1-5 and steps as */2"
            ) from None
    return found


def _item(field: _Field, item: str) -> range:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise ValueError
    if match["all"]:
        first, last = field.least, field.most
    else:
        first = field.number(match["first"])
        last = field.number(match["last"]) if match["last"] else first
        if last < first or (match["step"] and not match["last"]):
            raise ValueError
    step = int(match["step"] or 1)
    if not 0 < step <= field.most:
        raise ValueError
    # 7 is Sunday again, so `*/2` counts from 0 to 6.
    most = min(last, _SUNDAY_AGAIN - 1) if match["all"] and field.name == "weekday" else last
    return range(first, most + 1, step)


_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_LONGEST = timedelta(days=366)
_SPREAD = 0.1
"""Fraction of the time between two rings by which an alarm may be late."""
_MOST_SPREAD_SECONDS = 300.0
_FIRES_COMPARED = 6
"""Times of a crontab line that are compared to find the shortest time between two."""
_COMPARE_SECONDS = 60
"""Interval at which the scheduler compares its times with the clock: timers do not count a machine's sleep."""
_TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A series of times.

    Attributes:
        text: as the person wrote it, for messages.
        trigger: an APScheduler trigger, which computes times and reads no clock.
        spread_seconds: the most that an alarm rings late, so that many machines do not start at once.
        begins_at_once: whether the first time is the start itself.
    """

    text: str
    trigger: Any
    spread_seconds: float
    begins_at_once: bool

    def next_fire(self, after: datetime) -> datetime:
        """Return the first time (UTC) after this one.

        A time that the clock skips in spring comes once, an hour later on the clock. A time that the clock
        shows twice in autumn comes twice.

        Raises:
            ConfigurationError: there is none.
        """
        found: datetime | None = self.trigger.get_next_fire_time(None, after + _TICK)
        if found is None:
            raise ConfigurationError(f"the schedule '{self.text}' names a time that never comes")
        return found.astimezone(UTC)


def make_schedule(every: str | None, cron: str | None, timezone: str, start: datetime) -> Schedule | None:
    """Return the schedule that the options name; None if they name none.

    Args:
        every: a number with `s`, `m`, `h` or `d`.
        timezone: the time zone of the times in `cron`.
        start: the beginning of the first interval.

    Raises:
        ConfigurationError: both are given, a time zone is unknown, a field is wrong, or no time ever comes.
    """
    if every is not None and cron is not None:
        raise ConfigurationError("every and cron exclude each other: leave one of them out")
    if every is not None:
        return _intervals(every, start)
    try:
        zone = ZoneInfo(timezone)
    except (KeyError, ValueError, OSError):  # OSError if the name is that of a folder
        raise ConfigurationError(
            f"there is no time zone {timezone!r}: it takes a name such as UTC or Europe/Berlin"
        ) from None
    return None if cron is None else _crontab(cron, zone, start)


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
    by_day, by_weekday = {"day": fields.day}, {"day_of_week": fields.weekday}
    # One trigger requires all of its fields to match.
    days = [by_day, by_weekday] if fields.either_day else [by_day | by_weekday]
    time_of_day = {"minute": fields.minute, "hour": fields.hour, "month": fields.month, "second": "0"}
    triggers = [CronTrigger(**time_of_day, **day, timezone=zone) for day in days]
    trigger = triggers[0] if len(triggers) == 1 else OrTrigger(triggers)
    schedule = Schedule(f"{cron} {zone.key}", trigger, 0.0, begins_at_once=False)
    times = [start]
    while len(times) <= _FIRES_COMPARED:
        times.append(schedule.next_fire(times[-1]))
    shortest = min(later - earlier for earlier, later in pairwise(times[1:]))
    return replace(schedule, spread_seconds=_spread(shortest))


def _spread(between: timedelta) -> float:
    return min(between.total_seconds() * _SPREAD, _MOST_SPREAD_SECONDS)


class Alarm:
    """Rings at the times of a schedule. The listener does the work.

    Nothing is stored: after a restart the times are computed anew. Times that were missed while the machine
    slept ring once.

    Args:
        ring: called in the event loop; several calls count as one.
        clock: waits for the spread.
    """

    def __init__(
        self, schedule: Schedule, ring: Callable[[], None], clock: Clock, source: random.Random
    ) -> None:
        self._schedule = schedule
        self._ring = ring
        self._clock = clock
        self._source = source
        self._scheduler: Any = None

    async def __aenter__(self) -> Self:
        """Start the scheduler, and ring now if the schedule begins at once."""
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        once = {"max_instances": 1, "coalesce": True, "misfire_grace_time": None}
        self._scheduler = AsyncIOScheduler(timezone=UTC, job_defaults=once)
        self._scheduler.add_job(self._fire, self._schedule.trigger)
        if self._schedule.begins_at_once:
            self._ring()
        self._scheduler.add_job(_compare_times, "interval", seconds=_COMPARE_SECONDS)
        self._scheduler.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Stop the scheduler. Nothing rings after this."""
        self._scheduler.shutdown(wait=False)
        self._ring = lambda: None
        await asyncio.sleep(0)  # the scheduler ends in the loop's next turn

    async def _fire(self) -> None:
        await self._clock.sleep(self._source.uniform(0, self._schedule.spread_seconds))
        self._ring()


async def _compare_times() -> None:
    """Do nothing. Running a job makes the scheduler compare its times with the clock."""
