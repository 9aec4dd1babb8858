"""Pages over real HTTP on loopback."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import subprocess
import threading
import tracemalloc
import zlib
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ToolError
from orchestrator.core.version import __version__
from orchestrator.plugins.web.base import PageKind
from orchestrator.plugins.web.client import HttpWeb, WebLimits
from tests.doubles.web_server import Answer, SiteRequest, WebServer, html, plain, redirect

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MILLION = 1_000_000


def web(*sites: WebServer, limits: WebLimits | None = None) -> HttpWeb:
    return HttpWeb(allowed_private=frozenset(site.place for site in sites), limits=limits)


async def test_a_page_is_fetched_once_and_without_credentials() -> None:
    def greet(request: SiteRequest) -> Answer:
        assert request.method == "GET"
        return Answer(b"<p>hi</p>", headers={"Content-Type": "text/html", "Set-Cookie": "a=b"})

    with WebServer({"/p": greet, "/q": greet}) as site:
        access = web(site)
        first = await access.fetch(f"{site.url}/p?x=1#part")
        assert await access.fetch(f"{site.url}/p?x=1") is first
        await access.fetch(f"{site.url}/q")
    assert (first.url, first.kind, first.text) == (f"{site.url}/p?x=1", PageKind.HTML, "<p>hi</p>")
    assert [request.path for request in site.requests] == ["/p?x=1", "/q"]
    for request in site.requests:
        assert request.headers["user-agent"] == f"pullwright/{__version__}"
        assert request.headers["host"] == site.place
        assert not {"cookie", "authorization"} & request.headers.keys()


async def test_two_calls_at_once_fetch_a_page_once() -> None:
    with WebServer({"/": plain("x")}) as site:
        access = web(site)
        await asyncio.gather(*(access.fetch(f"{site.url}/") for _ in range(5)))
    assert len(site.requests) == 1


async def test_a_failure_is_not_remembered() -> None:
    with WebServer({}) as site:
        access = web(site)
        with pytest.raises(ToolError):
            await access.fetch(f"{site.url}/")
        site.routes["/"] = plain("now")
        assert (await access.fetch(f"{site.url}/")).text == "now"


async def test_the_pages_used_longest_ago_are_forgotten() -> None:
    with WebServer({f"/{name}": plain(name * 10) for name in "abc"}) as site:
        access = web(site, limits=WebLimits(kept_pages=2))
        for name in ("a", "b", "a", "c", "a", "b"):
            await access.fetch(f"{site.url}/{name}")
        assert [request.path for request in site.requests] == ["/a", "/b", "/c", "/b"]
        small = web(site, limits=WebLimits(kept_characters=15))
        for name in ("a", "b", "b", "a"):
            await small.fetch(f"{site.url}/{name}")
        assert [request.path for request in site.requests[4:]] == ["/a", "/b", "/a"]


async def test_redirects_are_followed_to_the_page() -> None:
    with WebServer({"/a": redirect("b?x"), "/b": redirect("/c", 308), "/c": plain("end")}) as site:
        page = await web(site).fetch(f"{site.url}/a")
    assert (page.url, page.text) == (f"{site.url}/c", "end")


async def test_redirects_end_somewhere() -> None:
    with (
        WebServer({f"/{n}": redirect(f"/{n + 1}") for n in range(9)} | {"/9": plain("end")}) as site,
    ):
        access = web(site)
        assert (await access.fetch(f"{site.url}/4")).text == "end"
        with pytest.raises(ToolError, match="redirects more than 5 times"):
            await access.fetch(f"{site.url}/3")


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{port}/secret",
        "//127.0.0.1:{port}/secret",
        "http://localhost:{port}/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::ffff:7f00:1]:{port}/",
        "http://2130706433:{port}/",
        "file:///etc/passwd",
    ],
)
async def test_a_redirect_to_a_private_address_is_refused(location: str) -> None:
    with WebServer({"/secret": plain("secret")}) as other:
        with (
            WebServer({"/": redirect(location.format(port=other.port))}) as site,
            pytest.raises(ToolError, match="redirects to an address that is refused"),
        ):
            await web(site).fetch(f"{site.url}/")
        assert not other.requests


class TwoFaced:
    """A name server whose second answer differs from its first."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        del host, port
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    with WebServer({"/": plain("right")}) as right:
        resolve = TwoFaced(["127.0.0.1"], ["192.0.2.1"])
        place = f"docs.example.org:{right.port}"
        page = await HttpWeb(allowed_private=frozenset({place}), resolve=resolve).fetch(f"http://{place}/")
    assert page.text == "right"
    assert resolve.asked == 1  # nobody asked again
    assert right.requests[0].headers["host"] == place


async def test_a_name_that_turns_private_is_refused_at_its_next_request() -> None:
    resolve = TwoFaced(["127.0.0.1"])
    with pytest.raises(ToolError, match=r"example\.org leads to 127\.0\.0\.1, a private"):
        await HttpWeb(resolve=resolve).fetch("http://example.org/")


async def test_the_next_address_is_tried_where_nobody_answers() -> None:
    with WebServer({"/": plain("here")}) as site:
        place = f"docs.example.org:{site.port}"
        # Nothing listens on the second loopback address.
        resolve = TwoFaced(["127.0.0.2", "127.0.0.1"])
        access = HttpWeb(allowed_private=frozenset({place}), resolve=resolve)
        assert (await access.fetch(f"http://{place}/")).text == "here"


async def test_proxies_of_the_environment_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with WebServer({}) as proxy, WebServer({"/": plain("direct")}) as site:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        assert (await web(site).fetch(f"{site.url}/")).text == "direct"
        assert not proxy.requests


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (404, "there is no page"),
        (410, "there is no page"),
        (401, "does not show this page"),
        (403, "does not show this page"),
        (429, "no more requests"),
        (500, "failed"),
        (503, "failed"),
        (302, "no page"),
        (418, "HTTP 418"),
    ],
)
async def test_statuses_are_told(status: int, said: str) -> None:
    with WebServer({"/": Answer(b"x", status)}) as site, pytest.raises(ToolError, match=said) as raised:
        await web(site).fetch(f"{site.url}/")
    assert str(status) in str(raised.value)


async def test_a_body_beyond_the_limit_is_refused() -> None:
    most = 5 * MILLION
    with WebServer({"/": plain("x" * (most + 1)), "/fits": plain("x" * most)}) as site:
        access = web(site)
        assert len((await access.fetch(f"{site.url}/fits")).text) == most
        with pytest.raises(ToolError, match="over 5,000,000 bytes"):
            await access.fetch(f"{site.url}/")


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_bomb_is_not_unpacked_whole(encoding: str) -> None:
    zeros = bytes(60 * MILLION)
    bomb = gzip.compress(zeros, 1) if encoding == "gzip" else zlib.compress(zeros, 1)
    del zeros
    answer = Answer(bomb, headers={"Content-Type": "text/plain", "Content-Encoding": encoding})
    with WebServer({"/": answer}) as site:
        access = web(site)
        tracemalloc.start()
        try:
            with pytest.raises(ToolError, match="over 5,000,000 bytes"):
                await access.fetch(f"{site.url}/")
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert peak < 25 * MILLION


async def test_packed_pages_are_unpacked() -> None:
    headers = {"Content-Type": "text/plain", "Content-Encoding": "gzip"}
    broken = Answer(gzip.compress(b"words")[:-9] + b"garbage!!", headers=headers)
    twice = Answer(
        gzip.compress(gzip.compress(b"words")), headers={**headers, "Content-Encoding": "gzip, gzip"}
    )
    with WebServer(
        {"/": Answer(gzip.compress(b"words"), headers=headers), "/broken": broken, "/twice": twice}
    ) as site:
        access = web(site)
        assert (await access.fetch(f"{site.url}/")).text == "words"
        with pytest.raises(ToolError, match="cannot be decompressed"):
            await access.fetch(f"{site.url}/broken")
        with pytest.raises(ToolError, match="was not requested"):
            await access.fetch(f"{site.url}/twice")


async def test_a_film_is_refused_before_it_is_read() -> None:
    gate = threading.Event()
    film = Answer(b"x" * 100, headers={"Content-Type": "video/mp4"}, gate=gate)
    try:
        with WebServer({"/": film}) as site, pytest.raises(ToolError, match="video/mp4"):
            await web(site).fetch(f"{site.url}/")
    finally:
        gate.set()


async def test_a_server_that_does_not_finish_is_left() -> None:
    gate = threading.Event()
    endless = Answer(b"half of it", headers={"Content-Type": "text/plain"}, gate=gate)
    try:
        with WebServer({"/": endless}) as site:
            for seconds in (0.5, 4.0, 32.0):  # a busy machine may take all of it before the server is asked
                with pytest.raises(ToolError, match=rf"did not answer in full within {seconds:g} seconds"):
                    await web(site, limits=WebLimits(seconds=seconds)).fetch(f"{site.url}/")
                if site.requests:
                    break
            assert len(site.requests) == 1
    finally:
        gate.set()


async def test_no_server_at_all() -> None:
    with WebServer({}) as site:
        access = web(site)
    with pytest.raises(ToolError, match="cannot be reached"):
        await access.fetch(f"{site.url}/")


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", str(key), "-out", str(cert), "-days", "2", "-subj", f"/CN={name}"),
            *("-addext", f"subjectAltName=DNS:{name}"),
        ],
        check=True,
        capture_output=True,
    )
    return key, cert


async def test_the_certificate_must_be_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key, cert = certificate(tmp_path, "docs.example.org")
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(cert, key)
    named: list[str | None] = []
    tls.sni_callback = lambda _socket, name, _context: named.append(name)
    with WebServer({"/": plain("secured")}, tls=tls) as site:
        places = {f"{name}:{site.port}" for name in ("docs.example.org", "other.example.org")}
        access = HttpWeb(allowed_private=frozenset(places), resolve=TwoFaced(["127.0.0.1"]))
        assert (await access.fetch(f"https://docs.example.org:{site.port}/")).text == "secured"
        with pytest.raises(ToolError, match=r"(?i)certificate"):
            await access.fetch(f"https://other.example.org:{site.port}/")
    assert named == ["docs.example.org", "other.example.org"]


async def test_a_page_of_another_character_set() -> None:
    with WebServer({"/": html("Grüße", "iso-8859-1")}) as site:
        assert (await web(site).fetch(f"{site.url}/")).text == "Grüße"
