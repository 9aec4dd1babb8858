"""How sessions end when something goes wrong that nobody planned: in the host's code, in a tool, in between."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.errors import ConfigurationError, RateLimitError, SandboxMissingError
from orchestrator.core.events import ErrorOccurred, SessionEnded, SessionState
from orchestrator.core.messages import Message, Role
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.sandbox import find_sandbox
from orchestrator.engine.session.config import CompactionPolicy, Host, SessionConfig
from orchestrator.engine.session.session import Session
from tests.unit.engine.session.stage import ScriptedModel, events_of, kinds, profile, says, session_in, tool

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator.engine.session.event_bus import SessionEvent


class Watched(LocalEnvironment):
    """Notes when it is made ready and cleaned up."""

    def __init__(self, root: Path, *, fails: bool = False) -> None:
        super().__init__(root)
        self.log: list[str] = []
        self._fails = fails
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()

    async def initialize(self) -> None:
        self.log.append("initialize")
        self.begun.set()
        if self._fails:
            raise OSError("no such engine")
        if self.gate:
            await self.gate.wait()

    async def cleanup(self) -> None:
        self.log.append("cleanup")
        await super().cleanup()


@pytest.mark.parametrize("how", ["abort", "close"])
async def test_a_tool_may_end_its_own_session(tmp_path: Path, how: str) -> None:
    async def end(_arguments: Mapping[str, Any]) -> None:
        await getattr(session, how)()

    async with session_in(tmp_path, says("", ("end", {})), tools=[tool("end", end)]) as (session, _model):
        events = await events_of(session, "Go")
        assert session.state is SessionState.CLOSED
    assert kinds(events)[-1] == "session_end"


async def test_a_listener_that_raises_ends_the_session_and_is_heard_of(tmp_path: Path) -> None:
    async with session_in(tmp_path, says("Done.")) as (session, _model):
        session.listen(_fail)
        with pytest.raises(KeyError, match="a defect of the host"):
            await session.run("Go")
        assert session.state is SessionState.CLOSED


def _fail(_event: SessionEvent) -> None:
    raise KeyError("a defect of the host")


async def test_a_defect_of_the_model_closes_the_session_with_an_error_event(tmp_path: Path) -> None:
    async with session_in(tmp_path, KeyError("a defect")) as (session, _model):
        heard: list[SessionEvent] = []
        session.listen(heard.append)
        with pytest.raises(KeyError):
            await events_of(session, "Go")
        assert str(session.state) == "closed"
    assert [event.event for event in heard if isinstance(event.event, ErrorOccurred)] == [
        ErrorOccurred("KeyError", "'a defect'")
    ]
    assert kinds(heard)[-2:] == ["error", "session_end"]


async def test_an_environment_that_cannot_be_made_ready_is_cleaned_up(tmp_path: Path) -> None:
    environment = Watched(tmp_path, fails=True)
    async with Session(profile=profile(), environment=environment, model=ScriptedModel([])) as session:
        with pytest.raises(OSError, match="no such engine"):
            await session.run("Go")
    assert environment.log == ["initialize", "cleanup"]


async def test_an_environment_is_ready_before_a_session_that_first_compacts(tmp_path: Path) -> None:
    environment = Watched(tmp_path)
    config = SessionConfig(compaction=CompactionPolicy(share=0.5))
    model = ScriptedModel([says("Done.")])
    async with Session(profile=profile(), environment=environment, model=model, config=config) as session:
        assert not await session.compact(), "there is nothing to summarize"
        assert environment.log == ["initialize"]
        await session.run("Go")
    assert environment.log == ["initialize", "cleanup"]


async def test_an_abort_while_the_session_starts_cleans_up(tmp_path: Path) -> None:
    environment = Watched(tmp_path)
    environment.gate = asyncio.Event()
    session = Session(profile=profile(), environment=environment, model=ScriptedModel([]))
    heard: list[SessionEvent] = []
    session.listen(heard.append)
    work = asyncio.create_task(session.run("Go"))
    await environment.begun.wait()
    await session.abort()
    assert (await work).kind == "interrupted"
    assert environment.log == ["initialize", "cleanup"]
    assert [event for event in heard if isinstance(event.event, SessionEnded)] == [], "it never started"


async def test_a_cleanup_that_fails_is_raised_and_the_stream_ends(tmp_path: Path) -> None:
    class Stuck(Watched):
        async def cleanup(self) -> None:
            await super().cleanup()
            raise OSError("the engine is gone")

    model = ScriptedModel([says("Done.")])
    session = Session(profile=profile(), environment=Stuck(tmp_path), model=model)
    heard: list[SessionEvent] = []
    session.listen(heard.append)
    await session.run("Go")
    with pytest.raises(OSError, match="engine is gone"):
        await session.close()
    assert kinds(heard)[-1] == "session_end"
    assert model.let_go == 1


async def test_after_leaving_the_events_one_may_ask_anew_at_once(tmp_path: Path) -> None:
    async def hang(_arguments: Mapping[str, Any]) -> None:
        await asyncio.Event().wait()

    steps = [says("", ("hang", {})), says("Hello."), says("", ("hang", {})), says("Hello again.")]
    async with session_in(tmp_path, *steps, tools=[tool("hang", hang)]) as (session, _model):
        async for event in session.submit("Go"):
            if event.kind == "tool_call_start":
                break
        assert (await session.run("Again")).text == "Hello."
        with suppress(ZeroDivisionError):
            async for event in session.submit("Go"):
                if event.kind == "tool_call_start":
                    _ = 1 // 0
        assert kinds(await events_of(session, "Again"))[-1] == "processing_end"


async def test_a_tool_that_does_not_let_itself_be_stopped_does_not_hold_the_host(tmp_path: Path) -> None:
    free = asyncio.Event()

    async def stubborn(_arguments: Mapping[str, Any]) -> str:
        while not free.is_set():
            with suppress(asyncio.CancelledError):
                await free.wait()
        return "at last"

    async with session_in(tmp_path, says("", ("stubborn", {})), tools=[tool("stubborn", stubborn)]) as (
        session,
        _,
    ):
        try:
            async for event in session.submit("Go"):
                if event.kind == "tool_call_start":
                    await session.abort()
        finally:
            free.set()


async def test_a_second_close_waits_for_the_first(tmp_path: Path) -> None:
    environment = Watched(tmp_path)
    session = Session(profile=profile(), environment=environment, model=ScriptedModel([says("Done.")]))
    await session.run("Go")
    first = asyncio.create_task(session.close())
    await asyncio.sleep(0)
    await session.close()
    assert environment.log == ["initialize", "cleanup"]
    await first


@pytest.mark.parametrize("words", ["", "  \n", None, 5, Message(Role.USER, ())])
async def test_nothing_said_is_refused_and_changes_nothing(tmp_path: Path, words: Any) -> None:
    async with session_in(tmp_path, says("Done.")) as (session, model):
        for say in (session.steer, session.follow_up):
            with pytest.raises(ConfigurationError):
                say(words)
        with pytest.raises(ConfigurationError):
            await session.run(words)
        assert model.requests == []
        assert (await session.run("Go")).text == "Done."


async def test_follow_ups_come_after_an_input_that_used_up_its_rounds(tmp_path: Path) -> None:
    look = says("", ("glob", {"pattern": "*"}))
    config = SessionConfig(max_tool_rounds_per_input=1)
    async with session_in(tmp_path, look, look, config=config) as (session, model):
        session.follow_up("And this")
        assert (await session.run("Go")).kind == "limit"
    assert len(model.requests) == 2


async def test_a_tool_with_a_session_of_its_own_may_fail_like_any_other(tmp_path: Path) -> None:
    async def inner(_arguments: Mapping[str, Any]) -> str:
        async with Session(
            profile=profile(),
            environment=LocalEnvironment(tmp_path),
            model=ScriptedModel([RateLimitError("too many")]),
            host=Host(system=lambda _shown: ""),
        ) as session:
            return (await session.run("Help")).text

    steps = [says("", ("inner", {})), says("I see.")]
    async with session_in(tmp_path, *steps, tools=[tool("inner", inner)]) as (session, model):
        assert (await session.run("Go")).text == "I see."
    assert "RateLimitError: too many" in str(model.requests[1].messages[-1])


def test_a_session_may_be_used_again_in_another_event_loop(tmp_path: Path) -> None:
    model = ScriptedModel([says("One."), says("Two.")])
    host = Host(system=lambda _shown: "")
    session = Session(profile=profile(), environment=LocalEnvironment(tmp_path), model=model, host=host)
    assert asyncio.run(session.run("First")).text == "One."
    assert asyncio.run(session.run("Second")).text == "Two."
    asyncio.run(session.close())


class Bare(LocalEnvironment):
    """This machine, as if it had no bubblewrap."""

    async def _resolve_sandbox(self) -> Any:
        return find_sandbox(programs=[])


async def test_the_input_ends_with_what_to_install(tmp_path: Path) -> None:
    model = ScriptedModel([says("", ("shell", {"command": "touch ran"})), says("It worked.")])
    host = Host(system=lambda _shown: "You are tested.")
    async with Session(profile=profile(), environment=Bare(tmp_path), model=model, host=host) as session:
        with pytest.raises(SandboxMissingError, match="install bubblewrap"):
            await session.run("Go")
    assert len(model.steps) == 1
    assert list(tmp_path.iterdir()) == []
