from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.app.wiring.forge import OnDisk, OnGitHub, label_of, parse_place
from orchestrator.core.addresses import without_credential
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.repositories import repository_key, same_repository
from tests.scenarios.stage import git, make_repository
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

GITHUB = "https://github.com"


def key(text: str, github_url: str = GITHUB) -> str:
    """By what pauses, failures and pull requests are kept."""
    return repository_key(parse_place(text, github_url).label)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("octo/spoon", OnGitHub(GITHUB, "octo/spoon")),
        ("octo/spoon.js", OnGitHub(GITHUB, "octo/spoon.js")),
        ("https://github.com/octo/spoon", OnGitHub(GITHUB, "octo/spoon")),
        ("https://github.com/octo/spoon.git", OnGitHub(GITHUB, "octo/spoon")),
        ("https://ghe.example:8443/octo/spoon/", OnGitHub("https://ghe.example:8443", "octo/spoon")),
        ("git@github.com:octo/spoon.git", OnGitHub(GITHUB, "octo/spoon")),
        ("ssh://git@ghe.example/octo/spoon.git", OnGitHub("https://ghe.example", "octo/spoon")),
    ],
)
def test_what_names_a_repository_on_github(text: str, expected: OnGitHub) -> None:
    assert parse_place(text, GITHUB) == expected


@pytest.mark.parametrize("wrap", ["{}", "file://{}", "{}/"])
def test_a_folder_is_a_repository_on_disk(tmp_path: Path, wrap: str) -> None:
    assert parse_place(wrap.format(tmp_path), GITHUB) == OnDisk(tmp_path, tmp_path)


def test_a_folder_that_exists_wins_over_owner_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octo" / "spoon").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "octo" / "spoon"
    assert parse_place("octo/spoon", GITHUB) == OnDisk(folder, folder)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nowhere",
        "/no/such/folder",
        "https://github.com/octo",
        "https://user:pw@github.com/octo/spoon",
        "a/b/c",
        "-x/y",
    ],
)
def test_anything_else_is_a_clear_error(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        parse_place(text, GITHUB)
    assert "\n" not in str(caught.value)
    assert ":pw@" not in str(caught.value)


@table(
    ("text", "server"),
    [
        ("octo/spoon", "https://github.com/"),
        ("Octo/Spoon", "http://127.0.0.1:80"),
        ("octo/spoon.git", "https://api.github.com"),
        ("https://github.com/octo/spoon", "https://ghe.example"),
        ("https://www.GitHub.com/octo/Spoon.git/", GITHUB),
        ("git@github.com:octo/spoon.git", GITHUB),
        ("git@github.com:octo/spoon", GITHUB),
        ("ssh://git@github.com/octo/spoon.git", GITHUB),
        ("ssh://git@github.com:22/octo/spoon", GITHUB),
        ("https://github.com:443/octo/spoon", GITHUB),
        ("https://github.com./octo/spoon", GITHUB),
    ],
)
def test_all_spellings_of_a_repository_are_one(text: str, server: str) -> None:
    expected = "127.0.0.1/octo/spoon" if server.startswith("http:") else "github.com/octo/spoon"
    assert key(text, server) == expected
    assert key(parse_place(text, server).label) == expected, "a name in a journal means the same"


def test_what_is_not_the_same_is_not_one(tmp_path: Path) -> None:
    places = [
        "octo/spoon",
        "octo/fork",
        "https://ghe.example/octo/spoon",
        "https://ghe.example:8443/octo/spoon",
    ]
    assert key("git@ghe.example:octo/spoon") == key("https://ghe.example:443/octo/spoon.git")
    assert key("octo/spoon", "https://ghe.example") == key("https://ghe.example/octo/spoon")
    for name in ("spoon", "Spoon"):
        (tmp_path / name).mkdir()
        places.append(str(tmp_path / name))
    assert len({key(text) for text in places}) == len(places)


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
        label = parse_place(path, GITHUB).label
        assert parse_place(label, GITHUB).label == label, "a name from a journal means the same repository"


def test_a_dot_is_the_repository_in_which_it_is_typed(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(disk / "tree" / "sub")
    ours = {key(text) for text in (".", "./", "..", "../.", "deep", "../../link", "../../tree/")}
    monkeypatch.chdir(disk / "other")
    theirs = {key(text) for text in (".", "./", "sub", "sub/..")}
    assert (ours, theirs) == ({str(disk / "tree")}, {str(disk / "other")})


def test_what_is_cloned_is_the_top_of_the_work_tree_in_which_it_was_typed(disk: Path) -> None:
    for text, top in {"tree/sub": "tree", "linked/sub": "linked", "bare.git/refs": "bare.git"}.items():
        place = parse_place(text, GITHUB)
        assert isinstance(place, OnDisk)
        assert place.path == disk / top


def test_an_old_journals_relative_path_is_no_repository(disk: Path) -> None:
    for old in (".", "./", "..", "tree", "./tree"):
        assert not same_repository(old, str(disk / "tree"))
    assert same_repository(f"{disk}/link/.git", str(disk / "tree"))
    assert same_repository("Octo/Spoon", "https://github.com/octo/spoon.git")
    assert not same_repository("octo/spoon", "https://ghe.example/octo/spoon")
    assert label_of(f"{disk}/gone", GITHUB) == f"{disk}/gone"


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
    place = parse_place("linked", GITHUB)
    assert isinstance(place, OnDisk)
    assert place.origin == shown == without_credential(address)
