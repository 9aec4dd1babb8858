"""Which repository on GitHub `--repo` names, and which host sees which credential."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config.settings import load_settings
from orchestrator.app.doctor import diagnose
from orchestrator.app.wiring import BuildContext
from orchestrator.app.wiring.repository import (
    OnServer,
    choose_site,
    open_hidden_refs,
    parse_place,
)
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError, ForgeError, PullwrightError, WorkspaceError
from orchestrator.core.repositories import repository_key
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.github.servers import credential_for
from orchestrator.plugins.github.transport import GitHubApp, GitHubToken
from tests.doubles.recording_server import Watched
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator.app.config.settings import Settings


GITHUB = "https://github.com"


def at(github_url: str = GITHUB) -> Settings:
    """The settings with this server."""
    variables = {"PULLWRIGHT_CONFIG": "/dev/null"}
    return load_settings({"github_url": github_url}, variables, Path("/nonexistent")).settings


def key(text: str, github_url: str = GITHUB) -> str:
    """By what pauses, failures and pull requests are kept."""
    return repository_key(parse_place(text, at(github_url)).label)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("octo/spoon", (GITHUB, "octo/spoon")),
        ("octo/spoon.js", (GITHUB, "octo/spoon.js")),
        ("https://github.com/octo/spoon", (GITHUB, "octo/spoon")),
        ("https://github.com/octo/spoon.git", (GITHUB, "octo/spoon")),
        ("https://ghe.example:8443/octo/spoon/", ("https://ghe.example:8443", "octo/spoon")),
        ("git@github.com:octo/spoon.git", (GITHUB, "octo/spoon")),
        ("ssh://git@ghe.example/octo/spoon.git", ("https://ghe.example", "octo/spoon")),
    ],
)
def test_what_names_a_repository_on_github(text: str, expected: tuple[str, str]) -> None:
    place = parse_place(text, at())
    assert isinstance(place, OnServer)
    assert (place.server, place.name) == expected


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
        parse_place(text, at())
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
    assert key(parse_place(text, at(server)).label) == expected, "a name in a journal means the same"


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
        parse_place(text, at())
    assert "\n" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"gitlab\.com is not GitHub"):
        parse_place("octo/spoon", at("https://gitlab.com"))


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
