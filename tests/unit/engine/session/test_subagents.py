from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import AuthenticationError, ConfigurationError, OverloadedError
from orchestrator.core.events import (
    Event,
    LimitReached,
    SessionEnded,
    SessionState,
    SubagentEvent,
    TodosChanged,
    ToolCallEnded,
)
from orchestrator.core.messages import Message, Role, ToolDefinition, ToolResult, Usage
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.subagents import MAX_SUBAGENTS
from orchestrator.engine.tools.base import Ok, Order, Tool, ToolContext
from orchestrator.engine.tools.todo import todo
from tests.unit.engine.session.stage import USAGE, ScriptedModel, Step, events_of, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from orchestrator.engine.models.base import Request, Response
    from orchestrator.engine.session.event_bus import SessionEvent

TASK = "Look at the tests"
FOUR = {"spawn_agent", "send_input", "wait", "close_agent"}


@dataclass
class Cast(ScriptedModel):
    """Parent and children on one model: each goes by the script of the first words that it was told."""

    steps: list[Step] = field(default_factory=list)
    scripts: dict[str, list[Step]] = field(default_factory=dict)
    silent: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def complete(self, request: Request) -> Response:
        script = self.scripts[request.messages[0].text]
        if not script:
            self.silent.release()
            await asyncio.Event().wait()  # a model that does not answer any more
        self.steps = [script.pop(0)]
        return await super().complete(request)

    def asked(self, first: str) -> list[Request]:
        """The requests of the conversation that began so."""
        return [request for request in self.requests if request.messages[0].text == first]


def told(request: Request) -> list[ToolResult]:
    """All results in a request."""
    return [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]


def agents(request: Request) -> list[str]:
    """The ids that `spawn_agent` gave."""
    spawned = [result.content for result in told(request) if result.content.startswith("agent_id: ")]
    return [text.splitlines()[0].removeprefix("agent_id: ") for text in spawned]


def spawn(task: str = TASK, **more: Any) -> Response:
    return says("", ("spawn_agent", {"task": task, **more}))


def to_agent(name: str, number: int = 0, **more: Any) -> Callable[[Request], Response]:
    """A call that names a subagent, the first if no number is given."""
    return lambda request: says("", (name, {"agent_id": agents(request)[number], **more}))


def cast(*parent: Step, child: tuple[Step, ...] = (), **scripts: list[Step]) -> Cast:
    """The parent is asked "Go"; children by their tasks."""
    return Cast(scripts={"Go": list(parent), TASK: list(child), **scripts})


def settle(model: Cast, *children: int) -> Tool:
    """A tool whose calls wait until so many more children wait for their model."""
    counts = iter(children or (1,))

    async def wait(_arguments: Mapping[str, Any]) -> str:
        for _ in range(next(counts)):
            await model.silent.acquire()
        return "settled"

    return tool("settle", wait)


WAIT = to_agent("wait")
SETTLE = says("", ("settle", {}))
DONE = says("Done.")


async def test_a_subagent_works_in_the_same_folder_with_a_history_of_its_own(tmp_path: Path) -> None:
    write = ("write_file", {"file_path": "child.txt", "content": "here\n"})
    model = cast(spawn(), WAIT, DONE, child=(says("I write.", write), says("I wrote child.txt.")))
    host = Host(system=lambda _shown: "You are tested.")
    config = SessionConfig(reasoning_effort="low")
    async with session_in(tmp_path, model=model, subagents=True, host=host, config=config) as (session, _):
        assert (await session.run("Go")).text == "Done."
    assert (tmp_path / "child.txt").read_text() == "here\n"
    first, last = model.asked(TASK)
    assert list(first.messages) == [Message.user(TASK)]
    assert first.reasoning_effort == "low"
    assert len(last.messages) == 3
    spawned, waited = told(model.asked("Go")[-1])
    assert spawned.content.endswith("status: running")
    assert waited.content == "success: true\nturns used: 2\noutput:\nI wrote child.txt."
    assert [spawned.is_error, waited.is_error] == [False, False]
    assert host.ledger.touched == {"child.txt"}


async def test_a_subagent_has_a_list_of_its_own(tmp_path: Path) -> None:
    def add(content: str) -> Response:
        return says("", ("todo_add", {"content": content}))

    model = cast(add("Delegate"), spawn(), WAIT, DONE, child=(add("Look"), says("Seen.")))
    host = Host(system=lambda _shown: "You are tested.")
    async with session_in(tmp_path, model=model, subagents=True, host=host, tools=todo()) as (session, _):
        events = [event.event for event in await events_of(session, "Go")]
        lists = [event for event in events if isinstance(event, TodosChanged)]
    assert [[item.content for item in one.items] for one in lists] == [["Delegate"], ["Look"]]
    assert [item.content for item in host.todos.items] == ["Delegate"]


async def test_what_is_sent_to_a_running_subagent_steers_it(tmp_path: Path) -> None:
    begun, said = asyncio.Event(), asyncio.Event()

    async def hold(_arguments: Mapping[str, Any]) -> str:
        begun.set()
        await said.wait()
        return "held"

    def release(_arguments: Mapping[str, Any]) -> str:
        said.set()
        return "released"

    tools = [tool("hold", hold), tool("release", release), tool("sync", lambda _: begun.wait())]
    steer = to_agent("send_input", message="Only the unit tests")
    model = cast(
        spawn(), says("", ("sync", {})), steer, says("", ("release", {})), WAIT, DONE,
        child=(says("", ("hold", {})), says("Only those.")),
    )  # fmt: skip
    async with session_in(tmp_path, model=model, subagents=True, tools=tools) as (session, _):
        await session.run("Go")
    assert model.asked(TASK)[1].messages[-1] == Message.user("Only the unit tests")
    assert "will read it after its current round" in told(model.asked("Go")[-1])[2].content


async def test_what_is_sent_to_a_finished_subagent_is_new_work(tmp_path: Path) -> None:
    """A question counts as a good end: the parent can answer it."""
    send = to_agent("send_input", message="Those of the API")
    model = cast(spawn(), WAIT, send, WAIT, DONE, child=(says("Which tests?"), says("They are fine.")))
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        await session.run("Go")
    words = [message.text for message in model.asked(TASK)[1].messages]
    assert words == [TASK, "Which tests?", "Those of the API"]
    _, first, sent, second = told(model.asked("Go")[-1])
    assert first.content == "success: true\nturns used: 1\noutput:\nWhich tests?"
    assert sent.content.endswith("works on it.")
    assert second.content == "success: true\nturns used: 2\noutput:\nThey are fine."


@pytest.mark.parametrize(("waits", "status"), [(True, "completed"), (False, "failed")])
async def test_a_closed_subagent_is_stopped_and_forgotten(tmp_path: Path, waits: bool, status: str) -> None:  # noqa: FBT001  parametrised
    heard: list[SessionEvent] = []
    close = to_agent("close_agent")
    child_says = (says("Fine."),) if waits else ()
    model = cast(spawn(), WAIT if waits else SETTLE, close, WAIT, DONE, child=child_says)
    tools = [settle(model)]
    async with session_in(tmp_path, model=model, subagents=True, tools=tools) as (session, _):
        session.listen(heard.append)
        await session.run("Go")
    *_, closed, unknown = told(model.asked("Go")[-1])
    assert closed.content.endswith(f"is closed; its final status was: {status}")
    assert unknown.is_error
    assert "there are: none" in unknown.content
    child = agents(model.asked("Go")[-1])[0]
    assert [event.session for event in heard if isinstance(event.event, SessionEnded)] == [child, session.id]


async def test_a_working_dir_is_all_that_the_subagent_sees(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "in.txt").write_text("inside\n")
    (tmp_path / "out.txt").write_text("outside\n")
    calls = (
        ("read_file", {"file_path": "in.txt"}),
        ("read_file", {"file_path": "../out.txt"}),
        ("glob", {"pattern": "*.txt"}),
        ("shell", {"command": "pwd"}),
        ("write_file", {"file_path": "new/made.txt", "content": "x\n"}),
    )
    model = cast(spawn(working_dir="sub"), WAIT, DONE, child=(says("", *calls), says("Done.")))
    host = Host(system=lambda _shown: "")
    async with session_in(tmp_path, model=model, subagents=True, host=host) as (session, _):
        await session.run("Go")
    inside, outside, found, where, _written = told(model.asked(TASK)[-1])
    assert "inside" in inside.content
    assert outside.is_error
    assert "outside\n" not in outside.content
    assert "out.txt" not in found.content
    assert where.content.startswith(str(tmp_path / "sub"))
    assert (tmp_path / "sub" / "new" / "made.txt").exists()
    assert host.ledger.touched == {"sub/new/made.txt"}
    assert host.ledger.shell_used


async def test_the_session_s_own_folder_as_working_dir_is_no_scope(tmp_path: Path) -> None:
    write = ("write_file", {"file_path": "made.txt", "content": "x\n"})
    host = Host(system=lambda _shown: "")
    model = cast(spawn(working_dir="."), WAIT, DONE, child=(says("", write), says("Done.")))
    async with session_in(tmp_path, model=model, subagents=True, host=host) as (session, _):
        await session.run("Go")
    assert host.ledger.touched == {"made.txt"}


@pytest.mark.parametrize("folder", ["missing", "../elsewhere", ".git", "a_file"])
async def test_a_working_dir_that_cannot_be_is_told(tmp_path: Path, folder: str) -> None:
    (tmp_path / "a_file").write_text("x\n")
    model = cast(spawn(working_dir=folder), says("I see."), child=(says("It works?!"),))

    def wait_or_end(request: Request) -> Response:
        return says("I see.") if told(request)[-1].is_error else WAIT(request)

    model.scripts["Go"][1:] = [wait_or_end, wait_or_end]
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        assert (await session.run("Go")).text == "I see."
    assert model.asked(TASK) == []
    assert folder.strip("./") in told(model.asked("Go")[-1])[-1].content


@pytest.mark.parametrize("depth", [0, 1, 2])
async def test_subagents_are_nested_as_deep_as_allowed(tmp_path: Path, depth: int) -> None:
    model = cast(spawn("child"), WAIT, DONE)
    model.scripts["child"] = [spawn("grandchild"), WAIT, says("Child done.")]
    model.scripts["grandchild"] = [says("Grandchild done.")]
    config = SessionConfig(max_subagent_depth=depth)
    if depth == 0:
        model.scripts["Go"] = [DONE]
    elif depth == 1:
        model.scripts["child"] = [spawn("grandchild"), says("I may not.")]
    heard: list[SessionEvent] = []
    async with session_in(tmp_path, model=model, subagents=True, config=config) as (session, _):
        session.listen(heard.append)
        await session.run("Go")
    levels = [
        bool({shown.name for shown in model.asked(first)[0].tools} >= FOUR)
        for first in ("Go", "child", "grandchild")
        if model.asked(first)
    ]
    assert levels == [[False], [True, False], [True, True, False]][depth]
    assert len({event.session for event in heard}) == depth + 1, "events come from all levels"
    if depth == 1:
        (refused,) = told(model.asked("child")[-1])
        assert "no tool of this name" in refused.content


async def test_a_profile_without_subagents_has_none_of_their_tools(tmp_path: Path) -> None:
    model = cast(DONE)
    async with session_in(tmp_path, model=model) as (session, _):
        await session.run("Go")
    assert not FOUR & {shown.name for shown in model.requests[0].tools}


@pytest.mark.parametrize("by_host", [True, False])
async def test_another_model_is_made_by_the_host_or_the_profile(tmp_path: Path, by_host: bool) -> None:  # noqa: FBT001  parametrised
    small = ScriptedModel([says("From the small one.")], name="scripted:small")
    names: list[str] = []

    def other(name: str) -> tuple[ScriptedModel, Callable[[Any], float]]:
        names.append(name)
        return small, lambda _usage: 0.25

    def wrong(_name: str) -> Any:
        raise ConfigurationError("the host has the last word")

    fields: dict[str, Any] = {"host": Host(system=lambda _shown: "", price=lambda _usage: 1.0)}
    fields["other_model"] = wrong if by_host else other
    if by_host:
        fields["host"] = Host(system=lambda _shown: "", price=lambda _usage: 1.0, other_model=other)
    model = cast(spawn(model="small"), WAIT, DONE)
    async with session_in(tmp_path, model=model, subagents=True, **fields) as (session, _):
        await session.run("Go")
    assert names == ["small"]
    assert "From the small one." in told(model.requests[-1])[1].content
    assert len(small.requests) == 1
    assert session.budget.usd == 3 * 1.0 + 0.25


def _unknown_model(name: str) -> Any:
    raise ConfigurationError(f"there is no model {name}")


@pytest.mark.parametrize(
    ("other", "config", "words"),
    [
        (None, SessionConfig(), "has no property `model`"),
        (_unknown_model, SessionConfig(), "there is no model small"),
        (
            lambda _name: (ScriptedModel([]), lambda _usage: None),
            SessionConfig(max_usd=9.0),
            "price of small",
        ),
    ],
)
async def test_another_model_that_cannot_be_had_is_refused(
    tmp_path: Path, other: Any, config: SessionConfig, words: str
) -> None:
    host = Host(system=lambda _shown: "", price=lambda _usage: 0.1, other_model=other)
    model = cast(spawn(model="small"), DONE)
    async with session_in(tmp_path, model=model, subagents=True, host=host, config=config) as (session, _):
        assert (await session.run("Go")).text == "Done."
    (refused,) = told(model.requests[-1])
    assert refused.is_error
    assert words in refused.content


async def test_a_limit_of_turns_ends_the_subagent_alone(tmp_path: Path) -> None:
    again = says("", ("glob", {"pattern": "*"}))
    model = cast(spawn(max_turns=2), WAIT, DONE, child=(again, again, again))
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        assert (await session.run("Go")).text == "Done."
    waited = told(model.asked("Go")[-1])[1]
    assert waited.is_error
    assert waited.content == "success: false\nturns used: 2\noutput:\n2 of 2 rounds are used"
    assert len(model.asked(TASK)) == 2


async def test_the_parents_own_limit_of_turns_is_not_the_subagents(tmp_path: Path) -> None:
    again = says("", ("glob", {"pattern": "*"}))
    model = cast(spawn(), WAIT, DONE, child=(again, again, again, says("Fine.")))
    config = SessionConfig(max_turns=3)
    async with session_in(tmp_path, model=model, subagents=True, config=config) as (session, _):
        assert (await session.run("Go")).text == "Done."
    assert session.budget.rounds == 3


async def test_what_a_subagent_spends_counts_above_and_the_caps_above_stop_it(tmp_path: Path) -> None:
    again = says("", ("glob", {"pattern": "*"}))
    model = cast(spawn(), WAIT, DONE, child=(again, says("Fine.")))
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        await session.run("Go")
    assert session.budget.usage == USAGE + USAGE + USAGE + USAGE + USAGE
    heard: list[SessionEvent] = []
    dear = replace(again, usage=Usage(4_000, 1_000))
    model = cast(spawn(), WAIT, DONE, child=(dear,) * 9)
    config = SessionConfig(max_tokens=20_000)
    async with session_in(tmp_path, model=model, subagents=True, config=config) as (session, _):
        session.listen(heard.append)
        assert (await session.run("Go")).text == "Done.", "what is kept back is left for the parent"
    assert len(model.asked(TASK)) == 3
    limits = [event.event.limit for event in heard if isinstance(event.event, LimitReached)]
    assert limits == ["tokens"]


@pytest.mark.parametrize("error", [OverloadedError("busy"), AuthenticationError("the key is wrong")])
async def test_a_subagent_that_fails_is_an_error_result_and_nothing_more(
    tmp_path: Path, error: Exception
) -> None:
    """One whose error passes can be asked again; the other is closed, and says so."""
    again = to_agent("send_input", message="Again")
    model = cast(spawn(), WAIT, again, DONE, child=(error, says("Fine.")))
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        assert (await session.run("Go")).text == "Done."
    _, waited, sent = told(model.asked("Go")[-1])
    assert waited.is_error
    assert waited.content == f"success: false\nturns used: 1\noutput:\n{error}"
    assert sent.is_error is isinstance(error, AuthenticationError)
    assert ("spawn another one" in sent.content) is sent.is_error


async def test_events_of_subagents_carry_their_id(tmp_path: Path) -> None:
    given: list[Event] = []
    host = Host(system=lambda _shown: "", emit=given.append)
    look = says("", ("glob", {"pattern": "*"}))
    model = cast(spawn(), WAIT, DONE, child=(look, says("Fine.")))
    async with session_in(tmp_path, model=model, subagents=True, host=host) as (session, _):
        events = await events_of(session, "Go")
    child = agents(model.asked("Go")[-1])[0]
    assert {event.session for event in events} == {session.id, child}
    ended = [(event.session, event.event.name) for event in events if isinstance(event.event, ToolCallEnded)]
    assert ended == [(session.id, "spawn_agent"), (child, "glob"), (session.id, "wait")]
    of_child = [event.event for event in events if event.session == child]
    wrapped = [event.event for event in given if isinstance(event, SubagentEvent) and event.agent == child]
    assert wrapped[: len(of_child)] == of_child
    own = [event.event for event in events if event.session == session.id]
    assert [event for event in given if not isinstance(event, SubagentEvent)][: len(own)] == own


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_the_end_of_a_session_is_that_of_its_subagents_whatever_they_run(
    tmp_path: Path, how: str
) -> None:
    stubborn = "trap '' TERM; echo $$ > pid; echo started; sleep 600 & wait; sleep 600"
    command = says("", ("shell", {"command": stubborn, "timeout_ms": 600_000}))
    model = cast(
        spawn("idle"), WAIT, spawn(), to_agent("wait", 1), child=(command,), idle=[says("I am done.")]
    )
    heard: list[SessionEvent] = []
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        session.listen(heard.append)
        async for event in session.submit("Go"):
            if event.kind == "tool_call_output_delta":
                await (session.abort() if how == "abort" else session.close())
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    ended = [event.session for event in heard if isinstance(event.event, SessionEnded)]
    assert len(ended) == 3
    assert ended[-1] == session.id
    assert heard[-1].kind == "session_end"


async def test_tools_that_publish_are_not_for_subagents(tmp_path: Path) -> None:
    tools = [
        tool("publish", lambda _: "published", order=Order.LAST),
        tool("change", lambda _: "changed", order=Order.ALONE),
    ]
    model = cast(spawn(), WAIT, DONE, child=(says("", ("publish", {})), says("I may not.")))
    async with session_in(tmp_path, model=model, subagents=True, tools=tools) as (session, _):
        await session.run("Go")
    shown = [{one.name for one in model.asked(first)[0].tools} for first in ("Go", TASK)]
    assert shown[0] - shown[1] == {"publish", *FOUR}
    assert "no tool of this name" in told(model.asked(TASK)[-1])[0].content


async def test_the_gate_holds_for_subagents_too(tmp_path: Path) -> None:
    host = Host(system=lambda _: "", gate=lambda one, _call: "Not here." if one.name == "shell" else None)
    model = cast(
        spawn(), WAIT, DONE, child=(says("", ("shell", {"command": "touch made"})), says("I may not."))
    )
    async with session_in(tmp_path, model=model, subagents=True, host=host) as (session, _):
        await session.run("Go")
    assert told(model.asked(TASK)[-1])[0].content == "Not here."
    assert not (tmp_path / "made").exists()


async def test_there_is_a_most_of_subagents_and_a_closed_one_makes_room(tmp_path: Path) -> None:
    many = says("", *[("spawn_agent", {"task": TASK})] * (MAX_SUBAGENTS + 1))
    model = cast(many, SETTLE, to_agent("close_agent"), spawn(), SETTLE, DONE)
    tools = [settle(model, MAX_SUBAGENTS, 1)]
    async with session_in(tmp_path, model=model, subagents=True, tools=tools) as (session, _):
        await session.run("Go")
    results = told(model.asked("Go")[-1])
    assert [result.is_error for result in results] == [False] * MAX_SUBAGENTS + [True, *[False] * 4]
    assert "close one first" in results[MAX_SUBAGENTS].content


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (("spawn_agent", {"task": " \n"}), "the task is empty"),
        (("spawn_agent", {}), "'task' is a required property"),
        (("spawn_agent", {"task": "x", "max_turns": -1}), "max_turns"),
        (("wait", {"agent_id": "nobody"}), "there is no subagent 'nobody'; there are: none"),
        (("send_input", {"agent_id": "nobody", "message": "x"}), "there is no subagent 'nobody'"),
        (("close_agent", {"agent_id": "nobody"}), "there is no subagent 'nobody'"),
    ],
)
async def test_a_wrong_call_is_an_error_result(
    tmp_path: Path, call: tuple[str, Mapping[str, Any]], words: str
) -> None:
    model = cast(says("", call), DONE)
    async with session_in(tmp_path, model=model, subagents=True) as (session, _):
        assert (await session.run("Go")).text == "Done."
    (result,) = told(model.requests[-1])
    assert result.is_error
    assert words in result.content


async def test_a_parent_may_end_its_work_before_its_subagent_does(tmp_path: Path) -> None:
    """Nobody waits for the child, which ends with the session."""
    model = cast(spawn(), SETTLE, DONE)
    tools = [settle(model)]
    async with session_in(tmp_path, model=model, subagents=True, tools=tools) as (session, _):
        assert (await session.run("Go")).text == "Done."
        assert [turn.message.role for turn in session.history.turns][-1] is Role.ASSISTANT
    assert model.closed == 4, "the child's stream too"


def status_of(number: int = 0, **more: Any) -> Callable[[Request], Response]:
    """A call of `subagent_status` for a subagent that `subagent` started."""

    def call(request: Request) -> Response:
        started = [json.loads(one.content) for one in told(request) if '"subagent_id"' in one.content]
        return says("", ("subagent_status", {"subagent_id": started[number]["subagent_id"], **more}))

    return call


def names(request: Request) -> set[str]:
    """The tools that a request has."""
    return {tool.name for tool in request.tools}


def delegate(task: str = TASK, **more: Any) -> Response:
    return says("", ("subagent", {"task": task, **more}))


def background(folder: Path, model: Cast, **fields: Any) -> Any:
    return session_in(folder, model=model, subagents=True, subagents_in_background=True, **fields)


async def test_a_subagent_in_the_background_starts_fresh_and_tells_its_result(tmp_path: Path) -> None:
    first = f"{TASK}\n\n# Context\n\nOnly the units"
    model = cast(delegate(context="Only the units"), status_of(wait=True), DONE)
    model.scripts[first] = [says("They pass.")]
    async with background(tmp_path, model) as (session, _):
        assert (await session.run("Go")).text == "Done."
        (child,) = session._subagents.by_id.values()
        assert child.session.state is SessionState.CLOSED
    both = {"subagent", "subagent_status"}
    assert names(model.asked("Go")[0]) >= both
    assert not names(model.asked("Go")[0]) & FOUR
    (asked,) = model.asked(first)
    assert list(asked.messages) == [Message.user(first)]
    assert names(asked) == names(model.asked("Go")[0]) - both
    started, ended = (json.loads(one.content) for one in told(model.asked("Go")[-1]))
    assert started == {
        "subagent_id": ended["subagent_id"],
        "status": "running",
        "progress": "0 replies so far",
    }
    assert ended == {"subagent_id": started["subagent_id"], "status": "completed", "result": "They pass."}


async def test_five_work_in_the_background_at_once_and_those_that_ended_do_not_count(tmp_path: Path) -> None:
    tasks = [f"Task {number}" for number in range(7)]
    model = cast(delegate(tasks[0]), status_of(wait=True), *map(delegate, tasks[1:]), DONE)
    model.scripts |= {task: [] for task in tasks} | {tasks[0]: [says("Done early.")]}
    async with background(tmp_path, model) as (session, _):
        await session.run("Go")
    answers = [one.content for one in told(model.asked("Go")[-1])]
    assert [text.startswith("{") for text in answers] == [True] * 7 + [False]
    assert answers[-1] == "5 subagents are running already: wait for one first"


async def test_a_subagent_that_takes_too_long_is_stopped_and_has_failed(tmp_path: Path) -> None:
    model = cast(delegate(), status_of(wait=True), DONE)
    config = SessionConfig(subagent_timeout_seconds=1)
    async with background(tmp_path, model, config=config) as (session, _):
        await session.run("Go")
    ended = json.loads(told(model.asked("Go")[-1])[-1].content)
    assert ended["status"] == "failed"
    assert ended["error"] == "It was not done within 1 seconds, and was stopped."


async def test_there_are_none_below_a_subagent_in_the_background(tmp_path: Path) -> None:
    model = cast(delegate(), status_of(wait=True), DONE, child=(says("Seen."),))
    async with background(tmp_path, model, config=SessionConfig(max_subagent_depth=3)) as (session, _):
        await session.run("Go")
    assert ["subagent" in names(request) for request in model.asked(TASK)] == [False]


async def test_a_depth_of_0_allows_none_in_the_background(tmp_path: Path) -> None:
    model = cast(DONE)
    async with background(tmp_path, model, config=SessionConfig(max_subagent_depth=0)) as (session, _):
        await session.run("Go")
    assert "subagent" not in names(model.requests[0])


async def test_a_status_of_nobody_names_those_that_there_are(tmp_path: Path) -> None:
    model = cast(says("", ("subagent_status", {"subagent_id": "x"})), delegate(" "), DONE)
    async with background(tmp_path, model) as (session, _):
        await session.run("Go")
    unknown, empty = (one.content for one in told(model.asked("Go")[-1]))
    assert unknown == "there is no subagent 'x'; there are: none"
    assert "the task is empty" in empty


async def test_a_subagent_has_not_read_what_its_parent_has(tmp_path: Path) -> None:
    async def show(_arguments: Mapping[str, Any], context: ToolContext) -> Ok:
        if "tidy" in context.skills:
            return Ok("It is above.")
        context.skills["tidy"] = "Sweep."
        return Ok("Sweep.")

    skills = Tool(ToolDefinition("use_skill", "Shows a skill.", {"type": "object"}), show)
    ask = says("", ("use_skill", {"name": "tidy"}))
    model = cast(ask, ask, delegate(), status_of(wait=True), DONE, child=(ask, says("Swept.")))
    async with background(tmp_path, model, tools=[skills]) as (session, _):
        await session.run("Go")
    parents, childs = told(model.asked("Go")[-1]), told(model.asked(TASK)[-1])
    assert ["Sweep." in one.content for one in (*parents[:2], childs[0])] == [True, False, True]
