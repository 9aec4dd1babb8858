"""The search engines: how each is asked, and where its results are in its reply."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.web.base import SearchHit

if TYPE_CHECKING:
    from orchestrator.core.messages import JsonObject

MAX_RESULTS = 20
"""The most that all engines give in one reply."""

MAX_QUERY_CHARACTERS = 400
"""The longest question that all engines take; Brave's limit."""

_MAX_TITLE_CHARACTERS = 200
_MAX_SNIPPET_CHARACTERS = 500
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,100}>")

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchEngine:
    """A search engine's interface.

    Attributes:
        label: its name, as a person writes it.
        key_variable: the environment variable in which its key usually is.
        url: where it is asked. Its key goes to this host and to no other.
        credentials: the header that carries the key.
        params: the query of a GET request; None makes it a POST.
        body: the JSON of a POST request.
        rows: the results in the reply.
        snippet: a result's text.
    """

    label: str
    key_variable: str
    url: str
    credentials: Callable[[str], Mapping[str, str]]
    rows: Callable[[JsonObject], Any]
    snippet: Callable[[Row], Any]
    params: Callable[[str, int], Mapping[str, str]] | None = None
    body: Callable[[str, int], JsonObject] | None = None

    def hits(self, reply: Any) -> list[SearchHit] | None:
        """The results of a reply; None where it has not the engine's form."""
        rows = self.rows(reply) if isinstance(reply, Mapping) else None
        if not isinstance(rows, list):
            return None
        return [
            SearchHit(
                _plain(row.get("title"), _MAX_TITLE_CHARACTERS),
                row["url"].strip(),
                _plain(self.snippet(row), _MAX_SNIPPET_CHARACTERS),
            )
            for row in rows
            if isinstance(row, Mapping)
            and isinstance(row.get("url"), str)
            and row["url"].strip().isprintable()
        ]


def complaint(reply: Any) -> str:
    """What an engine's error says, in one line; empty where it says nothing.

    Tavily sends `{"detail": {"error": ...}}`, Brave `{"error": {"detail": ...}}`, Exa `{"error": ...}`.
    """
    for _ in range(3):
        if not isinstance(reply, Mapping):
            break
        reply = next((reply[key] for key in ("detail", "error", "message") if reply.get(key)), "")
    return _plain(reply, _MAX_TITLE_CHARACTERS)


def _plain(value: Any, most: int) -> str:
    """One line of text without markup."""
    text = html.unescape(_MARKUP.sub("", value)) if isinstance(value, str) else ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _brave_rows(reply: JsonObject) -> Any:
    web = reply.get("web")
    if web is None:  # a question without results has no such part
        return [] if reply.get("type") == "search" else None
    return web.get("results", []) if isinstance(web, Mapping) else None


def _exa_snippet(row: Row) -> str:
    highlights = row.get("highlights")
    return (
        " … ".join(part for part in highlights if isinstance(part, str))
        if isinstance(highlights, list)
        else ""
    )


# https://docs.tavily.com/documentation/api-reference/endpoint/search
TAVILY = SearchEngine(
    label="Tavily",
    key_variable="TAVILY_API_KEY",
    url="https://api.tavily.com/search",
    credentials=lambda key: {"authorization": f"Bearer {key}"},
    body=lambda query, most: {"query": query, "max_results": most},
    rows=lambda reply: reply.get("results"),
    snippet=lambda row: row.get("content"),
)

# https://api-dashboard.search.brave.com/app/documentation/web-search/get-started
BRAVE = SearchEngine(
    label="Brave",
    key_variable="BRAVE_API_KEY",
    url="https://api.search.brave.com/res/v1/web/search",
    credentials=lambda key: {"x-subscription-token": key},
    params=lambda query, most: {
        "q": query,
        "count": str(most),
        "text_decorations": "false",
        "result_filter": "web",
    },
    rows=_brave_rows,
    snippet=lambda row: row.get("description"),
)

# https://docs.exa.ai/reference/search
EXA = SearchEngine(
    label="Exa",
    key_variable="EXA_API_KEY",
    url="https://api.exa.ai/search",
    credentials=lambda key: {"x-api-key": key},
    body=lambda query, most: {"query": query, "numResults": most, "contents": {"highlights": True}},
    rows=lambda reply: reply.get("results"),
    snippet=_exa_snippet,
)

ENGINES: Mapping[str, SearchEngine] = MappingProxyType({"tavily": TAVILY, "brave": BRAVE, "exa": EXA})
"""By the name that configuration uses."""


def engine_named(name: str) -> SearchEngine:
    """The engine of this name.

    Raises:
        ConfigurationError: there is none.
    """
    if name not in ENGINES:
        raise ConfigurationError(f"unknown search engine {name[:50]!r}: known are {', '.join(ENGINES)}")
    return ENGINES[name]
