"""The client that the official conformance suite starts: `python -m tests.plugins.mcp.conformance_client URL`.

https://github.com/modelcontextprotocol/conformance names the scenario by a variable, and what a client needs to know
for it by another. The client is the program's own: it connects, lists the tools, and calls each of them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.plugins.mcp.base import BrowserLogin, ClientLogin, McpServer, ServerAddress
from orchestrator.plugins.mcp.connection import McpConnection
from orchestrator.plugins.mcp.transports import remote_transport

if TYPE_CHECKING:
    from orchestrator.plugins.mcp.elicitation import AnswerValue, ServerQuestion

SECONDS = 20.0


def address(url: str, scenario: str, context: dict[str, Any]) -> ServerAddress:
    """How a scenario's server is reached."""
    if scenario == "auth/client-credentials-basic":
        return ServerAddress(
            url, login=ClientLogin(context["client_id"], context["client_secret"], issuer_of(url))
        )
    if scenario.startswith("auth/"):
        known = BrowserLogin(context.get("client_id", ""), context.get("client_secret", ""))
        return ServerAddress(url, login=known)
    return ServerAddress(url)


def issuer_of(url: str) -> str:
    """The authorization server, which a person would have written into the configuration."""
    parts = urlsplit(url)
    place = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    with urllib.request.urlopen(place, timeout=SECONDS) as answer:  # noqa: S310  the suite's own server
        return str(json.load(answer)["authorization_servers"][0])


def browser(tasks: set[asyncio.Task[None]], page: str) -> None:
    """Sign in as the person would: the page sends the browser back at once."""

    def go() -> None:
        with urllib.request.urlopen(page, timeout=SECONDS) as answer:  # noqa: S310  the suite's own server
            answer.read()

    tasks.add(asyncio.create_task(asyncio.to_thread(go)))


async def empty_lines(question: ServerQuestion) -> dict[str, AnswerValue]:
    """Answer as a person who types nothing: with the defaults."""
    typed = {field.name: field.read("") for field in question.fields}
    return {name: value for name, value in typed.items() if value is not None}


async def main(url: str) -> None:
    """Connect, list and call."""
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    place = address(url, scenario, json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")))
    server = McpServer("suite", place, start_seconds=SECONDS, call_seconds=SECONDS)
    show = partial(browser, set())
    connection = McpConnection(
        server,
        lambda voice: remote_transport(place, voice, SECONDS, show),
        lambda _method: None,
        lambda: None,
        empty_lines,
    )
    await connection.open()
    try:
        for one in connection.found:
            arguments = dict.fromkeys(one.parameters.get("properties", {}), 1)
            sys.stdout.write(f"{one.name}: {await connection.call(one.name, arguments)}\n")
    finally:
        await connection.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[-1]))
