"""The one place that talks to models: one HTTP client, streams, retries, waits and time-outs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, TypeVar, cast

from orchestrator.core.errors import ConfigurationError, ModelError, ProviderError
from orchestrator.core.masking import without_bytes
from orchestrator.engine.models.base import Completed, Relaxed, Restarted, Waiting
from orchestrator.engine.models.connection import Connection
from orchestrator.engine.models.exchange import (
    LEAST_PIECE_CHARACTERS,
    MAX_EVENT_BYTES,
    MAX_SAID_CHARACTERS,
    BoundedText,
    connection_failure,
    drain,
    is_document,
    oversized,
    read_document,
    read_start,
)
from orchestrator.engine.models.failures import count_waits
from orchestrator.engine.models.refusals import changes
from orchestrator.engine.models.retries import Attempts, HttpOptions
from orchestrator.engine.models.wire import host_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable

    import httpx2

    from orchestrator.core.clock import Clock
    from orchestrator.engine.models.base import OnWait, Piece, Request, Response, StreamEvent
    from orchestrator.engine.models.wire import StreamDecoder, Wire

T = TypeVar("T")

MAX_RELAXATIONS = 5


class HttpModel:
    """A model behind a wire protocol. Safe for several calls at once in one event loop.

    A caller that leaves a stream early closes it: `async with aclosing(model.stream(...))`.
    """

    def __init__(  # noqa: PLR0913  what assembly passes in, each by its name
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
        """Nothing is opened before the first request.

        Args:
            name: what the user calls the model.
            wire: the protocol, which knows the address.
            api_key: sent with every request to the wire's address, and nowhere else.
            clock: for waits and reset times.
            random: gives numbers from 0 up to 1, for the spread of the waits.
            on_wait: told before each wait of `complete` where the request names nobody to tell
                (`Request.on_retry`); `stream` tells it by an event.
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
        self._connection = Connection(self._options, clock)
        self._users = 0  # replies under way
        self._closing = False

    def __repr__(self) -> str:
        return f"HttpModel({self._name!r})"

    @property
    def name(self) -> str:
        """What the user calls it: `provider:name`."""
        return self._name

    async def aclose(self) -> None:
        """Let go of connections, once the replies under way are over. A later request opens new ones."""
        self._closing = self._users > 0
        if not self._closing:
            await self._connection.aclose()

    async def complete(self, request: Request) -> Response:
        """Ask and wait for the whole reply.

        Raises:
            ModelError: one of its subclasses; retries are already spent.
        """
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

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent]:
        """Ask and take the reply in pieces. The last event is `Completed`.

        Raises:
            ModelError: one of its subclasses; retries are already spent.
        """
        async with aclosing(self._ask(request, stream=True)) as events:
            async for event in events:
                yield event

    async def _ask(self, request: Request, *, stream: bool) -> AsyncGenerator[StreamEvent]:
        self._users += 1
        try:
            async with aclosing(self._attempt(request, stream=stream)) as events:
                async for event in events:
                    yield event
        finally:
            self._users -= 1
            if self._closing:
                await self.aclose()

    async def _attempt(self, request: Request, *, stream: bool) -> AsyncGenerator[StreamEvent]:
        """Try until there is a reply, or until trying makes no more sense."""
        attempts = Attempts(self._options, self._clock, self._random)
        relaxations = 0
        while True:
            wire = self._wire
            failure: ModelError | None = None
            shown = False
            async with aclosing(self._try(wire, request, attempts, stream=stream)) as events:
                async for event in events:
                    if isinstance(event, ModelError):
                        failure = event
                        break
                    yield event
                    if isinstance(event, Completed):
                        return
                    shown = True
            if failure is None:
                raise AssertionError("_try ends with Completed or a ModelError")
            relaxed = wire.relax(request, failure)
            if relaxed is not None and relaxations < MAX_RELAXATIONS:
                relaxations += 1
                self._wire = relaxed  # kept: the server will not learn the feature between two requests
                heads = (one.encode(request, stream=stream).head for one in (wire, relaxed))
                yield Relaxed(failure, changes(*heads))
                if isinstance(failure, ProviderError):  # it may have worked on it before it said no
                    yield Waiting(0.0, failure)
            else:
                seconds = attempts.plan(failure)
                yield Waiting(seconds, failure)
                await attempts.pause(seconds)
            if shown:
                yield Restarted()

    async def _try(
        self, wire: Wire, request: Request, attempts: Attempts, *, stream: bool
    ) -> AsyncGenerator[Piece | Completed | ModelError]:
        """Send the request once. A failure is the last item; it is not raised.

        Raised from here it would have the HTTP library's error as its context, and that holds the
        request with the key.
        """
        import httpx2

        decoder = wire.decoder(request)
        failure: ModelError
        try:
            async with aclosing(self._exchange(wire, request, decoder, attempts, stream=stream)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            failure = error
            count_waits(failure, self._clock.now())
        except (httpx2.TransportError, httpx2.DecodingError, TimeoutError) as error:
            failure = connection_failure(host_of(wire.url), error, self._options)
        else:
            return
        try:
            # The reply may be complete although the connection did not end in good form.
            held, response = decoder.finish()
        except ModelError:
            yield self._redacted(failure)
            return
        for piece in held:
            yield piece
        yield Completed(response)

    async def _exchange(
        self, wire: Wire, request: Request, decoder: StreamDecoder, attempts: Attempts, *, stream: bool
    ) -> AsyncGenerator[Piece | Completed]:
        """One HTTP exchange. The connection is given back, or closed, however this ends."""
        host, said = host_of(wire.url), 0
        sent = wire.encode(request, stream=stream)
        headers = {**sent.headers, **(wire.credentials(self._key) if self._key else {})}
        response = await _before(attempts, self._connection.post(sent.url, headers, sent.content))
        async with aclosing(response):
            if not response.is_success:
                body = self._without_key(await _before(attempts, read_start(response)))
                raise wire.error(response.status_code, dict(response.headers), body, self._clock.now())
            if not stream or is_document(response):
                body = self._without_key(await _before(attempts, read_document(response, host)))
                yield Completed(wire.decode(body, request))
                return
            async with aclosing(self._events(response, host, attempts)) as events:
                async for event in events:
                    for piece in decoder.feed(event.event, self._without_key(event.data.encode()).decode()):
                        said += max(len(piece.text), LEAST_PIECE_CHARACTERS)
                        yield piece
                    if said > MAX_SAID_CHARACTERS:
                        raise oversized(host, "a reply", MAX_SAID_CHARACTERS)
                    if decoder.done:
                        await drain(events)
                        break
            held, whole = decoder.finish()
            for piece in held:
                yield piece
            yield Completed(whole)

    @staticmethod
    async def _events(
        response: httpx2.Response, host: str, attempts: Attempts
    ) -> AsyncGenerator[httpx2.ServerSentEvent]:
        import httpx2

        bounded = cast("httpx2.Response", BoundedText(response, host))
        source = httpx2.EventSource(bounded, max_event_size=MAX_EVENT_BYTES)
        async with aclosing(cast("AsyncGenerator[httpx2.ServerSentEvent]", aiter(source))) as events:
            while (event := await _before(attempts, anext(events, None))) is not None:
                yield event

    def _without_key(self, raw: bytes) -> bytes:
        """What a server sent, before anything is cut out of it: some echo the key in their errors."""
        return without_bytes(raw, self._key)

    def _redacted(self, failure: ModelError) -> ModelError:
        """The HTTP library names the header that it cannot send."""
        failure.args = tuple(self._without_key(str(part).encode()).decode() for part in failure.args)
        return failure


async def _before(attempts: Attempts, work: Awaitable[T]) -> T:
    """Await within the time that the call has left. Nothing is ever yielded inside this time-out."""
    async with asyncio.timeout(attempts.seconds_left()):
        return await work
