"""The calls of one reply: in order, at the same time, or the first one only. Every call gets a result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from orchestrator.agent.calls import CallEnd, Workbench, run_call, skip_call
from orchestrator.contracts.base import Running
from orchestrator.tools.base import Order

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.messages import ToolCall, ToolResult
    from orchestrator.tools.base import Ends

MAX_CALLS = 200
"""That run of one reply. What comes behind them is answered as not run."""

MAX_AT_ONCE = 16
"""Calls that run at the same time."""

_CUT_OFF = "Not run: the reply was cut off before this call was complete."
_TOO_MANY = f"Not run: a reply may have at most {MAX_CALLS} calls. Send this one again if it is still right."
_ONE_A_STEP = (
    "Not executed: only the first tool call of a step is executed. Send this one in a step of its own."
)


@dataclass(frozen=True, slots=True)
class CallsOutcome:
    """A result for each call, in the order of the calls, and the ending if one of them ended the session."""

    results: tuple[ToolResult, ...]
    ending: Ends | None = None


async def run_calls(
    bench: Workbench,
    calls: Sequence[ToolCall],
    withheld: Iterable[ToolCall] = (),
    *,
    running: Running = Running.IN_ORDER,
    parallel: bool = True,
) -> CallsOutcome:
    """Run the calls of a reply.

    Args:
        bench: what the calls run with.
        calls: the reply's calls.
        withheld: calls of a reply that was cut off, which must not run.
        running: how the contract has them run.
        parallel: False runs calls one after the other that could run at the same time.
    """
    taken, surplus = calls[:MAX_CALLS], calls[MAX_CALLS:]
    match running:
        case Running.IN_ORDER:
            ends = await _in_order(bench, taken)
        case Running.TOGETHER:
            ends = await _together(bench, taken, parallel=parallel)
        case Running.FIRST_ONLY:
            ends = [await run_call(bench, taken[0])] if taken else []
            ends += [skip_call(bench, call, _ONE_A_STEP) for call in taken[1:]]
        case _:
            assert_never(running)
    ends += [skip_call(bench, call, _TOO_MANY) for call in surplus]
    ends += [skip_call(bench, call, _CUT_OFF) for call in withheld]
    ending = next((end.ending for end in ends if end.ending), None)
    return CallsOutcome(tuple(end.result for end in ends), ending)


async def _in_order(bench: Workbench, calls: Sequence[ToolCall]) -> list[CallEnd]:
    ends: list[CallEnd] = []
    blocker = ""
    for call in calls:
        if blocker:
            ends.append(skip_call(bench, call, f"Not run: {blocker}"))
            continue
        end = await run_call(bench, call)
        if end.failed:
            blocker = f"{call.name} failed before this call. Send it again if it is still right."
        elif end.ending:
            blocker = f"{call.name} ended the session before this call."
        ends.append(end)
    return ends


async def _together(bench: Workbench, calls: Sequence[ToolCall], *, parallel: bool) -> list[CallEnd]:
    """Calls that only look run beside each other; the others wait for those before them, and run alone."""
    room = asyncio.Semaphore(MAX_AT_ONCE if parallel else 1)
    started: list[asyncio.Task[CallEnd]] = []

    async def run(call: ToolCall) -> CallEnd:
        async with room:
            return await run_call(bench, call)

    try:
        ends: list[CallEnd] = []
        for call in calls:
            order = _order(bench, call)
            if order is not Order.TOGETHER:
                ends += await _all(started)
                started.clear()
            if reason := _not_run(order, ends):
                ends.append(skip_call(bench, call, reason))
            elif order is Order.TOGETHER:
                started.append(asyncio.create_task(run(call)))
            else:
                ends.append(await run_call(bench, call))
        return ends + await _all(started)
    finally:
        for task in started:
            task.cancel()
        await asyncio.gather(*started, return_exceptions=True)


async def _all(tasks: list[asyncio.Task[CallEnd]]) -> list[CallEnd]:
    return list(await asyncio.gather(*tasks))


def _order(bench: Workbench, call: ToolCall) -> Order:
    tool = bench.tools.get(call.name)
    return tool.order if tool else Order.TOGETHER


def _not_run(order: Order, ends: Sequence[CallEnd]) -> str:
    """Why a call does not run after those that have ended; empty if it does."""
    if any(end.ending for end in ends):
        return "Not run: a call before this one ended the session."
    if order is Order.LAST and any(end.failed for end in ends):
        return "Not run: a call before this one failed. Send it again when all is right."
    return ""
