"""The transports to a server: a program in its own sandbox over standard input and output, or HTTP.

A program's input and outputs are pipes without a name, whose ends it inherits through the sandbox. So nothing that a
server can write to is opened by its path. One session at a time has a server's permanent folder, others that run
meanwhile get a copy of it. So no server ever writes where another one does.

Over HTTP answers have a limited length, and redirects are not followed. The library implements the protocol of
signing in (OAuth 2.1). A token stays in memory and ends with the connection: no file holds one.
"""

from __future__ import annotations

import asyncio
import errno
import os
import shlex
import stat
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import parse_qs, urlsplit

from orchestrator.core.confined import ConfinedFolder, UnsuitableFileError
from orchestrator.core.event_loop import in_thread
from orchestrator.core.files import lock_file
from orchestrator.core.http_client import open_client
from orchestrator.engine.environments.base import Command, SandboxFolder
from orchestrator.engine.environments.commands import (
    EnvPolicy,
    ProgramLaunch,
    command_variables,
    shell_program,
)
from orchestrator.engine.environments.running_program import (
    MAX_MESSAGE_BYTES,
    MAX_UNREQUESTED_MESSAGES,
    ProgramReport,
    RunningProgram,
)
from orchestrator.engine.environments.sandbox.visible import Scratch
from orchestrator.plugins.mcp.base import REPOSITORY, BrowserLogin, ClientLogin, McpError
from orchestrator.plugins.mcp.elicitation import is_page

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping

    import httpx2
    from mcp.client._transport import TransportStreams
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthToken

    from orchestrator.engine.environments.base import Launch, Sandbox
    from orchestrator.plugins.mcp.base import ServerAddress, ServerProgram


MAX_COPIED_BYTES: Final = 64 << 20
MAX_COPIED_ENTRIES: Final = 10_000


@contextmanager
def own_folder(permanent: Path) -> Iterator[tuple[Path, bool]]:
    """Yield the folder of a server that starts now, and whether it is a copy that is removed at the end.

    Args:
        permanent: the folder that stays; a missing one is created. The lock is beside it, where no server writes.

    Raises:
        OSError: it cannot be created or copied, or it is too large to be copied.
        ToolError: the folder for the copy cannot be created.
    """
    with ExitStack() as stack:
        permanent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ConfinedFolder.made(permanent) as folder:
            try:
                handle = lock_file(permanent.with_name(f"{permanent.name}.lock"))
            except BlockingIOError:
                scratch = Scratch()
                stack.callback(scratch.remove)
                path = Path(scratch.path)
                with ConfinedFolder(path) as copy:
                    _copy(folder, copy)
            else:
                stack.callback(os.close, handle)
                path = folder.path
        yield path, path != folder.path


def _copy(source: ConfinedFolder, target: ConfinedFolder) -> None:
    """Copy folders and regular files; nothing else is followed or opened."""
    left = MAX_COPIED_BYTES
    for number, (path, entry) in enumerate(source.walk()):
        if entry.is_dir:
            target.make_folder(path)
        elif entry.is_file and entry.size <= left and number < MAX_COPIED_ENTRIES:
            content = source.read(path, left)
            left -= len(content)
            target.write(path, content, stat.S_IMODE(entry.mode) & 0o777)
        elif entry.is_file:
            raise UnsuitableFileError(
                errno.EFBIG,
                f"another session uses its folder, which has over {MAX_COPIED_BYTES >> 20} MiB or "
                f"{MAX_COPIED_ENTRIES:,} files and is not copied; end that session first",
            )


_UNUSED_TIMEOUT_MS = 1
"""A launched program has no time limit."""


@dataclass(frozen=True, slots=True)
class ProgramStart:
    """All that is needed to start a server's program.

    Attributes:
        folder: the server's own permanent folder, which is writable and its working folder (`own_folder`).
        find_sandbox: returns the sandbox, which includes the clone if the server may read it; None if the
            server runs without a sandbox, as this user.
        on_refused: called with `host:port` for each refused connection.
        on_copy: called if another session uses the folder, so that the server runs in a copy.
        max_message_bytes: size of one message.
    """

    program: ServerProgram
    folder: Path
    repository: str
    inherited: Mapping[str, str] = field(repr=False)
    find_sandbox: Callable[[], Sandbox] | None
    on_refused: Callable[[str], None]
    on_copy: Callable[[], None] = lambda: None
    max_message_bytes: int = MAX_MESSAGE_BYTES


@asynccontextmanager
async def _started(start: ProgramStart, report: ProgramReport) -> AsyncGenerator[RunningProgram]:
    """Start the program, and stop it at the end of the block."""
    program = start.program
    sandbox = None if start.find_sandbox is None else await asyncio.to_thread(start.find_sandbox)
    async with AsyncExitStack() as stack:
        own = own_folder(start.folder)  # it may be copied, and the copy is removed at the end
        path, is_copy = await in_thread(own.__enter__, undo=lambda _: own.__exit__(None, None, None))
        stack.push_async_callback(in_thread, own.__exit__, None, None, None)
        folder = str(path)
        if is_copy:
            start.on_copy()
        line = f"exec {shlex.join(program.words(start.repository))}"
        policy = EnvPolicy.CORE if sandbox is None else EnvPolicy.FILTERED
        given = {
            name: value.replace(REPOSITORY, start.repository) for name, value in program.variables.items()
        }
        variables = {**command_variables(sandbox, policy, start.inherited), **given}
        command = Command(line, folder, variables, _UNUSED_TIMEOUT_MS)
        if sandbox is None:
            launch: Launch = ProgramLaunch((shell_program(), "-c", line), command)
        else:
            opened = sandbox.open(SandboxFolder(folder, ()))
            stack.push_async_callback(opened.close)
            launch = opened.launch(command)
        running = RunningProgram(launch, report, start.max_message_bytes)
        await running.start(stack)
        try:
            yield running
        finally:
            await running.end()
            for place in launch.refused_hosts:
                start.on_refused(place)


async def _until_closed(work: Awaitable[None]) -> None:
    """Run one direction of the connection, and end quietly when the other side is closed."""
    import anyio

    with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError, OSError):
        await work


@asynccontextmanager
async def stdio_transport(start: ProgramStart, report: ProgramReport) -> AsyncGenerator[TransportStreams]:
    """Start a server's program and connect to it; stop it at the end."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    give, read_stream = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write_stream, take = anyio.create_memory_object_stream[SessionMessage](0)

    async def read(running: RunningProgram) -> None:
        async with give:
            while line := await running.line():
                if not line.strip():
                    continue
                try:
                    message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                except ValueError as error:
                    await give.send(error)
                    continue
                await give.send(SessionMessage(message))

    async def write(running: RunningProgram) -> None:
        async with take:
            async for asked in take:
                text = asked.message.model_dump_json(by_alias=True, exclude_unset=True)
                await running.write(f"{text}\n".encode("utf-8", "surrogatepass"))

    try:
        async with _started(start, report) as running, anyio.create_task_group() as tasks:
            for work in (read(running), write(running)):
                tasks.start_soon(_until_closed, work)
            yield read_stream, write_stream
            tasks.cancel_scope.cancel()
    except OSError as error:
        raise McpError(f"it cannot be started: {error.strerror or error}") from error
    finally:
        for stream in (give, read_stream, write_stream, take):
            stream.close()


CONNECT_SECONDS = 20.0
_EVENTS = "text/event-stream"

ShowPage: TypeAlias = "Callable[[str], None]"
"""Shows a person the address of the page for signing in."""

PAGE_SECONDS = 300.0
_CALLBACK_PATH = "/callback"
_MAX_HEAD_BYTES = 16_384
_HEAD_SECONDS = 10.0


@asynccontextmanager
async def remote_transport(
    address: ServerAddress, report: ProgramReport, call_seconds: float, show: ShowPage | None = None
) -> AsyncGenerator[TransportStreams]:
    """Connect to a server over HTTP.

    Args:
        call_seconds: time-out between two pieces of an answer.
        show: see `signing_in`.
    """
    from mcp.client.sse import sse_client
    from mcp.client.streamable_http import streamable_http_client

    async with signing_in(address, show) as login:

        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            # Compressed answers are refused below, so none is requested.
            given = {**address.headers, **(headers or {}), "Accept-Encoding": "identity"}
            del timeout  # the library's is made of the same two
            return open_client(  # the pages for signing in may be of other servers
                silent_seconds=call_seconds,
                connect_seconds=CONNECT_SECONDS,
                headers=given,
                auth=auth or login,
                event_hooks={"response": [_bounding(report)]},
            )

        if address.events:
            async with sse_client(
                address.url,
                timeout=CONNECT_SECONDS,
                sse_read_timeout=call_seconds,
                httpx_client_factory=client,
            ) as streams:
                yield streams
        else:
            async with (
                client() as http,
                streamable_http_client(
                    address.url, http_client=http, max_sse_event_size=MAX_MESSAGE_BYTES
                ) as streams,
            ):
                yield streams


def _bounding(report: ProgramReport) -> Callable[[httpx2.Response], Awaitable[None]]:
    """Return a hook that limits the length of every answer's body, whatever its headers say."""
    import httpx2

    class Bounded(httpx2.AsyncByteStream):
        def __init__(self, inner: httpx2.AsyncByteStream, most: int) -> None:
            self._inner, self._most = inner, most

        async def __aiter__(self) -> AsyncIterator[bytes]:
            seen = 0
            async for piece in self._inner:
                seen += len(piece)
                if seen > self._most:
                    report.problem = f"it sent an answer of more than {self._most >> 20} MiB"
                    raise httpx2.StreamError(report.problem)
                yield piece

        async def aclose(self) -> None:
            await self._inner.aclose()

    async def bound(response: httpx2.Response) -> None:
        packed = response.headers.get("content-encoding", "identity")
        if packed != "identity":
            report.problem = (
                f"it compresses its answers ({packed[:20]!a}), although the request does not allow that"
            )
            raise httpx2.StreamError(report.problem)
        is_stream = response.headers.get("content-type", "").startswith(_EVENTS)
        if isinstance(response.stream, httpx2.AsyncByteStream):
            most = MAX_MESSAGE_BYTES * (MAX_UNREQUESTED_MESSAGES if is_stream else 1)
            response.stream = Bounded(response.stream, most)

    return bound


@asynccontextmanager
async def signing_in(address: ServerAddress, show: ShowPage | None) -> AsyncGenerator[httpx2.Auth | None]:
    """Yield the authentication of the requests; None if none is configured.

    Args:
        show: None if no person is present.

    Raises:
        McpError: a person is needed, and none is present.
    """
    match address.login:
        case None:
            yield None
        case ClientLogin() as login:
            from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider

            yield ClientCredentialsOAuthProvider(
                address.url,
                _TokenStorage(),
                login.client_id,
                login.client_secret,
                scope=login.scope or None,
                issuer=login.issuer,
            )
        case BrowserLogin() as login:
            if show is None:
                raise McpError(
                    "a person has to sign in with a browser, and none is present; "
                    "use client_id, client_secret and issuer, or a header"
                )
            callback = _Callback(show)
            server = await asyncio.start_server(callback.take, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
            try:
                port = server.sockets[0].getsockname()[1]
                yield _at_browser(address.url, login, callback, f"http://127.0.0.1:{port}{_CALLBACK_PATH}")
            finally:
                server.close()


def _at_browser(url: str, login: BrowserLogin, callback: _Callback, redirect: str) -> httpx2.Auth:
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
    from pydantic import AnyUrl

    about = OAuthClientMetadata(
        redirect_uris=[AnyUrl(redirect)],
        client_name="Pullwright",
        grant_types=["authorization_code", "refresh_token"],
        scope=login.scope or None,
    )
    memory = _TokenStorage()
    if login.client_id:
        method = "client_secret_basic" if login.client_secret else "none"
        memory.client = OAuthClientInformationFull(
            redirect_uris=[AnyUrl(redirect)],
            client_id=login.client_id,
            client_secret=login.client_secret or None,
            token_endpoint_auth_method=method,
        )
    return OAuthClientProvider(
        url, about, memory, redirect_handler=callback.ask, callback_handler=callback.answer
    )


class _Callback:
    """The local page to which the browser returns."""

    def __init__(self, show: ShowPage) -> None:
        self._show = show
        self._state = ""
        self._answer: asyncio.Future[AuthorizationCodeResult] | None = None

    async def ask(self, page: str) -> None:
        """Show a person the page for signing in; raise `McpError` if it is not safe to open."""
        if not is_page(page):
            raise McpError("its page for signing in has no https:// address")
        self._state = _first(parse_qs(urlsplit(page).query), "state")
        self._answer = asyncio.get_running_loop().create_future()
        self._show(page)

    async def answer(self) -> AuthorizationCodeResult:
        """Wait for the result from the browser; raise `McpError` if the person refused, or did not sign in in time."""
        assert self._answer is not None  # noqa: S101  for the type checker
        try:
            async with asyncio.timeout(PAGE_SECONDS):
                return await self._answer
        except TimeoutError:
            raise McpError(f"nobody signed in within {PAGE_SECONDS:g} seconds") from None

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one request. One without the expected state does not come from the sign-in page."""
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
            status = self._take(head.split(b" ", 2)[1].decode("ascii", "replace"))
            text = "You may close this page.\n" if status == "200 OK" else f"{status}\n"
            headers = f"Content-Type: text/plain\r\nContent-Length: {len(text)}\r\nConnection: close"
            writer.write(f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n{text}".encode())
            await writer.drain()
        except (OSError, EOFError, IndexError, asyncio.LimitOverrunError):
            pass  # the client is gone, or does not speak HTTP
        finally:
            writer.close()

    def _take(self, target: str) -> str:
        from mcp.shared.auth import AuthorizationCodeResult

        parts = urlsplit(target)
        found = parse_qs(parts.query)
        if parts.path != _CALLBACK_PATH:
            return "404 Not Found"
        if (
            self._answer is None
            or self._answer.done()
            or not self._state
            or _first(found, "state") != self._state
        ):
            return "400 Bad Request"
        if code := _first(found, "code"):
            result = AuthorizationCodeResult(code=code, state=self._state, iss=_first(found, "iss") or None)
            self._answer.set_result(result)
        else:
            self._answer.set_exception(McpError(f"signing in was refused: {_first(found, 'error')[:100]!a}"))
        return "200 OK"


def _first(found: dict[str, list[str]], name: str) -> str:
    return next(iter(found.get(name, ())), "")


class _TokenStorage:
    """Keeps a token and the client's registration for the lifetime of the connection."""

    def __init__(self) -> None:
        self.client: OAuthClientInformationFull | None = None
        self._tokens: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self._tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info
