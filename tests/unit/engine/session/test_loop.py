from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import BadReplyError
from orchestrator.core.events import (
    CallStatus,
    Event,
    LimitReached,
    PlanAccepted,
    ReplyRejected,
    TextDelta,
    ToolCallEnded,
)
from orchestrator.core.messages import FinishReason, Message, ToolCall, ToolDefinition, Usage
from orchestrator.engine.contracts.base import Actions
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.wrappers import Wrapper
from orchestrator.engine.models.base import Request, Response
from orchestrator.engine.models.replay import ReplayModel
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.budget import Budget, Limits
from orchestrator.engine.session.calls import ToolRunner
from orchestrator.engine.session.config import Host, SessionConfig, SessionParts
from orchestrator.engine.session.gate import allow_all, safe_mode
from orchestrator.engine.session.history import History, Turn, TurnKind, fixed_bytes
from orchestrator.engine.session.loop import EndKind, Inputs, Loop, SessionEnd
from orchestrator.engine.session.request import NextRequest
from orchestrator.engine.session.subagents import SubagentTask, child_parts
from orchestrator.engine.tools.base import Ledger, Ok, Tool, ToolContext, ToolOutcome
from orchestrator.engine.tools.control import finish
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import write_file
from orchestrator.engine.tools.registry import ToolRegistry
from orchestrator.engine.tools.shell import run_shell_command

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping
    from pathlib import Path

    from orchestrator.engine.contracts.base import Contract, ReadReply
    from orchestrator.engine.models.base import Model, StreamEvent


def plan(*calls: tuple[str, Mapping[str, Any]]) -> str:
    return json.dumps({"plan": "p", "tool_calls": [{"tool_name": n, "arguments": a} for n, a in calls]})


def write(path: str, content: str = "x\n") -> tuple[str, Mapping[str, Any]]:
    return "write_file", {"path": path, "content": content}


DONE: tuple[str, Mapping[str, Any]] = ("finish", {"reason": "done"})


async def break_down(_arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
    raise ZeroDivisionError("by zero")


BROKEN = Tool(ToolDefinition("broken", "breaks", {"type": "object", "properties": {}}), break_down)


CLOCK = ManualClock()


class Session:
    """One session in a folder: real tools, real contract, recorded replies."""

    def __init__(
        self, folder: Path, *replies: str | Response, model: Model | None = None, **limits: Any
    ) -> None:
        self.events: list[Event] = []
        self.history = History()
        self.history.add(Turn(TurnKind.USER, Message.user("do it"), CLOCK.now()))
        self.folder = folder
        self.model = model or ReplayModel("test", [self._response(reply) for reply in replies])
        self.budget = Budget(Limits(**limits), ManualClock())
        self.stopped = False

    @staticmethod
    def _response(reply: str | Response) -> Response:
        if isinstance(reply, Response):
            return reply
        return Response(Message.assistant(reply), FinishReason.STOP, Usage(10, 5), "test")

    async def run(
        self, contract: Contract | None = None, *, dangerous: bool = False, stream: bool = False
    ) -> SessionEnd:
        async def may_finish(_reason: str) -> None:
            return None

        tools = ToolRegistry([write_file(), run_shell_command(), BROKEN, finish(may_finish)])
        environment = LocalEnvironment(self.folder, clock=ManualClock())
        shown = tools.definitions(dangerous=dangerous)
        contract = contract or JsonPlan()
        request = contract.shape(Request("system", ()), shown)
        asked = NextRequest(
            self.model, contract, shown, request, stream, lambda _usage: 0.25, fixed_bytes(request)
        )
        gate = allow_all if dangerous else safe_mode
        runner = ToolRunner(tools, gate, environment, Ledger(), self.events.append)
        host = Host(stopped=lambda: self.stopped, wrap_up="The last round.")
        inputs = Inputs(self.history, self.budget, host, CLOCK, self.events.append)
        try:
            return await Loop(inputs, runner, lambda: asked).run()
        finally:
            await environment.cleanup()

    def told(self, index: int) -> str:
        """The text of a turn."""
        return self.history.turns[index].content

    def ended(self) -> list[tuple[str, CallStatus]]:
        return [(event.name, event.status) for event in self.events if isinstance(event, ToolCallEnded)]

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_run_in_order_until_finish(tmp_path: Path, *, stream: bool) -> None:
    session = Session(tmp_path, plan(write("a"), write("b"), DONE, write("c")))
    assert await session.run(stream=stream) == SessionEnd(EndKind.FINISH, "done")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]
    assert session.ended()[-1] == ("write_file", CallStatus.SKIPPED)
    text = "".join(event.text for event in session.of(TextDelta))
    assert bool(text) is stream


async def test_a_failed_call_stops_the_ones_after_it_and_the_model_is_told_of_each(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(write("a"), write("../b"), write("c"), DONE), plan(DONE))
    await session.run()
    assert [status for _, status in session.ended()] == [
        CallStatus.OK,
        CallStatus.FAILED,
        CallStatus.SKIPPED,
        CallStatus.SKIPPED,
        CallStatus.OK,
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]
    told = session.told(2)
    assert told.count("write_file") >= 3
    assert told.count("Not run") == 2


class Ways(JsonPlan):
    """Plans whose calls are ways of two calls each."""

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        read = super().read(response, tools, round_number=round_number)
        assert isinstance(read, Actions)
        return replace(read, ways=tuple(range(2, len(read.calls), 2)))


async def test_after_a_failed_call_the_next_way_runs_and_after_a_whole_way_no_other(tmp_path: Path) -> None:
    ways = [write("../a"), write("b"), write("c"), write("../d"), write("e"), write("f"), write("g"), DONE]
    session = Session(tmp_path, plan(*ways), plan(DONE))
    await session.run(Ways())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c", "e", "f"]
    statuses = [status.value for _, status in session.ended()][:8]
    assert statuses == ["failed", "skipped", "ok", "failed", "ok", "ok", "skipped", "skipped"]
    assert "another way to do this succeeded" in session.told(2)


async def test_safe_mode_refuses_the_shell_and_records_it(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(("run_shell_command", {"command": "touch bad"}), DONE), plan(DONE))
    await session.run()
    assert session.ended()[0] == ("run_shell_command", CallStatus.REFUSED)
    assert session.ended()[1] == ("finish", CallStatus.SKIPPED)
    assert list(tmp_path.iterdir()) == []


async def test_with_dangerous_tools_the_shell_runs(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(("run_shell_command", {"command": "touch good"}), DONE))
    await session.run(dangerous=True)
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


@pytest.mark.parametrize(
    ("call", "words"),
    [(("no_such_tool", {}), "You have no tool of this name"), (("broken", {}), "ZeroDivisionError")],
)
async def test_a_tool_that_is_not_there_or_breaks_is_an_answer(
    tmp_path: Path, call: tuple[str, Mapping[str, Any]], words: str
) -> None:
    session = Session(tmp_path, plan(call), plan(DONE))
    assert (await session.run()).kind is EndKind.FINISH
    assert words in session.told(2)


async def test_three_bad_replies_in_a_row_end_the_session(tmp_path: Path) -> None:
    session = Session(tmp_path, "no", "still no", plan(write("a")), "no", '{"plan": 1}', "[]")
    with pytest.raises(BadReplyError, match="3 replies in a row"):
        await session.run()
    assert [event.attempt for event in session.of(ReplyRejected)] == [1, 2, 1, 2, 3]
    assert (tmp_path / "a").exists()


async def test_a_bad_reply_is_answered_with_the_paths_that_are_wrong(tmp_path: Path) -> None:
    wrong = json.dumps({"plan": "p", "tool_calls": [{"tool_name": "write_file", "arguments": {"path": "a"}}]})
    session = Session(tmp_path, wrong, plan(DONE))
    await session.run()
    assert "tool_calls[0].arguments" in session.told(2)
    assert "content" in session.told(2)


async def test_a_reply_that_was_cut_off_never_runs_its_last_call(tmp_path: Path) -> None:
    cut = plan(write("a"), write("b", "half a file"))[:-12]
    reply = Response(Message.assistant(cut), FinishReason.LENGTH, Usage(1, 1), "test")
    session = Session(tmp_path, reply, plan(DONE))
    await session.run()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert session.of(PlanAccepted)[0].cut_off
    assert "cut off" in session.told(2)


async def test_a_plan_without_calls_is_told_so(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(), plan(DONE))
    await session.run()
    assert "no tool calls" in session.told(2)


@pytest.mark.parametrize(("limits", "name"), [({"rounds": 2}, "rounds"), ({"usd": 0.5}, "usd")])
async def test_a_limit_ends_the_session_after_the_round(
    tmp_path: Path, limits: dict[str, Any], name: str
) -> None:
    session = Session(tmp_path, plan(write("a")), plan(write("b")), plan(write("c")), **limits)
    assert (await session.run()).kind is EndKind.LIMIT
    assert session.of(LimitReached)[0].limit == name
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


async def test_the_model_is_told_that_the_last_round_has_come(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(write("a")), plan(write("b")), rounds=2)
    session.budget.wrap_up_share = 0.1
    await session.run()
    assert "last round" in session.told(3)
    assert session.history.turns[3].kind is TurnKind.SYSTEM


class Hanging:
    """A model that never answers."""

    name = "hanging"

    async def complete(self, request: Request) -> Response:
        del request
        await asyncio.Event().wait()
        raise AssertionError

    async def stream(self, request: Request) -> AsyncGenerator[StreamEvent, None]:
        await self.complete(request)
        yield  # type: ignore[misc]  # pragma: no cover

    async def aclose(self) -> None: ...


async def test_the_limit_of_minutes_ends_even_a_request_that_hangs(tmp_path: Path) -> None:
    session = Session(tmp_path, model=Hanging(), minutes=0.001)
    assert (await session.run()).kind is EndKind.LIMIT
    assert session.of(LimitReached)[0].limit == "minutes"


class TimingOut(Hanging):
    """A model whose own code runs into a time-out."""

    async def complete(self, request: Request) -> Response:
        del request
        raise TimeoutError("of its own")


async def test_a_time_out_that_is_not_the_limit_is_not_taken_for_it(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="of its own"):
        await Session(tmp_path, model=TimingOut()).run()


async def test_a_wish_to_stop_ends_the_session_before_the_next_round(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(write("a")), plan(write("b")))
    session.stopped = True
    assert (await session.run()).kind is EndKind.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


async def test_what_was_spent_is_counted(tmp_path: Path) -> None:
    session = Session(tmp_path, plan(write("a")), plan(DONE))
    await session.run()
    assert session.budget.rounds == 2
    assert session.budget.usage == Usage(20, 10)
    assert session.budget.usd == 0.5


@pytest.mark.parametrize("is_timed", [True, False])
async def test_a_tool_whose_host_ends_it_may_take_longer_than_others(
    tmp_path: Path, *, is_timed: bool
) -> None:
    async def execute(_arguments: Mapping[str, Any], _context: ToolContext) -> ToolOutcome:
        for _ in range(3):
            await asyncio.sleep(0)
        return Ok("done")

    slow = Tool(ToolDefinition("slow", "Slow.", {"type": "object"}), execute, is_timed=is_timed)
    environment, told = LocalEnvironment(tmp_path, clock=ManualClock()), list[Event]()
    runner = ToolRunner(ToolRegistry([slow]), allow_all, environment, Ledger(), told.append, tool_seconds=0.0)
    end = await runner.run(ToolCall("1", "slow", {}))
    assert end.failed is is_timed
    assert ("gave no answer" in end.result.content) is is_timed


async def test_an_edit_of_a_subagent_and_one_of_its_parent_do_not_lose_each_other(tmp_path: Path) -> None:
    """Both read before one of them writes, if nothing keeps them apart."""

    class Meeting(Wrapper):
        readers = 0

        async def read_file(self, path: str, *, max_bytes: int) -> bytes:
            content = await super().read_file(path, max_bytes=max_bytes)
            Meeting.readers += 1
            for _ in range(50):
                if Meeting.readers < 2:
                    await asyncio.sleep(0)
            return content

    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("one\ntwo\n")
    environment = Meeting(LocalEnvironment(tmp_path, clock=ManualClock()))
    tools, ledger = ToolRegistry([edit_file()]), Ledger(shown={"folder/a.txt"})
    parts = SessionParts(
        make_profile("planner"), environment, JsonPlan(), SessionConfig(), Host(ledger=ledger), ManualClock()
    )
    child = child_parts(parts, SubagentTask("x", "folder"), lambda _usage: None, None)
    child.host.ledger.shown.add("a.txt")
    told: list[Event] = []
    ends = await asyncio.gather(
        ToolRunner(tools, allow_all, environment, ledger, told.append).run(
            ToolCall("1", "edit_file", {"path": "folder/a.txt", "old_text": "one", "new_text": "1"})
        ),
        ToolRunner(tools, allow_all, child.environment, child.host.ledger, told.append).run(
            ToolCall("2", "edit_file", {"path": "a.txt", "old_text": "two", "new_text": "2"})
        ),
    )
    assert [end.failed for end in ends] == [False, False], ends
    assert (tmp_path / "folder" / "a.txt").read_text() == "1\n2\n"
    await environment.cleanup()
