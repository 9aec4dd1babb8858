"""Prints the tests of what was changed, for a developer's own loop: `python -m pytest -n 2 $(python -m tests.changed)`.

They are the changed tests, and of each changed module the tests in the nearest folder with its package's name; without
one, the unit tests that import it. A commit may be named, to which the tree is compared; else what is not committed
counts, and what the branch has beyond `origin/main`. The default tier stays what decides.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.mutations.play import own_tests

ROOT = Path(__file__).parents[1]


def changed_files(root: Path, base: str) -> list[str]:
    """Return the changed and new files, by their names from the root."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        return done.stdout.split("\0") if done.returncode == 0 else []

    start = (git("merge-base", base, "HEAD") or ["HEAD"])[0].strip()
    found = {*git("diff", "--name-only", "-z", start), *git("ls-files", "-zo", "--exclude-standard")}
    return sorted(name for name in found if name)


def tests_of(root: Path, files: list[str]) -> list[str]:
    """Return the files of tests that belong to the changed files."""
    found: set[Path] = set()
    for name in files:
        path = root / name
        if path.suffix != ".py" or not path.is_file():
            continue
        if path.name.startswith("test_"):
            found.add(path)
        elif name.startswith("orchestrator/"):
            module = ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__")
            found.update(own_tests(root, module))
    return sorted(str(path.relative_to(root)) for path in found)


if __name__ == "__main__":
    print("\n".join(tests_of(ROOT, changed_files(ROOT, (sys.argv[1:] or ["origin/main"])[0]))))  # noqa: T201
