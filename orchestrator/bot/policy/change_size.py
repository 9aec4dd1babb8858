"""How much one change may be, so that a person can still read it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.changes import FileChange, FileVersion

# Git calls a file binary if there is a NUL among so many bytes at its beginning.
_LOOKED_AT_BYTES = 8000


@dataclass(frozen=True, slots=True)
class ChangeLimits:
    """Says why a whole change is too large, or None.

    Lines are those that one version has more often than the other, wherever they are. That takes linear
    time and is never more than what `git diff` counts: lines that only moved inside their file count
    nothing. Bytes are those of these lines; of binary files, and of files that were too large to be read,
    they are all bytes of both versions.

    Attributes:
        files: changed paths at most; a renamed file is two.
        lines: added and removed lines at most.
        bytes: added and removed bytes at most.
    """

    files: int
    lines: int
    bytes: int

    def __call__(self, changes: Sequence[FileChange]) -> str | None:
        """One line: what is too much, how much it is, and the flags that would allow it."""
        measured = [_measure(change) for change in changes]
        found = (
            (len(changes), self.files, "changed files", "--max-files"),
            (sum(lines for lines, _ in measured), self.lines, "added and removed lines", "--max-lines"),
            (sum(size for _, size in measured), self.bytes, "added and removed bytes", "--max-bytes"),
        )
        too_much = [
            f"{count:,} {what}, at most {limit:,} are allowed ({flag})"
            for count, limit, what, flag in found
            if count > limit
        ]
        return f"the change is too large: {'; '.join(too_much)}" if too_much else None


def _measure(change: FileChange) -> tuple[int, int]:
    """Lines and bytes that differ."""
    versions = [version for version in (change.old, change.new) if version is not None]
    if len(versions) > 1 and _same(versions[0], versions[1]):
        return 0, 0
    if any(_is_unreadable(version) for version in versions):
        return 0, sum(version.size for version in versions)
    old, new = _lines(change.old), _lines(change.new)
    differing = (old - new) + (new - old)
    return differing.total(), sum((len(line) + 1) * count for line, count in differing.items())


def _same(old: FileVersion, new: FileVersion) -> bool:
    return old.content is not None and old.content == new.content


def _is_unreadable(version: FileVersion) -> bool:
    return version.content is None or b"\0" in version.content[:_LOOKED_AT_BYTES]


def _lines(version: FileVersion | None) -> Counter[bytes]:
    content = version.content if version is not None else None
    if not content:
        return Counter()
    return Counter(content.removesuffix(b"\n").split(b"\n"))
