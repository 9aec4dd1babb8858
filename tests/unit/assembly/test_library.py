from __future__ import annotations

import asyncio
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator import (
    LocalEnvironment,
    Session,
    anthropic_profile,
    gemini_profile,
    minimal_profile,
    openai_profile,
)
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import Text, ToolCall, Usage
from orchestrator.models.replay import ReplayModel
from orchestrator.web.client import HttpWeb
from tests.doubles.sse_server import SseServer, sse_answer
from tests.doubles.vendor_replies import Protocol, VendorReply, render

LOCAL = "http://127.0.0.1:9"
README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")
VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "PULLWRIGHT_API_KEY")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_every_public_name_can_be_imported() -> None:
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = orchestrator.Sesion


@pytest.mark.parametrize(
    ("make", "model", "variable", "name"),
    [
        (openai_profile, "gpt-5.2", "OPENAI_API_KEY", "openai-responses:gpt-5.2"),
        (openai_profile, "openai-chat:gpt-5.2", "OPENAI_API_KEY", "openai-chat:gpt-5.2"),
        (anthropic_profile, "claude-sonnet-4-5", "ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"),
        (gemini_profile, "gemini-3-pro-preview", "GOOGLE_API_KEY", "gemini:gemini-3-pro-preview"),
        (minimal_profile, "gpt-5.2", "OPENAI_API_KEY", "openai-chat:gpt-5.2"),
        (minimal_profile, "anthropic:claude-sonnet-4-5", "ANTHROPIC_API_KEY", "anthropic:claude-sonnet-4-5"),
    ],
)
def test_a_profile_comes_with_its_model_window_and_price(
    monkeypatch: pytest.MonkeyPatch, make: Any, model: str, variable: str, name: str
) -> None:
    with pytest.raises(ConfigurationError, match="_API_KEY"):
        make(model=model)
    monkeypatch.setenv(variable, "made-up-0123456789")
    profile = make(model=model)
    assert profile.model.name == name
    assert profile.context_window > 100_000
    assert profile.price(Usage(1_000_000, 0)) > 0.1
    other, price = profile.other_model("other-model")
    assert other.name.endswith(":other-model")
    assert price(Usage(1_000, 0)) is None


def test_a_vendors_key_goes_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "vendor-0123456789")
    assert vars(anthropic_profile(model="m", api_url=LOCAL).model)["_key"] == ""
    monkeypatch.setenv("PULLWRIGHT_API_KEY", "other-0123456789")
    assert vars(anthropic_profile(model="m", api_url=LOCAL).model)["_key"] == "other-0123456789"
    assert (
        vars(anthropic_profile(model="m", api_url=LOCAL, api_key="mine-0123456789").model)["_key"]
        == "mine-0123456789"
    )


def test_a_model_of_ones_own_and_unknown_models_work() -> None:
    model = ReplayModel("mine", [])
    assert openai_profile(model=model).model is model
    unknown = openai_profile(model="qwen2.5", api_url=LOCAL)
    assert unknown.model is not None
    assert unknown.model.name == "openai-chat:qwen2.5"
    assert unknown.context_window is None


@pytest.mark.parametrize("name", ["", " "])
def test_a_model_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name of the model is empty"):
        anthropic_profile(model=name, api_url=LOCAL)


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (openai_profile, {"web_search", "web_open", "web_find"}),
        (gemini_profile, {"web_search", "web_fetch"}),
        (minimal_profile, {"web_search", "web_open", "web_find"}),
    ],
)
def test_web_tools_exist_only_when_enabled(make: Any, names: set[str]) -> None:
    without = set(make(model="m", api_url=LOCAL).tools.names())
    assert not {name for name in without if name.startswith("web")}
    assert names <= set(make(model="m", api_url=LOCAL, web=HttpWeb()).tools.names())


def test_the_readmes_program_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own text, with the address of a double added and nothing else changed."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    (tmp_path / "tests").mkdir()
    monkeypatch.chdir(tmp_path)
    call = ToolCall(
        "c1", "write_file", {"file_path": "tests/test_api.py", "content": "def test_api(): pass\n"}
    )
    replies = [(Text("I look."), call), (Text("Fixed."),), (Text("The changelog too."),)]
    answers = [sse_answer(render(Protocol.MESSAGES, VendorReply(parts))) for parts in replies]
    with SseServer(answers) as server:
        name = 'model="claude-sonnet-4-5"'
        assert name in code
        printed = StringIO()
        with redirect_stdout(printed):
            exec(compile(code.replace(name, f'{name}, api_url="{server.url}"'), "README.md", "exec"), {})  # noqa: S102  our own text
        bodies = [request.raw.decode() for request in server.requests]
    assert (tmp_path / "tests" / "test_api.py").exists()
    assert "Leave the public API as it is" in bodies[1]
    assert "Now the changelog" in bodies[2]
    assert printed.getvalue().startswith("session_start ")
    assert "\nsteering_injected " in printed.getvalue()


async def test_two_sessions_run_side_by_side(tmp_path: Path) -> None:
    def answers() -> list[Any]:
        return [sse_answer(render(Protocol.MESSAGES, VendorReply((Text("Done."),))))]

    with SseServer(answers() + answers()) as server:
        profile = anthropic_profile(model="claude-sonnet-4-5", api_url=server.url)
        sessions = [Session(profile=profile, environment=LocalEnvironment(tmp_path)) for _ in range(2)]
        ends = await asyncio.gather(*(session.run("Go") for session in sessions))
        for session in sessions:
            await session.close()
        assert profile.model is not None
        await profile.model.aclose()
    assert [end.text for end in ends] == ["Done.", "Done."]
