"""Whatever interrupts calls: each that began has one end, in time, and the conversation has a result for each."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import PullwrightError, WorkspaceError
from orchestrator.core.events import CallStatus, SessionEnded, ToolCallEnded, ToolCallStarted
from orchestrator.core.messages import FinishReason, Message, Role, Text
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.models.base import Response
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.history import INTERRUPTED_RESULT, TurnKind
from orchestrator.engine.tools.base import Order
from tests.unit.engine.session.stage import USAGE, events_of, kinds, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
    from pathlib import Path

    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.session.event_bus import SessionEvent
    from orchestrator.engine.session.session import Session

CONTRACTS: dict[str, Callable[[], Contract]] = {"native": Native, "single": SingleStep, "plan": JsonPlan}

CALLS = {
    "the first of three": ("hang", "quick", "write"),
    "the second of three": ("quick", "hang", "write"),
    "beside others": ("hang", "hang", "quick", "hang"),
    "behind one that writes": ("write", "hang", "quick"),
    "one that does not stop": ("quick", "stubborn", "quick"),
    "a command": ("shell", "quick"),
}


def reply(contract: str, *names: str) -> Response:
    """The reply that calls these tools, in the form of the contract."""
    arguments = {"shell": {"command": "echo begun; exec sleep 1000"}}
    calls = [(name, arguments.get(name, {})) for name in names]
    if contract != "plan":
        return says("", *calls)
    plan = {"plan": "Do it.", "tool_calls": [{"tool_name": name, "arguments": args} for name, args in calls]}
    message = Message(Role.ASSISTANT, (Text(json.dumps(plan)),))
    return Response(message, FinishReason.STOP, USAGE, "scripted", "id-1")


class Scene:
    """A session whose calls hang, and the moment in which so many of them do."""

    def __init__(self, most: int = 1) -> None:
        self.hangs = asyncio.Event()
        self.left = most
        self.heard: list[SessionEvent] = []
        self.session: Session | None = None

    def hear(self, event: SessionEvent) -> None:
        self.heard.append(event)
        if isinstance(event.event, ToolCallStarted) and event.event.name in {"hang", "stubborn", "shell"}:
            self.left -= 1
            if not self.left:
                self.hangs.set()

    def tools(self) -> list[Any]:
        async def hang(_arguments: Mapping[str, Any]) -> None:
            await asyncio.Event().wait()

        async def stubborn(_arguments: Mapping[str, Any]) -> str:
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return "I was asked to stop, and say that all is well."

        async def closes(_arguments: Mapping[str, Any]) -> None:
            assert self.session
            await self.session.close()

        def breaks(_arguments: Mapping[str, Any]) -> None:
            raise WorkspaceError("the disk is full")

        return [
            tool("hang", hang),
            tool("stubborn", stubborn),
            tool("quick", lambda _: "quick"),
            tool("write", lambda _: "written", order=Order.ALONE),
            tool("closes", closes, order=Order.ALONE),
            tool("breaks", breaks, order=Order.ALONE),
        ]

    async def read_all(self) -> None:
        assert self.session
        with suppress(PullwrightError):
            async for _event in self.session.submit("Go"):
                pass


async def leave(scene: Scene) -> None:
    """Leave the events early."""
    assert scene.session
    events: AsyncGenerator[SessionEvent] = scene.session.submit("Go")
    async for _event in events:
        if scene.hangs.is_set():
            break
    await events.aclose()


async def cancel_reader(scene: Scene) -> None:
    reading = asyncio.create_task(scene.read_all())
    await scene.hangs.wait()
    reading.cancel()
    await asyncio.wait([reading])


async def cancel_run(scene: Scene) -> None:
    assert scene.session
    running = asyncio.create_task(scene.session.run("Go"))
    await scene.hangs.wait()
    running.cancel()
    await asyncio.wait([running])


async def abort(scene: Scene) -> None:
    assert scene.session
    reading = asyncio.create_task(scene.read_all())
    await scene.hangs.wait()
    await scene.session.abort()
    await reading


async def close(scene: Scene) -> None:
    assert scene.session
    running = asyncio.create_task(scene.session.run("Go"))
    await scene.hangs.wait()
    await asyncio.gather(scene.session.close(), scene.session.close())
    await running


async def run_out_of_time(scene: Scene) -> None:
    await scene.read_all()


WAYS: dict[str, Callable[[Scene], Awaitable[None]]] = {
    each.__name__: each for each in (leave, cancel_reader, cancel_run, abort, close, run_out_of_time)
}


def check(heard: list[SessionEvent]) -> None:
    """Each call that began has one end behind it, and nothing comes after a session's end."""
    for session in {event.session for event in heard}:
        told = [event.event for event in heard if event.session == session]
        begun = [event.call_id for event in told if isinstance(event, ToolCallStarted)]
        ended = [event.call_id for event in told if isinstance(event, ToolCallEnded)]
        assert Counter(begun) == Counter(ended)
        for call in begun:
            kinds_of_it = [type(one) for one in told if getattr(one, "call_id", "") == call]
            assert kinds_of_it[0] is ToolCallStarted
            assert kinds_of_it[-1] is ToolCallEnded
        ends = [place for place, event in enumerate(told) if isinstance(event, SessionEnded)]
        assert ends in ([], [len(told) - 1])


def check_history(session: Session, names: tuple[str, ...], contract: str) -> list[str]:
    """What the model is told of each call: a result for every one, right behind them."""
    place = next(i for i, turn in enumerate(session.history.turns) if turn.kind is TurnKind.ASSISTANT)
    reply, answer = session.history.turns[place], session.history.turns[place + 1]
    assert answer.kind is TurnKind.TOOL_RESULTS
    assert len(session.history) == place + 2, "answered once"
    if contract == "plan":
        return [block for block in answer.content.split("\n\n") if "tool" in block or "```" in block]
    assert [one.call_id for one in answer.results] == [call.id for call in reply.tool_calls]
    assert [one.name for one in answer.results] == list(names)
    return [one.content for one in answer.results]


@pytest.mark.parametrize(
    ("contract", "way", "calls"),
    [
        (contract, way, calls)
        for contract, way, calls in itertools.product(CONTRACTS, WAYS, CALLS)
        # only the first call of a step runs, so that nothing would hang
        if contract != "single" or CALLS[calls][0] in {"hang", "shell"}
    ],
)
async def test_every_call_that_began_has_one_end_and_every_call_a_result(
    tmp_path: Path, contract: str, way: str, calls: str
) -> None:
    scene, names = Scene(), CALLS[calls]
    config = SessionConfig(max_minutes=0.004 if way == "run_out_of_time" else None, wrap_up_share=0)
    async with session_in(
        tmp_path,
        reply(contract, *names),
        tools=scene.tools(),
        contract=CONTRACTS[contract](),
        config=config,
    ) as (session, _model):
        scene.session = session
        session.listen(scene.hear)
        await WAYS[way](scene)
        if way != "run_out_of_time" or scene.hangs.is_set():  # a busy machine may not come that far in time
            check_history(session, names, contract)
    check(scene.heard)


async def test_the_model_is_told_what_ran_what_was_cut_short_and_what_did_not_run(tmp_path: Path) -> None:
    scene, names = Scene(), ("write", "hang", "write")
    tools = scene.tools()
    async with session_in(tmp_path, says("", *((name, {}) for name in names)), tools=tools) as (session, _):
        scene.session = session
        session.listen(scene.hear)
        await leave(scene)
        done, cut_short, not_run = check_history(session, names, "native")
    assert (done, cut_short) == ("written", INTERRUPTED_RESULT)
    assert not_run == "Not run: the work was interrupted before this call."
    ends = [event.event for event in scene.heard if isinstance(event.event, ToolCallEnded)]
    assert [(end.name, end.status.value) for end in ends] == [
        ("write", "ok"),
        ("hang", "interrupted"),
        ("write", "skipped"),
    ]


@pytest.mark.parametrize("contract", ["native", "plan"])
@pytest.mark.parametrize("name", ["closes", "breaks"])
async def test_a_tool_that_ends_the_session_has_an_end_too(tmp_path: Path, contract: str, name: str) -> None:
    scene, names = Scene(), ("quick", name, "quick")
    async with session_in(
        tmp_path, reply(contract, *names), tools=scene.tools(), contract=CONTRACTS[contract]()
    ) as (session, _model):
        scene.session = session
        session.listen(scene.hear)
        await scene.read_all()
        check_history(session, names, contract)
    check(scene.heard)
    (end,) = (
        one.event for one in scene.heard if isinstance(one.event, ToolCallEnded) and one.event.name == name
    )
    assert end.status is CallStatus.INTERRUPTED
    assert end.output == (
        INTERRUPTED_RESULT if name == "closes" else f"{INTERRUPTED_RESULT} the disk is full"
    )


async def test_a_tool_that_never_stops_is_answered_for_and_not_heard_of_again(tmp_path: Path) -> None:
    released = asyncio.Event()
    scene = Scene()

    async def deaf(_arguments: Mapping[str, Any]) -> str:
        scene.hangs.set()
        while not released.is_set():
            with suppress(asyncio.CancelledError):
                await released.wait()
        return "At last."

    steps = [says("", ("deaf", {}), ("quick", {})), says("Never asked for.")]
    async with session_in(tmp_path, *steps, tools=[*scene.tools(), tool("deaf", deaf)]) as (session, model):
        scene.session = session
        session.listen(scene.hear)
        work = asyncio.create_task(session.run("Go"))
        await scene.hangs.wait()
        await session.close()
        assert kinds(scene.heard)[-1] == "session_end"
        before = len(scene.heard)
        released.set()
        await work
        assert len(scene.heard) == before
        assert check_history(session, ("deaf", "quick"), "native")[0] == INTERRUPTED_RESULT
    check(scene.heard)
    assert len(model.requests) == 1


@pytest.mark.parametrize("way", ["abort", "close", "leave"])
async def test_calls_of_subagents_have_their_ends_too(tmp_path: Path, way: str) -> None:
    scene, hang = Scene(most=4), says("", ("hang", {}), ("hang", {}))
    steps = [says("", ("spawn_agent", {"task": "Look"})), hang, hang]
    async with session_in(tmp_path, *steps, tools=scene.tools(), subagents=True) as (session, _model):
        scene.session = session
        session.listen(scene.hear)
        await WAYS[way](scene)
    check(scene.heard)
    assert len({event.session for event in scene.heard}) == 2


async def test_the_next_input_has_all_its_rounds_after_one_that_was_left(tmp_path: Path) -> None:
    scene = Scene()
    steps = [says("", ("hang", {})), says("", ("quick", {})), says("Done.")]
    config = SessionConfig(max_tool_rounds_per_input=2)
    async with session_in(tmp_path, *steps, tools=scene.tools(), config=config) as (session, _model):
        scene.session = session
        session.listen(scene.hear)
        await leave(scene)
        assert kinds(await events_of(session, "Again"))[-1] == "processing_end"
        assert session.history.turns[-1].content == "Done."


async def test_a_host_without_a_gate_hears_of_an_interruption_by_its_own_events(tmp_path: Path) -> None:
    told: list[Any] = []
    scene = Scene()
    host = Host(system=lambda _shown: "You are tested.", emit=told.append)
    async with session_in(tmp_path, says("", ("hang", {})), tools=scene.tools(), host=host) as (session, _):
        scene.session = session
        session.listen(scene.hear)
        await leave(scene)
    assert [one.status for one in told if isinstance(one, ToolCallEnded)] == [CallStatus.INTERRUPTED]
