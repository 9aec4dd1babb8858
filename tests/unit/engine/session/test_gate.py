"""What a level lets a session do, and that refusals are counted."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.events import CallStatus, Defence, Guarded, LimitReached, ToolCallEnded
from orchestrator.core.messages import ToolCall, ToolDefinition, ToolResult
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.wrappers import ReadOnlyEnvironment
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.gate import Gatekeeper, Refusal
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Order, foreign_tool
from orchestrator.engine.tools.shell import (
    run_reading_command,
    run_shell_command,
    shell,
    shell_command,
    shell_execute,
)
from tests.tables import table
from tests.unit.engine.session.stage import ScriptedModel, events_of, profile, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.engine.models.base import Request
    from orchestrator.engine.session.event_bus import SessionEvent
    from orchestrator.engine.tools.base import Tool

RULES = CommandRules.parse(["touch *"], ["touch no"])
READ = tool("look", lambda _: "seen")
WRITE = tool("change", lambda _: "changed", order=Order.ALONE)
ENDS = tool("publish", lambda _: "published", order=Order.LAST)
RAW = replace(tool("raw", lambda _: "done"), dangerous=True)
WEB = tool("web_search", lambda _: "found")
OUTBOUND = replace(tool("mcp_tickets_find", lambda _: "found"), outbound=True)
SHELLS = (shell(), run_shell_command(), shell_command(), shell_execute())


def host(level: Level = Level.SAFE, rules: CommandRules = RULES, **fields: Any) -> Host:
    keeper = Gatekeeper(level, rules, **fields)
    return Host(gate=keeper, shows=keeper.shows, system=lambda _shown: "You are tested.")


def run(command: str) -> tuple[str, dict[str, str]]:
    return "shell", {"command": command}


def results(request: Request) -> list[ToolResult]:
    return [part for message in request.messages for part in message.parts if isinstance(part, ToolResult)]


def statuses(events: list[SessionEvent]) -> list[CallStatus]:
    return [event.event.status for event in events if isinstance(event.event, ToolCallEnded)]


def of(events: list[SessionEvent], kind: type) -> list[Any]:
    return [event.event for event in events if isinstance(event.event, kind)]


@table(
    ("level", "rules", "shown"),
    [
        (Level.READ_ONLY, RULES, {"look", "publish", "web_search"}),
        (Level.SAFE, CommandRules(), {"look", "publish", "web_search", "change"}),
        (Level.SAFE, RULES, {"look", "publish", "web_search", "change", *(one.name for one in SHELLS)}),
        (
            Level.DANGEROUS,
            CommandRules(),
            {"look", "publish", "web_search", "change", "raw", *(one.name for one in SHELLS)},
        ),
    ],
)
def test_what_a_level_shows_and_runs(level: Level, rules: CommandRules, shown: set[str]) -> None:
    keeper = Gatekeeper(level, rules)
    tools = (READ, WRITE, ENDS, RAW, WEB, *SHELLS)
    assert {one.name for one in tools if keeper.shows(one)} == shown
    for one in tools:
        refusal = keeper(one, ToolCall("1", one.name, {"command": "touch a"}))
        assert (refusal is None) == (one.name in shown), one.name


@table("one", SHELLS, ids=lambda one: one.name)
def test_the_command_of_every_shell_is_looked_at(one: Tool) -> None:
    keeper = Gatekeeper(Level.SAFE, RULES)

    def ask(arguments: Mapping[str, Any]) -> str | None:
        return keeper(one, ToolCall("1", one.name, arguments))

    assert ask({"command": "touch a"}) is None
    for command in ("touch a; id", "touch no", "id", 7, None):
        refusal = ask({"command": command})
        assert isinstance(refusal, Refusal)
        assert refusal.defence is Defence.COMMANDS
    assert "Granted commands: `touch *`" in (ask({"command": "id"}) or "")


def test_git_does_not_run_in_a_folder_that_the_call_names() -> None:
    keeper = Gatekeeper(Level.SAFE, CommandRules.parse(["git status *"]))

    def ask(**folder: str) -> str | None:
        return keeper(SHELLS[2], ToolCall("1", "shell_command", {"command": "git status", **folder}))

    assert ask() is None
    assert ask(workdir=".") is None
    assert "root of the clone" in (ask(workdir="sub") or "")


@table("level", list(Level))
@table(
    "arguments",
    [{"query": "is sk-1 known"}, {"url": "http://a/?q=s%6B-1"}, {"a": [{"sk-1": 1}]}, {"a": ["sk-1"]}],
)
def test_a_secret_does_not_leave_by_a_tool_that_reaches_out(level: Level, arguments: dict[str, Any]) -> None:
    keeper = Gatekeeper(level, holds_secret=lambda text: "sk-1" in text)
    for one in (WEB, OUTBOUND):
        refusal = keeper(one, ToolCall("1", one.name, arguments))
        assert isinstance(refusal, Refusal)
        assert refusal.defence is Defence.SECRETS
        assert "sk-1" not in refusal
    assert keeper(WEB, ToolCall("1", "web_search", {"query": "python"})) is None
    assert keeper(READ, ToolCall("1", "look", arguments)) is None


def test_rules_for_commands_say_nothing_of_somebody_elses_command() -> None:
    keeper = Gatekeeper(Level.SAFE, CommandRules.parse(["ls *"]))
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    other = replace(OUTBOUND, definition=replace(OUTBOUND.definition, parameters=schema), dangerous=True)
    assert not keeper.shows(other)
    assert keeper.shows(replace(other, outbound=False))
    assert keeper(other, ToolCall("1", other.name, {"command": "ls ."})) is not None
    anything = Gatekeeper(Level.DANGEROUS, CommandRules.parse(["ls *"], ["rm *"]))
    assert anything(other, ToolCall("1", other.name, {"command": "rm x"})) is None


async def test_arguments_are_checked_before_the_gate_and_nothing_is_said_of_a_hidden_tool(
    tmp_path: Path,
) -> None:
    steps = (
        says("", ("shell", {"wrong": 1}), ("change", {}), run("id")),
        says("", ("raw", {"x": 1})),
        says("Done."),
    )
    keeper = host()
    keeper = replace(keeper, shows=lambda one: one.name != "raw")
    async with session_in(tmp_path, *steps, tools=(WRITE, RAW), host=keeper) as (session, model):
        events = await events_of(session, "Go")
    assert statuses(events) == [CallStatus.FAILED, CallStatus.OK, CallStatus.REFUSED, CallStatus.REFUSED]
    first, _, third = results(model.requests[1])
    assert "'command' is a required property" in first.content
    assert "Granted commands" in third.content
    last = results(model.requests[2])[-1].content
    assert last.startswith("You have no tool of this name. Yours are: read_file,")
    assert "raw" not in last
    assert [event.defence for event in of(events, Guarded)] == [Defence.COMMANDS, Defence.LEVEL]
    assert "raw" not in [definition.name for definition in model.requests[0].tools]


async def test_a_gate_that_breaks_lets_nothing_run(tmp_path: Path) -> None:
    def broken(_tool: Tool, _call: ToolCall) -> str | None:
        raise ZeroDivisionError

    steps = (says("", run("touch made")), says("Done."))
    async with session_in(tmp_path, *steps, host=Host(gate=broken, system=lambda _: "Test.")) as (session, _):
        events = await events_of(session, "Go")
    assert statuses(events) == [CallStatus.FAILED]
    assert not (tmp_path / "made").exists()


async def test_three_denials_end_the_session_and_the_rest_of_the_reply_is_skipped(tmp_path: Path) -> None:
    steps = (
        says("", run("id")),
        says("", run("touch a"), run("id"), run("id; id"), run("touch b"), ("look", {})),
    )
    async with session_in(tmp_path, *steps, tools=(READ,), host=host()) as (session, model):
        events = await events_of(session, "Go")
        (limit,) = of(events, LimitReached)
        assert limit.limit == "denials"
        assert "3 calls were refused" in limit.detail
        assert len(model.requests) == 2
        assert len(of(events, Guarded)) == 3
        again = await events_of(session, "Go on")
        assert [event.limit for event in of(again, LimitReached)] == ["denials"]
        assert len(model.requests) == 2, "the limit is that of the whole session"
    ended = {event.call_id: event.status for event in of(events, ToolCallEnded)}
    refused, skipped = CallStatus.REFUSED, CallStatus.SKIPPED
    assert list(map(ended.get, ("c1", "c2", "c3", "c4", "c5"))) == [
        CallStatus.OK,
        refused,
        refused,
        skipped,
        skipped,
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize(("most", "ends"), [(0, False), (5, False), (4, True), (1, True)])
async def test_how_many_denials_end_the_session_is_set(tmp_path: Path, *, most: int, ends: bool) -> None:
    steps = (*(says("", run("id")) for _ in range(4)), says("Done."))
    config = SessionConfig(max_denials=most, enable_loop_detection=False)
    async with session_in(tmp_path, *steps, config=config, host=host()) as (session, model):
        events = await events_of(session, "Go")
    assert bool(of(events, LimitReached)) is ends
    assert len(model.requests) == (most if ends else 5)


async def test_denials_of_subagents_count_for_their_parent(tmp_path: Path) -> None:
    def step(request: Request) -> Any:
        if request.messages[0].text == "Child":
            return says("", run("id"), run("id"))
        if len(request.messages) == 1:
            return says("", run("id"), ("spawn_agent", {"task": "Child"}))
        spawned = results(request)[-1].content
        return says("", ("wait", {"agent_id": spawned.splitlines()[0].removeprefix("agent_id: ")}))

    async with session_in(tmp_path, *[step] * 6, host=host(), subagents=True) as (session, model):
        events = await events_of(session, "Go")
        assert session.budget.denials == 3
    reached = [
        (event.session == session.id, event.event.limit)
        for event in events
        if isinstance(event.event, LimitReached)
    ]
    assert sorted(reached) == [(False, "denials"), (True, "denials")]
    assert len(model.requests) <= 3


async def test_what_a_tool_refuses_itself_counts_as_a_denial_at_every_level(tmp_path: Path) -> None:
    chain = says("", ("run_command", {"command": "ls; touch made"}))
    only = host(Level.DANGEROUS)
    async with session_in(tmp_path, *[chain] * 6, host=only, tools=[run_reading_command()]) as (
        session,
        model,
    ):
        events = await events_of(session, "Go")
    assert statuses(events) == [CallStatus.REFUSED] * 3
    assert [one.defence for one in of(events, Guarded)] == [Defence.COMMANDS] * 3
    assert len(model.requests) == 3
    assert not (tmp_path / "made").exists()


async def test_a_session_without_a_gate_refuses_what_destroys_a_machine(tmp_path: Path) -> None:
    steps = says("", run("rm -rf /")), says("", run("cd /; rm -rf *")), says("Done.")
    confined = ReadOnlyEnvironment(
        LocalEnvironment(tmp_path, sandbox="off")
    )  # a failure here must do no harm
    async with Session(profile=profile(), environment=confined, model=ScriptedModel([*steps])) as session:
        events = await events_of(session, "Go")
    assert statuses(events) == [CallStatus.REFUSED] * 2
    assert [one.defence for one in of(events, Guarded)] == [Defence.COMMANDS] * 2


@table(
    ("level", "asks", "command", "scope"),
    [
        (Level.SAFE, True, "make it", "make it"),
        (Level.SAFE, True, "touch it; rm it", "touch it; rm it"),
        (Level.SAFE, False, "make it", ""),
        (Level.SAFE, True, "touch no", ""),
        (Level.SAFE, True, "rm -rf /", ""),
        (Level.DANGEROUS, True, "touch no", ""),
        (Level.READ_ONLY, True, "make it", None),
    ],
)
def test_a_person_may_be_asked_about_what_a_higher_level_would_run(
    level: Level, *, asks: bool, command: str, scope: str | None
) -> None:
    keeper = Gatekeeper(level, RULES, asks=asks)
    refusal = keeper(shell(), ToolCall("1", "shell", {"command": command}))
    assert isinstance(refusal, Refusal)
    assert refusal.scope == (scope or "")
    assert keeper.shows(shell()) is (scope is not None)


def test_what_is_asked_about_names_the_folder_too() -> None:
    keeper = Gatekeeper(Level.SAFE, RULES, asks=True)
    refusal = keeper(shell_command(), ToolCall("1", "shell", {"command": "ls", "workdir": "sub"}))
    assert isinstance(refusal, Refusal)
    assert refusal.scope == "(in sub) ls"


def test_what_is_asked_about_a_tool_of_others_has_all_that_they_would_be_told() -> None:
    keeper = Gatekeeper(Level.SAFE, RULES, asks=True)
    theirs = foreign_tool(
        ToolDefinition("mcp_tickets_close", "", {"type": "object"}), shell().execute, dangerous=True
    )
    refusal = keeper(theirs, ToolCall("1", "mcp_tickets_close", {"id": "ä 7"}))
    assert isinstance(refusal, Refusal)
    assert refusal.scope == 'mcp_tickets_close {"id": "ä 7"}'


async def test_a_call_runs_that_a_person_allows_and_not_one_that_is_blocked_everywhere(
    tmp_path: Path,
) -> None:
    asked: list[str] = []

    async def approve(_tool: Tool, _call: ToolCall, refusal: Refusal) -> str | None:
        asked.append(refusal.scope)
        return None if refusal.scope == "make it" else "The user says no."

    keeper = Gatekeeper(Level.SAFE, RULES, asks=True)
    own = Host(gate=keeper, shows=keeper.shows, approve=approve, system=lambda _shown: "You are tested.")
    steps = (says("", run("make it")), says("", run("make more")), says("", run("rm -rf /")), says("Done."))
    made = replace(shell(), execute=tool("made", lambda _: "made").execute)
    async with session_in(tmp_path, *steps, tools=(made,), host=own) as (session, _model):
        events = await events_of(session, "Go")
    assert asked == ["make it", "make more"]
    assert statuses(events) == [CallStatus.OK, CallStatus.REFUSED, CallStatus.REFUSED]
    assert len(of(events, Guarded)) == 1, "a person's no is told by the door that asked"
