"""Writes results in the Common Test Report Format, which other tools show and compare.

The format: https://github.com/ctrf-io/ctrf/blob/main/spec/ctrf.md. `reports.py` reads it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.bot.suggestions import PROGRAM
from orchestrator.bot.verification.base import WHOLE_RUN, CaseStatus, RunKind
from orchestrator.bot.verification.page import tests_in_json
from orchestrator.core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from orchestrator.bot.verification.base import CaseResult, RunResult
    from orchestrator.bot.verification.verdict import ChangeVerdict

CtrfStatus = Literal["passed", "failed", "skipped", "pending", "other"]
SPEC_VERSION = "1.0.0"
NAMESPACE = "pullwright"
"""The prefix of the keys that are this program's own."""
_MILLISECONDS = 1_000
_STATUSES: dict[CaseStatus, CtrfStatus] = {
    CaseStatus.PASSED: "passed",
    CaseStatus.FAILED: "failed",
    CaseStatus.ERROR: "failed",
    CaseStatus.SKIPPED: "skipped",
}


@dataclass(frozen=True, slots=True)
class CtrfTest:
    """One result in a report.

    Attributes:
        name: unique in the report together with `suite`.
        seconds: how long it took; 0 where that is not known.
        suite: what contains it, from the outside to the inside.
        message: what was said about it; empty for nothing.
        raw_status: its status in words of the program, where the format has none for it.
        file: path of its file, relative to the repository; empty where it is not known.
        labels: further facts, by name.
        is_flaky: whether it ended differently in an equal run.
    """

    name: str
    status: CtrfStatus
    seconds: float = 0.0
    suite: tuple[str, ...] = ()
    message: str = ""
    raw_status: str = ""
    file: str = ""
    labels: Mapping[str, str | float | bool] = field(default_factory=dict)
    is_flaky: bool = False


def ctrf_report(
    tests: Iterable[CtrfTest],
    *,
    tool: str,
    ended: datetime,
    seconds: float,
    extra: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return a report as JSON.

    Args:
        tool: name of what produced the results.
        ended: when the last result was known.
        seconds: how long all of it took.
        extra: further facts about all of it, by name.
    """
    described = [_described(test) for test in tests]
    counts = Counter(test["status"] for test in described)
    flaky = sum(test.get("flaky", False) for test in described)
    start = ended - timedelta(seconds=seconds)
    results = {
        "tool": {"name": tool},
        "summary": {
            "tests": len(described),
            **{status: counts[status] for status in ("passed", "failed", "skipped", "pending", "other")},
            **({"flaky": flaky} if flaky else {}),
            "start": _milliseconds(start),
            "stop": _milliseconds(ended),
            "duration": round(seconds * _MILLISECONDS),
        },
        "tests": described,
    }
    return {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "timestamp": ended.isoformat(timespec="milliseconds"),
        "generatedBy": f"{PROGRAM} {__version__}",
        "results": results,
        **({"extra": {f"{NAMESPACE}.{name}": value for name, value in extra.items()}} if extra else {}),
    }


def ctrf_of_change(verdict: ChangeVerdict, commit: str, ended: datetime) -> dict[str, Any]:
    """Return the report about a verified change.

    Its tests are those of the run `after`. The labels of each say how it ended in the other runs.

    Args:
        commit: the proposed commit; empty where it is not known.
    """
    runs = verdict.runs
    others = {kind: run for kind in RunKind if (run := runs.of(kind)) is not None}
    after = others.pop(RunKind.AFTER, None)
    tests = _tests_of(after, others) if after else []
    if problem := verdict.problem or (after.problem if after else ""):
        # Readers know no status for an unknown result, and must not take it for a good one.
        tests.append(CtrfTest(_PROOF, "failed", message=problem, raw_status="unknown"))
    report = ctrf_report(
        tests,
        tool=runs.command or PROGRAM,
        ended=ended,
        seconds=after.seconds if after else 0.0,
        extra={"base": runs.base, "tests": tests_in_json(verdict)},
    )
    report["results"]["environment"] = {"commit": commit} if commit else {}
    return report


_PROOF = "(what the runs prove)"


def _tests_of(after: RunResult, others: Mapping[RunKind, RunResult]) -> list[CtrfTest]:
    if not after.cases:
        status: CtrfStatus = "passed" if after.is_green else "failed"
        exits = {kind.value: f"exit code {run.exit}" for kind, run in others.items()}
        return [CtrfTest(WHOLE_RUN, status, after.seconds, message=f"exit code {after.exit}", labels=exits)]
    return [_test_of(case, after, others) for case in after.cases.values()]


def _test_of(case: CaseResult, after: RunResult, others: Mapping[RunKind, RunResult]) -> CtrfTest:
    elsewhere = {
        kind.value: run.cases[case.id].status.value for kind, run in others.items() if case.id in run.cases
    }
    return CtrfTest(
        case.id,
        _STATUSES[case.status],
        message=case.message,
        raw_status=case.status.value if case.status is CaseStatus.ERROR else "",
        file=case.file,
        labels=elsewhere,
        is_flaky=case.id in after.flaky,
    )


def _described(test: CtrfTest) -> dict[str, Any]:
    optional = {
        "suite": list(test.suite),
        "message": test.message,
        "rawStatus": test.raw_status,
        "filePath": test.file,
        "labels": dict(test.labels),
        "flaky": test.is_flaky,
    }
    return {
        "name": test.name or "(without a name)",
        "status": test.status,
        "duration": round(test.seconds * _MILLISECONDS),
        **{name: value for name, value in optional.items() if value},
    }


def _milliseconds(when: datetime) -> int:
    return round(when.timestamp() * _MILLISECONDS)
