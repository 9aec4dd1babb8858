"""A whole cycle on 300 files against the git commands that it cannot do without. The model is a replay.

Also the memory of such a run, as a process of its own. Run: python -m tests.benchmarks.cycle
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.cli import main
from tests.benchmarks.measure import in_turns, table

if TYPE_CHECKING:
    from collections.abc import Callable

FILES, RUNS = 300, 7
TEXT = "def value_{0}() -> int:\n    return {0}\n\n\n" * 12
GIT = ["git", "-c", "user.name=A", "-c", "user.email=a@example.com"]


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        [*GIT, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def make_source(folder: Path) -> Path:
    """A repository with 300 files and a backlog of one item."""
    source = folder / "source"
    source.mkdir()
    git(source, "init", "--initial-branch=main")
    for number in range(FILES):
        path = source / f"package_{number // 20}" / f"module_{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TEXT.format(number), encoding="utf-8")
    (source / "calc.py").write_text("def add(a, b):\n    return a - b\n", encoding="utf-8")
    (source / "BACKLOG.md").write_text("- [ ] Fix add() in calc.py\n", encoding="utf-8")
    git(source, "add", "--all")
    git(source, "commit", "--message", "First")
    git(folder, "clone", "--bare", "source", "source.git")
    return folder / "source.git"


def git_alone(folder: Path, source: Path) -> Callable[[], object]:
    """What a person would type for the same change: clone, edit, commit, push."""

    def job() -> None:
        clone = folder / "clone"
        shutil.rmtree(clone, ignore_errors=True)
        git(folder, "clone", "--depth=1", "--single-branch", source.as_uri(), "clone")
        file = clone / "calc.py"
        file.write_text(file.read_text(encoding="utf-8").replace("a - b", "a + b"), encoding="utf-8")
        git(clone, "checkout", "-b", "fix")
        git(clone, "add", "--", "calc.py")
        git(clone, "commit", "--message", "Fix")
        git(clone, "push", "--force", "origin", "fix")
        git(clone, "ls-remote", "origin", "refs/heads/fix")

    return job


def record(home: Path, source: Path) -> str:
    """One run against a scripted server, whose replies are then replayed. Returns the run's name."""
    from tests.doubles.model_server import ModelServer
    from tests.scenarios.stage import FIX_IT

    with ModelServer([FIX_IT]) as server:
        model = ["--model", "openai-chat:scripted", "--api-url", server.url]
        quiet_main(["run", "--repo", str(source), "--dry-run", *model])
    return next(path.name for path in (home / "runs").iterdir())


def quiet_main(argv: list[str]) -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        out, err = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = nowhere
        try:
            code = main(argv)
        finally:
            sys.stdout, sys.stderr = out, err
    if code:
        raise SystemExit(f"the run failed with status {code}")


def pullwright(home: Path, source: Path, run: str) -> Callable[[], object]:
    def job() -> None:
        shutil.rmtree(home / "forge", ignore_errors=True)
        for branch in (source / "refs" / "heads" / "pullwright").glob("*"):
            branch.unlink()
        shutil.rmtree(source / "refs" / "pullwright", ignore_errors=True)  # claims remember what was done
        quiet_main(["run", "--repo", str(source), "--model", f"replay:{run}", "--json", "--plain"])

    return job


def peak_megabytes(*words: str) -> float:
    """The largest resident size of the program run with these words; of an idle interpreter without any.

    Read from VmHWM, because `ru_maxrss` of a child also counts the parent that it was forked from.
    """
    code = (
        "import re, runpy, sys\n"
        "try: runpy.run_module('orchestrator', run_name='__main__') if sys.argv[1:] else None\n"
        "except SystemExit: pass\n"
        "print(re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return float(done.stderr.split()[-1]) / 1024


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        home = folder / "home"
        os.environ["PULLWRIGHT_HOME"] = str(home)
        source = make_source(folder)
        run = record(home, source)
        jobs = {"git alone": git_alone(folder, source), "pullwright, replayed": pullwright(home, source, run)}
        table(f"A cycle on {FILES} files", in_turns(jobs, RUNS), base="git alone")
        jobs["pullwright, replayed"]()
        if sys.platform == "linux":
            words = ["run", "--repo", str(source), "--model", f"replay:{run}", "--dry-run", "--plain"]
            idle, busy = peak_megabytes(), peak_megabytes(*words)
            print(f"\nMemory: python -c pass {idle:.0f} MB, a run {busy:.0f} MB, ratio {busy / idle:.1f}")
