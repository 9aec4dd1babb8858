"""Removes the folders of old runs. What is unfinished stays, and so does what counts for the limits of a day."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.bot.journal.folders import JOURNAL_FILE, PATCH_NAME, RUN_NAME, run_names
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import lock_run, unended_runs
from orchestrator.core.errors import JournalError
from orchestrator.core.repositories import repository_key

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.journal.folders import Home

_MEGABYTE = 1_000_000
_TYPED = "text"
"""Source of a task whose words are in its runs only."""


class RunsToKeep(NamedTuple):
    """Which runs stay; 0 is no limit.

    Attributes:
        days: those that began within so many days.
        megabytes: the newest that have so many megabytes together.
    """

    days: float
    megabytes: int


@dataclass(frozen=True, slots=True)
class OldRuns:
    """What the folders of the runs take, and what may be removed of them.

    Attributes:
        count: number of all runs; `size` is their bytes.
        removable: names of those that are too old or too many, oldest first; `freed` is their bytes.
        unfinished: names of those that stay although they are too old or too many.
    """

    count: int
    size: int
    removable: tuple[str, ...]
    freed: int
    unfinished: tuple[str, ...]


def find_old_runs(home: Home, keep: RunsToKeep, now: datetime) -> OldRuns:
    """Find the runs that may be removed.

    Never removed are runs without an end, with work that is nowhere else, and of today and yesterday (UTC), which
    count for the limits of a day.
    """
    names = [name for name in run_names(home) if RUN_NAME.fullmatch(name)]
    sizes = {name: _size(home.runs / name) for name in names}
    first_day = f"{now.astimezone(UTC) - timedelta(days=1):%Y%m%d}"
    oldest = f"{now.astimezone(UTC) - timedelta(days=keep.days):%Y%m%d-%H%M%S}" if keep.days else ""
    room = keep.megabytes * _MEGABYTE if keep.megabytes else sum(sizes.values())
    wanted = []
    for name in names:  # the newest first
        room -= sizes[name]
        if name < first_day and (room < 0 or name < oldest):
            wanted.append(name)
    stays = _unfinished(home, wanted)
    removable = tuple(name for name in reversed(wanted) if name not in stays)
    freed = sum(sizes[name] for name in removable)
    return OldRuns(len(names), sum(sizes.values()), removable, freed, tuple(sorted(stays)))


def remove_old_runs(home: Home, found: OldRuns) -> list[str]:
    """Remove the runs that were found, and return the names of those that are gone.

    One that another process has locked meanwhile, or that cannot be removed, stays.
    """
    gone = []
    for name in found.removable:
        folder = home.runs / name
        with suppress(JournalError), lock_run(folder, seconds=0.0):
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            gone.append(name)
    unended_runs(home)  # which makes its index anew
    return gone


def _unfinished(home: Home, names: list[str]) -> set[str]:
    """Return which runs have no end, or have work or words that are nowhere else and that no later run took up."""
    unended = {folder.name for folder in unended_runs(home) if (folder / JOURNAL_FILE).exists()}
    alone = []
    for name in names:
        run = summarise(home.runs / name)
        if run.task is None:
            continue
        has_patch = run.patch and not run.saved and (home.runs / name / PATCH_NAME).exists()
        if has_patch or (run.saved and run.task.source == _TYPED):
            alone.append((name, repository_key(run.repository), run.task.key))
    if not alone:
        return unended & set(names)
    newest: dict[tuple[str, str], str] = {}
    for name in sorted(run_names(home)):
        run = summarise(home.runs / name)
        if run.task is not None:
            newest[repository_key(run.repository), run.task.key] = name
    only = {name for name, repository, task in alone if newest.get((repository, task)) == name}
    return (unended & set(names)) | only


def _size(folder: Path) -> int:
    """Return the bytes of a run's files. What changes meanwhile counts as nothing."""
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                total += entry.stat(follow_symlinks=False).st_size
    return total
