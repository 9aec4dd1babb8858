"""What a server is started with: its own sandbox, folder and grants, and nothing of another's."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.config.settings import Loaded, Settings
from orchestrator.app.wiring import BuildContext, ignore_event
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.journal.folders import Home
from orchestrator.core.clock import SystemClock
from orchestrator.engine.models.keys import ApiKeys
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.mcp.base import McpServer, ServerAddress, ServerProgram
from orchestrator.plugins.mcp.config import McpConfig
from orchestrator.plugins.mcp.servers import McpMaker, folder_name
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path


def maker(home: Path, *servers: McpServer, **settings: object) -> McpMaker:
    loaded = Loaded(Settings(**settings), {})
    context = BuildContext(
        loaded, ApiKeys(), Home(home), SystemClock(), ignore_event, Stop(), Redactor(), {"PATH": "/usr/bin"}
    )
    return McpMaker(McpConfig(servers), context)


@table(
    ("name", "folder"),
    [
        ("tickets", "tickets"),
        ("a-1", "a-1"),
        ("My Server", "my_server-"),
        ("tickets.", "tickets_-"),
        ("..", "__-"),
    ],
)
def test_each_server_has_a_folder_of_its_own(name: str, folder: str) -> None:
    assert folder_name(name).startswith(folder)
    assert folder_name(name) != folder_name(f"{name}x")
    assert "/" not in folder_name(name)


def test_names_that_look_alike_have_other_folders() -> None:
    names = ["a b", "a_b", "a.b", "A_B", "a-b"]
    assert len({folder_name(name) for name in names}) == len(names)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")
def test_a_program_gets_its_own_grants_and_those_of_commands_not(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    program = ServerProgram("x", hosts=("tickets.example",), readable=("/usr",), repository=True)
    made = maker(tmp_path / "home", McpServer("one", program), allow_host=("pypi.org",))
    start = made.start("one", program, tmp_path / "tree", ignore_event)
    assert start.folder == tmp_path / "home" / "mcp" / "servers" / "one"
    assert start.find_sandbox is not None
    options = start.find_sandbox().options
    assert options.hosts == ("tickets.example",)
    assert options.readable == ("/usr", str(tmp_path / "tree"))
    other = made.start("two", ServerProgram("y"), tmp_path / "tree", ignore_event)
    assert other.find_sandbox is not None
    assert other.find_sandbox().options.hosts == other.find_sandbox().options.readable == ()


@table(
    ("confined", "sandbox", "unconfined"),
    [(True, "auto", False), (False, "auto", True), (True, "off", True), (False, "off", True)],
)
def test_a_server_without_a_sandbox_is_known(
    tmp_path: Path, *, confined: bool, sandbox: str, unconfined: bool
) -> None:
    program = ServerProgram("x", is_confined=confined)
    far = McpServer("far", ServerAddress("https://a.example"))
    made = maker(tmp_path, far, McpServer("one", program), sandbox=sandbox)
    assert made.runs_unconfined is unconfined
    assert (made.start("one", program, None, ignore_event).find_sandbox is None) is unconfined
    assert not maker(tmp_path, far, sandbox=sandbox).runs_unconfined
