"""Turns our open pull requests into tasks: feedback of people who may write, failed checks, and a moved base."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.cycle.tasks import REBASE_LABEL, Remark, Task, TaskKind, is_ours, key_of
from orchestrator.bot.forge.base import CheckState, FeedbackKind, TokenKind
from orchestrator.bot.worker.task_rules import NotNow, has_label, id_of, is_another_person, is_us
from orchestrator.core.errors import ForgePermissionError
from orchestrator.core.prompts import render

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator.bot.forge.base import Check, Feedback, PullRequest
    from orchestrator.bot.worker.candidates import TaskSearch

MOST_CHARACTERS = 20_000
"""The most characters of all remarks of one round together."""
MOST_REMARKS = 50
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
_HIDDEN = re.compile(r"<!-- pullwright:[^\n]* -->")
# The program's own lines above a description, which a model does not need.
_OURS = re.compile(
    r"\A(?:(?!\*{3}$).*\n)*?<sub>Opened by Pullwright, (?:(?!\*{3}$).*\n)*?\*{3}\n", re.MULTILINE
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
        """Return the task of a pull request or why it has to wait; None if nothing is to do or it is not ours.

        Raises:
            ForgeError: the forge failed, or does not tell who may write.
        """
        # A local folder knows no logins.
        has_login = bool(pull.author) or self.search.forge.token_kind() is not TokenKind.NONE
        if (has_login and not self._is_me(pull.author)) or key_of(pull.branch) is None:
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
        if self.search.has_unfinished((key_of(pull.branch) or ("", None))[0]):
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
        quiet_at = max(one.updated_at for one in new) + timedelta(minutes=self.search.limits.quiet_minutes)
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
                remarks.append(Remark(one.author, _cut(text, left), trusted=True))
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
        is_young = pull.updated_at is not None and self.search.now - pull.updated_at < CHECKS_BEGIN_WITHIN
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
                remarks.append(Remark(name, _cut(text, left), trusted=False))
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
        key, issue = key_of(pull.branch) or ("", None)
        title = self._line(pull.title, len(pull.title))
        description = self.search.texts.text(
            _OURS.sub("", _HIDDEN.sub("", pull.body), count=1), f"pull request #{pull.number}, description"
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
            description=_cut(description, _DESCRIPTION_CHARACTERS),
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
        return _cut(" ".join(self.search.texts.line(text).replace("`", "'").split()), max(1, limit))


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
