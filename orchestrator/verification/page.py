"""What a pull request says of its tests: a table for people, and the same as a block for programs."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.verification.base import CaseStatus
from orchestrator.verification.verdict import Kind

if TYPE_CHECKING:
    from orchestrator.verification.base import RunResult, Runs
    from orchestrator.verification.verdict import Verdict

_STATEMENT = "https://in-toto.io/Statement/v1"
_PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
_END_OF_HEAD = re.compile(r"^\*\*\*[ \t]*$", re.MULTILINE)
_BLOCK = re.compile(r"^```json\n(\{.*?\})\n```$", re.MULTILINE | re.DOTALL)
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "`<>&@#"}


@dataclass(frozen=True, slots=True)
class Block:
    """A report as it was read from a pull request's text.

    Attributes:
        statement: in-toto's, with the predicate `test-result`.
        is_stale: the pull request's head is not the commit of which it speaks.
    """

    statement: dict[str, Any]
    is_stale: bool


def to_json(runs: Runs) -> dict[str, Any]:
    """`tests` of a cycle's result: `before`, `kept`, `after` and `new`, each None where it was not run."""
    return {kind: _counts(getattr(runs, kind)) for kind in ("before", "kept", "after", "new")}


def _counts(run: RunResult | None) -> dict[str, int | None] | None:
    if run is None:
        return None
    if not run.cases:
        return {"passed": None, "failed": None, "skipped": None, "exit": run.exit}
    return {
        "passed": run.count(CaseStatus.PASSED),
        "failed": run.count(CaseStatus.FAILED, CaseStatus.ERROR),
        "skipped": run.count(CaseStatus.SKIPPED),
        "exit": run.exit,
    }


def warning(verdict: Verdict) -> str:
    """What stands at the top of the pull request; empty if nothing has to."""
    if not verdict.reasons:
        return ""
    lines = "\n".join(f"> - {reason}" for reason in verdict.reasons)
    return f"> [!WARNING]\n> The tests, as they were run on this change:\n{lines}"


def report(verdict: Verdict, head: str) -> str:
    """The table, what else is true, and the block, as Markdown without the warning.

    Args:
        verdict: what the runs prove.
        head: the commit that is proposed, with the tree that was run.
    """
    notes = "\n".join(f"- {note}" for note in verdict.notes)
    text = json.dumps(_statement(verdict, head), indent=1, ensure_ascii=True).translate(_UNSAFE)
    return f"{_table(verdict.runs)}\n\n{notes}\n\n```json\n{text}\n```"


def read_block(body: str, head_commit: str) -> Block | None:
    """Read the program's report from a pull request's text; None if its head has not exactly one.

    Only what stands above the first `***` is the program's.
    """
    text = body.replace("\r\n", "\n")
    end = _END_OF_HEAD.search(text)
    found = _BLOCK.findall(text[: end.start()] if end else text)
    if len(found) != 1:
        return None
    try:
        statement = json.loads(found[0])
    except (ValueError, RecursionError):
        return None
    if statement.get("_type") != _STATEMENT or statement.get("predicateType") != _PREDICATE:
        return None
    commit = statement["subject"][0]["digest"]["gitCommit"]
    return Block(statement, commit != head_commit)


def _table(runs: Runs) -> str:
    lines = ["| tests | passed | failed | skipped | time |", "|---|--:|--:|--:|--:|"]
    for kind in ("before", "kept", "after", "new"):
        run = getattr(runs, kind)
        if run is not None:
            counts = _counts(run) or {}
            lines.append(
                f"| {kind} | {counts['passed']} | {counts['failed']} | {counts['skipped']} | {run.seconds:.1f} s |"
            )
    return "\n".join(lines)


def _statement(verdict: Verdict, head: str) -> dict[str, Any]:
    runs = verdict.runs
    result = "FAILED" if verdict.is_red else "WARNED" if verdict.reasons or verdict.problem else "PASSED"
    return {
        "_type": _STATEMENT,
        "subject": [{"name": "head", "digest": {"gitCommit": head, "gitTree": runs.tree}}],
        "predicateType": _PREDICATE,
        "predicate": {
            "result": result,
            "configuration": [{"name": "base", "digest": {"gitCommit": runs.base}}],
            "failedTests": list(verdict.of(Kind.BROKEN)),
            "runs": to_json(runs),
        },
    }
