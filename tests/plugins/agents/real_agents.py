"""The published agents, where `PULLWRIGHT_TEST_AGENTS` names a folder that has them, and a model server that plays for each.

`npm install --ignore-scripts --prefix FOLDER` with `PACKAGES` makes it; `.ci/run` does so.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.messages import Text, ToolCall
from orchestrator.plugins.agents.known import known_agents
from tests.doubles.responses_stream import events, message
from tests.doubles.sse_server import Answer, PostedRequest, SseServer, json_answer, sse_answer
from tests.doubles.vendor_replies import Protocol, VendorReply, render

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PACKAGES = tuple(kind.install for kind in known_agents().values())
FOLDER = os.environ.get("PULLWRIGHT_TEST_AGENTS", "")
_MAIN_TOOLS = 3
"""What an agent asks besides, such as a title, has fewer tools."""


@dataclass(frozen=True, slots=True)
class Played:
    """How one agent is played for.

    Attributes:
        model: as `--model` names it.
        path: of its server's address.
        look: calls that it needs before an edit; a path in braces is that of the clone.
        edit: the call that replaces OLD by NEW in `calc.py`.
        shell: the call that runs LINE.
        own: path and body of a request that the agent itself could send.
    """

    protocol: Protocol
    model: str
    path: str
    look: tuple[tuple[str, Mapping[str, Any] | str], ...]
    edit: tuple[str, Mapping[str, Any] | str]
    shell: tuple[str, Mapping[str, Any]]
    own: tuple[str, Mapping[str, Any]]

    def mend(self, old: str = "a - b", new: str = "a + b") -> tuple[str, Mapping[str, Any] | str]:
        """The call that replaces one expression in `calc.py` by another."""
        pattern, given = self.edit
        if isinstance(given, str):
            return pattern, given.replace("OLD", old).replace("NEW", new)
        return pattern, {name: {"OLD": old, "NEW": new}.get(value, value) for name, value in given.items()}


_FILE = "{clone}/calc.py"
_HELLO = {"model": "MODEL", "stream": True, "messages": [{"role": "user", "content": "Hello"}]}
AGENTS = {
    "claude": Played(
        Protocol.MESSAGES,
        "anthropic:claude-sonnet-4-5",
        "",
        (("^Read$", {"file_path": _FILE}),),
        ("^Edit$", {"file_path": _FILE, "old_string": "OLD", "new_string": "NEW"}),
        ("^Bash$", {"command": "LINE", "description": "Look."}),
        ("/v1/messages", {**_HELLO, "max_tokens": 100}),
    ),
    "codex": Played(
        Protocol.RESPONSES,
        "openai-responses:gpt-5.5",
        "/v1",
        (("read_file$", {"path": "calc.py"}),),
        (
            "^apply_patch$",
            "*** Begin Patch\n*** Update File: calc.py\n@@\n def add(a, b):\n-    return OLD\n+    return NEW\n*** End Patch\n",
        ),
        ("^(exec_command|shell_command|shell)$", {"cmd": "LINE", "command": "LINE"}),
        ("/v1/responses", {"model": "MODEL", "stream": True, "input": "Hello"}),
    ),
    "gemini": Played(
        Protocol.GEMINI,
        "gemini:gemini-2.5-flash",
        "",
        (),
        (
            "^replace$",
            {"file_path": _FILE, "instruction": "Make it add.", "old_string": "OLD", "new_string": "NEW"},
        ),
        ("^run_shell_command$", {"command": "LINE", "description": "Look."}),
        (
            "/v1beta/models/MODEL:streamGenerateContent?alt=sse",
            {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]},
        ),
    ),
    "opencode": Played(
        Protocol.CHAT,
        "openai-chat:scripted-1",
        "/v1",
        (("^read$", {"filePath": _FILE}),),
        ("^edit$", {"filePath": _FILE, "oldString": "OLD", "newString": "NEW"}),
        ("^bash$", {"command": "LINE", "description": "Look."}),
        ("/v1/chat/completions", _HELLO),
    ),
}


def installed(home: Path, name: str) -> None:
    """Put the agents where the program looks for them, or skip the test."""
    modules = Path(FOLDER) / "node_modules"
    if not FOLDER or not (modules / known_agents()[name].package).exists():
        pytest.skip(f"PULLWRIGHT_TEST_AGENTS names no folder with {known_agents()[name].package}")
    if shutil.which("node") is None:
        pytest.skip("there is no node on this machine")
    folder = home / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "node_modules").symlink_to(modules)


@dataclass
class ModelOf:
    """A model server that plays steps for one agent, in its vendor's words.

    Attributes:
        steps: texts, calls by a pattern of the tool's name, whole answers, and functions that make one of a request.
        asked: the main requests.
    """

    played: Played
    server: SseServer
    steps: list[Any] = field(default_factory=list)
    asked: list[PostedRequest] = field(default_factory=list)
    number: int = 0

    def __post_init__(self) -> None:
        self.server.answers = _Endless(self.answer)

    def answer(self, request: PostedRequest) -> Answer:
        """Answer one request: the next step, or a short text to what is asked besides."""
        names = tool_names(request.body)
        if len(names) < _MAIN_TOOLS:
            return self._said(Text("A title"), "")
        self.asked.append(request)
        if not self.steps:
            return json_answer(
                {"error": {"message": "the script has no steps left", "type": "x"}}, status=400
            )
        step = self.steps.pop(0)
        step = step(request) if callable(step) else step
        if isinstance(step, Answer):
            return step
        if isinstance(step, str):
            return self._said(Text(step), "")
        pattern, given = step
        full = next((name for name in names if re.search(pattern, name)), pattern)
        space, _, name = full.rpartition("/")
        if isinstance(given, str):
            return self._custom(name, given)
        clone = clone_in(request.raw.decode("utf-8", "replace"))
        given = json.loads(json.dumps(given).replace("{clone}", clone))
        self.number += 1
        return self._said(ToolCall(f"call_{self.number}", name, given), space)

    def _said(self, part: Text | ToolCall, space: str) -> Answer:
        if self.played.protocol is Protocol.RESPONSES:
            self.number += 1
            if isinstance(part, Text):
                return sse_answer(events([message(part.text, number=self.number)]))
            item = {"type": "function_call", "id": f"fc_{self.number}", "call_id": part.id, "name": part.name}
            item |= {"arguments": json.dumps(dict(part.arguments)), "status": "completed"}
            return sse_answer(events([{**item, **({"namespace": space} if space else {})}]))
        return sse_answer(render(self.played.protocol, VendorReply((part,))))

    def _custom(self, name: str, given: str) -> Answer:
        """Call a tool that takes plain text."""
        self.number += 1
        item = {"type": "custom_tool_call", "id": f"ct_{self.number}", "call_id": f"call_{self.number}"}
        return sse_answer(events([{**item, "name": name, "input": given, "status": "completed"}]))

    def said(self, text: str) -> Answer:
        """The answer that says a text."""
        return self._said(Text(text), "")

    def told(self, number: int) -> str:
        """The whole text of a main request."""
        return self.asked[number].raw.decode("utf-8", "replace")


class _Endless(list[Any]):
    """One answer for ever."""

    def __init__(self, answer: Callable[[PostedRequest], Answer]) -> None:
        super().__init__([answer])

    def pop(self, _at: Any = 0) -> Any:
        return self[0]


def tool_names(body: Mapping[str, Any]) -> Sequence[str]:
    """The names of the tools in a request, in any vendor's words; one in a namespace behind a `/`."""
    found: list[str] = []
    for tool in body.get("tools") or ():
        if "functionDeclarations" in tool:
            found += [one["name"] for one in tool["functionDeclarations"]]
        elif tool.get("type") == "namespace":
            found += [f"{tool['name']}/{one['name']}" for one in tool["tools"]]
        else:
            found.append(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type", ""))
    return found


def clone_in(text: str) -> str:
    """The clone's folder, which each agent tells its model."""
    found = re.search(r"(?<![\w-])(/(?:[\w.-]+/)*pullwright-\w+/tree)", text)
    return found[1] if found else "/nowhere"
