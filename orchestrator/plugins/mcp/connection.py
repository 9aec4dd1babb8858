"""The connection to one server: initialization, list of tools, calls. Every wait has a time-out."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from orchestrator.core.errors import PullwrightError
from orchestrator.core.prompts import one_line
from orchestrator.core.version import __version__
from orchestrator.engine.environments.running_program import ProgramReport
from orchestrator.engine.tools.base import Mode, truncate_chars
from orchestrator.plugins.mcp.base import BrowserLogin, McpError, ServerAddress
from orchestrator.plugins.mcp.definitions import as_definition, plain_listing
from orchestrator.plugins.mcp.elicitation import MAX_QUESTIONS, PERSON_SECONDS, question_of
from orchestrator.plugins.mcp.transports import PAGE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
    from types import TracebackType

    from mcp.client import Client, ClientRequestContext, IncomingMessage, Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp.types import ElicitRequestParams, ElicitResult, ErrorData

    from orchestrator.plugins.mcp.base import McpServer
    from orchestrator.plugins.mcp.definitions import McpDefinition
    from orchestrator.plugins.mcp.elicitation import AskPerson

MAX_TOOLS = 200
MAX_PAGES = 50
MAX_RELISTS = 20
"""Maximum number of changes to the list of tools, after which the server is stopped."""
MAX_RESULT_CHARS = 2_000_000
END_SECONDS = 15.0
_REASON_CHARS = 300
_ELICIT = "elicitation/create"
_CLIENT_METHODS = frozenset({"sampling/createMessage", _ELICIT, "roots/list"})
"""Requests that a server may send to a client. All are refused, except questions to a present person."""
_LIST_CHANGED = "notifications/tools/list_changed"


MakeTransport: TypeAlias = "Callable[[ProgramReport], Transport]"
"""Creates the transport to a server, once; the argument receives the server's state."""


@dataclass(frozen=True, slots=True)
class McpResult:
    """The answer of a tool."""

    text: str
    is_error: bool


@dataclass(slots=True)
class McpConnection:
    """A connection to one server. It is opened once, and closed once.

    Attributes:
        on_asked: called with each refused method that the server requested of the client, such as
            `sampling/createMessage`, once for each method.
        on_change: called when `found` has changed.
        ask: asks a person the server's question during a call; None refuses questions.
        clean: returns a text as a person may see it, given a description of the text and the text itself.
        found: the server's latest list of tools.
        left_out: the tools of that list that cannot be used, by name, with the reason.
        about: the server's own name and version, and the protocol's version.
    """

    server: McpServer
    make_transport: MakeTransport
    on_asked: Callable[[str], None]
    on_change: Callable[[], None]
    ask: AskPerson | None = None
    clean: Callable[[str, str], str] = lambda _what, text: text
    found: tuple[McpDefinition, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    about: str = ""
    report: ProgramReport = field(default_factory=ProgramReport)
    _client: Client | None = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _refused: set[str] = field(default_factory=set)
    _calls: set[asyncio.Timeout] = field(default_factory=set)
    _questions: int = 0
    _unanswered: int = 0
    _is_open: bool = False
    _why: str = ""

    async def open(self) -> None:
        """Start the server, initialize the protocol and list the tools.

        Raises:
            McpError: the server cannot be reached, is too slow, or gives an invalid answer.
        """
        _quiet_library()
        place = self.server.place
        waits = isinstance(place, ServerAddress) and isinstance(place.login, BrowserLogin)
        seconds = self.server.start_seconds + (PAGE_SECONDS if waits else 0.0)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(opened))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait([opened, self._task], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            raise McpError(self._with_last_output(f"it did not answer within {seconds:g} seconds")) from None
        except BaseException:
            await self.close()
            raise
        if not opened.done():
            raise McpError(self._with_last_output(self._why or "it has ended"))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> McpResult:
        """Call a tool by its raw name.

        Raises:
            McpError: the server has ended, is too slow, or gives an invalid answer.
        """
        if self._client is None or self.is_over:
            raise McpError(self._with_last_output(self._why or "it has ended"))
        seconds = self.server.call_seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                self._calls.add(limit)
                try:
                    answer = await self._client.call_tool(tool, dict(arguments))
                finally:
                    self._calls.discard(limit)
        except TimeoutError:
            raise McpError(f"it gave no answer within {seconds:g} seconds") from None
        except Exception as error:
            if self.report.problem:
                self._closing.set()  # a server that sends too much is stopped
            raise McpError(self._with_last_output(_reason(error))) from error
        return McpResult(result_text(answer.model_dump(by_alias=True, mode="json")), bool(answer.is_error))

    async def close(self) -> None:
        """Stop the server. May be called again."""
        self._closing.set()
        if self._task is None:
            return
        if self._is_open:
            await asyncio.wait([self._task], timeout=END_SECONDS)
        if not self._task.done():  # it is not initialized yet, or does not end
            self._task.cancel()
            await asyncio.wait([self._task], timeout=END_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether the server has ended."""
        return self._closing.is_set() or self._task is None or self._task.done()

    async def _run(self, opened: asyncio.Future[None]) -> None:
        """Hold the connection from its start to its end: the library requires both in one task."""
        from mcp.client import Client
        from mcp.types import Implementation

        try:
            watched = _watched_transport(self.make_transport(self.report), self._note)
            longest = max(self.server.call_seconds, self.server.start_seconds)
            client = Client(
                watched,
                read_timeout_seconds=longest + (PERSON_SECONDS if self.ask else 0.0),
                elicitation_callback=self._elicit if self.ask else None,
                message_handler=self._on_message,
                client_info=Implementation(name="pullwright", version=__version__),
                cache=None,
            )
            async with client:
                self._client = client
                self.found = await self._list_tools(client)
                info = client.server_info
                name = f"{info.name} {info.version}" if info else "a server without a name"
                self.about = one_line(f"{name}, protocol {client.protocol_version}", limit=_REASON_CHARS)
                async with _running(self._relist(client), self._subscribe(client)):
                    self._is_open = True
                    if not opened.done():
                        opened.set_result(None)
                    await self._closing.wait()
        except Exception as error:  # noqa: BLE001  border: a broken server must not end the session
            self._why = self._why or _reason(error)
        finally:
            self._client = None

    async def _list_tools(self, client: Client) -> tuple[McpDefinition, ...]:
        found: dict[str, McpDefinition] = {}
        self.left_out.clear()
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = await client.list_tools(cursor=cursor)
            for tool in page.tools:
                definition = as_definition(tool.model_dump(by_alias=True, mode="json", exclude_unset=True))
                if definition is not None:
                    found.setdefault(definition.name, definition)
            cursor = page.next_cursor
            if not cursor or len(found) >= MAX_TOOLS:
                break
        return tuple(found[name] for name in sorted(found)[:MAX_TOOLS])

    async def _relist(self, client: Client) -> None:
        """List the tools again whenever the server reports a change."""
        for _ in range(MAX_RELISTS):
            await self._changed.wait()
            self._changed.clear()
            try:
                async with asyncio.timeout(self.server.start_seconds):
                    self.found = await self._list_tools(client)
            except Exception:  # noqa: BLE001  border: its tools are unknown now, so none is used
                self.found = ()
            self.on_change()
        self.report.problem = f"it changed its tools more than {MAX_RELISTS} times"
        self._closing.set()

    async def _subscribe(self, client: Client) -> None:
        """Ask a server with the newer protocol to report changes of its tools; an older one always does."""
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed.set()

    async def _on_message(self, message: IncomingMessage) -> None:
        if getattr(message, "method", "") == _LIST_CHANGED:
            self._changed.set()

    def _note(self, message: object) -> None:
        result = getattr(getattr(message, "message", None), "result", None)
        if isinstance(result, dict) and isinstance(listed := result.get("tools"), list):
            # The library refuses the whole list for one tool that it does not understand.
            read = [plain_listing(tool) for tool in listed]
            result["tools"] = [tool for tool in read if not isinstance(tool, tuple)]
            self.left_out.update(tool for tool in read if isinstance(tool, tuple))
        for method in _requested_methods(message):
            if not (method == _ELICIT and self.ask):
                self._refuse(method)

    def _refuse(self, method: str) -> None:
        if method not in self._refused:
            self._refused.add(method)
            self.on_asked(method)

    async def _elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Let a person answer a server's question during a call of one of its tools; refuse it at other times."""
        from mcp.types import INVALID_PARAMS, ElicitResult, ErrorData

        del context
        self._questions += 1
        if self.ask is None or not self._calls or self._questions > MAX_QUESTIONS:
            self._refuse(_ELICIT)
            return ElicitResult(action="cancel")
        try:
            values = params.model_dump(by_alias=True, mode="json")
            question = question_of(self.server.name, values, self.clean)
        except ValueError as error:
            self._refuse(_ELICIT)
            return ErrorData(code=INVALID_PARAMS, message=str(error))
        try:
            with self._suspended_calls():
                async with asyncio.timeout(PERSON_SECONDS):
                    content = await self.ask(question)
        except TimeoutError:
            return ElicitResult(action="cancel")
        if content is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=None if question.page else {**content})

    @contextmanager
    def _suspended_calls(self) -> Iterator[None]:
        """Suspend the time-outs of the calls while a person is asked, and restart them afterwards."""
        self._unanswered += 1
        for limit in self._calls:
            limit.reschedule(None)
        try:
            yield
        finally:
            self._unanswered -= 1
            if not self._unanswered:
                until = asyncio.get_running_loop().time() + self.server.call_seconds
                for limit in self._calls:
                    limit.reschedule(until)

    def _with_last_output(self, why: str) -> str:
        """Return the reason of a failure, or why this program stopped the server, with the server's last output."""
        why = self.report.problem or why
        said = one_line(self.report.last_line, limit=_REASON_CHARS)
        return f"{why}; its last output: {said}" if said else why


@asynccontextmanager
async def _running(*works: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run these beside the block, and cancel them at its end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _requested_methods(message: object) -> Iterator[str]:
    """Yield the methods that a message requests of the client, as a request or as what an answer needs first."""
    inner = getattr(message, "message", None)
    methods = [getattr(inner, "method", "")]
    result = getattr(inner, "result", None)
    if isinstance(result, dict) and isinstance(needed := result.get("inputRequests"), dict):
        methods += [one.get("method", "") for one in needed.values() if isinstance(one, dict)]
    yield from (method for method in methods if method in _CLIENT_METHODS)


@asynccontextmanager
async def _watched_transport(
    transport: Transport, note: Callable[[object], None]
) -> AsyncGenerator[TransportStreams]:
    async with transport as (reading, writing):
        yield _WatchedStream(reading, note), writing


class _WatchedStream:
    """A stream of messages that passes each message to a callback first."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], note: Callable[[object], None]) -> None:
        self._inner, self._note = inner, note

    @property
    def last_context(self) -> Any:
        """The sender's context of the last message, if the stream has one."""
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        message = await self._inner.receive()
        self._note(message)
        return message

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        message = await self._inner.__anext__()
        self._note(message)
        return message

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


def _reason(error: BaseException) -> str:
    """Return in one line why something failed: the first error of a group, in the library's words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, PullwrightError):
        return str(error)
    said = one_line(" ".join(str(error).split()), limit=_REASON_CHARS, keep="`")
    return said or type(error).__name__


def _quiet_library() -> None:
    """Silence the library's logger, which would print to the terminal what its errors say anyway."""
    logger = logging.getLogger("mcp")
    if logger.propagate:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


def result_text(result: Mapping[str, Any]) -> str:
    """Return the answer of `tools/call` as a text for the model."""
    parts = [_block_text(block) for block in result.get("content") or () if isinstance(block, dict)]
    structured = result.get("structuredContent")
    has_text = any(block.get("type") == "text" for block in result.get("content") or ())
    if structured is not None and not has_text:
        parts.append(json.dumps(structured, ensure_ascii=False))
    text = "\n\n".join(filter(None, parts)) or "(an empty answer)"
    return truncate_chars(text, MAX_RESULT_CHARS, Mode.HEAD_TAIL)


def _block_text(block: Mapping[str, Any]) -> str:
    """Return a block of content as text.

    https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result
    """
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio":
            return _not_shown(block["type"], block.get("mimeType"), block.get("data"))
        case "resource_link":
            name, uri = str(block.get("name", "")), str(block.get("uri", ""))
            return f"[{one_line(name, limit=200)}: {one_line(uri, limit=500)}]"
        case "resource":
            inner = block.get("resource") or {}
            uri = one_line(str(inner.get("uri", "")), limit=500)
            if "text" in inner:
                return f"{uri}:\n{inner['text']}"
            return _not_shown(uri, inner.get("mimeType"), inner.get("blob"))
        case kind:
            return f"[{one_line(str(kind), limit=40)}: not shown]"


def _not_shown(what: str, media_type: object, data: object) -> str:
    try:
        size = f"{len(base64.b64decode(str(data), validate=True)):,} bytes"
    except (binascii.Error, ValueError):
        size = "damaged"
    return f"[{what}, {one_line(str(media_type), limit=60)}, {size}: not shown]"
