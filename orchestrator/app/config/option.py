"""What there is to say of an option: its default, its words, its bounds, and who may set it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import Field, JsonValue

MOST_ITEMS = 1_000
"""Of an option that is a list."""


class Reach(StrEnum):
    """How far a file that a repository may bring along reaches with an option."""

    FREE = "free"
    """It may set the option: nothing that is kept from the model or from strangers depends on it."""
    TIGHTEN = "tighten"
    """It may make the rule stricter than the person's other choices, never looser."""
    PROPOSE = "propose"
    """What it names counts only where the person chose `test_command = "auto"`, and as on the default branch."""
    NEVER = "never"
    """It may not set the option."""
    TYPED = "typed"
    """No file and no variable may: the person types the flag."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the most that a number may be: whole ones or not, as `most` is. `above` leaves the least out."""

    least: float
    most: float
    above: bool = False

    def __str__(self) -> str:
        kind = "a whole number" if isinstance(self.most, int) else "a number"
        if self.above:
            return f"{kind} above {int(self.least):,} and up to {int(self.most):,}"
        return f"{kind} from {int(self.least):,} to {int(self.most):,}"


def option(default: Any, description: str, allowed: str, reach: Reach = Reach.FREE, **bounds: Any) -> Any:
    """A field. `allowed` ends the sentence "must be ..."."""
    extra: dict[str, JsonValue] = {"allowed": allowed, "reach": str(reach)}
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def number(default: float | None, description: str, bounds: Bounds, reach: Reach = Reach.FREE) -> Any:
    """A field that is a number."""
    least = {"gt": bounds.least} if bounds.above else {"ge": bounds.least}
    return option(default, description, str(bounds), reach, **least, le=bounds.most)


def several(description: str, allowed: str, reach: Reach) -> Any:
    """A field that is a list, each item of which is `allowed`."""
    return option((), description, f"a list, each {allowed}", reach, max_length=MOST_ITEMS)
