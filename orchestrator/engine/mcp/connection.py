"""One server from its start to its end: the greeting, the list of its tools, the calls. Every wait has a limit."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from orchestrator import __version__
from orchestrator.core.errors import PullwrightError
from orchestrator.core.fence import one_line
from orchestrator.engine.mcp.base import BrowserLogin, McpError, ServerAddress
from orchestrator.engine.mcp.definitions import as_definition
from orchestrator.engine.mcp.elicitation import MAX_QUESTIONS, PERSON_SECONDS, question_of
from orchestrator.engine.mcp.sign_in import PAGE_SECONDS
from orchestrator.engine.mcp.stdio import ServerReport
from orchestrator.engine.tools.base import Mode, truncate_chars

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
    from types import TracebackType

    from mcp.client import Client, ClientRequestContext, IncomingMessage, Transport
    from mcp.client._transport import ReadStream, TransportStreams
    from mcp.shared.message import SessionMessage
    from mcp.types import ElicitRequestParams, ElicitResult, ErrorData

    from orchestrator.engine.mcp.base import McpServer
    from orchestrator.engine.mcp.definitions import McpDefinition
    from orchestrator.engine.mcp.elicitation import AskPerson

MAX_TOOLS = 200
MAX_PAGES = 50
MAX_RELISTS = 20
"""A server that says more often that its tools have changed is ended."""
MAX_RESULT_CHARS = 2_000_000
END_SECONDS = 15.0
_REASON_CHARS = 300
_ELICIT = "elicitation/create"
_ASKS = frozenset({"sampling/createMessage", _ELICIT, "roots/list"})
"""What a server may ask of a client that allows it. This one allows nothing, or questions to a person who is there."""
_LIST_CHANGED = "notifications/tools/list_changed"


MakeTransport: TypeAlias = "Callable[[ServerReport], Transport]"
"""Makes the transport to a server, once, given what takes how the server fares."""


@dataclass(frozen=True, slots=True)
class McpResult:
    """What a tool answered."""

    text: str
    is_error: bool


@dataclass(slots=True)
class McpConnection:
    """A connection to one server. It is opened once, and closed once.

    Attributes:
        on_asked: is told what the server asked of the client, such as `sampling/createMessage`, once each. It is
            refused each time.
        on_change: is told that `found` is another list now.
        ask: asks a person what the server wants to know during a call; None refuses that, too.
        clean: a text as a person may see it, by what it is and what it says.
        found: the tools as the server has listed them last.
        about: the server's name and version as it gives them, and the protocol's version.
    """

    server: McpServer
    make_transport: MakeTransport
    on_asked: Callable[[str], None]
    on_change: Callable[[], None]
    ask: AskPerson | None = None
    clean: Callable[[str, str], str] = lambda _what, text: text
    found: tuple[McpDefinition, ...] = ()
    about: str = ""
    voice: ServerReport = field(default_factory=ServerReport)
    _client: Client | None = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)
    _live: asyncio.Task[None] | None = None
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _asked: set[str] = field(default_factory=set)
    _calls: set[asyncio.Timeout] = field(default_factory=set)
    _questions: int = 0
    _unanswered: int = 0
    _is_open: bool = False
    _why: str = ""

    async def open(self) -> None:
        """Start the server, greet it and list its tools.

        Raises:
            McpError: it is not there, does not answer in time, or not as it should.
        """
        _quiet_library()
        place = self.server.place
        waits = isinstance(place, ServerAddress) and isinstance(place.login, BrowserLogin)
        seconds = self.server.start_seconds + (PAGE_SECONDS if waits else 0.0)
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._live = asyncio.create_task(self._live_on(opened))
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wait([opened, self._live], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            await self.close()
            raise McpError(self._told(f"it did not answer within {seconds:g} seconds")) from None
        except BaseException:
            await self.close()
            raise
        if not opened.done():
            raise McpError(self._told(self._why or "it has ended"))

    async def call(self, tool: str, arguments: Mapping[str, Any]) -> McpResult:
        """Call a tool by its raw name.

        Raises:
            McpError: the server is gone, does not answer in time, or not as it should.
        """
        if self._client is None or self.is_over:
            raise McpError(self._told(self._why or "it has ended"))
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
            if self.voice.problem:
                self._closing.set()  # a server that floods costs its tools
            raise McpError(self._told(_reason(error))) from error
        return McpResult(result_text(answer.model_dump(by_alias=True, mode="json")), bool(answer.is_error))

    async def close(self) -> None:
        """End the server. May be called again."""
        self._closing.set()
        if self._live is None:
            return
        if self._is_open:
            await asyncio.wait([self._live], timeout=END_SECONDS)
        if not self._live.done():  # it is not even greeted, or does not end
            self._live.cancel()
            await asyncio.wait([self._live], timeout=END_SECONDS)

    @property
    def is_over(self) -> bool:
        """Whether the server is gone."""
        return self._closing.is_set() or self._live is None or self._live.done()

    async def _live_on(self, opened: asyncio.Future[None]) -> None:
        """Hold the connection from its start to its end: the library wants both in one task."""
        from mcp.client import Client
        from mcp.types import Implementation

        try:
            watched = _watched(self.make_transport(self.voice), self._note)
            longest = max(self.server.call_seconds, self.server.start_seconds)
            client = Client(
                watched,
                read_timeout_seconds=longest + (PERSON_SECONDS if self.ask else 0.0),
                elicitation_callback=self._elicit if self.ask else None,
                message_handler=self._heard,
                client_info=Implementation(name="pullwright", version=__version__),
                cache=None,
            )
            async with client:
                self._client = client
                self.found = await self._listed(client)
                self.about = _about(client)
                async with _running(self._relist(client), self._listen(client)):
                    self._is_open = True
                    if not opened.done():
                        opened.set_result(None)
                    await self._closing.wait()
        except Exception as error:  # noqa: BLE001  border: a broken server must not end the session
            self._why = self._why or _reason(error)
        finally:
            self._client = None

    async def _listed(self, client: Client) -> tuple[McpDefinition, ...]:
        found: dict[str, McpDefinition] = {}
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
        """List the tools again whenever the server says that they have changed."""
        for _ in range(MAX_RELISTS):
            await self._changed.wait()
            self._changed.clear()
            try:
                async with asyncio.timeout(self.server.start_seconds):
                    self.found = await self._listed(client)
            except Exception:  # noqa: BLE001  border: what it offers now is not known, so it offers nothing
                self.found = ()
            self.on_change()
        self.voice.problem = f"it changed its tools more than {MAX_RELISTS} times"
        self._closing.set()

    async def _listen(self, client: Client) -> None:
        """Ask a server of the newer protocol to say when its tools change; an older one does so unasked."""
        with suppress(Exception):
            async with client.listen(tools_list_changed=True) as changes:
                async for _ in changes:
                    self._changed.set()

    async def _heard(self, message: IncomingMessage) -> None:
        if getattr(message, "method", "") == _LIST_CHANGED:
            self._changed.set()

    def _note(self, message: object) -> None:
        for method in _asked(message):
            if not (method == _ELICIT and self.ask):
                self._refuse(method)

    def _refuse(self, method: str) -> None:
        if method not in self._asked:
            self._asked.add(method)
            self.on_asked(method)

    async def _elicit(
        self, context: ClientRequestContext, params: ElicitRequestParams
    ) -> ElicitResult | ErrorData:
        """Let a person answer what the server asks while one of its tools is called. At other times it is refused."""
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
            with self._calls_wait():
                async with asyncio.timeout(PERSON_SECONDS):
                    content = await self.ask(question)
        except TimeoutError:
            return ElicitResult(action="cancel")
        if content is None:
            return ElicitResult(action="decline")
        return ElicitResult(action="accept", content=None if question.page else {**content})

    @contextmanager
    def _calls_wait(self) -> Iterator[None]:
        """Let the limits of the calls stand still, while a person is asked."""
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

    def _told(self, why: str) -> str:
        """Why, and what the server said last; of a server that we ended, why we did."""
        why = self.voice.problem or why
        said = one_line(self.voice.last_line, limit=_REASON_CHARS)
        return f"{why}; it said last: {said}" if said else why


@asynccontextmanager
async def _running(*works: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Have these done beside what is in the block, and stop them at its end."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _about(client: Client) -> str:
    info = client.server_info
    name = f"{info.name} {info.version}" if info else "a server without a name"
    return one_line(f"{name}, protocol {client.protocol_version}", limit=_REASON_CHARS)


def _asked(message: object) -> Iterator[str]:
    """What a message asks of the client: a request of its own, or what an answer says is needed first."""
    inner = getattr(message, "message", None)
    methods = [getattr(inner, "method", "")]
    result = getattr(inner, "result", None)
    if isinstance(result, dict) and isinstance(needed := result.get("inputRequests"), dict):
        methods += [one.get("method", "") for one in needed.values() if isinstance(one, dict)]
    yield from (method for method in methods if method in _ASKS)


@asynccontextmanager
async def _watched(transport: Transport, note: Callable[[object], None]) -> AsyncGenerator[TransportStreams]:
    async with transport as (reading, writing):
        yield _WatchedStream(reading, note), writing


class _WatchedStream:
    """A stream of messages, each of which is shown to somebody first."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception], note: Callable[[object], None]) -> None:
        self._inner, self._note = inner, note

    @property
    def last_context(self) -> Any:
        """The sender's context of the last message, where the stream has one."""
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
    """Why something failed, in one line: the first error of a group, in the library's words."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, PullwrightError):
        return str(error)
    said = one_line(" ".join(str(error).split()), limit=_REASON_CHARS, keep="`")
    return said or type(error).__name__


def _quiet_library() -> None:
    """What the library logs is known from its errors, and would be printed over the terminal."""
    logger = logging.getLogger("mcp")
    if logger.propagate:
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


def result_text(result: Mapping[str, Any]) -> str:
    """What a model is told of the answer of `tools/call`."""
    parts = [_block_text(block) for block in result.get("content") or () if isinstance(block, dict)]
    structured = result.get("structuredContent")
    if structured is not None and not any(
        block.get("type") == "text" for block in result.get("content") or ()
    ):
        parts.append(json.dumps(structured, ensure_ascii=False))
    text = "\n\n".join(filter(None, parts)) or "(an empty answer)"
    return truncate_chars(text, MAX_RESULT_CHARS, Mode.HEAD_TAIL)


def _block_text(block: Mapping[str, Any]) -> str:
    """A block of content: https://modelcontextprotocol.io/specification/2025-11-25/server/tools#tool-result."""
    match block.get("type"):
        case "text":
            return str(block.get("text", ""))
        case "image" | "audio":
            return _not_shown(block["type"], block.get("mimeType"), block.get("data"))
        case "resource_link":
            return f"[{one_line(str(block.get('name', '')), limit=200)}: {one_line(str(block.get('uri', '')), limit=500)}]"
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
