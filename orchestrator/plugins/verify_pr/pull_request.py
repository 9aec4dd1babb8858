"""Verifies any pull request: reads its report, repeats the runs on a fresh clone, and reports which claims hold.

The pull request does not influence which command is run, and its code runs only inside the sandbox.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import CheckState, OwnCheck, PullRequestState
from orchestrator.bot.git.opening import opened_clone
from orchestrator.bot.policy.wording import in_markdown
from orchestrator.bot.verification.base import Change
from orchestrator.bot.verification.page import find_block, table_rows, tests_in_json, verified
from orchestrator.bot.verification.verdict import judge_runs
from orchestrator.core.changes import SUBMODULE_MODE
from orchestrator.core.cycle_events import Cloned, Phase, PhaseEntered, Proof
from orchestrator.core.errors import PullwrightError, WorkspaceError
from orchestrator.core.events import Defence, Guarded, Warned
from orchestrator.core.lfs_pointers import is_pointer
from orchestrator.core.prompts import one_line, render
from orchestrator.plugins.verify_pr.claims import (
    EvidenceLevel,
    EvidenceLine,
    Standing,
    confirm_refuted,
    lines_of_block,
    lines_of_commits,
    lines_of_digests,
    lines_of_runs,
    read_claims,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from orchestrator.bot.forge.base import PullRequest
    from orchestrator.bot.git.base import ProposedCommits
    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import Verifier
    from orchestrator.bot.verification.verdict import ChangeVerdict
    from orchestrator.core.changes import FileChange
    from orchestrator.core.events import Emit
    from orchestrator.plugins.verify_pr.claims import ReportClaims

_LINE_CHARS = 500
_REQUIRED = "evidence"
_SECONDS_A_MINUTE = 60.0
_HEADS = "refs/heads/"
CHECK_NAME = "Pullwright: claims and tests"
CHECK_KEY = "pullwright:verify-pr"


class EvidenceOutcome(StrEnum):
    """The overall result of a verification."""

    HOLDS = "holds"
    """All claims of the report hold, and the tests that were run here pass, apart from those that the base fails."""
    REFUTED = "refuted"
    """A claim does not hold, or the tests fail."""
    UNKNOWN = "unknown"
    """It could not be decided."""


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """The change to verify, as it is at one moment. Title and text are untrusted.

    Attributes:
        name: `#7`, a branch, or a file.
        reference: the full name of the head's ref on the remote, or the head's id.
        onto: the branch into which it will be merged.
        onto_commit: a commit of that branch to compare with; empty for the branch's head.
        commit: the head according to the forge; empty if only git knows it.
        text: the body; may be empty.
        state: empty for a branch or a bundle.
        bundle: a file with the change, used in place of the remote.
        author: the forge's login, a bot's with `[bot]`; empty if it is unknown.
    """

    name: str
    reference: str
    onto: str
    title: str = ""
    text: str = ""
    url: str = ""
    state: str = ""
    commit: str = ""
    onto_commit: str = ""
    bundle: Path | None = None
    author: str = ""

    @classmethod
    def of(cls, pull: PullRequest) -> ProposedChange:
        """Create it from a pull request of a forge."""
        is_over = pull.state is not PullRequestState.OPEN
        return cls(
            f"#{pull.number}",
            pull.reference or f"{_HEADS}{pull.branch}",
            pull.base,
            pull.title,
            pull.body,
            pull.url,
            pull.state.value,
            pull.commit,
            # The branch has other commits since, and the change itself if it was merged.
            pull.base_commit if is_over else "",
            author=pull.author,
        )


@dataclass(frozen=True, slots=True)
class PullRequestEvidence:
    """The result of verifying a pull request.

    Attributes:
        commits: None if they could not be read.
        verdict: the judgement of the runs that were made here; None if there were none.
        is_stale: whether the pull request changed during the verification.
        sha256: digest of the head's object; empty if it could not be read.
    """

    change: ProposedChange
    lines: tuple[EvidenceLine, ...]
    commits: ProposedCommits | None = None
    verdict: ChangeVerdict | None = None
    is_stale: bool = False
    sha256: str = ""

    @property
    def outcome(self) -> EvidenceOutcome:
        """The overall result: refuted if any line is refuted, else unknown if any line is unknown."""
        standings = {line.standing for line in self.lines}
        if Standing.REFUTED in standings:
            return EvidenceOutcome.REFUTED
        known = Standing.HOLDS in standings and Standing.UNKNOWN not in standings and not self.is_stale
        return EvidenceOutcome.HOLDS if known else EvidenceOutcome.UNKNOWN

    def to_json(self) -> dict[str, Any]:
        """Return the object that `verify-pr --json` prints, without later actions."""
        change, commits = self.change, self.commits
        return {
            "format": 1,
            "outcome": self.outcome.value,
            "stale": self.is_stale,
            "pull_request": {
                "name": change.name,
                "title": change.title,
                "url": change.url,
                "state": change.state,
                "head": commits.head if commits else change.commit,
                "base": commits.start if commits else "",
                "onto": change.onto,
            },
            "lines": [asdict(line) for line in self.lines],
            "tests": tests_in_json(self.verdict) if self.verdict else None,
        }


@dataclass(frozen=True, slots=True)
class EvidenceParts:
    """The objects that a verification works with.

    Attributes:
        read: reads the present state of the change to verify.
        open_clone: creates a fresh clone of the default branch, whose files alone may say how tests are run.
        verifier: runs the tests of a clone, compared with a commit; None without a test command.
        requirement: says whose changes need evidence, if a change is one of them; else it returns an empty text.
        signatures: says who signed a test result of the head, given the digest of its object and the result that
            the text claims; empty without a claim.
        stop: interrupts waiting for the remote.
        minutes: time limit of the whole verification; None without a limit.
    """

    read: Callable[[], ProposedChange]
    open_clone: Callable[[], Clone]
    verifier: Callable[[Clone, str], Verifier | None]
    requirement: Callable[[ProposedChange], str]
    signatures: Callable[[str, str], list[EvidenceLine]]
    emit: Emit
    stop: Callable[[], None]
    minutes: float | None = None


async def verify_pull_request(parts: EvidenceParts) -> PullRequestEvidence:
    """Verify a pull request. Problems after it was read are reported as lines of the result."""
    change = await asyncio.to_thread(parts.read)
    seconds = None if parts.minutes is None else parts.minutes * _SECONDS_A_MINUTE
    ending = seconds and asyncio.get_running_loop().call_later(seconds, parts.stop)
    verification = _PullRequestVerification(parts, change)
    problem = ""
    try:
        async with asyncio.timeout(seconds):
            await verification.run()
    except TimeoutError:
        problem = f"the limit of {parts.minutes:g} minutes was reached; raise --max-minutes"
    except PullwrightError as error:
        problem = str(error)
    finally:
        if ending:
            ending.cancel()
    if problem:
        verification.add(EvidenceLevel.RERUN, "runs", Standing.UNKNOWN, found=problem)
    return await verification.finished()


@dataclass(slots=True)
class _PullRequestVerification:
    """One verification, step by step."""

    parts: EvidenceParts
    change: ProposedChange
    claims: ReportClaims | None = None
    commits: ProposedCommits | None = None
    verdict: ChangeVerdict | None = None
    sha256: str = ""
    required: str = ""
    lines: list[EvidenceLine] = field(default_factory=list)

    def add(self, *facts: Any, **more: Any) -> None:
        self.lines.append(EvidenceLine(*facts, **more))

    async def run(self) -> None:
        self._read_block()
        self.required = await asyncio.to_thread(self.parts.requirement, self.change)
        self.parts.emit(PhaseEntered(Phase.CLONE))
        async with opened_clone(self.parts.open_clone, lambda text: self.parts.emit(Warned(text))) as clone:
            self.commits = commits = await asyncio.to_thread(self._fetch, clone)
            self.sha256 = await asyncio.to_thread(clone.trees.commit_sha256, commits.head)
            base = await asyncio.to_thread(clone.trees.tree_of, commits.start)
            head = await asyncio.to_thread(clone.trees.tree_of, commits.head)
            files = await asyncio.to_thread(clone.trees.changes, base, head)
            self.parts.emit(Cloned(commits.head, self.change.name, len(files)))
            if commits.is_merged:
                found = f"{self.change.onto} contains it already, so it is compared with the commit before it"
                self.add(EvidenceLevel.FRESH, "merged", Standing.NOTED, found=found)
            if self.claims is not None:
                self.lines += lines_of_commits(self.claims, commits)
                self.lines += lines_of_digests(self.claims, head, base)
            result = self.claims.results.result if self.claims else ""
            self.lines += await asyncio.to_thread(self.parts.signatures, self.sha256, result)
            self.parts.emit(PhaseEntered(Phase.VERIFY))
            named = "\n".join(self.claims.named_tests) if self.claims else ""
            change = Change(commits.start, head, files, named)
            self.verdict = await self._judge(clone, change)
            if self.verdict is not None:
                await self._compare(clone, change, self.verdict)
                self._add_tests(self.verdict)
                self.lines += _notes_on(files)

    def _read_block(self) -> None:
        found = find_block(self.change.text)
        problem = found.problem
        if found.statement is not None:
            claims = read_claims(found.statement)
            if isinstance(claims, str):
                problem = claims
            else:
                self.claims = claims
        self.lines += lines_of_block(self.claims, one_line(problem, limit=_LINE_CHARS))

    def _fetch(self, clone: Clone) -> ProposedCommits:
        change = self.change
        onto = change.onto_commit or f"{_HEADS}{change.onto}"
        commits = clone.fetch_proposed(change.reference, onto, change.bundle)
        if change.commit and commits.head != change.commit:
            raise WorkspaceError(
                f"the forge says that the head is {change.commit}, and git gives {commits.head}: "
                "it is being pushed to; run again"
            )
        return commits

    async def _judge(self, clone: Clone, change: Change) -> ChangeVerdict | None:
        """Run the tests and return the verdict; None without a test command."""
        verifier = await asyncio.to_thread(self.parts.verifier, clone, change.base)
        if verifier is None:
            found = "no test command is set, so nothing was run: set --test-command, or try auto"
            self.add(EvidenceLevel.RERUN, "runs", Standing.UNKNOWN, found=found)
            return None
        try:
            runs = await verifier.verify(change)
        finally:
            await verifier.close()
        return await asyncio.to_thread(judge_runs, runs, change)

    async def _compare(self, clone: Clone, change: Change, verdict: ChangeVerdict) -> None:
        """Compare the report with the runs that were made here."""
        claims, level = self.claims, EvidenceLevel.RERUN
        if claims is None:
            return
        if (claims.head.gitCommit, claims.base.gitCommit) != (
            self.commits and self.commits.head,
            change.base,
        ):
            self.add(level, "runs", Standing.UNKNOWN, found="not compared: the report is about other commits")
            return
        lines = list(lines_of_runs(claims, verdict))
        if verdict.problem:
            unknown = Standing.UNKNOWN
            lines = [
                replace(one, standing=unknown) if one.standing is Standing.REFUTED else one for one in lines
            ]
        elif any(line.standing is Standing.REFUTED for line in lines):
            second = await self._judge(clone, change)
            other = {line.subject: line for line in lines_of_runs(claims, second or verdict)}
            lines = confirm_refuted(lines, other.get)
        self.lines += lines

    def _add_tests(self, verdict: ChangeVerdict) -> None:
        add = partial(self.add, EvidenceLevel.TESTS, "change")
        if verdict.problem:
            add(Standing.UNKNOWN, found=one_line(verdict.problem, limit=_LINE_CHARS))
        reasons = tuple(one_line(reason, limit=_LINE_CHARS, keep="`") for reason in verdict.reasons)
        for reason in reasons:
            # If a person has to look at the change, the tests alone do not decide.
            add(Standing.REFUTED if verdict.is_red else Standing.UNKNOWN, found=reason)
        if not verdict.problem and not reasons:
            standing = Standing.UNKNOWN if verdict.proof is Proof.ONLY_EXIT_CODE else Standing.HOLDS
            add(standing, found="; ".join(filter(None, [verdict.proof.sentence, verdict.base_fails])))
        for note in verdict.notes:
            add(Standing.NOTED, found=one_line(note, limit=_LINE_CHARS, keep="`"))
        problem = (one_line(verdict.problem, limit=_LINE_CHARS),) if verdict.problem else ()
        self.parts.emit(verified(verdict, (*problem, *reasons)))

    async def finished(self) -> PullRequestEvidence:
        """Return the result, with a line that says whether the pull request changed meanwhile."""
        is_stale, level = False, EvidenceLevel.FRESH
        try:
            now = await asyncio.to_thread(self.parts.read)
        except PullwrightError as error:
            found = one_line(str(error), limit=_LINE_CHARS)
            line = EvidenceLine(level, "at the end", Standing.UNKNOWN, found=found)
        else:
            is_stale = now != self.change
            line = _changed(self.change, now)
        levels = list(EvidenceLevel)
        self.lines += (line, *self._lines_of_requirement(is_stale=is_stale))
        lines = sorted(self.lines, key=lambda line: levels.index(line.level))
        self._report_refuted(lines)
        return PullRequestEvidence(
            self.change, tuple(lines), self.commits, self.verdict, is_stale, self.sha256
        )

    def _lines_of_requirement(self, *, is_stale: bool) -> Iterator[EvidenceLine]:
        """Refuse a change without evidence that holds, if it needs one. What its tests show counts by itself."""
        if not self.required:
            return
        lines = [line for line in self.lines if line.level is not EvidenceLevel.TESTS]
        standings = {line.standing for line in lines}
        found = ""
        if self.claims is None:
            found = (
                "there is no report" if Standing.REFUTED not in standings else "the report is not complete"
            )
        elif Standing.REFUTED in standings:
            found = "a claim of the report does not hold"
        elif is_stale or Standing.UNKNOWN in standings:
            found = "not all of the report could be checked"
        standing = Standing.REFUTED if found else Standing.HOLDS
        found = found or "the report holds"
        yield EvidenceLine(EvidenceLevel.BLOCK, _REQUIRED, standing, self.required, found)

    def _report_refuted(self, lines: Iterable[EvidenceLine]) -> None:
        refuted = [
            f"{line.level}: {line.subject}: {line.claimed or 'nothing'} | {line.found or 'nothing'}"
            for line in lines
            if line.standing is Standing.REFUTED and line.level is not EvidenceLevel.TESTS
        ]
        if refuted:
            self.parts.emit(
                Guarded(Defence.TEST_INTEGRITY, "a claim of the pull request does not hold", tuple(refuted))
            )


def _changed(before: ProposedChange, now: ProposedChange) -> EvidenceLine:
    """Check whether a pull request changed since its verification began."""
    if now == before:
        return EvidenceLine(
            EvidenceLevel.FRESH, "at the end", Standing.HOLDS, found="nothing changed meanwhile"
        )
    parts = {"head": "commit", "text": "text", "title": "title", "state": "state", "base": "onto"}
    what = [words for words, name in parts.items() if getattr(now, name) != getattr(before, name)]
    found = (
        f"its {', '.join(what) or 'base'} changed meanwhile, so this is about an earlier version: run again"
    )
    return EvidenceLine(EvidenceLevel.FRESH, "at the end", Standing.UNKNOWN, before.commit, now.commit, found)


def _notes_on(files: Sequence[FileChange]) -> Iterator[EvidenceLine]:
    """Yield notes on the parts of a change that no test run covers."""
    modules = sum(any(one and one.mode == SUBMODULE_MODE for one in (file.old, file.new)) for file in files)
    pointers = sum(bool(file.new and file.new.content and is_pointer(file.new.content)) for file in files)
    for count, words in (
        (modules, ("submodule", "submodules", "in the runs a submodule is an empty folder")),
        (pointers, ("file of Git LFS", "files of Git LFS", "the runs have the pointer in its place")),
    ):
        if count:
            found = f"it changes {count} {words[0 if count == 1 else 1]}: {words[2]}"
            yield EvidenceLine(EvidenceLevel.TESTS, "change", Standing.NOTED, found=found)
    if not files:
        yield EvidenceLine(EvidenceLevel.TESTS, "change", Standing.NOTED, found="it changes no file")


_STANDING_WORDS = {
    Standing.HOLDS: "holds",
    Standing.REFUTED: "does not hold",
    Standing.UNKNOWN: "could not be checked",
    Standing.NOTED: "noted",
}
_CHECK_STATES = {
    EvidenceOutcome.HOLDS: CheckState.PASSED,
    EvidenceOutcome.REFUTED: CheckState.FAILED,
    EvidenceOutcome.UNKNOWN: CheckState.OTHER,
}
_CELL_CHARS = 200
_COMMAND_CHARS = 300


def evidence_in_words(found: PullRequestEvidence) -> str:
    """Return the overall result as a sentence."""
    refuted = [line for line in found.lines if line.standing is Standing.REFUTED]
    proven = found.verdict.proof.sentence if found.verdict else "no test was run"
    has_report = any(line.level is EvidenceLevel.DIGESTS for line in found.lines)
    if missing := next((line for line in refuted if line.subject == _REQUIRED), None):
        words = f"Evidence is {missing.claimed}, and {missing.found}."
    elif any(line.level is not EvidenceLevel.TESTS for line in refuted):
        words = "A claim of the report does not hold."
    elif refuted:
        words = f"{Proof.FAILED.sentence.capitalize()}."
    elif found.is_stale:
        words = "It changed during the verification, so it has to be verified again."
    elif found.outcome is EvidenceOutcome.UNKNOWN:
        words = f"It could not be decided{f': {proven}' if found.verdict else ''}."
    elif has_report:
        words = f"All claims of the report hold, and {proven}."
    else:
        words = f"There is no report. {proven.capitalize()}."
    return words


def evidence_in_markdown(found: PullRequestEvidence) -> str:
    """Return the report as Markdown in which untrusted text is inert: no link, no mention, no markup."""

    def cell(text: str) -> str:
        return in_markdown(text, _CELL_CHARS).replace("|", "/") or "-"

    levels = []
    for level in EvidenceLevel:
        counts = Counter(line.standing for line in found.lines if line.level is level)
        if counts:
            counted = ", ".join(
                f"{counts[one]} {words}" for one, words in _STANDING_WORDS.items() if counts[one]
            )
            levels.append({"name": level.value, "counts": counted})
    shown = [
        {
            "standing": _STANDING_WORDS[line.standing],
            "subject": cell(f"{line.level}: {line.subject}"),
            "claimed": cell(line.claimed),
            "found": cell(f"{line.found} ({line.note})" if line.note else line.found),
        }
        for line in found.lines
        if line.standing in {Standing.REFUTED, Standing.UNKNOWN} and line.level is not EvidenceLevel.TESTS
    ]
    runs, verdict = found.verdict and found.verdict.runs, found.verdict
    return render(
        "plugins/verify_pr/evidence",
        words=evidence_in_words(found),
        head=found.commits.head if found.commits else "(unknown)",
        base=found.commits.start if found.commits else "(unknown)",
        command=one_line(runs.command, limit=_COMMAND_CHARS) if runs else "",
        setup=one_line(runs.setup, limit=_COMMAND_CHARS) if runs else "",
        sandbox=in_markdown(runs.sandbox, _CELL_CHARS) if runs else "",
        levels=levels,
        lines=shown,
        rows=table_rows(runs) if runs else [],
        notes=(*verdict.reasons, *verdict.notes) if verdict else (),
    )


def own_check(found: PullRequestEvidence) -> OwnCheck | None:
    """Return the check run for the head; None if the head is unknown."""
    if found.commits is None:
        return None
    state = CheckState.OTHER if found.is_stale else _CHECK_STATES[found.outcome]
    title = evidence_in_words(found)
    return OwnCheck(CHECK_KEY, CHECK_NAME, found.commits.head, state, title, evidence_in_markdown(found))
