"""Speaks the Agent Client Protocol with a running program: https://agentclientprotocol.com/protocol/v1/overview.

The official library encodes requests and checks answers. What the program sends is bounded here, before the library
reads it: the size of a line, of all lines between two of ours, the number of updates, and lines that are no messages.
What the program tells becomes `SubagentEvent`s with the agent's name, so that every view shows who said it.
"""

from __future__ import annotations

import asyncio
import json
import posixpath
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, cast

from acp import PROTOCOL_VERSION, RequestError, connect_to_agent, schema, text_block
from pydantic import ValidationError

from orchestrator.core import events
from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import BadReplyError, ConfigurationError, ToolError
from orchestrator.core.events import CallStatus, Defence
from orchestrator.core.json_rpc import read_message
from orchestrator.core.messages import ToolCall
from orchestrator.core.prompts import one_line
from orchestrator.core.todos import MOST_CHARACTERS, TodoList, TodoPriority, TodoStatus
from orchestrator.engine.session.gate import Refusal
from orchestrator.engine.tools.shell import run_shell_command

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Coroutine, Mapping
    from typing import TypeVar

    from acp import Client

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.engine.environments.running_program import ProgramReport, RunningProgram
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.gate import Gate

    _T = TypeVar("_T")
    Protect = Callable[[FileChange], str | None]
    """Returns why the change to a file waits for a person, or None."""

_CANCEL_SECONDS = 5.0
_MESSAGE_CHARS = 300


class AgentConnection:
    """The session of one program. A problem is one error of one line, and ends the session.

    Args:
        name: how messages call the program.
        running: the program.
        told: receives what the program tells, and decides what it may do.

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

    def __init__(self, name: str, running: RunningProgram, report: ProgramReport, told: Told) -> None:
        self._name, self._report = name, report
        self._lines = _BoundedLines(running, told, self.most)
        self._connection = connect_to_agent(cast("Client", _Client(told, self._lines)), self._lines)

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

    def __init__(self, told: Told, lines: _BoundedLines) -> None:
        self._told, self._lines = told, lines

    async def request_permission(
        self,
        session_id: str,
        tool_call: schema.ToolCallUpdate,
        options: list[schema.PermissionOption],
        **_: Any,
    ) -> schema.RequestPermissionResponse:
        """Answer by the policy: allow once, or refuse once. Options are chosen by their kind."""
        is_ours = session_id == self._lines.session
        wanted = "allow_once" if is_ours and self._told.may(tool_call) else "reject_once"
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

    def __init__(self, running: RunningProgram, told: Told, most: Mapping[str, int]) -> None:
        self._running, self._told, self._most = running, told, most
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
                        self._told.take(told.update)
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


_TITLE_CHARS, _OUTPUT_CHARS, _TEXT_CHARS = 200, 20_000, 20_000
_MOST_CALLS = 5_000
_READS = frozenset({"read", "search", "think", "fetch", "switch_mode"})
_EDITS = frozenset({"edit", "delete", "move"})
_STATUSES = {"completed": CallStatus.OK, "failed": CallStatus.FAILED}
_ANY_FILE = FileVersion("100644", b"", 0)
_WORD = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*")
_MOST_WORDS = 6


@dataclass
class Told:
    """What one agent tells in one session, and the answers to its requests, as the gate answers a model's calls.

    Attributes:
        agent: its name in events.
        emit: receives the events.
        ours: the names of the host's tools, whose calls the host itself tells of.
        root: the clone's tree. Nothing else may be edited.
        gate: decides about commands.
        runs_commands: whether the agent may run commands at all.
        budget: counts what was refused.
        last_text: what it said since its last call, which is its last word at the end of a turn.
    """

    agent: str
    emit: Emit
    ours: Container[str]
    root: str
    gate: Gate
    protect: Protect
    runs_commands: bool
    budget: Budget
    clock: Clock
    last_text: str = ""
    _calls: dict[str, str] = field(default_factory=dict)  # its names for them; none if they have ended
    _is_full: bool = False

    def take(self, update: Any) -> None:
        """Take one update, in the order of arrival: one of the classes that `SessionNotification.update` may have."""
        match update:
            case schema.AgentMessageChunk(content=schema.TextContentBlock(text=text)):
                self.last_text = (self.last_text + text)[:_TEXT_CHARS]
                self._tell(events.TextDelta(text[:_TEXT_CHARS]))
            case schema.AgentThoughtChunk(content=schema.TextContentBlock(text=text)):
                self._tell(events.ReasoningDelta(text[:_TEXT_CHARS]))
            case schema.ToolCallStart() | schema.ToolCallProgress():
                if isinstance(update, schema.ToolCallStart):
                    self._begin(update)
                if update.status in _STATUSES:
                    self._end(update.tool_call_id, _STATUSES[update.status], _output(update))
            case schema.AgentPlanUpdate():
                self._plan(update)
            case _:
                pass

    def end_turn(self) -> str:
        """Keep what was said last, end the calls that have no end, and return that text."""
        text = self._flush()
        for number in list(self._calls):
            self._end(number, CallStatus.INTERRUPTED, "the turn ended before this call")
        return text

    def may(self, call: schema.ToolCallUpdate) -> bool:
        """Return whether the agent may do what it asks for."""
        if call.kind in {None, "other"} and self._is_ours(call.title or ""):
            return True
        self._begin(call)
        refusal = self._refusal(call)
        if refusal is not None:
            self.budget.count_denial()
            self.emit(events.Guarded(refusal.defence, f"{self.agent} asked, and was refused: {refusal}"))
            self._end(call.tool_call_id, CallStatus.REFUSED, str(refusal))
        return refusal is None

    def _refusal(self, call: schema.ToolCallUpdate) -> Refusal | None:
        """Return why the agent may not do this; None if it may."""
        if call.kind in _READS:
            return None
        if call.kind in _EDITS:
            paths = _paths(call)
            refusals = filter(None, map(self._refusal_of_edit, paths))
            return next(refusals, None) if paths else Refusal("the edit names no file", Defence.PATHS)
        command = _command(call.raw_input) or call.title or ""
        if not self.runs_commands:
            return Refusal(f"no command runs here: {_line(command)}", Defence.LEVEL)
        tool = run_shell_command()
        found = self.gate(tool, ToolCall(call.tool_call_id, tool.name, {"command": command}))
        return found if found is None or isinstance(found, Refusal) else Refusal(found, Defence.COMMANDS)

    def _refusal_of_edit(self, path: str) -> Refusal | None:
        inside = posixpath.relpath(posixpath.normpath(posixpath.join(self.root, path)), self.root)
        if inside.split("/")[0] in {"..", ".", ".git"}:
            return Refusal(f"{_line(path)} is outside of the clone's files", Defence.PATHS)
        reason = self.protect(FileChange(inside, None, _ANY_FILE))
        words = f"{_line(inside)} waits for a person: {reason}"
        return Refusal(words, Defence.PROTECTED_PATHS) if reason else None

    def _is_ours(self, title: str) -> bool:
        """Return whether a call is one of the host's tools, such as `mcp__pullwright__finish`, by its title."""
        words = _WORD.findall(title[:_TITLE_CHARS].replace("pullwright_", "pullwright "))
        return len(words) <= _MOST_WORDS and "pullwright" in words and any(one in self.ours for one in words)

    def _tell(self, event: Event) -> None:
        self.emit(events.SubagentEvent(self.agent, event))

    def _flush(self) -> str:
        text, self.last_text = self.last_text.strip(), ""
        if text:
            self._tell(events.PlanAccepted(text, 0))
        return text

    def _begin(self, call: Any) -> None:
        number, title = self._named(call.tool_call_id), call.title or ""
        if number in self._calls or self._is_ours(title):
            return
        if len(self._calls) >= _MOST_CALLS:
            words = f"{self.agent} told of more than {_MOST_CALLS:,} calls; the others are not recorded"
            if not self._is_full:
                self.emit(events.Warned(words))
            self._is_full = True
            return
        self._flush()
        name = self._calls[number] = self._named(title or call.kind or "call")
        self._tell(events.ToolCallStarted(number, name, _arguments(call)))

    def _named(self, title: str) -> str:
        """Return a title as it can be shown: one line, in which a terminal finds nothing to carry out."""
        return one_line(title, limit=_TITLE_CHARS, keep="`")

    def _end(self, number: str, status: CallStatus, output: str) -> None:
        number = self._named(number)
        if name := self._calls.get(number):
            self._calls[number] = ""
            self._tell(events.ToolCallEnded(number, name, status, output))

    def _plan(self, update: schema.AgentPlanUpdate) -> None:
        """Show the agent's plan as the todo list."""
        todos, now = TodoList(), self.clock.now()
        with suppress(ToolError, ValueError):  # the rest of a plan that is too long, or has an empty line
            for entry in update.entries:
                item = todos.add(entry.content[:MOST_CHARACTERS], TodoPriority(entry.priority), now)
                todos.update(item.id, now, status=TodoStatus(entry.status))
        self.emit(events.TodosChanged(todos.items, todos.added))


def _line(text: str) -> str:
    return one_line(text, limit=_TITLE_CHARS)


def _command(given: Any) -> str:
    """Return the command in the input of a call, as programs write it: the last word of `bash -lc COMMAND` counts."""
    value = given.get("command", given.get("cmd")) if isinstance(given, dict) else None
    value = str(value[-1]) if isinstance(value, list) and value else value
    return value if isinstance(value, str) else ""


def _paths(call: Any) -> list[str]:
    """Return the files that an edit names: its places, and its differences."""
    found = [one.path for one in call.locations or ()]
    found += [one.path for one in call.content or () if isinstance(one, schema.FileEditToolCallContent)]
    return list(dict.fromkeys(found))


def _arguments(call: Any) -> dict[str, Any]:
    """Return what a call is about, in a bounded form: its kind, its places, and its input as text."""
    told: dict[str, Any] = {"kind": str(call.kind or "other")}
    if places := _paths(call):
        told["paths"] = [_line(path) for path in places[:20]]
    if call.raw_input:
        told["input"] = json.dumps(call.raw_input, default=str)[:_OUTPUT_CHARS]
    return told


def _output(update: Any) -> str:
    """Return the text of a call's result, and its differences, in a bounded form."""
    parts = []
    for one in update.content or ():
        match one:
            case schema.FileEditToolCallContent(path=path, old_text=old, new_text=new):
                parts.append(f"{path}\n- {old or ''}\n+ {new}")
            case schema.ContentToolCallContent(content=schema.TextContentBlock(text=text)):
                parts.append(text)
            case _:
                pass
    if not parts and update.raw_output:
        parts.append(json.dumps(update.raw_output, default=str))
    return "\n".join(parts)[:_OUTPUT_CHARS]
