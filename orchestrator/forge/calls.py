"""Calls to GitHub's REST interface: pacing, waiting for limits, retries, pages."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

from orchestrator.core.errors import ForgeError, ForgeRateLimitError, ForgeUnavailableError
from orchestrator.forge.refusals import Reply, refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.clock import Clock

T = TypeVar("T")
BACKOFF_SECONDS = (1.0, 2.0, 4.0)
MOST_PAGES = 1000
_MOST_LIMITS_IN_A_CALL = 5
_NEXT_LINK = re.compile(r'<([^>]+)>\s*;[^,]*\brel="next"')


@dataclass(frozen=True, slots=True)
class Patience:
    """How calls behave in time.

    Attributes:
        clock: for pacing and for limits.
        sleep: waits that many seconds; may be interrupted by raising.
        on_wait: told before each wait for a limit or an outage: seconds, and why.
        longest_wait_seconds: a call that would wait longer in all for a rate limit raises instead.
        pacing_seconds: between two writes, as GitHub asks:
            docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
    """

    clock: Clock
    sleep: Callable[[float], None]
    on_wait: Callable[[float, str], None] = lambda _seconds, _reason: None
    longest_wait_seconds: float = 120.0
    pacing_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """What goes to GitHub. `doing` is for messages, after "cannot"."""

    method: str
    path: str
    doing: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Line(Protocol):
    """A connection to one server under one name."""

    @property
    def has_token(self) -> bool:
        """Whether it shows a token."""

    def send(self, request: Request) -> Reply:
        """One request, one reply, whatever its status.

        Raises:
            ForgeUnavailableError: there is no reply.
        """

    def close(self) -> None:
        """Let go of connections."""


@dataclass(frozen=True, slots=True)
class _Page(Generic[T]):
    etag: str | None
    items: tuple[T, ...]
    next: str | None


class Calls:
    """Makes calls on a line until there is an answer or an error that a person can use."""

    def __init__(self, line: Line, patience: Patience) -> None:
        self._line = line
        self._patience = patience
        self._last_write: float | None = None
        self._pages: dict[tuple[str, ...], _Page[Any]] = {}

    def call(
        self, request: Request, *, accept: tuple[int, ...] = (), repeatable: bool | None = None
    ) -> Reply:
        """Make a call.

        Args:
            request: what to send.
            accept: statuses of 300 and more that are an answer here.
            repeatable: whether it does no harm when it is done twice, so that it is sent again
                after an outage or a lost reply. A refusal for a rate limit did nothing, so
                every call is sent again after one. If None: everything but POST.
        """
        if repeatable is None:
            repeatable = request.method != "POST"
        delays, waited, limits = iter(BACKOFF_SECONDS if repeatable else ()), 0.0, 0
        while True:
            try:
                return self._once(request, accept)
            except ForgeRateLimitError as error:
                limits += 1
                seconds = self._until(error)
                waited += seconds
                if waited > self._patience.longest_wait_seconds or limits > _MOST_LIMITS_IN_A_CALL:
                    raise
                self.wait(seconds, str(error))
            except ForgeUnavailableError as error:
                delay = next(delays, None)
                if delay is None:
                    raise
                self.wait(delay, str(error))

    def read(self, request: Request, reader: Callable[[Any], T], *, repeatable: bool | None = None) -> T:
        """Make a call and turn its JSON into a value. `repeatable` as in `call`.

        Raises:
            ForgeError: the JSON has not the form that GitHub's has.
        """
        return self.understood(self.call(request, repeatable=repeatable), request.doing, reader)

    def understood(self, reply: Reply, doing: str, reader: Callable[[Any], T]) -> T:
        """A reply's JSON as a value; `reader` may raise what a wrong form makes it raise."""
        try:
            return reader(reply.json())
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ForgeError(
                f"cannot {doing}: the server's answer has not GitHub's form: is --github-url right?"
            ) from error

    def pages(
        self,
        request: Request,
        reader: Callable[[Any], T],
        *,
        most: int = MOST_PAGES,
        empty: tuple[int, ...] = (),
    ) -> list[T]:
        """Follow a list through its pages, a hundred items each, at most `most` of them.

        A page that was seen before and has not changed costs nothing of GitHub's quota. A
        status in `empty` stands for an empty page.
        """
        found: list[T] = []
        step = Request("GET", request.path, request.doing, {**request.query, "per_page": "100"})
        for _ in range(most):
            page = self._page(step, reader, empty)
            found += page.items
            if page.next is None:
                break
            step = Request("GET", page.next, request.doing)
        return found

    def wait(self, seconds: float, reason: str) -> None:
        """Say why, and wait."""
        self._patience.on_wait(seconds, reason)
        self._patience.sleep(seconds)

    def _page(self, request: Request, reader: Callable[[Any], T], empty: tuple[int, ...]) -> _Page[T]:
        key = (request.path, *(f"{name}={value}" for name, value in sorted(request.query.items())))
        known = cast("_Page[T] | None", self._pages.get(key))
        headers = {"If-None-Match": known.etag} if known and known.etag else {}
        asked = Request("GET", request.path, request.doing, request.query, headers=headers)
        reply = self.call(asked, accept=(HTTPStatus.NOT_MODIFIED, *empty))
        if reply.status in empty:
            return _Page(None, (), None)
        if reply.status == HTTPStatus.NOT_MODIFIED and known:
            return known
        items = self.understood(reply, request.doing, lambda data: tuple(reader(item) for item in data))
        link = _NEXT_LINK.search(reply.headers.get("link", ""))
        page = _Page(reply.headers.get("etag"), items, link[1] if link else None)
        self._pages[key] = page
        return page

    def _once(self, request: Request, accept: tuple[int, ...]) -> Reply:
        writes = request.method != "GET"
        if writes:
            self._pace()
        try:
            reply = self._line.send(request)
        finally:
            if writes:
                self._last_write = self._patience.clock.monotonic()
        if reply.status < HTTPStatus.MULTIPLE_CHOICES or reply.status in accept:
            return reply
        now = self._patience.clock.now()
        raise refusal(reply, request.doing, now, has_token=self._line.has_token)

    def _pace(self) -> None:
        if self._last_write is not None:
            ready = self._last_write + self._patience.pacing_seconds
            rest = ready - self._patience.clock.monotonic()
            if rest > 0:
                self._patience.sleep(rest)

    def _until(self, error: ForgeRateLimitError) -> float:
        if error.resume_at is None:
            return 0.0
        return max(1.0, (error.resume_at - self._patience.clock.now()).total_seconds())
