"""A small agent made with the official library: it asks a chat model, edits files, and calls the host's tools over HTTP.

Its model's script decides what it does: besides the host's tools the model has the tools of `_OWN`, and with them it can
behave as no good agent does. It is a program of its own, which the box starts.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, cast

import acp
from acp.schema import (
    AgentCapabilities,
    McpCapabilities,
    PermissionOption,
    PlanEntry,
    ToolCallLocation,
    ToolCallUpdate,
)

_OPTIONS = [
    PermissionOption(option_id="for-ever", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


def post(url: str, body: Any, headers: dict[str, str]) -> tuple[int, str]:
    """What a server answers."""
    request = urllib.request.Request(  # noqa: S310  loopback
        url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310  loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def write_raw(data: bytes) -> None:
    """Write bytes among the messages of the protocol, whose pipe is one that does not wait."""
    rest = memoryview(data)
    while rest:
        select.select([], [1], [])
        rest = rest[os.write(1, rest[: select.PIPE_BUF]) :]


class Agent:
    """One session."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.client: Any = None
        self.folder = self.tools = ""
        self.headers: dict[str, str] = {}
        self.cancelled = asyncio.Event()
        self.number = 0

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> acp.InitializeResponse:
        if "--hang" in self.argv:
            await asyncio.Event().wait()
        if "--exit" in self.argv:
            print("cannot start: no licence", file=sys.stderr)  # noqa: T201
            os._exit(3)
        version = 99 if "--newer" in self.argv else protocol_version
        capabilities = AgentCapabilities(mcp_capabilities=McpCapabilities(http="--no-http" not in self.argv))
        return acp.InitializeResponse(protocol_version=version, agent_capabilities=capabilities)

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> acp.NewSessionResponse:
        self.folder = cwd
        for server in mcp_servers or ():
            self.tools = server.url
            self.headers = {one.name: one.value for one in server.headers}
        return acp.NewSessionResponse(session_id="session-1")

    async def cancel(self, **_: Any) -> None:
        self.cancelled.set()

    async def prompt(self, prompt: Any, **_: Any) -> acp.PromptResponse:
        self.cancelled.clear()
        work = asyncio.ensure_future(self._work("".join(one.text for one in prompt)))
        stop = asyncio.ensure_future(self.cancelled.wait())
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not work.done():
            work.cancel()
            return acp.PromptResponse(stop_reason="cancelled")
        work.result()
        return acp.PromptResponse(stop_reason="end_turn")

    async def _work(self, text: str) -> None:
        messages: list[Any] = [{"role": "user", "content": text}]
        offered = await self._host("tools/list", {})
        tools = [
            {"type": "function", "function": {"name": one["name"], "parameters": one["inputSchema"]}}
            for one in offered.get("tools", ())
        ]
        while True:
            url, key = os.environ["OPENAI_BASE_URL"], os.environ["OPENAI_API_KEY"]
            body = {"model": os.environ["MODEL"], "messages": messages, "tools": tools}
            headers = {"Authorization": f"Bearer {key}"}
            status, answer = await asyncio.to_thread(post, f"{url}/chat/completions", body, headers)
            if status != 200:
                raise acp.RequestError(-32603, "Internal error", {"details": f"{status}: {answer}"})
            message = json.loads(answer)["choices"][0]["message"]
            messages.append(message)
            if message.get("content"):
                await self._tell(acp.update_agent_message_text(message["content"]))
            if not message.get("tool_calls"):
                return
            for call in message["tool_calls"]:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                result = await self._call(name, arguments)
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})

    async def _call(self, name: str, arguments: dict[str, Any]) -> str:
        own = getattr(self, f"_own_{name}", None)
        if own is not None:
            return str(await own(**arguments))
        answer = await self._host("tools/call", {"name": name, "arguments": arguments})
        return json.dumps(answer)

    async def _host(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        if not self.tools:
            return {}
        self.number += 1
        body = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        headers = {"Accept": "application/json, text/event-stream", **self.headers}
        _, answer = await asyncio.to_thread(post, self.tools, body, headers)
        lines = [line.removeprefix("data: ") for line in answer.splitlines() if line.startswith("data: ")]
        message = json.loads(lines[0] if lines else answer)
        return dict(message.get("result") or message.get("error"))

    async def _tell(self, update: Any) -> None:
        await self.client.session_update(session_id="session-1", update=update)

    # What its model can make it do besides.

    async def _own_write(self, path: str, text: str) -> str:
        self.number += 1
        name, target = f"write-{self.number}", Path(self.folder, path)
        await self._tell(
            acp.start_tool_call(
                name, f"Write {path}", kind="edit", locations=[ToolCallLocation(path=str(target))]
            )
        )
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        except OSError as error:
            await self._tell(acp.update_tool_call(name, status="failed"))
            return f"failed: {error}"
        await self._tell(acp.update_tool_call(name, status="completed"))
        return "written"

    async def _own_ask(self, kind: Any, title: str, paths: list[str] = [], raw: Any = None) -> str:  # noqa: B006
        self.number += 1
        locations = [ToolCallLocation(path=path) for path in paths]
        call = ToolCallUpdate(
            tool_call_id=f"ask-{self.number}", kind=kind, title=title, locations=locations, raw_input=raw
        )
        answer = await self.client.request_permission(
            session_id="session-1", tool_call=call, options=_OPTIONS
        )
        return json.dumps(answer.model_dump(mode="json"))

    async def _own_plan(self, steps: list[str]) -> str:
        entries = [PlanEntry(content=one, priority="medium", status="pending") for one in steps]
        await self._tell(acp.update_plan(entries))
        return "planned"

    async def _own_look(self, script: str) -> str:
        """The result of Python text that runs in this process: what does the box show?"""
        found: dict[str, Any] = {"subprocess": subprocess, "os": os, "Path": Path, "folder": self.folder}
        try:
            exec(script, found)  # noqa: S102
        except Exception as error:  # noqa: BLE001
            return f"{type(error).__name__}: {error}"
        return str(found.get("result"))

    async def _own_rubbish(self, lines: int) -> str:
        for _ in range(lines):
            write_raw(b"this is no message\n")
        return "sent"

    async def _own_flood(self, updates: int) -> str:
        line = json.dumps(
            {
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": {
                    "sessionId": "session-1",
                    "update": {
                        "sessionUpdate": "agent_thought_chunk",
                        "content": {"type": "text", "text": "."},
                    },
                },
            }
        )
        for _ in range(updates):
            write_raw(f"{line}\n".encode())
        return "sent"

    async def _own_long_line(self, size: int) -> str:
        write_raw(b"x" * size)
        return "sent"

    async def _own_die(self) -> str:
        print("out of memory", file=sys.stderr)  # noqa: T201
        os._exit(9)

    async def _own_together(self, calls: list[Any]) -> str:
        """The results of calls of the host's tools that are made at once."""
        return json.dumps(await asyncio.gather(*(self._call(name, given) for name, given in calls)))

    async def _own_strange(self) -> str:
        """Tells of itself as no good agent does: other sessions, long ids, names that steer a terminal."""
        title = "Read\x1b[2J\x1b]0;all is well\x07"
        await self._tell(acp.start_tool_call("\x1b[2J" * 1_000, title, kind="read", status="completed"))
        update = acp.update_agent_message_text("I am another one.")
        await self.client.session_update(session_id="session-2", update=update)
        write_raw(b"\xff\xfe\n" + b'{"id": [], "result": 1}\n')
        return "told"

    async def _own_sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"


if __name__ == "__main__":
    asyncio.run(acp.run_agent(cast("acp.Agent", Agent(sys.argv[1:]))))
