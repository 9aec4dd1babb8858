"""Connections to servers that are programs: honest ones, and those that hang, die, flood or ask for more."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.plugins.mcp.base import McpError, McpServer, ServerProgram
from orchestrator.plugins.mcp.connection import McpConnection, result_text
from orchestrator.plugins.mcp.elicitation import MAX_QUESTIONS
from tests.plugins.mcp.servers import server, tool, transport
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orchestrator.engine.environments.base import Sandbox, SandboxOptions
    from orchestrator.plugins.mcp.elicitation import AnswerValue, AskPerson, ServerQuestion

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")
MANY = 200_000_000


class Opened:
    """Opens connections, and closes them at the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.copies = 0
        self.changed = asyncio.Event()
        self._open: list[McpConnection] = []

    async def __call__(
        self, one: McpServer, *, confined: bool = False, ask: AskPerson | None = None
    ) -> McpConnection:
        make = transport(one, self.folder, confined=confined, on_copy=self._count)
        connection = McpConnection(one, make, self.asked.append, self.changed.set, ask)
        self._open.append(connection)
        await connection.open()
        return connection

    def _count(self) -> None:
        self.copies += 1

    def take(self, connection: McpConnection) -> None:
        self._open.append(connection)

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self._open))


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Opened]:
    made = Opened(tmp_path)
    yield made
    await made.close()


async def test_tools_are_listed_and_called(opened: Opened) -> None:
    connection = await opened(
        server(tool("echo", "Says it.", echo=True), tool("broken", fails=True, text="no such id"))
    )
    assert [one.name for one in connection.found] == ["broken", "echo"]
    assert connection.found[1].description == "Says it."
    assert connection.about == "tool_server 1, protocol 2025-11-25"
    answer = await connection.call("echo", {"text": "größer\n"})
    assert (json.loads(answer.text), answer.is_error) == ({"text": "größer\n"}, False)
    failed = await connection.call("broken", {})
    assert (failed.text, failed.is_error) == ("no such id", True)


async def test_calls_run_beside_each_other(opened: Opened) -> None:
    connection = await opened(server(tool("echo", echo=True)))
    answers = await asyncio.gather(*(connection.call("echo", {"text": str(number)}) for number in range(30)))
    assert [json.loads(answer.text)["text"] for answer in answers] == [str(number) for number in range(30)]


async def test_a_long_answer_comes_whole(opened: Opened) -> None:
    connection = await opened(server(tool("long", flood=1_000_000, text="end")), confined=True)
    assert (await connection.call("long", {})).text == "x" * 1_000_000 + "end"


async def test_a_long_question_goes_whole(opened: Opened) -> None:
    connection = await opened(server(tool("echo", echo=True)), confined=True)
    text = "ü" * 300_000
    assert json.loads((await connection.call("echo", {"text": text})).text)["text"] == text


@pytest.mark.slow(reason="a server that says 200 MB")
async def test_an_answer_of_200_mb_ends_the_server_and_nothing_else(opened: Opened) -> None:
    connection = await opened(server(tool("flood", flood=MANY), tool("echo", echo=True)), confined=True)
    with pytest.raises(McpError, match="a message of more than 8 MiB"):
        await connection.call("flood", {})
    with pytest.raises(McpError, match="a message of more than 8 MiB"):
        await connection.call("echo", {})
    await connection.close()
    assert connection.is_over


FLOOD = """
import json, sys
line = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x" * 60000}})
while True:
    print(line)
"""


@pytest.mark.slow(reason="a server that says 64 MB")
async def test_a_server_that_says_what_nobody_asked_for_is_ended(opened: Opened) -> None:
    flooding = McpServer("one", ServerProgram(sys.executable, ("-c", FLOOD)))
    with pytest.raises(McpError, match="more than 64 MiB without a request"):
        await opened(flooding)


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (ServerProgram("no-such-server-anywhere"), "no-such-server-anywhere: not found"),
        (
            ServerProgram(sys.executable, ("-c", "raise SystemExit('the key is missing')")),
            "its last output: the key is missing",
        ),
        (ServerProgram(sys.executable, ("-c", "print('hello'); print('{}'); print('[1]')")), "closed"),
    ],
    ids=["missing", "dies", "speaks something else"],
)
async def test_a_server_that_cannot_be_used_says_why(
    opened: Opened, program: ServerProgram, said: str
) -> None:
    with pytest.raises(McpError) as caught:
        await opened(McpServer("one", program))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow(reason="it waits for what never comes")
async def test_a_server_that_never_answers_is_given_up(opened: Opened) -> None:
    silent = ServerProgram(sys.executable, ("-c", "import time; time.sleep(600)"))
    with pytest.raises(McpError, match=r"did not answer within 0\.5 seconds"):
        await opened(McpServer("one", silent, start_seconds=0.5))
    with pytest.raises(McpError, match="did not answer within 1 seconds"):
        await opened(server(tool("echo"), late=600, start_seconds=1.0, name="two"))


async def test_a_call_that_never_ends_is_given_up_and_the_server_is_used_on(opened: Opened) -> None:
    connection = await opened(server(tool("hang", hang=2), tool("echo", echo=True), call_seconds=0.5))
    with pytest.raises(McpError, match=r"no answer within 0\.5 seconds"):
        await connection.call("hang", {})
    assert not connection.is_over


async def test_a_server_that_dies_in_a_call_says_its_last_words(opened: Opened) -> None:
    connection = await opened(server(tool("exit", exit="out of memory")))
    with pytest.raises(McpError, match="its last output: out of memory"):
        await connection.call("exit", {})
    with pytest.raises(McpError, match="out of memory"):
        await connection.call("exit", {})


@pytest.mark.parametrize("method", ["sampling/createMessage", "elicitation/create", "roots/list"])
async def test_what_a_server_asks_for_it_does_not_get(opened: Opened, method: str) -> None:
    connection = await opened(server(tool("ask", ask=method)))
    answer = await connection.call("ask", {})
    assert json.loads(answer.text)["message"].endswith("not supported")
    assert opened.asked == [method]
    assert not (opened.folder / "one" / "answered").exists()


WHICH: dict[str, Any] = {
    "message": "Which project?",
    "requestedSchema": {"type": "object", "properties": {"project": {"type": "string"}}},
}
ELICIT = "elicitation/create"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"project": "calc"}, {"action": "accept", "content": {"project": "calc"}}),
        (None, {"action": "decline"}),
    ],
    ids=["answered", "declined"],
)
async def test_a_person_answers_what_a_server_asks_in_a_call(
    opened: Opened, answer: dict[str, AnswerValue] | None, said: dict[str, Any]
) -> None:
    questions: list[ServerQuestion] = []

    async def ask(question: ServerQuestion) -> dict[str, AnswerValue] | None:
        questions.append(question)
        limits.extend(limit.when() for limit in connection._calls)
        return answer

    limits: list[float | None] = []
    connection = await opened(server(tool("ask", ask=ELICIT, params=WHICH)), ask=ask)
    assert json.loads((await connection.call("ask", {})).text) == said
    [question] = questions
    assert (question.server, question.message, question.fields[0].name) == (
        "one",
        "Which project?",
        "project",
    )
    assert limits == [None]  # the limit of the call stands still meanwhile
    assert opened.asked == []


async def test_a_server_asks_a_person_during_its_calls_alone_and_not_without_end(opened: Opened) -> None:
    async def ask(_question: ServerQuestion) -> dict[str, AnswerValue] | None:
        return {}

    early = await opened(server(tool("ask", ask=ELICIT, params=WHICH), asks=ELICIT), ask=ask)
    assert opened.asked == [ELICIT]
    answers = [json.loads((await early.call("ask", {})).text)["action"] for _ in range(MAX_QUESTIONS)]
    assert answers == ["accept"] * (MAX_QUESTIONS - 1) + ["cancel"]


async def test_what_cannot_be_asked_is_refused_with_a_reason(opened: Opened) -> None:
    async def ask(_question: ServerQuestion) -> dict[str, AnswerValue] | None:
        pytest.fail("nobody is asked")

    page = {"mode": "url", "url": "http://elsewhere.example/", "elicitationId": "1"}
    connection = await opened(server(tool("ask", ask=ELICIT, params=page)), ask=ask)
    assert (
        json.loads((await connection.call("ask", {})).text)["message"]
        == "a page must have an https:// address"
    )
    assert opened.asked == [ELICIT]


async def test_a_change_of_the_list_is_noticed(opened: Opened) -> None:
    connection = await opened(server(tool("a", "Old."), again=[tool("a", "New."), tool("b")]))
    await connection.call("a", {})
    await asyncio.wait_for(opened.changed.wait(), 20)
    assert [(one.name, one.description) for one in connection.found] == [("a", "New."), ("b", "")]


async def test_a_server_that_changes_without_end_is_ended(opened: Opened) -> None:
    connection = await opened(server(tool("a"), restless=True))
    for _ in range(200):
        try:
            await connection.call("a", {})
        except McpError as error:
            assert "changed its tools more than 20 times" in str(error)  # noqa: PT017  it comes sooner or later
            break
    else:
        pytest.fail("it was never ended")


async def test_a_server_sees_its_own_folder_and_variables_and_no_secret(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-model")
    tools = (
        tool("variables", variables=True),
        tool("read", read=str(tmp_path / "key")),
        tool("here", read="."),
    )
    connection = await opened(server(*tools, variables={"TICKETS": "own"}), confined=True)
    variables: dict[str, Any] = json.loads((await connection.call("variables", {})).text)
    assert variables["TICKETS"] == "own"
    assert "OPENAI_API_KEY" not in variables
    assert "sk-of-the-model" not in str(variables)
    assert "No such file" in (await connection.call("read", {})).text
    assert "Is a directory" in (await connection.call("here", {})).text


@pytest.mark.slow(reason="containers")
async def test_a_server_works_in_a_container_and_sees_no_more_there(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sandboxes = pytest.importorskip(
        "tests.plugins.containers.sandboxes", reason="the plug-in containers is not there"
    )
    sandboxes.engine()  # a test is skipped here, and not inside the connection
    (tmp_path / "key").write_text("secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-model")
    one = server(
        *(
            tool("variables", variables=True),
            tool("read", read=str(tmp_path / "key")),
            tool("echo", echo=True),
        ),
        *(tool("hang", hang=600), tool("ask", ask=ELICIT)),
        variables={"TICKETS": "own"},
    )

    def in_container(options: SandboxOptions) -> Sandbox:
        python = sandboxes.with_python().readable
        options = replace(options, readable=(*options.readable, *python))
        found: Sandbox = sandboxes.container_sandbox(options=options)
        return found

    make = transport(one, tmp_path, confined=True, find=in_container)
    connection = McpConnection(one, make, opened.asked.append, opened.changed.set)
    opened.take(connection)
    await connection.open()
    text = "ü" * 300_000
    assert json.loads((await connection.call("echo", {"text": text})).text)["text"] == text
    variables = json.loads((await connection.call("variables", {})).text)
    assert variables["TICKETS"] == "own"
    assert "sk-of-the-model" not in str(variables)
    assert "No such file" in (await connection.call("read", {})).text
    assert "not supported" in (await connection.call("ask", {})).text
    call = asyncio.create_task(connection.call("hang", {}))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(McpError):
        await call
    assert connection.is_over


async def test_nothing_of_a_server_is_left(opened: Opened, tmp_path: Path) -> None:
    connection = await opened(server(tool("hang", hang=600), name="left"), confined=True)
    before = len(list(Path("/proc/self/fd").iterdir()))
    call = asyncio.create_task(connection.call("hang", {}))
    await asyncio.sleep(0)
    await connection.close()
    with pytest.raises(McpError):
        await call
    assert len(list(Path("/proc/self/fd").iterdir())) < before
    assert list((tmp_path / "left").iterdir()) == []


@pytest.mark.parametrize("confined", [False, True])
async def test_two_sessions_of_a_server_share_no_folder(
    opened: Opened,
    tmp_path: Path,
    confined: bool,  # noqa: FBT001  two cases
) -> None:
    """The second one begins with a copy of the regular files: links and pipes that the first one made are left out."""
    folder = tmp_path / "one"
    one = server(
        *(tool("memory", read="deep/memory.json"), tool("link", read="link"), tool("here", read="later")),
        *(tool("pipe", read="pipe"), tool("write", write="later", text="kept")),
    )
    first = await opened(one, confined=confined)
    assert list(folder.iterdir()) == []
    (tmp_path / "profile").write_text("mine")
    (folder / "deep").mkdir()
    (folder / "deep" / "memory.json").write_text("{}")
    (folder / "deep").chmod(0o500)
    (folder / "link").symlink_to(tmp_path / "profile")
    os.mkfifo(folder / "pipe")

    second = await opened(one, confined=confined)
    assert opened.copies == 1
    assert (await second.call("memory", {})).text == b64encode(b"{}").decode()
    assert "No such file" in (await second.call("link", {})).text
    assert "No such file" in (await second.call("pipe", {})).text
    await second.call("write", {})
    await second.close()
    assert not (folder / "later").exists()
    assert "No such file" in (await first.call("here", {})).text
    await first.call("write", {})
    await first.close()

    third = await opened(one, confined=confined)
    assert opened.copies == 1
    assert (await third.call("here", {})).text == b64encode(b"kept").decode()
    assert (tmp_path / "profile").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "one.lock", "profile"]


async def test_a_folder_that_is_too_large_is_not_copied(opened: Opened, tmp_path: Path) -> None:
    one = server(tool("echo"))
    await opened(one)
    with (tmp_path / "one" / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(
        McpError, match=r"has over 64 MiB or 10,000 files and is not copied; end that session"
    ):
        await opened(one)


@table(
    ("content", "text"),
    [
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\n\nb"),
        (
            [{"type": "image", "mimeType": "image/png", "data": "AAAA"}],
            "[image, image/png, 3 bytes: not shown]",
        ),
        ([{"type": "audio", "mimeType": "audio/wav", "data": "?"}], "[audio, audio/wav, damaged: not shown]"),
        ([{"type": "resource_link", "name": "n", "uri": "file:///x"}], "[n: file:///x]"),
        ([{"type": "resource", "resource": {"uri": "u", "text": "body"}}], "u:\nbody"),
        (
            [{"type": "resource", "resource": {"uri": "u", "blob": "AAAA", "mimeType": "m"}}],
            "[u, m, 3 bytes: not shown]",
        ),
        ([{"type": "hologram"}], "[hologram: not shown]"),
        ([], "(an empty answer)"),
    ],
)
def test_each_kind_of_content_is_told_in_words(content: list[dict[str, Any]], text: str) -> None:
    assert result_text({"content": content}) == text


def test_structured_content_is_told_where_no_text_tells_it() -> None:
    assert result_text({"content": [], "structuredContent": {"a": [1]}}) == '{"a": [1]}'
    assert result_text({"content": [{"type": "text", "text": "t"}], "structuredContent": {"a": 1}}) == "t"
