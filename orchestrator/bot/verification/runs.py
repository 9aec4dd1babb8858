"""Runs a repository's tests on the host: decides which runs are needed, and makes each in a fresh tree."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.bot.verification.base import WHOLE_RUN, CaseStatus, RunKind, RunResult, Runs
from orchestrator.bot.verification.python_tests import (
    EXIT_SETTINGS,
    MOST_IDS,
    SETTINGS_FILES,
    ControlTest,
    checked_ids,
    choose_control,
    copy_tests,
    is_module,
    is_plain_id,
    parse_pytest,
    pytest_variables,
    select_tests,
)
from orchestrator.bot.verification.reports import MAX_BYTES, EndedCommand, run_result, why_stopped
from orchestrator.bot.verification.slot import Slot
from orchestrator.bot.verification.trees import TestFiles, folders_of
from orchestrator.core.changes import is_test_program
from orchestrator.core.errors import FileMissingError, PullwrightError, ToolError
from orchestrator.engine.environments.base import ExecResult

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.git.objects import Trees
    from orchestrator.bot.verification.base import Change
    from orchestrator.bot.verification.python_tests import Copies
    from orchestrator.core.changes import FileChange
    from orchestrator.engine.environments.base import ExecutionEnvironment

_T = TypeVar("_T")

_FORM = 3
"""Version of the cached results of a base. Another number invalidates them."""
_RERUNS = 2
_TOKEN_BITS = 64
_TEST_FILE_BYTES = 2_000_000
_MOST_REPORT_BYTES = 100_000_000
"""Most bytes of all reports of a run together."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The user's settings for a repository's tests.

    Attributes:
        command: runs the tests, in the repository's folder.
        setup: prepares what they need; empty for nothing.
        report: path of the report that the command writes, or a pattern as in `.gitignore`; not needed for
            pytest.
        minutes: time limit of the command, and of the set-up.
        test_paths: patterns of further test files, as in `.gitignore`.
        sandbox: its name, or `none`.
        conditions: a digest of everything else that affects a run: variables, hosts, paths and limits of
            commands.
    """

    command: str
    setup: str = ""
    report: str = ""
    minutes: float = 10
    test_paths: tuple[str, ...] = ()
    sandbox: str = "none"
    conditions: str = ""


class _UnfitTreeError(ToolError):
    """A tree cannot be run because of its content: its set-up fails, or it blocks the place of our own files."""


class HostRuns:
    """A `Verifier` that runs the tests on this machine.

    Args:
        base: the commit or tree with which changes are compared.
        home: the folder of this repository's test runs, which outlives the cycle.
        environment: creates the environment of commands for a folder, with the user's limits, variables and
            hosts.
        setup_environment: the same for the set-up, which may reach other hosts than the tests; None if it may
            not.
        source: creates unguessable names.
        watch: called for each run when it starts (with None) and when it has ended.
        reuses: whether to use an earlier result of the base.
    """

    def __init__(  # noqa: PLR0913  each by name
        self,
        trees: Trees,
        base: str,
        options: RunOptions,
        *,
        home: Path,
        environment: Callable[[Path], ExecutionEnvironment],
        source: random.Random,
        watch: Callable[[RunKind, RunResult | None], None] = lambda _kind, _result: None,
        reuses: bool = True,
        setup_environment: Callable[[Path], ExecutionEnvironment] | None = None,
    ) -> None:
        self._trees, self._base, self._options, self._reuses = trees, base, options, reuses
        self._home, self._environment, self._source, self._watch = home, environment, source, watch
        self._setup_environment = setup_environment or environment
        self._call = parse_pytest(options.command)
        self._files = TestFiles(options.test_paths, (options.command, options.setup))
        self._slot: Slot | None = None
        self._one_at_a_time = asyncio.Lock()
        self._results: dict[str, RunResult] = {}
        self._failed_setups: dict[str, str] = {}
        self._setup_trees: dict[str, str] = {}
        self._restorable: dict[str, tuple[str, ...]] = {}
        self._changes: dict[str, Sequence[FileChange]] = {}
        self._base_tree = ""
        self._control: ControlTest | None = None
        """Where the test that must fail is, once the base has shown that it fails."""

    async def before(self) -> RunResult:
        """Run the base's tests: see `Verifier`."""
        async with self._one_at_a_time:
            return await self._named_errors(self._before())

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        """Run tests for the model: see `Verifier`."""
        async with self._one_at_a_time:
            return await self._named_errors(self._run_tests(tree, ids))

    async def verify(self, change: Change) -> Runs:
        """Make all runs that the change needs: see `Verifier`."""
        async with self._one_at_a_time:
            try:
                return await self._verify(change)
            except PullwrightError as error:
                return replace(
                    self._of(change), before=self._results.get(self._base_tree), problem=str(error)
                )

    async def kept(self, change: Change, *, repeat: bool = False) -> Runs:
        """Run the base, and the change's code with the base's tests; no other tests.

        Args:
            repeat: whether both are repeated completely, twice; else only tests that passed before and fail
                now.

        Raises:
            ToolError: the base's set-up failed, or nothing can be run.
            WorkspaceError: git failed.
        """
        async with self._one_at_a_time:
            return await self._kept_alone(change, repeat=repeat)

    async def close(self) -> None:
        """Stop and clean up: see `Verifier`."""
        async with self._one_at_a_time:
            slot, self._slot = self._slot, None
            if slot is not None:
                await _in_thread(slot.close)

    @staticmethod
    async def _named_errors(running: Any) -> RunResult:
        try:
            result: RunResult = await running
        except ToolError:
            raise
        except PullwrightError as error:  # git, the disk, or no sandbox
            raise ToolError(str(error)) from error
        return result

    def _of(self, change: Change) -> Runs:
        options = self._options
        return Runs(options.command, options.setup, options.sandbox, change.base, change.tree)

    async def _verify(self, change: Change) -> Runs:
        before = await self._before()
        self._changes[change.tree] = change.files
        after = await self._whole(RunKind.AFTER, change.tree)
        kept_tree, restored = await _in_thread(self._kept_tree, change)
        kept = await self._whole(RunKind.KEPT, kept_tree)
        new = await self._new(change)
        before, (kept, after) = await self._again(before, (kept, after))
        problem, seconds = await self._known_tests(before, kept, change.files)
        kept = replace(kept, problem=kept.problem or problem, seconds=kept.seconds + seconds)
        after = replace(after, problem=after.problem or problem)
        return replace(self._of(change), before=before, kept=kept, after=after, new=new, restored=restored)

    async def _kept_alone(self, change: Change, *, repeat: bool) -> Runs:
        before = await self._before()
        self._changes[change.tree] = change.files
        tree, restored = await _in_thread(self._kept_tree, change)
        kept = await self._whole(RunKind.KEPT, tree)
        if repeat and not (before.problem or kept.problem):
            before, kept = [
                replace(one, flaky=await self._unsteady(one, one.cases.keys())) for one in (before, kept)
            ]
        else:
            before, (kept, _) = await self._again(before, (kept, kept))
        problem, seconds = await self._known_tests(before, kept, change.files)
        kept = replace(kept, problem=kept.problem or problem, seconds=kept.seconds + seconds)
        return replace(self._of(change), before=before, kept=kept, restored=restored)

    def _kept_tree(self, change: Change) -> tuple[str, tuple[str, ...]]:
        """Return the tree of the change's code with the base's tests, and the paths restored from the base."""
        restored = self._restored(change.tree)
        tree = self._trees.mixed(change.tree, self._base_tree, set(restored))
        inside = {
            path: text for path, text in self._files.inside(change.files).items() if path not in restored
        }
        tree = self._trees.replaced(tree, inside)
        self._restorable.setdefault(tree, ())  # all of that is as in the base
        return tree, tuple(sorted({*restored, *inside}))

    async def _before(self) -> RunResult:
        if self._base_tree and (known := self._results.get(self._base_tree)):
            return replace(known, kind=RunKind.BEFORE)
        self._base_tree = await _in_thread(self._trees.tree_of, self._base)
        slot = await self._held_slot()
        key = _digest(_FORM, self._base_tree, self._options)
        found = await _in_thread(slot.load, key) if self._reuses else None
        if found is None:
            found = await self._base_run(await _in_thread(self._place_of_control))
            if not found[0].problem:
                await _in_thread(slot.save, key, *found)
        result, self._control = found
        self._results[self._base_tree] = result
        return result

    def _place_of_control(self) -> ControlTest | None:
        """Choose the place of the control test; None if it would change the results of other tests."""
        if self._call is None or not self._call.allows_control:
            return None
        if self._trees.containing(self._base_tree, EXIT_SETTINGS, SETTINGS_FILES):
            return None
        return choose_control(self._trees.entries(self._base_tree))

    async def _base_run(self, control: ControlTest | None) -> tuple[RunResult, ControlTest | None]:
        """Run the base's tests. Return the result, and the control test if it failed as it should."""
        self._watch(RunKind.BEFORE, None)
        ended = await self._run(self._base_tree, self._options.command, control)
        result, shown = await self._result(RunKind.BEFORE, self._base_tree, ended)
        if control is not None and not shown and result.exit not in (0, 1):
            # Something there does not bear a file more. It is run as it is, and nothing is known of the runner.
            ended = await self._run(self._base_tree, self._options.command, None)
            result, _ = await self._result(RunKind.BEFORE, self._base_tree, ended)
        self._watch(RunKind.BEFORE, result)
        return result, control if shown else None

    async def _whole(self, kind: RunKind, tree: str) -> RunResult:
        """Run all tests of a tree, once."""
        known = self._results.get(tree)
        if known is None:
            self._watch(kind, None)
            control = await _in_thread(self._control_for, tree)
            ended = await self._run(tree, self._options.command, control)
            known, shown = await self._result(kind, tree, ended, expects=self._results[self._base_tree])
            if control is not None and not shown and known.is_green:
                known = replace(known, problem=await _in_thread(self._missing_failure, tree, ended))
            self._results[tree] = known
            self._watch(kind, known)
        return replace(known, kind=kind)

    def _control_for(self, tree: str) -> ControlTest | None:
        """Return the control test for a tree; None if the change's own settings may fail a run without a failing test."""
        found = self._control and self._trees.containing(tree, EXIT_SETTINGS, SETTINGS_FILES)
        return None if found and not set(found).isdisjoint(self._restored(tree)) else self._control

    def _missing_failure(self, tree: str, ended: EndedCommand) -> str:
        """Return why a run without the control test's failure is invalid; empty if there is an honest reason.

        A change of settings may move the tests. Then *kept* shows that failures are reported.
        """
        if any(ended.token.encode("ascii") in data for data in ended.reports):
            return "a test that must fail passed: the code changes what the test runner reports"
        if any(not is_module(path) for path in self._restored(tree)):
            return ""
        return "a test that must fail was not run: the code changes which tests the test runner finds"

    def _restored(self, tree: str) -> tuple[str, ...]:
        """Return the paths of a changed tree that are restored from the base for the base's tests."""
        if tree in self._restorable:
            return self._restorable[tree]
        passing = {
            case.file
            for case in self._results[self._base_tree].cases.values()
            if case.status is CaseStatus.PASSED
        }

        @cache
        def is_installed(module: str) -> bool:
            # A test that passes and imports what is not in the repository found it elsewhere.
            return module.isidentifier() and not passing.isdisjoint(
                self._trees.importing(self._base_tree, module)
            )

        text_of = partial(self._trees.text, self._base_tree, most_bytes=_TEST_FILE_BYTES)
        entries = self._trees.entries(self._base_tree)
        self._restorable[tree] = self._files.restored(self._changed(tree), entries, is_installed, text_of)
        return self._restorable[tree]

    def _changed(self, tree: str) -> Sequence[FileChange]:
        """Return all differences between a tree and the base."""
        if tree not in self._changes:
            self._changes[tree] = self._trees.changes(self._base_tree, tree)
        return self._changes[tree]

    async def _new(self, change: Change) -> RunResult | None:
        """Run the change's tests on the base's code; None if it has no new or changed test."""
        tree, files = await _in_thread(self._new_tree, change)
        if not tree:
            return None
        modules = [path for path in files if is_module(path) and is_plain_id(path)]
        if self._call is not None and 0 < len(modules) <= MOST_IDS:
            return await self._some(RunKind.NEW, tree, modules)
        return await self._whole(RunKind.NEW, tree)

    def _new_tree(self, change: Change) -> tuple[str, list[str]]:
        """Return the tree of the base's code with the change's tests, and the new or changed test files; empty without."""
        paths = set(self._files.tests(change.files))
        there = sorted(item.path for item in change.files if item.path in paths and item.new is not None)
        if self._call is not None:
            there = [path for path in there if path.endswith(".py") and not path.endswith("conftest.py")]
        inside = {} if self._call else self._files.inside(change.files, with_old_code=True)
        if not there and not inside:
            return "", []
        tree = self._trees.mixed(self._base_tree, change.tree, paths)
        return self._trees.replaced(tree, inside), there

    async def _run_tests(self, tree: str, ids: Sequence[str]) -> RunResult:
        await self._before()
        named = await _in_thread(self._checked, tree, ids)
        if not named or self._call is None:
            return await self._whole(RunKind.AFTER, tree)
        return await self._some(RunKind.AFTER, tree, named)

    def _checked(self, tree: str, ids: Sequence[str]) -> list[str]:
        if not ids:
            return []
        entries = self._trees.entries(tree)
        return checked_ids(ids, entries.keys() | folders_of(entries))

    async def _some(self, kind: RunKind, tree: str, ids: Sequence[str]) -> RunResult:
        """Run some tests of a tree now."""
        assert self._call is not None  # noqa: S101  for the type checker
        self._watch(kind, None)
        ended = await self._run(tree, self._call.selecting(ids), None)
        result, _ = await self._result(kind, tree, ended)
        self._watch(kind, result)
        return result

    async def _again(
        self, before: RunResult, changed: tuple[RunResult, RunResult]
    ) -> tuple[RunResult, tuple[RunResult, RunResult]]:
        """Repeat tests that passed before and fail now, twice on both sides, and record unsteady ones."""
        kept, after = [await _in_thread(_suspects, before, result) for result in changed]
        suspects = (kept - after, after)  # of what fails in both, the change as it is tells
        if not any(suspects):
            return before, changed
        found: dict[str, frozenset[str]] = {}
        for result, ids in ((before, suspects[0] | suspects[1]), *zip(changed, suspects, strict=True)):
            if ids and not (result.tree in found and result is not before):
                found[result.tree] = await self._unsteady(result, ids)
        first, second = (replace(one, flaky=found.get(one.tree, frozenset())) for one in changed)
        return replace(before, flaky=found[before.tree]), (first, second)

    async def _unsteady(self, result: RunResult, ids: Collection[str]) -> frozenset[str]:
        """Return which tests end differently when the same tree is run again; see `RunResult.flaky`."""
        command = self._options.command
        if self._call is not None and 0 < len(ids) <= MOST_IDS and all(map(is_plain_id, ids)):
            command = self._call.selecting(sorted(ids))
        unsteady: set[str] = set()
        for _ in range(_RERUNS):
            ended = await self._run(result.tree, command, None)
            again, _ = await self._result(result.kind, result.tree, ended)
            unsteady |= {one for one in ids if again.passed(one) not in (None, result.passed(one))}
        return frozenset(unsteady)

    async def _known_tests(
        self, before: RunResult, kept: RunResult, changes: Sequence[FileChange]
    ) -> tuple[str, float]:
        """Return why passing tests prove nothing: the code recognizes them, or equals every expected value.

        The reason is empty if they do. The second value is the duration of this check in seconds.
        """
        if self._call is None or kept.problem:
            return "", 0.0
        stake = await _in_thread(select_tests, before, kept, changes, MOST_IDS // 2)
        copies = await self._copied(kept.tree, stake)
        seconds = copies[0][1].seconds if copies else 0.0
        free = {name for one, ran in copies for name in one.passing_altered(ran)}
        if not free and not any(one.failing_renamed(ran, before, kept) for one, ran in copies):
            return "", seconds
        # It may be the tests' own way: the base tells. What is seen twice is no accident.
        as_it_was = await self._copied(before.tree, stake)
        if free := free.difference(*(one.passing_altered(ran) for one, ran in as_it_was)):
            return f"{_tests(free)} whatever value is expected, which proves nothing: {min(free)}", seconds
        comparable = {name for one, ran in as_it_was for name in one.comparable(ran, before)}
        again = await self._copied(kept.tree, stake)
        known = comparable.intersection(
            name for one, ran in again for name in one.failing_renamed(ran, before, kept)
        )
        words = f"{_tests(known)} only where the code knows it by its name or file: " if known else ""
        return words + min(known, default=""), seconds

    async def _copied(
        self, tree: str, stake: Mapping[str, Collection[str]]
    ) -> list[tuple[Copies, RunResult]]:
        """Run copies of tests in place of their files."""
        if not stake or self._call is None:
            return []
        made: list[Copies] = []
        slot = await self._fresh(tree)
        environment = self._environment(slot.tree)
        try:
            await environment.initialize()
            for path, names in stake.items():
                with suppress(ToolError):
                    source = await environment.read_file(path, max_bytes=_TEST_FILE_BYTES)
                    tokens = self._token(), self._token()
                    if one := await _in_thread(copy_tests, path, source, names, tokens):
                        await environment.remove_file(path)
                        for place, text in one.files.items():
                            await environment.write_file(place, text)
                        made.append(one)
            ids = [name for one in made for name in one.ids if is_plain_id(name)]
            if not ids:
                return []
            ended = await self._execute(environment, slot, self._call.selecting(ids))
        finally:
            await environment.cleanup()
        ran, _ = await self._result(RunKind.KEPT, tree, ended)
        return [(one, ran) for one in made]

    def _token(self) -> str:
        return f"{self._source.getrandbits(_TOKEN_BITS):016x}"

    async def _run(self, tree: str, command: str, control: ControlTest | None) -> EndedCommand:
        """Run a command in a fresh tree, with the control test.

        If the change's content prevents the run, the result is an invalid run.
        """
        try:
            return await self._run_in(await self._fresh(tree), tree, command, control)
        except _UnfitTreeError as error:
            if tree == self._base_tree:
                raise
            ran = ExecResult("", "", str(error), 1, timed_out=False, duration_ms=0)
            return EndedCommand(ran, "", unread=str(error))

    async def _run_in(self, slot: Slot, tree: str, command: str, control: ControlTest | None) -> EndedCommand:
        token = self._token() if control else ""
        environment = self._environment(slot.tree)
        try:
            await environment.initialize()
            if control is not None:
                with _unfit():
                    await environment.write_file(control.path(token), control.text(token).encode("ascii"))
            programs = list(filter(is_test_program, await _in_thread(self._trees.entries, tree)))
            stamps = await _in_thread(slot.stamper.files, slot.tree, programs)
            ended = await self._execute(environment, slot, command)
            now = await _in_thread(slot.stamper.files, slot.tree, programs)
            rewritten = next((path for path in programs if now[path] != stamps[path]), "")
            return replace(ended, rewritten=rewritten, token=token)
        finally:
            await environment.cleanup()

    async def _execute(self, environment: ExecutionEnvironment, slot: Slot, command: str) -> EndedCommand:
        own = f".{self._source.getrandbits(_TOKEN_BITS):016x}.xml"
        with _unfit():
            for path in await _in_thread(slot.matching, self._options.report):
                with suppress(FileMissingError):
                    await environment.remove_file(path)
        folder = environment.working_directory()
        variables = pytest_variables(posixpath.join(folder, own))
        ran = await environment.exec_command(command, timeout_ms=self._milliseconds, env=variables)
        # Nothing runs there any more: what is read now stays as it is.
        reports = []
        left = _MOST_REPORT_BYTES
        try:
            for path in (own, *await _in_thread(slot.matching, self._options.report)):
                with suppress(FileMissingError):
                    reports.append(await environment.read_file(path, max_bytes=min(MAX_BYTES, left)))
                    left -= len(reports[-1])
        except ToolError as error:
            return EndedCommand(ran, folder, unread=f"the report cannot be read: {error}")
        return EndedCommand(ran, folder, tuple(reports))

    async def _fresh(self, tree: str) -> Slot:
        """Return the slot with a tree's files, and with the result of the set-up."""
        slot = await self._held_slot()
        key = await self._setup_of(slot, tree) if self._options.setup else ""
        await _in_thread(self._export, slot, tree)
        if key:
            await _in_thread(slot.bring_setup, key)
        return slot

    async def _setup_of(self, slot: Slot, tree: str) -> str:
        """Return the key of a tree's set-up, which runs none of the change's code unless necessary."""
        source = await _in_thread(self._setup_tree, tree)
        try:
            return await self._set_up(slot, source)
        except _UnfitTreeError:
            if source in {tree, self._base_tree}:
                raise
            # A manifest may name files that only the change has.
            return await self._set_up(slot, tree)

    async def _set_up(self, slot: Slot, tree: str) -> str:
        """Run the set-up in a tree, unless its result is cached. Return its key."""
        key = _digest(tree, self._options.setup, self._options.sandbox, self._options.conditions)
        if key in self._failed_setups:
            raise _UnfitTreeError(self._failed_setups[key])
        if await _in_thread(slot.has_setup, key):
            return key
        await _in_thread(self._export, slot, tree)
        environment = self._setup_environment(slot.tree)
        try:
            await environment.initialize()
            ran = await environment.exec_command(self._options.setup, timeout_ms=self._milliseconds)
        finally:
            await environment.cleanup()
        if ran.timed_out or ran.killed_for or ran.exit_code != 0:
            how = why_stopped(ran, self._options.minutes) or f"ended with exit code {ran.exit_code}"
            last = next((line for line in reversed(ran.output.splitlines()) if line.strip()), "")
            self._failed_setups[key] = f"the set-up command {how}: {last.strip()[:300]}"
            raise _UnfitTreeError(self._failed_setups[key])
        await _in_thread(slot.keep_setup, key, await _in_thread(self._trees.entries, tree))
        return key

    def _setup_tree(self, tree: str) -> str:
        """Return the tree of the base with those files of another tree that a set-up depends on."""
        if tree not in self._setup_trees:
            steering = {change.path for change in self._changed(tree) if self._files.steers_setup(change)}
            self._setup_trees[tree] = self._trees.mixed(self._base_tree, tree, steering)
        return self._setup_trees[tree]

    def _export(self, slot: Slot, tree: str) -> None:
        slot.empty()
        self._trees.export(tree, slot.tree)

    async def _held_slot(self) -> Slot:
        if self._slot is None:
            self._slot = await _in_thread(Slot.take, self._home)
        return self._slot

    @property
    def _milliseconds(self) -> int:
        return round(self._options.minutes * 60_000)

    async def _result(
        self, kind: RunKind, tree: str, ended: EndedCommand, *, expects: RunResult | None = None
    ) -> tuple[RunResult, bool]:
        """Call `run_result` in a thread, because reports are long."""
        read = partial(run_result, minutes=self._options.minutes, expects=expects)
        return await _in_thread(read, kind, tree, ended)


@contextmanager
def _unfit() -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        raise _UnfitTreeError(str(error)) from error


def _tests(names: Collection[str]) -> str:
    return "1 test passes" if len(names) == 1 else f"{len(names)} tests pass"


def _suspects(before: RunResult, after: RunResult) -> set[str]:
    """Return the tests that passed before and fail now."""
    if before.problem or after.problem:
        return set()
    if not before.cases:
        return {WHOLE_RUN} if before.exit == 0 and after.exit != 0 else set()
    return {
        name
        for name, case in after.cases.items()
        if case.failed and name in before.cases and before.cases[name].status is CaseStatus.PASSED
    }


async def _in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Run a blocking function in a thread. On cancellation wait for it, because it uses what is removed next."""
    running = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
