"""Which host sees which credential: decided in one place, and seen on a server that writes down what arrives."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config import ApiKeys, load
from orchestrator.app.doctor.doctor import diagnose
from orchestrator.app.wiring.context import BuildContext
from orchestrator.app.wiring.forge import choose_site, credential_for, parse_place
from orchestrator.app.wiring.tasks import open_hidden_refs
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.forge.github.transport import GitHubApp, GitHubToken
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError, ForgeError, PullwrightError, WorkspaceError
from tests.doubles.recording_server import Watched
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

OURS, THEIRS = "ghp_" + "o" * 36, "ghp_" + "e" * 36
BOTH = {"GITHUB_TOKEN": OURS, "GH_ENTERPRISE_TOKEN": THEIRS}
GITHUB, CORP, CLOUD = "https://github.com", "https://ghe.corp.example", "https://corp.ghe.com"


def build_context(folder: Path, environ: Mapping[str, str], **flags: object) -> BuildContext:
    """The surroundings of a run with this environment and these flags."""
    stop = Stop()
    stop.at_once()  # no try is repeated
    loaded, clock = load(flags, environ, folder), ManualClock()
    return BuildContext(loaded, ApiKeys.of(environ), Home(folder / "home"), clock, lambda _event: None, stop)


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
            assert "does not answer as GitHub does (200), and was sent no token" in str(caught.value)
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
        with pytest.raises(ForgeError, match="sends us to another server"):
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
