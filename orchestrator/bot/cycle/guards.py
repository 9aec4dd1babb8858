"""What stands between other people's words and a cycle, and between a cycle and the outside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator.bot.policy.incoming import Cleaned
    from orchestrator.bot.policy.test_listing import TestListing
    from orchestrator.core.changes import FileChange
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.tools.base import Tool


class Wording(Protocol):
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
        hold_back: whether a text holds a secret.
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
    hold_back: Callable[[str], bool]
    gate: Gate
    shows: Callable[[Tool], bool]
    protect: Callable[[FileChange], str | None]
    size: Callable[[Sequence[FileChange]], str | None]
    tests: Callable[[Sequence[FileChange]], TestListing]
    wording: Wording
