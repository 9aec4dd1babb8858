"""Which task may be claimed: answers of people, names on the remote, and old tombstones that go."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.coordination.claims import KEPT_DAYS, Lease, remove_tombstones
from orchestrator.bot.coordination.saved_work import wip_ref
from orchestrator.bot.cycle.claimer import MOST_AT_ONCE, Claimer, Pruning, RemoteNames
from orchestrator.bot.cycle.task_state import KnownTask
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS, Remark, find_answer, from_text, key_of, with_choice
from orchestrator.bot.forge.base import Comment, Issue, Proposal, PullRequest, PullRequestState
from orchestrator.bot.git.remote import in_the_way
from orchestrator.bot.journal.folders import KeptWork
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import (
    ClaimLostError,
    ConfigurationError,
    EmptyRepositoryError,
    ForgeUnavailableError,
    RemoteRefusedError,
)
from tests.doubles.github.faults import Fault
from tests.doubles.memory_forge import MemoryForge
from tests.tables import table
from tests.unit.bot.coordination.records_rig import Worker, bare, put
from tests.unit.bot.git.rig import git

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.cycle.tasks import Task
    from tests.unit.bot.conftest import World

START = datetime(2026, 11, 21, tzinfo=UTC)
QUESTION = "Floats too?\n\n1. Yes, with rounding\n2. No"
ASKED = "https://example.com/1#c10"


def comment(number: int, author: str, body: str) -> Comment:
    at = START + timedelta(minutes=number)
    return Comment(number, author, body, at, f"https://example.com/1#c{number}")


def answer(*comments: Comment, url: str = ASKED) -> Remark | None:
    return find_answer(
        comments, QUESTION, url, lambda login: login in {"maint", "bot"}, lambda text, _who: text
    )


OURS = comment(10, "bot", "**Question**\n\n<!-- pullwright:question:issue-1 -->")


def test_nobody_answered() -> None:
    assert answer(OURS) is None


def test_what_was_said_before_is_no_answer() -> None:
    assert answer(comment(9, "maint", "2"), OURS) is None


def test_a_stranger_is_not_heard() -> None:
    assert answer(OURS, comment(11, "stranger", "1"), comment(12, "maint", "2")) == Remark(
        "maint", "2. No", trusted=True
    )


def test_the_first_answer_counts() -> None:
    found = answer(OURS, comment(11, "maint", "1"), comment(12, "maint", "2"))
    assert found == Remark("maint", "1. Yes, with rounding", trusted=True)


def test_our_own_words_are_no_answer() -> None:
    ours = comment(11, "bot", "Working on it.\n\n<!-- pullwright:comment -->")
    assert answer(OURS, ours) is None


def test_a_copy_of_the_question_elsewhere_is_not_the_question() -> None:
    copy = comment(5, "stranger", OURS.body)
    assert answer(copy, comment(6, "maint", "1"), url="https://example.com/1#gone") is None


@table(
    ("words", "said"),
    [
        ("2", "2. No"),
        (" 1. ", "1. Yes, with rounding"),
        ("#2", "2. No"),
        ("Option 2", "2. No"),
        ("2) but only for add()", "2. No\n\nbut only for add()"),
        ("3", "3"),
        ("Neither: use Decimal", "Neither: use Decimal"),
        ("2026 is fine", "2026 is fine"),
    ],
)
def test_a_number_stands_for_its_choice(words: str, said: str) -> None:
    assert with_choice(words, QUESTION) == said


HEADS = "refs/heads/"
TASK = replace(from_text("Fix it"), key="issue-12", title="Add subtracts")
BRANCH = "pullwright/issue-12-add-subtracts"
NAMES = ["a", "a/b", "a/b/c", "ab", "a-b", "a/bc", "b", "b/a", "a/b/c/d", "a.b/c"]


def remote(*branches: str) -> RemoteNames:
    return RemoteNames({f"{HEADS}{name}" for name in ("main", *branches)}, "octo/calc")


def test_git_refuses_the_names_that_are_in_each_others_way(tmp_path: Path) -> None:
    path = bare(tmp_path)
    pairs = [(there, name) for there in NAMES for name in NAMES if there != name]
    for number, (there, name) in enumerate(pairs):
        at = f"{HEADS}{number}/"
        script = f"start\ncreate {at}{there} main\ncommit\nstart\ncreate {at}{name} main\ncommit\n"
        done = subprocess.run(
            ["git", "-C", str(path), "update-ref", "--stdin"],
            input=script.encode(),
            capture_output=True,
            check=False,
        )
        assert (in_the_way(at + name, [at + there]) is not None) == (done.returncode != 0), (there, name)


@table(
    ("there", "branch"),
    [
        ([], BRANCH),
        ([BRANCH], BRANCH),
        (["pullwright/issue-12-other", "pullwright-x", "x/pullwright"], BRANCH),
        (["pullwright"], "pullwright-tasks/issue-12-add-subtracts"),
        (["PullWright"], "pullwright-tasks/issue-12-add-subtracts"),
        ([f"{BRANCH}/x"], f"{BRANCH}-2"),
        ([f"{BRANCH}/x", f"{BRANCH}-2/y"], f"{BRANCH}-3"),
        ([BRANCH.upper()], f"{BRANCH}-2"),
        (["pullwright/issue-12-task/x"], f"{BRANCH}-2"),
        (
            ["pullwright", "pullwright-tasks/issue-12-add-subtracts/x"],
            "pullwright-tasks/issue-12-add-subtracts-2",
        ),
    ],
)
def test_a_branch_gets_a_name_that_is_free_and_still_the_tasks(there: list[str], branch: str) -> None:
    named = remote(*there).named(TASK)
    assert named.branch == branch
    assert key_of(named.branch) == key_of(named.plain_branch) == "issue-12"
    assert remote(*reversed(there)).named(TASK) == named


def test_where_all_folders_are_taken_that_is_said() -> None:
    with pytest.raises(RemoteRefusedError, match="called pullwright and pullwright-tasks"):
        remote(*(folder.removesuffix("/") for folder in BRANCH_FOLDERS)).named(TASK)


@table(
    ("ref", "is_refused"),
    [
        ("refs/pullwright", True),
        ("refs/pullwright/claims", True),
        ("refs/pullwright/wip", True),
        ("refs/pullwright/claims/issue-12/x", True),
        ("refs/pullwright/wip/issue-12/x", True),
        ("refs/pullwright/claims/issue-12", False),
        ("refs/pullwright/claims/issue-1/x", False),
        ("refs/pullwright/spend", False),
        ("refs/heads/pullwright", False),
    ],
)
def test_a_reference_where_ours_would_be(ref: str, *, is_refused: bool) -> None:
    names = RemoteNames({ref}, "octo/calc")
    if not is_refused:
        assert names.require_hidden("issue-12") is None
        return
    if "issue-12" in ref:  # of this task alone: others can be done
        assert f"git push octo/calc :{ref}" in str(names.require_hidden("issue-12"))
        assert names.require_hidden("issue-1") is None
        return
    with pytest.raises(RemoteRefusedError, match=f"git push octo/calc :{ref}"):
        names.require_hidden("issue-12")


def test_a_base() -> None:
    names = RemoteNames({f"{HEADS}main", f"{HEADS}release/1.0", "refs/tags/v1"}, "octo/calc")
    names.require_base("release/1.0")
    for base, words in {
        "mian": "did you mean main",
        "v1": "it is a tag",
        "0" * 40: "it is a commit",
        "release": "has no branch",
        "zzz": "push it first",
        "\x1b[31m": "push it first",
    }.items():
        with pytest.raises(ConfigurationError, match=words) as raised:
            names.require_base(base)
        assert str(raised.value).isprintable()
    with pytest.raises(EmptyRepositoryError, match="is empty"):
        RemoteNames({"refs/tags/v1"}, "octo/calc").require_base("main")


@pytest.mark.parametrize("status", [403, 404, 410, 500, 503])
def test_rules_that_cannot_be_read_stop_nothing(world: World, status: int) -> None:
    body = {"message": "Upgrade to GitHub Pro"}
    world.github.faults.append(Fault("GET", ".*/rules/.*", times=9, status=status, body=body))
    assert world.forge.why_not_pushed(BRANCH, "us@bots.example") is None


DAY_SECONDS = 24 * 3600
LONG_SECONDS = (KEPT_DAYS + 1) * DAY_SECONDS
HIDDEN = "refs/pullwright/"


class Forge(MemoryForge):
    """A forge whose issues and pull requests tests close."""

    def __init__(self, path: Path) -> None:
        super().__init__("octo/calc", str(path), lambda _branch: "1" * 40)
        self.closed: set[int] = set()
        self.looked: list[int] = []

    def issue(self, number: int) -> Issue:
        self.looked.append(number)
        found = super().issue(number)
        return replace(found, is_open=found.is_open and number not in self.closed)

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        return [
            replace(pull, state=PullRequestState.CLOSED) if pull.number in self.closed else pull
            for pull in super().our_pull_requests(branch_prefix)
        ]


class Place:
    """A remote with a forge, and a worker on it."""

    def __init__(self, folder: Path) -> None:
        self.path = bare(folder)
        self.forge = Forge(self.path)
        self.clock = ManualClock()
        self.worker = Worker(self.path, folder, clock=self.clock)

    def issue(self, *, closed: bool) -> str:
        """A new issue's key."""
        number = self.forge.add_issue("Broken", "It fails.", author="ada")
        if closed:
            self.forge.closed.add(number)
        return f"issue-{number}"

    def pull(self, key: str, *, closed: bool) -> int:
        """A new pull request's number."""
        pull, _ = self.forge.ensure_pull_request(
            Proposal(f"pullwright/{key}-x", "main", "T", "B", draft=False)
        )
        if closed:
            self.forge.closed.add(pull.number)
        return pull.number

    def tombstone(self, key: str, pull: int | None = None, outcome: str = "proposed") -> None:
        self.worker.take(task=key).release(outcome, pull)

    def prune(self, run: str = "run") -> list[str]:
        seen = self.worker.records.list(HIDDEN)
        claims = self.worker.claims.list(seen)
        return Pruning(self.worker.records, self.forge, run).prune(claims, seen, self.clock.now())

    def tasks(self) -> set[str]:
        return {record.task for record in self.worker.claims.list()}


@pytest.fixture
def old_claims(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_task_that_is_over_is_forgotten_after_some_months(old_claims: Place) -> None:
    key = old_claims.issue(closed=True)
    old_claims.tombstone(key, old_claims.pull(key, closed=True))
    old_claims.clock.advance(KEPT_DAYS * DAY_SECONDS)
    assert old_claims.prune() == []
    assert old_claims.forge.looked == [], "nothing is asked for what is not old"
    old_claims.clock.advance(1)
    assert old_claims.prune() == [key]
    assert old_claims.tasks() == set()
    assert old_claims.prune() == []


def test_what_is_not_over_stays(old_claims: Place) -> None:
    still_open, proposed, unlisted, unfinished, held, gone = (
        *(old_claims.issue(closed=closed) for closed in (False, True, True, True, True)),
        "issue-99",
    )
    old_claims.tombstone(still_open, outcome="failed 0123456789ab")
    old_claims.tombstone(proposed, old_claims.pull(proposed, closed=False))
    old_claims.tombstone(unlisted, 77)
    old_claims.tombstone(unfinished, outcome="limit 0123456789ab")
    put(old_claims.path, wip_ref(unfinished), "work")
    old_claims.worker.take(task=held)
    old_claims.tombstone(gone)
    item, text = "item-0a1b2c3d", from_text("Fix it").key
    old_claims.tombstone(item, outcome="failed")
    old_claims.tombstone(text, old_claims.pull(text, closed=False))
    put(old_claims.path, f"{HIDDEN}claims/{old_claims.issue(closed=True)}", "no record")
    old_claims.clock.advance(LONG_SECONDS)
    before = old_claims.tasks()
    for run in range(6):
        assert old_claims.prune(f"run-{run}") == []
    assert old_claims.tasks() == before


def test_a_key_that_only_looks_like_an_issues_is_not_the_issues(old_claims: Place) -> None:
    old_claims.tombstone(old_claims.issue(closed=True).replace("issue-", "issue-0"))
    old_claims.clock.advance(LONG_SECONDS)
    assert old_claims.prune() == []
    assert old_claims.forge.looked == []


def test_what_was_proposed_and_closed_is_over_without_an_issue(old_claims: Place) -> None:
    item = "item-0a1b2c3d"
    old_claims.tombstone(item, old_claims.pull(item, closed=True))
    old_claims.clock.advance(LONG_SECONDS)
    assert old_claims.prune() == [item]


def test_a_pull_request_that_is_open_again_under_another_number_keeps_it(old_claims: Place) -> None:
    key = old_claims.issue(closed=True)
    old_claims.tombstone(key, old_claims.pull(key, closed=True))
    old_claims.pull(key, closed=False)
    old_claims.clock.advance(LONG_SECONDS)
    assert old_claims.prune() == []


def test_an_issue_that_is_gone_holds_up_no_other(old_claims: Place) -> None:
    key = old_claims.issue(closed=True)
    for task in ("issue-99", key, "issue-98"):
        old_claims.tombstone(task, outcome="no_task")
    old_claims.clock.advance(LONG_SECONDS)
    assert old_claims.prune() == [key]


def test_a_few_at_once_and_others_the_next_time(old_claims: Place) -> None:
    keys = {old_claims.issue(closed=True) for _ in range(MOST_AT_ONCE + 2)}
    for key in keys:
        old_claims.tombstone(key, outcome="no_task")
    old_claims.clock.advance(LONG_SECONDS)
    first = old_claims.prune()
    assert len(first) == len(old_claims.forge.looked) == MOST_AT_ONCE
    assert sorted([*first, *old_claims.prune()]) == sorted(keys)


@pytest.mark.parametrize("atomic", [True, False])
def test_what_somebody_took_meanwhile_stays(old_claims: Place, tmp_path: Path, *, atomic: bool) -> None:
    git(old_claims.path, "config", "receive.advertiseAtomic", str(atomic).lower())
    keys = [old_claims.issue(closed=True) for _ in range(2)]
    for key in keys:
        old_claims.tombstone(key, outcome="no_task")
    old_claims.clock.advance(LONG_SECONDS)
    seen = old_claims.worker.records.list(HIDDEN)
    rival = Worker(old_claims.path, tmp_path, "b", clock=old_claims.clock).take(task=keys[1])
    found = {key: seen[f"{HIDDEN}claims/{key}"] for key in keys}
    assert not remove_tombstones(old_claims.worker.records, found)
    assert keys[1] in old_claims.tasks()
    rival.renew()


def test_a_forge_or_a_server_that_fails_ends_nothing(old_claims: Place) -> None:
    old_claims.tombstone(old_claims.issue(closed=True))
    old_claims.clock.advance(LONG_SECONDS)
    git(old_claims.path, "config", "receive.hideRefs", "refs")
    assert old_claims.prune() == []

    class Down(Forge):
        def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
            raise ForgeUnavailableError(f"down: {branch_prefix}")

    old_claims.forge = Down(old_claims.path)
    assert old_claims.prune() == []
    assert len(old_claims.tasks()) == 1


def test_a_zombie_is_refused_although_its_number_is_given_again(old_claims: Place, tmp_path: Path) -> None:
    key = old_claims.issue(closed=True)
    zombie = Worker(old_claims.path, tmp_path, "z", clock=ManualClock()).take(task=key)
    assert zombie.record.number == 1
    old_claims.clock.advance(LONG_SECONDS)
    old_claims.tombstone(key, outcome="no_task")
    old_claims.clock.advance(LONG_SECONDS)
    assert old_claims.prune() == [key]
    with pytest.raises(ClaimLostError, match="somebody removed it"):
        zombie.renew()
    zombie = _like(zombie, old_claims, tmp_path)
    after = old_claims.worker.take(task=key)
    assert (after.record.number, after.previous) == (1, None)
    with pytest.raises(ClaimLostError, match="held by host-a, run run-a, number 1"):
        zombie.renew()
    assert not zombie.release("proposed", 7)
    assert after.renew().number == 1


def _like(lost: Lease, old_claims: Place, tmp_path: Path) -> Lease:
    """The same lease in a process that has not noticed yet."""
    other = Worker(old_claims.path, tmp_path, "y", clock=ManualClock())
    return Lease(other.claims, lost._commit, lost.record, None)


def known(task: Task) -> KnownTask:
    return KnownTask(task.key, START, task)


def test_whoever_takes_a_task_tidies_up(old_claims: Place) -> None:
    key = old_claims.issue(closed=True)
    old_claims.tombstone(key, outcome="no_task")
    again = from_text("Two")
    old_claims.tombstone(again.key, old_claims.pull(again.key, closed=True))
    old_claims.clock.advance(LONG_SECONDS)
    claimer = Claimer(
        old_claims.worker.records,
        old_claims.worker.claims,
        old_claims.forge,
        "run-a",
        (),
        named=False,
        may=lambda _who: True,
        clean=lambda text, _who: text,
        why_over_budget=lambda _spent: None,
        kept=KeptWork(old_claims.path.with_name("unfinished")),
        warn=lambda _text: None,
    )
    assert isinstance(claimer.take(known(from_text("One"))), Lease)
    assert key in old_claims.tasks(), "nobody has listed the claims yet"
    claimer.held_by_others()
    lease = claimer.take(known(again))
    assert isinstance(lease, Lease)
    lease.renew()
    assert key not in old_claims.tasks()
