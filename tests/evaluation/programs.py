"""Small programs with one bug each, as repositories; and what their own tests say about a repair.

The data is a folder like https://github.com/jkoppel/QuixBugs: `python_programs/NAME.py`,
`python_testcases/test_NAME.py` and `json_testcases/NAME.json`. The corrected programs beside them are read only to write
a history of repairs:

    python -m tests.evaluation.programs DATA FOLDER
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import LocalEnvironment
from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.engine.environments.sandbox import find_sandbox

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

TEST_SECONDS = 60
"""Some of the programs do not end before they are repaired."""

TEST_COMMAND = f"{sys.executable} -m pytest -q -p no:cacheprovider -p no:randomly"

_IMPORT = re.compile(
    r"^if pytest\.use_correct:\n.*\nelse:\n    from python_programs\.(?P<name>\w+) import", re.MULTILINE
)
_CASES = re.compile(r"^testdata = load_json_testcases\(\w+\.__name__\)$", re.MULTILINE)
_LOADER = "from load_testdata import load_json_testcases\n"


@dataclass(frozen=True, slots=True)
class Program:
    """A program with a bug.

    Attributes:
        name: of its module and its function.
        files: the files of its repository, text by path; the tests among them.
    """

    name: str
    files: dict[str, str] = field(repr=False)

    @property
    def path(self) -> str:
        """The file that has the bug."""
        return f"{self.name}.py"

    @property
    def tests(self) -> str:
        """The file with its tests."""
        return f"test_{self.name}.py"

    @property
    def task(self) -> str:
        """What a model is asked to do."""
        return f"Fix the bug in {self.path}. Its tests are in {self.tests}."

    def write(self, folder: Path) -> None:
        """Make the repository in a new folder, with one commit."""
        folder.mkdir(parents=True)
        for path, text in self.files.items():
            (folder / path).write_text(text, encoding="utf-8")
        git(folder, "init", "-q", "-b", "main")
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=Owner", "-c", "user.email=owner@example.org", "commit", "-qm", "Begin")


def write_history(data: Path, folder: Path, wanted: Sequence[str]) -> None:
    """Make a repository with a past: the programs with their bugs, then a commit a program that mends and tests it."""
    programs = [load(data, name) for name in wanted]
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")

    def commit(files: Mapping[str, str], message: str) -> None:
        for path, text in files.items():
            (folder / path).write_text(text, encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "-c", "user.name=Owner", "-c", "user.email=owner@example.org", "commit", "-qm", message)

    begun = {path: text for one in programs for path, text in one.files.items() if path != one.tests}
    # A test of each repository, so that a runner finds one on the code before each of them.
    begun["test_begin.py"] = "def test_begin():\n    assert True\n"
    commit(begun, "Begin")
    for one in programs:
        mended = (data / "correct_python_programs" / one.path).read_text("utf-8")
        commit({one.path: mended, one.tests: one.files[one.tests]}, f"Fix the bug in {one.path}")


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the program's own tests said.

    Attributes:
        passed: all of them passed, on the proposed file.
        detail: the last line of their output; or why they were not run.
        tests_changed: the proposal has other tests. They are not those that were run.
    """

    passed: bool
    detail: str
    tests_changed: bool = False


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; its output."""
    done = subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


def names(data: Path) -> list[str]:
    """The programs of a folder that have tests."""
    tests = (data / "python_testcases").glob("test_*.py")
    return sorted(path.stem.removeprefix("test_") for path in tests)


def load(data: Path, name: str) -> Program:
    """Read a program and make its tests stand beside it, with their cases in them."""
    tests = (data / "python_testcases" / f"test_{name}.py").read_text("utf-8")
    tests, imports = _IMPORT.subn(r"from \g<name> import", tests)
    if imports != 1:
        raise ValueError(f"test_{name}.py does not import its program as the others do")
    cases = data / "json_testcases" / f"{name}.json"
    if cases.exists():
        lines = [repr(json.loads(line)) for line in cases.read_text("utf-8").splitlines() if line.strip()]
        listed = "".join(f"    {line},\n" for line in lines)
        tests = _CASES.sub(lambda _: f"testdata = [\n{listed}]", tests).replace(_LOADER, "")
    files = {
        f"{name}.py": (data / "python_programs" / f"{name}.py").read_text("utf-8"),
        f"test_{name}.py": tests,
    }
    if "from node import" in tests:
        files["node.py"] = (data / "python_testcases" / "node.py").read_text("utf-8")
    return Program(name, files)


def judge_branch(program: Program, repository: Path, branch: str) -> Judgement:
    """Run the program's tests on what a branch has, with the tests and all else as they were."""
    listed = git(repository, "ls-tree", "-r", "--name-only", branch).splitlines()
    if program.path not in listed:
        return Judgement(passed=False, detail=f"{program.path} is gone")
    proposed = git(repository, "show", f"{branch}:{program.path}")
    kept = program.tests in listed and git(repository, "show", f"{branch}:{program.tests}")
    judged = judge(program, proposed)
    return Judgement(judged.passed, judged.detail, tests_changed=kept != program.files[program.tests])


def judge(program: Program, text: str) -> Judgement:
    """Run the program's tests on a text for its file, in a sandbox and with a time limit."""
    folder = Path(tempfile.mkdtemp(prefix="evaluation-"))
    try:
        for path, old in program.files.items():
            (folder / path).write_text(text if path == program.path else old, encoding="utf-8")
        return asyncio.run(_run(folder, program.tests))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _run(folder: Path, tests: str) -> Judgement:
    environment = sandboxed(folder)
    await environment.initialize()
    try:
        ran = await environment.exec_command(f"{TEST_COMMAND} {tests}", timeout_ms=TEST_SECONDS * 1000)
    finally:
        await environment.cleanup()
    if ran.timed_out:
        return Judgement(passed=False, detail=f"no end after {TEST_SECONDS} s")
    last = next((line for line in reversed(ran.stdout.splitlines()) if line.strip()), "no output")
    return Judgement(ran.exit_code == 0, last.strip("= "))


def sandboxed(folder: Path) -> LocalEnvironment:
    """An environment whose commands see this Python and change nothing but the folder."""
    sandbox = find_sandbox(SandboxOptions(readable=(sys.prefix, sys.base_prefix)))
    return LocalEnvironment(folder, sandbox=sandbox)


if __name__ == "__main__":
    write_history(Path(sys.argv[1]), Path(sys.argv[2]), names(Path(sys.argv[1])))
