"""The MCP client against the official conformance suite, and against servers that others published."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.plugins.mcp.base import McpServer, ServerAddress, ServerProgram
from orchestrator.plugins.mcp.connection import McpConnection
from orchestrator.plugins.mcp.transports import ProgramStart, remote_transport, stdio_transport
from tests.plugins.mcp.published_servers import FOLDER, node, python_server, script
from tests.scenarios.stage import make_repository

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow(reason="each starts a published server or the suite, most of them in Node")
SCENARIOS = (
    "initialize",
    "tools_call",
    "sse-retry",
    "elicitation-sep1034-client-defaults",
    *(f"auth/metadata-{name}" for name in ("default", "var1", "var2", "var3")),
    *(
        f"auth/scope-{name}"
        for name in (
            "from-www-authenticate",
            "from-scopes-supported",
            "omitted-when-undefined",
            "step-up",
            "retry-limit",
        )
    ),
    *(f"auth/token-endpoint-auth-{name}" for name in ("basic", "post", "none")),
    "auth/pre-registration",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-basic",
)
NOT_OURS = {
    "auth/basic-cimd": "the client publishes no document about itself; it registers instead, which is as good",
    "auth/2025-03-26-oauth-metadata-backcompat": (
        "its server names another issuer than the one it is asked for, which the library refuses (RFC 8414, 3.3)"
    ),
    "auth/client-credentials-jwt": "a client signs in by id and secret",
    "auth/cross-app-access-complete-flow": "there is no identity provider between",
}


def test_every_scenario_of_the_suite_is_tried_or_has_a_reason() -> None:
    done = subprocess.run([node(), script("conformance"), "list"], capture_output=True, text=True, check=True)
    _, _, clients = done.stdout.partition("Client scenarios")
    assert set(re.findall(r"^  - (\S+)", clients, re.MULTILINE)) == {*SCENARIOS, *NOT_OURS}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_official_suite_passes(scenario: str, tmp_path: Path) -> None:
    client = f"{sys.executable} -m tests.plugins.mcp.conformance_client"
    words = [node(), script("conformance"), "client", "--command", client, "--scenario", scenario]
    environ = {**os.environ, "NODE_NO_WARNINGS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*words, "-o", str(tmp_path), "--timeout", "60000"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env=environ,
    )
    assert "OVERALL: PASSED" in done.stdout + done.stderr, f"{done.stdout}\n{done.stderr}"


@asynccontextmanager
async def connected(place: ServerProgram | ServerAddress, folder: Path) -> AsyncIterator[McpConnection]:
    """A connection to a server; one that is a program runs in a sandbox."""
    server = McpServer("one", place, start_seconds=60.0, call_seconds=60.0)
    refused: list[str] = []

    def start(program: ServerProgram) -> ProgramStart:
        options = SandboxOptions(hosts=program.hosts, readable=program.readable)
        own = folder / "own"
        return ProgramStart(
            program, own, str(folder), os.environ, lambda: find_sandbox(options), refused.append
        )

    make = (
        (lambda voice: stdio_transport(start(place), voice))
        if isinstance(place, ServerProgram)
        else (lambda voice: remote_transport(place, voice, 60.0))
    )
    connection = McpConnection(server, make, lambda _method: None, lambda: None)
    try:
        await connection.open()
        yield connection
    finally:
        await connection.close()


def of_node(package: str, *arguments: str, **more: object) -> ServerProgram:
    program, path = node(), script(package)
    readable = (str(Path(FOLDER).resolve()), str(Path(program).resolve().parent))
    return ServerProgram(program, (path, *arguments), readable=readable, **more)  # type: ignore[arg-type]


def of_python(name: str, *arguments: str, readable: tuple[str, ...] = ()) -> ServerProgram:
    path = python_server(name)
    environment = Path(path).parent.parent.resolve()
    return ServerProgram(path, arguments, readable=(str(environment), *readable))


async def says(connection: McpConnection, tool: str, **arguments: object) -> str:
    answer = await connection.call(tool, arguments)
    assert not answer.is_error, answer.text
    return answer.text


async def try_everything(connection: McpConnection) -> None:
    names = {one.name for one in connection.found}
    assert {"echo", "get-sum", "get-structured-content", "get-tiny-image"} <= names
    assert await says(connection, "echo", message="größer") == "Echo: größer"
    assert "5" in await says(connection, "get-sum", a=2, b=3)
    assert json.loads(await says(connection, "get-structured-content", location="New York"))
    assert "[image, image/png, " in await says(connection, "get-tiny-image")
    wrong = await connection.call("get-sum", {"a": "x"})
    assert wrong.is_error


async def test_server_everything_over_its_standard_streams(tmp_path: Path) -> None:
    async with connected(of_node("server-everything"), tmp_path) as connection:
        await try_everything(connection)
        assert "OPENAI" not in await says(connection, "get-env")


@pytest.mark.parametrize(("kind", "path"), [("streamableHttp", "mcp"), ("sse", "sse")])
async def test_server_everything_over_http(
    kind: str, path: str, tmp_path: Path, unused_tcp_port: int
) -> None:
    environ = {**os.environ, "PORT": str(unused_tcp_port)}
    process = await asyncio.create_subprocess_exec(
        node(),
        script("server-everything"),
        kind,
        env=environ,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stderr is not None
        async with asyncio.timeout(60):
            while b"port" not in (line := await process.stderr.readline()):
                assert line, "the server ended"
        place = ServerAddress(f"http://127.0.0.1:{unused_tcp_port}/{path}", events=kind == "sse")
        async with connected(place, tmp_path) as connection:
            await try_everything(connection)
    finally:
        process.kill()
        await process.wait()


async def test_server_filesystem(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "note.txt").write_text("hello")
    (tmp_path / "secret.txt").write_text("no")
    async with connected(of_node("server-filesystem", str(tmp_path / "own")), tmp_path) as connection:
        assert await says(connection, "read_text_file", path=str(tmp_path / "own" / "note.txt")) == "hello"
        assert (await connection.call("read_text_file", {"path": str(tmp_path / "secret.txt")})).is_error


async def test_server_memory_keeps_its_file_in_its_own_folder(tmp_path: Path) -> None:
    variables = {"MEMORY_FILE_PATH": str(tmp_path / "own" / "memory.jsonl")}
    entity = {"name": "calc", "entityType": "file", "observations": ["add() subtracts"]}
    program = of_node("server-memory", variables=variables)
    async with connected(program, tmp_path) as connection:
        await says(connection, "create_entities", entities=[entity])
    async with connected(program, tmp_path) as connection:
        assert "add() subtracts" in await says(connection, "read_graph")


async def test_server_git_reads_a_repository(tmp_path: Path) -> None:
    repository = make_repository(tmp_path / "calc")
    program = of_python("mcp-server-git", "--repository", str(repository), readable=(str(repository),))
    async with connected(program, tmp_path) as connection:
        assert "First commit" in await says(connection, "git_log", repo_path=str(repository))
        failed = await connection.call(
            "git_create_branch", {"repo_path": str(repository), "branch_name": "x"}
        )
        assert failed.is_error


async def test_server_time(tmp_path: Path) -> None:
    async with connected(of_python("mcp-server-time"), tmp_path) as connection:
        said = await says(
            connection, "convert_time", source_timezone="UTC", time="12:00", target_timezone="Asia/Tokyo"
        )
        assert "21:00" in said


async def test_server_fetch_reaches_no_host_that_is_not_named(tmp_path: Path) -> None:
    async with connected(of_python("mcp-server-fetch"), tmp_path) as connection:
        answer = await connection.call("fetch", {"url": "https://example.com/"})
        assert answer.is_error
