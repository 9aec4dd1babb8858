"""What may become a task, in the words that people see: issues that are admitted, and items of files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.bot.cycle.tasks import Task, TaskKind, checklist, from_issue, from_text
from orchestrator.bot.worker.manners import why_hands_off
from orchestrator.bot.worker.remarks import CommentsPolicy, choose_remarks
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import ConfigurationError, ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.bot.forge.base import Issue
    from orchestrator.bot.worker.look import Look, Ready
    from orchestrator.core.events import Event

BACKLOG_FILES = ("BACKLOG.md", "TODO.md", "ROADMAP.md")


class Seen(NamedTuple):
    """A text as people see it.

    Attributes:
        hidden: a line for each thing that was taken out, because people do not see it.
        kept: a line for each thing that people do not see as it stands, and a model does.
    """

    text: str
    hidden: Sequence[str] = ()
    kept: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Screen:
    """Takes out of texts what people do not see, and remembers what was taken out or refused.

    Attributes:
        clean: a text as people see it, and what is to be said of it.
        clean_name: the same for a title.
        noticed: what there is to tell.
    """

    clean: Callable[[str], Seen]
    clean_name: Callable[[str], Seen]
    noticed: list[Event]

    def text(self, text: str, place: str) -> str:
        """A text as people see it; what they do not see is told with the place."""
        seen = self.clean(text)
        self.tell(place, seen.hidden, seen.kept)
        return seen.text

    def line(self, text: str) -> str:
        """A title or a name as people see it."""
        seen = self.clean_name(text)
        self.tell("a title or a name", seen.hidden)
        return seen.text

    def tell(self, place: str, hidden: Sequence[str], kept: Sequence[str] = ()) -> None:
        """Tell what was taken out, and what people do not see as it stands."""
        if hidden:
            message = f"{place}: the model would have seen this; you did not"
            self._notice(Guarded(Defence.HIDDEN_TEXT, message, details=tuple(hidden)))
        if kept:
            message = f"{place}: the model sees this; the page does not show it as it stands"
            self._notice(Guarded(Defence.HIDDEN_TEXT, message, details=tuple(kept)))

    def refused(self, reason: str) -> None:
        """Tell what was not admitted."""
        self._notice(Guarded(Defence.ADMISSION, reason))

    def _notice(self, event: Guarded) -> None:
        if event not in self.noticed:
            self.noticed.append(event)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads tasks for one look.

    Attributes:
        comments_policy: whose comments on an issue become remarks of its task.
    """

    look: Look
    screen: Screen
    comments_policy: CommentsPolicy

    def candidates(
        self, number: int | None, text: str | None, item: str | None = None
    ) -> Iterator[Issue | Task]:
        """Issues, which have to be admitted, and tasks, which whoever may write has put there.

        Args:
            number: of the issue that the person named.
            text: of the task that the person named.
            item: the key of the item that the person named; where none of these is given, it is the backlog.

        Raises:
            ConfigurationError: the issue that the person named is closed, or the item is not in the backlog.
        """
        if number is not None:
            issue = self.look.forge.issue(number)
            if not issue.is_open:
                raise ConfigurationError(f"issue #{issue.number} is closed: reopen it, or name another one")
            yield issue
        elif text is not None:
            yield from_text(text)
        elif item is not None:
            found = next((task for task in self._items() if task.key == item), None)
            if found is None:
                files = ", ".join(BACKLOG_FILES)
                raise ConfigurationError(f"{item} is no unticked item of {files}: give its words with --task")
            yield found
        else:
            yield from self.look.forge.open_issues(self.look.label)
            yield from self._items()

    def why_not(self, issue: Issue) -> str | None:
        """Why an issue is left alone: nobody who may asked for it, or it is somebody else's."""
        look = self.look
        refusal = look.admission.refusal(issue)
        if refusal is not None:
            self.screen.refused(refusal)
            return refusal
        ours = [pull.number for pull in look.pulls]
        return why_hands_off(issue, lambda: look.forge.linked_pull_requests(issue.number), ours, look.me)

    def told(self, issue: Issue) -> Task:
        """The task that an admitted issue is. Its text is the one that was judged: it is not read again."""
        title, body = self.screen.clean_name(issue.title), self.screen.clean(issue.body)
        hidden = [f"title: {line}" for line in title.hidden] + [f"body: {line}" for line in body.hidden]
        kept = [f"body: {line}" for line in body.kept]

        def clean(text: str, author: str) -> str:
            seen, who = self.screen.clean(text), author or "an account that is gone"
            hidden.extend(f"comment by {who}: {line}" for line in seen.hidden)
            kept.extend(f"comment by {who}: {line}" for line in seen.kept)
            return seen.text

        unread = self.comments_policy == "none"
        comments = [] if unread else self.look.forge.comments(issue.number)
        remarks = choose_remarks(comments, self.comments_policy, self.look.admission.may, clean)
        self.screen.tell(f"issue #{issue.number}", hidden, kept)
        return from_issue(replace(issue, title=title.text, body=body.text), remarks)

    def in_its_words(self, ready: Ready) -> Ready | str:
        """What an issue's unfinished task is by the words that the issue has now, or why it is left alone."""
        task = ready.task
        if task.kind is not TaskKind.UNFINISHED or task.number is None:
            return ready
        try:
            issue = self.look.forge.issue(task.number)
        except ForgeNotFoundError as error:
            return f"its pull request is open, but {error}"
        if not issue.is_open:
            return f"issue #{issue.number} is closed"
        reason = self.why_not(issue)
        if reason is not None:
            return reason
        return replace(ready, task=replace(self.told(issue), kind=task.kind, pull=task.pull))

    def _items(self) -> Iterator[Task]:
        # Files of the default branch: only people who may write change them.
        for file in BACKLOG_FILES:
            text: str | None = None
            with self.look.one(file, counts=False):
                text = self.look.forge.read_file(file)
            if text:
                yield from checklist(file, self.screen.text(text, file))


def screen_answers(
    clean: Callable[[str], Seen], clean_name: Callable[[str], Seen], emit: Callable[[Event], None]
) -> Callable[[str, str], str]:
    """Shows words of somebody who answers, given who it is, as people see them; what they do not see is told."""

    def shown(text: str, author: str) -> str:
        noticed: list[Event] = []
        seen = Screen(clean, clean_name, noticed).text(
            text, f"comment by {author or 'an account that is gone'}"
        )
        for event in noticed:
            emit(event)
        return seen

    return shown
