"""The one client for HTTP: sizes, times, redirects, proxies, what failures are called and what servers ask to wait."""

from __future__ import annotations

import gzip
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.errors import ConfigurationError
from orchestrator.core.http_client import (
    LONGEST_SECONDS,
    Answer,
    FailureKind,
    NoAnswer,
    ask_now,
    ask_server,
    asked_seconds,
    open_client,
    read_beginning,
)
from tests.doubles.loopback import Loopback, LoopbackHandler
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from http.server import BaseHTTPRequestHandler

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "hunter2-and-more-of-it"
PROXIES = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "no_proxy",
    "NO_PROXY",
)


class Server(Loopback):
    """Answers each request with one body; `gate` holds the body back."""

    def __init__(
        self, body: bytes = b"yes", *, status: int = 200, gate: threading.Event | None = None, **headers: str
    ) -> None:
        self.asked: list[dict[str, str]] = []
        super().__init__(_answering(body, status, gate, headers))


def _answering(
    body: bytes, status: int, gate: threading.Event | None, headers: dict[str, str]
) -> type[BaseHTTPRequestHandler]:
    class Handler(LoopbackHandler):
        def do_POST(self) -> None:  # noqa: N802  the base class's name
            self.server.owner.asked.append(self.posted()[0])
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.flush()
            self.wait_at(gate)
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815  the base class's name

    return Handler


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)


def asked(
    url: str, method: str = "GET", *, most: int = 1_000, seconds: float = 60, total: float | None = None
) -> Coroutine[None, None, Answer | NoAnswer]:
    return ask_server(
        method, url, {"x-key": SECRET}, b"{}", most_bytes=most, silent_seconds=seconds, total_seconds=total
    )


async def test_an_answer_has_its_status_headers_and_body() -> None:
    with Server(b"no such thing", status=404, X_Limit="3") as server:
        answer = await asked(server.root)
    assert isinstance(answer, Answer)
    assert (answer.status, answer.headers["x-limit"], answer.body) == (404, "3", b"no such thing")
    assert server.asked[0]["user-agent"].startswith("pullwright/")


@pytest.mark.parametrize("most", [0, 999])
async def test_a_larger_body_is_not_kept(most: int) -> None:
    """A small body may unpack to a huge one."""
    packed = gzip.compress(bytes(1_000))
    with Server(packed, Content_Encoding="gzip") as server:
        assert await asked(server.root, most=most) == Answer(200, _any_headers(), b"", is_whole=False)
        whole = await asked(server.root, most=1_000)
    assert isinstance(whole, Answer)
    assert (whole.body, whole.is_whole) == (bytes(1_000), True)


class _any_headers(dict[str, str]):  # noqa: N801  reads as a value
    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict)

    __hash__ = None


async def test_a_redirect_is_not_followed() -> None:
    with Server() as other, Server(status=307, Location=f"{other.root}/") as server:
        answer = await asked(server.root, "POST")
    assert isinstance(answer, Answer)
    assert (answer.status, other.asked) == (307, [])


async def test_a_server_on_this_machine_is_asked_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Server(b"proxy") as proxy, Server(b"server") as server:
        monkeypatch.setenv("http_proxy", proxy.root)
        answer = await asked(server.root)
        other = await asked("http://somewhere.invalid/")
        for name in ("127.0.0.2", "127.1.2.3"):  # on Linux the whole block is this machine
            assert _kind(await asked(f"http://{name}:1/")) is FailureKind.NOT_CONNECTED
    assert isinstance(answer, Answer)
    assert isinstance(other, Answer)
    assert (answer.body, other.body) == (b"server", b"proxy")


@pytest.mark.parametrize("value", ["ftp://127.0.0.1:1", "http://[::1"])
async def test_a_proxy_that_is_none_is_the_persons_to_mend(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("https_proxy", value)
    with pytest.raises(ConfigurationError, match="proxy or certificate settings cannot be used"):
        await asked("http://127.0.0.1:1/")


async def test_what_failures_are_called() -> None:
    with Server() as server:
        gone = server.root
    assert _kind(await asked(gone)) is FailureKind.NOT_CONNECTED
    assert _kind(await asked("http://127.0.0.1:x/")) is FailureKind.ADDRESS
    with Server(b"no zip", Content_Encoding="gzip") as server:
        assert _kind(await asked(server.root)) is FailureKind.UNREADABLE
    gate = threading.Event()
    with Server(gate=gate) as server:
        assert _kind(await asked(server.root, seconds=0.05)) is FailureKind.SILENT
        assert _kind(await asked(server.root, total=0.05)) is FailureKind.LATE
        gate.set()


def _kind(found: Answer | NoAnswer) -> FailureKind | None:
    return found.kind if isinstance(found, NoAnswer) else None


async def test_a_failure_is_a_value_without_the_request() -> None:
    with Server() as server:
        gone = server.root
    found = await asked(gone)
    assert SECRET not in repr(found)
    assert not hasattr(found, "__context__")


async def test_the_beginning_of_a_body_is_read_as_far_as_it_comes() -> None:
    with Server(b"0123456789") as server:
        async with (
            open_client(server.root, silent_seconds=60) as client,
            client.stream("GET", server.root) as response,
        ):
            assert await read_beginning(response, 4) == b"0123"
    with Server(b"no zip", Content_Encoding="gzip") as server:
        async with (
            open_client(server.root, silent_seconds=60) as client,
            client.stream("GET", server.root) as response,
        ):
            assert await read_beginning(response, 4) == b""


async def test_who_is_no_coroutine_asks_beside_a_running_loop() -> None:
    with Server(b"yes") as server:
        answer = ask_now(asked(server.root))
    assert isinstance(answer, Answer)
    assert answer.body == b"yes"


@table(
    "text, seconds",
    [
        ("30", 30.0),
        ("0.5", 0.5),
        ("Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("Wed, 31 Dec 2025 23:59:00 GMT", 0.0),
        ("5, Thu, 01 Jan 2026 00:01:00 GMT", 60.0),
        ("1e300", LONGEST_SECONDS),
        ("soon", None),
        ("-5", None),
        ("", None),
    ],
)
def test_what_a_server_asks_to_wait(text: str, seconds: float | None) -> None:
    assert asked_seconds({"retry-after": text}, NOW) == seconds
    assert asked_seconds({"retry-after": text, "date": "Thu, 01 Jan 2026 00:00:00 GMT"}) == seconds


def test_a_date_without_any_clock_says_nothing() -> None:
    assert asked_seconds({"retry-after": "Thu, 01 Jan 2026 00:01:00 GMT"}) is None
    assert asked_seconds({"retry-after": "7", "date": "yesterday"}) == 7
    assert asked_seconds({"retry-after": "7", "date": "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"}) == 7
    assert asked_seconds({}) is None
