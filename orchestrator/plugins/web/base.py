"""The interface between the web tools and the network."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search engine. All three fields are one line of plain, untrusted text."""

    title: str
    url: str
    snippet: str


class PageKind(StrEnum):
    """The kind of a page's text."""

    HTML = "html"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class WebPage:
    """The decoded, untrusted content of an address.

    Attributes:
        url: the page's address after redirects.
        kind: whether readable text has yet to be extracted.
    """

    url: str
    kind: PageKind
    text: str


class WebAccess(Protocol):
    """Fetches pages and searches. It reaches public addresses only, and sends no cookies and no credentials."""

    @property
    def can_search(self) -> bool:
        """Whether there is a search engine; without one the model is offered no search."""

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return the results of the search engine, best first, at most `max_results`.

        Raises:
            ToolError: no engine is configured, or it refused, failed or could not be reached.
        """

    async def fetch(self, url: str) -> WebPage:
        """Return the page at an `http` or `https` address. A repeated request is answered from memory.

        Raises:
            ToolError: the address is refused, its content is not readable, or the server failed.
        """
