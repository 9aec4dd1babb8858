"""Which spans events become, as a collector has them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted
from orchestrator.core.events import (
    EMBEDDING_AGENT,
    SUMMARY_AGENT,
    CallStatus,
    Compacted,
    Defence,
    ErrorOccurred,
    Event,
    ForeignToolsOffered,
    Guarded,
    InputReceived,
    LimitReached,
    ProcessingEnded,
    ReplyReceived,
    SessionEnded,
    SessionState,
    SubagentEvent,
    TextDelta,
    ToolCallEnded,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    WaitStarted,
    Warned,
)
from orchestrator.core.messages import FinishReason, Message, ToolDefinition, Usage
from orchestrator.engine.contracts.native import Native
from orchestrator.engine.profiles.catalog import PROFILES, minimal, planner
from orchestrator.engine.session.subagents import SubagentLimits, Subagents
from orchestrator.plugins.tracing.spans import Tracing
from orchestrator.plugins.tracing.variables import open_tracing
from tests.doubles.collector import Collector
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.engine.tools.base import Tool

ASKED = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
MODEL, OTHER = "anthropic:claude-x", "openai:gpt-x"
ENDED = CycleEnded({"outcome": "proposed", "rounds": 2, "usd": 0.5})
DONE = ProcessingEnded(SessionState.IDLE, "done")


def begun(model: str = MODEL, repository: str = "ada/calc") -> CycleStarted:
    return CycleStarted("20260101-000000-aaaaaaa", repository, model, Native().name)


def turn(number: int, model: str = MODEL) -> TurnStarted:
    return TurnStarted(number, 10, 0.1, model)


def reply(model: str = "claude-x-1") -> ReplyReceived:
    usage = Usage(10, 5, 4, 3, 2)
    return ReplyReceived(Message.assistant("words"), FinishReason.STOP, usage, 0.25, model)


def call(name: str, call_id: str = "c1", output: str = "output") -> list[Event]:
    return [ToolCallStarted(call_id, name, {"a": "b"}), ToolCallEnded(call_id, name, CallStatus.OK, output)]


def these(*events: Event) -> list[Event]:
    return list(events)


def of(agent: str, *events: Event) -> list[Event]:
    return [SubagentEvent(agent, event) for event in events]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{collector.root}/v1/traces")
        yield collector


def played(collector: Collector, *events: Event, api_url: str = "") -> list[Any]:
    """The traces that events become, one second after another; whatever is open at their end is ended."""
    clock, told = ManualClock(), list[str]()
    tracing = Tracing("here", {}, clock, told.append)
    spans = tracing.follow(api_url)
    for event in events:
        clock.advance(1)
        spans(event)
    clock.advance(1)
    tracing.close()
    assert told == []
    return collector.roots


def test_a_subagent_is_part_of_the_call_that_started_it_and_goes_on_after_it(collector: Collector) -> None:
    one, two, three = (str(UUID(int=number)) for number in (1, 2, 3))
    (cycle,) = played(
        collector,
        *these(begun(), InputReceived("go"), turn(1), reply()),
        *call("spawn_agent", "c1", output=f"agent_id: {one}\nstatus: running"),
        *call("subagent", "c2", output=f'{{"subagent_id": "{two}", "status": "running"}}'),
        *these(turn(2), reply()),
        # A subagent's subagent comes the same way, and what is asked beside its conversation inside of it.
        *of(two, InputReceived("look"), turn(1), reply()),
        *of(one, InputReceived("look"), turn(1, OTHER), reply()),
        *of(one, *call("spawn_agent", "c1", output=f"agent_id: {three}\nstatus: running")),
        *of(three, InputReceived("look"), *of(SUMMARY_AGENT, turn(1), reply()), turn(1), reply(), DONE),
        *of(one, ToolCallStarted("c2", "read_file", {}), SessionEnded("closed")),
        *these(DONE, ENDED),
    )
    below = ("invoke_agent subagent", ["chat claude-x", ("round", ["chat claude-x"])])
    spawned = ("execute_tool spawn_agent", [below])
    first = ("invoke_agent subagent", [("round", ["chat gpt-x", spawned, "execute_tool read_file"])])
    second = ("invoke_agent subagent", [("round", ["chat claude-x"])])
    started = [("execute_tool spawn_agent", [first]), ("execute_tool subagent", [second])]
    rounds = [("round", ["chat claude-x", *started]), ("round", ["chat claude-x"])]
    assert cycle.shape == ("invoke_agent pullwright", rounds)
    spans = {span.attributes.get("gen_ai.agent.id", span.name): span for span in cycle.walk()}
    assert spans["chat gpt-x"].attributes["gen_ai.provider.name"] == "openai"
    assert spans[one].attributes["gen_ai.conversation.id"] == cycle.attributes["gen_ai.conversation.id"]
    assert spans["execute_tool read_file"].attributes["error.type"] == "interrupted"
    assert [one.attributes.get("pullwright.purpose") for one in spans[three].children] == [
        SUMMARY_AGENT,
        None,
    ]


def test_what_ends_otherwise_has_the_kind_of_its_error(collector: Collector) -> None:
    outer = LimitReached("usd", "more than 1 USD was spent on canary")
    failed = played(
        collector,
        begun(),
        *these(turn(1), WaitStarted(2.5, "canary", 9, 0.1), Guarded(Defence.PATHS, "canary", ("canary",))),
        *these(turn(2), TextDelta("canary"), reply()),
        *these(ToolCallStarted("c", "read_file", {}), ToolOutputDelta("c", "canary")),
        *these(
            ToolCallStarted("c", "grep", {}), ToolCallEnded("c", "read_file", CallStatus.REFUSED, "canary")
        ),
        *these(ToolCallStarted("d", "glob", {}), ToolCallEnded("d", "glob", CallStatus.SKIPPED, "canary")),
        *of(SUMMARY_AGENT, turn(1)),
        Warned("the conversation's summary could not be had: canary"),
        *these(turn(3), outer, ErrorOccurred("RateLimitError", "canary")),
        CycleEnded({"outcome": "failed", "error": "canary", "rounds": 3}),
        *these(begun(), turn(1)),
    )
    (cycle, stopped) = failed
    told = [(one.name, one.attributes.get("error.type")) for one in cycle.walk() if one.is_error]
    assert told == [
        ("invoke_agent pullwright", "RateLimitError"),
        ("chat claude-x", "_OTHER"),
        ("execute_tool read_file", "refused"),
        ("execute_tool grep", "interrupted"),
        ("execute_tool glob", "skipped"),
        ("chat claude-x", "_OTHER"),
        ("chat claude-x", "RateLimitError"),
    ]
    noted = [(name, attributes) for one in cycle.walk() for name, attributes in one.events]
    assert noted == [
        ("guarded", {"pullwright.defence": "paths"}),
        ("retry", {"pullwright.wait_seconds": 2.5}),
        ("limit", {"pullwright.limit": "usd"}),
    ]
    request = stopped.children[0].children[0]
    assert stopped.attributes["error.type"] == request.attributes["error.type"] == "cancelled"
    assert b"canary" not in b"".join(collector.bodies)


def test_a_span_names_models_servers_and_repositories_and_no_path(collector: Collector) -> None:
    offer = ForeignToolsOffered("files", (ToolDefinition("files_list", "canary", {}),))
    cycles = played(
        collector,
        *these(begun(), offer, turn(1), reply(), *call("files_list"), *call("files_drop")),
        *these(
            turn(2, OTHER), reply("a model\nof canary"), *of(EMBEDDING_AGENT, reply("openai:embed-x")), ENDED
        ),
        *these(begun(repository="https://ghe.example.com/Ada/Calc"), ENDED),
        *these(begun(repository="/home/canary"), Compacted(9, 1, 1, "canary", "canary"), ENDED),
        *these(begun(), CycleEnded({"outcome": "found"})),
        *these(begun(model="prepared"), turn(1, "prepared"), reply("prepared"), ENDED),
        *these(begun(), turn(1, "openai-chat:/home/canary/m.gguf"), reply("~/canary/m.gguf")),
        api_url="http://[::1]:8080/canary/v1",
    )
    urls = [one.attributes.get("vcs.repository.url.full") for one in cycles]
    assert urls == [
        "https://github.com/ada/calc",
        "https://ghe.example.com/ada/calc",
        None,
        *["https://github.com/ada/calc"] * 2,
    ]
    names = [one.name for one in cycles[0].walk() if one.name.startswith("execute_tool")]
    assert names == ["execute_tool files_list", "execute_tool _OTHER"]
    requests = [one for cycle in cycles for one in cycle.walk() if one.kind == "client"]
    served = [(one.attributes.get("server.address"), one.attributes.get("server.port")) for one in requests]
    assert served == [
        ("::1", 8080),
        ("api.openai.com", 443),
        ("api.openai.com", 443),
        (None, None),
        ("api.openai.com", 443),
    ]
    operations = [one.attributes["gen_ai.operation.name"] for one in requests]
    assert operations == ["chat", "chat", "embeddings", "chat", "chat"]
    answered = [one.attributes["gen_ai.response.model"] for one in requests]
    assert answered == ["claude-x-1", "_OTHER", "openai:embed-x", "prepared", "m.gguf"]
    assert requests[-1].attributes["gen_ai.request.model"] == "m.gguf"
    counted = {
        name: value for name, value in requests[0].attributes.items() if name.startswith("gen_ai.usage")
    }
    assert counted == {
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.cache_creation.input_tokens": 3,
        "gen_ai.usage.reasoning.output_tokens": 2,
    }
    assert requests[0].attributes["pullwright.usd"] == 0.25
    assert cycles[0].attributes["pullwright.usd"] == 0.5
    assert b"canary" not in b"".join(collector.bodies)


@table(
    "environ",
    [
        {},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        {"OTEL_SERVICE_NAME": "x", "OTEL_TRACES_EXPORTER": "otlp"},
        {**ASKED, "OTEL_SDK_DISABLED": "TRUE"},
        {**ASKED, "OTEL_TRACES_EXPORTER": "none"},
        {**ASKED, "OTEL_TRACES_EXPORTER": "console, zipkin"},
    ],
)
def test_nothing_is_sent_unless_the_standard_variables_say_so(environ: dict[str, str]) -> None:
    assert open_tracing(environ, ManualClock(), lambda _: None) is None


def test_each_tool_of_each_profile_is_named(collector: Collector) -> None:
    assert collector.bodies == []
    agents = Subagents(lambda _: NotImplemented, lambda: SubagentLimits(1))
    made: list[Iterable[Tool]] = [make().tools for make in (*PROFILES.values(), planner)]
    made += [minimal(submit=True).tools]
    made += [agents.tools(other_models=True), agents.background_tools()]
    names = {tool.name for tools in made for tool in tools}
    tracing = Tracing("here", {}, ManualClock(), lambda _: None)
    tracing.close()
    assert len(names) >= 30
    assert names - tracing.own_tools == set()


def test_the_end_does_not_wait_for_a_collector_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    with Collector(hangs=True) as collector:
        environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.root}
        for name, value in {
            **environ,
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
            "OTEL_TRACES_SAMPLER": "all",
        }.items():
            monkeypatch.setenv(name, value)
        told: list[str] = []
        tracing = open_tracing(environ, ManualClock(), told.append)
        assert tracing is not None
        spans = tracing.follow("")
        for event in these(begun(), turn(1), reply(), ENDED):
            spans(event)
        tracing.close(0.1)
        (sending,) = [one for one in threading.enumerate() if one.name == "last spans"]  # for half a minute
        where = collector.root.rpartition("/")[2]
        why = "the work goes on without them: no answer within 0.1 seconds"
        unknown = "OpenTelemetry: Couldn't recognize sampler all."
        assert told == [unknown, f"traces do not reach {where}, and {why}"]
    sending.join()
