"""Sessions that a session starts for scoped tasks, and the four tools by which a model works with them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.core.errors import PullwrightError, ToolError
from orchestrator.core.events import SessionState
from orchestrator.engine.tools.base import Failed, Ok, Tool, ToolContext, ToolOutcome, define

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.core.events import SessionEvent
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.session.limits import Budget
    from orchestrator.engine.session.loop import SessionEnd

MAX_SUBAGENTS = 16
"""That a session may have open at the same time."""

WAIT_SECONDS = 600.0
"""How long one call of `wait` waits; the model may call it again."""

_GOOD_ENDS = frozenset({"completed", "awaiting", "finish"})


class SubagentStatus(StrEnum):
    """Where a subagent is."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """What became of a subagent's task. `output` is its last words."""

    output: str
    success: bool
    turns_used: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subagent is started for. `max_turns` of 0 is no limit."""

    task: str
    working_dir: str | None = None
    model: str | None = None
    max_turns: int = 0


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whose child a session is: what it spends counts there, and its events go there.

    Attributes:
        model: the parent's, which the child does not let go of.
    """

    depth: int
    model: Model
    budget: Budget
    relay: Callable[[SessionEvent], None]


class Child(Protocol):
    """A session, as far as its parent knows it."""

    @property
    def id(self) -> str:
        """Names it."""

    @property
    def state(self) -> SessionState:
        """Where it is in its life."""

    @property
    def budget(self) -> Budget:
        """What it spent."""

    async def run(self, user: str) -> SessionEnd:
        """Do a task."""

    def steer(self, message: str) -> None:
        """Say something while it works."""

    async def abort(self) -> None:
        """Stop it."""


@dataclass(slots=True)
class Handle:
    """A subagent and the task that it works on."""

    session: Child
    work: asyncio.Task[SessionEnd]

    @property
    def status(self) -> SubagentStatus:
        """Where it is."""
        if not self.work.done():
            return SubagentStatus.RUNNING
        return SubagentStatus.COMPLETED if self.result().success else SubagentStatus.FAILED

    def result(self) -> SubagentResult:
        """What became of it; it must not be running."""
        turns = self.session.budget.rounds
        if self.work.cancelled():
            return SubagentResult("It was stopped.", success=False, turns_used=turns)
        if error := self.work.exception():
            name = "" if isinstance(error, PullwrightError) else f"{type(error).__name__}: "
            return SubagentResult(f"{name}{error}", success=False, turns_used=turns)
        end = self.work.result()
        return SubagentResult(end.text or end.kind.value, end.kind.value in _GOOD_ENDS, turns)


class Subagents:
    """The subagents of one session.

    Args:
        make: makes a session for a wish; may raise `ToolError` where it cannot be met.
    """

    def __init__(self, make: Callable[[Wish], Child]) -> None:
        self._make = make
        self.handles: dict[str, Handle] = {}

    def spawn(self, wish: Wish) -> Handle:
        """Start a subagent; it works from now on.

        Raises:
            ToolError: the task is empty, there are too many subagents, or the wish cannot be met.
        """
        if not wish.task.strip():
            raise ToolError("the task is empty: say in full what the subagent has to do")
        if len(self.handles) >= MAX_SUBAGENTS:
            raise ToolError(f"there are {MAX_SUBAGENTS} subagents already: close one with close_agent first")
        session = self._make(wish)
        handle = self.handles[session.id] = Handle(session, _start(session, wish.task))
        return handle

    def send(self, agent_id: str, message: str) -> str:
        """Say something to a subagent: it reads it after its current round, or begins anew with it."""
        handle = self._handle(agent_id)
        if handle.session.state is SessionState.CLOSED:
            raise ToolError(f"{agent_id} has ended with an error: spawn another one")
        if handle.status is SubagentStatus.RUNNING:
            handle.session.steer(message)
            return f"{agent_id} will read it after its current round."
        handle.work = _start(handle.session, message)
        return f"{agent_id} works on it."

    async def wait(self, agent_id: str) -> SubagentResult | None:
        """What became of a subagent, once it is done; None if it still runs after `WAIT_SECONDS`."""
        handle = self._handle(agent_id)
        await asyncio.wait([handle.work], timeout=WAIT_SECONDS)
        return handle.result() if handle.work.done() else None

    async def close_one(self, agent_id: str) -> SubagentStatus:
        """Stop a subagent and forget it; what its status was at the end."""
        handle = self._handle(agent_id)
        status = handle.status
        await handle.session.abort()
        del self.handles[agent_id]
        return SubagentStatus.FAILED if status is SubagentStatus.RUNNING else status

    async def close(self) -> None:
        """Stop all."""
        handles = list(self.handles.values())
        self.handles.clear()
        await asyncio.gather(*(handle.session.abort() for handle in handles))

    def _handle(self, agent_id: str) -> Handle:
        handle = self.handles.get(agent_id)
        if handle is None:
            known = ", ".join(self.handles) or "none"
            raise ToolError(f"there is no subagent {agent_id[:100]!r}; there are: {known}")
        return handle

    def tools(self, *, other_models: bool) -> tuple[Tool, ...]:
        """`spawn_agent`, `send_input`, `wait` and `close_agent`.

        Args:
            other_models: there is a way to models beside the session's own, and so the parameter for it.
        """
        return (_spawn_agent(self, other_models), _send_input(self), _wait(self), _close_agent(self))


def _start(session: Child, task: str) -> asyncio.Task[SessionEnd]:
    work = asyncio.create_task(session.run(task))
    # Whether anybody waits for it or not, its error is taken note of.
    work.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return work


_TEXT: Mapping[str, Any] = {"type": "string"}


def _spawn_agent(agents: Subagents, other_models: bool) -> Tool:  # noqa: FBT001  one of two forms
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        handle = agents.spawn(
            Wish(
                arguments["task"],
                arguments.get("working_dir") or None,
                arguments.get("model") or None,
                arguments.get("max_turns") or 0,
            )
        )
        return Ok(f"agent_id: {handle.session.id}\nstatus: {handle.status}")

    properties = {
        "task": _TEXT,
        "working_dir": _TEXT,
        **({"model": _TEXT} if other_models else {}),
        "max_turns": {"type": "integer", "minimum": 0},
    }
    return Tool(define("spawn_agent", properties, ("task",)), execute)


def _send_input(agents: Subagents) -> Tool:
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        return Ok(agents.send(arguments["agent_id"], arguments["message"]))

    return Tool(define("send_input", {"agent_id": _TEXT, "message": _TEXT}, ("agent_id", "message")), execute)


def _wait(agents: Subagents) -> Tool:
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        result = await agents.wait(arguments["agent_id"])
        if result is None:
            return Ok(f"status: {SubagentStatus.RUNNING}\nIt still works. Call wait again, or close it.")
        text = f"success: {str(result.success).lower()}\nturns used: {result.turns_used}\noutput:\n{result.output}"
        return Ok(text) if result.success else Failed(text)

    return Tool(define("wait", {"agent_id": _TEXT}, ("agent_id",)), execute)


def _close_agent(agents: Subagents) -> Tool:
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        status = await agents.close_one(arguments["agent_id"])
        return Ok(f"{arguments['agent_id']} is closed; its final status was: {status}")

    return Tool(define("close_agent", {"agent_id": _TEXT}, ("agent_id",)), execute)
