"""The relay: a small HTTP server between one agent program and one model server, for one session.

The agent has a random placeholder; the relay puts the API key in. It asks the model as our own session does: reserved
before, settled by the reply's own usage, searched for secrets, with the same waits, told by the same events. It decides
when the agent stops: a session whose relay has a `limit` ended by it, whatever the agent says.
"""

from __future__ import annotations

import asyncio
import hmac
from contextlib import aclosing, contextmanager, suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING

from orchestrator.app.http_server import ResponseBrokenError, ServerLimits
from orchestrator.core import events
from orchestrator.core.errors import ConfigurationError, ContextLengthError, InvalidRequestError, ModelError
from orchestrator.core.events import Defence, LimitReached, Warned
from orchestrator.core.json_rpc import read_json
from orchestrator.core.redaction import REPLACEMENT, secret_forms
from orchestrator.engine.models.base import Request, Response
from orchestrator.engine.models.catalog import Provider, facts, price_usd
from orchestrator.engine.models.transport import (
    Exchange,
    HttpOptions,
    ModelConnection,
    SignedRequest,
    sendable_key,
)
from orchestrator.engine.session.budget import (
    Need,
    NoRoomError,
    Reservation,
    check_price,
    cost_of,
    reserve,
    tell_failed,
)
from orchestrator.plugins.agents.box import Door
from orchestrator.plugins.agents.protocols import (
    FORMS,
    RefusedRequestError,
    RequestReader,
    error_body,
    placeholders,
    read_request,
    require_api_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from starlette.types import Receive, Scope, Send

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.models.connect import AddressedModel
    from orchestrator.engine.models.transport import Attempts
    from orchestrator.engine.models.wire import Wire, WireRequest
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.profiles.base import ReplyPrice
    from orchestrator.engine.session.budget import Budget
    from orchestrator.plugins.agents.protocols import AgentRequest, Asked, VendorForm


@dataclass(frozen=True, slots=True)
class Upstream:
    """The one server and the one model that requests are sent on to.

    Attributes:
        provider: the protocol, which is the agent's, too.
        key: the API key; empty for a server that needs none.
        model: the name that the agent asks for.
        wire: the protocol at the server's address.
        price: of its replies.
        output_tokens: the longest reply that the model can give.
        options: limits on time and attempts.
    """

    provider: Provider
    key: str = field(repr=False)
    model: str
    wire: Wire
    price: ReplyPrice
    output_tokens: int
    options: HttpOptions = field(default_factory=HttpOptions)

    @classmethod
    def of(
        cls, named: AddressedModel, *, price: ReplyPrice | None = None, options: HttpOptions | None = None
    ) -> Upstream:
        """Return the server of a configured model.

        Args:
            named: the model, with the key and the address.
            price: of its replies; None is that of the list.

        Raises:
            ConfigurationError: the key is no API key, or the protocol is none that agents speak.
        """
        provider, name = named.ref.provider, named.ref.name
        key = sendable_key(named.key, str(named.ref))
        if provider not in FORMS:
            raise ConfigurationError(f"an agent cannot use {named.ref}: name a model at a server")
        require_api_key(key, named.api_url)
        price = price or partial(price_usd, named.api_url, name)
        most = facts(named.api_url, name).output_tokens
        return cls(provider, key, name, named.wire, price, most, options or HttpOptions())


_MOST_SEEN = 10_000
_MOST_TOLD = 100
_LEAST_PLACEHOLDER_CHARS = 16
_HARMLESS = ("HEAD", "/")
"""By this one agent looks whether the server is there. It is refused, and nobody needs to be told."""
_SPARE_SECONDS = 60.0
_ASKED_NOTHING = Request(system="", messages=())


class _CapReachedError(RefusedRequestError):
    """A cap leaves no room for the request."""

    def __init__(self, limit: LimitReached) -> None:
        super().__init__(f"the cap of this task is reached: {limit.detail}", HTTPStatus.BAD_REQUEST)
        self.limit = limit


@dataclass(eq=False)
class Relay(Door):
    """Relays the requests of one agent to one model server.

    Attributes:
        upstream: the server, with the key and the allowed model.
        budget: pays for all requests. Its rounds count them.
        emit: receives the events of our own sessions: `TurnStarted`, `TextStarted`, `ReplyReceived`, `WaitStarted`,
            `Guarded` and `LimitReached`. Those of a request beside another one come as `SubagentEvent`.
        redactor: removes secrets from requests.
        placeholder: what the agent has for a key.
        random: returns numbers from 0 up to 1, for the waits.
        output_tokens: the longest reply that a request may ask for.
        same_requests: how often the same request is sent on.
        body_bytes: the longest request.
        connections: at a time.
        refused_requests: after so many the agent is stopped, because even a refusal takes time.
        limit: the cap that stopped the agent; None if none did.
        failure: the server's last error; None if a later request was answered.

    Raises:
        ConfigurationError: the budget has a cap in USD, and the price of a model is not known; or the placeholder can
            be guessed.
    """

    upstream: Upstream
    _: KW_ONLY
    budget: Budget
    emit: Emit
    redactor: Redactor
    placeholder: str = field(repr=False)
    clock: Clock
    random: Callable[[], float]
    output_tokens: int = 32_000
    same_requests: int = 3
    body_bytes: int = 8 * 1024 * 1024
    connections: int = 64
    refused_requests: int = 1_000
    limit: LimitReached | None = field(default=None, init=False)
    failure: ModelError | None = field(default=None, init=False)
    _lanes: set[int] = field(default_factory=set, init=False)
    _seen: dict[bytes, int] = field(default_factory=dict, init=False)
    _told: set[str] = field(default_factory=set, init=False)
    _refused: int = field(default=0, init=False)
    _longest_reply: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        if len(self.placeholder) < _LEAST_PLACEHOLDER_CHARS:
            raise ConfigurationError("what an agent has for a key is too short to be nobody else's")
        upstream = self.upstream
        check_price(self.budget, upstream.price, upstream.model)
        self._form = FORMS[upstream.provider]
        self._reader = RequestReader(self._form, self.redactor)
        longest = upstream.options.total_seconds + _SPARE_SECONDS
        self.server_limits = ServerLimits(
            connections=self.connections,
            streams=self.connections,
            body_bytes=self.body_bytes,
            all_body_bytes=4 * self.body_bytes,
            answer_seconds=longest,
            stream_seconds=longest,
            end_seconds=1.0,
        )
        self.connection = ModelConnection(upstream.key, self.clock, self.random, upstream.options)

    async def open(self) -> None:
        """Load what the first request needs. Without this, the request itself does.

        Raises:
            ConfigurationError: the environment's proxy or certificate settings cannot be used.
        """
        import anyio.lowlevel

        self.connection.open(self.upstream.wire.url)
        await anyio.lowlevel.checkpoint()  # loads what it has for this kind of event loop

    async def close(self) -> None:
        """Stop serving. What runs counts with what it may cost."""
        await super().close()
        await self.connection.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to one request. If the agent leaves, or the relay closes, the model's work is cancelled."""
        body = (await receive()).get("body", b"")
        if self._closing.is_set():
            raise ResponseBrokenError
        work = self._start(self._respond(scope, body, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (work, leaving):
                task.cancel()
            await asyncio.gather(work, leaving, return_exceptions=True)
        if work.cancelled():
            raise ResponseBrokenError
        work.result()

    async def _respond(self, scope: Scope, body: bytes, send: Send) -> None:
        reply = _Reply(send, secret_forms(self.upstream.key))
        try:
            asked = self._admit(scope)
            await self._relay(self._read(asked, body), _headers(scope), reply)
        except RefusedRequestError as error:
            self._refused += 1
            if isinstance(error, _CapReachedError) and self.limit is None:
                self.limit = error.limit
                self.emit(error.limit)
            if error.status == HTTPStatus.FORBIDDEN and (scope["method"], scope["path"]) != _HARMLESS:
                self._tell(Defence.NETWORK, f"a request of the agent was refused: {error}")
            await self._say(reply, error.status, str(error))
        except ModelError as error:
            self.failure = error
            await self._fail(reply, error)

    def _admit(self, scope: Scope) -> Asked:
        """Check the address and the placeholder."""
        query = scope["query_string"].decode("latin-1")
        refused = LimitReached("denials", f"{self._refused} requests of the agent were refused")
        if limit := self.limit or (refused if self._refused >= self.refused_requests else None):
            raise _CapReachedError(limit)
        asked = read_request(self._form, scope["method"], scope["path"], query)
        headers = _headers(scope)
        given = [one.encode("utf-8", "replace") for one in placeholders(headers)]
        wanted = self.placeholder.encode()
        if not any(hmac.compare_digest(one, wanted) for one in given):
            raise RefusedRequestError("the request has not the key of this session")
        if headers.get("content-encoding", "identity") != "identity":
            raise RefusedRequestError("a compressed request is not read", HTTPStatus.BAD_REQUEST)
        return asked

    def _read(self, asked: Asked, body: bytes) -> AgentRequest:
        """Read the body, and check the model and whether the same was asked before."""
        request = self._reader.read(asked, body)
        if request.asked != self.upstream.model:
            raise RefusedRequestError(f"the model {request.asked[:100]!r} is not allowed in this session")
        for what in request.left_out:
            self._tell(Defence.NETWORK, f"{what} was left out of the agent's requests")
        times = self._seen[request.identity] = self._seen.pop(request.identity, 0) + 1
        if len(self._seen) > _MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        if times > self.same_requests:
            words = f"the same request was sent more than {self.same_requests} times"
            self._tell(Defence.LIMITS, words)
            raise RefusedRequestError(words, HTTPStatus.BAD_REQUEST)
        return request

    async def _relay(self, request: AgentRequest, headers: Mapping[str, str], reply: _Reply) -> None:
        """Send a request on, if the budget has room for it, and pass the reply back."""
        deadline = asyncio.timeout(self.budget.seconds_left)
        try:
            async with deadline:
                reservation = await self._reserve(request)
                with self._lane() as emit, reservation:
                    self.budget.rounds += 1
                    worst = reservation.worst
                    emit(events.TurnStarted(self.budget.rounds, worst.tokens, worst.usd, request.asked))
                    most = min(self._bounded(request), reservation.reply_tokens)
                    bare = replace(_ASKED_NOTHING, max_output_tokens=most)
                    call = _Call(
                        self, request, bare, _passed_on(headers, self._form), reservation, reply, emit
                    )
                    said = await call.complete()
                    self._longest_reply = max(self._longest_reply, said.usage.output_tokens)
                    if said.is_counted:
                        self._reader.count(request, said.usage.input_tokens)
                    self.failure = None
                    await reply.end()
        except TimeoutError:
            if not deadline.expired():
                raise
            raise _CapReachedError(self.budget.out_of_time()) from None

    async def _reserve(self, request: AgentRequest) -> Reservation:
        """Reserve the most that a request may cost. Wait if only other running requests leave no room."""
        longest = max(self._bounded(request), self._longest_reply)
        need = Need(self._reader.input_tokens(request), longest, self.upstream.price)
        while True:
            if limit := self.limit or self.budget.exceeded():
                raise _CapReachedError(limit)
            room = reserve(self.budget, need)
            if isinstance(room, Reservation):
                return room
            if not room.passes:
                raise _CapReachedError(room.limit)
            await self.budget.wait_for_release()

    def _bounded(self, request: AgentRequest) -> int:
        """Return the longest reply that a request may have without the budget."""
        most = min(self.upstream.output_tokens, self.output_tokens)
        return min(request.wanted or most, most)

    @contextmanager
    def _lane(self) -> Iterator[Emit]:
        """Give a request a way to emit its events: those of several at once must stay apart."""
        lane = next(number for number in range(len(self._lanes) + 1) if number not in self._lanes)
        self._lanes.add(lane)

        def beside(event: Event) -> None:
            self.emit(events.SubagentEvent(f"request-{lane + 1}", event))

        try:
            yield beside if lane else self.emit
        finally:
            self._lanes.discard(lane)

    def _tell(self, defence: Defence, message: str) -> None:
        """Tell a person, once, and of the first ones only: an agent may ask a million times."""
        if message not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(message)
            self.emit(events.Guarded(defence, message))

    async def _fail(self, reply: _Reply, error: ModelError) -> None:
        """Pass on the server's words if the agent can do something about them, else say ours.

        All of them have status 400: at any other one some agent asks again.
        """
        is_theirs = isinstance(error, ContextLengthError | InvalidRequestError) and error.body
        with suppress(ValueError):
            if is_theirs and isinstance(read_json(error.body), dict):
                return await reply.whole(HTTPStatus.BAD_REQUEST, error.body)
        return await self._say(reply, HTTPStatus.BAD_REQUEST, str(error))

    async def _say(self, reply: _Reply, status: int, words: str) -> None:
        if reply.has_begun:
            raise ResponseBrokenError
        await reply.whole(status, error_body(self._form, status, words))


@dataclass(slots=True)
class _Call:
    """A request that is being sent on, with its reservation.

    Attributes:
        bare: our own request with the same limit, which says how the model's server names things.
        headers: of the agent, as far as they are passed on.
    """

    relay: Relay
    request: AgentRequest
    bare: Request
    headers: Mapping[str, str]
    reservation: Reservation
    reply: _Reply
    emit: Emit

    async def complete(self) -> Response:
        """Send the request until there is a whole reply, as our own session does, and pay for it."""
        self.reply.on_begin = lambda: self.emit(events.TextStarted())
        self.reservation.is_sent = True
        attempts = self.relay.connection.attempts()
        while isinstance(said := await self._attempt(attempts), ModelError):
            if not self._relax(said, attempts):
                await self.relay.clock.sleep(self._seconds_after(said, attempts))
        return self._settle(said)

    def _content(self, own: WireRequest) -> bytes:
        return self.request.content(self.bare.max_output_tokens or 1, own.head)

    async def _attempt(self, attempts: Attempts) -> Response | ModelError:
        """Send the request once. Nothing is passed on before an event was read, so that a failure can be repeated."""
        self.reply.restart()
        connection, wire, query = self.relay.connection, self.relay.upstream.wire, self.request.query
        own = wire.encode(self.bare, stream=self.request.stream)
        signed = connection.sign(wire, own)  # with our own address, our own headers and the key
        url = f"{signed.url}{'&' if '?' in signed.url else '?'}{query}" if query else signed.url
        exchange = Exchange(
            connection,
            SignedRequest(url, {**self.headers, **signed.headers}, self._content(own)),
            attempts,
            decoder=partial(wire.decoder, _ASKED_NOTHING),
            stream=self.request.stream,
            tap=self.reply.take,
        )
        async with aclosing(exchange):
            while isinstance(said := await exchange.next(), list):
                for piece in said:
                    self.reservation.received(piece.text)
                await self.reply.begin()
        if isinstance(said, Response):
            await self.reply.begin()
        return said

    def _relax(self, failure: ModelError, attempts: Attempts) -> bool:
        """Leave out what the server refused of what the relay added; return whether there was something."""
        upstream = self.relay.upstream
        relaxed = None if self.reply.has_begun else upstream.wire.relax(self.bare, failure)
        if relaxed is None:
            return False
        before, after = (
            one.encode(self.bare, stream=self.request.stream) for one in (upstream.wire, relaxed)
        )
        if self._content(before) == self._content(after) or not attempts.may_relax():
            return False
        self.relay.upstream = replace(upstream, wire=relaxed)
        self.emit(Warned(f"{failure}; asked again without it"))
        return True

    def _seconds_after(self, failure: ModelError, attempts: Attempts) -> float:
        """Return the wait before the next attempt, which has a reservation; see `complete` for what it raises."""
        if self.reply.has_begun:
            self.emit(Warned(f"the reply to the agent broke off: {failure}"))
            raise ResponseBrokenError
        seconds = attempts.plan(failure)
        if tell_failed(self.reservation, self.emit, failure, seconds):
            try:
                self.reservation.renew()
            except NoRoomError as error:
                raise _CapReachedError(error.limit) from None
        return seconds

    def _settle(self, said: Response) -> Response:
        """Pay for the whole reply by its own usage, before the agent knows that it is whole."""
        usage = said.usage
        if not said.is_counted and not usage.input_tokens:
            usage = replace(usage, input_tokens=self.reservation.need.input_tokens)
        usd, most_usd = cost_of(usage, self.relay.upstream.price)
        self.reservation.settle(usage, most_usd)
        self.emit(events.ReplyReceived(said.message, said.finish, usage, usd, said.model))
        return replace(said, usage=usage)


class _Reply:
    """The response to the agent: held back until its first event was decoded, and then passed on as it comes.

    What comes is passed on unchanged, but for the key, should the server ever repeat it.

    Attributes:
        has_begun: whether the agent has got a part.
        on_begin: called before the first byte.
    """

    def __init__(self, send: Send, forms_of_key: Sequence[bytes]) -> None:
        self.has_begun = False
        self.on_begin: Callable[[], None] = lambda: None
        self._send = send
        self._forms_of_key = forms_of_key
        self._held = bytearray()
        self._end_of_last = b""

    def restart(self) -> None:
        """Forget what was held back of a failed attempt."""
        self._held.clear()

    async def take(self, data: bytes) -> None:
        """Take bytes of the server's."""
        if self.has_begun:
            await self._write(self._without_key(data))
            return
        self._held += data
        if len(self._held) > _MOST_HELD_BYTES:
            await self.begin()

    async def begin(self) -> None:
        """Pass on what was held back, and from now on everything."""
        if self.has_begun:
            return
        self.has_begun = True
        self.on_begin()
        held = bytes(self._held)
        self._held.clear()
        is_document = held.lstrip()[:1] in {b"{", b"["}
        await self._start(HTTPStatus.OK, _JSON if is_document else b"text/event-stream; charset=utf-8")
        await self._write(self._without_key(held))

    async def end(self) -> None:
        """End a reply that is whole."""
        await self._write(self._end_of_last, more=False)

    async def whole(self, status: int, body: bytes) -> None:
        """Send a whole response of the relay's own."""
        self.has_begun = True
        await self._start(
            status, _JSON, (b"content-length", b"%d" % len(body)), (b"x-should-retry", b"false")
        )
        await self._write(body, more=False)

    async def _start(self, status: int, kind: bytes, *more: tuple[bytes, bytes]) -> None:
        # A connection that waits for a next request would end at some time, perhaps just when the agent uses it.
        headers = [(b"content-type", kind), (b"cache-control", b"no-store"), (b"connection", b"close"), *more]
        await self._send({"type": "http.response.start", "status": int(status), "headers": headers})

    async def _write(self, data: bytes, *, more: bool = True) -> None:
        if data or not more:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _without_key(self, data: bytes) -> bytes:
        """Remove the key. The beginning of one at the end is held back until it is known whether it is one."""
        data = self._end_of_last + data
        kept = 0
        for form in self._forms_of_key:
            data = data.replace(form, REPLACEMENT.encode())
            if not data.endswith(b"\n"):  # which no form contains, and nearly every event ends with
                sizes = range(len(form) - 1, 0, -1)
                kept = max(kept, next((size for size in sizes if data.endswith(form[:size])), 0))
        end = len(data) - kept
        self._end_of_last = data[end:]
        return data[:end]


_JSON = b"application/json; charset=utf-8"
_MOST_HELD_BYTES = 16 * 1024 * 1024
"""More than an event, or a document, of a server may have."""
_LOGIN_BETA = "oauth-"


def _passed_on(headers: Mapping[str, str], form: VendorForm) -> dict[str, str]:
    """Return those of the agent's headers that are passed on, without the marks of a sign-in."""
    passed = {}
    for name in form.headers & headers.keys():
        words = [one.strip() for one in headers[name].split(",")]
        passed[name] = ",".join(one for one in words if one and not one.startswith(_LOGIN_BETA))
    return {name: value for name, value in passed.items() if value}


def _headers(scope: Scope) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


async def _left(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
