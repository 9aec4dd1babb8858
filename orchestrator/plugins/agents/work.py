"""An agent program at work in a session, in place of the loop: its box, its relay, its server of tools, and its turns.

The files, the host's own tool calls and the relay's record are the truth. What the program tells, its stop reasons and
its own costs are not. What it tells becomes `SubagentEvent`s with the agent's name, so that every view shows who said
it.

The session's tools are served over HTTP: the Model Context Protocol in the form `Streamable HTTP`,
https://modelcontextprotocol.io/specification/2025-06-18/basic/transports. Calls run by the session's own runner:
checked, asked of the gate, told in events, and answered as to a model. The answer to a call is a stream that begins at
once, because programs wait for the first byte of an answer for minutes only, and tests may take longer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import posixpath
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from acp.schema import (
    AgentMessageChunk,
    AgentPlanUpdate,
    AgentThoughtChunk,
    FileEditToolCallContent,
    TextContentBlock,
    ToolCallProgress,
    ToolCallStart,
)

from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import BadReplyError, ToolError
from orchestrator.core.events import (
    CallStatus,
    Defence,
    Guarded,
    PlanAccepted,
    ReasoningDelta,
    SubagentEvent,
    TextDelta,
    TodosChanged,
    ToolCallEnded,
    ToolCallStarted,
    Warned,
)
from orchestrator.core.http_server import ServerLimits, serving
from orchestrator.core.messages import Image, ToolCall
from orchestrator.core.prompts import one_line, render
from orchestrator.core.todos import MOST_CHARACTERS, TodoList, TodoPriority, TodoStatus
from orchestrator.engine.environments.running_program import ProgramReport
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.gate import Refusal
from orchestrator.engine.session.loop import EndKind, SessionEnd, is_question
from orchestrator.engine.tools.base import Order
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests
from orchestrator.engine.tools.files import read_file
from orchestrator.engine.tools.registry import ToolRegistry
from orchestrator.engine.tools.search import glob, grep, list_dir
from orchestrator.engine.tools.shell import run_shell_command
from orchestrator.plugins.agents.box import HOME, MODEL_PORT, TOOLS_PORT, Start, boxed
from orchestrator.plugins.agents.client import AgentConnection
from orchestrator.plugins.agents.known import fill_in
from orchestrator.plugins.agents.relay import Relay, RelayLimits

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager

    from acp.schema import ToolCallUpdate
    from starlette.types import Receive, Scope, Send

    from orchestrator.core.clock import Clock
    from orchestrator.core.events import Emit, Event
    from orchestrator.core.messages import Message
    from orchestrator.engine.environments.running_program import RunningProgram
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.calls import CallEnd, ToolRunner
    from orchestrator.engine.session.gate import Gate
    from orchestrator.engine.session.loop import Inputs
    from orchestrator.engine.tools.base import Ends, Tool
    from orchestrator.engine.tools.control import MayFinish, Propose, RunTests
    from orchestrator.plugins.agents.known import AgentKind, Installed
    from orchestrator.plugins.agents.relay import Upstream


_TITLE_CHARS, _OUTPUT_CHARS, _TEXT_CHARS = 200, 20_000, 20_000
_MOST_CALLS = 5_000
_READS = frozenset({"read", "search", "think", "fetch", "switch_mode"})
_EDITS = frozenset({"edit", "delete", "move"})
_ANY_FILE = FileVersion("100644", b"", 0)
_WORD = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*")
_MOST_WORDS = 6


class Told:
    """What one agent tells in one session, and the answers to its requests.

    Args:
        agent: its name in events.
        emit: receives the events.
        policy: answers its requests for permission.
        ours: the names of the host's tools, whose calls the host itself tells of.

    Attributes:
        last_text: what it said since its last call, which is its last word at the end of a turn.
    """

    def __init__(
        self, agent: str, emit: Emit, policy: PermissionPolicy, ours: Sequence[str], clock: Clock
    ) -> None:
        self._agent, self._emit, self._policy, self._ours, self._clock = (
            agent,
            emit,
            policy,
            frozenset(ours),
            clock,
        )
        self._calls: dict[str, str] = {}
        self._ended: set[str] = set()
        self._is_full = False
        self.last_text = ""

    def told(self, update: Any) -> None:
        """See `Listener`."""
        match update:
            case AgentMessageChunk(content=TextContentBlock(text=text)):
                self.last_text = (self.last_text + text)[:_TEXT_CHARS]
                self._tell(TextDelta(text[:_TEXT_CHARS]))
            case AgentThoughtChunk(content=TextContentBlock(text=text)):
                self._tell(ReasoningDelta(text[:_TEXT_CHARS]))
            case ToolCallStart():
                self._begin(update.tool_call_id, update.title, update)
                self._progress(update)
            case ToolCallProgress():
                self._progress(update)
            case AgentPlanUpdate():
                self._plan(update)
            case _:
                pass

    def end_turn(self) -> str:
        """Keep what was said last, end the calls that have no end, and return that text."""
        text = self._flush()
        for number in [one for one in self._calls if one not in self._ended]:
            self._end(number, CallStatus.INTERRUPTED, "the turn ended before this call")
        return text

    def may(self, call: ToolCallUpdate) -> bool:
        """See `Listener`."""
        if call.kind in {None, "other"} and self._is_ours(call.title or ""):
            return True
        self._begin(call.tool_call_id, call.title or "", call)
        refusal = self._policy.refusal(call)
        if refusal is not None:
            self._policy.budget.count_denial()
            self._emit(Guarded(refusal.defence, f"{self._agent} asked, and was refused: {refusal}"))
            self._end(call.tool_call_id, CallStatus.REFUSED, str(refusal))
        return refusal is None

    def _is_ours(self, title: str) -> bool:
        """Return whether a call is one of the host's tools, such as `mcp__pullwright__finish`, by its title."""
        words = _WORD.findall(title[:_TITLE_CHARS].replace("pullwright_", "pullwright "))
        return len(words) <= _MOST_WORDS and "pullwright" in words and not self._ours.isdisjoint(words)

    def _tell(self, event: Event) -> None:
        self._emit(SubagentEvent(self._agent, event))

    def _flush(self) -> str:
        text, self.last_text = self.last_text.strip(), ""
        if text:
            self._tell(PlanAccepted(text, 0))
        return text

    def _begin(self, number: str, title: str, call: Any) -> None:
        number = self._named(number)
        if number in self._calls or self._is_ours(title):
            return
        if len(self._calls) >= _MOST_CALLS:
            if not self._is_full:
                self._is_full = True
                self._emit(
                    Warned(
                        f"{self._agent} told of more than {_MOST_CALLS:,} calls; the others are not recorded"
                    )
                )
            return
        self._flush()
        name = self._calls[number] = self._named(title or call.kind or "call")
        self._tell(ToolCallStarted(number, name, _arguments(call)))

    def _named(self, title: str) -> str:
        """Return a title as it can be shown: one line, in which a terminal finds nothing to carry out."""
        return one_line(title, limit=_TITLE_CHARS, keep="`")

    def _progress(self, update: Any) -> None:
        status = {"completed": CallStatus.OK, "failed": CallStatus.FAILED}.get(update.status or "")
        if status is not None:
            self._end(update.tool_call_id, status, _output(update))

    def _end(self, number: str, status: CallStatus, output: str) -> None:
        number = self._named(number)
        if number in self._calls and number not in self._ended:
            self._ended.add(number)
            self._tell(ToolCallEnded(number, self._calls[number], status, output))

    def _plan(self, update: AgentPlanUpdate) -> None:
        """Show the agent's plan as the todo list."""
        todos, now = TodoList(), self._clock.now()
        try:
            for entry in update.entries:
                item = todos.add(entry.content[:MOST_CHARACTERS], TodoPriority(entry.priority), now)
                todos.update(item.id, now, status=TodoStatus(entry.status))
        except (ToolError, ValueError):
            pass  # the rest of a plan that is too long, or has an empty line
        self._emit(TodosChanged(todos.items, todos.added))


class PermissionPolicy:
    """Answers an agent's requests as the gate answers a model's calls.

    Args:
        root: the clone's tree. Nothing else may be edited.
        gate: decides about commands.
        protect: returns why the change to a file waits for a person, or None.
        runs_commands: whether the agent may run commands at all.
        budget: counts what was refused.
    """

    def __init__(
        self,
        root: str,
        gate: Gate,
        protect: Callable[[FileChange], str | None],
        budget: Budget,
        *,
        runs_commands: bool,
    ) -> None:
        self._root, self._gate, self._protect, self._runs_commands = root, gate, protect, runs_commands
        self.budget = budget

    def refusal(self, call: ToolCallUpdate) -> Refusal | None:
        """Return why the agent may not do this; None if it may."""
        kind = call.kind or "other"
        if kind in _READS:
            return None
        if kind in _EDITS:
            return self._of_edit(call)
        command = _command(call.raw_input) or call.title or ""
        if not self._runs_commands:
            return Refusal(f"no command runs here: {one_line(command, limit=_TITLE_CHARS)}", Defence.LEVEL)
        tool = run_shell_command()
        found = self._gate(tool, ToolCall(call.tool_call_id, tool.name, {"command": command}))
        return found if found is None or isinstance(found, Refusal) else Refusal(found, Defence.COMMANDS)

    def _of_edit(self, call: ToolCallUpdate) -> Refusal | None:
        paths = _paths(call)
        if not paths:
            return Refusal("the edit names no file", Defence.PATHS)
        for path in paths:
            inside = posixpath.relpath(posixpath.normpath(posixpath.join(self._root, path)), self._root)
            if inside.split("/")[0] in {"..", ".", ".git"}:
                return Refusal(
                    f"{one_line(path, limit=_TITLE_CHARS)} is outside of the clone's files", Defence.PATHS
                )
            if reason := self._protect(FileChange(inside, None, _ANY_FILE)):
                return Refusal(
                    f"{one_line(inside, limit=_TITLE_CHARS)} waits for a person: {reason}",
                    Defence.PROTECTED_PATHS,
                )
        return None


def _command(given: Any) -> str:
    """Return the command in the input of a call, as programs write it."""
    value = given.get("command", given.get("cmd")) if isinstance(given, dict) else None
    if isinstance(value, list):
        # The last word of `bash -lc COMMAND` is what counts.
        return str(value[-1]) if value else ""
    return value if isinstance(value, str) else ""


def _paths(call: Any) -> list[str]:
    """Return the files that an edit names: its places, and its differences."""
    found = [one.path for one in call.locations or ()]
    found += [one.path for one in call.content or () if isinstance(one, FileEditToolCallContent)]
    return list(dict.fromkeys(found))


def _arguments(call: Any) -> dict[str, Any]:
    """Return what a call is about, in a bounded form: its kind, its places, and its input as text."""
    told: dict[str, Any] = {"kind": str(call.kind or "other")}
    if places := _paths(call):
        told["paths"] = [one_line(path, limit=_TITLE_CHARS) for path in places[:20]]
    if call.raw_input:
        told["input"] = json.dumps(call.raw_input, default=str)[:_OUTPUT_CHARS]
    return told


def _output(update: Any) -> str:
    """Return the text of a call's result, and its differences, in a bounded form."""
    parts = []
    for one in update.content or ():
        if isinstance(one, FileEditToolCallContent):
            parts.append(f"{one.path}\n- {one.old_text or ''}\n+ {one.new_text}")
        elif (inner := getattr(one, "content", None)) is not None and isinstance(inner, TextContentBlock):
            parts.append(inner.text)
    if not parts and update.raw_output:
        parts.append(json.dumps(update.raw_output, default=str))
    return "\n".join(parts)[:_OUTPUT_CHARS]


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

    Attributes:
        ending: the end of the session that a call caused; None before that.
        ended: set at that moment.
    """

    def __init__(self, runner: ToolRunner, token: str, instructions: str) -> None:
        self._runner, self._token, self._instructions = runner, token, instructions
        self._alone, self._together = asyncio.Lock(), asyncio.Semaphore(_MOST_AT_ONCE)
        self._calls: dict[asyncio.Task[CallEnd], str] = {}
        self._closing = asyncio.Event()
        self._count = 0
        self.ending: Ends | None = None
        self.ended = asyncio.Event()
        self.error: BaseException | None = None

    @property
    def is_working(self) -> bool:
        """Whether a call runs."""
        return bool(self._calls)

    async def serve(self, listener: socket.socket) -> None:
        """Accept connections at a listening socket until `close`. The socket is closed then."""
        async with serving(self, listener, limits=LIMITS):
            await self._closing.wait()

    async def close(self) -> None:
        """Stop serving. Calls that run are cancelled, and have ended then, and so has what they started."""
        self._closing.set()
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

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
        task = asyncio.ensure_future(self._run(call))
        self._calls[task] = json.dumps(number)
        task.add_done_callback(self._calls.pop)
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
            task.cancel()
        return None

    async def _run(self, call: ToolCall) -> CallEnd:
        """Run a call: one that reads beside others, every other one alone."""
        tool = self._runner.tools.get(call.name)
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
        for task, name in self._calls.items():
            if name == json.dumps(number):
                task.cancel()


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


_LOOK_SECONDS = 0.25
"""How often a running turn is checked for a stop, a cap and refused calls."""
_LAST_SECONDS = 10.0
"""Time for a program to end its turn by itself after its cap is reached."""
_SILENT_SECONDS = 3_600.0
"""A turn ends in which the program says nothing for so long, asks its model nothing, and no call of the host's runs."""
_TURN_LOST_SECONDS = 5.0
"""Time for it to end a turn that was cancelled. Then its box ends."""


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What stands between an agent program and the rest. The proof of its attacks puts others in their place.

    Attributes:
        box: starts the program, see `boxed`.
    """

    box: Callable[..., AbstractAsyncContextManager[RunningProgram]] = boxed
    relay: type[Relay] = Relay
    connection: type[AgentConnection] = AgentConnection
    told: type[Told] = Told


@dataclass(frozen=True, slots=True)
class AgentProgram:
    """An agent program that does the work of a run's sessions.

    Attributes:
        kind, installed: what it is, and where.
        level: `safe` or `dangerous`.
        model: the name of its model at the server.
        upstream: the server that its relay asks.
        output_tokens: the longest reply that it may ask for.
        window: tokens that its model can read.
        users_words: the user's own instructions for every task; may be empty.
        inherited: this program's variables; none of them reaches the program in `safe`.
        new_token: returns a new random text.
    """

    kind: AgentKind
    installed: Installed
    level: str
    model: str
    upstream: Upstream
    output_tokens: int
    window: int
    sandbox: BubblewrapSandbox
    redactor: Redactor
    clock: Clock
    inherited: Mapping[str, str] = field(repr=False)
    random: Callable[[], float]
    new_token: Callable[[], str]
    users_words: str = ""
    parts: AgentParts = AgentParts()

    @property
    def name(self) -> str:
        """What events call it."""
        return self.kind.name

    @property
    def runs_commands(self) -> bool:
        """Whether it may run commands of its own."""
        return self.level == "dangerous"

    def profile(
        self,
        propose: Propose,
        may_finish: MayFinish,
        tests: RunTests | None = None,
        foreign: tuple[Tool, ...] = (),
    ) -> Profile:
        """Create the profile with the tools that the host serves to it.

        In `safe` commands that a person allows are run by the host, and so are tools for reading if it has none.
        """
        own: tuple[Tool, ...] = ()
        if not self.runs_commands:
            reading = () if self.kind.reads else (read_file(), list_dir(), grep(), glob())
            own = reading if self.kind.is_bare else (*reading, run_shell_command())
        running = () if tests is None else (run_tests(tests),)
        tools = (*own, *foreign, *running, create_pull_request(propose), ask_question(), finish(may_finish))
        tools = own if self.kind.is_bare else tools
        words = self._words
        return Profile(
            f"agent-{self.name}",
            ToolRegistry(tools),
            lambda shown: words(frozenset(one.name for one in shown)),
            has_role=True,
        )

    def _words(self, tools: frozenset[str]) -> str:
        commands = self.runs_commands or "run_shell_command" in tools
        return render("plugins/agents/instructions", tools=tools, commands=commands)

    async def work(
        self,
        protect: Callable[[FileChange], str | None],
        message: Message,
        inputs: Inputs,
        runner: ToolRunner,
    ) -> SessionEnd:
        """Work on an input: see `Worker`.

        Args:
            protect: returns why the change to a file waits for a person, or None.
        """
        del message  # the conversation has it together with what is remembered
        deadline = asyncio.timeout(inputs.budget.seconds_left)
        try:
            async with deadline, self._running(protect, inputs, runner) as turns:
                return await turns.until_done(self._first(inputs.history.turns[-1].message, runner))
        except TimeoutError:
            if not deadline.expired():
                raise
            limit = inputs.budget.out_of_time()
            inputs.emit(limit)
            return SessionEnd(EndKind.LIMIT, limit.detail, limit.limit)

    def _first(self, message: Message, runner: ToolRunner) -> str:
        if self.kind.is_bare:
            return message.text
        users = self.users_words.strip()
        parts = [self._words(frozenset(runner.told)), message.text]
        if users:
            parts.insert(1, render("agent/user_instructions", instructions=users))
        if images := sum(isinstance(part, Image) for part in message.parts):
            parts.append(render("agent/image_not_shown", count=images))
        return "\n\n".join(parts)

    @asynccontextmanager
    async def _running(
        self, protect: Callable[[FileChange], str | None], inputs: Inputs, runner: ToolRunner
    ) -> AsyncGenerator[_Turns]:
        """Start the program in its box, and open a session in it. Everything ends with the block."""
        folder = runner.environment.working_directory()
        token, placeholder = self.new_token(), self.new_token()
        relay = self.parts.relay(
            self.upstream,
            budget=inputs.budget,
            emit=inputs.emit,
            redactor=self.redactor,
            placeholder=placeholder,
            clock=self.clock,
            random=self.random,
            limits=RelayLimits(output_tokens=self.output_tokens),
        )
        tools = HostTools(runner, token, self._words(frozenset(runner.told)))
        policy = PermissionPolicy(
            folder, runner.gate, protect, inputs.budget, runs_commands=self.runs_commands
        )
        told = self.parts.told(self.name, inputs.emit, policy, runner.told, self.clock)
        address = f"http://127.0.0.1:{TOOLS_PORT}/mcp"
        filled = fill_in(
            self.kind,
            self.installed,
            self.level,
            {
                "relay": f"http://127.0.0.1:{MODEL_PORT}",
                "tools": address,
                "token": token,
                "placeholder": placeholder,
                "model": self.model,
                "home": HOME,
                "output_tokens": str(self.output_tokens),
                "window": str(self.window),
            },
            runner.told,
        )
        start = Start(
            filled.argv,
            folder,
            getattr(runner.environment, "repositories", (".git",)),
            self.installed.readable,
            filled.environment,
            filled.files,
            is_bare=not self.runs_commands,
        )
        # What it changes is found in the files, as after commands.
        runner.ledger.shell_used = True
        report = ProgramReport()
        doors = {MODEL_PORT: _Door(relay), TOOLS_PORT: _Door(tools)}
        async with self.parts.box(start, self.sandbox, self.inherited, doors, report) as running:
            connection = self.parts.connection(self.kind.title, running, report, told)
            try:
                server = (address, token) if self.kind.tools == "session" else None
                await connection.begin(folder, server, filled.mode, dict(filled.meta))
                yield _Turns(
                    self.kind.title, connection, relay, tools, told, inputs, self.clock, self.kind.is_bare
                )
            finally:
                told.end_turn()
                await connection.close()


class _Door:
    """Serves one door of a box, by the relay or by the tools, until it is closed."""

    def __init__(self, served: Relay | HostTools) -> None:
        self._served = served
        self._task: asyncio.Task[None] | None = None

    async def serve(self, listener: socket.socket) -> None:
        """See `Doors`."""
        listener.setblocking(False)
        self._task = asyncio.create_task(self._served.serve(listener))

    async def close(self) -> None:
        """See `Doors`."""
        await self._served.close()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


@dataclass(slots=True)
class _Turns:
    """The turns of one program: the first one, and one more if it ended without a proposal."""

    name: str
    connection: AgentConnection
    relay: Relay
    tools: HostTools
    told: Told
    inputs: Inputs
    clock: Clock
    has_one_turn: bool
    silent_seconds: float = _SILENT_SECONDS

    async def until_done(self, text: str) -> SessionEnd:
        """Send a message, and remind the program once if its turn ends without a proposal."""
        while True:
            failure = await self._turn(text)
            said = self.told.end_turn()
            if end := self._end():
                return end
            if self.relay.failure is not None:
                raise self.relay.failure
            if failure is not None:
                raise failure
            host = self.inputs.host
            if self.has_one_turn or await host.is_done():
                return SessionEnd(EndKind.COMPLETED, said)
            words = await host.may_end(said)
            late = self.inputs.take_steering()
            if not words and not late:
                return SessionEnd(EndKind.AWAITING if is_question(said) else EndKind.COMPLETED, said)
            text = "\n\n".join([*late, *filter(None, [words])])

    async def _turn(self, text: str) -> BadReplyError | None:
        """Send a message and wait for the end of the turn, which a stop, a cap or the host may bring about.

        Returns:
            Why the turn failed; None if it did not.
        """
        turn = asyncio.ensure_future(self.connection.prompt(text))
        ended = asyncio.ensure_future(self.tools.ended.wait())
        left, silent, received, silent_since = _LAST_SECONDS, None, -1, self.clock.monotonic()
        try:
            while not (turn.done() or ended.done() or left <= 0 or silent):
                if self.inputs.host.stopped() or self.inputs.budget.denied:
                    break
                if self.relay.is_working or self.tools.is_working or self.connection.received != received:
                    received, silent_since = self.connection.received, self.clock.monotonic()
                if self.clock.monotonic() - silent_since >= self.silent_seconds:
                    words = f"{self.name} did nothing for {self.silent_seconds / 60:.0f} minutes in its turn"
                    silent = BadReplyError(f"{words}, and was ended")
                if self.relay.limit:  # its last request was refused, which it may still tell
                    left -= _LOOK_SECONDS
                await asyncio.wait([turn, ended], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                await self.connection.cancel()
                await asyncio.wait([turn], timeout=_TURN_LOST_SECONDS)
            error = turn.exception() if turn.done() and not silent else silent
            if error is not None and not isinstance(error, BadReplyError):
                raise error
            return error
        finally:
            for one in (turn, ended):
                one.cancel()
            await asyncio.gather(turn, ended, return_exceptions=True)

    def _end(self) -> SessionEnd | None:
        """Return the end of the session that was caused outside of the program, if there is one."""
        if self.tools.error is not None:
            raise self.tools.error
        if ending := self.tools.ending:
            return SessionEnd(EndKind(ending.ending), ending.text)
        if limit := self.relay.limit or self.inputs.budget.denied:
            if limit is not self.relay.limit:
                self.inputs.emit(limit)
            return SessionEnd(EndKind.LIMIT, limit.detail, limit.limit)
        if self.inputs.host.stopped():
            return SessionEnd(EndKind.INTERRUPTED, "interrupted")
        return None
