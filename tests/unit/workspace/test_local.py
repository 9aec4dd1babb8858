from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import WorkspaceError
from orchestrator.workspace.local import LocalRepository
from tests.unit.workspace.rig import git, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=["work tree", "bare", "second work tree"])
def repository(request: pytest.FixtureRequest, source: Path, tmp_path: Path) -> LocalRepository:
    if request.param == "bare":
        git(tmp_path, "clone", "-q", "--bare", str(source), "source.git")
        return LocalRepository(tmp_path / "source.git")
    if request.param == "second work tree":
        (tmp_path / "else").mkdir()
        git(source, "worktree", "add", "-q", "-b", "second", str(tmp_path / "else" / "source"))
        return LocalRepository(tmp_path / "else" / "source")
    return LocalRepository(source)


def test_it_is_read_where_it_lies(repository: LocalRepository) -> None:
    assert repository.name == "source"
    assert repository.default_branch() in {"main", "second"}
    assert not repository.is_empty()
    assert repository.read_file("README.md", "main") == "# Example\n"
    assert repository.read_file("src/calc.py", "main") == "def add(a, b):\n    return a - b\n"


@pytest.mark.parametrize(
    "path", ["no", "src", "../README.md", "/README.md", "*.md", "", ":(top)README.md", "-l"]
)
def test_what_is_no_file_is_none(source: Path, path: str) -> None:
    assert LocalRepository(source).read_file(path, "main") is None


def test_other_files(source: Path) -> None:
    write(source, {"latin.txt": b"caf\xe9", "large.txt": b"x" * 5_000_001})
    (source / "link").symlink_to("/etc/passwd")
    git(source, "add", ".")
    git(source, "commit", "-qm", "more")
    repository = LocalRepository(source)
    assert repository.read_file("latin.txt", "main") == "caf\ufffd"
    assert repository.read_file("link", "main") is None
    assert repository.read_file("README.md", "nowhere") is None
    with pytest.raises(WorkspaceError, match="larger than 5,000,000 bytes"):
        repository.read_file("large.txt", "main")


def test_merged_or_not(source: Path) -> None:
    repository = LocalRepository(source)
    first = git(source, "rev-parse", "HEAD")
    git(source, "checkout", "-qb", "topic")
    git(source, "commit", "-q", "--allow-empty", "-m", "topic")
    topic = git(source, "rev-parse", "HEAD")
    assert repository.contains(first, "main")
    assert not repository.contains(topic, "main")
    assert repository.contains(topic, "topic")
    git(source, "checkout", "-q", "main")
    git(source, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    assert repository.contains(topic, "main")
    assert not repository.contains("0" * 40, "main")
    assert not repository.contains("main", "main")
    assert not repository.contains(topic, "nowhere")


def test_no_default_branch(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-q", "--detach")
    assert LocalRepository(source).default_branch() is None
    git(tmp_path, "init", "-q", "empty")
    empty = LocalRepository(tmp_path / "empty")
    assert empty.default_branch() is None
    assert empty.is_empty()
    assert empty.name == "empty"


def test_what_is_no_repository(source: Path, tmp_path: Path) -> None:
    for path, said in (
        (tmp_path, "is not a git repository"),
        (source / "src", "is not a git repository"),
        (tmp_path / "no", "does not exist"),
        (source / "README.md", "is not a folder"),
    ):
        with pytest.raises(WorkspaceError, match=said) as caught:
            LocalRepository(path)
        assert str(caught.value).startswith(str(path))


def test_another_users_repository(source: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give files away")
    os.chown(source, 65534, 65534)
    os.chown(source / ".git", 65534, 65534)
    with pytest.raises(WorkspaceError, match="belongs to another user"):
        LocalRepository(source)


def test_a_bad_branch_name(source: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot be the name of a branch"):
        LocalRepository(source).read_file("README.md", "--help")
