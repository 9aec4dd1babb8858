"""Verify: run the repository's tests on the host, and decide what follows for the change."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from orchestrator.bot.verification.base import CaseStatus, Change, RunKind, Runs
from orchestrator.bot.verification.page import (
    report,
    tests_in_json,
    to_json,
    verified,
    warning_about_tests,
)
from orchestrator.bot.verification.verdict import FindingKind, describe_run, judge_runs, what_went_wrong
from orchestrator.core.cycle_events import (
    Phase,
    PhaseEntered,
    Proof,
    TestRunEnded,
    TestRunStarted,
)
from orchestrator.core.errors import (
    PullwrightError,
    ToolError,
    WorkspaceError,
)
from orchestrator.core.events import Defence, Guarded, Warned
from orchestrator.core.prompts import fenced, one_line, render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.bot.cycle.attempt import Attempt
    from orchestrator.bot.cycle.parts import RecordedTests
    from orchestrator.bot.git.base import Staged
    from orchestrator.bot.verification.base import CaseResult, RunResult, Verifier
    from orchestrator.bot.verification.verdict import ChangeVerdict
    from orchestrator.core.changes import FileChange
    from orchestrator.core.events import Emit

_ENOUGH = {Proof.PASSED, Proof.AS_BEFORE}
"""What has to be proven where tests are required."""
_MOST_NAMED = 5
"""Most failing tests of the task that the first prompt shows."""
_NAMED_CHARACTERS = 1_500
_MOST_NAMED_BRIEFLY = 2
_MOST_LISTED = 20
_ID_CHARACTERS = 200
_SECONDS_A_MINUTE = 60.0
_REASON_CHARACTERS = 500


def report_runs(emit: Emit, command: str) -> Callable[[RunKind, RunResult | None], None]:
    """Return the callback that a verifier calls when a run of `command` starts, with None, and when it has ended."""

    def report_run(kind: RunKind, result: RunResult | None) -> None:
        started = TestRunStarted(kind, one_line(command, limit=_ID_CHARACTERS))
        emit(started if result is None else _ended(result))

    return report_run


def _ended(run: RunResult) -> TestRunEnded:
    return TestRunEnded(
        run.kind,
        run.count(CaseStatus.PASSED),
        len(run.failures),
        run.count(CaseStatus.SKIPPED),
        run.exit,
        run.seconds,
        run.problem,
        run.cached,
        run.counted,
    )


def _shown(message: str, *, brief: bool) -> str:
    """Return the part of a failed test's output for the first prompt: its start, or only the error if brief."""
    return what_went_wrong(message) if brief else message[:_NAMED_CHARACTERS]


@dataclass(slots=True)
class Verification:
    """Runs the tests of one cycle and judges its change by them. Each tree is tested once.

    As a context manager it closes the verifier.

    Attributes:
        verifier: None without a test command, and in a replay: nothing is run, and the pull request says so.
        may_go_on: returns whether the model will be asked again, so that it can repair failures.
        minutes_left: returns the minutes that the cycle may still take; None without a limit.
        is_brief: whether the model is a small one, which receives shorter texts.
        proposes_failing: whether a person wants even a change that breaks tests, as a draft.
        guesses: returns whether the model's last reply was a guess, see `Contract`.
        names_failing: whether the task names tests that fail on the base.
        verdict: on the change that was verified last.
        refused: title and body of a proposal that went back to the model because of `verdict`.
    """

    attempt: Attempt
    verifier: Verifier | None
    may_go_on: Callable[[], bool]
    minutes_left: Callable[[], float | None]
    is_brief: bool = False
    proposes_failing: bool = False
    guesses: Callable[[], bool] = lambda: False
    names_failing: bool = False
    verdict: ChangeVerdict | None = None
    refused: tuple[str, str] | None = None
    _is_guess: bool = False
    _judged: dict[tuple[str, bool], ChangeVerdict] = field(default_factory=dict)
    _reported_doubts: set[str] = field(default_factory=set)
    _is_final: bool = False
    _refused_tree: str = ""
    _before: RunResult | None = None
    _cannot_prepare: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.verifier is None:
            return
        try:
            await self.verifier.close()
        except PullwrightError as error:
            self.attempt.emit(Warned(f"the folder in which the tests ran could not be removed: {error}"))

    @property
    def recorded(self) -> RecordedTests | None:
        """The test results of the run that is replayed."""
        return self.attempt.parts.recorded_tests

    @property
    def is_required(self) -> bool:
        """Whether only changes are proposed that were tested with success."""
        return self.attempt.parts.options.require_tests

    @property
    def can_run(self) -> bool:
        """Whether the model may run the tests."""
        return self.verifier is not None or (self.recorded is not None and self.recorded.has_any)

    async def describe_base(self, *, has_tool: bool, brief: bool) -> str:
        """Run the base's tests, and return the text about them for the first prompt; empty if none are run.

        Args:
            has_tool: whether the model can call `run_tests`.
            brief: for a small model, which is easily distracted by long output: show only the errors.

        Raises:
            WorkspaceError: the tests cannot be run, and they are required or a person did not allow to go on so.
        """
        if self.verifier is None:
            return ""
        self.is_brief = brief
        problem = await self._run_before()
        if problem and self.is_required:
            raise WorkspaceError(
                f"the repository's tests cannot be run, and --require-tests proposes nothing without them: {problem}"
            )
        if self._cannot_prepare and not self._goes_on_untested:
            raise WorkspaceError(
                f"the tests cannot be prepared, so no model was asked: {problem}; correct the set-up, "
                "or go on without tests: --untested"
            )
        before = self._before
        named = [] if before is None else await asyncio.to_thread(self._named, before)
        self.names_failing = bool(named)
        most = _MOST_NAMED_BRIEFLY if brief else _MOST_NAMED
        text = render(
            "cycle/tests",
            has_tool=has_tool,
            brief=brief,
            problem=problem,
            before=None if before is None else to_json(self._runs(before))["before"],
            named=[
                (
                    one_line(case.id, limit=_ID_CHARACTERS),
                    fenced(_shown(case.message, brief=brief)),
                )
                for case in named[:most]
            ],
            more=max(len(named) - most, 0),
        )
        return self.attempt.sanitizer.text("the tests", text)

    @property
    def _goes_on_untested(self) -> bool:
        """Whether a failing set-up ends nothing: a person allows it, or works here."""
        parts = self.attempt.parts
        return parts.options.untested or parts.operator is not None

    async def _run_before(self) -> str:
        """Run the base's tests. Return why they cannot be run or prove nothing, else an empty text."""
        if self.verifier is None:
            return ""
        self.attempt.emit(PhaseEntered(Phase.VERIFY))
        left = self.minutes_left()
        try:
            async with asyncio.timeout(None if left is None else max(left, 0.0) * _SECONDS_A_MINUTE):
                self._before = await self.verifier.before()
        except TimeoutError:
            problem = "the minutes of the cycle were over before the base's tests; raise max_minutes"
        except ToolError as error:
            problem = one_line(str(error), limit=_REASON_CHARACTERS)
            self._cannot_prepare = True
        else:
            if self._before.cached:
                self.attempt.emit(_ended(self._before))
            problem = one_line(self._before.problem, limit=_REASON_CHARACTERS)
            if self.is_required and self._before.ran is None and self._before.exit == 0:
                problem = problem or "nothing shows that a test ran; name a report with --test-report"
        if problem:
            self.attempt.emit(Warned(f"the repository's tests cannot be used: {problem}"))
        self.attempt.emit(PhaseEntered(Phase.PLAN))
        return problem

    def _runs(self, before: RunResult) -> Runs:
        return Runs("", "", "", self.attempt.clone.base_commit, before.tree, before, before, before)

    def _named(self, before: RunResult) -> list[CaseResult]:
        """Return the tests that fail on the base and that the task names."""
        change = Change(self.attempt.clone.base_commit, before.tree, (), self._task_text)
        names = judge_runs(self._runs(before), change).of(FindingKind.NAMED)
        return [before.cases[name] for name in names if name in before.cases]

    @property
    def _task_text(self) -> str:
        """The task's text with the remarks of people who may cause work."""
        remarks = (remark.text for remark in self.attempt.task.remarks if remark.trusted)
        return "\n\n".join((self.attempt.task.title, self.attempt.task.body, *remarks))

    async def run_tests(self, ids: Sequence[str]) -> str:
        """Run the tests on the present files, for the model.

        Raises:
            ToolError: a test fails that did not fail before, or no test could be run.
            WorkspaceError: git failed.
        """
        if self.recorded is not None:
            return self.recorded.answer()
        if self.verifier is None:
            raise ToolError("No test command is set, so nothing can be run.")
        tree = await asyncio.to_thread(
            self.attempt.clone.changed_tree,
            set(self.attempt.ledger.touched),
            include_commands=self.attempt.ledger.shell_used,
        )
        run = await self.verifier.run_tests(tree, tuple(ids))
        failing = {case.id for case in run.failures}
        known = failing.intersection(case.id for case in (self._before.failures if self._before else ()))
        answer = render(
            "cycle/tests_run",
            run=describe_run(run),
            known=[one_line(name, limit=_ID_CHARACTERS) for name in sorted(known)[:_MOST_LISTED]],
            more=max(len(known) - _MOST_LISTED, 0),
        )
        if run.is_green or (failing and failing == known and not run.problem):
            return answer
        raise ToolError(answer)

    async def check(self, change: PreparedChange, *, ignore_doubts: bool) -> None:
        """Verify a change that is about to be proposed.

        Args:
            ignore_doubts: see `ProposeChange`.

        Raises:
            ToolError: the change goes back to the model, with the reason.
        """
        tree = change.staged.tree
        if self._is_final and tree != self._refused_tree:
            raise ToolError("the files have changed since this change was refused")
        self.refused = None
        if self.recorded is not None:
            refusal = self.recorded.refusal()
        elif self.verifier is None:
            refusal = ""
        else:
            self.verdict = verdict = await self._judge(self.verifier, tree, change.staged.outcome.changes)
            self.attempt.result.tests = tests_in_json(verdict)
            refusal = self._refusal(verdict, ignore_doubts=ignore_doubts)
            self.attempt.emit(verified(verdict, self._lines(verdict), refusal, tree))
        if refusal:
            self.refused, self._refused_tree = (change.title, change.model_body), tree
            raise ToolError(refusal)

    async def _judge(self, verifier: Verifier, tree: str, files: Sequence[FileChange]) -> ChangeVerdict:
        if not self._is_final:  # what is proposed at the end is what was refused before
            self._is_guess = self.guesses()
        if (known := self._judged.get((tree, self._is_guess))) is not None:
            return known
        self.attempt.emit(PhaseEntered(Phase.VERIFY))
        change = Change(self.attempt.clone.base_commit, tree, files, self._task_text, self._is_guess)
        runs = await verifier.verify(change)
        verdict = await asyncio.to_thread(judge_runs, runs, change)
        if verdict.is_doubtful and verdict.reasons:
            message = "tests pass only because they were changed"
            self.attempt.emit(Guarded(Defence.TEST_INTEGRITY, message, self._lines(verdict)))
        if not runs.problem:  # a problem such as a full disk may have passed by the next time
            self._judged[tree, self._is_guess] = verdict
        return verdict

    def _lines(self, verdict: ChangeVerdict) -> tuple[str, ...]:
        problem = (verdict.problem,) if verdict.problem else ()
        return tuple(
            one_line(text, limit=_REASON_CHARACTERS, keep="`") for text in (*problem, *verdict.reasons)
        )

    @contextmanager
    def final_attempt(self) -> Iterator[None]:
        """Within the block, return nothing to the model, and accept only the change that was refused before."""
        self._is_final = True
        try:
            yield
        finally:
            self._is_final = False

    def _refusal(self, verdict: ChangeVerdict, *, ignore_doubts: bool) -> str:
        """Return why the change goes back to the model; empty if it does not."""
        goes_on = not self._is_final and self.may_go_on()
        if verdict.is_red and (goes_on or self.is_required or self.keeps_back):
            return verdict.for_model(brief=self.is_brief)
        # Each test that passes only because tests were changed is reported once.
        new_doubts = set(verdict.doubts) - self._reported_doubts
        self._reported_doubts |= new_doubts
        if new_doubts and goes_on and not ignore_doubts:
            return verdict.for_model(brief=self.is_brief)
        if self.is_required and verdict.proof not in _ENOUGH:
            problem = verdict.problem or ("" if verdict.reasons else verdict.proof.sentence)
            return render("cycle/tests_required", reasons=verdict.reasons, problem=problem)
        return ""

    @property
    def is_red(self) -> bool:
        """Whether the change that was verified last fails."""
        return self.verdict is not None and self.verdict.is_red

    @property
    def keeps_back(self) -> bool:
        """Whether the change that was verified last is not proposed because of its tests, whatever the model does."""
        if self.recorded is not None:
            return self.refused is not None and self.recorded.is_over
        if self.verdict is None or not self.verdict.is_red:
            return False
        return self.is_required or ((self.verdict.breaks or self._is_guess) and not self.proposes_failing)

    @property
    def is_doubtful(self) -> bool:
        """Whether people are warned about the change that was verified last, although it does not fail."""
        return self.verdict is not None and not self.verdict.is_red and bool(self.verdict.reasons)

    @property
    def why_refused(self) -> str:
        """Why nothing was proposed, in one line; empty if it was not because of the tests."""
        if self.verdict is None or self.refused is None:
            return ""
        lines = self._lines(self.verdict) or (self.verdict.proof.sentence,)
        return one_line("; ".join(lines), limit=_REASON_CHARACTERS, keep="`")

    @property
    def warning(self) -> str:
        """The warning at the top of the pull request, as Markdown; may be empty."""
        return warning_about_tests(self.verdict) if self.verdict else ""

    def report(self, head: str) -> str:
        """Return the pull request's section on the tests of its head commit, as Markdown; empty if none are run."""
        return report(self.verdict, head) if self.verdict else ""


@dataclass(frozen=True, slots=True)
class PreparedChange:
    """A staged change that is about to be verified and proposed.

    Attributes:
        title, body: the text as it will be published.
        model_body: the body as the model wrote it.
    """

    title: str
    body: str
    model_body: str
    staged: Staged
