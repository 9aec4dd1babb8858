"""One search of the forge for a task: the candidates, each answer cached, and why other tasks are not done."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.bot.cycle.claim import Candidate
from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    REBASE_LABEL,
    Task,
    TaskKind,
    checklist,
    from_issue,
    from_text,
    key_of,
)
from orchestrator.bot.forge.base import ACTIONS_APP, PullRequestState, TokenKind
from orchestrator.bot.worker import task_rules as rules
from orchestrator.bot.worker.task_rules import CommentsPolicy, TaskAuthorization, has_label, name_of
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)
from orchestrator.core.events import Defence, Guarded
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.forge.base import Check, Feedback, Forge, Issue, PullRequest
    from orchestrator.bot.worker.task_rules import NotNow, ReviewLimits
    from orchestrator.core.events import Event

BACKLOG_FILES = ("BACKLOG.md", "TODO.md", "ROADMAP.md")
CLAIMS_LOOK_AGAIN = timedelta(minutes=5)
"""Time until the backlog is read again while others hold tasks: the forge's fingerprint does not show claims."""
_GONE = "an account that is gone"


@dataclass(frozen=True, slots=True)
class SeenPulls:
    """What the search for a task has read: all our pull requests, and the feedback on some, by number."""

    pulls: Sequence[PullRequest] = ()
    feedback: Mapping[int, Sequence[Feedback]] = field(default_factory=dict)


class VisibleText(NamedTuple):
    """A text as people see it.

    Attributes:
        hidden: a line for each removed thing that people do not see.
        kept: a line for each thing that stays in the text although people do not see it as it stands.
    """

    text: str
    hidden: Sequence[str] = ()
    kept: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class TextFilter:
    """Removes from texts what people do not see, and records events about what was removed or refused.

    Attributes:
        clean: returns a text as people see it; `clean_name` does the same for a title or a name.
        noticed: the recorded events.
    """

    clean: Callable[[str], VisibleText]
    clean_name: Callable[[str], VisibleText]
    noticed: list[Event]

    def text(self, text: str, place: str) -> str:
        """Return a text as people see it. The event about what they do not see names the place."""
        seen = self.clean(text)
        self.report_hidden(place, seen.hidden, seen.kept)
        return seen.text

    def line(self, text: str) -> str:
        """Return a title or a name as people see it."""
        seen = self.clean_name(text)
        self.report_hidden("a title or a name", seen.hidden)
        return seen.text

    def report_hidden(self, place: str, hidden: Sequence[str], kept: Sequence[str] = ()) -> None:
        """Record what was removed from a text, and what stays in it although people do not see it as it stands."""
        removed = "the model would have seen this; you did not"
        shown = "the model sees this; the page does not show it as it stands"
        for message, details in ((removed, hidden), (shown, kept)):
            if details:
                self._notice(Guarded(Defence.HIDDEN_TEXT, f"{place}: {message}", tuple(details)))

    def refused(self, reason: str) -> None:
        """Record that a person's request was refused."""
        self._notice(Guarded(Defence.ADMISSION, reason))

    def _notice(self, event: Guarded) -> None:
        if event not in self.noticed:
            self.noticed.append(event)


def filter_answers(
    clean: Callable[[str], VisibleText], emit: Callable[[Event], None]
) -> Callable[[str, str], str]:
    """Return a function of an answer and its author that emits what people do not see, and returns the rest."""

    def shown(text: str, author: str) -> str:
        noticed: list[Event] = []
        seen = TextFilter(clean, clean, noticed).text(text, f"comment by {author or _GONE}")
        for event in noticed:
            emit(event)
        return seen

    return shown


@dataclass(slots=True)
class TaskSearch:
    """Asks the forge for candidates, and caches the answers while a task is chosen.

    Attributes:
        unfinished: returns the keys of tasks with unfinished work; called at most once.
        warn: receives warnings for a person, each with a name under which it is emitted once.
        skips: whether what cannot be read is left out; else its error ends the search.
        pulls: all our pull requests, as listed at the start.
        me: the login of our account; None if the forge does not tell it.
        reasons: why tasks are not done, for people.
        times: when some of these tasks may be done.
    """

    forge: Forge
    label: str
    allow_actors: Collection[str]
    limits: ReviewLimits
    now: datetime
    texts: TextFilter
    has_conflict: Callable[[int], bool]
    unfinished: Callable[[], Collection[str]] = tuple
    warn: Callable[[str, str], object] = lambda _name, _text: None
    commands: Commands = Commands()  # noqa: RUF009  a frozen value
    comments_policy: CommentsPolicy = "writers"
    skips: bool = True
    authorization: TaskAuthorization = field(init=False)
    pulls: list[PullRequest] = field(init=False)
    me: str | None = field(init=False)
    reasons: list[str] = field(default_factory=list, init=False)
    times: list[datetime] = field(default_factory=list, init=False)
    _read: int = field(default=0, init=False)
    _denied: ForgePermissionError | None = field(default=None, init=False)
    _feedback: dict[int, list[Feedback]] = field(default_factory=dict, init=False)
    _unfinished: Collection[str] | None = field(default=None, init=False)
    _asked: dict[tuple[int, str], bool] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.authorization = TaskAuthorization(self.forge, self.label, self.allow_actors)
        self.pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
        self.me = self.forge.own_login()

    def note(self, reason: str, until: datetime | None = None, *, first: bool = False) -> None:
        """Record why something is not done, and until when. With `first`, the reason goes before all others."""
        if reason:
            self.reasons.insert(0 if first else len(self.reasons), reason)
        if until is not None:
            self.times.append(until)

    @contextmanager
    def reading(self, name: str, *, counts: bool = True) -> Iterator[None]:
        """Leave out what the block reads if only that fails, so that the search continues.

        Args:
            name: what is read, for people.
            counts: whether success or failure tells something about access in general, for `require_access`.

        Raises:
            ForgeError: `skips` is False; or the forge is unavailable, rate-limited or refuses the token,
                which concerns everything.
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
        """Check that something could be read, so that a missing permission does not look like an empty backlog.

        Raises:
            ForgePermissionError: nothing could be read because a permission is missing.
        """
        if self._denied is not None and not self._read:
            raise self._denied

    # Our pull requests.

    def upkeep(self, key: str | None = None) -> Iterator[Candidate]:
        """Yield the tasks of our open pull requests, the oldest first; with `key`, only those of that task."""
        for pull in reversed(self.pulls):
            about = (key_of(pull.branch) or ("", None))[0]
            if pull.state is not PullRequestState.OPEN or (key is not None and about != key):
                continue
            from orchestrator.bot.worker.upkeep import Upkeep

            found: Task | NotNow | None = None
            with self.reading(f"pull request #{pull.number}"):
                found = Upkeep(self).judge(pull)
            if isinstance(found, Task):
                yield self._ready(found, pull)
            elif found is not None:
                self.note(found.reason, found.until)
                if found.warning:
                    self.warn("checks", found.warning)

    def upkeep_again(self, ready: Candidate, pulls: Sequence[PullRequest]) -> Candidate | str:
        """Return the present task of the candidate's pull request, or why there is none any more."""
        from orchestrator.bot.worker.upkeep import Upkeep

        pull = next((one for one in pulls if ready.task.pull and one.number == ready.task.pull.number), None)
        if pull is None or pull.state is not PullRequestState.OPEN:
            return f"{name_of(ready.task)}: its pull request is not open any more"
        self._feedback.pop(pull.number, None)
        found = Upkeep(self).judge(pull)
        if isinstance(found, Task):
            return self._ready(found, pull)
        return f"pull request #{pull.number} was handled by another worker just now"

    def _ready(self, task: Task, pull: PullRequest) -> Candidate:
        if task.kind is TaskKind.UNFINISHED:  # attempted once per process, like the new task that it was
            return Candidate(task, task.key)
        attempt = f"{task.key} {task.kind} {pull.commit} {task.status_marker}"
        if task.pull is None or not has_label(task.pull.labels, REBASE_LABEL):
            return Candidate(task, attempt)
        # A person may ask for the same rebase twice. Each labelling changes `updated_at`.
        after = (partial(self.forge.remove_label, pull.number, REBASE_LABEL),)
        return Candidate(task, f"{attempt} {pull.updated_at}", after)

    def is_label_trusted(self, number: int, label: str) -> bool:
        """Return whether a label on an issue or pull request was put there by an account that may cause work."""
        if (number, label) not in self._asked:
            # A local folder knows no logins: the disk's permissions decide who may write.
            has_logins = self.me is not None or any(pull.author for pull in self.pulls)
            is_folder = not has_logins and self.forge.token_kind() is TokenKind.NONE
            refusal = None if is_folder else self.authorization.why_label_refused(number, label)
            self._asked[number, label] = refusal is None
            if refusal is not None:
                self.note(refusal)
                self.texts.refused(refusal)
        return self._asked[number, label]

    def feedback(self, number: int) -> list[Feedback]:
        """Return the feedback on a pull request; asked once."""
        if number not in self._feedback:
            self._feedback[number] = self.forge.feedback(number)
        return self._feedback[number]

    def seen(self) -> SeenPulls:
        """Return all our pull requests, and the feedback that was read."""
        return SeenPulls(self.pulls, dict(self._feedback))

    def has_unfinished(self, key: str) -> bool:
        """Return whether a cycle left unfinished work on a task."""
        if self._unfinished is None:
            self._unfinished = self.unfinished()
        return key in self._unfinished

    def trusted_checks(self, pull: PullRequest, failed: Sequence[Check]) -> list[Check]:
        """Return the failed checks whose text the model may see. Of the others it is told only the number."""
        configured = self.forge.configured_checks(failed, pull.commit, pull.base)
        if self.comments_policy == "quoted":
            return list(failed)
        trusted = []
        for one in failed:
            if one in configured or (one.app != ACTIONS_APP and self.authorization.allows_app(one.app)):
                trusted.append(one)
            else:
                reason = f"the text of a failed check is left out, because {_why_untrusted(one)}"
                self.texts.refused(f"pull request #{pull.number}: {reason}")
        return trusted

    # New tasks.

    def why_no_new_task(
        self, pulls: Sequence[PullRequest], in_flight: Callable[[], Collection[str]]
    ) -> NotNow | None:
        """Return why no new task is begun, or None."""
        is_open = (pull for pull in pulls if pull.state is PullRequestState.OPEN)
        proposed = {key for key, _ in filter(None, (key_of(pull.branch) for pull in is_open))}
        others = len(set(in_flight()) - proposed)
        found = rules.why_no_new_task(pulls, self.limits, self.now, self._is_reviewed, others, self.commands)
        return replace(found, until=self.now + CLAIMS_LOOK_AGAIN) if found and others else found

    def _is_reviewed(self, pull: PullRequest) -> bool:
        feedback: list[Feedback] = []
        with self.reading(f"the feedback on pull request #{pull.number}"):
            feedback = self.feedback(pull.number)
        return rules.is_reviewed(feedback, self.me)

    def candidates(self, number: int | None, text: str | None, item: str | None) -> Iterator[Issue | Task]:
        """Yield issues, which still have to be authorized, and tasks, which come from people who may write.

        Args:
            number: the issue that a person selected, or else the `text` of a task, or the key of a backlog
                `item`. Without any of the three, the whole backlog is read.

        Raises:
            ConfigurationError: the selected issue is closed, or the item is not in the backlog.
        """
        if number is not None:
            issue = self.forge.issue(number)
            if not issue.is_open:
                raise ConfigurationError(f"issue #{issue.number} is closed: reopen it, or name another one")
            yield issue
        elif text is not None:
            yield from_text(text)
        elif item is not None:
            found = next((task for task in self._items() if task.key == item), None)
            if found is None:
                files = ", ".join(BACKLOG_FILES)
                raise ConfigurationError(f"{item} is no unticked item of {files}: give its text with --task")
            yield found
        else:
            yield from self.forge.open_issues(self.label)
            yield from self._items()

    def _items(self) -> Iterator[Task]:
        # Only people who may write can change files of the default branch.
        for file in BACKLOG_FILES:
            text: str | None = None
            with self.reading(file, counts=False):
                text = self.forge.read_file(file)
            if text:
                yield from checklist(file, self.texts.text(text, file))

    def why_not(self, issue: Issue) -> str | None:
        """Return why an issue is left alone, or None: nobody who may cause work wants it, or somebody else does it."""
        refusal = self.authorization.why_refused(issue)
        if refusal is not None:
            self.texts.refused(refusal)
            return refusal
        ours = [pull.number for pull in self.pulls]
        linked = partial(self.forge.linked_pull_requests, issue.number)
        return rules.why_taken_by_others(issue, linked, ours, self.me)

    def task_of(self, issue: Issue) -> Task:
        """Return the task of an authorized issue. Its text is the one that was judged: it is not read again."""
        title, body = self.texts.clean_name(issue.title), self.texts.clean(issue.body)
        hidden = [f"title: {line}" for line in title.hidden] + [f"body: {line}" for line in body.hidden]
        kept = [f"body: {line}" for line in body.kept]

        def clean(text: str, author: str) -> str:
            seen, who = self.texts.clean(text), author or _GONE
            hidden.extend(f"comment by {who}: {line}" for line in seen.hidden)
            kept.extend(f"comment by {who}: {line}" for line in seen.kept)
            return seen.text

        comments = [] if self.comments_policy == "none" else self.forge.comments(issue.number)
        may = self.authorization.may_cause_work
        remarks = rules.choose_remarks(comments, self.comments_policy, may, clean)
        self.texts.report_hidden(f"issue #{issue.number}", hidden, kept)
        return from_issue(replace(issue, title=title.text, body=body.text), remarks)

    def with_issue_text(self, candidate: Candidate) -> Candidate | str:
        """Return an issue's unfinished task with the issue's present text, or why the issue is left alone.

        Other tasks are returned unchanged.
        """
        task = candidate.task
        if task.kind is not TaskKind.UNFINISHED or task.number is None:
            return candidate
        try:
            issue = self.forge.issue(task.number)
        except ForgeNotFoundError as error:
            return f"its pull request is open, but {error}"
        if not issue.is_open:
            return f"issue #{issue.number} is closed"
        if (reason := self.why_not(issue)) is not None:
            return reason
        return replace(candidate, task=replace(self.task_of(issue), kind=task.kind, pull=task.pull))


def _why_untrusted(check: Check) -> str:
    """Return why a check's text is not trusted, and what to do about it."""
    if not check.app:
        return "it is a commit status, which anybody with a token may set: --comments quoted shows it to the model"
    if check.app == ACTIONS_APP:
        return "the pull request may have changed the workflow: look at the check yourself"
    return (
        f"no rule for the base branch requires it of the app {check.app}: add one, or pass "
        f"--allow-actor {shlex.quote(f'{check.app}[bot]')}"
    )
