"""Summarizes tries: solved share, cost, paired comparison of arms, the recommended arm, and the cost of a month.

Means over tasks, and paired differences, have confidence intervals by bootstrap over tasks.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean, quantiles
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.plugins.backtest.cases import FoundCases, ReadyCase
    from orchestrator.plugins.backtest.trials import Arm, Try, TryResult

RESAMPLES = 4_000
_SEED = 17
"""A fixed seed, so that equal results have equal intervals."""
_TAIL = 0.025
"""The share of the resampled means beyond each end of an interval."""
_MOST_DRAWS = 2_000_000
"""Most values drawn for one interval. With many tasks, fewer resamples suffice."""
_LEAST_RESAMPLES = 1_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over tasks, with its 95 % confidence interval.

    Attributes:
        low, high: the ends of the interval; None if unknown.
        tasks: number of tasks.
    """

    mean: float
    low: float | None
    high: float | None
    tasks: int

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes zero, so that the mean probably differs from it."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def estimate(values: Sequence[float], bounds: tuple[float, float] | None = None) -> Estimate | None:
    """Return the mean of one value per task, with its interval; None without a task.

    The ends are percentiles of the means of samples drawn from the tasks with replacement (Efron, "Bootstrap
    methods", 1979). If all tasks have the same value, this interval would have no width. Then it assumes that other
    values have the share `1 - 0.025 ** (1 / n)` at most (Clopper and Pearson, 1934).

    Args:
        values: each task's mean over its tries.
        bounds: the least and the greatest possible value, if known.
    """
    count = len(values)
    if not count:
        return None
    mean = fmean(values)
    if min(values) == max(values):
        if bounds is None:
            return Estimate(mean, None, None, count)
        others = 1 - _TAIL ** (1 / count)
        return Estimate(mean, mean - others * (mean - bounds[0]), mean + others * (bounds[1] - mean), count)
    source = random.Random(_SEED)  # noqa: S311  not a secret
    number = max(_LEAST_RESAMPLES, min(RESAMPLES, _MOST_DRAWS // count))
    means = [fmean(source.choices(values, k=count)) for _ in range(number)]
    percentiles = quantiles(means, n=round(1 / _TAIL), method="inclusive")
    return Estimate(mean, percentiles[0], percentiles[-1], count)


def paired_difference(
    one: Mapping[str, float], other: Mapping[str, float], bounds: tuple[float, float] | None = None
) -> Estimate | None:
    """Return the mean difference `one - other` over the tasks that both have; None without such a task.

    Args:
        one: a value for each task, by the task's id.
        other: the values to compare with.
        bounds: the least and the greatest possible value, not of their difference.
    """
    common = sorted(one.keys() & other.keys())
    span = None if bounds is None else (bounds[0] - bounds[1], bounds[1] - bounds[0])
    return estimate([one[task] - other[task] for task in common], span)


_SHARE = (0.0, 1.0)
_FEW_TASKS = 20
"""With fewer tasks only large differences can be detected."""
FORMAT = "pullwright-backtest/1"


@dataclass(frozen=True, slots=True)
class ArmSummary:
    """The summary of one arm's tries. Each estimate is over tasks, with the mean of each task's tries.

    Attributes:
        done: number of tries with a result.
        planned: number of all tries.
        judged: number of tries by result.
        usd, minutes, rounds, tokens: per try.
        usd_a_solution: dollars per solved try; None if none was solved, or the price is unknown.
    """

    arm: Arm
    done: int
    planned: int
    judged: Mapping[str, int]
    solved: Estimate | None
    usd: Estimate | None
    minutes: Estimate | None
    rounds: Estimate | None
    tokens: Estimate | None
    usd_a_solution: float | None


@dataclass(frozen=True, slots=True)
class ArmComparison:
    """The difference `one - other` over the tasks that both arms have tried."""

    one: str
    other: str
    solved: Estimate | None
    usd: Estimate | None
    minutes: Estimate | None


@dataclass(frozen=True, slots=True)
class OpenBacklog:
    """The size of the backlog; None if unknown.

    Attributes:
        tasks: number of open tasks.
        issues_a_month: number of issues recently opened per month.
    """

    tasks: int | None = None
    issues_a_month: float | None = None


@dataclass(frozen=True, slots=True)
class BacktestSummary:
    """The comparison of all arms, as it is shown at the end of a backtest.

    Attributes:
        chosen: the recommended arm; empty if none solved a case, or nothing is known.
        reasons: the reasons, as sentences.
        outlook: the expected cost of the backlog with this arm, as sentences.
    """

    arms: Sequence[ArmSummary]
    comparisons: Sequence[ArmComparison]
    chosen: str
    reasons: Sequence[str]
    outlook: Sequence[str]


def sum_up(
    arms: Sequence[Arm], wanted: Iterable[Try], done: Mapping[str, TryResult], backlog: OpenBacklog
) -> BacktestSummary:
    """Summarize the tries that have a result."""
    results: defaultdict[str, list[TryResult]] = defaultdict(list)
    planned: Counter[str] = Counter()
    for one in wanted:
        planned[one.arm.name] += 1
        if one.key in done:
            results[one.arm.name].append(done[one.key])
    summaries = [_arm(arm, results[arm.name], planned[arm.name]) for arm in arms]
    compared = [_compare(one, other, results) for one, other in combinations(arms, 2)]
    chosen, reasons = _choice(summaries, results)
    return BacktestSummary(summaries, compared, chosen, reasons, _outlook(summaries, chosen, backlog))


def _by_task(results: Iterable[TryResult], name: str) -> dict[str, float]:
    """Return the mean of an attribute over each task's tries. Tasks with an unknown value are left out."""
    values: defaultdict[str, list[float | None]] = defaultdict(list)
    for one in results:
        values[one.case].append(getattr(one, name))
    known = {task: [one for one in found if one is not None] for task, found in values.items()}
    return {task: fmean(found) for task, found in known.items() if found and len(found) == len(values[task])}


def _arm(arm: Arm, results: Sequence[TryResult], planned: int) -> ArmSummary:
    def over(name: str, bounds: tuple[float, float] | None = None) -> Estimate | None:
        return estimate(list(_by_task(results, name).values()), bounds)

    costs = [one.usd for one in results]
    known = [cost for cost in costs if cost is not None]
    solved = sum(one.is_solved for one in results)
    return ArmSummary(
        arm,
        len(results),
        planned,
        dict(Counter(one.judged for one in results)),
        over("is_solved", _SHARE),
        over("usd"),
        over("minutes"),
        over("rounds"),
        over("tokens"),
        sum(known) / solved if solved and len(known) == len(costs) else None,
    )


def _compare(one: Arm, other: Arm, results: Mapping[str, Sequence[TryResult]]) -> ArmComparison:
    def difference(name: str, bounds: tuple[float, float] | None = None) -> Estimate | None:
        ours, theirs = (_by_task(results[arm.name], name) for arm in (one, other))
        return paired_difference(ours, theirs, bounds)

    solved = difference("is_solved", _SHARE)
    return ArmComparison(one.name, other.name, solved, difference("usd"), difference("minutes"))


def _choice(
    summaries: Sequence[ArmSummary], results: Mapping[str, Sequence[TryResult]]
) -> tuple[str, list[str]]:
    """Recommend an arm, with reasons: the cheapest per solution among those not shown to be worse than the best."""
    ranked = sorted(
        (one for one in summaries if one.solved),
        key=lambda one: (-one.solved.mean if one.solved else 0.0, *_price(one)),
    )
    if not ranked:
        return "", ["No try has a result, so nothing is known."]
    best = ranked[0]
    assert best.solved is not None  # noqa: S101  for the type checker
    caution = []
    if best.solved.tasks < _FEW_TASKS:
        caution = [f"With {_counted(best.solved.tasks, 'case')} only large differences can be seen."]
    if best.solved.mean == 0:
        return "", ["No arm solved a case, so none is recommended.", *caution]
    if len(ranked) == 1:
        return best.arm.name, ["There is no other arm to compare it with.", *caution]
    reasons: list[str] = []
    equal = [best]
    for other in ranked[1:]:
        gap = _compare(best.arm, other.arm, results).solved
        if gap is None:
            reasons.append(
                f"{other.arm.name} tried no case that {best.arm.name} tried, so they are not compared."
            )
        elif gap.excludes_zero:
            reasons.append(f"It solves more than {other.arm.name}: {_points(gap)}.")
        else:
            equal.append(other)
            reasons.append(f"Against {other.arm.name} the difference is within chance: {_points(gap)}.")
    chosen = min((one for one in equal if one.solved and one.solved.mean), key=_price_of_solution)
    if chosen is not best:
        reasons = [line.replace("It solves", f"{best.arm.name} solves", 1) for line in reasons]
        reasons.insert(0, f"{best.arm.name} solved most, but the difference to this one is within chance.")
    if len(equal) > 1:
        reasons.append("Of the arms within chance of each other, it costs least for each solved task.")
    return chosen.arm.name, [*reasons, *caution]


def _price(one: ArmSummary) -> tuple[float, float]:
    usd = one.usd.mean if one.usd else float("inf")
    return usd, one.minutes.mean if one.minutes else float("inf")


def _price_of_solution(one: ArmSummary) -> tuple[float, float]:
    solved = one.solved.mean if one.solved else 0.0
    usd, minutes = _price(one)
    return usd / solved, minutes / solved


def _points(gap: Estimate) -> str:
    """Return a difference of shares in percentage points, with its interval."""
    middle = f"{100 * gap.mean:+.0f} points"
    if gap.low is None or gap.high is None:
        return middle
    return f"{middle} ({100 * gap.low:+.0f} to {100 * gap.high:+.0f}) over {_counted(gap.tasks, 'case')}"


def _outlook(summaries: Sequence[ArmSummary], chosen: str, backlog: OpenBacklog) -> list[str]:
    arm = next((one for one in summaries if one.arm.name == chosen), None)
    if arm is None or arm.solved is None:
        return []
    if arm.usd is None:
        return ["The cost of a month is not known, because the price of the model is not (see --price)."]
    lines = []
    for number, what in (
        (backlog.tasks, "The tasks that are open now"),
        (backlog.issues_a_month, "A month of new issues, if each became a task"),
    ):
        if number is None:
            continue
        if not number:
            lines.append("No task is open now.")
            continue
        low, high = (_dollars(number * end) for end in (arm.usd.low or 0, arm.usd.high or 0))
        spread = f" ({low} to {high})" if arm.usd.low is not None and arm.usd.high is not None else ""
        lines.append(
            f"{what} ({number:.0f}): {_dollars(number * arm.usd.mean)}{spread}, one try each; "
            f"about {number * arm.solved.mean:.0f} would be solved if they are like these cases."
        )
    if backlog.issues_a_month is None:
        lines.append("The number of new tasks in a month is not known here.")
    return lines


def _dollars(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 or usd == 0 else f"${usd:.4f}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@dataclass(frozen=True, slots=True)
class BacktestResult:
    """The complete result of a backtest.

    Attributes:
        ended: why the backtest ended before all tries were made; empty if all were made.
        is_held: whether commands ran in a sandbox.
    """

    repository: str
    found: FoundCases
    wanted: Sequence[Try]
    done: Mapping[str, TryResult]
    summary: BacktestSummary
    ended: str
    is_held: bool

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object. `docs/evidence.md` documents its fields."""
        summary = self.summary
        return {
            "format": FORMAT,
            "repository": self.repository,
            "ended": self.ended or None,
            "isolated": self.is_held,
            "cases": [_case(one) for one in self.found.ready],
            "left_out": [asdict(one) for one in self.found.unfit],
            "arms": [_arm_to_json(one) for one in summary.arms],
            "comparisons": [asdict(one) for one in summary.comparisons],
            "chosen": summary.chosen or None,
            "reasons": list(summary.reasons),
            "outlook": list(summary.outlook),
            "tries": [asdict(self.done[one.key]) for one in self.wanted if one.key in self.done],
        }


def _arm_to_json(one: ArmSummary) -> dict[str, Any]:
    values = {key: value for key, value in asdict(one).items() if key != "arm"}
    return {"name": one.arm.name, "model": one.arm.model, "contract": one.arm.contract, **values}


def _case(one: ReadyCase) -> dict[str, Any]:
    change, hidden = one.case.change, one.hidden
    return {
        "id": change.id,
        "title": one.case.text.title,
        "url": change.url or None,
        "base": change.base,
        "head": change.head,
        "when": change.when,
        "hints_removed": dict(one.case.text.removed),
        "must_pass": list(hidden.must_pass),
        "must_still_pass": len(hidden.must_still_pass),
        "unstable": hidden.unstable,
    }
