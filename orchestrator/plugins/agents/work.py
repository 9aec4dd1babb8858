"""An agent program at work in a session, in place of the loop: its box, its relay, its server of tools, and its turns.

The files and the relay's record are the truth. What the program tells, its stop reasons and its own costs are not.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import BadReplyError
from orchestrator.core.http_server import serving
from orchestrator.core.messages import Image
from orchestrator.core.prompts import render
from orchestrator.engine.environments.running_program import ProgramReport
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.session.loop import EndKind, SessionEnd, is_question
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish, run_tests
from orchestrator.engine.tools.files import read_file
from orchestrator.engine.tools.registry import ToolRegistry
from orchestrator.engine.tools.search import glob, grep, list_dir
from orchestrator.engine.tools.shell import run_shell_command
from orchestrator.plugins.agents.box import HOME, MODEL_PORT, TOOLS_PORT, Start, boxed
from orchestrator.plugins.agents.host_tools import LIMITS, HostTools
from orchestrator.plugins.agents.known import fill_in
from orchestrator.plugins.agents.relay import Relay, RelayLimits

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncGenerator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from orchestrator.core.changes import FileChange
    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import Message
    from orchestrator.engine.environments.running_program import RunningProgram
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.engine.policy.secrets import Redactor
    from orchestrator.engine.session.calls import ToolRunner
    from orchestrator.engine.session.loop import Inputs
    from orchestrator.engine.tools.base import Tool
    from orchestrator.engine.tools.control import MayFinish, Propose, RunTests
    from orchestrator.plugins.agents.client import AgentConnection
    from orchestrator.plugins.agents.known import AgentKind, Installed
    from orchestrator.plugins.agents.relay import Upstream
    from orchestrator.plugins.agents.told import Told

_LOOK_SECONDS = 0.25
"""How often a running turn is checked for a stop, a cap and refused calls."""
_LAST_SECONDS = 10.0
"""Time for a program to end its turn by itself after its cap is reached."""
_TURN_LOST_SECONDS = 5.0
"""Time for it to end a turn that was cancelled. Then its box ends."""


def _connection() -> type[AgentConnection]:
    from orchestrator.plugins.agents.client import AgentConnection

    return AgentConnection


def _told() -> type[Told]:
    from orchestrator.plugins.agents.told import Told

    return Told


@dataclass(frozen=True, slots=True)
class AgentParts:
    """What stands between an agent program and the rest. The proof of its attacks puts others in their place.

    Attributes:
        box: starts the program, see `boxed`.
        connection, told: return the classes, because their modules load the library of the protocol.
    """

    box: Callable[..., AbstractAsyncContextManager[RunningProgram]] = boxed
    relay: type[Relay] = Relay
    connection: Callable[[], type[AgentConnection]] = _connection
    told: Callable[[], type[Told]] = _told


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
        from orchestrator.plugins.agents.told import PermissionPolicy

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
        told = self.parts.told()(self.name, inputs.emit, policy, runner.told, self.clock)
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
        doors = {MODEL_PORT: _Door(relay.serve, relay.close), TOOLS_PORT: _Door(partial(_serve, tools))}
        async with self.parts.box(start, self.sandbox, self.inherited, doors, report) as running:
            connection = self.parts.connection()(self.kind.title, running, report, told)
            try:
                server = (address, token) if self.kind.tools == "session" else None
                await connection.begin(folder, server, filled.mode, dict(filled.meta))
                yield _Turns(connection, relay, tools, told, inputs, has_one_turn=self.kind.is_bare)
            finally:
                told.end_turn()
                await connection.close()


class _Door:
    """Serves one door of a box until it is closed."""

    def __init__(self, serve: Callable[[socket.socket], Any], close: Callable[[], Any] | None = None) -> None:
        self._serve, self._close = serve, close
        self._task: asyncio.Task[None] | None = None

    async def serve(self, listener: socket.socket) -> None:
        """See `Doors`."""
        listener.setblocking(False)
        self._task = asyncio.ensure_future(self._serve(listener))

    async def close(self) -> None:
        """See `Doors`."""
        if self._close is not None:
            await self._close()
        elif self._task is not None:
            self._task.cancel()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)


async def _serve(tools: HostTools, listener: socket.socket) -> None:
    async with serving(tools, listener, limits=LIMITS):
        await asyncio.Event().wait()


@dataclass(slots=True)
class _Turns:
    """The turns of one program: the first one, and one more if it ended without a proposal."""

    connection: AgentConnection
    relay: Relay
    tools: HostTools
    told: Told
    inputs: Inputs
    has_one_turn: bool

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
        left = _LAST_SECONDS
        try:
            while not (turn.done() or ended.done() or left <= 0):
                if self.inputs.host.stopped() or self.inputs.budget.denied:
                    break
                if self.relay.limit:  # its last request was refused, which it may still tell
                    left -= _LOOK_SECONDS
                await asyncio.wait([turn, ended], timeout=_LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            if not turn.done():
                await self.connection.cancel()
                await asyncio.wait([turn], timeout=_TURN_LOST_SECONDS)
            error = turn.exception() if turn.done() else None
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
