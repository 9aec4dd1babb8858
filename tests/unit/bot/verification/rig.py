"""A repository with a bug and its tests, a clone of it, and the host's runs of them."""

from __future__ import annotations

import random
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from orchestrator.bot.verification.base import Change, RunKind, RunOptions
from orchestrator.bot.verification.runs import HostRuns
from orchestrator.engine.environments.base import ExecResult
from orchestrator.engine.environments.local import LocalEnvironment
from tests.conformance.environments import this_machines_sandbox
from tests.unit.bot.git.rig import clone, make_source, write

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from orchestrator.bot.git.clone import Clone
    from orchestrator.bot.verification.base import RunResult, Runs
    from orchestrator.engine.environments.base import ExecutionEnvironment

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
        commands: of a bench in which pytest is played: what was run; and `limits`, in how many milliseconds each.
        play: see `PlayedPytest`; None where commands are really run.
    """

    clone: Clone
    home: Path
    sandbox: Literal["auto", "off"] = "off"
    begun: list[RunKind] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    play: Play | None = None
    limits: list[int] = field(default_factory=list)

    def environment(self, folder: Path) -> ExecutionEnvironment:
        if self.play is not None:
            return PlayedPytest(folder, self.commands, self.play, self.limits)
        if self.sandbox == "off":
            return LocalEnvironment(folder, sandbox="off", own_repository=True)
        return LocalEnvironment(folder, sandbox=this_machines_sandbox(), own_repository=True)

    def on_run(self, kind: RunKind, result: RunResult | None) -> None:
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
            on_run=self.on_run,
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


class PlayedPytest(LocalEnvironment):
    """An environment in which every command plays pytest, without a process.

    A test is a line `def test_a(): needs WORD`, which passes if `code.txt` has the word; `skip` skips, anything else
    fails. Ids in the command select. `play` may take a command over: it returns the exit code, or None.

    Attributes:
        commands: what was run, for all environments with the same list.
    """

    def __init__(
        self,
        folder: Path,
        commands: list[str],
        play: Play = lambda _command, _tree, _report: None,
        limits: list[int] | None = None,
    ) -> None:
        super().__init__(folder, sandbox="off")
        self._commands, self._play, self._limits = commands, play, [] if limits is None else limits
        self._is_prepared = False

    async def initialize(self) -> None:
        await super().initialize()
        self._is_prepared = True

    async def exec_command(self, command: str, **asked: Any) -> ExecResult:
        assert self._is_prepared, "a container is not there before"
        self._commands.append(command)
        self._limits.append(int(asked["timeout_ms"]))
        tree = Path(self.working_directory())
        report = Path(
            re.findall(
                r"--junitxml=(\S+)", (asked.get("env") or {}).get("PYTEST_ADDOPTS", "--junitxml=none")
            )[0]
        )
        exit_code = self._play(command, tree, report)
        if exit_code is None:
            cases = played(tree, command)
            report.write_text(junit(cases))
            exit_code = int("failed" in cases.values()) if cases else 5
        timed_out = exit_code == TIMED_OUT
        return ExecResult("", "", f"ran {command}\n", exit_code, timed_out, 1_500)


Play: TypeAlias = Callable[[str, Path, Path], int | None]
TIMED_OUT = -15


def played(tree: Path, command: str = "") -> dict[str, str]:
    """How the tests of a tree end, by id."""
    words = set((tree / "code.txt").read_text().split())
    named = [word for word in shlex.split(command) if word.startswith("tests")]
    found = {}
    for path in sorted(tree.glob("tests/test_*.py")):
        file = path.relative_to(tree).as_posix()
        for name, rest in re.findall(r"def (\w+)\(\):\s*(.*)", path.read_text()):
            one = f"{file}::{name}"
            if not named or file in named or one in named:
                kind, _, word = rest.partition(" ")
                passes = kind == "needs" and word in words
                found[one] = "skipped" if kind == "skip" else "passed" if passes else "failed"
    return found


def junit(cases: Mapping[str, str]) -> str:
    """A report as pytest writes it."""
    said = {"failed": '<failure message="assert 0">assert 0</failure>', "skipped": "<skipped/>"}
    lines = []
    for one, status in cases.items():
        file, _, name = one.partition("::")
        module = file.removesuffix(".py").replace("/", ".")
        lines.append(
            f'<testcase classname="{module}" name="{name}" file="{file}">{said.get(status, "")}</testcase>'
        )
    failures = sum(status == "failed" for status in cases.values())
    return f'<testsuites><testsuite tests="{len(cases)}" failures="{failures}">{"".join(lines)}</testsuite></testsuites>'
