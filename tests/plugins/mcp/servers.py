"""Servers for the tests of the MCP client: programs that do what one JSON text says."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.engine.environments.base import SandboxOptions
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.plugins.mcp import scripted_server
from orchestrator.plugins.mcp.base import McpServer, ServerProgram
from orchestrator.plugins.mcp.transports import ProgramStart, stdio_transport

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.client import Transport

    from orchestrator.engine.environments.base import Sandbox
    from orchestrator.engine.environments.running_program import ProgramReport

SCRIPT = Path(scripted_server.__file__)
PYTHON = os.path.realpath(sys.executable)


def tool(
    name: str, description: str = "", /, *, schema: dict[str, Any] | None = None, **does: Any
) -> dict[str, Any]:
    """A tool that does something when it is called."""
    parameters = schema or {"type": "object", "properties": {"text": {"type": "string"}}}
    return {"name": name, "description": description, "inputSchema": parameters, "does": does}


def program(*tools: dict[str, Any], variables: dict[str, str] | None = None, **plan: Any) -> ServerProgram:
    """A server with these tools."""
    text = json.dumps({"tools": tools, **plan})
    return ServerProgram(PYTHON, ("-I", str(SCRIPT), text), variables or {}, readable=(str(SCRIPT.parent),))


def server(*tools: dict[str, Any], name: str = "one", **more: Any) -> McpServer:
    """A server with these tools, all of which are allowed."""
    known = {key: more.pop(key) for key in ("allow", "pin", "start_seconds", "call_seconds") if key in more}
    return McpServer(name, program(*tools, **more), **{"allow": ("*",), **known})


def transport(
    one: McpServer,
    folder: Path,
    *,
    confined: bool = False,
    find: Callable[[SandboxOptions], Sandbox] = find_sandbox,
    on_copy: Callable[[], None] = lambda: None,
) -> Callable[[ProgramReport], Transport]:
    """What starts a server in a folder of its own."""
    place = one.place
    assert isinstance(place, ServerProgram)
    find_own = partial(find, SandboxOptions(hosts=place.hosts, readable=place.readable))
    found = find_own if confined else None
    start = ProgramStart(place, folder / one.name, "", os.environ, found, lambda _host: None, on_copy)
    return lambda voice: stdio_transport(start, voice)
