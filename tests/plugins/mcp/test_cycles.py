"""A cycle and a conversation with MCP servers of the person's own: a ticket server that may be read, and nothing that was not approved."""

from __future__ import annotations

import json
import sys
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from tests.doubles.model_server import MODEL, calls, reply
from tests.doubles.terminal import Terminal
from tests.plugins.mcp.http_server import McpHttp
from tests.plugins.mcp.servers import PYTHON, SCRIPT, tool
from tests.scenarios.stage import FINISH, FIX, PROPOSE, Done, Stage, do, make_repository, tools_on_offer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")

KEY = "tk_" + "9f3kQ2mVw8ZrT5xB" * 2
READ = tool("get_issue", "Reads an issue.", text=f"Issue 7: add() subtracts. Token {KEY}")
CREATE = tool("create_issue", "Writes an issue.")
LONG = tool("history", "All that was said.", flood=200_000, text="the last word")


class Servers:
    """A file of servers in the common form, and the program that uses it."""

    def __init__(self, stage: Stage, folder: Path) -> None:
        self.stage, self.path = stage, folder / "servers.json"
        self.repository = make_repository(folder / "calc")

    def write(self, *tools: dict[str, Any], name: str = "tickets", **more: Any) -> None:
        text = json.dumps({"tools": tools})
        entry = {"command": PYTHON, "args": ["-I", str(SCRIPT), text], "read": [str(SCRIPT.parent)], **more}
        self.path.write_text(json.dumps({"mcpServers": {name: entry}}))

    def approve(self, name: str = "tickets") -> Done:
        return self.stage.command("mcp", "test", name, "--approve", "--mcp-config", str(self.path))

    def run(self, *flags: str) -> Done:
        task = ("--repo", str(self.repository), "--task", "Fix add() as issue 7 says", "--dry-run")
        return self.stage.run(*task, "--mcp-config", str(self.path), *flags)


@pytest.fixture
def servers(stage: Stage, tmp_path: Path) -> Servers:
    return Servers(stage, tmp_path)


def call(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return f"mcp_tickets_{name}", arguments


def test_a_ticket_is_read_in_a_cycle_and_in_its_replay(
    servers: Servers, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETS", KEY)
    servers.write(READ, CREATE, LONG, env={"TICKETS": "${TICKETS}"}, allow=["get_issue", "history"])
    assert servers.approve().code == 0
    asks = [
        do(call("get_issue", text="7")),
        do(call("history")),
        do(("read_file", {"path": "output:1", "offset": 1})),
    ]
    stage.script(*asks, do(FIX), do(PROPOSE, FINISH))
    done = servers.run()
    assert done.code == 0, done.err
    system = stage.asked()[0]["content"]
    assert "mcp_tickets_get_issue" in system
    assert "Reads an issue." in system
    assert "create_issue" not in system
    answer = stage.told(1)
    assert "Issue 7: add() subtracts. Token [redacted]" in answer
    assert "output:1" in stage.told(2)
    assert "characters were removed" in stage.told(2)
    assert "xxx" in stage.told(3)
    journal = json.dumps(stage.events())
    assert "the last word" in journal
    assert KEY not in journal

    servers.path.unlink()
    again = stage.command(
        "run",
        "--model",
        f"replay:{done.result['run']}",
        "--json",
        "--dry-run",
        "--mcp-config",
        str(servers.path),
    )
    assert again.code == 0, again.err
    outputs = [[one["output"] for one in stage.events(run) if one["type"] == "ToolCallEnded"][:3]
               for run in (done.result["run"], again.result["run"])]  # fmt: skip
    assert outputs[0] == outputs[1]


def test_a_ticket_is_read_in_a_conversation_and_in_its_replay(
    servers: Servers, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETS", KEY)
    servers.write(READ, CREATE, env={"TICKETS": "${TICKETS}"}, allow=["get_issue"])
    assert servers.approve().code == 0
    monkeypatch.chdir(servers.repository)
    asks = [calls(call("get_issue", text="7")), calls(call("create_issue", text="x"))]
    stage.script(*asks, reply("It subtracts."))
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url]
    done = stage.command("ask", *model, "--mcp-config", str(servers.path), "--json", "What is issue 7?")
    assert (done.code, done.result["answer"]) == (0, "It subtracts."), done.err
    offered = tools_on_offer(stage.model.requests[0].body)
    assert "mcp_tickets_get_issue" in offered
    assert "create_issue" not in offered  # nobody can be asked
    assert "Issue 7: add() subtracts. Token [redacted]" in stage.told(1)
    assert "no tool of this name" in stage.told(2)
    assert KEY not in json.dumps(stage.events())

    servers.path.unlink()
    replay = ["--model", f"replay:{done.result['run']}", "--profile", "assistant"]
    again = stage.command("ask", *replay, "--json", "What is issue 7?")
    assert again.result["answer"] == "It subtracts.", again.err
    outputs = [[one["output"] for one in stage.events(run) if one["type"] == "ToolCallEnded"]
               for run in (done.result["run"], again.result["run"])]  # fmt: skip
    assert outputs[0] == outputs[1]


def test_a_secret_of_a_servers_table_is_not_remembered(
    servers: Servers, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"url": "http://127.0.0.1:9/mcp", "headers": {"X-Ticket": KEY}}
    servers.path.write_text(json.dumps({"mcpServers": {"tickets": entry}}))
    monkeypatch.chdir(servers.repository)
    stage.script(calls(("remember", {"content": f"The ticket key is {KEY}"})), reply("Noted."))
    model = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "assistant"]
    asked = stage.command("ask", *model, "--memory", "--mcp-config", str(servers.path), "Remember the key")
    assert asked.code == 0, asked.err
    files = [one for one in stage.home.rglob("*") if one.is_file() and not one.is_symlink()]
    assert any(b"The ticket key is [redacted]" in one.read_bytes() for one in files if "memor" in str(one))
    assert not [one for one in files if KEY.encode() in one.read_bytes()]


@pytest.mark.slow(reason="a terminal, and a server in its sandbox")
def test_a_person_is_asked_about_a_dangerous_tool_with_all_that_it_is_told(
    servers: Servers, stage: Stage
) -> None:
    servers.write(CREATE)
    assert servers.approve().code == 0
    same, other = calls(call("create_issue", text="add() subtracts")), calls(call("create_issue", text="x"))
    stage.script(same, same, other, reply("I wrote it."))
    flags = ["--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url]
    flags += ["--mcp-config", str(servers.path)]
    home = {"PULLWRIGHT_HOME": str(stage.home)}
    with Terminal("chat", *flags, folder=servers.repository, environ=home) as person:
        person.wait_for("leaves.")
        person.type("Write an issue")
        person.wait_for('create_issue {"text": "add() subtracts"}')
        person.wait_for("why not:")
        person.type("a")
        person.wait_for('create_issue {"text": "x"}')
        person.wait_for("why not:")
        person.type("not that")
        person.wait_for("I wrote it.")
        person.type("exit")
        assert person.end() == 0
    assert ["done" in stage.told(number) for number in (1, 2, 3)] == [True, True, False]
    decided = [one["decision"] for one in stage.events() if one["type"] == "CallDecided"]
    assert decided == ["always", "always", "no"]


class Talk(Terminal):
    """`chat` with the servers, at a terminal."""

    def __init__(self, servers: Servers, *flags: str) -> None:
        model = ["--model", f"openai-chat:{MODEL}", "--api-url", servers.stage.model.url]
        home = {"PULLWRIGHT_HOME": str(servers.stage.home)}
        argv = ("chat", *model, "--mcp-config", str(servers.path), *flags)
        super().__init__(*argv, folder=servers.repository, environ=home)
        self.wait_for("leaves.")


PROJECT = {
    "message": "Which project is it?",
    "requestedSchema": {
        "type": "object",
        "properties": {"project": {"type": "string", "title": "Project"}, "old": {"type": "boolean"}},
        "required": ["project"],
    },
}


@pytest.mark.slow(reason="a terminal, and a server in its sandbox")
def test_a_person_answers_what_a_server_asks_and_no_key_goes_there(servers: Servers, stage: Stage) -> None:
    key = "ghp_" + "a1B2" * 9
    ask = tool("find", ask="elicitation/create", params=PROJECT)
    login = tool("log_in", ask="elicitation/create")
    servers.write(ask, login, allow=["*"])
    assert servers.approve().code == 0
    stage.script(calls(call("find")), calls(call("log_in")), reply("Found."))
    with Talk(servers) as person:
        person.type("Find it")
        person.wait_for("The MCP server tickets asks you, in its own words:")
        person.wait_for("Which project is it?")
        assert "goes to that server, and not to the model" in person.wait_for("Answer it?")
        person.type("y")
        person.wait_for("Project: ")
        person.type(key)
        person.wait_for("It is not sent")
        person.type("calc")
        person.wait_for("old (yes or no) (may be left out): ")
        person.type("perhaps")
        person.wait_for("type yes or no.")
        person.type("")
        person.wait_for("Your key?")
        assert "It seems to ask for a password or a key." in person.wait_for("Answer it?")
        person.type("n")
        person.wait_for("Found.")
        person.type("exit")
        assert person.end() == 0
    assert json.loads(stage.told(1)) == {"action": "accept", "content": {"project": "calc"}}
    assert json.loads(stage.told(2)) == {"action": "decline"}
    assert key not in json.dumps(stage.events())


@pytest.mark.slow(reason="terminals")
def test_a_person_signs_in_at_a_browser_where_a_server_wants_that(servers: Servers, stage: Stage) -> None:
    with McpHttp(token="of-the-test") as http:
        entry = {"url": http.url, "login": "browser", "allow": ["*"]}
        servers.path.write_text(json.dumps({"mcpServers": {"tickets": entry}}))
        stage.script(calls(call("read")), reply("It is fine."))
        home = {"PULLWRIGHT_HOME": str(stage.home)}
        test = ("mcp", "test", "tickets", "--mcp-config", str(servers.path))
        with Terminal(*test, folder=servers.repository, environ=home, size=(400, 30)) as person:
            person.wait_for("sign in to the MCP server tickets at: ")
            open_page(person.wait_for("\n"))
            person.wait_for("Go on? [y/N]")
            person.type("y")
            assert person.end() == 0
        with Talk(servers) as person:
            person.type("Read it")
            person.wait_for("Sign in to the MCP server tickets in your browser, at:")
            person.wait_for("http")
            open_page("http" + person.wait_for("\n\n"))
            person.wait_for("It is fine.")
    assert stage.told(1) == "fine"
    assert "of-the-test" not in json.dumps(stage.events())


def open_page(shown: str) -> None:
    """Do what a person's browser does, with an address that the terminal may have broken into lines."""
    with urllib.request.urlopen("".join(shown.split()), timeout=60) as answer:  # noqa: S310  on loopback
        assert b"close this page" in answer.read()


def test_what_nobody_approved_is_not_offered_and_the_run_goes_on(servers: Servers, stage: Stage) -> None:
    servers.write(READ, allow=["*"])
    stage.script(do(FIX), do(PROPOSE, FINISH))
    done = servers.run()
    assert done.code == 0
    assert "mcp_tickets" not in stage.asked()[0]["content"]
    guarded = [one["message"] for one in stage.events() if one["type"] == "Guarded"]
    assert any("1 new: get_issue" in line and "pullwright mcp test tickets" in line for line in guarded)


@pytest.mark.slow(reason="a whole cycle or several, with servers")
def test_a_server_that_is_gone_costs_a_warning(servers: Servers, stage: Stage) -> None:
    servers.path.write_text('{"mcpServers": {"tickets": {"command": "no-such-server"}}}')
    stage.script(do(FIX), do(PROPOSE, FINISH))
    assert servers.run().code == 0
    warned = [one["message"] for one in stage.events() if one["type"] == "Warned"]
    assert any(line.startswith("the MCP server tickets is not used") for line in warned)


@pytest.mark.slow(reason="a whole cycle or several, with servers")
def test_a_dangerous_tool_is_there_at_the_level_dangerous_only(servers: Servers, stage: Stage) -> None:
    servers.write(CREATE)
    assert servers.approve().code == 0
    for flags, expected in (
        ((), False),
        (("--allow-command", "ls *"), False),
        (("--permission", "dangerous"), True),
    ):
        stage.script(do(call("create_issue", text="x")), do(FIX), do(PROPOSE, FINISH))
        stage.model.requests.clear()
        assert servers.run(*flags).code == 0
        assert ("mcp_tickets_create_issue" in stage.asked()[0]["content"]) is expected
        assert ("done" in stage.told(1)) is expected


@pytest.mark.slow(reason="a whole cycle or several, with servers")
def test_no_secret_leaves_by_an_argument(
    servers: Servers, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TICKETS", KEY)
    servers.write(tool("echo", echo=True), env={"TICKETS": "${TICKETS}"}, allow=["echo"])
    assert servers.approve().code == 0
    stage.script(do(call("echo", text=f"the key is {KEY}")), do(FIX), do(PROPOSE, FINISH))
    assert servers.run().code == 0
    assert "the arguments contain a secret" in stage.told(1)


@pytest.mark.slow(reason="a whole cycle or several, with servers")
def test_a_tool_with_an_argument_called_command_runs_no_command_and_is_told_as_none(
    servers: Servers, stage: Stage
) -> None:
    schema = {"type": "object", "properties": {"command": {"type": "string"}}}
    servers.write(tool("run", schema=schema, text="12 passed"), tool("go", schema=schema), allow=["run"])
    assert servers.approve().code == 0
    stage.script(do(call("run", command="pytest")), do(FIX), do(PROPOSE, FINISH))
    task = ("--repo", str(servers.repository), "--task", "Fix add()", "--mcp-config", str(servers.path))
    assert stage.run(*task, "--allow-command", "pytest *").code == 0
    assert "mcp_tickets_go" not in stage.asked()[0]["content"]
    assert "12 passed" in stage.told(1)
    [pull] = [json.loads(line) for line in stage.command("pulls", "--json").out.splitlines()]
    assert "pytest" not in pull["body"]


def test_no_repository_configures_a_server(
    servers: Servers, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = f'[mcp.servers.evil]\ncommand = "touch"\nargs = ["{tmp_path}/started"]\n'
    entry = json.dumps({"mcpServers": {"evil": {"command": "touch", "args": [f"{tmp_path}/started"]}}})
    files = {"calc.py": "def add(a, b):\n    return a - b\n", "pullwright.toml": table, ".mcp.json": entry}
    servers.repository = make_repository(tmp_path / "evil", files)
    servers.path.write_text('{"mcpServers": {}}')
    stage.script(do(FIX), do(PROPOSE, FINISH))
    done = servers.run()
    assert done.code == 0
    assert "has no effect: only the person who runs this may set it" in done.err
    monkeypatch.chdir(servers.repository)
    done = servers.run()
    assert done.code == 2
    assert "[mcp] in" in done.err
    assert "that file may come from a repository" in done.err
    assert not (tmp_path / "started").exists()
