"""The one-step agent specification, over the session, with the real tools of the profile `minimal`."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ContextLengthError, InvalidRequestError, ModelError, OverloadedError
from orchestrator.core.events import CallStatus, LimitReached, ToolCallEnded, Warned
from orchestrator.core.messages import Message, Role, ToolCall, ToolResult
from orchestrator.engine.contracts.native import SingleStep
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.models.base import ToolChoice
from orchestrator.engine.models.failures import error_from_body
from orchestrator.engine.profiles.catalog import minimal
from orchestrator.engine.session.config import SessionConfig
from orchestrator.engine.session.session import Session
from orchestrator.engine.tools.base import DEFAULT_MAX_CHARS
from tests.unit.engine.session.stage import ScriptedModel, Step, events_of, says, tool

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

    from orchestrator.engine.models.base import Request

ALWAYS = ["shell_command", "read_file", "list_dir", "grep_files", "apply_patch"]
LOOK = says("", ("list_dir", {"dir_path": "."}))
SUBMIT = says("", ("submit", {"answer": "42"}))
TOO_LONG = ContextLengthError("too many tokens")


@asynccontextmanager
async def one_step(
    folder: Path,
    *steps: Step,
    config: SessionConfig | None = None,
    hangs: bool = False,
    context_window_size: int | None = None,
    **options: Any,
) -> AsyncGenerator[tuple[Session, ScriptedModel]]:
    model = ScriptedModel(list(steps), hangs=hangs)
    profile = replace(minimal(**{"submit": True, **options}), context_window_size=context_window_size)
    environment = LocalEnvironment(folder, sandbox="off")
    async with Session(profile=profile, environment=environment, model=model, config=config) as session:
        yield session, model


def results(message: Message) -> list[ToolResult]:
    return [part for part in message.parts if isinstance(part, ToolResult)]


async def test_only_the_first_call_of_a_step_is_executed(tmp_path: Path) -> None:
    touch = [("shell_command", {"command": f"touch {name}"}) for name in "abc"]
    async with one_step(tmp_path, says("", *touch), SUBMIT) as (session, model):
        events = await events_of(session, "Go")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    told = results(model.requests[1].messages[-1])
    assert [result.call_id for result in told] == ["c1", "c2", "c3"]
    assert [result.is_error for result in told] == [False, True, True]
    assert all(result.content.startswith("Not executed:") for result in told[1:])
    ends = [event.event.status for event in events if isinstance(event.event, ToolCallEnded)]
    assert ends[:3] == [CallStatus.OK, CallStatus.SKIPPED, CallStatus.SKIPPED]


async def test_every_request_forbids_parallel_calls_and_sends_no_sampling(tmp_path: Path) -> None:
    async with one_step(tmp_path, LOOK, says("Hm."), SUBMIT) as (session, model):
        await session.run("Go")
    assert [request.parallel_tool_calls for request in model.requests] == [False] * 3
    assert [request.tool_choice for request in model.requests] == [ToolChoice.AUTO] * 3
    assert {(request.temperature, request.top_p) for request in model.requests} == {(None, None)}


async def test_sampling_is_sent_if_configured(tmp_path: Path) -> None:
    config = SessionConfig(temperature=0.2, top_p=0.9)
    async with one_step(tmp_path, SUBMIT, config=config) as (session, model):
        await session.run("Go")
    assert (model.requests[0].temperature, model.requests[0].top_p) == (0.2, 0.9)


async def test_submit_is_there_only_if_enabled(tmp_path: Path) -> None:
    cases: list[tuple[dict[str, Any], list[str]]] = [({"submit": False}, []), ({}, ["submit"])]
    for options, more in cases:
        async with one_step(tmp_path, SUBMIT if more else says("Done."), **options) as (session, model):
            await session.run("Go")
        assert [shown.name for shown in model.requests[0].tools] == [*ALWAYS, *more]


@pytest.mark.parametrize("name", ["read_file", "shell_command"])
async def test_tool_outputs_are_bounded(tmp_path: Path, name: str) -> None:
    (tmp_path / "big.txt").write_text("word " * 40_000)
    argument = {"file_path": "big.txt"} if name == "read_file" else {"command": "cat big.txt"}
    async with one_step(tmp_path, says("", (name, argument)), SUBMIT) as (session, model):
        await session.run("Go")
    (told,) = results(model.requests[1].messages[-1])
    assert "[WARNING: Tool output was truncated." in told.content
    assert len(told.content) < DEFAULT_MAX_CHARS["read_file"] + 1_000


async def test_the_system_prompt_is_fixed_and_has_what_the_specification_asks(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "AGENTS.md").write_text("Rule of the parent.\n")
    (inner / "AGENTS.md").write_text("Rule of the folder.\n")
    async with one_step(inner, LOOK, SUBMIT) as (session, model):
        await session.run("Go")
    first, second = (request.system for request in model.requests)
    assert first == second
    assert str(inner) in first
    assert "at most one tool call" in " ".join(first.split())
    assert all(f"`{name}`" in first for name in [*ALWAYS, "submit"])
    assert 0 < first.index("Rule of the parent.") < first.index("Rule of the folder.")


async def test_the_conversation_begins_with_the_task_and_results_name_their_call(tmp_path: Path) -> None:
    async with one_step(tmp_path, LOOK, SUBMIT) as (session, model):
        await session.run("Find the answer")
    assert list(model.requests[0].messages) == [Message.user("Find the answer")]
    task, said, told = model.requests[1].messages
    assert (task.text, said) == ("Find the answer", LOOK.message)
    assert (told.role, results(told)[0].call_id) == (Role.TOOL, "c1")


async def test_words_alone_are_answered_by_the_fixed_message_until_submit(tmp_path: Path) -> None:
    async with one_step(tmp_path, says("It is 42."), says("Really?"), says(""), SUBMIT) as (session, model):
        end = await session.run("Go")
    assert (end.kind, end.text) == ("finish", "42")
    said = [message.text for message in model.requests[-1].messages if message.role is Role.USER]
    assert said == ["Go", *[SingleStep("submit").go_on(model.requests[-1].tools)] * 3]


async def test_without_submit_words_end_the_work(tmp_path: Path) -> None:
    async with one_step(tmp_path, LOOK, says("It is 42."), submit=False) as (session, model):
        end = await session.run("Go")
    assert (end.kind, end.text, len(model.requests)) == ("completed", "It is 42.", 2)


async def test_submit_as_the_first_call_ends_and_as_a_later_one_is_not_executed(tmp_path: Path) -> None:
    submit, touch = ("submit", {"answer": "42"}), ("shell_command", {"command": "touch made"})
    async with one_step(tmp_path, says("", submit, touch)) as (session, _):
        assert (await session.run("Go")).text == "42"
    assert not (tmp_path / "made").exists()
    async with one_step(tmp_path, says("", touch, submit), says("", submit)) as (session, model):
        await session.run("Go")
    assert (tmp_path / "made").exists()
    assert len(model.requests) == 2


async def test_submit_without_an_answer_is_an_error_that_can_be_mended(tmp_path: Path) -> None:
    async with one_step(tmp_path, says("", ("submit", {})), SUBMIT) as (session, model):
        assert (await session.run("Go")).text == "42"
    assert "'answer' is a required property" in results(model.requests[1].messages[-1])[0].content


async def test_max_steps(tmp_path: Path) -> None:
    config = SessionConfig(max_turns=2)
    async with one_step(tmp_path, LOOK, says("Hm."), SUBMIT, config=config) as (session, model):
        end = await session.run("Go")
    assert (end.kind, end.text, len(model.requests)) == ("limit", "2 of 2 rounds are used", 2)


@pytest.mark.parametrize("model_hangs", [True, False])
async def test_time_limit(tmp_path: Path, model_hangs: bool) -> None:  # noqa: FBT001  parametrised
    async def hang(_arguments: Any) -> None:
        await asyncio.Event().wait()

    config = SessionConfig(max_minutes=0.02)
    custom = (tool("hang", hang),)
    async with one_step(
        tmp_path, says("", ("hang", {})), config=config, custom=custom, hangs=model_hangs
    ) as (session, _):
        events = await events_of(session, "Go")
    (limit,) = [event.event for event in events if isinstance(event.event, LimitReached)]
    assert limit.limit == "minutes"


def lengths(model: ScriptedModel) -> list[int]:
    return [len(request.messages) for request in model.requests]


def check_pairs(request: Request, task: str) -> None:
    """The task is first, every call has its result behind it, and every result its call before it."""
    assert request.messages[0] == Message.user(task)
    calls: list[str] = []
    for message in request.messages:
        assert sorted(result.call_id for result in results(message)) == sorted(calls)
        calls = [part.id for part in message.parts if isinstance(part, ToolCall)]
    assert calls == []


async def test_too_long_a_conversation_is_pruned_and_sent_again(tmp_path: Path) -> None:
    async with one_step(tmp_path, *[LOOK] * 6, TOO_LONG, SUBMIT) as (session, model):
        events = await events_of(session, "Go")
        assert session.history.turns[-2].message == SUBMIT.message
    assert lengths(model) == [1, 3, 5, 7, 9, 11, 13, 7]
    for request in model.requests:
        check_pairs(request, "Go")
    assert model.requests[-1].system == model.requests[0].system
    kept = list(model.requests[-1].messages)
    assert kept[1:] == list(model.requests[-2].messages)[-6:], "the oldest are gone"
    warned = [event.event.message for event in events if isinstance(event.event, Warned)]
    assert warned == ["the conversation was too long; its oldest 6 turns were dropped"]


async def test_a_cut_before_a_word_of_the_users_is_preferred(tmp_path: Path) -> None:
    def steered(_request: Request) -> Any:
        session.steer("Look deeper")
        return LOOK

    steps: list[Step] = [LOOK, LOOK, LOOK, steered, LOOK, TOO_LONG, SUBMIT]
    async with one_step(tmp_path, *steps) as (session, model):
        await session.run("Go")
    assert [message.text for message in model.requests[-1].messages][:2] == ["Go", "Look deeper"]
    check_pairs(model.requests[-1], "Go")


async def test_pruning_goes_on_as_long_as_it_helps_and_then_ends_with_a_clear_error(tmp_path: Path) -> None:
    steps: list[Step] = [LOOK] * 5
    steps += [TOO_LONG] * 9
    async with one_step(tmp_path, *steps) as (session, model):
        end = await session.run("Go")
    assert end.kind == "overflow"
    assert end.text.endswith("(too many tokens); pruning did not help")
    tried = lengths(model)[5:]
    assert tried == sorted(set(tried), reverse=True), "each try is shorter than the one before"
    for request in model.requests:
        check_pairs(request, "Go")


def unexplained(kind: type[ModelError], status: int, message: str) -> ModelError:
    """The error that such a body gives."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    error = error_from_body(status, {}, json.dumps({"error": {"message": message}}).encode(), now, "h")
    assert type(error) is kind
    return error


NEAR, FAR = 300, 100_000
VAGUE = unexplained(InvalidRequestError, 400, "Request contains an invalid argument.")


@pytest.mark.parametrize(
    "refused",
    [
        VAGUE,
        unexplained(OverloadedError, 500, "Internal server error"),
        unexplained(InvalidRequestError, 422, ""),
    ],
)
async def test_a_refusal_without_a_reason_near_the_window_is_taken_for_too_long_once(
    tmp_path: Path, refused: ModelError
) -> None:
    steps: list[Step] = [LOOK] * 5
    async with one_step(tmp_path, *steps, refused, SUBMIT, context_window_size=NEAR) as (session, model):
        events = await events_of(session, "Go")
        assert session.history.turns[-2].message == SUBMIT.message
    assert lengths(model)[-1] < lengths(model)[-2]
    warned = [event.event.message for event in events if isinstance(event.event, Warned)]
    assert any("so it counts as too long" in words and str(refused) in words for words in warned)

    async with one_step(tmp_path, *steps, refused, refused, context_window_size=NEAR) as (session, model):
        with pytest.raises(type(refused)) as caught:
            await session.run("Go")
    assert caught.value is refused, "then it stands"


@pytest.mark.parametrize(
    ("refused", "window"),
    [
        (VAGUE, FAR),
        (VAGUE, None),
        (unexplained(InvalidRequestError, 400, "messages.1.content: Field required"), NEAR),
        (unexplained(InvalidRequestError, 400, "Unsupported value: 'user'"), NEAR),
        (unexplained(InvalidRequestError, 500, "image input is not supported"), NEAR),
        (unexplained(OverloadedError, 503, "Overloaded"), NEAR),
    ],
)
async def test_a_refusal_with_a_reason_or_far_from_the_window_stands(
    tmp_path: Path, refused: ModelError, window: int | None
) -> None:
    async with one_step(tmp_path, *[LOOK] * 5, refused, context_window_size=window) as (session, model):
        with pytest.raises(type(refused)):
            await session.run("Go")
    assert len(model.requests) == 6


async def test_a_task_that_alone_is_too_long_ends_at_once(tmp_path: Path) -> None:
    async with one_step(tmp_path, TOO_LONG) as (session, model):
        assert (await session.run("Go")).kind == "overflow"
    assert lengths(model) == [1]
