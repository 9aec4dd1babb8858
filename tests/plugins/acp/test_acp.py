"""`pullwright acp`, with the official library's client in the place of an editor, and a scripted model."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import acp
import pytest
from acp.schema import AllowedOutcome, DeniedOutcome, RequestPermissionResponse

from orchestrator.app.cli.arguments import USAGE
from orchestrator.core import event_loop
from orchestrator.plugins.acp import command
from tests.doubles.forked import Forked
from tests.doubles.model_server import MODEL, Step, calls, fail, reply
from tests.scenarios.stage import CALC, FIXED, Stage, git, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

FIX = calls(("edit_file", {"path": "calc.py", "old_text": "a - b", "new_text": "a + b"}), text="I mend it.")
SHELL = calls(("run_shell_command", {"command": "touch made.txt; ls"}))
ROOT = Path(__file__).parents[3]
SECRET = "a-key-that-nobody-may-see-4711"


class Editor:
    """What an editor keeps: the updates as they came, and the questions with its answers to them."""

    def __init__(self) -> None:
        self.updates: list[Any] = []
        self.questions: list[Any] = []
        self.answers: list[str] = []
        self.changed = asyncio.Event()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        self.updates.append((session_id, update))
        self.changed.set()

    async def request_permission(
        self, session_id: str, tool_call: Any, options: Any, **_: Any
    ) -> RequestPermissionResponse:
        self.questions.append((session_id, tool_call, options))
        self.changed.set()
        wanted = self.answers.pop(0)
        chosen = [one.option_id for one in options if one.kind == wanted]
        if not chosen:
            return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen[0]))

    async def until(self, is_there: Callable[[], object]) -> None:
        """Wait until something came."""
        while not is_there():
            await self.changed.wait()
            self.changed.clear()

    def of(self, kind: str) -> list[Any]:
        """The updates of a kind."""
        return [one for _, one in self.updates if one.session_update == kind]

    @property
    def said(self) -> str:
        """What the agent said."""
        return "".join(one.content.text for one in self.of("agent_message_chunk"))


class Talk:
    """A running `pullwright acp` and its editor."""

    def __init__(
        self, editor: Editor, agent: Any, process: Forked, writer: asyncio.StreamWriter, reading: Any
    ) -> None:
        self.editor, self.agent, self.process, self.writer = editor, agent, process, writer
        self.reading = reading

    async def begin(self, folder: Path) -> str:
        """Open a session, and return its id."""
        await self.agent.initialize(acp.PROTOCOL_VERSION)
        opened = await self.agent.new_session(cwd=str(folder), mcp_servers=[])
        return str(opened.session_id)

    async def say(self, session: str, text: str) -> str:
        """Send a message, and return why the answer ended."""
        answer = await self.agent.prompt(session_id=session, prompt=[acp.text_block(text)])
        return str(answer.stop_reason)


@asynccontextmanager
async def talking(stage: Stage, *flags: str) -> AsyncIterator[Talk]:
    """Run the program as an editor does."""
    (their_in, our_in), (our_out, their_out) = os.pipe(), os.pipe()
    words = ("acp", "--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat")
    environ = {**os.environ, "OPENAI_API_KEY": SECRET}
    process = Forked((*words, *flags), (their_in, their_out, 2), environ=environ)
    os.close(their_in)
    os.close(their_out)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    reading, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(our_out, "rb")
    )
    writing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(our_in, "wb")
    )
    writer = asyncio.StreamWriter(writing, protocol, None, loop)
    editor = Editor()
    agent = acp.connect_to_agent(cast("acp.Client", editor), writer, reader)
    try:
        yield Talk(editor, agent, process, writer, reading)
        writer.close()
        assert await asyncio.to_thread(process.wait, 60) == 0
    finally:
        process.kill()
        await agent.close()
        writer.close()
        reading.close()


def play(stage: Stage, work: Callable[[Talk], Awaitable[None]], *flags: str) -> None:
    """Let an editor do something with the program, which ends with its input."""

    async def run() -> None:
        async with talking(stage, *flags) as talk:
            await work(talk)

    event_loop.run(run())


def test_an_editor_sees_the_reply_the_change_and_the_commands(stage: Stage, repository: Path) -> None:
    stage.script(FIX, reply("It adds **now**.", reasoning="Let me see."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        assert await talk.say(session, "Mend add()") == "end_turn"
        editor = talk.editor
        assert "I mend it." in editor.said
        assert editor.said.endswith("It adds **now**.")
        (call,) = editor.of("tool_call")
        assert (call.kind, call.title) == ("edit", "edit_file calc.py")
        assert call.locations[0].path == str(repository / "calc.py")
        assert (call.content[0].old_text, call.content[0].new_text) == ("a - b", "a + b")
        assert [one.status for one in editor.of("tool_call_update")] == ["completed"]
        (commands,) = editor.of("available_commands_update")
        names = {one.name for one in commands.available_commands}
        assert {"pr", "undo", "redo", "cost"} <= names
        assert "exit" not in names
        assert "new" not in names

    play(stage, work)
    assert (repository / "calc.py").read_text() == FIXED


@pytest.mark.parametrize(
    ("answer", "made"), [("allow_once", ["made.txt"]), ("reject_once", []), ("none", [])]
)
def test_the_editor_is_asked_about_what_the_terminal_would_ask(
    stage: Stage, repository: Path, answer: str, made: list[str]
) -> None:
    stage.script(SHELL, reply("So be it."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        talk.editor.answers.append(answer)
        assert await talk.say(session, "Run it") == "end_turn"
        ((_, call, options),) = talk.editor.questions
        assert "touch made.txt; ls" in call.content[0].content.text
        assert call.tool_call_id == talk.editor.of("tool_call")[0].tool_call_id
        assert [one.kind for one in options] == ["allow_once", "allow_always", "reject_once"]

    play(stage, work)
    assert [one.name for one in repository.glob("made*")] == made


def test_a_cancelled_answer_ends_and_the_session_goes_on(stage: Stage, repository: Path) -> None:
    gate = threading.Event()
    stage.script(Step(text="One two three four five. " * 60, gate=gate), reply("Here."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        asked = asyncio.ensure_future(talk.say(session, "Count"))
        await talk.editor.until(lambda: talk.editor.said)
        await talk.agent.cancel(session_id=session)
        assert await asked == "cancelled"
        gate.set()
        assert await talk.say(session, "Are you there?") == "end_turn"
        assert talk.editor.said.endswith("Here.")

    try:
        play(stage, work)
    finally:
        gate.set()


def test_a_conversation_is_loaded_with_what_was_said_and_goes_on(stage: Stage, repository: Path) -> None:
    stage.script(FIX, reply("Blue."), reply("I said blue."), reply("Twice."))
    sessions: list[str] = []

    async def first(talk: Talk) -> None:
        sessions.append(await talk.begin(repository))
        await talk.say(sessions[0], "Which colour?")

    async def again(talk: Talk) -> None:
        await talk.agent.initialize(acp.PROTOCOL_VERSION)
        await talk.agent.load_session(cwd=str(repository), session_id=sessions[0], mcp_servers=[])
        editor = talk.editor
        (asked, *_) = editor.of("user_message_chunk")
        assert asked.content.text.startswith("Which colour?")
        assert "Blue." in editor.said
        assert [one.title for one in editor.of("tool_call")] == ["edit_file calc.py"]
        await talk.say(sessions[0], "What did you say?")

    play(stage, first)
    play(stage, again)
    play(stage, again)
    # The last one has what the one before it added, though the editor knows the first id only.
    said = [one["content"] for one in stage.asked(3) if one["role"] == "assistant"]
    assert said[-2:] == ["Blue.", "I said blue."]


def test_a_session_that_does_not_exist_is_an_error_of_one_line(stage: Stage, repository: Path) -> None:
    async def work(talk: Talk) -> None:
        await talk.agent.initialize(acp.PROTOCOL_VERSION)
        with pytest.raises(acp.RequestError, match="there is no run"):
            await talk.agent.load_session(
                cwd=str(repository), session_id="20200101-000000-aaaaaaa", mcp_servers=[]
            )
        with pytest.raises(acp.RequestError, match="absolute path"):
            await talk.agent.new_session(cwd="somewhere", mcp_servers=[])
        with pytest.raises(acp.RequestError, match="open it first"):
            await talk.say("nobody", "Hello")

    play(stage, work)


def test_a_failure_of_the_model_is_an_error_and_the_session_goes_on(stage: Stage, repository: Path) -> None:
    stage.script(fail(400), reply("Better."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        with pytest.raises(acp.RequestError, match="scripted failure 400"):
            await talk.say(session, "Hello")
        assert await talk.say(session, "Hello again") == "end_turn"
        assert talk.editor.said.endswith("Better.")

    play(stage, work)


def test_commands_are_those_of_the_terminal(stage: Stage, repository: Path) -> None:
    stage.script(FIX, reply("Done."))

    async def work(talk: Talk) -> None:
        session, editor = await talk.begin(repository), talk.editor
        await talk.say(session, "Mend add()")
        for answer, content in (("reject_once", FIXED), ("allow_once", CALC)):
            editor.answers.append(answer)
            await talk.say(session, "/undo")
            assert "-    return a + b" in editor.said
            assert (repository / "calc.py").read_text() == content
        await talk.say(session, "/exit")
        assert "the editor has its own" in editor.said
        await talk.say(session, "/nothing")
        assert "there is no command /nothing" in editor.said
        assert [one.status for one in editor.of("tool_call_update")][-2:] == ["failed", "completed"]

    play(stage, work)


def test_changes_are_proposed_after_the_person_agreed_in_the_editor(stage: Stage, repository: Path) -> None:
    stage.script(FIX, reply("Done."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        await talk.say(session, "Mend add()")
        talk.editor.answers.append("allow_once")
        await talk.say(session, "/pr Make add() add")
        ((_, call, _options),) = talk.editor.questions
        assert call.title == "Propose this?"
        assert "Make add() add" in talk.editor.said

    play(stage, work)
    assert "Make add() add" in git(repository, "log", "--all", "--format=%s")


def test_the_list_is_a_plan_and_attached_files_are_shown_to_the_model(stage: Stage, repository: Path) -> None:
    stage.script(calls(("todo_add", {"content": "look at calc.py"})), reply("Noted."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        uri = (repository / "calc.py").as_uri()
        text = acp.helpers.embedded_text_resource("file:///elsewhere/b.txt", "what the editor has open")
        blocks = [
            acp.text_block("Look"),
            acp.resource_link_block("calc.py", uri),
            acp.resource_block(text),
            acp.image_block("AAAA", "image/png"),
        ]
        await talk.agent.prompt(session_id=session, prompt=blocks)
        (plan,) = talk.editor.of("plan")
        assert [(one.content, one.status) for one in plan.entries] == [("look at calc.py", "pending")]
        assert "image is not shown" in talk.editor.said

    play(stage, work, "--profile", "assistant")
    assert "return a - b" in stage.told(0)
    assert "what the editor has open" in stage.told(0)


def test_rubbish_is_answered_and_a_secret_never_leaves(stage: Stage, repository: Path) -> None:
    words = [f"{SECRET[:9]}", f"{SECRET[9:]} is it"]
    stage.script(
        reply("".join(words), reasoning=SECRET), calls(("edit_file", {"path": SECRET})), reply("Well.")
    )
    rubbish: tuple[bytes, ...] = (
        b"nonsense",
        b"[1]",
        b"{}",
        b'{"id": {}, "result": 1}',
        b'{"id": 7, "error": "no"}',
        b"\xff\xfe",
    )
    rubbish += (b'{"method": 5, "id": 1}', b'{"id": [], "method": "initialize"}', b"[" * 200_000, b"")

    async def work(talk: Talk) -> None:
        talk.writer.write(b"\n".join((*rubbish, b"")))
        session = await talk.begin(repository)
        assert await talk.say(session, "Tell me") == "end_turn"
        assert await talk.say(session, "And now?") == "end_turn"
        thought = "".join(one.content.text for one in talk.editor.of("agent_thought_chunk"))
        everything = talk.editor.said + thought + repr(talk.editor.updates)
        assert "is it" in everything
        assert SECRET[:9] not in everything
        assert SECRET[-9:] not in everything

    play(stage, work)


def test_the_end_of_the_input_ends_a_running_answer(stage: Stage, repository: Path) -> None:
    gate = threading.Event()
    stage.script(Step(text="One two three four five. " * 60, gate=gate))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        asked = asyncio.ensure_future(talk.say(session, "Count"))
        await talk.editor.until(lambda: talk.editor.said)
        talk.writer.close()
        with suppress(ConnectionError):  # unless the answer that was cancelled came first
            await asked

    try:
        play(stage, work)
    finally:
        gate.set()
    assert stage.events()[-1]["type"] == "CycleEnded"


def test_an_editor_that_reads_no_more_does_not_hold_up_the_end(stage: Stage, repository: Path) -> None:
    gate, asked = threading.Event(), threading.Event()

    def long(_request: object) -> Step:
        asked.set()
        return Step(text="One two three four five. " * 40_000, gate=gate)

    stage.script(long)

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        talk.reading.pause_reading()
        saying = asyncio.ensure_future(talk.say(session, "Count"))
        await asyncio.to_thread(asked.wait, 60)
        talk.writer.close()
        assert await asyncio.to_thread(talk.process.wait, 60) == 0
        talk.reading.resume_reading()
        with suppress(ConnectionError, acp.RequestError):
            await saying

    try:
        play(stage, work)
    finally:
        gate.set()
    assert stage.events()[-1]["type"] == "CycleEnded"


async def test_what_nobody_reads_holds_up_nothing() -> None:
    ours, theirs = os.pipe()
    lines = command._Lines(theirs)
    await lines.send({"method": "x" * 200_000})
    await asyncio.to_thread(os.read, ours, 10)  # so its writing has begun
    await lines.end()
    await lines.close()
    os.close(ours)
    await asyncio.to_thread(lines._writing.join)
    await lines.send({"method": "y"})
    os.close(theirs)


def test_what_was_asked_before_the_end_of_the_input_is_answered_in_order(
    stage: Stage, repository: Path, tmp_path: Path
) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
    opening = {"method": "session/new", "params": {"cwd": str(repository), "mcpServers": []}}
    asked = (hello, {**hello, "id": 2}, {**hello, "id": 3, **opening})
    (tmp_path / "in").write_text("".join(f"{json.dumps(one)}\n" for one in asked))
    words = ("acp", "--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url)
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as out:
        assert Forked(words, (given.fileno(), out.fileno(), 2)).wait(60) == 0
    told = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    answers = {one["id"]: one["result"] for one in told if "id" in one}
    assert [answers[number]["protocolVersion"] for number in (1, 2)] == [1, 1]
    # An editor knows the session only after the answer to its request.
    *_, opened, commands = told
    assert opened["id"] == 3
    assert commands["params"]["sessionId"] == opened["result"]["sessionId"]
    assert commands["params"]["update"]["sessionUpdate"] == "available_commands_update"


def test_a_change_in_a_clone_is_shown_where_it_is(stage: Stage, repository: Path) -> None:
    stage.script(FIX, reply("Done."))

    async def work(talk: Talk) -> None:
        session = await talk.begin(repository)
        await talk.say(session, "Mend add()")
        (call,) = talk.editor.of("tool_call")
        assert Path(call.locations[0].path).read_text() == FIXED
        assert call.content[0].path == call.locations[0].path

    play(stage, work, "--repo", str(repository))
    assert (repository / "calc.py").read_text() == CALC


def test_an_editor_that_says_nothing_gets_nothing(stage: Stage) -> None:
    done = program("acp", "--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_without_the_library_one_line_names_the_extra() -> None:
    code = (
        "import sys\n"
        "import importlib.machinery as m\n"
        "real = m.PathFinder.find_spec\n"
        "m.PathFinder.find_spec = classmethod(lambda c, n, p=None, t=None: None if n == 'acp' else real(n, p, t))\n"
        "from orchestrator.app.cli import main\n"
        "sys.exit(main(['acp']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == USAGE
    (line,) = done.stderr.splitlines()
    assert "agent-client-protocol" in line
    assert "[agents]" in line
