"""What is put on a pull request besides its text: the label, and the comment on what waits for a person."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.documents import shown_path
from orchestrator.core.errors import ForgeError
from orchestrator.core.events import Warned
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.fence import fenced

if TYPE_CHECKING:
    from orchestrator.bot.cycle.guards import Guards
    from orchestrator.bot.forge.base import Forge, PullRequest
    from orchestrator.bot.git.base import CommitOutcome, LeftOut
    from orchestrator.core.events import Emit

REVIEW_LABEL = "tests-need-review"
"""On a pull request after which tests are gone or skipped, or pass only by what was done to them."""

FAILING_LABEL = "tests-fail"
"""On a pull request whose tests, run by the host, do not pass."""

_HELD_KEY = "held"
_PATCH_CHARACTERS = 50_000
"""GitHub takes 65,536 in a comment; the list of names needs some."""
_MOST_LISTED = 20


@dataclass(slots=True)
class Attachments:
    """The pull request is there before these are. Where one cannot be put on it, a warning says so.

    Attributes:
        run: the run's name, in whose folder a person finds the whole patch.
    """

    forge: Forge
    guards: Guards
    emit: Emit
    run: str
    _has_comment: bool = False
    _is_marked: bool = False

    async def label(self, number: int, label: str) -> None:
        """Mark a pull request."""
        try:
            await asyncio.to_thread(self.forge.ensure_label, number, label)
        except ForgeError as error:
            self.emit(Warned(f"pull request #{number} has no label {label!r}: {error}"))

    async def fails(self, pull: PullRequest, *, is_red: bool) -> None:
        """Mark a pull request whose tests do not pass, or take the mark off."""
        if is_red:
            self._is_marked = True
            await self.label(pull.number, FAILING_LABEL)
        elif self._is_marked or FAILING_LABEL in pull.labels:
            self._is_marked = False
            try:
                await asyncio.to_thread(self.forge.remove_label, pull.number, FAILING_LABEL)
            except ForgeError as error:
                self.emit(Warned(f"pull request #{pull.number} keeps its label {FAILING_LABEL!r}: {error}"))

    async def comment(self, number: int, outcome: CommitOutcome) -> None:
        """Show what was held, as a patch that a person can apply; or that nothing is held any more."""
        if not outcome.held and not self._has_comment:
            return
        body = self.guards.redact(self._text(outcome))
        try:
            await asyncio.to_thread(self.forge.ensure_comment, number, _HELD_KEY, body)
            self._has_comment = True
        except ForgeError as error:
            names = ", ".join(shown_path(item.path) for item in outcome.held[:_MOST_LISTED]) or "nothing"
            self.emit(
                Warned(
                    f"pull request #{number} has no comment that says what waits for a person ({names}): {error}"
                )
            )

    def _text(self, outcome: CommitOutcome) -> str:
        patch = outcome.held_patch.decode("utf-8", "replace")
        return render(
            "cycle/held_changes",
            held=[self._line(item) for item in outcome.held[:_MOST_LISTED]],
            more=max(len(outcome.held) - _MOST_LISTED, 0),
            patch=quoted(patch) if self._survives(patch, outcome.held_patch) else None,
            run=self.run,
        )

    def _line(self, item: LeftOut) -> tuple[str, str]:
        # A reason may name other files, and a file may have any name.
        return shown_path(item.path), self.guards.wording.inline(item.reason)

    def _survives(self, patch: str, raw: bytes) -> bool:
        """Whether a comment shows all of the patch as it is: one that is cut or changed does not apply."""
        return (
            bool(patch)
            and len(quoted(patch)) <= _PATCH_CHARACTERS
            and patch.encode() == raw
            and patch.splitlines() == patch.removesuffix("\n").split("\n")
            and "<!--" not in patch
            and not self.guards.output(patch).removed
            and self.guards.redact(patch) == patch
        )


def quoted(text: str) -> str:
    """The text as a block of code in a quotation: no line of the comment begins with any of it, whoever tells lines apart."""
    return "\n".join(f"> {line}" for line in fenced(text).splitlines())
