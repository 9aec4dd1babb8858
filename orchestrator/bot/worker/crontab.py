"""Reads the five fields of a crontab line, strictly, and says what each allows."""

from __future__ import annotations

import re
from dataclasses import dataclass

from orchestrator.core.errors import ConfigurationError

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
        """The value of a number or a name.

        Raises:
            ValueError: it is neither, or outside of what the field holds.
        """
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
    """What each field allows, as lists of numbers with commas, or `*`; weekdays as names.

    Attributes:
        either_day: `day` and `weekday` both are without a star, so that one of them is enough.
            https://man7.org/linux/man-pages/man5/crontab.5.html
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
        ConfigurationError: it is none, and which field is wrong.
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
    # The second Sunday is the first again: `*/2` counts from 0 to 6.
    most = min(last, _SUNDAY_AGAIN - 1) if match["all"] and field.name == "weekday" else last
    return range(first, most + 1, step)
