"""How much a unified diff changes."""

from __future__ import annotations

import re
from dataclasses import dataclass

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
