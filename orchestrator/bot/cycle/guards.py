"""What stands between other people's words and a cycle, and between a cycle and the outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.fence import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator.bot.policy.incoming import Cleaned
    from orchestrator.bot.policy.test_listing import TestListing
    from orchestrator.core.changes import FileChange
    from orchestrator.core.events import Emit
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.tools.base import Tool


_LONGEST_PATH_CHARS = 300


def shown_path(path: str) -> str:
    """The path in one line, what cannot be seen escaped. A model can name the file if nothing changed."""
    return one_line(path, limit=_LONGEST_PATH_CHARS)


class OutgoingWording(Protocol):
    """Makes a model's words harmless where people and robots of the forge read them."""

    def title(self, text: str) -> str:
        """A title: one line, capped."""

    def inline(self, text: str) -> str:
        """One line of Markdown to stand behind words of the program, capped."""

    def text(self, text: str, *, issue: int | None) -> str:
        """Markdown: capped; `issue` is the one that it may close."""

    def comment(self, text: str, *, issue: int | None) -> str:
        """Markdown for a comment: the same, and every line is quoted (`> `)."""

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        """A commit's message, which is no Markdown: title, other people's words, and the program's own."""


@dataclass(frozen=True, slots=True)
class Guards:
    """The checks of one run. None of them asks a model, and each fails closed.

    Attributes:
        words: what people wrote, without what a reader would not see.
        names: the same for what is one line: titles, names of files and branches.
        output: what a tool answers, with what a reader would not see made visible.
        redact: a text without secrets.
        holds_secret: whether a text holds a secret.
        gate: may a call run?
        shows: which tools exist for the model.
        protect: why the change to a path waits for a person, or None.
        size: why a change is too large, or None.
        tests: what a change does to tests, as far as its text shows it.
        wording: for what goes to the forge.
    """

    words: Callable[[str], Cleaned]
    names: Callable[[str], Cleaned]
    output: Callable[[str], Cleaned]
    redact: Callable[[str], str]
    holds_secret: Callable[[str], bool]
    gate: Gate
    shows: Callable[[Tool], bool]
    protect: Callable[[FileChange], str | None]
    size: Callable[[Sequence[FileChange]], str | None]
    tests: Callable[[Sequence[FileChange]], TestListing]
    wording: OutgoingWording


_REPORTED = 20


class Sanitizer:
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
