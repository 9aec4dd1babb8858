"""What a cycle restores onto its clone: whose commits are on the branch decides, and what earlier cycles knew of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.cycle.earlier import (
    BegunProposal,
    Earlier,
    RestoredWork,
    UnfinishedState,
    fingerprints,
    is_newest_kept,
    restore_work,
)
from orchestrator.bot.cycle.tasks import Task, TaskKind
from orchestrator.bot.forge.base import PullRequest, PullRequestState
from orchestrator.bot.git.base import AppliedWork, BranchCommit, BranchState
from orchestrator.core.errors import PeoplesCommitsError
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

US = "bot@example.com"
BRANCH = "pullwright/issue-1-add"
TIP, WORK, LATER = "1" * 40, "2" * 40, "3" * 40
TASK = Task("issue-1", "Add", "", "issue", 1)
STATE = UnfinishedState("r", "limit", "m", "c", "p", tip=TIP)


def commit(email: str, name: str = "Ada") -> BranchCommit:
    return BranchCommit(TIP, name, email, email)


ONE = BranchState(TIP, (commit(US),), is_ours=True, has_only_ours=True, base_moved=False, complete=True)
SEVERAL = replace(ONE, commits_since_base=(commit(US), commit(US)), is_ours=False)
PEOPLES = replace(SEVERAL, commits_since_base=(commit(US), commit("ada@example.com")), has_only_ours=False)
MERGED = replace(ONE, commits_since_base=(), is_ours=False, has_only_ours=False)


class Clone:
    """A clone that only says what would be done to it."""

    def __init__(self, tree: Path, branch: BranchState | None = None) -> None:
        self.tree, self.done, self._branch = tree, list[str](), branch
        self.bases: Collection[str] = ()

    def branch_state(self, branch: str, email: str, *, known_bases: Collection[str]) -> BranchState | None:
        assert (branch, email) == (BRANCH, US)
        self.bases = known_bases
        return self._branch

    def apply_work(self, commit: str, *, reference: str | None = None, packed: object = None) -> AppliedWork:
        assert packed is None
        self.done.append(f"apply {commit[:1]} {reference}")
        return AppliedWork({"b.py", "a.py"}, [], base_moved=commit == WORK)

    def continue_branch(self, branch: str) -> AppliedWork:
        self.done.append(f"continue {branch}")
        return AppliedWork({"a.py"}, ["a.py"], base_moved=True, tip=LATER)

    def message_of(self, tip: str) -> str:
        assert tip == TIP
        return "Make add() add"


def restored(
    tree: Path,
    earlier: Earlier | None,
    branch: BranchState | None,
    task: Task = TASK,
    *,
    pushed_base: str = "",
) -> tuple[RestoredWork | str, Clone]:
    clone: Any = Clone(tree, branch)
    return restore_work(clone, task, earlier, US, pushed_base), clone


def saved(*, knows: bool = True, work: bool = True, branch: str = BRANCH) -> Earlier:
    state = replace(STATE, tip=TIP if knows else LATER)
    return Earlier(state, WORK if work else None, "refs/saved/issue-1", WORK, "b" * 40, branch=branch)


APPLIED = RestoredWork(("a.py", "b.py"), base_moved=True)


@pytest.mark.parametrize(
    ("earlier", "branch", "done", "expected"),
    [
        (None, None, [], RestoredWork()),
        (saved(branch=""), None, ["apply 2 refs/saved/issue-1"], APPLIED),
        (saved(branch="", work=False), None, [], RestoredWork()),
        (saved(), None, ["apply 2 refs/saved/issue-1"], APPLIED),
        # Somebody merged the branch: what it does not contain is what was saved.
        (saved(), MERGED, ["apply 2 refs/saved/issue-1"], replace(APPLIED, tip=TIP)),
        (saved(work=False), MERGED, [], RestoredWork(tip=TIP)),
        (saved(), ONE, ["apply 2 refs/saved/issue-1"], replace(APPLIED, tip=TIP)),
        (saved(), SEVERAL, ["apply 2 refs/saved/issue-1"], replace(APPLIED, tip=TIP)),
        # The branch has what was saved, and more.
        (
            saved(knows=False),
            ONE,
            [f"apply 1 refs/heads/{BRANCH}"],
            RestoredWork(("a.py", "b.py"), tip=TIP, message="Make add() add"),
        ),
        (
            saved(work=False),
            ONE,
            [f"apply 1 refs/heads/{BRANCH}"],
            RestoredWork(("a.py", "b.py"), tip=TIP, message="Make add() add"),
        ),
        (
            saved(knows=False),
            SEVERAL,
            [f"continue {BRANCH}"],
            RestoredWork(
                ("a.py",), ("a.py",), base_moved=True, tip=TIP, message="Make add() add", joined=True
            ),
        ),
    ],
)
def test_work_without_a_pull_request(
    tmp_path: Path,
    earlier: Earlier | None,
    branch: BranchState | None,
    done: list[str],
    expected: RestoredWork,
) -> None:
    found, clone = restored(tmp_path, earlier, branch)
    assert (found, clone.done) == (expected, done)


@pytest.mark.parametrize(
    ("branch", "whose"),
    [
        (PEOPLES, "a commit by Ada"),
        (replace(PEOPLES, commits_since_base=(commit(US),)), "commits of people"),  # by another author
        (replace(MERGED, complete=False), "commits of people"),
    ],
)
def test_a_branch_with_commits_of_people_is_not_replaced(
    tmp_path: Path, branch: BranchState, whose: str
) -> None:
    with pytest.raises(PeoplesCommitsError, match=f"branch {BRANCH} has {whose}, which is not replaced"):
        restored(tmp_path, saved(), branch)


@table(
    ("earlier", "pushed_base", "bases"),
    [
        (saved(), "c" * 40, ["b" * 40, "c" * 40]),
        (saved(), "", ["b" * 40]),
        (replace(saved(), base=""), "c" * 40, ["c" * 40]),
    ],
)
def test_the_bases_of_earlier_cycles_are_known(
    tmp_path: Path, earlier: Earlier, pushed_base: str, bases: list[str]
) -> None:
    _, clone = restored(tmp_path, earlier, ONE, pushed_base=pushed_base)
    assert clone.bases == bases


def pull(*labels: str, kind: TaskKind = TaskKind.REVIEW) -> Task:
    request = PullRequest(
        7, "Add", "", "https://f/7", False, PullRequestState.OPEN, BRANCH, "main", TIP, labels=labels
    )
    return replace(TASK, kind=kind, pull=request)


REVIEW, UNFINISHED = pull(), pull(kind=TaskKind.UNFINISHED)
LEFT_TO_THEM = (
    "https://f/7 has commits of people, so it is left to them; the label pullwright:rebase takes it up again"
)
WHOLE = RestoredWork(("a.py", "b.py"), tip=TIP, fingerprints={"a.py": "no file", "b.py": "no file"})
JOINED = RestoredWork(
    ("a.py",), ("a.py",), base_moved=True, tip=LATER, joined=True, fingerprints={"a.py": "no file"}
)


@pytest.mark.parametrize(
    ("task", "earlier", "branch", "done", "expected"),
    [
        (REVIEW, None, None, [], f"the branch {BRANCH} of pull request #7 is gone"),
        (REVIEW, None, ONE, [f"apply 1 refs/heads/{BRANCH}"], WHOLE),
        (REVIEW, saved(), ONE, ["apply 2 refs/saved/issue-1"], replace(APPLIED, tip=TIP)),
        (REVIEW, saved(knows=False), ONE, [f"apply 1 refs/heads/{BRANCH}"], WHOLE),
        (REVIEW, saved(work=False), ONE, [f"apply 1 refs/heads/{BRANCH}"], WHOLE),
        (REVIEW, None, SEVERAL, [f"continue {BRANCH}"], JOINED),
        (REVIEW, saved(knows=False), SEVERAL, [f"continue {BRANCH}"], JOINED),
        (REVIEW, saved(), SEVERAL, ["apply 2 refs/saved/issue-1"], replace(APPLIED, tip=TIP)),
        (REVIEW, saved(), PEOPLES, [], LEFT_TO_THEM),
        (pull("Pullwright:REBASE"), None, PEOPLES, [f"continue {BRANCH}"], JOINED),
        (pull("pullwright:rebase"), saved(), PEOPLES, [f"continue {BRANCH}"], JOINED),
        (UNFINISHED, saved(), ONE, ["apply 2 refs/saved/issue-1"], replace(APPLIED, tip=TIP)),
        # A later cycle has pushed since.
        (UNFINISHED, saved(knows=False), ONE, [], RestoredWork(tip=TIP, is_over=True)),
        (UNFINISHED, None, ONE, [f"apply 1 refs/heads/{BRANCH}"], WHOLE),
        (
            pull("pullwright:rebase", kind=TaskKind.UNFINISHED),
            saved(knows=False),
            PEOPLES,
            [f"continue {BRANCH}"],
            JOINED,
        ),
    ],
)
def test_work_on_a_pull_request(  # noqa: PLR0913  a table
    tmp_path: Path,
    *,
    task: Task,
    earlier: Earlier | None,
    branch: BranchState | None,
    done: list[str],
    expected: RestoredWork | str,
) -> None:
    found, clone = restored(tmp_path, earlier, branch, task)
    assert (found, clone.done) == (expected, done)


def test_what_a_later_cycle_pushed_is_over_only_where_nothing_begun_led_to_it(tmp_path: Path) -> None:
    begun = replace(STATE, tip=LATER, proposal=BegunProposal("Add", "", BRANCH, TIP))
    found, clone = restored(tmp_path, replace(saved(), state=begun), ONE, UNFINISHED)
    assert (found, clone.done) == (replace(APPLIED, tip=TIP), ["apply 2 refs/saved/issue-1"])


def test_a_file_is_told_apart_by_its_content_its_mode_and_its_kind(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    (tmp_path / "same").write_text("one")
    (tmp_path / "run").write_text("one")
    (tmp_path / "run").chmod(0o755)
    (tmp_path / "other").write_text("two")
    (tmp_path / "link").symlink_to("a")
    (tmp_path / "folder").mkdir()
    found = fingerprints(tmp_path, ["a", "same", "run", "other", "link", "folder", "gone"])
    assert found["a"] == found["same"]
    assert found["a"].startswith("0 ")
    assert found["run"].partition(" ")[2] == found["a"].partition(" ")[2]
    assert found["link"] == "link a"
    assert found["folder"] == found["gone"] == "no file"
    assert len(set(found.values())) == 5


@table(
    ("replaces", "remote", "tip", "expected"),
    [
        (None, None, "", True),
        (None, None, TIP, True),
        (None, None, LATER, False),  # somebody pushed since
        (None, WORK, "", False),  # somebody saved since
        (WORK, WORK, "", True),
        (WORK, None, "", True),
        (WORK, LATER, "", False),
        (WORK, WORK, LATER, False),
    ],
)
def test_what_this_machine_keeps_is_the_newest(
    replaces: str | None, remote: str | None, tip: str, *, expected: bool
) -> None:
    assert is_newest_kept((saved(), replaces), remote, tip) is expected
