"""What a model says, once, in the words of each wire protocol: as a whole JSON document or as a stream.

::

    reply = VendorReply((Thought("Hm.", "c2ln"), Text("I read."), ToolCall("c1", "read_file", {"path": "a"})))
    with SseServer([sse_answer(render(Protocol.MESSAGES, reply))]) as server:
        ...

`render` gives the bytes of an event stream, `render_whole` those of a reply that is not streamed. Neither
looks at the request. A session is played by a list of replies, one for each request.
"""

from __future__ import annotations

from tests.doubles.vendor_nouns import (
    ID,
    MODEL,
    NOISE,
    USAGE,
    Protocol,
    Thought,
    VendorPart,
    VendorReply,
    json_text,
)
from tests.doubles.vendor_openai import stream_chat, stream_responses, whole_chat, whole_responses
from tests.doubles.vendor_others import stream_gemini, stream_messages, whole_gemini, whole_messages

__all__ = [
    "ID",
    "MODEL",
    "NOISE",
    "USAGE",
    "Protocol",
    "Thought",
    "VendorPart",
    "VendorReply",
    "render",
    "render_whole",
]


def render(protocol: Protocol, reply: VendorReply) -> bytes:
    """The reply as the body of an event stream."""
    stream = {
        Protocol.CHAT: stream_chat,
        Protocol.RESPONSES: stream_responses,
        Protocol.MESSAGES: stream_messages,
        Protocol.GEMINI: stream_gemini,
    }
    return b"".join(stream[protocol](reply))


def render_whole(protocol: Protocol, reply: VendorReply) -> bytes:
    """The reply as the body of an answer that is not streamed."""
    whole = {
        Protocol.CHAT: whole_chat,
        Protocol.RESPONSES: whole_responses,
        Protocol.MESSAGES: whole_messages,
        Protocol.GEMINI: whole_gemini,
    }
    noise = NOISE if reply.noise else {}
    return json_text({**whole[protocol](reply), **noise}).encode()
