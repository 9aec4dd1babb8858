"""The calls of one reply: in order, at the same time, or the first one only. Every call gets a result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from orchestrator.engine.contracts.base import Running
from orchestrator.engine.session.calls import CallEnd, Workbench, run_call, skip_call
from orchestrator.engine.session.history import interrupted
from orchestrator.engine.tools.base import Order

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from orchestrator.core.messages import ToolCall, ToolResult
    from orchestrator.engine.tools.base import Ends

MAX_CALLS = 200
"""That run of one reply. What comes behind them is answered as not run."""

MAX_AT_ONCE = 16
"""Calls that run at the same time."""

_INTERRUPTED_BEFORE = "Not run: the work was interrupted before this call."
_CUT_OFF = "Not run: the reply was cut off before this call was complete."
_TOO_MANY = f"Not run: a reply may have at most {MAX_CALLS} calls. Send this one again if it is still right."
_ONE_A_STEP = (
    "Not executed: only the first tool call of a step is executed. Send this one in a step of its own."
)


async def run_calls(  # noqa: PLR0913  what runs, how, and who is told
    bench: Workbench,
    calls: Sequence[ToolCall],
    withheld: Iterable[ToolCall] = (),
    *,
    answer: Callable[[tuple[ToolResult, ...]], None],
    running: Running = Running.IN_ORDER,
    parallel: bool = True,
) -> Ends | None:
    """Run the calls of a reply; the ending, if one of them ended the session.

    Args:
        bench: what the calls run with.
        calls: the reply's calls.
        withheld: calls of a reply that was cut off, which must not run.
        answer: takes a result for each call, in the order of the calls, also when the calls are interrupted.
        running: how the contract has them run.
        parallel: False runs calls one after the other that could run at the same time.
    """
    reply = _Reply(bench, (*calls, *withheld))
    taken = range(min(len(calls), MAX_CALLS))
    try:
        match running:
            case Running.IN_ORDER:
                await _in_order(reply, taken)
            case Running.TOGETHER:
                await _together(reply, taken, parallel=parallel)
            case Running.FIRST_ONLY:
                await _first_only(reply, taken)
            case _:
                assert_never(running)
        for place in range(len(taken), len(calls)):
            reply.skip(place, _TOO_MANY)
        for place in range(len(calls), len(reply.calls)):
            reply.skip(place, _CUT_OFF)
    finally:
        answer(reply.results())
    return next((end.ending for _, end in sorted(reply.ends.items()) if end.ending), None)


@dataclass(slots=True)
class _Reply:
    """The calls of one reply, by their place in it, and how those ended that did.

    Attributes:
        begun: the calls that were started, or skipped.
    """

    bench: Workbench
    calls: Sequence[ToolCall]
    ends: dict[int, CallEnd] = field(default_factory=dict)
    begun: set[int] = field(default_factory=set)

    async def run(self, place: int) -> CallEnd:
        """Run a call."""
        self.begun.add(place)
        end = self.ends[place] = await run_call(self.bench, self.calls[place])
        return end

    def skip(self, place: int, why: str) -> None:
        """Answer a call without running it."""
        self.begun.add(place)
        self.ends[place] = skip_call(self.bench, self.calls[place], why)

    def results(self) -> tuple[ToolResult, ...]:
        """A result for each call; those that an interruption left without an end are answered now."""
        for place in range(len(self.calls)):
            if place not in self.begun:
                self.skip(place, _INTERRUPTED_BEFORE)
        return tuple(
            self.ends[place].result if place in self.ends else interrupted(call)
            for place, call in enumerate(self.calls)
        )


async def _in_order(reply: _Reply, places: Sequence[int]) -> None:
    blocker = ""
    for place in places:
        if blocker:
            reply.skip(place, f"Not run: {blocker}")
            continue
        end, name = await reply.run(place), reply.calls[place].name
        if end.failed:
            blocker = f"{name} failed before this call. Send it again if it is still right."
        elif end.ending:
            blocker = f"{name} ended the session before this call."


async def _first_only(reply: _Reply, places: Sequence[int]) -> None:
    for place in places:
        if place:
            reply.skip(place, _ONE_A_STEP)
        else:
            await reply.run(place)


async def _together(reply: _Reply, places: Sequence[int], *, parallel: bool) -> None:
    """Calls that only look run beside each other; the others wait for those before them, and run alone."""
    room = asyncio.Semaphore(MAX_AT_ONCE if parallel else 1)
    started: list[asyncio.Task[CallEnd]] = []

    async def run(place: int) -> CallEnd:
        async with room:
            return await reply.run(place)

    try:
        for place in places:
            order = _order(reply.bench, reply.calls[place])
            if order is not Order.TOGETHER:
                await asyncio.gather(*started)
                started.clear()
            if reason := _not_run(order, reply.ends.values()):
                reply.skip(place, reason)
            elif order is Order.TOGETHER:
                started.append(asyncio.create_task(run(place)))
            else:
                await reply.run(place)
        await asyncio.gather(*started)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


def _order(bench: Workbench, call: ToolCall) -> Order:
    tool = bench.tools.get(call.name)
    return tool.order if tool else Order.TOGETHER


def _not_run(order: Order, ends: Iterable[CallEnd]) -> str:
    """Why a call does not run after those that have ended; empty if it does."""
    if any(end.ending for end in ends):
        return "Not run: a call before this one ended the session."
    if order is Order.LAST and any(end.failed for end in ends):
        return "Not run: a call before this one failed. Send it again when all is right."
    return ""
