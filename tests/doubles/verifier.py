"""A verifier that runs the `test_*` functions of one file on the functions of another, in this process."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.bot.verification.base import CaseResult, CaseStatus, RunKind, RunResult, Runs
from orchestrator.core.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import Change

CODE, TESTS = "calc.py", "test_calc.py"
COMMAND = "run the tests"


@dataclass(slots=True)
class FakeRuns:
    """Every run that is asked for, really made: of the tests of one tree on the code of another.

    Attributes:
        verified: how many changes were asked about.
        made: kind and ids of what was run, in order; what is known already is not run.
        problem: why nothing can be run.
        base_hangs: the base's run does not end.
        hangs: set when a run begins that is waited for until it is cancelled; `begun` and `ended` count these.
    """

    clone: Clone
    watch: Callable[[RunKind, RunResult | None], None] = lambda _kind, _result: None
    problem: str = ""
    base_hangs: bool = False
    hangs: asyncio.Event | None = None
    made: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    is_closed: bool = False
    verified: int = 0
    begun: int = 0
    ended: int = 0
    _known: dict[tuple[str, str], RunResult] = field(default_factory=dict)
    _texts: dict[tuple[str, str], str] = field(default_factory=dict)

    async def before(self) -> RunResult:
        self._require()
        if self.base_hangs:
            await asyncio.Event().wait()
        base = self.clone.base_commit
        return self._run(RunKind.BEFORE, base, base)

    async def verify(self, change: Change) -> Runs:
        self.verified += 1
        base, tree = change.base, change.tree
        runs = Runs(COMMAND, "", "none", base, tree, problem=self.problem)
        if self.problem:
            return runs
        if self.hangs is not None:
            self.begun += 1
            self.hangs.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.ended += 1
        before, after = self._run(RunKind.BEFORE, base, base), self._run(RunKind.AFTER, tree, tree)
        kept, new = self._run(RunKind.KEPT, tree, base), self._run(RunKind.NEW, base, tree)
        return Runs(COMMAND, "", "none", base, tree, before, kept, after, new, (TESTS,))

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        self._require()
        return self._run(RunKind.AFTER, tree, tree, tuple(ids))

    async def close(self) -> None:
        self.is_closed = True

    def _require(self) -> None:
        if self.problem:
            raise ToolError(self.problem)

    def _run(self, kind: RunKind, code: str, tests: str, ids: tuple[str, ...] = ()) -> RunResult:
        key = self._text(code, CODE), self._text(tests, TESTS)
        if key not in self._known or ids:
            self.made.append((str(kind), ids))
            self.watch(kind, None)
            cases = {name: case for name, case in _cases(*key).items() if not ids or name in ids}
            failed = any(case.status is not CaseStatus.PASSED for case in cases.values())
            result = RunResult(kind, "ab" * 20, cases, int(failed), 0.5)
            self.watch(kind, result)
            if ids:
                return result
            self._known[key] = result
        return self._known[key]

    def _text(self, tree: str, path: str) -> str:
        if (tree, path) not in self._texts:
            git = ["git", f"--git-dir={self.clone.folder / 'host.git'}", "show", f"{tree}:{path}"]
            shown = subprocess.run(git, capture_output=True, text=True, check=False).stdout
            self._texts[tree, path] = shown
        return self._texts[tree, path]


def _cases(code: str, tests: str) -> Mapping[str, CaseResult]:
    names: dict[str, object] = {}
    cases: dict[str, CaseResult] = {}
    try:
        exec(code, names)  # noqa: S102  the test's own text
        exec(tests, names)  # noqa: S102
    except Exception as error:  # noqa: BLE001
        return {TESTS: CaseResult(TESTS, CaseStatus.ERROR, repr(error), file=TESTS)}
    for name, function in names.items():
        if name.startswith("test_") and callable(function):
            cases[f"{TESTS}::{name}"] = _case(name, function)
    return cases


def _case(name: str, function: Callable[[], object]) -> CaseResult:
    status, message, own = CaseStatus.PASSED, "", False
    try:
        function()
    except AssertionError as error:
        status, message, own = CaseStatus.FAILED, f"AssertionError: {error}", True
    except Exception as error:  # noqa: BLE001
        status, message = CaseStatus.FAILED, repr(error)
    return CaseResult(f"{TESTS}::{name}", status, message, own, TESTS)
