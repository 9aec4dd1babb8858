"""Serves the session's tools to a program over HTTP: the Model Context Protocol in the form `Streamable HTTP`.

https://modelcontextprotocol.io/specification/2025-06-18/basic/transports

Calls run by the session's own runner: checked, asked of the gate, told in events, and answered as to a model. The
answer to a call is a stream that begins at once, because programs wait for the first byte of an answer for minutes
only, and tests may take longer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from typing import TYPE_CHECKING, Any

from orchestrator.core.http_server import ServerLimits
from orchestrator.core.messages import ToolCall
from orchestrator.engine.tools.base import Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from orchestrator.engine.session.calls import CallEnd, ToolRunner
    from orchestrator.engine.tools.base import Ends

MOST_ANSWER_CHARS = 9_500
"""One program cuts what is longer than 10,000 characters."""
_PING_SECONDS = 15.0
_STOP_SECONDS = 60.0
"""Time in which the program is stopped after a call that ends the session."""
_MOST_AT_ONCE = 8
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_LATEST = "2025-06-18"
_NOT_FOUND, _INVALID = -32601, -32602
LIMITS = ServerLimits(
    connections=64,
    streams=32,
    body_bytes=4 << 20,
    head_seconds=600.0,
    answer_seconds=60.0,
    stream_seconds=86_400.0,
    end_seconds=0.1,
)
"""Programs keep connections open, and a call may take as long as the tests. At the end no program is there any more, and
the call that ended the session still waits."""


class HostTools:
    """The tools of one session as an ASGI application.

    Args:
        runner: runs the calls.
        token: what the program has to send with each request.
        instructions: text for the program's model.
        changed: called before each call, because the program may have changed files by itself.

    Attributes:
        ending: the end of the session that a call caused; None before that.
        ended: set at that moment.
    """

    def __init__(
        self, runner: ToolRunner, token: str, instructions: str, changed: Callable[[], None] = lambda: None
    ) -> None:
        self._runner, self._token, self._instructions, self._changed = runner, token, instructions, changed
        self._alone, self._together = asyncio.Lock(), asyncio.Semaphore(_MOST_AT_ONCE)
        self._calls: dict[str, asyncio.Task[CallEnd]] = {}
        self._count = 0
        self.ending: Ends | None = None
        self.ended = asyncio.Event()
        self.error: BaseException | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        headers = dict(scope["headers"])
        given = headers.get(b"authorization", b"")
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            return await _respond(send, 401)
        if scope["method"] != "POST":
            return await _respond(send, 405 if scope["method"] == "GET" else 200)
        body = (await receive()).get("body", b"")
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            message = None
        if not isinstance(message, dict):
            return await _respond(send, 400)
        return await self._take(message, send)

    async def _take(self, message: dict[str, Any], send: Send) -> None:
        name, number = message.get("method"), message.get("id")
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        if number is None or name is None:
            if name == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return await _respond(send, 202)
        if name == "tools/call":
            return await self._call(number, params, send)
        match name:
            case "initialize":
                wanted = params.get("protocolVersion")
                result: dict[str, Any] = {
                    "protocolVersion": wanted if wanted in _VERSIONS else _LATEST,
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "pullwright", "version": "1"},
                    "instructions": self._instructions,
                }
            case "ping":
                result = {}
            case "tools/list":
                result = {"tools": self._listed()}
            case _:
                return await _answer(
                    send, {"id": number, "error": {"code": _NOT_FOUND, "message": "no such method"}}
                )
        return await _answer(send, {"id": number, "result": result})

    def _listed(self) -> list[dict[str, Any]]:
        tools = [self._runner.tools.get(name) for name in self._runner.told]
        return [
            {
                "name": tool.name,
                "description": tool.definition.description,
                "inputSchema": tool.definition.parameters,
            }
            for tool in tools
            if tool is not None
        ]

    async def _call(self, number: Any, params: dict[str, Any], send: Send) -> None:
        """Run a call, with a sign of life from time to time."""
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            return await _answer(send, {"id": number, "error": {"code": _INVALID, "message": "no call"}})
        self._count += 1
        call = ToolCall(f"host-{self._count}", name, arguments or {})
        await send(
            {
                "type": "http.response.start",
                "status": 200,
                "headers": [(b"content-type", b"text/event-stream")],
            }
        )
        await _piece(send, b": working\n\n")
        task = self._calls[_key(number)] = asyncio.ensure_future(self._run(call))
        try:
            while not (await asyncio.wait([task], timeout=_PING_SECONDS))[0]:
                await _piece(send, b": working\n\n")
            result = self._result(task)
            if self.ended.is_set():
                # The program is stopped now. An answer would make it ask its model once more.
                await asyncio.sleep(_STOP_SECONDS)
            data = json.dumps({"jsonrpc": "2.0", "id": number, "result": result})
            await _piece(send, f"event: message\ndata: {data}\n\n".encode(), more=False)
        finally:
            self._calls.pop(_key(number), None)
            if not task.done():
                task.cancel()
        return None

    async def _run(self, call: ToolCall) -> CallEnd:
        """Run a call: one that reads beside others, every other one alone."""
        tool = self._runner.tools.get(call.name)
        self._changed()
        if tool is None or tool.order is Order.TOGETHER:
            async with self._together:
                return await self._runner.run(call)
        async with self._alone:
            if self.ending is not None:
                return self._runner.skip(call, "Not run: the session has ended.")
            end = await self._runner.run(call)
            self.ending = end.ending
            return end

    def _result(self, task: asyncio.Task[CallEnd]) -> dict[str, Any]:
        if task.cancelled():
            return _text("Not run: the call was cancelled.", is_error=True)
        if (error := task.exception()) is not None:
            self.error = self.error or error
            self.ended.set()
            return _text("The host failed, and ends this session now.", is_error=True)
        end = task.result()
        if end.ending is not None:
            self.ended.set()
            return _text("Noted. The session ends here: end your turn without another word.")
        return _text(_cut(end.result.content), is_error=end.result.is_error)

    def _cancel(self, number: Any) -> None:
        """Cancel a running call. One program says so of calls that have ended, too."""
        task = self._calls.get(_key(number))
        if task is not None:
            task.cancel()


def _key(number: Any) -> str:
    return json.dumps(number, default=str)


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _cut(text: str) -> str:
    """Return a text with its middle left out if it is long: what matters stands first and last."""
    if len(text) <= MOST_ANSWER_CHARS:
        return text
    half = MOST_ANSWER_CHARS // 2 - 50
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


async def _respond(send: Send, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


async def _answer(send: Send, message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _piece(send: Send, data: bytes, *, more: bool = True) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": more})
