"""How far a mean over a few tasks may be from the truth: intervals by bootstrap over tasks, also of paired differences."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESAMPLES = 4_000
_SEED = 17
"""Fixed, so that the same results have the same intervals."""
_LEVEL = 0.95
_MOST_DRAWS = 2_000_000
"""Of values for one interval; with many tasks fewer resamples give the same ends."""
_LEAST_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks, and the ends of its 95 % interval.

    Attributes:
        low, high: None where nothing is known of an end: one task, or no task.
        tasks: how many there were.
    """

    mean: float
    low: float | None
    high: float | None
    tasks: int

    @property
    def excludes_zero(self) -> bool:
        """Whether chance alone does not explain that the mean is not zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def estimate(values: Sequence[float], bounds: tuple[float, float] | None = None) -> Estimate | None:
    """The mean of one value a task, with its interval; None without a task.

    The ends are percentiles of the means of samples drawn from the tasks with replacement (Efron, "Bootstrap methods",
    1979). Where all tasks have one value, every such sample has it too, and the bootstrap would call it certain. What
    is known then is that the other values are rarer than `1 - 0.025 ** (1 / n)` (Clopper and Pearson, 1934).

    Args:
        values: each task's own mean over its tries.
        bounds: the least and the most that a value can be, where that is known.
    """
    count = len(values)
    if not count:
        return None
    mean = fmean(values)
    if min(values) == max(values):
        if bounds is None:
            return Estimate(mean, None, None, count)
        rest = 1 - ((1 - _LEVEL) / 2) ** (1 / count)
        return Estimate(mean, mean - rest * (mean - bounds[0]), mean + rest * (bounds[1] - mean), count)
    means = sorted(_resampled(values))
    tail = (1 - _LEVEL) / 2
    return Estimate(mean, _percentile(means, tail), _percentile(means, 1 - tail), count)


def paired_difference(
    one: Mapping[str, float], other: Mapping[str, float], bounds: tuple[float, float] | None = None
) -> Estimate | None:
    """How much larger `one` is than `other`, over the tasks that both have; None where there is no such task.

    Args:
        one: a value for each task, by the task's id.
        other: the same of what is compared with it.
        bounds: of the values, not of their difference.
    """
    common = sorted(one.keys() & other.keys())
    span = None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])
    return estimate([one[task] - other[task] for task in common], span)


def _resampled(values: Sequence[float]) -> list[float]:
    count = len(values)
    number = max(_LEAST_RESAMPLES, min(RESAMPLES, _MOST_DRAWS // count))
    source = random.Random(_SEED)  # noqa: S311  no secret: equal results have equal intervals
    return [fmean(source.choices(values, k=count)) for _ in range(number)]


def _percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which this share lies, between its neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
