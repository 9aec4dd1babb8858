"""Servers over HTTP: what they answer is bounded, and nothing goes anywhere else."""

from __future__ import annotations

import asyncio
import urllib.error
import urllib.request
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import pytest

from orchestrator.plugins.mcp.base import BrowserLogin, McpError, McpServer, ServerAddress
from orchestrator.plugins.mcp.connection import McpConnection
from orchestrator.plugins.mcp.transports import _Callback, remote_transport, signing_in
from tests.plugins.mcp.http_server import McpHttp

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def connected(address: ServerAddress) -> AsyncIterator[McpConnection]:
    server = McpServer("far", address, start_seconds=30, call_seconds=30)
    connection = McpConnection(
        server, lambda voice: remote_transport(address, voice, 30), lambda _method: None, lambda: None
    )
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


@pytest.mark.parametrize("kind", ["json", "events"])
async def test_a_call_over_http(kind: str) -> None:
    with McpHttp(kind) as http:
        async with connected(ServerAddress(http.url, {"X-Team": "blue"})) as connection:
            assert [one.name for one in connection.found] == ["read"]
            assert (await connection.call("read", {})).text == "fine"
        assert all(headers["X-Team"] == "blue" for headers in http.seen)
        assert all(headers["Accept-Encoding"] == "identity" for headers in http.seen)


async def test_a_server_on_this_machine_is_asked_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with McpHttp() as http, McpHttp() as proxy:
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.base)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        async with connected(ServerAddress(http.url)) as connection:
            assert (await connection.call("read", {})).text == "fine"
        assert http.seen
        assert not proxy.seen


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("huge", "an answer of more than 8 MiB"),
        ("huge-events", "8388608|more than"),
        ("packed", "compresses its answers"),
        ("status", "500|Server returned an error|Internal"),
    ],
)
async def test_an_answer_that_cannot_be_used_costs_the_call(kind: str, said: str) -> None:
    with McpHttp(kind) as http:
        async with connected(ServerAddress(http.url)) as connection:
            with pytest.raises(McpError, match=said):
                await connection.call("read", {})


async def test_a_redirect_to_another_place_is_not_followed() -> None:
    with McpHttp() as other, McpHttp("elsewhere", other.url) as http:
        async with connected(ServerAddress(http.url, {"Authorization": "Bearer tk-1"})) as connection:
            with pytest.raises(McpError):
                await connection.call("read", {})
        assert other.seen == []


async def test_a_server_that_is_not_there_is_named_in_one_line() -> None:
    with McpHttp() as http:
        url = http.url
    with pytest.raises(McpError, match="connect"):
        async with connected(ServerAddress(url)):
            pass


async def test_a_sign_in_at_a_browser_needs_a_person() -> None:
    with pytest.raises(McpError, match="a person has to sign in"):
        async with connected(ServerAddress("http://127.0.0.1:1/mcp", login=BrowserLogin())):
            pass


async def got(url: str) -> int:
    def go() -> int:
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310  on loopback
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    return await asyncio.to_thread(go)


@pytest.mark.parametrize("bad", [False, True])
async def test_the_browser_comes_back_with_the_state_that_it_left_with(bad: bool) -> None:  # noqa: FBT001  two cases
    shown: list[str] = []
    callback = _Callback(shown.append)
    server = await asyncio.start_server(callback.take, "127.0.0.1", 0)
    async with server:
        here = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await got(f"{here}/callback?code=x&state=") == 400
        await callback.ask("https://sign.example/authorize?state=s1&client_id=c")
        assert shown == ["https://sign.example/authorize?state=s1&client_id=c"]
        assert await got(f"{here}/favicon.ico") == 404
        assert await got(f"{here}/callback?code=forged&state=s2") == 400
        answer = {"error": "access_denied"} if bad else {"code": "c1", "iss": "https://sign.example"}
        assert await got(f"{here}/callback?{urlencode({**answer, 'state': 's1'})}") == 200
        assert await got(f"{here}/callback?code=again&state=s1") == 400
        if bad:
            with pytest.raises(McpError, match="refused: 'access_denied'"):
                await callback.answer()
        else:
            result = await callback.answer()
            assert (result.code, result.state, result.iss) == ("c1", "s1", "https://sign.example")


async def test_the_page_to_come_back_to_is_on_this_machine() -> None:
    address = ServerAddress("https://a.example/mcp", login=BrowserLogin("known"))
    async with signing_in(address, lambda _page: None) as login:
        about = login.context.client_metadata  # type: ignore[union-attr]
        assert urlsplit(str(about.redirect_uris[0])).hostname == "127.0.0.1"
