"""Good manners: when no new task is begun, and which issues are somebody else's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.tasks import RETRY_LABEL
from orchestrator.bot.forge.base import FeedbackKind, PullRequestState
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import Feedback, Issue, PullRequest

_NAMED = 5


@dataclass(frozen=True, slots=True)
class Manners:
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


def why_no_new_task(  # noqa: PLR0913, PLR0917  what there is, the limits, and how a reason is told
    pulls: Sequence[PullRequest],
    manners: Manners,
    now: datetime,
    is_reviewed: Callable[[PullRequest], bool],
    in_flight: int = 0,
    commands: Commands = Commands(),  # noqa: B008  a frozen value
) -> NotNow | None:
    """Why no new task is begun, or None.

    Args:
        pulls: all of ours.
        manners: the limits.
        now: in UTC.
        is_reviewed: whether a person said something about one; asked of open ones only where it matters.
        in_flight: tasks that other workers have begun and not proposed yet; each counts as a pull request.
        commands: what a reason tells a person to type.
    """
    is_open = [pull for pull in pulls if pull.state is PullRequestState.OPEN]
    others = f" and {in_flight} in work elsewhere" if in_flight else ""
    if len(is_open) + in_flight >= manners.max_open_prs:
        return NotNow(
            f"{len(is_open)} pull requests are open{others}, and --max-open-prs is {manners.max_open_prs}: "
            f"merge or close {_list(is_open)}{f' ({commands.close(is_open[-1].number)})' if is_open else ''}"
        )
    today = [
        pull for pull in pulls if pull.created_at and pull.created_at.astimezone(UTC).date() == now.date()
    ]
    if len(today) + in_flight >= manners.max_prs_per_day:
        midnight = datetime(now.year, now.month, now.day, tzinfo=UTC) + timedelta(days=1)
        return NotNow(
            f"{len(today)} pull requests were opened today{others}, and --max-prs-per-day is "
            f"{manners.max_prs_per_day}: the next one may be at {midnight:%Y-%m-%d %H:%M} UTC",
            midnight,
        )
    if len(is_open) + in_flight < manners.max_unreviewed:
        return None
    unseen = [pull for pull in is_open if not is_reviewed(pull)]
    if len(unseen) + in_flight < manners.max_unreviewed:
        return None
    return NotNow(
        f"nobody has looked at {len(unseen)} pull requests yet{others}, and --max-unreviewed is "
        f"{manners.max_unreviewed}: review or comment on {_list(unseen)}"
    )


def is_reviewed(said: Iterable[Feedback], me: str | None) -> bool:
    """Whether a person other than us reviewed or commented. A dismissed review was one."""
    return any(
        is_somebody_elses(one.author, me)
        and (one.body.strip() or (one.kind is FeedbackKind.REVIEW and one.state != "commented"))
        for one in said
    )


def is_somebody_elses(author: str, me: str | None) -> bool:
    """Whether words are those of a person who is not us. A bot's, and those of an account that is gone, are not."""
    return bool(author) and not author.endswith("[bot]") and (me is None or author.lower() != me.lower())


def why_hands_off(
    issue: Issue, linked: Callable[[], Iterable[PullRequest]], ours: Iterable[int], me: str | None
) -> str | None:
    """Why an issue is somebody else's, or None.

    Args:
        issue: as it was listed.
        linked: reads the open pull requests that say they close it; asked where nobody is assigned.
        ours: numbers of our own pull requests.
        me: our login, where it is known.
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
        task: the task.
        pulls: all of ours.
        labels: of its issue, if it is one.
        is_asked: whether a label, on a number, was put on by somebody who may cause work; asked where it is on.
        by_hand: whether a person asked for another try by `pullwright retry`.
        commands: what a reason tells a person to type.

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
