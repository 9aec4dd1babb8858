"""Finds cases for a backtest in a repository's history: changes whose tests can judge other changes."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.bot.evidence.hidden_tests import HiddenTests, UnfitTestsError, learn_tests
from orchestrator.bot.evidence.past_changes import Case, UnfitChange, take_out
from orchestrator.bot.evidence.record import JsonLines, digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from orchestrator.bot.evidence.hidden_tests import OpenRuns
    from orchestrator.bot.evidence.past_changes import PastChange
    from orchestrator.bot.git.history import RepositoryHistory
    from orchestrator.bot.verification.base import RunOptions
    from orchestrator.bot.verification.trees import TestFiles


@dataclass(frozen=True, slots=True)
class ReadyCase:
    """A case whose tests can judge a change."""

    case: Case
    hidden: HiddenTests

    @property
    def digest(self) -> str:
        """Digest of everything that a try depends on: the code, the task's text and the tests that judge it."""
        return digest_of(self.case.base, self.case.tests, self.case.text.whole, self.hidden.must_pass)


@dataclass(slots=True)
class FoundCases:
    """The result of a search.

    Attributes:
        ready: the usable cases, newest first.
        unfit: changes that were examined before the last ready one, and rejected.
    """

    ready: list[ReadyCase] = field(default_factory=list)
    unfit: list[UnfitChange] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TestsOfChange:
    """How the tests of one change are run.

    Attributes:
        files: recognizes files that belong to the tests.
        open_runs: creates the test runs.
    """

    __test__ = False  # pytest takes every class of this name for tests

    options: RunOptions
    files: TestFiles
    open_runs: OpenRuns


class CaseSearch:
    """Examines past changes until enough of them are usable cases. Results are kept for the next search.

    Args:
        folder: receives a store for each case, and the record.
        tests_of: returns how the tests of a change are run, or a text why they cannot be.
        watch: called for each change when its examination starts (with None) and with the result.
    """

    def __init__(
        self,
        history: RepositoryHistory,
        folder: Path,
        tests_of: Callable[[PastChange], TestsOfChange | str],
        watch: Callable[[PastChange, ReadyCase | UnfitChange | None], None],
    ) -> None:
        self._history, self._folder, self._tests_of, self._watch = history, folder, tests_of, watch
        self._record = JsonLines(folder / "cases.jsonl")
        self._known: dict[str, Any] = {line["key"]: line for line in self._record.lines() if "key" in line}

    async def find(
        self, changes: Iterator[PastChange | UnfitChange], wanted: int, jobs: int, stopped: Callable[[], bool]
    ) -> FoundCases:
        """Examine changes in order, several in parallel, until the wanted number of cases is found.

        Raises:
            WorkspaceError: git failed, or the disk is full.
        """
        found = FoundCases()
        begun: deque[asyncio.Task[ReadyCase | UnfitChange]] = deque()
        try:
            while len(found.ready) < wanted and not stopped():
                while (
                    len(begun) < jobs and (change := await asyncio.to_thread(next, changes, None)) is not None
                ):
                    begun.append(asyncio.ensure_future(self._look_at(change)))
                if not begun:
                    break
                one = await begun.popleft()
                if isinstance(one, UnfitChange):
                    found.unfit.append(one)
                else:
                    found.ready.append(one)
        finally:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
        return found

    async def _look_at(self, change: PastChange | UnfitChange) -> ReadyCase | UnfitChange:
        if isinstance(change, UnfitChange):
            return change
        self._watch(change, None)
        found = await self._ready(change)
        self._watch(change, found)
        return found

    async def _ready(self, change: PastChange) -> ReadyCase | UnfitChange:
        tests = await asyncio.to_thread(self._tests_of, change)
        if isinstance(tests, str):
            return UnfitChange(change.id, change.title, tests)
        key = digest_of(asdict(change), asdict(tests.options))
        known = self._known.get(key)
        if known is not None and known.get("unfit"):
            return UnfitChange(change.id, change.title, str(known["unfit"]))
        store = self._folder / "cases" / f"{change.id}-{key}"
        case = await asyncio.to_thread(take_out, change, self._history, store, tests.files)
        if isinstance(case, UnfitChange):
            self._note(key, change, unfit=case.reason)
            return case
        if known is not None:
            hidden = known["hidden"]
            return ReadyCase(case, HiddenTests(**{**hidden, **_as_tuples(hidden)}))
        try:
            learned = await learn_tests(case, tests.open_runs)
        except UnfitTestsError as error:
            self._note(key, change, unfit=str(error))
            return UnfitChange(change.id, change.title, str(error))
        self._note(key, change, hidden=asdict(learned))
        return ReadyCase(case, learned)

    def _note(self, key: str, change: PastChange, **facts: Any) -> None:
        line = {"key": key, "case": change.id, **facts}
        self._record.add(line)
        self._known[key] = json.loads(json.dumps(line))


def _as_tuples(hidden: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(hidden[name]) for name in ("must_pass", "must_still_pass")}
