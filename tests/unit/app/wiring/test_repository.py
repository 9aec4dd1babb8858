"""What `--repo` names, which host sees which credential, and the folders that play GitHub."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config.settings import load_settings
from orchestrator.app.doctor import diagnose
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.repository import (
    OnDisk,
    OnGitHub,
    choose_site,
    credential_for,
    label_of,
    local_forges,
    open_hidden_refs,
    parse_place,
    place_of,
)
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.forge.base import Proposal, PullRequestState
from orchestrator.bot.forge.github.transport import GitHubApp, GitHubToken
from orchestrator.bot.journal.folders import Home
from orchestrator.core.addresses import without_credential
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError, ForgeError, PullwrightError, WorkspaceError
from orchestrator.core.repositories import repository_key, same_repository
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.github import bare
from tests.doubles.recording_server import Watched
from tests.scenarios.stage import git, make_repository
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
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
    assert parse_place(wrap.format(tmp_path), GITHUB) == OnDisk(tmp_path, tmp_path, is_repository=False)


def test_a_folder_that_exists_wins_over_owner_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "octo" / "spoon").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "octo" / "spoon"
    assert parse_place("octo/spoon", GITHUB) == OnDisk(folder, folder, is_repository=False)


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


OURS, THEIRS = "ghp_" + "o" * 36, "ghp_" + "e" * 36
BOTH = {"GITHUB_TOKEN": OURS, "GH_ENTERPRISE_TOKEN": THEIRS}
GITHUB, CORP, CLOUD = "https://github.com", "https://ghe.corp.example", "https://corp.ghe.com"


def build_context(folder: Path, environ: Mapping[str, str], **flags: object) -> BuildContext:
    """The surroundings of a run with this environment and these flags."""
    stop = Stop()
    stop.at_once()  # no try is repeated
    loaded, clock = load_settings(flags, environ, folder), ManualClock()
    return BuildContext(
        loaded, ApiKeys.of(environ), Home(folder / "home"), clock, lambda _event: None, stop, Redactor()
    )


@pytest.mark.parametrize(
    ("server", "environ", "flags", "token"),
    [
        (GITHUB, BOTH, {}, OURS),
        ("https://www.github.com/", BOTH, {}, OURS),
        (GITHUB, {"GH_TOKEN": OURS}, {}, OURS),
        (GITHUB, {"GH_ENTERPRISE_TOKEN": THEIRS}, {}, None),
        (GITHUB, BOTH, {"github_url": CORP}, OURS),
        (CORP, BOTH, {}, THEIRS),
        (CORP, {"GITHUB_ENTERPRISE_TOKEN": THEIRS}, {}, THEIRS),
        (CORP, {"GITHUB_TOKEN": OURS}, {}, None),
        (CORP, {"GH_TOKEN": OURS}, {}, None),
        (CORP, {"GITHUB_TOKEN": OURS}, {"github_url": CORP}, OURS),
        (f"{CORP}:443/", {"GITHUB_TOKEN": OURS}, {"github_url": "https://ghe.CORP.example."}, OURS),
        (CORP, BOTH, {"github_url": CORP}, THEIRS),
        (CORP, {"GITHUB_TOKEN": OURS, "PULLWRIGHT_GITHUB_URL": CORP}, {}, OURS),
        (CORP, {"GITHUB_TOKEN": OURS, "GITHUB_SERVER_URL": CORP}, {}, OURS),
        (f"{CORP}:8443", {"GITHUB_TOKEN": OURS}, {"github_url": CORP}, None),
        ("http://127.0.0.1:1", {"GITHUB_TOKEN": OURS}, {"github_url": "https://127.0.0.1:1"}, None),
        ("https://evil.example", {"GITHUB_TOKEN": OURS}, {"github_url": CORP}, None),
        ("https://github.com.evil.example", {"GITHUB_TOKEN": OURS}, {}, None),
        ("https://evilgithub.com", {"GITHUB_TOKEN": OURS}, {}, None),
        ("https://gist.github.com", {"GITHUB_TOKEN": OURS}, {}, None),
        (CLOUD, {"GITHUB_TOKEN": OURS}, {}, None),
        (CLOUD, BOTH, {}, THEIRS),
        (CLOUD, {"GITHUB_TOKEN": OURS}, {"github_url": CLOUD}, OURS),
    ],
)
def test_which_token_goes_where(
    tmp_path: Path, server: str, environ: Mapping[str, str], flags: Mapping[str, object], token: str | None
) -> None:
    found = credential_for(server, build_context(tmp_path, environ, **flags))
    assert found.auth == (GitHubToken(token) if token else None)
    if token is None:
        assert found.variable in found.missing


def test_a_server_without_a_token_names_its_own_variable(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"GH_ENTERPRISE_TOKEN.*--github-url https://ghe.corp.example"
    ):
        choose_site(f"{CORP}/octo/spoon", build_context(tmp_path, {"GITHUB_TOKEN": OURS}), writes=True)


def test_an_app_is_known_to_the_configured_server_only(tmp_path: Path) -> None:
    key = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"
    environ = {"PULLWRIGHT_GITHUB_APP_ID": "1", "PULLWRIGHT_GITHUB_APP_KEY": key}
    app = GitHubApp("1", key)
    assert credential_for(GITHUB, build_context(tmp_path, environ)).auth == app
    assert credential_for(CORP, build_context(tmp_path, environ)).auth is None
    assert credential_for(GITHUB, build_context(tmp_path, environ, github_url=CORP)).auth is None
    assert credential_for(CORP, build_context(tmp_path, environ, github_url=CORP)).auth == app


@table(
    "text",
    [
        "https://gitlab.com/octo/spoon",
        "https://gitlab.com/group/sub/spoon.git",
        "git@gitlab.com:octo/spoon.git",
        "ssh://git@codeberg.org/octo/spoon",
        "https://Bitbucket.org./octo/spoon",
        "https://git.sr.ht/~ada/spoon",
        "https://dev.azure.com/octo/spoon/_git/spoon",
        "https://huggingface.co/octo/spoon",
    ],
)
def test_a_server_that_is_known_to_be_another_is_said_to_be_none(text: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"is not GitHub: .* clone it, and pass its folder"
    ) as caught:
        parse_place(text, GITHUB)
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"gitlab\.com is not GitHub"):
        parse_place("octo/spoon", "https://gitlab.com")


@contextmanager
def servers(*made: Watched) -> Iterator[tuple[Watched, ...]]:
    """Servers that run until the block ends."""
    if not made:
        yield ()
        return
    with made[0] as first, servers(*made[1:]) as others:
        yield (first, *others)


GITHUBS = {"x-github-request-id": "1"}
META = (200, GITHUBS, b"{}")


@pytest.mark.parametrize(
    "answer",
    [
        (200, {}, b"<html>Welcome to Forgejo</html>"),
        (200, {}, b'{"version": "1.22"}'),
        (404, {}, b'{"message": "Not Found"}'),
        (401, {"WWW-Authenticate": "Basic"}, b""),
        (301, {"Location": "/login"}, b""),
        (302, {"Location": "https://sso.example/login"}, b""),
        (403, {}, b"no"),
    ],
)
@pytest.mark.parametrize("configured", ["configured", ""])
def test_a_server_that_does_not_answer_as_github_gets_no_credential(
    tmp_path: Path, answer: tuple[int, dict[str, str], bytes], configured: object
) -> None:
    with Watched(**{"/": answer}) as server:
        flags = {"github_url": server.root} if configured else {}
        site = choose_site(f"{server.root}/octo/spoon", build_context(tmp_path, BOTH, **flags), writes=True)
        with pytest.raises((ConfigurationError, ForgeError)) as caught:
            site.forge.repository()
        assert "\n" not in str(caught.value)
        if answer[0] < 300:
            assert "does not answer as GitHub does (200), so no token was sent" in str(caught.value)
        with pytest.raises(PullwrightError):
            open_hidden_refs(site, ManualClock(), Stop())
        assert server.seen
        assert server.leaks(OURS, THEIRS) == []


def test_a_server_in_private_mode_is_github(tmp_path: Path) -> None:
    asks = b'{"message": "Must authenticate to access this API.", "documentation_url": "https://docs"}'
    with Watched(**{"/api/v3/meta": (401, {}, asks), "/": (404, GITHUBS, b"{}")}) as server:
        site = choose_site(f"{server.root}/octo/spoon", build_context(tmp_path, BOTH), writes=True)
        with pytest.raises(ForgeError, match="not found"):
            site.forge.repository()
        (_, asked), *rest = server.seen
        assert "authorization" not in asked
        assert rest
        assert all(THEIRS in headers["authorization"] for _, headers in rest)
        assert server.leaks(OURS) == []


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("of", ["meta", "api", "git"])
def test_a_redirect_to_another_host_carries_nothing(tmp_path: Path, status: int, of: str) -> None:
    with Watched(**{"/": (200, GITHUBS, b"[]")}) as other:
        away = (status, {"Location": f"{other.root.replace('127.0.0.1', 'localhost')}/x"}, b"")
        with Watched() as server:
            known = f'{{"full_name": "octo/spoon", "size": 1, "default_branch": "main", "html_url": "x", "clone_url": "{server.root}/octo/spoon.git"}}'
            server.routes = {
                "/api/v3/meta": away if of == "meta" else META,
                "/api/v3/": away if of == "api" else (200, GITHUBS, known.encode()),
                "/octo/": away if of == "git" else (404, {}, b""),
            }
            site = choose_site(f"{server.root}/octo/spoon", build_context(tmp_path, BOTH), writes=True)
            with pytest.raises((ConfigurationError, ForgeError, WorkspaceError)):
                open_hidden_refs(site, ManualClock(), Stop()).list("refs/pullwright/claims/")
            assert server.seen
        assert other.leaks(OURS, THEIRS) == []


def test_the_next_page_of_a_list_on_another_server_is_not_asked_for(tmp_path: Path) -> None:
    with servers(Watched(), Watched(**{"/": (200, GITHUBS, b"[]")})) as (server, other):
        link = {"Link": f'<{other.root}/api/v3/repos/octo/spoon/pulls?page=2>; rel="next"', **GITHUBS}
        known = b'{"full_name": "octo/spoon", "size": 1, "default_branch": "main", "html_url": "x", "clone_url": "x"}'
        server.routes = {
            "/api/v3/meta": META,
            "/api/v3/repos/octo/spoon/pulls": (200, link, b"[]"),
            "/api/v3/": (200, GITHUBS, known),
        }
        site = choose_site(f"{server.root}/octo/spoon", build_context(tmp_path, BOTH), writes=True)
        with pytest.raises(ForgeError, match="redirects to another server"):
            site.forge.our_pull_requests("pullwright/")
        assert other.seen == []


def test_doctor_names_the_variable_of_the_server_and_sends_it_nothing_else(tmp_path: Path) -> None:
    with Watched(**{"/api/v3/meta": META, "/": (404, GITHUBS, b"{}")}) as server:
        environ = {"PULLWRIGHT_HOME": str(tmp_path / "home"), "GITHUB_TOKEN": OURS}
        found = list(diagnose(f"{server.root}/octo/spoon", {}, environ, tmp_path, clock=ManualClock()))
        (fix,) = [one.finding.fix for one in found if one.probe == "token"]
        assert "set GH_ENTERPRISE_TOKEN" in fix
        assert server.seen
        assert server.leaks(OURS) == []


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
