"""The web tools of each profile, in the library."""

from __future__ import annotations

from typing import Any

from orchestrator import (
    HttpWeb,
    anthropic_profile,
    assistant_profile,
    gemini_profile,
    minimal_profile,
    openai_profile,
)
from orchestrator.plugins.web.base import PageKind, SearchHit, WebPage
from orchestrator.plugins.web.tools import WebTools
from tests.tables import table

LOCAL = "http://localhost:1/v1"


@table(
    ("make", "names"),
    [
        (openai_profile, {"web_search", "web_open", "web_find"}),
        (gemini_profile, {"web_search", "web_fetch"}),
        (minimal_profile, {"web_search", "web_open", "web_find"}),
    ],
)
def test_web_tools_exist_only_when_enabled(make: Any, names: set[str]) -> None:
    without = set(make(model="m", api_url=LOCAL).tools.names())
    assert not {name for name in without if name.startswith("web")}
    web = HttpWeb(engine="tavily", api_key="made-up-0123456789")
    assert names <= set(make(model="m", api_url=LOCAL, web=web).tools.names())
    pages_only = {
        name for name in make(model="m", api_url=LOCAL, web=HttpWeb()).tools.names() if "web" in name
    }
    assert pages_only == names - {"web_search"}
    profile = make(model="m", api_url=LOCAL, web=HttpWeb())
    assert "web_search" not in profile.words(profile.tools.definitions(dangerous=True))


def test_the_order_is_the_one_that_the_models_of_a_profile_know() -> None:
    web = HttpWeb(engine="tavily", api_key="made-up-0123456789")
    assert [tool.name for tool in web.tools("gemini")] == ["web_search", "web_fetch"]
    assert [tool.name for tool in web.tools("assistant")] == ["web_fetch", "web_search"]
    assert [tool.name for tool in web.tools("planner")] == ["web_search", "web_open", "web_find"]
    assert "web_fetch" in assistant_profile(model="m", api_url=LOCAL, web=HttpWeb()).tools.names()


def test_a_host_may_have_an_access_of_its_own() -> None:
    class Library:
        """Has one book, and no search engine."""

        can_search = False

        async def search(self, query: str, max_results: int) -> list[SearchHit]:
            raise AssertionError(query, max_results)

        async def fetch(self, url: str) -> WebPage:
            return WebPage(url, PageKind.TEXT, "one book")

    names = anthropic_profile(model="m", api_url=LOCAL, web=WebTools(Library())).tools.names()
    assert [name for name in names if name.startswith("web")] == ["web_open", "web_find"]
