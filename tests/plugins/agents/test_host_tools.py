"""What the tools of the host answer an agent program."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.core.messages import ToolResult
from orchestrator.plugins.agents.work import HostTools

MOST = 10_000
"""What is longer is cut by one of the programs, at a place that it chooses."""


async def answer(content: str, *, is_error: bool = False) -> dict[str, Any]:
    """The result of a call whose tool returns this, as the program receives it."""

    async def run(call: Any) -> Any:
        return SimpleNamespace(result=ToolResult(call.id, call.name, content, is_error), ending=None)

    tools = HostTools(cast("Any", SimpleNamespace(tools={}, told=(), run=run)), "secret", "")
    request = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "read_file"}}
    sent = bytearray()

    async def receive() -> Any:
        return {"type": "http.request", "body": json.dumps(request).encode()}

    async def send(message: Any) -> None:
        sent.extend(message.get("body", b""))

    scope: Any = {"type": "http", "method": "POST", "headers": [(b"authorization", b"Bearer secret")]}
    await tools(scope, receive, send)
    (data,) = (line for line in sent.decode().split("\n") if line.startswith("data: "))
    message = json.loads(data.removeprefix("data: "))
    assert message["id"] == 7
    return cast("dict[str, Any]", message["result"])


@pytest.mark.parametrize("is_error", [False, True])
@pytest.mark.parametrize("length", [0, 100, 9_500, 9_501, 10_000, 10_001, 1_000_000])
async def test_no_result_is_so_long_that_the_program_cuts_it(length: int, *, is_error: bool) -> None:
    content = "".join(f"{number:>9}\n" for number in range(length // 10 + 1))[:length]
    result = await answer(content, is_error=is_error)
    ((kind, text),) = ((one["type"], one["text"]) for one in result["content"])
    assert (kind, result["isError"]) == ("text", is_error)
    assert len(text) < MOST
    if length <= 9_500:
        assert text == content
        return
    # The note is that of every tool's output that is cut.
    first, _, rest = text.partition("\n\n[WARNING: Tool output was truncated. ")
    note, _, last = rest.partition("]\n\n")
    left_out = note.partition(" characters were removed from the middle")[0]
    assert content.startswith(first)
    assert content.endswith(last)
    assert len(first) + int(left_out) + len(last) == length
    assert min(len(first), len(last)) > 4_000
