"""A repository with a bug and its tests, a clone of it, and the host's runs of them."""

from __future__ import annotations

import random
import sys
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from orchestrator.environments.local import LocalEnvironment
from orchestrator.verification.base import Change, RunKind
from orchestrator.verification.runs import HostRuns, RunOptions
from tests.conformance.environments import this_machines_sandbox
from tests.unit.workspace.rig import clone, make_source, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from pathlib import Path

    from orchestrator.environments.base import ExecutionEnvironment
    from orchestrator.verification.base import RunResult, Runs
    from orchestrator.workspace.clone import Clone

PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -q -p no:cacheprovider"
"""Without the plug-ins that happen to be installed, which take seconds to load."""

FILES: Mapping[str, str | bytes] = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "tests/test_calc.py": (
        "from calc import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n"
        "def test_zero():\n    assert add(0, 0) == 0\n"
    ),
}
FIXED = "def add(a, b):\n    return a + b\n"


@dataclass(slots=True)
class Bench:
    """A clone with its runs.

    Attributes:
        begun: the runs that were really made, in order.
    """

    clone: Clone
    home: Path
    sandbox: Literal["auto", "off"] = "off"
    begun: list[RunKind] = field(default_factory=list)

    def environment(self, folder: Path) -> ExecutionEnvironment:
        if self.sandbox == "off":
            return LocalEnvironment(folder, sandbox="off", own_repository=True)
        return LocalEnvironment(folder, sandbox=this_machines_sandbox(), own_repository=True)

    def watch(self, kind: RunKind, result: RunResult | None) -> None:
        if result is None:
            self.begun.append(kind)

    @asynccontextmanager
    async def runs(self, options: RunOptions | str = PYTEST) -> AsyncIterator[HostRuns]:
        if isinstance(options, str):
            options = RunOptions(options)
        made = HostRuns(
            self.clone.trees,
            self.clone.base_commit,
            options,
            home=self.home,
            environment=self.environment,
            source=random.Random(7),  # noqa: S311  the same names in every test
            watch=self.watch,
        )
        try:
            yield made
        finally:
            await made.close()

    def tree(self, files: Mapping[str, str | bytes | None]) -> str:
        """The tree with these files written; None removes one."""
        write(self.clone.tree, {path: text for path, text in files.items() if text is not None})
        for path, text in files.items():
            if text is None:
                (self.clone.tree / path).unlink()
        return self.clone.changed_tree(set(files), include_commands=False)

    def change(self, files: Mapping[str, str | bytes | None]) -> Change:
        tree = self.tree(files)
        return Change(self.clone.base_commit, tree, self.clone.trees.changes(self.clone.base_commit, tree))


@contextmanager
def bench(
    folder: Path,
    files: Mapping[str, str | bytes] = FILES,
    *,
    sandbox: Literal["auto", "off"] = "off",
) -> Iterator[Bench]:
    """A new repository in a folder, cloned."""
    source = make_source(folder / "source", files)
    with clone(source, folder / "runs") as opened:
        yield Bench(opened, folder / "home", sandbox)


def statuses(result: RunResult | None) -> dict[str, str]:
    """How each test ended, by id."""
    assert result is not None
    return {name: case.status.value for name, case in result.cases.items()}


async def verified(
    of: Bench, files: Mapping[str, str | bytes | None], options: RunOptions | str = PYTEST
) -> Runs:
    """The runs of a change."""
    async with of.runs(options) as runs:
        return await runs.verify(of.change(files))
