"""One look at the forge: what may become a task."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    REBASE_LABEL,
    RETRY_LABEL,
    Task,
    TaskKind,
    checklist,
    from_issue,
    from_text,
    key_of,
)
from orchestrator.bot.forge.base import ACTIONS_APP, PullRequestState, TokenKind
from orchestrator.bot.worker.task_rules import (
    Admission,
    CommentsPolicy,
    choose_remarks,
    has_label,
    is_reviewed,
    name_of,
    why_hands_off,
    why_no_new_task,
)
from orchestrator.bot.worker.upkeep import Upkeep
from orchestrator.core.defences import Defence, Guarded
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from orchestrator.bot.forge.base import Check, Feedback, Forge, Issue, PullRequest
    from orchestrator.bot.worker.task_rules import Manners, NotNow
    from orchestrator.core.events import Event


CLAIMS_LOOK_AGAIN = timedelta(minutes=5)
"""Claims are not in the forge's pulse: while another worker holds a task, it is asked for so often."""


def _unheard(reason: str) -> None:
    del reason


def _untold(name: str, text: str) -> None:
    del name, text


@dataclass(frozen=True, slots=True)
class Ready:
    """A task that nothing speaks against.

    Attributes:
        attempt: under which name this process remembers that it was done.
        after: what to do on the forge once the task is taken.
        labels: of its issue.
    """

    task: Task
    attempt: str
    after: tuple[Callable[[], None], ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Look:
    """What is asked of the forge while a task is chosen.

    Attributes:
        pulls: all of ours, as they were listed first; `me` is our login, where it is known.
        unfinished: keys of tasks with unfinished work; asked once, where a pull request of ours is open.
        refused: told of labels that count for nothing, because of who put them on.
        warn: told what a person should know, with a name under which it is said once.
        commands: what a reason tells a person to type.
        skips: whether what cannot be read is left out; else its error ends the look.
        quotes_strangers: whether a model is told strangers' words, with that said.
        reasons: why things are not done, in words.
        times: when some of them may be.
    """

    forge: Forge
    label: str
    allow_actors: Collection[str]
    manners: Manners
    now: datetime
    clean: Callable[[str, str], str]
    clean_name: Callable[[str], str]
    has_conflict: Callable[[int], bool]
    unfinished: Callable[[], Collection[str]] = tuple
    refused: Callable[[str], None] = _unheard
    warn: Callable[[str, str], None] = _untold
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    skips: bool = True
    quotes_strangers: bool = False
    admission: Admission = field(init=False)
    pulls: list[PullRequest] = field(init=False)
    me: str | None = field(init=False)
    reasons: list[str] = field(default_factory=list, init=False)
    times: list[datetime] = field(default_factory=list, init=False)
    _read: int = field(default=0, init=False)
    _denied: ForgePermissionError | None = field(default=None, init=False)
    _said: dict[int, list[Feedback]] = field(default_factory=dict, init=False)
    _unfinished: Collection[str] | None = field(default=None, init=False)
    _asked: dict[tuple[int, str], bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(self.forge, self.label, self.allow_actors)
        self.pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
        self.me = self.forge.own_login()

    def note(self, reason: str, until: datetime | None = None, *, first: bool = False) -> None:
        """Remember why something is not done, and until when."""
        if reason:
            self.reasons.insert(0 if first else len(self.reasons), reason)
        if until is not None:
            self.times.append(until)

    @contextmanager
    def one(self, name: str, *, counts: bool = True) -> Iterator[None]:
        """Look at one of several things: what is wrong with it alone leaves it out, and the look goes on.

        Args:
            name: for people.
            counts: whether it says something about access to the others, for `require_access`.

        Raises:
            ForgeError: the forge is away, or wants no request or no token of ours, which concerns all of them.
        """
        try:
            yield
        except (ForgeAuthenticationError, ForgeRateLimitError, ForgeUnavailableError):
            raise
        except ForgeError as error:
            if not self.skips:
                raise
            if isinstance(error, ForgePermissionError) and counts:
                self._denied = self._denied or error
            self.note(f"{name} is left out: {error}")
            self.warn(name, f"{name} is left out: {error}")
        else:
            self._read += int(counts)

    def require_access(self) -> None:
        """Raise the error where not one thing could be looked at for want of a permission.

        Raises:
            ForgePermissionError: so it is: that is no backlog without tasks.
        """
        if self._denied is not None and not self._read:
            raise self._denied

    def is_asked(self, number: int, label: str) -> bool:
        """Whether a label that is on an issue or pull request is the wish of somebody who may cause work."""
        if (number, label) not in self._asked:
            refusal = None if self._is_nameless() else self.admission.label_refusal(number, label)
            self._asked[number, label] = refusal is None
            if refusal is not None:
                self.note(refusal)
                self.refused(refusal)
        return self._asked[number, label]

    def _is_nameless(self) -> bool:
        """Whether nobody has a name here, as in a folder: then who may write is up to the disk."""
        named = self.me is not None or any(pull.author for pull in self.pulls)
        return not named and self.forge.token_kind() is TokenKind.NONE

    def upkeep(self, key: str | None = None) -> Iterator[Ready]:
        """What our open pull requests want, the oldest first; only those of one task where it is named."""
        for pull in reversed(self.pulls):
            about = (key_of(pull.branch) or ("", None))[0]
            if pull.state is not PullRequestState.OPEN or (key is not None and about != key):
                continue
            found: Task | NotNow | None = None
            with self.one(f"pull request #{pull.number}"):
                found = self._upkeep().look(pull)
            if isinstance(found, Task):
                yield self._ready(found, pull)
            elif found is not None:
                self.note(found.reason, found.until)
                if found.warning:
                    self.warn("checks", found.warning)

    def again(self, ready: Ready, pulls: Sequence[PullRequest]) -> Ready | str:
        """What a pull request wants now, or why it wants nothing any more."""
        pull = next((one for one in pulls if ready.task.pull and one.number == ready.task.pull.number), None)
        if pull is None or pull.state is not PullRequestState.OPEN:
            return f"{name_of(ready.task)}: its pull request is not open any more"
        self._said.pop(pull.number, None)
        found = self._upkeep().look(pull)
        if isinstance(found, Task):
            return self._ready(found, pull)
        return f"pull request #{pull.number} was cared for by another worker just now"

    def why_no_new_task(
        self, pulls: Sequence[PullRequest], in_flight: Callable[[], Collection[str]]
    ) -> NotNow | None:
        """Why no new task is begun, or None."""
        proposed = {key for key, _ in filter(None, (key_of(pull.branch) for pull in pulls if _is_open(pull)))}
        others = len(set(in_flight()) - proposed)
        found = why_no_new_task(pulls, self.manners, self.now, self._is_reviewed, others, self.commands)
        return replace(found, until=self.now + CLAIMS_LOOK_AGAIN) if found and others else found

    def unlabel(self, numbers: Sequence[int]) -> tuple[Callable[[], None], ...]:
        """What takes the label for another try off."""
        return tuple(partial(self.forge.remove_label, number, RETRY_LABEL) for number in numbers)

    def _ready(self, task: Task, pull: PullRequest) -> Ready:
        if task.kind is TaskKind.UNFINISHED:  # as the new task that it was: begun once by a process
            return Ready(task, task.key)
        attempt = f"{task.key} {task.kind} {pull.commit} {task.status_marker}"
        if task.pull is None or not has_label(task.pull.labels, REBASE_LABEL):
            return Ready(task, attempt)
        # A person may ask twice for the same; when the label went on, the pull request was updated.
        after = (partial(self.forge.remove_label, pull.number, REBASE_LABEL),)
        return Ready(task, f"{attempt} {pull.updated_at}", after)

    def _upkeep(self) -> Upkeep:
        return Upkeep(
            self.forge,
            self.manners,
            self.admission.may,
            self.clean,
            self.clean_name,
            self._said_about,
            self.has_conflict,
            self.me,
            self.now,
            self._left,
            self.is_asked,
            self._vouched,
        )

    def _vouched(self, pull: PullRequest, failed: Sequence[Check]) -> list[Check]:
        """The failed checks whose words a model may be told. Of the others it is told that there are some."""
        configured = self.forge.configured_checks(failed, pull.commit, pull.base)
        known = [
            one
            for one in failed
            if one in configured or (one.app != ACTIONS_APP and self.admission.allows_app(one.app))
        ]
        if self.quotes_strangers:
            return list(failed)
        for one in failed:
            if one not in known:
                self.refused(
                    f"pull request #{pull.number}: the words of a failed check are left out, because {_why_not(one)}"
                )
        return known

    def _left(self) -> Collection[str]:
        if self._unfinished is None:
            self._unfinished = self.unfinished()
        return self._unfinished

    def _is_reviewed(self, pull: PullRequest) -> bool:
        said: list[Feedback] = []
        with self.one(f"what is said about pull request #{pull.number}"):
            said = self._said_about(pull.number)
        return is_reviewed(said, self.me)

    def _said_about(self, number: int) -> list[Feedback]:
        if number not in self._said:
            self._said[number] = self.forge.feedback(number)
        return self._said[number]


def _is_open(pull: PullRequest) -> bool:
    return pull.state is PullRequestState.OPEN


def _why_not(check: Check) -> str:
    """Why nobody vouches for a check's words, and what to do about it."""
    if not check.app:
        return "it is a commit status, which anybody with a token may set: --comments quoted shows it to the model"
    if check.app == ACTIONS_APP:
        return "the pull request may have changed the workflow: look at the check yourself"
    return (
        f"no rule for the base branch requires it of the app {check.app}: add one, or pass "
        f"--allow-actor {shlex.quote(f'{check.app}[bot]')}"
    )


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
