"""Rules for choosing tasks: who may cause work, how much is asked of reviewers, and which tasks are not taken again."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Literal, TypeAlias

from orchestrator.bot.cycle.tasks import ONBOARDING, RETRY_LABEL, Remark, is_ours
from orchestrator.bot.forge.base import FeedbackKind, PullRequestState
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import Comment, Edit, Feedback, Forge, Issue, IssueHistory, PullRequest


class TaskAuthorization:
    """Decides who may cause work, by what the forge says that people may do, never by their names. It asks no model.

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

    def may_cause_work(self, login: str | None) -> bool:
        """Whether this person or bot may cause work. Nobody, an account that is gone, never may."""
        name = _same(login or "")
        return bool(name) and (name in self._allowed or self._forge.permission(name).may_write)

    def allows_app(self, app: str) -> bool:
        """Whether the person who runs the program named this app among those who may cause work."""
        return bool(app) and _same(f"{app}[bot]") in self._allowed

    def why_refused(self, issue: Issue) -> str | None:
        """Why an issue is not taken, in one line, or None if it may be.

        The issue must have been read before this is asked. The history is read now, so an edit
        between the two is judged although its text is not used; the other way round, a text
        that nobody judged could be used.
        """
        by_writer = self.may_cause_work(issue.author)
        has_label = self._wanted <= {name.lower() for name in issue.labels}
        if not by_writer and not has_label:
            return f"{_who(issue)}, who may not write to the repository: {self._remedy(issue.author)}"
        history = self._forge.history(issue.number, self._label)
        if not history.is_complete:
            return f"issue #{issue.number} has more edits than can be judged: open a new issue with its text"
        # The author vouches for the text but for others' edits, the labeller for what was there to see.
        refusal = self._edited(issue, history.edits) if by_writer else self._unlabelled(issue, history)
        if refusal is None or not has_label or not self.may_cause_work(history.labelled_by):
            return refusal
        return self._edited_since(issue, history)

    def why_label_refused(self, number: int, label: str) -> str | None:
        """Why a label on an issue or pull request counts for nothing, in one line, or None if it counts.

        Args:
            number: the issue's or pull request's; the label was seen on it.
            label: any, also other than the one that asks for work.
        """
        by = self._forge.labelled_by(number, label)
        if self.may_cause_work(by):
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
        return next((edit for edit in edits if not self.may_cause_work(edit.editor)), None)

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


CommentsPolicy: TypeAlias = Literal["none", "writers", "quoted"]
"""Whose comments a model is told: nobody's, those of people who may cause work, or everybody's with that flag."""

MOST_REMARKS = 50
MOST_CHARACTERS = 20_000
"""Of all remarks together."""


def choose_remarks(
    comments: Sequence[Comment],
    policy: CommentsPolicy,
    may: Callable[[str], bool],
    clean: Callable[[str, str], str],
) -> tuple[Remark, ...]:
    """The remarks that the policy lets through, oldest first.

    What the program itself wrote is left out: it may be a model's words under the name of somebody
    who may write. Where there are too many, the newest stay, and a stranger's go before others.

    Args:
        comments: oldest first.
        may: whether somebody may cause work.
        clean: a text without what people do not see; told who wrote it.
    """
    if policy == "none":
        return ()
    judged = [(comment, may(comment.author)) for comment in comments]
    wanted = [
        (at, comment, trusted)
        for at, (comment, trusted) in enumerate(judged)
        if (trusted and not is_ours(comment.body)) or (not trusted and policy == "quoted")
    ]
    wanted.sort(key=lambda entry: (not entry[2], -entry[0]))
    kept: dict[int, Remark] = {}
    left = MOST_CHARACTERS
    for at, comment, trusted in wanted[:MOST_REMARKS]:
        text = clean(comment.body, comment.author).strip()
        if text and left > 0:
            shown = text if len(text) <= left else f"{text[: left - 1]}…"
            kept[at] = Remark(comment.author, shown, trusted)
            left -= len(shown)
    return tuple(kept[at] for at in sorted(kept))


_NAMED = 5


@dataclass(frozen=True, slots=True)
class ReviewLimits:
    """How much is asked of the people who review.

    Attributes:
        max_open_prs: open pull requests of ours with which no new task is begun.
        max_prs_per_day: as many, opened in the UTC day.
        max_unreviewed: as many, open and without a word of a person.
        review_rounds: how often one pull request is worked over for reviews and failed checks.
        quiet_minutes: without a further word, before words become a task.
    """

    max_open_prs: int = 3
    max_prs_per_day: int = 10
    max_unreviewed: int = 2
    review_rounds: int = 3
    quiet_minutes: float = 10.0


@dataclass(frozen=True, slots=True)
class NotNow:
    """Why something waits. `until` is None where it is not known, or up to people; `warning`: a person should know."""

    reason: str
    until: datetime | None = None
    warning: str = ""


def why_not_set_up(pulls: Iterable[PullRequest]) -> str | None:
    """Why nothing at all is done: people have not decided yet about the pull request that sets the repository up."""
    waiting = [pull for pull in pulls if pull.branch in ONBOARDING and pull.state is PullRequestState.OPEN]
    return (
        f"{waiting[0].url} sets Pullwright up and is open: merge it first, or close it" if waiting else None
    )


def why_no_new_task(  # noqa: PLR0913, PLR0917  what there is, the limits, and how a reason is told
    pulls: Sequence[PullRequest],
    limits: ReviewLimits,
    now: datetime,
    is_reviewed: Callable[[PullRequest], bool],
    in_flight: int = 0,
    commands: Commands = Commands(),  # noqa: B008  a frozen value
) -> NotNow | None:
    """Why no new task is begun, or None.

    Args:
        is_reviewed: whether a person said something about one; asked of open ones only where it matters.
        in_flight: tasks that other workers have begun and not proposed yet; each counts as a pull request.
    """
    is_open = [pull for pull in pulls if pull.state is PullRequestState.OPEN]
    others = f" and {in_flight} in work elsewhere" if in_flight else ""
    if len(is_open) + in_flight >= limits.max_open_prs:
        return NotNow(
            f"{len(is_open)} pull requests are open{others}, and --max-open-prs is {limits.max_open_prs}: "
            f"merge or close {_list(is_open)}{f' ({commands.close(is_open[-1].number)})' if is_open else ''}"
        )
    today = [
        pull for pull in pulls if pull.created_at and pull.created_at.astimezone(UTC).date() == now.date()
    ]
    if len(today) + in_flight >= limits.max_prs_per_day:
        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
        return NotNow(
            f"{len(today)} pull requests were opened today{others}, and --max-prs-per-day is "
            f"{limits.max_prs_per_day}: the next one may be at {midnight:%Y-%m-%d %H:%M} UTC",
            midnight,
        )
    if len(is_open) + in_flight < limits.max_unreviewed:
        return None
    unseen = [pull for pull in is_open if not is_reviewed(pull)]
    if len(unseen) + in_flight < limits.max_unreviewed:
        return None
    return NotNow(
        f"nobody has looked at {len(unseen)} pull requests yet{others}, and --max-unreviewed is "
        f"{limits.max_unreviewed}: review or comment on {_list(unseen)}"
    )


def is_reviewed(said: Iterable[Feedback], me: str | None) -> bool:
    """Whether a person other than us reviewed or commented. A dismissed review was one."""
    return any(
        is_somebody_elses(one.author, me)
        and (one.body.strip() or (one.kind is FeedbackKind.REVIEW and one.state != "commented"))
        for one in said
    )


def is_us(author: str, me: str | None) -> bool:
    """Whether somebody is us; any bot may be where the forge does not tell our name."""
    return author.endswith("[bot]") if me is None else author.lower() == me.lower()


def is_somebody_elses(author: str, me: str | None) -> bool:
    """Whether words are those of a person who is not us. A bot's, and those of an account that is gone, are not."""
    return bool(author) and not author.endswith("[bot]") and (me is None or author.lower() != me.lower())


def why_somebody_elses(
    issue: Issue, linked: Callable[[], Iterable[PullRequest]], ours: Iterable[int], me: str | None
) -> str | None:
    """Why an issue is somebody else's, or None.

    Args:
        linked: reads the open pull requests that say they close it; asked where nobody is assigned.
        ours: numbers of our own pull requests.
    """
    others = [name for name in issue.assignees if me is None or name.lower() != me.lower()]
    if others:
        return f"issue #{issue.number} is assigned to {', '.join(others[:_NAMED])}: unassign it to have it done here"
    mine = set(ours)
    for pull in linked():
        if pull.number in mine or (me is not None and pull.author.lower() == me.lower()):
            continue
        author = pull.author or "an account that is gone"
        return f"issue #{issue.number} has an open pull request of {author}, {pull.url}"
    return None


def why_not_again(  # noqa: PLR0913  a task, what is known of it, and how it is told
    task: Task,
    pulls: Iterable[PullRequest],
    labels: Iterable[str],
    is_asked: Callable[[int, str], bool],
    *,
    by_hand: bool = False,
    commands: Commands = Commands(),  # noqa: B008  a frozen value
) -> tuple[str | None, tuple[int, ...]]:
    """Why a task is not taken: it has a pull request of ours.

    One that was closed unmerged is a "no", unless it or the issue has the label for another try.

    Args:
        is_asked: whether a label, on a number, was put on by somebody who may cause work; asked where it is on.
        by_hand: whether a person asked for another try by `pullwright retry`.

    Returns:
        The reason, or None; and the numbers of what has that label.
    """
    ours = [pull for pull in pulls if task.has_branch(pull.branch)]
    by_state = {state: [pull for pull in ours if pull.state is state] for state in PullRequestState}
    if found := by_state[PullRequestState.OPEN]:
        there = f"{found[0].url}: review it, or {commands.close(found[0].number)}"
        return f"{name_of(task)} has an open pull request, {there}", ()
    if found := by_state[PullRequestState.MERGED]:
        return f"{name_of(task)} was done by {found[0].url}", ()
    closed = by_state[PullRequestState.CLOSED]
    labelled = [pull.number for pull in closed if has_label(pull.labels, RETRY_LABEL)]
    if task.number is not None and has_label(labels, RETRY_LABEL):
        labelled.insert(0, task.number)
    labelled = [number for number in labelled if is_asked(number, RETRY_LABEL)]
    if closed and not labelled and not by_hand:
        again = commands.retry(task.key)
        return (
            f"{name_of(task)} was declined: {closed[0].url} is closed unmerged; for another try: {again}",
            (),
        )
    return None, tuple(labelled)


def name_of(task: Task) -> str:
    """How a task is named in a reason."""
    return f"issue #{task.number}" if task.number else f"the task {task.title!r}"


def has_label(labels: Iterable[str], label: str) -> bool:
    """Whether a label is among some, in whatever letters."""
    return label in {name.lower() for name in labels}


def _list(pulls: Sequence[PullRequest]) -> str:
    named = ", ".join(f"#{pull.number}" for pull in pulls[:_NAMED])
    more = len(pulls) - _NAMED
    return (f"{named} and {more} more" if more > 0 else named) or "one of them"
