"""Who may cause work: an issue counts if somebody who may write wrote it, or labelled it as it is now."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from orchestrator.bot.forge.base import Edit, Forge, Issue, IssueHistory


class Admission:
    """Judges issues by what the forge says that people may do, never by their names. It asks no model.

    Args:
        forge: tells permissions and histories. Its errors pass through: who cannot be judged is not let in.
        label: the label that asks for work, as for `Forge.open_issues`.
        allow_actors: logins that count as if they might write; a bot's with its `[bot]`.
    """

    def __init__(self, forge: Forge, label: str, allow_actors: Collection[str] = ()) -> None:
        self._forge = forge
        self._label = label
        self._wanted = {part.strip().lower() for part in label.split(",")}
        self._allowed = {_same(name.strip()) for name in allow_actors}

    def may(self, login: str | None) -> bool:
        """Whether this person or bot may cause work. Nobody, an account that is gone, never may."""
        name = _same(login or "")
        return bool(name) and (name in self._allowed or self._forge.permission(name).may_write)

    def allows_app(self, app: str) -> bool:
        """Whether the person who runs the program named this app among those who may cause work."""
        return bool(app) and _same(f"{app}[bot]") in self._allowed

    def refusal(self, issue: Issue) -> str | None:
        """Why an issue is not taken, in one line, or None if it may be.

        The issue must have been read before this is asked. The history is read now, so an edit
        between the two is judged although its text is not used; the other way round, a text
        that nobody judged could be used.
        """
        by_writer = self.may(issue.author)
        has_label = self._wanted <= {name.lower() for name in issue.labels}
        if not by_writer and not has_label:
            return f"{_who(issue)}, who may not write to the repository: {self._remedy(issue.author)}"
        history = self._forge.history(issue.number, self._label)
        if not history.is_complete:
            return f"issue #{issue.number} has more edits than can be judged: open a new issue with its text"
        # The author vouches for the text but for others' edits, the labeller for what was there to see.
        refusal = self._edited(issue, history.edits) if by_writer else self._unlabelled(issue, history)
        if refusal is None or not has_label or not self.may(history.labelled_by):
            return refusal
        return self._edited_since(issue, history)

    def label_refusal(self, number: int, label: str) -> str | None:
        """Why a label on an issue or pull request counts for nothing, in one line, or None if it counts.

        Args:
            number: the issue's or pull request's; the label was seen on it.
            label: any, also other than the one that asks for work.
        """
        by = self._forge.labelled_by(number, label)
        if self.may(by):
            return None
        if by is None:
            return f"nobody is known to have put the label {label!r} on #{number}: take it off, and put it on yourself"
        remedy = f", or pass --allow-actor {shlex.quote(by)}" if by else ""
        return (
            f"{_name(by)} put the label {label!r} on #{number} and may not write to the repository: "
            f"take it off, and put it on yourself{remedy}"
        )

    def _edited(self, issue: Issue, edits: Iterable[Edit]) -> str | None:
        """What is wrong where the author is trusted: others' edits."""
        bad = self._bad(edits)
        if bad is None:
            return None
        return (
            f"the {bad.what} of issue #{issue.number} was edited by {_name(bad.editor)}, "
            f"who may not write to the repository: {self._relabel()}"
        )

    def _edited_since(self, issue: Issue, history: IssueHistory) -> str | None:
        """What is wrong where the labeller is trusted: edits in the second of the labelling, or after it."""
        at = history.labelled_at
        bad = self._bad(edit for edit in history.edits if at is None or edit.at >= at)
        if bad is None:
            return None
        return (
            f"the {bad.what} of issue #{issue.number} was edited by {_name(bad.editor)}, who may not write to "
            f"the repository, after {_name(history.labelled_by)} labelled it: {self._relabel()}"
        )

    def _unlabelled(self, issue: Issue, history: IssueHistory) -> str:
        """What is wrong where neither is trusted."""
        by = history.labelled_by
        if by is None:
            said = f"and nobody is known to have put the label {self._label!r} on"
            return f"{_who(issue)}, who may not write to the repository, {said}: {self._relabel()}"
        if _same(by) == _same(issue.author):
            said = "who put the label on and may not write to the repository"
            return f"{_who(issue)}, {said}: {self._remedy(issue.author)}"
        said = f"{_name(by)} put the label on, and neither may write to the repository"
        return f"{_who(issue)}, {said}: {self._remedy(issue.author)}"

    def _bad(self, edits: Iterable[Edit]) -> Edit | None:
        return next((edit for edit in edits if not self.may(edit.editor)), None)

    def _relabel(self) -> str:
        return f"read it, take the label {self._label!r} off if it is on, and put it on"

    def _remedy(self, login: str) -> str:
        label = f"read it and put the label {self._label!r} on yourself"
        return f"{label}, or pass --allow-actor {shlex.quote(login)}" if login else label


def _same(login: str) -> str:
    """A login as it is compared. Letters that are no ASCII make none, whatever they look like in lower case."""
    return login.lower() if login.isascii() else ""


def _name(login: str | None) -> str:
    return login or "an account that is gone"


def _who(issue: Issue) -> str:
    return f"issue #{issue.number} is by {_name(issue.author)}"
