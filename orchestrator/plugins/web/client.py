"""The web over HTTP: pages of public addresses, and the configured search engine.

`orchestrator.bot.forge.public_web` checks the addresses.
"""

from __future__ import annotations

import asyncio
import codecs
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

from orchestrator.bot.forge.public_web import PublicWeb, system_resolver
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.core.prompts import cut
from orchestrator.core.redaction import without_bytes
from orchestrator.plugins.web.base import PageKind, SearchHit, WebPage
from orchestrator.plugins.web.tools import web_tools_of

if TYPE_CHECKING:
    from orchestrator.bot.forge.public_web import Resolver, WebAddress
    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.tools.base import Tool


MAX_RESULTS = 20
"""The most results that all engines return in one reply."""

MAX_QUERY_CHARACTERS = 400
"""The longest query that all engines accept; Brave's limit."""

_MAX_TITLE_CHARACTERS = 200
_MAX_SNIPPET_CHARACTERS = 500
_MARKUP = re.compile(r"</?[a-zA-Z][^<>]{0,100}>")

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SearchEngine:
    """A search engine's interface.

    Attributes:
        label: its name for people.
        key_variable: the usual environment variable for its key.
        url: its endpoint. The key is sent to this host and to no other.
        credentials: returns the header with the key.
        params: returns the query of a GET request; None makes it a POST request.
        body: returns the JSON of a POST request.
        rows: returns the results in the reply.
        snippet: returns a result's text.
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
        """Return the results of a reply; None if the reply does not have the engine's format."""
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


def _error_message(reply: Any) -> str:
    """Return the message of an engine's error reply in one line; empty if it has none.

    Tavily sends `{"detail": {"error": ...}}`, Brave `{"error": {"detail": ...}}`, Exa `{"error": ...}`.
    """
    for _ in range(3):
        if not isinstance(reply, Mapping):
            break
        reply = next((reply[key] for key in ("detail", "error", "message") if reply.get(key)), "")
    return _plain(reply, _MAX_TITLE_CHARACTERS)


def _plain(value: Any, most: int) -> str:
    """Return one line of text without markup."""
    text = html.unescape(_MARKUP.sub("", value)) if isinstance(value, str) else ""
    return cut(" ".join("".join(c if c.isprintable() else " " for c in text).split()), most)


def _brave_rows(reply: JsonObject) -> Any:
    web = reply.get("web")
    if web is None:  # a reply without results has no such part
        return [] if reply.get("type") == "search" else None
    return web.get("results", []) if isinstance(web, Mapping) else None


def _exa_snippet(row: Row) -> str:
    highlights = row.get("highlights")
    listed = highlights if isinstance(highlights, list) else []
    return " … ".join(part for part in listed if isinstance(part, str))


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
"""The engines by their names in the configuration."""


_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|toml|javascript|x-javascript|ecmascript|ndjson|x-ndjson|jsonl"
    r"|x-sh|x-python|sql|graphql|x-httpd-php)|image/svg\+xml|message/.+"
)
_COMMENTS = re.compile(rb"\s*+(?>(?:<!--(?>.*?-->)\s*)*)", re.DOTALL)
_FIRST_TAG = re.compile(rb"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)
_START_BYTES = 1_024
"""The part of a page in which HTML may declare its character set.

https://html.spec.whatwg.org/multipage/parsing.html
"""

_DECLARED = re.compile(rb"""(?:charset|encoding)\s*+=\s*+["']?\s*+([A-Za-z0-9_:.\-]+)""", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_CHARSETS = re.compile(
    r"utf-?(8|16|32)([-_]?[lb]e)?|(us-)?ascii|latin-?1|iso-?8859-?\d{1,2}|(windows|cp)-?\d{3,4}|koi8-[rut]|mac(intosh|-\w+)"
    r"|shift[-_]jis|sjis|euc-(jp|kr)|iso-2022-(jp|kr)|gb(k|2312|18030)|big5(-hkscs)?|tis-620",
    re.IGNORECASE,
)
"""Character sets of pages. Python has more encodings, some of which are programs rather than tables."""

_AS_WINDOWS = frozenset({"ascii", "iso8859-1"})
"""Every browser decodes these as windows-1252: https://encoding.spec.whatwg.org"""


def page_text(content_type: str, data: bytes) -> tuple[PageKind, str]:
    """Return the kind and the decoded text of a page."""
    kind = _page_kind(content_type, data[:_START_BYTES])
    text = data.decode(_charset(content_type, data, kind), "replace").removeprefix("\ufeff")
    if "\0" in text[:_START_BYTES]:
        raise ToolError(
            f"the page is binary data (sent as {_media_type(content_type) or 'no type'}), not text"
        )
    return kind, text


def _page_kind(content_type: str, start: bytes) -> PageKind:
    """Return a page's kind by its declared type, or by its first bytes if none was declared."""
    media_type = _media_type(content_type)
    if media_type in _HTML_TYPES or (not media_type and _looks_like_html(start)):
        return PageKind.HTML
    if not media_type or _TEXT_TYPES.fullmatch(media_type):
        return PageKind.TEXT
    raise ToolError(
        f"the page is {media_type}, and only HTML and text can be read: look for another form of it"
    )


def _looks_like_html(start: bytes) -> bool:
    """Return whether the first tag, behind any comments, is one of those that begin a page."""
    comments = _COMMENTS.match(start)
    return _FIRST_TAG.match(start, comments.end() if comments else 0) is not None


def _media_type(content_type: str) -> str:
    return "".join(c for c in content_type.partition(";")[0].strip().lower() if c.isprintable())[:100]


def _charset(content_type: str, data: bytes, kind: PageKind) -> str:
    """Return the character set: from a byte order mark, else the server, else the page, else UTF-8."""
    for mark, name in _MARKS:
        if data.startswith(mark):
            return name
    header = Message()
    header["content-type"] = "".join(c for c in content_type if c.isprintable())
    declared = [str(header.get_param("charset") or "")]
    if (kind is PageKind.HTML or data.startswith(b"<?xml")) and (
        inside := _DECLARED.search(data[:_START_BYTES])
    ):
        declared.append(inside[1].decode("ascii"))
    for name in declared:
        if _CHARSETS.fullmatch(name.strip()):
            try:
                found = codecs.lookup(name.strip()).name
            except LookupError:
                continue
            return "cp1252" if found in _AS_WINDOWS else found
    try:
        data.decode()
    except UnicodeDecodeError:
        return "cp1252"
    return "utf-8"


_ACCEPT = (
    "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,application/xml;q=0.9,*/*;q=0.1"
)
_SPENT = frozenset({402, 432, 433})
"""HTTP's status and Tavily's two for a plan without quota.

https://docs.tavily.com/documentation/api-reference/endpoint/search
"""


@dataclass(frozen=True, slots=True)
class WebLimits:
    """Limits for fetching and caching pages.

    Attributes:
        seconds: time limit of a whole fetch or search, redirects included.
        kept_pages: number of cached pages, the most recently used.
        kept_characters: size limit of all cached pages together.
    """

    seconds: float = 20.0
    kept_pages: int = 20
    kept_characters: int = 20_000_000


class HttpWeb:
    """Web access for one session; calls may run at the same time in one event loop, and no connection stays open."""

    def __init__(
        self,
        *,
        engine: SearchEngine | str | None = None,
        api_key: str | None = None,
        allowed_private: frozenset[str] = frozenset(),
        resolve: Resolver = system_resolver,
        limits: WebLimits | None = None,
    ) -> None:
        """Create the access. No connection is opened before the first call.

        Args:
            engine: the search engine (`tavily`, `brave`, `exa`); None allows only pages.
            api_key: sent to the engine's host, and to no other.
            allowed_private: places (`host:port`) that may be opened although they are private.
            resolve: resolves host names.
            limits: limits for fetching and caching pages.

        Raises:
            ConfigurationError: the engine is unknown or has no key, or the key has invalid characters.
        """
        if isinstance(engine, str):
            if engine not in ENGINES:
                known = ", ".join(ENGINES)
                raise ConfigurationError(f"unknown search engine {engine[:50]!r}: known are {known}")
            engine = ENGINES[engine]
        self._engine = engine
        self._key = (api_key or "").strip()
        if engine and not self._key:
            raise ConfigurationError(
                f"web search with {engine.label} needs its key: set {engine.key_variable}"
            )
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigurationError(
                "the key of web search has characters that keys never have: check that it was copied completely"
            )
        self._limits = limits or WebLimits()
        self._web = PublicWeb(
            allowed_private=allowed_private, resolve=resolve, seconds=self._limits.seconds, key=self._key
        )
        self._pages: dict[str, WebPage] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        """Return a description without the key."""
        return f"HttpWeb(engine={self._engine.label if self._engine else None!r})"

    @property
    def can_search(self) -> bool:
        """Whether an engine is configured."""
        return self._engine is not None

    def tools(self, profile: str) -> tuple[Tool, ...]:
        """Return the web tools of a profile, by its name."""
        return web_tools_of(profile, self)

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the results of the search engine, best first; see `WebAccess`."""
        engine = self._engine
        if engine is None:
            raise ToolError("web search is not set up: no search engine was chosen")
        query = " ".join(query.split())
        if not 1 <= len(query) <= MAX_QUERY_CHARACTERS or not query.isprintable():
            raise ToolError(
                f"query must be one line of plain text, 1 to {MAX_QUERY_CHARACTERS} characters long"
            )
        if not 1 <= max_results <= MAX_RESULTS:
            raise ToolError(f"max_results must be from 1 to {MAX_RESULTS}")
        address = self._web.address(engine.url)
        asked = self._ask(engine, address, query, max_results)
        status, data = await self._web.within(address.host, asked)
        try:
            reply = json.loads(without_bytes(data, self._key))
        except (ValueError, RecursionError):
            reply = None
        if status != HTTPStatus.OK:
            raise _refused_search(engine, status, _error_message(reply))
        hits = engine.hits(reply)
        if hits is None:
            raise ToolError(f"{engine.label} sent a reply in an unknown format: web search does not work now")
        return hits[:max_results]

    async def fetch(self, url: str) -> WebPage:
        """Return the page at an address; see `WebAccess`."""
        address = self._web.address(url)
        lock = self._locks.setdefault(address.url, asyncio.Lock())
        async with lock:
            page = self._pages.pop(address.url, None)
            if page is None:
                page = await self._web.within(address.host, self._page(address))
            self._keep(address.url, page)
            return page

    def _keep(self, url: str, page: WebPage) -> None:
        """Cache a page as the most recently used, and drop the oldest ones beyond the limits."""
        self._pages[url] = page
        limits = self._limits
        while len(self._pages) > limits.kept_pages or (
            len(self._pages) > 1
            and sum(len(kept.text) for kept in self._pages.values()) > limits.kept_characters
        ):
            del self._pages[next(iter(self._pages))]

    async def _page(self, address: WebAddress) -> WebPage:
        async with self._web.following(address, _ACCEPT) as (last, response):
            if not response.is_success:
                raise _no_page(last, response.status_code)
            declared = response.headers.get("content-type", "")
            _page_kind(declared, b"")  # refuse a video, for example, before its body is read
            data = await self._web.body(last.host, response)
        kind, text = await asyncio.to_thread(page_text, declared, data)
        return WebPage(last.url, kind, text)

    async def _ask(
        self, engine: SearchEngine, address: WebAddress, query: str, most: int
    ) -> tuple[int, bytes]:
        headers = {"accept": "application/json", **engine.credentials(self._key)}
        params = engine.params(query, most) if engine.params else None
        body = json.dumps(engine.body(query, most)).encode() if engine.body else None
        if body is not None:
            headers["content-type"] = "application/json"
        method = "GET" if body is None else "POST"
        async with self._web.open(address, method, headers, params=params, content=body) as response:
            return response.status_code, await self._web.body(address.host, response)


def _no_page(address: WebAddress, status: int) -> ToolError:
    if status in {HTTPStatus.NOT_FOUND, HTTPStatus.GONE}:
        return ToolError(
            f"there is no page at {address.url} (HTTP {status}): check the address, or search for it"
        )
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.UNAVAILABLE_FOR_LEGAL_REASONS}:
        return ToolError(
            f"{address.host} does not show this page to everyone (HTTP {status}): look for another source"
        )
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return ToolError(f"{address.host} takes no more requests for now (HTTP 429): look for another source")
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return ToolError(f"{address.host} failed (HTTP {status}): try later, or look for another source")
    return ToolError(f"{address.host} answered with HTTP {status} and no page")


def _refused_search(engine: SearchEngine, status: int, detail: str) -> ToolError:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        what = f"did not accept its key: a person must check {engine.key_variable}"
    elif status in _SPENT:
        what = "has no quota left for its key: continue without web search"
    elif status == HTTPStatus.TOO_MANY_REQUESTS:
        what = "takes no more requests for now, or its quota is spent: search less, or later"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        what = "failed: try later, or continue without web search"
    else:
        what = "did not accept the search: put it in other words"
    return ToolError(f"{engine.label} {what} (HTTP {status}{f': {detail}' if detail else ''})")
