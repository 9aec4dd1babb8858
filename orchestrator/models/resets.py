"""From when another try makes sense, as servers say it: in headers, and in the words of an error."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_EPOCH_SECONDS = 1_000_000_000  # a reset at or above this is a time of day, not a duration
_EPOCH_MILLISECONDS = 1_000_000_000_000
_LONGEST_SECONDS = 366 * 86_400.0
_UNIT_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|[dhms])")
_TRY_AGAIN = re.compile(r"(?:try again|retry) (?:in|after) ((?:\d+(?:\.\d+)?(?:ms|[dhms]))+)")
_RESET = re.compile(r"(?:x-ratelimit-reset(?P<openai>-.+)?|anthropic-ratelimit(?P<anthropic>-.+)-reset)")


def resume_time(status: int, headers: Mapping[str, str], message: str, now: datetime) -> datetime | None:
    """From when another try makes sense, as far as the server said so.

    `retry-after-ms` and `Retry-After` (seconds or an HTTP date) come first, then "try again in
    18.6s" in the message, then, with status 429, the rate limit's reset headers.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    waits = [
        milliseconds / 1_000 if milliseconds is not None else None,
        _seconds_until(headers.get("retry-after"), now),
        _seconds_until(found.group(1), now) if (found := _TRY_AGAIN.search(message)) else None,
        _reset(headers, now) if status == HTTPStatus.TOO_MANY_REQUESTS else None,
    ]
    seconds = next((wait for wait in waits if wait is not None), None)
    return None if seconds is None else now + timedelta(seconds=min(max(seconds, 0.0), _LONGEST_SECONDS))


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
        (spent if _number(headers.get(prefix)) == 0 else others).append(seconds)
    return max(spent) if spent else min(others, default=None)


def _seconds_until(text: str | None, now: datetime) -> float | None:
    """Read seconds, `6m0.5s`, a time since 1970, an HTTP date, or an ISO date."""
    number = _number(text)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            number /= 1_000
        return number - now.timestamp() if number >= _EPOCH_SECONDS else number
    text = (text or "").strip()
    pieces = _DURATION.findall(text)
    if pieces and "".join(f"{amount}{unit}" for amount, unit in pieces) == text:
        return sum(float(amount) * _UNIT_SECONDS[unit] for amount, unit in pieces)
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return None


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
