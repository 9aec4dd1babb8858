"""Searches, over doubles of the three engines."""

from __future__ import annotations

import json
import logging
import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.plugins.web.base import SearchHit
from orchestrator.plugins.web.client import ENGINES, EXA, TAVILY, HttpWeb, WebLimits
from tests.doubles.web_server import Answer, WebServer, redirect
from tests.plugins.web import search_engines
from tests.plugins.web.search_engines import FOUND, KEY, as_json
from tests.tables import table

if TYPE_CHECKING:
    from orchestrator.plugins.web.client import SearchEngine
    from tests.doubles.web_server import Route

DOUBLES: dict[str, Route] = {
    "tavily": search_engines.tavily,
    "brave": search_engines.brave,
    "exa": search_engines.exa,
}


def at(site: WebServer, engine: SearchEngine, key: str = KEY) -> HttpWeb:
    return HttpWeb(
        engine=replace(engine, url=f"{site.url}/search"),
        api_key=key,
        allowed_private=frozenset({site.place}),
        limits=WebLimits(seconds=5),
    )


@pytest.mark.parametrize("name", ENGINES)
async def test_each_engine_finds(name: str) -> None:
    with WebServer({"/search": DOUBLES[name]}) as site:
        hits = await at(site, ENGINES[name]).search("  what is\nhttpx ", 2)
    assert hits == [SearchHit(*found) for found in FOUND[:2]]
    asked = site.requests[0]
    assert "what+is+httpx" in asked.path or json.loads(asked.body)["query"] == "what is httpx"


@pytest.mark.parametrize("name", ENGINES)
async def test_each_engine_refuses_a_wrong_key(name: str) -> None:
    with (
        WebServer({"/search": DOUBLES[name]}) as site,
        pytest.raises(ToolError, match=r"(?i)invalid") as raised,
    ):
        await at(site, ENGINES[name], "another-key-0123").search("x", 1)
    assert "another-key-0123" not in str(raised.value)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (as_json({"detail": {"error": "bad"}}, 403), r"must check TAVILY_API_KEY \(HTTP 403: bad\)"),
        (as_json({}, 432), "no quota left for its key: continue without web search"),
        (as_json({}, 402), "no quota left"),
        (as_json({}, 429), "no more requests"),
        (as_json({}, 500), "failed: try later, or continue without web search"),
        (as_json({"error": [1]}, 400), "other words"),
        (Answer(b"<html>", 502), "failed"),
        (redirect("http://example.org/"), "HTTP 302"),
        (Answer(b"not json"), "an unknown format"),
        (as_json({"other": 1}), "an unknown format"),
        (Answer(b"[" * 100_000), "an unknown format"),
        (Answer(b"x" * 6_000_000), "over 5,000,000 bytes"),
    ],
)
async def test_failures_of_an_engine_are_told(answer: Answer, said: str) -> None:
    with WebServer({"/search": answer}) as site, pytest.raises(ToolError, match=said):
        await at(site, TAVILY).search("x", 1)


@pytest.mark.parametrize(
    ("rows", "hits"),
    [
        ([], []),
        ([1, None, {}, {"url": 3}, {"url": "a\nb"}], []),
        ([{"url": "https://a.example/"}], [SearchHit("", "https://a.example/", "")]),
        (
            [{"url": "https://a.example/", "title": "a\n\u202eb", "content": "x " * 600}],
            [SearchHit("a b", "https://a.example/", ("x " * 600)[:499] + "…")],
        ),
    ],
)
async def test_odd_results_do_no_harm(rows: list[Any], hits: list[SearchHit]) -> None:
    with WebServer({"/search": as_json({"results": rows})}) as site:
        assert await at(site, TAVILY).search("x", 5) == hits


async def test_an_engine_may_find_nothing() -> None:
    for engine, reply in ((ENGINES["brave"], {"type": "search"}), (EXA, {"results": []})):
        with WebServer({"/search": as_json(reply)}) as site:
            assert await at(site, engine).search("x", 5) == []


@pytest.mark.parametrize("query", ["", " \n", "x" * 401, "a\0b"])
async def test_a_query_must_be_a_line_of_text(query: str) -> None:
    with WebServer({}) as site, pytest.raises(ToolError, match="query"):
        await at(site, TAVILY).search(query, 5)
    assert not site.requests


@pytest.mark.parametrize("most", [0, 21])
async def test_max_results_has_bounds(most: int) -> None:
    with WebServer({}) as site, pytest.raises(ToolError, match="max_results must be from 1 to 20"):
        await at(site, TAVILY).search("x", most)


async def test_without_an_engine_there_is_no_search() -> None:
    with pytest.raises(ToolError, match="not set up"):
        await HttpWeb().search("x", 1)


@table("key", [None, "", "  ", "a b", "schlüssel"])
def test_a_key_that_is_none_is_refused_at_once(key: str | None) -> None:
    with pytest.raises(ConfigurationError) as raised:
        HttpWeb(engine=TAVILY, api_key=key)
    assert not key or not key.strip() or key not in str(raised.value)


@pytest.mark.parametrize("name", ENGINES)
async def test_the_key_is_nowhere_but_in_its_header(name: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    echo = as_json(
        {"error": f"the key {KEY} may not", "results": [{"url": f"https://a.example/{KEY}", "title": KEY}]},
        400,
    )
    with WebServer({"/search": echo, "/page": Answer(headers={"Content-Type": "text/plain"})}) as site:
        access = at(site, ENGINES[name])
        with pytest.raises(ToolError, match=r"\[redacted\]") as raised:
            await access.search("x", 1)
        await access.fetch(f"{site.url}/page")
    asked, page = site.requests
    assert KEY not in asked.path
    assert KEY.encode() not in asked.body
    assert KEY in "".join(asked.headers.values())
    assert KEY not in "".join(page.headers.values())
    told = "".join(traceback.format_exception(raised.value)) + repr(access) + str(access) + caplog.text
    assert KEY not in told


async def test_an_error_holds_no_request() -> None:
    with WebServer({}) as site:
        access = at(site, TAVILY)
    with pytest.raises(ToolError, match="cannot be reached") as raised:
        await access.search("x", 1)
    assert raised.value.__context__ is None
