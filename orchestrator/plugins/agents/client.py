"""Speaks the Agent Client Protocol with a running program: https://agentclientprotocol.com/protocol/v1/overview.

The official library encodes requests and checks answers. What the program sends is bounded here, before the library
reads it: the size of a line, of all lines between two of ours, the number of updates, and lines that are no messages.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, cast

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, text_block
from pydantic import ValidationError

from orchestrator.core.errors import BadReplyError, ConfigurationError
from orchestrator.core.json_rpc import read_message
from orchestrator.core.prompts import one_line

if TYPE_CHECKING:
    from collections.abc import Container, Coroutine, Mapping
    from typing import TypeVar

    from acp import Client

    from orchestrator.engine.environments.running_program import ProgramReport, RunningProgram

    _T = TypeVar("_T")

_CANCEL_SECONDS = 5.0
_MESSAGE_CHARS = 300


class Listener(Protocol):
    """Receives what the program tells, and decides what it may do."""

    def told(self, update: Any) -> None:
        """Take one update, in the order of arrival: one of the classes that `SessionNotification.update` may have."""

    def may(self, call: schema.ToolCallUpdate) -> bool:
        """Return whether the program may do what it asks for."""


class AgentConnection:
    """The session of one program. A problem is one error of one line, and ends the session.

    Args:
        name: how messages call the program.
        running: the program; `listen` and `watch` of it run elsewhere.

    Attributes:
        versions: of the protocol, that are known here.
        start_seconds: time for each answer before the first prompt: the slowest takes 10 seconds on an idle machine.
        most: lines of each kind, after which the program is stopped; a long session has some thousand updates.
    """

    versions: Container[int] = (PROTOCOL_VERSION,)
    start_seconds = 120.0
    most: ClassVar[Mapping[str, int]] = {
        "updates": 200_000,
        "requests": 10_000,
        "answers": 10_000,
        "lines that are no messages": 1_000,
    }

    def __init__(self, name: str, running: RunningProgram, report: ProgramReport, listener: Listener) -> None:
        self._name, self._report = name, report
        self._lines = _BoundedLines(running, listener, self.most)
        self._connection = connect_to_agent(cast("Client", _Client(listener, self._lines)), self._lines)

    async def begin(
        self, folder: str, server: tuple[str, str] | None, mode: str, meta: dict[str, Any]
    ) -> None:
        """Open a session in a folder.

        Args:
            server: the address of a server of tools over HTTP, and its token; None names none.
            mode: the id of the session's mode; empty keeps the program's own.
            meta: what goes into `_meta` of the request for a session.

        Raises:
            BadReplyError: the program failed, or does not answer in time.
            ConfigurationError: it cannot be used as it is.
        """
        nothing = schema.ClientCapabilities(
            fs=schema.FileSystemCapabilities(read_text_file=False, write_text_file=False)
        )
        us = schema.Implementation(name="pullwright", version="1")
        hello = await self._started(self._connection.initialize(PROTOCOL_VERSION, nothing, us))
        if hello.protocol_version not in self.versions:
            raise ConfigurationError(
                f"{self._name} speaks version {hello.protocol_version} of the Agent Client Protocol, and Pullwright version "
                f"{PROTOCOL_VERSION}: install another version of it"
            )
        servers: list[Any] = []
        if server is not None:
            offered = hello.agent_capabilities
            if offered is None or offered.mcp_capabilities is None or not offered.mcp_capabilities.http:
                raise ConfigurationError(
                    f"{self._name} takes no tools over HTTP, so it cannot propose anything here"
                )
            url, token = server
            headers = [schema.HttpHeader(name="Authorization", value=f"Bearer {token}")]
            servers.append(schema.HttpMcpServer(type="http", name="pullwright", url=url, headers=headers))
        opening = self._connection.new_session(cwd=folder, mcp_servers=servers, **meta)
        opened = await self._started(opening)
        self._lines.session = opened.session_id
        if mode:
            setting = self._connection.set_session_mode(session_id=opened.session_id, mode_id=mode)
            await self._started(setting)

    @property
    def received(self) -> int:
        """The number of lines that the program has sent."""
        return self._lines.count.total()

    async def prompt(self, text: str) -> str:
        """Send a message, wait until the program's turn ends, and return its reason.

        The caller limits the time.

        Raises:
            BadReplyError: the program failed, or ended.
        """
        asked = self._connection.prompt(session_id=self._lines.session, prompt=[text_block(text)])
        answer = await self._answer(asked)
        return str(answer.stop_reason)

    async def cancel(self) -> None:
        """Tell the program to end its turn. It does not raise."""
        with suppress(Exception):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._connection.cancel(session_id=self._lines.session)

    async def close(self) -> None:
        """Stop listening."""
        self._lines.close()
        with suppress(Exception):
            await self._connection.close()

    async def _started(self, request: Coroutine[Any, Any, _T]) -> _T:
        """Wait for an answer before the first prompt."""
        try:
            async with asyncio.timeout(self.start_seconds):
                return await self._answer(request)
        except TimeoutError as error:
            words = f"{self._name} did not answer within {self.start_seconds:.0f} s{self._last_words()}"
            raise BadReplyError(words) from error

    async def _answer(self, request: Coroutine[Any, Any, _T]) -> _T:
        """Wait for an answer, at most as long as the program lives."""
        try:
            return await request
        except RequestError as error:
            raise BadReplyError(
                f"{self._name} failed: {one_line(_words_of(error), limit=_MESSAGE_CHARS)}"
            ) from error
        except ConnectionError as error:
            why = self._report.problem or self._lines.problem
            ended = f"was stopped: {why}" if why else f"has ended{self._last_words()}"
            raise BadReplyError(f"{self._name} {ended}") from error
        except ValidationError as error:
            raise BadReplyError(f"{self._name} answered in a form that the protocol does not have") from error

    def _last_words(self) -> str:
        line = self._report.last_line
        return f": {one_line(line, limit=_MESSAGE_CHARS)}" if line else ""


def _words_of(error: RequestError) -> str:
    """Return an error of the program in its words: the details, where vendors put the reason, or the message."""
    data = error.data
    details = data.get("details") or data.get("message") if isinstance(data, dict) else data
    return f"{error} ({details})" if details and str(details) != str(error) else str(error)


class _Client:
    """The method that the program may call. The library finds it by its name, and refuses all others."""

    def __init__(self, listener: Listener, lines: _BoundedLines) -> None:
        self._listener, self._lines = listener, lines

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        """Answer by the policy: allow once, or refuse once. Options are chosen by their kind."""
        is_ours = session_id == self._lines.session
        wanted = "allow_once" if is_ours and self._listener.may(tool_call) else "reject_once"
        chosen = next((one.option_id for one in options if one.kind == wanted), None)
        if chosen is None:
            return schema.RequestPermissionResponse(outcome=schema.DeniedOutcome(outcome="cancelled"))
        return schema.RequestPermissionResponse(
            outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen)
        )


class _BoundedLines:
    """The library's transport over a program's pipes. It gives updates to the listener and the rest to the library.

    Attributes:
        session: the id of the session; updates of another one are left out.
        count: how many lines of each kind came.
    """

    def __init__(self, running: RunningProgram, listener: Listener, most: Mapping[str, int]) -> None:
        self._running, self._listener, self._most = running, listener, most
        self._closed, self._order = asyncio.Event(), asyncio.Lock()
        self.session, self.problem = "", ""
        self.count: Counter[str] = Counter()

    async def send(self, message: dict[str, Any]) -> None:
        """Write one message, after those that were sent before."""
        async with self._order:
            if self._closed.is_set():
                raise ConnectionError("closed")
            try:
                await self._running.write(f"{json.dumps(message)}\n".encode())
            except OSError as error:
                raise ConnectionError(str(error)) from error

    async def receive(self) -> dict[str, Any] | None:
        """Return the next request or answer; None at the end."""
        while not self._closed.is_set() and (line := await self._running.line()):
            message = read_message(line)
            kind = _kind(message)
            self.count[kind] += 1
            if self.count[kind] > self._most[kind]:
                self.problem = f"it sent more than {self._most[kind]:,} {kind}"
                self._running.end_for(self.problem)
                return None
            if self.count.total() % 100 == 0:
                await asyncio.sleep(0)  # a flood does not keep others from working
            if kind in {"requests", "answers"}:
                return message
            if message is not None and message["method"] == "session/update":
                with suppress(ValidationError):  # of a newer version: what matters are the files
                    told = schema.SessionNotification.model_validate(message.get("params"))
                    if told.session_id == self.session:
                        self._listener.told(told.update)
        return None

    def close(self) -> None:
        """Accept nothing more."""
        self._closed.set()


def _kind(message: dict[str, Any] | None) -> str:
    if message is None:
        return "lines that are no messages"
    if "id" in message:
        return "requests" if "method" in message else "answers"
    return "updates"
