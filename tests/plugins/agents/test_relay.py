"""The relay between real clients, raw or the vendors', and a scripted model server, over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import socket
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from orchestrator.bot.journal.run_facts import Unanswered, spent_on_reply
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import (
    Event,
    Guarded,
    LimitReached,
    ReplyReceived,
    SubagentEvent,
    TextStarted,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.messages import Spent, Text, ToolCall, Usage
from orchestrator.core.redaction import secret_forms
from orchestrator.engine.models.catalog import ModelRef, Provider
from orchestrator.engine.models.connect import AddressedModel
from orchestrator.engine.models.transport import HttpOptions
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.budget import Budget, Limits
from orchestrator.plugins.agents.protocols import FORMS, Asked, RequestReader, require_api_key
from orchestrator.plugins.agents.relay import Relay, Upstream, _Reply
from tests.doubles.sse_server import Answer, SseServer, json_answer, sse_answer
from tests.doubles.vendor_replies import MODEL, Protocol, Thought, VendorReply, render, render_whole

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.types import Message

KEY = "made-up-api-key-0123456789"
PLACEHOLDER = "placeholder-of-this-session"
SECRET = "correct-horse-battery-staple-4711"
REPLY = VendorReply(
    (Thought("Hm.", "c2ln"), Text("I read. " * 40), ToolCall("c1", "read_file", {"path": "a"}))
)
PROVIDERS = {
    Protocol.MESSAGES: Provider.ANTHROPIC,
    Protocol.CHAT: Provider.OPENAI_CHAT,
    Protocol.RESPONSES: Provider.OPENAI_RESPONSES,
    Protocol.GEMINI: Provider.GEMINI,
}
STREAM_PATHS = {
    Protocol.MESSAGES: "/v1/messages?beta=true",
    Protocol.CHAT: "/v1/chat/completions",
    Protocol.RESPONSES: "/v1/responses",
    Protocol.GEMINI: f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse",
}
EVERYONE = pytest.mark.parametrize("protocol", list(Protocol))


def body_of(protocol: Protocol, text: str = "Hello", *, stream: bool = True, **more: Any) -> dict[str, Any]:
    """What an agent asks in the words of a protocol."""
    match protocol:
        case Protocol.GEMINI:
            return {"contents": [{"role": "user", "parts": [{"text": text}]}], **more}
        case Protocol.RESPONSES:
            said = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}]
            return {"model": MODEL, "stream": stream, "input": said, **more}
        case _:
            return {"model": MODEL, "stream": stream, "messages": [{"role": "user", "content": text}], **more}


@dataclass
class Got:
    """A response. `is_whole` is false if the connection broke before its end."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Rig:
    """A relay that serves, the model server behind it, and what both saw."""

    protocol: Protocol
    server: SseServer
    relay: Relay
    budget: Budget
    port: int
    events: list[Event] = field(default_factory=list)

    async def open(self, data: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        return reader, writer

    def request(
        self,
        body: Any = None,
        path: str = "",
        *,
        method: str = "POST",
        key: str = PLACEHOLDER,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The bytes of a request; without a body the usual one."""
        body = body_of(self.protocol) if body is None else body
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {
            "host": "x",
            "authorization": f"Bearer {key}",
            "content-length": str(len(raw)),
            **(headers or {}),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())
        return f"{method} {path or STREAM_PATHS[self.protocol]} HTTP/1.1\r\n{head}\r\n".encode() + raw

    async def ask(self, *arguments: Any, **more: Any) -> Got:
        reader, writer = await self.open(self.request(*arguments, **more))
        try:
            return await received(reader)
        finally:
            writer.transport.abort()

    async def idle(self) -> None:
        await self.until(lambda: not self.relay._running)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Let the relay run until something has happened."""

        async def look() -> None:
            while not happened():  # noqa: ASYNC110  what is waited for is outside of this loop
                await asyncio.sleep(0)

        await asyncio.wait_for(look(), 60)

    def told(self, kind: type[Any]) -> list[Any]:
        plain = [one.event if isinstance(one, SubagentEvent) else one for one in self.events]
        return [one for one in plain if isinstance(one, kind)]


async def received(reader: asyncio.StreamReader) -> Got:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    first, *lines = head.decode().strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body, is_whole = b"", False
    try:
        if "content-length" in headers:
            body = await asyncio.wait_for(reader.readexactly(int(headers["content-length"])), 60)
            is_whole = True
        while not is_whole:
            size = int(await asyncio.wait_for(reader.readuntil(b"\r\n"), 60), 16)
            body += (await asyncio.wait_for(reader.readexactly(size + 2), 60))[:-2]
            is_whole = size == 0
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    return Got(int(first.split(" ")[1]), headers, body, is_whole)


def dollar_each_token(usage: Usage) -> float:
    return float(usage.input_tokens + usage.output_tokens)


@asynccontextmanager
async def rigged(
    protocol: Protocol,
    *answers: Answer | Callable[..., Answer],
    limits: Limits | None = None,
    relay_limits: dict[str, int] | None = None,
    options: HttpOptions | None = None,
    key: str = KEY,
) -> AsyncIterator[Rig]:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, told: failures.append(told))
    with SseServer(answers) as server, socket.create_server(("127.0.0.1", 0), backlog=1_024) as listener:
        clock = ManualClock()
        budget = Budget(limits or Limits(), clock)
        events: list[Event] = []
        upstream = Upstream.of(
            AddressedModel(ModelRef(PROVIDERS[protocol], MODEL), server.url, key),
            price=dollar_each_token,
            options=options,
        )
        relay = Relay(
            upstream,
            budget=budget,
            emit=events.append,
            redactor=Redactor([SECRET]),
            placeholder=PLACEHOLDER,
            clock=clock,
            random=lambda: 0.5,
            **(relay_limits or {}),
        )
        serving = asyncio.create_task(relay.serve(listener))
        try:
            yield Rig(protocol, server, relay, budget, listener.getsockname()[1], events)
        finally:
            await relay.close()
            await serving
    assert failures == []


def streamed(protocol: Protocol, reply: VendorReply = REPLY, **more: Any) -> Answer:
    return sse_answer(render(protocol, reply), **more)


def words_of(got: Got) -> str:
    """The words of an error, which has the vendor's form."""
    error = got.json["error"]
    return str(error["message"])


# A request goes through.


@EVERYONE
async def test_a_stream_passes_byte_for_byte_and_its_own_usage_is_paid(protocol: Protocol) -> None:
    async with rigged(protocol, streamed(protocol)) as rig:
        got = await rig.ask()
        assert (got.status, got.is_whole, got.body) == (200, True, render(protocol, REPLY))
        assert set(got.headers) == {"content-type", "cache-control", "connection", "transfer-encoding"}
        assert got.headers["content-type"].startswith("text/event-stream")
        reply = rig.told(ReplyReceived)[0]
        assert reply.usage.input_tokens == 100
        assert reply.usage.output_tokens == 20
        assert reply.usd == 120.0
        assert (rig.budget.usage.total_tokens, rig.budget.usd, rig.budget.rounds) == (120, 120.0, 1)
        assert rig.budget.reserved == set()
        assert rig.relay.limit is None


@EVERYONE
async def test_the_key_takes_the_place_of_the_placeholder(protocol: Protocol) -> None:
    async with rigged(protocol, streamed(protocol)) as rig:
        await rig.ask(headers={"x-stainless-arch": "x64", "cookie": "a=b", "accept-encoding": "gzip"})
        (sent,) = rig.server.requests
        everything = f"{sent.headers} {sent.raw!r} {sent.path}"
        assert KEY in everything
        assert PLACEHOLDER not in everything
        assert sent.headers["accept-encoding"] == "identity"
        assert not {"cookie", "x-stainless-arch"} & sent.headers.keys()


@pytest.mark.parametrize("header", ["authorization", "x-api-key", "x-goog-api-key"])
async def test_each_vendor_s_header_may_carry_the_placeholder(header: str) -> None:
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES)) as rig:
        value = f"Bearer {PLACEHOLDER}" if header == "authorization" else PLACEHOLDER
        assert (await rig.ask(key="none", headers={header: value})).status == 200


@EVERYONE
async def test_a_reply_that_is_no_stream_passes_and_is_paid(protocol: Protocol) -> None:
    path = f"/v1beta/models/{MODEL}:generateContent" if protocol is Protocol.GEMINI else ""
    async with rigged(protocol, json_answer(render_whole(protocol, REPLY))) as rig:
        got = await rig.ask(body_of(protocol, stream=False), path)
        assert (got.status, got.is_whole, got.body) == (200, True, render_whole(protocol, REPLY))
        assert got.headers["content-type"].startswith("application/json")
        assert rig.budget.usd == 120.0


async def test_a_piece_passes_before_the_next_one_comes() -> None:
    gate = threading.Event()
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES, gate=gate)) as rig:
        reader, writer = await rig.open(rig.request())
        await asyncio.wait_for(reader.readuntil(b"I read."), 60)
        assert not gate.is_set()
        gate.set()
        await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 60)
        writer.transport.abort()


async def test_a_compressed_reply_passes_in_full() -> None:
    whole = render(Protocol.CHAT, REPLY)
    answer = Answer(
        (gzip.compress(whole),),
        headers={"content-type": "text/event-stream", "content-encoding": "gzip"},
        chunked=True,
    )
    async with rigged(Protocol.CHAT, answer) as rig:
        got = await rig.ask()
        assert (got.is_whole, got.body) == (True, whole)
        assert "content-encoding" not in got.headers


async def test_the_events_of_our_own_loop_tell_of_each_request() -> None:
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES)) as rig:
        await rig.ask()
        kinds = [type(event) for event in rig.events]
        assert kinds == [TurnStarted, TextStarted, ReplyReceived]
        started, _, reply = rig.events
        assert isinstance(started, TurnStarted)
        assert isinstance(reply, ReplyReceived)
        assert (started.round, started.model) == (1, MODEL)
        assert (started.tokens or 0) > 8_192
        assert started.usd == started.tokens
        assert "I read." in reply.message.text
        assert reply.usd == 120.0


async def test_the_charge_and_the_model_that_the_server_names_count() -> None:
    reply = json.loads(render_whole(Protocol.CHAT, REPLY))
    reply["model"] = "another-model"
    reply["usage"]["cost"] = 500.0
    async with rigged(Protocol.CHAT, json_answer(reply)) as rig:
        await rig.ask(body_of(Protocol.CHAT, stream=False))
        (told,) = rig.told(ReplyReceived)
        assert (told.usd, told.usage.answered_by) == (500.0, "another-model")
        assert rig.budget.usd == 500.0


async def test_a_reply_without_counts_costs_what_was_estimated() -> None:
    reply = json.loads(render_whole(Protocol.CHAT, REPLY))
    del reply["usage"]
    async with rigged(Protocol.CHAT, json_answer(reply)) as rig:
        await rig.ask(body_of(Protocol.CHAT, "x" * 2_000, stream=False))
        (told,) = rig.told(ReplyReceived)
        assert told.usage.input_tokens >= 1_000
        assert told.usage.output_tokens > 100


async def test_requests_beside_each_other_have_events_of_their_own() -> None:
    gate = threading.Event()
    answers = [streamed(Protocol.CHAT, gate=gate), streamed(Protocol.CHAT)]
    async with rigged(Protocol.CHAT, *answers) as rig:
        reader, writer = await rig.open(rig.request())
        await asyncio.wait_for(reader.readuntil(b"I read."), 60)
        await rig.ask(body_of(Protocol.CHAT, "beside"))
        beside = [one for one in rig.events if isinstance(one, SubagentEvent)]
        assert [type(one.event) for one in beside] == [TurnStarted, TextStarted, ReplyReceived]
        gate.set()
        await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 60)
        writer.transport.abort()


async def test_a_journal_of_these_events_tells_what_the_budget_paid() -> None:
    gate = threading.Event()
    busy = json_answer({"error": {"message": "no answer"}}, status=504)
    answers = [streamed(Protocol.CHAT, gate=gate), busy, streamed(Protocol.CHAT)]
    async with rigged(Protocol.CHAT, *answers) as rig:
        first = asyncio.create_task(rig.ask())
        await rig.until(lambda: len(rig.server.requests) == 1)
        assert (await rig.ask(body_of(Protocol.CHAT, "beside"))).status == 200
        gate.set()
        assert (await first).status == 200
        unanswered = Unanswered()
        for event in rig.events:
            unanswered.take(event, datetime(2026, 1, 1, tzinfo=UTC))
        replies = sum((spent_on_reply(reply) for reply in rig.told(ReplyReceived)), Spent())
        assert (replies.tokens, replies.usd) == (240, 240.0)
        assert unanswered.total.tokens == rig.budget.uncertain_tokens > 8_000
        assert (replies + unanswered.total).usd == rig.budget.usd


# Only named paths and models, and API keys.


@EVERYONE
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("HEAD", "/"),
        ("GET", "/v1/models"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/messages/batches"),
        ("POST", "//v1/messages"),
        ("POST", "/v1/../v1/responses/x"),
        ("POST", "http://169.254.169.254/v1/messages"),
        ("DELETE", "/v1/files/1"),
        ("PUT", "/v1/messages"),
        ("POST", "/v1beta/models/other:countTokens"),
        ("POST", "/v1beta/models/../files:generateContent"),
    ],
)
async def test_another_path_is_refused_and_shown(protocol: Protocol, method: str, path: str) -> None:
    async with rigged(protocol) as rig:
        got = await rig.ask(b"" if method != "POST" else None, path, method=method)
        assert got.status == 403
        assert rig.server.requests == []
        assert rig.relay._refused == 1
        is_harmless = (method, path) == ("HEAD", "/")  # the next test
        assert is_harmless or [one.message for one in rig.told(Guarded)]


async def test_a_look_whether_the_server_is_there_is_refused_in_silence() -> None:
    async with rigged(Protocol.MESSAGES) as rig:
        assert (await rig.ask(b"", "/", method="HEAD")).status == 403
        assert (rig.server.requests, rig.told(Guarded)) == ([], [])


@EVERYONE
async def test_another_model_is_refused_in_the_vendor_s_form(protocol: Protocol) -> None:
    path = "/v1beta/models/dear-model:streamGenerateContent?alt=sse" if protocol is Protocol.GEMINI else ""
    body = {**body_of(protocol), **({} if protocol is Protocol.GEMINI else {"model": "dear-model"})}
    async with rigged(protocol) as rig:
        got = await rig.ask(body, path)
        assert got.status == 403
        assert "dear-model" in words_of(got)
        assert rig.server.requests == []
        assert "dear-model" in rig.told(Guarded)[0].message


async def test_the_host_that_a_request_names_is_not_asked() -> None:
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT)) as rig:
        named = {
            "host": "other.example",
            "x-forwarded-host": "other.example",
            "forwarded": "host=other.example",
        }
        assert (await rig.ask(headers=named)).status == 200
        assert "other.example" not in str(rig.server.requests[0].headers)


@pytest.mark.parametrize("key", ["", "wrong", PLACEHOLDER[:-1], PLACEHOLDER + "x", "ä"])
async def test_without_the_placeholder_nothing_is_sent(key: str) -> None:
    async with rigged(Protocol.MESSAGES) as rig:
        assert (await rig.ask(key=key)).status in {400, 403}
        assert rig.server.requests == []


LOGINS = [
    "sk-ant-oat01-abcdefghijklmnop",
    "sk-ant-ort01-abcdefghijklmnop",
    "sk-ant-sid01-abcdefghijklmnop",
    "ya29.a0AbVbY6abcdefghijkl",
    "1//0gabcdefghijklmnop",
    "eyJhbGciOi.eyJzdWIi.c2ln",
    "sess-abcdefghijklmnopqrst",
    "gho_abcdefghijklmnopqrst",
]


@pytest.mark.parametrize("key", LOGINS)
@pytest.mark.parametrize("provider", list(FORMS))
def test_a_login_is_refused_at_every_server(key: str, provider: Provider) -> None:
    named = AddressedModel(ModelRef(provider, MODEL), "http://127.0.0.1:9/v1", key)
    with pytest.raises(ConfigurationError, match="API key") as caught:
        Upstream.of(named)
    assert key not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "url", "is_allowed"),
    [
        ("sk-ant-api03-abc", "https://api.anthropic.com", True),
        ("anything-else", "https://api.anthropic.com", False),
        ("", "https://api.anthropic.com", False),
        ("sk-proj-abc", "https://api.openai.com/v1", True),
        ("sk-ant-api03-abc", "https://api.openai.com/v1", False),
        ("AIzaabc", "https://generativelanguage.googleapis.com/v1beta", True),
        ("sk-proj-abc", "https://generativelanguage.googleapis.com/v1beta", False),
        ("anything-else", "https://llm.example.org/v1", True),
        ("", "http://127.0.0.1:8080/v1", True),
    ],
)
def test_a_vendor_s_own_server_gets_only_what_looks_like_its_key(
    key: str,
    url: str,
    is_allowed: bool,  # noqa: FBT001  a column
) -> None:
    if is_allowed:
        require_api_key(key, url)
    else:
        with pytest.raises(ConfigurationError):
            require_api_key(key, url)


def test_a_recorded_run_is_no_upstream() -> None:
    with pytest.raises(ConfigurationError, match="name a model"):
        Upstream.of(AddressedModel(ModelRef(Provider.REPLAY, "run"), "", None))


# Reserved before, bounded, and refused where a cap is reached.


@EVERYONE
async def test_a_reached_cap_is_a_400_in_the_vendor_s_form_before_anything_is_sent(
    protocol: Protocol,
) -> None:
    async with rigged(protocol, limits=Limits(usd=500.0)) as rig:
        got = await rig.ask()
        assert got.status == 400
        error = got.json["error"]
        kind = error.get("status") if protocol is Protocol.GEMINI else error["type"]
        assert kind == ("FAILED_PRECONDITION" if protocol is Protocol.GEMINI else "invalid_request_error")
        assert "the cap of this task is reached" in words_of(got)
        assert "credit balance" not in words_of(got)
        assert rig.server.requests == []
        assert rig.relay.limit
        assert words_of(got) == f"the cap of this task is reached: {rig.relay.limit.detail}"
        assert [one.limit for one in rig.told(LimitReached)] == ["usd"]
        assert (await rig.ask(body_of(protocol, "x"))).status == 400
        assert len(rig.told(LimitReached)) == 1


async def test_of_twenty_at_once_one_goes_through_a_cap_of_one_request() -> None:
    cost = json.loads(render_whole(Protocol.CHAT, REPLY))
    cost["usage"]["cost"] = 2_000.0
    async with rigged(Protocol.CHAT, *[json_answer(cost)] * 20, limits=Limits(usd=2_100.0)) as rig:
        asked = [rig.ask(body_of(Protocol.CHAT, f"number {number}", stream=False)) for number in range(20)]
        statuses = sorted(got.status for got in await asyncio.gather(*asked))
        assert statuses == [200, *[400] * 19]
        assert len(rig.server.requests) == 1
        assert rig.budget.usd == 2_000.0


async def test_of_twenty_at_once_the_rounds_let_three_through() -> None:
    async with rigged(Protocol.CHAT, *[streamed(Protocol.CHAT)] * 20, limits=Limits(rounds=3)) as rig:
        asked = [rig.ask(body_of(Protocol.CHAT, f"number {number}")) for number in range(20)]
        statuses = sorted(got.status for got in await asyncio.gather(*asked))
        assert statuses == [*[200] * 3, *[400] * 17]
        assert len(rig.server.requests) == 3
        assert "3 of 3 rounds" in str(rig.relay.limit)


async def test_a_request_waits_if_only_another_one_that_runs_leaves_no_room() -> None:
    gate = threading.Event()
    answers = [streamed(Protocol.CHAT, gate=gate), streamed(Protocol.CHAT)]
    async with rigged(Protocol.CHAT, *answers, limits=Limits(tokens=9_000)) as rig:
        first = asyncio.create_task(rig.ask())
        await rig.until(lambda: bool(rig.told(TurnStarted)))
        second = asyncio.create_task(rig.ask(body_of(Protocol.CHAT, "second")))
        await rig.until(lambda: len(rig.relay._running) == 2)
        assert len(rig.told(TurnStarted)) == 1
        gate.set()
        assert [got.status for got in await asyncio.gather(first, second)] == [200, 200]


def relay_of(model: str, placeholder: str) -> Relay:
    named = AddressedModel(ModelRef(Provider.OPENAI_CHAT, model), "http://127.0.0.1:9/v1", KEY)
    return Relay(
        Upstream.of(named),
        budget=Budget(Limits(usd=1.0), ManualClock()),
        emit=list[Event]().append,
        redactor=Redactor(),
        placeholder=placeholder,
        clock=ManualClock(),
        random=lambda: 0.0,
    )


def test_a_cap_in_usd_needs_a_price() -> None:
    with pytest.raises(ConfigurationError, match="price of nobody-knows-it is unknown"):
        relay_of("nobody-knows-it", PLACEHOLDER)


@pytest.mark.parametrize("placeholder", ["", "guessed"])
def test_a_placeholder_that_can_be_guessed_is_refused(placeholder: str) -> None:
    with pytest.raises(ConfigurationError, match="too short"):
        relay_of("gpt-5.2", placeholder)


async def test_the_parent_of_a_budget_pays_too_and_stops_too() -> None:
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT)) as rig:
        rig.budget.parent = Budget(Limits(tokens=9_000), ManualClock())
        assert (await rig.ask()).status == 200
        assert rig.budget.parent.usage.total_tokens == 120
        rig.budget.parent.limits = Limits(tokens=200)
        assert (await rig.ask(body_of(Protocol.CHAT, "more"))).status == 400


async def test_minutes_that_are_over_stop_a_reply_in_the_middle() -> None:
    gate = threading.Event()
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT, gate=gate), limits=Limits(minutes=0.01)) as rig:
        got = await rig.ask()
        gate.set()
        assert (got.status, got.is_whole) == (200, False)
        assert "minutes" in str(rig.relay.limit)


def limit_in(protocol: Protocol, sent: Mapping[str, Any]) -> object:
    place = sent["generationConfig"] if protocol is Protocol.GEMINI else sent
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens")
    (limit,) = {place[name] for name in names if name in place}
    return limit


def with_limit(protocol: Protocol, value: object) -> dict[str, Any]:
    names = {
        Protocol.MESSAGES: "max_tokens",
        Protocol.CHAT: "max_tokens",
        Protocol.RESPONSES: "max_output_tokens",
    }
    more = (
        {"generationConfig": {"maxOutputTokens": value}}
        if protocol is Protocol.GEMINI
        else {names[protocol]: value}
    )
    return body_of(protocol, **more)


@EVERYONE
@pytest.mark.parametrize(
    ("asked", "sent"),
    [
        (64_000, 5_000),
        (5_000, 5_000),
        (300, 300),
        (None, 5_000),
        ("64000", 5_000),
        (1e300, 5_000),
        (True, 5_000),
        (-1, 1),
    ],
)
async def test_the_longest_reply_is_bounded_or_written_in(
    protocol: Protocol, asked: object, sent: int
) -> None:
    async with rigged(protocol, streamed(protocol), relay_limits={"output_tokens": 5_000}) as rig:
        assert (await rig.ask(with_limit(protocol, asked))).status == 200
        assert limit_in(protocol, rig.server.requests[0].body) == sent
        (started,) = rig.told(TurnStarted)
        assert started.tokens - sent < 1_000


async def test_a_budget_with_little_left_lowers_the_longest_reply() -> None:
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES), limits=Limits(tokens=2_000)) as rig:
        body = body_of(
            Protocol.MESSAGES, max_tokens=8_000, thinking={"type": "enabled", "budget_tokens": 4_000}
        )
        assert (await rig.ask(body)).status == 200
        sent = rig.server.requests[0].body
        assert 1_024 <= sent["max_tokens"] < 2_000
        assert sent["thinking"]["budget_tokens"] < sent["max_tokens"]


async def test_both_names_of_a_limit_are_bounded() -> None:
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT)) as rig:
        await rig.ask(body_of(Protocol.CHAT, max_tokens=9, max_completion_tokens=99_999))
        sent = rig.server.requests[0].body
        assert (sent["max_tokens"], sent["max_completion_tokens"]) == (9, 9)


async def test_what_a_server_has_counted_replaces_the_estimate() -> None:
    first = {
        "role": "user",
        "content": [{"type": "text", "text": "x " * 20_000, "cache_control": {"type": "ephemeral"}}],
    }
    again = {"role": "user", "content": [{"type": "text", "text": "x " * 20_000}]}
    second = [again, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "and now"}]
    async with rigged(Protocol.MESSAGES, *[streamed(Protocol.MESSAGES)] * 2) as rig:
        for said in ([first], second):
            assert (
                await rig.ask({"model": MODEL, "stream": True, "max_tokens": 100, "messages": said})
            ).status == 200
        before, after = (one.tokens for one in rig.told(TurnStarted))
        assert before > 20_000
        assert after < 500


async def test_a_picture_counts_as_a_picture() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000},
    }
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES)) as rig:
        await rig.ask(
            {
                **body_of(Protocol.MESSAGES, max_tokens=100),
                "messages": [{"role": "user", "content": [picture]}],
            }
        )
        assert rig.told(TurnStarted)[0].tokens < 2_000
        assert len(rig.server.requests[0].raw) > 400_000


# Fields that change the price, or let the vendor's server reach others.


@pytest.mark.parametrize(
    ("protocol", "more"),
    [
        (Protocol.MESSAGES, {"service_tier": "priority", "speed": "fast", "inference_geo": "us"}),
        (
            Protocol.CHAT,
            {"n": 50, "service_tier": "priority", "web_search_options": {}, "best_of": 9, "N": 7},
        ),
        (Protocol.RESPONSES, {"service_tier": "flex", "Max_Output_Tokens": 9, "context_management": [{}]}),
        (Protocol.GEMINI, {"generation_config": {"candidate_count": 9}, "serviceTier": "x", "model": "dear"}),
    ],
)
async def test_a_field_that_is_not_known_is_left_out_and_shown(
    protocol: Protocol, more: dict[str, Any]
) -> None:
    async with rigged(protocol, streamed(protocol)) as rig:
        assert (await rig.ask(body_of(protocol, **more))).status == 200
        assert not more.keys() & rig.server.requests[0].body.keys()
        told = " ".join(one.message for one in rig.told(Guarded))
        assert all(name in told for name in more)


SERVER_TOOLS = [
    (
        Protocol.MESSAGES,
        {"name": "read", "input_schema": {}},
        {"type": "web_search_20250305", "name": "web_search"},
    ),
    (
        Protocol.MESSAGES,
        {"type": "custom", "name": "read"},
        {"type": "code_execution_20250825", "name": "code"},
    ),
    (Protocol.CHAT, {"type": "function", "function": {"name": "read"}}, {"type": "web_search_preview"}),
    (
        Protocol.RESPONSES,
        {"type": "function", "name": "read"},
        {"type": "mcp", "server_url": "https://x.example"},
    ),
    (Protocol.RESPONSES, {"type": "custom", "name": "apply_patch"}, {"type": "code_interpreter"}),
    (Protocol.RESPONSES, {"type": "tool_search", "execution": "client"}, {"type": "tool_search"}),
    (Protocol.GEMINI, {"functionDeclarations": [{"name": "read"}]}, {"googleSearch": {}}),
    (Protocol.GEMINI, {"functionDeclarations": [{"name": "read"}]}, {"url_context": {}}),
]


@pytest.mark.parametrize(("protocol", "kept", "dropped"), SERVER_TOOLS)
async def test_a_tool_of_the_vendor_s_server_is_left_out(
    protocol: Protocol, kept: dict[str, Any], dropped: dict[str, Any]
) -> None:
    async with rigged(protocol, streamed(protocol)) as rig:
        assert (await rig.ask(body_of(protocol, tools=[dropped, kept]))).status == 200
        assert rig.server.requests[0].body["tools"] == [kept]
        assert rig.told(Guarded)


async def test_a_tool_beside_functions_is_left_out_of_gemini_s_entry_and_of_a_namespace() -> None:
    functions = {"functionDeclarations": [{"name": "read"}]}
    async with rigged(Protocol.GEMINI, streamed(Protocol.GEMINI)) as rig:
        await rig.ask(body_of(Protocol.GEMINI, tools=[{**functions, "codeExecution": {}}]))
        assert rig.server.requests[0].body["tools"] == [functions]
    space = {
        "type": "namespace",
        "name": "mcp__x",
        "tools": [{"type": "function", "name": "a"}, {"type": "mcp"}],
    }
    async with rigged(Protocol.RESPONSES, streamed(Protocol.RESPONSES)) as rig:
        await rig.ask(body_of(Protocol.RESPONSES, tools=[space]))
        assert rig.server.requests[0].body["tools"][0]["tools"] == [{"type": "function", "name": "a"}]


async def test_a_tool_that_was_found_by_a_search_is_left_out_too() -> None:
    found = [{"type": "function", "name": "a"}, {"type": "mcp", "server_url": "https://x.example"}]
    item = {"type": "tool_search_output", "execution": "client", "call_id": "c", "tools": found}
    async with rigged(Protocol.RESPONSES, streamed(Protocol.RESPONSES)) as rig:
        assert (await rig.ask({**body_of(Protocol.RESPONSES), "input": [item]})).status == 200
        assert rig.server.requests[0].body["input"] == [{**item, "tools": found[:1]}]
        assert "the tool mcp" in rig.told(Guarded)[0].message


def said(protocol: Protocol, part: dict[str, Any]) -> dict[str, Any]:
    name = "parts" if protocol is Protocol.GEMINI else "content"
    list_name = {Protocol.GEMINI: "contents", Protocol.RESPONSES: "input"}.get(protocol, "messages")
    return {**body_of(protocol), list_name: [{"role": "user", name: [part]}]}


@pytest.mark.parametrize(
    ("protocol", "body"),
    [
        (Protocol.RESPONSES, body_of(Protocol.RESPONSES, previous_response_id="resp_1")),
        (Protocol.RESPONSES, body_of(Protocol.RESPONSES, conversation="conv_1")),
        (Protocol.RESPONSES, body_of(Protocol.RESPONSES, background=True)),
        (
            Protocol.RESPONSES,
            {**body_of(Protocol.RESPONSES), "input": [{"type": "item_reference", "id": "x"}]},
        ),
        (
            Protocol.RESPONSES,
            said(Protocol.RESPONSES, {"type": "input_image", "image_url": "https://x.example/a"}),
        ),
        (
            Protocol.RESPONSES,
            said(Protocol.RESPONSES, {"type": "input_file", "file_url": "https://x.example/a"}),
        ),
        (Protocol.RESPONSES, said(Protocol.RESPONSES, {"type": "input_file", "file_id": "file_1"})),
        (
            Protocol.CHAT,
            said(Protocol.CHAT, {"type": "image_url", "image_url": {"url": "https://x.example/a"}}),
        ),
        (Protocol.CHAT, said(Protocol.CHAT, {"type": "file", "file": {"file_id": "file_1"}})),
        (Protocol.MESSAGES, body_of(Protocol.MESSAGES, mcp_servers=[{"url": "https://x.example"}])),
        (Protocol.MESSAGES, body_of(Protocol.MESSAGES, container="c")),
        (
            Protocol.MESSAGES,
            said(Protocol.MESSAGES, {"type": "image", "source": {"type": "url", "url": "https://x"}}),
        ),
        (
            Protocol.MESSAGES,
            said(Protocol.MESSAGES, {"type": "document", "source": {"type": "file", "file_id": "f"}}),
        ),
        (
            Protocol.MESSAGES,
            said(
                Protocol.MESSAGES,
                {
                    "type": "tool_result",
                    "tool_use_id": "t",
                    "content": [{"type": "image", "source": {"type": "url", "url": "https://x"}}],
                },
            ),
        ),
        (Protocol.GEMINI, body_of(Protocol.GEMINI, cachedContent="cachedContents/1")),
        (Protocol.GEMINI, body_of(Protocol.GEMINI, cached_content="cachedContents/1")),
        (Protocol.GEMINI, said(Protocol.GEMINI, {"fileData": {"fileUri": "https://x.example/a"}})),
        (Protocol.GEMINI, said(Protocol.GEMINI, {"file_data": {"file_uri": "gs://x/a"}})),
    ],
)
async def test_what_only_the_vendor_has_or_would_fetch_is_refused(
    protocol: Protocol, body: dict[str, Any]
) -> None:
    async with rigged(protocol, streamed(protocol)) as rig:
        got = await rig.ask(body)
        assert got.status == 403
        assert rig.server.requests == []


async def test_an_address_in_the_arguments_of_a_call_is_only_text() -> None:
    call = {
        "type": "tool_use",
        "id": "t",
        "name": "fetch",
        "input": {"type": "url", "url": "https://x", "file_id": "f"},
    }
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES)) as rig:
        body = {**body_of(Protocol.MESSAGES), "messages": [{"role": "assistant", "content": [call]}]}
        assert (await rig.ask(body)).status == 200
        assert rig.server.requests[0].body["messages"] == body["messages"]


def _streaming(body: Mapping[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in ("stream_options",) if name in body}


def test_a_tool_of_the_vendor_s_is_left_out_of_a_namespace_inside_another_one() -> None:
    function = {"type": "function", "name": "look"}
    inner = {"type": "namespace", "name": "inner", "tools": [function, {"type": "web_search"}]}
    body = {"model": MODEL, "input": [], "tools": [{"type": "namespace", "name": "outer", "tools": [inner]}]}
    reader = RequestReader(FORMS[Provider.OPENAI_RESPONSES], Redactor())
    (outer,) = json.loads(reader.read(Asked(), json.dumps(body).encode()).content(9, {}))["tools"]
    assert outer["tools"] == [{**inner, "tools": [function]}]


def test_text_that_one_parser_refuses_is_read_by_the_other() -> None:
    # Halves of characters, and bytes that are no UTF-8: agents send what files and commands gave.
    for given, passed in (
        (b'"\\ud83d"', "\ufffd"),
        (b'"\xff"', "\ufffd"),
        (b"1.0", 1.0),
        (b'"caf\xc3\xa9"', "caf\u00e9"),
    ):
        body = b'{"model": "%s", "input": [], "metadata": {"x": %s}}' % (MODEL.encode(), given)
        request = RequestReader(FORMS[Provider.OPENAI_RESPONSES], Redactor()).read(Asked(), body)
        assert json.loads(request.content(9, {}))["metadata"] == {"x": passed}


async def test_settings_that_cannot_be_used_are_told_before_an_agent_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ALL_PROXY", "rubbish://nowhere")
    async with rigged(Protocol.MESSAGES) as rig:
        with pytest.raises(ConfigurationError, match="proxy"):
            await rig.relay.open()


WIRE = Path(__file__).parents[2] / "data" / "wire"


@EVERYONE
def test_what_vendors_know_is_passed_on_as_it_is(protocol: Protocol) -> None:
    form = FORMS[PROVIDERS[protocol]]
    for file in sorted((WIRE / protocol).glob("*.json")):
        body = json.loads(file.read_text("utf-8"))["body"]
        request = RequestReader(form, Redactor()).read(Asked(), json.dumps(body).encode())
        limits = dict.fromkeys(form.limits[:1], 9)
        ours = {form.inside: limits} if form.inside else {**limits, **_streaming(body)}
        passed = json.loads(request.content(9, ours))
        for one in (passed, body):
            place = one.get(form.inside, {}) if form.inside else one
            assert {name for name in form.limits if name in place} or one is body
            for name in form.limits:
                place.pop(name, None)
        told = set(request.left_out)
        assert told <= {"the field service_tier", "the tool googleSearch", "the tool web_search"}, file.name
        if not told:
            assert {**passed, form.inside: passed.get(form.inside, {})} == {
                **body,
                form.inside: body.get(form.inside, {}),
            }, file.name


# Secrets.


@EVERYONE
async def test_a_known_secret_in_a_request_is_removed_wherever_it_is(protocol: Protocol) -> None:
    async with rigged(protocol, streamed(protocol)) as rig:
        systems: dict[Protocol, dict[str, Any]] = {
            Protocol.MESSAGES: {"system": [{"type": "text", "text": SECRET}]},
            Protocol.CHAT: {"user": SECRET},
            Protocol.RESPONSES: {"instructions": f"Use {SECRET}."},
            Protocol.GEMINI: {"systemInstruction": {"parts": [{"text": SECRET}]}},
        }
        got = await rig.ask(body_of(protocol, f"the password is {SECRET}", **systems[protocol]))
        assert got.status == 200
        raw = rig.server.requests[0].raw
        assert SECRET.encode() not in raw
        assert raw.count(b"[redacted]") == 2


async def test_ids_and_what_the_vendor_wants_back_stay() -> None:
    signature = "ghp_" + "Ab1" * 12
    said_before: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": f"it is {SECRET}", "signature": signature},
        {"type": "tool_use", "id": "toolu_" + "A1b" * 12, "name": "read", "input": {"id": SECRET}},
    ]
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES)) as rig:
        await rig.ask(
            {**body_of(Protocol.MESSAGES), "messages": [{"role": "assistant", "content": said_before}]}
        )
        thought, call = rig.server.requests[0].body["messages"][0]["content"]
        assert (thought["signature"], call["id"]) == (signature, said_before[1]["id"])
        assert SECRET not in json.dumps([thought, call])


def test_a_conversation_that_grows_is_read_as_one_that_is_new() -> None:
    """Its entries of the last request are only compared, also where marks move, and where something was changed."""
    redactor = Redactor([SECRET])
    form, marked = FORMS[Provider.ANTHROPIC], {"cache_control": {"type": "ephemeral"}}
    warm = RequestReader(form, redactor)
    said: list[dict[str, Any]] = []

    def entry(number: int, *, has_mark: bool) -> dict[str, Any]:
        part = {"type": "text", "text": f"{number} {SECRET if number % 3 == 0 else 'plain'}"}
        return {"role": "user", "content": [part | (marked if has_mark else {})]}

    for number in range(12):
        said = [entry(at, has_mark=at == number) for at in range(number + 1)]
        if number == 8:
            said[4] = entry(40, has_mark=False)
        for listed in (said, [entry(100, has_mark=False), *said[1:3]]):
            body = json.dumps({"model": MODEL, "max_tokens": 9, "messages": listed}).encode()
            ours, fresh = (one.read(Asked(), body) for one in (warm, RequestReader(form, redactor)))
            assert ours.content(9, {}) == fresh.content(9, {})
            assert (ours.identity, ours.tokens) == (fresh.identity, fresh.tokens)
            assert SECRET.encode() not in ours.content(9, {})


async def test_a_secret_that_is_learnt_later_is_removed_from_what_was_clean_before() -> None:
    async with rigged(Protocol.CHAT, *[streamed(Protocol.CHAT)] * 2) as rig:
        later = "another-very-secret-value-0815"
        await rig.ask(body_of(Protocol.CHAT, later))
        rig.relay._reader._redactor.learn([later])
        await rig.ask(body_of(Protocol.CHAT, later, temperature=0))
        assert [later.encode() in one.raw for one in rig.server.requests] == [True, False]


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_an_error_that_repeats_the_key_reaches_the_agent_without_it(status: int) -> None:
    error = {"error": {"message": f"the key {KEY} is wrong", "type": "invalid_request_error"}}
    async with rigged(Protocol.CHAT, json_answer(error, status=status)) as rig:
        got = await rig.ask()
        assert got.status == 400
        assert KEY.encode() not in got.body
        assert b"is wrong" in got.body
        assert KEY not in repr(rig.events)
        assert KEY not in str(rig.relay.failure)


async def test_a_reply_that_repeats_the_key_passes_without_it() -> None:
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n' % KEY.encode()
    whole = event + render(Protocol.CHAT, VendorReply((Text("I think"),)))
    async with rigged(Protocol.CHAT, sse_answer(whole)) as rig:
        got = await rig.ask()
        assert (got.is_whole, got.body) == (True, whole.replace(KEY.encode(), b"[redacted]"))
        assert KEY not in repr(rig.events)


@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
async def test_a_key_that_comes_in_pieces_is_removed(size: int) -> None:
    passed: list[bytes] = []

    async def send(message: Message) -> None:
        passed.append(message.get("body", b""))

    reply = _Reply(send, secret_forms(KEY))
    text = f"{KEY} and {KEY[:9]} and {KEY}{KEY[:-1]} and {quote(KEY)} and {KEY[:5]}".encode()
    await reply.begin()
    for at in range(0, len(text), size):
        await reply.take(text[at : at + size])
    await reply.end()
    assert b"".join(passed) == text.replace(KEY.encode(), b"[redacted]")


async def test_headers_of_the_server_stay_behind() -> None:
    answer = streamed(
        Protocol.CHAT, headers={"set-cookie": "a=b", "openai-organization": "org", "x-key": KEY}
    )
    async with rigged(Protocol.CHAT, answer) as rig:
        got = await rig.ask()
        assert not {"set-cookie", "openai-organization", "x-key", "server", "date"} & got.headers.keys()


# Waits are the relay's.


@pytest.mark.parametrize("status", [429, 500, 503, 529])
async def test_a_busy_server_is_asked_again_and_the_agent_sees_only_the_end(status: int) -> None:
    busy = json_answer({"error": {"message": "busy"}}, status=status, headers={"retry-after": "7"})
    async with rigged(Protocol.MESSAGES, busy, busy, streamed(Protocol.MESSAGES)) as rig:
        got = await rig.ask()
        assert (got.status, got.body) == (200, render(Protocol.MESSAGES, REPLY))
        assert len(rig.server.requests) == 3
        assert [one.seconds for one in rig.told(WaitStarted)] == [7.25, 7.5]
        assert rig.budget.rounds == 1
        assert len(rig.told(ReplyReceived)) == 1


async def test_a_connection_that_breaks_before_the_first_event_is_tried_again_and_may_be_billed() -> None:
    cut = streamed(Protocol.MESSAGES, cut_after=0)
    async with rigged(Protocol.MESSAGES, cut, streamed(Protocol.MESSAGES)) as rig:
        got = await rig.ask()
        assert (got.status, got.is_whole) == (200, True)
        (wait,) = rig.told(WaitStarted)
        assert wait.tokens > 8_000
        assert rig.budget.uncertain_tokens == wait.tokens


async def test_an_attempt_that_may_be_billed_may_leave_no_room_for_another() -> None:
    cut = streamed(Protocol.MESSAGES, cut_after=0)
    async with rigged(
        Protocol.MESSAGES, cut, streamed(Protocol.MESSAGES), limits=Limits(tokens=12_000)
    ) as rig:
        got = await rig.ask()
        assert got.status == 400
        assert "12,000 tokens" in words_of(got)
        assert len(rig.server.requests) == 1
        assert 8_000 < rig.budget.uncertain_tokens < 12_000


async def test_an_error_in_place_of_the_first_event_is_tried_again() -> None:
    event = (
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    )
    async with rigged(Protocol.MESSAGES, sse_answer(event), streamed(Protocol.MESSAGES)) as rig:
        got = await rig.ask()
        assert (got.status, got.body) == (200, render(Protocol.MESSAGES, REPLY))


@EVERYONE
async def test_a_server_that_stays_busy_ends_in_a_400(protocol: Protocol) -> None:
    busy = json_answer({"error": {"message": "still busy"}}, status=503)
    async with rigged(protocol, *[busy] * 9) as rig:
        got = await rig.ask()
        assert got.status == 400
        assert "still busy" in words_of(got)
        assert got.headers["x-should-retry"] == "false"
        assert len(rig.server.requests) == 5
        assert rig.budget.usd == 0.0
        assert rig.relay.limit is None
        assert rig.relay.failure is not None
        assert rig.told(ReplyReceived) == []


async def test_a_wait_that_is_too_long_is_left_to_the_session() -> None:
    busy = json_answer({"error": {"message": "busy"}}, status=429, headers={"retry-after": "600"})
    async with rigged(Protocol.CHAT, busy) as rig:
        assert (await rig.ask()).status == 400
        assert len(rig.server.requests) == 1
        assert getattr(rig.relay.failure, "resume_at", None) is not None


async def test_a_server_that_is_not_there_ends_in_a_400_without_the_key() -> None:
    async with rigged(Protocol.CHAT, options=HttpOptions(tries=2)) as rig:
        rig.server._http.server_close()
        rig.server._http.shutdown()
        got = await rig.ask()
        assert got.status == 400
        assert "cannot connect" in words_of(got)


async def test_what_the_relay_added_and_the_server_refuses_is_left_out() -> None:
    def refused(words: str) -> Answer:
        return json_answer({"error": {"message": words, "type": "invalid_request_error"}}, status=400)

    answers = [
        refused("Unrecognized request argument supplied: stream_options"),
        refused("max_tokens is too large: 8192. This model supports at most 4096 completion tokens"),
        *[streamed(Protocol.CHAT)] * 2,
    ]
    async with rigged(Protocol.CHAT, *answers) as rig:
        assert (await rig.ask()).status == 200
        assert (await rig.ask(body_of(Protocol.CHAT, "again"))).status == 200
        sent = [(one.body.get("max_tokens"), "stream_options" in one.body) for one in rig.server.requests]
        assert sent == [(8_192, True), (8_192, False), (4_096, False), (4_096, False)]
        assert rig.relay.failure is None


async def test_the_vendor_s_own_words_reach_an_agent_whose_request_was_wrong() -> None:
    error = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"},
    }
    async with rigged(Protocol.MESSAGES, json_answer(error, status=400), streamed(Protocol.MESSAGES)) as rig:
        got = await rig.ask()
        assert (got.status, got.json) == (400, error)
        assert rig.relay.failure is not None
        assert (await rig.ask(body_of(Protocol.MESSAGES, "shorter"))).status == 200
        assert rig.relay.failure is None


async def test_an_agent_that_leaves_in_a_wait_ends_it() -> None:
    class Slow(ManualClock):
        waiting = asyncio.Event()

        async def sleep(self, seconds: float) -> None:
            del seconds
            self.waiting.set()
            await asyncio.Event().wait()

    busy = json_answer({"error": {"message": "busy"}}, status=503)
    async with rigged(Protocol.CHAT, busy) as rig:
        rig.relay.clock = clock = Slow()
        _, writer = await rig.open(rig.request())
        await asyncio.wait_for(clock.waiting.wait(), 60)
        writer.transport.abort()
        await rig.idle()
        assert rig.budget.reserved == set()


# A reply that breaks never ends tidily.


@EVERYONE
@pytest.mark.parametrize("ends_tidily", [False, True])
async def test_a_broken_stream_is_a_broken_connection(protocol: Protocol, ends_tidily: bool) -> None:  # noqa: FBT001  a case
    whole = render(protocol, REPLY)
    pieces = [part + b"\n\n" for part in whole.split(b"\n\n") if part.strip()]
    # Without the end: of Gemini's stream only the last event has it.
    begun = pieces[: len(pieces) // 2]
    answer = sse_answer(b"".join(begun)) if ends_tidily else sse_answer(whole, cut_after=len(begun))
    async with rigged(protocol, answer) as rig:
        got = await rig.ask()
        assert (got.status, got.is_whole, got.body) == (200, False, b"".join(begun))
        assert len(rig.server.requests) == 1
        assert "broke off" in rig.told(Warned)[0].message
        assert rig.budget.uncertain_tokens > 0
        assert rig.budget.reserved == set()


async def test_the_connection_of_a_broken_stream_is_reset() -> None:
    async with rigged(Protocol.MESSAGES, streamed(Protocol.MESSAGES, cut_after=3)) as rig:
        # A client of HTTP/1.0 gets no chunks, so that only a reset tells it.
        reader, writer = await rig.open(rig.request().replace(b"HTTP/1.1", b"HTTP/1.0"))
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(), 60)
        writer.transport.abort()


async def test_an_error_in_the_middle_passes_and_then_the_connection_breaks() -> None:
    pieces = [part + b"\n\n" for part in render(Protocol.MESSAGES, REPLY).split(b"\n\n") if part.strip()][:4]
    error = (
        b'event: error\ndata: {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}\n\n'
    )
    async with rigged(Protocol.MESSAGES, sse_answer(b"".join([*pieces, error]))) as rig:
        got = await rig.ask()
        assert (got.is_whole, got.body) == (False, b"".join([*pieces, error]))


@EVERYONE
async def test_the_fourth_identical_request_is_refused(protocol: Protocol) -> None:
    async with rigged(protocol, *[streamed(protocol)] * 9) as rig:
        statuses = [(await rig.ask()).status for _ in range(5)]
        assert statuses == [200, 200, 200, 400, 400]
        assert len(rig.server.requests) == 3
        assert len(rig.told(Guarded)) == 1
        assert (await rig.ask(body_of(protocol, "another"))).status == 200


async def test_the_same_without_streaming_is_the_same_request() -> None:
    answers = [streamed(Protocol.CHAT), *[json_answer(render_whole(Protocol.CHAT, REPLY))] * 9]
    async with rigged(Protocol.CHAT, *answers) as rig:
        statuses = [(await rig.ask(body_of(Protocol.CHAT, stream=number == 0))).status for number in range(4)]
        assert statuses == [200, 200, 200, 400]


# Clients that do not do what they should.


async def test_an_agent_that_leaves_ends_the_request_and_pays_what_came() -> None:
    gate = threading.Event()
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT, gate=gate)) as rig:
        reader, writer = await rig.open(rig.request())
        await asyncio.wait_for(reader.readuntil(b"I read."), 60)
        writer.transport.abort()
        await rig.idle()
        gate.set()
        assert rig.told(ReplyReceived) == []
        assert rig.budget.reserved == set()
        assert 0 < rig.budget.uncertain_tokens < 1_000


async def test_closing_breaks_what_runs() -> None:
    gate = threading.Event()
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT, gate=gate)) as rig:
        reader, writer = await rig.open(rig.request())
        await asyncio.wait_for(reader.readuntil(b"I read."), 60)
        closing = asyncio.create_task(rig.relay.close())
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 60)
        await closing
        gate.set()
        writer.transport.abort()
        assert rig.budget.reserved == set()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"messages": 1}',
        b'{"messages": [1]}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b"\xff",
        b"NaN",
    ],
)
async def test_a_body_that_is_no_request_is_a_400(body: bytes) -> None:
    async with rigged(Protocol.CHAT) as rig:
        assert (await rig.ask(body)).status == 400
        assert rig.server.requests == []


async def test_a_body_that_is_too_long_is_not_read() -> None:
    async with rigged(Protocol.CHAT, relay_limits={"body_bytes": 1_000}) as rig:
        assert (await rig.ask(body_of(Protocol.CHAT, "x" * 2_000))).status == 413
        assert rig.server.requests == []


async def test_bodies_together_are_bounded() -> None:
    async with rigged(Protocol.CHAT, relay_limits={"body_bytes": 10_000}) as rig:
        half = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\n" + b" " * 9_000
        held = [await rig.open(half) for _ in range(5)]
        asked = [asyncio.create_task(received(reader)) for reader, _ in held]
        done, others = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED, timeout=60)
        assert [task.result().status for task in done] == [413]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for _, writer in held:
            writer.transport.abort()


async def test_a_compressed_request_is_refused() -> None:
    async with rigged(Protocol.CHAT) as rig:
        raw = gzip.compress(json.dumps(body_of(Protocol.CHAT)).encode())
        assert (await rig.ask(raw, headers={"content-encoding": "gzip"})).status == 400


async def test_a_thousand_connections_do_not_keep_the_agent_out() -> None:
    async with rigged(Protocol.CHAT, streamed(Protocol.CHAT)) as rig:
        held = [await rig.open(b"POST /v1/chat") for _ in range(1_000)]
        assert (await rig.ask()).status == 200
        for _, writer in held:
            writer.transport.abort()


async def test_a_second_request_in_the_pipeline_waits_for_nobody() -> None:
    async with rigged(Protocol.CHAT, *[streamed(Protocol.CHAT)] * 2) as rig:
        reader, writer = await rig.open(rig.request() + rig.request(body_of(Protocol.CHAT, "second")))
        got = await received(reader)
        assert (got.status, got.is_whole) == (200, True)
        writer.transport.abort()
        assert len(rig.server.requests) == 1


async def test_an_agent_that_asks_without_end_is_stopped() -> None:
    async with rigged(Protocol.CHAT, relay_limits={"refused_requests": 5}) as rig:
        for number in range(5):
            assert (await rig.ask(path=f"/v1/{number}")).status == 403
        assert rig.told(LimitReached) == []
        assert (await rig.ask()).status == 400
        assert "5 requests" in str(rig.relay.limit)
        assert rig.server.requests == []


# The vendors' own clients, which the agents are built on.


async def said_by_client(protocol: Protocol, port: int) -> str:
    """Ask with the vendor's own client; return the text of its stream."""
    root = f"http://127.0.0.1:{port}"
    if protocol is Protocol.MESSAGES:
        import anthropic

        async with anthropic.AsyncAnthropic(api_key=PLACEHOLDER, base_url=root, max_retries=0) as messages:
            asked = [{"role": "user", "content": "Hello"}]
            async with messages.messages.stream(model=MODEL, max_tokens=99, messages=asked) as stream:  # type: ignore[arg-type]
                return await stream.get_final_text()
    if protocol is Protocol.GEMINI:
        from google import genai
        from google.genai import types

        options = types.HttpOptions(base_url=root, api_version="v1beta")
        async with genai.Client(api_key=PLACEHOLDER, http_options=options).aio as gemini:
            chunks = await gemini.models.generate_content_stream(model=MODEL, contents="Hello")
            return "".join([chunk.text or "" async for chunk in chunks])
    import openai

    async with openai.AsyncOpenAI(api_key=PLACEHOLDER, base_url=f"{root}/v1", max_retries=0) as client:
        if protocol is Protocol.CHAT:
            chat = await client.chat.completions.create(
                model=MODEL, messages=[{"role": "user", "content": "Hello"}], stream=True
            )
            return "".join([piece.choices[0].delta.content or "" async for piece in chat if piece.choices])
        events = await client.responses.create(model=MODEL, input="Hello", stream=True)
        return "".join([event.delta async for event in events if event.type == "response.output_text.delta"])


@EVERYONE
async def test_the_vendor_s_own_client_reads_a_reply_a_refusal_and_a_break(protocol: Protocol) -> None:
    reply = VendorReply((Text("I read. " * 40),))
    cut = streamed(protocol, reply, cut_after=4)
    async with rigged(protocol, streamed(protocol, reply), cut, limits=Limits(rounds=2)) as rig:
        assert await said_by_client(protocol, rig.port) == "I read. " * 40
        with pytest.raises(Exception):  # noqa: B017, PT011  each client has its own, and what counts is that it has one
            await said_by_client(protocol, rig.port)
        assert "broke off" in rig.told(Warned)[0].message
        with pytest.raises(Exception, match="2 of 2 rounds are used") as caught:
            await said_by_client(protocol, rig.port)
        assert 400 in {getattr(caught.value, "status_code", 0), getattr(caught.value, "code", 0)}
