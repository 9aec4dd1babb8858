"""From when another try makes sense, as servers say it: in headers, and in the words of an error."""

from __future__ import annotations

import math
import re
import zoneinfo
from datetime import UTC, datetime, time, timedelta, timezone
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import tzinfo

_EPOCH_SECONDS = 1_000_000_000  # a reset at or above this is a time of day, not a duration
_EPOCH_MILLISECONDS = 1_000_000_000_000
LEAST_QUOTA_SECONDS = 600.0
"""A shorter wait that comes with a spent quota is not the quota's."""
_LONGEST_SECONDS = 366 * 86_400.0
_UNIT_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_ONE = r"\d+(?:\.\d+)? ?(?:milliseconds?|ms|sec(?:ond)?s?|s|min(?:ute)?s?|m|h(?:ou)?rs?|h|days?|d)(?![a-z])"
_PIECE = re.compile(r"(\d+(?:\.\d+)?) ?([a-z]+)", re.IGNORECASE)
_DURATION = re.compile(rf"{_ONE}(?:(?:,? and |, | )?{_ONE})*", re.IGNORECASE)
_ABOUT = r"(?:about |around |approximately |at least |another )?"
_TRY_AGAIN = re.compile(
    rf"(?:\b(?:again|retry|retrying|resets?|available) (?:in|after)|\bwait(?: for)?) {_ABOUT}({_DURATION.pattern})"
    # A field of a body that somebody put into a message.
    rf"|retry[_-]?(?:delay|after)[\\\"']*\s*[:=]\s*[\\\"']*({_DURATION.pattern}|\d+(?:\.\d+)?)",
    re.IGNORECASE,
)
_ON_A_DATE = re.compile(
    r"(?:access|again|resets?|available) (?:on |at |after )?(\d{4}-\d\d-\d\d)(?:(?: at |[T ])(\d\d:\d\d(?::\d\d)?))?",
    re.IGNORECASE,
)
_RESET = re.compile(r"(?:x-ratelimit-reset(?P<openai>-.+)?|anthropic-ratelimit(?P<anthropic>-.+)-reset)")


def resume_time(status: int, headers: Mapping[str, str], message: str, now: datetime) -> datetime | None:
    """From when another try makes sense, as far as the server said so.

    `retry-after-ms` and `Retry-After` (seconds or an HTTP date) come first, then "try again in
    18.6s" or "regain access on 2026-12-01 at 00:00 UTC" in the message, then, with status 429, the
    rate limit's reset headers.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    waits = [
        milliseconds / 1_000 if milliseconds is not None else None,
        _seconds_until(headers.get("retry-after"), now),
        _seconds_until(wait_in(message), now),
        (date - now).total_seconds() if (date := date_in(message)) else None,
        _reset(headers, now) if status == HTTPStatus.TOO_MANY_REQUESTS else None,
    ]
    seconds = next((wait for wait in waits if wait is not None), None)
    return None if seconds is None else now + timedelta(seconds=min(max(seconds, 0.0), _LONGEST_SECONDS))


def quota_time(headers: Mapping[str, str], message: str, now: datetime) -> datetime | None:
    """When a spent quota is free again, as far as the server said so.

    Waits of seconds are left out: they belong to the pace of requests, which servers name with
    every error, and a spent quota does not come back in them. A date that has just passed is one
    of a clock that goes wrong, here or there: it is asked again a little later.
    """
    least = now + timedelta(seconds=LEAST_QUOTA_SECONDS)
    date = date_in(message)
    if date is not None:
        return max(least, min(date, now + timedelta(seconds=_LONGEST_SECONDS)))
    named = resume_time(HTTPStatus.OK, headers, message, now)
    return named if named and named >= least else None


def wait_in(message: str) -> str:
    """The wait in the words of an error ("try again in 18.6s", "wait 2 minutes"), empty where there is none."""
    found = _TRY_AGAIN.search(message)
    return (found[1] or found[2]) if found else ""


def date_in(message: str) -> datetime | None:
    """The date on which there is access again, in the words of an error; in UTC."""
    found = _ON_A_DATE.search(message)
    if found is None:
        return None
    try:
        return datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}").replace(tzinfo=UTC)
    except ValueError:
        return None


def midnight_pacific(now: datetime) -> datetime:
    """When Google's quotas of a day are new.

    https://ai.google.dev/gemini-api/docs/rate-limits: "Requests per day (RPD) quotas reset at
    midnight Pacific time". Where the system has no table of time zones it is winter time all
    year, which is an hour late in summer.
    """
    pacific: tzinfo
    try:
        pacific = zoneinfo.ZoneInfo("America/Los_Angeles")
    except zoneinfo.ZoneInfoNotFoundError:
        pacific = timezone(timedelta(hours=-8))
    tomorrow = now.astimezone(pacific).date() + timedelta(days=1)
    return datetime.combine(tomorrow, time(), pacific).astimezone(UTC)


def _reset(headers: Mapping[str, str], now: datetime) -> float | None:
    """The longest reset of the limits that are spent, or the shortest of all if none says that it is."""
    spent: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        match = _RESET.fullmatch(name)
        seconds = _seconds_until(value, now) if match else None
        if match is None or seconds is None:
            continue
        kind = match["openai"] or match["anthropic"] or ""
        prefix = (
            "anthropic-ratelimit" + kind + "-remaining"
            if match["anthropic"]
            else f"x-ratelimit-remaining{kind}"
        )
        is_spent = _number(headers.get(prefix)) == 0
        rejected = headers.get(prefix.removesuffix("-remaining") + "-status") == "rejected"
        (spent if is_spent or rejected else others).append(seconds)
    return max(spent) if spent else min(others, default=None)


def _seconds_until(text: str | None, now: datetime) -> float | None:
    """Read seconds, `6m0.5s`, a time since 1970, an HTTP date, or an ISO date."""
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            number /= 1_000
        return number - now.timestamp() if number >= _EPOCH_SECONDS else number
    text = (text or "").strip()
    if _DURATION.fullmatch(text):
        return sum(float(amount) * _unit_seconds(unit) for amount, unit in _PIECE.findall(text))
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return None


def _unit_seconds(unit: str) -> float:
    name = unit.lower()
    return _UNIT_SECONDS["ms" if name.startswith(("ms", "milli")) else name[0]]


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
