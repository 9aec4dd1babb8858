"""Where a change weakens tests: one look at all its files, from their text alone. Nothing is run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.core.changes import LINK_MODE, SUBMODULE_MODE
from orchestrator.core.test_paths import is_test_path
from orchestrator.guard.integrity_builds import is_build_file, lost_runs, weak_build_lines, weak_source_lines
from orchestrator.guard.integrity_compared import compared
from orchestrator.guard.integrity_patterns import LANGUAGES, pattern_checks
from orchestrator.guard.integrity_python import UNREADABLE, python_pair
from orchestrator.guard.integrity_settings import is_settings, weaker_settings
from orchestrator.guard.integrity_tests import MAX_FINDINGS, FileChecks, Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator.core.changes import FileChange, FileVersion

__all__ = ["Finding", "weakened_tests"]

_PYTHON_COLLECTED = re.compile(r"(?:test_.*|.*_test|tests?)\.py", re.DOTALL)
# Reading a megabyte of Python takes up to twenty seconds.
_MOST_PYTHON_BYTES = 300_000
_MOST_PYTHON_TOTAL_BYTES = 2_000_000
_TOO_LARGE = "too large to check"


def weakened_tests(changes: Sequence[FileChange]) -> list[Finding]:
    """Where a change removes, skips or loosens tests, or lowers what coverage and linters demand.

    Python is read by its syntax tree, other languages and builds by pattern, settings by their
    formats' parsers. A file that cannot be judged, or is too large for that, is a finding.

    Args:
        changes: every file that a pull request changes.

    Returns:
        What was found, sorted, at most 50; the last one says how many more there are.
    """
    tests: list[FileChecks] = []
    too_large = set(_too_large(changes))
    found = {Finding(path, 1, _TOO_LARGE) for path in too_large}
    for change in changes:
        try:
            found.update(_of_file(change, tests, skips_syntax=change.path in too_large))
        except UNREADABLE as error:
            found.add(Finding(change.path, 1, f"cannot be read: {type(error).__name__}"))
    try:
        found.update(compared(tests))
    except RecursionError:
        found.add(Finding(tests[0].path, 1, "tests cannot be compared: nested too deeply"))
    return _shortened(found)


def _too_large(changes: Sequence[FileChange]) -> Iterator[str]:
    """Tests in Python that would take too long, one alone or all together."""
    left = _MOST_PYTHON_TOTAL_BYTES
    for change in changes:
        if not (change.path.lower().endswith(".py") and is_test_path(change.path)):
            continue
        before, after = _text(change.old) or b"", _text(change.new) or b""
        if before == after:
            continue
        size = len(before) + len(after)
        left -= size
        if size > 2 * _MOST_PYTHON_BYTES or left < 0:
            yield change.path


def _shortened(found: set[Finding]) -> list[Finding]:
    """One finding for each place and kind: a marker of a class would be told for each of its tests."""
    kept: dict[tuple[str, int, str], Finding] = {}
    for one in sorted(found):
        kept.setdefault((one.path, one.line, one.what.rpartition(": ")[2]), one)
    listed = list(kept.values())
    if len(listed) > MAX_FINDINGS:
        first = listed[MAX_FINDINGS - 1]
        more = len(listed) - MAX_FINDINGS + 1
        listed = [
            *listed[: MAX_FINDINGS - 1],
            Finding(first.path, first.line, f"and {more} more findings from here on"),
        ]
    return listed


def _of_file(change: FileChange, tests: list[FileChecks], *, skips_syntax: bool) -> Iterator[Finding]:
    path, old, new = change.path, change.old, change.new
    judged = is_test_path(path) or is_settings(path) or is_build_file(path)
    if old is not None and new is not None and old.mode != new.mode and _special(new) and judged:
        yield Finding(path, 1, "replaced by a link")
    before, after = _text(old), _text(new)
    if before is None or after is None:
        if judged:
            yield Finding(path, 1, _TOO_LARGE)
        return
    if before != after:
        suffix = path.rpartition(".")[2].lower()
        # Rust's tests stand beside the code.
        if skips_syntax:
            pass
        elif suffix == "rs" or (is_test_path(path) and (suffix == "py" or suffix in LANGUAGES)):
            yield from _test_file(change, before, after, tests)
        yield from _lines(path, suffix, before, after)


def _lines(path: str, suffix: str, before: bytes, after: bytes) -> Iterator[Finding]:
    """What is no test, and says what tests and checks demand."""
    if is_settings(path):
        yield from weaker_settings(path, before, after)
    build = is_build_file(path)
    if build and (lost := lost_runs(before, after)) is not None:
        yield Finding(path, 1, f"a line that ran tests or checks removed: `{lost[:60]}`")
    if build or suffix in {"sh", "bash"}:
        for line, what in weak_build_lines(before, after, every_command=build):
            yield Finding(path, line, what)
    for line, what in weak_source_lines(before, after, suffix, test=is_test_path(path)):
        yield Finding(path, line, what)


def _special(version: FileVersion) -> bool:
    return version.mode in {LINK_MODE, SUBMODULE_MODE}


def _text(version: FileVersion | None) -> bytes | None:
    """What is compared: nothing for a file that is not there, a link or a submodule. None: too large."""
    if version is None or _special(version):
        return b""
    return version.content


def _test_file(change: FileChange, before: bytes, after: bytes, tests: list[FileChecks]) -> Iterator[Finding]:
    path, suffix = change.path, change.path.rpartition(".")[2].lower()
    removed = change.new is None
    if suffix != "py":
        tests.append(FileChecks(path, pattern_checks(before, suffix), pattern_checks(after, suffix), removed))
        return
    collected = _PYTHON_COLLECTED.fullmatch(path.rpartition("/")[2]) is not None
    try:
        old, new = python_pair(before, after, collected_file=collected)
    except UNREADABLE as error:
        if _readable(before):
            line = getattr(error, "lineno", None) or 1
            yield Finding(path, line, f"cannot be read any more: {type(error).__name__}")
            return
        # Python of another version, or no Python at all: both sides are read by pattern.
        tests.append(FileChecks(path, pattern_checks(before, "py"), pattern_checks(after, "py"), removed))
        return
    tests.append(FileChecks(path, old, new, removed))


def _readable(source: bytes) -> bool:
    try:
        python_pair(b"", source, collected_file=True)
    except UNREADABLE:
        return False
    return True
