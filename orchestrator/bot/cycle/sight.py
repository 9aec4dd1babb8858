"""What a model may see: files, names and other people's words, without secrets and with nothing hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.cycle.documents import shown_path
from orchestrator.core.defences import Defence, Guarded

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator.bot.cycle.guards import Guards
    from orchestrator.core.events import Emit

_REPORTED = 20


class Sight:
    """Shows things to the model of one session; what was hidden in a file or a name is told by an event, once."""

    def __init__(self, guards: Guards, emit: Emit) -> None:
        self._guards, self._emit = guards, emit
        self._told: set[str] = set()

    def text(self, where: str, text: str) -> str:
        """Text of files and programs without secrets, and with what a reader would not see made visible."""
        cleaned = self._guards.output(text)
        if cleaned.removed:
            found = tuple(str(one) for one in cleaned.removed[:_REPORTED])
            self._emit(Guarded(Defence.HIDDEN_TEXT, f"hidden characters in {where} are shown", found))
        return self._guards.redact(cleaned.text)

    def words(self, text: str) -> str:
        """A name or a line that somebody wrote, without what a reader would not see."""
        cleaned = self._guards.names(text)
        if cleaned.removed and text not in self._told:
            self._told.add(text)
            found = tuple(str(one) for one in cleaned.removed[:_REPORTED])
            self._emit(
                Guarded(Defence.HIDDEN_TEXT, "hidden characters in a name or a subject are left out", found)
            )
        return self._guards.redact(cleaned.text)

    def paths(self, paths: Iterable[str]) -> list[str]:
        """Names of files, sorted."""
        return [self.words(shown_path(path)) for path in sorted(paths)]
