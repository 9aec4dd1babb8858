"""A person accepts a branch: it is merged as they would merge it, or nothing is changed."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.local import LocalRepository, merge_branch
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from pathlib import Path

BRANCH = "pullwright/item-1-fix"


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    git(folder, "add", name)
    git(folder, "-c", "user.name=Ada", "-c", "user.email=ada@example.com", "commit", "-qm", f"Write {name}")
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with `main` checked out, and a branch with one commit."""
    folder = tmp_path / "tree"
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    git(folder, "config", "user.name", "Ada")
    git(folder, "config", "user.email", "ada@example.com")
    commit(folder, "a.txt", "one\n")
    git(folder, "checkout", "-q", "-b", BRANCH)
    commit(folder, "a.txt", "two\n")
    git(folder, "checkout", "-q", "main")
    return folder


def accept(folder: Path, base: str = "main") -> str:
    head = git(folder, "rev-parse", BRANCH)
    return merge_branch(folder, BRANCH, commit=head, base=base, message="Merge pull request #1: Fix it")


def test_where_the_base_is_checked_out_its_files_follow(tree: Path) -> None:
    before = git(tree, "rev-parse", BRANCH)
    (tree / "notes.txt").write_text("mine, not committed\n")
    merged = accept(tree)
    assert git(tree, "rev-parse", "main", "main^2").split() == [merged, before]
    assert (tree / "a.txt").read_text() == "two\n"
    assert (tree / "notes.txt").read_text() == "mine, not committed\n"
    assert git(tree, "log", "-1", "--format=%an %s") == "Ada Merge pull request #1: Fix it"
    assert git(tree, "branch", "--list", BRANCH) == ""


def test_where_another_branch_is_checked_out_no_file_is_touched(tree: Path) -> None:
    git(tree, "checkout", "-q", "-b", "mine")
    (tree / "a.txt").write_text("changed here\n")
    merged = accept(tree)
    assert git(tree, "show", f"{merged}:a.txt") == "two"
    assert git(tree, "rev-parse", "main") == merged
    assert (tree / "a.txt").read_text() == "changed here\n"


@pytest.mark.parametrize("checked_out", ["main", "mine"])
def test_a_person_whom_git_does_not_know_is_told_what_to_set(
    tree: Path, checked_out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NAME", "EMAIL"):
        monkeypatch.delenv(f"GIT_COMMITTER_{name}", raising=False)
    monkeypatch.delenv("EMAIL", raising=False)
    git(tree, "checkout", "-q", "-B", checked_out)
    git(tree, "config", "--remove-section", "user")
    git(tree, "config", "user.useConfigOnly", "true")
    before = git(tree, "rev-parse", "main")
    with pytest.raises(WorkspaceError, match=r"git config user\.name and git config user\.email$"):
        accept(tree)
    assert (git(tree, "rev-parse", "main"), git(tree, "status", "--porcelain")) == (before, "")


def test_a_bare_repository_is_merged_too(tree: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", tree, bare], check=True)
    git(bare, "config", "user.name", "Ada")
    git(bare, "config", "user.email", "ada@example.com")
    merged = accept(bare)
    assert git(bare, "rev-parse", "main") == merged
    assert git(bare, "for-each-ref", "--format=%(refname)", "refs/heads") == "refs/heads/main"


def test_a_base_in_another_worktree_is_merged_there(tree: Path, tmp_path: Path) -> None:
    git(tree, "checkout", "-q", "-b", "mine")
    git(tree, "worktree", "add", "-q", str(tmp_path / "other"), "main")
    accept(tree)
    assert (tmp_path / "other/a.txt").read_text() == "two\n"
    assert git(tmp_path / "other", "status", "--short") == ""


@pytest.mark.parametrize("checked_out", [True, False])
def test_a_conflict_changes_nothing(tree: Path, *, checked_out: bool) -> None:
    old = commit(tree, "a.txt", "three\n")
    if not checked_out:
        git(tree, "checkout", "-q", "-b", "mine")
    with pytest.raises(WorkspaceError, match=r"they conflict\. By hand: git .*merge"):
        accept(tree)
    assert git(tree, "rev-parse", "main") == old
    assert git(tree, "status", "--short") == ""
    assert git(tree, "branch", "--list", BRANCH) != ""


def test_work_that_is_not_committed_is_never_lost(tree: Path) -> None:
    old = git(tree, "rev-parse", "main")
    (tree / "a.txt").write_text("mine\n")
    with pytest.raises(WorkspaceError, match=r"cannot merge .*overwritten by merge"):
        accept(tree)
    assert (tree / "a.txt").read_text() == "mine\n"
    assert git(tree, "rev-parse", "main") == old


def test_a_branch_that_somebody_pushed_to_is_not_merged(tree: Path) -> None:
    with pytest.raises(WorkspaceError, match="somebody pushed to it meanwhile"):
        merge_branch(tree, BRANCH, commit=git(tree, "rev-parse", "main"), base="main", message="m")


def test_the_change_is_what_the_branch_did_since_it_left_the_base(tree: Path) -> None:
    head = git(tree, "rev-parse", BRANCH)
    commit(tree, "b.txt", "by others\n")
    change = LocalRepository(tree).change_of(head, "main")
    assert "+two" in change
    assert "by others" not in change
