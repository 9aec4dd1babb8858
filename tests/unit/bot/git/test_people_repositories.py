"""Repositories as people have them: partial and sparse clones, a HEAD that names nothing, another branch checked out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.local import LocalRepository
from orchestrator.core.errors import RemoteUnavailableError, WorkspaceError
from tests.unit.bot.git.rig import clone, git, make_source, write

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A repository whose history has other versions of its files, and which serves partial clones."""
    made = make_source(tmp_path / "source", {"a.txt": "1\n", "sub/b.txt": "b1\n"})
    git(made, "config", "uploadpack.allowFilter", "true")
    for version in ("2\n", "3\n"):
        write(made, {"a.txt": version, "sub/b.txt": f"b{version}"})
        git(made, "commit", "-qam", version)
    return made


def partial(source: Path, *options: str) -> Path:
    """A partial clone, with the files of its own commit."""
    made = source.parent / "partial"
    git(source.parent, "clone", "-q", "--filter=blob:none", *options, source.as_uri(), str(made))
    return made


def test_a_partial_clone_is_cloned_and_takes_a_branch(source: Path, tmp_path: Path) -> None:
    here = partial(source)
    with clone(here, tmp_path / "runs", branch="main") as opened:
        assert (opened.tree / "a.txt").read_text() == "3\n"
        write(opened.tree, {"a.txt": "4\n"})
        opened.commit_staged(opened.stage({"a.txt"}, include_commands=False), "Four\n")
        commit = opened.push("pullwright/x", expected=None)
    assert git(here, "show", f"{commit}:a.txt") == "4"


def test_a_sparse_one_that_lacks_files_says_how_to_fetch_them(source: Path, tmp_path: Path) -> None:
    here = partial(source, "--sparse")
    with pytest.raises(
        WorkspaceError, match="lacks files of its own commit; to fetch them: git -C "
    ) as found:
        clone(here, tmp_path / "runs", branch="main")
    assert not isinstance(found.value, RemoteUnavailableError)
    git(here, "archive", "--format=tar", "--output=/dev/null", "HEAD")
    with clone(here, tmp_path / "runs", branch="main") as opened:
        assert (opened.tree / "sub" / "b.txt").read_text() == "b3\n"


@pytest.mark.parametrize(
    ("branches", "head", "expected"),
    [
        (["main", "other"], "gone", "main"),
        (["master", "other"], "gone", "master"),
        (["trunk"], "gone", "trunk"),
        (["trunk", "other"], "gone", None),
        (["main", "other"], "other", "other"),
    ],
)
def test_what_head_names(tmp_path: Path, branches: list[str], head: str, expected: str | None) -> None:
    made = make_source(tmp_path / "source", {"a.txt": "1\n"})
    git(made, "branch", "-m", "main", branches[0])
    for name in branches[1:]:
        git(made, "branch", name)
    git(made, "symbolic-ref", "HEAD", f"refs/heads/{head}")
    assert LocalRepository(made).default_branch() == expected


def test_what_origin_declared_is_the_default_whatever_is_checked_out(source: Path, tmp_path: Path) -> None:
    here = tmp_path / "mine"
    git(tmp_path, "clone", "-q", str(source), str(here))
    git(here, "checkout", "-q", "-b", "feature")
    repository = LocalRepository(here)
    assert repository.default_and_checkout() == ("main", False)
    git(here, "branch", "-q", "-D", "main")
    assert repository.default_and_checkout() == ("feature", True)


def test_what_origin_declared_and_has_no_more_is_not_the_default(source: Path, tmp_path: Path) -> None:
    here = tmp_path / "mine"
    git(tmp_path, "clone", "-q", str(source), str(here))
    git(here, "checkout", "-q", "-b", "feature")
    git(here, "update-ref", "-d", "refs/remotes/origin/main")
    assert LocalRepository(here).default_and_checkout() == ("feature", True)


def test_a_detached_head_without_an_origin_names_nothing(source: Path) -> None:
    git(source, "checkout", "-q", "--detach")
    assert LocalRepository(source).default_branch() is None
