"""A change to a repository, as the checks before a push read it: files, size, and which files are tests."""

from __future__ import annotations

import re
from dataclasses import dataclass

LINK_MODE = "120000"
SUBMODULE_MODE = "160000"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file in one commit.

    Attributes:
        mode: git's file mode: `100644`, `100755`, `120000` for a symbolic link, `160000` for a submodule.
        content: the file's bytes, the link's target, or the submodule's commit; None if the file is too large
            to read.
        size: in bytes.
    """

    mode: str
    content: bytes | None
    size: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """A path that differs between two commits. A rename is two changes.

    Attributes:
        path: relative, with `/`; bytes that are not UTF-8 are surrogates.
        old: the file before the change; None if it is new.
        new: the file after the change; None if it was deleted.
    """

    path: str
    old: FileVersion | None
    new: FileVersion | None


_FILE = re.compile(r"^diff --git a/(.+) b/\1$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DiffStat:
    """The number of files and lines in a change."""

    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


def diff_stat(diff: str) -> DiffStat:
    """Count the files and lines of a unified diff from git. Renames and binary files add no lines."""
    added = removed = 0
    in_hunk = False
    for line in diff.split("\n"):
        if line.startswith("diff --git "):
            in_hunk = False
        elif line.startswith("@@"):
            in_hunk = True
        elif in_hunk:
            added += line.startswith("+")
            removed += line.startswith("-")
    return DiffStat(tuple(dict.fromkeys(_FILE.findall(diff))), added, removed)


_FOLDERS = frozenset({"test", "tests", "testing", "__tests__", "spec", "specs", "e2e", "testdata"})
_NAME = re.compile(
    r"(?:test_.*|.*[._-](?:test|tests|spec|cy)|tests?|conftest|.*(?:Test|Tests|Spec|IT|TestCase)|Test.*)"
    r"\.(?:py|[cm]?[jt]sx?|go|rs|java|kt|kts|rb|cs|php|sh|bats)",
    re.DOTALL,
)


def is_test_path(path: str) -> bool:
    """Return whether a file belongs to the tests, judged by its name and folders.

    `path` is relative, with `/`.
    """
    return is_test_program(path) or any(folder.lower() in _FOLDERS for folder in path.split("/")[:-1])


def is_test_program(path: str) -> bool:
    """Return whether a file contains test code, judged by its own name. Data files of tests do not count."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None
