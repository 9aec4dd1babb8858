"""Compares the claims of a report block with the facts. It runs and reads nothing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from orchestrator.bot.verification.base import RunKind
from orchestrator.bot.verification.page import (
    COMMAND_CHARS,
    FORMAT,
    NAME_CHARS,
    cases_digest,
    commands_digest,
    new_tests,
    result_of,
    to_json,
    warned_tests,
)
from orchestrator.bot.verification.verdict import FindingKind
from orchestrator.core.checks import first_problem
from orchestrator.core.prompts import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.bot.git.base import ProposedCommits
    from orchestrator.bot.verification.base import RunResult
    from orchestrator.bot.verification.verdict import ChangeVerdict


class EvidenceLevel(StrEnum):
    """How thoroughly a claim was checked, in ascending order."""

    BLOCK = "block"
    """There is a report, and it is complete."""
    FRESH = "fresh"
    """The report is about the commits that are proposed now."""
    DIGESTS = "digests"
    """Its digests match the files and commands that it names."""
    SIGNED = "signed"
    """Who signed a test result of the proposed commit."""
    RERUN = "rerun"
    """The same runs give the same results here."""
    TESTS = "tests"
    """The results of the runs that were made here, independent of the report."""


class Standing(StrEnum):
    """The result of checking a claim."""

    HOLDS = "holds"
    REFUTED = "refuted"
    UNKNOWN = "unknown"
    """It could not be checked."""
    NOTED = "noted"
    """Information for the reader, not a claim."""


@dataclass(frozen=True, slots=True)
class EvidenceLine:
    """One statement that was checked.

    Attributes:
        subject: what it is about, in a few words of the program.
        claimed: the value in the report; empty if there is nothing to compare.
        found: the actual value. Both are one line and may contain untrusted text.
        note: an explanation by the program, in one line.
    """

    level: EvidenceLevel
    subject: str
    standing: Standing
    claimed: str = ""
    found: str = ""
    note: str = ""


class _Part(BaseModel):
    """Base of the report's parts. Unknown fields belong to later versions and are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)


_ObjectId = Annotated[str, Field(pattern=r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$")]
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Count = Annotated[int, Field(ge=0, le=10**9)]
_Names = Annotated[list[str], Field(max_length=10_000)]


class _Tree(_Part):
    gitTree: _ObjectId  # noqa: N815  the name of in-toto's field


class _Commit(_Part):
    gitCommit: _ObjectId  # noqa: N815  the same
    gitTree: _ObjectId | None = None  # noqa: N815  the same


class _Digest(_Part):
    sha256: _Sha256


class _Head(_Part):
    name: Literal["head"]
    digest: _Commit


class _Base(_Part):
    name: Literal["base"]
    digest: _Commit


class _CommandLines(_Part):
    test: str
    setup: str
    sandbox: str


class _Commands(_Part):
    name: Literal["commands"]
    digest: _Digest | None = None
    annotations: _CommandLines


class _Run(_Part):
    passed: _Count | None
    failed: _Count | None
    skipped: _Count | None
    exit: int
    tree: _Tree
    problem: str = ""
    cases: _Digest | None = None


class _RunsMade(_Part):
    before: _Run | None
    kept: _Run | None
    after: _Run | None
    new: _Run | None

    def of(self, kind: RunKind) -> _Run | None:
        found: _Run | None = getattr(self, kind.value)
        return found


class _NewTests(_Part):
    failWithoutChange: _Count  # noqa: N815  the names of the block's fields
    failWithoutChangeByError: _Count  # noqa: N815
    notLoadedWithoutChange: _Count  # noqa: N815
    passWithoutChange: _Count  # noqa: N815


_NEW_TESTS = {
    "failWithoutChange": "new tests that fail without the change, by their own assertion",
    "failWithoutChangeByError": "new tests that fail without the change, by an exception",
    "notLoadedWithoutChange": "new tests that cannot be run without the change",
    "passWithoutChange": "new tests that pass without the change too",
}


class _Predicate(_Part):
    format: Annotated[int, Field(ge=1)] = 1
    result: Literal["PASSED", "WARNED", "FAILED"]
    proof: str = ""
    configuration: Annotated[list[dict[str, Any]], Field(min_length=2, max_length=2)]
    failedTests: _Names  # noqa: N815  the names of the block's fields
    failedTestsNotListed: _Count = 0  # noqa: N815
    warnedTests: _Names  # noqa: N815
    warnedTestsNotListed: _Count = 0  # noqa: N815
    namedTests: _Names = []  # noqa: N815
    namedTestsNotListed: _Count = 0  # noqa: N815
    runs: _RunsMade
    newTests: _NewTests  # noqa: N815
    problem: str = ""


class _Statement(_Part):
    subject: Annotated[list[_Head], Field(min_length=1, max_length=1)]
    predicate: _Predicate


@dataclass(frozen=True, slots=True)
class ReportClaims:
    """The content of a report block.

    Attributes:
        head: the proposed commit, with its files.
        base: the commit that it is compared with.
        results: the results.
    """

    head: _Commit
    base: _Commit
    commands: _Commands
    results: _Predicate

    @property
    def named_tests(self) -> tuple[str, ...]:
        """The failing tests that the report's task named. With more of them, the judgement can only get stricter."""
        return tuple(self.results.namedTests)


def read_claims(statement: dict[str, Any]) -> ReportClaims | str:
    """Parse a statement. If that fails, return the reason in one line."""
    try:
        read = _Statement.model_validate(statement)
        base, commands = read.predicate.configuration
        claims = ReportClaims(
            read.subject[0].digest,
            _Base.model_validate(base).digest,
            _Commands.model_validate(commands),
            read.predicate,
        )
    except ValidationError as error:
        return f"it is incomplete: {first_problem(error)}"
    if read.predicate.format > FORMAT:
        return f"its format is {read.predicate.format}, and this version reads up to {FORMAT}: use a newer version"
    lacking = _lacking(claims) if read.predicate.format > 1 else ""
    return f"it is incomplete: it lacks {lacking}" if lacking else claims


def _lacking(claims: ReportClaims) -> str:
    """Return the name of a digest that is missing although the block's format requires it; else empty."""
    runs = {kind: claims.results.runs.of(kind) for kind in RunKind}
    missing = {
        "the files of the head": claims.head.gitTree is None,
        "the files of the base": claims.base.gitTree is None and runs[RunKind.BEFORE] is not None,
        "the digest of the commands": claims.commands.digest is None,
        **{
            f"the digest of the tests of the run {kind}": run.cases is None and run.passed is not None
            for kind, run in runs.items()
            if run is not None
        },
    }
    return next((words for words, is_missing in missing.items() if is_missing), "")


def lines_of_block(claims: ReportClaims | None, problem: str) -> Iterator[EvidenceLine]:
    """Check whether there is a complete report.

    Args:
        claims: the claims of the only block; None if it is missing or could not be parsed.
        problem: why there are none; empty if nothing looks like a report.
    """
    note = ""
    if claims is not None:
        standing, found = Standing.HOLDS, f"complete, format {claims.results.format}"
        if claims.results.format == 1:
            note = "made by an older version: it does not have the result of each test"
    elif problem:
        standing, found = Standing.REFUTED, problem
    else:
        standing, found = Standing.NOTED, "there is none; see the results of the tests"
    yield EvidenceLine(EvidenceLevel.BLOCK, "report", standing, found=found, note=note)


def lines_of_commits(claims: ReportClaims, commits: ProposedCommits) -> Iterator[EvidenceLine]:
    """Check whether a report is about the commits that are proposed now."""
    stale = "the report is about another commit: the pull request has changed since"
    yield _compared(EvidenceLevel.FRESH, "head", claims.head.gitCommit, commits.head, stale)
    moved = "the report compares with another commit than the one from which the change starts"
    yield _compared(EvidenceLevel.FRESH, "base", claims.base.gitCommit, commits.start, moved)


def lines_of_digests(claims: ReportClaims, head_tree: str, base_tree: str) -> Iterator[EvidenceLine]:
    """Check a report's digests. `head_tree` and `base_tree` are read from git."""
    level, runs = EvidenceLevel.DIGESTS, claims.results.runs
    yield _compared(level, "files of the head", claims.head.gitTree or "", head_tree)
    if claims.base.gitTree is not None:
        yield _compared(level, "files of the base", claims.base.gitTree, base_tree)
    for kind, run, tree in ((RunKind.BEFORE, runs.before, base_tree), (RunKind.AFTER, runs.after, head_tree)):
        if run is not None:
            yield _compared(level, f"files of the run {kind}", run.tree.gitTree, tree)
    lines = claims.commands.annotations
    if claims.commands.digest is not None and max(len(lines.test), len(lines.setup)) < COMMAND_CHARS:
        yield _compared(
            level, "commands", claims.commands.digest.sha256, commands_digest(lines.test, lines.setup)
        )


def lines_of_runs(claims: ReportClaims, verdict: ChangeVerdict) -> Iterator[EvidenceLine]:
    """Check whether repeated runs give the results in a report."""
    results, runs = claims.results, verdict.runs
    yield from _lines_of_commands(claims.commands, runs.command, runs.setup)
    for kind in RunKind:
        yield from _lines_of_run(kind, results.runs.of(kind), runs.of(kind), to_json(runs)[kind.value])
    failed = [case.id for case in runs.after.failures] if runs.after else []
    yield _compared_names("failed tests", results.failedTests, results.failedTestsNotListed, failed)
    yield _compared_names(
        "tests to look at", results.warnedTests, results.warnedTestsNotListed, warned_tests(verdict)
    )
    named = verdict.of(FindingKind.NAMED)
    if named or results.namedTests or results.namedTestsNotListed:
        yield _compared_names(
            "failing tests that the task names", results.namedTests, results.namedTestsNotListed, named
        )
    for name, number in new_tests(verdict).items():
        yield _compared(
            EvidenceLevel.RERUN, _NEW_TESTS[name], str(getattr(results.newTests, name)), str(number)
        )
    result = _compared(EvidenceLevel.RERUN, "result", results.result, result_of(verdict))
    if results.format < _FIRST_WITH_PROOF:
        is_other = result.standing is Standing.REFUTED and "FAILED" not in {
            results.result,
            result_of(verdict),
        }
        yield replace(result, standing=Standing.NOTED, note=_OLDER_RESULT) if is_other else result
    else:
        yield result
        yield _compared(EvidenceLevel.RERUN, "what the tests prove", results.proof, verdict.proof.value)
    yield from _lines_of_problem("nothing is known", results.problem, verdict.problem)
    yield EvidenceLine(EvidenceLevel.RERUN, "not compared", Standing.NOTED, found=_NOT_COMPARED)


_FIRST_WITH_PROOF = 3
_OLDER_RESULT = "made by an older version, which called some results PASSED that prove nothing"
_NOT_COMPARED = (
    "seconds, the sandbox, whether a run was cached, the text of a problem and the digests of report files: "
    "they differ from run to run"
)


def _lines_of_commands(claimed: _Commands, command: str, setup: str) -> Iterator[EvidenceLine]:
    note = "the command is your own, never the one in a report; the results below may differ because of that"
    for subject, one, other in (
        ("test command", claimed.annotations.test, command),
        ("set-up command", claimed.annotations.setup, setup),
    ):
        yield _compared(EvidenceLevel.RERUN, subject, one or "none", other[:COMMAND_CHARS] or "none", note)
    if claimed.digest is not None and max(len(command), len(setup)) >= COMMAND_CHARS:
        digest = commands_digest(command, setup)
        yield _compared(EvidenceLevel.RERUN, "commands, whole", claimed.digest.sha256, digest, note)


def _lines_of_run(
    kind: RunKind, claimed: _Run | None, found: RunResult | None, counts: dict[str, Any] | None
) -> Iterator[EvidenceLine]:
    level = EvidenceLevel.RERUN
    claimed_counts = "not made" if claimed is None else _counted(claimed.model_dump())
    yield _compared(
        level, f"{kind}: counts", claimed_counts, "not made" if counts is None else _counted(counts)
    )
    if claimed is None or found is None:
        return
    if kind in {RunKind.KEPT, RunKind.NEW}:
        note = "this run mixes files of both sides; with other --test-paths, or in another version, the mix differs"
        yield _compared(level, f"{kind}: files", claimed.tree.gitTree, found.tree, note)
    yield from _lines_of_problem(f"{kind}: invalid", claimed.problem, found.problem)
    if claimed.cases is not None or (claimed.passed is not None and not found.cases):
        digest = cases_digest(found) if found.cases else ""
        note = "the counts are equal, but other tests have these results"
        yield _compared(
            level, f"{kind}: each test", claimed.cases.sha256 if claimed.cases else "", digest, note
        )


def _lines_of_problem(subject: str, claimed: str, found: str) -> Iterator[EvidenceLine]:
    """Compare whether there is a problem, but not its text, which may depend on the machine."""
    if bool(claimed) is not bool(found):
        yield _compared(EvidenceLevel.RERUN, subject, claimed or "no", found or "no")


def _counted(counts: dict[str, Any]) -> str:
    named = [f"{counts[name]} {name}" for name in ("passed", "failed", "skipped") if counts[name] is not None]
    return ", ".join((*named, f"exit code {counts['exit']}"))


_SHOWN_CHARS = 300


def _compared(level: EvidenceLevel, subject: str, claimed: str, found: str, note: str = "") -> EvidenceLine:
    standing = Standing.HOLDS if claimed == found else Standing.REFUTED
    one, other = (one_line(text, limit=_SHOWN_CHARS) for text in (claimed, found))
    return EvidenceLine(level, subject, standing, one, other, "" if standing is Standing.HOLDS else note)


def _compared_names(subject: str, listed: Sequence[str], more: int, found: Sequence[str]) -> EvidenceLine:
    """Compare lists of tests. If a list was cut, its tests must exist, and their number must be right."""
    known = [name[:NAME_CHARS] for name in found]
    are_same = set(listed) <= set(known) if more else set(listed) == set(known)
    holds = are_same and len(listed) + more == len(known)
    line = _compared(EvidenceLevel.RERUN, subject, _listed(listed, more), _listed(known, 0))
    return replace(line, standing=Standing.HOLDS if holds else Standing.REFUTED)


_SHOWN_NAMES = 5


def _listed(names: Sequence[str], more: int) -> str:
    more += max(len(names) - _SHOWN_NAMES, 0)
    words = ", ".join(sorted(names)[:_SHOWN_NAMES]) or "none"
    return f"{words} and {more} more" if more else words


def confirm_refuted(
    first: Sequence[EvidenceLine], again: Callable[[str], EvidenceLine | None]
) -> list[EvidenceLine]:
    """Confirm refuted claims by a second rerun, because a single result may be accidental.

    Args:
        first: the lines of the first rerun.
        again: returns the line of the second rerun with a given subject.
    """
    confirmed = []
    for line in first:
        other = again(line.subject)
        if line.standing is Standing.REFUTED and (other is None or other.found != line.found):
            note = f"a second run gave another result: {other.found if other else 'nothing'}"
            confirmed.append(replace(line, standing=Standing.UNKNOWN, note=note))
        else:
            confirmed.append(line)
    return confirmed
