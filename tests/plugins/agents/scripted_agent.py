"""A small agent: it asks a chat model, edits files, and calls the host's tools over HTTP.

Its model's script decides what it does: besides the host's tools the model has the tools of `_OWN`, and with them it can
behave as no good agent does. It is a program of its own, which the box starts. With `--library` the official library speaks
for it; without, it writes the same messages itself, and starts in a tenth of the time.
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

_SESSION = "session-1"
_OPTIONS = [
    {"optionId": "for-ever", "name": "Always", "kind": "allow_always"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "no", "name": "No", "kind": "reject_once"},
]


class RefusedError(Exception):
    """The model's server refused a request; the text says how."""


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
    """One session. `wire` speaks for it."""

    def __init__(self, argv: list[str]) -> None:
        self.argv = argv
        self.wire: Any = None
        self.folder = self.tools = ""
        self.headers: dict[str, str] = {}
        self.cancelled = asyncio.Event()
        self.number = 0

    async def initialize(self, version: int) -> dict[str, Any]:
        if "--hang" in self.argv:
            await asyncio.Event().wait()
        if "--exit" in self.argv:
            print("cannot start: no licence", file=sys.stderr)  # noqa: T201
            os._exit(3)
        takes = {"mcpCapabilities": {"http": "--no-http" not in self.argv}}
        return {
            "protocolVersion": 99 if "--newer" in self.argv else version,
            "agentCapabilities": takes,
        }

    def new_session(self, folder: str, servers: list[dict[str, Any]]) -> dict[str, Any]:
        self.folder = folder
        for server in servers:
            self.tools = server["url"]
            self.headers = {one["name"]: one["value"] for one in server["headers"]}
        return {"sessionId": _SESSION}

    async def prompt(self, text: str) -> dict[str, Any]:
        self.cancelled.clear()
        work = asyncio.ensure_future(self._work(text))
        stop = asyncio.ensure_future(self.cancelled.wait())
        await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not work.done():
            work.cancel()
            return {"stopReason": "cancelled"}
        work.result()
        return {"stopReason": "end_turn"}

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
                raise RefusedError(f"{status}: {answer}")
            message = json.loads(answer)["choices"][0]["message"]
            messages.append(message)
            if message.get("content"):
                await self._tell(_said(message["content"]))
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

    async def _tell(self, update: dict[str, Any], session: str = _SESSION) -> None:
        await self.wire.update({"sessionId": session, "update": update})

    # What its model can make it do besides.

    async def _own_write(self, path: str, text: str) -> str:
        self.number += 1
        call, target = {"toolCallId": f"write-{self.number}"}, Path(self.folder, path)
        shown = {"title": f"Write {path}", "kind": "edit", "locations": [{"path": str(target)}]}
        await self._tell({"sessionUpdate": "tool_call", **call, **shown})
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        except OSError as error:
            await self._tell({"sessionUpdate": "tool_call_update", **call, "status": "failed"})
            return f"failed: {error}"
        await self._tell({"sessionUpdate": "tool_call_update", **call, "status": "completed"})
        return "written"

    async def _own_ask(self, kind: str, title: str, paths: list[str] = [], raw: Any = None) -> str:  # noqa: B006
        self.number += 1
        call = {"toolCallId": f"ask-{self.number}", "kind": kind, "title": title, "rawInput": raw}
        call["locations"] = [{"path": path} for path in paths]
        answer = await self.wire.ask({"sessionId": _SESSION, "toolCall": call, "options": _OPTIONS})
        return json.dumps(answer)

    async def _own_plan(self, steps: list[str]) -> str:
        entries = [{"content": one, "priority": "medium", "status": "pending"} for one in steps]
        await self._tell({"sessionUpdate": "plan", "entries": entries})
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
        shown = {"toolCallId": "\x1b[2J" * 1_000, "title": title, "kind": "read", "status": "completed"}
        await self._tell({"sessionUpdate": "tool_call", **shown})
        await self._tell(_said("I am another one."), "session-2")
        write_raw(b"\xff\xfe\n" + b'{"id": [], "result": 1}\n')
        return "told"

    async def _own_sleep(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        return "slept"


def _said(text: str) -> dict[str, Any]:
    return {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}


class Plain:
    """Speaks for an agent by itself."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._asked = agent, dict[int, "asyncio.Future[Any]"]()

    async def run(self) -> None:
        """Serve one message a line, until the input ends."""
        self._agent.wire = self
        reader = asyncio.StreamReader(limit=1 << 26)
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        served = set()
        while line := await reader.readline():
            message = json.loads(line)
            if "method" in message:
                served.add(asyncio.ensure_future(self._serve(message)))
            else:
                self._asked.pop(message["id"]).set_result(message["result"])

    async def _serve(self, message: dict[str, Any]) -> None:
        try:
            answer = {"result": await self._result(message["method"], message["params"])}
        except RefusedError as error:
            answer = {"error": {"code": -32603, "message": "Internal error", "data": {"details": str(error)}}}
        if "id" in message:
            self._write({"id": message["id"], **answer})

    async def _result(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        match method:
            case "initialize":
                return await self._agent.initialize(params["protocolVersion"])
            case "session/new":
                return self._agent.new_session(params["cwd"], params["mcpServers"])
            case "session/prompt":
                return await self._agent.prompt("".join(one["text"] for one in params["prompt"]))
            case _:
                self._agent.cancelled.set()
                return {}

    async def update(self, params: dict[str, Any]) -> None:
        self._write({"method": "session/update", "params": params})

    async def ask(self, params: dict[str, Any]) -> Any:
        number = len(self._asked)
        self._asked[number] = asyncio.get_running_loop().create_future()
        self._write({"id": number, "method": "session/request_permission", "params": params})
        return await self._asked[number]

    @staticmethod
    def _write(message: dict[str, Any]) -> None:
        write_raw(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")


class Library:
    """Speaks for an agent by the official library, which has types for all messages."""

    def __init__(self, agent: Agent) -> None:
        self._agent, self._client = agent, cast("Any", None)

    async def run(self) -> None:
        """Serve until the input ends."""
        import acp

        self._agent.wire = self
        await acp.run_agent(cast("acp.Agent", self))

    def on_connect(self, conn: Any) -> None:
        self._client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        import acp

        return acp.InitializeResponse.model_validate(await self._agent.initialize(protocol_version))

    async def new_session(self, cwd: str, mcp_servers: Any = None, **_: Any) -> Any:
        import acp

        servers = [one.model_dump(mode="json", by_alias=True) for one in mcp_servers or ()]
        return acp.NewSessionResponse.model_validate(self._agent.new_session(cwd, servers))

    async def cancel(self, **_: Any) -> None:
        self._agent.cancelled.set()

    async def prompt(self, prompt: Any, **_: Any) -> Any:
        import acp

        try:
            ended = await self._agent.prompt("".join(one.text for one in prompt))
        except RefusedError as error:
            raise acp.RequestError(-32603, "Internal error", {"details": str(error)}) from None
        return acp.PromptResponse.model_validate(ended)

    async def update(self, params: dict[str, Any]) -> None:
        from acp.schema import SessionNotification

        told = SessionNotification.model_validate(params)
        await self._client.session_update(session_id=told.session_id, update=told.update)

    async def ask(self, params: dict[str, Any]) -> Any:
        from acp.schema import RequestPermissionRequest

        asked = RequestPermissionRequest.model_validate(params)
        answer = await self._client.request_permission(
            session_id=asked.session_id, tool_call=asked.tool_call, options=asked.options
        )
        return answer.model_dump(mode="json", by_alias=True)


if __name__ == "__main__":
    speaks = Library if "--library" in sys.argv else Plain
    asyncio.run(speaks(Agent(sys.argv[1:])).run())
