"""One search of the forge for a task: new ones, and those of our open pull requests; and why others are not done."""

from __future__ import annotations

import hashlib
import json
import re
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.choice import WORKING_LABEL, Candidate, Unwanted
from orchestrator.bot.cycle.task_state import KnownTask, task_state
from orchestrator.bot.cycle.tasks import (
    BRANCH_FOLDERS,
    OUR_COMMENT,
    REBASE_LABEL,
    Remark,
    Task,
    TaskKind,
    checklist,
    find_answer,
    from_issue,
    from_text,
    is_ours,
    issue_of,
    key_of,
    name_of,
)
from orchestrator.bot.forge.base import ACTIONS_APP, CheckState, FeedbackKind, PullRequestState, TokenKind
from orchestrator.bot.suggestions import Commands
from orchestrator.bot.worker import task_rules as rules
from orchestrator.bot.worker.dependencies import Dependencies
from orchestrator.bot.worker.task_rules import (
    MOST_CHARACTERS,
    MOST_REMARKS,
    CommentsPolicy,
    NotNow,
    TaskAuthorization,
    has_label,
    id_of,
    is_another_person,
    is_us,
    name_of_login,
)
from orchestrator.core.errors import (
    ConfigurationError,
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    ForgeUnreadError,
)
from orchestrator.core.prompts import cut, render

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from orchestrator.bot.forge.base import Check, Comment, Feedback, Forge, Issue, PullRequest
    from orchestrator.bot.journal.folders import RefusedIssues
    from orchestrator.bot.worker.task_rules import ReviewLimits, TextFilter


MOST_REFUSED = 30
"""Most issues that one look asks about only to refuse them."""
MOST_READ_AGAIN = 20
"""Most tasks of earlier cycles about which one look at their states asks what people say now."""
BLOCKED_KEY = "blocked"
"""Section of our comment that says what an issue waits for."""
_INSIDERS = frozenset({"OWNER", "MEMBER", "COLLABORATOR"})
BACKLOG_FILES = ("BACKLOG.md", "TODO.md", "ROADMAP.md")
CLAIMS_LOOK_AGAIN = timedelta(minutes=5)
"""Time until the backlog is read again while others hold tasks: the forge's fingerprint does not show claims."""


@dataclass(frozen=True, slots=True)
class SeenPulls:
    """What the search for a task has read: all our pull requests, and the feedback on some, by number."""

    pulls: Sequence[PullRequest] = ()
    feedback: Mapping[int, Sequence[Feedback]] = field(default_factory=dict)


@dataclass(slots=True)
class TaskSearch:
    """Asks the forge for candidates, and caches the answers while a task is chosen.

    Attributes:
        unfinished: returns the keys of tasks with unfinished work; called at most once.
        warn: receives warnings for a person, each with a name under which it is emitted once.
        skips: whether what cannot be read is left out; else its error ends the search.
        fingerprint: the forge's, from which on this search may answer.
        refused: the issues that earlier searches refused; None asks about each issue.
        pulls: all our pull requests, as listed at the start.
        me: the login of our account; None if the forge does not tell it.
        reasons: why tasks are not done, for people.
        times: when some of these tasks may be done.
        unread: what could not be read.
        ahead: how far the forge's clock is ahead of ours, for each comparison of its times with `now`.
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
    fingerprint: str = ""
    refused: RefusedIssues | None = None
    authorization: TaskAuthorization = field(init=False)
    pulls: list[PullRequest] = field(init=False)
    me: str | None = field(init=False)
    ahead: timedelta = field(init=False)
    reasons: list[str] = field(default_factory=list, init=False)
    times: list[datetime] = field(default_factory=list, init=False)
    unread: list[str] = field(default_factory=list, init=False)
    _read: int = field(default=0, init=False)
    _denied: ForgePermissionError | None = field(default=None, init=False)
    _feedback: dict[int, list[Feedback]] = field(default_factory=dict, init=False)
    _unfinished: Collection[str] | None = field(default=None, init=False)
    _asked: dict[tuple[int, str], bool] = field(default_factory=dict, init=False)
    _comments: dict[int, Sequence[Comment]] = field(default_factory=dict, init=False)
    _looked: dict[int, Issue] = field(default_factory=dict, init=False)
    _refused: int = field(default=0, init=False)
    _later: int = field(default=0, init=False)
    _read_again: int = field(default=0, init=False)
    _waits: Dependencies | None = field(default=None, init=False)
    _issues_by_number: Mapping[int, Issue] | None = field(default=None, init=False)
    _items_by_key: Mapping[str, Task] | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.authorization = TaskAuthorization(self.forge, self.label, self.allow_actors)
        self.pulls = self.forge.our_pull_requests(BRANCH_FOLDERS)
        self.me = self.forge.own_login()
        self.ahead = self.forge.ahead()

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
            self.unread.append(f"{name} is left out: {error}")
            self.warn(name, f"{name} is left out: {error}")
        else:
            self._read += int(counts)

    def require_access(self) -> None:
        """Check that all could be read, so that a failure does not look like an empty backlog.

        Raises:
            ForgePermissionError: nothing could be read because a permission is missing.
            ForgeUnreadError: something could not be read.
        """
        if self._denied is not None and not self._read:
            raise self._denied
        if self.unread:
            more = f"; and {len(self.unread) - 1} more" if len(self.unread) > 1 else ""
            raise ForgeUnreadError(f"nothing else is to do, but {self.unread[0]}{more}")

    # Our pull requests.

    def upkeep(self, key: str | None = None, thread: int | None = None) -> Iterator[Candidate]:
        """Yield the tasks of our open pull requests, the oldest first.

        Args:
            key: the only task; None for all.
            thread: the number of the only pull request, or of the issue of the only task; None for all.
        """
        for pull in reversed(self.pulls):
            of_pull = key_of(pull.branch)
            if pull.state is not PullRequestState.OPEN or key not in {None, of_pull}:
                continue
            if thread not in {None, pull.number, issue_of(of_pull or "")}:
                continue
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
        pull = next((one for one in pulls if ready.task.pull and one.number == ready.task.pull.number), None)
        if pull is None or pull.state is not PullRequestState.OPEN:
            return f"{name_of(ready.task)}: its pull request is not open any more"
        self._feedback.pop(pull.number, None)
        found = Upkeep(self).judge(pull)
        if isinstance(found, Task):
            return self._ready(found, pull)
        return f"pull request #{pull.number} was handled by another worker just now"

    def _ready(self, task: Task, pull: PullRequest) -> Candidate:
        known = self.known(task)
        if task.kind is TaskKind.UNFINISHED:  # attempted once per process, like the new task that it was
            return Candidate(known, task.key)
        attempt = f"{task.key} {task.kind} {pull.commit} {task.status_marker}"
        if task.pull is None or not has_label(task.pull.labels, REBASE_LABEL):
            return Candidate(known, attempt)
        # A person may ask for the same rebase twice. Each labelling changes `updated_at`.
        after = (partial(self.forge.remove_label, pull.number, REBASE_LABEL),)
        return Candidate(known, f"{attempt} {pull.updated_at}", after)

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
                reason = f"the text of a failed check is left out, because {rules.why_untrusted(one)}"
                self.texts.refused(f"pull request #{pull.number}: {reason}")
        return trusted

    # The label of work in progress.

    def issues_in_progress(self) -> list[int]:
        """Return the issues with the label that shows a claim. Read the claims after this, not before."""
        try:
            return self.forge.labelled_issues(WORKING_LABEL)
        except (ForgeNotFoundError, ForgePermissionError):
            return []

    def correct_labels(self, numbers: Iterable[int]) -> None:
        """Remove the label from issues whose claim is not held: its removal failed, or its worker is gone."""
        for number in numbers:
            try:
                self.forge.remove_label(number, WORKING_LABEL)
            except ForgeError as error:
                name = f"issue #{number}"
                self.warn(f"{name} {WORKING_LABEL}", f"{name} keeps the label {WORKING_LABEL}: {error}")
                break

    # New tasks.

    def why_no_new_task(
        self, pulls: Sequence[PullRequest], in_flight: Callable[[], Collection[str]]
    ) -> NotNow | None:
        """Return why no new task is begun, or None."""
        is_open = (pull for pull in pulls if pull.state is PullRequestState.OPEN)
        proposed = {key_of(pull.branch) for pull in is_open}
        others = len(set(in_flight()) - proposed)
        there = self.now + self.ahead  # a day is the forge's
        found = rules.why_no_new_task(pulls, self.limits, there, self._is_reviewed, others, self.commands)
        if found is None or (found.until is None and not others):
            return found
        until = self.now + CLAIMS_LOOK_AGAIN if others or found.until is None else found.until - self.ahead
        return replace(found, until=until)

    def _is_reviewed(self, pull: PullRequest) -> bool:
        feedback: list[Feedback] = []
        with self.reading(f"the feedback on pull request #{pull.number}"):
            feedback = self.feedback(pull.number)
        return rules.is_reviewed(feedback, self.me)

    def candidates(
        self, number: int | None, text: str | None, item: str | None, *, with_files: bool = True
    ) -> Iterator[Issue | Task]:
        """Yield issues, which still have to be authorized, and tasks, which come from people who may write.

        Args:
            number: the issue that a person selected, or else the `text` of a task, or the key of a backlog
                `item`. Without any of the three, the whole backlog is read.
            with_files: whether the files with items belong to it.

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
            yield from self._issues()
            if with_files:
                yield from self._items()

    def _issues(self) -> Iterator[Issue]:
        """Yield the issues that a look may ask about, the oldest first, without those that are known to be refused.

        Everybody may open issues, so the number of refused ones that a look asks about has a limit. Beyond it,
        those of people with a part in the repository come first, and of the others each look takes different ones.
        """
        unknown = []
        for issue in self.forge.open_issues(self.label):
            known = self.refused and self.refused.why(issue.number, issue.updated_at, self.now)
            if known:
                self.note(known)
            else:
                unknown.append(issue)
        if self.refused is not None and len(unknown) > MOST_REFUSED:
            unknown = self._mixed(unknown)
        for issue in unknown:
            if self.refused is not None and self._refused >= MOST_REFUSED:
                self._later += 1
            else:
                yield issue

    def _mixed(self, issues: Sequence[Issue]) -> list[Issue]:
        """Return issues in an order in which none waits for ever behind many others."""
        insiders = [issue for issue in issues if issue.association in _INSIDERS]
        others = [issue for issue in issues if issue.association not in _INSIDERS]
        oldest, rest = others[: MOST_REFUSED // 2], others[MOST_REFUSED // 2 :]
        turn = lambda issue: hashlib.sha256(f"{self.now} {issue.number}".encode()).digest()  # noqa: E731
        return [*insiders, *oldest, *sorted(rest, key=turn)]

    def end(self) -> None:
        """Note what is left for later searches, and keep for them which issues were refused."""
        if self._later:
            text = f"{self._later} more issues with the label are looked at by the next cycles"
            self.note(text, self.now + CLAIMS_LOOK_AGAIN, first=True)
        if self.refused is not None:
            self.refused.save(self.now)

    def _items(self) -> Iterator[Task]:
        # Only people who may write can change files of the default branch.
        for file in BACKLOG_FILES:
            text: str | None = None
            with self.reading(file, counts=False):
                text = self.forge.read_file(file, self.fingerprint)
            if text:
                yield from checklist(file, self.texts.text(text, file))

    def why_not(self, issue: Issue) -> str | None:
        """Return why an issue is left alone, or None: nobody who may cause work wants it, or somebody else does it."""
        refusal = self.authorization.why_refused(issue)
        if refusal is not None:
            self.texts.refused(refusal)
            self._refused += 1
            if self.refused is not None:
                self.refused.note(issue.number, issue.updated_at, self.now, refusal)
            return refusal
        return self._why_taken(issue)

    def known(self, task: Task) -> KnownTask:
        """Return what this search knows of a task before it is judged."""
        return KnownTask(task.key, self.now, task, self.pulls, commands=self.commands)

    def retry_labels(self, known: KnownTask, labels: Iterable[str]) -> tuple[int, ...]:
        """Return the numbers of the task's issue and closed pull requests whose label asks for another try."""
        return rules.retry_labels(known, labels, self.is_label_trusted)

    def with_issue(self, known: KnownTask, issue: Issue) -> KnownTask:
        """Return what is known of an issue's task with what people say of it now: one that is not known to be wanted."""
        if (reason := self.why_not(issue)) is not None:
            return replace(known, unwanted=reason)
        task = replace(self.task_of(issue), is_retry=known.is_retry)
        is_asked = known.is_asked_again or known.is_named
        return replace(known, task=task, unwanted="" if is_asked else self.why_stopped(issue) or "")

    def with_blockers(self, known: KnownTask, issue: Issue | None) -> KnownTask:
        """Return what is known of a task that may be taken otherwise, with what it waits for.

        A task that a person names waits for nothing.
        """
        if known.is_named or known.task is None or task_state(known).refusal:
            return known
        found = self._dependencies().of(known.task, issue)
        return known if found is None else replace(known, blocked=str(found))

    def _dependencies(self) -> Dependencies:
        if self._waits is None:
            self._waits = Dependencies(self.forge, self._open_issues, self._open_items, self.pulls, self.warn)
        return self._waits

    def tell_blocked(self, issue: Issue, blocked: str) -> None:
        """Tell on an issue what it waits for. A failure is a warning."""
        body = render("worker/blocked", blocked=blocked)
        try:
            self.forge.ensure_comment(issue.number, BLOCKED_KEY, body)
        except ForgeError as error:
            self.warn(
                f"issue #{issue.number} waits",
                f"issue #{issue.number} does not show what it waits for: {error}",
            )

    def is_told_blocked(self, number: int) -> bool:
        """Return whether our comment on an issue, as just read, still tells that it waits for others."""
        section = f"<!-- pullwright:section:{BLOCKED_KEY} -->"
        return any(section in one.body and is_ours(one.body) for one in self._comments.get(number, ()))

    def that_may_wait(self) -> list[str]:
        """Return the keys of issues and items of the backlog whose texts or counts name others."""
        issues = (
            f"issue-{one.number}"
            for one in self._open_issues().values()
            if one.blocked_by or one.open_parts or from_issue(one).after
        )
        return [*issues, *(task.key for task in self._open_items().values() if task.after)]

    def as_asked_now(self, known: KnownTask) -> KnownTask:
        """Return what is known of a task with what people say of it now, as `candidates` and `upkeep` would find it.

        A look reads a limited number of tasks. The others count as unchanged since their last cycles.
        """
        asked = known
        if self._read_again < MOST_READ_AGAIN:
            with self.reading(known.name):
                asked = self._asked_now(known)
        return asked

    def _asked_now(self, known: KnownTask) -> KnownTask:
        number, pull = issue_of(known.key), known.pull
        if pull is not None and pull.state is PullRequestState.OPEN:
            self._read_again += 1
            found = next(self.upkeep(known.key), None)
            candidate = self.with_issue_text(found) if found is not None else known.name
            if not isinstance(candidate, str):
                known = replace(known, task=candidate.task)
            number = pull.number if number is None else number
        elif number is not None:
            self._read_again += 1
            issue = self._open_issues().get(number) or self.forge.issue(number)
            if not issue.is_open:
                return replace(known, closed=f"issue #{number} is closed")
            known = replace(known, is_retry=bool(self.retry_labels(known, issue.labels)))
            known = self.with_blockers(self.with_issue(known, issue), issue)
            if not (known.unwanted or self.authorization.wanted <= {name.lower() for name in issue.labels}):
                known = replace(known, unwanted=f"issue #{number} has no label {self.label!r}")
        else:
            known = replace(known, is_retry=bool(self.retry_labels(known, ())))
            if known.key.startswith("item-"):
                task = self._open_items().get(known.key)
                why = f"{', '.join(BACKLOG_FILES)} do not list it as open any more"
                known = replace(known, task=task, closed="" if task is not None else why)
                known = self.with_blockers(known, None)
        if number is None or known.left is None or not known.left.waits_for_answer or known.has_answer:
            return known
        asked = known.left.question, known.left.question_url
        may, clean = self.authorization.may_cause_work, lambda text, _author: self.texts.clean(text).text
        answer = find_answer(self.forge.comments(number), *asked, may, clean)
        return replace(known, has_answer=answer is not None)

    def _open_issues(self) -> Mapping[int, Issue]:
        if self._issues_by_number is None:
            self._issues_by_number = {issue.number: issue for issue in self.forge.open_issues(self.label)}
        return self._issues_by_number

    def _open_items(self) -> Mapping[str, Task]:
        if self._items_by_key is None:
            self._items_by_key = {task.key: task for task in self._items()}
        return self._items_by_key

    def _why_taken(self, issue: Issue) -> str | None:
        ours = [pull.number for pull in self.pulls]
        key = from_issue(issue).key

        def linked() -> list[PullRequest]:
            found = self.forge.linked_pull_requests(issue.number)
            # One that this cycle has opened is not among ours yet.
            return [pull for pull in found if key_of(pull.branch) != key]

        return rules.why_taken_by_others(issue, linked, ours, self.me)

    def task_of(self, issue: Issue) -> Task:
        """Return the task of an authorized issue. Its text is the one that was judged: it is not read again."""
        title, body = self.texts.clean_name(issue.title), self.texts.clean(issue.body)
        hidden = [f"title: {line}" for line in title.hidden] + [f"body: {line}" for line in body.hidden]
        kept = [f"body: {line}" for line in body.kept]

        def clean(text: str, author: str) -> str:
            seen, who = self.texts.clean(text), name_of_login(author)
            hidden.extend(f"comment by {who}: {line}" for line in seen.hidden)
            kept.extend(f"comment by {who}: {line}" for line in seen.kept)
            return seen.text

        comments = self._comments[issue.number] = self.forge.comments(issue.number)
        may = self.authorization.may_cause_work
        remarks = rules.choose_remarks(comments, self.comments_policy, may, clean)
        self.texts.report_hidden(f"issue #{issue.number}", hidden, kept)
        task = from_issue(replace(issue, title=title.text, body=body.text), remarks)
        return replace(task, usd_cap=self._cap(issue))

    def _cap(self, issue: Issue) -> float | None:
        """Return the cap that people who may cause work set on an issue, whose comments were read: the newest one."""
        for comment in reversed(self._comments.get(issue.number, ())):
            cap = rules.cap_in(comment.body)
            if cap is not None and self._is_of_writer(comment):
                return cap
        cap = rules.cap_in(f"{issue.title}\n{issue.body}")
        return cap if cap is not None and self.authorization.may_cause_work(issue.author) else None

    def why_unwanted(self, task: Task, *, is_named: bool) -> Unwanted | None:
        """Return why nobody wants the work on a begun task any more, or None. Two requests if nobody touched it.

        A pull request of others that closes an issue does not change the issue, so it is asked for each time.

        Args:
            is_named: whether a person named the task, so that its label does not matter.
        """
        if task.pull is not None and task.kind is not TaskKind.UNFINISHED:
            pull = self.forge.pull_request(task.pull.number)
            is_open = pull.state is PullRequestState.OPEN
            return (
                None
                if is_open
                else Unwanted(f"pull request #{pull.number} is {pull.state} now", is_over=True)
            )
        if task.number is None:
            return self._why_item_unwanted(task)
        try:
            issue = self.forge.issue(task.number)
        except ForgeNotFoundError as error:
            self.forge.repository()  # if that is hidden from us, too, the issue may well be there: an error
            return Unwanted(str(error), is_over=True)
        before, self._looked[task.number] = self._looked.get(task.number), issue
        if issue == before:
            reason = self._why_taken(issue)
            return None if reason is None else Unwanted(reason)
        now = self.texts.clean(issue.title).text, self.texts.clean(issue.body).text
        if task.kind is TaskKind.NEW and rules.asks_otherwise((task.title, task.body), now):
            return Unwanted(f"issue #{issue.number} was edited and asks for something else now")
        return self._why_issue_unwanted(issue, is_named=is_named or task.kind is TaskKind.UNFINISHED)

    def _why_issue_unwanted(self, issue: Issue, *, is_named: bool) -> Unwanted | None:
        if not issue.is_open:
            return Unwanted(f"issue #{issue.number} was closed", is_over=True)
        if not (is_named or self.authorization.wanted <= {name.lower() for name in issue.labels}):
            return Unwanted(f"the label {self.label!r} was taken off issue #{issue.number}")
        reason = self._why_taken(issue) or self._why_stopped_since(issue)
        return None if reason is None else Unwanted(reason)

    def _why_item_unwanted(self, task: Task) -> Unwanted | None:
        """Return why an item of a backlog file is not wanted any more, or None."""
        if task.source not in BACKLOG_FILES:
            return None
        text = self.forge.read_file(task.source) or ""
        if any(one.key == task.key for one in checklist(task.source, self.texts.clean(text).text)):
            return None
        return Unwanted(f"{task.source} does not list {task.title!r} as open any more")

    def why_stopped(self, issue: Issue) -> str | None:
        """Return why an issue is left alone because of the last comment of a person who may cause work, or None."""
        comments = self._comments.get(issue.number, ())
        if not any(rules.asks_to_stop(comment.body) for comment in comments):
            return None
        last = next((one for one in reversed(comments) if self._is_of_writer(one)), None)
        if last is None or not rules.asks_to_stop(last.body):
            return None
        by = name_of_login(last.author)
        return f"issue #{issue.number} was stopped by a comment of {by}: comment again to have it done"

    def _why_stopped_since(self, issue: Issue) -> str | None:
        """Return who asked that the work stops since an issue was chosen; None if nobody did."""
        known = self._comments.get(issue.number, ())
        for comment in self.forge.comments(issue.number):
            is_asked = comment not in known and rules.asks_to_stop(comment.body)
            if is_asked and self._is_of_writer(comment):
                return f"{name_of_login(comment.author)} asked on issue #{issue.number} to stop"
        return None

    def _is_of_writer(self, comment: Comment) -> bool:
        return not is_ours(comment.body) and self.authorization.may_cause_work(comment.author)

    def _with_cap(self, candidate: Candidate, number: int) -> Candidate:
        try:
            issue = self.forge.issue(number)
            self._comments[number] = self.forge.comments(number)
        except ForgeNotFoundError:
            return candidate
        task = replace(candidate.task, usd_cap=self._cap(issue))
        return replace(candidate, known=replace(candidate.known, task=task))

    def with_issue_text(self, candidate: Candidate) -> Candidate | str:
        """Return an issue's unfinished task with the issue's present text, or why the issue is left alone.

        Other tasks of an issue get its cap.
        """
        task = candidate.task
        if task.number is None:
            return candidate
        if task.kind is not TaskKind.UNFINISHED:
            return self._with_cap(candidate, task.number)
        try:
            issue = self.forge.issue(task.number)
        except ForgeNotFoundError as error:
            return f"its pull request is open, but {error}"
        if not issue.is_open:
            return f"issue #{issue.number} is closed"
        if (reason := self.why_not(issue)) is not None:
            return reason
        again = replace(self.task_of(issue), kind=task.kind, pull=task.pull)
        return replace(candidate, known=replace(candidate.known, task=again))


MOST_IDS = 500
"""The most feedback ids in a marker. A pull request lists at most a few hundred remarks."""
LOOK_AGAIN = timedelta(minutes=5)
"""Interval between two readings of running checks, which the forge's fingerprint does not show."""
CHECKS_BEGIN_WITHIN = timedelta(hours=1)
"""Checks may still appear on a pull request without any for this long after its last change."""
_UNSEEN = (
    "failed checks of pull requests are not seen: {}; give the token the permissions Checks: Read-only and "
    "Commit statuses: Read-only (pullwright doctor says where)"
)
_DESCRIPTION_CHARACTERS = 4000
_NAME_CHARACTERS = 80
# A link reference definition is not shown (https://spec.commonmark.org/0.31.2/#link-reference-definitions).
# An HTML comment cannot be used, because `Forge.ensure_comment` refuses them in its body.
_STATE = re.compile(r"^\[pullwright:state\]: # '(\{[^\n']*\})'$", re.MULTILINE)
# The program's own lines above a description, which a model does not need.
_OURS = re.compile(
    r"\A(?>(?:(?!\*{3}$|<sub>Opened by Pullwright, ).*\n)*)<sub>(?>(?:(?!\*{3}$).*\n)*)\*{3}\n", re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class UpkeepState:
    """What was done about one pull request.

    Attributes:
        rounds: rounds of work for reviews and failed checks.
        acted: the feedback that was acted on, as `kind-id`.
        checked: head commits whose failed checks were acted on.
        rebased: head commits whose conflict with the base was acted on.
    """

    rounds: int = 0
    acted: frozenset[str] = frozenset()
    checked: frozenset[str] = frozenset()
    rebased: frozenset[str] = frozenset()

    @property
    def marker(self) -> str:
        """The hidden line that stores this state in our comment with the key `status`."""
        acted = sorted(self.acted, key=lambda name: int(name.rpartition("-")[2]))[-MOST_IDS:]
        state = {"rounds": self.rounds, "acted": acted, "checked": sorted(self.checked)}
        return f"[pullwright:state]: # '{json.dumps({**state, 'rebased': sorted(self.rebased)})}'"


def read_state(feedback: Iterable[Feedback], is_me: Callable[[str], bool]) -> UpkeepState:
    """Return the state that our own comments store.

    A comment of ours may contain a model's words, and with them a forged marker. Several markers are
    therefore merged so that each can only prevent work: a forged one cannot make us do more.
    """
    rounds, acted, checked, rebased = 0, set[str](), set[str](), set[str]()
    for one in feedback:
        if one.kind is not FeedbackKind.COMMENT or not is_me(one.author):
            continue
        for found in _STATE.finditer(one.body):
            state = _parsed(found[1])
            count = state.get("rounds")
            if isinstance(count, int) and not isinstance(count, bool):
                rounds = max(rounds, count)
            acted |= _texts(state.get("acted"), r"(?:review|line|comment)-[0-9]{1,20}")
            checked |= _texts(state.get("checked"), r"[0-9a-f]{40,64}")
            rebased |= _texts(state.get("rebased"), r"[0-9a-f]{40,64}")
    return UpkeepState(rounds, frozenset(acted), frozenset(checked), frozenset(rebased))


def upkeep_in_words(pull: PullRequest, feedback: Sequence[Feedback], me: str | None, most_rounds: int) -> str:
    """Return what the program does about our open pull request, and when it stops."""
    state = read_state(feedback, lambda author: is_us(author, me))
    if state.rounds >= most_rounds:
        told = [f"revised {state.rounds} times, the limit: reviews and failed checks are left to people"]
    else:
        rest = most_rounds - state.rounds
        told = [f"follows reviews and failed checks, {rest} more time{'' if rest == 1 else 's'}"]
        told += ["not again the checks of this commit"] if pull.commit in state.checked else []
    is_rebased = pull.commit in state.rebased
    told.append("was rebased as this commit" if is_rebased else "rebases once for each commit that conflicts")
    return "; ".join(told)


def _parsed(text: str) -> dict[str, object]:
    try:
        state = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def _texts(value: object, form: str) -> set[str]:
    listed = value if isinstance(value, list) else []
    return {text for text in listed if isinstance(text, str) and re.fullmatch(form, text, re.ASCII)}


@dataclass(frozen=True, slots=True)
class Upkeep:
    """Judges our open pull requests. It asks no model."""

    search: TaskSearch

    def judge(self, pull: PullRequest) -> Task | NotNow | None:
        """Return the task of a pull request or why it has to wait; None if nothing is to do or it is not ours."""
        # A local folder knows no logins.
        has_login = bool(pull.author) or self.search.forge.token_kind() is not TokenKind.NONE
        if (has_login and not self._is_me(pull.author)) or not key_of(pull.branch):
            return None
        feedback = self.search.feedback(pull.number)
        state = read_state(feedback, self._is_me)
        if has_label(pull.labels, REBASE_LABEL):
            if self.search.is_label_trusted(pull.number, REBASE_LABEL):
                return self._rebase(pull, state)
            # The later steps must not read this label as a writer's permission to change people's commits.
            pull = replace(pull, labels=tuple(name for name in pull.labels if name.lower() != REBASE_LABEL))
        return self._judge_unlabelled(pull, feedback, state)

    def _judge_unlabelled(
        self, pull: PullRequest, feedback: Sequence[Feedback], state: UpkeepState
    ) -> Task | NotNow | None:
        """Judge a pull request without the label that asks for a rebase."""
        review = self._review(pull, feedback, state)
        if isinstance(review, Task) or (review is not None and review.until is not None):
            return review  # a push while people comment would make them read the change again
        if self.search.has_unfinished(key_of(pull.branch)):
            return replace(self._task(pull, TaskKind.UNFINISHED, state), status_marker="")
        checks = self._checks(pull, state)
        if isinstance(checks, Task):
            return checks
        if pull.commit not in state.rebased and self.search.has_conflict(pull.number):
            return self._rebase(pull, state)
        if review is None or checks is None:
            return review or checks
        return NotNow(review.reason, checks.until, checks.warning)

    def _is_me(self, author: str) -> bool:
        return is_us(author, self.search.me)

    def _review(
        self, pull: PullRequest, feedback: Sequence[Feedback], state: UpkeepState
    ) -> Task | NotNow | None:
        new = [one for one in feedback if self._may_be_task(one) and id_of(one) not in state.acted]
        new = [one for one in new if self.search.authorization.may_cause_work(one.author)]
        if not new:
            return None
        if state.rounds >= self.search.limits.review_rounds:
            return self._wait_for_person(pull)
        last = max(one.updated_at for one in new) - self.search.ahead
        quiet_at = last + timedelta(minutes=self.search.limits.quiet_minutes)
        if self.search.now < quiet_at:
            when = f"they become a task at {quiet_at:%H:%M} UTC"
            return NotNow(f"pull request #{pull.number} still gets comments: {when}", quiet_at)
        shown, remarks = self._remarks(pull, new)
        acted = state.acted | {id_of(one) for one in shown}
        after = replace(state, rounds=state.rounds + 1, acted=acted)
        return self._task(pull, TaskKind.REVIEW, after, remarks) if remarks else None

    def _may_be_task(self, one: Feedback) -> bool:
        """Return whether a remark can become a task. Approvals, dismissed reviews and resolved threads cannot."""
        is_settled = one.is_resolved or one.state in {"approved", "dismissed"}
        is_person = is_another_person(one.author, self.search.me) and not is_ours(one.body)
        return bool(one.body.strip()) and is_person and not is_settled

    def _remarks(
        self, pull: PullRequest, feedback: Sequence[Feedback]
    ) -> tuple[list[Feedback], tuple[Remark, ...]]:
        """Return the oldest feedback that fits, and its remarks. The rest is for the next round."""
        shown: list[Feedback] = []
        remarks: list[Remark] = []
        left = MOST_CHARACTERS
        for one in feedback:
            text = self.search.texts.text(
                one.body, f"pull request #{pull.number}, {one.kind} by {one.author}"
            ).strip()
            if one.path:
                line = f":{one.line}" if one.line is not None else ""
                text = f"`{self._line(one.path)}{line}`\n\n{text}"
            if remarks and (len(text) > left or len(remarks) == MOST_REMARKS):
                break
            shown.append(one)
            if text:
                remarks.append(Remark(one.author, cut(text, left), trusted=True))
                left -= len(remarks[-1].text)
        return shown, tuple(remarks)

    def _checks(self, pull: PullRequest, state: UpkeepState) -> Task | NotNow | None:
        if pull.commit in state.checked:
            return None
        try:
            checks = self.search.forge.checks(pull.commit)
        except ForgePermissionError as error:
            return NotNow(
                f"the checks of pull request #{pull.number} are not known: {error}",
                warning=_UNSEEN.format(error),
            )
        there = self.search.now + self.search.ahead
        is_young = pull.updated_at is not None and there - pull.updated_at < CHECKS_BEGIN_WITHIN
        if any(check.state is CheckState.RUNNING for check in checks) or (not checks and is_young):
            return NotNow("", self.search.now + LOOK_AGAIN)
        failed = [check for check in checks if check.state is CheckState.FAILED]
        if not failed:
            return None
        if state.rounds >= self.search.limits.review_rounds:
            return self._wait_for_person(pull)
        after = replace(state, rounds=state.rounds + 1, checked=frozenset({pull.commit}))
        trusted = self.search.trusted_checks(pull, failed)
        remarks = self._outputs(pull, trusted)
        return self._task(pull, TaskKind.CHECKS, after, remarks, trusted, len(failed) - len(trusted))

    def _outputs(self, pull: PullRequest, checks: Sequence[Check]) -> tuple[Remark, ...]:
        """Return the output of checks. Programs wrote it, so none of it is an instruction."""
        remarks: list[Remark] = []
        left = MOST_CHARACTERS
        for check in checks[:MOST_REMARKS]:
            name = self._line(check.name)
            text = self.search.texts.text(check.summary, f"pull request #{pull.number}, check {name}").strip()
            if text and left > 0:
                remarks.append(Remark(name, cut(text, left), trusted=False))
                left -= len(remarks[-1].text)
        return tuple(remarks)

    def _rebase(self, pull: PullRequest, state: UpkeepState) -> Task:
        return self._task(pull, TaskKind.REBASE, replace(state, rebased=frozenset({pull.commit})))

    def _task(  # noqa: PLR0913, PLR0917  all that a task about a pull request is made of
        self,
        pull: PullRequest,
        kind: TaskKind,
        after: UpkeepState,
        remarks: tuple[Remark, ...] = (),
        failed: Sequence[Check] = (),
        untold: int = 0,
    ) -> Task:
        """Return a task about a pull request. `untold` failed checks are not named to the model."""
        key = key_of(pull.branch)
        issue = issue_of(key)
        title = self._line(pull.title, len(pull.title))
        description = self.search.texts.text(
            _OURS.sub("", OUR_COMMENT.sub("", pull.body), count=1),
            f"pull request #{pull.number}, description",
        ).strip()
        body = render(
            "worker/upkeep",
            kind=kind.value,
            number=pull.number,
            url=pull.url,
            base=self._line(pull.base),
            checks=[f"`{self._line(check.name)}`" for check in failed[:MOST_REMARKS]],
            untold=untold,
            title=title,
            description=cut(description, _DESCRIPTION_CHARACTERS),
        )
        source = "issue" if issue is not None else "pull request"
        return Task(
            key, title, body, source, issue, pull.url, remarks, kind, pull, status_marker=after.marker
        )

    def _wait_for_person(self, pull: PullRequest) -> NotNow:
        rounds = self.search.limits.review_rounds
        return NotNow(
            f"pull request #{pull.number} was revised {rounds} times, the limit of --review-rounds: finish it yourself"
        )

    def _line(self, text: str, limit: int = _NAME_CHARACTERS) -> str:
        return cut(" ".join(self.search.texts.line(text).replace("`", "'").split()), max(1, limit))
