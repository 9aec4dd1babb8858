"""What a claimed task continues: what was saved, which answer counts, and whether somebody else changed it meanwhile."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.claimer import Claimer, branches_of
from orchestrator.bot.cycle.earlier import Earlier, UnfinishedState, files_to_keep, pages_of
from orchestrator.bot.cycle.tasks import Remark, Task, TaskKind
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.git.base import Packed
from orchestrator.core.errors import RemoteUnavailableError
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY = "issue-7"
TASK = Task(KEY, "Add", "", "issue", 7)
STATE = UnfinishedState("run-0", "limit", "m", "c", "p", attempts=2)
ASKED = replace(STATE, question="Which?\n\n1. One\n2. Two", question_url="https://f/7#q")
LEFT = Earlier(STATE, None, wip_ref(KEY), "1" * 40)
PULL = PullRequest(
    9, "Add", "", "u", False, PullRequestState.CLOSED, "pullwright/issue-7-add", "main", "2" * 40
)


class Kept:
    """The work that is kept on this machine."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}
        self.aside: str | None = None

    def read(self, key: str) -> dict[str, bytes] | None:
        return self.files.get(key)

    def keys(self) -> set[str]:
        return set(self.files)

    def set_aside(self, key: str) -> str | None:
        return self.aside and f"{self.aside}/{key}"


@dataclass(slots=True)
class Searching(Claimer):
    """A claimer that finds on the remote what it is told."""

    remote: dict[str, Earlier] = field(default_factory=dict)

    def _on_remote(self, key: str, seen: Mapping[str, str]) -> Earlier | None:
        del seen
        return self.remote.get(key)

    def unfinished(self) -> set[str]:
        return set(self.remote)


def searching(**values: Any) -> tuple[Searching, list[str]]:
    warned: list[str] = []
    given: dict[str, Any] = {
        "records": SimpleNamespace(list=lambda _ref: {}),
        "claims": None,
        "forge": SimpleNamespace(our_pull_requests=lambda _folders: [PULL], comments=lambda _number: []),
        "run": "run-1",
        "dead_runs": (),
        "named": False,
        "may": lambda _who: True,
        "clean": lambda text, _who: text,
        "why_over_budget": lambda _spent: None,
        "kept": Kept(),
        "warn": warned.append,
        "_seen": {},
        **values,
    }
    return Searching(**given), warned


def continued(
    found: Earlier | None, task: Task = TASK, seen: Mapping[str, str] | None = None, **values: Any
) -> Any:
    claimer, _ = searching(**values)
    if found is not None:
        claimer.remote[task.key] = found
    return claimer._to_continue(task, seen or {})


def test_work_that_is_gone_is_no_task_any_more() -> None:
    assert continued(None) is None
    said = continued(None, replace(TASK, kind=TaskKind.UNFINISHED))
    assert said == "issue-7 was finished by another worker just now"


@table(
    ("task", "retried", "attempts"),
    [
        (TASK, {}, 2),
        (replace(TASK, is_retry=True), {}, 0),
        (TASK, {KEY: "by hand n"}, 0),
        (TASK, {"issue-8": "x"}, 2),
    ],
)
def test_another_try_begins_to_count_anew(task: Task, retried: dict[str, str], attempts: int) -> None:
    found = continued(LEFT, task, _retried=retried)
    assert found.state.attempts == attempts
    assert found.answer is None


@table(
    ("values", "answer"),
    [
        ({"answer": "2"}, Remark("", "2. Two", trusted=True)),
        ({"kept_answer": lambda key, run: f"{key} {run}"}, Remark("", "issue-7 run-0", trusted=True)),
        ({"answer": "Mine.", "kept_answer": lambda _key, _run: "Kept."}, Remark("", "Mine.", trusted=True)),
        ({}, None),
    ],
)
def test_whose_answer_counts(values: dict[str, Any], answer: Remark | None) -> None:
    assert continued(replace(LEFT, state=ASKED), **values).answer == answer


def test_a_task_without_a_page_has_no_comments_to_read() -> None:
    def comments(_number: int) -> list[Any]:
        raise AssertionError("there is no page")

    forge: Any = SimpleNamespace(comments=comments)
    task = replace(TASK, key="text-1", number=None, source="text")
    assert continued(replace(LEFT, state=ASKED), task, forge=forge).answer is None


@table(
    ("found", "others", "named", "words"),
    [
        (None, {}, False, "issue-7 has no open question that --answer could be for"),
        (LEFT, {}, False, "issue-7 has no open question"),
        (replace(LEFT, state=ASKED), {}, False, ""),
        (replace(LEFT, state=ASKED), {"issue-8": LEFT}, False, ""),
        (replace(LEFT, state=ASKED), {"issue-8": replace(LEFT, state=ASKED)}, True, ""),
        (replace(LEFT, state=ASKED), {"issue-8": replace(LEFT, state=ASKED)}, False, "2 tasks wait for an answer; name the task of this answer: "),
    ],
)  # fmt: skip
def test_an_answer_is_for_the_one_task_that_waits(
    found: Earlier | None, others: dict[str, Earlier], *, named: bool, words: str
) -> None:
    claimer, _ = searching(answer="Two.", named=named, remote=dict(others))
    if found is not None:
        claimer.remote[KEY] = found
    said = claimer._to_continue(TASK, {})
    assert isinstance(said, str) is bool(words)
    assert words in str(said)
    if "2 tasks" in words:
        assert "issue-7" in str(said)
        assert "issue-8" in str(said)


def kept_files(**state: Any) -> dict[str, bytes]:
    pages = pages_of(replace(STATE, **state), (), Redactor())
    return files_to_keep(Packed("3" * 40, "4" * 40, "4" * 40, b""), pages, "1" * 40)


@table(
    ("state", "remote", "seen", "commit", "is_kept"),
    [
        ({}, None, {}, None, True),
        ({}, LEFT, {}, "1" * 40, True),  # the remote has what this machine went on from
        ({}, replace(LEFT, commit="5" * 40), {}, "5" * 40, False),
        ({"tip": "6" * 40}, None, {"refs/heads/pullwright/issue-7-add": "6" * 40}, None, True),
        ({"tip": "6" * 40}, None, {"refs/heads/pullwright/issue-7-add": "7" * 40}, None, False),
    ],
)
@table("aside", [None, "/old"])
def test_what_this_machine_keeps_goes_before_what_is_older(  # noqa: PLR0913  a table
    state: dict[str, Any], remote: Earlier | None, seen: dict[str, str], commit: str | None, *, is_kept: bool, aside: str | None
) -> None:  # fmt: skip
    kept = Kept()
    kept.files[KEY], kept.aside = kept_files(**state), aside
    claimer, warned = searching(kept=kept)
    if remote is not None:
        claimer.remote[KEY] = remote
    found = claimer._to_continue(TASK, seen)
    work = found.work if isinstance(found, Earlier) else None
    assert (work == "3" * 40) is is_kept
    if isinstance(found, Earlier) and (is_kept or remote is not None):
        assert found.commit == commit
    told = [f"issue-7 was continued elsewhere; this machine's older work on it was moved to {aside}/issue-7"]
    assert warned == (told if aside and not is_kept else [])


ONE, TWO = "refs/heads/pullwright/issue-7-add", "refs/heads/pullwright/issue-7-sum"


@table(
    ("task", "seen", "branch", "tip"),
    [
        (TASK, {}, "", ""),
        (
            TASK,
            {"refs/heads/pullwright/issue-71-add": "8" * 40, "refs/tags/pullwright/issue-7-add": "8" * 40},
            "",
            "",
        ),
        (TASK, {TWO: "8" * 40, ONE: "9" * 40}, "pullwright/issue-7-add", "9" * 40),
        (replace(TASK, title="Sum"), {TWO: "8" * 40, ONE: "9" * 40}, "pullwright/issue-7-sum", "8" * 40),
        (replace(TASK, title="New"), {TWO: "8" * 40, ONE: "9" * 40}, "pullwright/issue-7-add", "9" * 40),
        (replace(TASK, pull=PULL), {ONE: "9" * 40}, "", "2" * 40),
        (replace(TASK, is_retry=True), {ONE: "2" * 40}, "", ""),  # of its closed pull request
        (replace(TASK, is_retry=True), {ONE: "9" * 40}, "pullwright/issue-7-add", "9" * 40),
        (TASK, {ONE: "2" * 40}, "pullwright/issue-7-add", "2" * 40),
    ],
)
def test_a_pushed_branch_without_a_pull_request(
    task: Task, seen: dict[str, str], branch: str, tip: str
) -> None:
    claimer, _ = searching()
    assert claimer._unproposed(task, seen) == (branch, tip)
    found = claimer._to_continue(task, seen)
    assert (found.branch if isinstance(found, Earlier) else "") == branch


class Lease:
    """A claim that remembers whether it was given back."""

    def __init__(self, previous: object) -> None:
        self.previous, self.is_given_back = previous, False

    def undo_claim(self) -> None:
        self.is_given_back = True
        raise RemoteUnavailableError("away")


@pytest.mark.parametrize(
    ("previous", "now", "found", "changed"),
    [
        (None, {wip_ref(KEY): "5" * 40}, None, False),  # nobody was there who could change it
        ("somebody", {}, None, False),
        ("somebody", {wip_ref(KEY): "1" * 40}, LEFT, False),
        ("somebody", {wip_ref(KEY): "5" * 40}, LEFT, True),
        ("somebody", {wip_ref(KEY): "5" * 40}, None, True),
        ("somebody", {}, LEFT, True),
        ("somebody", {ONE: "9" * 40}, None, True),
        ("somebody", RemoteUnavailableError("away"), None, True),
    ],
)
def test_work_that_changed_since_it_was_read_is_not_continued(
    previous: object, now: Any, found: Earlier | None, *, changed: bool
) -> None:
    def tips(_refs: object) -> dict[str, str]:
        if isinstance(now, Exception):
            raise now
        return dict(now)

    records: Any = SimpleNamespace(tips=tips)
    claimer, _ = searching(records=records)
    lease: Any = Lease(previous)
    if isinstance(now, Exception):
        with pytest.raises(RemoteUnavailableError):
            claimer._has_changed(TASK, found, lease, {})
    else:
        assert claimer._has_changed(TASK, found, lease, {}) is changed
    assert lease.is_given_back is changed


def test_the_branches_of_a_task_are_those_with_its_key() -> None:
    seen = {
        ONE: "1",
        "refs/heads/pullwright/issue-70-add": "2",
        "refs/pullwright/wip/issue-7": "3",
        "refs/heads/main": "4",
    }
    assert branches_of(TASK, seen) == {"pullwright/issue-7-add": "1"}
