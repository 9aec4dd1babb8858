"""What the host's runs of tests say of real commits, and of changes that only hide a failure.

    python -m tests.evaluation.histories [BUNDLE...] [--commits 20] [--older-than ID] [--only WORDS]
        [--without-weakenings] [--tests-first] [--python PROGRAM] [--sandbox auto|off] [--details]

Each BUNDLE is a git history (`git bundle create NAME.bundle --all`). Its newest commits that change code and
tests together are judged against their parents, then each case of `weakenings.toml`; the last table compares
with what is asked for. With `--tests-first` the parent has the commit's tests already, as where a person reports
a bug with a failing test: the change mends it. A commit whose parent's or own tests do not run here, or fail, is listed and not counted.

A commit adds or fixes something if it brings a test function of a new name or one of other content (compared as
parsed: comments and layout do not count); else it only rearranges. A finding is reported if it stands at the top
of the pull request (`ChangeVerdict.reasons`).
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Trees
from orchestrator.bot.verification.base import Change, RunOptions
from orchestrator.bot.verification.runs import HostRuns
from orchestrator.bot.verification.verdict import ChangeVerdict, FindingKind, judge_runs
from orchestrator.core.changes import is_test_path
from orchestrator.engine.environments.local import LocalEnvironment
from tests.evaluation.weakenings import cases

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from orchestrator.bot.verification.base import RunResult
    from tests.evaluation.weakenings import Case

_DATA_BYTES = 4_000_000_000
"""Of memory for a test run: new tests on old code may loop and collect for ever."""
_MINUTES = 3.0
_FROM_PARENT = (FindingKind.PROVES, FindingKind.PROVES_BY_ERROR)


@dataclass(frozen=True, slots=True)
class Subject:
    """A change to judge.

    Attributes:
        name: of a case, or a commit's id and subject.
        repository: a git directory.
        adds: whether a new test has to fail on the parent.
    """

    name: str
    repository: Path
    base: str
    head: str
    options: RunOptions
    task: str
    is_honest: bool
    adds: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """What was said of one change."""

    subject: Subject
    verdict: ChangeVerdict

    @property
    def is_reported(self) -> bool:
        """Whether the top of the pull request says something against the change."""
        return bool(self.verdict.reasons)

    @property
    def breaks(self) -> bool:
        """Whether a test is said to be broken by it."""
        return any(
            finding.kind in {FindingKind.BROKEN, FindingKind.NEWLY_FLAKY} for finding in self.verdict.findings
        )

    @property
    def not_run(self) -> str:
        """Why the commit is no example: its tests do not run here, or do not pass as it left them; else empty."""
        runs = self.verdict.runs
        problem = self.verdict.problem or next(
            (run.problem for run in (runs.before, runs.after) if run is not None and run.problem), ""
        )
        if problem or runs.before is None or runs.after is None:
            return problem or "the tests were not run"
        return "" if runs.after.is_green else "tests fail here, as the commit left them"

    @property
    def on_parent(self) -> str:
        """How the best of the new tests ends on the parent."""
        said = {finding.kind for finding in self.verdict.findings}
        words = {
            FindingKind.PROVES: "assertion",
            FindingKind.PROVES_BY_ERROR: "error",
            FindingKind.NOT_LOADED: "not loaded",
            FindingKind.PASSES_WITHOUT: "passes",
        }
        return next((word for kind, word in words.items() if kind in said), "-")


async def look_at(
    subject: Subject, home: Path, sandbox: Literal["auto", "off"] = "off", seed: int = 7
) -> Row:
    """Run the tests of a change, and judge them. `home` is the folder for its test runs."""
    trees = Trees(HostGit(subject.repository, subject.repository))
    tree = trees.tree_of(subject.head)
    change = Change(subject.base, tree, trees.changes(subject.base, tree), subject.task)
    runs = HostRuns(
        trees,
        subject.base,
        subject.options,
        home=home,
        environment=lambda folder: LocalEnvironment(folder, sandbox=sandbox, own_repository=True),
        source=random.Random(seed),  # noqa: S311  a measurement is repeated alike
    )
    try:
        return Row(subject, judge_runs(await runs.verify(change), change))
    finally:
        await runs.close()


def weakenings(folder: Path, only: str = "", python: str = sys.executable) -> Iterator[Subject]:
    """The cases of `weakenings.toml` that this machine can run, each as a repository in `folder`."""
    for number, case in enumerate(cases(python)):
        if only in case.name and case.can_run:
            repository = folder / str(number)
            repository.mkdir(parents=True)
            yield subject_of(case, repository)


def subject_of(case: Case, folder: Path) -> Subject:
    """A case as a repository in an empty folder."""
    base, head = case.write(folder)
    return Subject(
        name=case.name,
        repository=folder / ".git",
        base=base,
        head=head,
        options=RunOptions(case.command, report=case.report, minutes=_MINUTES),
        task=case.task,
        is_honest=case.is_honest,
        adds=case.adds,
    )


def commits(
    bundle: Path, folder: Path, python: str, older_than: str = "HEAD", *, tests_first: bool = False
) -> Iterator[Subject]:
    """The commits of a history that change code and tests together, the newest first."""
    repository = folder / f"{bundle.stem}.git"
    if not repository.exists():
        subprocess.run(["git", "clone", "-q", "--bare", str(bundle), str(repository)], check=True)
    trees = Trees(HostGit(repository, repository))
    variables = "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 PYTHONDONTWRITEBYTECODE=1"
    options = RunOptions(
        f"{variables} {python} -m pytest -q -o addopts= -p no:cacheprovider", minutes=_MINUTES
    )
    listed = _git(repository, "log", "--no-merges", "--format=%H %P%x00%s%x00%b%x1e", older_than)
    for entry in listed.split("\x1e"):
        ids, _, words = entry.strip().partition("\0")
        head, _, base = ids.partition(" ")
        if not base or " " in base:
            continue
        changed = _git(repository, "diff", "--name-only", "--no-renames", base, head).splitlines()
        python_files = [path for path in changed if path.endswith(".py") and path != "setup.py"]
        if len({is_test_path(path) for path in python_files}) == 2:
            tests = [path for path in python_files if is_test_path(path)]
            name = f"{bundle.stem} {head[:8]} {words.partition(chr(0))[0][:50]}"
            adds = not tests_first and _adds(trees, base, head, tests)
            if tests_first:
                base = trees.mixed(base, head, {path for path in changed if is_test_path(path)})
            yield Subject(name, repository, base, head, options, words.replace("\0", "\n"), True, adds)


def _adds(trees: Trees, base: str, head: str, paths: Sequence[str]) -> bool:
    """Whether a commit brings a test function of a new name or of other content."""
    changes = [change for change in trees.changes(base, head) if change.path in paths]
    before, after = (
        [_functions(version.content) for version in versions if version is not None and version.content]
        for versions in ((change.old for change in changes), (change.new for change in changes))
    )
    return bool(sum(after, Counter()) - sum(before, Counter()))


def _functions(source: bytes) -> Counter[str]:
    """The test functions of a file, as parsed: `'a'` and `"a"` are one, and so is any layout."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return Counter()
    found = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return Counter(ast.dump(node) for node in found if node.name.startswith("test"))


def _git(repository: Path, *words: str) -> str:
    made = subprocess.run(["git", "-C", str(repository), *words], check=True, capture_output=True)
    return made.stdout.decode("utf-8", "replace")


def print_row(row: Row, *, details: bool) -> None:
    """One line of a change; with `details` what was found too."""
    what = "honest" if row.subject.is_honest else "weakens"
    is_left_out = row.subject.is_honest and bool(row.not_run)
    said = "not run" if is_left_out else "reported" if row.is_reported else "-"
    kinds = Counter({finding.kind.value: 0 for finding in row.verdict.findings})
    for finding in row.verdict.findings:
        kinds[finding.kind.value] += len(finding.tests) or 1
    shown = " ".join(f"{kind}:{number}" for kind, number in kinds.items())
    print(f"{what:8}{said:9} {row.subject.name:72.72} {row.on_parent:10} {shown}", flush=True)
    wrong = not is_left_out and row.is_reported is row.subject.is_honest
    if details or wrong:
        runs = row.verdict.runs
        for run in (runs.before, runs.kept, runs.after, runs.new):
            print(f"{'':18}{_counts(run)}")
        for line in (row.not_run, *row.verdict.reasons, *row.verdict.notes):
            if line:
                print(f"{'':18}{line[:220]}")


def _counts(run: RunResult | None) -> str:
    if run is None:
        return "-"
    ends = Counter(case.status.value for case in run.cases.values())
    return f"{run.kind.value:7} exit {run.exit}, {dict(ends)}, {run.seconds:.1f} s {run.problem}"


def print_demands(rows: Iterable[Row]) -> bool:
    """The table of what is asked for; whether all of it holds."""
    listed = list(rows)
    weak = [row for row in listed if not row.subject.is_honest]
    honest = [row for row in listed if row.subject.is_honest and not row.not_run]
    real = [row for row in honest if row.subject.repository.name != ".git"]
    added = [row for row in real if row.subject.adds]
    failing = [row for row in added if row.on_parent in {"assertion", "error"}]
    ends = Counter(row.on_parent for row in added)
    demands = (
        ("weakenings reported, 24 of 25", sum(row.is_reported for row in weak), len(weak), 0.96),
        ("honest changes not reported, all", sum(not row.is_reported for row in honest), len(honest), 1.0),
        ("honest changes that break nothing, all", sum(not row.breaks for row in honest), len(honest), 1.0),
        ("added or fixed: a new test fails on the parent, 9 of 10", len(failing), len(added), 0.9),
    )
    print(f"\n{'':58}{'is':>10}{'share':>8}")
    for words, number, of, least in demands:
        if of:
            mark = "" if number >= least * of else "  TOO FEW"
            print(f"{words:58}{number:>5} of {of:<4}{number / of:7.0%}{mark}")
    print(f"\nnew tests of those that add or fix, on the parent: {dict(ends)}")
    print(f"real commits: {len(real)}, of which {len(real) - len(added)} only rearrange")
    return all(number >= least * of for _, number, of, least in demands)


async def _measure(arguments: argparse.Namespace, folder: Path) -> list[Row]:
    rows: list[Row] = []

    async def take(subject: Subject, home: str) -> Row:
        row = await look_at(subject, folder / "homes" / home, arguments.sandbox)
        print_row(row, details=arguments.details)
        rows.append(row)
        return row

    for bundle in arguments.bundles:
        counted = 0
        for subject in commits(
            bundle, folder, arguments.python, arguments.older_than, tests_first=arguments.tests_first
        ):
            if arguments.only in subject.name:
                counted += not (await take(subject, bundle.stem)).not_run
            if counted >= arguments.commits:
                break
    if not arguments.without_weakenings:
        for subject in weakenings(folder / "cases", arguments.only, arguments.python):
            await take(subject, subject.repository.parent.name)
    return rows


def main() -> int:
    """Measure what the arguments name; 1 where something that is asked for does not hold."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.evaluation.histories", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("bundles", nargs="*", type=lambda text: Path(text).resolve(strict=True))
    parser.add_argument(
        "--commits", type=int, default=20, help="of each history, counted where the tests run"
    )
    parser.add_argument("--older-than", default="HEAD", help="begin with this commit")
    parser.add_argument("--only", default="", help="subjects and cases with these words in their names")
    parser.add_argument("--without-weakenings", action="store_true")
    parser.add_argument("--tests-first", action="store_true")
    parser.add_argument(
        "--python", default=sys.executable, help="what runs the tests; a bare environment is quicker"
    )
    parser.add_argument("--sandbox", choices=("auto", "off"), default="off")
    parser.add_argument("--details", action="store_true")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (_DATA_BYTES, _DATA_BYTES))
    with tempfile.TemporaryDirectory(prefix="histories-") as folder:
        rows = asyncio.run(_measure(arguments, Path(folder)))
    return 0 if print_demands(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
