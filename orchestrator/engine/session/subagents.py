"""Sessions that a session starts for scoped tasks, and the tools by which a model works with them.

Four tools start and steer them (section 7 of the coding agent loop specification). Two others start one in the
background and ask for it (section 2.3.7 of the assistant specification).
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Self

from orchestrator.core.errors import ConfigurationError, PullwrightError, ToolError
from orchestrator.core.events import SessionState
from orchestrator.core.prompts import render
from orchestrator.engine.session.budget import check_price
from orchestrator.engine.tools.base import (
    FLAG,
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

    from orchestrator.core.events import SessionEvent
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Profile, ReplyPrice
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.config import SessionConfig, SessionParts
    from orchestrator.engine.session.loop import SessionEnd
    from orchestrator.engine.session.session import Session


MAX_SUBAGENTS = 16
"""That a session may have open at the same time."""

MAX_IN_BACKGROUND = 5
BACKGROUND_SECONDS = 300.0
"""Section 5.5 of the assistant specification: how many may work at the same time, and how long each."""

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
class SubagentTask:
    """What a subagent is started for. `max_turns` of 0 is no limit."""

    text: str
    working_dir: str | None = None
    model: str | None = None
    max_turns: int = 0


@dataclass(frozen=True, slots=True)
class SubagentLimits:
    """How many subagents a session may have at the same time, and how long each may work; None is as long as it takes.

    Attributes:
        in_background: those that have ended do not count, and are closed.
    """

    most: int = MAX_SUBAGENTS
    seconds: float | None = None
    in_background: bool = False

    @classmethod
    def of(cls, profile: Profile, config: SessionConfig) -> Self:
        """The limits of a profile's subagents under these settings."""
        if not profile.subagents_in_background:
            return cls(config.max_subagents or MAX_SUBAGENTS)
        seconds = config.subagent_timeout_seconds or BACKGROUND_SECONDS
        return cls(config.max_subagents or MAX_IN_BACKGROUND, seconds, in_background=True)


@dataclass(frozen=True, slots=True)
class Lineage:
    """Whose child a session is: what it spends counts there, and its events go there.

    Attributes:
        model: the parent's, which the child does not close.
    """

    depth: int
    model: Model
    budget: Budget
    forward: Callable[[SessionEvent], None]


@dataclass(slots=True)
class Subagent:
    """A subagent and the task that it works on."""

    session: Session
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
        make: makes a session for a task; may raise `ToolError` where it cannot be met.
        limits: gives those of now.
    """

    def __init__(
        self, make: Callable[[SubagentTask], Session], limits: Callable[[], SubagentLimits] = SubagentLimits
    ) -> None:
        self._make, self._limits = make, limits
        self.by_id: dict[str, Subagent] = {}

    def spawn(self, task: SubagentTask) -> Subagent:
        """Start a subagent; it works from now on.

        Raises:
            ToolError: the task is empty, there are too many subagents, or the task cannot be met.
        """
        if not task.text.strip():
            raise ToolError("the task is empty: say in full what the subagent has to do")
        limits = self._limits()
        if limits.in_background:
            running = [one for one in self.by_id.values() if one.status is SubagentStatus.RUNNING]
            if len(running) >= limits.most:
                raise ToolError(
                    f"{limits.most} subagents work already: wait for one with subagent_status first"
                )
        elif len(self.by_id) >= limits.most:
            raise ToolError(f"there are {limits.most} subagents already: close one with close_agent first")
        session = self._make(task)
        run = (
            _run_once(session, task.text, limits.seconds) if limits.in_background else session.run(task.text)
        )
        subagent = self.by_id[session.id] = Subagent(session, _started(run))
        return subagent

    def send(self, agent_id: str, message: str) -> str:
        """Say something to a subagent: it reads it after its current round, or begins anew with it."""
        subagent = self.find(agent_id)
        if subagent.session.state is SessionState.CLOSED:
            raise ToolError(f"{agent_id} has ended with an error: spawn another one")
        if subagent.status is SubagentStatus.RUNNING:
            subagent.session.steer(message)
            return f"{agent_id} will read it after its current round."
        subagent.work = _started(subagent.session.run(message))
        return f"{agent_id} works on it."

    async def wait(self, agent_id: str) -> SubagentResult | None:
        """What became of a subagent, once it is done; None if it still runs after `WAIT_SECONDS`."""
        subagent = self.find(agent_id)
        await asyncio.wait([subagent.work], timeout=WAIT_SECONDS)
        return subagent.result() if subagent.work.done() else None

    async def close_one(self, agent_id: str) -> SubagentStatus:
        """Stop a subagent and forget it; what its status was at the end."""
        subagent = self.find(agent_id)
        status = subagent.status
        await subagent.session.abort()
        del self.by_id[agent_id]
        return SubagentStatus.FAILED if status is SubagentStatus.RUNNING else status

    async def close(self) -> None:
        """Stop all."""
        subagents = list(self.by_id.values())
        self.by_id.clear()
        await asyncio.gather(*(subagent.session.abort() for subagent in subagents))

    def find(self, agent_id: str) -> Subagent:
        """The subagent of this id.

        Raises:
            ToolError: there is none.
        """
        subagent = self.by_id.get(agent_id)
        if subagent is None:
            known = ", ".join(self.by_id) or "none"
            raise ToolError(f"there is no subagent {agent_id[:100]!r}; there are: {known}")
        return subagent

    def tools(self, *, other_models: bool) -> tuple[Tool, ...]:
        """`spawn_agent`, `send_input`, `wait` and `close_agent`.

        Args:
            other_models: there is a way to models beside the session's own, and so the parameter for it.
        """
        return (_spawn_agent(self, other_models), _send_input(self), _wait(self), _close_agent(self))

    def background_tools(self) -> tuple[Tool, ...]:
        """`subagent` and `subagent_status`."""
        return _subagent(self), _subagent_status(self)


async def _run_once(session: Session, task: str, seconds: float | None) -> SessionEnd:
    """Work on a task for so many seconds at most, and close the session."""
    try:
        async with asyncio.timeout(seconds):
            return await session.run(task)
    except TimeoutError:
        raise ToolError(f"It was not done within {seconds:g} seconds, and was stopped.") from None
    finally:
        await session.close()


def _started(run: Coroutine[Any, Any, SessionEnd]) -> asyncio.Task[SessionEnd]:
    work = asyncio.create_task(run)
    # Whether anybody waits for it or not, its error is taken note of.
    work.add_done_callback(lambda done: None if done.cancelled() else done.exception())
    return work


_TEXT: Mapping[str, Any] = {"type": "string"}


def _spawn_agent(agents: Subagents, other_models: bool) -> Tool:  # noqa: FBT001  one of two forms
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        subagent = agents.spawn(
            SubagentTask(
                arguments["task"],
                arguments.get("working_dir") or None,
                arguments.get("model") or None,
                arguments.get("max_turns") or 0,
            )
        )
        return Ok(f"agent_id: {subagent.session.id}\nstatus: {subagent.status}")

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


def _subagent(agents: Subagents) -> Tool:
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        if not arguments["task"].strip():
            raise ToolError("the task is empty: say in full what the subagent has to do")
        given = {"task": arguments["task"], "context": (arguments.get("context") or "").strip()}
        subagent = agents.spawn(SubagentTask(render("agent/subagent_task", **given)))
        return Ok(_told(subagent))

    return Tool(define("subagent", {"task": _TEXT, "context": _TEXT}, ("task",)), execute)


def _subagent_status(agents: Subagents) -> Tool:
    async def execute(arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        subagent = agents.find(arguments["subagent_id"])
        if arguments.get("wait"):
            await asyncio.wait([subagent.work], timeout=WAIT_SECONDS)
        return Ok(_told(subagent))

    definition = define("subagent_status", {"subagent_id": _TEXT, "wait": FLAG}, ("subagent_id",))
    return Tool(definition, execute)


def _told(subagent: Subagent) -> str:
    """A subagent as section 2.3.7 of the assistant specification has it: a JSON object."""
    status = subagent.status
    told = {"subagent_id": subagent.session.id, "status": status}
    if status is SubagentStatus.RUNNING:
        told["progress"] = f"{subagent.session.budget.rounds} replies so far"
    else:
        told["result" if status is SubagentStatus.COMPLETED else "error"] = subagent.result().output
    return json.dumps(told, ensure_ascii=False)


def child_parts(
    parent: SessionParts, task: SubagentTask, price: ReplyPrice, reasoning_effort: str | None
) -> SessionParts:
    """The same files, gate and contract, without the tools that publish something or end the session.

    In a folder of its own it has a ledger of its own; `take_over` brings it to the parent's.

    Raises:
        PathRefusedError: the folder lies outside of the parent's.
    """
    from orchestrator.engine.environments.wrappers import ScopedEnvironment

    environment, ledger = parent.environment, parent.host.ledger
    folder = environment.relative(task.working_dir or ".")
    is_scoped = folder != "."
    if is_scoped:
        environment, ledger = ScopedEnvironment(environment, folder), Ledger()
    tools = ToolRegistry.unchecked(tool for tool in parent.profile.tools if tool.order is not Order.LAST)
    return replace(
        parent,
        profile=replace(parent.profile, tools=tools),
        environment=environment,
        config=parent.config.for_subagent(task.max_turns, reasoning_effort, same_model=not task.model),
        # The scope is the child's own: making it ready shows whether the folder is there.
        host=replace(parent.host.for_subagent(ledger, price), owns_environment=is_scoped),
    )


def take_over(parent: SessionParts, child: SessionParts, task: SubagentTask) -> None:
    """Note in the parent's ledger what the child's tools did in a folder."""
    if child.host.ledger is not parent.host.ledger:
        folder = parent.environment.relative(task.working_dir or ".")
        parent.host.ledger.take_over(child.host.ledger, folder)


def model_of_child(parent: SessionParts, name: str, budget: Budget) -> tuple[Model, ReplyPrice]:
    """The model that a subagent is to run on.

    Raises:
        ToolError: there is no way to another model, or its price is unknown where a cap in USD holds.
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
