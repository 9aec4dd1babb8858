"""The only module that talks to model servers: HTTP client, streams, retries, waits and time-outs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from orchestrator import __version__
from orchestrator.core.errors import (
    ConfigurationError,
    ConnectionFailedError,
    ModelError,
    NotConnectedError,
    ProviderError,
    ResumableError,
)
from orchestrator.core.redaction import without_bytes, without_secrets
from orchestrator.engine.models.base import Completed, Relaxed, Response, Restarted, Waiting
from orchestrator.engine.models.failures import count_waits, error_from_body, is_transient
from orchestrator.engine.models.refusals import changed_fields
from orchestrator.engine.models.wire import host_of, json_bytes, read_json

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
    from datetime import datetime

    import httpx2

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import JsonObject
    from orchestrator.engine.models.base import OnWait, Piece, Request, StreamEvent
    from orchestrator.engine.models.wire import Wire

T = TypeVar("T")

MAX_ERROR_BYTES = 64 * 1024
MAX_EVENT_BYTES = 8 * 1024 * 1024
"""Size of one event. A server may send a whole file as one event (a tool call that is not split)."""

MAX_DOCUMENT_BYTES = MAX_EVENT_BYTES
"""Size of a reply or list that is one document. Parsed, it takes many times as much memory."""

MAX_STREAM_BYTES = 128 * 1024 * 1024
"""Size of a streamed reply. 128,000 tokens, each in a separate event of 600 bytes, are 77 million bytes."""

MAX_SAID_CHARACTERS = 16 * 1024 * 1024
"""Length of the content of a streamed reply: many times what any model can write in one."""

LEAST_PIECE_CHARACTERS = 32
"""Minimum length that a piece counts as, because every piece costs memory and time besides its text."""

DRAIN_SECONDS = 0.25
MAX_RELAXATIONS = 5

_UNCOMPRESSED = {"accept-encoding": "identity"}
"""Requests an uncompressed body. A compressed one is accepted nevertheless, within the size limits."""


def _oversized(host: str, what: str, most: int) -> ProviderError:
    """Return the error for an oversized reply. The request is not sent again."""
    return ProviderError(f"{host} sent {what} of more than {most:,} bytes; the rest was not read")


def _connection_failure(host: str, error: Exception, options: HttpOptions) -> ModelError:
    """Return the error for a broken or silent connection."""
    import httpx2

    said = " ".join(str(error).split()) or type(error).__name__
    match error:
        case TimeoutError():
            said = f"no whole reply from {host} within {options.total_seconds:g} s"
        case httpx2.SSEError():
            return _oversized(host, "an event", MAX_EVENT_BYTES)
        case httpx2.ConnectTimeout():
            return NotConnectedError(f"cannot connect to {host} within {options.connect_seconds:g} s")
        case httpx2.ConnectError():
            words = f"cannot connect to {host}: {said}; is the address right, and the server running?"
            return NotConnectedError(words)
        case httpx2.TimeoutException():
            said = f"{host} sent nothing for {options.read_seconds:g} s"
        case _:
            said = f"the connection to {host} broke: {said}"
    return ConnectionFailedError(said)


async def _drain(events: AsyncGenerator[object]) -> None:
    """Read what follows the protocol's end mark: only a body read to its end leaves the connection open."""
    import httpx2

    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in events:
                pass
    except (httpx2.TransportError, httpx2.DecodingError, TimeoutError):
        pass  # the reply is complete; the connection is closed instead of kept


def _is_document(response: httpx2.Response) -> bool:
    """Return whether the server answered a stream request with a JSON document or a web page."""
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind.endswith(("json", "html"))


async def _read_start(response: httpx2.Response) -> bytes:
    """Return the beginning of an error's body, as far as it can be read."""
    import httpx2

    body = b""
    try:
        async with aclosing(response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                body += chunk
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except (httpx2.TransportError, httpx2.DecodingError):
        pass  # the status alone says enough
    return body[:MAX_ERROR_BYTES]


async def _read_document(response: httpx2.Response, host: str) -> bytes:
    """Return the whole body, decompressed piece by piece, so that its size stays limited."""
    body = bytearray()
    async with aclosing(response.aiter_bytes()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise _oversized(host, "a reply", MAX_DOCUMENT_BYTES)
    return bytes(body)


def read_list(
    client: httpx2.Client,
    url: str,
    headers: Mapping[str, str],
    host: str,
    is_late: Callable[[], bool] = lambda: False,
) -> tuple[int, dict[str, str], bytes]:
    """Request a small document; return status, headers and body.

    Args:
        client: sends the request; its time-out applies to each piece of the body.
        url: of the document.
        headers: of the request.
        host: the server's name in messages.
        is_late: returns whether the whole transfer takes too long; called after each piece.

    Raises:
        ProviderError: the document is too large, or late.
        httpx2.HTTPError: no whole answer arrived.
    """
    body = bytearray()
    with client.stream("GET", url, headers={**headers, **_UNCOMPRESSED}) as reply:
        for chunk in reply.iter_bytes():
            body += chunk
            if len(body) > MAX_DOCUMENT_BYTES:
                raise _oversized(host, "a list", MAX_DOCUMENT_BYTES)
            if is_late():
                raise ProviderError(f"{host} takes too long for a list")
        return reply.status_code, dict(reply.headers), bytes(body)


class _BoundedText:
    """Gives the event reader the text of a streamed body, up to a limit.

    The reader uses only the headers and the text of a response.
    """

    def __init__(self, response: httpx2.Response, host: str) -> None:
        self.request = response.request
        # Some servers omit the content type; a body of another type simply has no events.
        self.headers = {"content-type": "text/event-stream"}
        self._response = response
        self._host = host

    async def aiter_text(self) -> AsyncIterator[str]:
        """Yield the text, decompressed piece by piece."""
        seen = 0
        async for text in self._response.aiter_text():
            seen += len(text)
            if seen > MAX_STREAM_BYTES:
                raise _oversized(self._host, "a stream", MAX_STREAM_BYTES)
            yield text


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Limits on time and attempts.

    Attributes:
        connect_seconds: time-out for opening a connection.
        read_seconds: time-out between two pieces of a reply; a local model may read for long before the
            first.
        total_seconds: time-out of one call with all its attempts and waits.
        tries: maximum number of attempts.
        max_wait_seconds: limit on the sum of all waits of one call; a longer wait is left to the caller.
        first_backoff_seconds: the longest wait after the first failure; it doubles with each failure.
        max_backoff_seconds: upper bound of the doubling.
    """

    connect_seconds: float = 15.0
    read_seconds: float = 300.0
    total_seconds: float = 1_800.0
    tries: int = 5
    max_wait_seconds: float = 120.0
    first_backoff_seconds: float = 0.5
    max_backoff_seconds: float = 30.0


class _Attempts:
    """The attempts of one call, with the time and waits used so far."""

    def __init__(self, options: HttpOptions, clock: Clock, random: Callable[[], float]) -> None:
        self.options = options
        self._clock = clock
        self._random = random
        self._deadline = clock.monotonic() + options.total_seconds
        self._failures = 0
        self._relaxations = 0
        self._waited_seconds = 0.0

    def now(self) -> datetime:
        """Return the time of day."""
        return self._clock.now()

    async def within(self, work: Awaitable[T]) -> T:
        """Await within the remaining time of the call. Nothing is ever yielded inside this time-out."""
        async with asyncio.timeout(self._seconds_left()):
            return await work

    def may_relax(self) -> bool:
        """Return whether the request may be sent once more without what the server refused."""
        self._relaxations += 1
        return self._relaxations <= MAX_RELAXATIONS

    def _seconds_left(self) -> float:
        return max(self._deadline - self._clock.monotonic(), 0.0)

    def plan(self, failure: ModelError) -> float:
        """Return the seconds to wait before the next attempt, or raise the failure if there is none."""
        self._failures += 1
        if not is_transient(failure) or self._failures >= self.options.tries:
            raise failure
        seconds = self._wait_seconds(failure)
        if self._waited_seconds + seconds > self.options.max_wait_seconds or seconds >= self._seconds_left():
            raise failure
        self._waited_seconds += seconds
        return seconds

    def _wait_seconds(self, failure: ModelError) -> float:
        """Return the exponential backoff with full jitter, added to the wait that the server requested.

        https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        """
        doubled = self.options.first_backoff_seconds * 2.0 ** (self._failures - 1)
        backoff = self._random() * min(doubled, self.options.max_backoff_seconds)
        resume_at = failure.resume_at if isinstance(failure, ResumableError) else None
        asked = (resume_at - self._clock.now()).total_seconds() if resume_at else 0.0
        return max(asked, 0.0) + backoff


STALE_SECONDS = 2.0
"""A kept connection that the server had closed fails within this time.

If it fails later, the request was sent.
"""

_LOOPBACK = ("all://localhost", "all://127.0.0.1", "all://[::1]")


class _Connection:
    """Sends requests to one server.

    Args:
        options: time-outs.
        clock: used to distinguish a connection that was closed before from one that broke.
    """

    def __init__(self, options: HttpOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self.client: httpx2.AsyncClient | None = None

    async def post(self, url: str, headers: Mapping[str, str], content: bytes) -> httpx2.Response:
        """Send JSON and wait for the head of the response. The caller closes the response."""
        import httpx2

        is_new = False

        async def watch(step: str, info: object) -> None:
            nonlocal is_new
            del info
            is_new = is_new or step.startswith("connection.connect")

        client = self._connected(url)
        ours = {"content-type": "application/json", "user-agent": f"pullwright/{__version__}"}
        try:
            built = client.build_request(
                "POST",
                url,
                headers={**ours, **_UNCOMPRESSED, **headers},
                content=content,
                extensions={"trace": watch},
            )
        except httpx2.InvalidURL:
            raise ConfigurationError(f"the API address {url!r} is not valid") from None
        sent_at = self._clock.monotonic()
        try:
            return await client.send(built, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.NetworkError):
            if is_new or self._clock.monotonic() - sent_at > STALE_SECONDS:
                raise
        # A kept connection that the server has closed in the meantime is no failure of the server:
        # llama.cpp closes each one after a stream, contrary to its headers.
        return await client.send(built, stream=True)

    async def aclose(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()

    def _connected(self, url: str) -> httpx2.AsyncClient:
        import ssl

        import httpx2

        if self.client is None:
            # Loading the machine's certificates is slow. A context without them accepts no certificate.
            is_plain = url.lower().startswith("http:")
            verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if is_plain else True
            options = self._options
            timeout = httpx2.Timeout(options.read_seconds, connect=options.connect_seconds, pool=None)
            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
            # No redirects: the key must not be sent elsewhere. A server on this machine needs no proxy.
            try:
                self.client = httpx2.AsyncClient(
                    verify=verify,
                    timeout=timeout,
                    limits=limits,
                    follow_redirects=False,
                    mounts=dict.fromkeys(_LOOPBACK),
                )
            except (ImportError, OSError, ValueError, httpx2.InvalidURL) as error:
                raise ConfigurationError(
                    f"the environment's proxy or certificate settings cannot be used: {error}"
                ) from None
        return self.client


class HttpModel:
    """A model behind a wire protocol. It supports concurrent calls in one event loop.

    A caller that leaves a stream early closes it: `async with aclosing(model.stream(...))`.
    """

    def __init__(  # noqa: PLR0913  keyword-only
        self,
        name: str,
        wire: Wire,
        *,
        api_key: str | None,
        clock: Clock,
        random: Callable[[], float],
        on_wait: OnWait | None = None,
        options: HttpOptions | None = None,
    ) -> None:
        """Create the model; no connection is opened before the first request.

        Args:
            name: the user's name of the model.
            wire: the protocol, which knows the address.
            api_key: sent with every request to the wire's address, and nowhere else.
            clock: for waits and reset times.
            random: returns numbers from 0 up to 1, for the jitter of the waits.
            on_wait: called before each wait of `complete` if the request has no `Request.on_retry`; `stream`
                yields an event instead.
            options: time-outs and retries.

        Raises:
            ConfigurationError: the key has characters that no key has.
        """
        self._name = name
        self._wire = wire
        self._key = (api_key or "").strip()
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigurationError(
                f"the API key for {name} has characters that no key has; was it copied whole?"
            )
        self._clock = clock
        self._random = random
        self._on_wait = on_wait
        self._options = options or HttpOptions()
        self._connection = _Connection(self._options, clock)
        self._users = 0  # running replies
        self._closing = False

    def __repr__(self) -> str:
        return f"HttpModel({self._name!r})"

    @property
    def name(self) -> str:
        """The name as the user writes it: `provider:name`."""
        return self._name

    async def aclose(self) -> None:
        """Close the connections after the running replies. A later request opens new ones."""
        self._closing = self._users > 0
        if not self._closing:
            await self._connection.aclose()

    async def complete(self, request: Request) -> Response:
        """Send a request and wait for the whole reply."""
        async with aclosing(self._ask(request, stream=False)) as events:
            async for event in events:
                if isinstance(event, Completed):
                    return event.response
                if isinstance(event, Waiting | Relaxed):
                    self._tell(request, event)
        raise AssertionError("_ask ends with Completed or raises")

    def _tell(self, request: Request, event: Waiting | Relaxed) -> None:
        if request.on_retry:
            request.on_retry(event)
        elif self._on_wait and isinstance(event, Waiting):
            self._on_wait(event.seconds, event.error)

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Send a request and yield the reply in pieces. The last event is `Completed`."""
        return self._ask(request, stream=True)

    async def _ask(self, request: Request, *, stream: bool) -> AsyncGenerator[StreamEvent]:
        """Repeat the request until there is a reply, or no further attempt makes sense."""
        attempts = _Attempts(self._options, self._clock, self._random)
        self._users += 1
        try:
            while True:
                wire, shown = self._wire, False
                said: list[Piece] | Response | ModelError = []
                exchange = _Exchange(self._connection, self._key, wire, request, attempts, stream=stream)
                async with aclosing(exchange):
                    while isinstance(said, list):
                        for piece in said:
                            yield piece
                            shown = True
                        said = await exchange.next()
                if isinstance(said, Response):
                    yield Completed(said)
                    return
                relaxed = wire.relax(request, said)
                if relaxed is not None and attempts.may_relax():
                    self._wire = relaxed  # kept: the server will refuse the feature in later requests, too
                    heads = (one.encode(request, stream=stream).head for one in (wire, relaxed))
                    yield Relaxed(said, changed_fields(*heads))
                    if isinstance(said, ProviderError):  # the refused attempt may be billed
                        yield Waiting(0.0, said)
                else:
                    seconds = attempts.plan(said)
                    yield Waiting(seconds, said)
                    await self._clock.sleep(seconds)
                if shown:
                    yield Restarted()
        finally:
            self._users -= 1
            if self._closing:
                await self.aclose()


class JsonServer:
    """A server that answers a JSON document with another one, such as one of embeddings.

    It uses the same retries and limits as models.

    Args:
        url: the address of the requests; the key is sent there and nowhere else.
        api_key: sent as a bearer token; None sends none.
        clock: for waits.
        random: see `HttpModel`.
        options: time-outs and retries.
    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None,
        clock: Clock,
        random: Callable[[], float],
        options: HttpOptions | None = None,
    ) -> None:
        self.url = url
        self._key = (api_key or "").strip()
        self._clock = clock
        self._random = random
        self._options = options or HttpOptions()
        self._connection = _Connection(self._options, clock)

    async def ask(self, value: JsonObject) -> Any:
        """Send a document and return the server's.

        Raises:
            ModelError: the server gave none.
        """
        attempts = _Attempts(self._options, self._clock, self._random)
        content = json_bytes(value)
        while True:
            said = await self._try(content, attempts)
            if not isinstance(said, ModelError):
                return said
            await self._clock.sleep(attempts.plan(said))

    async def _try(self, content: bytes, attempts: _Attempts) -> Any:
        """Send the document once; a failure is returned, as in `_Exchange`."""
        import httpx2

        host = host_of(self.url)
        headers = {"authorization": f"Bearer {self._key}"} if self._key else {}
        failure: ModelError
        try:
            reply = await attempts.within(self._connection.post(self.url, headers, content))
            async with aclosing(reply):
                if not reply.is_success:
                    body = without_bytes(await attempts.within(_read_start(reply)), self._key)
                    return error_from_body(reply.status_code, dict(reply.headers), body, attempts.now(), host)
                body = without_bytes(await attempts.within(_read_document(reply, host)), self._key)
            return read_json(body)
        except ModelError as error:
            failure = error
        except ValueError:
            failure = ProviderError(f"{host} did not answer with JSON; check the address")
        except (httpx2.TransportError, httpx2.DecodingError, TimeoutError) as error:
            failure = _connection_failure(host, error, attempts.options)
        failure.args = tuple(without_secrets(str(part), self._key) for part in failure.args)
        return failure

    async def aclose(self) -> None:
        """Close the connections. A later request opens new ones."""
        await self._connection.aclose()


class _Exchange:
    """One HTTP request and its reply.

    A failure is returned, not raised. Raised from here it would have the HTTP library's error as its context,
    which holds the request with the key.
    """

    def __init__(  # noqa: PLR0913  one caller
        self,
        connection: _Connection,
        key: str,
        wire: Wire,
        request: Request,
        attempts: _Attempts,
        *,
        stream: bool,
    ) -> None:
        self._connection = connection
        self._key = key
        self._wire = wire
        self._request = request
        self._attempts = attempts
        self._stream = stream
        self._host = host_of(wire.url)
        self._decoder = wire.decoder(request)
        self._http: httpx2.Response | None = None
        self._events: AsyncGenerator[httpx2.ServerSentEvent] | None = None
        self._said_characters = 0
        self._whole: Response | None = None

    async def next(self) -> list[Piece] | Response | ModelError:
        """Return the next pieces of the reply; after the last ones the whole reply, or the error."""
        import httpx2

        if self._whole is not None:
            return self._whole
        failure: ModelError
        try:
            return await self._next()
        except ModelError as error:
            failure = error
            count_waits(failure, self._attempts.now())
        except (httpx2.TransportError, httpx2.DecodingError, TimeoutError) as error:
            failure = _connection_failure(self._host, error, self._attempts.options)
        try:
            # The reply may be complete although the connection broke.
            return self._finish()
        except ModelError:
            # The HTTP library's message may contain the header that it cannot send.
            failure.args = tuple(without_secrets(str(part), self._key) for part in failure.args)
            return failure

    async def _next(self) -> list[Piece] | Response:
        if self._events is None:
            self._http = await self._open()
            if not self._stream or _is_document(self._http):
                body = await self._attempts.within(_read_document(self._http, self._host))
                return self._wire.decoder(self._request).read(without_bytes(body, self._key))
            self._events = _events(self._http, self._host)
        event = await self._attempts.within(anext(self._events, None))
        if event is None:
            return self._finish()
        # Some servers echo the key in their errors.
        pieces = self._decoder.feed(
            event.event, without_secrets(event.data, self._key) if self._key else event.data
        )
        for piece in pieces:
            self._said_characters += max(len(piece.text), LEAST_PIECE_CHARACTERS)
        if self._said_characters > MAX_SAID_CHARACTERS:
            raise _oversized(self._host, "a reply", MAX_SAID_CHARACTERS)
        if self._decoder.done:
            await _drain(self._events)
            pieces = [*pieces, *self._finish()]
        return pieces

    async def _open(self) -> httpx2.Response:
        sent = self._wire.encode(self._request, stream=self._stream)
        headers = {**sent.headers, **(self._wire.credentials(self._key) if self._key else {})}
        response = await self._attempts.within(self._connection.post(sent.url, headers, sent.content))
        if not response.is_success:
            async with aclosing(response):
                body = without_bytes(await self._attempts.within(_read_start(response)), self._key)
            raise error_from_body(
                response.status_code, dict(response.headers), body, self._attempts.now(), self._host
            )
        return response

    def _finish(self) -> list[Piece]:
        held, self._whole = self._decoder.finish()
        return held

    async def aclose(self) -> None:
        """Return the connection to the pool, or close it if the reply was not read to its end."""
        try:
            if self._events is not None:
                await self._events.aclose()
        finally:
            if self._http is not None:
                await self._http.aclose()


def _events(response: httpx2.Response, host: str) -> AsyncGenerator[httpx2.ServerSentEvent]:
    import httpx2

    bounded = cast("httpx2.Response", _BoundedText(response, host))
    source = httpx2.EventSource(bounded, max_event_size=MAX_EVENT_BYTES)
    return cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(source))
