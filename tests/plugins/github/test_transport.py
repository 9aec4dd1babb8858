"""How requests are signed: as a GitHub App, and at which address a server has its interface."""

from __future__ import annotations

import logging
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.bot.forge.base import AttachmentPlace
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.core.errors import ConfigurationError, ForgeAuthenticationError, ForgeNotFoundError
from orchestrator.plugins.github.address import STORES, api_url_for, git_host_of, is_attachment
from orchestrator.plugins.github.calls import CallTiming
from orchestrator.plugins.github.forge import GitHubForge
from orchestrator.plugins.github.parsing import to_signed_image
from orchestrator.plugins.github.transport import GitHubApp, GitHubToken
from tests.plugins.github.conftest import PROPOSAL
from tests.tables import table

if TYPE_CHECKING:
    from tests.plugins.github.conftest import Bench


@table(
    ("given_url", "api_url", "host"),
    [
        ("https://github.com", "https://api.github.com", "github.com"),
        ("github.com", "https://api.github.com", "github.com"),
        ("https://www.github.com/", "https://api.github.com", "github.com"),
        ("https://api.github.com", "https://api.github.com", "github.com"),
        ("HTTPS://GitHub.com", "https://api.github.com", "github.com"),
        ("https://octo.ghe.com", "https://api.octo.ghe.com", "octo.ghe.com"),
        ("https://api.octo.ghe.com/", "https://api.octo.ghe.com", "octo.ghe.com"),
        ("https://git.example.com", "https://git.example.com/api/v3", "git.example.com"),
        (
            "https://git.example.com:8443/api/v3/",
            "https://git.example.com:8443/api/v3",
            "git.example.com:8443",
        ),
        ("http://127.0.0.1:5000", "http://127.0.0.1:5000/api/v3", "127.0.0.1:5000"),
        ("http://[::1]:5000", "http://[::1]:5000/api/v3", "[::1]:5000"),
        ("http://localhost", "http://localhost/api/v3", "localhost"),
        ("https://github.com:443", "https://api.github.com", "github.com"),
        ("https://github.com./", "https://api.github.com", "github.com"),
        ("https://git.example.com:443", "https://git.example.com/api/v3", "git.example.com"),
        ("https://git.example.com.:443/api/v3", "https://git.example.com/api/v3", "git.example.com"),
        ("https://git.example.com:80", "https://git.example.com:80/api/v3", "git.example.com:80"),
        ("http://127.0.0.1:80", "http://127.0.0.1/api/v3", "127.0.0.1"),
        (" https://git.example.com ", "https://git.example.com/api/v3", "git.example.com"),
    ],
)
def test_addresses(given_url: str, api_url: str, host: str) -> None:
    assert api_url_for(given_url) == api_url
    assert git_host_of(api_url) == host


@table(
    ("given_url", "words"),
    [
        ("", "give an address"),
        ("ftp://github.com", "give an address"),
        ("https://", "give an address"),
        ("https://.", "give an address"),
        ("https://github.com?x=1", "give an address"),
        ("https://git.example.com:port", "give one like"),
        ("https://[::1", "give one like"),
        ("https://github.com/octo/demo", "leave out /octo/demo"),
        ("http://git.example.com", "use https"),
        ("https://octo:hunter22@git.example.com", "holds a credential"),
    ],
)
def test_what_is_no_address_is_refused_and_a_password_not_repeated(given_url: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as caught:
        api_url_for(given_url)
    assert "hunter22" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_gives_an_address_or_a_clear_error(text: str) -> None:
    try:
        found = api_url_for(text)
    except ConfigurationError:
        return
    assert api_url_for(found) == found


def test_an_app_reads_writes_and_pushes_with_a_token_for_this_repository(bench: Bench) -> None:
    app = bench.github.app(["octo/demo", "octo/other"])
    issue = bench.github.add_issue(bench.repo, "One")
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))

    pull, created = forge.ensure_pull_request(PROPOSAL)
    forge.ensure_question(issue.number, "1", "Which?")
    forge.ensure_question(issue.number, "1", "Which one?")

    assert created
    assert bench.repo.pulls[pull.number].author == f"{app.slug}[bot]"
    assert [comment.body.splitlines()[0] for comment in issue.comments] == ["Which one?"]
    [asked] = bench.github.calls("POST", "/access_tokens")
    assert asked.body == {"repositories": ["demo"]}
    credential = forge.credential()
    assert credential is not None
    assert bench.github.grants[credential.password].repositories == frozenset({"octo/demo"})


def test_the_token_is_renewed_before_it_expires(bench: Bench) -> None:
    bench.clock = ManualClock(datetime.now(UTC))
    bench.github.now = bench.clock.now
    app = bench.github.app(["octo/demo"], token_seconds=3600)
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))

    forge.repository()
    bench.clock.advance(timedelta(minutes=50).total_seconds())
    first = forge.credential()
    bench.clock.advance(timedelta(minutes=6).total_seconds())
    second = forge.credential()
    forge.repository()

    assert first is not None
    assert second is not None
    assert first.password != second.password
    assert bench.github.requests[-1].token == second.password
    assert len(bench.github.calls("POST", "/access_tokens")) == 2


@pytest.mark.parametrize("hours", [-1, 1])
def test_an_app_signs_by_the_servers_clock(bench: Bench, hours: int) -> None:
    """A signature is good for minutes, and a token for an hour."""
    bench.clock = ManualClock(datetime.now(UTC))
    bench.github.skew = timedelta(hours=hours)
    bench.github.now = lambda: bench.clock.now() + timedelta(hours=hours)
    app = bench.github.app(["octo/demo"], token_seconds=3600)
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    forge.repository()
    first = forge.credential()
    bench.clock.advance(timedelta(minutes=50).total_seconds())
    assert forge.credential() == first
    bench.clock.advance(timedelta(minutes=6).total_seconds())
    assert forge.credential() != first


def test_each_step_has_a_token_of_its_own_also_where_the_app_was_installed_again(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    forge = bench.forge(GitHubApp(str(app.id), app.private_key))
    shown = []
    for _ in range(3):
        forge.begin_step()
        forge.repository()
        found = forge.credential()
        assert found is not None
        shown.append(found.password)
    assert len(set(shown)) == 3
    assert len(bench.github.calls("GET", "/installation")) == 1
    app = bench.github.apps[0] = replace(app, installation=7501)
    forge.begin_step()
    forge.repository()
    assert [quota.name for quota in forge.quotas()] == [
        f"{urlsplit(bench.github.web_url).netloc} installation {app.installation}"
    ]


def test_what_is_left_of_a_quota_is_known_from_headers_under_a_name_that_tells_no_token(bench: Bench) -> None:
    token, other = bench.github.token(), bench.github.token()
    forge = bench.forge(token)
    assert forge.quotas() == []
    forge.repository()
    asked = len(bench.github.requests)
    (quota,) = forge.quotas()
    assert (quota.resource, quota.limit) == ("core", 5000)
    assert quota.remaining == bench.github.remaining
    assert quota.reset == datetime.fromtimestamp(bench.github.reset_at, UTC)
    assert len(bench.github.requests) == asked
    names = []
    for one in (token, other):
        again = bench.forge(one)
        again.repository()
        names += [found.name for found in again.quotas()]
    assert names[0] == quota.name != names[1]
    assert not [part for part in (token, token[4:12], token[-8:]) if part in quota.name]
    nobody = bench.forge(GitHubToken(""))
    nobody.repository()
    assert nobody.quotas() == []


def test_an_app_that_is_not_installed_is_told_so(bench: Bench) -> None:
    app = bench.github.app(["octo/other"])
    with pytest.raises(
        ForgeNotFoundError, match="octo/demo: no such repository, or the app is not installed on it"
    ):
        bench.forge(GitHubApp(str(app.id), app.private_key)).repository()


def test_the_key_of_another_app_is_told_so(bench: Bench) -> None:
    app, other = bench.github.app(["octo/demo"]), bench.github.app(["octo/demo"])
    with pytest.raises(ForgeAuthenticationError, match="check the app's id and its private key"):
        bench.forge(GitHubApp(str(app.id), other.private_key)).repository()


@pytest.mark.parametrize(
    "key", ["", "garbage", "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----"]
)
def test_a_key_that_is_none_is_refused_at_once(bench: Bench, key: str) -> None:
    with pytest.raises(ForgeAuthenticationError, match="private key cannot be used"):
        bench.forge(GitHubApp("1", key))


def test_a_key_with_escaped_line_ends_works(bench: Bench) -> None:
    app = bench.github.app(["octo/demo"])
    forge = bench.forge(GitHubApp(str(app.id), app.private_key.replace("\n", "\\n")))
    assert forge.repository().name == "octo/demo"


def test_neither_key_nor_token_is_in_a_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    app = bench.github.app(["octo/demo"])
    with caplog.at_level(logging.DEBUG):
        forge = bench.forge(GitHubApp(str(app.id), app.private_key))
        forge.repository()
    credential = forge.credential()
    assert credential is not None
    shown = caplog.text + repr(forge) + repr(GitHubApp(str(app.id), app.private_key))
    assert credential.password not in shown
    assert app.private_key.splitlines()[1] not in shown
    assert not [seen.token for seen in bench.github.requests if seen.token and seen.token in shown]


UUID = "12345678-1234-1234-1234-123456789abc"


@table(
    "url, is_one",
    [
        (f"https://github.com/user-attachments/assets/{UUID}", True),
        ("https://github.com/user-attachments/files/123/a%20b.pdf", True),
        (f"https://github.com/Octo/Demo/assets/12/{UUID}", True),
        ("https://github.com/octo/demo/files/12/log.txt", True),
        ("https://user-images.githubusercontent.com/1/2.png", True),
        # Our token may read other repositories too.
        ("https://github.com/octo/other/files/12/log.txt", False),
        ("https://github.com/octo/demo/blob/main/README.md", False),
        ("https://github.com/octo/demo/files/12/x/../../../../settings", False),
        (f"http://github.com/user-attachments/assets/{UUID}", False),
        (f"https://github.com:8443/user-attachments/assets/{UUID}", False),
        (f"https://github.com.evil.test/user-attachments/assets/{UUID}", False),
        (f"https://me@github.com/user-attachments/assets/{UUID}", False),
        (f"https://evil.test/github.com/user-attachments/assets/{UUID}", False),
        (f"https://api.github.com/user-attachments/assets/{UUID}", False),
        ("https://[github.com/user-attachments/files/1/a", False),
        ("", False),
    ],
)
def test_what_is_an_attachment(url: str, *, is_one: bool) -> None:
    assert is_attachment(url, "https://api.github.com", "octo/demo") is is_one


def test_an_attachment_of_another_server() -> None:
    api_url = "https://git.example.com/api/v3"
    for url, is_one in (
        (f"https://git.example.com/user-attachments/assets/{UUID}", True),
        (f"https://git.example.com/storage/user/7/files/{UUID}", True),
        (f"https://github.com/user-attachments/assets/{UUID}", False),
        ("https://user-images.githubusercontent.com/1/2.png", False),
    ):
        assert is_attachment(url, api_url, "octo/demo") is is_one


@table(
    "server, url, credential, hosts, private",
    [
        (
            "github.com",
            f"https://github.com/user-attachments/assets/{UUID}",
            "t0ken",
            STORES | {"github.com"},
            (),
        ),
        ("github.com", "https://user-images.githubusercontent.com/1/2.png", "", STORES | {"github.com"}, ()),
        (
            "https://git.example.com:8443",
            "https://git.example.com:8443/octo/demo/files/1/a.pdf",
            "t0ken",
            {"git.example.com"},
            ("git.example.com:8443",),
        ),
    ],
)
def test_how_an_attachment_is_fetched(
    server: str, url: str, credential: str, hosts: set[str], private: tuple[str, ...]
) -> None:
    timing = CallTiming(SystemClock(), lambda _seconds: None, lambda _seconds, _why: None)
    forge = GitHubForge("octo/demo", GitHubToken("t0ken"), timing, api_url_for(server))
    place = forge.attachment(url)
    assert place == AttachmentPlace(url, frozenset(hosts), credential, frozenset(private))
    assert "t0ken" not in repr(place)
    assert forge.attachment("https://example.com/a.png") is None


@table(
    "html, place",
    [
        (
            f'<p><img src="https://private-user-images.githubusercontent.com/1/2-{UUID}.png?jwt=a&amp;b=c" alt="x"></p>',
            f"https://private-user-images.githubusercontent.com/1/2-{UUID}.png?jwt=a&b=c",
        ),
        (f'<img src="https://evil.test/1/2-{UUID}.png">', None),
        (f'<img src="https://private-user-images.githubusercontent.com.evil.test/{UUID}.png">', None),
        ('<img src="https://private-user-images.githubusercontent.com/1/other.png">', None),
        (None, None),
    ],
)
def test_the_signed_address_of_an_image(html: str | None, place: str | None) -> None:
    assert to_signed_image({"body_html": html}, UUID) == place
    assert to_signed_image({"body_html": html}, "") is None


def test_an_image_is_found_in_the_html_of_its_issue(bench: Bench) -> None:
    url = f"{bench.github.web_url}/user-attachments/assets/{UUID}"
    issue = bench.github.add_issue(bench.repo, "It breaks", f"See ![shot]({url}).")
    signed = f"https://private-user-images.githubusercontent.com/1/2-{UUID}.png?jwt=a&b=c"
    forge = bench.forge()
    assert forge.signed_image(issue.number, url) == AttachmentPlace(signed, STORES)
    assert forge.signed_image(issue.number, f"{url}/other") is None
    assert bench.github.violations == []


WAITS = """
import sys
from orchestrator.plugins.github.calls import CallTiming
from orchestrator.plugins.github.forge import GitHubForge
from orchestrator.plugins.github.transport import GitHubToken
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ForgeError

forge = GitHubForge("o/r", GitHubToken("t"), CallTiming(SystemClock(), lambda seconds: None), "http://127.0.0.1:1")
print("github" in sys.modules)
try:
    forge.repository()
except ForgeError:
    print("github" in sys.modules)
"""


def test_pygithub_is_loaded_at_the_first_request_so_that_a_worker_that_waits_is_small() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
