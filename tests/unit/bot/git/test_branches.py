from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.base import BranchCommit, CommitScreen
from orchestrator.bot.git.clone import clean_message
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.rig import US, clone, git, show, write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/12-fix"
PERSON = ("someone@example.invalid", "Someone")


def add(source: Path, files: Mapping[str, str | bytes], *, branch: str = "main", who: str = "") -> str:
    """A commit on a branch of the source, by a person or by us; the source stays at `main`."""
    git(source, "checkout", "-q", branch)
    write(source, files)
    git(source, "add", ".")
    ours = ("-c", f"user.name={US.name}", "-c", f"user.email={US.email}") if who == "us" else ()
    git(source, *ours, "commit", "-q", "--allow-empty", "-m", "a commit")
    commit = git(source, "rev-parse", "HEAD")
    git(source, "checkout", "-q", "main")
    return commit


def many(source: Path, count: int, *, branch: str = "main") -> None:
    commit = f"commit refs/heads/{branch}\ncommitter x <x@x> 0 +0000\ndata 1\nx\n"
    begin = f"from refs/heads/{branch}^0\n"
    file = f"M 644 inline many-{branch.replace('/', '-')}\ndata"
    text = "".join(
        f"{commit}{begin if not number else ''}{file} {len(str(number))}\n{number}\n"
        for number in range(count)
    )
    git(source, "fast-import", "--quiet", stdin=text.encode())
    git(source, "reset", "-q", "--hard")


def start(source: Path) -> None:
    git(source, "branch", BRANCH)


def test_our_single_commit_is_known(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {"a": "1"}, branch=BRANCH, who="us")
    with clone(source, tmp_path / "runs") as opened:
        state = opened.branch_state(BRANCH, US.email)
        assert state is not None
        assert (state.tip, state.is_ours, state.base_moved, state.complete) == (tip, True, False, True)
        assert state.commits_since_base == (BranchCommit(tip, US.name, US.email, US.email),)
        other = opened.branch_state(BRANCH, "else@example.invalid")
        assert other is not None
        assert not other.is_ours
        assert opened.branch_state("none", US.email) is None


@pytest.mark.parametrize("moved", [1, 9, 10, 11, 30])
def test_our_single_commit_on_a_base_that_moved_any_number_of_commits(
    moved: int, source: Path, tmp_path: Path
) -> None:
    many(source, 3)
    start(source)
    tip = add(source, {"a": "1"}, branch=BRANCH, who="us")
    many(source, moved)
    with clone(source, tmp_path / "runs") as opened:
        state = opened.branch_state(BRANCH, US.email)
        assert state is not None
        assert (state.tip, state.is_ours, state.base_moved) == (tip, True, True)
        applied = opened.apply_work(tip, reference=f"refs/heads/{BRANCH}")
        assert (applied.paths, applied.base_moved) == ({"a"}, True)
        made = commit_touched(opened, applied.paths, "again", include_commands=False).commit
        assert opened.push(BRANCH, expected=state.tip) == made
    assert git(source, "rev-parse", f"{BRANCH}^") == git(source, "rev-parse", "main")


def test_whose_commit_it_is_fails_closed(source: Path, tmp_path: Path) -> None:
    def is_ours() -> bool:
        with clone(source, tmp_path / "runs") as opened:
            state = opened.branch_state(BRANCH, US.email)
            assert state is not None
            return state.is_ours

    start(source)
    assert not is_ours()  # nothing on it
    first = add(source, {"a": "1"}, branch=BRANCH, who="us")
    assert is_ours()
    add(source, {"b": "1"}, branch=BRANCH)
    assert not is_ours()  # a person's on top
    git(source, "update-ref", f"refs/heads/{BRANCH}", first)
    add(source, {"b": "1"}, branch=BRANCH, who="us")
    assert not is_ours()  # two of ours: the first may have been read by people
    git(source, "checkout", "-q", BRANCH)
    git(source, "reset", "-q", "--hard", first)
    git(source, "commit", "-q", "--amend", "--no-edit")
    git(source, "checkout", "-q", "main")
    assert git(source, "log", "-1", "--format=%ae %ce", BRANCH) == f"{US.email} {PERSON[0]}"
    assert not is_ours()  # amended: they are the committer
    git(source, "update-ref", f"refs/heads/{BRANCH}", first)
    add(source, {"c": "1"})
    git(source, "checkout", "-q", BRANCH)
    git(source, "merge", "-q", "--no-edit", "main")
    git(source, "checkout", "-q", "main")
    assert not is_ours()  # the button that updates a branch
    git(source, "update-ref", f"refs/heads/{BRANCH}", git(source, "commit-tree", "main^{tree}", "-m", "root"))
    assert not is_ours()  # no history in common


def test_a_branch_that_is_further_away_than_the_cap_is_not_ours(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {"a": "1"}, branch=BRANCH, who="us")
    many(source, 300)
    with clone(source, tmp_path / "runs") as opened:
        state = opened.branch_state(BRANCH, US.email)
        assert state is not None
        assert (state.tip, state.is_ours, state.complete) == (tip, False, False)
        with pytest.raises(WorkspaceError, match="have no common ancestor"):
            opened.continue_branch(BRANCH)


def test_a_base_that_was_rewritten_is_believed_only_if_it_is_known(source: Path, tmp_path: Path) -> None:
    old = add(source, {"gone": "1"})
    start(source)
    add(source, {"a": "1"}, branch=BRANCH, who="us")
    git(source, "reset", "-q", "--hard", "main~1")
    add(source, {"instead": "1"})
    with clone(source, tmp_path / "runs") as opened:
        state = opened.branch_state(BRANCH, US.email)
        assert state is not None
        assert not state.is_ours
        state = opened.branch_state(BRANCH, US.email, known_bases=[old])
        assert state is not None
        assert (state.is_ours, state.base_moved, len(state.commits_since_base)) == (True, True, 1)


def test_a_known_base_makes_nothing_ours_that_is_not(source: Path, tmp_path: Path) -> None:
    old = add(source, {"gone": "1"})
    start(source)
    ours = add(source, {"a": "1"}, branch=BRANCH, who="us")
    add(source, {"b": "1"}, branch=BRANCH)
    git(source, "reset", "-q", "--hard", "main~1")
    with clone(source, tmp_path / "runs") as opened:
        state = opened.branch_state(BRANCH, US.email, known_bases=[old])
        assert state is not None
        assert (state.is_ours, state.has_only_ours) == (False, False)
        git(source, "update-ref", f"refs/heads/{BRANCH}", ours)
        git(source, "reset", "-q", "--hard", ours)
        add(source, {"later": "1"})
    with clone(source, tmp_path / "runs") as opened:  # somebody merged it
        state = opened.branch_state(BRANCH, US.email, known_bases=[old])
        assert state is not None
        assert (state.is_ours, state.complete, state.commits_since_base) == (False, True, ())


def test_reading_a_branch_does_not_shorten_the_history(source: Path, tmp_path: Path) -> None:
    many(source, 4)
    start(source)
    many(source, 4, branch=BRANCH)
    many(source, 4)
    with clone(source, tmp_path / "runs") as opened:
        before = opened.recent_commits(30)
        opened.branch_state(BRANCH, US.email)
        assert opened.recent_commits(30)[: len(before)] == before


def test_all_commits_of_a_merged_side_branch_are_listed(source: Path, tmp_path: Path) -> None:
    start(source)
    git(source, "branch", "side")
    many(source, 60, branch="side")
    tree, first, second = git(source, "rev-parse", "main^{tree}", BRANCH, "side").split()
    merge = git(source, "commit-tree", tree, "-p", first, "-p", second, "-m", "merge")
    git(source, "update-ref", f"refs/heads/{BRANCH}", merge)
    with clone(source, tmp_path / "runs") as opened:
        state = opened.branch_state(BRANCH, US.email)
        assert state is not None
        assert (state.is_ours, state.complete, len(state.commits_since_base)) == (False, True, 61)


# Commits of people are continued.


def test_a_branch_of_people_is_continued_by_a_fast_forward(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {"theirs.txt": "1", "src/calc.py": "theirs\n"}, branch=BRANCH)
    base = add(source, {"base.txt": "1"})
    git(source, "config", "receive.denyNonFastForwards", "true")
    with clone(source, tmp_path / "runs") as opened:
        applied = opened.continue_branch(BRANCH)
        assert (applied.tip, applied.paths, applied.conflicts, applied.base_moved) == (tip, set(), [], True)
        assert opened.changed_paths() == set()
        assert {path.name for path in opened.tree.iterdir()} >= {"theirs.txt", "base.txt"}
        write(opened.tree, {"ours.txt": "1"})
        assert opened.changed_paths() == {"ours.txt"}
        outcome = commit_touched(opened, {"ours.txt"}, "ours", include_commands=False)
        assert outcome.files == ["ours.txt"]
        assert {change.path for change in outcome.changes} == {"ours.txt", "theirs.txt", "src/calc.py"}
        assert "+theirs" in opened.diff()
        opened.push(BRANCH, expected=tip)
        write(opened.tree, {"ours.txt": "2"})
        second = commit_touched(opened, {"ours.txt"}, "ours again", include_commands=False)
        opened.push(BRANCH, expected=None)
    assert git(source, "rev-parse", f"{BRANCH}~1^1", f"{BRANCH}~1^2").split() == [tip, base]
    assert git(source, "rev-list", "--parents", "-1", BRANCH).split()[0] == second.commit
    assert show(source, BRANCH, "src/calc.py") == b"theirs\n"


def test_a_base_that_did_not_move_is_no_parent(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {"theirs.txt": "1"}, branch=BRANCH)
    with clone(source, tmp_path / "runs") as opened:
        assert not opened.continue_branch(BRANCH).base_moved
        assert commit_touched(opened, set(), "nothing", include_commands=False).commit is None
        write(opened.tree, {"ours.txt": "1"})
        patch = opened.pending_patch({"ours.txt"}, include_commands=False)
        assert b"ours.txt" in patch
        assert b"theirs.txt" not in patch
        commit_touched(opened, {"ours.txt"}, "ours", include_commands=False)
        opened.push(BRANCH, expected=tip)
    assert git(source, "rev-list", "--parents", "-1", BRANCH).split()[1:] == [tip]


def test_a_moved_base_alone_is_merged(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {"theirs.txt": "1"}, branch=BRANCH)
    add(source, {"base.txt": "1"})
    with clone(source, tmp_path / "runs") as opened:
        opened.continue_branch(BRANCH)
        outcome = commit_touched(opened, set(), "merge", include_commands=False)
        assert outcome.commit is not None
        assert outcome.files == []
        opened.push(BRANCH, expected=tip)
    assert show(source, BRANCH, "base.txt") == b"1"


def test_a_branch_that_was_merged_already(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = git(source, "rev-parse", BRANCH)
    add(source, {"base.txt": "1"})
    with clone(source, tmp_path / "runs") as opened:
        opened.continue_branch(BRANCH)
        write(opened.tree, {"ours.txt": "1"})
        commit_touched(opened, {"ours.txt"}, "ours", include_commands=False)
        opened.push(BRANCH, expected=tip)
    assert git(source, "rev-parse", f"{BRANCH}^") == git(source, "rev-parse", "main")


def test_conflicts_with_the_base_hold_the_commit_up(source: Path, tmp_path: Path) -> None:
    start(source)
    add(source, {"src/calc.py": "theirs\n"}, branch=BRANCH)
    add(source, {"src/calc.py": "base\n"})
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        applied = opened.continue_branch(BRANCH)
        assert applied.conflicts == ["src/calc.py"]
        assert applied.paths == {"src/calc.py"}
        text = "<<<<<<< pullwright/branch\ntheirs\n=======\nbase\n>>>>>>> pullwright/base\n"
        assert (opened.tree / "src/calc.py").read_text() == text
        outcome = commit_touched(opened, set(), "merge", include_commands=False)
        assert (outcome.commit, outcome.refused) == (None, "conflict markers are left in src/calc.py")
        # A path that waits for a person goes back to what was there: markers, which are never committed.
        write(opened.tree, {"src/calc.py": "both\n"})
        hold = CommitScreen(hold=lambda change: "protected" if change.path == "src/calc.py" else None)
        outcome = commit_touched(opened, set(), "merge", include_commands=False, screen=hold)
        assert (outcome.commit, outcome.refused) == (
            None,
            "a person has to resolve the conflict in src/calc.py",
        )
        # Touched or not, what solves a conflict is part of the commit.
        assert commit_touched(opened, set(), "merge", include_commands=False).files == ["src/calc.py"]


def test_what_people_committed_is_not_screened_as_ours(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {".github/workflows/x.yml": "theirs"}, branch=BRANCH)
    add(source, {"base.txt": "1"})
    screen = CommitScreen(
        find_secrets=lambda made: ["theirs"] if "theirs" in made else [],
        hold=lambda change: "protected" if change.path.startswith(".github") else None,
    )
    with clone(source, tmp_path / "runs") as opened:
        opened.continue_branch(BRANCH)
        write(opened.tree, {"ours.txt": "1"})
        outcome = commit_touched(opened, {"ours.txt"}, "ours", include_commands=False, screen=screen)
        assert (outcome.held, outcome.held_back) == ([], [])
        opened.push(BRANCH, expected=tip)
    assert show(source, BRANCH, ".github/workflows/x.yml") == b"theirs"


def test_commits_that_came_meanwhile_are_never_pushed_away(source: Path, tmp_path: Path) -> None:
    start(source)
    tip = add(source, {"theirs.txt": "1"}, branch=BRANCH)
    with clone(source, tmp_path / "runs") as opened:
        opened.continue_branch(BRANCH)
        write(opened.tree, {"ours.txt": "1"})
        commit_touched(opened, {"ours.txt"}, "ours", include_commands=False)
        later = add(source, {"later.txt": "1"}, branch=BRANCH)
        with pytest.raises(PushRejectedError, match="changed on the remote meanwhile"):
            opened.push(BRANCH, expected=tip)
        assert opened.remote_tip(BRANCH) is not None
        with pytest.raises(PushRejectedError, match="has commits that"):
            opened.push(BRANCH, expected=later)
    assert git(source, "rev-parse", BRANCH) == later


def test_a_branch_with_a_path_that_enters_git_is_not_continued(source: Path, tmp_path: Path) -> None:
    blob = git(source, "hash-object", "-w", "--stdin", stdin=b"x")
    inner = git(source, "mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    listed = git(source, "ls-tree", "main")
    tree = git(source, "mktree", stdin=f"{listed}\n040000 tree {inner}\tgit~1\n".encode())
    commit = git(source, "commit-tree", tree, "-p", "main", "-m", "x")
    git(source, "update-ref", f"refs/heads/{BRANCH}", commit)
    with clone(source, tmp_path / "runs") as opened:
        with pytest.raises(WorkspaceError, match="not a path inside the repository"):
            opened.continue_branch(BRANCH)
        assert opened.changed_paths() == set()


@pytest.mark.parametrize("name", ["none", "../x", "-x", "a b", ""])
def test_a_branch_that_cannot_be(name: str, safe: Clone) -> None:
    with pytest.raises(WorkspaceError):
        safe.continue_branch(name)


# Messages.

TRAILERS = (
    "Fixes: #12\nCo-authored-by: A <a@example.invalid>\nSigned-off-by: Pullwright <bot@example.invalid>"
)


@pytest.mark.parametrize(
    "body",
    [
        "Fix it",
        "Fix it\n\nWhy: because\nand so on",
        "Fix it\r\n\r\nlines\r\nthat end so",
        "Fix it\n\n---\n a diff stat | 1 +\n",
        "Fix it\n\n--- a/file\n+++ b/file",
        "Fix it\n\n# ------------------------ >8 ------------------------\nno more",
        "Fix it\n\n" + "words " * 10_000,
        "x" * 50_000,
    ],
)
def test_trailers_stay_the_end_of_the_message(body: str, safe: Clone, source: Path) -> None:
    write(safe.tree, {"a": "1"})
    end = "\r\n\r\n" + TRAILERS.replace("\n", "\r\n") if "\r" in body else f"\n\n{TRAILERS}"
    commit_touched(safe, {"a"}, f"{body}{end}\n\n", include_commands=False)
    safe.push(BRANCH, expected=None)
    message = subprocess.run(
        ["git", "-C", str(source), "log", "-1", "--format=%B", BRANCH], check=True, capture_output=True
    ).stdout
    parsed = git(source, "interpret-trailers", "--parse", stdin=message)
    assert parsed == TRAILERS
    assert len(message) < 21_000


def test_messages_without_trailers() -> None:
    assert clean_message("") == clean_message(" \n\0") == "Change files\n"
    assert clean_message("x" * 30_000) == "x" * 20_000 + "\n"
    assert clean_message("a\n\nKey: value\n continued\n") == "a\n\nKey: value\n continued\n"
    assert clean_message("only: one") == "only: one\n"
