"""Which times a schedule names, and the alarm that rings then."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.worker.schedule import Alarm, Schedule, make_schedule, read_crontab
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from tests.tables import table

START = datetime(2026, 11, 21, 13, 0, tzinfo=UTC)  # a Saturday


def cron(text: str, timezone: str = "UTC", start: datetime = START) -> Schedule:
    made = make_schedule(None, text, timezone, start)
    assert made is not None
    return made


def fires(schedule: Schedule, after: datetime, number: int) -> list[str]:
    found = []
    for _ in range(number):
        after = schedule.next_fire(after)
        found.append(f"{after:%m-%d %H:%M}")
    return found


def test_without_an_option_there_is_no_schedule() -> None:
    assert make_schedule(None, None, "UTC", START) is None


@table(
    ("every", "length"),
    [("1s", {"seconds": 1}), ("30m", {"minutes": 30}), ("2h", {"hours": 2}), ("1d", {"days": 1})],
)
def test_intervals_count_from_the_start(every: str, length: dict[str, int]) -> None:
    schedule = make_schedule(every, None, "UTC", START)
    assert schedule is not None
    assert schedule.begins_at_once
    assert schedule.next_fire(START) == START + timedelta(**length)
    assert schedule.next_fire(START + timedelta(**length)) == START + 2 * timedelta(**length)
    between = START + timedelta(**length) * 1.5
    assert schedule.next_fire(between) == START + 2 * timedelta(**length)


def test_a_crontab_line_in_a_time_zone() -> None:
    schedule = cron("0 3 * * *", "Europe/Berlin")
    assert fires(schedule, START, 2) == ["11-22 02:00", "11-23 02:00"]
    assert not schedule.begins_at_once


@table(
    ("line", "expected"),
    [
        ("0 0 * * 0", "11-22"),
        ("0 0 * * 7", "11-22"),
        ("0 0 * * 1", "11-23"),
        ("0 0 * * mon", "11-23"),
        ("0 0 * * 6", "11-28"),
        ("0 0 * * 5-7", "11-22"),
        ("0 0 1 jan *", "01-01"),
        ("0 0 */2 * mon", "11-23"),  # a star in one of the two kinds of days: both count
    ],
)
def test_days_are_those_of_crontab(line: str, expected: str) -> None:
    assert fires(cron(line), START, 1)[0].startswith(expected)


def test_of_two_kinds_of_days_either_is_enough() -> None:
    assert fires(cron("0 0 24 * mon"), START, 3) == ["11-23 00:00", "11-24 00:00", "11-30 00:00"]


def test_a_time_in_the_hour_that_is_skipped_comes_once() -> None:
    before = datetime(2026, 3, 27, 12, tzinfo=UTC)  # on the 29th, 02:00 becomes 03:00 in Berlin
    schedule = cron("30 2 * * *", "Europe/Berlin", before)
    assert fires(schedule, before, 3) == ["03-28 01:30", "03-29 01:30", "03-30 00:30"]
    hourly = cron("30 * * * *", "Europe/Berlin", before)
    midnight = datetime(2026, 3, 29, 0, 0, tzinfo=UTC)
    assert fires(hourly, midnight, 3) == ["03-29 00:30", "03-29 01:30", "03-29 02:30"]


def test_a_time_in_the_hour_that_is_repeated_comes_twice() -> None:
    before = datetime(2026, 10, 24, 12, tzinfo=UTC)  # on the 25th, 03:00 becomes 02:00 in Berlin
    schedule = cron("30 2 * * *", "Europe/Berlin", before)
    assert fires(schedule, before, 3) == ["10-25 00:30", "10-25 01:30", "10-26 01:30"]


@table(
    ("line", "said"),
    [
        ("60 * * * *", "bad minute '60'"),
        ("* 24 * * *", "bad hour '24'"),
        ("* * 0 * *", "bad day '0'"),
        ("* * * 13 *", "bad month '13'"),
        ("* * * foo *", "bad month 'foo'"),
        ("* * * * 8", "bad weekday '8'"),
        ("* * * * mon#1", "bad weekday 'mon#1'"),
        ("5-1 * * * *", "bad minute '5-1'"),
        ("*/0 * * * *", r"bad minute '\*/0'"),
        ("*/60 * * * *", r"bad minute '\*/60'"),
        ("5/10 * * * *", "bad minute '5/10'"),
        ("1,,2 * * * *", "bad minute ''"),
        ("- * * * *", "bad minute '-'"),
        ("* * L * *", "bad day 'l'"),
        ("0 0 31 2 *", "never comes"),
        ("* * * *", "has 4 fields"),
        ("* * * * * *", "has 6 fields"),
    ],
)
def test_a_line_that_is_wrong_is_said_in_one_line(line: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        cron(line)
    assert "\n" not in str(caught.value)


@table("name", ["Mars/Phobos", "Europe", "../etc/passwd", "Europe/", "/etc/localtime", ""])
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="there is no time zone"):
        make_schedule(None, "0 3 * * *", name, START)


def test_both_kinds_at_once_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="exclude each other"):
        make_schedule("30m", "0 3 * * *", "UTC", START)


@table("every", ["0m", "30", "m", "1w", "9999999d", "367d", "-1m", "1.5h"])
def test_an_interval_that_is_none_is_refused(every: str) -> None:
    with pytest.raises(ConfigurationError, match="every"):
        make_schedule(every, None, "UTC", START)


_NUMBERS = st.integers(0, 70).map(str)
_ITEMS = st.one_of(
    st.just("*"),
    _NUMBERS,
    st.tuples(_NUMBERS, _NUMBERS).map("-".join),
    st.sampled_from(["mon", "sun-sat", "jan", "*/2", "1-5/2", "#", "L", "", "²", "-1", "1-"]),
)
_PARTS = st.lists(_ITEMS, min_size=1, max_size=3).map(",".join)


@given(st.lists(_PARTS, min_size=5, max_size=5).map(" ".join))
def test_a_line_is_read_or_refused_and_what_is_read_fits_its_field(line: str) -> None:
    try:
        fields = read_crontab(line)
    except ConfigurationError:
        return
    for text, least, most in ((fields.minute, 0, 59), (fields.hour, 0, 23), (fields.day, 1, 31)):
        assert text == "*" or all(least <= int(value) <= most for value in text.split(","))


@table(
    ("every", "line", "most"),
    [
        ("10s", None, 1),
        ("30m", None, 180),
        ("1d", None, 300),
        (None, "0 3 * * *", 300),
        (None, "*/2 * * * *", 12),
    ],
)
def test_the_spread_is_a_part_of_the_time_between_and_capped(
    every: str | None, line: str | None, most: float
) -> None:
    schedule = make_schedule(every, line, "UTC", START)
    assert schedule is not None
    assert schedule.spread_seconds == pytest.approx(most)


def test_times_only_go_forward() -> None:
    schedule = cron("*/7 2,3 * 3,10 *", "Europe/Berlin")
    times = [START]
    for _ in range(1000):
        times.append(schedule.next_fire(times[-1]))
    assert all(earlier < later for earlier, later in pairwise(times))


async def test_the_alarm_rings_at_once_and_again_and_not_after_its_end() -> None:
    heard: asyncio.Queue[None] = asyncio.Queue()
    often = make_schedule("1s", None, "UTC", datetime.now(UTC))
    assert often is not None
    clock = ManualClock()
    source = random.Random(1)  # noqa: S311  no secret
    async with Alarm(often, lambda: heard.put_nowait(None), clock, source):
        for _ in range(2):
            await heard.get()
    assert len(clock.slept) == 1  # the first is not spread: a person waits for it
    assert 0 <= clock.slept[0] <= often.spread_seconds
    assert heard.empty()
