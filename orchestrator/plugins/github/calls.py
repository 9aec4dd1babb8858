"""Calls to GitHub's interfaces: one at a time, with pacing, waits for limits, retries, ETags and pages."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from orchestrator.bot.forge.base import RequestQuota, Traffic
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeRejectedError,
    ForgeUnavailableError,
)
from orchestrator.core.http_client import asked_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.core.clock import Clock


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request to GitHub. `doing` describes it in messages, after "cannot".

    A GraphQL query is in `body`, has no path, and changes nothing although it is a POST.
    """

    method: str
    path: str
    doing: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_graphql: bool = False

    @property
    def writes(self) -> bool:
        """Whether the request may change something."""
        return self.method != "GET" and not self.is_graphql


class Transport(Protocol):
    """A connection to one server with one authentication."""

    @property
    def has_token(self) -> bool:
        """Whether requests are sent with a token."""

    @property
    def token_variable(self) -> str:
        """The environment variable for this server's token, for messages."""

    def send(self, request: ApiRequest) -> Reply:
        """Send one request, and return its reply, whatever its status.

        Raises:
            ForgeUnavailableError: there is no reply.
        """

    def close(self) -> None:
        """Close the connections."""


SECONDARY_LIMIT_SECONDS = 60.0
"""The wait if GitHub names none: docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"""

_LONGEST_QUOTE = 4000
_TROUBLE_WORDS = re.compile(r"something went wrong|timed? ?out|timeout", re.IGNORECASE)
# "Unable to create comment because issue is locked." says nothing about the token.
_LOCKED = re.compile(r"\b(?:issue|conversation|pull request) is locked\b", re.IGNORECASE)
_LIMIT_WORDS = re.compile(r"rate limit|abuse detection|wait a few minutes|retry your request", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of GitHub. Header names are lower case; `text` is the body."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """Return the body as JSON, or None if it is not JSON."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError):
            return None

    def messages(self) -> str:
        """Return GitHub's messages on one line, including the details of a failed validation."""
        return " ".join("; ".join(filter(None, self._said())).split())[:_LONGEST_QUOTE]

    def _said(self) -> Iterator[str]:
        body = self.json()
        if not isinstance(body, dict):
            return
        yield str(body.get("message", ""))
        errors = body.get("errors")
        for error in errors if isinstance(errors, list) else ():
            if isinstance(error, dict):
                yield str(error.get("message") or f"{error.get('field')}: {error.get('code')}")
            else:
                yield str(error)


def error_of_reply(reply: Reply, doing: str, now: datetime, *, has_token: bool, variable: str) -> ForgeError:
    """Return the error for a reply of status 300 or more.

    Args:
        reply: GitHub's reply.
        doing: what was tried, after "cannot": `open a pull request in owner/name`.
        now: the time, for limits that GitHub gives in seconds from now.
        has_token: whether a token was sent, which changes what a person can do about it.
        variable: the environment variable for this server's token.
    """
    status, said = reply.status, reply.messages()
    quoted = f"({status}: {said})" if said else f"({status})"
    forbidden = status in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
    error: ForgeError
    if forbidden and (limit := _limit(reply, now)):
        text = f"cannot {doing} before {limit:%Y-%m-%d %H:%M:%S} UTC: rate limit {quoted}"
        error = ForgeRateLimitError(text, resume_at=limit)
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR or (
        forbidden and not said and not _is_githubs_own(reply)
    ):
        where = "GitHub, or a proxy in front of it, has a problem"
        error = ForgeUnavailableError(f"cannot {doing}: {where} {quoted}: try again later")
    elif status == HTTPStatus.UNAUTHORIZED:
        why = "GitHub does not accept the token" if has_token else "it needs a token"
        what = f"set a valid one in {variable}" if has_token else f"set {variable}"
        error = ForgeAuthenticationError(f"cannot {doing}: {why} {quoted}: {what}")
    elif forbidden and _LOCKED.search(said):
        error = ForgeRejectedError(f"cannot {doing}: it is locked {quoted}")
    elif forbidden:
        error = ForgePermissionError(f"cannot {doing}: {_missing_permission(reply, quoted)}")
    elif status == HTTPStatus.NOT_FOUND:
        hidden = "or the token cannot see it" if has_token else f"or it is private: set {variable}"
        error = ForgeNotFoundError(f"cannot {doing}: not found, {hidden} (404)")
    elif status == HTTPStatus.GONE:
        error = ForgeNotFoundError(f"cannot {doing}: gone {quoted}")
    elif status < HTTPStatus.BAD_REQUEST:
        place = reply.headers.get("location", "another place")
        error = ForgeNotFoundError(f"cannot {doing}: it has moved to {place}: use its new name")
    else:
        error = ForgeRejectedError(f"cannot {doing}: GitHub rejected the request {quoted}")
    return error


def error_of_query(reply: Reply, doing: str, now: datetime) -> ForgeError | None:
    """Return the error in the answer to a GraphQL query, which has status 200; None if there is none.

    A partial answer with an error does not count as an answer. The types are documented at
    docs.github.com/graphql/overview/rate-limits-and-query-limits-for-the-graphql-api
    """
    body = reply.json()
    errors = body.get("errors") if isinstance(body, dict) else None
    if not errors:
        return None
    listed = errors if isinstance(errors, list) else []
    kinds = {str(error.get("type")) for error in listed if isinstance(error, dict)}
    said = reply.messages()
    if kinds & {"RATE_LIMITED", "RATE_LIMIT"} or "secondary rate limit" in said.lower():
        limit = _limit(reply, now) or now + timedelta(seconds=SECONDARY_LIMIT_SECONDS)
        text = f"cannot {doing} before {limit:%Y-%m-%d %H:%M:%S} UTC: rate limit ({said})"
        return ForgeRateLimitError(text, resume_at=limit)
    if kinds & {"FORBIDDEN", "INSUFFICIENT_SCOPES"}:
        return ForgePermissionError(f"cannot {doing}: the token may not do that ({said})")
    if "NOT_FOUND" in kinds:
        return ForgeNotFoundError(f"cannot {doing}: not found ({said})")
    if _TROUBLE_WORDS.search(said):
        return ForgeUnavailableError(f"cannot {doing}: GitHub has a problem ({said}): try again later")
    return ForgeError(f"cannot {doing}: GitHub rejected the query ({said})")


def _limit(reply: Reply, now: datetime) -> datetime | None:
    """Return when a rate limit ends, or None if the reply is about something else.

    The order is GitHub's: `Retry-After`, then a used-up quota with its reset, then a minute.
    """
    headers = reply.headers
    if (seconds := asked_seconds(headers, now)) is not None:
        return now + timedelta(seconds=seconds)
    reset = _number(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        # The reset is a whole second; within that second the quota may still be spent.
        return max(now, _our_time(reset, reply, now)) + timedelta(seconds=1)
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS or _LIMIT_WORDS.search(reply.messages()):
        return now + timedelta(seconds=SECONDARY_LIMIT_SECONDS)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,11}", text.strip()) else None


def _is_githubs_own(reply: Reply) -> bool:
    """Return whether a refusal without a message is GitHub's own: a proxy knows nothing of permissions."""
    return not reply.headers.keys().isdisjoint({"x-accepted-github-permissions", "x-github-sso"})


def _missing_permission(reply: Reply, quoted: str) -> str:
    headers = reply.headers
    if wanted := headers.get("x-accepted-github-permissions"):
        return f"the token lacks the permission {wanted} {quoted}: grant it to the token or the app"
    if sign_on := headers.get("x-github-sso"):
        return f"the organization wants the token authorized for single sign-on {quoted}: {sign_on}"
    held = headers.get("x-oauth-scopes")
    wanted = headers.get("x-accepted-oauth-scopes")
    if held is not None and wanted:
        return f"the token has the scopes [{held}], one of [{wanted}] is needed {quoted}"
    return f"the token may not do that {quoted}"


MOST_REPLIES = 500
MOST_CHARACTERS = 50_000_000
"""The most characters of all kept bodies together."""
Key: TypeAlias = tuple[str, ...]


class ReplyCache:
    """The replies that were used last.

    Args:
        most_replies: the most replies that are kept.
        most_characters: the most characters of their bodies together.
    """

    def __init__(self, most_replies: int = MOST_REPLIES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_replies, self._most_characters = most_replies, most_characters
        self._replies: OrderedDict[Key, Reply] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: Key) -> Reply | None:
        """Return the reply of this key, and mark it as used now."""
        found = self._replies.get(key)
        if found is not None:
            self._replies.move_to_end(key)
        return found

    def put(self, key: Key, reply: Reply) -> None:
        """Store a reply with an ETag in place of an older one. A reply without one only removes the older one."""
        older = self._replies.pop(key, None)
        self._characters -= len(older.text) if older else 0
        if not reply.headers.get("etag"):
            return
        self._replies[key] = reply
        self._characters += len(reply.text)
        while len(self._replies) > self._most_replies or self._characters > self._most_characters:
            _, forgotten = self._replies.popitem(last=False)
            self._characters -= len(forgotten.text)


T = TypeVar("T")
_WRONG_FORM = (KeyError, TypeError, ValueError, AttributeError)
BACKOFF_SECONDS = (1.0, 2.0, 4.0)
MOST_PAGES = 1000
LONGEST_LIMIT_SECONDS = 3600.0
"""The longest wait for a limit that one reply may cause, because a quota lasts an hour at most."""
_MOST_LIMITS_IN_A_CALL = 5
_QUOTA_HEADERS = ("limit", "remaining", "reset")
_RESOURCE = re.compile(r"[a-z_]{1,40}")
_NEXT_LINK = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="next"')
_LAST_LINK = re.compile(r'<([^<>]+)>\s*;[^,<]*\brel="last"')


@dataclass(frozen=True, slots=True)
class CallTiming:
    """Pacing, retries and waits of calls.

    Attributes:
        clock: for pacing and for limits.
        sleep: waits that many seconds; may raise to interrupt the wait.
        on_wait: called before each wait for a limit or an outage, with the seconds and the reason.
        on_unreadable: called once per list item that does not have GitHub's form and is left out.
        longest_wait_seconds: a call that would wait longer in total for a rate limit raises instead.
        pacing_seconds: the time between two writes, as GitHub asks:
            docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
    """

    clock: Clock
    sleep: Callable[[float], None]
    on_wait: Callable[[float, str], None] = lambda _seconds, _reason: None
    on_unreadable: Callable[[str], None] = lambda _text: None
    longest_wait_seconds: float = 120.0
    pacing_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class _Page(Generic[T]):
    items: tuple[T, ...]
    next: str | None
    last: int = 1
    """The number of the last page."""


class Calls:
    """Makes calls, and retries them until there is an answer or an error that helps a person.

    Threads may share it: requests are sent one at a time, and a limit that one thread meets stops all of
    them.
    """

    def __init__(self, transport: Transport, timing: CallTiming) -> None:
        self._transport = transport
        self._timing = timing
        self._last_write: float | None = None
        self._lock = threading.RLock()
        self._cache = ReplyCache()
        self._traffic = Traffic()
        self._ahead = timedelta(0)
        self._quotas: dict[str, RequestQuota] = {}
        self._told: set[str] = set()
        self._limited_until: dict[bool, float] = {}
        """For REST (False) and for GraphQL (True): the monotonic second at which a limit ends."""

    def traffic(self) -> Traffic:
        """Return the requests so far, including those without a reply."""
        with self._lock:
            return self._traffic

    def ahead(self) -> timedelta:
        """Return how far the server's clock is ahead of ours, as its last reply says; zero if it does not say."""
        return self._ahead

    def quotas(self) -> list[RequestQuota]:
        """Return what headers said last of each quota, without a name."""
        with self._lock:
            return list(self._quotas.values())

    def call(
        self, request: ApiRequest, *, accept: tuple[int, ...] = (), repeatable: bool | None = None
    ) -> Reply:
        """Make a call.

        Args:
            request: what to send.
            accept: statuses of 300 and more that count as an answer.
            repeatable: whether the call may be done twice without harm. If so, it is sent again after an
                outage or a lost reply. Every call is sent again after a rate limit, because a refused call
                did nothing. None stands for True except for a POST that writes.
        """
        if repeatable is None:
            repeatable = request.method != "POST" or not request.writes
        delays, waited, limits = iter(BACKOFF_SECONDS if repeatable else ()), 0.0, 0
        while True:
            try:
                return self._once(request, accept)
            except ForgeRateLimitError as error:
                limits += 1
                seconds = self._until(error)
                waited += seconds
                if waited > self._timing.longest_wait_seconds or limits > _MOST_LIMITS_IN_A_CALL:
                    raise
                self.wait(seconds, str(error))
            except ForgeUnavailableError as error:
                delay = next(delays, None)
                if delay is None:
                    raise
                self.wait(delay, str(error))

    def get(self, request: ApiRequest, *, accept: tuple[int, ...] = ()) -> Reply:
        """Return the reply to a GET. A cached and unchanged reply does not count against the rate limit.

        docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
        """
        key = (request.path, *(f"{name}={value}" for name, value in sorted(request.query.items())))
        with self._lock:
            known = self._cache.get(key)
        if known is None or not (known.status < HTTPStatus.MULTIPLE_CHOICES or known.status in accept):
            headers, also = request.headers, accept
        else:
            headers = {**request.headers, "If-None-Match": known.headers["etag"]}
            also = (HTTPStatus.NOT_MODIFIED, *accept)
        reply = self.call(replace(request, headers=headers), accept=also)
        if reply.status == HTTPStatus.NOT_MODIFIED and known is not None:
            return known
        with self._lock:
            self._cache.put(key, reply)
        return reply

    def read_cached(self, request: ApiRequest, reader: Callable[[Any], T]) -> T:
        """Make a GET as `get` does, and convert its JSON into a value as `read` does."""
        return self.parsed(self.get(request), request.doing, reader)

    def read(self, request: ApiRequest, reader: Callable[[Any], T], *, repeatable: bool | None = None) -> T:
        """Make a call and convert its JSON into a value. `repeatable` as in `call`."""
        return self.parsed(self.call(request, repeatable=repeatable), request.doing, reader)

    def parsed(self, reply: Reply, doing: str, reader: Callable[[Any], T]) -> T:
        """Return a reply's JSON as a value; `reader` may raise the errors that a wrong form causes."""
        try:
            return reader(reply.json())
        except _WRONG_FORM as error:
            raise ForgeError(
                f"cannot {doing}: the server's answer does not have GitHub's form: check --github-url"
            ) from error

    def pages(
        self,
        request: ApiRequest,
        reader: Callable[[Any], T],
        *,
        most: int = MOST_PAGES,
        empty: tuple[int, ...] = (),
        skips: bool = False,
    ) -> list[T]:
        """Return the items of a list from its pages of a hundred items each, at most `most` pages.

        A cached and unchanged page does not count against the rate limit. A status in `empty` stands for an
        empty page. With `skips`, items that do not have GitHub's form are left out if others have it.
        """
        return self.first_pages(request, reader, most=most, empty=empty, skips=skips)[0]

    def first_pages(
        self,
        request: ApiRequest,
        reader: Callable[[Any], T],
        *,
        most: int,
        empty: tuple[int, ...] = (),
        skips: bool = False,
    ) -> tuple[list[T], bool]:
        """Return the same as `pages`, and whether that was the whole list."""
        found: list[T] = []
        step = ApiRequest("GET", request.path, request.doing, {**request.query, "per_page": "100"})
        for _ in range(most):
            page = self._page(step, reader, empty, skips=skips)
            found += page.items
            if page.next is None:
                return found, True
            step = ApiRequest("GET", page.next, request.doing)
        return found, False

    def last_pages(self, request: ApiRequest, reader: Callable[[Any], T], *, most: int) -> list[T]:
        """Return the last pages of a list, at most `most` pages of a hundred items each, in the list's order."""

        def page(number: int) -> _Page[T]:
            query = {**request.query, "per_page": "100", "page": str(number)}
            return self._page(ApiRequest("GET", request.path, request.doing, query), reader, ())

        first = page(1)
        numbers = range(max(2, first.last - most + 1), first.last + 1)
        rest = [item for number in numbers for item in page(number).items]
        return [*first.items, *rest] if first.last <= most else rest

    def wait(self, seconds: float, reason: str) -> None:
        """Report the reason, and wait."""
        self._timing.on_wait(seconds, reason)
        self._timing.sleep(seconds)

    def _page(
        self, request: ApiRequest, reader: Callable[[Any], T], empty: tuple[int, ...], *, skips: bool = False
    ) -> _Page[T]:
        reply = self.get(request, accept=empty)
        if reply.status in empty:
            return _Page((), None)
        items = self.parsed(reply, request.doing, partial(self._items, request.doing, reader, skips=skips))
        link = _NEXT_LINK.search(reply.headers.get("link", ""))
        return _Page(items, link[1] if link else None, _last_page(reply))

    def _items(self, doing: str, reader: Callable[[Any], T], data: Any, *, skips: bool) -> tuple[T, ...]:
        if not isinstance(data, list):
            raise TypeError("no list")
        return self._readable(doing, reader, data) if skips else tuple(map(reader, data))

    def _readable(self, doing: str, reader: Callable[[Any], T], data: list[Any]) -> tuple[T, ...]:
        """Return the readable items. If none is readable, raise: it is no list of GitHub's."""
        found: list[T] = []
        wrong: Exception | None = None
        for item in data:
            try:
                found.append(reader(item))
            except _WRONG_FORM as error:
                wrong = error
                self._tell_unreadable(doing, item)
        if wrong is not None and not found:
            raise wrong
        return tuple(found)

    def _tell_unreadable(self, doing: str, item: Any) -> None:
        number = item.get("number") if isinstance(item, dict) else None
        named = f"#{number}" if isinstance(number, int) else "an item"
        text = f"{named} is left out, because the server's answer does not have GitHub's form: {doing}"
        with self._lock:
            is_new = text not in self._told
            self._told.add(text)
        if is_new:
            self._timing.on_unreadable(text)

    def _once(self, request: ApiRequest, accept: tuple[int, ...]) -> Reply:
        with self._lock:
            self._refuse_during_limit(request)
            reply = self._sent(request)
            now = self._timing.clock.now()
            error: ForgeError | None = None
            if reply.status >= HTTPStatus.MULTIPLE_CHOICES and reply.status not in accept:
                error = error_of_reply(
                    reply,
                    request.doing,
                    now,
                    has_token=self._transport.has_token,
                    variable=self._transport.token_variable,
                )
            elif request.is_graphql:
                error = error_of_query(reply, request.doing, now)
            if isinstance(error, ForgeRateLimitError):
                self._note_limit(request, reply, error)
        if error is not None:
            raise error
        return reply

    def _sent(self, request: ApiRequest) -> Reply:
        if request.writes:
            self._pace()
        spent = self._traffic
        self._traffic = replace(spent, requests=spent.requests + 1, writes=spent.writes + int(request.writes))
        try:
            reply = self._transport.send(request)
        finally:
            if request.writes:
                self._last_write = self._timing.clock.monotonic()
        now = self._timing.clock.now()
        self._ahead = clock_ahead(reply, now)
        if (quota := _quota(reply, now)) is not None:
            self._quotas[quota.resource] = quota
        if reply.status == HTTPStatus.NOT_MODIFIED:
            self._traffic = replace(self._traffic, unchanged=self._traffic.unchanged + 1)
        return reply

    def _refuse_during_limit(self, request: ApiRequest) -> None:
        """Raise if a limit has not ended yet: requests during a limit make it longer."""
        rest = self._limited_until.get(request.is_graphql, 0.0) - self._timing.clock.monotonic()
        if rest > 0:
            ends = self._timing.clock.now() + timedelta(seconds=rest)
            text = f"cannot {request.doing} before {ends:%Y-%m-%d %H:%M:%S} UTC: rate limit (said before)"
            raise ForgeRateLimitError(text, resume_at=ends)

    def _note_limit(self, request: ApiRequest, reply: Reply, error: ForgeRateLimitError) -> None:
        """Note when a limit ends. A used-up quota concerns one interface, a secondary limit both."""
        seconds = min(self._until(error), LONGEST_LIMIT_SECONDS)
        is_quota = reply.headers.get("x-ratelimit-remaining") == "0"
        for interface in (request.is_graphql,) if is_quota else (False, True):
            self._limited_until[interface] = self._timing.clock.monotonic() + seconds

    def _pace(self) -> None:
        if self._last_write is not None:
            ready = self._last_write + self._timing.pacing_seconds
            rest = ready - self._timing.clock.monotonic()
            if rest > 0:
                self._timing.sleep(rest)

    def _until(self, error: ForgeRateLimitError) -> float:
        if error.resume_at is None:
            return 0.0
        return max(1.0, (error.resume_at - self._timing.clock.now()).total_seconds())


_LEAST_AHEAD = timedelta(seconds=5)
"""A smaller difference of the clocks is that of a whole second and of the way of a reply."""


def clock_ahead(reply: Reply, now: datetime) -> timedelta:
    """Return how far the clock of a reply's server is ahead of ours. Format of `Date`: RFC 9110, 5.6.7."""
    try:
        date = parsedate_to_datetime(reply.headers.get("date", ""))
    except ValueError:
        return timedelta(0)
    ahead = (date if date.tzinfo else date.replace(tzinfo=UTC)) - now
    return ahead if abs(ahead) >= _LEAST_AHEAD else timedelta(0)


def _our_time(seconds: int, reply: Reply, now: datetime) -> datetime:
    """Return a moment that a server names, in seconds since 1970, by our clock."""
    return datetime.fromtimestamp(seconds, UTC) - clock_ahead(reply, now)


def _quota(reply: Reply, now: datetime) -> RequestQuota | None:
    """Read a quota from the headers of a reply, its end by our clock; None where it names none.

    docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
    """
    headers = reply.headers
    limit, remaining, reset = (_number(headers.get(f"x-ratelimit-{name}")) for name in _QUOTA_HEADERS)
    resource = headers.get("x-ratelimit-resource", "core")
    if limit is None or remaining is None or reset is None or not _RESOURCE.fullmatch(resource):
        return None
    return RequestQuota("", resource, limit, remaining, _our_time(reset, reply, now))


def _last_page(reply: Reply) -> int:
    """Return the number of a list's last page, which GitHub names on every other page."""
    link = _LAST_LINK.search(reply.headers.get("link", ""))
    number = parse_qs(urlsplit(link[1]).query).get("page", [""])[0] if link else ""
    return int(number) if re.fullmatch(r"[1-9][0-9]{0,8}", number) else 1
