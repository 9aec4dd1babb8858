"""What the same model does without this program: asked for the corrected file, and in mini-swe-agent's loop."""

from __future__ import annotations

import asyncio
import os
import re
from typing import TYPE_CHECKING, Any

import httpx2

from tests.evaluation.programs import sandboxed

if TYPE_CHECKING:
    from pathlib import Path

    from tests.evaluation.programs import Program

REPLY_TOKENS = 1_024
REPLY_SECONDS = 3_600.0

_FENCE = re.compile(r"```[\w.+-]*[ \t]*\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Server:
    """A model behind Chat Completions, asked at temperature 0."""

    def __init__(self, api_url: str, model: str) -> None:
        self._url, self._model = f"{api_url.rstrip('/')}/chat/completions", model
        self.tokens = 0

    def ask(self, messages: list[dict[str, str]]) -> str:
        """The text of the reply."""
        body = {
            "model": self._model,
            "messages": messages,
            "temperature": 0,
            "max_tokens": REPLY_TOKENS,
        }
        answer = httpx2.post(self._url, json=body, timeout=REPLY_SECONDS)
        answer.raise_for_status()
        reply = answer.json()
        self.tokens += reply["usage"]["total_tokens"]
        return str(reply["choices"][0]["message"]["content"] or "")


def direct(program: Program, server: Server, *, with_tests: bool) -> str:
    """Ask for the corrected file, once; the file's text.

    Args:
        program: what to repair.
        server: the model.
        with_tests: the model is shown the tests too.
    """
    shown = [program.path, program.tests] if with_tests else [program.path]
    files = "\n\n".join(f"{path}:\n\n```python\n{program.files[path]}```" for path in shown)
    words = (
        f"This file has a bug. Reply with the whole corrected {program.path} in one code block.\n\n{files}"
    )
    reply = server.ask([{"role": "user", "content": words}])
    found = _FENCE.search(reply)
    return found[1] if found else reply


def mini_swe_agent(program: Program, server: Server, folder: Path, *, steps: int) -> tuple[str, str]:
    """Run mini-swe-agent's default agent on a fresh repository, its commands in our sandbox.

    Returns:
        The file's text at the end, and how the agent ended.

    Raises:
        ImportError: mini-swe-agent is not installed: `pip install --no-deps mini-swe-agent`.
    """
    os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
    os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", str(folder.parent / "mini-swe-agent"))
    import yaml
    from minisweagent import package_dir
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment

    class Sandboxed(LocalEnvironment):  # type: ignore[misc]  # not installed where types are checked
        def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> Any:
            del cwd
            ran = asyncio.run(_run(folder, action.get("command", ""), timeout or self.config.timeout))
            self._check_finished(ran)
            return ran

    settings = yaml.safe_load((package_dir / "config" / "default.yaml").read_text("utf-8"))
    agent = DefaultAgent(
        _MiniModel(server, settings["model"]),
        Sandboxed(cwd=str(folder), **settings["environment"]),
        **settings["agent"] | {"step_limit": steps, "output_path": folder.parent / "mini.traj.json"},
    )
    program.write(folder)
    ended = agent.run(program.task)
    path = folder / program.path
    return (path.read_text("utf-8") if path.exists() else ""), str(ended.get("exit_status", ""))


async def _run(folder: Path, command: str, seconds: int) -> dict[str, Any]:
    environment = sandboxed(folder)
    await environment.initialize()
    try:
        ran = await environment.exec_command(command, timeout_ms=seconds * 1000)
    finally:
        await environment.cleanup()
    return {"output": ran.output, "returncode": ran.exit_code, "exception_info": ""}


class _MiniModel:
    """mini-swe-agent's text-based model without litellm."""

    def __init__(self, server: Server, settings: dict[str, Any]) -> None:
        self.config = None
        self._server, self._settings = server, settings

    def query(self, messages: list[dict[str, Any]], **_: Any) -> dict[str, Any]:
        from minisweagent.models.utils.actions_text import parse_regex_actions

        said = [{"role": one["role"], "content": one["content"]} for one in messages]
        text = self._server.ask(said)
        actions = parse_regex_actions(
            text,
            action_regex=r"```mswea_bash_command\s*\n(.*?)\n```",
            format_error_template=self._settings["format_error_template"],
        )
        return {"role": "assistant", "content": text, "extra": {"actions": actions, "cost": 0.0}}

    def format_message(self, **message: Any) -> dict[str, Any]:
        return message

    def format_observation_messages(
        self, message: dict[str, Any], outputs: list[dict[str, Any]], template_vars: Any = None
    ) -> list[dict[str, Any]]:
        del message
        from minisweagent.models.utils.actions_text import format_observation_messages

        template = self._settings["observation_template"]
        found: list[dict[str, Any]] = format_observation_messages(
            outputs, observation_template=template, template_vars=template_vars
        )
        return found

    def get_template_vars(self, **_: Any) -> dict[str, Any]:
        return {}

    def serialize(self) -> dict[str, Any]:
        return {}
