"""What a model says, in the words of every protocol: over HTTP into our decoder, and into the vendor's parser."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.messages import FinishReason, Message, Reasoning, Text, ToolCall, Usage
from orchestrator.engine.models.base import INVALID_ARGUMENTS, Completed, ReasoningPiece, Request, TextPiece
from tests.conformance.model_cases import KEY, model_at, wire_at
from tests.conformance.vendor_parsers import Seen, seen_by_us, seen_by_vendor
from tests.doubles.sse_server import SseServer, json_answer, sse_answer
from tests.doubles.vendor_replies import (
    ID,
    MODEL,
    Protocol,
    Thought,
    VendorReply,
    render,
    render_whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.engine.models.base import Response

ASK = Request("Be brief.", (Message.user("Hello"),))
EVERYONE = frozenset(Protocol)
READ = ToolCall("call_1", "read_file", {"path": "ä/b.py", "lines": [1, 2.5, None], "deep": {"a": "“x”\n"}})
LIST = ToolCall("call_2", "list_dir", {})
WRITE = ToolCall("call_3", "write_file", {INVALID_ARGUMENTS: '{"path": "a.py", "content": "x = '})
COUNTED = Usage(1_000, 90, cached_input_tokens=600, cache_write_tokens=300, reasoning_tokens=70)


@dataclass(frozen=True, slots=True)
class ReplyCase:
    """A reply, and the protocols that have words for it."""

    reply: VendorReply
    protocols: frozenset[Protocol] = EVERYONE


REPLIES = {
    "text": ReplyCase(VendorReply((Text("It prints the numbers from one to ten."),))),
    "unicode": ReplyCase(VendorReply((Text("naïve — 你好, 😀👩‍👩‍👧 \u2028 \r\n\tend \x7f"),))),
    "nothing": ReplyCase(VendorReply(())),
    "reasoning": ReplyCase(VendorReply((Thought("I should look — first.", "c2ln"), Text("I look.")))),
    "call": ReplyCase(VendorReply((READ,))),
    "calls": ReplyCase(VendorReply((READ, LIST, replace(READ, id="call_4")))),
    "text and calls": ReplyCase(VendorReply((Text("I read both."), READ, LIST))),
    "everything": ReplyCase(VendorReply((Thought("Hm.", "c2ln"), Text("I read."), READ, LIST))),
    "no arguments": ReplyCase(VendorReply((LIST,))),
    "cut text": ReplyCase(VendorReply((Text("It prints the num"),), FinishReason.LENGTH)),
    "cut call": ReplyCase(
        VendorReply((Text("I write."), WRITE), FinishReason.LENGTH), EVERYONE - {Protocol.GEMINI}
    ),
    "refusal": ReplyCase(
        VendorReply((Text("I will not do that."),), FinishReason.REFUSAL), EVERYONE - {Protocol.GEMINI}
    ),
    "content filter": ReplyCase(
        VendorReply((Text("To make a b"),), FinishReason.CONTENT_FILTER), EVERYONE - {Protocol.MESSAGES}
    ),
    "pause": ReplyCase(
        VendorReply((Text("I search on."),), FinishReason.PAUSE), frozenset((Protocol.MESSAGES,))
    ),
    "counts": ReplyCase(VendorReply((Thought("Hm."), Text("Ten.")), usage=COUNTED)),
    "noise": ReplyCase(VendorReply((Thought("Hm.", "c2ln"), Text("I read."), READ, LIST), noise=True)),
}
CASES = [
    pytest.param(protocol, case.reply, id=f"{name}-{protocol}")
    for name, case in REPLIES.items()
    for protocol in Protocol
    if protocol in case.protocols
]
every_case = pytest.mark.parametrize(("protocol", "reply"), CASES)


def expected(protocol: Protocol, reply: VendorReply) -> Seen:
    """What every parser is to see."""
    usage = replace(reply.usage, cache_write_tokens=0) if protocol is Protocol.GEMINI else reply.usage
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    return Seen(
        thoughts="".join(part.text for part in reply.parts if isinstance(part, Thought)),
        text="".join(part.text for part in reply.parts if isinstance(part, Text)),
        calls=tuple((call.id, call.name, "cut" if call is WRITE else call.arguments) for call in calls),
        usage=usage,
        model=MODEL,
        id=ID,
    )


@pytest.fixture(scope="module")
def running() -> Iterator[SseServer]:
    with SseServer() as started:
        yield started


@pytest.fixture
def server(running: SseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SseServer:
    # Nothing is encrypted here, and each client would read all of the machine's certificates.
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    running.answers.clear()
    running.requests.clear()
    return running


async def ask(protocol: Protocol, server: SseServer, *, stream: bool) -> tuple[Response, str, str]:
    """The reply, and the text and the reasoning that came in pieces."""
    async with aclosing(model_at(protocol, server.url)) as model:
        if not stream:
            return await model.complete(ASK), "", ""
        *pieces, last = [event async for event in model.stream(ASK)]
    assert isinstance(last, Completed)
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece))
    return last.response, text, "".join(piece.text for piece in pieces if isinstance(piece, ReasoningPiece))


@every_case
async def test_a_stream(protocol: Protocol, reply: VendorReply, server: SseServer) -> None:
    raw = render(protocol, reply)
    server.answers.append(sse_answer(raw))
    response, text, thoughts = await ask(protocol, server, stream=True)
    ours = seen_by_us(response)
    assert ours == expected(protocol, reply) == seen_by_vendor(protocol, raw, stream=True)
    assert (text, thoughts) == (ours.text, ours.thoughts)
    assert response.finish is reply.reason
    assert order_of(response) == [type(part).__name__ for part in reply.parts]
    assert len(server.requests) == 1


@every_case
async def test_a_whole_reply(protocol: Protocol, reply: VendorReply, server: SseServer) -> None:
    raw = render_whole(protocol, reply)
    server.answers.append(json_answer(raw))
    response, _, _ = await ask(protocol, server, stream=False)
    assert seen_by_us(response) == expected(protocol, reply) == seen_by_vendor(protocol, raw, stream=False)
    assert response.finish is reply.reason
    assert order_of(response) == [type(part).__name__ for part in reply.parts]
    assert len(server.requests) == 1


def order_of(response: Response) -> list[str]:
    names = {Reasoning: "Thought", Text: "Text", ToolCall: "ToolCall"}
    return [names[type(part)] for part in response.message.parts if type(part) in names]


@pytest.mark.parametrize("protocol", [Protocol.CHAT, Protocol.RESPONSES, Protocol.MESSAGES])
async def test_a_cut_call_keeps_what_came_of_its_arguments(protocol: Protocol, server: SseServer) -> None:
    server.answers.append(sse_answer(render(protocol, REPLIES["cut call"].reply)))
    response, _, _ = await ask(protocol, server, stream=True)
    assert response.tool_calls == (WRITE,)


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("name", ["everything", "noise"])
async def test_a_stream_and_a_whole_reply_are_the_same(
    protocol: Protocol, name: str, server: SseServer
) -> None:
    reply = REPLIES[name].reply
    server.answers += [sse_answer(render(protocol, reply)), json_answer(render_whole(protocol, reply))]
    streamed, _, _ = await ask(protocol, server, stream=True)
    whole, _, _ = await ask(protocol, server, stream=False)
    assert streamed == whole  # what goes back to the vendor included


@pytest.mark.parametrize("protocol", list(Protocol))
@pytest.mark.parametrize("stream", [True, False])
async def test_over_http_goes_what_was_pinned(protocol: Protocol, server: SseServer, *, stream: bool) -> None:
    reply = VendorReply((Text("Hi"),))
    answer = sse_answer(render(protocol, reply)) if stream else json_answer(render_whole(protocol, reply))
    server.answers.append(answer)
    await ask(protocol, server, stream=stream)
    (posted,) = server.requests
    wire = wire_at(protocol, server.url)
    sent = wire.encode(ASK, stream=stream)
    assert posted.raw == sent.content
    assert server.url + posted.path == sent.url
    wanted = {**sent.headers, **wire.credentials(KEY), "content-type": "application/json"}
    assert posted.headers.items() >= wanted.items()
    assert posted.headers["user-agent"].startswith("pullwright/")
