"""How often the checks of a change speak up about honest commits. Run it by hand.

`python -m tests.benchmarks.false_positives REPOSITORY...` looks at the last 500 commits of each git
repository (of its main line; where that has fewer, of all branches merged into it) against their first parents and prints how many have findings, and of which kinds. With
`--list` it prints each finding. `--fixtures PACKAGE.deb` looks at the repositories too that Debian's
golang-github-go-git-go-git-fixtures-dev brings (`apt-get download` it).
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bot.policy.change_checks import places_of_secrets
from orchestrator.bot.policy.hidden_characters import show_hidden
from orchestrator.bot.policy.incoming import clean_words
from orchestrator.bot.policy.test_listing import list_tests
from orchestrator.bot.policy.wording import Wording
from orchestrator.core.changes import SUBMODULE_MODE, FileChange, FileVersion
from orchestrator.engine.policy.secrets import Redactor
from tests.benchmarks.fixture_repositories import unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_COMMITS = 500
_MAX_BYTES = 1_000_000
_NONE = "0" * 40


@dataclass(frozen=True, slots=True)
class Commit:
    """One honest commit: what a check may look at."""

    id: str
    message: str
    changes: tuple[FileChange, ...]
    repository: Path

    def diff(self) -> str:
        command = ["git", "-C", str(self.repository), "show", "-m", "--first-parent", "--format=", self.id]
        return subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", "replace")


def tests(commit: Commit) -> list[str]:
    return list(list_tests(commit.changes).notes)


def words(commit: Commit) -> list[str]:
    return [f"hidden: {one}" for one in clean_words(commit.message).removed]


def files(commit: Commit) -> list[str]:
    texts = [(one.path, one.new.content) for one in commit.changes if one.new is not None and one.new.content]
    shown = [(path, show_hidden(content.decode("utf-8"))) for path, content in texts if _is_text(content)]
    return [f"{path}:1: hidden characters" for path, cleaned in shown if cleaned.removed]


def _is_text(content: bytes) -> bool:
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def secrets(commit: Commit) -> list[str]:
    return [
        f"{place}: looks like a secret" for place in places_of_secrets(commit.diff(), REDACTOR.holds_secret)
    ]


def wording(commit: Commit) -> list[str]:
    """Changes of words; of line ends and double blanks nobody loses anything."""
    subject, _, body = commit.message.strip().partition("\n")
    found = [] if WORDING.title(subject).split() == subject.split() else ["subject changed"]
    changed = WORDING.message("", (body,)).split() != body.split()
    return [*found, "body changed"] if changed else found


REDACTOR = Redactor()
WORDING = Wording()
CHECKS: dict[str, Callable[[Commit], list[str]]] = {
    "test listing": tests,
    "intake: words": words,
    "intake: files": files,
    "outbound: secrets": secrets,
    "outbound: wording": wording,
}


class _Objects:
    """Reads blobs through one `git cat-file --batch`."""

    def __init__(self, repository: Path) -> None:
        command = ["git", "-C", str(repository), "cat-file", "--batch"]
        self._git = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def version(self, mode: str, name: str) -> FileVersion | None:
        if name == _NONE:
            return None
        if mode == SUBMODULE_MODE:
            return FileVersion(mode, name.encode(), len(name))
        assert self._git.stdin is not None
        assert self._git.stdout is not None
        self._git.stdin.write(f"{name}\n".encode())
        self._git.stdin.flush()
        header = self._git.stdout.readline().split()
        if header[-1] == b"missing":
            return FileVersion(mode, b"", 0)
        size = int(header[2])
        content = self._git.stdout.read(size)
        self._git.stdout.read(1)
        return FileVersion(mode, content if size <= _MAX_BYTES else None, size)

    def close(self) -> None:
        assert self._git.stdin is not None
        assert self._git.stdout is not None
        self._git.stdin.close()
        self._git.wait()
        self._git.stdout.close()


def commits(repository: Path, number: int) -> Iterator[Commit]:
    """The last commits, newest first; a merge is its change against its first parent."""
    count = subprocess.run(
        ["git", "-C", str(repository), "rev-list", "--count", "--first-parent", "HEAD"],
        check=True,
        capture_output=True,
    )
    line = ["--first-parent"] if int(count.stdout) >= number else []
    command = [
        "git", "-C", str(repository), "log", f"-n{number}", *line, "--diff-merges=first-parent", "--raw", "-z",
        "--no-abbrev", "--no-renames", "--format=%x01%H%x00%B%x02",
    ]  # fmt: skip
    log = subprocess.run(command, check=True, capture_output=True).stdout.decode("utf-8", "surrogateescape")
    objects = _Objects(repository)
    try:
        for entry in log.split("\x01")[1:]:
            head, _, raw = entry.partition("\x02")
            name, _, message = head.partition("\x00")
            parts = raw.strip("\x00\n").split("\x00")
            changes = []
            for status, path in zip(parts[::2], parts[1::2], strict=False):
                old_mode, new_mode, old, new, _ = status.lstrip("\n:").split(" ")
                changes.append(
                    FileChange(path, objects.version(old_mode, old), objects.version(new_mode, new))
                )
            yield Commit(name, message, tuple(changes), repository)
    finally:
        objects.close()


@dataclass(slots=True)
class Rate:
    looked_at: int
    flagged: int
    kinds: Counter[str]
    slowest_s: float


def measure(repository: Path, check: Callable[[Commit], list[str]], number: int, *, listed: bool) -> Rate:
    rate = Rate(0, 0, Counter(), 0.0)
    for commit in commits(repository, number):
        rate.looked_at += 1
        start = time.perf_counter()
        found = check(commit)
        rate.slowest_s = max(rate.slowest_s, time.perf_counter() - start)
        rate.flagged += bool(found)
        rate.kinds.update({_kind(one) for one in found})
        if listed and found:
            print(f"\n{commit.id[:10]} {commit.message.partition(chr(10))[0]}")
            print("".join(f"    {one}\n" for one in found), end="")
    return rate


def _kind(finding: str) -> str:
    """A finding without its place, its names and numbers."""
    what = re.sub(r"^[^\n]*?:\d+: ", "", finding)
    what = re.sub(r"`[^`]*`|\d+", "_", what)
    return what.rpartition(": ")[2][:40]


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.false_positives")
    parser.add_argument("repositories", nargs="*", type=Path)
    parser.add_argument("--commits", type=int, default=_COMMITS)
    parser.add_argument("--list", action="store_true", help="print each finding")
    parser.add_argument(
        "--fixtures", type=Path, metavar="PACKAGE.deb", help="look at the histories that it brings, too"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        brought = unpack(options.fixtures, Path(folder)) if options.fixtures else []
        report([*options.repositories, *brought], options.commits, listed=options.list)


def report(repositories: Sequence[Path], number: int, *, listed: bool) -> None:
    print(f"{'repository':<20}{'check':<18}{'commits':>8}{'flagged':>9}{'rate':>8}{'slowest':>10}  kinds")
    for repository in repositories:
        for name, check in CHECKS.items():
            rate = measure(repository, check, number, listed=listed)
            share = rate.flagged / max(rate.looked_at, 1)
            kinds = ", ".join(f"{kind} {count}" for kind, count in rate.kinds.most_common(6))
            print(
                f"{repository.name:<20}{name:<18}{rate.looked_at:>8}{rate.flagged:>9}{share:>8.1%}"
                f"{rate.slowest_s * 1000:>7.0f} ms  {kinds}"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
