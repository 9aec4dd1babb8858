"""Sends requests to model servers: HTTP client, streams, retries, waits and time-outs. Secrets are taken out."""

from __future__ import annotations

import asyncio
import codecs
import weakref
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

from orchestrator.core.errors import (
    AuthenticationError,
    ConfigurationError,
    ConnectionFailedError,
    ModelError,
    NotConnectedError,
    ProviderError,
    ResumableError,
)
from orchestrator.core.http_client import (
    UNCOMPRESSED,
    USER_AGENT,
    FailureKind,
    failure_of,
    http_errors,
    open_client,
    read_beginning,
    read_body,
)
from orchestrator.core.json_rpc import read_json
from orchestrator.core.messages import Message, Reasoning, ToolCall, ToolResult
from orchestrator.core.redaction import secret_forms, without_bytes, without_secrets
from orchestrator.engine.models.base import Completed, Relaxed, Response, Restarted, Waiting
from orchestrator.engine.models.failures import error_from_body, is_transient, set_resume_time
from orchestrator.engine.models.refusals import changed_fields
from orchestrator.engine.models.wire import host_of, json_bytes
from orchestrator.engine.policy.secrets import Redactor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

    import httpx2

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import JsonObject, Part
    from orchestrator.engine.models.base import OnWait, Piece, Request, StreamEvent
    from orchestrator.engine.models.wire import ReplyDecoder, Wire, WireRequest


class OutgoingRequests:
    """Redacts requests to one model. Each message, and what all requests share, is searched once.

    A message is the same text in every request, so that the beginning of a conversation keeps its bytes. Left as they
    are: the ids of calls, which results refer to, and what a vendor wants back unchanged (`Reasoning.opaque`).
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._forget()

    def _forget(self) -> None:
        self._version = self._redactor.version
        # The clean message, or None if the message itself is clean: it must not be kept alive.
        self._messages: dict[int, tuple[weakref.ref[Message], Message | None]] = {}
        self._heads: tuple[Request, Request] | None = None

    def clean(self, request: Request) -> Request:
        """Return the request without secrets."""
        if self._version != self._redactor.version:  # another secret was learnt
            self._forget()
        head = replace(request, messages=(), on_retry=None)
        if self._heads is None or self._heads[0] != head:
            self._heads = head, self._clean_head(head)
        messages = [self._message(one) for one in request.messages]
        return replace(self._heads[1], messages=messages, on_retry=request.on_retry)

    def _clean_head(self, head: Request) -> Request:
        redact = self._redactor.redact_value
        return replace(
            head,
            system=self._redactor.redact(head.system),
            tools=redact(head.tools),
            output_schema=redact(head.output_schema),
            provider_options=redact(head.provider_options),
        )

    def _message(self, message: Message) -> Message:
        key = id(message)
        known = self._messages.get(key)
        if known is not None and known[0]() is message:
            return known[1] or message
        parts = tuple(map(self._part, message.parts))
        clean = None if parts == message.parts else Message(message.role, parts)

        def forget(_: weakref.ref[Message]) -> None:
            self._messages.pop(key, None)

        self._messages[key] = weakref.ref(message, forget), clean
        return clean or message

    def _part(self, part: Part) -> Part:
        clean: Part = self._redactor.redact_value(part)
        if isinstance(part, Reasoning) and isinstance(clean, Reasoning):
            return replace(clean, opaque=part.opaque)
        if isinstance(part, ToolCall) and isinstance(clean, ToolCall):
            return replace(clean, id=part.id)
        if isinstance(part, ToolResult) and isinstance(clean, ToolResult):
            return replace(clean, call_id=part.call_id)
        return clean


T = TypeVar("T")
Tap: TypeAlias = "Callable[[bytes], Awaitable[None]]"
"""Takes a copy of the bytes of a reply, as they come, before they are decoded."""

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

_TURN_CHARACTERS = 65_536
"""Length of text that is read before other tasks have their turn."""

DRAIN_SECONDS = 0.25
MAX_RELAXATIONS = 5


def oversized(host: str, what: str, most: int) -> ProviderError:
    """Return the error for an oversized reply. The request is not sent again."""
    return ProviderError(f"{host} sent {what} of more than {most:,} bytes; the rest was not read")


def _connection_failure(host: str, error: Exception, options: HttpOptions) -> ModelError:
    """Return the error for a broken or silent connection."""
    failure = failure_of(error)
    match failure.kind:
        case FailureKind.LATE:
            said = f"no whole reply from {host} within {options.total_seconds:g} s"
        case FailureKind.TOO_LARGE:
            return oversized(host, "an event", MAX_EVENT_BYTES)
        case FailureKind.CONNECTING_TOO_LONG:
            return NotConnectedError(f"cannot connect to {host} within {options.connect_seconds:g} s")
        case FailureKind.NOT_CONNECTED:
            words = (
                f"cannot connect to {host}: {failure.detail}; is the address right, and the server running?"
            )
            return NotConnectedError(words)
        case FailureKind.SILENT:
            said = f"{host} sent nothing for {options.read_seconds:g} s"
        case _:
            said = f"the connection to {host} broke: {failure.detail}"
    return ConnectionFailedError(said)


def _failures() -> tuple[type[Exception], ...]:
    return (ModelError, *http_errors())


async def _drain(events: AsyncGenerator[object]) -> None:
    """Read what follows the protocol's end mark: only a body read to its end leaves the connection open."""
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            async for _ in events:
                pass
    except http_errors():
        pass  # the reply is complete; the connection is closed instead of kept


async def _read_document(response: httpx2.Response, host: str) -> bytes:
    body = await read_body(response, MAX_DOCUMENT_BYTES)
    if body is None:
        raise oversized(host, "a reply", MAX_DOCUMENT_BYTES)
    return body


class _BoundedText:
    """Gives the event reader, which uses only headers and text of a response, the text up to a limit."""

    def __init__(self, response: httpx2.Response, host: str, tap: Tap | None) -> None:
        self.request = response.request
        # Some servers omit the content type; a body of another type simply has no events.
        self.headers = {"content-type": "text/event-stream"}
        self._response = response
        self._host = host
        self._tap = tap

    async def aiter_text(self) -> AsyncIterator[str]:
        """Yield the text, decompressed piece by piece. Other tasks, and a stop, have their turn before each piece."""
        seen = 0
        # Event streams are always UTF-8, with or without a byte order mark, whatever the header says:
        # https://html.spec.whatwg.org/multipage/server-sent-events.html#parsing-an-event-stream
        decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        async for data in self._response.aiter_bytes():
            if self._tap is not None:
                await self._tap(data)
            text = decoder.decode(data)
            seen += len(text)
            if seen > MAX_STREAM_BYTES:
                raise oversized(self._host, "a stream", MAX_STREAM_BYTES)
            for start in range(0, len(text), _TURN_CHARACTERS):
                # What one read of the connection unpacks to comes without a wait, however much it is.
                await asyncio.sleep(0)
                yield text[start : start + _TURN_CHARACTERS]


_MAX_WAIT_SECONDS = 120.0
"""Limit on the sum of all waits of one call; a longer wait is left to the caller."""
_MAX_BACKOFF_SECONDS = 30.0
"""Upper bound of the doubling of the waits."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Limits on time and attempts.

    Attributes:
        connect_seconds: time-out for opening a connection.
        read_seconds: time-out between two pieces of a reply; a local model may read for long before the
            first.
        total_seconds: time-out of one call with all its attempts and waits.
        tries: maximum number of attempts.
        first_backoff_seconds: the longest wait after the first failure; it doubles with each failure.
        without_key: what to do if the server refuses a request that carried no key.
    """

    connect_seconds: float = 15.0
    read_seconds: float = 300.0
    total_seconds: float = 1_800.0
    tries: int = 5
    first_backoff_seconds: float = 0.5
    without_key: str = ""


class Attempts:
    """The attempts of one call, with the time and waits used so far."""

    def __init__(self, options: HttpOptions, clock: Clock, random: Callable[[], float]) -> None:
        self.options = options
        self._clock = clock
        self._random = random
        self._deadline = clock.monotonic() + options.total_seconds
        self._failures = 0
        self._relaxations = 0
        self._waited_seconds = 0.0

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
        if self._waited_seconds + seconds > _MAX_WAIT_SECONDS or seconds >= self._seconds_left():
            raise failure
        self._waited_seconds += seconds
        return seconds

    def _wait_seconds(self, failure: ModelError) -> float:
        """Return the exponential backoff with full jitter, added to the wait that the server requested.

        https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        """
        doubled = self.options.first_backoff_seconds * 2.0 ** (self._failures - 1)
        backoff = self._random() * min(doubled, _MAX_BACKOFF_SECONDS)
        resume_at = failure.resume_at if isinstance(failure, ResumableError) else None
        asked = (resume_at - self._clock.now()).total_seconds() if resume_at else 0.0
        return max(asked, 0.0) + backoff


STALE_SECONDS = 2.0
"""A kept connection that the server had closed fails within this time.

If it fails later, the request was sent.
"""


class ModelConnection:
    """Sends requests to one server, and keeps its key out of all errors.

    Args:
        clock: for waits, and to distinguish a connection that was closed before from one that broke.
        random: see `HttpModel`.
    """

    def __init__(
        self, key: str, clock: Clock, random: Callable[[], float], options: HttpOptions | None
    ) -> None:
        self.key = key
        self._forms_of_key = tuple(form.decode() for form in secret_forms(key))
        self.clock = clock
        self._random = random
        self._options = options or HttpOptions()
        self.client: httpx2.AsyncClient | None = None

    def open(self, url: str) -> None:
        """Load what the first request to this address needs. Without this, the request itself does.

        Raises:
            ConfigurationError: the environment's proxy or certificate settings cannot be used.
        """
        self._connected(url)

    def attempts(self) -> Attempts:
        """Begin a call."""
        return Attempts(self._options, self.clock, self._random)

    def without_key(self, text: str) -> str:
        """Return the text of one of a reply's events without the key."""
        return without_secrets(text, self.key) if any(form in text for form in self._forms_of_key) else text

    def sign(self, wire: Wire, sent: WireRequest) -> SignedRequest:
        """Return a request with the headers that carry the key."""
        credentials = wire.credentials(self.key) if self.key else {}
        return SignedRequest(sent.url, {**sent.headers, **credentials}, sent.content)

    async def post(
        self, url: str, headers: Mapping[str, str], content: bytes, attempts: Attempts
    ) -> httpx2.Response:
        """Send JSON; return the successful response with its body unread. The caller closes it.

        Raises:
            ModelError: the server answered with an error.
            httpx2.TransportError: the connection failed; see `failure`.
        """
        response = await attempts.within(self._send(url, headers, content))
        if response.is_success:
            return response
        async with aclosing(response):
            # Some servers echo the key in their errors.
            body = without_bytes(await attempts.within(read_beginning(response, MAX_ERROR_BYTES)), self.key)
        now = self.clock.now()
        error = error_from_body(response.status_code, dict(response.headers), body, now, host_of(url))
        error.body = body
        if isinstance(error, AuthenticationError) and not self.key and self._options.without_key:
            error.args = (f"{error}; {self._options.without_key}",)
        raise error

    def failure(self, host: str, error: Exception) -> ModelError:
        """Return the error to report for a failed attempt.

        The key is removed: the HTTP library's message may contain the header that it cannot send.
        """
        failure = error if isinstance(error, ModelError) else _connection_failure(host, error, self._options)
        failure.args = tuple(without_secrets(str(part), self.key) for part in failure.args)
        set_resume_time(failure, self.clock.now())
        return failure

    async def _send(self, url: str, headers: Mapping[str, str], content: bytes) -> httpx2.Response:
        import httpx2

        is_new = False

        async def watch(step: str, info: object) -> None:
            nonlocal is_new
            del info
            is_new = is_new or step.startswith("connection.connect")

        client = self._connected(url)
        ours = {"content-type": "application/json", "user-agent": USER_AGENT, **UNCOMPRESSED}
        try:
            request = client.build_request(
                "POST", url, headers={**ours, **headers}, content=content, extensions={"trace": watch}
            )
        except httpx2.InvalidURL:
            raise ConfigurationError(f"the API address {url!r} is not valid") from None
        sent_at = self.clock.monotonic()
        try:
            return await client.send(request, stream=True)
        except (httpx2.RemoteProtocolError, httpx2.NetworkError):
            if is_new or self.clock.monotonic() - sent_at > STALE_SECONDS:
                raise
        # A kept connection that the server has closed in the meantime is not a failure of the server:
        # llama.cpp closes each one after a stream, contrary to its headers.
        return await client.send(request, stream=True)

    async def aclose(self) -> None:
        """Close the connections. A later request opens new ones."""
        client, self.client = self.client, None
        if client is not None:
            await client.aclose()

    def _connected(self, url: str) -> httpx2.AsyncClient:
        if self.client is None:
            options = self._options
            self.client = open_client(
                url, silent_seconds=options.read_seconds, connect_seconds=options.connect_seconds
            )
        return self.client


def sendable_key(api_key: str | None, name: str) -> str:
    """Return a key without blanks around it; an empty text for none.

    Raises:
        ConfigurationError: it has characters that keys never have.
    """
    key = (api_key or "").strip()
    if not (key.isascii() and key.isprintable()) or " " in key:
        raise ConfigurationError(
            f"the API key for {name} has characters that keys never have: check that it was copied completely"
        )
    return key


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
        redactor: Redactor | None = None,
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
            redactor: removes secrets from everything that is sent but the key; None for one that knows only their
                forms.
        """
        self._name = name
        self._wire = wire
        key = sendable_key(api_key, name)
        self._on_wait = on_wait
        self._outgoing = OutgoingRequests(redactor or Redactor())
        self._connection = ModelConnection(key, clock, random, options)
        self._running = 0  # replies
        self._closing = False

    def __repr__(self) -> str:
        return f"HttpModel({self._name!r})"

    @property
    def name(self) -> str:
        """The name as the user writes it: `provider:name`."""
        return self._name

    async def aclose(self) -> None:
        """Close the connections after the running replies. A later request opens new ones."""
        self._closing = self._running > 0
        if not self._closing:
            await self._connection.aclose()

    async def complete(self, request: Request) -> Response:
        """Send a request and wait for the whole reply."""
        async with aclosing(self._ask(request, stream=False)) as events:
            async for event in events:
                if isinstance(event, Completed):
                    return event.response
                if request.on_retry and isinstance(event, Waiting | Relaxed):
                    request.on_retry(event)
                elif self._on_wait and isinstance(event, Waiting):
                    self._on_wait(event.seconds, event.error)
        raise AssertionError("_ask ends with Completed or raises")

    def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Send a request and yield the reply in pieces. The last event is `Completed`."""
        return self._ask(request, stream=True)

    async def _ask(self, request: Request, *, stream: bool) -> AsyncGenerator[StreamEvent]:
        """Repeat the request until there is a reply, or no further attempt makes sense."""
        request = self._outgoing.clean(request)
        attempts = self._connection.attempts()
        self._running += 1
        try:
            while True:
                wire, shown = self._wire, False
                said: list[Piece] | Response | ModelError = []
                made = partial(wire.decoder, request)
                sent = self._connection.sign(wire, wire.encode(request, stream=stream))
                exchange = Exchange(self._connection, sent, attempts, decoder=made, stream=stream)
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
                    await self._connection.clock.sleep(seconds)
                if shown:
                    yield Restarted()
        finally:
            self._running -= 1
            if self._closing:
                await self.aclose()


class JsonServer:
    """A server that answers a JSON document with another one, such as one of embeddings.

    It uses the same retries and limits as models.

    Args:
        url: the address of the requests; the key is sent there and nowhere else.
        api_key: sent as a bearer token; None sends none.
        clock, random, options, redactor: see `HttpModel`.
    """

    def __init__(  # noqa: PLR0913  keyword-only
        self,
        url: str,
        *,
        api_key: str | None,
        clock: Clock,
        random: Callable[[], float],
        options: HttpOptions | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self.url = url
        self._redactor = redactor or Redactor()
        self._connection = ModelConnection((api_key or "").strip(), clock, random, options)

    async def ask(self, value: JsonObject) -> Any:
        """Send a document and return the server's.

        Raises:
            ModelError: the server gave none.
        """
        attempts = self._connection.attempts()
        content = json_bytes(self._redactor.redact_value(value))
        while True:
            said = await self._try(content, attempts)
            if not isinstance(said, ModelError):
                return said
            await self._connection.clock.sleep(attempts.plan(said))

    async def _try(self, content: bytes, attempts: Attempts) -> Any:
        """Send the document once; a failure is returned, as in `Exchange`."""
        host, key = host_of(self.url), self._connection.key
        headers = {"authorization": f"Bearer {key}"} if key else {}
        try:
            async with aclosing(
                await self._connection.post(self.url, headers, content, attempts)
            ) as response:
                body = await attempts.within(_read_document(response, host))
            return read_json(without_bytes(body, key))
        except ValueError:
            return ProviderError(f"{host} did not answer with JSON; check the address")
        except _failures() as error:
            return self._connection.failure(host, error)

    async def aclose(self) -> None:
        """Close the connections. A later request opens new ones."""
        await self._connection.aclose()


@dataclass(frozen=True, slots=True)
class SignedRequest:
    """A request as it is sent, with the key in its headers."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    content: bytes = field(repr=False)


class Exchange:
    """One HTTP request and its reply.

    A failure is returned, not raised. Raised from here it would have the HTTP library's error as its context,
    which holds the request with the key.

    Args:
        decoder: creates a decoder for the reply.
        stream: whether the reply is asked for as a stream.
        tap: gets a copy of the reply.
    """

    def __init__(  # noqa: PLR0913  keyword-only
        self,
        connection: ModelConnection,
        sent: SignedRequest,
        attempts: Attempts,
        *,
        decoder: Callable[[], ReplyDecoder],
        stream: bool,
        tap: Tap | None = None,
    ) -> None:
        self._connection = connection
        self._sent = sent
        self._attempts = attempts
        self._stream = stream
        self._tap = tap
        self._host = host_of(sent.url)
        self._make_decoder = decoder
        self._decoder = decoder()
        self._response: httpx2.Response | None = None
        self._events: AsyncGenerator[httpx2.ServerSentEvent] | None = None
        self._said_characters = 0
        self._reply: Response | None = None

    async def next(self) -> list[Piece] | Response | ModelError:
        """Return the next pieces of the reply; after the last ones the whole reply, or the error."""
        if self._reply is not None:
            return self._reply
        try:
            return await self._next()
        except _failures() as error:
            failure = self._connection.failure(self._host, error)
        try:
            # The reply may be complete although the connection broke.
            return self._finish()
        except ModelError:
            return failure

    async def _next(self) -> list[Piece] | Response:
        import httpx2

        key = self._connection.key
        if self._events is None:
            sent = self._sent
            response = self._response = await self._connection.post(
                sent.url, sent.headers, sent.content, self._attempts
            )
            media_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
            # Some servers answer a request for a stream with a JSON document or a web page, or always with a stream.
            is_stream = self._stream or media_type == "text/event-stream"
            if not is_stream or media_type.endswith(("json", "html")):
                body = without_bytes(await self._attempts.within(_read_document(response, self._host)), key)
                if self._tap is not None:
                    await self._tap(body)
                decoder = self._make_decoder()
                decoder.take_headers(response.headers)
                return decoder.read(body)
            self._decoder.take_headers(response.headers)
            bounded = cast("httpx2.Response", _BoundedText(response, self._host, self._tap))
            source = httpx2.EventSource(bounded, max_event_size=MAX_EVENT_BYTES)
            self._events = cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(source))
        event = await self._attempts.within(anext(self._events, None))
        if event is None:
            return self._finish()
        pieces = self._decoder.feed(event.event, self._connection.without_key(event.data))
        for piece in pieces:
            self._said_characters += max(len(piece.text), LEAST_PIECE_CHARACTERS)
        if self._said_characters > MAX_SAID_CHARACTERS:
            raise oversized(self._host, "a reply", MAX_SAID_CHARACTERS)
        if self._decoder.done:
            await _drain(self._events)
            pieces = [*pieces, *self._finish()]
        return pieces

    def _finish(self) -> list[Piece]:
        held, self._reply = self._decoder.finish()
        return held

    async def aclose(self) -> None:
        """Return the connection to the pool, or close it if the reply was not read to its end."""
        try:
            if self._events is not None:
                await self._events.aclose()
        finally:
            if self._response is not None:
                await self._response.aclose()
