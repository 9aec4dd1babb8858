from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.base import RemoteTip
from orchestrator.core.errors import PushRejectedError, WorkspaceError
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.rig import clone, git, over_ssh, write

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

BRANCH = "pullwright/12-fix"


def commit(opened: Clone, text: str = "1") -> str:
    write(opened.tree, {"a.txt": text})
    made = commit_touched(opened, {"a.txt"}, f"write {text}", include_commands=False).commit
    assert made is not None
    return made


def hook(source: Path, name: str, script: str) -> None:
    path = source / ".git" / "hooks" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_push_and_read_back(safe: Clone, source: Path) -> None:
    made = commit(safe)
    assert safe.remote_tip(BRANCH) is None
    assert safe.push(BRANCH, expected=None) == made
    assert git(source, "rev-parse", BRANCH) == made
    assert safe.remote_tip(BRANCH) == RemoteTip(made, "bot@example.invalid", "Pullwright")


def test_a_branch_of_another_clone_is_read_and_taken_over_by_its_id(
    safe: Clone, source: Path, tmp_path: Path
) -> None:
    git(source, "checkout", "-qb", BRANCH)
    git(source, "commit", "-q", "--allow-empty", "-m", "theirs")
    git(source, "checkout", "-q", "main")
    tip = safe.remote_tip(BRANCH)
    assert tip == RemoteTip(git(source, "rev-parse", BRANCH), "someone@example.invalid", "Someone")
    made = commit(safe)
    with pytest.raises(PushRejectedError, match="changed on the remote meanwhile"):
        safe.push(BRANCH, expected=None)
    assert git(source, "rev-parse", BRANCH) == tip.commit
    assert safe.push(BRANCH, expected=tip.commit) == made
    with clone(source, tmp_path / "other") as other:
        commit(other, "2")
        with pytest.raises(PushRejectedError, match="changed on the remote meanwhile"):
            other.push(BRANCH, expected=tip.commit)


def test_reading_a_tip_does_not_shorten_our_history(source: Path, tmp_path: Path) -> None:
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    git(source, "branch", BRANCH)
    with clone(source, tmp_path / "runs") as opened:
        opened.remote_tip(BRANCH)
        assert len(opened.recent_commits(5)) == 2


def test_a_push_may_be_repeated(safe: Clone, source: Path) -> None:
    made = commit(safe)
    assert safe.push(BRANCH, expected=None) == made
    assert safe.push(BRANCH, expected=None) == made
    # A push whose answer was lost: the branch is there although it was expected not to be.
    git(source, "update-ref", f"refs/heads/{BRANCH}-2", made)
    assert safe.push(f"{BRANCH}-2", expected=None) == made


def test_a_push_whose_answer_was_lost(safe: Clone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = commit(safe)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "git").write_text(
        f'#!/bin/sh\n{shutil.which("git")} "$@"\nstatus=$?\n'
        'case " $* " in *" push "*) echo "fatal: the remote end hung up unexpectedly" >&2; exit 128;; esac\n'
        "exit $status\n"
    )
    (folder / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    assert safe.push(BRANCH, expected=None) == made


def test_a_branch_that_changed_after_our_push_is_not_overwritten(safe: Clone, source: Path) -> None:
    commit(safe)
    safe.push(BRANCH, expected=None)
    git(source, "update-ref", f"refs/heads/{BRANCH}", "main")
    commit(safe, "2")
    with pytest.raises(PushRejectedError, match="changed on the remote meanwhile"):
        safe.push(BRANCH, expected=None)
    assert git(source, "rev-parse", BRANCH) == safe.base_commit


def test_the_servers_reason_is_told_in_one_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(source, "pre-receive", "echo 'error: GH006: Protected branch'; echo 'second line' >&2; exit 1")
    with clone(over_ssh(source, tmp_path, monkeypatch), tmp_path / "clones") as opened:
        commit(opened)
        with pytest.raises(PushRejectedError) as caught:
            opened.push(BRANCH, expected=None)
    text = str(caught.value)
    assert "pre-receive hook declined" in text
    assert "GH006: Protected branch | second line" in text
    assert "\n" not in text


def test_a_server_that_keeps_something_else_is_noticed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook(source, "post-receive", f"git update-ref refs/heads/{BRANCH} main")
    with clone(over_ssh(source, tmp_path, monkeypatch), tmp_path / "clones") as opened:
        commit(opened)
        with pytest.raises(PushRejectedError, match=f"the remote has {opened.base_commit} instead"):
            opened.push(BRANCH, expected=None)


def test_the_base_branch_is_never_pushed_to(safe: Clone) -> None:
    commit(safe)
    with pytest.raises(PushRejectedError, match="never pushed to main"):
        safe.push("main", expected=safe.base_commit)


def test_the_branch_that_is_checked_out_there(safe: Clone, source: Path) -> None:
    git(source, "checkout", "-qb", BRANCH)
    commit(safe)
    with pytest.raises(PushRejectedError, match="branch is currently checked out"):
        safe.push(BRANCH, expected=safe.base_commit)


@pytest.mark.parametrize("branch", ["-x", "a:b", "+a", "a b", "a..b", "", "refs/heads/x.lock", "a/.b"])
def test_bad_branch_names(safe: Clone, branch: str) -> None:
    if branch == "+a":
        # Strange, but git takes it, and as a name.
        assert safe.push(branch, expected=None) == safe.base_commit
        return
    for work in (lambda: safe.push(branch, expected=None), lambda: safe.remote_tip(branch)):
        with pytest.raises(WorkspaceError, match="cannot be the name of a branch"):
            work()


def test_a_lease_must_be_a_commit(safe: Clone) -> None:
    with pytest.raises(WorkspaceError, match="is not a commit id"):
        safe.push(BRANCH, expected="main")


def test_a_remote_that_went_away(safe: Clone, source: Path) -> None:
    commit(safe)
    source.rename(source.with_name("moved"))
    with pytest.raises(WorkspaceError, match="cannot push"):
        safe.push(BRANCH, expected=None)
    with pytest.raises(WorkspaceError, match="cannot read branch"):
        safe.remote_tip(BRANCH)


def test_to_a_bare_repository(source: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--bare", str(source), "bare.git")
    with clone(tmp_path / "bare.git", tmp_path / "runs") as opened:
        made = commit(opened)
        assert opened.push(BRANCH, expected=None) == made
    assert git(tmp_path / "bare.git", "rev-parse", BRANCH) == made
