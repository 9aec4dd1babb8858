"""One look at the forge: what was found in it, each thing asked once, and why nothing else was."""

from __future__ import annotations

import shlex
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, REBASE_LABEL, RETRY_LABEL, Task, TaskKind, key_of
from orchestrator.bot.forge.base import ACTIONS_APP, PullRequestState, TokenKind
from orchestrator.bot.worker import manners as rules
from orchestrator.bot.worker.admission import Admission
from orchestrator.bot.worker.manners import has_label, is_reviewed
from orchestrator.bot.worker.upkeep import Upkeep
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)
from orchestrator.core.repositories import Commands

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from orchestrator.bot.forge.base import Check, Feedback, Forge, PullRequest
    from orchestrator.bot.worker.manners import Manners, NotNow

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
            return f"{rules.name_of(ready.task)}: its pull request is not open any more"
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
        found = rules.why_no_new_task(pulls, self.manners, self.now, self._is_reviewed, others, self.commands)
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
