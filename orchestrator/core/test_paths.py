"""Which files of a repository belong to its tests."""

from __future__ import annotations

import re

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
