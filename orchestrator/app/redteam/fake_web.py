"""A web of a few pages: addresses are checked as on the real one, and nothing is connected to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.engine.web.base import PageKind, SearchHit, WebPage, parse_address, public_ips

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.engine.web.base import WebAccess

_A_PUBLIC_IP = "93.184.215.14"


@dataclass(slots=True)
class FakeWeb:
    """Pages by address.

    Attributes:
        pages: text by address.
        hosts: IP address by name; every other name has a public one.
        checked: whether addresses are checked, as the product does.
        fetched: what was fetched, in order.
        sent: every address and query that left.
    """

    pages: Mapping[str, str]
    hosts: Mapping[str, str] = field(default_factory=dict)
    checked: bool = True
    fetched: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    @property
    def can_search(self) -> bool:
        """Yes."""
        return True

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Every page, whatever was asked for."""
        self.sent.append(query)
        hits = [SearchHit(text.split("\n", 1)[0], url, text) for url, text in self.pages.items()]
        return hits[:max_results]

    async def fetch(self, url: str) -> WebPage:
        """A page.

        Raises:
            ToolError: the address is refused, or there is no page.
        """
        if self.checked:
            await public_ips(parse_address(url), self._resolve)
        self.sent.append(url)
        self.fetched.append(url)
        if url not in self.pages:
            raise ToolError(f"{url}: not found (404)")
        text = self.pages[url]
        kind = PageKind.HTML if text.lstrip().startswith("<") else PageKind.TEXT
        return WebPage(url, kind, text)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        del port
        return [self.hosts.get(host, _A_PUBLIC_IP)]


if TYPE_CHECKING:

    def _conforms(web: FakeWeb) -> WebAccess:
        return web
