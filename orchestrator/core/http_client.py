"""The one client for HTTP: whom it trusts, how long it waits, how much it reads, and what its failures are called.

No redirect is followed: what a request carries must not be sent elsewhere. A server on this machine needs no proxy.
A body is decompressed piece by piece up to a size. A failure is a value, not an error: raised from the library's
error it would have that as its context, which holds the request with its key.

Raises:
    ConfigurationError: the environment's proxy or certificate settings cannot be used.
"""

from __future__ import annotations

import asyncio
import math
import re
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.core import event_loop
from orchestrator.core.addresses import bracketed, certificates_for, is_loopback
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.version import __version__

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterable, Coroutine, Mapping

    import httpx2

USER_AGENT = f"pullwright/{__version__}"
UNCOMPRESSED = {"accept-encoding": "identity"}
"""Requests an uncompressed body. A compressed one is accepted nevertheless, within the size limits."""
CONNECT_SECONDS = 15.0
_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_KEPT_CONNECTIONS = 20
_MOST_DETAIL_CHARACTERS = 200


class FailureKind(StrEnum):
    """Why there is no whole answer."""

    ADDRESS = "address"
    """The address is not valid, so nothing was sent."""
    NOT_CONNECTED = "not connected"
    """There is no connection, so nothing was sent."""
    CONNECTING_TOO_LONG = "connecting too long"
    SILENT = "silent"
    """The server sent nothing for a time."""
    LATE = "late"
    """The whole answer took too long."""
    UNREADABLE = "unreadable"
    """The body cannot be decompressed."""
    TOO_LARGE = "too large"
    """One event is larger than is read."""
    BROKEN = "broken"
    """The connection broke, or the server does not speak HTTP."""


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """A request without a whole answer.

    Attributes:
        name: the class of the library's error, which is safe to show.
        detail: the library's words on one line. They may have a part of the request: remove its secrets.
    """

    kind: FailureKind
    name: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. Names of headers are lower case.

    Attributes:
        body: empty if it is larger than was asked for.
        is_whole: whether that is the whole body.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True


def http_errors() -> tuple[type[Exception], ...]:
    """Return the errors that `failure_of` knows. The library is loaded only where an error is looked at."""
    import httpx2

    return (
        httpx2.TransportError,
        httpx2.DecodingError,
        httpx2.InvalidURL,
        httpx2.SSEError,
        TimeoutError,
        UnicodeError,
    )


def failure_of(error: Exception) -> NoAnswer:
    """Return what one of `http_errors` means."""
    import httpx2

    match error:
        case TimeoutError():
            kind = FailureKind.LATE
        case httpx2.InvalidURL() | UnicodeError():
            kind = FailureKind.ADDRESS
        case httpx2.SSEError():
            kind = FailureKind.TOO_LARGE
        case httpx2.ConnectTimeout():
            kind = FailureKind.CONNECTING_TOO_LONG
        case httpx2.TimeoutException():
            kind = FailureKind.SILENT
        case httpx2.ConnectError():
            kind = FailureKind.NOT_CONNECTED
        case httpx2.DecodingError():
            kind = FailureKind.UNREADABLE
        case _:
            kind = FailureKind.BROKEN
    name = type(error).__name__
    return NoAnswer(kind, name, " ".join(str(error).split())[:_MOST_DETAIL_CHARACTERS] or name)


def open_client(
    url: str = "",
    *,
    silent_seconds: float,
    connect_seconds: float = CONNECT_SECONDS,
    uses_proxies: bool = True,
    certificates: ssl.SSLContext | bool | None = None,
    **more: Any,
) -> httpx2.AsyncClient:
    """Return a client that follows no redirect. The caller closes it.

    Args:
        url: the only server that it talks to; empty if there are several.
        silent_seconds: the longest time between two pieces of an answer.
        uses_proxies: whether the environment's proxies are used, for servers that are not on this machine.
        certificates: what decides on certificates; None is the usual ones.
        more: `headers`, `auth` and `event_hooks` of the library's client.
    """
    import httpx2

    try:
        return httpx2.AsyncClient(
            verify=certificates_for(url) if certificates is None else certificates,
            timeout=httpx2.Timeout(silent_seconds, connect=connect_seconds, pool=None),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS),
            follow_redirects=False,
            trust_env=uses_proxies,
            mounts=dict.fromkeys((*_LOOPBACK, *_own_loopback(url))),
            **more,
        )
    except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
        raise ConfigurationError(
            f"the environment's proxy or certificate settings cannot be used: {error}"
        ) from None


def _own_loopback(url: str) -> tuple[str, ...]:
    """Return what stands for the server of an address in the library, if that is this machine under another name."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        return ()
    return (f"all://{bracketed(host)}",) if is_loopback(host) else ()


async def read_body(response: httpx2.Response, most_bytes: int) -> bytes | None:
    """Return the whole body, decompressed piece by piece; None if it is larger. The rest is not read."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as pieces:
        async for piece in pieces:
            body += piece
            if len(body) > most_bytes:
                return None
    return bytes(body)


async def read_beginning(response: httpx2.Response, most_bytes: int) -> bytes:
    """Return the beginning of a body, as far as it can be read."""
    body = bytearray()
    try:
        async with aclosing(response.aiter_bytes()) as pieces:
            async for piece in pieces:
                body += piece
                if len(body) >= most_bytes:
                    break
    except http_errors():
        pass  # the beginning, or the status alone, says enough
    return bytes(body[:most_bytes])


async def ask_server(  # noqa: PLR0913  a request, and its limits by name
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: bytes | AsyncIterable[bytes] | None = None,
    *,
    most_bytes: int,
    silent_seconds: float,
    total_seconds: float | None = None,
    connect_seconds: float = CONNECT_SECONDS,
) -> Answer | NoAnswer:
    """Send one request over a connection of its own, and return the answer, whatever its status.

    Args:
        most_bytes: size limit of the answer's body; 0 does not read it.
        total_seconds: time limit of the whole; None is that of the caller.
    """
    try:
        async with (
            asyncio.timeout(total_seconds),
            open_client(url, silent_seconds=silent_seconds, connect_seconds=connect_seconds) as client,
            client.stream(
                method, url, headers={"user-agent": USER_AGENT, **headers}, content=content
            ) as response,
        ):
            body = await read_body(response, most_bytes) if most_bytes else None
            fields = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status_code, fields, body or b"", is_whole=body is not None)
    except http_errors() as error:
        return failure_of(error)


def ask_now(work: Coroutine[Any, Any, Answer | NoAnswer]) -> Answer | NoAnswer:
    """Run `ask_server` to its end for a caller that is no coroutine, in whatever thread that is."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as threads:  # a loop may be running in this one
        return threads.submit(event_loop.run, work).result()


LONGEST_SECONDS = 366 * 86_400.0
"""No wait that a server asks for is longer."""
_EPOCH_SECONDS = 1_000_000_000  # a reset at or above this is a time of day, not a duration
_EPOCH_MILLISECONDS = 1_000_000_000_000
_UNIT_SECONDS = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
ONE_DURATION = (
    r"\d+(?:\.\d+)? ?(?:milliseconds?|ms|sec(?:ond)?s?|s|min(?:ute)?s?|m|h(?:ou)?rs?|h|days?|d)(?![a-z])"
)
_PIECE = re.compile(r"(?<![\d.])(\d++(?:\.\d++)?) ?([a-z]++)", re.IGNORECASE)
DURATION = re.compile(rf"{ONE_DURATION}(?:(?:,? and |, | )?{ONE_DURATION})*", re.IGNORECASE)
_CLOCK = re.compile(r"\d{1,3}:\d\d:\d\d")
_ITEM = re.compile(r"[A-Za-z]{3,9}, [^,]+|[^,]+")
"""A value of a list in a header, and dates with their comma as one."""


def asked_seconds(headers: Mapping[str, str], now: datetime | None = None) -> float | None:
    """Return the seconds that a server asks to wait by `Retry-After`, at least 0; None if it asks for none.

    The header has seconds or an HTTP date (RFC 9110, 10.2.3). A server and a proxy may both have written one: the
    longer wait counts.

    Args:
        headers: with names in lower case.
        now: from when a date counts; None takes the server's own clock, which the header `Date` has.
    """
    text = headers.get("retry-after")
    since = now or _http_date(headers.get("date"))
    if since is None:
        seconds = plain_number(text)
    elif DURATION.fullmatch(text or ""):  # it may have a comma of its own
        seconds = seconds_until(text, since)
    else:
        waits = [seconds_until(item.strip(), since) for item in _ITEM.findall(text or "")]
        seconds = max((wait for wait in waits if wait is not None), default=None)
    return None if seconds is None else min(max(seconds, 0.0), LONGEST_SECONDS)


def _http_date(text: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(text or "")
    except (ValueError, OverflowError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def seconds_until(text: str | None, now: datetime) -> float | None:
    """Parse seconds, `6m0.5s`, `PT6M`, `00:06:00`, a time since 1970, an HTTP date or an ISO date as seconds from `now`."""
    number = plain_number(text)
    if number is not None:
        if number >= _EPOCH_MILLISECONDS:
            number /= 1_000
        return number - now.timestamp() if number >= _EPOCH_SECONDS else number
    text = (text or "").strip().removeprefix("PT")
    if _CLOCK.fullmatch(text):
        hours, minutes, seconds = map(int, text.split(":"))
        return hours * 3_600.0 + minutes * 60.0 + seconds
    if DURATION.fullmatch(text):
        return sum(float(amount) * _unit_seconds(unit.lower()) for amount, unit in _PIECE.findall(text))
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            moment = parse(text)
        except (ValueError, OverflowError):
            continue
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - now.timestamp()
    return None


def _unit_seconds(unit: str) -> float:
    return _UNIT_SECONDS["ms" if unit.startswith(("ms", "milli")) else unit[0]]


def plain_number(text: str | None) -> float | None:
    """Return a number that is finite and not negative; None for anything else."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
