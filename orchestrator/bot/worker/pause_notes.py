"""Writes a pause into the journal of the cycle that it follows, so that a restart knows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from orchestrator.bot.journal.folders import JOURNAL_FILE
from orchestrator.bot.journal.writer import append_last
from orchestrator.core.errors import DiskFullError, JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.bot.journal.folders import Home
    from orchestrator.bot.journal.pauses import Pause
    from orchestrator.core.clock import Clock


def note_pause(home: Home, run: str, pause: Pause, redact: Callable[[str], str], clock: Clock) -> None:
    """Append a pause to the journal of a run that has ended.

    What cannot be written is left out: the worker that waits knows the time anyway.
    """
    folder = home.runs / run
    with suppress(DiskFullError, JournalError, OSError):
        with (folder / JOURNAL_FILE).open("rb") as journal:
            number = sum(1 for _ in journal)
        append_last(folder, pause.event, number, redact, clock)
