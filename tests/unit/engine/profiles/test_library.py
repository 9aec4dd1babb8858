from __future__ import annotations

import ast
import asyncio
import re
import subprocess
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

import orchestrator
from orchestrator import (
    Host,
    LocalEnvironment,
    Session,
    anthropic_profile,
    assistant_profile,
    explorer_profile,
    gemini_profile,
    minimal_profile,
    openai_profile,
)
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall, Usage
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.replay import ReplayModel
from orchestrator.engine.session.event_bus import EventKind
from orchestrator.engine.session.state_record import StateRecord
from tests.doubles.sse_server import SseServer, sse_answer
from tests.doubles.vendor_replies import Protocol, VendorReply, render
from tests.tables import table

LOCAL = "http://127.0.0.1:9"
PAGE = (Path(__file__).parents[4] / "docs/library.md").read_text(encoding="utf-8")
VARIABLES = ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "PULLWRIGHT_API_KEY")


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_every_public_name_can_be_imported() -> None:
    for name in orchestrator.__all__:
        assert getattr(orchestrator, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Sesion'"):
        _ = orchestrator.Sesion  # type: ignore[attr-defined]  # which a type checker notices, too


def test_dir_shows_every_public_name_and_loads_nothing() -> None:
    code = (
        "import orchestrator, sys; shown = dir(orchestrator);"
        "assert set(orchestrator.__all__) <= set(shown), shown;"
        "assert not [name for name in shown if not name.startswith('__') and name not in orchestrator.__all__];"
        "assert [name for name in sys.modules if name.startswith('orchestrator')] == ['orchestrator']"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(orchestrator.__file__).parents[1])


def test_what_is_loaded_late_is_what_type_checkers_see() -> None:
    tree = ast.parse(Path(orchestrator.__file__).read_text("utf-8"))
    (guarded,) = (
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    seen = {
        alias.name: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    loaded = {name: f"orchestrator.{home}" for name, home in vars(orchestrator)["_MODULES"].items()}
    assert seen == loaded
    always = {name for name, home in loaded.items() if not home.startswith("orchestrator.plugins.")}
    assert {*always, "__version__"} == set(orchestrator.__all__), "a plug-in may not be there"


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
    assert profile.context_window_size > 100_000
    assert profile.price(Usage(1_000_000, 0)) > 0.1
    other, price = profile.other_model("other-model")
    assert other.name.endswith(":other-model")
    assert price(Usage(1_000, 0)) is None


def test_a_vendors_key_goes_to_no_other_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "vendor-0123456789")
    assert vars(anthropic_profile(model="m", api_url=LOCAL).model)["_connection"].key == ""
    monkeypatch.setenv("PULLWRIGHT_API_KEY", "other-0123456789")
    assert vars(anthropic_profile(model="m", api_url=LOCAL).model)["_connection"].key == "other-0123456789"
    assert (
        vars(anthropic_profile(model="m", api_url=LOCAL, api_key="mine-0123456789").model)["_connection"].key
        == "mine-0123456789"
    )


def test_a_model_of_ones_own_and_unknown_models_work() -> None:
    model = ReplayModel("mine", [])
    assert openai_profile(model=model).model is model
    unknown = openai_profile(model="qwen2.5", api_url=LOCAL)
    assert unknown.model is not None
    assert unknown.model.name == "openai-chat:qwen2.5"
    assert unknown.context_window_size is None


@pytest.mark.parametrize("name", ["", " "])
def test_a_model_without_a_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name of the model is empty"):
        anthropic_profile(model=name, api_url=LOCAL)


@table("make", [openai_profile, gemini_profile, minimal_profile])
def test_no_profile_has_web_tools_or_dangerous_tools_that_nobody_enabled(make: Any) -> None:
    assert not {name for name in make(model="m", api_url=LOCAL).tools.names() if name.startswith("web")}
    safe = make(model="m", api_url=LOCAL, dangerous=False)
    assert not any(tool.dangerous for tool in safe.tools)


def test_the_documented_program_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own text, with the address of a double added and nothing else changed."""
    code = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)[0]
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
            exec(compile(code.replace(name, f'{name}, api_url="{server.url}"'), "library.md", "exec"), {})  # noqa: S102  our own text
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


MAKERS = (openai_profile, anthropic_profile, gemini_profile, minimal_profile)


@table("make", MAKERS)
@table("keyword", ["api_base", "base_url", "apikey", "context_window", "tools", "temperature"])
def test_a_keyword_that_nothing_takes_is_named(make: Any, keyword: str) -> None:
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'"):
        make("m", api_url=LOCAL, **{keyword: "x"})
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{keyword}'"):
        make(model=ReplayModel("mine", []), **{keyword: "x"})


@table("make", MAKERS)
@table(
    ("arguments", "words"),
    [
        ({"model": None}, "model must be a name or an object that answers, not None"),
        ({"model": 5}, "model must be"),
        ({"model": ReplayModel}, "not the class ReplayModel"),
        ({"api_url": 8080}, "api_url must be a text, not 8080"),
        ({"api_url": ""}, "api_url is empty"),
        ({"api_url": "localhost:8080"}, "the API address must look like https://host/v1"),
        ({"api_url": "http://[::1"}, "the API address must look like"),
        ({"api_key": ""}, "api_key is empty"),
        ({"api_key": b"key"}, "api_key must be a text, not a bytes"),
        ({"on_wait": "loud"}, "on_wait must be a function, not a text"),
        ({"web": "tavily"}, "web must be web tools of the plug-in web, such as HttpWeb(), not a text"),
        ({"web": ReplayModel}, "such as HttpWeb(), not the class ReplayModel"),
        ({"dangerous": "no"}, "dangerous must be True or False, not a text"),
        ({"custom": ["run_tests"]}, "only a Tool can be registered, not a str"),
        ({"custom": "run_tests"}, "only a Tool can be registered, not a str"),
        ({"custom": 5}, "custom must be tools, not 5"),
        ({"context_window_size": "128k"}, "context_window_size must be a number of tokens, not '128k'"),
        ({"context_window_size": 0}, "context_window_size must be a number of tokens, not 0"),
        ({"knowledge_cutoff": 2025}, "knowledge_cutoff must be a text, not 2025"),
        ({"model": "opnai:fake"}, "unknown model provider 'opnai'; did you mean openai:fake?"),
        ({"model": "replay:last"}, "replay:last is for the program"),
    ],
)
def test_a_value_of_another_kind_is_refused_in_one_line(
    make: Any, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        make(**{"model": "m", "api_url": LOCAL, **arguments})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("make", MAKERS)
def test_a_prefix_that_is_no_provider_is_no_model_of_the_vendor(
    monkeypatch: pytest.MonkeyPatch, make: Any
) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "made-up-0123456789")
    with pytest.raises(
        ConfigurationError, match=r"unknown model provider 'opnai'; did you mean openai:fake\?"
    ):
        make("opnai:fake")
    assert make("openai-chat:opnai:fake").model.name == "openai-chat:opnai:fake"


def test_what_only_one_profile_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert minimal_profile("m", api_url=LOCAL, submit=True).tools.names()[-1] == "submit"
    assert gemini_profile("m", api_url=LOCAL, grounding=True).provider_options == {
        "gemini": {"grounding": True}
    }
    known = openai_profile("m", api_url=LOCAL, context_window_size=64_000, knowledge_cutoff="2025-01")
    assert (known.context_window_size, known.knowledge_cutoff) == (64_000, "2025-01")
    monkeypatch.setenv("OPENAI_API_KEY", "made-up-0123456789")
    assert openai_profile("gpt-4o").supports_reasoning is False
    assert openai_profile("gpt-5.2").supports_reasoning is True
    assert openai_profile("o1-pro").supports_streaming is False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"profile": "openai"}, "profile must be a Profile, such as openai_profile() makes one, not a text"),
        ({"profile": None}, "profile must be a Profile"),
        ({"profile": openai_profile}, "profile must be a Profile"),
        (
            {"environment": "."},
            "environment must be an environment, such as LocalEnvironment(path), not a text",
        ),
        ({"environment": LocalEnvironment}, "not the class LocalEnvironment"),
        ({"model": "gpt-5"}, "model must be an object that answers; a name goes into a profile, not a text"),
        ({"config": {"max_turns": 3}}, "config must be a SessionConfig, not a dict"),
        ({"host": print}, "host must be a Host, not a builtin_function_or_method"),
        ({"contract": "native"}, "contract must be a contract, such as Native(), not a text"),
    ],
)
def test_a_session_names_the_argument_that_is_of_another_kind(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    usual = {"profile": openai_profile(ReplayModel("mine", [])), "environment": LocalEnvironment(tmp_path)}
    with pytest.raises(ConfigurationError) as refused:
        Session(**{**usual, **arguments})
    assert words in str(refused.value)
    with pytest.raises(TypeError, match="unexpected keyword argument 'environ'"):
        Session(**usual, environ={})  # type: ignore[call-arg,arg-type]


@table(
    ("arguments", "words"),
    [
        ({"gate": "safe"}, "gate must be a function, not a text"),
        ({"emit": 5}, "emit must be a function, not 5"),
        ({"system": "You are"}, "system must be a function, not a text"),
        ({"owns_environment": "no"}, "owns_environment must be True or False"),
        ({"wrap_up": None}, "wrap_up must be a text"),
        ({"ledger": {}}, "ledger must be a Ledger, not a dict"),
    ],
)
def test_a_host_names_the_argument_that_is_of_another_kind(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Host(**arguments)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"sandbox": "on"}, "sandbox must be auto, off or a Sandbox, not 'on'"),
        ({"sandbox": False}, "sandbox must be auto, off or a Sandbox, not False"),
        ({"sandbox": None}, "sandbox must be auto, off or a Sandbox, not None"),
        ({"env_policy": "al"}, "env_policy must be one of filtered, sandboxed, core, none, all; not 'al'"),
        ({"env_policy": None}, "env_policy must be one of"),
        ({"root": 5}, "root must be a path, not 5"),
        ({"root": ""}, "root must be a path, not an empty text"),
        ({"submodules": "vendor"}, "submodules must be a collection of paths, not a text"),
        ({"on_refused": "loud"}, "on_refused must be a function"),
        ({"use_ripgrep": "no"}, "use_ripgrep must be True or False"),
        ({"inherited": ["PATH"]}, "inherited must be variables by name, not a list"),
    ],
)
def test_an_environment_names_the_argument_that_is_of_another_kind(
    tmp_path: Path, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        LocalEnvironment(**{"root": tmp_path, **arguments})
    assert words in str(refused.value)
    with pytest.raises(TypeError, match="sandbx"):
        LocalEnvironment(tmp_path, sandbx="off")  # type: ignore[call-arg]


async def test_an_explorer_can_be_tried_without_a_model(tmp_path: Path) -> None:
    state = StateRecord()
    environment = LocalEnvironment(tmp_path, sandbox="off")
    async with Session(profile=explorer_profile(model="echo"), environment=environment) as session:
        async for event in session.submit("Where is the configuration?"):
            state.take(event.event, event.at)
    assert state.hypothesis == "the user tries the program out without a model."
    assert state.context.chat_turns == 2


async def test_the_tool_that_the_page_shows_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-made-up-0123456789")
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "count_words" in one]
    known: dict[str, Any] = {}
    exec(block, known)  # noqa: S102  the lines of our own page
    (tmp_path / "a.txt").write_text("one two three")
    call = ToolCall("c1", "count_words", {"path": "a.txt"})
    replies = [
        Response(Message(Role.ASSISTANT, (call,)), FinishReason.TOOL_CALLS, Usage(), "mine"),
        Response(Message.assistant("Three."), FinishReason.STOP, Usage(), "mine"),
    ]
    model, environment = ReplayModel("mine", replies), LocalEnvironment(tmp_path, sandbox="off")
    async with Session(profile=known["profile"], model=model, environment=environment) as session:
        events = [event async for event in session.submit("How many words?")]
    (ended,) = [event.event for event in events if event.kind == "tool_call_end"]
    assert getattr(ended, "output", "") == "3 words"


def test_the_page_lists_each_kind_of_event() -> None:
    table_of_kinds = PAGE.partition("| kind | when |")[2].partition("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", table_of_kinds)) - {"event"} == {*EventKind}


async def test_an_assistant_has_its_tools_under_the_names_of_the_specification(tmp_path: Path) -> None:
    model = ReplayModel("mine", [Response(Message.assistant("Done."), FinishReason.STOP, Usage(), "mine")])
    profile = assistant_profile(model=model)
    assert {"file_delta", "shell_execute", "todo_add", "pdf_extract_text"} <= {*profile.tools.names()}
    async with Session(profile=profile, environment=LocalEnvironment(tmp_path, sandbox="off")) as session:
        assert (await session.run("Go")).text == "Done."
