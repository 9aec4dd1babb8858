"""Test runs and their results, and the matching of tests between two runs."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.changes import is_test_path

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.changes import FileChange


class CaseStatus(StrEnum):
    """How one test ended. `ERROR` means that not the test itself failed, but its file, fixture or module."""

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"


WHOLE_RUN = "(the test command)"
"""Stands for all tests if no report names them."""


NO_TEST_RAN = "no test ran"
"""The problem of a run without tests."""


class RunKind(StrEnum):
    """Which code and which tests a run uses."""

    BEFORE = "before"
    """The unchanged base commit."""
    KEPT = "kept"
    """The change's code with the base's tests, settings, scripts and builds."""
    AFTER = "after"
    """The complete change."""
    NEW = "new"
    """The base's code with the change's new and changed tests."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one test in one run.

    Attributes:
        id: the runner's own name of the test, such as `tests/test_a.py::TestB::test_c[1]`.
        message: the runner's message about a failure, cut; untrusted, and only ever shown as text.
        is_assertion: whether the test's own assertion failed; false for an exception or an import error.
        file: the test's file, relative to the repository, if the report names it; else empty.
    """

    id: str
    status: CaseStatus
    message: str = ""
    is_assertion: bool = False
    file: str = ""

    @property
    def failed(self) -> bool:
        """Whether the test failed, or its fixture, file or module."""
        return self.status in {CaseStatus.FAILED, CaseStatus.ERROR}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run of the test command in a fresh tree.

    Attributes:
        tree: git's tree id of the files.
        cases: results by id; empty if the runner wrote no supported report, so that only `exit` counts.
        exit: the command's exit code; negative if a signal ended it.
        seconds: duration of the command, without preparing the tree.
        problem: why the run proves nothing, in one line: it timed out, no test ran, report and exit code
            contradict each other; empty if it is valid.
        digest: `sha256:` and the hex digest of the report's bytes; empty without a report.
        output: the end of the command's output. It is no evidence; only the model sees it.
        flaky: ids of tests that ended differently when the same tree was run again; `WHOLE_RUN` if only
            the exit code is known.
        cached: whether the result is that of an earlier cycle on the same commit.
        counted: number of tests that ran, as the command printed it; None if it printed none. Code under test can
            print any number, so this only ever lowers what a run proves.
        was_stopped: whether a limit of time or memory ended the command, so that another run may end otherwise.
    """

    kind: RunKind
    tree: str
    cases: Mapping[str, CaseResult]
    exit: int
    seconds: float
    problem: str = ""
    digest: str = ""
    output: str = ""
    flaky: frozenset[str] = frozenset()
    cached: bool = False
    counted: int | None = None
    was_stopped: bool = False

    @property
    def ran(self) -> int | None:
        """The number of tests that ran; None if neither a report nor the output says it."""
        if self.cases:
            return len(self.cases) - self.count(CaseStatus.SKIPPED)
        return 0 if self.problem == NO_TEST_RAN else self.counted

    def count(self, *statuses: CaseStatus) -> int:
        """Return the number of tests with one of these statuses."""
        return sum(case.status in statuses for case in self.cases.values())

    @property
    def failures(self) -> list[CaseResult]:
        """The tests with the status `FAILED` or `ERROR`."""
        return [case for case in self.cases.values() if case.failed]

    def passed(self, name: str) -> bool | None:
        """Return whether a test passed, or all of them for `WHOLE_RUN`; None if unknown."""
        if name == WHOLE_RUN:
            return None if self.problem else self.exit == 0
        case = self.cases.get(name)
        return None if case is None else case.status is CaseStatus.PASSED

    @property
    def is_green(self) -> bool:
        """Whether the run is valid and nothing failed."""
        return not self.problem and self.exit == 0 and not self.failures


@dataclass(frozen=True, slots=True)
class Change:
    """A change to verify.

    Attributes:
        base: the base commit's id.
        tree: git's id of the tree to propose.
        files: all differences between the two.
        task: the task's title and text; tests that it names must pass.
        is_guess: whether it is one of several that are tried: as soon as a test that the task names still fails,
            nothing else matters.
    """

    base: str
    tree: str
    files: Sequence[FileChange]
    task: str = ""
    is_guess: bool = False


@dataclass(frozen=True, slots=True)
class Runs:
    """The runs of one change; None for a run that was not needed.

    Attributes:
        command: the test command, in one line.
        setup: the set-up command, in one line; empty if there is none.
        sandbox: the sandbox's name, or `none`.
        restored: changed paths that had the base's content in `kept`.
        problem: why the runs could not be made, such as a failed set-up, in one line; empty if they were.
    """

    command: str
    setup: str
    sandbox: str
    base: str
    tree: str
    before: RunResult | None = None
    kept: RunResult | None = None
    after: RunResult | None = None
    new: RunResult | None = None
    restored: tuple[str, ...] = ()
    problem: str = ""

    def of(self, kind: RunKind) -> RunResult | None:
        """Return the run of a kind; None if it was not made."""
        found: RunResult | None = getattr(self, kind.value)
        return found


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


def names_each_test(command: str, report: str) -> bool:
    """Return whether a command is known to report every test; if not, only its exit code is known."""
    return bool(report) or re.search(r"(?:^|[\s/])pytest(?:\s|$)", command) is not None


_HOSTS_BY_INSTALLER = (
    (r"pip3?|uv|poetry|pdm|pipenv|tox|nox|hatch", "pypi.org *.pythonhosted.org"),
    (r"npm|pnpm|npx|bun", "registry.npmjs.org"),
    (r"yarn", "registry.yarnpkg.com registry.npmjs.org"),
    (r"cargo", "index.crates.io static.crates.io"),
    (r"go (?:mod|get|install)", "proxy.golang.org sum.golang.org"),
    (r"mvnw?", "repo.maven.apache.org"),
    (
        r"gradlew?",
        "services.gradle.org plugins.gradle.org github.com *.githubusercontent.com repo.maven.apache.org",
    ),
    (r"bundle|gem", "rubygems.org index.rubygems.org"),
    (r"composer", "repo.packagist.org api.github.com codeload.github.com"),
    (r"mix", "hex.pm repo.hex.pm builds.hex.pm"),
    (r"dotnet", "api.nuget.org"),
    (r"swift", "github.com"),
    (r"deno", "jsr.io deno.land registry.npmjs.org"),
    (r"stack|cabal", "hackage.haskell.org casa.stackage.org s3.amazonaws.com raw.githubusercontent.com"),
)
"""Installers with their default hosts."""


def hosts_of(setup: str) -> tuple[str, ...]:
    """Return the hosts that a set-up command may need, judged by the installers that it names."""
    reached = (hosts for names, hosts in _HOSTS_BY_INSTALLER if re.search(rf"\b(?:{names})\b", setup))
    return tuple(dict.fromkeys(" ".join(reached).split()))


class Verifier(Protocol):
    """Runs the tests of one clone, each time in a fresh tree. Results are cached by tree."""

    async def before(self) -> RunResult:
        """Run the base's tests; once per commit on this machine.

        Raises:
            ToolError: the set-up failed or the sandbox is missing; the message says what to do.
        """

    async def verify(self, change: Change) -> Runs:
        """Make all runs that the change needs. Problems are reported in `Runs.problem`, not raised."""

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        """Run all tests of a tree for the model, or only those with these ids if the runner can select tests.

        Raises:
            ToolError: an id is invalid, or nothing could be run.
        """

    async def close(self) -> None:
        """Wait for the current run, and remove the trees. Caches stay."""


class IndexedRun:
    """The tests of one run, found by the ids of another."""

    def __init__(self, run: RunResult, *, exit_only: bool) -> None:
        self.run = run
        self.cases: Mapping[str, CaseResult] = run.cases
        if exit_only:
            status = CaseStatus.PASSED if run.exit == 0 else CaseStatus.FAILED
            self.cases = {WHOLE_RUN: CaseResult(WHOLE_RUN, status, run.output)}
        self._errors = {name for name, case in self.cases.items() if case.status is CaseStatus.ERROR}
        # pytest stops at a file that it cannot load. Then the results of the other files are unknown too.
        self._is_incomplete = bool(run.problem) or 0 < len(self._errors) == len(self.cases)
        self.groups = {part for name in self.cases for part in _enclosing(name)}
        """The functions, classes, files and packages of which tests were run."""
        self._pairs: dict[str, str] = {}

    def match(self, other: IndexedRun) -> None:
        """Find the tests of another run that have another id here: with other parameters, or in a moved file."""
        self._pairs = {**_moved(other, self), **_renamed_parameters(other, self)}

    def name_of(self, name: str) -> str:
        """Return the id in this run of a test that the matched run calls `name`."""
        return self._pairs.get(name, name)

    @property
    def renamed(self) -> set[str]:
        """The ids in this run of tests that have another id in the matched run."""
        return set(self._pairs.values())

    def find(self, name: str) -> CaseResult | None:
        """Return the test's result, or that of its class, file or package if loading it failed; None if missing."""
        found = self.cases.get(self.name_of(name))
        if found is None or found.status is CaseStatus.SKIPPED:
            for part in _enclosing(name):
                if part in self._errors:
                    return self.cases[part]
        if found is None and self._is_incomplete:
            return CaseResult(name, CaseStatus.ERROR, self.run.problem)
        return found


_CODE_FILE = re.compile(r"(?:[\w.-]+/)*[A-Za-z]\w+\.[A-Za-z]{1,5}")
_TEST_AFFIX = re.compile(r"^(?i:tests?)_|(?:_(?i:tests?|spec)|Tests?|Spec)$")


class NamedTests:
    """The tests that a task names: by id, by file, or by a function or class with an uncommon name."""

    def __init__(self, task: str) -> None:
        words = {word.rstrip(".;:!?").removeprefix("./") for word in re.split(r"[\s`'\"()<>,]+", task)} - {""}
        self._ids = {word.replace("#", "::") for word in words if "::" in word or "#" in word}
        self._words = {word for word in words if "::" not in word and "#" not in word}
        self._code = {
            word.rpartition("/")[2].partition(".")[0].lower()
            for word in self._words
            if _CODE_FILE.fullmatch(word) and not is_test_path(word)
        }
        self._files = {word for word in self._words if "." in word.rpartition("/")[2] and is_test_path(word)}

    def names_code_of(self, case: CaseResult) -> bool:
        """Return whether the task names a file of code that the test's file is about, as `gcd.py` and `test_gcd.py`."""
        container = (case.file or case.id.partition("::")[0]).replace("\\", "/").rpartition("/")[2]
        names = {
            container.partition(".")[0],
            container.rpartition(".")[2],
        }  # of a file, and of a class in a package
        return any(_TEST_AFFIX.sub("", name).lower() in self._code for name in names)

    def names(self, case: CaseResult) -> bool:
        """Return whether the task names the test, or its class, file or package."""
        container, _, rest = without_parameters(case).partition("::")
        file = case.file or container
        if any(file == word or file.endswith(f"/{word}") for word in self._files):
            return True
        names = [container.rpartition(".")[2], *rest.split("::")]
        if any(name in self._words and ("_" in name or not name.islower()) for name in names):
            return True
        ids = {case.id, without_parameters(case), *(part for part in _enclosing(case.id) if "::" in part)}
        return any(short in self._ids for name in ids for short in _short_forms(name))


def _short_forms(name: str) -> Iterator[str]:
    """Yield the forms in which people write an id: with fewer folders, and a class without its package."""
    container, colons, rest = name.partition("::")
    parts = container.split("/")
    for start in range(len(parts)):
        yield f"{'/'.join(parts[start:])}{colons}{rest}"
    yield f"{container.rpartition('.')[2]}{colons}{rest}"


def may_contain(path: str, case: CaseResult) -> bool:
    """Return whether a file may contain a test, judged by the file's path and the test's id."""
    if case.file:
        return path == case.file or path.endswith(f"/{case.file}")
    if not is_test_path(path) or case.id == WHOLE_RUN:
        return is_test_path(path)
    container = case.id.partition("::")[0].partition("$")[0]
    folder, _, name = path.rpartition("/")
    if name.endswith("_test.go"):  # the container is a package: the module's path and a folder in it
        return not folder or container == folder or container.endswith(f"/{folder}")
    if "." not in container and "\\" not in container:  # a class without a package, or a binary: any file
        return True
    stem = f"/{path.rpartition('.')[0]}".replace("/", ".")
    return stem.endswith("." + re.sub(r"[/\\]", ".", container))


_MOST_PARTS = 20
"""Most parts of an id that are considered, from its start. Without the limit a crafted report costs quadratic time."""


def _enclosing(name: str) -> Iterator[str]:
    """Yield the ids under which a runner may report that a test's function, class, file or package did not load."""
    parts = name.split("::", _MOST_PARTS)
    for end in range(1, len(parts)):
        yield "::".join(parts[:end])
    yield name.partition(" with data set ")[0]
    yield WHOLE_RUN


def without_parameters(case: CaseResult) -> str:
    """Return the test's id without its parameters: `test_a` for `test_a[1]`, `testA` for `testA with data set #1`."""
    start = len(case.file) if case.file and case.id.startswith(case.file) else case.id.rfind("::") + 1
    if case.id.endswith("]") and (at := case.id.find("[", start)) > 0:
        return case.id[:at]
    return case.id.partition(" with data set ")[0]


def _renamed_parameters(old: IndexedRun, new: IndexedRun) -> dict[str, str]:
    """Match tests of one function whose parameters have new names, in their order."""
    added: defaultdict[str, deque[str]] = defaultdict(deque)
    for name, case in new.cases.items():
        if name not in old.cases and without_parameters(case) != name:
            added[without_parameters(case)].append(name)
    return {
        name: added[function].popleft()
        for name, case in old.cases.items()
        if name not in new.cases and added.get(function := without_parameters(case))
    }


def _moved(old: IndexedRun, new: IndexedRun) -> dict[str, str]:
    """Match tests with the same class and name in exactly one other file."""

    def only_in(run: IndexedRun, other: IndexedRun) -> dict[str, list[str]]:
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in run.cases:
            if name not in other.cases and "::" in name:
                found[name.partition("::")[2]].append(name)
        return found

    added = only_in(new, old)
    return {
        names[0]: added[tail][0]
        for tail, names in only_in(old, new).items()
        if len(names) == 1 and len(added.get(tail, ())) == 1
    }
