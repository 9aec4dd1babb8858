from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.git.local import LocalRepository, locate
from orchestrator.core.errors import WorkspaceError
from tests.unit.bot.git.rig import git, write

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
    default, heads = repository.heads()
    assert (default, heads[default or ""]) == (repository.default_branch(), heads["main"])
    assert repository.read_file("README.md", heads["main"]) == "# Example\n"
    assert repository.read_file("src/calc.py", heads["main"]) == "def add(a, b):\n    return a - b\n"
    assert repository.read_file("README.md", heads["main"]) == "# Example\n"


@pytest.mark.parametrize(
    "path",
    ["HEAD", "config", "index", "packed-refs", "info/exclude", "refs/heads/main", "objects/info/alternates"],
)
@pytest.mark.parametrize("kind", ["named pipe", "link to a device"])
def test_git_is_not_asked_where_it_would_wait(repository: LocalRepository, path: str, kind: str) -> None:
    """Of the git directory itself, and of the one that a second work tree shares."""
    top = repository.path
    git_dir = next(
        one for one in (top.parents[1] / "source" / ".git", top / ".git", top) if (one / "HEAD").is_file()
    )
    (git_dir / path).parent.mkdir(exist_ok=True)
    (git_dir / path).unlink(missing_ok=True)
    if kind == "named pipe":
        os.mkfifo(git_dir / path)
    else:
        (git_dir / path).symlink_to("/dev/zero")
    for ask in (locate, LocalRepository):
        with pytest.raises(
            WorkspaceError, match=f"{path} is a (named pipe|device), and git would wait for it: remove it"
        ):
            ask(top)


@pytest.mark.parametrize("place", ["objects/{head}", "lent/info/alternates", "lent/pack/x.idx", "linked/v1"])
def test_what_git_reaches_by_links_and_lenders_is_looked_at_too(source: Path, place: str) -> None:
    """A loose object; folders that lend objects, one of them in a circle; a folder behind a link."""
    git_dir, head = source / ".git", git(source, "rev-parse", "HEAD")
    (git_dir / "objects/info/alternates").write_text("# lenders\n../../lent\n.\n/nowhere\n/\n" + "x" * 9_999)
    (git_dir / "refs/heads/loop").symlink_to("loop")
    (git_dir / "refs/tags").rmdir()
    (git_dir / "refs/tags").symlink_to("../../linked")
    pipe = (git_dir if "head" in place else source) / place.format(head=f"{head[:2]}/{head[2:]}")
    pipe.parent.mkdir(parents=True, exist_ok=True)
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    for ask in (locate, LocalRepository):
        with pytest.raises(WorkspaceError, match=f"{pipe.name} is a named pipe, and git would wait for it"):
            ask(source)
    pipe.unlink()
    assert locate(source).is_repository


def test_git_goes_on_further_up_where_a_git_folder_is_empty(source: Path) -> None:
    (source / "src" / ".git").mkdir()
    (source / ".git" / "index").unlink(missing_ok=True)
    os.mkfifo(source / ".git" / "index")
    with pytest.raises(WorkspaceError, match="index is a named pipe"):
        locate(source / "src")


def test_the_socket_of_gits_own_monitor_hinders_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(source / ".git")  # the path of a socket has at most 108 bytes
    with socket.socket(socket.AF_UNIX) as one:
        one.bind("fsmonitor--daemon.ipc")
    assert locate(source).is_repository


@pytest.mark.parametrize(
    "path", ["no", "src", "../README.md", "/README.md", "*.md", "", ":(top)README.md", "-l"]
)
def test_what_is_no_file_is_none(source: Path, path: str) -> None:
    assert LocalRepository(source).read_file(path, git(source, "rev-parse", "main")) is None


def test_other_files(source: Path) -> None:
    write(source, {"latin.txt": b"caf\xe9", "large.txt": b"x" * 5_000_001})
    (source / "link").symlink_to("/etc/passwd")
    git(source, "add", ".")
    git(source, "commit", "-qm", "more")
    repository = LocalRepository(source)
    commit = repository.heads()[1]["main"]
    assert repository.read_file("latin.txt", commit) == "caf\ufffd"
    assert repository.read_file("link", commit) is None
    with pytest.raises(WorkspaceError, match="larger than 5,000,000 bytes"):
        repository.read_file("large.txt", commit)


def test_merged_or_not(source: Path) -> None:
    repository = LocalRepository(source)
    first = git(source, "rev-parse", "HEAD")
    git(source, "checkout", "-qb", "topic")
    git(source, "commit", "-q", "--allow-empty", "-m", "topic")
    topic, gone = git(source, "rev-parse", "HEAD"), "0" * 40
    assert repository.merged([first, topic], first) == {first}
    assert repository.merged([first, topic], topic) == {first, topic}
    assert repository.merged([gone, topic, first], first) == {first}
    assert repository.merged([gone], first) == set()
    git(source, "checkout", "-q", "main")
    git(source, "merge", "-q", "--no-ff", "-m", "merge", "topic")
    assert repository.merged([topic], git(source, "rev-parse", "main")) == {topic}
    assert repository.merged([], first) == set()
    for odd in ("main", "--all", f"^{topic}", topic[:20]):
        assert repository.merged([odd], topic) == set()
        assert repository.merged([topic], odd) == set()
    git(source, "tag", "-am", "a tag", "v1", topic)
    for kind in ("main^{tree}", "main:README.md", "v1"):
        assert repository.merged([git(source, "rev-parse", kind)], topic) == set(), kind
    with pytest.raises(WorkspaceError, match="cannot read"):
        repository.merged([topic], gone)


def test_a_branch_may_have_an_odd_name(source: Path) -> None:
    commit = git(source, "rev-parse", "HEAD")
    names = ["HEAD", "a\u2028b", "x/,y", "\u00e9"]
    for name in names:
        git(source, "update-ref", f"refs/heads/{name}", commit)
    assert LocalRepository(source).heads() == ("main", dict.fromkeys(["main", *names], commit))


def test_a_damaged_branch_hinders_nothing(source: Path) -> None:
    commit, gone = git(source, "rev-parse", "HEAD"), "0123456789" * 4
    for name, text in (("gone", gone), ("junk", "no commit"), ("alias", "ref: refs/heads/main")):
        (source / ".git/refs/heads" / name).write_text(f"{text}\n")
    repository = LocalRepository(source)
    default, heads = repository.heads()
    assert (default, heads) == ("main", {"main": commit, "alias": commit, "gone": gone})
    assert repository.merged(heads.values(), commit) == {commit}


def test_no_default_branch(source: Path, tmp_path: Path) -> None:
    git(source, "checkout", "-q", "--detach")
    assert LocalRepository(source).default_branch() is None
    assert LocalRepository(source).heads() == (None, {"main": git(source, "rev-parse", "main")})
    git(tmp_path, "init", "-q", "empty")
    empty = LocalRepository(tmp_path / "empty")
    assert empty.default_branch() is None
    assert empty.heads() == (None, {})
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


@pytest.mark.parametrize("commit", ["--help", "main", "HEAD", ""])
def test_what_is_no_commit(source: Path, commit: str) -> None:
    with pytest.raises(WorkspaceError, match="is not the id of a commit"):
        LocalRepository(source).read_file("README.md", commit)
    with pytest.raises(WorkspaceError, match="cannot read"):
        LocalRepository(source).read_file("README.md", "0" * 40)
