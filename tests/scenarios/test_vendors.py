"""A whole cycle over each vendor's protocol: the task becomes a pull request, whichever one carries it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from orchestrator.core.messages import Text, ToolCall
from tests.doubles.sse_server import SseServer, json_answer, sse_answer
from tests.doubles.vendor_replies import Protocol, Thought, VendorReply, render, render_whole
from tests.scenarios.stage import FINISH, FIX_IT, FIXED, PROPOSE, branches, content

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.stage import Stage

TASK = ("--task", "Fix add() in calc.py")
OLD_NEW = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
V4A = "*** Begin Patch\n*** Update File: calc.py\n@@ def add(a, b):\n-    return a - b\n+    return a + b\n*** End Patch"

VENDORS = {
    Protocol.CHAT: (
        "openai-chat:gpt-5.2",
        "/v1/chat/completions",
        ToolCall("c1", "apply_patch", {"patch": V4A}),
    ),
    Protocol.RESPONSES: (
        "openai-responses:gpt-5.2",
        "/v1/responses",
        ToolCall("c1", "apply_patch", {"patch": V4A}),
    ),
    Protocol.MESSAGES: ("anthropic:claude-sonnet-4-5", "/v1/messages", ToolCall("c1", "edit_file", OLD_NEW)),
    Protocol.GEMINI: ("gemini:gemini-3-pro-preview", "/v1beta/models/", ToolCall("c1", "edit_file", OLD_NEW)),
}


def ending() -> VendorReply:
    """The pull request and the end, in one reply."""
    return VendorReply((ToolCall("c2", *PROPOSE), ToolCall("c3", *FINISH)))


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("protocol", VENDORS)
def test_function_calls_become_a_pull_request(
    stage: Stage, repository: Path, protocol: Protocol, *, stream: bool
) -> None:
    model, path, edit = VENDORS[protocol]
    thought = () if protocol is Protocol.CHAT else (Thought("I see it.", "c2lnbmF0dXJl"),)
    replies = [VendorReply((*thought, Text("I fix it."), edit)), ending()]
    answers = [
        sse_answer(render(protocol, reply)) if stream else json_answer(render_whole(protocol, reply))
        for reply in replies
    ]
    with SseServer(answers) as server:
        address = server.url if protocol is not Protocol.CHAT else f"{server.url}/v1"
        flags = ["--model", model, "--api-url", address, "--contract", "native", "--json"]
        done = stage.command(
            "run", "--repo", str(repository), *TASK, *flags, *([] if stream else ["--no-stream"])
        )
    assert done.code == 0, done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    assert [request.path.startswith(path) for request in server.requests] == [True, True]
    if thought:
        assert b"c2lnbmF0dXJl" in server.requests[1].raw, "the vendor gets its signature back"
    assert done.result["usage"]["output_tokens"] == 40


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize("protocol", VENDORS)
def test_a_json_plan_becomes_a_pull_request(stage: Stage, repository: Path, protocol: Protocol) -> None:
    model, _path, _edit = VENDORS[protocol]
    with SseServer([sse_answer(render(protocol, VendorReply((Text(FIX_IT.text),))))]) as server:
        done = stage.command(
            "run", "--repo", str(repository), *TASK, "--model", model, "--api-url", server.url, "--json"
        )
    assert done.code == 0, done.err
    (branch,) = branches(repository)
    assert content(repository, branch, "calc.py") + "\n" == FIXED
    assert b'"tools"' not in server.requests[0].raw


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize("protocol", VENDORS)
def test_a_wrong_key_is_one_line_and_no_key(
    stage: Stage, repository: Path, protocol: Protocol, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_API_KEY", "made-up-key-0123456789")
    model, _path, _edit = VENDORS[protocol]
    refusal = json_answer({"error": {"message": "no made-up-key-0123456789"}}, status=401)
    with SseServer([refusal]) as server:
        done = stage.command(
            "run", "--repo", str(repository), *TASK, "--model", model, "--api-url", server.url, "--json"
        )
    assert done.code == 1
    assert len(server.requests) == 1
    assert "made-up-key" in json.dumps(dict(server.requests[0].headers)), "the server did get it"
    assert "made-up-key" not in done.out + done.err
