"""A change is put onto the base as it is now, and nothing that left the base comes back with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.base import MovedBase
from orchestrator.core.errors import BaseConflictError, WorkspaceError
from tests.unit.bot.git.rig import clone, git, make_source, show, write

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.bot.git.clone import Clone

KEY = "the content of a private key\n"
TEXT = "one\ntwo\nthree\nfour\nfive\n"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    made = make_source(tmp_path / "source", {"a.txt": TEXT, "old/gone.txt": "x\n", "key.pem": KEY})
    git(made, "config", "receive.denyCurrentBranch", "ignore")
    return made


@pytest.fixture
def made(source: Path, tmp_path: Path) -> Iterator[Clone]:
    with clone(source, tmp_path / "clones", branch="main") as made:
        yield made


def commit(source: Path, files: dict[str, str], *removed: str, amend: bool = False) -> str:
    """A commit on the base, as a person makes it elsewhere."""
    git(source, "reset", "-q", "--hard")
    write(source, files)
    if removed:
        git(source, "rm", "-q", *removed)
    git(source, "add", ".")
    git(source, "commit", "-q", *(["--amend"] if amend else []), "-m", "elsewhere")
    return git(source, "rev-parse", "HEAD")


def put_onto(made: Clone, *touched: str) -> list[str]:
    moved = made.moved_base()
    assert moved is not None
    return made.put_onto(moved, set(touched), include_commands=False)


def propose(source: Path, made: Clone, *touched: str) -> str:
    staged = made.stage(set(touched), include_commands=False)
    made.commit_staged(staged, "Change it\n")
    made.push("pullwright/issue-1-x", expected=None)
    return git(source, "rev-parse", "pullwright/issue-1-x")


def test_a_base_that_did_not_move(made: Clone) -> None:
    assert made.moved_base() is None


@pytest.mark.parametrize("amend", [False, True])
def test_a_base_that_moved(source: Path, made: Clone, *, amend: bool) -> None:
    assert made.moved_base() is None
    tip = commit(source, {"b.txt": "b\n"}, amend=amend)
    assert made.moved_base() == MovedBase(tip, is_rewritten=amend)


def test_a_base_that_is_gone(source: Path, made: Clone) -> None:
    git(source, "branch", "-m", "main", "trunk")
    with pytest.raises(BaseConflictError, match="the branch main does not exist any more"):
        made.moved_base()


@pytest.mark.parametrize("amend", [False, True])
def test_a_renamed_base_is_followed_where_it_has_the_bases_commit(
    source: Path, made: Clone, *, amend: bool
) -> None:
    tip = commit(source, {"b.txt": "b\n"}, amend=amend)
    git(source, "branch", "-m", "main", "trunk")
    assert made.rename_base("none") is False
    assert made.rename_base("trunk") is not amend
    assert made.base_branch == ("main" if amend else "trunk")
    if amend:
        with pytest.raises(BaseConflictError, match="the branch main does not exist any more"):
            made.moved_base()
    else:
        assert made.moved_base() == MovedBase(tip, is_rewritten=False)


def test_a_change_is_put_onto_the_base(source: Path, made: Clone) -> None:
    write(made.tree, {"a.txt": TEXT.replace("five", "FIVE"), "new/n.txt": "n\n"})
    elsewhere = {"a.txt": TEXT.replace("one", "ONE"), "deep/b.txt": "b\n"}
    tip = commit(source, elsewhere, "old/gone.txt")
    assert put_onto(made, "a.txt", "new/n.txt") == []
    assert (made.tree / "a.txt").read_text() == "ONE\ntwo\nthree\nfour\nFIVE\n"
    assert (made.tree / "deep" / "b.txt").read_text() == "b\n"
    assert not (made.tree / "old").exists()
    assert made.changed_paths() == {"a.txt", "new/n.txt"}
    pushed = propose(source, made, "a.txt", "new/n.txt")
    assert git(source, "rev-parse", f"{pushed}^") == tip
    assert git(source, "diff", "--name-status", tip, pushed) == "M\ta.txt\nA\tnew/n.txt"


def test_what_was_committed_here_already_is_put_onto_it_too(source: Path, made: Clone) -> None:
    write(made.tree, {"a.txt": TEXT.replace("five", "FIVE")})
    first = propose(source, made, "a.txt")
    tip = commit(source, {"b.txt": "b\n"})
    assert put_onto(made, "a.txt") == []
    write(made.tree, {"c.txt": "c\n"})
    pushed = propose(source, made, "a.txt", "c.txt")
    assert pushed != first
    assert git(source, "rev-list", f"{tip}..{pushed}") == pushed
    assert git(source, "diff", "--name-status", tip, pushed) == "M\ta.txt\nA\tc.txt"


def test_a_file_that_was_removed_by_a_rewritten_base_never_comes_back(source: Path, made: Clone) -> None:
    first = git(source, "rev-parse", "main")
    write(made.tree, {"a.txt": TEXT.replace("five", "FIVE")})
    commit(source, {}, "key.pem", amend=True)
    assert put_onto(made, "a.txt") == []
    assert not (made.tree / "key.pem").exists()
    pushed = propose(source, made, "a.txt")
    assert git(source, "ls-tree", "-r", "--name-only", pushed) == "a.txt\nold/gone.txt"
    assert first not in git(source, "rev-list", pushed)


def test_nor_does_it_with_a_change_of_ours(source: Path, made: Clone) -> None:
    write(made.tree, {"key.pem": KEY + "more\n", "a.txt": TEXT.replace("five", "FIVE")})
    tip = commit(source, {}, "key.pem", amend=True)
    assert put_onto(made, "key.pem", "a.txt") == ["key.pem"]
    snapshot = made.snapshot({"key.pem", "a.txt"}, "Kept\n", include_commands=False)
    assert snapshot.start == tip
    assert git(made.tree, "--git-dir", str(made.git.git_dir), "diff", "--name-only", tip, str(snapshot.commit)) == "a.txt"  # fmt: skip


def test_a_conflict_is_left_in_the_file(source: Path, made: Clone) -> None:
    write(made.tree, {"a.txt": TEXT.replace("one", "mine")})
    commit(source, {"a.txt": TEXT.replace("one", "theirs")})
    assert put_onto(made, "a.txt") == ["a.txt"]
    assert "<<<<<<< pullwright/base\ntheirs\n=======\nmine\n" in (made.tree / "a.txt").read_text()
    staged = made.stage({"a.txt"}, include_commands=False)
    assert staged.outcome.refused == "conflict markers are left in a.txt"


def test_the_same_change_on_the_base_leaves_nothing(source: Path, made: Clone) -> None:
    write(made.tree, {"a.txt": TEXT.replace("one", "ONE")})
    commit(source, {"a.txt": TEXT.replace("one", "ONE")})
    assert put_onto(made, "a.txt") == []
    assert made.changed_paths() == set()
    assert not made.stage({"a.txt"}, include_commands=False).is_new


def test_a_file_that_nobody_knows_is_not_overwritten(source: Path, made: Clone) -> None:
    write(made.tree, {"a.txt": TEXT.replace("one", "ONE"), "b.txt": "mine\n"})
    before = made.base_commit
    commit(source, {"b.txt": "theirs\n"})
    with pytest.raises(WorkspaceError, match=r"b\.txt is in the way"):
        put_onto(made, "a.txt")
    assert made.base_commit == before
    assert (made.tree / "b.txt").read_text() == "mine\n"


def test_a_link_that_a_command_made_is_not_followed(source: Path, made: Clone, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (made.tree / "deep").symlink_to(outside)
    commit(source, {"deep/b.txt": "b\n"})
    with pytest.raises(WorkspaceError):
        put_onto(made)
    assert list(outside.iterdir()) == []


def test_links_and_modes_follow(source: Path, made: Clone) -> None:
    (source / "tool.sh").write_text("#!/bin/sh\n")
    (source / "tool.sh").chmod(0o755)
    (source / "link").symlink_to("a.txt")
    commit(source, {})
    assert put_onto(made) == []
    assert (made.tree / "tool.sh").stat().st_mode & 0o777 == 0o755
    assert (made.tree / "link").readlink().name == "a.txt"
    assert made.changed_paths() == set()
    assert show(source, "main", "tool.sh") == b"#!/bin/sh\n"
