"""A change to a repository as the checks before a push see it: its files, its size, and which of them are tests."""

from __future__ import annotations

import re
from dataclasses import dataclass

LINK_MODE = "120000"
SUBMODULE_MODE = "160000"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A file in one commit.

    Attributes:
        mode: git's: `100644`, `100755`, `120000` for a link, `160000` for a submodule.
        content: the bytes, a link's target, a submodule's commit; None where it is over the limit of what is read.
        size: in bytes.
    """

    mode: str
    content: bytes | None
    size: int


@dataclass(frozen=True, slots=True)
class FileChange:
    """A path that differs between two commits. A renamed file is two changes.

    Attributes:
        path: relative, with `/`; bytes that are not UTF-8 as surrogates.
        old: the file before, None where it is new.
        new: the file after, None where it is removed.
    """

    path: str
    old: FileVersion | None
    new: FileVersion | None


_FILE = re.compile(r"^diff --git a/(.+) b/\1$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class DiffStat:
    """The files of a change, and its lines."""

    files: tuple[str, ...] = ()
    added: int = 0
    removed: int = 0


def diff_stat(diff: str) -> DiffStat:
    """Read a diff as git prints it. A renamed file and a binary one count no lines."""
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
    """Whether a file belongs to the tests, by its name and its folders. `path` is relative, with `/`."""
    return is_test_program(path) or any(folder.lower() in _FOLDERS for folder in path.split("/")[:-1])


def is_test_program(path: str) -> bool:
    """Whether a file is a program of tests by its own name, and no data that stands beside them."""
    return _NAME.fullmatch(path.rpartition("/")[2]) is not None
