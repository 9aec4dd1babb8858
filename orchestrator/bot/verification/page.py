"""The test report in a pull request: a table for people, and a block with the same data for programs.

The block is a statement with the predicate `test-result` v0.1, extended by the fields `format`, `proof`, `runs`,
`newTests`, `namedTests` and `problem`: https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator.bot.git.remote import is_commit_id
from orchestrator.bot.policy.wording import in_markdown
from orchestrator.bot.verification.base import CaseStatus, RunKind
from orchestrator.bot.verification.verdict import CHANGED_TESTS, FindingKind
from orchestrator.core.cycle_events import Proof, Verified
from orchestrator.core.prompts import one_line, render

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.bot.verification.base import RunResult, Runs
    from orchestrator.bot.verification.verdict import ChangeVerdict

FORMAT = 3
"""Version of the block. Version 1 had no number, no `cases`, no `namedTests`, and no digests of the commands and of the base's
files. Until version 2 there was no `proof`, and `result` was `PASSED` where nothing was proven. The number grows if an existing field changes its meaning; readers ignore unknown fields.
"""
_STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"

_LIST_CHARS = 4_000
"""Most characters of test names in one list of the block. GitHub accepts 65,536 characters in the whole body."""
NAME_CHARS = 200
COMMAND_CHARS = 300
_PROBLEM_CHARS = 200

RUN_NAMES = {
    RunKind.BEFORE: "before: the base as it is",
    RunKind.KEPT: "kept: this change, with the base's tests and settings",
    RunKind.AFTER: "after: this change",
    RunKind.NEW: "new: the base, with the tests of this change",
}
"""The names of the runs for people."""
_NEW_TESTS = {
    "failWithoutChange": FindingKind.PROVES,
    "failWithoutChangeByError": FindingKind.PROVES_BY_ERROR,
    "notLoadedWithoutChange": FindingKind.NOT_LOADED,
    "passWithoutChange": FindingKind.PASSES_WITHOUT,
}
_END_OF_HEAD = re.compile(r"^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$", re.MULTILINE)
_FENCE_START, _FENCE_END = "```json", "```"
# JSON allows these escapes. Unescaped, the characters could close the fence, or the forge could act on them.
_UNSAFE = {ord(char): f"\\u{ord(char):04x}" for char in "`<>&@#~*"}


@dataclass(frozen=True, slots=True)
class BlockSearch:
    """The result of searching a pull request's text for the report.

    Attributes:
        statement: the in-toto statement of the only block; None if there is none. Only its types and the
            commit of its subject were validated.
        problem: why something that looks like a report is invalid, in one line; empty if nothing looks like
            one.
    """

    statement: dict[str, Any] | None = None
    problem: str = ""


def commands_digest(command: str, setup: str) -> str:
    """Return the SHA-256 of the full commands. The report shows only their beginnings."""
    return hashlib.sha256(json.dumps([command, setup]).encode("ascii")).hexdigest()


def cases_digest(run: RunResult) -> str:
    """Return the SHA-256 of the status of each test. Runs with equal statuses have equal digests."""
    statuses = json.dumps(sorted((case.id, case.status.value) for case in run.cases.values()))
    return hashlib.sha256(statuses.encode("ascii")).hexdigest()


def result_of(verdict: ChangeVerdict) -> str:
    """Return the predicate's result: `FAILED`, `WARNED` or `PASSED`. What is neither failed nor passed is a warning."""
    return _RESULTS.get(verdict.proof, "WARNED")


_RESULTS = {Proof.FAILED: "FAILED", Proof.PASSED: "PASSED", Proof.AS_BEFORE: "PASSED"}


def warned_tests(verdict: ChangeVerdict) -> list[str]:
    """Return the tests that a person should look at although they do not fail with the change."""
    known = {case.id for case in verdict.runs.after.failures} if verdict.runs.after else set()
    return [name for name in verdict.of(*CHANGED_TESTS, FindingKind.FLAKY) if name not in known]


def new_tests(verdict: ChangeVerdict) -> dict[str, int]:
    """Count the results of new or changed tests on the base's code."""
    return {name: len(verdict.of(kind)) for name, kind in _NEW_TESTS.items()}


def tests_in_json(verdict: ChangeVerdict) -> dict[str, Any]:
    """Return `tests` of a cycle's result: what is proven, and the runs."""
    return {"proof": verdict.proof.value, **to_json(verdict.runs)}


def to_json(runs: Runs) -> dict[str, Any]:
    """Return for each kind of run the counts by status, or None if it was not made.

    If no report names single tests, only `exit` is known and the counts are None.
    """
    return {kind.value: _counts(runs.of(kind)) for kind in RunKind}


def verified(
    verdict: ChangeVerdict, reasons: Sequence[str], refusal: str = "", tree: str | None = None
) -> Verified:
    """Return the event of a verdict.

    Args:
        reasons: the lines to show, in the place's own length.
        tree: git's id of the change's tree, if it is not that of the runs.
    """
    return Verified(
        verdict.runs.tree if tree is None else tree,
        verdict.is_red,
        tuple(reasons),
        tests_in_json(verdict),
        refusal,
        verdict.proof,
        verdict.base_fails,
    )


def warning_about_tests(verdict: ChangeVerdict) -> str:
    """Return the warning at the top of the pull request; empty if there is none."""
    lines = "".join(f"\n> - {reason}" for reason in verdict.reasons)
    return f"> [!WARNING]\n> The tests say of this change:{lines}" if lines else ""


def report(verdict: ChangeVerdict, head: str) -> str:
    """Return the table, further findings and the block, as Markdown in which all text of the repository is inert.

    Args:
        head: the commit that is proposed; its tree is the one that was tested.
    """
    runs = verdict.runs
    block = json.dumps(statement_of(verdict, head), indent=1, ensure_ascii=True).translate(_UNSAFE)
    return render(
        "verification/report",
        proof=sentence_of(verdict),
        command=one_line(runs.command, limit=COMMAND_CHARS),
        setup=one_line(runs.setup, limit=COMMAND_CHARS),
        sandbox=in_markdown(runs.sandbox, NAME_CHARS),
        rows=table_rows(runs),
        notes=verdict.notes,
        block=block,
    )


def sentence_of(verdict: ChangeVerdict) -> str:
    """Return what is proven as a sentence of inert Markdown, with what failed on the base already."""
    base = f"; {in_markdown(verdict.base_fails, _PROBLEM_CHARS)}" if verdict.base_fails else ""
    return f"{verdict.proof.sentence.capitalize()}{base}."


def table_rows(runs: Runs) -> list[dict[str, str]]:
    """Return the rows of the table, one for each run that was made, as cells of inert Markdown."""
    return [_row(kind, run) for kind in RunKind if (run := runs.of(kind)) is not None]


def find_block(body: str) -> BlockSearch:
    """Find the program's report in the text of a pull request.

    Only the part above the first rule (`***`) is the program's; below it is text of the model and of people.
    The report has to be a visible code block of its own: not in a comment, a quote, a list or other code. Only
    the pull request's author, not the text, shows that the program wrote it.
    """
    text = body.replace("\r\n", "\n")
    end = _END_OF_HEAD.search(text)
    block, problem = _only_block(text[: end.start()] if end else text)
    if problem or not block:
        elsewhere = "a test report is not at the top of the text, or not a code block of its own"
        return BlockSearch(problem=problem or (elsewhere if PREDICATE in text else ""))
    try:
        statement = json.loads(block, object_pairs_hook=_unique_names)
        types = (statement["_type"], statement["predicateType"])
        commit = statement["subject"][0]["digest"]["gitCommit"]
    except (ValueError, RecursionError, TypeError, LookupError):
        return BlockSearch(problem="the block is damaged: it is not a statement in JSON")
    if types != (_STATEMENT, PREDICATE):
        return BlockSearch(problem="the block is a statement of another kind")
    if not isinstance(commit, str) or not is_commit_id(commit):
        return BlockSearch(problem="the block names no commit")
    return BlockSearch(statement)


def proof_in(body: str) -> Proof | None:
    """Return what the report in a pull request's text says is proven; None if it has none of this version."""
    statement = find_block(body).statement or {}
    try:
        return Proof(statement["predicate"]["proof"])
    except (KeyError, TypeError, ValueError):
        return None


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Build a JSON object. Raise ValueError for a duplicate name, because parsers disagree on which value counts."""
    built = dict(pairs)
    if len(built) != len(pairs):
        raise ValueError
    return built


def _only_block(head: str) -> tuple[str, str]:
    """Return the content of the only JSON block, and why there is none; both empty if nothing looks like one."""
    lines = head.split("\n")
    count = lines.count(_FENCE_START)
    if count != 1:
        return "", f"there are {count} JSON blocks in place of one report" if count else ""
    start = lines.index(_FENCE_START)
    if _FENCE_END not in lines[start:]:
        return "", "the block has no end"
    end = lines.index(_FENCE_END, start)
    from markdown_it import MarkdownIt

    top_level = (
        token.map
        for token in MarkdownIt("commonmark").parse(head)
        if token.type == "fence" and not token.level
    )
    if [start, end + 1] not in top_level:
        return "", "the block is hidden in a comment or in other code"
    return "\n".join(lines[start + 1 : end]), ""


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
    name = RUN_NAMES[kind]
    if run.problem:
        name += f" (invalid: {in_markdown(run.problem, _PROBLEM_CHARS).replace('|', '/')})"
    elif not run.cases:
        name += f" (exit code {run.exit})"
    return {"name": name, "time": time, **shown}


def statement_of(verdict: ChangeVerdict, head: str, sha256: str = "") -> dict[str, Any]:
    """Return the in-toto statement about a verified change: what the block is, and what is signed.

    Args:
        head: the proposed commit.
        sha256: hex digest of the commit's object, by which stores of attestations find it; empty to leave it out.
    """
    runs = verdict.runs
    failed = [case.id for case in runs.after.failures] if runs.after else []
    commands = {
        "test": runs.command[:COMMAND_CHARS],
        "setup": runs.setup[:COMMAND_CHARS],
        "sandbox": runs.sandbox,
    }
    named = verdict.of(FindingKind.NAMED, FindingKind.UNREPAIRED)
    base = {"gitCommit": runs.base, **({"gitTree": runs.before.tree} if runs.before else {})}
    return {
        "_type": _STATEMENT,
        "subject": [
            {
                "name": "head",
                "digest": {
                    "gitCommit": head,
                    "gitTree": runs.tree,
                    **({"sha256": sha256} if sha256 else {}),
                },
            }
        ],
        "predicateType": PREDICATE,
        "predicate": {
            "format": FORMAT,
            "result": result_of(verdict),
            "proof": verdict.proof.value,
            "configuration": [
                {"name": "base", "digest": base},
                {
                    "name": "commands",
                    "digest": {"sha256": commands_digest(runs.command, runs.setup)},
                    "annotations": commands,
                },
            ],
            **_listed("failedTests", failed),
            **_listed("warnedTests", warned_tests(verdict)),
            **(_listed("namedTests", named) if named else {}),
            "runs": {kind.value: _described(runs.of(kind)) for kind in RunKind},
            "newTests": new_tests(verdict),
            **({"problem": verdict.problem[:_PROBLEM_CHARS]} if verdict.problem else {}),
        },
    }


def _listed(field: str, names: Iterable[str]) -> dict[str, Any]:
    """Return a list of tests, cut if it is long, with the number of further tests."""
    chars_left, listed, more = _LIST_CHARS, list[str](), 0
    for name in names:
        size = len(json.dumps(name[:NAME_CHARS]).translate(_UNSAFE)) + 8
        if more or size > chars_left:
            more += 1
            continue
        chars_left -= size
        listed.append(name[:NAME_CHARS])
    return {field: listed, **({f"{field}NotListed": more} if more else {})}


def _described(run: RunResult | None) -> dict[str, Any] | None:
    if run is None:
        return None
    algorithm, _, digest = run.digest.partition(":")
    return {
        **(_counts(run) or {}),
        "seconds": round(run.seconds, 1),
        "tree": {"gitTree": run.tree},
        "report": {algorithm: digest} if digest else None,
        "cases": {"sha256": cases_digest(run)} if run.cases else None,
        "problem": run.problem[:_PROBLEM_CHARS],
        "cached": run.cached,
    }
