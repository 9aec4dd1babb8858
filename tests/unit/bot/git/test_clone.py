from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.git.base import Identity, TrackedFile
from orchestrator.bot.git.opening import open_clone, opened_clone, remove_clone
from orchestrator.core.errors import EmptyRepositoryError, GitMissingError, WorkspaceError
from tests.doubles.commits import commit_touched
from tests.unit.bot.git.rig import add_empty_commits, clone, git, make_source, write

if TYPE_CHECKING:
    from orchestrator.bot.git.clone import Clone


def test_the_files_are_there_and_no_git(safe: Clone, source: Path) -> None:
    assert sorted(path.name for path in safe.tree.iterdir()) == [".gitignore", "README.md", "src"]
    assert safe.base_branch == "main"
    assert safe.base_commit == git(source, "rev-parse", "HEAD")
    assert safe.changed_paths() == set()


def test_it_is_removed_at_the_end_also_of_a_failure(source: Path, tmp_path: Path) -> None:
    def interrupted() -> None:
        with clone(source, tmp_path / "runs") as opened:
            (opened.tree / "README.md").chmod(0o400)
            opened.tree.chmod(0o500)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert list((tmp_path / "runs").iterdir()) == []


def test_it_stays_where_it_is_asked_to(source: Path, tmp_path: Path) -> None:
    with clone(source, tmp_path / "runs") as opened:
        opened.keep()
    assert (opened.tree / "README.md").is_file()


def test_a_failed_clone_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="it has no branch 'nowhere'"):
        clone(source, tmp_path / "runs", branch="nowhere")
    assert list((tmp_path / "runs").iterdir()) == []


def test_it_is_shallow_and_has_one_branch(source: Path, tmp_path: Path) -> None:
    add_empty_commits(source, 15, "change")
    git(source, "branch", "other")
    git(source, "tag", "v1")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        own = git(opened.tree, "log", "--format=%s").splitlines()
        lines = opened.recent_commits(50)
        references = git(opened.tree.parent / "host.git", "for-each-ref", "--format=%(refname)")
    assert [line.subject for line in lines] == [f"change {number}" for number in range(14, 4, -1)]
    assert own == [line.subject for line in lines]
    assert lines[0].commit == opened.base_commit
    assert len(lines[0].date) == len("2026-01-01")
    assert set(references.split()) <= {
        "refs/heads/main",
        "refs/remotes/origin/HEAD",
        "refs/remotes/origin/main",
    }
    assert len(lines) == 10


def test_recent_commits_takes_as_many_as_asked(safe: Clone) -> None:
    assert [line.subject for line in safe.recent_commits(1)] == ["first"]
    assert safe.recent_commits(0) == []


def test_another_branch_on_request(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-qb", "feature/x")
    write(source, {"extra.txt": "x"})
    git(source, "add", ".")
    git(source, "commit", "-qm", "extra")
    git(source, "checkout", "-q", "main")
    with clone(source, tmp_path / "runs", branch="feature/x") as opened:
        assert opened.base_branch == "feature/x"
        assert (opened.tree / "extra.txt").is_file()


def test_every_kind_of_entry_is_listed_and_checked_out(tmp_path: Path) -> None:
    inner = make_source(tmp_path / "inner", {"a": "a"})
    source = make_source(
        tmp_path / "source", {"bin": b"\0\1\2", "crlf.txt": b"a\r\nb\r\n", "Name": "1", "name": "22"}
    )
    write(source, {os.fsdecode(b"caf\xe9.txt"): "latin"})
    (source / "link").symlink_to("bin")
    (source / "dangling").symlink_to("nowhere")
    git(source, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(inner), "sub")
    git(source, "add", ".")
    git(source, "commit", "-qm", "more")
    with clone(source, tmp_path / "runs") as opened:
        listed = {file.path: file for file in opened.tracked_files()}
        assert listed["bin"] == TrackedFile("bin", 3, "file")
        assert listed["link"] == TrackedFile("link", 3, "link")
        assert listed["sub"] == TrackedFile("sub", 0, "submodule")
        assert {"Name", "name", "dangling"} <= set(listed)
        latin = os.fsdecode(b"caf\xe9.txt")
        assert listed[latin].size == 5
        assert (opened.tree / latin).read_bytes() == b"latin"
        assert (opened.tree / "crlf.txt").read_bytes() == b"a\r\nb\r\n"
        assert str((opened.tree / "dangling").readlink()) == "nowhere"
        assert list((opened.tree / "sub").iterdir()) == []
        assert opened.changed_paths() == set()


def test_the_models_repository_works_and_knows_no_remote(shelled: Clone, source: Path) -> None:
    assert git(shelled.tree, "status", "--porcelain") == ""
    assert git(shelled.tree, "log", "--format=%s") == "first"
    assert git(shelled.tree, "remote") == ""
    assert str(source) not in (shelled.tree / ".git" / "config").read_text()
    assert "first" in git(shelled.tree, "log", "-p", "--", "README.md")
    assert "Someone" in git(shelled.tree, "blame", "--porcelain", "README.md")
    write(shelled.tree, {"README.md": "# Changed\n"})
    assert "+# Changed" in git(shelled.tree, "diff")
    # Damage done there stays there.
    for pack in (shelled.tree / ".git" / "objects" / "pack").iterdir():
        pack.chmod(0o600)
        pack.write_bytes(b"broken")
    assert len(shelled.tracked_files()) == 4


def test_an_empty_repository(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "source")
    for branch in (None, "main"):
        with pytest.raises(EmptyRepositoryError, match="push a first commit"):
            clone(tmp_path / "source", tmp_path / "runs", branch=branch)
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_detached_head_and_a_head_without_branch_ask_for_a_base(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-q", "--detach")
    with pytest.raises(WorkspaceError, match="pass --base BRANCH"):
        clone(source, tmp_path / "runs")
    git(source, "symbolic-ref", "HEAD", "refs/heads/unborn")
    with pytest.raises(WorkspaceError, match="pass --base BRANCH"):
        clone(source, tmp_path / "runs")
    with clone(source, tmp_path / "runs", branch="main") as opened:
        assert opened.base_branch == "main"


def test_a_tag_is_no_branch(source: Path, tmp_path: Path) -> None:
    git(source, "tag", "v1")
    with pytest.raises(WorkspaceError, match="'v1' is a tag"):
        clone(source, tmp_path / "runs", branch="v1")


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("/nowhere/at/all", "/nowhere/at/all does not exist"),
        ("", "not the address of a repository"),
        ("ext::sh -c touch% /tmp/x", "does not exist"),
        ("ext://sh -c x", "begins with 'ext'"),
        ("git://example.invalid/x", "begins with 'git'"),
        ("https://token@example.invalid/x", "leave it out and set the token"),
        ("https://user:word@example.invalid/x", "leave it out and set the token"),
        ("ssh://user:word@example.invalid/x", "use an ssh key"),
        ("--upload-pack=touch x", "does not exist"),
        ("http://127.0.0.1:1/x.git", "the server cannot be reached"),
        ("a\nb", "not the address of a repository"),
    ],
)
def test_bad_addresses_get_one_clear_line(url: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match=said) as caught:
        clone(url, tmp_path / "runs")
    assert "\n" not in str(caught.value)
    assert "word@" not in str(caught.value)


def test_a_folder_that_is_no_repository(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    with pytest.raises(WorkspaceError, match="it is not a git repository"):
        clone(tmp_path / "plain", tmp_path / "runs")


@pytest.mark.parametrize("branch", ["-x", "a b", "a..b", "", "a\nb", "x.lock", "/a", "HEAD"])
def test_names_that_no_branch_has(branch: str, source: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be the name of a branch"):
        clone(source, tmp_path / "runs", branch=branch)


def test_a_source_of_another_user_is_refused_in_words(source: Path, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    for folder, _, files in os.walk(source):
        os.chown(folder, 65534, 65534)
        for name in files:
            os.lchown(os.path.join(folder, name), 65534, 65534)  # noqa: PTH118  os.walk gives texts
    with pytest.raises(WorkspaceError, match="belongs to another user"):
        clone(source, tmp_path / "runs")


def test_a_tree_that_git_refuses_to_check_out(source: Path, tmp_path: Path) -> None:
    blob = git(source, "rev-parse", "HEAD:README.md")
    inner = git(source, "mktree", stdin=f"100644 blob {blob}\tconfig\n".encode())
    outer = git(source, "mktree", stdin=f"040000 tree {inner}\t.GIT\n".encode())
    git(source, "update-ref", "refs/heads/main", git(source, "commit-tree", outer, "-m", "bad"))
    with pytest.raises(WorkspaceError, match="invalid path"):
        clone(source, tmp_path / "runs")


def test_without_git_there_is_one_clear_line(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitMissingError, match="install git"):
        clone(source, tmp_path / "runs")


def test_a_parent_that_cannot_be_made(source: Path) -> None:
    with pytest.raises(WorkspaceError, match="Not a directory"):
        clone(source, source / "README.md" / "runs")


def test_an_identity_without_a_name(source: Path, tmp_path: Path) -> None:
    for identity in (Identity("<>", "a@b"), Identity("Name", " ")):
        with pytest.raises(WorkspaceError, match="needs a name and an e-mail"):
            open_clone(
                str(source),
                branch=None,
                credential=lambda: None,
                parent=tmp_path,
                with_git=False,
                identity=identity,
            )


def test_a_sha256_repository(tmp_path: Path) -> None:
    source = tmp_path / "source"
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "source")
    write(source, {"a": "a"})
    git(source, "add", ".")
    git(source, "commit", "-qm", "first")
    with clone(source, tmp_path / "runs", with_git=True) as opened:
        assert len(opened.base_commit) == 64
        write(opened.tree, {"a": "b"})
        assert commit_touched(opened, {"a"}, "change", include_commands=True).files == ["a"]


def test_lfs_pointers_stay_pointers(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 9\n"
    source = make_source(
        tmp_path / "source", {".gitattributes": "*.bin filter=lfs -text\n", "x.bin": pointer}
    )
    with clone(source, tmp_path / "runs") as opened:
        assert (opened.tree / "x.bin").read_bytes() == pointer
        assert opened.changed_paths() == set()


class SlowClone:
    """A clone whose removal goes on until it is told to end."""

    folder = Path("/clones/one")

    def __init__(self, error: Exception | None = None) -> None:
        self.may_end, self.ended = threading.Event(), threading.Event()
        self._error = error

    def close(self) -> None:
        assert self.may_end.wait(60)
        self.ended.set()
        if self._error is not None:
            raise self._error


async def test_the_event_loop_goes_on_while_a_clone_is_removed() -> None:
    slow: Any = SlowClone()
    warned: list[str] = []
    async with opened_clone(lambda: slow, warned.append):
        asyncio.get_running_loop().call_soon(slow.may_end.set)
    assert slow.ended.is_set()
    assert warned == []


async def test_a_process_that_ends_leaves_the_rest_of_a_clone_to_a_later_run() -> None:
    slow: Any = SlowClone()
    warned: list[str] = []
    await remove_clone(slow, warned.append, ends=True, seconds=0.0)
    assert warned == ["the clone in /clones/one is not removed yet; a later run removes what is left of it"]
    assert not slow.ended.is_set()
    slow.may_end.set()
    assert await asyncio.to_thread(slow.ended.wait, 60)


async def test_what_cannot_be_removed_is_a_warning_and_a_defect_is_not() -> None:
    failing: Any = SlowClone(WorkspaceError("no"))
    failing.may_end.set()
    warned: list[str] = []
    await remove_clone(failing, warned.append, ends=False)
    assert warned == ["the clone could not be removed: no"]
    broken: Any = SlowClone(ValueError("defect"))
    broken.may_end.set()
    with pytest.raises(ValueError, match="defect"):
        await remove_clone(broken, warned.append, ends=False)
