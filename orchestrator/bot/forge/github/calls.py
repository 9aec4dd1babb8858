"""Calls to GitHub's interfaces: one at a time, with pacing, waits for limits, retries, ETags and pages."""

from __future__ import annotations

import json
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar
from urllib.parse import parse_qs, urlsplit

from orchestrator.bot.forge.base import RequestQuota, Traffic
from orchestrator.bot.forge.github.address import TOKEN_VARIABLE
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.core.clock import Clock


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """What goes to GitHub. `doing` is for messages, after "cannot".

    A GraphQL query has its words in `body`, no path, and changes nothing although it is a POST.
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
        """Whether it may change something."""
        return self.method != "GET" and not self.is_graphql


class Transport(Protocol):
    """A connection to one server under one name."""

    @property
    def has_token(self) -> bool:
        """Whether it shows a token."""

    @property
    def token_variable(self) -> str:
        """The environment variable that a token for this server is set in, for messages."""

    def send(self, request: ApiRequest) -> Reply:
        """Send one request, and return its reply, whatever its status.

        Raises:
            ForgeUnavailableError: there is no reply.
        """

    def close(self) -> None:
        """Close the connections."""


SECONDARY_LIMIT_SECONDS = 60.0
"""The wait where GitHub names none: docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api"""

_LONGEST_QUOTE = 4000
_TROUBLE_WORDS = re.compile(r"something went wrong|timed? ?out|timeout", re.IGNORECASE)
_LIMIT_WORDS = re.compile(r"rate limit|abuse detection|wait a few minutes|retry your request", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply of GitHub. Header names are lower case; `text` is the body."""

    status: int
    headers: Mapping[str, str]
    text: str

    def json(self) -> Any:
        """Return the body as JSON, or None where it is none."""
        try:
            return json.loads(self.text)
        except ValueError:
            return None

    def messages(self) -> str:
        """Tell what GitHub says in words, on one line, the details of a failed validation included."""
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


def error_of_reply(
    reply: Reply, doing: str, now: datetime, *, has_token: bool, variable: str = TOKEN_VARIABLE
) -> ForgeError:
    """Return the error that a reply of status 300 or more stands for.

    Args:
        reply: what GitHub answered.
        doing: what was tried, after "cannot": `open a pull request in owner/name`.
        now: the time, for limits that GitHub gives in seconds from now.
        has_token: whether a token was shown, which changes what a person can do about it.
        variable: where a token for this server is set.
    """
    status, said = reply.status, reply.messages()
    quoted = f"({status}: {said})" if said else f"({status})"
    forbidden = status in {HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS}
    error: ForgeError
    if forbidden and (limit := _limit(reply, now)):
        text = f"cannot {doing} before {limit:%Y-%m-%d %H:%M:%S} UTC: rate limit {quoted}"
        error = ForgeRateLimitError(text, resume_at=limit)
    elif status >= HTTPStatus.INTERNAL_SERVER_ERROR or (forbidden and not said and not _is_githubs(reply)):
        where = "GitHub, or a proxy before it, is in trouble"
        error = ForgeUnavailableError(f"cannot {doing}: {where} {quoted}: try again later")
    elif status == HTTPStatus.UNAUTHORIZED:
        why = "GitHub does not accept the token" if has_token else "it needs a token"
        what = f"set a valid one in {variable}" if has_token else f"set {variable}"
        error = ForgeAuthenticationError(f"cannot {doing}: {why} {quoted}: {what}")
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
        error = ForgeError(f"cannot {doing}: GitHub rejected the request {quoted}")
    return error


def error_of_query(reply: Reply, doing: str, now: datetime) -> ForgeError | None:
    """Return the error in the answer to a GraphQL query, which comes with status 200; None if there is none.

    A part of an answer beside an error is no answer. The types are named at
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
        return ForgeUnavailableError(f"cannot {doing}: GitHub is in trouble ({said}): try again later")
    return ForgeError(f"cannot {doing}: GitHub rejected the query ({said})")


def _limit(reply: Reply, now: datetime) -> datetime | None:
    """Tell when a rate limit ends, or None if the reply is about something else.

    The order is GitHub's: `Retry-After`, then a spent quota with its reset, then a minute.
    """
    headers = reply.headers
    if (seconds := _number(headers.get("retry-after"))) is not None:
        return now + timedelta(seconds=seconds)
    reset = _number(headers.get("x-ratelimit-reset"))
    if headers.get("x-ratelimit-remaining") == "0" and reset is not None:
        # The reset is a whole second; within that second the quota may still be spent.
        return max(now, datetime.fromtimestamp(reset, UTC)) + timedelta(seconds=1)
    if reply.status == HTTPStatus.TOO_MANY_REQUESTS or _LIMIT_WORDS.search(reply.messages()):
        return now + timedelta(seconds=SECONDARY_LIMIT_SECONDS)
    return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"\d{1,11}", text.strip()) else None


def _is_githubs(reply: Reply) -> bool:
    """Tell whether a refusal without words is GitHub's own: a proxy knows nothing of permissions."""
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
"""Of all kept bodies together."""
Key: TypeAlias = tuple[str, ...]


class ReplyCache:
    """The replies that were used last; the others are forgotten.

    Args:
        most_replies: how many are kept.
        most_characters: of their bodies together.
    """

    def __init__(self, most_replies: int = MOST_REPLIES, most_characters: int = MOST_CHARACTERS) -> None:
        self._most_replies, self._most_characters = most_replies, most_characters
        self._replies: OrderedDict[Key, Reply] = OrderedDict()
        self._characters = 0

    def __len__(self) -> int:
        return len(self._replies)

    def get(self, key: Key) -> Reply | None:
        """Return the reply of this key, which counts as used now."""
        found = self._replies.get(key)
        if found is not None:
            self._replies.move_to_end(key)
        return found

    def put(self, key: Key, reply: Reply) -> None:
        """Keep a reply that has an ETag in place of an older one. One that has none only removes the older."""
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
"""Nothing is sent before a limit ends; but a quota lasts an hour, so no reply stops us for longer."""
_MOST_LIMITS_IN_A_CALL = 5
_QUOTA_HEADERS = ("limit", "remaining", "reset")
_RESOURCE = re.compile(r"[a-z_]{1,40}")
_NEXT_LINK = re.compile(r'<([^>]+)>\s*;[^,]*\brel="next"')
_LAST_LINK = re.compile(r'<([^>]+)>\s*;[^,]*\brel="last"')


@dataclass(frozen=True, slots=True)
class CallTiming:
    """How calls behave in time.

    Attributes:
        clock: for pacing and for limits.
        sleep: waits that many seconds; may be interrupted by raising.
        on_wait: told before each wait for a limit or an outage: seconds, and why.
        on_unreadable: told of an item of a list that has not GitHub's form and is left out, once.
        longest_wait_seconds: a call that would wait longer in all for a rate limit raises instead.
        pacing_seconds: between two writes, as GitHub asks:
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
    """Makes calls until there is an answer or an error that a person can use.

    Threads may share it: requests go out one at a time, and a limit that one of them meets
    stops all of them.
    """

    def __init__(self, transport: Transport, timing: CallTiming) -> None:
        self._transport = transport
        self._timing = timing
        self._last_write: float | None = None
        self._lock = threading.RLock()
        self._cache = ReplyCache()
        self._traffic = Traffic()
        self._quotas: dict[str, RequestQuota] = {}
        self._told: set[str] = set()
        self._limited_until: dict[bool, float] = {}
        """For REST (False) and for GraphQL (True): the monotonic second at which a limit ends."""

    def traffic(self) -> Traffic:
        """Return the requests so far, those without a reply among them."""
        with self._lock:
            return self._traffic

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
            accept: statuses of 300 and more that are an answer here.
            repeatable: whether it does no harm when it is done twice, so that it is sent again
                after an outage or a lost reply. A refusal for a rate limit did nothing, so
                every call is sent again after one. If None: everything but a POST that writes.
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
        """Return the reply to a GET. One that is known and has not changed costs nothing of GitHub's quota.

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
        """Do as `read`, for a GET whose reply is kept, as by `get`."""
        return self.parsed(self.get(request), request.doing, reader)

    def read(self, request: ApiRequest, reader: Callable[[Any], T], *, repeatable: bool | None = None) -> T:
        """Make a call and turn its JSON into a value. `repeatable` as in `call`.

        Raises:
            ForgeError: the JSON has not the form that GitHub's has.
        """
        return self.parsed(self.call(request, repeatable=repeatable), request.doing, reader)

    def parsed(self, reply: Reply, doing: str, reader: Callable[[Any], T]) -> T:
        """Return a reply's JSON as a value; `reader` may raise what a wrong form makes it raise."""
        try:
            return reader(reply.json())
        except _WRONG_FORM as error:
            raise ForgeError(
                f"cannot {doing}: the server's answer has not GitHub's form: is --github-url right?"
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
        """Follow a list through its pages, a hundred items each, at most `most` of them.

        A page that was seen before and has not changed costs nothing of GitHub's quota. A
        status in `empty` stands for an empty page. With `skips` an item that has not GitHub's
        form is left out where others have it.
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
        """Do as `pages`, and tell whether that was the whole list."""
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
        """Return the last pages of a list, in its order, a hundred items each, at most `most` of them."""

        def page(number: int) -> _Page[T]:
            query = {**request.query, "per_page": "100", "page": str(number)}
            return self._page(ApiRequest("GET", request.path, request.doing, query), reader, ())

        first = page(1)
        numbers = range(max(2, first.last - most + 1), first.last + 1)
        rest = [item for number in numbers for item in page(number).items]
        return [*first.items, *rest] if first.last <= most else rest

    def wait(self, seconds: float, reason: str) -> None:
        """Say why, and wait."""
        self._timing.on_wait(seconds, reason)
        self._timing.sleep(seconds)

    def _page(
        self, request: ApiRequest, reader: Callable[[Any], T], empty: tuple[int, ...], *, skips: bool = False
    ) -> _Page[T]:
        reply = self.get(request, accept=empty)
        if reply.status in empty:
            return _Page((), None)
        read_all = (
            partial(self._readable, request.doing, reader) if skips else lambda data: tuple(map(reader, data))
        )
        items = self.parsed(reply, request.doing, read_all)
        link = _NEXT_LINK.search(reply.headers.get("link", ""))
        return _Page(items, link[1] if link else None, _last_page(reply))

    def _readable(self, doing: str, reader: Callable[[Any], T], data: list[Any]) -> tuple[T, ...]:
        """Return the items that can be read. Where none can, it is no list of GitHub's."""
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
        text = f"{named} is left out, because the server's answer about it has not GitHub's form: {doing}"
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
        if (quota := _quota(reply)) is not None:
            self._quotas[quota.resource] = quota
        if reply.status == HTTPStatus.NOT_MODIFIED:
            self._traffic = replace(self._traffic, unchanged=self._traffic.unchanged + 1)
        return reply

    def _refuse_during_limit(self, request: ApiRequest) -> None:
        """Raise for a limit that has not ended yet: requests during a limit make it longer."""
        rest = self._limited_until.get(request.is_graphql, 0.0) - self._timing.clock.monotonic()
        if rest > 0:
            ends = self._timing.clock.now() + timedelta(seconds=rest)
            text = f"cannot {request.doing} before {ends:%Y-%m-%d %H:%M:%S} UTC: rate limit (said before)"
            raise ForgeRateLimitError(text, resume_at=ends)

    def _note_limit(self, request: ApiRequest, reply: Reply, error: ForgeRateLimitError) -> None:
        """Note when a limit ends. A spent quota is that of one interface; a secondary limit is about both."""
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


def _quota(reply: Reply) -> RequestQuota | None:
    """Read a quota from the headers of a reply; None where it names none.

    docs.github.com/rest/using-the-rest-api/rate-limits-for-the-rest-api
    """
    headers = reply.headers
    limit, remaining, reset = (_number(headers.get(f"x-ratelimit-{name}")) for name in _QUOTA_HEADERS)
    resource = headers.get("x-ratelimit-resource", "core")
    if limit is None or remaining is None or reset is None or not _RESOURCE.fullmatch(resource):
        return None
    return RequestQuota("", resource, limit, remaining, datetime.fromtimestamp(reset, UTC))


def _last_page(reply: Reply) -> int:
    """Return the number of a list's last page, which GitHub names on every other one."""
    link = _LAST_LINK.search(reply.headers.get("link", ""))
    number = parse_qs(urlsplit(link[1]).query).get("page", [""])[0] if link else ""
    return int(number) if re.fullmatch(r"[1-9][0-9]{0,8}", number) else 1
