"""The interface between the web tools and the network."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class SearchHit:
    """One result of a search engine. All three are one line of plain text, written by others."""

    title: str
    url: str
    snippet: str


class PageKind(StrEnum):
    """What the text of a page is."""

    HTML = "html"
    TEXT = "text"


@dataclass(frozen=True, slots=True)
class WebPage:
    """What was at an address, decoded, as others wrote it.

    Attributes:
        url: where the text came from, after redirects.
        kind: whether readable text has yet to be taken out of it.
    """

    url: str
    kind: PageKind
    text: str


class WebAccess(Protocol):
    """Pages and searches. It reaches public addresses only, and sends no cookies and no credentials."""

    @property
    def can_search(self) -> bool:
        """Whether there is a search engine; without one no model is offered a search."""

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """What the search engine finds, best first, at most `max_results`.

        Raises:
            ToolError: no engine is set up, or it refused, failed or could not be reached.
        """

    async def fetch(self, url: str) -> WebPage:
        """The page at an `http` or `https` address. Asked again, the same page comes from memory.

        Raises:
            ToolError: the address is refused, nothing readable is there, or the server failed.
        """
