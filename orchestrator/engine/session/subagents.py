"""Subagents: sessions that a session starts for delegated tasks, and the tools for them.

Four tools start and steer them (section 7 of the coding agent loop specification). Two others start one in
the background and return its status (section 2.3.7 of the assistant specification).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol, Self

from orchestrator.core.errors import ConfigurationError, PullwrightError, ToolError
from orchestrator.core.events import SessionState
from orchestrator.core.prompts import render
from orchestrator.engine.session.budget import check_price
from orchestrator.engine.tools.base import (
    FLAG,
    TEXT,
    Failed,
    Ledger,
    Ok,
    Order,
    Tool,
    ToolContext,
    ToolOutcome,
    define,
)
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Profile, ReplyPrice
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.config import SessionConfig, SessionParts
    from orchestrator.engine.session.event_bus import SessionEvent
    from orchestrator.engine.session.loop import SessionEnd


MAX_SUBAGENTS = 16
"""Subagents that a session may have open at the same time."""

MAX_IN_BACKGROUND = 5
BACKGROUND_SECONDS = 300.0
"""Number of subagents at the same time, and time-out of each: section 5.5 of the assistant specification."""

WAIT_SECONDS = 600.0
"""Time that one call of `wait` waits at most; the model may call it again."""

SESSION_TOOLS = frozenset({"spawn_agent", "send_input", "wait", "close_agent", "subagent", "subagent_status"})
"""The names of the tools here."""

_NO_TASK = "the task is empty: say in full what the subagent has to do"
_GOOD_ENDS = frozenset({"completed", "awaiting", "finish"})


class SubagentStatus(StrEnum):
    """The status of a subagent."""

    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SubagentResult:
    """The result of a subagent's task. `output` is its last text."""

    output: str
    success: bool
    turns_used: int


@dataclass(frozen=True, slots=True)
class SubagentTask:
    """The task of a subagent. `max_turns` of 0 is no limit."""

    text: str
    working_dir: str | None = None
    model: str | None = None
    max_turns: int = 0


@dataclass(frozen=True, slots=True)
class SubagentLimits:
    """Limits on the subagents of a session.

    Attributes:
        most: subagents at the same time.
        seconds: time-out of each; None is no time-out.
        in_background: whether they work in the background. Then ended ones do not count, and are closed.
    """

    most: int
    seconds: float | None = None
    in_background: bool = False

    @classmethod
    def of(cls, profile: Profile, config: SessionConfig) -> Self:
        """Return the limits of a profile's subagents under these settings."""
        if not profile.subagents_in_background:
            return cls(config.max_subagents or MAX_SUBAGENTS)
        seconds = config.subagent_timeout_seconds or BACKGROUND_SECONDS
        return cls(config.max_subagents or MAX_IN_BACKGROUND, seconds, in_background=True)


@dataclass(frozen=True, slots=True)
class Lineage:
    """The parent of a session: it counts the child's spending and receives the child's events.

    Attributes:
        model: the parent's model, which the child does not close.
    """

    depth: int
    model: Model
    budget: Budget
    forward: Callable[[SessionEvent], None]


class ChildSession(Protocol):
    """What the subagents of a session use of theirs. `Session` is one."""

    id: str
    budget: Budget

    @property
    def state(self) -> SessionState:
        """See `Session`."""

    async def run(self, user: str) -> SessionEnd:
        """See `Session`."""

    def steer(self, message: str) -> None:
        """See `Session`."""

    async def abort(self) -> None:
        """See `Session`."""

    async def close(self) -> None:
        """See `Session`."""


@dataclass(slots=True)
class Subagent:
    """A subagent's session and its current work."""

    session: ChildSession
    work: asyncio.Task[SessionEnd]

    @property
    def status(self) -> SubagentStatus:
        """The current status."""
        if not self.work.done():
            return SubagentStatus.RUNNING
        return SubagentStatus.COMPLETED if self.result().success else SubagentStatus.FAILED

    def result(self) -> SubagentResult:
        """Return the result of the finished work. The subagent must not be running."""
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
        make: creates a session for a task; raises `ToolError` if the task's demands cannot be met.
    """

    def __init__(
        self, make: Callable[[SubagentTask], ChildSession], limits: Callable[[], SubagentLimits]
    ) -> None:
        self._make, self._limits = make, limits
        self.by_id: dict[str, Subagent] = {}

    def _spawn(self, task: SubagentTask) -> Subagent:
        """Start a subagent, which works from now on."""
        if not task.text.strip():
            raise ToolError(_NO_TASK)
        limits = self._limits()
        if limits.in_background:
            running = [one for one in self.by_id.values() if one.status is SubagentStatus.RUNNING]
            if len(running) >= limits.most:
                raise ToolError(f"{limits.most} subagents are running already: wait for one first")
        elif len(self.by_id) >= limits.most:
            raise ToolError(f"there are {limits.most} subagents already: close one first")
        session = self._make(task)
        run = (
            _run_once(session, task.text, limits.seconds) if limits.in_background else session.run(task.text)
        )
        subagent = self.by_id[session.id] = Subagent(session, _started(run))
        return subagent

    async def close(self) -> None:
        """Stop all subagents."""
        subagents = list(self.by_id.values())
        self.by_id.clear()
        await asyncio.gather(*(subagent.session.abort() for subagent in subagents))

    def _find(self, agent_id: str) -> Subagent:
        subagent = self.by_id.get(agent_id)
        if subagent is None:
            known = ", ".join(self.by_id) or "none"
            raise ToolError(f"there is no subagent {agent_id[:100]!r}; there are: {known}")
        return subagent

    def tools(self, *, other_models: bool) -> tuple[Tool, ...]:
        """Return `spawn_agent`, `send_input`, `wait` and `close_agent`.

        Args:
            other_models: whether `spawn_agent` has the parameter `model`.
        """
        spawn = {
            "task": TEXT,
            "working_dir": TEXT,
            **({"model": TEXT} if other_models else {}),
            "max_turns": {"type": "integer", "minimum": 0},
        }
        message = {"agent_id": TEXT, "message": TEXT}
        return (
            Tool(define("spawn_agent", spawn, ("task",)), self._spawn_agent),
            Tool(define("send_input", message, ("agent_id", "message")), self._send_input),
            Tool(define("wait", {"agent_id": TEXT}, ("agent_id",)), self._wait),
            Tool(define("close_agent", {"agent_id": TEXT}, ("agent_id",)), self._close_agent),
        )

    def background_tools(self) -> tuple[Tool, ...]:
        """Return `subagent` and `subagent_status`."""
        status = {"subagent_id": TEXT, "wait": FLAG}
        return (
            Tool(define("subagent", {"task": TEXT, "context": TEXT}, ("task",)), self._subagent),
            Tool(define("subagent_status", status, ("subagent_id",)), self._subagent_status),
        )

    async def _spawn_agent(self, arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        task = SubagentTask(
            arguments["task"],
            arguments.get("working_dir") or None,
            arguments.get("model") or None,
            arguments.get("max_turns") or 0,
        )
        subagent = self._spawn(task)
        return Ok(f"agent_id: {subagent.session.id}\nstatus: {subagent.status}")

    async def _send_input(self, arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        """Send a message to a subagent, to read after its current round or as a new input."""
        agent_id, message = arguments["agent_id"], arguments["message"]
        subagent = self._find(agent_id)
        if subagent.session.state is SessionState.CLOSED:
            raise ToolError(f"{agent_id} has ended with an error: spawn another one")
        if subagent.status is SubagentStatus.RUNNING:
            subagent.session.steer(message)
            return Ok(f"{agent_id} will read it after its current round.")
        subagent.work = _started(subagent.session.run(message))
        return Ok(f"{agent_id} works on it.")

    async def _wait(self, arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        subagent = self._find(arguments["agent_id"])
        await asyncio.wait([subagent.work], timeout=WAIT_SECONDS)
        if not subagent.work.done():
            return Ok(f"status: {SubagentStatus.RUNNING}\nIt is still running. Wait again, or close it.")
        result = subagent.result()
        text = f"success: {str(result.success).lower()}\nturns used: {result.turns_used}\noutput:\n{result.output}"
        return Ok(text) if result.success else Failed(text)

    async def _close_agent(self, arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        """Stop a subagent and forget it. One that was still running has failed."""
        agent_id = arguments["agent_id"]
        subagent = self._find(agent_id)
        status = subagent.status
        await subagent.session.abort()
        del self.by_id[agent_id]
        status = SubagentStatus.FAILED if status is SubagentStatus.RUNNING else status
        return Ok(f"{agent_id} is closed; its final status was: {status}")

    async def _subagent(self, arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        if not arguments["task"].strip():
            raise ToolError(_NO_TASK)
        given = {"task": arguments["task"], "context": (arguments.get("context") or "").strip()}
        return Ok(_status_json(self._spawn(SubagentTask(render("agent/subagent_task", **given)))))

    async def _subagent_status(self, arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        subagent = self._find(arguments["subagent_id"])
        if arguments.get("wait"):
            await asyncio.wait([subagent.work], timeout=WAIT_SECONDS)
        return Ok(_status_json(subagent))


async def _run_once(session: ChildSession, task: str, seconds: float | None) -> SessionEnd:
    """Run a task with this time-out, and close the session."""
    try:
        async with asyncio.timeout(seconds):
            return await session.run(task)
    except TimeoutError:
        raise ToolError(f"It was not done within {seconds:g} seconds, and was stopped.") from None
    finally:
        await session.close()


def _started(run: Coroutine[Any, Any, SessionEnd]) -> asyncio.Task[SessionEnd]:
    work = asyncio.create_task(run)
    # Retrieve the error even if nobody awaits the task, so that asyncio does not log it.
    work.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return work


def _status_json(subagent: Subagent) -> str:
    """Return a subagent as a JSON object (section 2.3.7 of the assistant specification)."""
    status = subagent.status
    fields = {"subagent_id": subagent.session.id, "status": status}
    if status is SubagentStatus.RUNNING:
        fields["progress"] = f"{subagent.session.budget.rounds} replies so far"
    else:
        fields["result" if status is SubagentStatus.COMPLETED else "error"] = subagent.result().output
    return json.dumps(fields, ensure_ascii=False)


def child_parts(
    parent: SessionParts, task: SubagentTask, price: ReplyPrice, reasoning_effort: str | None
) -> SessionParts:
    """Return the parent's parts without the tools that publish something or end the session.

    A subagent in another folder has its own ledger; `merge_ledger` merges it into the parent's.

    Raises:
        PathRefusedError: the folder is outside of the parent's.
    """
    from orchestrator.engine.environments.wrappers import ScopedEnvironment

    environment, ledger = parent.environment, parent.host.ledger
    folder = environment.relative(task.working_dir or ".")
    is_scoped = folder != "."
    if is_scoped:
        environment, ledger = ScopedEnvironment(environment, folder), Ledger(changing=ledger.changing)
    tools = ToolRegistry.unchecked(tool for tool in parent.profile.tools if tool.order is not Order.LAST)
    return replace(
        parent,
        profile=replace(parent.profile, tools=tools),
        environment=environment,
        config=parent.config.for_subagent(task.max_turns, reasoning_effort, same_model=not task.model),
        # The child owns the scope: its initialization checks that the folder exists.
        host=replace(parent.host.for_subagent(ledger, price), owns_environment=is_scoped),
    )


def merge_ledger(parent: SessionParts, child: SessionParts, task: SubagentTask) -> None:
    """Merge what the child's tools did in a folder into the parent's ledger."""
    if child.host.ledger is not parent.host.ledger:
        folder = parent.environment.relative(task.working_dir or ".")
        parent.host.ledger.take_over(child.host.ledger, folder)


def model_of_child(parent: SessionParts, name: str, budget: Budget) -> tuple[Model, ReplyPrice]:
    """Return the model of a subagent, with its price.

    Raises:
        ToolError: other models are not available, or the price is unknown and a cap in USD applies.
    """
    other = parent.host.other_model or parent.profile.other_model
    if other is None:
        raise ToolError("subagents run on your own model here: leave `model` out")
    try:
        model, price = other(name)
        check_price(budget, price, name)
    except ConfigurationError as error:
        raise ToolError(str(error)) from error
    return model, price
