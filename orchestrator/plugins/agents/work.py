"""An agent program at work in a session, in place of the loop: its box, its relay, its server of tools, and its turns.

The files, the host's own tool calls and the relay's record are the truth. What the program tells, its stop reasons and
its own costs are not.

The session's tools are served over HTTP: the Model Context Protocol in the form `Streamable HTTP`,
https://modelcontextprotocol.io/specification/2025-06-18/basic/transports. Calls run by the session's own runner:
checked, asked of the gate, told in events, and answered as to a model. The answer to a call is a stream that begins at
once, because programs wait for the first byte of an answer for minutes only, and tests may take longer.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from orchestrator.app.http_server import ServerLimits
from orchestrator.core.errors import BadReplyError
from orchestrator.core.json_rpc import read_message
from orchestrator.core.messages import Image, ToolCall
from orchestrator.core.prompts import render
from orchestrator.engine.environments.running_program import ProgramReport
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.loop import EndKind, SessionEnd, is_question
from orchestrator.engine.tools.base import Mode, Order, truncate_chars
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests
from orchestrator.engine.tools.files import read_file
from orchestrator.engine.tools.registry import ToolRegistry
from orchestrator.engine.tools.search import glob, grep, list_dir
from orchestrator.engine.tools.shell import run_shell_command
from orchestrator.plugins.agents.box import HOME, MODEL_PORT, TOOLS_PORT, Door, Start, boxed
from orchestrator.plugins.agents.client import AgentConnection, Told
from orchestrator.plugins.agents.known import fill_in
from orchestrator.plugins.agents.relay import Relay

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from starlette.types import Receive, Scope, Send

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Message
    from orchestrator.engine.environments.running_program import RunningProgram
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.session.calls import CallEnd, ToolRunner
    from orchestrator.engine.session.loop import Inputs
    from orchestrator.engine.tools.base import Ends, Tool
    from orchestrator.engine.tools.control import MayFinish, Propose, RunTests
    from orchestrator.plugins.agents.client import Protect
    from orchestrator.plugins.agents.known import AgentKind, Installed
    from orchestrator.plugins.agents.relay import Upstream

_MOST_ANSWER_CHARS = 9_500
"""One program cuts what is longer than 10,000 characters, the note about what is left out counted."""
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


class HostTools(Door):
    """The tools of one session as an ASGI application.

    Args:
        runner: runs the calls.
        token: what the program has to send with each request.
        instructions: text for the program's model.

    Attributes:
        ending: the end of the session that a call caused; None before that.
        ended: set at that moment, or when a call failed by `error`.
    """

    server_limits = LIMITS

    def __init__(self, runner: ToolRunner, token: str, instructions: str) -> None:
        super().__init__()
        self._runner, self._token, self._instructions = runner, token, instructions
        self._alone, self._together = asyncio.Lock(), asyncio.Semaphore(_MOST_AT_ONCE)
        self._numbers = count(1)
        self.ending: Ends | None = None
        self.ended = asyncio.Event()
        self.error: BaseException | None = None

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
        task = self._start(self._run(call), number)
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
        # What matters stands first and last.
        shown = truncate_chars(end.result.content, _MOST_ANSWER_CHARS, Mode.HEAD_TAIL)
        return _text(shown, is_error=end.result.is_error)

    def _cancel(self, number: Any) -> None:
        """Cancel a running call. One program says so of calls that have ended, too."""
        for task, name in self._running.items():
            if name == number:
                task.cancel()


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


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
            output_tokens=self.output_tokens,
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
        repositories = getattr(runner.environment, "repositories", (".git",))
        start = Start(self.installed, filled, folder, repositories, is_bare=not commands)
        # What it changes is found in the files, as after commands.
        runner.ledger.shell_used = True
        report, doors = ProgramReport(), {MODEL_PORT: relay, TOOLS_PORT: tools}
        await relay.open()
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
