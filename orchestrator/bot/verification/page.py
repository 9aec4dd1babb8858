"""What a pull request says of its tests: a table for people, and the same as a block for programs.

The block is a statement with the predicate `test-result` v0.1, and what that has no field for stands in `runs`:
https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.bot.policy.wording import in_markdown
from orchestrator.bot.verification.base import CaseStatus, RunKind
from orchestrator.bot.verification.verdict import FindingKind
from orchestrator.core.fence import one_line
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.bot.verification.base import RunResult, Runs
    from orchestrator.bot.verification.verdict import ChangeVerdict

_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"

_LIST_CHARS = 4_000
"""Of the names of tests in one list of the block. GitHub takes 65,536 characters in a body, for all of it."""
_NAME_CHARS = 200
_COMMAND_CHARS = 300
_PROBLEM_CHARS = 200

_NAMES = {
    RunKind.BEFORE: "before: the base as it is",
    RunKind.KEPT: "kept: this change, with the base's tests and settings",
    RunKind.AFTER: "after: this change",
    RunKind.NEW: "new: the base, with the tests of this change",
}
_DOUBTFUL = (
    FindingKind.ONLY_AS_CHANGED,
    FindingKind.HIDDEN,
    FindingKind.LOOSENED,
    FindingKind.ELSEWHERE,
    FindingKind.CHANGED,
    FindingKind.GONE,
    FindingKind.SKIPPED,
)
_NEW_TESTS = {
    "failWithoutChange": FindingKind.PROVES,
    "failWithoutChangeByError": FindingKind.PROVES_BY_ERROR,
    "notLoadedWithoutChange": FindingKind.NOT_LOADED,
    "passWithoutChange": FindingKind.PASSES_WITHOUT,
}
_END_OF_HEAD = re.compile(r"^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$", re.MULTILINE)
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
# In a string of JSON these may be written so. As they are, a fence might be closed, or a forge act on them.
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "`<>&@#~*"}


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """A report as it was read from a pull request's text.

    Attributes:
        statement: in-toto's. Of its form only the types and the subject were looked at.
        is_stale: the pull request's head is not the commit of which it speaks.
    """

    statement: dict[str, Any]
    is_stale: bool


def to_json(runs: Runs) -> dict[str, Any]:
    """`tests` of a cycle's result: for each kind of run how many tests ended how, or None where it was not made.

    Where no report tells of single tests, only `exit` is known and the counts are None.
    """
    return {kind.value: _counts(_run(runs, kind)) for kind in RunKind}


def warning_about_tests(verdict: ChangeVerdict) -> str:
    """What stands at the very top of the pull request; empty if nothing has to."""
    lines = "".join(f"\n> - {reason}" for reason in verdict.reasons)
    return f"> [!WARNING]\n> The tests say of this change:{lines}" if lines else ""


def report(verdict: ChangeVerdict, head: str) -> str:
    """The table, what else is true, and the block; Markdown in which nothing of what a test prints is live.

    Args:
        head: the commit that is proposed; its tree is the one that was run.
    """
    runs = verdict.runs
    block = json.dumps(_statement(verdict, head), indent=1, ensure_ascii=True).translate(_UNSAFE)
    return render(
        "verification/report",
        command=one_line(runs.command, limit=_COMMAND_CHARS),
        setup=one_line(runs.setup, limit=_COMMAND_CHARS),
        sandbox=in_markdown(runs.sandbox, _NAME_CHARS),
        rows=[_row(kind, run) for kind in RunKind if (run := _run(runs, kind)) is not None],
        notes=verdict.notes,
        block=block,
    )


def read_block(body: str, head_commit: str) -> ReportBlock | None:
    """Read the program's report from the text of a pull request; None if its head has not exactly one.

    Only what stands above the first rule (`***`) is the program's; below it are the model's words, and whatever a
    person added. Whether the program wrote the text at all, its author tells, and not the text.
    """
    text = body.replace("\r\n", "\n")
    end = _END_OF_HEAD.search(text)
    lines = (text[: end.start()] if end else text).split("\n")
    if lines.count("```json") != 1:
        return None
    start = lines.index("```json") + 1
    try:
        statement = json.loads("\n".join(lines[start : lines.index("```", start)]))
        types = (statement["_type"], statement["predicateType"])
        commit = statement["subject"][0]["digest"]["gitCommit"]
    except (ValueError, RecursionError, TypeError, LookupError):
        return None
    if types != (_STATEMENT, _PREDICATE) or not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
        return None
    return ReportBlock(statement, is_stale=commit != head_commit)


def _run(runs: Runs, kind: RunKind) -> RunResult | None:
    found: RunResult | None = getattr(runs, kind.value)
    return found


def _counts(run: RunResult | None) -> dict[str, int | None] | None:
    if run is None:
        return None
    known = bool(run.cases)
    return {
        "passed": run.count(CaseStatus.PASSED) if known else None,
        "failed": len(run.failures) if known else None,
        "skipped": run.count(CaseStatus.SKIPPED) if known else None,
        "exit": run.exit,
    }


def _row(kind: RunKind, run: RunResult) -> dict[str, str]:
    counts = _counts(run) or {}
    shown = {name: "" if count is None else f"{count:,}" for name, count in counts.items()}
    time = f"{run.seconds:.1f} s{' (earlier)' if run.cached else ''}"
    name = _NAMES[kind]
    if run.problem:
        name += f" (counts for nothing: {in_markdown(run.problem, _PROBLEM_CHARS).replace('|', '/')})"
    elif not run.cases:
        name += f" (exit code {run.exit})"
    return {"name": name, "time": time, **shown}


def _statement(verdict: ChangeVerdict, head: str) -> dict[str, Any]:
    runs = verdict.runs
    result = "FAILED" if verdict.is_red else "WARNED" if verdict.reasons or verdict.problem else "PASSED"
    failed = [case.id for case in runs.after.failures] if runs.after else []
    known = set(failed)
    warned = [name for name in (*verdict.of(*_DOUBTFUL), *verdict.of(FindingKind.FLAKY)) if name not in known]
    commands = {
        "test": runs.command[:_COMMAND_CHARS],
        "setup": runs.setup[:_COMMAND_CHARS],
        "sandbox": runs.sandbox,
    }
    return {
        "_type": _STATEMENT,
        "subject": [{"name": "head", "digest": {"gitCommit": head, "gitTree": runs.tree}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "result": result,
            "configuration": [
                {"name": "base", "digest": {"gitCommit": runs.base}},
                {"name": "commands", "annotations": commands},
            ],
            **_listed("failedTests", failed),
            **_listed("warnedTests", warned),
            "runs": {kind.value: _described(_run(runs, kind)) for kind in RunKind},
            "newTests": {name: len(verdict.of(kind)) for name, kind in _NEW_TESTS.items()},
            **({"problem": verdict.problem[:_PROBLEM_CHARS]} if verdict.problem else {}),
        },
    }


def _listed(field: str, names: Iterable[str]) -> dict[str, Any]:
    """A list of tests, cut where it is long; then how many more there are."""
    room, kept, more = _LIST_CHARS, list[str](), 0
    for name in names:
        size = len(json.dumps(name[:_NAME_CHARS]).translate(_UNSAFE)) + 8
        if more or size > room:
            more += 1
            continue
        room -= size
        kept.append(name[:_NAME_CHARS])
    return {field: kept, **({f"{field}NotListed": more} if more else {})}


def _described(run: RunResult | None) -> dict[str, Any] | None:
    if run is None:
        return None
    algorithm, _, digest = run.digest.partition(":")
    return {
        **(_counts(run) or {}),
        "seconds": round(run.seconds, 1),
        "tree": {"gitTree": run.tree},
        "report": {algorithm: digest} if digest else None,
        "problem": run.problem[:_PROBLEM_CHARS],
        "cached": run.cached,
    }
