"""What a program may send, and what happens if it sends something else. No box and no process."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest

from orchestrator.core.errors import BadReplyError, ConfigurationError
from orchestrator.engine.environments.running_program import ProgramReport
from orchestrator.plugins.agents.client import AgentConnection

if TYPE_CHECKING:
    from collections.abc import Mapping


class Program:
    """A program that answers each method by lines of its own."""

    def __init__(self, answers: dict[str, list[Any]]) -> None:
        self.answers = answers
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()
        self.ended_for = ""
        self.asked: list[dict[str, Any]] = []

    async def line(self) -> bytes:
        return b"" if self.ended_for else await self.lines.get()

    async def write(self, data: bytes) -> None:
        message = json.loads(data)
        self.asked.append(message)
        for one in self.answers.get(message.get("method", ""), ()):
            if isinstance(one, bytes):
                self.lines.put_nowait(one)
            else:
                known = {"id": message["id"]} if "method" not in one else {}
                self.lines.put_nowait(json.dumps({"jsonrpc": "2.0", **known, **one}).encode() + b"\n")

    def end_for(self, problem: str) -> bytes:
        self.ended_for = problem
        return b""


class Listener:
    def __init__(self) -> None:
        self.updates: list[Any] = []

    def take(self, update: Any) -> None:
        self.updates.append(update)

    def may(self, call: Any) -> bool:
        return bool(call.kind == "edit")


HELLO = {"result": {"protocolVersion": 1, "agentCapabilities": {"mcpCapabilities": {"http": True}}}}
OPENED = {"result": {"sessionId": "s"}}
CHUNK: dict[str, Any] = {
    "method": "session/update",
    "params": {
        "sessionId": "s",
        "update": {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}},
    },
}
DONE = {"result": {"stopReason": "end_turn"}}


class Short(AgentConnection):
    """A connection on which few lines are many."""

    most: ClassVar[Mapping[str, int]] = {
        **dict.fromkeys(AgentConnection.most, 10),
        "lines that are no messages": 1_000,
    }


class Hasty(AgentConnection):
    """A connection that gives nobody time."""

    start_seconds = 0.0


async def connected(prompt: list[Any]) -> tuple[AgentConnection, Program, Listener]:
    program = Program({"initialize": [HELLO], "session/new": [OPENED], "session/prompt": prompt})
    listener = Listener()
    report = ProgramReport("first\nlast words\n")
    connection = Short("agent", cast("Any", program), report, cast("Any", listener))
    await connection.begin("/clone", ("http://127.0.0.1:1/mcp", "token"), "", {"key": "value"})
    return connection, program, listener


async def test_updates_come_in_order_and_before_the_end_of_the_turn() -> None:
    connection, program, listener = await connected([CHUNK, b"rubbish\n", b'{"id": 99}\n', CHUNK, DONE])
    assert await connection.prompt("Go") == "end_turn"
    assert len(listener.updates) == 2
    new = next(one["params"] for one in program.asked if one["method"] == "session/new")
    assert new["_meta"] == {"key": "value"}
    assert new["mcpServers"][0]["headers"] == [{"name": "Authorization", "value": "Bearer token"}]
    await connection.close()


async def test_an_update_that_is_not_in_the_protocol_is_left_out() -> None:
    strange = {"method": "session/update", "params": {"sessionId": "s", "update": {"sessionUpdate": "newer"}}}
    connection, _, listener = await connected([strange, CHUNK, DONE])
    assert await connection.prompt("Go") == "end_turn"
    assert len(listener.updates) == 1
    await connection.close()


async def test_a_permission_is_chosen_by_its_kind() -> None:
    options = [
        {"optionId": "for-ever", "name": "Always", "kind": "allow_always"},
        {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    ]
    calls = [{"toolCallId": kind, "kind": kind, "title": kind} for kind in ("edit", "execute")]
    asked = [
        {
            "method": "session/request_permission",
            "id": number,
            "params": {"sessionId": "s", "toolCall": call, "options": options},
        }
        for number, call in enumerate(calls)
    ]
    connection, program, _ = await connected([*asked])
    turn = asyncio.ensure_future(connection.prompt("Go"))
    while len([one for one in program.asked if "result" in one]) < 2:  # noqa: ASYNC110  the library's own tasks
        await asyncio.sleep(0)
    answers = [one["result"]["outcome"] for one in program.asked if "result" in one]
    assert answers == [{"outcome": "selected", "optionId": "yes"}, {"outcome": "cancelled"}]
    turn.cancel()
    await connection.close()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b""], "agent has ended: last words"),
        (
            [{"error": {"code": -32603, "message": "Internal error", "data": {"details": "no credit"}}}],
            "no credit",
        ),
        ([{"result": {"stopReason": "because"}}], "in a form that the protocol does not have"),
        ([b"rubbish\n"] * 1_001, "more than 1,000 lines that are no messages"),
    ],
)
async def test_a_problem_is_one_line(lines: list[Any], message: str) -> None:
    connection, _, _ = await connected(lines)
    with pytest.raises(BadReplyError, match=message) as caught:
        await connection.prompt("Go")
    assert "\n" not in str(caught.value)
    await connection.close()


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (CHUNK, "updates"),
        ({"method": "fs/read_text_file", "id": 5, "params": {}}, "requests"),
        (b'{"id": 77, "result": {}}\n', "answers"),
    ],
)
async def test_a_flood_ends_the_program(line: Any, kind: str) -> None:
    connection, program, listener = await connected([line] * 20)
    with pytest.raises(BadReplyError, match=f"more than 10 {kind}"):
        await connection.prompt("Go")
    assert len(listener.updates) == (10 if kind == "updates" else 0)
    assert program.ended_for
    await connection.close()


async def test_the_host_reads_and_writes_no_files_for_a_program() -> None:
    methods = ("fs/read_text_file", "fs/write_text_file")
    params = {"sessionId": "s", "path": "/etc/passwd", "content": "x"}
    asked = [{"method": name, "id": number, "params": params} for number, name in enumerate(methods)]
    connection, program, _ = await connected([*asked])
    turn = asyncio.ensure_future(connection.prompt("Go"))
    while len([one for one in program.asked if "error" in one]) < len(methods):  # noqa: ASYNC110  the library's own tasks
        await asyncio.sleep(0)
    assert {one["error"]["code"] for one in program.asked if "error" in one} == {-32601}
    turn.cancel()
    await connection.close()


async def test_what_is_told_of_another_session_is_left_out_and_refused() -> None:
    params = {"sessionId": "another", "toolCall": {"toolCallId": "1", "kind": "edit", "title": "Edit"}}
    options = [{"optionId": one, "name": one, "kind": one} for one in ("allow_once", "reject_once")]
    question = {"method": "session/request_permission", "id": 4, "params": {**params, "options": options}}
    told = {**CHUNK, "params": {**CHUNK["params"], "sessionId": "another"}}
    connection, program, listener = await connected([told, question, CHUNK])
    turn = asyncio.ensure_future(connection.prompt("Go"))
    while not any("result" in one for one in program.asked):  # noqa: ASYNC110  the library's own tasks
        await asyncio.sleep(0)
    answer = next(one["result"]["outcome"] for one in program.asked if "result" in one)
    assert answer == {"outcome": "selected", "optionId": "reject_once"}
    assert len(listener.updates) == 1
    turn.cancel()
    await connection.close()


async def test_lines_in_no_form_of_the_protocol_are_passed_over() -> None:
    strange = [b"\xff\xfe\n", b'{"id": [], "result": 1}\n', b'{"id": {}, "method": "x"}\n', b"[1]\n"]
    strange += [b'{"method": 5}\n', b'{"id": 3, "error": "no"}\n', b"[" * 200_000 + b"\n", b"\n"]
    connection, _, _ = await connected([*strange, DONE])
    assert await connection.prompt("Go") == "end_turn"
    await connection.close()


async def test_a_newer_protocol_is_refused() -> None:
    program = Program({"initialize": [{"result": {"protocolVersion": 2}}]})
    connection = AgentConnection("agent", cast("Any", program), ProgramReport(), cast("Any", Listener()))
    with pytest.raises(ConfigurationError, match="speaks version 2"):
        await connection.begin("/clone", None, "", {})
    await connection.close()


async def test_a_program_that_hangs_at_its_start_is_given_up() -> None:
    program = Program({"initialize": []})
    connection = Hasty(
        "agent", cast("Any", program), ProgramReport("still loading\n"), cast("Any", Listener())
    )
    with pytest.raises(BadReplyError, match="agent did not answer within 0 s: still loading"):
        await connection.begin("/clone", None, "", {})
    await connection.close()
