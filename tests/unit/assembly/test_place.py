from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.assembly.place import OnDisk, OnGitHub, identity, parse_place
from orchestrator.core.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

GITHUB = "https://github.com"


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
    assert parse_place(wrap.format(tmp_path), GITHUB) == OnDisk(tmp_path)


def test_a_folder_that_exists_wins_over_owner_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octo" / "spoon").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_place("octo/spoon", GITHUB) == OnDisk(tmp_path / "octo" / "spoon")


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


@pytest.mark.parametrize(
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
    assert identity(parse_place(text, server)) == expected


def test_what_is_not_the_same_is_not_one(tmp_path: Path) -> None:
    places = [
        "octo/spoon",
        "octo/fork",
        "https://ghe.example/octo/spoon",
        "https://ghe.example:8443/octo/spoon",
    ]
    assert identity(parse_place("git@ghe.example:octo/spoon", GITHUB)) == identity(
        parse_place("https://ghe.example:443/octo/spoon.git", GITHUB)
    )
    for name in ("spoon", "Spoon"):
        (tmp_path / name).mkdir()
        places.append(str(tmp_path / name))
    assert len({identity(parse_place(text, GITHUB)) for text in places}) == len(places)


def test_a_folder_is_one_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "spoon").mkdir()
    (tmp_path / "link").symlink_to("spoon")
    paths = [
        f"{tmp_path}/spoon",
        f"{tmp_path}/link/",
        f"file://{tmp_path}/spoon",
        f"{tmp_path}/link/../spoon",
    ]
    assert {identity(parse_place(text, GITHUB)) for text in paths} == {str(tmp_path / "spoon")}
