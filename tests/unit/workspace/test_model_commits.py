from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import WorkspaceError
from orchestrator.workspace.base import Screen
from orchestrator.workspace.model_repository import read_head
from tests.unit.workspace.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator.workspace.clone import Clone

BRANCH = "pullwright/test"


def model_commits(clone: Clone, message: str, files: dict[str, str | bytes]) -> None:
    write(clone.tree, files)
    git(clone.tree, "add", "-A")
    git(clone.tree, "commit", "-q", "-m", message)


def subjects(source: Path) -> list[str]:
    return git(source, "log", "--reverse", "--format=%s", BRANCH).splitlines()


def test_commits_are_kept_and_made_again_by_us(shelled: Clone, source: Path) -> None:
    model_commits(shelled, "model one\n\nbody", {"a.txt": "1\n", "src/calc.py": "fixed\n"})
    git(shelled.tree, "rm", "-q", "src/old.py")
    git(shelled.tree, "mv", "README.md", "READ.md")
    git(shelled.tree, "commit", "-qm", "model two")
    write(shelled.tree, {"rest.txt": "rest\n"})
    outcome = shelled.commit(set(), "the rest", include_commands=True)
    assert outcome.notes == []
    assert outcome.files == ["READ.md", "README.md", "a.txt", "rest.txt", "src/calc.py", "src/old.py"]
    assert shelled.changed_paths() == set()
    shelled.push(BRANCH, expected=None)
    assert subjects(source) == ["first", "model one", "model two", "the rest"]
    assert git(source, "log", "-1", "--format=%b", f"{BRANCH}~2") == "body\n"
    people = git(source, "log", "--format=%an %ae %cn %ce", f"main..{BRANCH}").splitlines()
    assert set(people) == {"Pullwright bot@example.invalid Pullwright bot@example.invalid"}
    names = git(source, "show", "--format=", "--name-only", "--no-renames", f"{BRANCH}~1").splitlines()
    assert names == ["READ.md", "README.md", "src/old.py"]


def test_later_commits_go_on_top_and_none_is_made_twice(shelled: Clone, source: Path) -> None:
    model_commits(shelled, "model one", {"a.txt": "1\n"})
    write(shelled.tree, {"rest.txt": "rest\n"})
    shelled.commit(set(), "rest one", include_commands=True)
    model_commits(shelled, "model two", {"a.txt": "2\n"})
    shelled.commit(set(), "rest two", include_commands=True)
    again = shelled.commit(set(), "rest three", include_commands=True)
    assert again.commit is None
    shelled.push(BRANCH, expected=None)
    # `rest.txt` is in the model's second commit too, where it changes nothing any more.
    assert subjects(source) == ["first", "model one", "rest one", "model two"]


def test_a_merge_counts_by_its_first_parent(shelled: Clone, source: Path) -> None:
    git(shelled.tree, "checkout", "-qb", "side")
    model_commits(shelled, "on the side", {"side.txt": "1\n"})
    git(shelled.tree, "checkout", "-q", "main")
    model_commits(shelled, "on main", {"main.txt": "1\n"})
    git(shelled.tree, "merge", "-q", "--no-ff", "-m", "merged", "side")
    assert shelled.commit(set(), "rest", include_commands=True).notes == []
    shelled.push(BRANCH, expected=None)
    assert subjects(source) == ["first", "on main", "merged"]


def test_packed_and_collected_objects_are_read_too(shelled: Clone, source: Path) -> None:
    git(shelled.tree, "checkout", "-qb", "topic/x")
    model_commits(shelled, "model", {"a.txt": "1\n"})
    git(shelled.tree, "gc", "-q", "--prune=now")
    git(shelled.tree, "pack-refs", "--all")
    assert not (shelled.tree / ".git/refs/heads/topic/x").exists()
    shelled.commit(set(), "rest", include_commands=True)
    shelled.push(BRANCH, expected=None)
    assert subjects(source) == ["first", "model"]


def test_messages_are_capped_and_cleaned(shelled: Clone, source: Path) -> None:
    model_commits(shelled, "secret " + "x" * 30_000, {"a.txt": "1\n"})
    screen = Screen(clean_message=lambda text: text.replace("secret", "***"))
    shelled.commit(set(), "r", include_commands=True, screen=screen)
    shelled.push(BRANCH, expected=None)
    message = git(source, "log", "-1", "--format=%B", BRANCH)
    assert message.startswith("*** xxx")
    assert len(message.strip()) == 20_000


def detached(clone: Clone, _: Path) -> None:
    git(clone.tree, "checkout", "-q", "--detach")


def amended_base(clone: Clone, _: Path) -> None:
    git(clone.tree, "commit", "-q", "--amend", "-m", "rewritten")


def orphan(clone: Clone, _: Path) -> None:
    git(clone.tree, "checkout", "-q", "--orphan", "new")
    git(clone.tree, "commit", "-qm", "root")


def unborn(clone: Clone, _: Path) -> None:
    git(clone.tree, "checkout", "-q", "--orphan", "new")


def removed(clone: Clone, _: Path) -> None:
    shutil.rmtree(clone.tree / ".git")


def linked_repository(clone: Clone, outside: Path) -> None:
    (clone.tree / ".git").rename(outside / "moved.git")
    (clone.tree / ".git").symlink_to(outside / "moved.git")


def linked_head(clone: Clone, outside: Path) -> None:
    (outside / "HEAD").write_text("ref: refs/heads/main\n")
    (clone.tree / ".git/HEAD").unlink()
    (clone.tree / ".git/HEAD").symlink_to(outside / "HEAD")


def head_is_a_pipe(clone: Clone, _: Path) -> None:
    (clone.tree / ".git/HEAD").unlink()
    os.mkfifo(clone.tree / ".git/HEAD")


def head_leads_outside(clone: Clone, _: Path) -> None:
    (clone.tree / ".git/HEAD").write_text("ref: refs/heads/../../../x\n")


def linked_objects(clone: Clone, outside: Path) -> None:
    (clone.tree / ".git/objects").rename(outside / "objects")
    (clone.tree / ".git/objects").symlink_to(outside / "objects")


def linked_pack(clone: Clone, outside: Path) -> None:
    pack = clone.tree / ".git/objects/pack"
    pack.rename(outside / "pack")
    pack.symlink_to(outside / "pack")


def alternates(clone: Clone, outside: Path) -> None:
    (clone.tree / ".git/objects/info").mkdir(exist_ok=True)
    (clone.tree / ".git/objects/info/alternates").write_text(f"{outside}\n")


def missing_object(clone: Clone, _: Path) -> None:
    blob = git(clone.tree, "rev-parse", "HEAD:a.txt")
    (clone.tree / ".git/objects" / blob[:2] / blob[2:]).unlink()


def swapped_object(clone: Clone, _: Path) -> None:
    blob = git(clone.tree, "rev-parse", "HEAD:a.txt")
    other = git(clone.tree, "hash-object", "-w", "--stdin", stdin=b"other")
    objects = clone.tree / ".git/objects"
    (objects / blob[:2] / blob[2:]).unlink()
    shutil.copy(objects / other[:2] / other[2:], objects / blob[:2] / blob[2:])


def git_path(clone: Clone, _: Path) -> None:
    blob = git(clone.tree, "rev-parse", "HEAD:a.txt")
    inner = git(clone.tree, "mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    outer = git(clone.tree, "mktree", stdin=f"040000 tree {inner}\t.git\n".encode())
    commit = git(clone.tree, "commit-tree", outer, "-p", "HEAD", "-m", "evil")
    git(clone.tree, "update-ref", "refs/heads/main", commit)


def escaping_link(clone: Clone, _: Path) -> None:
    (clone.tree / "link").symlink_to("/etc/passwd")
    git(clone.tree, "add", "link")
    git(clone.tree, "commit", "-qm", "link")


def nested_repository(clone: Clone, outside: Path) -> None:
    make_source(outside / "inner", {"x": "x"}).rename(clone.tree / "nested")
    git(clone.tree, "add", "nested")
    git(clone.tree, "commit", "-qm", "nested")


def large_file(clone: Clone, _: Path) -> None:
    write(clone.tree, {"large.bin": b"x" * 1_000_001})
    git(clone.tree, "add", ".")
    git(clone.tree, "commit", "-qm", "large")


def too_many(clone: Clone, _: Path) -> None:
    parent = git(clone.tree, "rev-parse", "HEAD")
    stream = "".join(
        f"commit refs/heads/main\ncommitter A <a@b> 0 +0000\ndata 1\nx\n{f'from {parent}' if n == 0 else ''}\n"
        for n in range(101)
    )
    git(clone.tree, "fast-import", "--quiet", stdin=stream.encode())


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (detached, "HEAD is detached"),
        (amended_base, "do not follow the commit"),
        (orphan, "do not follow the commit"),
        (unborn, "HEAD names no commit"),
        (removed, "HEAD names no commit"),
        (linked_repository, "HEAD names no commit"),
        (linked_head, "HEAD names no commit"),
        (head_is_a_pipe, "HEAD names no commit"),
        (head_leads_outside, "HEAD names no commit"),
        (linked_objects, "not where git puts them"),
        (linked_pack, "not where git puts them"),
        (alternates, "in another repository"),
        (missing_object, "a file in them is missing"),
        (swapped_object, "kept as commits"),
        (git_path, "git refuses a path in them"),
        (escaping_link, "a symbolic link that leaves"),
        (nested_repository, "a submodule or a nested repository"),
        (large_file, "a file of more than 1,000,000 bytes"),
        (too_many, "more than 100"),
    ],
)
def test_what_cannot_be_kept_becomes_one_commit(
    shelled: Clone, source: Path, tmp_path: Path, spoil: Callable[[Clone, Path], None], said: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    if spoil is not amended_base:
        model_commits(shelled, "model", {"a.txt": "1\n"})
    else:
        write(shelled.tree, {"a.txt": "1\n"})
    spoil(shelled, outside)
    outcome = shelled.commit({"a.txt"}, "one commit", include_commands=True)
    assert outcome.files == ["a.txt"]
    assert len(outcome.notes) == 1
    assert said in outcome.notes[0]
    assert "\n" not in outcome.notes[0]
    shelled.push(BRANCH, expected=None)
    assert subjects(source) == ["first", "one commit"]
    assert git(source, "show", f"{BRANCH}:a.txt") == "1"
    # The next change is possible after each of them.
    write(shelled.tree, {"b.txt": "1\n"})
    assert shelled.commit({"b.txt"}, "next", include_commands=True).files == ["b.txt"]


@pytest.mark.parametrize("commits_too", [True, False])
def test_a_history_that_goes_back_before_the_base(source: Path, tmp_path: Path, *, commits_too: bool) -> None:
    write(source, {"second.txt": "2\n"})
    git(source, "add", ".")
    git(source, "commit", "-qm", "second")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        git(opened.tree, "reset", "-q", "--hard", "HEAD~1")
        if commits_too:
            model_commits(opened, "elsewhere", {"a.txt": "1\n"})
        write(opened.tree, {"b.txt": "1\n"})
        outcome = opened.commit(set(), "one commit", include_commands=True)
        assert outcome.files == (["a.txt"] if commits_too else []) + ["b.txt", "second.txt"]
        assert "do not follow the commit" in outcome.notes[0]
        opened.push(BRANCH, expected=None)
    assert subjects(source) == ["first", "second", "one commit"]


def test_a_damaged_head_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="HEAD names no commit"):
        read_head(tmp_path)


def holding_back(diff: str) -> list[str]:
    return ["x:1"] if "+secret" in diff else []


def test_a_commit_that_adds_a_secret_is_in_no_history_even_if_a_later_one_takes_it_out(
    shelled: Clone, source: Path
) -> None:
    model_commits(shelled, "one", {"a.txt": "secret\n"})
    model_commits(shelled, "two", {"a.txt": "clean\n"})
    outcome = shelled.commit(set(), "r", include_commands=True, screen=Screen(find_secrets=holding_back))
    assert outcome.commit is not None
    assert "x:1" in " ".join(outcome.notes)
    shelled.push(BRANCH, expected=None)
    assert "secret" not in git(source, "log", "-p", f"{shelled.base_commit}..{BRANCH}")


def test_what_is_held_back_is_committed_nowhere(shelled: Clone, source: Path) -> None:
    (shelled.tree / "a.txt").write_text("secret\n")
    screen = Screen(find_secrets=holding_back)
    outcome = shelled.commit({"a.txt"}, "r", include_commands=True, screen=screen)
    assert (outcome.commit, outcome.held_back) == (None, ["x:1"])
    (shelled.tree / "a.txt").write_text("clean\n")
    assert shelled.commit({"a.txt"}, "r", include_commands=True, screen=screen).held_back == []
    shelled.push(BRANCH, expected=None)
    assert "secret" not in git(source, "log", "-p", f"{shelled.base_commit}..{BRANCH}")
