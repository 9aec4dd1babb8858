"""Which repository on this disk `--repo` names, and the folders that serve as a forge."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from orchestrator.app.config.settings import load_settings
from orchestrator.app.wiring.repository import (
    OnDisk,
    disk_place,
    label_of,
    local_forges,
    parse_place,
    place_of,
)
from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.bot.journal.folders import Home
from orchestrator.core.addresses import without_credential
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key, same_repository
from tests.doubles.github import bare
from tests.scenarios.stage import git, make_repository
from tests.tables import table

SETTINGS = load_settings({}, {"PULLWRIGHT_CONFIG": "/dev/null"}, Path("/nonexistent")).settings


def key(text: str) -> str:
    """By what pauses, failures and pull requests are kept."""
    return repository_key(parse_place(text, SETTINGS).label)


@table("text", ["", " ", "nowhere", "/no/such/folder", "file:///no/such/folder", "a/b/c", "./a/b"])
def test_what_names_no_repository_is_a_clear_error(text: str) -> None:
    for look in (partial(parse_place, settings=SETTINGS), disk_place):
        with pytest.raises(ConfigurationError, match=r"^--repo [^\n]*$"):
            look(text)


@table("text", ["octo/spoon", "https://forge.example/octo/spoon", "git@forge.example:octo/spoon.git"])
def test_a_repository_on_a_server_is_none_on_this_disk(text: str) -> None:
    assert disk_place(text) is None


@pytest.mark.parametrize("wrap", ["{}", "file://{}", "{}/"])
def test_a_folder_is_a_repository_on_disk(tmp_path: Path, wrap: str) -> None:
    assert parse_place(wrap.format(tmp_path), SETTINGS) == OnDisk(tmp_path, tmp_path, is_repository=False)


def test_a_folder_that_exists_wins_over_owner_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octo" / "spoon").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "octo" / "spoon"
    assert parse_place("octo/spoon", SETTINGS) == OnDisk(folder, folder, is_repository=False)


SPELLINGS: dict[str, tuple[str, ...]] = {
    "tree": (
        *("tree", "tree/", "./tree", "link", "link/sub/..", "file://{}/tree", "{}/tree", "tree/.git"),
        *("tree/sub", "tree/sub/deep/", "link/sub/deep", "tree/.git/refs", "{}/other/../tree", "linked"),
        *("linked/sub", "~/tree", "~/link/sub"),
    ),
    "other": ("other", "{}/other/", "other/sub"),
    "bare.git": ("bare.git", "bare.git/", "bare.git/refs", "file://{}/bare.git"),
    "away.git": ("apart", "apart/", "away.git"),
    "tree/.git/modules/within": ("tree/within", "{}/tree/within/", "linked/../tree/within"),
    "empty": ("empty", "{}/empty/", "empty/.git"),
    "plain": ("plain", "{}/plain/", "./plain/../plain"),
    "line\nend": ("line\nend", "{}/line\nend/sub"),
}
"""The repository that each spelling names, as its path below the test's folder."""


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with every kind of repository, which is the current one and the user's own."""
    files = {"sub/deep/a.txt": "a"}
    for name in ("tree", "other", "line\nend"):
        make_repository(tmp_path / name, files)
    (tmp_path / "link").symlink_to("tree")
    git(tmp_path, "clone", "--quiet", "--bare", "tree", "bare.git")
    git(tmp_path, "init", "--quiet", "--separate-git-dir", "away.git", "apart")
    git(tmp_path, "init", "--quiet", "empty")
    within = ("submodule", "--quiet", "add", f"{tmp_path}/bare.git", "within")
    git(tmp_path / "tree", "-c", "protocol.file.allow=always", *within)
    git(tmp_path / "tree", "worktree", "add", "--quiet", "-b", "second", "../linked")
    (tmp_path / "plain").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_a_repository_on_disk_is_one_by_all_its_spellings_and_two_are_never_one(disk: Path) -> None:
    found = {name: {key(text.format(disk)) for text in spellings} for name, spellings in SPELLINGS.items()}
    assert found == {name: {str(disk / name)} for name in SPELLINGS}
    for path in ("tree", "tree/sub", "linked", "bare.git", "apart"):
        label = parse_place(path, SETTINGS).label
        assert parse_place(label, SETTINGS).label == label, "a name from a journal means the same repository"


def test_a_dot_is_the_repository_in_which_it_is_typed(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(disk / "tree" / "sub")
    ours = {key(text) for text in (".", "./", "..", "../.", "deep", "../../link", "../../tree/")}
    monkeypatch.chdir(disk / "other")
    theirs = {key(text) for text in (".", "./", "sub", "sub/..")}
    assert (ours, theirs) == ({str(disk / "tree")}, {str(disk / "other")})


def test_what_is_cloned_is_the_top_of_the_work_tree_in_which_it_was_typed(disk: Path) -> None:
    for text, top in {"tree/sub": "tree", "linked/sub": "linked", "bare.git/refs": "bare.git"}.items():
        place = parse_place(text, SETTINGS)
        assert isinstance(place, OnDisk)
        assert place.path == disk / top


@table(
    ("folder", "home"),
    [("tree", "tree"), ("tree/sub", "tree"), ("linked/sub", "tree"), ("bare.git", "bare.git"), (".", None)],
)
def test_a_folder_is_of_a_repository_or_of_none(disk: Path, folder: str, home: str | None) -> None:
    place = place_of(disk / folder)
    assert place.is_repository is (home is not None)
    assert place.label == str(disk / (home or ""))


def test_an_old_journals_relative_path_is_no_repository(disk: Path) -> None:
    for old in (".", "./", "..", "tree", "./tree"):
        assert not same_repository(old, str(disk / "tree"))
    assert same_repository(f"{disk}/link/.git", str(disk / "tree"))
    assert same_repository("Octo/Spoon", "https://github.com/octo/spoon.git")
    assert not same_repository("octo/spoon", "https://ghe.example/octo/spoon")
    assert label_of(f"{disk}/gone", SETTINGS) == f"{disk}/gone"


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://ada:secret@github.com/o/n.git", "https://github.com/o/n.git"),
        ("https://secret@github.com/o/n.git", "https://github.com/o/n.git"),
        ("https://a:b@c@github.com/o/n", "https://github.com/o/n"),
        ("ssh://git@github.com/o/n", "ssh://github.com/o/n"),
        ("git@github.com:o/n.git", "git@github.com:o/n.git"),
        ("/srv/a@b/n.git", "/srv/a@b/n.git"),
        ("", ""),
    ],
)
def test_an_origin_is_shown_without_its_credential(disk: Path, address: str, shown: str) -> None:
    git(disk / "tree", "config", "remote.origin.url", address)
    place = parse_place("linked", SETTINGS)
    assert isinstance(place, OnDisk)
    assert place.origin == shown == without_credential(address)


BRANCH = "pullwright/1-fix"


def states(home: Home, repository: str | None = None) -> list[PullRequestState]:
    [forge] = local_forges(home, repository, ManualClock())
    return [pull.state for pull in forge.pull_requests()]


def test_what_git_says_is_listed_until_the_repository_is_gone(tmp_path: Path) -> None:
    home, path = Home(tmp_path / "home"), tmp_path / "demo.git"
    bare.create(path, "main")
    bare.commit(path, {"a": "1"}, branch="main", message="A commit", start=None)
    head = bare.commit(path, {"a": "2"}, branch=BRANCH, message="A change", start="main")
    [forge] = local_forges(home, str(path), ManualClock())
    forge.ensure_pull_request(Proposal(BRANCH, "main", "Fix", "Because.", draft=False))
    assert (states(home), forge.read_file("a")) == ([PullRequestState.OPEN], "1")

    bare.merge(path, base="main", head=head, message="Merge")
    assert states(home) == states(home, str(path)) == [PullRequestState.MERGED]

    shutil.rmtree(path)
    assert states(home) == [PullRequestState.OPEN]
    [forge] = local_forges(home, None, ManualClock())
    assert forge.read_file("a") is None
    assert len(forge.fingerprint()) == 64


def test_only_folders_are_listed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="only local repositories are listed"):
        local_forges(Home(tmp_path), "octo/spoon", ManualClock())
