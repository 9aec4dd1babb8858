"""Runs a repository's tests on the host: decides which runs are needed, and makes each in a fresh tree."""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING

from orchestrator.bot.verification.base import (
    WHOLE_RUN,
    CaseStatus,
    NamedTests,
    RunKind,
    RunResult,
    Runs,
)
from orchestrator.bot.verification.printed import first_error
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
from orchestrator.bot.verification.reports import EndedCommand, run_result, why_stopped
from orchestrator.bot.verification.slot import Slot
from orchestrator.bot.verification.trees import TestFiles, folders_of
from orchestrator.core.changes import is_test_program
from orchestrator.core.errors import FileMissingError, PullwrightError, ToolError
from orchestrator.core.event_loop import in_thread
from orchestrator.engine.environments.base import ExecResult

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.git.objects import Trees
    from orchestrator.bot.verification.base import Change, RunOptions
    from orchestrator.bot.verification.python_tests import Copies
    from orchestrator.core.changes import FileChange
    from orchestrator.engine.environments.base import ExecutionEnvironment

_CACHE_VERSION = 5
"""Version of the cached results of a base. Another number invalidates them."""
_RERUNS = 2
_LEAST_GUESS_MS, _GUESS_FACTOR = 20_000, 4
"""The time limit of a guess is the greater of the two; the factor is for the duration on the base."""
_TOKEN_BITS = 64
_TEST_FILE_BYTES = 2_000_000
_MOST_REPORT_BYTES = 100_000_000
"""Most bytes of all reports of a run together."""


class _UnfitTreeError(ToolError):
    """A tree cannot be run because of its content: its set-up fails, or the program's own files cannot be written."""


class HostRuns:
    """A `Verifier` that runs the tests on this machine.

    Args:
        base: the commit or tree with which changes are compared.
        home: the folder of this repository's test runs, which outlives the cycle.
        environment: creates the environment of commands for a folder, with the user's limits, variables and
            hosts.
        setup_environment: the same for the set-up, if it may reach other hosts than the tests.
        source: creates unguessable names.
        on_run: called for each run when it starts, with None, and when it has ended, with the result.
        reuses: whether to use a cached result of the base.
        redact: takes secrets out of output that is kept.
        note: called with a line for the person.
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
        on_run: Callable[[RunKind, RunResult | None], None] = lambda _kind, _result: None,
        reuses: bool = True,
        setup_environment: Callable[[Path], ExecutionEnvironment] | None = None,
        redact: Callable[[str], str] = str,
        note: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._redact, self._note = redact, note
        self._trees, self._base, self._options, self._reuses = trees, base, options, reuses
        self._home, self._environment, self._source, self._on_run = home, environment, source, on_run
        self._setup_environment = setup_environment or environment
        self._timeout_ms = round(options.minutes * 60_000)
        self._pytest = parse_pytest(options.command)
        self._test_files = TestFiles(options.test_paths, (options.command, options.setup))
        self._slot: Slot | None = None
        self._one_at_a_time = asyncio.Lock()
        self._results: dict[str, RunResult] = {}
        self._failed_setups: dict[str, str] = {}
        self._setup_trees: dict[str, str] = {}
        self._restored_by_tree: dict[str, tuple[str, ...]] = {}
        self._changes: dict[str, Sequence[FileChange]] = {}
        self._base_tree = ""
        self._control: ControlTest | None = None
        """The control test, if it failed on the base as it should."""

    async def before(self) -> RunResult:
        """Run the base's tests: see `Verifier`."""
        async with self._one_at_a_time:
            return await self._as_tool_errors(self._before())

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        """Run tests for the model: see `Verifier`."""
        async with self._one_at_a_time:
            return await self._as_tool_errors(self._run_tests(tree, ids))

    async def verify(self, change: Change) -> Runs:
        """Make all runs that the change needs: see `Verifier`."""
        async with self._one_at_a_time:
            try:
                return await self._verify(change)
            except PullwrightError as error:
                return replace(
                    self._runs_of(change), before=self._results.get(self._base_tree), problem=str(error)
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
            before = await self._before()
            self._changes[change.tree] = change.files
            tree, restored = await in_thread(self._kept_tree, change)
            kept = await self._run_all(RunKind.KEPT, tree)
            if repeat and not (before.problem or kept.problem):
                before, kept = [
                    replace(one, flaky=await self._flaky_tests(one, one.cases.keys()))
                    for one in (before, kept)
                ]
            else:
                before, (kept, _) = await self._repeat_failures(before, (kept, kept))
            if not kept.problem:
                kept = await self._check_copies(before, kept, change.files)
            return replace(self._runs_of(change), before=before, kept=kept, restored=restored)

    async def close(self) -> None:
        """Stop and clean up: see `Verifier`."""
        async with self._one_at_a_time:
            slot, self._slot = self._slot, None
            if slot is not None:
                await in_thread(slot.close)

    @staticmethod
    async def _as_tool_errors(running: Awaitable[RunResult]) -> RunResult:
        try:
            return await running
        except ToolError:
            raise
        except PullwrightError as error:  # of git, the disk, or the sandbox
            raise ToolError(str(error)) from error

    def _runs_of(self, change: Change) -> Runs:
        options = self._options
        return Runs(options.command, options.setup, options.sandbox, change.base, change.tree)

    async def _verify(self, change: Change) -> Runs:
        before = await self._before()
        self._changes[change.tree] = change.files
        after = await self._run_all(
            RunKind.AFTER, change.tree, _guess_ms(before) if change.is_guess else None
        )
        if change.is_guess and _repairs_less(before, after, change):
            return replace(self._runs_of(change), before=before, after=after)
        kept_tree, restored = await in_thread(self._kept_tree, change)
        kept = await self._run_all(RunKind.KEPT, kept_tree)
        new = await self._new(change)
        before, (kept, after) = await self._repeat_failures(before, (kept, after))
        if not kept.problem:
            kept = await self._check_copies(before, kept, change.files)
            after = replace(after, problem=after.problem or kept.problem)
        return replace(
            self._runs_of(change), before=before, kept=kept, after=after, new=new, restored=restored
        )

    def _kept_tree(self, change: Change) -> tuple[str, tuple[str, ...]]:
        """Return the tree of the change's code with the base's tests, and the paths restored from the base."""
        restored = self._restored_paths(change.tree)
        tree = self._trees.mixed(change.tree, self._base_tree, set(restored))
        merged = self._test_files.merged_sources(change.files)
        merged = {path: text for path, text in merged.items() if path not in restored}
        tree = self._trees.replaced(tree, merged)
        self._restored_by_tree.setdefault(tree, ())  # nothing is left to restore in this tree
        return tree, tuple(sorted({*restored, *merged}))

    async def _before(self) -> RunResult:
        if self._base_tree and (known := self._results.get(self._base_tree)):
            return replace(known, kind=RunKind.BEFORE)
        self._base_tree = await in_thread(self._trees.tree_of, self._base)
        slot = await self._open_slot()
        key = _digest(_CACHE_VERSION, self._base_tree, self._options)
        cached = await in_thread(slot.load, key) if self._reuses else None
        result, self._control = cached or await self._base_run(await in_thread(self._choose_control))
        if cached is None and not result.problem:
            await in_thread(slot.save, key, result, self._control)
        self._results[self._base_tree] = result
        return result

    def _choose_control(self) -> ControlTest | None:
        """Choose the place of the control test; None if it would change the results of other tests."""
        is_possible = self._pytest is not None and self._pytest.allows_control
        if not is_possible or self._trees.containing(self._base_tree, EXIT_SETTINGS, SETTINGS_FILES):
            return None
        return choose_control(self._trees.entries(self._base_tree))

    async def _base_run(self, control: ControlTest | None) -> tuple[RunResult, ControlTest | None]:
        """Run the base's tests. Return the result, and the control test if it failed as it should."""
        self._on_run(RunKind.BEFORE, None)
        ended = await self._run(self._base_tree, self._options.command, control)
        result, control_failed = await self._result(RunKind.BEFORE, self._base_tree, ended)
        if control is not None and not control_failed and result.exit not in (0, 1):
            # The additional file seems to cause an error. Without it, the runner's reports cannot be checked.
            ended = await self._run(self._base_tree, self._options.command, None)
            result, _ = await self._result(RunKind.BEFORE, self._base_tree, ended)
        self._on_run(RunKind.BEFORE, result)
        return result, control if control_failed else None

    async def _run_all(self, kind: RunKind, tree: str, most_ms: int | None = None) -> RunResult:
        """Run all tests of a tree, once; in `most_ms` at most if that is less than the user's limit."""
        result = self._results.get(tree)
        if result is None:
            self._on_run(kind, None)
            control = await in_thread(self._control_for, tree)
            ended = await self._run(tree, self._options.command, control, most_ms)
            base = self._results[self._base_tree]
            result, control_failed = await self._result(kind, tree, ended, expects=base)
            if control is not None and not control_failed and result.is_green:
                result = replace(result, problem=await in_thread(self._problem_without_control, tree, ended))
            if most_ms is None or not result.was_stopped:
                self._results[tree] = result
            elif ended.ran.timed_out and most_ms < self._timeout_ms:
                seconds = f"{most_ms / 1_000:.0f} seconds"
                result = replace(
                    result, problem=f"did not end within {seconds}, the limit of one of several tries"
                )
            self._on_run(kind, result)
        return replace(result, kind=kind)

    def _control_for(self, tree: str) -> ControlTest | None:
        """Return the control test for a tree; None if the change's settings may fail a run in which no test fails."""
        found = self._control and self._trees.containing(tree, EXIT_SETTINGS, SETTINGS_FILES)
        return None if found and not set(found).isdisjoint(self._restored_paths(tree)) else self._control

    def _problem_without_control(self, tree: str, ended: EndedCommand) -> str:
        """Return why a run without the control test's failure is invalid; empty if there is an honest reason.

        A change of settings may move the tests. Then the run `kept` shows that failures are reported.
        """
        if any(ended.token.encode("ascii") in data for data in ended.reports):
            return "a test that must fail passed: the code changes what the test runner reports"
        if all(map(is_module, self._restored_paths(tree))):
            return "a test that must fail was not run: the code changes which tests the test runner finds"
        return ""

    def _restored_paths(self, tree: str) -> tuple[str, ...]:
        """Return the paths of a changed tree that are restored from the base for the base's tests."""
        if tree in self._restored_by_tree:
            return self._restored_by_tree[tree]
        passing = {
            case.file
            for case in self._results[self._base_tree].cases.values()
            if case.status is CaseStatus.PASSED
        }

        @cache
        def is_installed(module: str) -> bool:
            # A passing test that imports a module which is not in the repository found it in another place.
            return module.isidentifier() and not passing.isdisjoint(
                self._trees.importing(self._base_tree, module)
            )

        text_of = partial(self._trees.text, self._base_tree, most_bytes=_TEST_FILE_BYTES)
        entries = self._trees.entries(self._base_tree)
        self._restored_by_tree[tree] = self._test_files.restored(
            self._changed(tree), entries, is_installed, text_of
        )
        return self._restored_by_tree[tree]

    def _changed(self, tree: str) -> Sequence[FileChange]:
        """Return all differences between a tree and the base."""
        if tree not in self._changes:
            self._changes[tree] = self._trees.changes(self._base_tree, tree)
        return self._changes[tree]

    async def _new(self, change: Change) -> RunResult | None:
        """Run the change's tests on the base's code; None if it has no new or changed test."""
        tree, files = await in_thread(self._new_tree, change)
        if not tree:
            return None
        modules = [path for path in files if is_module(path) and is_plain_id(path)]
        if self._pytest is not None and 0 < len(modules) <= MOST_IDS:
            return await self._run_selected(RunKind.NEW, tree, self._pytest.selecting(modules))
        return await self._run_all(RunKind.NEW, tree)

    def _new_tree(self, change: Change) -> tuple[str, list[str]]:
        """Return the tree of the base's code with the change's tests, and the new or changed test files.

        Both are empty if there are no such files.
        """
        paths = set(self._test_files.tests(change.files))
        test_files = sorted(item.path for item in change.files if item.path in paths and item.new is not None)
        if self._pytest is not None:
            test_files = [
                path for path in test_files if path.endswith(".py") and not path.endswith("conftest.py")
            ]
        merged = {} if self._pytest else self._test_files.merged_sources(change.files, with_old_code=True)
        if not test_files and not merged:
            return "", []
        tree = self._trees.mixed(self._base_tree, change.tree, paths)
        return self._trees.replaced(tree, merged), test_files

    async def _run_tests(self, tree: str, ids: Sequence[str]) -> RunResult:
        await self._before()
        if ids:
            entries = await in_thread(self._trees.entries, tree)
            ids = checked_ids(ids, entries.keys() | folders_of(entries))
        if not ids or self._pytest is None:
            return await self._run_all(RunKind.AFTER, tree)
        return await self._run_selected(RunKind.AFTER, tree, self._pytest.selecting(ids))

    async def _run_selected(self, kind: RunKind, tree: str, command: str) -> RunResult:
        """Run a command that selects some tests of a tree. The result is not cached."""
        self._on_run(kind, None)
        result, _ = await self._result(kind, tree, await self._run(tree, command, None))
        self._on_run(kind, result)
        return result

    async def _repeat_failures(
        self, before: RunResult, changed: tuple[RunResult, RunResult]
    ) -> tuple[RunResult, tuple[RunResult, RunResult]]:
        """Repeat tests that passed before and fail now, twice on both sides, and record which are flaky.

        Args:
            changed: the runs `kept` and `after`. A test that fails in both is repeated in `after` only.
        """
        kept, after = [await in_thread(_newly_failing, before, result) for result in changed]
        if not kept | after:
            return before, changed
        flaky: dict[str, frozenset[str]] = {}
        for result, ids in ((before, kept | after), *zip(changed, (kept - after, after), strict=True)):
            if ids and result.tree not in flaky:
                flaky[result.tree] = await self._flaky_tests(result, ids)
        first, second = (replace(one, flaky=flaky.get(one.tree, frozenset())) for one in changed)
        return replace(before, flaky=flaky[before.tree]), (first, second)

    async def _flaky_tests(self, result: RunResult, ids: Collection[str]) -> frozenset[str]:
        """Return which tests end differently when the same tree is run again; see `RunResult.flaky`."""
        command = self._options.command
        if self._pytest is not None and 0 < len(ids) <= MOST_IDS and all(map(is_plain_id, ids)):
            command = self._pytest.selecting(sorted(ids))
        flaky: set[str] = set()
        for _ in range(_RERUNS):
            ended = await self._run(result.tree, command, None)
            again, _ = await self._result(result.kind, result.tree, ended)
            flaky |= {one for one in ids if again.passed(one) not in (None, result.passed(one))}
        return frozenset(flaky)

    async def _check_copies(
        self, before: RunResult, kept: RunResult, changes: Sequence[FileChange]
    ) -> RunResult:
        """Return `kept`, invalid if the code recognizes tests or equals every expected value; then they prove nothing.

        The duration includes that of the check.
        """
        if self._pytest is None:
            return kept
        names = await in_thread(select_tests, before, kept, changes, MOST_IDS // 2)
        copies = await self._run_copies(kept.tree, names)
        if not copies:
            return kept
        kept = replace(kept, seconds=kept.seconds + copies[0][1].seconds)
        altered = {name for one, ran in copies for name in one.passing_altered(ran)}
        if not altered and not any(one.failing_renamed(ran, before, kept) for one, ran in copies):
            return kept
        # The tests themselves may be the cause: then the copies behave so on the base too.
        on_base = await self._run_copies(before.tree, names)
        if altered := altered.difference(*(one.passing_altered(ran) for one, ran in on_base)):
            problem = f"tests such as {min(altered)} pass whatever value they expect, so they prove nothing"
            return replace(kept, problem=problem)
        comparable = {name for one, ran in on_base for name in one.comparable(ran, before)}
        again = await self._run_copies(kept.tree, names)  # the failures may be accidental
        failing = (name for one, ran in again for name in one.failing_renamed(ran, before, kept))
        if recognized := comparable.intersection(failing):
            problem = (
                f"tests such as {min(recognized)} pass only because the code recognizes their names or files"
            )
            return replace(kept, problem=problem)
        return kept

    async def _run_copies(
        self, tree: str, names: Mapping[str, Collection[str]]
    ) -> list[tuple[Copies, RunResult]]:
        """Run copies of tests in place of their files. Return the copies of each file with the run of all of them.

        Args:
            names: the tests to copy, by file.
        """
        if not names or self._pytest is None:
            return []
        copies: list[Copies] = []
        slot = await self._slot_with(tree)
        environment = self._environment(slot.tree)
        try:
            await environment.initialize()
            for path, tests in names.items():
                with suppress(ToolError):
                    source = await environment.read_file(path, max_bytes=_TEST_FILE_BYTES)
                    tokens = self._token(), self._token()
                    if one := await in_thread(copy_tests, path, source, tests, tokens):
                        await environment.remove_file(path)
                        for place, text in one.files.items():
                            await environment.write_file(place, text)
                        copies.append(one)
            ids = [name for one in copies for name in one.ids if is_plain_id(name)]
            if not ids:
                return []
            ended = await self._execute(environment, slot, self._pytest.selecting(ids))
        finally:
            await environment.cleanup()
        ran, _ = await self._result(RunKind.KEPT, tree, ended)
        return [(one, ran) for one in copies]

    def _token(self) -> str:
        return f"{self._source.getrandbits(_TOKEN_BITS):016x}"

    async def _run(
        self, tree: str, command: str, control: ControlTest | None, most_ms: int | None = None
    ) -> EndedCommand:
        """Run a command in a fresh tree, with the control test if there is one.

        If the change's content prevents the run, the result says so in `unread`.
        """
        try:
            return await self._run_in(await self._slot_with(tree), tree, command, control, most_ms)
        except _UnfitTreeError as error:
            if tree == self._base_tree:
                raise
            ran = ExecResult("", "", str(error), 1, timed_out=False, duration_ms=0)
            return EndedCommand(ran, "", unread=str(error))

    async def _run_in(
        self, slot: Slot, tree: str, command: str, control: ControlTest | None, most_ms: int | None
    ) -> EndedCommand:
        token = self._token() if control else ""
        environment = self._environment(slot.tree)
        try:
            await environment.initialize()
            if control is not None:
                with _as_unfit_tree():
                    await environment.write_file(control.path(token), control.text(token).encode("ascii"))
            programs = list(filter(is_test_program, await in_thread(self._trees.entries, tree)))
            stamps = await in_thread(slot.stamper.files, programs)
            ended = await self._execute(environment, slot, command, most_ms)
            now = await in_thread(slot.stamper.files, programs)
            rewritten = next((path for path in programs if now[path] != stamps[path]), "")
            return replace(ended, rewritten=rewritten, token=token)
        finally:
            await environment.cleanup()

    async def _execute(
        self, environment: ExecutionEnvironment, slot: Slot, command: str, most_ms: int | None = None
    ) -> EndedCommand:
        own = f".{self._token()}.xml"
        with _as_unfit_tree():
            for path in await in_thread(slot.matching, self._options.report):
                with suppress(FileMissingError):
                    await environment.remove_file(path)
        folder = environment.working_directory()
        variables = pytest_variables(posixpath.join(folder, own))
        limit = min(most_ms or self._timeout_ms, self._timeout_ms)
        ran = await environment.exec_command(command, timeout_ms=limit, env=variables)
        reports: list[bytes] = []
        try:  # the environment has ended all processes, so the files do not change any more
            for path in (own, *await in_thread(slot.matching, self._options.report)):
                with suppress(FileMissingError):
                    most_bytes = _MOST_REPORT_BYTES - sum(map(len, reports))
                    reports.append(await environment.read_file(path, max_bytes=most_bytes))
        except ToolError as error:
            return EndedCommand(ran, folder, unread=f"the report cannot be read: {error}")
        return EndedCommand(ran, folder, tuple(reports))

    async def _slot_with(self, tree: str) -> Slot:
        """Return the slot with a tree's files, and with the files that the set-up creates for it."""
        slot = await self._open_slot()
        key = await self._setup_key(slot, tree) if self._options.setup else ""
        await in_thread(self._export, slot, tree)
        if key:
            await in_thread(slot.restore_setup, key)
        return slot

    async def _setup_key(self, slot: Slot, tree: str) -> str:
        """Make a tree's set-up, and return its key.

        The set-up runs on the base with only the files of the change that it depends on, if that succeeds.
        """
        source = await in_thread(self._setup_tree, tree)
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
        if await in_thread(slot.has_setup, key):
            return key
        await in_thread(self._export, slot, tree)
        environment = self._setup_environment(slot.tree)
        try:
            await environment.initialize()
            ran = await environment.exec_command(self._options.setup, timeout_ms=self._timeout_ms)
        finally:
            await environment.cleanup()
        if ran.timed_out or ran.killed_for or ran.exit_code != 0:
            how = why_stopped(ran, self._options.minutes) or f"ended with exit code {ran.exit_code}"
            self._failed_setups[key] = f"the set-up command {how}: {first_error(ran.output)}"
            if place := await in_thread(slot.keep_output, self._redact(ran.output)):
                self._note(f"the whole output of the set-up command is in {place}")
            raise _UnfitTreeError(self._failed_setups[key])
        await in_thread(slot.save_setup, key, await in_thread(self._trees.entries, tree))
        return key

    def _setup_tree(self, tree: str) -> str:
        """Return the tree of the base with those files of another tree that a set-up depends on."""
        if tree not in self._setup_trees:
            needed = {change.path for change in self._changed(tree) if self._test_files.affects_setup(change)}
            self._setup_trees[tree] = self._trees.mixed(self._base_tree, tree, needed)
        return self._setup_trees[tree]

    def _export(self, slot: Slot, tree: str) -> None:
        slot.empty()
        self._trees.export(tree, slot.tree)

    async def _open_slot(self) -> Slot:
        if self._slot is None:
            self._slot = await in_thread(Slot.take, self._home, undo=Slot.close)
        return self._slot

    async def _result(
        self, kind: RunKind, tree: str, ended: EndedCommand, *, expects: RunResult | None = None
    ) -> tuple[RunResult, bool]:
        """Call `run_result` in a thread, because reports are long."""
        read = partial(run_result, minutes=self._options.minutes, expects=expects)
        return await in_thread(read, kind, tree, ended)


@contextmanager
def _as_unfit_tree() -> Iterator[None]:
    try:
        yield
    except ToolError as error:
        raise _UnfitTreeError(str(error)) from error


def _guess_ms(before: RunResult) -> int:
    """Return the time limit of a guess: several are tried, and some do not end."""
    return max(_LEAST_GUESS_MS, round(before.seconds * 1_000 * _GUESS_FACTOR))


def _repairs_less(before: RunResult, after: RunResult, change: Change) -> bool:
    """Return whether a test that the task names failed before and does not pass now."""
    named = NamedTests(change.task)
    return any(not after.passed(case.id) for case in before.failures if named.names(case))


def _newly_failing(before: RunResult, after: RunResult) -> set[str]:
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


def _digest(*facts: object) -> str:
    return hashlib.sha256(repr(facts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
