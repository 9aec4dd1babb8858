"""Confidence intervals for means over few tasks, and for paired differences, by bootstrap over tasks."""

from __future__ import annotations

import random
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

RESAMPLES = 4_000
_SEED = 17
"""Fixed, so that equal results have equal intervals."""
_LEVEL = 0.95
_MOST_DRAWS = 2_000_000
"""Most values drawn for one interval; with many tasks fewer resamples give the same ends."""
_LEAST_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks, with its 95 % confidence interval.

    Attributes:
        low, high: None if unknown: with one task or none.
        tasks: number of tasks.
    """

    mean: float
    low: float | None
    high: float | None
    tasks: int

    @property
    def excludes_zero(self) -> bool:
        """Whether chance alone does not explain that the mean differs from zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def estimate(values: Sequence[float], bounds: tuple[float, float] | None = None) -> Estimate | None:
    """Return the mean of one value per task, with its interval; None without a task.

    The ends are percentiles of the means of samples drawn from the tasks with replacement (Efron, "Bootstrap
    methods", 1979). If all tasks have the same value, so does every sample, and the bootstrap would be
    certain. In that case other values are rarer than `1 - 0.025 ** (1 / n)` (Clopper and Pearson, 1934).

    Args:
        values: each task's mean over its tries.
        bounds: least and greatest possible value, if known.
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
    """Return the mean difference `one - other` over the tasks that both have; None without such a task.

    Args:
        one: a value for each task, by the task's id.
        other: the values to compare with.
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
    """Return the percentile for this share, interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
