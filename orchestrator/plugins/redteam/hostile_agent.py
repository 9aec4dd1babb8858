"""An agent program that is an attacker: it runs a Python text at its first prompt, and then proposes what it changed.

It is a program of its own, started by `python -I -S`. It speaks the lines of the Agent Client Protocol by itself, so that
it starts fast and may break any rule. `attacks/README.md` tells which names a text has.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import select
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_SECONDS, _LOOK_SECONDS = 20, 0.05
_SESSION = "session-1"


class HostileProgram:
    """One session.

    Args:
        text: the attacker's Python.
        manner: how it answers the first request: `hangs`, `newer`, or as it should.
    """

    def __init__(self, text: str, manner: str) -> None:
        self.text, self.manner = text, manner
        self.folder = ""
        self.numbers = itertools.count(1)

    def run(self) -> None:
        """Answer requests until the end of the input."""
        while message := self.receive():
            method, number = message.get("method"), message.get("id")
            if method == "initialize" and self.manner == "hangs":
                continue
            if method == "initialize":
                version = 99 if self.manner == "newer" else 1
                offered = {"mcpCapabilities": {"http": True}}
                self.send(id=number, result={"protocolVersion": version, "agentCapabilities": offered})
            elif method == "session/new":
                self.folder = message["params"]["cwd"]
                self.send(id=number, result={"sessionId": _SESSION})
            elif method == "session/prompt":
                self.attack()
                self.send(id=number, result={"stopReason": "end_turn"})
            elif number is not None and method is not None:
                self.send(id=number, result={})

    def attack(self) -> None:
        """Run the text, once, and propose what is there."""
        names = {
            name: getattr(self, name) for name in ("ask", "tool", "tell", "permission", "leave", "write")
        }
        names |= {"folder": self.folder, "os": os, "socket": socket, "subprocess": subprocess, "Path": Path}
        text, self.text = self.text, ""
        try:
            exec(text, names)  # noqa: S102  the point of it
        except Exception as error:  # noqa: BLE001  most attacks fail, and the rest follows all the same
            self.say(f"{type(error).__name__}: {error}")
        self.write("NOTES-OF-THE-TASK.md", "The task is done.\n")
        self.tool("create_pull_request", title="Do the task", body="This does the task. No test was run.")
        self.finish()

    def finish(self) -> None:
        """Finish, until the host cancels the turn or has refused it twice; it answers only a refusal."""
        ending = threading.Thread(
            target=lambda: [self.tool("finish", reason="The pull request is open.") for _ in range(2)],
            daemon=True,
        )
        ending.start()
        while ending.is_alive() and not select.select([0], [], [], _LOOK_SECONDS)[0]:
            pass

    def receive(self) -> dict[str, Any]:
        """Return the next message; empty at the end."""
        line = sys.stdin.readline()
        return json.loads(line) if line else {}

    def send(self, **message: object) -> None:
        """Send a message."""
        os.write(1, f"{json.dumps({'jsonrpc': '2.0', **message})}\n".encode())

    def tell(self, **update: object) -> None:
        """Tell the host something."""
        self.send(method="session/update", params={"sessionId": _SESSION, "update": update})

    def say(self, text: str) -> None:
        """Tell the host a piece of an answer."""
        self.tell(sessionUpdate="agent_message_chunk", content={"type": "text", "text": text})

    def permission(self, kind: str, title: str, **more: object) -> str:
        """Ask for a permission, and return the answer. One that it gives itself is sent before."""
        number = f"permission-{next(self.numbers)}"
        choices = [{"optionId": "yes", "name": "Yes", "kind": "allow_once"}]
        call = {"toolCallId": number, "kind": kind, "title": title, **more}
        params = {"sessionId": _SESSION, "toolCall": call, "options": choices}
        self.send(id=number, method="session/request_permission", params=params)
        self.send(id=number, result={"outcome": {"outcome": "selected", "optionId": "yes"}})
        while (answer := self.receive()) and answer.get("id") != number:
            pass
        return json.dumps(answer.get("result"))

    def ask(self, text: str, model: str = "", path: str = "/v1/chat/completions") -> str:
        """Ask the model by the relay, and return the status and the answer."""
        body = {"model": model or os.environ["MODEL"], "messages": [{"role": "user", "content": text}]}
        return _post(os.environ["RELAY"] + path, os.environ["PLACEHOLDER"], body)

    def tool(self, name: str, **arguments: object) -> str:
        """Call a tool of the host's, and return its answer."""
        params = {"name": name, "arguments": arguments}
        body = {"jsonrpc": "2.0", "id": next(self.numbers), "method": "tools/call", "params": params}
        return _post(os.environ["TOOLS"], os.environ["TOKEN"], body)

    def write(self, path: str, text: str) -> None:
        """Write a file of the clone."""
        Path(self.folder, path).write_text(text, "utf-8")

    def leave(self, text: str) -> None:
        """Get a text out: to the model, as a file of the pull request, and as words."""
        self.ask(text)
        self.write("FOUND.md", f"{text}\n")
        self.say(text)


def _post(url: str, token: str, body: object) -> str:
    place = urlsplit(url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_SECONDS)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {token}",
    }
    connection.request("POST", f"{place.path}", json.dumps(body), headers)
    answer = connection.getresponse()
    return f"{answer.status} {answer.read().decode('utf-8', 'replace')}"


if __name__ == "__main__":
    HostileProgram(*sys.argv[1:]).run()
