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
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from acp import schema
from starlette.responses import Response

from orchestrator.app.http_server import ServerLimits, serving
from orchestrator.core import events
from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import BadReplyError, ToolError
from orchestrator.core.events import CallStatus, Defence
from orchestrator.core.json_rpc import read_message
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
    from collections.abc import AsyncGenerator, Callable, Container, Mapping
    from contextlib import AbstractAsyncContextManager

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

    Protect = Callable[[FileChange], str | None]
    """Returns why the change to a file waits for a person, or None."""

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
    _calls: dict[str, str] = field(default_factory=dict)
    _ended: set[str] = field(default_factory=set)
    _is_full: bool = False

    def told(self, update: Any) -> None:
        """See `Listener`."""
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
        for number in [one for one in self._calls if one not in self._ended]:
            self._end(number, CallStatus.INTERRUPTED, "the turn ended before this call")
        return text

    def may(self, call: schema.ToolCallUpdate) -> bool:
        """See `Listener`."""
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
        if number in self._calls and number not in self._ended:
            self._ended.add(number)
            self._tell(events.ToolCallEnded(number, self._calls[number], status, output))

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
        if isinstance(one, schema.FileEditToolCallContent):
            parts.append(f"{one.path}\n- {one.old_text or ''}\n+ {one.new_text}")
        elif (inner := getattr(one, "content", None)) is not None and isinstance(
            inner, schema.TextContentBlock
        ):
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
        ended: set at that moment, or when a call failed by `error`.
    """

    def __init__(self, runner: ToolRunner, token: str, instructions: str) -> None:
        self._runner, self._token, self._instructions = runner, token, instructions
        self._alone, self._together = asyncio.Lock(), asyncio.Semaphore(_MOST_AT_ONCE)
        self._calls: dict[asyncio.Task[CallEnd], str | int] = {}
        self._closing, self._numbers = asyncio.Event(), count(1)
        self.ending: Ends | None = None
        self.ended = asyncio.Event()
        self.error: BaseException | None = None

    @property
    def is_working(self) -> bool:
        """Whether a call runs."""
        return bool(self._calls)

    async def serve(self, listener: socket.socket) -> None:
        """See `Serves`."""
        async with serving(self, listener, limits=LIMITS):
            await self._closing.wait()

    async def close(self) -> None:
        """See `Serves`. What the calls started has ended then, too."""
        self._closing.set()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        given = dict(scope["headers"]).get(b"authorization", b"")
        if not hmac.compare_digest(given, f"Bearer {self._token}".encode()):
            response = Response(status_code=401)
        elif scope["method"] != "POST":
            response = Response(status_code=405 if scope["method"] == "GET" else 200)
        elif (message := read_message((await receive()).get("body", b""))) is None:
            response = Response(status_code=400)
        elif (answer := self._answer(message)) is None:
            response = Response(status_code=202)
        elif isinstance(answer, ToolCall):
            return await self._call(message["id"], answer, send)
        else:
            content = json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer})
            response = Response(content, media_type="application/json")
        return await response(scope, receive, send)

    def _answer(self, message: dict[str, Any]) -> ToolCall | dict[str, Any] | None:
        """Return the answer to a message, or the call that it asks for; None if it wants no answer."""
        name, given = message.get("method"), message.get("params")
        params = given if isinstance(given, dict) else {}
        if message.get("id") is None or name is None:
            if name == "notifications/cancelled":
                self._cancel(params.get("requestId"))
            return None
        match name:
            case "tools/call":
                tool, arguments = params.get("name"), params.get("arguments")
                if not isinstance(tool, str) or not isinstance(arguments, dict | None):
                    return {"error": {"code": _INVALID, "message": "no call"}}
                return ToolCall(f"host-{next(self._numbers)}", tool, arguments or {})
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
                told = filter(None, map(self._runner.tools.get, self._runner.told))
                names = ("name", "description", "inputSchema")
                shown = [(one.name, one.definition.description, one.definition.parameters) for one in told]
                result = {"tools": [dict(zip(names, one, strict=True)) for one in shown]}
            case _:
                return {"error": {"code": _NOT_FOUND, "message": "no such method"}}
        return {"result": result}

    async def _call(self, number: str | int, call: ToolCall, send: Send) -> None:
        """Run a call, with a sign of life from time to time."""
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _piece(send, b": working\n\n")
        task = asyncio.ensure_future(self._run(call))
        self._calls[task] = number
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
            if name == number:
                task.cancel()


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _cut(text: str) -> str:
    """Return a text with its middle left out if it is long: what matters stands first and last."""
    if len(text) <= MOST_ANSWER_CHARS:
        return text
    half = MOST_ANSWER_CHARS // 2 - 50
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


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
        tools: list[Tool] = []
        if not (self.runs_commands or self.kind.reads):
            tools += read_file(), list_dir(), grep(), glob()
        if not self.kind.is_bare:
            tools += () if self.runs_commands else (run_shell_command(),)
            tools += foreign
            tools += () if tests is None else (run_tests(tests),)
            tools += create_pull_request(propose), ask_question(), finish(may_finish)

        return Profile(
            f"agent-{self.name}",
            ToolRegistry(tools),
            lambda shown: self._words(frozenset(one.name for one in shown)),
            has_role=True,
        )

    def _words(self, tools: frozenset[str]) -> str:
        commands = self.runs_commands or "run_shell_command" in tools
        return render("plugins/agents/instructions", tools=tools, commands=commands)

    async def work(
        self, protect: Protect, message: Message, inputs: Inputs, runner: ToolRunner
    ) -> SessionEnd:
        """Work on an input: see `Worker`."""
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
    async def _running(self, protect: Protect, inputs: Inputs, runner: ToolRunner) -> AsyncGenerator[_Turns]:
        """Start the program in its box, and open a session in it. Everything ends with the block."""
        folder, emit, budget = runner.environment.working_directory(), inputs.emit, inputs.budget
        token, placeholder = self.new_token(), self.new_token()
        relay = self.parts.relay(
            self.upstream,
            budget=budget,
            emit=emit,
            redactor=self.redactor,
            placeholder=placeholder,
            clock=self.clock,
            random=self.random,
            limits=RelayLimits(output_tokens=self.output_tokens),
        )
        tools = HostTools(runner, token, self._words(frozenset(runner.told)))
        commands = self.runs_commands
        told = self.parts.told(
            self.name, emit, runner.told, folder, runner.gate, protect, commands, budget, self.clock
        )
        address = f"http://127.0.0.1:{TOOLS_PORT}/mcp"
        values = {
            "relay": f"http://127.0.0.1:{MODEL_PORT}",
            "tools": address,
            "token": token,
            "placeholder": placeholder,
            "model": self.upstream.model,
            "home": HOME,
            "output_tokens": str(self.output_tokens),
            "window": str(self.window),
        }
        filled = fill_in(self.kind, self.level, values, runner.told)
        start = Start(
            self.installed.argv,
            folder,
            getattr(runner.environment, "repositories", (".git",)),
            self.installed.readable,
            filled.environment,
            filled.files,
            is_bare=not commands,
        )
        # What it changes is found in the files, as after commands.
        runner.ledger.shell_used = True
        report, doors = ProgramReport(), {MODEL_PORT: relay, TOOLS_PORT: tools}
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
