"""The web over HTTP: pages of public addresses, and the search engine that was set up.

The IP addresses of a host are looked up and checked here, and the connection goes to exactly the one
that was checked, so that a name cannot lead elsewhere a moment later. Proxies of the environment are not
used: a proxy would look the name up again, where nobody checks.
"""

from __future__ import annotations

import asyncio
import codecs
import html
import json
import re
from collections.abc import Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.message import Message
from http import HTTPStatus
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from orchestrator import __version__
from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.core.redaction import without_bytes, without_secrets
from orchestrator.engine.web.base import (
    PageKind,
    SearchHit,
    WebAddress,
    WebPage,
    bracketed,
    joined,
    parse_address,
    public_ips,
    system_resolver,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable

    import httpx2

    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.web.base import Resolver


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


def _complaint(reply: Any) -> str:
    """What an engine's error says, in one line; empty where it says nothing.

    Tavily sends `{"detail": {"error": ...}}`, Brave `{"error": {"detail": ...}}`, Exa `{"error": ...}`.
    """
    for _ in range(3):
        if not isinstance(reply, Mapping):
            break
        reply = next((reply[key] for key in ("detail", "error", "message") if reply.get(key)), "")
    return _plain(reply, _MAX_TITLE_CHARACTERS)


def _plain(value: Any, most: int) -> str:
    """One line of text without_secrets markup."""
    text = html.unescape(_MARKUP.sub("", value)) if isinstance(value, str) else ""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def _brave_rows(reply: JsonObject) -> Any:
    web = reply.get("web")
    if web is None:  # a question without_secrets results has no such part
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


def _engine_named(name: str) -> SearchEngine:
    """The engine of this name."""
    if name not in ENGINES:
        raise ConfigurationError(f"unknown search engine {name[:50]!r}: known are {', '.join(ENGINES)}")
    return ENGINES[name]


_HTML_TYPES = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES = re.compile(
    r"text/.+|application/(.+\+)?(json|xml|yaml|x-yaml|toml|javascript|x-javascript|ecmascript|ndjson|x-ndjson|jsonl"
    r"|x-sh|x-python|sql|graphql|x-httpd-php)|image/svg\+xml|message/.+"
)
_LOOKS_LIKE_HTML = re.compile(
    rb"\s*(<!--.*?-->\s*)*<(!doctype\s+html|html|head|body)\b", re.IGNORECASE | re.DOTALL
)
_START_BYTES = 1_024
"""Where HTML may name its character set: https://html.spec.whatwg.org/multipage/parsing.html"""

_DECLARED = re.compile(rb"""(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_:.\-]+)""", re.IGNORECASE)
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
"""Character sets of pages. Python knows more encodings, some of which are programs rather than tables."""

_AS_WINDOWS = frozenset(
    {"ascii", "iso8859-1"}
)  # as every browser takes them: https://encoding.spec.whatwg.org


def page_text(content_type: str, data: bytes) -> tuple[PageKind, str]:
    """The kind and the characters of a page.

    Raises:
        ToolError: it is no text.
    """
    kind = _page_kind(content_type, data[:_START_BYTES])
    text = data.decode(_charset(content_type, data, kind), "replace").removeprefix("\ufeff")
    if "\0" in text[:_START_BYTES]:
        raise ToolError(
            f"the page is binary data (sent as {_media_type(content_type) or 'no type'}), not text"
        )
    return kind, text


def _page_kind(content_type: str, start: bytes) -> PageKind:
    """What a page is, by its declared type; by its first bytes where none was declared."""
    media_type = _media_type(content_type)
    if media_type in _HTML_TYPES or (not media_type and _LOOKS_LIKE_HTML.match(start)):
        return PageKind.HTML
    if not media_type or _TEXT_TYPES.fullmatch(media_type):
        return PageKind.TEXT
    raise ToolError(
        f"the page is {media_type}, and only HTML and text can be read: look for another form of it"
    )


def _media_type(content_type: str) -> str:
    return "".join(c for c in content_type.partition(";")[0].strip().lower() if c.isprintable())[:100]


def _charset(content_type: str, data: bytes, kind: PageKind) -> str:
    """The marks at the beginning count most, then the server's word, then the page's own, then UTF-8."""
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


T = TypeVar("T")

_USER_AGENT = f"pullwright/{__version__}"
_ACCEPT = (
    "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,application/xml;q=0.9,*/*;q=0.1"
)
_ENCODINGS = "gzip, deflate"
_KNOWN_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MAX_CONNECT_TRIES = 3
_SPENT = frozenset({402, 432, 433})
"""Tavily's two numbers for a spent plan, beside HTTP's own:
https://docs.tavily.com/documentation/api-reference/endpoint/search"""


@dataclass(frozen=True, slots=True)
class WebOptions:
    """Bounds of what is fetched and kept.

    Attributes:
        seconds: for a whole fetch or search, redirects included.
        connect_seconds: for each try to connect.
        max_bytes: of a body, after it was unpacked.
        max_redirects: followed for one page.
        kept_pages: pages remembered, the latest used.
        kept_characters: of all remembered pages together.
    """

    seconds: float = 20.0
    connect_seconds: float = 6.0
    max_bytes: int = 5_000_000
    max_redirects: int = 5
    kept_pages: int = 20
    kept_characters: int = 20_000_000


class HttpWeb:
    """The web, for one session. Safe for several calls at once in one event loop; nothing is left open."""

    def __init__(
        self,
        *,
        engine: SearchEngine | str | None = None,
        api_key: str | None = None,
        allowed_private: frozenset[str] = frozenset(),
        resolve: Resolver = system_resolver,
        options: WebOptions | None = None,
    ) -> None:
        """Nothing is opened before the first call.

        Args:
            engine: answers searches (`tavily`, `brave`, `exa`); None leaves only pages.
            api_key: sent to the engine's host, and nowhere else.
            allowed_private: places (`host:port`) that may be opened although they are private.
            resolve: looks host names up.
            options: bounds.

        Raises:
            ConfigurationError: the engine is unknown or has no key, or no key has such characters.
        """
        if isinstance(engine, str):
            engine = _engine_named(engine)
        self._engine = engine
        self._key = (api_key or "").strip()
        if engine and not self._key:
            raise ConfigurationError(
                f"web search with {engine.label} needs its key: set {engine.key_variable}"
            )
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigurationError(
                "the key of web search has characters that no key has; was it copied whole?"
            )
        self._allowed_private = allowed_private
        self._resolve = resolve
        self._options = options or WebOptions()
        self._tls: ssl.SSLContext | None = None
        self._pages: dict[str, WebPage] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __repr__(self) -> str:
        """Without the key."""
        return f"HttpWeb(engine={self._engine.label if self._engine else None!r})"

    @property
    def can_search(self) -> bool:
        """Whether an engine was chosen."""
        return self._engine is not None

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """What the search engine finds, best first.

        Raises:
            ToolError: see `WebAccess`.
        """
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
        address = parse_address(engine.url, self._allowed_private)
        status, data = await self._within(address.host, self._ask(engine, address, query, max_results))
        try:
            reply = json.loads(without_bytes(data, self._key))
        except (ValueError, RecursionError):
            reply = None
        if status != HTTPStatus.OK:
            raise _refused_search(engine, status, _complaint(reply))
        hits = engine.hits(reply)
        if hits is None:
            raise ToolError(
                f"{engine.label} answered in a form that is not known: web search does not work now"
            )
        return hits[:max_results]

    async def fetch(self, url: str) -> WebPage:
        """The page at an address.

        Raises:
            ToolError: see `WebAccess`.
        """
        address = parse_address(url, self._allowed_private)
        lock = self._locks.setdefault(address.url, asyncio.Lock())
        async with lock:
            page = self._pages.pop(address.url, None)
            if page is None:
                page = await self._within(address.host, self._follow(address))
            self._keep(address.url, page)
            return page

    async def download(
        self, url: str, hosts: frozenset[str], *, bearer: str = "", max_bytes: int = 10_000_000
    ) -> tuple[int, bytes]:
        """A file as it is, from one of these hosts alone, over redirects too; its status, and nothing but for 200.

        Args:
            bearer: shown to the host of the address itself, and to no other.

        Raises:
            ToolError: an address is refused, the server failed, or the file is too large.
        """
        address = parse_address(url, self._allowed_private)
        return await self._within(address.host, self._stored(address, hosts, bearer, max_bytes))

    async def _stored(
        self, address: WebAddress, hosts: frozenset[str], bearer: str, max_bytes: int
    ) -> tuple[int, bytes]:
        first, scheme = address.place, address.scheme
        for _ in range(self._options.max_redirects + 1):
            if address.host not in hosts or address.scheme != scheme:
                raise ToolError(f"{address.host} is no host from which files are taken")
            headers = {"authorization": f"Bearer {bearer}"} if bearer and address.place == first else {}
            async with self._open(address, "GET", {"accept": "*/*", **headers}) as response:
                location = response.headers.get("location", "")
                if response.status_code not in _REDIRECTS or not location:
                    if response.status_code != HTTPStatus.OK:
                        return response.status_code, b""
                    return HTTPStatus.OK, await self._body(address.host, response, max_bytes)
            address = joined(address, location, self._allowed_private)
        raise ToolError(f"{address.host} redirects more than {self._options.max_redirects} times")

    def _keep(self, url: str, page: WebPage) -> None:
        """Remember a page as the latest used, and forget the oldest ones beyond the bounds."""
        self._pages[url] = page
        options = self._options
        while len(self._pages) > options.kept_pages or (
            len(self._pages) > 1
            and sum(len(kept.text) for kept in self._pages.values()) > options.kept_characters
        ):
            del self._pages[next(iter(self._pages))]

    async def _within(self, host: str, work: Awaitable[T]) -> T:
        """Await within the time limit. Failures of the HTTP library become ours.

        They are raised outside of its own error's handling: that holds the request, and the request a key.
        """
        import httpx2

        try:
            async with asyncio.timeout(self._options.seconds):
                return await work
        except TimeoutError:
            failure = f"{host} did not answer in full within {self._options.seconds:g} seconds"
        except httpx2.TimeoutException:
            failure = f"{host} cannot be reached: connecting took too long"
        except httpx2.DecodingError:
            failure = f"{host} sent a body that cannot be unpacked"
        except httpx2.TransportError as error:
            said = " ".join(str(error).split())[:200] or type(error).__name__
            failure = f"{host} cannot be reached or broke off: {without_secrets(said, self._key)}"
        raise ToolError(failure)

    async def _follow(self, address: WebAddress) -> WebPage:
        """Fetch a page, through its redirects; each is checked like the first address."""
        for _ in range(self._options.max_redirects + 1):
            async with self._open(address, "GET", {"accept": _ACCEPT}) as response:
                location = response.headers.get("location", "")
                if response.status_code not in _REDIRECTS or not location:
                    return await self._page(address, response)
            try:
                address = joined(address, location, self._allowed_private)
            except ToolError as error:
                raise ToolError(
                    f"{address.host} redirects to an address that is not opened: {error}"
                ) from None
        raise ToolError(f"{address.host} redirects more than {self._options.max_redirects} times")

    async def _page(self, address: WebAddress, response: httpx2.Response) -> WebPage:
        if not response.is_success:
            raise _no_page(address, response.status_code)
        declared = response.headers.get("content-type", "")
        _page_kind(declared, b"")  # a film is refused before it is read
        data = await self._body(address.host, response)
        kind, text = await asyncio.to_thread(page_text, declared, data)
        return WebPage(address.url, kind, text)

    async def _ask(
        self, engine: SearchEngine, address: WebAddress, query: str, most: int
    ) -> tuple[int, bytes]:
        headers = {"accept": "application/json", **engine.credentials(self._key)}
        params = engine.params(query, most) if engine.params else None
        body = json.dumps(engine.body(query, most)).encode() if engine.body else None
        if body is not None:
            headers["content-type"] = "application/json"
        method = "GET" if body is None else "POST"
        async with self._open(address, method, headers, params=params, content=body) as response:
            return response.status_code, await self._body(address.host, response)

    async def _body(self, host: str, response: httpx2.Response, most: int | None = None) -> bytes:
        """The body, unpacked piece by piece, so that a small one cannot become a huge one."""
        most = most or self._options.max_bytes
        if response.headers.get("content-encoding", "").strip().lower() not in _KNOWN_ENCODINGS:
            raise ToolError(f"{host} sent a body packed in a way that was not asked for")
        data = bytearray()
        async for piece in response.aiter_bytes():
            data += piece
            if len(data) > most:
                raise ToolError(f"the page at {host} is over {most:,} bytes, and no more than that is read")
        return bytes(data)

    @asynccontextmanager
    async def _open(
        self,
        address: WebAddress,
        method: str,
        headers: Mapping[str, str],
        *,
        params: Mapping[str, str] | None = None,
        content: bytes | None = None,
    ) -> AsyncIterator[httpx2.Response]:
        """Send one request to a checked IP address of the host; the next one is tried where nobody answers.

        The URL has the number, so nothing looks the name up again. The server sees the name in the `Host` header,
        and the certificate must be for the name.
        """
        import httpx2

        ips = (await public_ips(address, self._resolve))[:_MAX_CONNECT_TRIES]
        sent = {
            "host": address.authority,
            "accept-encoding": _ENCODINGS,
            "user-agent": _USER_AGENT,
            **headers,
        }
        for place, ip in enumerate(ips, 1):
            # A client for each try: a kept connection would be found by its number, whatever name it was made for.
            async with self._client() as client:
                request = client.build_request(
                    method,
                    f"{address.scheme}://{bracketed(ip)}:{address.port}{address.target}",
                    params=params,
                    headers=sent,
                    content=content,
                    extensions={"sni_hostname": address.host},
                )
                try:
                    response = await client.send(request, stream=True)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):
                    if place == len(ips):
                        raise
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return

    def _client(self) -> httpx2.AsyncClient:
        import httpx2

        if self._tls is None:
            self._tls = httpx2.create_ssl_context()
        timeout = httpx2.Timeout(self._options.seconds, connect=self._options.connect_seconds)
        return httpx2.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False, timeout=timeout)


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


def _refused_search(engine: SearchEngine, status: int, said: str) -> ToolError:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        what = f"did not accept its key: a person must check {engine.key_variable}"
    elif status in _SPENT:
        what = "has no quota left for its key: go on without_secrets web search"
    elif status == HTTPStatus.TOO_MANY_REQUESTS:
        what = "takes no more requests for now, or its quota is spent: search less, or later"
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        what = "failed: try later, or go on without_secrets web search"
    else:
        what = "did not accept the search: put it in other words"
    return ToolError(f"{engine.label} {what} (HTTP {status}{f': {said}' if said else ''})")
