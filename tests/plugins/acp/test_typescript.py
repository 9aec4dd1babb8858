"""`pullwright acp` and a client that has nothing to do with ours: the protocol's TypeScript library, on Node.js."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.doubles.model_server import MODEL, Step, reply
from tests.plugins.acp.test_acp import FIX, SECRET, SHELL
from tests.scenarios.stage import FIXED

if TYPE_CHECKING:
    from tests.scenarios.stage import Stage

CLIENT = Path(__file__).with_name("typescript_client.mjs")
LIBRARY = "node_modules/@agentclientprotocol/sdk/dist/acp.js"


@pytest.mark.slow(reason="it starts Node.js and a new interpreter")
@pytest.mark.timeout(300)
def test_a_client_in_typescript_talks_with_it(stage: Stage, repository: Path) -> None:
    folder, node = os.environ.get("PULLWRIGHT_TEST_AGENTS"), shutil.which("node")
    if not folder or not node or not (library := Path(folder, LIBRARY)).is_file():
        pytest.skip(
            "no client in TypeScript: PULLWRIGHT_TEST_AGENTS names no folder of npm with it, or Node.js is missing"
        )
    gate = threading.Event()
    stage.script(FIX, reply("It adds."), SHELL, reply("Ran."), Step(text="One two three. " * 60, gate=gate))
    model = ("--model", f"openai-chat:{MODEL}", "--api-url", stage.model.url, "--profile", "chat")
    try:
        done = subprocess.run(
            [node, CLIENT, library, repository, sys.executable, "-m", "orchestrator", "acp", *model],
            env={**os.environ, "OPENAI_API_KEY": SECRET},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        gate.set()
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert (seen["version"], seen["status"], seen["loaded"]) == (1, 0, True)
    assert seen["ends"] == ["end_turn", "end_turn", "cancelled"]
    assert seen["questions"] == ["run_shell_command touch made.txt; ls"]
    assert "there is no run" in seen["refused"]
    kinds = {one["sessionUpdate"] for one in seen["updates"]}
    assert kinds >= {"agent_message_chunk", "tool_call", "tool_call_update", "user_message_chunk"}
    assert "available_commands_update" in kinds
    assert (repository / "calc.py").read_text() == FIXED
    assert (repository / "made.txt").exists()
    assert done.stderr == "", "the library found nothing to complain about"
