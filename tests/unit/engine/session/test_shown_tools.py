"""A model never reads the name of a tool that it was not shown, whatever it calls."""

from __future__ import annotations

import itertools
import json
import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import BadReplyError
from orchestrator.core.events import CallStatus, ToolCallEnded
from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolResult, Usage
from orchestrator.engine.contracts.json_plan import JsonPlan
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.contracts.whole_file import WholeFile
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.base import Response
from orchestrator.engine.policy.command_rules import CommandRules, Level
from orchestrator.engine.profiles.base import profile_names
from orchestrator.engine.profiles.catalog import make_profile
from orchestrator.engine.session.config import Host, SessionConfig
from orchestrator.engine.session.gate import Gatekeeper, safe_mode
from orchestrator.engine.session.history import Turn, TurnKind
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import Ok, Order
from orchestrator.engine.tools.control import ask_question, create_pull_request, finish
from orchestrator.engine.tools.shell import shell
from orchestrator.engine.tools.todo import todo
from tests.conformance.environments import this_machines_sandbox
from tests.unit.engine.session.stage import ScriptedModel, events_of, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from orchestrator.engine.contracts.base import Contract
    from orchestrator.engine.models.base import Request
    from orchestrator.engine.profiles.base import Profile
    from orchestrator.engine.tools.base import ToolContext, ToolOutcome

CONTRACTS = (Native, SingleStep, JsonPlan, WholeFile)
HOSTS = (
    ("safe", Gatekeeper()),
    ("read-only", Gatekeeper(Level.READ_ONLY)),
    ("rules", Gatekeeper(Level.SAFE, CommandRules.parse(["ls *"]))),
    ("dangerous", Gatekeeper(Level.DANGEROUS)),
)
SESSION = {"spawn_agent", "send_input", "wait", "close_agent", "subagent", "subagent_status"}
FOREIGN = replace(
    tool("mcp_tickets_close", lambda _: "closed"), dangerous=True, order=Order.ALONE, outbound=True
)


async def _proposes(_title: str, _body: str) -> str:
    return "open"


async def _may_finish(_reason: str) -> str | None:
    return "Not yet: there is more to do."


def profile_of(name: str) -> Profile:
    controls = (create_pull_request(_proposes), ask_question(), finish(_may_finish), FOREIGN, *todo())
    return make_profile(name, custom=controls if name in {"planner", "small", "explorer"} else (FOREIGN,))


KNOWN = {one.name for name in profile_names() for one in profile_of(name).tools} | SESSION


def mentioned(text: str, names: Iterable[str]) -> set[str]:
    """The names that a text has: those with `_` anywhere, ordinary words only in quotes or in a list of names."""
    found = set()
    for name in names:
        pattern = rf"\b{name}\b" if "_" in name else rf"[`\"']{name}[`\"']|: {name},|, {name}[,.]"
        if re.search(pattern, text):
            found.add(name)
    return found


def fixed_part(request: Request) -> str:
    """What every request has: the system prompt and the tools; a parameter may have the name of a tool."""
    texts = [request.system]
    for one in request.tools:
        texts += [f"`{one.name}`", one.description]
        texts += [schema.get("description", "") for schema in one.parameters.get("properties", {}).values()]
    return "\n".join([*texts, json.dumps(request.output_schema.schema) if request.output_schema else ""])


def said_by_program(messages: Iterable[Message]) -> str:
    """What these messages say, without what the model wrote itself."""
    parts = [part for message in messages if message.role is not Role.ASSISTANT for part in message.parts]
    texts = [
        re.sub(r"^\d+\. `\w*`: ", "", part.text, flags=re.MULTILINE)
        for part in parts
        if isinstance(part, Text)
    ]
    return "\n".join([*texts, *(part.content for part in parts if isinstance(part, ToolResult))])


def reply(contract: Contract, name: str, arguments: dict[str, Any]) -> Response:
    if isinstance(contract, JsonPlan):
        plan = json.dumps({"plan": "I go on.", "tool_calls": [{"tool_name": name, "arguments": arguments}]})
        return Response(Message.assistant(plan), FinishReason.STOP, Usage(1, 1), "scripted")
    if isinstance(contract, WholeFile):
        return Response(Message.assistant("`a.py`\n```\nx\n```"), FinishReason.STOP, Usage(1, 1), "scripted")
    return says("", (name, arguments))


ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"path": "none.py", "old_text": "a", "new_text": "b", "content": "x"},
    {"file_path": "none.py", "old_string": "a", "new_string": "b", "content": "x", "operations": []},
    {"file_path": "a.py", "content": "x\n", "command": "ls; rm x"},
    {"path": "a.py", "content": "x\n"},
    {"task": "x", "agent_id": "none", "subagent_id": "none", "id": "none"},
)


@pytest.mark.parametrize("name", profile_names())
async def test_no_message_names_a_tool_that_the_model_was_not_shown(tmp_path: Path, name: str) -> None:
    (tmp_path / "a.py").write_text("line\n" * 60)
    for make, (level, keeper) in itertools.product(CONTRACTS, HOSTS):
        contract, profile = make(), profile_of(name)
        called = ["no_such_tool", "run_shell", "", "edit_fil", *sorted(KNOWN)]
        steps = [reply(contract, one, given) for given in ARGUMENTS for one in called if one or given]
        if isinstance(contract, WholeFile):  # which names no tool: each reply is the same
            steps = steps[:6]
        model = ScriptedModel([*steps, *[says("")] * 4])
        async with Session(
            profile=profile,
            environment=LocalEnvironment(tmp_path, sandbox="off"),
            model=model,
            contract=contract,
            host=Host(gate=keeper),
            config=SessionConfig(
                max_denials=0, stream=False, enable_loop_detection=False, max_turns=60, wrap_up_share=0.0
            ),
        ) as session:
            with suppress(BadReplyError):  # three invalid plans in a row
                await session.run("Go")
        first = model.requests[0]
        shown = {one.name for one in first.tools}
        if isinstance(contract, JsonPlan):
            shown = {
                one.name
                for one in profile.tools
                if keeper.shows(one) and not (profile.only_reads and one.changes)
            }
        hidden = KNOWN - shown
        assert mentioned(fixed_part(first), hidden) == set(), (make, level)
        read = "\n".join(said_by_program(request.messages[-2:]) for request in model.requests)
        assert mentioned(read, hidden) == set(), (make, level)


def test_the_scan_finds_a_name() -> None:
    assert mentioned("Yours are: read_file, shell, wait.", KNOWN) == {"read_file", "shell", "wait"}
    assert mentioned("do not `wait`, but edit_file it", KNOWN) == {"wait", "edit_file"}
    assert mentioned("wait for the shell to finish", KNOWN) == set()


async def test_a_hidden_tool_and_an_unknown_one_have_the_same_answer(tmp_path: Path) -> None:
    steps = says("", ("shell", {"command": "ls"})), says("", ("shel", {})), says("Done.")
    async with session_in(tmp_path, *steps, host=Host(gate=safe_mode, system=lambda _: "x")) as (
        session,
        model,
    ):
        events = await events_of(session, "Go")
    ended = [one.event for one in events if isinstance(one.event, ToolCallEnded)]
    assert [one.status for one in ended] == [CallStatus.REFUSED, CallStatus.FAILED]
    assert ended[0].output == ended[1].output
    assert "shell" not in {one.name for one in model.requests[0].tools}


@pytest.mark.parametrize("gate", [pytest.param(keeper, id=level) for level, keeper in HOSTS])
async def test_a_session_that_only_reads_has_nothing_to_write_beneath_its_tools(
    tmp_path: Path, gate: Gatekeeper
) -> None:
    """The tools of this profile try to write: one by a command that nobody reads before, one by the environment."""

    async def commands(_arguments: object, context: ToolContext) -> ToolOutcome:
        ran = await context.environment.exec_command("cat a.py; echo x > made; rm a.py", timeout_ms=20_000)
        return Ok(f"{ran.stdout}ended with {ran.exit_code}")

    async def writes(_arguments: object, context: ToolContext) -> ToolOutcome:
        await context.environment.write_file("made", b"x")
        return Ok("made")

    (tmp_path / "a.py").write_text("line\n")
    own = (
        replace(tool("commands", lambda _: ""), execute=commands),
        replace(tool("writes", lambda _: ""), execute=writes),
    )
    steps = says("", ("commands", {})), says("", ("writes", {})), says("Done.")
    async with Session(
        profile=make_profile("explorer", custom=own),
        environment=LocalEnvironment(tmp_path, sandbox=this_machines_sandbox()),
        model=ScriptedModel([*steps]),
        host=Host(gate=gate),
    ) as session:
        events = await events_of(session, "Go")
    ended = [one.event.output for one in events if isinstance(one.event, ToolCallEnded)]
    assert ended == ["line\nended with 1", "Write operations are disabled in read-only mode"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.py"]


@pytest.mark.parametrize("name", sorted(SESSION))
async def test_a_host_s_own_tool_is_never_replaced_by_the_session_s(tmp_path: Path, name: str) -> None:
    own = tool(name, lambda _: "mine")
    steps = says("", (name, {})), says("Done.")
    background = name in {"subagent", "subagent_status"}
    async with session_in(
        tmp_path, *steps, tools=[own], subagents=True, subagents_in_background=background
    ) as (session, model):
        events = await events_of(session, "Go")
    assert [one.event.output for one in events if isinstance(one.event, ToolCallEnded)] == ["mine"]
    offered = [one for one in model.requests[0].tools if one.name == name]
    assert offered == [own.definition]
    assert len({one.name for one in model.requests[0].tools} & SESSION) == (2 if background else 4)


async def test_turns_of_a_session_that_had_more_tools_do_not_name_them(tmp_path: Path) -> None:
    async def recorded(contract: Contract) -> list[Turn]:
        model = ScriptedModel([reply(contract, "shell", {"command": "true"}), says("Done.")])
        steps = session_in(tmp_path, model=model, contract=contract, config=SessionConfig(max_turns=1))
        async with steps as (session, _):
            await session.run("Look, use `shell` if you like")
            return list(session.history.turns)

    for contract in (Native(), JsonPlan()):
        earlier = await recorded(contract)
        assert any("shell" in str(turn.message) for turn in earlier if turn.kind is not TurnKind.USER)
        safe = Host(gate=safe_mode, system=lambda _: "x")
        config = SessionConfig(max_turns=1)
        async with session_in(
            tmp_path, says("Done."), host=safe, earlier=earlier, contract=contract, config=config
        ) as (session, model):
            await session.run("Go on")
        read = [turn for turn in model.requests[0].messages if "Look, use" not in turn.text]
        assert "shell" not in str(read)
        assert "use `shell` if you like" in str(model.requests[0].messages[0])


async def test_an_explorer_changes_nothing_at_any_level(tmp_path: Path) -> None:
    writes = tool("save", lambda _: (tmp_path / "made").touch(), order=Order.ALONE)
    profile = make_profile("explorer", custom=(writes, FOREIGN, shell()))
    commands = (
        "touch made",
        "ls > made",
        "find . -exec touch made ;",
        "rm -f x; touch made",
        "git init made",
    )
    for keeper in (
        Gatekeeper(Level.DANGEROUS),
        Gatekeeper(Level.SAFE, CommandRules.parse(["touch *", "git *"])),
    ):
        calls = [("save", {}), (FOREIGN.name, {}), ("shell", {"command": "touch made"})]
        calls += [("run_command", {"command": command}) for command in commands]
        model = ScriptedModel(
            [*[says("", call) for call in calls], says("", ("run_command", {"command": "ls"})), says("No.")]
        )
        async with Session(
            profile=profile,
            environment=LocalEnvironment(tmp_path, sandbox="off"),
            model=model,
            host=Host(gate=keeper),
            config=SessionConfig(max_denials=0),
        ) as session:
            events = await events_of(session, "Go")
        statuses = [one.event.status for one in events if isinstance(one.event, ToolCallEnded)]
        assert statuses[:-1] == [CallStatus.REFUSED] * len(calls)
        assert list(tmp_path.iterdir()) == []
        assert {one.name for one in model.requests[0].tools} == {
            "read_file",
            "list_files",
            "grep",
            "run_command",
        }


def test_a_gatekeeper_alone_hides_what_it_refuses() -> None:
    assert not Host(gate=safe_mode).shows_tool(shell())
    assert Host(gate=safe_mode, shows=lambda _tool: True).shows_tool(shell())
    assert Host().shows_tool(shell())
